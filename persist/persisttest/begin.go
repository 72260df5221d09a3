package persisttest

import (
	"fmt"
	"sync"
	"time"

	"github.com/samekey/samekey/persist"
)

var beginRules = []rule{
	{name: "Begin/records what it is given", run: beginRecords},
	{name: "Begin/is atomic for each Ref", run: beginAtomic},
	{name: "Begin/tells scopes apart", run: beginScopes},
	{name: "Begin/takes over what is pending and unheld", run: beginTakesOver},
	{name: "Begin/shows what is held without a claim", run: beginHeld},
	{name: "Begin/gives the answer of what is settled", run: beginSettled},
	{name: "Begin/refuses a record with an answer", run: beginAnswered},
}

func beginRecords(p *place) {
	full := p.rec("full")
	full.Progress.NotBefore, full.Progress.Parked = p.base.Add(7), true
	full.Progress.PollURL, full.Progress.LastStatus, full.Progress.LastError = "https://bank.test/ops/1", 503, "timed out"
	enqueued := p.rec("enqueued")
	enqueued.Progress = persist.Progress{}
	keyOnly := p.rec("key only")
	keyOnly.Body, keyOnly.Header, keyOnly.Omitted = nil, nil, nil
	bare := p.rec("bare")
	bare.Named, bare.Body, bare.KeyLife = false, []byte{}, -1
	bare.Header, bare.Omitted, bare.Fingerprint = map[string][]string{}, []string{}, [32]byte{}
	for _, r := range []persist.Record{full, enqueued, keyOnly, bare} {
		e, err := p.s.Begin(p.ctx, r)
		p.NoError(err)
		p.True(e.New)
		p.claimed(r.Ref, e.Claim)
		p.same(r, e.Record)
	}
	for _, r := range []persist.Record{full, enqueued, keyOnly, bare} {
		p.stored(r)
	}
}

// beginAtomic: of all who begin one Ref at the same time, one has the claim, and all see the same record.
func beginAtomic(p *place) {
	const rounds, callers = 20, 16
	for round := range rounds {
		recs := make([]persist.Record, callers)
		for i := range recs {
			recs[i] = p.rec(fmt.Sprint("r", round))
		}
		p.onlyOneBegins(recs, func(int) persist.Store { return p.s })
	}
}

// onlyOneBegins begins recs, which have one Ref, at the same time, each in its store.
func (p *place) onlyOneBegins(recs []persist.Record, store func(i int) persist.Store) {
	p.t.Helper()
	es, errs := make([]persist.Entry, len(recs)), make([]error, len(recs))
	start := make(chan struct{})
	var all sync.WaitGroup
	for i := range recs {
		all.Go(func() {
			<-start
			es[i], errs[i] = store(i).Begin(p.ctx, recs[i])
		})
	}
	close(start)
	all.Wait()
	winner := -1
	for i, e := range es {
		p.NoError(errs[i])
		if e.New {
			p.Equal(-1, winner, "two callers began %v", e.Ref)
			winner = i
			p.claimed(recs[i].Ref, e.Claim)
		} else {
			p.Zero(e.Claim, "a claim that another holds was given out")
		}
	}
	p.NotEqual(-1, winner, "nobody began")
	for _, e := range es {
		p.same(recs[winner], e.Record)
	}
	p.NoError(store(winner).Mark(p.ctx, es[winner].Claim, recs[winner].Progress), "the winner's claim holds")
}

func beginScopes(p *place) {
	var recs []persist.Record
	for _, scope := range []string{"", "a", "b"} {
		r := p.rec("same id")
		r.Scope = scope
		p.begin(r)
		recs = append(recs, r)
	}
	for _, r := range recs {
		p.stored(r)
	}
	c := p.rec("same id")
	c.Scope = "c"
	p.missing(c.Ref)
}

func beginTakesOver(p *place) {
	r := p.rec("op")
	first := p.begin(r)
	r.Progress.Attempts, r.Progress.LastStatus = 3, 502
	r.Progress.Parked, r.Progress.NotBefore = true, time.Now().Add(time.Hour) // these are for recovery, not for Begin
	p.NoError(p.s.Mark(p.ctx, first, r.Progress))
	p.NoError(p.s.Release(p.ctx, first))

	e, err := p.s.Begin(p.ctx, p.rec("op"))
	p.NoError(err)
	p.False(e.New)
	p.claimed(r.Ref, e.Claim)
	p.Greater(e.Claim.Token, first.Token, "tokens grow")
	p.same(r, e.Record)
	p.stored(r)
	p.NoError(p.s.Mark(p.ctx, e.Claim, r.Progress), "the new claim holds")
}

func beginHeld(p *place) {
	r := p.rec("op")
	c := p.begin(r)
	for range 2 {
		e, err := p.s.Begin(p.ctx, p.rec("op"))
		p.NoError(err)
		p.False(e.New)
		p.Zero(e.Claim)
		p.same(r, e.Record)
	}
	p.NoError(p.s.Mark(p.ctx, c, r.Progress), "the holder's claim still holds")
}

func beginSettled(p *place) {
	for _, state := range []persist.State{persist.Succeeded, persist.Rejected, persist.Conflicted, persist.Abandoned} {
		for _, owed := range []bool{false, true} {
			a := answer(state)
			a.Owed = owed
			r := p.settled(p.rec(fmt.Sprint(state, owed)), a)
			e, err := p.s.Begin(p.ctx, p.rec(r.ID))
			p.NoError(err)
			p.False(e.New)
			p.Zero(e.Claim, "what is settled is not claimed by Begin")
			p.same(r, e.Record)
			p.stored(r)
			p.claim(r.Ref) // Begin has not claimed it in silence
		}
	}
}

func beginAnswered(p *place) {
	r, a := p.rec("op"), answer(persist.Succeeded)
	r.Answer = &a
	_, err := p.s.Begin(p.ctx, r)
	var e *persist.Error
	p.ErrorAs(err, &e)
	p.named(e, "Begin", r.Ref)
	p.False(e.Maybe)
	p.missing(r.Ref)
}
