package canonjson

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Pointer is a JSON pointer (RFC 6901): its reference tokens, unescaped. The empty Pointer is the whole document.
type Pointer []string

// ParsePointer parses the string form of a pointer: empty, or tokens that each begin with a slash, with ~1 for a slash and
// ~0 for a tilde. The URI fragment form (#/a) is refused.
func ParsePointer(s string) (Pointer, error) {
	switch {
	case s == "":
		return Pointer{}, nil
	case !utf8.ValidString(s):
		return nil, fmt.Errorf("JSON pointer %q: not UTF-8", s)
	case strings.HasPrefix(s, "#"):
		return nil, fmt.Errorf("JSON pointer %q: leave out the #", s)
	case s[0] != '/':
		return nil, fmt.Errorf("JSON pointer %q: must begin with a slash: %q", s, "/"+s)
	}
	p := Pointer(strings.Split(s[1:], "/"))
	for i, tok := range p {
		for rest := tok; ; {
			_, after, ok := strings.Cut(rest, "~")
			if !ok {
				break
			}
			if after == "" || after[0] != '0' && after[0] != '1' {
				return nil, fmt.Errorf("JSON pointer %q: a tilde must be written as ~0 (and a slash in a name as ~1)", s)
			}
			rest = after[1:]
		}
		p[i] = unescaper.Replace(tok)
	}
	return p, nil
}

var (
	unescaper = strings.NewReplacer("~1", "/", "~0", "~") // one pass, so that ~01 is ~1
	escaper   = strings.NewReplacer("~", "~0", "/", "~1")
)

// String returns what [ParsePointer] parses.
func (p Pointer) String() string {
	var b strings.Builder
	for _, tok := range p {
		b.WriteByte('/')
		b.WriteString(escaper.Replace(tok))
	}
	return b.String()
}

// Lookup returns the value at p as it is written in src, without white space around it; it shares src's memory. ok is false
// if there is none, if src is not one JSON value as a whole (or nests deeper than [MaxDepth]), or if a name on the way
// occurs twice in its object, so that readers may differ about which one is meant.
//
// It is laxer than [Canonical] about what does not lie on the way: neither duplicate names nor malformed UTF-8 elsewhere
// (some server's error text) make a document unreadable. Such strings match no token of a pointer.
func Lookup(src []byte, p Pointer) (raw []byte, ok bool) {
	start, end, ok := Find(src, p)
	if !ok {
		return nil, false
	}
	return src[start:end:end], true
}

// Find is Lookup that tells where in src the value is: from start to before end.
func Find(src []byte, p Pointer) (start, end int, ok bool) {
	s := scanner{src: src}
	var found span
	if end := s.find(s.space(0), 0, p, &found); end < 0 || s.space(end) != len(src) || found.end == 0 {
		return 0, 0, false
	}
	return found.start, found.end, true
}

// find is value that notes where p leads on its way.
func (s *scanner) find(i, depth int, p Pointer, found *span) int {
	if len(p) == 0 {
		end := s.value(i, depth)
		*found = span{i, max(end, 0)}
		return end
	}
	switch {
	case depth >= MaxDepth: // value refuses what begins here
	case s.at(i, '{'):
		return s.findMember(i, depth+1, p, found)
	case s.at(i, '['):
		return s.findElement(i, depth+1, p, found)
	}
	return s.value(i, depth)
}

func (s *scanner) findMember(i, depth int, p Pointer, found *span) int {
	i = s.space(i + 1)
	if s.at(i, '}') {
		return i + 1
	}
	seen := false
	for {
		name, value, escaped := s.memberStart(i)
		if value < 0 {
			return -1
		}
		text := s.src[name.start:name.end]
		if escaped {
			s.names = appendUnescaped(s.names[:0], text)
			text = s.names
		}
		if string(text) == p[0] {
			if seen {
				return -1
			}
			seen = true
			i = s.find(value, depth, p[1:], found)
		} else {
			i = s.value(value, depth)
		}
		i = s.space(i)
		if s.at(i, '}') {
			return i + 1
		}
		if !s.at(i, ',') {
			return -1
		}
		i = s.space(i + 1)
	}
}

func (s *scanner) findElement(i, depth int, p Pointer, found *span) int {
	i = s.space(i + 1)
	if s.at(i, ']') {
		return i + 1
	}
	for n := 0; ; n++ {
		if isIndex(p[0], n) {
			i = s.find(i, depth, p[1:], found)
		} else {
			i = s.value(i, depth)
		}
		i = s.space(i)
		if s.at(i, ']') {
			return i + 1
		}
		if !s.at(i, ',') {
			return -1
		}
		i = s.space(i + 1)
	}
}

// isIndex follows RFC 6901: no sign, no leading zeros; "-" is the element behind the last one, which does not exist.
func isIndex(token string, n int) bool {
	var buf [20]byte
	return token == string(strconv.AppendInt(buf[:0], int64(n), 10))
}
