package redis

import (
	"context"
	"errors"
	"strconv"

	"github.com/samekey/samekey/persist"
)

// Mark writes p and renews the lease.
func (s *Store) Mark(ctx context.Context, c persist.Claim, p persist.Progress) error {
	return s.change(ctx, "Mark", c, markScript, false, bit(p.Parked), micros(p.NotBefore), encodeProgress(&p))
}

// Replace writes the new request and renews the lease.
func (s *Store) Replace(ctx context.Context, c persist.Claim, rec persist.Record) error {
	rec.Ref = c.Ref
	return s.change(ctx, "Replace", c, replaceScript, false, ordered(rec.Created), bit(rec.Progress.Parked),
		micros(rec.Progress.NotBefore), encodeName(&rec), encodeRequest(&rec), encodeProgress(&rec.Progress))
}

// Settle is durable when it returns, lazy or not.
func (s *Store) Settle(ctx context.Context, c persist.Claim, a persist.Answer) error {
	if a.State < persist.Succeeded || a.State > persist.Abandoned {
		return s.fail("Settle", c.Ref, false, errors.New("answer has no final state"))
	}
	return s.change(ctx, "Settle", c, settleScript, true, int(a.State), bit(a.Owed), micros(a.KeepBody), micros(a.KeepName),
		encodeEnd(&a), encodeAnswer(&a))
}

// Release ends the claim.
func (s *Store) Release(ctx context.Context, c persist.Claim) error {
	return s.change(ctx, "Release", c, releaseScript, true)
}

// change runs a script on what c holds. One that ends the claim may not find, after a lost answer, what it has done: the
// operation has left, or another has it by now. Within the lease nobody but its holder can have brought that about.
func (s *Store) change(ctx context.Context, method string, c persist.Claim, sc *script, ends bool, args ...any) error {
	if err := s.enter(ctx, method, c.Ref); err != nil {
		return err
	}
	defer s.leave()
	h := holding{hashOf(c.Ref), strconv.FormatUint(c.Token, 10)}
	d, err := s.do(ctx, s.ask(sc, s.turn(), h.hash, append([]any{h.token}, args...)...))
	if err != nil {
		if ends && d.lost > 0 {
			s.doubt(h)
		}
		return s.fail(method, c.Ref, d.lost > 0, err)
	}
	happened := d.status == "done" || ends && d.lost > 0 && s.sure(h)
	if !happened {
		s.drop(h)
		return s.fail(method, c.Ref, d.lost > 0, persist.ErrClaimLost)
	}
	if ends {
		s.drop(h)
	} else {
		s.note(h, d.start)
	}
	return nil
}

// Forget takes an operation that nobody holds out of the store. It removes what it has seen, under the token that it
// had, so that a try which arrives late does not meet what was begun since.
func (s *Store) Forget(ctx context.Context, ref persist.Ref) error {
	if err := s.enter(ctx, "Forget", ref); err != nil {
		return err
	}
	defer s.leave()
	hash := hashOf(ref)
	for {
		d, err := s.do(ctx, s.ask(seenScript, "", hash))
		var token string
		if err == nil && d.status == "seen" {
			token, err = tokenOf(d.reply)
		}
		switch {
		case err != nil:
			return s.fail("Forget", ref, false, err)
		case d.status == "none":
			return s.fail("Forget", ref, false, persist.ErrNotFound)
		case d.status == "busy":
			return s.fail("Forget", ref, false, persist.ErrBusy)
		}
		d, err = s.do(ctx, s.ask(forgetScript, s.turn(), hash, token))
		if err != nil {
			return s.fail("Forget", ref, d.lost > 0, err)
		}
		if d.status == "done" { // else others have changed it in between
			return nil
		}
	}
}
