// Package persisttest holds a store against the contract of package persist. A store's own test is
//
//	func TestStore(t *testing.T) {
//		persisttest.Run(t, persisttest.Harness{
//			New: func(t testing.TB) func() (persist.Store, error) {
//				dir := t.TempDir()
//				return func() (persist.Store, error) { return mystore.Open(dir) }
//			},
//			Durable: true,
//		})
//	}
//
// Each rule is a subtest of its own and opens a place of its own. Rules that a store cannot be asked to keep, because
// the Harness lacks a capability, are named in the test's log; nothing else is skipped.
package persisttest

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/samekey/samekey/persist"
)

// Harness tells the suite how to reach a store and what to ask of it. Only New is needed; every other field that is
// zero leaves the rules out that it stands for.
type Harness struct {
	// New makes an empty place for operations (a directory, a schema, a prefix) and returns what opens it. The suite
	// closes what it opens, and then, with Durable, opens the same place again. Places are used in parallel.
	// t.Cleanup runs after the last Close.
	New func(t testing.TB) (open func() (persist.Store, error))

	Durable bool // what is in a place outlives Close
	Shared  bool // several stores may be open on one place at the same time
	// Leases: claims lapse on their own. The stores implement persist.Leaser; the suite waits as long as they say many
	// times over, and lets them lapse at no other time: half a second is short enough, and longer than a busy machine
	// stands still.
	Leases bool
	// Bubble: the store works inside a testing/synctest bubble (no socket, no clock but package time's), so that the
	// rules about time run there, at once, instead of waiting.
	Bubble bool

	// Crash ends the store as the death of its process would: nothing that is buffered is written, no claim is given
	// back, but the place can be opened again. Close is still called afterwards, and may return anything. With
	// Durable only.
	Crash func(persist.Store)
	// Break makes each later write of the store fail, as a dead disk or a lost connection would. With Durable only.
	Break func(persist.Store)

	// Seed of the random rules; zero: a new one each time. A failure prints the one it had.
	Seed uint64
}

// patience is how long a call may take before it counts as a deadlock.
var patience = time.Minute

// rule is one promise of the contract.
type rule struct {
	name  string
	needs []string // capabilities, by the names of the fields of Harness
	timed bool     // may wait for the clock
	run   func(*place)
}

func rules() []rule {
	var all []rule
	for _, part := range [][]rule{
		beginRules, claimRules, changeRules, dueRules, settleRules, retentionRules, readRules, callRules, nameRules,
		durableRules, crashRules, sharedRules, randomRules,
	} {
		all = append(all, part...)
	}
	return all
}

// Run checks every rule that h allows, each as a subtest of t.
func Run(t *testing.T, h Harness) {
	t.Helper()
	for _, r := range rules() {
		if off := h.lacks(r); len(off) > 0 {
			t.Logf("persisttest: not checked without Harness.%s: %s", strings.Join(off, ", "), r.name)
			continue
		}
		t.Run(r.name, func(t *testing.T) {
			if r.timed && !h.Bubble {
				t.Parallel() // it mostly sleeps
			}
			h.check(t, r, func(t testing.TB) testing.TB { return t })
		})
	}
}

// check runs r, in a bubble if it may; through gives the suite's own tests a hold on the failures.
func (h Harness) check(t *testing.T, r rule, through func(testing.TB) testing.TB) {
	if r.timed && h.Bubble {
		synctest.Test(t, func(t *testing.T) { r.run(h.place(through(t), t.Context(), time.Hour, 0)) })
		return
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	r.run(h.place(through(t), ctx, 300*time.Millisecond, 3*time.Second))
}

func (h Harness) lacks(r rule) (off []string) {
	has := map[string]bool{
		"Durable": h.Durable, "Shared": h.Shared, "Leases": h.Leases, "Crash": h.Crash != nil, "Break": h.Break != nil,
	}
	for _, need := range r.needs {
		if !has[need] {
			off = append(off, need)
		}
	}
	return off
}

// place is where one rule is checked: the open store, and what it takes to talk to it.
type place struct {
	*require.Assertions
	t    testing.TB
	h    Harness
	ctx  context.Context // of the rule, which is as short-lived as a call
	open func() (persist.Store, error)
	s    persist.Store
	base time.Time // when the first record was created
	n    int       // records made
	// span is a short time: long enough for a few calls, and worth waiting for.
	span time.Duration
	// slack is how late a change that time brings may be: as a machine is busy.
	slack time.Duration
}

func (h Harness) place(t testing.TB, ctx context.Context, span, slack time.Duration) *place {
	p := &place{Assertions: require.New(t), t: t, h: h, ctx: ctx, open: h.New(t), span: span, slack: slack}
	p.base = time.Now().Add(-2 * time.Hour)
	p.s = p.another()
	_, leases := p.s.(persist.Leaser)
	p.Equal(h.Leases, leases, "Harness.Leases must say whether the store is a persist.Leaser")
	t.Cleanup(func() { _ = p.s.Close() })
	return p
}

// another opens the place once more.
func (p *place) another() persist.Store {
	p.t.Helper()
	s, err := p.open()
	p.NoError(err, "open")
	p.NotNil(s, "open")
	return s
}

// reopen stops and starts the program in good order.
func (p *place) reopen() {
	p.t.Helper()
	p.NoError(p.s.Close(), "Close")
	p.s = p.another()
}

// crash kills the program and starts it again, once its claims are free.
func (p *place) crash() {
	p.t.Helper()
	p.h.Crash(p.s)
	_ = p.s.Close()
	p.s = p.another()
	p.lapse()
}

// lapse waits until every claim that is not renewed is free.
func (p *place) lapse() {
	if l, ok := p.s.(persist.Leaser); ok {
		time.Sleep(l.Lease() + l.Lease()/4)
	}
}
