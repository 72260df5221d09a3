package persisttest

import (
	"context"
	"errors"
	"iter"

	"github.com/samekey/samekey/persist"
)

var background = context.Background()

func mutantsOfCalls(add adder) {
	const ended = "Context/that has ended: its error, and nothing changes"
	add(ended, "Begin does not look", func(b *bent) {
		b.begin = func(_ context.Context, r persist.Record) (persist.Entry, error) { return b.Store.Begin(background, r) }
	})
	add(ended, "Begin looks too late", func(b *bent) {
		b.begin = func(ctx context.Context, r persist.Record) (persist.Entry, error) {
			e, err := b.Store.Begin(background, r)
			return e, errors.Join(err, ctx.Err())
		}
	})
	add(ended, "Claim does not look", func(b *bent) {
		b.claim = func(_ context.Context, ref persist.Ref) (persist.Entry, error) { return b.Store.Claim(background, ref) }
	})
	add(ended, "ClaimDue looks too late", func(b *bent) {
		b.claimDue = func(ctx context.Context, n int) ([]persist.Entry, error) {
			es, err := b.Store.ClaimDue(background, n)
			return es, errors.Join(err, ctx.Err())
		}
	})
	add(ended, "Mark looks too late", func(b *bent) {
		b.mark = func(ctx context.Context, c persist.Claim, p persist.Progress) error {
			return errors.Join(b.Store.Mark(background, c, p), ctx.Err())
		}
	})
	add(ended, "Replace looks too late", func(b *bent) {
		b.replace = func(ctx context.Context, c persist.Claim, r persist.Record) error {
			return errors.Join(b.Store.Replace(background, c, r), ctx.Err())
		}
	})
	add(ended, "Settle looks too late", func(b *bent) {
		b.settle = func(ctx context.Context, c persist.Claim, a persist.Answer) error {
			return errors.Join(b.Store.Settle(background, c, a), ctx.Err())
		}
	})
	add(ended, "Release looks too late", func(b *bent) {
		b.release = func(ctx context.Context, c persist.Claim) error {
			return errors.Join(b.Store.Release(background, c), ctx.Err())
		}
	})
	add(ended, "Get does not look", func(b *bent) {
		b.get = func(_ context.Context, ref persist.Ref) (persist.Record, error) { return b.Store.Get(background, ref) }
	})
	add(ended, "List does not look", func(b *bent) {
		b.list = func(_ context.Context, f persist.Filter) iter.Seq2[persist.Record, error] {
			return b.Store.List(background, f)
		}
	})
	add(ended, "Forget looks too late", func(b *bent) {
		b.forget = func(ctx context.Context, ref persist.Ref) error {
			return errors.Join(b.Store.Forget(background, ref), ctx.Err())
		}
	})
	add(ended, "Flush does not look", func(b *bent) {
		b.flush = func(context.Context) error { return b.Store.Flush(background) }
	})

	const shut = "Close/ErrClosed from then on"
	add(shut, "closes nothing", func(b *bent) { b.close = func() error { return nil } })
	add(shut, "the second is an error", func(b *bent) {
		n := 0
		b.close = func() error {
			if n++; n > 1 {
				return persist.ErrClosed
			}
			return b.Store.Close()
		}
	})
	add(shut, "Flush has nothing to do", func(b *bent) { b.flush = func(context.Context) error { return nil } })
	add(shut, "Get has nothing to give", func(b *bent) {
		b.get = func(ctx context.Context, ref persist.Ref) (persist.Record, error) {
			r, err := b.Store.Get(ctx, ref)
			if errors.Is(err, persist.ErrClosed) {
				err = persist.ErrNotFound
			}
			return r, err
		}
	})
	add(shut, "List is empty", func(b *bent) {
		b.list = func(ctx context.Context, f persist.Filter) iter.Seq2[persist.Record, error] {
			return func(yield func(persist.Record, error) bool) {
				for r, err := range b.Store.List(ctx, f) {
					if errors.Is(err, persist.ErrClosed) || !yield(r, err) {
						return
					}
				}
			}
		}
	})

	const shares = "Memory/is shared neither on the way in nor out"
	add(shares, "Begin keeps the body it is given", func(b *bent) {
		var body []byte
		b.begin = func(ctx context.Context, r persist.Record) (persist.Entry, error) {
			if body == nil {
				body = r.Body
			}
			return b.Store.Begin(ctx, r)
		}
		b.get = func(ctx context.Context, ref persist.Ref) (persist.Record, error) {
			r, err := b.Store.Get(ctx, ref)
			r.Body = body
			return r, err
		}
	})
	add(shares, "Get gives the same header twice", func(b *bent) {
		var header map[string][]string
		b.get = func(ctx context.Context, ref persist.Ref) (persist.Record, error) {
			r, err := b.Store.Get(ctx, ref)
			if header == nil {
				header = r.Header
			}
			r.Header = header
			return r, err
		}
	})
	add(shares, "Settle keeps the header it is given", func(b *bent) {
		var header map[string][]string
		b.settle = func(ctx context.Context, c persist.Claim, a persist.Answer) error {
			header = a.Header
			return b.Store.Settle(ctx, c, a)
		}
		b.get = func(ctx context.Context, ref persist.Ref) (persist.Record, error) {
			r, err := b.Store.Get(ctx, ref)
			if r.Answer != nil {
				r.Answer.Header = header
			}
			return r, err
		}
	})
	add(shares, "List gives what Get gives", func(b *bent) {
		b.list = func(ctx context.Context, f persist.Filter) iter.Seq2[persist.Record, error] {
			return func(yield func(persist.Record, error) bool) {
				for r, err := range b.Store.List(ctx, f) {
					if err == nil {
						b.get = func(context.Context, persist.Ref) (persist.Record, error) { return r, nil }
					}
					if !yield(r, err) {
						return
					}
				}
			}
		}
	})
}
