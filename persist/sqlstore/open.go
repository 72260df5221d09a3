package sqlstore

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/samekey/samekey/persist"
)

// Store is a persist.Store and a persist.Leaser on the tables of one database. It is safe for concurrent use, and any
// number of stores, in any number of processes, may share the tables.
type Store struct {
	db     *sql.DB
	o      Options
	d      *dialect
	q      statements
	writer chan struct{} // held by who writes, where the database takes one writer

	silent error // the database was, for Options.CallTimeout

	me    [8]byte // of this store among all
	turns atomic.Uint64

	mu      sync.Mutex
	closed  bool
	calls   sync.WaitGroup
	held    map[holding]time.Time
	pruneAt int
	fits    map[any]bool // driver's connections that are set up
	told    map[persist.Ref]bool

	removals   removals
	background context.Context // ends with the store
	stop       context.CancelFunc
	tending    sync.WaitGroup
}

var (
	_ persist.Store  = (*Store)(nil)
	_ persist.Leaser = (*Store)(nil)
)

// Open checks that db is the database that o says, durable, with the tables of this version, which its user may change
// (or, with Options.ReadOnly, may read), and returns a store on it. The store does not close db, nor must db be closed before it. Each call needs one connection
// of the pool at a time; db.SetMaxIdleConns should allow as many as are used at once, or each burst of calls connects
// anew.
//
// Errors: *ConnectError, *DialectError, *SchemaError, *ReadOnlyError, *VolatileError, or that of an invalid option.
func Open(ctx context.Context, db *sql.DB, o Options) (*Store, error) {
	o, err := o.filled()
	if err != nil {
		return nil, err
	}
	silent := fmt.Errorf("the database has not answered within Options.CallTimeout, %v: %w", o.CallTimeout, context.DeadlineExceeded)
	s := &Store{silent: silent, db: db, o: o, d: dialects[o.Dialect], q: o.statements(), held: map[holding]time.Time{}, pruneAt: 1024, fits: map[any]bool{}, told: map[persist.Ref]bool{}}
	if s.d.oneWriter {
		s.writer = make(chan struct{}, 1)
	}
	_, _ = rand.Read(s.me[:]) // never fails
	c, err := dial(ctx, db, o)
	if err != nil {
		return nil, err
	}
	defer c.Close() // back to the pool
	if err := s.check(ctx, c); err != nil {
		return nil, err
	}
	s.background, s.stop = context.WithCancel(context.WithoutCancel(ctx))
	if o.SweepEvery > 0 && !o.ReadOnly {
		s.tending.Go(func() { s.tend(s.background) })
	}
	return s, nil
}

// dial returns a connection to a database that is what o calls it.
func dial(ctx context.Context, db *sql.DB, o Options) (*sql.Conn, error) {
	d := dialects[o.Dialect]
	var c *sql.Conn
	err := o.patient(ctx, func() (err error) {
		if c, err = db.Conn(ctx); err != nil {
			return err
		}
		if err = c.PingContext(ctx); err != nil {
			_ = c.Close()
		}
		return err
	})
	if err != nil {
		return nil, &ConnectError{Dialect: o.Dialect, Err: err}
	}
	var version string
	err = o.patient(ctx, func() error { return c.QueryRowContext(ctx, d.version).Scan(&version) })
	if err != nil || !d.isIt(version) {
		_ = c.Close()
		if err != nil && fateOf(err) == unknown {
			return nil, &ConnectError{Dialect: o.Dialect, Err: err}
		}
		return nil, &DialectError{Dialect: o.Dialect, Version: version, Err: err}
	}
	if d.perConn != "" {
		if err := o.patient(ctx, func() error { return execute(ctx, c, d.perConn) }); err != nil {
			return nil, &ConnectError{Dialect: o.Dialect, Err: errors.Join(err, c.Close())}
		}
	}
	return c, nil
}

func (s *Store) check(ctx context.Context, c *sql.Conn) error {
	if !s.o.ReadOnly {
		if err := writable(ctx, c, s.o); err != nil {
			return err
		}
	}
	have, err := schemaVersion(ctx, c, s.o)
	switch want := len(Migrations(s.o)); {
	case err != nil && denied(err):
		return &ReadOnlyError{Dialect: s.o.Dialect, Err: err, reading: s.o.ReadOnly}
	case err != nil && fateOf(err) != failed:
		return &ConnectError{Dialect: s.o.Dialect, Err: err}
	case have != want:
		return &SchemaError{Table: s.o.table("operations"), Have: have, Want: want, Err: err}
	}
	if err := s.permitted(ctx, c); err != nil {
		return err
	}
	if s.o.ReadOnly {
		return nil
	}
	if s.countsFound(ctx, c) {
		return &ConnectError{Dialect: s.o.Dialect, Err: errors.New("clientFoundRows=true is set, and Enqueue could not tell that a Ref is known: take it out")}
	}
	if s.o.AllowVolatile {
		return nil
	}
	var what string
	if err := c.QueryRowContext(ctx, s.d.volatile).Scan(&what); err != nil {
		return &ConnectError{Dialect: s.o.Dialect, Err: err}
	}
	if what != "" {
		return &VolatileError{Dialect: s.o.Dialect, Setting: what}
	}
	return nil
}

