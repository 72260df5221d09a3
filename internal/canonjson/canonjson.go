// Package canonjson brings JSON documents into a canonical form for fingerprints, and finds values in them by JSON pointer.
//
// It works on bytes and builds no values: time is linear in the document's size but for the sorting of member names, memory
// is some 20 bytes for each object member, and 16 for each object.
package canonjson

import (
	"bytes"
	"math"
	"slices"
	"unicode/utf16"
	"unicode/utf8"
)

// MaxDepth is how deep arrays and objects may nest. Both passes recurse.
const MaxDepth = 1000

// Canonical appends the canonical form of the JSON document src to dst. Two documents have the same form if and only if they
// differ at most in white space, in the order of object members, and in how strings are escaped. Numbers count as written:
// 1.0, 1 and 1e0 differ, as do 0 and -0.
//
// It returns dst as it was, and false, if src
//
//   - is not exactly one JSON value (RFC 8259) with white space around it at most; a byte order mark is none
//   - has two members of the same name, after unescaping, in any object
//   - is not UTF-8, or has an escaped surrogate (\ud800) without its other half
//   - nests deeper than [MaxDepth], or is 4 GiB or larger.
//
// The form is itself such a document (of sorted names, without white space, with only those escapes that JSON demands) and
// its own form, so it never equals a document that is refused. dst and src must not overlap.
//
// Values that pointers in ignore name are left out: members with their names, array elements too, by their indices in src.
// They must be valid all the same. The empty pointer names no member and leaves out nothing: otherwise all documents were
// equal.
func Canonical(dst, src []byte, ignore []Pointer) ([]byte, bool) {
	if uint64(len(src)) >= math.MaxUint32 {
		return dst, false
	}
	// Small documents fit in here, so that their number of members costs no allocations.
	var small struct {
		objects       [8]object
		members, open [24]member
	}
	s := scanner{src: src, strict: true, objects: small.objects[:0], members: small.members[:0], open: small.open[:0]}
	i := s.space(0)
	if end := s.value(i, 0); end < 0 || s.space(end) != len(src) {
		return dst, false
	}
	s.strict = false // seen already
	w := writer{scanner: &s, dst: slices.Grow(dst, len(src))}
	w.value(i, 0, ignore)
	return w.dst, true
}

type span struct{ start, end int }

// scanner checks a document. Its methods take the offset at which something begins and return the one behind it, -1 if it
// is malformed.
//
// In a strict scan it also records the objects that have members, in the order in which they begin, and the members, sorted:
// the nested ones first, those of one object together.
type scanner struct {
	src     []byte
	strict  bool
	objects []object
	members []member
	open    []member // of objects that have not ended yet
	names   []byte   // member names that had escapes, unescaped
}

type object struct {
	first, count uint32 // its members
	end          uint32 // offset behind it
	next         uint32 // number of the first object that begins behind it
}

type member struct {
	start, end uint32 // name without quotes, in src or names
	value      uint32 // offset
	object     uint32 // number of the first object that begins at the value or later
	unescaped  bool   // name is in names
}

func (s *scanner) name(m member) []byte {
	if m.unescaped {
		return s.names[m.start:m.end]
	}
	return s.src[m.start:m.end]
}

func (s *scanner) space(i int) int {
	for i >= 0 && i < len(s.src) {
		switch s.src[i] {
		case ' ', '\t', '\r', '\n':
			i++
		default:
			return i
		}
	}
	return i
}

// at tells whether the byte at i is c.
func (s *scanner) at(i int, c byte) bool { return i >= 0 && i < len(s.src) && s.src[i] == c }

func (s *scanner) value(i, depth int) int {
	if i < 0 || i >= len(s.src) {
		return -1
	}
	switch c := s.src[i]; c {
	case '{':
		return s.object(i, depth+1)
	case '[':
		return s.array(i, depth+1)
	case '"':
		end, _ := s.string(i)
		return end
	case 't':
		return s.literal(i, "true")
	case 'f':
		return s.literal(i, "false")
	case 'n':
		return s.literal(i, "null")
	default:
		return s.number(i)
	}
}

func (s *scanner) object(i, depth int) int {
	if depth > MaxDepth {
		return -1
	}
	i = s.space(i + 1)
	if s.at(i, '}') { // not recorded: otherwise a body of {},{},{} took a lot of memory
		return i + 1
	}
	number, base := len(s.objects), len(s.open)
	if s.strict {
		s.objects = append(s.objects, object{})
	}
	for {
		name, value, escaped := s.memberStart(i)
		if value < 0 {
			return -1
		}
		if s.strict {
			m := member{uint32(name.start), uint32(name.end), uint32(value), uint32(len(s.objects)), escaped}
			if escaped {
				m.start = uint32(len(s.names))
				s.names = appendUnescaped(s.names, s.src[name.start:name.end])
				m.end = uint32(len(s.names))
			}
			s.open = append(s.open, m)
		}
		i = s.space(s.value(value, depth))
		if s.at(i, '}') {
			i++
			break
		}
		if !s.at(i, ',') {
			return -1
		}
		i = s.space(i + 1)
	}
	if s.strict {
		ms := s.open[base:]
		if !s.sort(ms) {
			return -1
		}
		s.objects[number] = object{uint32(len(s.members)), uint32(len(ms)), uint32(i), uint32(len(s.objects))}
		s.members = append(s.members, ms...)
		s.open = s.open[:base]
	}
	return i
}

