package samekey

import (
	"bytes"
	"net/http"
	"net/textproto"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/samekey/samekey/internal/canonjson"
	"github.com/samekey/samekey/persist"
)

// Carrier places the key. The zero value is Header("Idempotency-Key").
type Carrier struct {
	in     carrierKind
	name   string // of the field (canonical), parameter or form field; the pointer of the member
	quoted bool
}

type carrierKind uint8

const (
	carrierDefault carrierKind = iota
	carrierHeader
	carrierRepeatability // a header, and another beside it
	carrierBody
	carrierQuery
	carrierForm
	carrierNatural
	carrierNone
)

// Header carries the key in the field name, as it is.
func Header(name string) Carrier {
	return Carrier{in: carrierHeader, name: textproto.CanonicalMIMEHeaderKey(name)}
}

// QuotedHeader carries the key as a quoted string of RFC 9651, as the IETF draft on the Idempotency-Key field has it.
func QuotedHeader(name string) Carrier {
	c := Header(name)
	c.quoted = true
	return c
}

// BodyMember carries the key as a string member of a JSON body, at an RFC 6901 pointer whose parent object the body has.
// The member is inserted once, before the request is stored; every other byte stays as it was.
func BodyMember(pointer string) Carrier { return Carrier{in: carrierBody, name: pointer} }

// QueryParam carries the key in a parameter of the query, behind those that are there.
func QueryParam(name string) Carrier { return Carrier{in: carrierQuery, name: name} }

// FormField carries the key in a field of an application/x-www-form-urlencoded body, behind those that are there.
func FormField(name string) Carrier { return Carrier{in: carrierForm, name: name} }

var (
	// Repeatability is the pair of headers of OASIS Repeatable Requests 1.0: Repeatability-Request-ID with the key, and
	// Repeatability-First-Sent with the time of the first send, the same on every attempt.
	Repeatability = Carrier{in: carrierRepeatability, name: "Repeatability-Request-Id"}
	// Natural: the request itself is safe to repeat (PUT of a whole resource, If-Match); it is recorded and retried
	// without a key on the wire.
	Natural = Carrier{in: carrierNatural}
	// NoKey: the server knows no keys. One try; only what provably was not sent is repeated, and nothing is taken over
	// once an attempt is marked.
	NoKey = Carrier{in: carrierNone}
)

const firstSentHeader = "Repeatability-First-Sent"

// String is how a policy file writes the carrier.
func (c Carrier) String() string {
	switch c.in {
	case carrierRepeatability:
		return "repeatability"
	case carrierBody:
		return "body " + c.name
	case carrierQuery:
		return "query " + c.name
	case carrierForm:
		return "form " + c.name
	case carrierNatural:
		return "natural"
	case carrierNone:
		return "none"
	case carrierDefault:
		return "header Idempotency-Key"
	}
	if c.quoted {
		return "quoted header " + c.name
	}
	return "header " + c.name
}

func parseCarrier(s string) (Carrier, bool) {
	for _, c := range []Carrier{Natural, NoKey, Repeatability} {
		if s == c.String() {
			return c, true
		}
	}
	for prefix, of := range map[string]func(string) Carrier{
		"quoted header ": QuotedHeader, "header ": Header, "body ": BodyMember, "query ": QueryParam, "form ": FormField,
	} {
		if name, ok := strings.CutPrefix(s, prefix); ok {
			return of(name), true
		}
	}
	return Carrier{}, false
}

// inHeader reports whether the key is in a field of the head.
func (c Carrier) inHeader() bool { return c.in == carrierHeader || c.in == carrierRepeatability }

// keyed reports whether the server is told a key at all.
func (c Carrier) keyed() bool { return c.in < carrierNatural }

// check says what is wrong with the carrier, "" if nothing.
func (c Carrier) check() (why string) {
	switch c.in {
	case carrierHeader:
		if !validToken(c.name) {
			return `"` + c.name + `" is no header name`
		}
		if slices.Contains([]string{"Authorization", "Cookie", "Content-Length", "Host", "Content-Type"}, c.name) {
			return c.name + " has another use"
		}
	case carrierBody:
		p, err := canonjson.ParsePointer(c.name)
		if err != nil {
			return err.Error()
		}
		if len(p) == 0 {
			return "the pointer names the whole body"
		}
	case carrierQuery, carrierForm:
		if c.name == "" {
			return "the name is empty"
		}
	}
	return ""
}

// adopted returns the key that the request bears already, "" for none. A request with more than one, or with one that
// cannot be read, is an error.
func (k *contract) adopted(req *http.Request, body []byte) (key, why string) {
	c := k.Carrier
	var found []string
	switch c.in {
	case carrierHeader, carrierRepeatability:
		found = c.lines(req.Header)
	case carrierQuery:
		found = req.URL.Query()[c.name]
	case carrierForm:
		form, err := url.ParseQuery(string(body))
		if err != nil || !isForm(req.Header) {
			return "", "the body is no form that could carry the key in the field " + c.name
		}
		found = form[c.name]
	case carrierBody:
		raw, ok := canonjson.Lookup(body, *k.pointer)
		if !ok {
			return "", ""
		}
		if found = []string{text(raw)}; raw[0] != '"' {
			return "", "the body's member " + c.name + " is no string"
		}
	}
	switch len(found) {
	case 0:
		return "", ""
	case 1:
	default:
		return "", "the request bears more than one key (" + c.String() + ")"
	}
	key = found[0]
	if c.quoted {
		var ok bool
		if key, ok = unquote(key); !ok {
			return "", c.name + " is not a quoted string (RFC 9651)"
		}
	}
	return key, k.check(key)
}

