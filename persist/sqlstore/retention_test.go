package sqlstore

import (
	"context"
	"flag"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/samekey/samekey/persist"
)

// TestSweep: rows past their retention leave in steps; what is owed, held or still to be told stays.
func TestSweep(t *testing.T) {
	each(t, func(t *testing.T, d Dialect) {
		p := fresh(t, d).migrated(t)
		s, ctx := p.opened(t, func(o *Options) { o.SweepEvery = -1 }), t.Context()
		soon, later := time.Now().Add(time.Millisecond), time.Now().Add(time.Hour)
		settle := func(id string, a persist.Answer) persist.Claim {
			e, err := s.Begin(ctx, op(id))
			require.NoError(t, err)
			a.State, a.Status = persist.Succeeded, 200
			require.NoError(t, s.Settle(ctx, e.Claim, a))
			return e.Claim
		}
		settle("whole", persist.Answer{KeepBody: later, KeepName: later})
		settle("owed", persist.Answer{Owed: true})
		settle("name", persist.Answer{KeepBody: time.Now().Add(time.Second), KeepName: later})
		settle("held", persist.Answer{KeepBody: time.Now().Add(time.Second), KeepName: soon})
		_, err := s.Claim(ctx, op("held").Ref)
		require.NoError(t, err)
		_, err = s.Begin(ctx, op("pending"))
		require.NoError(t, err)
		_, err = s.pool.Exec(s.o.expand("UPDATE {operations} SET sweep_at = 1 WHERE state = 0 OR owed = 1"))
		require.NoError(t, err)
		fill(t, s.Store, 3*sweepStep, soon)
		time.Sleep(1100 * time.Millisecond)
		require.NoError(t, s.sweep(ctx))
		require.Equal(t, 5, p.count(t, s.pool, "1 = 1"))
		require.Equal(t, 1, p.count(t, s.pool, "body IS NULL"))
		require.Equal(t, 1, p.count(t, s.pool, "body IS NULL AND sweep_at = keep_name"))
	})
}

// TestSweepBesideTransactions: a sweep waits for no transaction of the caller's, nor holds one up.
func TestSweepBesideTransactions(t *testing.T) {
	networked(t, func(t *testing.T, d Dialect) {
		p := fresh(t, d).migrated(t)
		s := p.opened(t, func(o *Options) { o.SweepEvery, o.RetryFor = -1, -1 })
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		fill(t, s.Store, 3*sweepStep, time.Now())
		e, err := s.Begin(ctx, op("again"))
		require.NoError(t, err)
		soon := time.Now().Add(100 * time.Millisecond)
		require.NoError(t, s.Settle(ctx, e.Claim, persist.Answer{State: persist.Rejected, KeepBody: soon, KeepName: soon}))
		time.Sleep(time.Until(soon) + 10*time.Millisecond)
		before, err := s.pool.BeginTx(ctx, nil)
		require.NoError(t, err)
		require.NoError(t, s.Enqueue(ctx, before, queued("before")))
		require.NoError(t, s.Enqueue(ctx, before, queued("again")), "in the place of what the sweep has yet to remove")
		require.NoError(t, s.sweep(ctx))
		require.Equal(t, 0, p.count(t, s.pool, "state = 1"))
		require.NoError(t, before.Commit())

		fill(t, s.Store, sweepStep, time.Now())
		var sweeping sync.WaitGroup
		stop, ended := context.WithCancel(ctx)
		sweeping.Go(func() {
			for stop.Err() == nil {
				if err := s.sweep(stop); err != nil && stop.Err() == nil {
					t.Error(err)
				}
			}
		})
		for i := range 200 {
			tx, err := s.pool.BeginTx(ctx, nil)
			require.NoError(t, err)
			for j := range 2 {
				require.NoError(t, s.Enqueue(ctx, tx, queued(fmt.Sprint(i, "-", j))))
			}
			require.NoError(t, tx.Commit())
		}
		ended()
		sweeping.Wait()
		require.Equal(t, 402, p.count(t, s.pool, "state = 0"))
	})
}