// sort is false if a name occurs twice.
func (s *scanner) sort(ms []member) bool {
	slices.SortFunc(ms, func(a, b member) int { return bytes.Compare(s.name(a), s.name(b)) })
	for i := 1; i < len(ms); i++ {
		if bytes.Equal(s.name(ms[i-1]), s.name(ms[i])) {
			return false
		}
	}
	return true
}

// memberStart takes a name and its colon: value is where the value begins, -1 if anything is malformed.
func (s *scanner) memberStart(i int) (name span, value int, escaped bool) {
	if !s.at(i, '"') {
		return span{}, -1, false
	}
	end, escaped := s.string(i)
	colon := s.space(end)
	if !s.at(colon, ':') {
		return span{}, -1, false
	}
	return span{i + 1, end - 1}, s.space(colon + 1), escaped
}

func (s *scanner) array(i, depth int) int {
	if depth > MaxDepth {
		return -1
	}
	i = s.space(i + 1)
	if s.at(i, ']') {
		return i + 1
	}
	for {
		i = s.space(s.value(i, depth))
		if s.at(i, ']') {
			return i + 1
		}
		if !s.at(i, ',') {
			return -1
		}
		i = s.space(i + 1)
	}
}

func (s *scanner) string(i int) (end int, escaped bool) {
	start, src, ascii := i+1, s.src, true
	for i = start; i < len(src); {
		switch c := src[i]; {
		case c == '"':
			if s.strict && !ascii && !utf8.Valid(src[start:i]) {
				return -1, false
			}
			return i + 1, escaped
		case c == '\\':
			escaped = true
			n := s.escape(src[i:])
			if n < 0 {
				return -1, false
			}
			i += n
		case c < ' ':
			return -1, false
		default:
			ascii = ascii && c < utf8.RuneSelf
			i++
		}
	}
	return -1, false
}

// escape returns the length of the escape at the beginning of b: the two halves of a surrogate pair are one.
func (s *scanner) escape(b []byte) int {
	if len(b) < 2 {
		return -1
	}
	if b[1] != 'u' {
		if unescape(b[1]) == 0 {
			return -1
		}
		return 2
	}
	r := hex4(b)
	switch {
	case r < 0:
		return -1
	case !utf16.IsSurrogate(r):
		return 6
	case utf16.DecodeRune(r, hex4(b[6:])) != utf8.RuneError: // of two halves it never is one
		return 12
	case s.strict:
		return -1
	}
	return 6
}

// unescape returns what a backslash and c mean, 0 for nothing.
func unescape(c byte) byte {
	switch c {
	case '"', '\\', '/':
		return c
	case 'b':
		return '\b'
	case 'f':
		return '\f'
	case 'n':
		return '\n'
	case 'r':
		return '\r'
	case 't':
		return '\t'
	}
	return 0
}

// hex4 returns the code unit of the escape \uXXXX at the beginning of b, -1 if there is none.
func hex4(b []byte) (r rune) {
	if len(b) < 6 || b[0] != '\\' || b[1] != 'u' {
		return -1
	}
	for _, c := range b[2:6] {
		switch {
		case '0' <= c && c <= '9':
			c -= '0'
		case 'a' <= c && c <= 'f':
			c -= 'a' - 10
		case 'A' <= c && c <= 'F':
			c -= 'A' - 10
		default:
			return -1
		}
		r = r<<4 | rune(c)
	}
	return r
}

// appendUnescaped takes what a scan has passed. Where that was lax, a lone surrogate becomes a byte that occurs in no UTF-8.
func appendUnescaped(dst, b []byte) []byte {
	for {
		i := bytes.IndexByte(b, '\\')
		if i < 0 {
			return append(dst, b...)
		}
		dst, b = append(dst, b[:i]...), b[i:]
		if b[1] != 'u' {
			dst, b = append(dst, unescape(b[1])), b[2:]
			continue
		}
		r := hex4(b)
		b = b[6:]
		if utf16.IsSurrogate(r) {
			if r = utf16.DecodeRune(r, hex4(b)); r == utf8.RuneError {
				dst = append(dst, 0xff)
				continue
			}
			b = b[6:]
		}
		dst = utf8.AppendRune(dst, r)
	}
}

func (s *scanner) literal(i int, lit string) int {
	if len(s.src)-i < len(lit) || string(s.src[i:i+len(lit)]) != lit {
		return -1
	}
	return i + len(lit)
}

func (s *scanner) number(i int) int {
	if s.at(i, '-') {
		i++
	}
	if s.at(i, '0') {
		i++
	} else {
		i = s.digits(i)
	}
	if s.at(i, '.') {
		i = s.digits(i + 1)
	}
	if s.at(i, 'e') || s.at(i, 'E') {
		i++
		if s.at(i, '+') || s.at(i, '-') {
			i++
		}
		i = s.digits(i)
	}
	return i
}

// digits takes one at least.
func (s *scanner) digits(i int) int {
	if i < 0 {
		return -1
	}
	start := i
	for i < len(s.src) && '0' <= s.src[i] && s.src[i] <= '9' {
		i++
	}
	if i == start {
		return -1
	}
	return i
}
