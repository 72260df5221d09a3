package yaml

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/samekey/samekey"
)

// LoadPolicies is [samekey.LoadPolicies] for a file in YAML. Errors are *samekey.PolicyFileError, with the line in that
// file, all of them joined.
func LoadPolicies(fsys fs.FS, name string, contracts ...samekey.Contract) (def samekey.Policy, endpoints map[string]samekey.Policy, err error) {
	data, err := fs.ReadFile(fsys, name)
	if err != nil {
		return samekey.Policy{}, nil, fmt.Errorf("samekey: policy file: %w", err)
	}
	return ParsePolicies(name, data, contracts...)
}

// ParsePolicies is LoadPolicies for a file that has been read; name is for its errors.
func ParsePolicies(name string, data []byte, contracts ...samekey.Contract) (def samekey.Policy, endpoints map[string]samekey.Policy, err error) {
	doc, err := ToJSON(name, data)
	if err != nil {
		return samekey.Policy{}, nil, err
	}
	return samekey.ParsePolicies(name, doc, contracts...)
}

// ToJSON is the same document in JSON, for tools that read nothing else. Every name and value stands on the line that it
// has in the YAML file, so that whatever is said of a line holds for both.
func ToJSON(name string, data []byte) ([]byte, error) {
	root, err := document(data)
	w := &writer{line: 1}
	if err == nil {
		err = w.value(root, 0)
	}
	if err == nil {
		return append(w.out.Bytes(), '\n'), nil
	}
	p, ok := errors.AsType[*samekey.PolicyFileError](err)
	if !ok {
		p = &samekey.PolicyFileError{Line: 1, Why: err.Error()}
		if e, ok := errors.AsType[*yaml.LoadError](err); ok {
			p.Line, p.Why = max(e.Mark.Line, 1), e.Message
		}
	}
	p.File = name
	return nil, p
}

// document reads the only one.
func document(data []byte) (*yaml.Node, error) {
	loader, err := yaml.NewLoader(bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	var doc, next yaml.Node
	switch err := loader.Load(&doc); {
	case errors.Is(err, io.EOF):
		return nil, refuse(1, "is empty")
	case err != nil:
		return nil, err
	}
	switch err := loader.Load(&next); {
	case err == nil:
		return nil, refuse(next.Line, "a second document begins: a policy file is one")
	case !errors.Is(err, io.EOF):
		return nil, err
	}
	if doc.Kind != yaml.DocumentNode || len(doc.Content) != 1 {
		return nil, refuse(1, "is empty")
	}
	return doc.Content[0], nil
}

func refuse(line int, format string, args ...any) error {
	return &samekey.PolicyFileError{Line: max(line, 1), Why: fmt.Sprintf(format, args...)}
}

// The bounds of what is read: a policy is seven levels deep.
const (
	maxDepth  = 32
	maxValues = 100_000 // with aliases written out
)

// writer writes nodes as JSON, and a line break wherever the source has one between two tokens.
type writer struct {
	out    bytes.Buffer
	line   int
	values int
	alias  int // the line of the alias that is being written out, 0 outside of one
}

// at goes on to a line; what an alias stands for is on the alias's.
func (w *writer) at(line int) {
	if w.alias > 0 {
		line = w.alias
	}
	for ; w.line < line; w.line++ {
		w.out.WriteByte('\n')
	}
}

func (w *writer) value(n *yaml.Node, depth int) error {
	if w.values++; w.values > maxValues {
		return refuse(w.line, "stands for more than %d values", maxValues)
	}
	if depth > maxDepth { // an alias within its own anchor, too
		return refuse(w.line, "is nested deeper than %d levels", maxDepth)
	}
	switch n.Kind {
	case yaml.AliasNode:
		if w.alias == 0 {
			w.at(n.Line)
			w.alias = n.Line
			defer func() { w.alias = 0 }()
		}
		return w.value(n.Alias, depth+1)
	case yaml.MappingNode:
		return w.mapping(n, depth)
	case yaml.SequenceNode:
		return w.sequence(n, depth)
	case yaml.ScalarNode:
		w.at(n.Line)
		return w.scalar(n)
	}
	return refuse(n.Line, "cannot be read")
}

func (w *writer) mapping(n *yaml.Node, depth int) error {
	if tag := n.ShortTag(); tag != "!!map" {
		return refuse(n.Line, "has the tag %s, which is not read here", tag)
	}
	w.out.WriteByte('{') // on the line of its name, where there is one
	for i := 0; i+1 < len(n.Content); i += 2 {
		key := n.Content[i]
		for key.Kind == yaml.AliasNode {
			key = key.Alias
		}
		switch {
		case key.Kind != yaml.ScalarNode:
			return refuse(n.Content[i].Line, "a name is one word, and no list or mapping")
		case key.ShortTag() == "!!merge":
			return refuse(key.Line, "merge keys (<<) are not read: write the values out, or put what endpoints have in common into Default")
		}
		if i > 0 {
			w.out.WriteByte(',')
		}
		w.at(n.Content[i].Line)
		w.text(key.Value)
		w.out.WriteByte(':')
		if err := w.value(n.Content[i+1], depth+1); err != nil {
			return err
		}
	}
	w.out.WriteByte('}')
	return nil
}

func (w *writer) sequence(n *yaml.Node, depth int) error {
	if tag := n.ShortTag(); tag != "!!seq" {
		return refuse(n.Line, "has the tag %s, which is not read here", tag)
	}
	w.out.WriteByte('[')
	for i, item := range n.Content {
		if i > 0 {
			w.out.WriteByte(',')
		}
		w.at(item.Line)
		if err := w.value(item, depth+1); err != nil {
			return err
		}
	}
	w.out.WriteByte(']')
	return nil
}

// number is JSON's.
var number = regexp.MustCompile(`^-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?$`)

// scalar writes what JSON has a word for; a number that is written in a way of YAML's own (0x10, 0777, .inf) is left a
// string, and refused as one.
func (w *writer) scalar(n *yaml.Node) error {
	switch tag := n.ShortTag(); tag {
	case "!!null":
		w.out.WriteString("null")
	case "!!bool":
		if word := strings.ToLower(n.Value); word == "true" || word == "false" {
			w.out.WriteString(word)
		} else { // yes, by a tag
			w.text(n.Value)
		}
	case "!!int", "!!float":
		if number.MatchString(n.Value) {
			w.out.WriteString(n.Value)
		} else {
			w.text(n.Value)
		}
	case "!!str", "!!timestamp":
		w.text(n.Value)
	default:
		return refuse(n.Line, "has the tag %s, which is not read here", tag)
	}
	return nil
}

func (w *writer) text(s string) {
	quoted, _ := json.Marshal(s) // strings do not fail
	w.out.Write(quoted)
}
