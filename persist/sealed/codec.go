package sealed

import (
	"encoding/binary"
	"math"
	"net/http"
	"time"
)

// writer encodes what is sealed, and what is bound to it: every field says where it ends.
type writer []byte

func (w *writer) uint(n uint64) { *w = binary.AppendUvarint(*w, n) }
func (w *writer) int(n int64)   { *w = binary.AppendVarint(*w, n) }

func (w *writer) bool(b bool) {
	if b {
		w.uint(1)
	} else {
		w.uint(0)
	}
}

func (w *writer) string(s string) {
	w.uint(uint64(len(s)))
	*w = append(*w, s...)
}

func (w *writer) strings(ss []string) {
	w.uint(uint64(len(ss)))
	for _, s := range ss {
		w.string(s)
	}
}

func (w *writer) header(h http.Header) {
	w.uint(uint64(len(h)))
	for name, lines := range h {
		w.string(name)
		w.strings(lines)
	}
}

// body comes last. It tells nil from empty.
func (w *writer) body(b []byte) {
	w.bool(b != nil)
	*w = append(*w, b...)
}

// time is an instant as stores keep it: to the nanosecond, as far as those reach.
func (w *writer) time(t time.Time) {
	switch s := t.Unix(); {
	case t.IsZero():
		w.int(math.MinInt64)
	case s <= math.MinInt64/int64(time.Second):
		w.int(math.MinInt64 + 1)
	case s >= math.MaxInt64/int64(time.Second):
		w.int(math.MaxInt64)
	default:
		w.int(t.UnixNano())
	}
}

// reader decodes what a writer has written; bad once it met something else.
type reader struct {
	b   []byte
	bad bool
}

// count is of things that take a byte each at least.
func (r *reader) count() int {
	v, n := binary.Uvarint(r.b)
	if n <= 0 || v > uint64(len(r.b)-n) {
		r.b, r.bad = nil, true
		return 0
	}
	r.b = r.b[n:]
	return int(v)
}

func (r *reader) string() string {
	n := r.count()
	s := string(r.b[:n])
	r.b = r.b[n:]
	return s
}

func (r *reader) strings() []string {
	var ss []string
	for range r.count() {
		ss = append(ss, r.string())
	}
	return ss
}

func (r *reader) header() http.Header {
	n := r.count()
	if n == 0 {
		return nil
	}
	h := http.Header{}
	for range n {
		name := r.string()
		h[name] = r.strings()
	}
	return h
}

func (r *reader) body() []byte {
	if len(r.b) == 0 || r.b[0] > 1 || r.b[0] == 0 && len(r.b) > 1 {
		r.bad = true
		return nil
	}
	if r.b[0] == 0 {
		return nil
	}
	return r.b[1:len(r.b):len(r.b)]
}
