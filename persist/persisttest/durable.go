package persisttest

import (
	"errors"
	"time"

	"github.com/samekey/samekey/persist"
)

var durableRules = []rule{
	{name: "Durable/each change outlives Close", needs: []string{"Durable"}, run: closeKeeps},
	{name: "Durable/Close gives claims back", needs: []string{"Durable"}, run: closeFrees},
	{name: "Durable/an error of a broken store is honest", needs: []string{"Durable", "Break"}, timed: true, run: broken},
}

var crashRules = []rule{
	{name: "Crash/each change outlives it", needs: []string{"Durable", "Crash"}, timed: true, run: crashKeeps},
	{name: "Crash/frees claims", needs: []string{"Durable", "Crash"}, timed: true, run: crashFrees},
	{name: "Crash/a lazy settle is whole or not there, in order", needs: []string{"Durable", "Crash"}, timed: true, run: crashLazy},
	{name: "Crash/Flush makes lazy settles durable", needs: []string{"Durable", "Crash"}, timed: true, run: crashFlushed},
	{name: "Crash/a durable change takes earlier lazy ones along", needs: []string{"Durable", "Crash"}, timed: true, run: crashAlong},
	{name: "Crash/a lazy settle is durable soon", needs: []string{"Durable", "Crash"}, timed: true, run: crashSoon},
}

func closeKeeps(p *place) { p.eachChange(p.reopen) }
func crashKeeps(p *place) { p.eachChange(p.crash) }

// eachChange restarts right after each kind of durable change, so that no later one can carry it to the disk.
func (p *place) eachChange(restart func()) {
	r := p.rec("op")
	p.begin(r)
	restart()
	p.stored(r)

	c := p.claim(r.Ref).Claim
	r.Progress = persist.Progress{
		Attempts: 2, FirstSent: p.base, Seen: p.base.Add(1), NotBefore: p.base.Add(2), Parked: true,
		PollURL: "/op", LastStatus: 504, LastError: "late",
	}
	p.NoError(p.s.Mark(p.ctx, c, r.Progress))
	restart()
	p.stored(r)

	r = p.rec("op")
	p.NoError(p.s.Replace(p.ctx, p.claim(r.Ref).Claim, r))
	restart()
	p.stored(r)

	a := answer(persist.Conflicted)
	a.Owed = true
	r.Answer = &a
	p.settle(p.claim(r.Ref).Claim, a)
	restart()
	p.stored(r)
	e := p.due(9)
	p.Len(e, 1, "it is still owed")

	a.Owed, a.KeepBody = false, time.Time{}
	p.settle(e[0].Claim, a)
	restart()
	p.tombstone(r)

	p.NoError(p.s.Forget(p.ctx, r.Ref))
	restart()
	p.missing(r.Ref)

	p.settle(p.begin(r), persist.Answer{State: persist.Succeeded, Status: 200})
	restart()
	p.missing(r.Ref)
	p.Empty(p.list(persist.Filter{}))

	lazy := answer(persist.Succeeded)
	lazy.Lazy = true
	r = p.settled(p.rec("lazy"), lazy)
	p.NoError(p.s.Flush(p.ctx))
	restart()
	p.stored(r)
	p.Equal([]string{"lazy"}, ids(p.list(persist.Filter{})))
}

func closeFrees(p *place) {
	held, lazy, released := p.rec("held"), answer(persist.Succeeded), p.rec("released")
	c := p.begin(held)
	p.free(released)
	lazy.Lazy = true
	settled := p.settled(p.rec("settled"), lazy)
	p.reopen()
	p.stored(settled) // Close flushes
	p.regain(c, held, released)
}

func crashFrees(p *place) {
	held, released := p.rec("held"), p.rec("released")
	c := p.begin(held)
	p.free(released)
	p.crash()
	p.regain(c, held, released)
}

