package redis

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"math"
	"net/http"
	"strconv"
	"time"

	"github.com/samekey/samekey/persist"
)

// format is the version of what lies in Redis: the records' field m begins with it, the key "format" holds it.
const format = 1

// hashOf names a Ref in keys, whatever its bytes. Both lengths go in, so that no two Refs are one text.
func hashOf(ref persist.Ref) string {
	b := binary.AppendUvarint(make([]byte, 0, 64), uint64(len(ref.Scope)))
	b = append(append(b, ref.Scope...), ref.ID...)
	h := sha256.Sum256(b)
	return base64.RawURLEncoding.EncodeToString(h[:])
}

// nanos orders times; the zero time is before all. Years before 1678 and after 2262 count as the first and last instant.
func nanos(t time.Time) int64 {
	switch s := t.Unix(); {
	case t.IsZero():
		return math.MinInt64
	case s <= math.MinInt64/int64(time.Second):
		return math.MinInt64 + 1
	case s >= math.MaxInt64/int64(time.Second):
		return math.MaxInt64
	}
	return t.UnixNano()
}

func instant(n int64) time.Time {
	if n == math.MinInt64 {
		return time.Time{}
	}
	return time.Unix(0, n).UTC()
}

// ordered is a time as text that orders as times do.
func ordered(t time.Time) string {
	const digits = "0123456789abcdef"
	var b [16]byte
	for i, n := 15, uint64(nanos(t))^1<<63; i >= 0; i, n = i-1, n>>4 {
		b[i] = digits[n&15]
	}
	return string(b[:])
}

// micros is when the server's clock, which counts microseconds, has reached t. It is exact in a double.
func micros(t time.Time) string {
	const last = 1<<53 - 1
	n := nanos(t)
	if n <= 0 {
		return "0"
	}
	us := n / 1000
	if n%1000 != 0 {
		us++
	}
	return strconv.FormatInt(min(us, last), 10)
}

func bit(b bool) string {
	if b {
		return "1"
	}
	return "0"
}

// writer encodes the fields of a record that scripts do not look at.
type writer []byte

func (w *writer) uint(n uint64)    { *w = binary.AppendUvarint(*w, n) }
func (w *writer) int(n int64)      { *w = binary.AppendVarint(*w, n) }
func (w *writer) time(t time.Time) { w.int(nanos(t)) }
func (w *writer) string(s string)  { w.uint(uint64(len(s))); *w = append(*w, s...) }
func (w *writer) strings(ss []string) {
	w.uint(uint64(len(ss)))
	for _, s := range ss {
		w.string(s)
	}
}

func (w *writer) bool(b bool) {
	if b {
		w.uint(1)
	} else {
		w.uint(0)
	}
}

// body tells nil from empty.
func (w *writer) body(b []byte) {
	w.bool(b != nil)
	w.uint(uint64(len(b)))
	*w = append(*w, b...)
}

func (w *writer) header(h http.Header) {
	w.uint(uint64(len(h)))
	for name, values := range h {
		w.string(name)
		w.strings(values)
	}
}

// reader decodes what a writer has written; bad once something else was met.
type reader struct {
	rest string
	bad  bool
}

func (r *reader) number(cut func([]byte) int) {
	var b [binary.MaxVarintLen64]byte
	n := cut(b[:copy(b[:], r.rest)])
	if n <= 0 {
		r.rest, r.bad = "", true
		return
	}
	r.rest = r.rest[n:]
}

func (r *reader) uint() (v uint64) {
	r.number(func(b []byte) (n int) { v, n = binary.Uvarint(b); return n })
	return v
}

func (r *reader) int() (v int64) {
	r.number(func(b []byte) (n int) { v, n = binary.Varint(b); return n })
	return v
}

// count is of things that take a byte each at least.
func (r *reader) count() int {
	n := r.uint()
	if n > uint64(len(r.rest)) {
		r.rest, r.bad = "", true
		return 0
	}
	return int(n)
}

func (r *reader) time() time.Time { return instant(r.int()) }
func (r *reader) bool() bool      { return r.uint() == 1 }

func (r *reader) string() string {
	n := r.count()
	s := r.rest[:n]
	r.rest = r.rest[n:]
	return s
}

func (r *reader) strings() []string {
	n := r.count()
	ss := make([]string, 0, n)
	for range n {
		ss = append(ss, r.string())
	}
	return ss
}

