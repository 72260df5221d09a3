package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/samekey/samekey/persist"
	"github.com/samekey/samekey/persist/persisttest"
	"github.com/samekey/samekey/persist/persisttest/servertest"
)

func networked(t *testing.T, test func(t *testing.T, d Dialect)) {
	each(t, func(t *testing.T, d Dialect) {
		if d != SQLite { // it has no wire
			test(t, d)
		}
	})
}

// TestLostAnswers loses each seventh answer of the server.
func TestLostAnswers(t *testing.T) {
	networked(t, func(t *testing.T, d Dialect) {
		p := fresh(t, d).migrated(t)
		s := p.opened(t, nil)
		var reads atomic.Int64
		s.wire.listen(func() bool { return reads.Add(1)%7 != 0 })
		persisttest.LostAnswers(t, s, p.opened(t, nil))
		s.wire.listen(nil)
	})
}

// TestOvertaken: the answer to an INSERT is lost for longer than the lease, and others have the operation meanwhile.
func TestOvertaken(t *testing.T) {
	networked(t, func(t *testing.T, d Dialect) {
		for name, patience := range map[string]time.Duration{"tried again": time.Minute, "given up": -1} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				s, other := lateStores(t, d, func(o *Options) { o.Lease, o.RetryFor = time.Second, patience })
				persisttest.Overtaken(t, s, other, func(meanwhile func()) {
					s.wire.decide(statement("INSERT INTO", sending{lost: meanwhile}))
				})
			})
		}
	})
}

func maybe(t *testing.T, err error) bool {
	t.Helper()
	var e *persist.Error
	require.ErrorAs(t, err, &e)
	return e.Maybe
}

// TestNetworkDown: what cannot have left is not Maybe.
func TestNetworkDown(t *testing.T) {
	networked(t, func(t *testing.T, d Dialect) {
		s := fresh(t, d).migrated(t).opened(t, func(o *Options) { o.RetryFor = 200 * time.Millisecond })
		s.wire.cut(true)
		require.Eventually(t, func() bool {
			_, err := s.Begin(t.Context(), op("a"))
			require.Error(t, err)
			return !maybe(t, err) // once the pool has no broken connection
		}, 20*time.Second, time.Millisecond)
	})
}

// TestContextEnds: a call that waits for a lock ends with its context, and so does its statement.
func TestContextEnds(t *testing.T) {
	waiting := map[Dialect]string{
		PostgreSQL: "SELECT count(*) = 0 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE $1",
		MariaDB:    "SELECT count(*) = 0 FROM information_schema.processlist WHERE info LIKE CONCAT('%FOR ', ?)",
	}
	networked(t, func(t *testing.T, d Dialect) {
		p := fresh(t, d).migrated(t)
		s := p.opened(t, nil)
		tx, err := p.db(t).Begin()
		require.NoError(t, err)
		require.NoError(t, s.Enqueue(t.Context(), tx, queued("op")))
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		start := time.Now()
		_, err = s.Begin(ctx, op("op"))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.True(t, maybe(t, err))
		require.Less(t, time.Since(start), resolveFor+2*time.Second)
		require.Eventually(t, func() (none bool) {
			require.NoError(t, s.pool.QueryRow(waiting[d], "INSERT INTO "+p.prefix+"%").Scan(&none))
			return none
		}, 20*time.Second, 10*time.Millisecond)
		require.NoError(t, tx.Rollback())
		_, err = s.Get(t.Context(), op("op").Ref)
		require.ErrorIs(t, err, persist.ErrNotFound, "the INSERT did not go on by itself")
	})
}

// TestCallTimeout: a call whose context has no end does not wait for ever for a database that stands still.
func TestCallTimeout(t *testing.T) {
	networked(t, func(t *testing.T, d Dialect) {
		p := fresh(t, d).migrated(t)
		s := p.opened(t, func(o *Options) { o.CallTimeout = 300 * time.Millisecond })
		e, err := p.opened(t, nil).Begin(t.Context(), op("known"))
		require.NoError(t, err)
		tx, err := p.db(t).Begin()
		require.NoError(t, err)
		_, err = tx.Exec(s.o.expand("UPDATE {operations} SET named = 1 - named"))
		require.NoError(t, err)
		require.NoError(t, s.Enqueue(t.Context(), tx, queued("op")))
		for name, call := range map[string]func() error{
			"Begin":  func() error { _, err := s.Begin(context.Background(), op("op")); return err },
			"Mark":   func() error { return s.Mark(context.Background(), e.Claim, persist.Progress{Attempts: 2}) },
			"Settle": func() error { return s.Settle(context.Background(), e.Claim, persist.Answer{State: persist.Succeeded}) },
		} {
			start := time.Now()
			err := call()
			require.ErrorIs(t, err, context.DeadlineExceeded, name)
			require.ErrorContains(t, err, "Options.CallTimeout, 300ms", name)
			if !strings.Contains(err.Error(), "max_statement_time exceeded") { // else the server has told us that it did not happen
				require.True(t, maybe(t, err), name)
			}
			require.Less(t, time.Since(start), resolveFor+10*time.Second, name)
		}
		require.NoError(t, tx.Rollback())
		_, err = s.Begin(t.Context(), op("another"))
		require.NoError(t, err, "it goes on")
	})
}

