package persisttest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"

	"github.com/samekey/samekey/persist"
)

// concurrent lets many callers do all there is to do with a few operations, and watches that an operation has one
// holder, who can do what a claim is for, and that nobody else can.
func concurrent(p *place) {
	const callers, steps, ops = 8, 150, 5
	w := &watch{place: p}
	recs := make([]persist.Record, ops)
	for i := range recs {
		recs[i] = p.rec(fmt.Sprint("op-", i))
		w.holder.Store(recs[i].Ref, new(atomic.Uint64))
		w.latest.Store(recs[i].Ref, new(atomic.Uint64))
	}
	errs := make([]error, callers)
	var all sync.WaitGroup
	for i := range callers {
		random := rand.New(rand.NewPCG(uint64(i), 1)) // repeatable on purpose
		all.Go(func() {
			for range steps {
				if errs[i] = w.use(random, recs[random.IntN(ops)]); errs[i] != nil {
					return
				}
			}
		})
	}
	all.Wait()
	p.NoError(errors.Join(errs...))
	for _, r := range p.list(persist.Filter{}) {
		p.NotEmpty(r.Key, "a record is whole")
		p.NotEmpty(r.Body, "a record is whole")
	}
	p.NoError(p.s.Close())
}

type watch struct {
	*place
	holder sync.Map // Ref to the token that holds it, 0: nobody
	latest sync.Map // Ref to the highest token seen
}

// use makes one random call, and whatever a claim that comes of it is good for.
func (w *watch) use(random *rand.Rand, r persist.Record) error {
	var es []persist.Entry
	var e persist.Entry
	var err error
	method := ""
	switch random.IntN(7) {
	case 0, 1:
		method = "Begin"
		e, err = w.s.Begin(w.ctx, r)
		es = append(es, e)
	case 2:
		method = "Claim"
		e, err = w.s.Claim(w.ctx, r.Ref)
		es = append(es, e)
	case 3:
		method = "ClaimDue"
		es, err = w.s.ClaimDue(w.ctx, 2)
	case 4:
		method = "Get"
		_, err = w.s.Get(w.ctx, r.Ref)
	case 5:
		method = "Forget"
		err = w.s.Forget(w.ctx, r.Ref)
	case 6:
		method = "List"
		_, err = collect(w.ctx, w.s, persist.Filter{})
	}
	if err != nil {
		if method == "Claim" || method == "Get" || method == "Forget" { // they may meet nothing, or another holder
			if errors.Is(err, persist.ErrNotFound) || errors.Is(err, persist.ErrBusy) {
				return nil
			}
		}
		return fmt.Errorf("%s: %w", method, err)
	}
	for _, e := range es {
		if e.Claim.Token == 0 {
			continue
		}
		if err := w.hold(random, e); err != nil {
			return fmt.Errorf("%s, then %w", method, err)
		}
	}
	return nil
}

// hold uses the claim of e and ends it. The note of the holder is taken back before the claim is.
func (w *watch) hold(random *rand.Rand, e persist.Entry) error {
	c := e.Claim
	if latest := w.value(&w.latest, c.Ref); latest.Swap(c.Token) >= c.Token {
		return fmt.Errorf("token %d of %v: not above the one before", c.Token, c.Ref)
	}
	holder := w.value(&w.holder, c.Ref)
	if !holder.CompareAndSwap(0, c.Token) {
		return fmt.Errorf("claim %v: another holds it", c)
	}
	if err := w.s.Mark(w.ctx, c, persist.Progress{Attempts: 1}); err != nil {
		return fmt.Errorf("mark: %w", err)
	}
	if random.IntN(4) == 0 {
		e.Answer = nil
		if err := w.s.Replace(w.ctx, c, e.Record); err != nil {
			return fmt.Errorf("replace: %w", err)
		}
	}
	holder.Store(0)
	a := answer(persist.Succeeded)
	a.Owed, a.Lazy = random.IntN(2) == 0, random.IntN(2) == 0
	if random.IntN(3) == 0 {
		a.KeepBody, a.KeepName = w.base, w.base
	}
	end := func() error { return w.s.Settle(w.ctx, c, a) }
	if random.IntN(2) == 0 {
		end = func() error { return w.s.Release(w.ctx, c) }
	}
	if err := end(); err != nil {
		return fmt.Errorf("end: %w", err)
	}
	if err := w.s.Mark(w.ctx, c, persist.Progress{}); !errors.Is(err, persist.ErrClaimLost) {
		return fmt.Errorf("mark after the claim's end: %w", errors.Join(err, errors.New("not ErrClaimLost")))
	}
	return nil
}

func (w *watch) value(of *sync.Map, ref persist.Ref) *atomic.Uint64 {
	v, _ := of.Load(ref)
	return v.(*atomic.Uint64) // nothing else is in there
}