// fill adds n settled rows that are kept until then.
func fill(t testing.TB, s *Store, n int, until time.Time) {
	t.Helper()
	digits := map[Dialect]string{
		PostgreSQL: `SELECT g AS i FROM generate_series(1, ?::int) g`,
		MariaDB:    `SELECT seq AS i FROM seq_1_to_100000000 WHERE seq <= ?`,
		SQLite:     `WITH RECURSIVE r (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM r LIMIT ?) SELECT i FROM r`,
	}[s.o.Dialect]
	bytes := map[Dialect][3]string{ // a hash, a short text, the owner
		PostgreSQL: {`sha256(convert_to('h' || i, 'UTF8'))`, `convert_to('op-' || i, 'UTF8')`, `'\x00000000000000000000000000000000'::bytea`},
		MariaDB:    {`UNHEX(SHA2(CONCAT('h', i), 256))`, `CONCAT('op-', i)`, `UNHEX('00000000000000000000000000000000')`},
		SQLite:     {`CAST('h' || i AS BLOB)`, `CAST('op-' || i AS BLOB)`, `zeroblob(16)`},
	}[s.o.Dialect]
	query := fmt.Sprintf(`INSERT INTO {operations} (ref_hash, scope, id, named, created, op_key, method, target, header, omitted, body, `+
		`fingerprint, key_life, attempts, first_sent, seen, not_before, parked, poll_url, last_status, last_error, `+
		`due_order, owner, token, held_until, state, status, keep_body, keep_name, sweep_at) `+
		`SELECT %[1]s, %[2]s, %[2]s, 1, i, %[2]s, %[2]s, %[2]s, %[2]s, NULL, %[2]s, %[1]s, 1, 1, i, i, {never}, 0, {none}, 0, {none}, `+
		`NULL, %[3]s, 1, 0, 1, 200, %[4]d, %[4]d, %[4]d FROM (`+digits+`) g`, bytes[0], bytes[1], bytes[2], until.UnixNano())
	_, err := s.db.Exec(s.o.expand(query), n)
	require.NoError(t, err)
}

var history = flag.Int("history", 0, "rows of history for TestClaimSpeed; 0: a few, and only what is claimed is checked")

// TestClaimSpeed: claims with history at most 1.5 times as slow as with a thousand rows. go test -run ClaimSpeed
// -history 1000000 -v
func TestClaimSpeed(t *testing.T) {
	rows, rounds, settling := 2000, 10, time.Duration(0)
	if *history > 0 {
		rows, rounds, settling = *history, 150, 5*time.Second
	}
	for _, d := range []Dialect{PostgreSQL, MariaDB, SQLite} {
		t.Run(d.String(), func(t *testing.T) {
			const batch = 4
			stores := map[int]*Store{}
			for _, n := range []int{1000, rows} {
				s := fresh(t, d).migrated(t).opened(t, func(o *Options) { o.Lease, o.SweepEvery = time.Hour, -1 }).Store
				if d == MariaDB && *history > 0 { // as a server would have it that has such a table
					_, err := s.db.Exec("SET GLOBAL innodb_buffer_pool_size = 2 << 30")
					require.NoError(t, err)
				}
				fill(t, s, n, time.Now().Add(24*time.Hour))
				for i := range rounds * batch {
					require.NoError(t, s.Enqueue(t.Context(), s.db, queued(fmt.Sprint("due-", i))))
				}
				stores[n] = s
			}
			time.Sleep(settling) // what follows a bulk load
			took := map[string][]time.Duration{}
			timed := func(what string, n int, f func(s *Store)) {
				start := time.Now()
				f(stores[n])
				name := fmt.Sprint(what, n)
				took[name] = append(took[name], time.Since(start))
			}
			for i := range rounds { // in turns, so that what else the machine does counts for both
				for n, s := range stores {
					id := fmt.Sprint("one-", i)
					require.NoError(t, s.Enqueue(t.Context(), s.db, queued(id)))
					timed("Claim", n, func(s *Store) {
						_, err := s.Claim(t.Context(), op(id).Ref)
						require.NoError(t, err)
					})
					timed("ClaimDue", n, func(s *Store) {
						es, err := s.ClaimDue(t.Context(), batch)
						require.NoError(t, err)
						require.Len(t, es, batch)
					})
				}
			}
			for _, what := range []string{"Claim", "ClaimDue"} {
				few, many := median(took[fmt.Sprint(what, 1000)]), median(took[fmt.Sprint(what, rows)])
				ratio := float64(many) / float64(few)
				t.Logf("%s: median %v with 1000 rows, %v with %d: %.2f x", what, few, many, rows, ratio)
				if *history > 0 {
					require.Less(t, ratio, 1.5)
				}
			}
		})
	}
}

func median(d []time.Duration) time.Duration {
	slices.Sort(d)
	return d[len(d)/2]
}

func TestHeaderEncoding(t *testing.T) {
	for _, h := range []http.Header{nil, {"A": {"b", "", "\xff\n"}, "": {"x"}, "b": {}}} {
		got, err := decodeHeader(encodeHeader(h))
		require.NoError(t, err)
		require.Equal(t, h, got)
	}
	whole := encodeHeader(http.Header{"Content-Type": {"text/plain"}})
	for n := range len(whole) {
		_, err := decodeHeader(whole[:n])
		require.Equal(t, n > 0, err != nil, "cut at %d", n)
	}
}

func TestNanos(t *testing.T) {
	now := time.Now()
	require.True(t, instant(nanos(now)).Equal(now))
	require.True(t, instant(nanos(time.Time{})).IsZero())
	ages := []time.Time{{}, time.Date(1000, 1, 1, 0, 0, 0, 0, time.UTC), now, time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)}
	for i := range ages[1:] {
		require.Less(t, nanos(ages[i]), nanos(ages[i+1]))
	}
}
