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
	return s.change(ctx, "Mark", c, s.q.mark, append(args, s.o.Lease.Nanoseconds()), nil)
}

// Replace writes the new request and renews the lease.
func (s *Store) Replace(ctx context.Context, c persist.Claim, rec persist.Record) error {
	return s.change(ctx, "Replace", c, s.q.replace, append(requested(&rec), dueOrder(&rec), s.o.Lease.Nanoseconds()), nil)
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
			bit(a.Truncated), reason, nanos(a.KeepBody), name, bit(a.Owed), bit(a.Owed), sweep, sweep}, s.ended)
	case !past(a.KeepName):
		return s.change(ctx, "Settle", c, s.q.settleName, []any{state, reason, name, name, name}, s.ended)
	}
	err := s.remove(ctx, c)
	if errors.Is(err, persist.ErrClaimLost) { // or its row must stay, with both times past
		never := nanos(time.Time{})
		err = s.change(ctx, "Settle", c, s.q.settleName, []any{state, text(""), never, never, never}, s.ended)
	}
	return err
}

// Release ends the claim.
func (s *Store) Release(ctx context.Context, c persist.Claim) error {
	return s.change(ctx, "Release", c, s.q.free, nil, s.ended)
}

// change runs an UPDATE of what c holds. One that ends the claim meets nothing when it is tried again after its answer
// was lost: done then tells whether it has happened. Every query changes held_until, since MariaDB counts rows that
// have changed, not those that were found.
func (s *Store) change(ctx context.Context, method string, c persist.Claim, query string, args []any,
	done func(context.Context, querier, []byte, int64) (bool, error)) error {
	if err := s.enter(ctx, method, c.Ref); err != nil {
		return err
	}
	defer s.leave()
	hash, token := hashOf(c.Ref), int64(c.Token)
	args = append(args, hash, token)
	held := false
	var start time.Time
	lost, err := s.do(ctx, true, func(ctx context.Context, conn *sql.Conn, lost bool) error {
		start = time.Now()
		n, err := s.exec(ctx, conn, query, args...)
		held = n > 0
		if err == nil && !held && lost && done != nil {
			held, err = done(ctx, conn, hash, token)
		}
		return err
	})
	switch {
	case err != nil:
		return s.fail(method, c.Ref, lost, err)
	case !held:
		return s.fail(method, c.Ref, false, persist.ErrClaimLost)
	}
	if done != nil {
		s.drop(hash, token)
	} else {
		s.note(hash, token, start)
	}
	return nil
}

// ended reports whether the claim was ended by its holder. Another's would have a new token, and one that lapsed an end
// that is not 0.
func (s *Store) ended(ctx context.Context, c querier, hash []byte, token int64) (bool, error) {
	is, err := s.integers(ctx, c, 2, s.q.ended, hash)
	return len(is) == 2 && is[0] == token && is[1] == 0, err
}
