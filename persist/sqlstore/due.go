package sqlstore

import (
	"cmp"
	"context"
	"database/sql"
	"slices"
	"time"

	"github.com/samekey/samekey/persist"
)

// ClaimDue takes what is due, as persist.Store says. Rows that another is taking at the moment are left to it. Records
// that cannot be read are passed over, and looked at again after a lease.
func (s *Store) ClaimDue(ctx context.Context, n int) ([]persist.Entry, error) {
	if err := s.enter(ctx, "ClaimDue", persist.Ref{}); err != nil {
		return nil, err
	}
	defer s.leave()
	if n <= 0 {
		return nil, nil
	}
	for range races {
		got, start, err := s.takeDue(ctx, n)
		if err != nil {
			return nil, s.fail("ClaimDue", persist.Ref{}, false, err)
		}
		slices.SortFunc(got, older)
		var entries []persist.Entry
		for _, r := range got {
			if r.bad != nil {
				s.passOver(ctx, r)
				continue
			}
			s.note(r.hash, r.token, start)
			entries = append(entries, r.entry())
		}
		if len(entries) > 0 || len(got) == 0 {
			return entries, nil
		}
	}
	return nil, nil
}

func (s *Store) takeDue(ctx context.Context, n int) (got []*row, start time.Time, err error) {
	by := s.turn()
	_, err = s.do(ctx, true, func(ctx context.Context, c *sql.Conn, _ bool) error {
		start = time.Now()
		if got, err = s.takeDueOn(ctx, c, n, by); err != nil {
			return err
		}
		for _, r := range got {
			if r.bad != nil {
				s.giveBack(ctx, c, s.q.putOff, r.hash, r.token)
			}
		}
		return nil
	})
	return got, start, err
}

func (s *Store) takeDueOn(ctx context.Context, c *sql.Conn, n int, by []byte) (got []*row, err error) {
	if !s.d.returning {
		return s.lockDue(ctx, c, n, by)
	}
	args := []any{n, s.o.Lease.Nanoseconds(), by}
	if !s.d.skip {
		args = []any{s.o.Lease.Nanoseconds(), by, n}
	}
	err = s.rows(ctx, c, s.q.takeDue, args, func(rows *sql.Rows) error {
		r, err := scanRow(rows)
		got = append(got, r)
		return err
	})
	return got, err
}

// lockDue is for a database whose UPDATE returns no rows.
func (s *Store) lockDue(ctx context.Context, c *sql.Conn, n int, by []byte) (got []*row, err error) {
	err = readCommitted(ctx, c, func(tx *sql.Tx) error {
		var hashes [][]byte
		err := s.rows(ctx, tx, s.q.lockDue, []any{n}, func(rows *sql.Rows) error {
			var h []byte
			err := rows.Scan(&h)
			hashes = append(hashes, h)
			return err
		})
		if err != nil {
			return err
		}
		for _, h := range hashes {
			if _, err := s.exec(ctx, tx, s.q.takeDue, s.o.Lease.Nanoseconds(), by, h); err != nil {
				return err
			}
			r, err := s.one(ctx, tx, s.q.owned, h, by)
			if err != nil {
				return err
			}
			if r != nil {
				got = append(got, r)
			}
		}
		return nil
	})
	return got, err
}

func older(a, b *row) int {
	if c := cmp.Compare(a.created, b.created); c != 0 {
		return c
	}
	return cmp.Compare(a.seq, b.seq)
}

// giveBack ends the claim of a record that cannot be read, even if ctx has ended: by s.q.free, or by s.q.putOff, which
// keeps it from ClaimDue for the rest of the lease, and from nobody else. If it cannot, the claim lapses.
func (s *Store) giveBack(ctx context.Context, c querier, query string, args ...any) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), resolveFor)
	defer cancel()
	_, _ = s.exec(ctx, c, query, args...)
}

// passOver logs a record that cannot be read, the first time.
func (s *Store) passOver(ctx context.Context, r *row) {
	s.mu.Lock()
	told := s.told[r.rec.Ref]
	if len(s.told) > 1000 {
		clear(s.told)
	}
	s.told[r.rec.Ref] = true
	s.mu.Unlock()
	if told {
		return
	}
	id := r.rec.ID
	if !r.rec.Named && len(id) > 12 { // it is the key
		id = id[:8] + "…" + id[len(id)-4:]
	}
	s.o.Logger.ErrorContext(ctx, "samekey: sqlstore: an operation is passed over", "scope", r.rec.Scope, "id", id, "error", r.bad)
}
