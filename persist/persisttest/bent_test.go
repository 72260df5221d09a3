package persisttest

import (
	"context"
	"iter"
	"sync"

	"github.com/samekey/samekey/persist"
)

// bent is a store with some of its methods replaced. It remembers the latest claim of each Ref.
type bent struct {
	persist.Store
	mu   sync.Mutex
	last map[persist.Ref]persist.Claim

	begin    func(context.Context, persist.Record) (persist.Entry, error)
	claim    func(context.Context, persist.Ref) (persist.Entry, error)
	claimDue func(context.Context, int) ([]persist.Entry, error)
	mark     func(context.Context, persist.Claim, persist.Progress) error
	replace  func(context.Context, persist.Claim, persist.Record) error
	settle   func(context.Context, persist.Claim, persist.Answer) error
	release  func(context.Context, persist.Claim) error
	get      func(context.Context, persist.Ref) (persist.Record, error)
	list     func(context.Context, persist.Filter) iter.Seq2[persist.Record, error]
	forget   func(context.Context, persist.Ref) error
	flush    func(context.Context) error
	close    func() error
}

// bend makes a store of which change replaces what it wants to.
func bend(change func(*bent)) func(persist.Store) persist.Store {
	return func(s persist.Store) persist.Store {
		b := &bent{
			Store: s, last: map[persist.Ref]persist.Claim{},
			begin: s.Begin, claim: s.Claim, claimDue: s.ClaimDue, mark: s.Mark, replace: s.Replace, settle: s.Settle,
			release: s.Release, get: s.Get, list: s.List, forget: s.Forget, flush: s.Flush, close: s.Close,
		}
		change(b)
		return b
	}
}

func (b *bent) note(c persist.Claim) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if c.Token != 0 {
		b.last[c.Ref] = c
	}
}

func (b *bent) latest(ref persist.Ref) persist.Claim {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.last[ref]
}

func (b *bent) Begin(ctx context.Context, r persist.Record) (persist.Entry, error) {
	e, err := b.begin(ctx, r)
	b.note(e.Claim)
	return e, err
}

func (b *bent) Claim(ctx context.Context, ref persist.Ref) (persist.Entry, error) {
	e, err := b.claim(ctx, ref)
	b.note(e.Claim)
	return e, err
}

func (b *bent) ClaimDue(ctx context.Context, n int) ([]persist.Entry, error) {
	es, err := b.claimDue(ctx, n)
	for _, e := range es {
		b.note(e.Claim)
	}
	return es, err
}

func (b *bent) Mark(ctx context.Context, c persist.Claim, p persist.Progress) error {
	return b.mark(ctx, c, p)
}

func (b *bent) Replace(ctx context.Context, c persist.Claim, r persist.Record) error {
	return b.replace(ctx, c, r)
}

func (b *bent) Settle(ctx context.Context, c persist.Claim, a persist.Answer) error {
	return b.settle(ctx, c, a)
}

func (b *bent) List(ctx context.Context, f persist.Filter) iter.Seq2[persist.Record, error] {
	return b.list(ctx, f)
}

func (b *bent) Get(ctx context.Context, ref persist.Ref) (persist.Record, error) {
	return b.get(ctx, ref)
}
func (b *bent) Release(ctx context.Context, c persist.Claim) error { return b.release(ctx, c) }
func (b *bent) Forget(ctx context.Context, ref persist.Ref) error  { return b.forget(ctx, ref) }
func (b *bent) Flush(ctx context.Context) error                    { return b.flush(ctx) }
func (b *bent) Close() error                                       { return b.close() }
