package samekey_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/samekey/samekey"
	"github.com/samekey/samekey/persist"
)

// caller is one call of a client, as the store and the hooks see it: told by its context.
type caller struct {
	owed    bool // it met a rejection that a handler has yet to get
	client  int
	kind    string // "Do", "Resume", ..., "Recover"
	handles bool   // a recovery with a Handle
	ended   bool   // a recovery that ended before its time
	busy    *tenure
}

type callerKey struct{}

func (c *caller) ctx(ctx context.Context) context.Context {
	return context.WithValue(ctx, callerKey{}, c)
}

func callerOf(ctx context.Context) *caller {
	if c, ok := ctx.Value(callerKey{}).(*caller); ok {
		return c
	}
	return &caller{client: -1, kind: "nobody"}
}

// tenure is the time from a claim to its end.
type tenure struct {
	persist.Claim
	by     *caller
	worked bool // a recovery did something with it, beside holding it
}

// watched is a slow store that knows who has which claim, and finds what no call may do to a record.
type watched struct {
	persist.Store
	t      testing.TB
	leased bool
	pause  time.Duration // the longest

	mu       sync.Mutex
	rand     *rand.Rand
	held     map[persist.Ref]*tenure
	keys     map[persist.Ref][]string // of the operation, the last one holds
	accepted map[string]int           // how often a handler has taken the answer of a key
	doubts   []doubt
}

// doubt is a call that was told busy where a recovery of its own client had the claim: rightly, if that was at work.
type doubt struct {
	who *caller
	of  *tenure
}

func newWatched(t testing.TB, inner persist.Store, seed uint64, pause time.Duration) *watched {
	_, leased := inner.(persist.Leaser)
	return &watched{
		Store: inner, t: t, leased: leased, pause: pause, rand: rand.New(rand.NewPCG(seed, 1)),
		held: map[persist.Ref]*tenure{}, keys: map[persist.Ref][]string{}, accepted: map[string]int{},
	}
}

// leasedWatched is a watched store whose claims lapse.
type leasedWatched struct{ *watched }

func (leasedWatched) Lease() time.Duration { return leaseTime }

// takes is how long a call is under way, on each way.
func (w *watched) takes() {
	w.mu.Lock()
	d := time.Duration(0)
	switch n := w.rand.IntN(200); {
	case n == 0:
		d = w.pause * 10
	case n < 80:
		d = time.Duration(w.rand.Int64N(int64(w.pause)))
	}
	w.mu.Unlock()
	time.Sleep(d)
}

// in has the store do something, in one step with what is known of it. What is done for nobody, as the end of a body is
// written down, is done under a lock that others may wait for, and so takes no time: a bubble's would stand still.
func (w *watched) in(ctx context.Context) func() {
	takes := w.takes
	if callerOf(ctx).kind == "nobody" {
		takes = func() {}
	}
	takes()
	w.mu.Lock()
	return func() {
		w.mu.Unlock()
		takes()
	}
}

func (w *watched) claimed(ctx context.Context, c persist.Claim) {
	if c.Token != 0 {
		w.held[c.Ref] = &tenure{Claim: c, by: callerOf(ctx)}
	}
}

func (w *watched) gone(c persist.Claim) {
	if t := w.held[c.Ref]; t != nil && t.Claim == c {
		delete(w.held, c.Ref)
	}
}

func (w *watched) works(ctx context.Context, c persist.Claim) {
	if t := w.held[c.Ref]; t != nil && t.Claim == c && t.by == callerOf(ctx) {
		t.worked = true
	}
}

func (w *watched) Begin(ctx context.Context, rec persist.Record) (persist.Entry, error) {
	defer w.in(ctx)()
	e, err := w.Store.Begin(ctx, rec)
	w.claimed(ctx, e.Claim)
	switch {
	case err != nil:
	case e.New:
		w.keys[rec.Ref] = []string{rec.Key}
	case e.State() == samekey.Pending && e.Claim.Token == 0:
		callerOf(ctx).busy = w.held[rec.Ref]
	}
	return e, err
}

func (w *watched) Claim(ctx context.Context, ref persist.Ref) (persist.Entry, error) {
	defer w.in(ctx)()
	e, err := w.Store.Claim(ctx, ref)
	w.claimed(ctx, e.Claim)
	if errors.Is(err, persist.ErrBusy) {
		callerOf(ctx).busy = w.held[ref]
	}
	if err == nil && e.State() == persist.Rejected && e.Answer.Owed {
		callerOf(ctx).owed = true
	}
	return e, err
}

func (w *watched) ClaimDue(ctx context.Context, n int) ([]persist.Entry, error) {
	defer w.in(ctx)()
	es, err := w.Store.ClaimDue(ctx, n)
	for _, e := range es {
		w.claimed(ctx, e.Claim)
	}
	return es, err
}

func (w *watched) Mark(ctx context.Context, c persist.Claim, p persist.Progress) error {
	defer w.in(ctx)()
	w.works(ctx, c)
	return w.Store.Mark(ctx, c, p)
}

