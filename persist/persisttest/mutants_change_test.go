package persisttest

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/samekey/samekey/persist"
)

// answered bends what Settle is given.
func answered(change func(*persist.Answer)) func(*bent) {
	return func(b *bent) {
		b.settle = func(ctx context.Context, c persist.Claim, a persist.Answer) error {
			a = *deepCopy(persist.Record{Answer: &a}).Answer
			change(&a)
			return b.Store.Settle(ctx, c, a)
		}
	}
}

// begun bends what Begin is given.
func begun(change func(*persist.Record)) func(*bent) {
	return func(b *bent) {
		b.begin = func(ctx context.Context, r persist.Record) (persist.Entry, error) {
			r = deepCopy(r)
			change(&r)
			return b.Store.Begin(ctx, r)
		}
	}
}

func mutantsOfChanges(add adder) {
	add("Mark/overwrites the whole Progress", "keeps what is empty in the new one", func(b *bent) {
		b.mark = func(ctx context.Context, c persist.Claim, p persist.Progress) error {
			r, _ := b.Store.Get(ctx, c.Ref)
			if p.PollURL == "" {
				p.PollURL = r.Progress.PollURL
			}
			return b.Store.Mark(ctx, c, p)
		}
	})
	add("Mark/overwrites the whole Progress", "ends the claim", func(b *bent) {
		b.mark = func(ctx context.Context, c persist.Claim, p persist.Progress) error {
			return errors.Join(b.Store.Mark(ctx, c, p), b.Store.Release(ctx, c))
		}
	})
	const replaces = "Replace/gives a new request under the same Ref and claim"
	add(replaces, "ends the claim", func(b *bent) {
		b.replace = func(ctx context.Context, c persist.Claim, r persist.Record) error {
			return errors.Join(b.Store.Replace(ctx, c, r), b.Store.Release(ctx, c))
		}
	})
	add(replaces, "keeps the old Progress", func(b *bent) {
		b.replace = func(ctx context.Context, c persist.Claim, r persist.Record) error {
			old, _ := b.Store.Get(ctx, c.Ref)
			r.Progress = old.Progress
			return b.Store.Replace(ctx, c, r)
		}
	})
	add(replaces, "moves the Ref", func(b *bent) {
		b.replace = func(ctx context.Context, c persist.Claim, r persist.Record) error {
			e, err := b.Store.Begin(ctx, r)
			return errors.Join(err, b.Store.Release(ctx, e.Claim), b.Store.Settle(ctx, c, persist.Answer{State: persist.Abandoned}))
		}
	})
	add("Replace/makes what is settled pending", "leaves it as it is", func(b *bent) {
		b.replace = func(ctx context.Context, c persist.Claim, r persist.Record) error {
			if old, _ := b.Store.Get(ctx, c.Ref); old.Answer != nil {
				return nil
			}
			return b.Store.Replace(ctx, c, r)
		}
	})
	const forgets = "Forget/ErrNotFound, ErrBusy, then gone"
	add(forgets, "what is missing is no error", func(b *bent) {
		b.forget = func(ctx context.Context, ref persist.Ref) error {
			if err := b.Store.Forget(ctx, ref); !errors.Is(err, persist.ErrNotFound) {
				return err
			}
			return nil
		}
	})
	add(forgets, "what is held too", func(b *bent) {
		b.forget = func(ctx context.Context, ref persist.Ref) error {
			_ = b.Store.Release(ctx, b.latest(ref))
			return b.Store.Forget(ctx, ref)
		}
	})
	add(forgets, "leaves a tombstone", func(b *bent) {
		b.forget = func(ctx context.Context, ref persist.Ref) error {
			e, err := b.Store.Claim(ctx, ref)
			if err != nil {
				return b.Store.Forget(ctx, ref)
			}
			return b.Store.Settle(ctx, e.Claim, persist.Answer{State: persist.Abandoned, KeepName: time.Now().Add(time.Hour)})
		}
	})
	add("Random/does what the model does", "a take-over unparks", func(b *bent) {
		b.begin = func(ctx context.Context, r persist.Record) (persist.Entry, error) {
			e, err := b.Store.Begin(ctx, r)
			if !e.New && e.Claim.Token != 0 {
				p := e.Progress
				p.Parked = false
				err = errors.Join(err, b.Store.Mark(ctx, e.Claim, p))
			}
			return e, err
		}
	})
}

