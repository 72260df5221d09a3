package persisttest

import (
	"sync"

	"github.com/samekey/samekey/persist"
)

var claimRules = []rule{
	{name: "Claim/takes what nobody holds", run: claimTakes},
	{name: "Claim/ErrNotFound and ErrBusy", run: claimErrors},
	{name: "Claim/has one holder at a time", run: claimExclusive},
	{name: "Claim/tokens grow", run: claimTokens},
	{name: "Claim/without it nothing changes", run: claimLost},
	{name: "Release/ends the claim and nothing else", run: releaseOnly},
}

func claimTakes(p *place) {
	pending := p.rec("pending")
	pending.Progress.Parked = true // an explicit claim is not recovery
	p.free(pending)
	e := p.claim(pending.Ref)
	p.same(pending, e.Record)
	p.NoError(p.s.Mark(p.ctx, e.Claim, pending.Progress))
	p.settle(e.Claim, answer(persist.Succeeded))

	for _, state := range []persist.State{persist.Succeeded, persist.Rejected, persist.Conflicted, persist.Abandoned} {
		r := p.settled(p.rec(state.String()), answer(state))
		e = p.claim(r.Ref)
		p.same(r, e.Record)
		p.NoError(p.s.Mark(p.ctx, e.Claim, r.Progress))
		p.stored(r) // a mark leaves the answer alone
	}
}

func claimErrors(p *place) {
	e, err := p.s.Claim(p.ctx, ref("none"))
	p.fails(err, persist.ErrNotFound, "Claim", ref("none"))
	p.Zero(e.Claim)
	p.missing(ref("none"))

	r := p.rec("held")
	c := p.begin(r)
	e, err = p.s.Claim(p.ctx, r.Ref)
	p.fails(err, persist.ErrBusy, "Claim", r.Ref)
	p.Zero(e.Claim)
	p.settle(c, answer(persist.Conflicted))
	p.claim(r.Ref)
	_, err = p.s.Claim(p.ctx, r.Ref)
	p.fails(err, persist.ErrBusy, "Claim", r.Ref) // settled and held
}

// claimExclusive: whichever way to a claim is taken, one of all who try at once gets it.
func claimExclusive(p *place) {
	r := p.rec("op")
	p.free(r)
	for range 20 {
		c := p.onlyOneClaims(r, func(int) persist.Store { return p.s })
		p.NoError(p.s.Release(p.ctx, c))
	}
}

// onlyOneClaims tries each way to the claim of r, at the same time, each in its store.
func (p *place) onlyOneClaims(r persist.Record, store func(i int) persist.Store) persist.Claim {
	p.t.Helper()
	const callers = 12
	got, errs := make([]persist.Claim, callers), make([]error, callers)
	start := make(chan struct{})
	var all sync.WaitGroup
	for i := range callers {
		all.Go(func() {
			<-start
			var e persist.Entry
			switch i % 3 {
			case 0:
				e, errs[i] = store(i).Claim(p.ctx, r.Ref)
			case 1:
				e, errs[i] = store(i).Begin(p.ctx, r)
			case 2:
				var es []persist.Entry
				if es, errs[i] = store(i).ClaimDue(p.ctx, 1); len(es) > 0 {
					e = es[0]
				}
			}
			got[i] = e.Claim
		})
	}
	close(start)
	all.Wait()
	winner := -1
	for i, c := range got {
		if i%3 != 0 || errs[i] == nil {
			p.NoError(errs[i])
		} else {
			p.ErrorIs(errs[i], persist.ErrBusy)
		}
		if c.Token != 0 {
			p.Equal(-1, winner, "two callers hold %v", r.Ref)
			winner = i
		}
	}
	p.NotEqual(-1, winner, "nobody got the claim")
	p.NoError(store(winner).Mark(p.ctx, got[winner], r.Progress), "the winner's claim holds")
	return got[winner]
}

