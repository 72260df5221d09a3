package sqlstore

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/samekey/samekey/persist"
)

func queued(id string) persist.Record {
	r := op(id)
	r.Progress = persist.Progress{}
	return r
}

// TestEnqueue: the operation and the caller's rows are there together, or neither is.
func TestEnqueue(t *testing.T) {
	each(t, func(t *testing.T, d Dialect) {
		p := fresh(t, d).migrated(t)
		s, ctx := p.opened(t, nil), t.Context()
		orders := p.prefix + "orders"
		_, err := s.pool.Exec("CREATE TABLE " + orders + " (id integer PRIMARY KEY)")
		require.NoError(t, err)
		enqueue := func(id string) *sql.Tx {
			t.Helper()
			tx, err := s.pool.BeginTx(ctx, nil)
			require.NoError(t, err)
			_, err = tx.Exec("INSERT INTO " + orders + " VALUES (1)")
			require.NoError(t, err)
			require.NoError(t, s.Enqueue(ctx, tx, queued(id)))
			return tx
		}
		tx := enqueue("op")
		require.NoError(t, tx.Rollback())
		_, err = s.Get(ctx, op("op").Ref)
		require.ErrorIs(t, err, persist.ErrNotFound)

		tx = enqueue("op")
		var known *KnownError
		require.ErrorAs(t, s.Enqueue(ctx, tx, queued("op")), &known)
		require.NoError(t, tx.Commit(), "the transaction can go on")
		es, err := s.ClaimDue(ctx, 9)
		require.NoError(t, err)
		require.Len(t, es, 1)
		require.Zero(t, es[0].Progress.Attempts)
		require.Equal(t, queued("op").Header, es[0].Header)
		require.NoError(t, s.Mark(ctx, es[0].Claim, persist.Progress{Attempts: 1}))

		tx, err = s.pool.BeginTx(ctx, nil)
		require.NoError(t, err)
		require.ErrorAs(t, s.Enqueue(ctx, tx, queued("op")), &known, "held")
		require.Equal(t, "op", known.Ref.ID)
		require.NoError(t, tx.Rollback())
		soon := time.Now().Add(50 * time.Millisecond)
		require.NoError(t, s.Settle(ctx, es[0].Claim, persist.Answer{State: persist.Succeeded, Status: 200, KeepBody: soon, KeepName: soon}))
		time.Sleep(60 * time.Millisecond)
		tx, err = s.pool.BeginTx(ctx, nil)
		require.NoError(t, err)
		require.NoError(t, s.Enqueue(ctx, tx, queued("op")), "past its retention a name is free")
		require.NoError(t, tx.Commit())

		require.Error(t, s.Enqueue(ctx, s.pool, op("sent")), "it has an attempt")
		require.NoError(t, s.Close())
		require.ErrorIs(t, s.Enqueue(ctx, s.pool, queued("x")), persist.ErrClosed)
	})
}

// TestWake: a commit wakes who listens, at once; a rollback does not; and what a lost connection has missed is told.
func TestWake(t *testing.T) {
	t.Parallel()
	p := fresh(t, PostgreSQL).migrated(t)
	s := p.opened(t, func(o *Options) { o.Listen = listener(p.where) })
	ctx, cancel := context.WithCancel(t.Context())
	woken := s.Wake(ctx)
	enqueue := func(id string) *sql.Tx {
		tx, err := s.pool.BeginTx(ctx, nil)
		require.NoError(t, err)
		require.NoError(t, s.Enqueue(ctx, tx, queued(id)))
		return tx
	}
	wait := func(d time.Duration) bool {
		select {
		case _, ok := <-woken:
			return ok
		case <-time.After(d):
			return false
		}
	}
	require.True(t, wait(5*time.Second), "it listens now")
	require.NoError(t, enqueue("a").Rollback())
	require.False(t, wait(300*time.Millisecond))
	require.NoError(t, enqueue("a").Commit())
	require.True(t, wait(5*time.Second))
	_, err := s.pool.Exec("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'LISTEN%' AND query LIKE $1", "%"+p.prefix+"%")
	require.NoError(t, err)
	require.NoError(t, enqueue("b").Commit())
	require.True(t, wait(5*time.Second), "it has connected anew")
	cancel()
	for range woken { // it is closed
	}
}

func listener(dsn string) Listener {
	return func(ctx context.Context, channel string, wake func()) error {
		conn, err := pgx.Connect(ctx, dsn)
		if err != nil {
			return err
		}
		defer conn.Close(context.WithoutCancel(ctx))
		if _, err = conn.Exec(ctx, "LISTEN "+pgx.Identifier{channel}.Sanitize()); err != nil {
			return err
		}
		for {
			wake()
			if _, err = conn.WaitForNotification(ctx); err != nil {
				return err
			}
		}
	}
}

func TestWakePolls(t *testing.T) {
	each(t, func(t *testing.T, d Dialect) {
		s := fresh(t, d).migrated(t).opened(t, func(o *Options) { o.PollEvery = 20 * time.Millisecond })
		woken := s.Wake(t.Context())
		time.Sleep(100 * time.Millisecond)
		require.Empty(t, woken)
		tx, err := s.pool.Begin()
		require.NoError(t, err)
		require.NoError(t, s.Enqueue(t.Context(), tx, queued("a")))
		require.NoError(t, tx.Commit())
		<-woken
		require.NoError(t, s.Close())
		for range woken { // it is closed
		}
		require.Empty(t, s.Wake(t.Context()))
	})
}
