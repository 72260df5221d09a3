package sqlstore

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/samekey/samekey/persist"
)

// A statement whose answer was lost may still be on its way, or its session be waiting, long after it was tried again.
// One of a claim meets another token then. An INSERT must meet a row: where an operation should leave, such a row is
// left in its place for a while, past its retention, so that it is not there for anybody.

// lateFor is how long that row lies there. It is longer than networks and servers hold on to a broken connection.
const lateFor = 15 * time.Minute

// withdraw takes back an INSERT whose fate is unknown, even if ctx has ended, and prevents it where it is under way;
// false if it cannot know.
func (b *begin) withdraw(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), resolveFor)
	defer cancel()
	s, prevented := b.s, false
	_, err := s.do(ctx, true, func(c *sql.Conn, _ bool) error {
		for range races {
			if _, err := s.exec(ctx, c, s.q.withdraw, b.hash, b.ins); err != nil {
				return err
			}
			_, err := s.exec(ctx, c, s.q.prevent, b.hash, text(b.rec.Scope), text(b.rec.ID), b.hash, b.ins, lateFor.Nanoseconds())
			if err != nil {
				return err
			}
			r, err := s.one(ctx, c, s.q.get, b.hash)
			switch {
			case err != nil:
				return err
			case r == nil: // it left meanwhile
			case !bytes.Equal(r.owner, b.ins): // another's, and once that leaves the INSERT may come
				return nil
			case r.state != 0:
				prevented = true
				return nil
			}
		}
		return errRaces
	})
	return err == nil && prevented
}

// expect notes that an INSERT of an operation may come late.
func (s *Store) expect(hash []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	for h, until := range s.late {
		if now.After(until) {
			delete(s.late, h)
		}
	}
	s.late[string(hash)] = now.Add(lateFor)
}

// expected is until when one may.
func (s *Store) expected(hash []byte) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.late[string(hash)]
}

// Forget takes an operation that nobody holds out of the store.
func (s *Store) Forget(ctx context.Context, ref persist.Ref) error {
	if err := s.enter(ctx, "Forget", ref); err != nil {
		return err
	}
	defer s.leave()
	f := forget{s: s, hash: hashOf(ref)}
	lost, err := s.do(ctx, true, func(c *sql.Conn, lost bool) error { return f.try(ctx, c, lost) })
	if err != nil {
		known := errors.Is(err, persist.ErrNotFound) || errors.Is(err, persist.ErrBusy)
		return s.fail("Forget", ref, lost && !known, err)
	}
	return nil
}

// forget is one call of Forget. It deletes no row but the one that it has seen, under the token that it had, so that
// neither a later try nor one that arrives late meets what was begun since.
type forget struct {
	s          *Store
	hash       []byte
	seq, token int64 // of the row that the latest DELETE was for; 0: there was none
}

func (f *forget) try(ctx context.Context, c *sql.Conn, lost bool) error {
	s := f.s
	for range races {
		is, err := s.integers(ctx, c, 4, s.q.seen, f.hash)
		switch {
		case err != nil:
			return err
		case lost && f.token != 0 && (len(is) == 0 || is[0] != f.seq): // the try before has deleted it
			return nil
		case len(is) == 0 || is[3] == 1: // or only the sweep has not come by
			return persist.ErrNotFound
		case is[2] == 0:
			return persist.ErrBusy
		}
		f.seq, f.token = is[0], is[1]
		n, err := s.exec(ctx, c, s.q.forget, f.hash, f.token)
		if err != nil || n > 0 {
			return err
		}
	}
	return errRaces
}
