package persisttest

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/samekey/samekey/persist"
	"github.com/samekey/samekey/persist/memory"
)

var randomRules = []rule{
	{name: "Random/does what the model does", timed: true, run: likeModel},
	{name: "Random/holds under concurrent use", run: concurrent},
}

// likeModel drives the store and package memory through the same random calls, restarts among them, and compares all
// that they return.
func likeModel(p *place) {
	seed := p.h.Seed
	if seed == 0 {
		seed = rand.Uint64() // any will do
	}
	m := &modelRun{
		place: p, seed: seed, model: memory.New(),
		random: rand.New(rand.NewPCG(seed, 1)), // repeatable on purpose
		held:   map[persist.Ref]twin{}, since: time.Now(),
	}
	for range 600 {
		m.step()
		m.outrun()
	}
	m.compare()
	m.restart(p.reopen)
	m.compare()
}

// modelRun is one random run. Claims are compared as twins, since tokens are each store's own.
type modelRun struct {
	*place
	seed   uint64
	random *rand.Rand
	model  persist.Store
	held   map[persist.Ref]twin
	since  time.Time // no claim is older
	stale  []twin    // claims that have ended
	log    []string
}

type twin struct{ real, model persist.Claim }

func (m *modelRun) one(n int) bool { return m.random.IntN(n) == 0 }

func (m *modelRun) ref() persist.Ref {
	return persist.Ref{Scope: []string{"", "a"}[m.random.IntN(2)], ID: string(rune('a' + m.random.IntN(4)))}
}

func (m *modelRun) record(ref persist.Ref) persist.Record {
	r := m.rec(ref.ID)
	r.Ref = ref
	r.Progress = m.progress()
	if m.one(4) {
		r.Body, r.Header, r.Omitted = nil, nil, nil
	}
	return r
}

func (m *modelRun) progress() persist.Progress {
	pr := persist.Progress{Attempts: m.random.IntN(5), FirstSent: m.base, LastStatus: m.random.IntN(600), Parked: m.one(4)}
	if m.one(3) {
		pr.NotBefore = time.Now().Add(time.Hour) // never a time that comes during the run
	}
	return pr
}

func (m *modelRun) answer() persist.Answer {
	a := answer(persist.State(1 + m.random.IntN(4))) // 1 to 4
	switch m.random.IntN(4) {
	case 0:
		a.KeepBody = time.Time{}
	case 1:
		a.KeepBody, a.KeepName = time.Time{}, time.Time{}
	}
	a.Owed, a.Lazy = m.one(3), m.one(2)
	return a
}

// twin is a claim to use: mostly one that holds, now and then a stale one.
func (m *modelRun) twin() (twin, bool) {
	if len(m.stale) > 0 && m.one(6) {
		return m.stale[m.random.IntN(len(m.stale))], true
	}
	refs := slices.SortedFunc(maps.Keys(m.held), func(a, b persist.Ref) int {
		return strings.Compare(a.Scope+"/"+a.ID, b.Scope+"/"+b.ID)
	})
	if len(refs) == 0 {
		return twin{}, false
	}
	return m.held[refs[m.random.IntN(len(refs))]], true
}

// end notes that c has ended, if it had not yet.
func (m *modelRun) end(c twin) {
	if m.held[c.real.Ref] == c {
		delete(m.held, c.real.Ref)
		m.stale = append(m.stale, c)
	}
}

func (m *modelRun) step() {
	switch k := m.random.IntN(100); {
	case k < 22:
		r := m.record(m.ref())
		m.say("Begin %q %s", r.Ref, brief(r.Progress))
		e, err := m.s.Begin(m.ctx, r)
		f, merr := m.model.Begin(m.ctx, r)
		m.entry(e, err, f, merr)
	case k < 32:
		ref := m.ref()
		m.say("Claim %q", ref)
		e, err := m.s.Claim(m.ctx, ref)
		f, merr := m.model.Claim(m.ctx, ref)
		m.entry(e, err, f, merr)
	case k < 40:
		n := 1 + m.random.IntN(4)
		m.say("ClaimDue %d", n)
		es, err := m.s.ClaimDue(m.ctx, n)
		fs, merr := m.model.ClaimDue(m.ctx, n)
		m.outcome(err, merr)
		if len(es) != len(fs) {
			m.fail("%d are due, want %d", len(es), len(fs))
		}
		for i := range es {
			m.entry(es[i], nil, fs[i], nil)
		}
	case k < 70:
		m.change()
	case k < 78:
		ref := m.ref()
		m.say("Get %q", ref)
		r, err := m.s.Get(m.ctx, ref)
		w, merr := m.model.Get(m.ctx, ref)
		m.outcome(err, merr)
		m.record1(r, w, err)
	case k < 84:
		m.compare()
	case k < 93:
		ref := m.ref()
		m.say("Forget %q", ref)
		m.outcome(m.s.Forget(m.ctx, ref), m.model.Forget(m.ctx, ref))
	case k < 97:
		m.say("Flush")
		m.outcome(m.s.Flush(m.ctx), m.model.Flush(m.ctx))
	case k < 98 && m.h.Crash != nil:
		m.say("Flush, crash")
		m.outcome(m.s.Flush(m.ctx), nil)
		m.restart(m.crash)
	case k < 99:
		m.restart(m.reopen)
	}
}

