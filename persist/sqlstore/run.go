package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/samekey/samekey/persist"
)

// querier is a connection or a transaction.
type querier interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// notSent wraps what happened before any statement.
type notSent struct{ err error }

func (e notSent) Error() string { return e.err.Error() }
func (e notSent) Unwrap() error { return e.err }

// do runs f on a connection of its own until it succeeds, or fails for good, or the time for retries is over. f must
// find out by itself what an earlier try has done; lost tells that there was one whose fate is unknown.
func (s *Store) do(ctx context.Context, write bool, f func(ctx context.Context, c *sql.Conn, lost bool) error) (lost bool, err error) {
	if s.o.CallTimeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, s.o.CallTimeout, s.silent)
		defer cancel()
	}
	patience := time.Now().Add(s.o.RetryFor)
	for try := 0; ; try++ {
		err := s.once(ctx, write, func(c *sql.Conn) error { return f(ctx, c, lost) })
		if err == nil {
			return lost, nil
		}
		if end, ok := ctx.Deadline(); ok && !time.Now().Before(end) {
			<-ctx.Done() // the server may have ended it before our timer came to it
		}
		fate := fateOf(err)
		if before := (notSent{}); errors.As(err, &before) {
			if fate == unknown {
				fate = unsent
			}
		} else if fate == unknown {
			lost = lost || write
		}
		switch {
		case ctx.Err() != nil:
			return lost, ended(ctx, err)
		case fate == failed:
			if full(err) {
				err = fmt.Errorf("%w: %w", persist.ErrFull, err)
			}
			return lost, err
		case time.Now().After(patience):
			return lost, fmt.Errorf("gave up after %d tries: %w", try+1, err)
		}
		wait := time.Duration(1<<min(try, s.d.doublings)) * time.Millisecond
		if fate != unsent || try > 9 {
			select {
			case <-time.After(wait/2 + rand.N(wait)):
			case <-ctx.Done():
			}
		}
	}
}

// ended is err behind what ended ctx, unless err says that itself: behind its cause too, which may be a deadline where the
// context was cancelled.
func ended(ctx context.Context, err error) error {
	for _, why := range []error{context.Cause(ctx), ctx.Err()} {
		if !errors.Is(err, why) {
			err = fmt.Errorf("%w: %w", why, err)
		}
	}
	return err
}

func (s *Store) once(ctx context.Context, write bool, f func(c *sql.Conn) error) error {
	if write && s.writer != nil {
		select {
		case s.writer <- struct{}{}:
			defer func() { <-s.writer }()
		case <-ctx.Done():
			return notSent{ctx.Err()}
		}
	}
	c, err := s.db.Conn(ctx)
	if err != nil {
		return notSent{err}
	}
	defer c.Close() // back to the pool
	if err := s.fit(ctx, c); err != nil {
		return notSent{err}
	}
	return f(c)
}

// fit sets up a connection that was not seen before; database/sql makes them as it likes.
func (s *Store) fit(ctx context.Context, c *sql.Conn) error {
	if s.d.perConn == "" {
		return nil
	}
	var id any
	if err := c.Raw(func(conn any) error { id = conn; return nil }); err != nil {
		return err
	}
	s.mu.Lock()
	known := s.fits[id]
	s.mu.Unlock()
	if known {
		return nil
	}
	if _, err := c.ExecContext(ctx, s.d.perConn); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.fits) > 1000 { // most of them closed long ago
		clear(s.fits)
	}
	s.fits[id] = true
	return nil
}

// bound makes the server end what runs past the context, a little later, so that the caller gets the context's error.
// PostgreSQL and SQLite are told by their drivers.
func (s *Store) bound(ctx context.Context, query string) string {
	end, ok := ctx.Deadline()
	if !ok || !s.d.timeout {
		return query
	}
	return fmt.Sprintf("SET STATEMENT max_statement_time=%.3f FOR %s", max(time.Until(end)+100*time.Millisecond, time.Millisecond).Seconds(), query)
}

