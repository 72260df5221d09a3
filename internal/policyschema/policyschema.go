// Package policyschema makes the JSON Schema of policy files from the Go types that they are read into, so that editors
// can check and complete what [samekey.LoadPolicies] would read.
package policyschema

import (
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"time"

	"github.com/samekey/samekey"
)

// ID is the schema's own address.
const ID = "https://raw.githubusercontent.com/samekey/samekey/main/cmd/samekey/tool/policy.schema.json"

// Generate returns the schema. The descriptions in it are the comments of the fields, from the package's source in dir.
func Generate(dir string) ([]byte, error) {
	docs, err := comments(dir)
	if err != nil {
		return nil, err
	}
	g := &generator{docs: docs, defs: object{
		"Duration": duration(`A duration such as 5s, 1m30s or 24h, or "off".`, "off"),
		"Life":     duration(`A duration such as 24h or 168h, or "forever".`, "forever"),
		"Carrier": {
			"type": "string", "description": "Where the key is placed; a body's member is named by its RFC 6901 pointer.",
			"pattern": "^((quoted header|header|body|query|form) .+|repeatability|natural|none)$",
		},
	}}
	policy := g.of(reflect.TypeFor[samekey.Policy](), "")
	root := schema{
		"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": ID,
		"title": "samekey policy file", "type": "object", "additionalProperties": false,
		"properties": object{
			"$schema":   {"type": "string", "description": "The address of this schema, for editors."},
			"Default":   with(policy, "What every endpoint inherits from, and what holds for requests that match none."),
			"Endpoints": {"type": "object", "additionalProperties": policy, "description": `Policies by pattern of net/http.ServeMux, "POST api.bank.test/v1/orders/{id}/cancel". The most specific pattern holds.`},
		},
		"$defs": g.defs,
	}
	out, err := json.MarshalIndent(root, "", "  ")
	return append(out, '\n'), err
}

// duration is the schema of one that is not zero, or of the word that stands for none.
func duration(description, none string) schema {
	const one = `([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h)`
	return schema{
		"type": "string", "description": description,
		"pattern": `^(` + none + `|\+?(` + one + `)+)$`,
		"not":     schema{"pattern": `^\+?[0.nuµμmsh]+$`}, // zero
	}
}

type (
	schema map[string]any
	object map[string]schema
)

// with is s and a description.
func with(s schema, description string) schema {
	if description == "" {
		return s
	}
	out := schema{"description": description}
	for k, v := range s {
		out[k] = v
	}
	return out
}

type generator struct {
	docs map[string]string // by "Type.Field"
	defs object
}

// of is the schema of what a file may say for a t; field is where it stands, "Policy.RetryStatus".
func (g *generator) of(t reflect.Type, field string) schema {
	switch t {
	case reflect.TypeFor[samekey.Switch]():
		return schema{"type": "boolean"}
	case reflect.TypeFor[time.Duration]():
		if strings.HasSuffix(field, ".Life") {
			return schema{"$ref": "#/$defs/Life"}
		}
		return schema{"$ref": "#/$defs/Duration"}
	case reflect.TypeFor[samekey.Carrier]():
		return schema{"$ref": "#/$defs/Carrier"}
	case reflect.TypeFor[samekey.KeyFormat]():
		return schema{"enum": []string{fmt.Sprint(samekey.UUIDv4), fmt.Sprint(samekey.ULID)}}
	case reflect.TypeFor[samekey.Persist](), reflect.TypeFor[samekey.Expiry](), reflect.TypeFor[samekey.Meaning]():
		return schema{"enum": words(t)}
	case reflect.TypeFor[*samekey.Contract]():
		return schema{"anyOf": []schema{{"type": "string", "description": "The name of a contract that the program knows."}, g.of(t.Elem(), field)}}
	}
	switch t.Kind() {
	case reflect.Struct:
		return g.structure(t)
	case reflect.Slice:
		items := g.of(t.Elem(), field)
		if strings.HasSuffix(field, "Status") {
			items = schema{"anyOf": []schema{items, {"const": "5xx"}}}
		}
		return schema{"type": "array", "items": items}
	case reflect.String:
		return schema{"type": "string"}
	case reflect.Bool:
		return schema{"type": "boolean"}
	case reflect.Int, reflect.Int64:
		return schema{"type": "integer"}
	case reflect.Float64:
		return schema{"anyOf": []schema{{"type": "number"}, {"const": "off"}}}
	}
	panic(fmt.Sprintf("policyschema: %s is a %s: say here what a file may hold there", field, t))
}

// structure puts the schema of t among the definitions.
func (g *generator) structure(t reflect.Type) schema {
	ref := schema{"$ref": "#/$defs/" + t.Name()}
	if g.defs[t.Name()] != nil {
		return ref
	}
	properties := object{}
	g.defs[t.Name()] = schema{"type": "object", "additionalProperties": false, "properties": properties}
	for f := range t.Fields() {
		if f.IsExported() && f.Type.Kind() != reflect.Func {
			name := t.Name() + "." + f.Name
			doc := g.docs[name]
			if f.Type == reflect.TypeFor[samekey.Switch]() {
				doc += " (On is true, Off is false)"
			}
			properties[f.Name] = with(g.of(f.Type, name), doc)
		}
	}
	return ref
}

// words lists how the values of t are written, from the first after zero to the last that has a word.
func words(t reflect.Type) (out []string) {
	for i := uint64(1); ; i++ {
		v := reflect.New(t).Elem()
		v.SetUint(i)
		word := fmt.Sprint(v.Interface())
		if strings.HasPrefix(word, t.Name()+"(") {
			return out
		}
		out = append(out, word)
	}
}

// perCall marks, in the comments of Policy, a field that may differ per call: of no matter in a file.
var (
	perCall = regexp.MustCompile(`^c `)
	docLink = regexp.MustCompile(`\[([A-Z][\w.]*)\]`)
)

// comments reads those of the fields of all types in dir.
func comments(dir string) (map[string]string, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		return nil, err
	}
	docs := map[string]string{}
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		src, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, src, parser.ParseComments)
		if err != nil {
			return nil, err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			spec, ok := n.(*ast.TypeSpec)
			if !ok {
				return true
			}
			if st, ok := spec.Type.(*ast.StructType); ok {
				for _, f := range st.Fields.List {
					text := strings.Join(strings.Fields(f.Doc.Text()+" "+f.Comment.Text()), " ")
					text = docLink.ReplaceAllString(perCall.ReplaceAllString(text, ""), "$1")
					for _, id := range f.Names {
						docs[spec.Name.Name+"."+id.Name] = text
					}
				}
			}
			return true
		})
	}
	return docs, nil
}
