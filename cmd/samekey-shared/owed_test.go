package main

import (
	"context"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/samekey/samekey"
)

// enqueue records a command for later: of a database in a transaction of the program's, elsewhere as an outbox would.
func (p *place) enqueue(t *testing.T, bank string, names ...string) {
	t.Helper()
	s, err := p.open(t.Context(), time.Minute)
	require.NoError(t, err)
	c, err := samekey.New(samekey.Config{Store: s})
	require.NoError(t, err)
	for _, n := range names {
		req, err := payment(t.Context(), bank, n, 100)
		require.NoError(t, err)
		rec, err := c.Capture(req)
		require.NoError(t, err)
		if db, is := s.(store); is {
			tx, err := db.db.BeginTx(t.Context(), nil)
			require.NoError(t, err)
			require.NoError(t, db.Enqueue(t.Context(), tx, rec))
			require.NoError(t, tx.Commit())
			continue
		}
		e, err := s.Begin(t.Context(), rec)
		require.NoError(t, err)
		require.NoError(t, s.Release(t.Context(), e.Claim))
	}
	require.NoError(t, c.Close())
	require.NoError(t, s.Close())
}

// told is what the program's handler gets from its next Recover, by ID.
func (p *place) told(t *testing.T) map[string][]string {
	t.Helper()
	got := map[string][]string{}
	p.fill(t, samekey.Config{}, func(c *samekey.Client) {
		_, err := c.Recover(t.Context(), samekey.Recovery{Jitter: -1, Concurrency: 1, Handle: func(_ context.Context, op samekey.Operation, resp *http.Response, err error) error {
			require.NoError(t, err)
			b, err := io.ReadAll(resp.Body)
			require.NoError(t, err)
			got[op.ID] = append(got[op.ID], resp.Status+" "+string(b))
			return nil
		}})
		require.NoError(t, err)
	})
	return got
}

// TestResumeOwed: an order's charge that the operator has resumed is handed to the program once, with its answer.
func TestResumeOwed(t *testing.T) {
	each(t, func(t *testing.T, p place) {
		p = p.migrated(t)
		bank := newBank(t)
		p.enqueue(t, bank.URL, "order-1", "order-2", "order-3", "order-4")
		r := run(t, "resume", p.URL, "order-1", "-owed")
		require.Zero(t, r.code, r.err)
		require.Equal(t, "succeeded   201  order-1  1 attempt, owed to the program\n", r.out)
		require.Empty(t, r.err)
		require.Zero(t, run(t, "resume", p.URL, "order-2").code)
		r = run(t, "resume", p.URL, "order-2", "-owed")
		require.Zero(t, r.code, r.err)
		require.Contains(t, r.out, "owed to the program")
		r = run(t, "resume", p.URL, "order-3")
		require.Zero(t, r.code, r.err)
		require.Contains(t, r.err, "the program's Recovery.Handle is not told of this; with -owed")
		r = run(t, "resume", p.URL, "-all", "-owed")
		require.Zero(t, r.code, r.err)
		require.Regexp(t, `^succeeded   201  order-4  1 attempt, owed to the program\n$`, r.out)

		got := p.told(t)
		require.Len(t, got, 3, "not of order-3")
		for _, id := range []string{"order-1", "order-2", "order-4"} {
			require.Len(t, got[id], 1, id)
			require.Regexp(t, `^201 Created .*paymentId`, got[id][0])
		}
		require.Empty(t, p.told(t), "once")
		require.Len(t, bank.Requests(), 4)
		require.Equal(t, 4, bank.Effects())
	})
}
