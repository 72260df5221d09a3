package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/samekey/samekey/persist"
)

// Mark writes p and renews the lease.
func (s *Store) Mark(ctx context.Context, c persist.Claim, p persist.Progress) error {
	args := append([]any{bit(p.Parked)}, progressed(&p)...)
	return s.change(ctx, "Mark", c, s.q.mark, append(args, s.o.Lease.Nanoseconds()), false)
}

// Replace writes the new request and renews the lease.
func (s *Store) Replace(ctx context.Context, c persist.Claim, rec persist.Record) error {
	return s.change(ctx, "Replace", c, s.q.replace, append(requested(&rec), dueOrder(&rec), s.o.Lease.Nanoseconds()), false)
}

// Settle is committed when it returns, lazy or not. One that takes the operation out of the store may share its
// statement with others.
func (s *Store) Settle(ctx context.Context, c persist.Claim, a persist.Answer) error {
	if a.State < persist.Succeeded || a.State > persist.Abandoned {
		return s.fail("Settle", c.Ref, false, errors.New("answer has no final state"))
	}
	now := time.Now()
	past := func(t time.Time) bool { return !t.After(now) }
	state, reason, name := int64(a.State), text(a.Reason), nanos(a.KeepName)
	switch {
	case a.Owed || !past(a.KeepBody):
		var sweep any
		if !a.Owed {
			sweep = nanos(a.KeepBody)
		}
		return s.change(ctx, "Settle", c, s.q.settle, []any{state, int64(a.Status), encodeHeader(a.Header), a.Body,
			bit(a.Truncated), reason, nanos(a.KeepBody), name, bit(a.Owed), bit(a.Owed), sweep, sweep}, true)
	case !past(a.KeepName):
		return s.change(ctx, "Settle", c, s.q.settleName, []any{state, reason, name, name, name}, true)
	}
	err := s.remove(ctx, c)
	if own, is := errors.AsType[*persist.Error](err); is && !own.Maybe && errors.Is(err, persist.ErrClaimLost) {
		// Or its row must stay, with both times past.
		never := nanos(time.Time{})
		err = s.change(ctx, "Settle", c, s.q.settleName, []any{state, text(""), never, never, never}, true)
	}
	return err
}

// Release ends the claim.
func (s *Store) Release(ctx context.Context, c persist.Claim) error {
	return s.change(ctx, "Release", c, s.q.free, nil, true)
}

// change runs an UPDATE of what c holds, under a turn of its own; ends: it ends the claim. A try that comes after a later
// call's changes nothing. One that comes again writes the same once more, and renews the lease, unless that has ended.
// Every query changes the owner, since MariaDB counts rows that have changed, not those that were found.
func (s *Store) change(ctx context.Context, method string, c persist.Claim, query string, args []any, ends bool) error {
	if err := s.enter(ctx, method, c.Ref); err != nil {
		return err
	}
	defer s.leave()
	by, hash, token := s.turn(), hashOf(c.Ref), int64(c.Token)
	args = append(args, s.mine(by, hash, token)...)
	var start time.Time
	lost, err := s.do(ctx, true, func(ctx context.Context, conn *sql.Conn, lost bool) error {
		start = time.Now()
		if n, err := s.exec(ctx, conn, query, args...); err != nil || n > 0 {
			return err
		}
		is, err := s.standing(ctx, conn, hash)
		if err != nil {
			return err
		}
		return s.missed(is, by, hash, token, ends, lost)
	})
	switch {
	case err != nil:
		if ends && lost {
			s.doubt(hash, token)
		}
		return s.fail(method, c.Ref, lost, err)
	case ends:
		s.drop(hash, token)
	default:
		s.note(hash, token, start)
	}
	return nil
}
