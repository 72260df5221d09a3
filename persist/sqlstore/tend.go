package sqlstore

import (
	"context"
	"database/sql"
	"time"
)

// tend removes what is past its retention, now and then.
func (s *Store) tend(ctx context.Context) {
	for {
		select {
		case <-time.After(s.o.SweepEvery):
		case <-ctx.Done():
			return
		}
		if err := s.sweep(ctx); err != nil && ctx.Err() == nil {
			s.o.Logger.Warn("samekey: sqlstore: retention sweep", "table", s.o.table("operations"), "error", err)
		}
	}
}

// sweep goes in steps, with a pause between them, so that it holds nobody up.
func (s *Store) sweep(ctx context.Context) error {
	for _, query := range []string{s.q.sweepGone, s.q.sweepBare} {
		for n := int64(sweepStep); n == sweepStep; {
			_, err := s.do(ctx, true, func(ctx context.Context, c *sql.Conn, _ bool) (err error) {
				n, err = s.sweepSome(ctx, c, query)
				return err
			})
			if err != nil {
				return err
			}
			select {
			case <-time.After(10 * time.Millisecond):
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	}
	return nil
}

func (s *Store) sweepSome(ctx context.Context, c *sql.Conn, query string) (int64, error) {
	if !s.d.gaps {
		return s.exec(ctx, c, query, sweepStep)
	}
	var n int64
	err := readCommitted(ctx, c, func(tx *sql.Tx) (err error) {
		n, err = s.exec(ctx, tx, query, sweepStep)
		return err
	})
	return n, err
}

// Wake returns a channel that gets a value when operations may be due: on PostgreSQL with Options.Listen at once after
// the commit of an Enqueue, and everywhere, each Options.PollEvery, if ClaimDue would find some. Values that nobody
// takes are dropped but for one. The channel is closed once ctx has ended or the store was closed. Nil, which never
// wakes, with Options.ReadOnly.
func (s *Store) Wake(ctx context.Context) <-chan struct{} {
	if s.o.ReadOnly {
		return nil
	}
	woken := make(chan struct{}, 1)
	wake := func() {
		select {
		case woken <- struct{}{}:
		default:
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		close(woken)
		return woken
	}
	ctx, cancel := context.WithCancel(ctx)
	context.AfterFunc(s.background, cancel)
	s.tending.Go(func() {
		defer close(woken)
		defer cancel()
		listening := make(chan struct{})
		go func() {
			defer close(listening)
			s.listen(ctx, wake)
		}()
		s.poll(ctx, wake)
		<-listening
	})
	return woken
}

func (s *Store) listen(ctx context.Context, wake func()) {
	for s.o.Listen != nil && ctx.Err() == nil {
		if err := s.o.Listen(ctx, s.o.channel(), wake); err != nil && ctx.Err() == nil {
			s.o.Logger.Warn("samekey: sqlstore: listen", "channel", s.o.channel(), "error", err)
		}
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
		}
	}
}

func (s *Store) poll(ctx context.Context, wake func()) {
	for {
		var due []int64
		_, err := s.do(ctx, false, func(ctx context.Context, c *sql.Conn, _ bool) (err error) {
			due, err = s.integers(ctx, c, 1, s.q.anyDue)
			return err
		})
		if err == nil && len(due) > 0 {
			wake()
		}
		select {
		case <-time.After(s.o.PollEvery):
		case <-ctx.Done():
			return
		}
	}
}
