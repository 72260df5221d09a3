package persisttest

import (
	"context"
	"errors"
	"iter"
	"sync"
	"testing"
	"time"

	"github.com/samekey/samekey/persist"
	"github.com/samekey/samekey/persist/memory"
)

// disk is a place that outlives the stores opened on it: the least that keeps the rules for durable and shared stores,
// so that the suite can be shown to pass, and to fail once a part of it is taken away.
type disk struct {
	mu     sync.Mutex
	live   persist.Store        // what callers see
	log    []event              // what is on the disk
	buf    []event              // what is not yet
	claims map[persist.Ref]hold // given out and not ended
	token  uint64               // of the latest claim; the live store's own start anew with it
	lease  time.Duration        // 0: claims do not lapse
	flaw   string               // what is broken in a mutant
}

// event repeats one change on an empty store.
type event func(persist.Store)

type hold struct {
	live  persist.Claim // as the live store knows it
	token uint64        // as callers know it
	by    *handle
	until time.Time
}

// handle is one store opened on a disk.
type handle struct {
	*disk
	closed, broken bool
}

type leased struct{ *handle }

func (l leased) Lease() time.Duration { return l.lease }

func onDisk(lease time.Duration, flaw string) Harness {
	h := Harness{
		New: func(testing.TB) func() (persist.Store, error) {
			d := &disk{live: memory.New(), claims: map[persist.Ref]hold{}, lease: lease, flaw: flaw}
			return d.open
		},
		Durable: true, Shared: true, Bubble: true, Leases: lease > 0,
		Crash: func(s persist.Store) { handleOf(s).crash() },
		Break: func(s persist.Store) { handleOf(s).broken = true },
	}
	return h
}

func handleOf(s persist.Store) *handle {
	if l, ok := s.(leased); ok {
		return l.handle
	}
	return s.(*handle)
}

func (d *disk) open() (persist.Store, error) {
	h := &handle{disk: d}
	if d.lease > 0 {
		return leased{h}, nil
	}
	return h, nil
}

// crash loses what is not on the disk: the live state is made again from the log, and the others' claims with it.
func (h *handle) crash() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
	if h.flaw == "claims outlive a crash" {
		return
	}
	h.buf = nil
	h.live = memory.New()
	for _, e := range h.log {
		e(h.live)
	}
	held := h.claims
	h.claims = map[persist.Ref]hold{}
	for ref, c := range held {
		if h.flaw == "ends the others" || c.by == h && h.lease == 0 { // else it has to lapse
			continue
		}
		if e, err := h.live.Claim(context.Background(), ref); err == nil {
			c.live = e.Claim
			h.claims[ref] = c
		}
	}
	if h.flaw == "tokens shrink" {
		h.token = 0
	}
}

func (h *handle) Close() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return nil
	}
	h.closed = true
	if h.flaw != "close does not flush" {
		h.flush()
	}
	h.buf = nil
	if h.flaw == "close keeps claims" {
		return nil
	}
	for ref, c := range h.claims {
		if c.by == h || h.flaw == "ends the others" {
			h.free(ref)
		}
	}
	if h.flaw == "close does not flush" || h.flaw == "loses Mark at restart" {
		h.live = memory.New()
		for _, e := range h.log {
			e(h.live)
		}
	}
	return nil
}

func (d *disk) flush() { d.log, d.buf = append(d.log, d.buf...), nil }

func (d *disk) free(ref persist.Ref) {
	_ = d.live.Release(context.Background(), d.claims[ref].live)
	delete(d.claims, ref)
}

// enter locks the disk for one call, and frees what has lapsed.
func (h *handle) enter(ctx context.Context, method string, ref persist.Ref) (func(), error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	h.mu.Lock()
	if h.closed {
		h.mu.Unlock()
		return nil, h.failure(method, ref, persist.ErrClosed)
	}
	if h.lease > 0 && h.flaw != "claims never lapse" {
		for ref, c := range h.claims {
			if !c.until.After(time.Now()) {
				h.free(ref)
			}
		}
	}
	return h.mu.Unlock, nil
}

func (h *handle) failure(method string, ref persist.Ref, err error) error {
	return &persist.Error{Store: "disk", Method: method, Ref: ref, Err: err}
}

// give notes the claim that live gave and returns it as callers know it.
func (h *handle) give(c persist.Claim) persist.Claim {
	if c.Token == 0 {
		return c
	}
	h.token++
	h.claims[c.Ref] = hold{live: c, token: h.token, by: h, until: time.Now().Add(h.lease)}
	return persist.Claim{Ref: c.Ref, Token: h.token}
}

// inner is c as the live store knows it; a claim that has ended is none.
func (h *handle) inner(c persist.Claim) persist.Claim {
	if held, ok := h.claims[c.Ref]; ok && held.token == c.Token {
		return held.live
	}
	return persist.Claim{Ref: c.Ref}
}

func (h *handle) Begin(ctx context.Context, rec persist.Record) (persist.Entry, error) {
	leave, err := h.enter(ctx, "Begin", rec.Ref)
	if err != nil {
		return persist.Entry{}, err
	}
	defer leave()
	_, missing := h.live.Get(ctx, rec.Ref)
	if h.broken && missing != nil {
		if h.flaw == "writes though broken" {
			h.append(func(s persist.Store) { again(s.Begin(context.Background(), rec)) }, true)
			_, _ = h.live.Begin(ctx, rec)
		}
		return persist.Entry{}, h.failure("Begin", rec.Ref, errors.New("the disk is gone"))
	}
	e, err := h.live.Begin(ctx, rec)
	if err != nil {
		return e, err
	}
	if e.New {
		rec = deepCopy(e.Record)
		h.append(func(s persist.Store) {
			e, err := s.Begin(context.Background(), rec)
			again(e, errors.Join(err, s.Release(context.Background(), e.Claim)))
		}, true)
	}
	e.Claim = h.give(e.Claim)
	return e, nil
}

