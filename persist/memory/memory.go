// Package memory keeps operations in the memory of the process: the reference for the contract of package persist, and
// a store for tests. What it holds is lost with the process, and so is the promise that a pending command is never
// lost: production wants package journal or a database.
package memory

import (
	"context"
	"errors"
	"iter"
	"slices"
	"sort"
	"sync"
	"time"

	"github.com/samekey/samekey/persist"
)

// New returns an empty store, safe for concurrent use, whose contents end with Close or the process. Its methods wait
// for nothing but each other: they look at their context once, when they start, and List before each record. Lazy
// settles take effect at once, Flush does nothing. Failures are *persist.Error around the sentinels of package persist,
// or the context's error as it is.
func New() persist.Store {
	return &store{ops: map[persist.Ref]*op{}}
}

type store struct {
	mu      sync.Mutex
	closed  bool
	token   uint64 // of the latest claim, of whatever Ref
	ops     map[persist.Ref]*op
	order   []*op // by Created, then by arrival; may hold removed ones until the next sweep
	sweepAt int   // length of order at which to sweep
}

// op is one operation. The slices and maps below rec are never written again once it is in the store: whoever reads
// copies the struct under the lock, and clones what it points to after.
type op struct {
	rec   persist.Record
	token uint64 // of the claim; 0: nobody holds it
	gone  bool   // no longer in ops
}

func (s *store) Begin(ctx context.Context, rec persist.Record) (persist.Entry, error) {
	if rec.Answer != nil {
		return persist.Entry{}, fail("Begin", rec.Ref, errors.New("record has an answer already"))
	}
	fresh := &op{rec: clone(rec)}
	if err := s.lock(ctx, "Begin", rec.Ref); err != nil {
		return persist.Entry{}, err
	}
	o := s.find(rec.Ref)
	if o == nil {
		s.insert(fresh)
		claim := s.claim(fresh)
		s.mu.Unlock()
		return persist.Entry{Record: rec, Claim: claim, New: true}, nil
	}
	e := persist.Entry{Record: o.rec}
	if o.rec.Answer == nil && o.token == 0 {
		e.Claim = s.claim(o)
	}
	s.mu.Unlock()
	e.Record = clone(e.Record)
	return e, nil
}

func (s *store) Claim(ctx context.Context, ref persist.Ref) (persist.Entry, error) {
	if err := s.lock(ctx, "Claim", ref); err != nil {
		return persist.Entry{}, err
	}
	o := s.find(ref)
	switch {
	case o == nil || o.rec.Tombstone():
		s.mu.Unlock()
		return persist.Entry{}, fail("Claim", ref, persist.ErrNotFound)
	case o.token != 0:
		s.mu.Unlock()
		return persist.Entry{}, fail("Claim", ref, persist.ErrBusy)
	}
	e := persist.Entry{Record: o.rec, Claim: s.claim(o)}
	s.mu.Unlock()
	e.Record = clone(e.Record)
	return e, nil
}

func (s *store) ClaimDue(ctx context.Context, n int) ([]persist.Entry, error) {
	if err := s.lock(ctx, "ClaimDue", persist.Ref{}); err != nil {
		return nil, err
	}
	now := time.Now()
	var due []persist.Entry
	for _, o := range s.order {
		if len(due) >= n {
			break
		}
		if !o.gone && o.token == 0 && isDue(&o.rec, now) {
			due = append(due, persist.Entry{Record: o.rec, Claim: s.claim(o)})
		}
	}
	s.mu.Unlock()
	for i := range due {
		due[i].Record = clone(due[i].Record)
	}
	return due, nil
}

func isDue(r *persist.Record, now time.Time) bool {
	if r.Answer != nil {
		return r.Answer.Owed
	}
	return !r.Progress.Parked && !r.Progress.NotBefore.After(now)
}

func (s *store) Mark(ctx context.Context, c persist.Claim, p persist.Progress) error {
	return s.held(ctx, "Mark", c, func(o *op) { o.rec.Progress = p })
}

func (s *store) Replace(ctx context.Context, c persist.Claim, rec persist.Record) error {
	rec.Ref, rec.Answer = c.Ref, nil
	fresh := &op{rec: clone(rec), token: c.Token}
	return s.held(ctx, "Replace", c, func(o *op) {
		s.remove(o)
		s.insert(fresh)
	})
}

func (s *store) Settle(ctx context.Context, c persist.Claim, a persist.Answer) error {
	if a.State < persist.Succeeded || a.State > persist.Abandoned {
		return fail("Settle", c.Ref, errors.New("answer has no final state"))
	}
	kept := &leaves // an anonymous success: no need to copy its answer
	if a.Owed || !past(a.KeepBody, a.KeepName) {
		kept = cloneAnswer(&a)
		kept.Lazy = false
	}
	return s.held(ctx, "Settle", c, func(o *op) {
		o.rec.Answer, o.token = kept, 0
		s.retire(o)
	})
}

// leaves is the answer of what leaves at once.
var leaves persist.Answer

func (s *store) Release(ctx context.Context, c persist.Claim) error {
	return s.held(ctx, "Release", c, func(o *op) {
		o.token = 0
		s.retire(o)
	})
}

