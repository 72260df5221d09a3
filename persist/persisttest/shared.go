package persisttest

import (
	"fmt"
	"time"

	"github.com/samekey/samekey/persist"
)

var sharedRules = []rule{
	{name: "Shared/Begin is atomic over all stores", needs: []string{"Shared"}, run: sharedBegin},
	{name: "Shared/a claim has one holder over all stores", needs: []string{"Shared"}, run: sharedClaim},
	{name: "Shared/ClaimDue gives each operation to one caller", needs: []string{"Shared"}, run: sharedDue},
	{name: "Shared/changes are seen by all at once", needs: []string{"Shared"}, run: sharedSight},
	{name: "Shared/Close ends its own claims only", needs: []string{"Shared"}, run: sharedClose},
	{name: "Shared/a crash ends its own claims only", needs: []string{"Shared", "Crash"}, timed: true, run: sharedCrash},
	{name: "Leases/a claim lapses and is lost for good", needs: []string{"Leases"}, timed: true, run: leaseLapses},
	{name: "Leases/Mark renews", needs: []string{"Leases"}, timed: true, run: leaseRenewed},
}

// crowd opens the place three times more.
func (p *place) crowd() func(i int) persist.Store {
	stores := []persist.Store{p.s}
	for range 3 {
		s := p.another()
		p.t.Cleanup(func() { _ = s.Close() })
		stores = append(stores, s)
	}
	return func(i int) persist.Store { return stores[i%len(stores)] }
}

func sharedBegin(p *place) {
	store := p.crowd()
	for round := range 10 {
		recs := make([]persist.Record, 8)
		for i := range recs {
			recs[i] = p.rec(fmt.Sprint("r", round))
		}
		p.onlyOneBegins(recs, store)
	}
}

func sharedClaim(p *place) {
	store := p.crowd()
	r := p.rec("op")
	p.free(r)
	last := uint64(0)
	for range 10 {
		c := p.onlyOneClaims(r, store)
		p.Greater(c.Token, last, "tokens grow, whoever claims")
		last = c.Token
		p.NoError(p.s.Release(p.ctx, c))
	}
}

func sharedDue(p *place) { p.disjoint(p.crowd()) }

func sharedSight(p *place) {
	store := p.crowd()
	r := p.rec("op")
	c := p.begin(r)
	p.s = store(1)
	p.stored(r)
	_, err := p.s.Claim(p.ctx, r.Ref)
	p.fails(err, persist.ErrBusy, "Claim", r.Ref)
	r.Progress.Attempts = 2
	p.NoError(store(0).Mark(p.ctx, c, r.Progress))
	p.stored(r)
	p.NoError(store(0).Release(p.ctx, c))
	c = p.claim(r.Ref).Claim
	p.NoError(p.s.Release(p.ctx, c))
	e, err := store(0).Claim(p.ctx, r.Ref)
	p.NoError(err)
	a := answer(persist.Succeeded)
	a.Lazy = true
	r.Answer = &a
	p.NoError(store(0).Settle(p.ctx, e.Claim, a))
	p.stored(r)
	p.NoError(p.s.Forget(p.ctx, r.Ref))
	p.s = store(2)
	p.missing(r.Ref)
	p.s = store(0)
}

func sharedClose(p *place) {
	p.oneEnds(func(s persist.Store, _ func()) { p.NoError(s.Close()) })
}

func sharedCrash(p *place) {
	p.oneEnds(func(s persist.Store, renew func()) {
		p.h.Crash(s)
		_ = s.Close()
		if l, ok := p.s.(persist.Leaser); ok {
			for range 5 { // the one claim lapses, the other is renewed
				time.Sleep(l.Lease() / 4)
				renew()
			}
		}
	})
}

// oneEnds lets one of two stores end: the other gets its operations, and keeps its own.
func (p *place) oneEnds(end func(s persist.Store, renew func())) {
	dead, own := p.rec("dead"), p.rec("own")
	lost := p.begin(dead)
	ending := p.s
	p.s = p.another()
	held := p.begin(own)
	end(ending, func() { p.NoError(p.s.Mark(p.ctx, held, own.Progress)) })
	p.same(dead, p.claim(dead.Ref).Record)
	p.changeNothing("of a store that has ended", lost, dead)
	_, err := p.s.Claim(p.ctx, own.Ref)
	p.fails(err, persist.ErrBusy, "Claim", own.Ref)
	p.NoError(p.s.Mark(p.ctx, held, own.Progress), "the other's claim still holds")
	p.stored(own)
}

// leaseLapses: past the lease others get the operation, and its former holder can change nothing any more, be it
// claimed again or not.
func leaseLapses(p *place) {
	r := p.rec("op")
	c := p.begin(r)
	_, err := p.s.Claim(p.ctx, r.Ref)
	p.fails(err, persist.ErrBusy, "Claim", r.Ref)
	p.lapse()
	p.changeNothing("lapsed", c, r)
	next := p.claim(r.Ref).Claim
	p.Greater(next.Token, c.Token)
	p.changeNothing("lapsed and taken", c, r)
	p.lapse()
	es := p.due(9)
	p.Len(es, 1, "ClaimDue takes what has lapsed")
	p.lapse()
	e, err := p.s.Begin(p.ctx, r)
	p.NoError(err)
	p.claimed(r.Ref, e.Claim)
	p.changeNothing("lapsed and taken", es[0].Claim, r)
	p.lapse()
	p.NoError(p.s.Forget(p.ctx, r.Ref), "nobody holds it")
}

func leaseRenewed(p *place) {
	r := p.rec("op")
	c := p.begin(r)
	lease := p.s.(persist.Leaser).Lease()
	for end := time.Now().Add(2 * lease); time.Now().Before(end); time.Sleep(lease / 3) {
		p.NoError(p.s.Mark(p.ctx, c, r.Progress), "Mark renews the claim")
		_, err := p.s.Claim(p.ctx, r.Ref)
		p.fails(err, persist.ErrBusy, "Claim", r.Ref)
	}
	p.settle(c, answer(persist.Succeeded))
}
