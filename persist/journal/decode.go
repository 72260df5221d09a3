package journal

import (
	"encoding/binary"
	"math"
	"net/http"
	"time"

	"github.com/samekey/samekey/persist"
)

// reader takes payloads apart. It never reads past their end: after a wrong length everything is zero, and bad is set.
type reader struct {
	b   []byte
	bad bool
}

func (r *reader) fail() { r.b, r.bad = nil, true }

func (r *reader) byte() byte {
	if len(r.b) == 0 {
		r.fail()
		return 0
	}
	v := r.b[0]
	r.b = r.b[1:]
	return v
}

func (r *reader) bool() bool {
	v := r.byte()
	if v > 1 {
		r.fail()
	}
	return v == 1
}

func (r *reader) uint() uint64 {
	v, n := binary.Uvarint(r.b)
	if n <= 0 {
		r.fail()
		return 0
	}
	r.b = r.b[n:]
	return v
}

func (r *reader) int() int64 {
	v, n := binary.Varint(r.b)
	if n <= 0 {
		r.fail()
		return 0
	}
	r.b = r.b[n:]
	return v
}

func (r *reader) take(n uint64) []byte {
	if n > uint64(len(r.b)) {
		r.fail()
		return nil
	}
	v := r.b[:n:n]
	r.b = r.b[n:]
	return v
}

func (r *reader) op() uint64 {
	if b := r.take(8); b != nil {
		return le.Uint64(b)
	}
	return 0
}

func (r *reader) raw() []byte    { return r.take(r.uint()) }
func (r *reader) string() string { return string(r.raw()) }

// count returns a number of items that need a byte each at least, and whether there is a list at all.
func (r *reader) count() (int, bool) {
	n := r.uint()
	if n == 0 {
		return 0, false
	}
	if n-1 > uint64(len(r.b)) {
		r.fail()
		return 0, false
	}
	return int(n - 1), true
}

// bytes shares memory with the payload.
func (r *reader) bytes() []byte {
	n, ok := r.count()
	if !ok {
		return nil
	}
	return r.take(uint64(n))
}

func (r *reader) time() time.Time {
	switch r.byte() {
	case 0:
		return time.Time{}
	case 1:
		s, n := r.int(), r.uint()
		if n >= 1e9 {
			r.fail()
			return time.Time{}
		}
		return time.Unix(s, int64(n)).UTC()
	}
	r.fail()
	return time.Time{}
}

func (r *reader) header() http.Header {
	n, ok := r.count()
	if !ok {
		return nil
	}
	h := make(http.Header, n)
	for range n {
		k := r.string()
		m, some := r.count()
		if !some {
			h[k] = nil
			continue
		}
		vs := make([]string, m)
		for i := range vs {
			vs[i] = r.string()
		}
		h[k] = vs
	}
	return h
}

func (r *reader) progress() (p persist.Progress) {
	p.Parked, p.NotBefore = r.bool(), r.time()
	p.Attempts, p.FirstSent, p.Seen = int(r.int()), r.time(), r.time()
	p.PollURL, p.LastStatus, p.LastError = r.string(), int(r.int()), r.string()
	return p
}

// skipProgress reads what the index needs and no strings.
func (r *reader) skipProgress() (parked bool, notBefore time.Time) {
	parked, notBefore = r.bool(), r.time()
	r.int()
	r.time()
	r.time()
	r.raw()
	r.int()
	r.raw()
	return parked, notBefore
}

func (r *reader) answerMeta(a *persist.Answer) {
	a.State, a.Owed, a.KeepBody, a.KeepName = persist.State(r.byte()), r.bool(), r.time(), r.time()
	if a.State == persist.Pending || a.State > persist.Abandoned {
		r.fail()
	}
}

func (r *reader) answerRest(a *persist.Answer) {
	a.Status, a.Header = int(r.int()), r.header()
	a.Body, a.Truncated, a.Reason = r.bytes(), r.bool(), r.string()
}

// err is nil if the payload was read to its end and no further.
func (r *reader) err() error {
	if r.bad || len(r.b) != 0 {
		return errFormat
	}
	return nil
}

// decodeRecord reads a put or a tombstone.
func decodeRecord(payload []byte) (opid uint64, rec persist.Record, err error) {
	r := &reader{b: payload}
	kind := r.byte()
	if kind != kindPut && kind != kindTomb {
		return 0, rec, errFormat
	}
	opid = r.op()
	rec.Scope, rec.ID = r.string(), r.string()
	flags := r.byte()
	rec.Named = flags&flagNamed != 0
	if kind == kindTomb {
		a := &persist.Answer{State: persist.State(r.byte())}
		rec.Created, a.KeepName = r.time(), r.time()
		rec.Answer = a
		return opid, rec, r.err()
	}
	rec.Created, rec.Progress = r.time(), r.progress()
	if flags&flagAnswer != 0 {
		rec.Answer = new(persist.Answer)
		r.answerMeta(rec.Answer)
	}
	rec.Key, rec.Method, rec.Target = r.string(), r.string(), r.string()
	rec.Header = r.header()
	if n, ok := r.count(); ok {
		rec.Omitted = make([]string, n)
		for i := range rec.Omitted {
			rec.Omitted[i] = r.string()
		}
	}
	rec.Body = r.bytes()
	copy(rec.Fingerprint[:], r.take(32))
	rec.KeyLife = time.Duration(r.int())
	if rec.Answer != nil {
		r.answerRest(rec.Answer)
	}
	return opid, rec, r.err()
}

func decodeMark(payload []byte) (opid uint64, p persist.Progress, err error) {
	r := &reader{b: payload[1:]}
	opid, p = r.op(), r.progress()
	return opid, p, r.err()
}

func decodeSettle(payload []byte) (opid uint64, a *persist.Answer, err error) {
	r := &reader{b: payload[1:]}
	opid, a = r.op(), new(persist.Answer)
	r.answerMeta(a)
	r.answerRest(a)
	return opid, a, r.err()
}

// peek reads what the index needs of a put, tomb, mark, settle or remove. The reference points into the payload.
func peek(payload []byte) (m meta, scope, id []byte, err error) {
	r := &reader{b: payload[1:]}
	m.opid = r.op()
	switch payload[0] {
	case kindPut:
		scope, id = r.raw(), r.raw()
		flags := r.byte()
		m.flags = flags & flagNamed
		m.created = nanos(r.time())
		parked, notBefore := r.skipProgress()
		m.setProgress(parked, notBefore)
		if flags&flagAnswer != 0 {
			var a persist.Answer
			r.answerMeta(&a)
			m.setAnswer(&a)
		}
	case kindTomb:
		scope, id = r.raw(), r.raw()
		m.flags = r.byte()&flagNamed | flagTomb
		m.state = persist.State(r.byte())
		m.created, m.when, m.body = nanos(r.time()), nanos(r.time()), math.MinInt64
	case kindMark:
		m.setProgress(r.skipProgress())
	case kindSettle:
		var a persist.Answer
		r.answerMeta(&a)
		m.setAnswer(&a)
	}
	if r.bad {
		err = errFormat
	}
	return m, scope, id, err
}

func (m *meta) setProgress(parked bool, notBefore time.Time) {
	m.when = nanos(notBefore)
	m.flags &^= flagParked
	if parked {
		m.flags |= flagParked
	}
}
