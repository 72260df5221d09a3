package canonjson

import (
	"strconv"
)

// writer goes once more through a document that a strict scan has accepted. Sorting the members as the scan finds them and
// then visiting the values by offset writes every byte once; sorting what has been written already would move it once for
// each level of nesting.
type writer struct {
	*scanner
	dst    []byte
	number uint32    // of the next object
	paths  []Pointer // stack: those of ignore that lead into the values being written
	text   []byte
}

// value writes the value at i. ignore are the pointers whose first depth tokens lead here.
func (w *writer) value(i, depth int, ignore []Pointer) int {
	switch w.src[i] {
	case '{':
		if end := w.space(i + 1); w.at(end, '}') {
			w.dst = append(w.dst, '{', '}')
			return end + 1
		}
		return w.writeObject(depth, ignore)
	case '[':
		return w.writeArray(i, depth, ignore)
	case '"':
		end, escaped := w.string(i)
		if !escaped {
			w.dst = append(w.dst, w.src[i:end]...)
			return end
		}
		w.text = appendUnescaped(w.text[:0], w.src[i+1:end-1])
		w.dst = append(w.dst, '"')
		w.dst = appendEscaped(w.dst, w.text)
		w.dst = append(w.dst, '"')
		return end
	}
	end := i + 1
	for end < len(w.src) && !endsScalar(w.src[end]) {
		end++
	}
	w.dst = append(w.dst, w.src[i:end]...)
	return end
}

func endsScalar(c byte) bool {
	switch c {
	case ' ', '\t', '\r', '\n', ',', ']', '}':
		return true
	}
	return false
}

// appendEscaped escapes only what JSON demands, each in its shortest way, so that a canonical form is never longer than its
// document.
func appendEscaped(dst, text []byte) []byte {
	start := 0
	for i, c := range text {
		if c >= ' ' && c != '"' && c != '\\' {
			continue
		}
		dst = append(append(dst, text[start:i]...), '\\')
		start = i + 1
		switch c {
		case '\b':
			c = 'b'
		case '\f':
			c = 'f'
		case '\n':
			c = 'n'
		case '\r':
			c = 'r'
		case '\t':
			c = 't'
		case '"', '\\':
		default:
			const hex = "0123456789abcdef"
			dst = append(dst, 'u', '0', '0', hex[c>>4])
			c = hex[c&15]
		}
		dst = append(dst, c)
	}
	return append(dst, text[start:]...)
}

// writeObject writes the next object that has members.
func (w *writer) writeObject(depth int, ignore []Pointer) int {
	o := w.objects[w.number]
	w.dst = append(w.dst, '{')
	empty := true
	for _, m := range w.members[o.first : o.first+o.count] {
		name, base := w.name(m), len(w.paths)
		inside, leave := w.follow(ignore, depth, name)
		if leave {
			w.paths = w.paths[:base]
			continue
		}
		if !empty {
			w.dst = append(w.dst, ',')
		}
		empty = false
		w.dst = append(w.dst, '"')
		if m.unescaped {
			w.dst = appendEscaped(w.dst, name)
		} else {
			w.dst = append(w.dst, name...)
		}
		w.dst = append(w.dst, '"', ':')
		w.number = m.object
		w.value(int(m.value), depth+1, inside)
		w.paths = w.paths[:base]
	}
	w.dst = append(w.dst, '}')
	w.number = o.next
	return int(o.end)
}

func (w *writer) writeArray(i, depth int, ignore []Pointer) int {
	w.dst = append(w.dst, '[')
	i = w.space(i + 1)
	empty := true
	for n := int64(0); w.src[i] != ']'; n++ {
		if w.src[i] == ',' {
			i = w.space(i + 1)
		}
		var inside []Pointer
		var leave bool
		base, mark := len(w.paths), len(w.dst)
		if len(ignore) > 0 {
			var buf [20]byte
			inside, leave = w.follow(ignore, depth, strconv.AppendInt(buf[:0], n, 10))
		}
		if !empty {
			w.dst = append(w.dst, ',')
		}
		i = w.space(w.value(i, depth+1, inside))
		w.paths = w.paths[:base]
		if leave { // written to find its end and the objects in it
			w.dst = w.dst[:mark]
		} else {
			empty = false
		}
	}
	w.dst = append(w.dst, ']')
	return i + 1
}

// follow tells whether one of ignore ends at token, and else which of them go on from there.
func (w *writer) follow(ignore []Pointer, depth int, token []byte) (inside []Pointer, leave bool) {
	base := len(w.paths)
	for _, p := range ignore {
		if len(p) <= depth || p[depth] != string(token) {
			continue
		}
		if len(p) == depth+1 {
			return nil, true
		}
		w.paths = append(w.paths, p)
	}
	return w.paths[base:], false
}