func (w *watched) Replace(ctx context.Context, c persist.Claim, rec persist.Record) error {
	defer w.in(ctx)()
	w.works(ctx, c)
	err := w.Store.Replace(ctx, c, rec)
	if keys := w.keys[c.Ref]; err == nil {
		if i := slices.Index(keys, rec.Key); i >= 0 && i < len(keys)-1 {
			w.t.Errorf("%s of client %d puts key %s of %q back, which another had replaced", callerOf(ctx).kind, callerOf(ctx).client, rec.Key, c.ID)
		} else if i < 0 {
			w.keys[c.Ref] = append(keys, rec.Key)
		}
	}
	return err
}

func (w *watched) Settle(ctx context.Context, c persist.Claim, a persist.Answer) error {
	defer w.in(ctx)()
	w.works(ctx, c)
	before, gerr := w.Store.Get(context.WithoutCancel(ctx), c.Ref)
	err := w.Store.Settle(ctx, c, a)
	if err == nil || errors.Is(err, persist.ErrClaimLost) { // else it is still claimed: the context had ended
		w.gone(c)
	}
	if by := callerOf(ctx); err == nil && gerr == nil && by.kind == "Recover" && by.handles && !a.Owed && a.Status != 0 {
		switch {
		case before.Answer == nil:
			w.t.Errorf("a recovery that owes its handler each answer has settled %q, which is pending, as %v and accepted", c.ID, a.State)
		case w.accepted[before.Key] == 0:
			w.t.Errorf("%q is no longer owed, and no handler has accepted the answer of %s", c.ID, before.Key)
		}
	}
	return err
}

func (w *watched) Release(ctx context.Context, c persist.Claim) error {
	defer w.in(ctx)()
	err := w.Store.Release(ctx, c)
	w.gone(c)
	if err != nil && !errors.Is(err, persist.ErrClaimLost) {
		w.t.Errorf("%s of client %d leaves %q claimed: %v", callerOf(ctx).kind, callerOf(ctx).client, c.ID, err)
	}
	return err
}

func (w *watched) Forget(ctx context.Context, ref persist.Ref) error {
	defer w.in(ctx)()
	err := w.Store.Forget(ctx, ref)
	if errors.Is(err, persist.ErrBusy) {
		callerOf(ctx).busy = w.held[ref]
	}
	return err
}

// told judges a *BusyError that a call got: who, by what the store said last, had the operation?
func (w *watched) told(who *caller) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch had := who.busy; {
	case who.owed:
	case had == nil:
		w.t.Errorf("%s was told busy, and the store has not said so", who.kind)
	case had.by.client != who.client, had.by.kind == "Resume", had.by.kind == "Rekey", had.by.kind == "Abandon", had.by.kind == "Do" && who.kind != "Do":
	case had.by.kind == "Recover" && who.kind != "Do":
		w.doubts = append(w.doubts, doubt{who, had})
	default:
		w.t.Errorf("%s was told busy, and a %s of its own client had %q, token %d", who.kind, had.by.kind, had.ID, had.Token)
	}
}

// observe is the observer of a client.
func (w *watched) observe(ctx context.Context, e samekey.Event) {
	who := callerOf(ctx)
	switch {
	case e.Recovery && who.kind == "Recover":
		w.mu.Lock()
		if t := w.held[e.Ref]; t != nil && t.by == who {
			t.worked = true
		}
		w.mu.Unlock()
	case e.Step == samekey.StepOutcome && errors.Is(e.Err, samekey.ErrBusy) && who.kind == "Do":
		w.told(who)
	}
}

// sends checks, before an attempt, that its call has the claim, and the key is that of the record.
func (w *watched) sends(ctx context.Context, op samekey.Operation) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.leased { // what has lapsed is not sent, and only the store knows
		return
	}
	who := callerOf(ctx)
	if t := w.held[op.Ref]; t == nil || t.by != who {
		w.t.Errorf("%s of client %d sends %q without the claim", who.kind, who.client, op.ID)
	}
	if keys := w.keys[op.Ref]; len(keys) == 0 || keys[len(keys)-1] != op.Key {
		w.t.Errorf("%s of client %d sends %q under %s, which is not its key: %v", who.kind, who.client, op.ID, op.Key, keys)
	}
}

func (w *watched) accepts(op samekey.Operation) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.accepted[op.Key]++
}

// over is called when all calls have returned, and all clients are closed.
func (w *watched) over() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, t := range w.held {
		w.t.Errorf("%q is still claimed by %s of client %d", t.ID, t.by.kind, t.by.client)
	}
	for _, d := range w.doubts {
		if !d.of.worked && !d.of.by.ended && !w.leased {
			w.t.Errorf("%s was told busy, and a recovery of its own client only held %q", d.who.kind, d.of.ID)
		}
	}
}

func (w *watched) String() string { return fmt.Sprint(len(w.keys), " operations") }
