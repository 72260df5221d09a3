package redis

import (
	"context"
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
			s.o.Logger.Warn("samekey: redis: retention sweep", "prefix", s.o.Prefix, "error", err)
		}
	}
}

// sweep goes in steps, with a pause between them, so that it holds nobody up.
func (s *Store) sweep(ctx context.Context) error {
	for n := int64(sweepStep); n == sweepStep; {
		d, err := s.do(ctx, query{script: sweepScript, keys: s.index(), args: []any{s.record(""), sweepStep}})
		if err != nil {
			return err
		}
		n = 0
		if len(d.reply) == 1 {
			n, _ = d.reply[0].(int64)
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}