// regain checks, after a restart, that an old claim is dead and that the operations can be had.
func (p *place) regain(old persist.Claim, recs ...persist.Record) {
	p.t.Helper()
	p.changeNothing("of an earlier life", old, recs[0])
	es := p.due(9)
	p.Len(es, len(recs), "claims do not outlive their owner")
	for i, e := range es {
		p.same(recs[i], e.Record)
	}
	p.Greater(es[0].Claim.Token, old.Token, "tokens grow over restarts")
	p.changeNothing("of an earlier life", old, recs[0])
}

func (p *place) lazily(id string) (pending, settled persist.Record) {
	p.t.Helper()
	a := answer(persist.Succeeded)
	a.Lazy = true
	pending = p.rec(id)
	return pending, p.settled(pending, a)
}

func crashLazy(p *place) {
	var pending, settled []persist.Record
	for _, id := range []string{"1", "2", "3", "4"} {
		was, is := p.lazily(id)
		pending, settled = append(pending, was), append(settled, is)
	}
	p.crash()
	lost := ""
	for i := range pending {
		got, err := p.s.Get(p.ctx, pending[i].Ref)
		p.NoError(err, "a lazy settle may be lost, the operation may not")
		if got.Answer == nil {
			p.same(pending[i], got)
			lost = got.ID
			continue
		}
		p.same(settled[i], got)
		p.Empty(lost, "settle %s is there, an earlier one is not", got.ID)
	}
}

func crashFlushed(p *place) {
	_, r := p.lazily("op")
	p.NoError(p.s.Flush(p.ctx))
	p.crash()
	p.stored(r)
}

func crashAlong(p *place) {
	changes := []func(c persist.Claim) error{
		func(persist.Claim) error { _, err := p.s.Begin(p.ctx, p.rec("another")); return err },
		func(c persist.Claim) error { return p.s.Mark(p.ctx, c, persist.Progress{Attempts: 2}) },
		func(c persist.Claim) error { return p.s.Replace(p.ctx, c, p.rec("held")) },
		func(c persist.Claim) error { return p.s.Settle(p.ctx, c, answer(persist.Rejected)) },
		func(persist.Claim) error { return p.s.Forget(p.ctx, ref("held")) },
	}
	p.free(p.rec("held"))
	for i, change := range changes {
		var c persist.Claim
		if i < len(changes)-1 { // to forget, nobody may hold it
			c = p.claim(ref("held")).Claim
		}
		_, r := p.lazily("op")
		p.NoError(change(c))
		p.crash()
		p.stored(r)
		p.NoError(p.s.Forget(p.ctx, r.Ref))
	}
}

func crashSoon(p *place) {
	_, r := p.lazily("op")
	time.Sleep(2 * time.Second) // a second is the promise
	p.crash()
	p.stored(r)
}

// broken: after an error what was there is there, and what failed is not, unless the store says Maybe.
func broken(p *place) {
	free, held, unknown := p.rec("free"), p.rec("held"), p.rec("unknown")
	p.free(free)
	c := p.begin(held)
	p.NoError(p.s.Flush(p.ctx))
	p.h.Break(p.s)
	maybe := map[string]bool{}
	for _, call := range calls(p.s, unknown, free.Ref, c) {
		switch call.method {
		case "Claim", "ClaimDue", "Release", "Get", "List", "Flush": // need not write
			continue
		}
		if call.method == "Begin" && call.ref == free.Ref { // a take-over need not write either
			continue
		}
		err := call.do(p.ctx)
		p.Error(err, "%s on a broken store", call.method)
		if errors.Is(err, persist.ErrClaimLost) || errors.Is(err, persist.ErrBusy) {
			continue // it did not come as far as to write
		}
		var e *persist.Error
		p.ErrorAs(err, &e, "%s: a store's own failure is an *Error", call.method)
		p.named(e, call.method, call.ref)
		maybe[call.method] = e.Maybe
	}
	_ = p.s.Close()
	p.s = p.another()
	p.lapse()
	if !maybe["Begin"] {
		p.missing(unknown.Ref)
	}
	if !maybe["Forget"] {
		p.stored(free)
	}
	if !maybe["Mark"] && !maybe["Replace"] && !maybe["Settle"] {
		p.stored(held)
	}
	p.NoError(p.s.Release(p.ctx, p.claim(held.Ref).Claim), "it can be had again")
}