// mayBear reports whether the request may bear a key already, as far as its head tells.
func (k *contract) mayBear(req *http.Request) bool {
	switch k.Carrier.in {
	case carrierHeader, carrierRepeatability:
		return len(k.Carrier.lines(req.Header)) > 0
	case carrierQuery:
		return req.URL != nil && req.URL.Query().Has(k.Carrier.name)
	}
	return k.keyed()
}

// lines are the carrier's in h, however its name is written there: net/http sends it as it is.
func (c Carrier) lines(h http.Header) (out []string) { return linesOf(h, c.name) }

// linesOf are the lines of a field, however a caller has written its name into the map.
func linesOf(h http.Header, canonical string) (out []string) {
	for name, lines := range h {
		if name == canonical || http.CanonicalHeaderKey(name) == canonical {
			out = append(out, lines...)
		}
	}
	return out
}

// isForm reports whether h is of a form that is written as it is: a field behind a compressed one would not be read.
func isForm(h http.Header) bool {
	kind, _, _ := strings.Cut(h.Get("Content-Type"), ";")
	coding := h.Get("Content-Encoding")
	return strings.EqualFold(strings.TrimSpace(kind), "application/x-www-form-urlencoded") &&
		(coding == "" || strings.EqualFold(coding, "identity"))
}

// without is the target and the body that the caller meant, for the fingerprint. A JSON member is left to the comparison
// of canonical forms.
func (c Carrier) without(target string, body []byte) (string, []byte) {
	switch c.in {
	case carrierQuery:
		if before, query, ok := strings.Cut(target, "?"); ok {
			if query, _ = splitQuery(query, []string{c.name}); query != "" {
				query = "?" + query
			}
			return before + query, body
		}
	case carrierForm:
		form, _ := splitQuery(string(body), []string{c.name})
		return target, []byte(form)
	}
	return target, body
}

// carry puts the key into what is stored and sent: a field of rec (whose header it may write into), or its target or
// body; what was there gives way. Nothing else changes. It says why where there is no place for it.
func (k *contract) carry(rec *persist.Record, key string, body []byte) (sent []byte, why string) {
	c := k.Carrier
	switch c.in {
	case carrierHeader, carrierRepeatability:
		if rec.Header == nil {
			rec.Header = make(http.Header)
		}
		k.place(rec.Header, key, rec.Created)
	case carrierQuery:
		target, _ := c.without(rec.Target, nil)
		rec.Target = withParam(target, c.name, key)
	case carrierForm:
		_, form := c.without("", body)
		if len(form) > 0 {
			form = append(slices.Clip(form), '&')
		}
		return append(slices.Clip(form), url.QueryEscape(c.name)+"="+url.QueryEscape(key)...), ""
	case carrierBody:
		out, ok := withMember(body, *k.pointer, key)
		if !ok {
			return nil, "the body is no JSON document with an object that could carry the key at " + c.name
		}
		return out, ""
	}
	return body, ""
}

// place writes the key into h.
func (k *contract) place(h http.Header, key string, now time.Time) {
	if k.Carrier.quoted {
		key = `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(key) + `"`
	}
	h[k.Carrier.name] = []string{key}
	if k.Carrier.in == carrierRepeatability && len(h[firstSentHeader]) == 0 {
		h[firstSentHeader] = []string{now.UTC().Format(http.TimeFormat)}
	}
}

func withParam(target, name, value string) string {
	sep := "?"
	if strings.Contains(target, "?") {
		sep = "&"
	}
	return target + sep + url.QueryEscape(name) + "=" + url.QueryEscape(value)
}

// withMember sets the string member at p: in the place of the one that is there, else first in its object.
func withMember(body []byte, p canonjson.Pointer, value string) ([]byte, bool) {
	quoted := quoteJSON(value)
	if start, end, ok := canonjson.Find(body, p); ok {
		return slices.Concat(body[:start], quoted, body[end:]), true
	}
	start, _, ok := canonjson.Find(body, p[:len(p)-1])
	if !ok || body[start] != '{' {
		return nil, false
	}
	member := slices.Concat(quoteJSON(p[len(p)-1]), []byte(":"), quoted)
	if rest := bytes.TrimLeft(body[start+1:], " \t\r\n"); rest[0] != '}' {
		member = append(member, ',')
	}
	out := slices.Concat(body[:start+1], member, body[start+1:])
	_, _, only := canonjson.Find(out, p) // else the body has members of this name, and which one a server reads is its own affair
	return out, only
}
