package sqlstore

import (
	"context"
	"database/sql"
	"iter"
	"math"
	"strings"

	"github.com/samekey/samekey/persist"
)

// Get reads one record.
func (s *Store) Get(ctx context.Context, ref persist.Ref) (persist.Record, error) {
	if err := s.enter(ctx, "Get", ref); err != nil {
		return persist.Record{}, err
	}
	defer s.leave()
	var r *row
	_, err := s.do(ctx, false, func(ctx context.Context, c *sql.Conn, _ bool) (err error) {
		r, err = s.one(ctx, c, s.q.get, hashOf(ref))
		return err
	})
	if err == nil {
		if r == nil || r.gone() {
			err = persist.ErrNotFound
		} else {
			err = r.unreadable()
		}
	}
	if err != nil {
		return persist.Record{}, s.fail("Get", ref, false, err)
	}
	return r.view(), nil
}

// place is where a list has come to.
type place struct{ created, seq int64 }

// List holds no connection while its consumer is at work. It reads keys by the page, and as many records at once as
// have small bodies; a large one is read alone. It goes on behind records that cannot be read, and ends with the error
// of the first.
func (s *Store) List(ctx context.Context, f persist.Filter) iter.Seq2[persist.Record, error] {
	return func(yield func(persist.Record, error) bool) {
		at := place{math.MinInt64, math.MinInt64}
		var bad error
		for {
			keys, err := s.keys(ctx, f, at)
			if err != nil {
				yield(persist.Record{}, s.listed(err))
				return
			}
			if len(keys) == 0 {
				if bad != nil {
					yield(persist.Record{}, bad)
				}
				return
			}
			for len(keys) > 0 {
				n, size := 0, int64(0)
				for n < len(keys) && (n == 0 || size+keys[n].size <= pageBytes) {
					size += keys[n].size
					n++
				}
				to := keys[n-1].place
				keys = keys[n:]
				rows, err := s.page(ctx, f, at, to)
				if err != nil {
					yield(persist.Record{}, s.listed(err))
					return
				}
				for _, r := range rows {
					if err := r.unreadable(); err != nil {
						s.passOver(ctx, r)
						if bad == nil {
							bad = s.fail("List", r.rec.Ref, false, err)
						}
						continue
					}
					if rec := r.view(); !r.gone() && f.Match(&rec) && !yield(rec, nil) {
						return
					}
				}
				at = to
			}
		}
	}
}

func (s *Store) listed(err error) error {
	if _, ok := err.(*persist.Error); ok { //nolint:errorlint // as it came from enter
		return err
	}
	return s.fail("List", persist.Ref{}, false, err)
}

type key struct {
	place
	size int64
}

func (s *Store) keys(ctx context.Context, f persist.Filter, at place) (keys []key, err error) {
	if err := s.enter(ctx, "List", persist.Ref{}); err != nil {
		return nil, err
	}
	defer s.leave()
	where, args := selected(f, at, nil)
	query := s.o.expand(`SELECT created, seq, COALESCE(LENGTH(body), 0) + COALESCE(LENGTH(answer_body), 0) FROM {operations} WHERE ` +
		where + ` ORDER BY created, seq LIMIT ?`)
	args = append(args, pageRows)
	_, err = s.do(ctx, false, func(ctx context.Context, c *sql.Conn, _ bool) error {
		keys = nil
		return s.rows(ctx, c, query, args, func(rows *sql.Rows) error {
			var k key
			err := rows.Scan(&k.created, &k.seq, &k.size)
			keys = append(keys, k)
			return err
		})
	})
	return keys, err
}

func (s *Store) page(ctx context.Context, f persist.Filter, at, to place) (page []*row, err error) {
	if err := s.enter(ctx, "List", persist.Ref{}); err != nil {
		return nil, err
	}
	defer s.leave()
	where, args := selected(f, at, &to)
	query := s.o.expand(`SELECT ` + columns + ` FROM {operations} WHERE ` + where + ` ORDER BY created, seq`)
	_, err = s.do(ctx, false, func(ctx context.Context, c *sql.Conn, _ bool) error {
		page = nil
		return s.rows(ctx, c, query, args, func(rows *sql.Rows) error {
			r, err := scanRow(rows)
			page = append(page, r)
			return err
		})
	})
	return page, err
}

// selected is the condition for f, after one place and up to another. Pairs are not compared as such: MariaDB would
// read the whole table.
func selected(f persist.Filter, after place, to *place) (where string, args []any) {
	where = `created >= ? AND (created > ? OR seq > ?) AND ` + isWhole
	args = []any{after.created, after.created, after.seq}
	if to != nil {
		where += ` AND created <= ? AND (created < ? OR seq <= ?)`
		args = append(args, to.created, to.created, to.seq)
	}
	if f.Scope != nil {
		where += ` AND scope = ?`
		args = append(args, text(*f.Scope))
	}
	if !f.Before.IsZero() {
		where += ` AND created < ?`
		args = append(args, nanos(f.Before))
	}
	if len(f.States) > 0 {
		where += ` AND state IN (?` + strings.Repeat(`, ?`, len(f.States)-1) + `)`
		for _, state := range f.States {
			args = append(args, int64(state))
		}
	}
	return where, args
}
