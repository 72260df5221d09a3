package persisttest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"time"

	"github.com/samekey/samekey/persist"
)

const scope = "tenant-1"

func ref(id string) persist.Ref { return persist.Ref{Scope: scope, ID: id} }

// rec makes a record with every field set, younger than all before it.
func (p *place) rec(id string) persist.Record {
	p.n++
	created := p.base.Add(time.Duration(p.n)*time.Second + 123456789)
	return persist.Record{
		Ref:     ref(id),
		Named:   p.n%2 == 0,
		Created: created,
		Key:     fmt.Sprintf("key-%d", p.n),
		Method:  http.MethodPost,
		Target:  fmt.Sprintf("https://bank.test/v1/payments/%d?a=b&c=%%20", p.n),
		Header: http.Header{
			"Content-Type":    {"application/json"},
			"Accept":          {"application/json", "text/plain;q=0.5"},
			"X-Empty":         {""},
			"idempotency-key": {fmt.Sprintf("\"key-%d\"", p.n)}, // as it is sent: not in canonical form
		},
		Omitted:     []string{"Authorization", "X-Signature"},
		Body:        fmt.Appendf(nil, `{"amount":%d,"note":"\u0000é\n"}`, p.n),
		Fingerprint: [32]byte{0: byte(p.n), 1: byte(p.n >> 8), 30: 0xff},
		KeyLife:     24*time.Hour + 1,
		Progress:    persist.Progress{Attempts: 1, FirstSent: created.Add(1), Seen: created.Add(2)},
	}
}

// answer makes an answer that is known for an hour.
func answer(state persist.State) persist.Answer {
	now := time.Now()
	return persist.Answer{
		State:    state,
		Status:   201,
		Header:   http.Header{"Content-Type": {"application/json"}, "Link": {"</a>; rel=x", "</b>; rel=y"}},
		Body:     []byte("{\"ok\":true}\x00\xff"),
		Reason:   "because " + state.String(),
		KeepBody: now.Add(time.Hour + 1),
		KeepName: now.Add(2*time.Hour + 2),
	}
}

// begin records r, whatever became of it before, and keeps the claim.
func (p *place) begin(r persist.Record) persist.Claim {
	p.t.Helper()
	r.Answer = nil
	e, err := p.s.Begin(p.ctx, r)
	p.NoError(err, "Begin")
	p.True(e.New, "Begin of an unknown Ref is New")
	p.claimed(r.Ref, e.Claim)
	return e.Claim
}

// free records r and gives the claim back.
func (p *place) free(r persist.Record) persist.Claim {
	p.t.Helper()
	c := p.begin(r)
	p.NoError(p.s.Release(p.ctx, c), "Release")
	return c
}

// settled records r and settles it.
func (p *place) settled(r persist.Record, a persist.Answer) persist.Record {
	p.t.Helper()
	p.settle(p.begin(r), a)
	r.Answer = &a
	return r
}

func (p *place) settle(c persist.Claim, a persist.Answer) {
	p.t.Helper()
	p.NoError(p.s.Settle(p.ctx, c, a), "Settle")
}

func (p *place) claim(ref persist.Ref) persist.Entry {
	p.t.Helper()
	e, err := p.s.Claim(p.ctx, ref)
	p.NoError(err, "Claim")
	p.claimed(ref, e.Claim)
	p.False(e.New, "an Entry from Claim is not New")
	return e
}

func (p *place) claimed(ref persist.Ref, c persist.Claim) {
	p.t.Helper()
	p.Equal(ref, c.Ref, "the claim's Ref")
	p.NotZero(c.Token, "the claim's token")
}

func (p *place) due(n int) []persist.Entry {
	p.t.Helper()
	es, err := p.s.ClaimDue(p.ctx, n)
	p.NoError(err, "ClaimDue")
	for _, e := range es {
		p.claimed(e.Ref, e.Claim)
		p.False(e.New, "an Entry from ClaimDue is not New")
	}
	return es
}

func (p *place) list(f persist.Filter) []persist.Record {
	p.t.Helper()
	rs, err := collect(p.ctx, p.s, f)
	p.NoError(err, "List")
	return rs
}

func collect(ctx context.Context, s persist.Store, f persist.Filter) (rs []persist.Record, err error) {
	for r, e := range s.List(ctx, f) {
		if err != nil {
			return nil, errors.New("List went on after an error")
		}
		if err = e; e == nil {
			rs = append(rs, r)
		}
	}
	return rs, err
}

