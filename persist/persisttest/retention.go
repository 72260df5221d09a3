package persisttest

import (
	"errors"
	"time"

	"github.com/samekey/samekey/persist"
)

var retentionRules = []rule{
	{name: "Retention/past KeepBody a tombstone, past KeepName nothing", timed: true, run: retention},
	{name: "Retention/what is owed outlives both", timed: true, run: retentionOwed},
	{name: "Retention/holds for List too", timed: true, run: retentionList},
	{name: "Retention/leaves what is held one holder", timed: true, run: retentionHeld},
	{name: "Retention/what begins anew is there once", timed: true, run: retentionAnew},
}

func retention(p *place) {
	a := answer(persist.Succeeded)
	a.KeepBody = time.Now().Add(2 * p.span)
	a.KeepName = a.KeepBody.Add(2 * p.span)
	r := p.settled(p.rec("op"), a)
	// Get is asked by one operation and Begin by another, so that neither finds what the other has cleared away.
	begun := p.settled(p.rec("begun"), a)
	p.at(a.KeepBody, func() bool {
		got, err := p.s.Get(p.ctx, r.Ref)
		p.NoError(err)
		if got.Tombstone() {
			return true
		}
		p.same(r, got)
		return false
	})
	if early := time.Now().Add(p.span / 2); early.Before(a.KeepName) {
		p.tombstone(r)
		e, err := p.s.Begin(p.ctx, p.rec(begun.ID))
		p.NoError(err)
		p.onlyName(begun, e.Record)
	}
	p.at(a.KeepName, func() bool {
		_, err := p.s.Get(p.ctx, r.Ref)
		if err != nil {
			p.fails(err, persist.ErrNotFound, "Get", r.Ref)
		}
		return err != nil
	})
	p.fails(p.s.Forget(p.ctx, r.Ref), persist.ErrNotFound, "Forget", r.Ref)
	_, err := p.s.Claim(p.ctx, r.Ref)
	p.fails(err, persist.ErrNotFound, "Claim", r.Ref)
	p.at(a.KeepName, func() bool {
		e, err := p.s.Begin(p.ctx, p.rec(begun.ID))
		p.NoError(err)
		return e.New
	})
}

func retentionOwed(p *place) {
	a := answer(persist.Succeeded)
	a.Owed = true
	a.KeepBody = time.Now().Add(p.span)
	a.KeepName = a.KeepBody.Add(p.span)
	gone := p.settled(p.rec("gone"), a)
	a.KeepName = a.KeepBody.Add(time.Hour) // at least; longer than this rule takes
	named := p.settled(p.rec("named"), a)
	time.Sleep(3 * p.span)
	p.stored(gone)
	p.stored(named)
	es := p.due(9)
	p.Equal([]string{"gone", "named"}, entryIDs(es))
	p.same(gone, es[0].Record)
	p.same(named, es[1].Record)
	for _, e := range es {
		e.Answer.Owed = false
		p.settle(e.Claim, *e.Answer)
	}
	p.missing(gone.Ref)
	if time.Now().Before(a.KeepName) {
		p.tombstone(named)
	}
}

func retentionList(p *place) {
	a := answer(persist.Succeeded)
	a.KeepBody = time.Now().Add(p.span)
	a.KeepName = a.KeepBody.Add(1000 * p.span)
	r := p.settled(p.rec("op"), a)
	p.at(a.KeepBody, func() bool {
		rs := p.list(persist.Filter{})
		if len(rs) > 0 {
			p.same(r, rs[0])
		}
		return len(rs) == 0
	})
	_, err := p.s.Get(p.ctx, r.Ref)
	p.False(errors.Is(err, persist.ErrNotFound), "the name is known longer than the answer")
}

// retentionHeld: a claim was taken before the time had passed, and is used after. Whether the store lets go of the name
// or of nothing before the claim ends is its own affair: two may not hold it.
func retentionHeld(p *place) {
	a := answer(persist.Conflicted)
	a.KeepBody = time.Now().Add(p.span)
	a.KeepName = a.KeepBody
	r := p.settled(p.rec("op"), a)
	c := p.claim(r.Ref).Claim
	time.Sleep(2 * p.span)
	next := p.rec("op")
	e, err := p.s.Begin(p.ctx, next)
	p.NoError(err)
	if e.New {
		p.changeNothing("of what was there before", c, next)
		return
	}
	p.Zero(e.Claim)
	p.NoError(p.s.Mark(p.ctx, c, r.Progress), "the claim still holds")
	b := answer(persist.Succeeded) // resumed, and it worked
	r.Answer = &b
	p.settle(c, b)
	p.stored(r)
}

// retentionAnew: of the operation that had the name before nothing is left, at its age or elsewhere.
func retentionAnew(p *place) {
	a := answer(persist.Succeeded)
	a.KeepBody = time.Now().Add(p.span)
	a.KeepName = a.KeepBody
	p.settled(p.rec("op"), a)
	p.free(p.rec("younger"))
	next := p.rec("op")
	var c persist.Claim
	p.at(a.KeepName, func() bool {
		e, err := p.s.Begin(p.ctx, next)
		p.NoError(err)
		c = e.Claim
		return e.New
	})
	p.Equal([]string{"younger", "op"}, ids(p.list(persist.Filter{})))
	p.NoError(p.s.Release(p.ctx, c))
	es := p.due(9)
	p.Equal([]string{"younger", "op"}, entryIDs(es))
	b := answer(persist.Rejected)
	p.settle(es[1].Claim, b)
	next.Answer = &b
	p.stored(next)
	p.Equal([]string{"younger", "op"}, ids(p.list(persist.Filter{})))
}
