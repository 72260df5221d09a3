package journal

import (
	"encoding/binary"
	"math"
	"net/http"
	"time"

	"github.com/samekey/samekey/persist"
)

// meta is what the index keeps of a payload.
type meta struct {
	opid    uint64
	created int64 // nanoseconds, as are when and body
	when    int64 // pending: not before; settled: the name is kept until
	body    int64 // settled: the rest is kept until
	state   persist.State
	flags   uint8
}

const (
	flagNamed  = 1 << iota // on disk, the low bits
	flagAnswer             // on disk: an answer follows
	flagParked
	flagOwed
	flagTomb
	flagBusy    // memory only: a change of it is being written
	flagDamaged // memory only: it could not be read back
)

// nanos orders times; the zero time is before all.
func nanos(t time.Time) int64 {
	s := t.Unix()
	switch {
	case t.IsZero() || s <= -9_223_372_036:
		return math.MinInt64
	case s >= 9_223_372_036:
		return math.MaxInt64
	}
	return t.UnixNano()
}

func fromNanos(n int64) time.Time {
	if n == math.MinInt64 {
		return time.Time{}
	}
	return time.Unix(0, n).UTC()
}

func metaOf(r *persist.Record) meta {
	m := meta{created: nanos(r.Created), when: nanos(r.Progress.NotBefore)}
	if r.Named {
		m.flags |= flagNamed
	}
	if r.Progress.Parked {
		m.flags |= flagParked
	}
	if r.Answer != nil {
		m.setAnswer(r.Answer)
	}
	return m
}

func (m *meta) setAnswer(a *persist.Answer) {
	m.state, m.body, m.when = a.State, nanos(a.KeepBody), nanos(a.KeepName)
	m.flags &^= flagOwed | flagParked
	if a.Owed {
		m.flags |= flagOwed
	}
}

// gone: past its name, which lives at least as long as the rest.
func (m *meta) gone(now int64) bool {
	return m.state != persist.Pending && m.flags&flagOwed == 0 && now >= m.when && now >= m.body
}

// bare: past the body, only name and outcome may be told.
func (m *meta) bare(now int64) bool {
	return m.flags&flagTomb != 0 || m.state != persist.Pending && m.flags&flagOwed == 0 && now >= m.body
}

var le = binary.LittleEndian

func appendUint(b []byte, v uint64) []byte { return binary.AppendUvarint(b, v) }
func appendInt(b []byte, v int64) []byte   { return binary.AppendVarint(b, v) }

func appendString[S ~string | ~[]byte](b []byte, s S) []byte {
	return append(appendUint(b, uint64(len(s))), s...)
}

func appendTime(b []byte, t time.Time) []byte {
	if t.IsZero() {
		return append(b, 0)
	}
	return appendUint(appendInt(append(b, 1), t.Unix()), uint64(t.Nanosecond()))
}

func appendBool(b []byte, v bool) []byte {
	if v {
		return append(b, 1)
	}
	return append(b, 0)
}

// appendCount tells nil from empty.
func appendCount(b []byte, n int, isNil bool) []byte {
	if isNil {
		return append(b, 0)
	}
	return appendUint(b, uint64(n)+1)
}

func appendBytes(b, v []byte) []byte { return append(appendCount(b, len(v), v == nil), v...) }

func appendHeader(b []byte, h http.Header) []byte {
	b = appendCount(b, len(h), h == nil)
	for k, vs := range h {
		b = appendCount(appendString(b, k), len(vs), vs == nil)
		for _, v := range vs {
			b = appendString(b, v)
		}
	}
	return b
}

func setOp(payload []byte, opid uint64) { le.PutUint64(payload[1:], opid) }

// appendOp: the number of an operation has a fixed width, so that no frame is shorter than one that cuts.
func appendOp(b []byte, kind byte, opid uint64) []byte {
	return le.AppendUint64(append(b, kind), opid)
}

func appendRef(b []byte, kind byte, opid uint64, ref persist.Ref) []byte {
	return appendString(appendString(appendOp(b, kind, opid), ref.Scope), ref.ID)
}

// appendPut puts first what the index needs, so that opening need not read the rest.
func appendPut(b []byte, opid uint64, r *persist.Record) []byte {
	var flags byte
	if r.Named {
		flags |= flagNamed
	}
	if r.Answer != nil {
		flags |= flagAnswer
	}
	b = appendRef(b, kindPut, opid, r.Ref)
	b = appendTime(append(b, flags), r.Created)
	b = appendProgress(b, &r.Progress)
	if r.Answer != nil {
		b = appendAnswerMeta(b, r.Answer)
	}
	b = appendString(appendString(appendString(b, r.Key), r.Method), r.Target)
	b = appendHeader(b, r.Header)
	b = appendCount(b, len(r.Omitted), r.Omitted == nil)
	for _, s := range r.Omitted {
		b = appendString(b, s)
	}
	b = appendBytes(b, r.Body)
	b = append(b, r.Fingerprint[:]...)
	b = appendInt(b, int64(r.KeyLife))
	if r.Answer != nil {
		b = appendAnswerRest(b, r.Answer)
	}
	return b
}

func appendProgress(b []byte, p *persist.Progress) []byte {
	b = appendTime(appendBool(b, p.Parked), p.NotBefore)
	b = appendTime(appendTime(appendInt(b, int64(p.Attempts)), p.FirstSent), p.Seen)
	b = appendInt(appendString(b, p.PollURL), int64(p.LastStatus))
	return appendString(b, p.LastError)
}

func appendAnswerMeta(b []byte, a *persist.Answer) []byte {
	b = appendBool(append(b, byte(a.State)), a.Owed)
	return appendTime(appendTime(b, a.KeepBody), a.KeepName)
}

func appendAnswerRest(b []byte, a *persist.Answer) []byte {
	b = appendHeader(appendInt(b, int64(a.Status)), a.Header)
	return appendString(appendBool(appendBytes(b, a.Body), a.Truncated), a.Reason)
}

func appendMark(b []byte, opid uint64, p *persist.Progress) []byte {
	return appendProgress(appendOp(b, kindMark, opid), p)
}

func appendSettle(b []byte, opid uint64, a *persist.Answer) []byte {
	return appendAnswerRest(appendAnswerMeta(appendOp(b, kindSettle, opid), a), a)
}

const removeSize = 1 + 8

func appendRemove(b []byte, opid uint64) []byte { return appendOp(b, kindRemove, opid) }

func appendTrim(b []byte, first uint32) []byte { return appendOp(b, kindTrim, uint64(first)) }

func appendTomb(b []byte, opid uint64, r *persist.Record) []byte {
	var flags byte
	if r.Named {
		flags = flagNamed
	}
	b = append(appendRef(b, kindTomb, opid, r.Ref), flags, byte(r.Answer.State))
	return appendTime(appendTime(b, r.Created), r.Answer.KeepName)
}
