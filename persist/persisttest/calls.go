package persisttest

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/samekey/samekey/persist"
)

var callRules = []rule{
	{name: "Context/that has ended: its error, and nothing changes", run: contextEnded},
	{name: "Close/ErrClosed from then on", run: closed},
	{name: "Memory/is shared neither on the way in nor out", run: noAliasing},
}

// call is one use of one method.
type call struct {
	method string
	ref    persist.Ref
	do     func(context.Context) error
}

// calls uses each method but Close once: on a Ref that nobody knows, on one that is free, and on one that c holds.
func calls(s persist.Store, unknown persist.Record, free persist.Ref, c persist.Claim) []call {
	next := unknown
	next.Ref = c.Ref
	none := persist.Ref{}
	return []call{
		{"Begin", unknown.Ref, func(ctx context.Context) error { _, err := s.Begin(ctx, unknown); return err }},
		{"Begin", free, func(ctx context.Context) error {
			_, err := s.Begin(ctx, persist.Record{Ref: free, Method: "POST"})
			return err
		}},
		{"Claim", free, func(ctx context.Context) error { _, err := s.Claim(ctx, free); return err }},
		{"ClaimDue", none, func(ctx context.Context) error { _, err := s.ClaimDue(ctx, 9); return err }},
		{"Mark", c.Ref, func(ctx context.Context) error { return s.Mark(ctx, c, persist.Progress{Attempts: 9}) }},
		{"Replace", c.Ref, func(ctx context.Context) error { return s.Replace(ctx, c, next) }},
		{"Settle", c.Ref, func(ctx context.Context) error { return s.Settle(ctx, c, answer(persist.Abandoned)) }},
		{"Release", c.Ref, func(ctx context.Context) error { return s.Release(ctx, c) }},
		{"Get", free, func(ctx context.Context) error { _, err := s.Get(ctx, free); return err }},
		{"List", none, func(ctx context.Context) error { _, err := collect(ctx, s, persist.Filter{}); return err }},
		{"Forget", free, func(ctx context.Context) error { return s.Forget(ctx, free) }},
		{"Flush", none, func(ctx context.Context) error { return s.Flush(ctx) }},
	}
}

func contextEnded(p *place) {
	free, held := p.rec("free"), p.rec("held")
	p.free(free)
	c := p.begin(held)
	cancelled, cancel := context.WithCancel(p.ctx)
	cancel()
	late, cancel := context.WithDeadline(p.ctx, time.Now().Add(-time.Second))
	defer cancel()
	for _, ctx := range []context.Context{cancelled, late} {
		unknown := p.rec("unknown")
		for _, call := range calls(p.s, unknown, free.Ref, c) {
			p.fails(call.do(ctx), ctx.Err(), call.method, call.ref)
			p.missing(unknown.Ref)
			p.stored(free)
			p.stored(held)
		}
	}
	e, err := p.s.Claim(p.ctx, free.Ref)
	p.NoError(err, "nobody has claimed it")
	p.same(free, e.Record)
	p.NoError(p.s.Mark(p.ctx, c, held.Progress), "the claim still holds")
}

func closed(p *place) {
	free, held := p.rec("free"), p.rec("held")
	p.free(free)
	c := p.begin(held)
	seq := p.s.List(p.ctx, persist.Filter{})
	p.NoError(p.s.Close())
	for range 2 {
		for _, call := range calls(p.s, p.rec("unknown"), free.Ref, c) {
			p.fails(call.do(p.ctx), persist.ErrClosed, call.method, call.ref)
		}
		p.NoError(p.s.Close(), "Close of a closed store")
	}
	n := 0
	for r, err := range seq {
		n++
		p.Zero(r)
		p.fails(err, persist.ErrClosed, "List", persist.Ref{})
	}
	p.Equal(1, n, "an error ends the list")
}

// noAliasing changes all that was handed in or out; what is stored stays as it was.
func noAliasing(p *place) {
	id := "op"
	want := p.rec(id)
	given := deepCopy(want)
	e, err := p.s.Begin(p.ctx, given)
	p.NoError(err)
	c := e.Claim
	spoil(given)
	p.stored(want)
	spoil(e.Record)
	p.stored(want)

	e, err = p.s.Begin(p.ctx, p.rec(id))
	p.NoError(err)
	spoil(e.Record)
	p.stored(want)

	got, err := p.s.Get(p.ctx, want.Ref)
	p.NoError(err)
	spoil(got)
	p.stored(want)

	want = p.rec(id)
	given = deepCopy(want)
	p.NoError(p.s.Replace(p.ctx, c, given))
	spoil(given)
	p.stored(want)

	a := answer(persist.Succeeded)
	a.Owed = true
	want.Answer = &a
	given = deepCopy(want)
	p.NoError(p.s.Settle(p.ctx, c, *given.Answer))
	spoil(given)
	p.stored(want)

	outs := []func() (persist.Record, error){
		func() (persist.Record, error) { e, err := p.s.Begin(p.ctx, p.rec(id)); return e.Record, err },
		func() (persist.Record, error) { return p.s.Get(p.ctx, want.Ref) },
		func() (persist.Record, error) {
			e, err := p.s.Claim(p.ctx, want.Ref)
			return e.Record, errors.Join(err, p.s.Release(p.ctx, e.Claim))
		},
		func() (persist.Record, error) {
			es, err := p.s.ClaimDue(p.ctx, 1)
			if len(es) != 1 {
				return persist.Record{}, errors.New("it is due")
			}
			return es[0].Record, errors.Join(err, p.s.Release(p.ctx, es[0].Claim))
		},
		func() (persist.Record, error) {
			rs, err := collect(p.ctx, p.s, persist.Filter{})
			if len(rs) != 1 {
				return persist.Record{}, errors.New("it is listed")
			}
			return rs[0], err
		},
	}
	for _, out := range outs {
		got, err := out()
		p.NoError(err)
		p.same(want, got)
		spoil(got)
		p.stored(want)
	}
}

func deepCopy(r persist.Record) persist.Record {
	r.Header = r.Header.Clone()
	r.Omitted = slices.Clone(r.Omitted)
	r.Body = bytes.Clone(r.Body)
	if r.Answer != nil {
		a := *r.Answer
		a.Header = a.Header.Clone()
		a.Body = bytes.Clone(a.Body)
		r.Answer = &a
	}
	return r
}

// spoil writes over all that r points to, spare capacity included.
func spoil(r persist.Record) {
	spoilBytes := func(b []byte) {
		b = b[:cap(b)]
		for i := range b {
			b[i] = '!'
		}
	}
	spoilHeader := func(h map[string][]string) {
		for _, values := range h {
			for i := range values {
				values[i] = "spoilt"
			}
		}
		if h != nil {
			h["Spoilt"] = []string{"1"}
		}
	}
	spoilHeader(r.Header)
	spoilBytes(r.Body)
	for i := range r.Omitted {
		r.Omitted[i] = "spoilt"
	}
	if a := r.Answer; a != nil {
		spoilHeader(a.Header)
		spoilBytes(a.Body)
		*a = persist.Answer{State: persist.Abandoned, Reason: "spoilt"}
	}
}
