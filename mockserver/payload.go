package mockserver

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"net/http"
	"strings"
	"unicode/utf8"
)

// member reads a scalar member of a JSON object by name or by JSON pointer; what is not there is empty.
func member(body []byte, name string) string {
	raw := body
	if pointer, ok := strings.CutPrefix(name, "/"); ok {
		for step := range strings.SplitSeq(pointer, "/") {
			raw = find(raw, strings.NewReplacer("~1", "/", "~0", "~").Replace(step))
		}
	} else {
		raw = find(body, name)
	}
	if len(raw) == 0 || raw[0] == '{' || raw[0] == '[' || string(raw) == "null" {
		return ""
	}
	if raw[0] != '"' {
		return string(raw)
	}
	s, _ := text(raw)
	return s
}

// find is the value of a member of a JSON object, as written. It scans and does not check: every request passes here,
// and most have what it looks for.
func find(body []byte, name string) []byte {
	i := space(body, 0)
	if i >= len(body) || body[i] != '{' {
		return nil
	}
	for i++; ; i++ {
		key := space(body, i)
		colon := space(body, skip(body, key))
		if colon >= len(body) || body[colon] != ':' || body[key] != '"' {
			return nil
		}
		from := space(body, colon+1)
		to := skip(body, from)
		if k, ok := text(bytes.TrimSpace(body[key:colon])); ok && k == name {
			return bytes.TrimSpace(body[from:to])
		}
		if i = space(body, to); i >= len(body) || body[i] != ',' {
			return nil
		}
	}
}

func space(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\n' || b[i] == '\t' || b[i] == '\r') {
		i++
	}
	return i
}

// skip is where the value that begins at i ends.
func skip(b []byte, i int) int {
	depth := 0
	for ; i < len(b); i++ {
		switch b[i] {
		case '"':
			for i++; i < len(b) && b[i] != '"'; i++ {
				if b[i] == '\\' {
					i++
				}
			}
		case '{', '[':
			depth++
			continue
		case '}', ']':
			if depth == 0 {
				return i
			}
			depth--
		case ',', ':', ' ', '\n', '\t', '\r':
			if depth == 0 {
				return i
			}
			continue
		default:
			continue
		}
		if depth == 0 {
			return min(i+1, len(b)) // an escape at the very end leads beyond it
		}
	}
	return len(b)
}

// text is what a JSON string says.
func text(raw []byte) (string, bool) {
	if bytes.IndexByte(raw, '\\') < 0 && len(raw) >= 2 && raw[0] == '"' && utf8.Valid(raw) {
		return string(raw[1 : len(raw)-1]), true
	}
	var s string
	err := json.Unmarshal(raw, &s)
	return s, err == nil
}

// canonical is a JSON body with its members in order and without white space; numbers stay as written. What is no JSON
// stays as it is.
func canonical(body []byte) []byte {
	d := json.NewDecoder(bytes.NewReader(body))
	d.UseNumber()
	var v any
	if d.Decode(&v) != nil || d.More() {
		return body
	}
	out, err := json.Marshal(v)
	if err != nil {
		return body
	}
	return out
}

// payload is what a repeat of a request must have in common with the first.
type payload struct {
	head string // what else counts than the body
	body []byte
	raw  [sha256.Size]byte // of the body as it came
}

func (p *Profile) payload(r *http.Request, body []byte) payload {
	if p.AnyPayload {
		return payload{}
	}
	head := r.URL.RawQuery
	if p.Carrier.Beside != "" {
		head += "\n" + r.Header.Get(p.Carrier.Beside)
	}
	if p.Account {
		head += "\n" + r.Method + " " + r.URL.EscapedPath()
	}
	return payload{head, body, sha256.Sum256(body)}
}

// same compares two payloads by the SHA-256 of their bodies, in canonical form unless the profile wants them raw. Most
// repeats are equal as they come, which spares the canonical form.
func (p *Profile) same(a, b payload) bool {
	switch {
	case a.head != b.head:
		return false
	case a.raw == b.raw:
		return true
	case p.RawBody:
		return false
	}
	return sha256.Sum256(canonical(a.body)) == sha256.Sum256(canonical(b.body))
}