// TestOthersInTheWay: lock timeouts, deadlocks and serialisation failures of the server do not reach the caller.
func TestOthersInTheWay(t *testing.T) {
	set := map[Dialect]string{
		PostgreSQL: "SET lock_timeout = '100ms'",
		MariaDB:    "SET SESSION innodb_lock_wait_timeout = 1",
	}
	networked(t, func(t *testing.T, d Dialect) {
		p := fresh(t, d).migrated(t)
		s, ctx := p.opened(t, nil), t.Context()
		e, err := s.Begin(ctx, op("op"))
		require.NoError(t, err)
		s.pool.SetMaxOpenConns(1)
		s.pool.SetMaxIdleConns(1)
		_, err = s.pool.Exec(set[d])
		require.NoError(t, err)
		tx, err := p.db(t).Begin()
		require.NoError(t, err)
		_, err = tx.Exec(s.o.expand("UPDATE {operations} SET named = 1 - named"))
		require.NoError(t, err)
		time.AfterFunc(1300*time.Millisecond, func() { _ = tx.Rollback() })
		require.NoError(t, s.Mark(ctx, e.Claim, persist.Progress{Attempts: 2}))
	})
	t.Run("serializable", func(t *testing.T) {
		t.Parallel()
		p := fresh(t, PostgreSQL).migrated(t)
		db, err := sql.Open("pgx", p.where+"&default_transaction_isolation=serializable")
		require.NoError(t, err)
		defer db.Close()
		o := p.options()
		o.RetryFor = 20 * time.Second
		s, err := Open(t.Context(), db, o)
		require.NoError(t, err)
		defer s.Close()
		hammer(t, s)
	})
}

// hammer lets many callers use the same few operations; no call may fail for being in another's way.
func hammer(t *testing.T, s *Store) {
	ctx := context.Background()
	var failures sync.Map
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for n := range 40 {
				e, err := s.Begin(ctx, op(fmt.Sprint(n%3)))
				if err == nil && e.Claim.Token != 0 {
					if n%2 == 0 {
						err = s.Settle(ctx, e.Claim, persist.Answer{State: persist.Succeeded})
					} else {
						err = s.Release(ctx, e.Claim)
					}
				}
				if err == nil {
					var es []persist.Entry
					es, err = s.ClaimDue(ctx, 2)
					for _, e := range es {
						err = errors.Join(err, s.Settle(ctx, e.Claim, persist.Answer{State: persist.Succeeded}))
					}
				}
				if err != nil {
					failures.Store(i, err)
				}
			}
		})
	}
	all.Wait()
	failures.Range(func(_, err any) bool {
		t.Error(err)
		return true
	})
}

// TestRestart kills the server in the middle of everything.
func TestRestart(t *testing.T) {
	t.Parallel()
	for _, d := range []Dialect{PostgreSQL, MariaDB} {
		t.Run(d.String(), func(t *testing.T) {
			t.Parallel()
			srv := servertest.New(t, kinds[d])
			s := on(t, d, srv, defaultPrefix).migrated(t).opened(t, func(o *Options) { o.RetryFor = time.Second })
			persisttest.Restarts(t, s, 2, func() {
				srv.Kill()
				time.Sleep(300 * time.Millisecond)
				srv.Restarted(t)
			})
		})
	}
}

// TestFencing: an owner past its lease changes nothing, be it claimed again or not, over two stores.
func TestFencing(t *testing.T) {
	each(t, func(t *testing.T, d Dialect) {
		p := fresh(t, d).migrated(t)
		slow, other, ctx := p.opened(t, func(o *Options) { o.Lease = time.Second }), p.opened(t, nil), t.Context()
		e, err := slow.Begin(ctx, op("op"))
		require.NoError(t, err)
		time.Sleep(slow.Lease() + 50*time.Millisecond)
		nothing := func() {
			t.Helper()
			require.ErrorIs(t, slow.Mark(ctx, e.Claim, persist.Progress{Attempts: 9}), persist.ErrClaimLost)
			for _, keep := range []time.Time{{}, time.Now().Add(time.Hour)} {
				require.ErrorIs(t, slow.Settle(ctx, e.Claim, persist.Answer{State: persist.Succeeded, KeepBody: keep}), persist.ErrClaimLost)
			}
			require.ErrorIs(t, slow.Replace(ctx, e.Claim, op("x")), persist.ErrClaimLost)
			require.ErrorIs(t, slow.Release(ctx, e.Claim), persist.ErrClaimLost)
		}
		nothing()
		taken, err := other.Claim(ctx, op("op").Ref)
		require.NoError(t, err)
		require.Greater(t, taken.Claim.Token, e.Claim.Token)
		nothing()
		require.NoError(t, slow.Close())
		require.NoError(t, other.Mark(ctx, taken.Claim, persist.Progress{Attempts: 2}), "Close frees one's own claims only")
	})
}

func TestFateOf(t *testing.T) {
	for want, errs := range map[fate][]error{
		unknown: {errors.New("?"), context.Canceled, &pgconn.PgError{Code: "57P01"}, &pgconn.PgError{Code: "08006"}, &mysql.MySQLError{Number: 1053}},
		failed:  {&pgconn.PgError{Code: "42P01"}, &pgconn.PgError{Code: "53100"}, &mysql.MySQLError{Number: 1114}, persist.ErrBusy},
		again: {&pgconn.PgError{Code: "40001"}, &pgconn.PgError{Code: "40P01"}, &pgconn.PgError{Code: "57P03"}, &mysql.MySQLError{Number: 1213},
			fmt.Errorf("x: %w", &mysql.MySQLError{Number: 1205})},
	} {
		for _, err := range errs {
			require.Equal(t, want, fateOf(err), err.Error())
		}
	}
	require.True(t, full(fmt.Errorf("x: %w", &pgconn.PgError{Code: "53100"})))
	require.True(t, full(&mysql.MySQLError{Number: 1114}))
}
