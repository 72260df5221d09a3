package persisttest

import (
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/samekey/samekey/persist"
)

var settleRules = []rule{
	{name: "Settle/keeps the answer as it is", run: settleKeeps},
	{name: "Settle/takes effect at once, lazy or not", run: settleAtOnce},
	{name: "Settle/rewrites an answer", run: settleRewrites},
	{name: "Settle/with Keep past takes the operation out", run: settleRemoves},
	{name: "Settle/with KeepBody past leaves the name", run: settleNames},
	{name: "Settle/what is owed stays whatever Keep says", run: settleOwed},
	{name: "Values/big bodies", run: bigBodies},
	{name: "Values/times and durations", run: times},
}

func settleKeeps(p *place) {
	states := []persist.State{persist.Succeeded, persist.Rejected, persist.Conflicted, persist.Abandoned}
	variants := []func(*persist.Answer){
		func(*persist.Answer) {},
		func(a *persist.Answer) {
			a.Header = http.Header{"Set-Cookie": {"a=1", "", "a=1"}, "x-raw": {"é \xff"}}
		},
		func(a *persist.Answer) { a.Body, a.Header, a.Reason = nil, nil, "" },
		func(a *persist.Answer) { a.Body = []byte{} },
		func(a *persist.Answer) { a.Body, a.Truncated = []byte{0, 1, 0xfe, 0xff, '\n', 0}, true },
		func(a *persist.Answer) { a.Status, a.Header, a.Body = 0, nil, nil }, // abandoned by hand: there was no answer
		func(a *persist.Answer) { a.Owed = true },
	}
	var all []persist.Record
	for _, state := range states {
		for i, vary := range variants {
			for _, lazy := range []bool{false, true} {
				a := answer(state)
				vary(&a)
				a.Lazy = lazy
				all = append(all, p.settled(p.rec(fmt.Sprint(state, i, lazy)), a))
			}
		}
	}
	for _, r := range all {
		p.stored(r)
	}
}

func settleAtOnce(p *place) {
	for _, lazy := range []bool{false, true} {
		a := answer(persist.Succeeded)
		a.Lazy = lazy
		r := p.settled(p.rec(fmt.Sprint("lazy ", lazy)), a)
		p.stored(r)
		e, err := p.s.Begin(p.ctx, p.rec(r.ID))
		p.NoError(err)
		p.same(r, e.Record)
		p.Zero(e.Claim)
		p.Empty(p.due(9))
		p.Empty(p.list(persist.Filter{States: []persist.State{persist.Pending}}))
		e = p.claim(r.Ref)
		p.same(r, e.Record)
		p.NoError(p.s.Release(p.ctx, e.Claim))
		p.NoError(p.s.Forget(p.ctx, r.Ref))
		p.missing(r.Ref)
	}
}

func settleRewrites(p *place) {
	a := answer(persist.Conflicted)
	a.Owed = true
	r := p.settled(p.rec("op"), a)
	es := p.due(9)
	p.Len(es, 1)
	a.Owed = false
	r.Answer = &a
	p.settle(es[0].Claim, a)
	p.stored(r)
	p.Empty(p.due(9), "nothing is owed any more")

	b := answer(persist.Succeeded) // another answer altogether: a resumed conflict
	b.Status, b.Header, b.Body, b.Reason = 200, nil, []byte("second"), ""
	r.Answer = &b
	p.settle(p.claim(r.Ref).Claim, b)
	p.stored(r)
	p.Empty(p.due(9))
}

func settleRemoves(p *place) {
	past := time.Now().Add(-time.Second)
	for i, keep := range []struct{ body, name time.Time }{{}, {past, past}, {time.Time{}, past}, {past, time.Time{}}} {
		for _, lazy := range []bool{false, true} {
			r := p.rec(fmt.Sprint("op-", i, lazy))
			c := p.begin(r)
			a := answer(persist.Succeeded)
			a.KeepBody, a.KeepName, a.Lazy = keep.body, keep.name, lazy
			p.settle(c, a)
			p.missing(r.Ref)
			p.fails(p.s.Release(p.ctx, c), persist.ErrClaimLost, "Release", r.Ref)
			p.Empty(p.list(persist.Filter{}))
			p.NoError(p.s.Release(p.ctx, p.begin(r)), "the name is free again")
			p.NoError(p.s.Forget(p.ctx, r.Ref))
		}
	}
}