func (s *store) Get(ctx context.Context, ref persist.Ref) (persist.Record, error) {
	if err := s.lock(ctx, "Get", ref); err != nil {
		return persist.Record{}, err
	}
	o := s.find(ref)
	if o == nil {
		s.mu.Unlock()
		return persist.Record{}, fail("Get", ref, persist.ErrNotFound)
	}
	rec := o.rec
	s.mu.Unlock()
	return clone(rec), nil
}

func (s *store) List(ctx context.Context, f persist.Filter) iter.Seq2[persist.Record, error] {
	return func(yield func(persist.Record, error) bool) {
		if err := s.lock(ctx, "List", persist.Ref{}); err != nil {
			yield(persist.Record{}, err)
			return
		}
		refs := make([]persist.Ref, 0, len(s.ops))
		for _, o := range s.order {
			if !o.gone {
				refs = append(refs, o.rec.Ref)
			}
		}
		s.mu.Unlock()
		for _, ref := range refs {
			if err := s.lock(ctx, "List", persist.Ref{}); err != nil {
				yield(persist.Record{}, err)
				return
			}
			var rec persist.Record
			o := s.find(ref)
			if o != nil {
				rec = o.rec
			}
			s.mu.Unlock()
			if o != nil && f.Match(&rec) && !yield(clone(rec), nil) {
				return
			}
		}
	}
}

func (s *store) Forget(ctx context.Context, ref persist.Ref) error {
	if err := s.lock(ctx, "Forget", ref); err != nil {
		return err
	}
	defer s.mu.Unlock()
	o := s.find(ref)
	switch {
	case o == nil:
		return fail("Forget", ref, persist.ErrNotFound)
	case o.token != 0:
		return fail("Forget", ref, persist.ErrBusy)
	}
	s.remove(o)
	return nil
}

func (s *store) Flush(ctx context.Context) error {
	if err := s.lock(ctx, "Flush", persist.Ref{}); err != nil {
		return err
	}
	s.mu.Unlock()
	return nil
}

func (s *store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed, s.ops, s.order = true, nil, nil
	return nil
}

// lock takes the lock, or tells why the method may not run.
func (s *store) lock(ctx context.Context, method string, ref persist.Ref) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return fail(method, ref, persist.ErrClosed)
	}
	return nil
}

// held runs change on the operation that c holds.
func (s *store) held(ctx context.Context, method string, c persist.Claim, change func(*op)) error {
	if err := s.lock(ctx, method, c.Ref); err != nil {
		return err
	}
	defer s.mu.Unlock()
	o := s.ops[c.Ref]
	if o == nil || c.Token == 0 || o.token != c.Token {
		return fail(method, c.Ref, persist.ErrClaimLost)
	}
	change(o)
	return nil
}

// claim gives o to the caller. One counter serves all Refs, so that tokens grow even over Forget and a new Begin.
func (s *store) claim(o *op) persist.Claim {
	s.token++
	o.token = s.token
	return persist.Claim{Ref: o.rec.Ref, Token: o.token}
}

// find returns what is known under ref by now, or nil.
func (s *store) find(ref persist.Ref) *op {
	o := s.ops[ref]
	if o == nil {
		return nil
	}
	s.retire(o)
	if o.gone {
		return nil
	}
	return o
}

// retire applies retention to o. What is owed or held stays whole until it is accepted or let go.
func (s *store) retire(o *op) {
	a := o.rec.Answer
	if a == nil || a.Owed || o.token != 0 || !past(a.KeepBody) {
		return
	}
	if past(a.KeepName) {
		s.remove(o)
		return
	}
	if o.rec.Tombstone() {
		return
	}
	o.rec = persist.Record{
		Ref: o.rec.Ref, Named: o.rec.Named, Created: o.rec.Created,
		Answer: &persist.Answer{State: a.State, Reason: a.Reason, KeepName: a.KeepName},
	}
}

func past(ts ...time.Time) bool {
	for _, t := range ts {
		if !t.IsZero() && t.After(time.Now()) {
			return false
		}
	}
	return true
}

// insert adds o to ops and, at its place by age, to order. The sweep makes room first: now and then, so that it costs
// little, and it also finds those whose time has passed unseen.
func (s *store) insert(o *op) {
	if len(s.order) >= s.sweepAt {
		for _, old := range s.order {
			if !old.gone {
				s.retire(old)
			}
		}
		s.order = slices.DeleteFunc(s.order, func(old *op) bool { return old.gone })
		s.sweepAt = 2*len(s.order) + 256
	}
	s.ops[o.rec.Ref] = o
	younger := func(i int) bool { return s.order[i].rec.Created.After(o.rec.Created) }
	at := len(s.order)
	if at > 0 && younger(at-1) {
		at = sort.Search(at, younger)
	}
	s.order = slices.Insert(s.order, at, o)
}

func (s *store) remove(o *op) {
	delete(s.ops, o.rec.Ref)
	o.rec, o.gone = persist.Record{Created: o.rec.Created}, true // its place in order needs no more
}
