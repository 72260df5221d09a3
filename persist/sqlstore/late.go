package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/samekey/samekey/persist"
)

// A statement whose answer was lost may still be on its way, or its session be waiting, long after it was tried again.
// One that claims or changes a row meets another token then, or a later turn. An INSERT must meet a row: sweep_at says
// until when one may come, and no statement of any store removes a row before that time. An operation that should leave
// becomes a marker, settled and past its retention, so that it is not there for anybody. A new operation of that name
// takes its place in the same row, and sweep_at stays as it is.

// lateFor is how long a row stays. It is longer than networks and servers hold on to a broken connection.
const lateFor = 15 * time.Minute

// withdraw takes back a record whose fate is unknown, even if ctx has ended, and prevents it where it is under way;
// false if it cannot know.
func (b *begin) withdraw(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), resolveFor)
	defer cancel()
	s := b.s
	first, last := tries(b.ins)
	_, err := s.do(ctx, true, func(ctx context.Context, c *sql.Conn, _ bool) error {
		for range races {
			if n, err := s.exec(ctx, c, s.q.withdraw, b.ins, b.ins, b.hash, first, last); err != nil || n > 0 {
				return err
			}
			var owner []byte
			var state int64
			args := []any{b.hash, text(b.rec.Scope), text(b.rec.ID), b.hash, b.ins}
			err := s.rows(ctx, c, s.q.prevent, args, func(rows *sql.Rows) error { return rows.Scan(&owner, &state) })
			if err != nil || state != 0 || !sameCall(owner, b.ins) { // a marker, or what another has begun, is in its way
				return err
			}
		}
		return errRaces
	})
	return err == nil
}

// Forget takes an operation that nobody holds out of the store. Its scope, ID and fingerprint, which nobody is told of, lie
// in the table until the sweep comes by, 15 minutes later at the earliest.
func (s *Store) Forget(ctx context.Context, ref persist.Ref) error {
	if err := s.enter(ctx, "Forget", ref); err != nil {
		return err
	}
	defer s.leave()
	f := forget{s: s, hash: hashOf(ref), by: s.turn()}
	lost, err := s.do(ctx, true, func(ctx context.Context, c *sql.Conn, lost bool) error { return f.try(ctx, c, lost) })
	if err != nil {
		known := errors.Is(err, persist.ErrNotFound) || errors.Is(err, persist.ErrBusy)
		return s.fail("Forget", ref, lost && !known, err)
	}
	return nil
}

// forget is one call of Forget. It makes a marker of no row but the one that it has seen, under the token that it had,
// so that neither a later try nor one that arrives late meets what was begun since.
type forget struct {
	s        *Store
	hash, by []byte
	token    int64 // that the latest UPDATE was for; 0: there was none
}

var errForgotten = errors.New("others have changed what is there, and may have begun it since")

func (f *forget) try(ctx context.Context, c *sql.Conn, lost bool) error {
	s := f.s
	for range races {
		is, err := s.integers(ctx, c, 5, s.q.seen, f.by, f.hash)
		if err != nil {
			return err
		}
		known := len(is) > 0
		lost := lost && f.token != 0
		switch {
		case lost && (!known || is[3] == 1): // the try before has worked, or another has removed it
			return nil
		case !known || is[2] == 1: // or only the sweep has not come by
			return persist.ErrNotFound
		case lost && is[0] != f.token && is[4] == 0: // not only claimed; a marker's trace may have been there
			return errForgotten
		case is[1] == 0:
			return persist.ErrBusy
		}
		f.token = is[0]
		n, err := s.exec(ctx, c, s.q.forget, f.by, f.by, f.hash, f.token)
		if err != nil || n > 0 {
			return err
		}
	}
	return errRaces
}