func (r *reader) body() []byte {
	is, s := r.bool(), r.string()
	if !is {
		return nil
	}
	return append([]byte{}, s...)
}

func (r *reader) header() http.Header {
	n := r.count()
	if n == 0 {
		return nil
	}
	h := make(http.Header, n)
	for range n {
		name := r.string()
		h[name] = r.strings()
	}
	return h
}

var errEncoding = errors.New("a record is not what was written")

// encodeName is what a tombstone keeps of a request. List finds a scope by how it begins.
func encodeName(rec *persist.Record) string {
	w := writer(make([]byte, 0, len(rec.Scope)+len(rec.ID)+16))
	w.string(rec.Scope)
	w.string(rec.ID)
	w.bool(rec.Named)
	w.time(rec.Created)
	return string(w)
}

func encodeRequest(rec *persist.Record) string {
	w := writer(make([]byte, 0, len(rec.Body)+512))
	w.string(rec.Key)
	w.string(rec.Method)
	w.string(rec.Target)
	w.header(rec.Header)
	w.strings(rec.Omitted)
	w.body(rec.Body)
	w.string(string(rec.Fingerprint[:]))
	w.int(int64(rec.KeyLife))
	return string(w)
}

func encodeProgress(p *persist.Progress) string {
	w := writer(make([]byte, 0, 64))
	w.int(int64(p.Attempts))
	w.time(p.FirstSent)
	w.time(p.Seen)
	w.time(p.NotBefore)
	w.bool(p.Parked)
	w.string(p.PollURL)
	w.int(int64(p.LastStatus))
	w.string(p.LastError)
	return string(w)
}

// encodeEnd is what a tombstone keeps of an answer.
func encodeEnd(a *persist.Answer) string {
	w := writer(make([]byte, 0, len(a.Reason)+32))
	w.int(int64(a.State))
	w.string(a.Reason)
	w.time(a.KeepBody)
	w.time(a.KeepName)
	w.bool(a.Owed)
	return string(w)
}

func encodeAnswer(a *persist.Answer) string {
	w := writer(make([]byte, 0, len(a.Body)+512))
	w.int(int64(a.Status))
	w.header(a.Header)
	w.body(a.Body)
	w.bool(a.Truncated)
	return string(w)
}

// fields are those of a record as a script shows them; nil where one is not there.
type fields struct{ name, end, request, progress, answer any }

// record decodes f: a tombstone if the request is not there.
func (f fields) record() (rec persist.Record, err error) {
	n, ok := f.name.(string)
	if !ok {
		return rec, errEncoding
	}
	r := reader{rest: n}
	rec.Scope, rec.ID, rec.Named, rec.Created = r.string(), r.string(), r.bool(), r.time()
	bad := r.bad
	var a persist.Answer
	if e, ok := f.end.(string); ok {
		r = reader{rest: e}
		a.State, a.Reason, a.KeepBody, a.KeepName, a.Owed = persist.State(r.int()), r.string(), r.time(), r.time(), r.bool()
		bad = bad || r.bad
		rec.Answer = &a
	}
	q, ok := f.request.(string)
	if !ok {
		if rec.Answer == nil || bad {
			return rec, errEncoding
		}
		a.KeepBody = time.Time{}
		return rec, nil
	}
	r = reader{rest: q}
	rec.Key, rec.Method, rec.Target, rec.Header, rec.Omitted, rec.Body = r.string(), r.string(), r.string(), r.header(), r.strings(), r.body()
	if len(rec.Omitted) == 0 {
		rec.Omitted = nil
	}
	copy(rec.Fingerprint[:], r.string())
	rec.KeyLife = time.Duration(r.int())
	bad = bad || r.bad

	s, _ := f.progress.(string)
	r = reader{rest: s}
	p := &rec.Progress
	p.Attempts, p.FirstSent, p.Seen, p.NotBefore, p.Parked = int(r.int()), r.time(), r.time(), r.time(), r.bool()
	p.PollURL, p.LastStatus, p.LastError = r.string(), int(r.int()), r.string()
	bad = bad || r.bad

	if rec.Answer != nil {
		s, _ = f.answer.(string)
		r = reader{rest: s}
		a.Status, a.Header, a.Body, a.Truncated = int(r.int()), r.header(), r.body(), r.bool()
		bad = bad || r.bad
	}
	if bad {
		return persist.Record{}, errEncoding
	}
	return rec, nil
}
