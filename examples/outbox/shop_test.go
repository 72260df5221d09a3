package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/samekey/samekey"
	"github.com/samekey/samekey/crashtest"
	"github.com/samekey/samekey/mockserver"
	"github.com/samekey/samekey/persist/persisttest/servertest"
)

// world is a bank, and a database on the shared PostgreSQL.
func world(t *testing.T, faults ...mockserver.Fault) (*mockserver.Server, job) {
	t.Helper()
	bank := mockserver.NewServer(mockserver.Config{})
	t.Cleanup(bank.Close)
	bank.Fault(faults...)
	d, remove, err := newDatabase(t.Context(), options{dialect: "postgresql", dsn: servertest.Shared(t, servertest.PostgreSQL).URL("")}, newScreen(io.Discard))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, remove()) })
	return bank, job{DB: d, Bank: bank.URL, Lease: 2 * time.Second, Interval: 200 * time.Millisecond, First: 1}
}

func opened(t *testing.T, j job) *shop {
	t.Helper()
	s, end, err := j.open(t.Context(), slog.New(slog.NewTextHandler(t.Output(), nil)))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, end()) })
	return s
}

// seen is what the database has.
func seen(t *testing.T, j job) *evidence {
	t.Helper()
	e := &evidence{}
	require.NoError(t, e.look(t.Context(), j.DB))
	return e
}

// TestKilledAtEachStep: one order, and the shop dies at each step of its life. Before the commit nothing of it is left,
// afterwards the next shop charges it once and marks it as paid.
func TestKilledAtEachStep(t *testing.T) {
	for _, point := range []string{
		"order written", "command written", "committed", "attempt", "connected", "header written", "body written", "first byte",
		"attempt done", "wait", "attempt/2", "first byte/2", "outcome", "settled", "handler", "order paid", "settled/2", "recovered",
	} {
		t.Run(point, func(t *testing.T) {
			t.Parallel()
			bank, j := world(t, mockserver.Fault{When: mockserver.AfterCommit, Do: mockserver.CutBody, Times: 1})
			j.Last = 1
			life := func(point string) *crashtest.Process {
				told, err := json.Marshal(j)
				require.NoError(t, err)
				cmd := exec.Command(os.Args[0])
				cmd.Env = append(os.Environ(), childEnv+"="+string(told))
				_, err = cmd.StdinPipe() // open: it lives until it is killed
				require.NoError(t, err)
				return crashtest.Start(t, point, cmd)
			}
			first := life(point).Wait()
			require.True(t, first.Killed, first.Stderr)
			j.First = 2
			if point == "order written" || point == "command written" {
				e := seen(t, j) // it is not committed, so that nobody else sees it
				require.Empty(t, e.rows)
				require.Empty(t, e.charges)
				life("")
				time.Sleep(time.Second)
				e = seen(t, j)
				require.Empty(t, e.rows)
				require.Empty(t, e.charges)
				require.Empty(t, bank.Requests())
				return
			}
			if point == "committed" {
				e := seen(t, j)
				require.Equal(t, map[string]string{"order-1": "placed"}, e.rows)
				require.Len(t, e.charges, 1)
			}
			life("")
			require.Eventually(t, func() bool {
				e := seen(t, j)
				return e.rows["order-1"] == "paid" && e.unfinished() == 0
			}, time.Minute, 20*time.Millisecond)
			require.Equal(t, 1, bank.Effects())
			require.Equal(t, 1, bank.EffectsOf("order-1"))
			bank.AssertOnce(t)
			bank.AssertSameKey(t)
		})
	}
}

// TestWokenByTheCommit: recovery's interval is an hour and the table is looked at once a minute, so that it is the commit
// that wakes; a rollback does not.
func TestWokenByTheCommit(t *testing.T) {
	t.Parallel()
	bank, j := world(t)
	s := opened(t, j)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- s.client.KeepRecovering(ctx, samekey.Recovery{Handle: s.charged, Interval: time.Hour, Jitter: -1})
	}()
	time.Sleep(300 * time.Millisecond) // the first pass is over
	require.ErrorIs(t, s.place(ctx, order{ID: "gone", Amount: 1, SoldOut: true}), errSoldOut)
	for _, id := range []string{"a", "b", "c"} {
		require.NoError(t, s.place(ctx, order{ID: id, Amount: 1}))
		require.Eventually(t, func() bool { return seen(t, j).rows[id] == "paid" }, 30*time.Second, 5*time.Millisecond)
	}
	require.Len(t, bank.Requests(), 3)
	stop()
	require.ErrorIs(t, <-ended, context.Canceled)
}

// TestAnswers: each of the bank's goes into the row, once.
func TestAnswers(t *testing.T) {
	t.Parallel()
	bank, j := world(t, mockserver.Fault{When: mockserver.BeforeCommit, Do: mockserver.Status(409, true), Skip: 2, Times: 1})
	s, ctx := opened(t, j), t.Context()
	for _, o := range []order{{ID: "a", Amount: 100}, {ID: "b", Amount: mockserver.DeclinedAmount}, {ID: "c", Amount: 100}} {
		require.NoError(t, s.place(ctx, o))
	}
	require.Error(t, s.place(ctx, order{ID: "a", Amount: 1}), "an order is placed once")
	report, err := s.client.Recover(ctx, samekey.Recovery{Handle: s.charged, Jitter: -1, Concurrency: 1})
	require.NoError(t, err)
	require.Equal(t, samekey.Report{Succeeded: 1, Rejected: 1, Conflicted: 1}, report)
	require.Equal(t, map[string]string{"a": "paid", "b": "declined", "c": "disputed"}, seen(t, j).rows)
	require.Equal(t, 1, bank.Effects())

	var payment sql.NullString
	row := s.sql(`SELECT payment FROM {orders} WHERE state = 'paid'`)
	require.NoError(t, s.db.QueryRow(row).Scan(&payment))
	require.NotEmpty(t, payment.String)
}
