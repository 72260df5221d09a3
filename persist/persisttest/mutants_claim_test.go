package persisttest

import (
	"cmp"
	"context"
	"errors"
	"math"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/samekey/samekey/persist"
)

func mutantsOfBegin(add adder) {
	add("Begin/records what it is given", "drops Omitted", func(b *bent) {
		b.begin = func(ctx context.Context, r persist.Record) (persist.Entry, error) {
			r.Omitted = nil
			return b.Store.Begin(ctx, r)
		}
	})
	add("Begin/records what it is given", "takes an empty body for none", func(b *bent) {
		b.begin = func(ctx context.Context, r persist.Record) (persist.Entry, error) {
			if len(r.Body) == 0 {
				r.Body = nil
			}
			return b.Store.Begin(ctx, r)
		}
	})
	add("Begin/is atomic for each Ref", "looks, then writes", func(b *bent) {
		b.begin = func(ctx context.Context, r persist.Record) (persist.Entry, error) {
			_, err := b.Store.Get(ctx, r.Ref)
			runtime.Gosched()
			e, err2 := b.Store.Begin(ctx, r)
			if err != nil && !e.New {
				e.New, e.Claim = true, b.latest(r.Ref)
			}
			return e, err2
		}
	})
	add("Begin/tells scopes apart", "knows no scope", func(b *bent) {
		b.begin = func(ctx context.Context, r persist.Record) (persist.Entry, error) {
			r.Scope = ""
			return b.Store.Begin(ctx, r)
		}
	})
	add("Begin/takes over what is pending and unheld", "overwrites the stored record", func(b *bent) {
		b.begin = func(ctx context.Context, r persist.Record) (persist.Entry, error) {
			e, err := b.Store.Begin(ctx, r)
			if err == nil && !e.New && e.Claim.Token != 0 {
				e.Record, err = r, b.Store.Replace(ctx, e.Claim, r)
			}
			return e, err
		}
	})
	add("Begin/takes over what is pending and unheld", "leaves what is parked", func(b *bent) {
		b.begin = func(ctx context.Context, r persist.Record) (persist.Entry, error) {
			e, err := b.Store.Begin(ctx, r)
			if e.Progress.Parked {
				_ = b.Store.Release(ctx, e.Claim)
				e.Claim = persist.Claim{}
			}
			return e, err
		}
	})
	add("Begin/shows what is held without a claim", "gives the holder's claim to all", func(b *bent) {
		b.begin = func(ctx context.Context, r persist.Record) (persist.Entry, error) {
			e, err := b.Store.Begin(ctx, r)
			if !e.New {
				e.Claim = b.latest(r.Ref)
			}
			return e, err
		}
	})
	add("Begin/gives the answer of what is settled", "claims it too", func(b *bent) {
		b.begin = func(ctx context.Context, r persist.Record) (persist.Entry, error) {
			e, err := b.Store.Begin(ctx, r)
			if e.Answer != nil {
				_, _ = b.Store.Claim(ctx, r.Ref)
			}
			return e, err
		}
	})
	add("Begin/gives the answer of what is settled", "begins anew after a rejection", func(b *bent) {
		b.begin = func(ctx context.Context, r persist.Record) (persist.Entry, error) {
			e, err := b.Store.Begin(ctx, r)
			if e.State() == persist.Rejected {
				_ = b.Store.Forget(ctx, r.Ref)
				return b.Store.Begin(ctx, r)
			}
			return e, err
		}
	})
	add("Begin/refuses a record with an answer", "drops the answer", func(b *bent) {
		b.begin = func(ctx context.Context, r persist.Record) (persist.Entry, error) {
			r.Answer = nil
			return b.Store.Begin(ctx, r)
		}
	})
}