func ids(rs []persist.Record) (out []string) {
	for _, r := range rs {
		out = append(out, r.ID)
	}
	return out
}

func entryIDs(es []persist.Entry) (out []string) {
	for _, e := range es {
		out = append(out, e.ID)
	}
	return out
}

// stored checks that Get gives want.
func (p *place) stored(want persist.Record) {
	p.t.Helper()
	got, err := p.s.Get(p.ctx, want.Ref)
	p.NoError(err, "Get")
	p.same(want, got)
}

// missing checks that nothing is known under ref.
func (p *place) missing(ref persist.Ref) {
	p.t.Helper()
	_, err := p.s.Get(p.ctx, ref)
	p.fails(err, persist.ErrNotFound, "Get", ref)
}

// fails checks that err is target, and that it names what failed if it is more than the bare sentinel.
func (p *place) fails(err, target error, method string, ref persist.Ref) {
	p.t.Helper()
	p.ErrorIs(err, target, method)
	var e *persist.Error
	if errors.As(err, &e) {
		p.named(e, method, ref)
	}
}

func (p *place) named(e *persist.Error, method string, ref persist.Ref) {
	p.t.Helper()
	p.NotEmpty(e.Store, "Error.Store")
	p.Equal(method, e.Method, "Error.Method")
	p.Equal(ref, e.Ref, "Error.Ref")
	p.Error(e.Err, "Error.Err")
}

// same checks that a record came back as it was. Instants count, not their zones; a header or list without members is
// as good as none; but a nil body is not an empty one.
func (p *place) same(want, got persist.Record) {
	p.t.Helper()
	if d := differ(want, got); d != "" {
		p.t.Fatalf("%s: %s", want.ID[:min(len(want.ID), 40)], d)
	}
}

func differ(want, got persist.Record) string {
	if d := differBody("Body", &want.Body, &got.Body); d != "" {
		return d
	}
	if (want.Answer == nil) != (got.Answer == nil) {
		return fmt.Sprintf("state %v, want %v", got.State(), want.State())
	}
	want, got = plain(want), plain(got)
	if want.Answer != nil {
		if d := differBody("Answer.Body", &want.Answer.Body, &got.Answer.Body); d != "" {
			return d
		}
		want.Answer.Lazy = false // not kept
		if !reflect.DeepEqual(want.Answer, got.Answer) {
			return fmt.Sprintf("answer\n got %+v\nwant %+v", *got.Answer, *want.Answer)
		}
		want.Answer, got.Answer = nil, nil
	}
	if !reflect.DeepEqual(want, got) {
		return fmt.Sprintf("record\n got %+v\nwant %+v", got, want)
	}
	return ""
}

// differBody compares two bodies and takes them out, so that nobody prints megabytes.
func differBody(name string, want, got *[]byte) string {
	w, g := *want, *got
	*want, *got = nil, nil
	switch {
	case (w == nil) != (g == nil):
		return fmt.Sprintf("%s: nil is %t, want %t", name, g == nil, w == nil)
	case len(w) != len(g):
		return fmt.Sprintf("%s: %d bytes, want %d", name, len(g), len(w))
	case !bytes.Equal(w, g):
		return name + ": other bytes of the same length"
	}
	return ""
}

// plain removes what is no difference.
func plain(r persist.Record) persist.Record {
	if len(r.Header) == 0 {
		r.Header = nil
	}
	if len(r.Omitted) == 0 {
		r.Omitted = nil
	}
	instants(&r.Created, &r.Progress.FirstSent, &r.Progress.Seen, &r.Progress.NotBefore)
	if r.Answer != nil {
		a := *r.Answer
		if len(a.Header) == 0 {
			a.Header = nil
		}
		instants(&a.KeepBody, &a.KeepName)
		r.Answer = &a
	}
	return r
}

func instants(ts ...*time.Time) {
	for _, t := range ts {
		*t = t.UTC().Round(0)
	}
}

// within fails, rather than hangs, when f does not end. f must not use p's checks.
func (p *place) within(f func()) {
	p.t.Helper()
	done := make(chan struct{})
	go func() { defer close(done); f() }()
	select {
	case <-done:
	case <-time.After(patience):
		p.t.Fatal("deadlock")
	}
}