func claimTokens(p *place) {
	r := p.rec("op")
	last := p.begin(r).Token
	c := persist.Claim{Ref: r.Ref, Token: last}
	grow := func(next persist.Claim) {
		p.t.Helper()
		p.claimed(r.Ref, next)
		p.Greater(next.Token, last)
		c, last = next, next.Token
	}
	for range 3 {
		p.NoError(p.s.Release(p.ctx, c))
		grow(p.claim(r.Ref).Claim)
		p.NoError(p.s.Release(p.ctx, c))
		es := p.due(1)
		p.Len(es, 1)
		grow(es[0].Claim)
		p.NoError(p.s.Release(p.ctx, c))
		e, err := p.s.Begin(p.ctx, r)
		p.NoError(err)
		grow(e.Claim)
	}
	p.settle(c, answer(persist.Rejected))
	grow(p.claim(r.Ref).Claim)
	p.NoError(p.s.Release(p.ctx, c))
	p.NoError(p.s.Forget(p.ctx, r.Ref))
	grow(p.begin(r)) // a claim from before must not fit the new operation
}

// claimLost: nothing is changed under a claim that is not, or no longer, the operation's.
func claimLost(p *place) {
	r := p.rec("op")
	old := p.free(r)
	current := p.claim(r.Ref).Claim
	p.changeNothing("held by another", old, r)
	p.changeNothing("no claim", persist.Claim{Ref: r.Ref}, r)
	p.changeNothing("invented", persist.Claim{Ref: r.Ref, Token: current.Token + 1}, r)
	other := p.rec("other")
	p.changeNothing("of another operation", persist.Claim{Ref: r.Ref, Token: p.begin(other).Token}, r)
	p.NoError(p.s.Mark(p.ctx, current, r.Progress), "the holder's claim still holds")

	p.NoError(p.s.Release(p.ctx, current))
	p.changeNothing("released", current, r)
	p.changeNothing("no claim, nobody holds it", persist.Claim{Ref: r.Ref}, r)

	last := p.claim(r.Ref).Claim
	a := answer(persist.Succeeded)
	p.settle(last, a)
	r.Answer = &a
	p.changeNothing("settled", last, r)
	p.changeNothing("no claim, settled", persist.Claim{Ref: r.Ref}, r)

	p.NoError(p.s.Forget(p.ctx, r.Ref))
	for method, err := range p.changes(last) {
		p.fails(err, persist.ErrClaimLost, method, r.Ref)
		p.missing(r.Ref)
	}
	p.stored(other)
}

func (p *place) changeNothing(what string, c persist.Claim, r persist.Record) {
	p.t.Helper()
	for method, err := range p.changes(c) {
		p.ErrorIs(err, persist.ErrClaimLost, "%s under a claim that is %s", method, what)
		p.fails(err, persist.ErrClaimLost, method, r.Ref)
		p.stored(r)
	}
}

// changes tries under c what needs a claim.
func (p *place) changes(c persist.Claim) func(yield func(string, error) bool) {
	return func(yield func(string, error) bool) {
		r := p.rec(c.ID)
		r.Key = "intruder"
		_ = yield("Mark", p.s.Mark(p.ctx, c, persist.Progress{Attempts: 99})) &&
			yield("Replace", p.s.Replace(p.ctx, c, r)) &&
			yield("Settle", p.s.Settle(p.ctx, c, persist.Answer{State: persist.Abandoned, Reason: "intruder"})) &&
			yield("Release", p.s.Release(p.ctx, c))
	}
}

func releaseOnly(p *place) {
	r := p.rec("op")
	c := p.begin(r)
	r.Progress.Attempts, r.Progress.LastError = 2, "reset"
	p.NoError(p.s.Mark(p.ctx, c, r.Progress))
	p.NoError(p.s.Release(p.ctx, c))
	p.stored(r)
	p.same(r, p.claim(r.Ref).Record)

	a := answer(persist.Conflicted)
	a.Owed = true
	s := p.settled(p.rec("settled"), a)
	p.NoError(p.s.Release(p.ctx, p.claim(s.Ref).Claim))
	p.stored(s)
	p.same(s, p.claim(s.Ref).Record)
}