// countsFound reports whether the driver counts rows that an UPDATE finds and leaves as they are.
func (s *Store) countsFound(ctx context.Context, c *sql.Conn) bool {
	if s.d.unmoved == "" {
		return false
	}
	tx, err := c.BeginTx(ctx, nil)
	if err != nil {
		return false
	}
	n, err := affected(tx.ExecContext(ctx, s.o.expand(s.d.unmoved)))
	return errors.Join(err, tx.Rollback()) == nil && n > 0
}

func writable(ctx context.Context, c *sql.Conn, o Options) error {
	d := dialects[o.Dialect]
	if d.readOnly != "" {
		var is string
		if err := c.QueryRowContext(ctx, d.readOnly).Scan(&is); err != nil {
			return &ConnectError{Dialect: o.Dialect, Err: err}
		}
		if is != "0" && is != "OFF" {
			return &ReadOnlyError{Dialect: o.Dialect}
		}
	}
	if d.probe == "" {
		return nil
	}
	err := o.patient(ctx, func() error {
		err := execute(ctx, c, d.probe)
		if undo := execute(context.WithoutCancel(ctx), c, d.undo); err == nil {
			err = undo
		}
		return err
	})
	return notWritten(o.Dialect, err)
}

// permitted finds out whether this user may change what the store changes, and changes nothing.
func (s *Store) permitted(ctx context.Context, c *sql.Conn) error {
	if s.o.ReadOnly {
		err := notWritten(s.o.Dialect, s.o.patient(ctx, func() error { return execute(ctx, c, s.q.readable) }))
		if e, is := err.(*ReadOnlyError); is { //nolint:errorlint // as it was made
			e.reading = true
		}
		return err
	}
	if s.d.probe != "" { // whoever may open the file for writing
		return nil
	}
	for _, query := range s.q.harmless {
		if err := s.o.patient(ctx, func() error { return execute(ctx, c, query) }); err != nil {
			return notWritten(s.o.Dialect, err)
		}
	}
	return nil
}

func notWritten(d Dialect, err error) error {
	switch {
	case err == nil:
		return nil
	case fateOf(err) == failed:
		return &ReadOnlyError{Dialect: d, Err: err}
	}
	return &ConnectError{Dialect: d, Err: err}
}

func execute(ctx context.Context, c *sql.Conn, query string) error {
	_, err := c.ExecContext(ctx, query)
	return err
}

// patient runs f until others are no longer in its way.
func (o Options) patient(ctx context.Context, f func() error) error {
	for start := time.Now(); ; time.Sleep(5 * time.Millisecond) {
		err := f()
		if err == nil || fateOf(err) != again || ctx.Err() != nil || time.Since(start) > o.RetryFor {
			return err
		}
	}
}

// Lease is how long a claim lasts without a Mark.
func (s *Store) Lease() time.Duration { return s.o.Lease }

// Flush has nothing to write: every change is committed when its method returns.
func (s *Store) Flush(ctx context.Context) error {
	if err := s.enter(ctx, "Flush", persist.Ref{}); err != nil {
		return err
	}
	s.leave()
	return nil
}

// Close waits for calls under way, 10 seconds at most, and gives the claims back that are still held. It does not
// close the database. If that cannot be reached, the claims lapse by themselves, and the first Close says so.
func (s *Store) Close() error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil
	}
	s.closed = true
	s.mu.Unlock()
	s.stop()
	ctx, cancel := context.WithTimeout(context.Background(), closeFor)
	defer cancel()
	done := make(chan struct{})
	go func() {
		s.calls.Wait()
		s.tending.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-ctx.Done():
	}
	s.mu.Lock()
	held := s.held
	s.held = map[holding]time.Time{}
	s.mu.Unlock()
	if len(held) == 0 {
		return nil
	}
	_, err := s.do(ctx, true, func(ctx context.Context, c *sql.Conn, _ bool) error {
		for h, until := range held {
			if time.Since(until) > s.o.Lease { // long lapsed
				continue
			}
			if _, err := s.exec(ctx, c, s.q.free, s.mine(s.turn(), []byte(h.hash), h.token)...); err != nil {
				return err
			}
			delete(held, h)
		}
		return nil
	})
	if err != nil {
		return s.fail("Close", persist.Ref{}, false, fmt.Errorf("claims lapse in at most %v: %w", s.o.Lease, err))
	}
	return nil
}