// again stops on an event that does not repeat: the disk itself would be wrong.
func again(_ persist.Entry, err error) {
	if err != nil {
		panic(err)
	}
}

func (h *handle) append(e event, durable bool) {
	h.buf = append(h.buf, e)
	if durable {
		h.flush()
	}
}

func (h *handle) Claim(ctx context.Context, ref persist.Ref) (persist.Entry, error) {
	leave, err := h.enter(ctx, "Claim", ref)
	if err != nil {
		return persist.Entry{}, err
	}
	defer leave()
	e, err := h.live.Claim(ctx, ref)
	e.Claim = h.give(e.Claim)
	return e, err
}

func (h *handle) ClaimDue(ctx context.Context, n int) ([]persist.Entry, error) {
	leave, err := h.enter(ctx, "ClaimDue", persist.Ref{})
	if err != nil {
		return nil, err
	}
	defer leave()
	if h.flaw == "steals from other stores" {
		for ref, c := range h.claims {
			if c.by != h {
				h.free(ref)
			}
		}
	}
	es, err := h.live.ClaimDue(ctx, n)
	for i := range es {
		es[i].Claim = h.give(es[i].Claim)
	}
	return es, err
}

// change does on live, and notes for the disk, what needs a claim.
func (h *handle) change(ctx context.Context, method string, c persist.Claim, durable bool, do func(persist.Store, persist.Claim) error) error {
	leave, err := h.enter(ctx, method, c.Ref)
	if err != nil {
		return err
	}
	defer leave()
	if h.broken {
		return h.failure(method, c.Ref, errors.New("the disk is gone"))
	}
	in := h.inner(c)
	if err := do(h.live, in); err != nil {
		return err
	}
	if h.flaw == "loses Mark at restart" && method == "Mark" {
		return nil
	}
	if method != "Release" {
		lost := h.flaw == "lazy settles overtake" && method == "Settle" && c.ID == "1"
		e := func(s persist.Store) {
			e, err := s.Claim(context.Background(), c.Ref)
			again(e, errors.Join(err, do(s, e.Claim)))
			_ = s.Release(context.Background(), e.Claim)
		}
		switch {
		case lost:
		case h.flaw == "lazy settles overtake" && !durable:
			h.log = append(h.log, e)
		case h.flaw == "a durable change goes alone" && durable:
			h.log = append(h.log, e)
		default:
			h.append(e, durable || h.flaw == "" && h.token%2 == 1) // a store may write it early
		}
	}
	if method == "Settle" || method == "Release" {
		delete(h.claims, c.Ref)
	} else if h.flaw != "mark does not renew" {
		held := h.claims[c.Ref]
		held.until = time.Now().Add(h.lease)
		h.claims[c.Ref] = held
	}
	if method == "Settle" && !durable && h.flaw != "lazy settles stay in memory" {
		time.AfterFunc(time.Second, func() { h.mu.Lock(); defer h.mu.Unlock(); h.flush() })
	}
	return nil
}

func (h *handle) Mark(ctx context.Context, c persist.Claim, p persist.Progress) error {
	return h.change(ctx, "Mark", c, true, func(s persist.Store, c persist.Claim) error { return s.Mark(context.Background(), c, p) })
}

func (h *handle) Replace(ctx context.Context, c persist.Claim, rec persist.Record) error {
	rec = deepCopy(rec)
	return h.change(ctx, "Replace", c, true, func(s persist.Store, c persist.Claim) error { return s.Replace(context.Background(), c, rec) })
}

func (h *handle) Settle(ctx context.Context, c persist.Claim, a persist.Answer) error {
	a = *deepCopy(persist.Record{Answer: &a}).Answer
	return h.change(ctx, "Settle", c, !a.Lazy, func(s persist.Store, c persist.Claim) error { return s.Settle(context.Background(), c, a) })
}

func (h *handle) Release(ctx context.Context, c persist.Claim) error {
	return h.change(ctx, "Release", c, false, func(s persist.Store, c persist.Claim) error { return s.Release(context.Background(), c) })
}

func (h *handle) Get(ctx context.Context, ref persist.Ref) (persist.Record, error) {
	leave, err := h.enter(ctx, "Get", ref)
	if err != nil {
		return persist.Record{}, err
	}
	defer leave()
	return h.live.Get(ctx, ref)
}

func (h *handle) List(ctx context.Context, f persist.Filter) iter.Seq2[persist.Record, error] {
	return func(yield func(persist.Record, error) bool) {
		leave, err := h.enter(ctx, "List", persist.Ref{})
		if err != nil {
			yield(persist.Record{}, err)
			return
		}
		live := h.live
		leave()
		live.List(ctx, f)(yield)
	}
}

func (h *handle) Forget(ctx context.Context, ref persist.Ref) error {
	leave, err := h.enter(ctx, "Forget", ref)
	if err != nil {
		return err
	}
	defer leave()
	if h.broken {
		return h.failure("Forget", ref, errors.New("the disk is gone"))
	}
	if err = h.live.Forget(ctx, ref); err == nil && h.flaw != "the forgotten come back" {
		h.append(func(s persist.Store) { again(persist.Entry{}, s.Forget(context.Background(), ref)) }, true)
	}
	return err
}

func (h *handle) Flush(ctx context.Context) error {
	leave, err := h.enter(ctx, "Flush", persist.Ref{})
	if err != nil {
		return err
	}
	defer leave()
	if h.flaw != "flush does nothing" {
		h.flush()
	}
	return nil
}