func settleNames(p *place) {
	a := answer(persist.Rejected)
	a.KeepBody = time.Time{}
	r := p.settled(p.rec("op"), a)
	p.tombstone(r)
	p.NoError(p.s.Forget(p.ctx, r.Ref))
	p.missing(r.Ref)
	p.begin(r)
}

// tombstone checks that only the name and the outcome of r are known, and what each method makes of that.
func (p *place) tombstone(r persist.Record) {
	p.t.Helper()
	got, err := p.s.Get(p.ctx, r.Ref)
	p.NoError(err, "Get sees tombstones")
	p.onlyName(r, got)
	e, err := p.s.Begin(p.ctx, p.rec(r.ID))
	p.NoError(err)
	p.False(e.New)
	p.Zero(e.Claim, "nobody may send what is settled")
	p.onlyName(r, e.Record)
	_, err = p.s.Claim(p.ctx, r.Ref)
	p.fails(err, persist.ErrNotFound, "Claim", r.Ref)
	p.NotContains(ids(p.list(persist.Filter{})), r.ID, "List leaves tombstones out")
	p.NotContains(entryIDs(p.due(100)), r.ID)
}

func (p *place) onlyName(r, got persist.Record) {
	p.t.Helper()
	p.Equal(r.Ref, got.Ref)
	p.True(got.Tombstone())
	p.Equal(r.State(), got.State(), "the outcome stays known")
	p.Empty(got.Header)
	p.Empty(got.Body)
	p.Empty(got.Answer.Header)
	p.Empty(got.Answer.Body)
}

func settleOwed(p *place) {
	a := answer(persist.Succeeded)
	a.Owed, a.KeepBody, a.KeepName = true, time.Time{}, time.Time{}
	r := p.settled(p.rec("op"), a)
	p.stored(r)
	e := p.claim(r.Ref)
	p.same(r, e.Record)
	p.NoError(p.s.Release(p.ctx, e.Claim)) // the handler failed
	p.stored(r)
	es := p.due(9)
	p.Len(es, 1)
	p.same(r, es[0].Record)
	a.Owed = false
	p.settle(es[0].Claim, a) // it returned nil
	p.missing(r.Ref)
}

func bigBodies(p *place) {
	random := rand.NewChaCha8([32]byte{1})
	big := func(n int) []byte { // incompressible
		b := make([]byte, n)
		_, _ = random.Read(b)
		return b
	}
	r := p.rec("op")
	r.Body = big(5<<20 + 1)
	c := p.begin(r)
	p.stored(r)
	small := p.settled(p.rec("between"), answer(persist.Succeeded))
	a := answer(persist.Succeeded)
	a.Body = big(3<<20 + 1)
	p.settle(c, a)
	r.Answer = &a
	p.stored(r)
	r = p.rec("op")
	r.Body = big(4<<20 + 1)
	c = p.claim(r.Ref).Claim
	p.NoError(p.s.Replace(p.ctx, c, r))
	p.stored(r)
	p.stored(small)
}

func times(p *place) {
	zone := time.FixedZone("far", -11*3600)
	instants := []time.Time{
		{},
		time.Date(2026, 1, 2, 3, 4, 5, 999999999, time.UTC),
		time.Date(2026, 1, 2, 3, 4, 5, 1, zone),
		time.Date(1969, 12, 31, 23, 59, 59, 1, time.UTC), // a clock that was never set
		time.Unix(0, 0),
		time.Date(2261, 1, 1, 0, 0, 0, 7, time.UTC), // the last year that Unix nanoseconds reach
		time.Now(), // with a monotonic reading
	}
	lives := []time.Duration{0, 1, -1, time.Hour + 1, math.MaxInt64, math.MinInt64}
	var recs []persist.Record
	for i, at := range instants {
		r := p.rec(fmt.Sprint("time-", i))
		r.Created, r.Progress.FirstSent, r.Progress.Seen, r.Progress.NotBefore = at, at, at, at
		r.KeyLife = lives[i%len(lives)]
		p.begin(r)
		recs = append(recs, r)
		a := answer(persist.Conflicted)
		a.KeepBody, a.KeepName, a.Owed = at, at, true
		recs = append(recs, p.settled(p.rec(fmt.Sprint("keep-", i)), a))
	}
	for _, r := range recs {
		p.stored(r)
	}
}
