package sealed

import (
	"context"
	"iter"
	"sync"
	"time"

	"github.com/samekey/samekey/persist"
)

// store is inner, whose Release, Flush and Close need nothing done, with what goes in sealed and what comes out opened.
type store struct {
	persist.Store
	sealer *Sealer

	mu sync.Mutex
	// bad are the operations that did not open, for what ClaimDue or List has told of them; and those claims that
	// ClaimDue keeps, so as not to be given the same again before the others.
	bad map[persist.Ref]persist.Claim
}

// leased is a store over one whose claims lapse.
type leased struct {
	*store
	persist.Leaser
}

// Begin seals rec.
func (s *store) Begin(ctx context.Context, rec persist.Record) (persist.Entry, error) {
	e, err := s.Store.Begin(ctx, s.sealer.Seal(rec))
	if err != nil {
		return persist.Entry{}, err
	}
	if e.New {
		e.Record = rec
		return e, nil
	}
	return s.entry(ctx, "Begin", e)
}

// Claim opens what it takes.
func (s *store) Claim(ctx context.Context, ref persist.Ref) (persist.Entry, error) {
	s.letGo(ctx, ref)
	e, err := s.Store.Claim(ctx, ref)
	if err != nil {
		return persist.Entry{}, err
	}
	return s.entry(ctx, "Claim", e)
}

// entry opens e, or gives its claim back.
func (s *store) entry(ctx context.Context, method string, e persist.Entry) (persist.Entry, error) {
	rec, err := s.sealer.open(e.Record)
	if err != nil {
		s.release(ctx, e.Claim)
		return persist.Entry{}, fail(method, e.Ref, err)
	}
	e.Record = rec
	return e, nil
}

// ClaimDue passes over what does not open. It keeps the claims of those until it has nothing else to give, so that they
// are not all that it ever gets.
func (s *store) ClaimDue(ctx context.Context, n int) ([]persist.Entry, error) {
	var due []persist.Entry
	for more := true; more && len(due) == 0; {
		es, err := s.Store.ClaimDue(ctx, n)
		if err != nil {
			return nil, err
		}
		more = false
		for _, e := range es {
			rec, err := s.sealer.open(e.Record)
			if err != nil {
				s.tell(ctx, &e.Record, err)
				more = s.hold(e.Claim) || more
				continue
			}
			e.Record = rec
			due = append(due, e)
		}
	}
	if len(due) == 0 {
		s.letAllGo(ctx)
	}
	return due, nil
}

// Mark seals p.
func (s *store) Mark(ctx context.Context, c persist.Claim, p persist.Progress) error {
	return s.Store.Mark(ctx, c, s.sealer.progress(c.Ref, p))
}

// Replace seals rec.
func (s *store) Replace(ctx context.Context, c persist.Claim, rec persist.Record) error {
	rec.Ref, rec.Answer = c.Ref, nil
	return s.Store.Replace(ctx, c, s.sealer.Seal(rec))
}

// Settle seals a. What is not kept is not given away at all.
func (s *store) Settle(ctx context.Context, c persist.Claim, a persist.Answer) error {
	if a.KeepBody.IsZero() && a.KeepName.IsZero() && !a.Owed {
		a.Header, a.Body, a.Reason = nil, nil, ""
	} else {
		a = s.sealer.answer(c.Ref, a)
	}
	return s.Store.Settle(ctx, c, a)
}

// Get opens what it reads.
func (s *store) Get(ctx context.Context, ref persist.Ref) (persist.Record, error) {
	rec, err := s.Store.Get(ctx, ref)
	if err != nil {
		return persist.Record{}, err
	}
	out, err := s.sealer.open(rec)
	if err != nil {
		return persist.Record{}, fail("Get", ref, err)
	}
	return out, nil
}

// List goes on behind operations that do not open, and ends with the first such error.
func (s *store) List(ctx context.Context, f persist.Filter) iter.Seq2[persist.Record, error] {
	return func(yield func(persist.Record, error) bool) {
		var bad error
		for rec, err := range s.Store.List(ctx, f) {
			if err != nil {
				yield(persist.Record{}, err)
				return
			}
			out, err := s.sealer.open(rec)
			if err != nil {
				s.tell(ctx, &rec, err)
				if bad == nil {
					bad = fail("List", rec.Ref, err)
				}
				continue
			}
			if !yield(out, nil) {
				return
			}
		}
		if bad != nil {
			yield(persist.Record{}, bad)
		}
	}
}

// Forget needs no key.
func (s *store) Forget(ctx context.Context, ref persist.Ref) error {
	s.letGo(ctx, ref)
	err := s.Store.Forget(ctx, ref)
	if err == nil {
		s.mu.Lock()
		delete(s.bad, ref) // what has the name next is told of anew
		s.mu.Unlock()
	}
	return err
}

// Wake is inner's, for a client that keeps recovering. Nil, which never wakes, if it has none.
func (s *store) Wake(ctx context.Context) <-chan struct{} {
	if w, is := s.Store.(interface {
		Wake(ctx context.Context) <-chan struct{}
	}); is {
		return w.Wake(ctx)
	}
	return nil
}

// tell logs an operation that does not open, the first time.
func (s *store) tell(ctx context.Context, r *persist.Record, err error) {
	s.mu.Lock()
	_, told := s.bad[r.Ref]
	if !told {
		s.bad[r.Ref] = persist.Claim{}
	}
	s.mu.Unlock()
	if told {
		return
	}
	id := r.ID
	if !r.Named && len(id) > 12 { // it is the key
		id = id[:8] + "…" + id[len(id)-4:]
	}
	s.sealer.log.ErrorContext(ctx, "samekey: sealed: an operation does not open and is passed over", "scope", r.Scope, "id", id, "error", err)
}

// hold keeps a claim; false if one of the same operation was kept, which has lapsed.
func (s *store) hold(c persist.Claim) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	was := s.bad[c.Ref]
	s.bad[c.Ref] = c
	return was.Token == 0
}

// letGo gives a claim back that ClaimDue keeps.
func (s *store) letGo(ctx context.Context, ref persist.Ref) {
	s.mu.Lock()
	c := s.bad[ref]
	if c.Token != 0 {
		s.bad[ref] = persist.Claim{}
	}
	s.mu.Unlock()
	s.release(ctx, c)
}

func (s *store) letAllGo(ctx context.Context) {
	s.mu.Lock()
	var held []persist.Ref
	for ref, c := range s.bad {
		if c.Token != 0 {
			held = append(held, ref)
		}
	}
	s.mu.Unlock()
	for _, ref := range held {
		s.letGo(ctx, ref)
	}
}

// release gives a claim back, whatever ctx says. One that cannot be given back lapses, or ends with the store.
func (s *store) release(ctx context.Context, c persist.Claim) {
	if c.Token == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	_ = s.Store.Release(ctx, c)
}