func (s *Store) exec(ctx context.Context, c querier, query string, args ...any) (int64, error) {
	res, err := c.ExecContext(ctx, s.bound(ctx, query), args...)
	if err != nil {
		return 0, err
	}
	return res.RowsAffected()
}

// rows reads to the end, since only then is the statement known to be done.
func (s *Store) rows(ctx context.Context, c querier, query string, args []any, scan func(*sql.Rows) error) error {
	rows, err := c.QueryContext(ctx, s.bound(ctx, query), args...)
	if err != nil {
		return err
	}
	for err == nil && rows.Next() {
		err = scan(rows)
	}
	if err == nil {
		err = rows.Err()
	}
	if end := rows.Close(); err == nil {
		err = end
	}
	return err
}

// one reads at most one record; nil if there is none.
func (s *Store) one(ctx context.Context, c querier, query string, args ...any) (found *row, err error) {
	err = s.rows(ctx, c, query, args, func(rows *sql.Rows) (err error) {
		found, err = scanRow(rows)
		return err
	})
	return found, err
}

// integers reads at most one row of n integers; none if there is no row.
func (s *Store) integers(ctx context.Context, c querier, n int, query string, args ...any) (found []int64, err error) {
	err = s.rows(ctx, c, query, args, func(rows *sql.Rows) error {
		found = make([]int64, n)
		into := make([]any, n)
		for i := range found {
			into[i] = &found[i]
		}
		return rows.Scan(into...)
	})
	return found, err
}

// enter lets a call begin unless the store is closed or the context has ended; every call that has entered leaves.
func (s *Store) enter(ctx context.Context, method string, ref persist.Ref) error {
	if err := ctx.Err(); err != nil {
		return s.fail(method, ref, false, ended(ctx, err))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return s.fail(method, ref, false, persist.ErrClosed)
	}
	if s.o.ReadOnly && method != "Get" && method != "List" && method != "Flush" {
		return s.fail(method, ref, false, errReadOnly)
	}
	s.calls.Add(1)
	return nil
}

var errReadOnly = errors.New("the store was opened with Options.ReadOnly, for Get and List alone")

func (s *Store) leave() { s.calls.Done() }

func (s *Store) fail(method string, ref persist.Ref, maybe bool, err error) error {
	return &persist.Error{Store: "sqlstore", Method: method, Ref: ref, Maybe: maybe, Err: err}
}

// holding is a claim that this store gave out. Store.held says until when it lasts, by the own clock, from before the
// database set the lease: within that time nobody else can have had the operation.
type holding struct {
	hash  string
	token int64
}

func (s *Store) note(hash []byte, token int64, start time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.held) >= s.pruneAt { // claims that nobody ended
		for h, until := range s.held {
			if time.Since(until) > s.o.Lease {
				delete(s.held, h)
			}
		}
		s.pruneAt = 2*len(s.held) + 1024
	}
	s.held[holding{string(hash), token}] = start.Add(s.o.Lease)
}

func (s *Store) drop(hash []byte, token int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.held, holding{string(hash), token})
}

// doubt says that an end of this claim may be under way still: what is found ended need not be what a later call has done.
// Close gives it back all the same.
func (s *Store) doubt(hash []byte, token int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	h, now := holding{string(hash), token}, time.Now()
	if s.held[h].After(now) {
		s.held[h] = now
	}
}

// sure reports whether nobody else can have claimed what this store holds: not past its lease, by the wall or by
// monotonic time, whichever has moved more.
func (s *Store) sure(hash []byte, token int64) bool {
	s.mu.Lock()
	until := s.held[holding{string(hash), token}]
	s.mu.Unlock()
	return before(until)
}

// before reports whether it is not yet t, by monotonic and by wall time, as the former may stand still while a machine
// sleeps.
func before(t time.Time) bool {
	now := time.Now()
	return now.Before(t) && now.Round(0).Before(t.Round(0))
}
