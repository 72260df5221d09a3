package openapi

import (
	"mime"
	"slices"
	"strings"
	"unicode"

	"github.com/getkin/kin-openapi/openapi3"

	"github.com/samekey/samekey"
)

// key is where an operation takes one, and how it has to look.
type key struct {
	carrier  samekey.Carrier
	header   string // its name, "" where it is none
	required bool
	schemas  []*openapi3.Schema // all of them hold
}

// spellings of Idempotency-Key, folded.
var spellings = []string{"idempotencykey", "idempotencekey"}

// fold leaves the letters of a name, without the X- that means nothing.
func fold(name string) string {
	s := strings.Map(func(r rune) rune {
		if unicode.IsLetter(r) {
			return unicode.ToLower(r)
		}
		return -1
	}, name)
	return strings.TrimPrefix(s, "x")
}

func (r *reader) isKey(name string, header bool) bool {
	if slices.Contains(spellings, fold(name)) {
		return true
	}
	return slices.ContainsFunc(r.o.Names, func(n string) bool { return n == name || header && strings.EqualFold(n, name) })
}

const repeatability = "Repeatability-Request-ID"

// key finds the operation's: in the header, else in the query, else in the body; nil for none.
func (r *reader) key(name string, item *openapi3.PathItem, op *openapi3.Operation) *key {
	var found []*key
	for _, in := range []string{openapi3.ParameterInHeader, openapi3.ParameterInQuery, openapi3.ParameterInPath, openapi3.ParameterInCookie} {
		for _, p := range parameters(item, op) {
			header := in == openapi3.ParameterInHeader
			oasis := header && strings.EqualFold(p.Name, repeatability)
			if p.In != in || !oasis && !r.isKey(p.Name, header) {
				continue
			}
			k := &key{required: p.Required, schemas: flat(parameterSchema(p))}
			switch {
			case oasis:
				k.carrier, k.header = samekey.Repeatability, p.Name
			case header && quoted(p, k.schemas):
				k.carrier, k.header = samekey.QuotedHeader(p.Name), p.Name
			case header:
				k.carrier, k.header = samekey.Header(p.Name), p.Name
			case in == openapi3.ParameterInQuery:
				k.carrier = samekey.QueryParam(p.Name)
			default:
				r.note(name, "takes a key %q in the %s, where no carrier can place it", p.Name, in)
				continue
			}
			found = append(found, k)
		}
	}
	found = append(found, r.bodyKeys(name, op)...)
	if len(found) == 0 {
		return nil
	}
	for _, other := range found[1:] {
		r.note(name, "takes a key in more than one place: %s is used, %s is not", found[0].carrier, other.carrier)
	}
	return found[0]
}

// parameters are the operation's, and those of its path that it does not override.
func parameters(item *openapi3.PathItem, op *openapi3.Operation) (out []*openapi3.Parameter) {
	for _, ref := range slices.Concat(op.Parameters, item.Parameters) {
		p := ref.Value
		if p != nil && !slices.ContainsFunc(out, func(q *openapi3.Parameter) bool { return q.In == p.In && q.Name == p.Name }) {
			out = append(out, p)
		}
	}
	return out
}

func parameterSchema(p *openapi3.Parameter) *openapi3.SchemaRef {
	if p.Schema != nil {
		return p.Schema
	}
	for _, media := range p.Content {
		if media != nil {
			return media.Schema
		}
	}
	return nil
}

// quoted: an example in quotes tells that the header is a structured field (RFC 9651), as the IETF draft has it.
func quoted(p *openapi3.Parameter, schemas []*openapi3.Schema) bool {
	examples := []any{p.Example}
	for _, e := range p.Examples {
		if e != nil && e.Value != nil {
			examples = append(examples, e.Value.Value)
		}
	}
	for _, s := range schemas {
		examples = append(append(examples, s.Example), s.Examples...)
	}
	return slices.ContainsFunc(examples, func(e any) bool {
		s, ok := e.(string)
		return ok && len(s) > 2 && s[0] == '"' && s[len(s)-1] == '"'
	})
}

// bodyKeys finds members of the body at its top level.
func (r *reader) bodyKeys(name string, op *openapi3.Operation) (out []*key) {
	if op.RequestBody == nil || op.RequestBody.Value == nil {
		return nil
	}
	body := op.RequestBody.Value
	var with, without []string
	for _, kind := range sorted(body.Content) {
		media := body.Content[kind]
		of := carrierOf(kind)
		if media == nil {
			continue
		}
		var k *key
		for _, s := range flat(media.Schema) {
			for _, member := range sorted(s.Properties) {
				switch {
				case k != nil || !r.isKey(member, false):
				case of == nil:
					r.note(name, "takes a key %q in a body of %s, where no carrier can place it", member, kind)
				default:
					k = &key{carrier: of(member), required: body.Required && slices.Contains(s.Required, member), schemas: flat(s.Properties[member])}
				}
			}
		}
		if k == nil {
			without = append(without, kind)
			continue
		}
		with = append(with, kind)
		if !slices.ContainsFunc(out, func(other *key) bool { return other.carrier == k.carrier }) {
			out = append(out, k)
		}
	}
	if len(with) > 0 && len(without) > 0 {
		r.note(name, "takes a key in bodies of %s, and not in those of %s: only the former can be sent", strings.Join(with, ", "), strings.Join(without, ", "))
	}
	return out
}

// carrierOf is how a key gets into a body of this type; nil: there is no way.
func carrierOf(mediaType string) func(member string) samekey.Carrier {
	kind, _, err := mime.ParseMediaType(mediaType)
	switch {
	case err != nil:
		return nil
	case kind == "application/json", strings.HasSuffix(kind, "+json"):
		return func(member string) samekey.Carrier {
			return samekey.BodyMember("/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(member))
		}
	case kind == "application/x-www-form-urlencoded":
		return samekey.FormField
	}
	return nil
}

// flat is a schema and all that it is composed of by allOf; descriptions may refer to themselves.
func flat(ref *openapi3.SchemaRef) (out []*openapi3.Schema) {
	var add func(*openapi3.SchemaRef)
	add = func(ref *openapi3.SchemaRef) {
		if ref == nil || ref.Value == nil || slices.Contains(out, ref.Value) {
			return
		}
		out = append(out, ref.Value)
		for _, part := range ref.Value.AllOf {
			add(part)
		}
	}
	add(ref)
	return out
}
