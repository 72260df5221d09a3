package persisttest

import (
	"fmt"
	"sync"
	"time"

	"github.com/samekey/samekey/persist"
)

var dueRules = []rule{
	{name: "ClaimDue/oldest first, n at most, none is no error", run: dueOrder},
	{name: "ClaimDue/to the nanosecond, equal instants each once", run: dueInstants},
	{name: "ClaimDue/takes what recovery is for", run: dueChoice},
	{name: "ClaimDue/waits for NotBefore", timed: true, run: dueNotBefore},
	{name: "ClaimDue/gives each operation to one caller", run: dueDisjoint},
}

func dueOrder(p *place) {
	p.Empty(p.due(10))
	recs := p.shuffled(7)
	for _, r := range recs {
		p.free(r)
	}
	p.Equal([]string{"op-1", "op-2", "op-3"}, entryIDs(p.due(3)))
	p.Equal([]string{"op-4"}, entryIDs(p.due(1)))
	rest := p.due(100)
	p.Equal([]string{"op-5", "op-6", "op-7"}, entryIDs(rest))
	for _, e := range rest {
		for _, r := range recs {
			if r.Ref == e.Ref {
				p.same(r, e.Record)
			}
		}
		p.NoError(p.s.Mark(p.ctx, e.Claim, e.Progress), "the claims hold")
	}
	p.Empty(p.due(10), "all are held")
	p.NoError(p.s.Release(p.ctx, rest[1].Claim))
	p.Equal([]string{"op-6"}, entryIDs(p.due(10)))
}

// shuffled makes records op-1 to op-n, in another order than that of their age.
func (p *place) shuffled(n int) []persist.Record {
	recs := make([]persist.Record, n)
	for i := range recs {
		recs[i*3%n] = p.rec(fmt.Sprint("op-", i+1))
	}
	return recs
}

func dueInstants(p *place) {
	p.closeTogether()
	p.Equal([]string{"op-1", "op-2", "op-3", "op-4"}, entryIDs(p.due(4)))
	got := entryIDs(p.due(100))
	p.Len(got, 6)
	p.Equal([]string{"op-5", "op-6", "op-7"}, got[:3])
	p.ElementsMatch([]string{"same-1", "same-2", "same-3"}, got[3:])
}

func dueChoice(p *place) {
	hour := time.Now().Add(time.Hour)
	add := func(id string, pr persist.Progress) persist.Record {
		r := p.rec(id)
		r.Progress = pr
		p.free(r)
		return r
	}
	want := []persist.Record{
		add("in: enqueued", persist.Progress{}),
		add("in: sent", persist.Progress{Attempts: 5, LastStatus: 500}),
		add("in: its time has come", persist.Progress{Attempts: 1, NotBefore: time.Now().Add(-time.Second)}),
		add("in: polling", persist.Progress{Attempts: 1, PollURL: "/op"}),
	}
	add("out: parked", persist.Progress{Attempts: 5, Parked: true})
	add("out: later", persist.Progress{Attempts: 1, NotBefore: hour})
	p.begin(p.rec("out: held"))
	for _, state := range []persist.State{persist.Succeeded, persist.Rejected, persist.Conflicted, persist.Abandoned} {
		a := answer(state)
		p.settled(p.rec(fmt.Sprint("out: ", state)), a)
		a.Owed = true
		want = append(want, p.settled(p.rec(fmt.Sprint("in: owed ", state)), a))
	}
	a := answer(persist.Succeeded)
	a.Owed, a.KeepBody, a.KeepName = true, time.Time{}, time.Time{}
	want = append(want, p.settled(p.rec("in: owed, whatever Keep says"), a))
	p.settled(p.rec("out: owed and held"), a)
	p.claim(ref("out: owed and held"))

	got := p.due(100)
	for i, e := range got {
		if i < len(want) {
			p.same(want[i], e.Record)
		}
	}
	p.Len(got, len(want), "%q", entryIDs(got))
}

func dueNotBefore(p *place) {
	r := p.rec("op")
	r.Progress.NotBefore = time.Now().Add(p.span)
	p.free(r)
	p.at(r.Progress.NotBefore, func() bool {
		es := p.due(1)
		if len(es) > 0 {
			p.same(r, es[0].Record)
		}
		return len(es) > 0
	})
}

// at checks that happened turns true at the time, not before, and soon after.
func (p *place) at(when time.Time, happened func() bool) {
	p.t.Helper()
	for {
		started := time.Now()
		yes := happened()
		switch {
		case yes && time.Now().Before(when):
			p.t.Fatalf("it happened %v too early", time.Until(when))
		case yes:
			return
		case started.After(when.Add(p.slack)):
			p.t.Fatalf("it had not happened %v after its time", started.Sub(when))
		}
		time.Sleep(p.span / 20)
	}
}

func dueDisjoint(p *place) {
	p.disjoint(func(int) persist.Store { return p.s })
}

// disjoint lets many callers claim what is due, each in its store: each operation goes to one of them.
func (p *place) disjoint(store func(i int) persist.Store) {
	const ops, callers = 100, 8
	for i := range ops {
		p.free(p.rec(fmt.Sprint("op-", i)))
	}
	got, errs := make([][]persist.Entry, callers), make([]error, callers)
	var all sync.WaitGroup
	for i := range callers {
		all.Go(func() {
			for {
				es, err := store(i).ClaimDue(p.ctx, 3)
				if err != nil || len(es) == 0 {
					errs[i] = err
					return
				}
				got[i] = append(got[i], es...)
			}
		})
	}
	all.Wait()
	holders := map[persist.Ref]int{}
	for i, es := range got {
		p.NoError(errs[i])
		for _, e := range es {
			holders[e.Ref]++
			p.NoError(store(i).Mark(p.ctx, e.Claim, e.Progress), "the claim holds")
		}
	}
	for ref, n := range holders {
		p.Equal(1, n, "callers that got %v", ref)
	}
	p.Len(holders, ops)
}