func mutantsOfClaims(add adder) {
	add("Claim/takes what nobody holds", "not what is parked", func(b *bent) {
		b.claim = func(ctx context.Context, ref persist.Ref) (persist.Entry, error) {
			e, err := b.Store.Claim(ctx, ref)
			if e.Progress.Parked {
				return persist.Entry{}, persist.ErrBusy
			}
			return e, err
		}
	})
	add("Claim/takes what nobody holds", "not what is settled", func(b *bent) {
		b.claim = func(ctx context.Context, ref persist.Ref) (persist.Entry, error) {
			e, err := b.Store.Claim(ctx, ref)
			if e.Answer != nil {
				return persist.Entry{}, persist.ErrNotFound
			}
			return e, err
		}
	})
	add("Claim/ErrNotFound and ErrBusy", "takes the one for the other", func(b *bent) {
		b.claim = func(ctx context.Context, ref persist.Ref) (persist.Entry, error) {
			e, err := b.Store.Claim(ctx, ref)
			if errors.Is(err, persist.ErrNotFound) {
				err = persist.ErrBusy
			}
			return e, err
		}
	})
	add("Claim/ErrNotFound and ErrBusy", "names the wrong operation", func(b *bent) {
		b.claim = func(ctx context.Context, ref persist.Ref) (persist.Entry, error) {
			e, err := b.Store.Claim(ctx, ref)
			var of *persist.Error
			if errors.As(err, &of) {
				of.Ref.ID = "another"
			}
			return e, err
		}
	})
	steal := func(b *bent) {
		b.claim = func(ctx context.Context, ref persist.Ref) (persist.Entry, error) {
			e, err := b.Store.Claim(ctx, ref)
			if errors.Is(err, persist.ErrBusy) && b.latest(ref).Token != 0 {
				r, err := b.Store.Get(ctx, ref)
				return persist.Entry{Record: r, Claim: b.latest(ref)}, err
			}
			return e, err
		}
		b.mark = func(ctx context.Context, c persist.Claim, p persist.Progress) error {
			time.Sleep(time.Microsecond) // time for a thief
			return b.Store.Mark(ctx, c, p)
		}
	}
	add("Claim/has one holder at a time", "steals", steal)
	add("Random/holds under concurrent use", "steals", steal)
	add("Claim/tokens grow", "they shrink", func(b *bent) {
		turn := func(c persist.Claim) persist.Claim {
			if c.Token != 0 {
				c.Token = math.MaxUint64 - c.Token
			}
			return c
		}
		b.begin = func(ctx context.Context, r persist.Record) (persist.Entry, error) {
			e, err := b.Store.Begin(ctx, r)
			e.Claim = turn(e.Claim)
			return e, err
		}
		b.claim = func(ctx context.Context, ref persist.Ref) (persist.Entry, error) {
			e, err := b.Store.Claim(ctx, ref)
			e.Claim = turn(e.Claim)
			return e, err
		}
		b.release = func(ctx context.Context, c persist.Claim) error { return b.Store.Release(ctx, turn(c)) }
	})
	const without = "Claim/without it nothing changes"
	add(without, "Mark looks at no token", func(b *bent) {
		b.mark = func(ctx context.Context, c persist.Claim, p persist.Progress) error {
			return b.Store.Mark(ctx, b.latest(c.Ref), p)
		}
	})
	add(without, "Replace looks at no token", func(b *bent) {
		b.replace = func(ctx context.Context, c persist.Claim, r persist.Record) error {
			return b.Store.Replace(ctx, b.latest(c.Ref), r)
		}
	})
	add(without, "Settle looks at no token", func(b *bent) {
		b.settle = func(ctx context.Context, c persist.Claim, a persist.Answer) error {
			return b.Store.Settle(ctx, b.latest(c.Ref), a)
		}
	})
	add(without, "Release looks at no token", func(b *bent) {
		b.release = func(ctx context.Context, c persist.Claim) error { return b.Store.Release(ctx, b.latest(c.Ref)) }
	})
	add(without, "Settle claims for itself what nobody holds", func(b *bent) {
		b.settle = func(ctx context.Context, c persist.Claim, a persist.Answer) error {
			if e, err := b.Store.Claim(ctx, c.Ref); err == nil {
				c = e.Claim
			}
			return b.Store.Settle(ctx, c, a)
		}
	})
	add(without, "Release of a lost claim is no error", func(b *bent) {
		b.release = func(ctx context.Context, c persist.Claim) error {
			if err := b.Store.Release(ctx, c); !errors.Is(err, persist.ErrClaimLost) {
				return err
			}
			return nil
		}
	})
	add("Release/ends the claim and nothing else", "counts an attempt", func(b *bent) {
		b.release = func(ctx context.Context, c persist.Claim) error {
			r, err := b.Store.Get(ctx, c.Ref)
			r.Progress.Attempts++
			return errors.Join(err, b.Store.Mark(ctx, c, r.Progress), b.Store.Release(ctx, c))
		}
	})
	mutantsOfDue(add)
}

