package persisttest

import (
	"errors"
	"fmt"
	"time"

	"github.com/samekey/samekey/persist"
)

var readRules = []rule{
	{name: "Get/missing is an error", run: getMissing},
	{name: "List/oldest first, each once", run: listOrder},
	{name: "List/to the nanosecond, equal instants each once", run: listInstants},
	{name: "List/filters", run: listFilters},
	{name: "List/may be left early", run: listBreak},
	{name: "List/lets the consumer call the store", run: listMutation},
}

func getMissing(p *place) {
	p.missing(ref("none"))
	p.missing(persist.Ref{ID: "none"})
	r := p.settled(p.rec("op"), answer(persist.Succeeded))
	p.missing(persist.Ref{Scope: r.Scope, ID: "OP"})
	p.missing(persist.Ref{ID: r.ID})
	p.stored(r)
}

func listOrder(p *place) {
	p.Empty(p.list(persist.Filter{}))
	recs := p.shuffled(10)
	for i, r := range recs {
		if i%2 == 0 {
			p.begin(r)
		} else {
			recs[i] = p.settled(r, answer(persist.Rejected))
		}
	}
	got := p.list(persist.Filter{})
	want := []string{"op-1", "op-2", "op-3", "op-4", "op-5", "op-6", "op-7", "op-8", "op-9", "op-10"}
	p.Equal(want, ids(got))
	for _, g := range got {
		for _, r := range recs {
			if r.Ref == g.Ref {
				p.same(r, g)
			}
		}
	}
}

// listInstants: what orders by floating-point numbers takes instants for equal that are not; what finds operations by
// their time loses one of two.
func listInstants(p *place) {
	at := p.closeTogether()
	got := ids(p.list(persist.Filter{}))
	p.Len(got, 10)
	p.Equal([]string{"op-1", "op-2", "op-3", "op-4", "op-5", "op-6", "op-7"}, got[:7])
	p.ElementsMatch([]string{"same-1", "same-2", "same-3"}, got[7:])
	p.Equal([]string{"op-1", "op-2", "op-3"}, ids(p.list(persist.Filter{Before: at.Add(3)})))
}

// closeTogether records, in another order, op-1 to op-7, a nanosecond apart, and then three more of one instant.
func (p *place) closeTogether() time.Time {
	at := time.Now().Add(-time.Hour).Truncate(time.Second) // what rounds, rounds them all to one
	recs := p.shuffled(7)
	for i := range recs {
		recs[i*3%7].Created = at.Add(time.Duration(i))
	}
	for i := range 3 {
		r := p.rec(fmt.Sprint("same-", i+1))
		r.Created = at.Add(100)
		recs = append(recs, r)
	}
	for _, r := range recs {
		p.free(r)
	}
	return at
}

func listFilters(p *place) {
	var all []persist.Record
	for _, scope := range []string{"", "a", "a/", "A"} {
		for state := persist.Pending; state <= persist.Abandoned; state++ {
			r := p.rec(fmt.Sprint("in ", scope, " ", state))
			r.Scope = scope
			if state == persist.Pending {
				p.begin(r)
			} else {
				r = p.settled(r, answer(state))
			}
			all = append(all, r)
		}
	}
	var scopes []*string
	for _, s := range []string{"", "a", "A", "none"} {
		scopes = append(scopes, &s)
	}
	for _, scope := range append(scopes, nil) {
		for _, states := range [][]persist.State{
			nil, {}, {persist.Pending}, {persist.Rejected, persist.Pending}, {persist.Abandoned}, {77},
		} {
			for _, before := range []time.Time{{}, all[7].Created, all[7].Created.Add(1), p.base} {
				f := persist.Filter{Scope: scope, States: states, Before: before}
				var want []string
				for _, r := range all {
					if f.Match(&r) {
						want = append(want, r.ID)
					}
				}
				got := ids(p.list(f))
				if scope != nil {
					p.Equal(want, got, "scope %q, states %v, before %v", *scope, states, before)
				} else {
					p.Equal(want, got, "states %v, before %v", states, before)
				}
			}
		}
	}
}

// listBreak leaves many lists at their first record: what a store leaks by that, a lock, a cursor, a connection, runs
// out or blocks.
func listBreak(p *place) {
	for i := range 5 {
		p.free(p.rec(fmt.Sprint("op-", i)))
	}
	first := persist.Record{}
	p.within(func() {
		for range 200 {
			for r, err := range p.s.List(p.ctx, persist.Filter{}) {
				if err == nil {
					first = r
				}
				break
			}
		}
	})
	p.Equal("op-0", first.ID)
	p.within(func() { _ = p.s.Forget(p.ctx, first.Ref) })
	p.missing(first.Ref)
	p.Len(p.list(persist.Filter{}), 4)
	seq := p.s.List(p.ctx, persist.Filter{}) // what is listed may be listed again
	for range 2 {
		n := 0
		for _, err := range seq {
			p.NoError(err)
			n++
		}
		p.Equal(4, n)
	}
}

func listMutation(p *place) {
	for i := range 20 {
		p.free(p.rec(fmt.Sprint("stays-", i)))
		p.free(p.rec(fmt.Sprint("goes-", i)))
	}
	late := make([]persist.Record, 40)
	for i := range late {
		late[i] = p.rec(fmt.Sprint("late-", i))
	}
	seen := map[string]int{}
	var errs error
	p.within(func() {
		n := 0
		for r, err := range p.s.List(p.ctx, persist.Filter{}) {
			errs = errors.Join(errs, err)
			if err != nil {
				break
			}
			seen[r.ID]++
			if n >= len(late) {
				continue
			}
			e, err := p.s.Begin(p.ctx, late[n])
			errs = errors.Join(errs, err, p.s.Settle(p.ctx, e.Claim, answer(persist.Succeeded)))
			if n < 20 {
				errs = errors.Join(errs, p.s.Forget(p.ctx, ref(fmt.Sprint("goes-", 19-n))))
				e, err = p.s.Claim(p.ctx, ref(fmt.Sprint("stays-", n)))
				errs = errors.Join(errs, err, p.s.Mark(p.ctx, e.Claim, persist.Progress{Attempts: n}))
			}
			n++
		}
	})
	p.NoError(errs)
	for i := range 20 {
		p.Equal(1, seen[fmt.Sprint("stays-", i)], "stays-%d is there all the time", i)
	}
	for id, n := range seen {
		p.Equal(1, n, "times that %q was listed", id)
	}
}
