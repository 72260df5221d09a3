package mockserver

import (
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"net/url"
	"strconv"
	"strings"
)

// Carrier is where a key travels.
type Carrier struct {
	In     string `json:"in"`               // header, body, query or form
	Name   string `json:"name"`             // of the header, member, parameter or field; a body's may be a JSON pointer
	Quoted bool   `json:"quoted,omitempty"` // a header's value is an RFC 9651 string
	Beside string `json:"beside,omitempty"` // a second header that must come with the first, and stay the same
}

// Header carries the key bare in a header.
func Header(name string) Carrier { return Carrier{In: "header", Name: name} }

// QuotedHeader carries the key in a header, as a quoted string.
func QuotedHeader(name string) Carrier { return Carrier{In: "header", Name: name, Quoted: true} }

// BodyMember carries the key in a member of the JSON body: a name, or a JSON pointer such as "/meta/requestId".
func BodyMember(name string) Carrier { return Carrier{In: "body", Name: name} }

// QueryParam carries the key in the query.
func QueryParam(name string) Carrier { return Carrier{In: "query", Name: name} }

// FormField carries the key in a field of a urlencoded body.
func FormField(name string) Carrier { return Carrier{In: "form", Name: name} }

// Member makes a Config.OperationOf that reads a member of the JSON body: a name, or a JSON pointer.
func Member(name string) func(*http.Request, []byte) string {
	return func(_ *http.Request, body []byte) string { return member(body, name) }
}

// key finds the key of a request; ok is false if there is one that is not of the carrier's form.
func (c Carrier) key(r *http.Request, body []byte, lenient bool) (key string, ok bool) {
	switch c.In {
	case "header":
		v := r.Header.Values(c.Name)
		if len(v) > 1 {
			return strings.Join(v, ", "), false
		}
		if len(v) == 0 {
			return "", true
		}
		if c.Beside != "" && r.Header.Get(c.Beside) == "" {
			return v[0], false
		}
		return unquote(strings.TrimSpace(v[0]), c.Quoted, lenient)
	case "query":
		return r.URL.Query().Get(c.Name), true
	case "form":
		f, err := url.ParseQuery(string(body))
		return f.Get(c.Name), err == nil
	default:
		return member(body, c.Name), true
	}
}

func unquote(v string, quoted, lenient bool) (string, bool) {
	in, isQuoted := strings.CutPrefix(v, `"`)
	if isQuoted {
		in, isQuoted = strings.CutSuffix(in, `"`)
	}
	switch {
	case v == "", !quoted && !lenient:
		return v, true
	case isQuoted && !strings.ContainsAny(in, `"\`):
		return in, true
	case isQuoted:
		if s, err := strconv.Unquote(v); err == nil {
			return s, true
		}
	}
	return v, lenient
}

// principalOf never shows a secret: the user of Basic, a short hash of anything else.
func principalOf(r *http.Request) string {
	if user, _, ok := r.BasicAuth(); ok {
		return user
	}
	a := r.Header.Get("Authorization")
	if a == "" {
		return ""
	}
	scheme, _, _ := strings.Cut(a, " ")
	sum := sha256.Sum256([]byte(a))
	return scheme + " " + hex.EncodeToString(sum[:4])
}

func itoa(n int) string { return strconv.Itoa(n) }
