package sqlstore

import (
	"bytes"
	"crypto/sha256"
	"database/sql"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"net/http"
	"time"

	"github.com/samekey/samekey/persist"
)

// hashOf names a Ref in an index, whatever the length of its parts. Both lengths go in, so that no two Refs are one text.
func hashOf(ref persist.Ref) []byte {
	b := binary.AppendUvarint(make([]byte, 0, 64), uint64(len(ref.Scope)))
	b = append(append(b, ref.Scope...), ref.ID...)
	h := sha256.Sum256(b)
	return h[:]
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

func bit(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

// text is for columns that are not null: a driver takes a nil slice for NULL.
func text(s string) []byte { return append([]byte{}, s...) }

// appendStrings writes a count and then each string after its length.
func appendStrings(b []byte, ss []string) []byte {
	b = binary.AppendUvarint(b, uint64(len(ss)))
	for _, s := range ss {
		b = append(binary.AppendUvarint(b, uint64(len(s))), s...)
	}
	return b
}

// encodeHeader writes each name with its values, as appendStrings does; a header is free to hold any bytes, JSON is not.
func encodeHeader(h http.Header) []byte {
	if len(h) == 0 {
		return nil
	}
	b := make([]byte, 0, 256)
	for name, values := range h {
		b = appendStrings(b, []string{name})
		b = appendStrings(b, values)
	}
	return b
}

func encodeStrings(ss []string) []byte {
	if len(ss) == 0 {
		return nil
	}
	return appendStrings(nil, ss)
}

var errEncoding = errors.New("it is not what was written")

func cutStrings(b []byte) (ss []string, rest []byte, err error) {
	n, k := binary.Uvarint(b)
	if k <= 0 || n > uint64(len(b)) {
		return nil, nil, errEncoding
	}
	b = b[k:]
	ss = make([]string, 0, n)
	for range n {
		size, k := binary.Uvarint(b)
		if k <= 0 || size > uint64(len(b)-k) {
			return nil, nil, errEncoding
		}
		ss = append(ss, string(b[k:k+int(size)]))
		b = b[k+int(size):]
	}
	return ss, b, nil
}

func decodeStrings(b []byte) ([]string, error) {
	if len(b) == 0 {
		return nil, nil
	}
	ss, rest, err := cutStrings(b)
	if err == nil && len(rest) > 0 {
		err = errEncoding
	}
	return ss, err
}

func decodeHeader(b []byte) (http.Header, error) {
	if len(b) == 0 {
		return nil, nil
	}
	h := http.Header{}
	for len(b) > 0 {
		name, rest, err := cutStrings(b)
		if err != nil || len(name) != 1 {
			return nil, errEncoding
		}
		var values []string
		if values, b, err = cutStrings(rest); err != nil {
			return nil, err
		}
		h[name[0]] = values
	}
	return h, nil
}

// inserted are the arguments of an INSERT, but for the lease.
func inserted(hash []byte, rec *persist.Record, owner []byte) []any {
	args := []any{hash, text(rec.Scope), text(rec.ID)}
	return append(append(args, requested(rec)...), dueOrder(rec), owner)
}

// requested are the arguments for all that Replace writes.
func requested(rec *persist.Record) []any {
	args := make([]any, 0, 32)
	args = append(args, bit(rec.Named), nanos(rec.Created), text(rec.Key), text(rec.Method), text(rec.Target),
		encodeHeader(rec.Header), encodeStrings(rec.Omitted), rec.Body, rec.Fingerprint[:], int64(rec.KeyLife))
	return append(args, progressed(&rec.Progress)...)
}

func progressed(p *persist.Progress) []any {
	return []any{int64(p.Attempts), nanos(p.FirstSent), nanos(p.Seen), nanos(p.NotBefore), bit(p.Parked),
		text(p.PollURL), int64(p.LastStatus), text(p.LastError)}
}

func dueOrder(rec *persist.Record) any {
	if rec.Progress.Parked {
		return nil
	}
	return nanos(rec.Created)
}

// nullable tells an empty value from NULL, which some drivers do not once it is a slice of bytes.
func nullable(v any) []byte {
	switch v := v.(type) {
	case []byte:
		return append([]byte{}, v...)
	case string:
		return []byte(v)
	}
	return nil
}

// row is a record as it lies in the table.
type row struct {
	rec          persist.Record
	hash, owner  []byte
	created, seq int64
	token        int64
	held         int64
	now          int64 // of the database, when it was read
	keepBody     int64
	keepName     int64
	state, owed  int64
	bad          error // why rec is not what was written, without its contents
}

// scanRow reads all that can be read: a damaged column leaves row.bad, and the others as they are.
func scanRow(rows *sql.Rows) (*row, error) {
	var (
		r                                                          row
		a                                                          persist.Answer
		scope, id, key, method, target, pollURL, lastError, reason []byte
		header, omitted, fingerprint, answerHeader                 []byte
		body, answerBody                                           any
		named, parked, truncated, attempts, lastStatus, status     int64
		keyLife, firstSent, seen, notBefore                        int64
	)
	rec := &r.rec
	err := rows.Scan(&r.hash, &r.seq, &scope, &id, &named, &r.created, &key, &method, &target, &header, &omitted, &body, &fingerprint,
		&keyLife, &attempts, &firstSent, &seen, &notBefore, &parked, &pollURL, &lastStatus, &lastError,
		&r.state, &status, &answerHeader, &answerBody, &truncated, &reason, &r.keepBody, &r.keepName, &r.owed,
		&r.owner, &r.token, &r.held, &r.now)
	if err != nil {
		return nil, err
	}
	rec.Scope, rec.ID, rec.Named, rec.Created = string(scope), string(id), named != 0, instant(r.created)
	rec.Key, rec.Method, rec.Target, rec.KeyLife = string(key), string(method), string(target), time.Duration(keyLife)
	rec.Body, a.Body = nullable(body), nullable(answerBody)
	rec.Header, err = decodeHeader(header)
	r.damaged("header", err)
	rec.Omitted, err = decodeStrings(omitted)
	r.damaged("omitted", err)
	if copy(rec.Fingerprint[:], fingerprint) != len(fingerprint) || len(fingerprint) != len(rec.Fingerprint) {
		r.damaged("fingerprint", errEncoding)
	}
	if !bytes.Equal(r.hash, hashOf(rec.Ref)) { // no claim of it could be found again
		r.damaged("scope or id", errEncoding)
	}
	rec.Progress = persist.Progress{
		Attempts: int(attempts), FirstSent: instant(firstSent), Seen: instant(seen), NotBefore: instant(notBefore),
		Parked: parked != 0, PollURL: string(pollURL), LastStatus: int(lastStatus), LastError: string(lastError),
	}
	if r.state == 0 {
		return &r, nil
	}
	a.Header, err = decodeHeader(answerHeader)
	r.damaged("answer_header", err)
	if r.state < int64(persist.Succeeded) || r.state > int64(persist.Abandoned) {
		r.damaged("state", errEncoding)
	}
	a.State, a.Status, a.Truncated, a.Reason = persist.State(r.state), int(status), truncated != 0, string(reason)
	a.KeepBody, a.KeepName, a.Owed = instant(r.keepBody), instant(r.keepName), r.owed != 0
	rec.Answer = &a
	return &r, nil
}

func (r *row) damaged(column string, err error) {
	if err != nil && r.bad == nil {
		r.bad = fmt.Errorf("the record cannot be read, column %s: %w", column, err)
	}
}

// unreadable is why the record cannot be told; a bare one needs none of what a damage can be in, but for its name.
func (r *row) unreadable() error {
	if r.bare() {
		return nil
	}
	return r.bad
}

func (r *row) busy() bool    { return r.held > r.now }
func (r *row) retires() bool { return r.state != 0 && r.owed == 0 && !r.busy() }

// gone: past both times, only the sweep has not come by yet.
func (r *row) gone() bool { return r.retires() && r.keepBody <= r.now && r.keepName <= r.now }

// bare: only the name is left, at most.
func (r *row) bare() bool { return r.retires() && r.keepBody <= r.now }

// view is the record as it may be told now.
func (r *row) view() persist.Record {
	if !r.bare() {
		return r.rec
	}
	a := r.rec.Answer
	return persist.Record{
		Ref: r.rec.Ref, Named: r.rec.Named, Created: r.rec.Created,
		Answer: &persist.Answer{State: a.State, Reason: a.Reason, KeepName: a.KeepName},
	}
}

func (r *row) entry() persist.Entry {
	return persist.Entry{Record: r.rec, Claim: persist.Claim{Ref: r.rec.Ref, Token: uint64(r.token)}}
}