func mutantsOfDue(add adder) {
	const order = "ClaimDue/oldest first, n at most, none is no error"
	add(order, "youngest first", func(b *bent) {
		b.claimDue = func(ctx context.Context, n int) ([]persist.Entry, error) {
			es, err := b.Store.ClaimDue(ctx, n)
			slices.Reverse(es)
			return es, err
		}
	})
	add(order, "one more than n", func(b *bent) {
		b.claimDue = func(ctx context.Context, n int) ([]persist.Entry, error) { return b.Store.ClaimDue(ctx, n+1) }
	})
	add(order, "none is an error", func(b *bent) {
		b.claimDue = func(ctx context.Context, n int) ([]persist.Entry, error) {
			es, err := b.Store.ClaimDue(ctx, n)
			if len(es) == 0 && err == nil {
				err = persist.ErrNotFound
			}
			return es, err
		}
	})
	// without gives back what is due but for those that out names, too gives also those that in names.
	without := func(out func(persist.Record) bool) func(b *bent) {
		return func(b *bent) {
			b.claimDue = func(ctx context.Context, n int) ([]persist.Entry, error) {
				es, err := b.Store.ClaimDue(ctx, n)
				for _, e := range es {
					if out(e.Record) {
						_ = b.Store.Release(ctx, e.Claim)
					}
				}
				return slices.DeleteFunc(es, func(e persist.Entry) bool { return out(e.Record) }), err
			}
		}
	}
	too := func(in func(persist.Record) bool) func(b *bent) {
		return func(b *bent) {
			b.claimDue = func(ctx context.Context, n int) ([]persist.Entry, error) {
				es, err := b.Store.ClaimDue(ctx, n)
				rs, _ := collect(ctx, b.Store, persist.Filter{})
				for _, r := range rs {
					if in(r) {
						if e, err := b.Store.Claim(ctx, r.Ref); err == nil {
							es = append(es, e)
						}
					}
				}
				return es, err
			}
		}
	}
	pending := func(r persist.Record) bool { return r.Answer == nil }
	const exact = "ClaimDue/to the nanosecond, equal instants each once"
	add(exact, "by numbers that round", func(b *bent) {
		b.claimDue = func(ctx context.Context, n int) ([]persist.Entry, error) {
			es, err := b.Store.ClaimDue(ctx, n)
			slices.SortStableFunc(es, func(a, b persist.Entry) int {
				return cmp.Or(cmp.Compare(float64(a.Created.UnixNano()), float64(b.Created.UnixNano())), strings.Compare(b.ID, a.ID))
			})
			return es, err
		}
	})
	add(exact, "one for each instant", func(b *bent) {
		b.claimDue = func(ctx context.Context, n int) ([]persist.Entry, error) {
			es, err := b.Store.ClaimDue(ctx, n)
			return slices.CompactFunc(es, func(a, b persist.Entry) bool { return a.Created.Equal(b.Created) }), err
		}
	})
	const choice = "ClaimDue/takes what recovery is for"
	add(choice, "without what is owed", without(func(r persist.Record) bool { return !pending(r) }))
	add(choice, "without what was enqueued", without(func(r persist.Record) bool { return r.Progress.Attempts == 0 }))
	add(choice, "without what is polled", without(func(r persist.Record) bool { return r.Progress.PollURL != "" }))
	add(choice, "with what is parked", too(func(r persist.Record) bool { return r.Progress.Parked }))
	add(choice, "with what is settled", too(func(r persist.Record) bool { return !pending(r) }))
	add(choice, "with what is for later", too(func(r persist.Record) bool { return pending(r) && !r.Progress.NotBefore.IsZero() }))
	const later = "ClaimDue/waits for NotBefore"
	add(later, "for ever", without(func(r persist.Record) bool { return !r.Progress.NotBefore.IsZero() }))
	add(later, "not at all", too(func(r persist.Record) bool { return !r.Progress.NotBefore.IsZero() }))
	add("ClaimDue/gives each operation to one caller", "some to two", func(b *bent) {
		var calls atomic.Int64
		var first atomic.Pointer[[]persist.Entry]
		b.claimDue = func(ctx context.Context, n int) ([]persist.Entry, error) {
			if es := first.Load(); es != nil && calls.Add(1)%10 == 9 {
				return *es, nil
			}
			es, err := b.Store.ClaimDue(ctx, n)
			if len(es) > 0 {
				first.CompareAndSwap(nil, &es)
			}
			return es, err
		}
	})
}