func (m *modelRun) change() {
	c, ok := m.twin()
	if !ok {
		return
	}
	switch m.random.IntN(4) {
	case 0:
		pr := m.progress()
		m.say("Mark %v %s", c.real, brief(pr))
		m.outcome(m.s.Mark(m.ctx, c.real, pr), m.model.Mark(m.ctx, c.model, pr))
	case 1:
		r := m.record(c.real.Ref)
		old, err := m.model.Get(m.ctx, r.Ref)
		if err == nil {
			r.Created = old.Created
		}
		m.say("Replace %v by %s", c.real, r.Key)
		m.outcome(m.s.Replace(m.ctx, c.real, r), m.model.Replace(m.ctx, c.model, r))
	case 2:
		a := m.answer()
		m.say("Settle %v %v owed %t lazy %t keep %t %t", c.real, a.State, a.Owed, a.Lazy, !a.KeepBody.IsZero(), !a.KeepName.IsZero())
		m.outcome(m.s.Settle(m.ctx, c.real, a), m.model.Settle(m.ctx, c.model, a))
		m.end(c)
	case 3:
		m.say("Release %v", c.real)
		m.outcome(m.s.Release(m.ctx, c.real), m.model.Release(m.ctx, c.model))
		m.end(c)
	}
}

// outrun ends all claims before a lease could, which the model has none of. A seed repeats such a run only as far as
// the machine is as fast again; the log tells.
func (m *modelRun) outrun() {
	l, leased := m.s.(persist.Leaser)
	switch {
	case len(m.held) == 0:
		m.since = time.Now()
	case leased && time.Since(m.since) > l.Lease()/3:
		m.restart(m.reopen)
	}
}

// restart ends the store's life and starts another; the model, which cannot, gives its claims back.
func (m *modelRun) restart(do func()) {
	if !m.h.Durable {
		return
	}
	m.say("restart")
	do()
	for _, c := range m.held {
		m.outcome(nil, m.model.Release(m.ctx, c.model))
		m.stale = append(m.stale, c)
	}
	clear(m.held)
	m.since = time.Now()
	slices.SortFunc(m.stale, func(a, b twin) int { // a map has no order, a seed must
		return strings.Compare(fmt.Sprint(a.real), fmt.Sprint(b.real))
	})
}

func (m *modelRun) compare() {
	f := persist.Filter{}
	if m.one(3) {
		scope := m.ref().Scope
		f.Scope = &scope
	}
	if m.one(3) {
		f.States = []persist.State{persist.State(m.random.IntN(5))} // 0 to 4
	}
	m.say("List %v", f.States)
	rs, err := collect(m.ctx, m.s, f)
	ws, merr := collect(m.ctx, m.model, f)
	m.outcome(err, merr)
	if got, want := ids(rs), ids(ws); !slices.Equal(got, want) {
		m.fail("listed %q, want %q", got, want)
	}
	for i := range rs {
		m.record1(rs[i], ws[i], nil)
	}
}

func (m *modelRun) entry(e persist.Entry, err error, want persist.Entry, merr error) {
	m.t.Helper()
	m.outcome(err, merr)
	m.record1(e.Record, want.Record, err)
	switch {
	case e.New != want.New:
		m.fail("New is %t, want %t", e.New, want.New)
	case (e.Claim.Token != 0) != (want.Claim.Token != 0):
		m.fail("claim %v, want like %v", e.Claim, want.Claim)
	case e.Claim.Token != 0 && e.Claim.Ref != want.Claim.Ref:
		m.fail("claim of %v, want of %v", e.Claim.Ref, want.Claim.Ref)
	case e.Claim.Token != 0:
		m.held[e.Claim.Ref] = twin{e.Claim, want.Claim}
	}
}

func (m *modelRun) record1(r, want persist.Record, err error) {
	m.t.Helper()
	switch {
	case err != nil:
	case want.Tombstone():
		if !r.Tombstone() || r.Ref != want.Ref || r.State() != want.State() {
			m.fail("got %+v, want the tombstone of %v, %v", r, want.Ref, want.State())
		}
	default:
		if d := differ(want, r); d != "" {
			m.fail("%v: %s", want.Ref, d)
		}
	}
}

func (m *modelRun) outcome(err, want error) {
	m.t.Helper()
	for _, s := range []error{persist.ErrNotFound, persist.ErrBusy, persist.ErrClaimLost} {
		if errors.Is(err, s) != errors.Is(want, s) {
			m.fail("error %v, want %v", err, want)
		}
	}
	if (err == nil) != (want == nil) {
		m.fail("error %v, want %v", err, want)
	}
}

// brief tells what ClaimDue will look at, and enough to tell one Progress from another.
func brief(p persist.Progress) string {
	return fmt.Sprintf("attempts %d, status %d, parked %t, later %t", p.Attempts, p.LastStatus, p.Parked, !p.NotBefore.IsZero())
}

func (m *modelRun) say(format string, args ...any) {
	m.log = append(m.log, fmt.Sprintf(format, args...))
}

func (m *modelRun) fail(format string, args ...any) {
	m.t.Helper()
	m.t.Fatalf("%s\nHarness.Seed %d, after %d calls:\n%s",
		fmt.Sprintf(format, args...), m.seed, len(m.log), strings.Join(m.log, "\n"))
}