func mutantsOfSettle(add adder) {
	const keeps = "Settle/keeps the answer as it is"
	add(keeps, "joins header values", answered(func(a *persist.Answer) {
		for name, values := range a.Header {
			a.Header[name] = []string{strings.Join(values, ", ")}
		}
	}))
	add(keeps, "drops the reason", answered(func(a *persist.Answer) { a.Reason = "" }))
	add(keeps, "makes text of the body", answered(func(a *persist.Answer) {
		if a.Body != nil {
			a.Body = []byte(strings.ToValidUTF8(string(a.Body), "?"))
		}
	}))
	add(keeps, "takes an empty body for none", answered(func(a *persist.Answer) {
		if len(a.Body) == 0 {
			a.Body = nil
		}
	}))
	add(keeps, "keeps Lazy", func(b *bent) {
		b.get = func(ctx context.Context, ref persist.Ref) (persist.Record, error) {
			r, err := b.Store.Get(ctx, ref)
			if r.Answer != nil {
				r.Answer.Lazy = true
			}
			return r, err
		}
	})
	add("Settle/takes effect at once, lazy or not", "lazy: at the next Flush", func(b *bent) {
		b.settle = func(ctx context.Context, c persist.Claim, a persist.Answer) error {
			if a.Lazy {
				return b.Store.Release(ctx, c)
			}
			return b.Store.Settle(ctx, c, a)
		}
	})
	add("Settle/rewrites an answer", "keeps the first", func(b *bent) {
		b.settle = func(ctx context.Context, c persist.Claim, a persist.Answer) error {
			if r, err := b.Store.Get(ctx, c.Ref); err == nil && r.Answer != nil {
				a = *r.Answer
			}
			return b.Store.Settle(ctx, c, a)
		}
	})
	add("Settle/rewrites an answer", "owes for ever", func(b *bent) {
		b.settle = func(ctx context.Context, c persist.Claim, a persist.Answer) error {
			if r, err := b.Store.Get(ctx, c.Ref); err == nil && r.Answer != nil {
				a.Owed = a.Owed || r.Answer.Owed
			}
			return b.Store.Settle(ctx, c, a)
		}
	})
	longer := func(a *persist.Answer) {
		a.KeepBody, a.KeepName = a.KeepBody.Add(time.Hour), time.Now().Add(100*time.Hour)
	}
	add("Settle/with Keep past takes the operation out", "leaves the name", answered(longer))
	add("Settle/with KeepBody past leaves the name", "leaves nothing", answered(func(a *persist.Answer) {
		if a.KeepBody.IsZero() {
			a.KeepName = a.KeepBody
		}
	}))
	add("Settle/with KeepBody past leaves the name", "leaves all", answered(func(a *persist.Answer) { a.KeepBody = a.KeepName }))
	unowed := answered(func(a *persist.Answer) { a.Owed = false })
	add("Settle/what is owed stays whatever Keep says", "it does not", unowed)
	const retained = "Retention/past KeepBody a tombstone, past KeepName nothing"
	add(retained, "the body stays longer", answered(func(a *persist.Answer) { a.KeepBody = a.KeepBody.Add(100 * time.Hour) }))
	add(retained, "the body goes earlier", answered(func(a *persist.Answer) { a.KeepBody = a.KeepBody.Add(-time.Hour) }))
	add(retained, "the name stays longer", answered(func(a *persist.Answer) { a.KeepName = a.KeepName.Add(100 * time.Hour) }))
	add(retained, "the name goes earlier", answered(func(a *persist.Answer) { a.KeepName = a.KeepName.Add(-time.Hour) }))
	add("Retention/what is owed outlives both", "it does not", unowed)
	add("Retention/holds for List too", "not for List", answered(longer))
	add("Retention/leaves what is held one holder", "and gives it to another", func(b *bent) {
		b.begin = func(ctx context.Context, r persist.Record) (persist.Entry, error) {
			e, err := b.Store.Begin(ctx, r)
			if e.Answer != nil && e.Answer.KeepName.Before(time.Now()) {
				return persist.Entry{Record: r, Claim: b.latest(r.Ref), New: true}, nil
			}
			return e, err
		}
	})
	add("Retention/leaves what is held one holder", "forgets it under the holder", func(b *bent) {
		b.mark = func(ctx context.Context, c persist.Claim, p persist.Progress) error {
			if r, err := b.Store.Get(ctx, c.Ref); err == nil && r.Answer != nil && r.Answer.KeepName.Before(time.Now()) {
				return persist.ErrClaimLost
			}
			return b.Store.Mark(ctx, c, p)
		}
	})
	const anew = "Retention/what begins anew is there once"
	add(anew, "and where the one before was", listed(func(f persist.Filter, all []persist.Record) []persist.Record {
		all = matching(f, all)
		return append(all[len(all)-1:], all...)
	}))
	add(anew, "at the age of the one before", func(b *bent) {
		first := map[persist.Ref]time.Time{}
		b.begin = func(ctx context.Context, r persist.Record) (persist.Entry, error) {
			if at, is := first[r.Ref]; is {
				r.Created = at
			}
			first[r.Ref] = r.Created
			return b.Store.Begin(ctx, r)
		}
	})
	add("Values/big bodies", "at most 4 MiB", begun(func(r *persist.Record) { r.Body = r.Body[:min(len(r.Body), 4<<20)] }))
	add("Values/big bodies", "answers of 1 MiB", answered(func(a *persist.Answer) { a.Body = a.Body[:min(len(a.Body), 1<<20)] }))
	const at = "Values/times and durations"
	add(at, "in microseconds", begun(func(r *persist.Record) { r.Progress.Seen = r.Progress.Seen.Truncate(time.Microsecond) }))
	add(at, "zero is 1970", begun(func(r *persist.Record) {
		if r.Progress.NotBefore.IsZero() {
			r.Progress.NotBefore = time.Unix(0, 0)
		}
	}))
	add(at, "no negative durations", begun(func(r *persist.Record) { r.KeyLife = max(r.KeyLife, 0) }))
}
