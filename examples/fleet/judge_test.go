//go:build unix

package main

import (
	"fmt"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/stretchr/testify/require"

	"github.com/samekey/samekey"
)

// audit has the database itself write down each state of each operation, with its claim, in the same transaction.
func (s *storm) audit() {
	pool, _, err := s.db.open()
	require.NoError(s, err)
	_, err = pool.ExecContext(s.Context(), `
		CREATE TABLE fleet.audit (n bigserial PRIMARY KEY, at bigint, id text, attempts bigint, token bigint, held_until bigint, state smallint);
		CREATE FUNCTION fleet.audit() RETURNS trigger LANGUAGE plpgsql AS $$
		BEGIN
			INSERT INTO fleet.audit (at, id, attempts, token, held_until, state)
				VALUES ((extract(epoch FROM clock_timestamp()) * 1000000)::bigint * 1000,
					convert_from(NEW.id, 'UTF8'), NEW.attempts, NEW.token, NEW.held_until, NEW.state);
			RETURN NEW;
		END $$;
		CREATE TRIGGER audit AFTER INSERT OR UPDATE ON fleet.samekey_operations FOR EACH ROW EXECUTE FUNCTION fleet.audit();`)
	require.NoError(s, err)
	require.NoError(s, pool.Close())
}

// row is one state of an operation.
type row struct {
	at        int64
	attempts  int
	token     uint64
	heldUntil int64
	state     samekey.State
}

func (s *storm) rows() map[string][]row {
	pool, _, err := s.db.open()
	require.NoError(s, err)
	rows, err := pool.QueryContext(s.Context(), `SELECT id, at, attempts, token, held_until, state FROM fleet.audit ORDER BY n`)
	require.NoError(s, err)
	all := map[string][]row{}
	for rows.Next() {
		var id string
		var r row
		require.NoError(s, rows.Scan(&id, &r.at, &r.attempts, &r.token, &r.heldUntil, &r.state))
		all[id] = append(all[id], r)
	}
	require.NoError(s, rows.Err())
	require.NoError(s, rows.Close())
	require.NoError(s, pool.Close())
	require.Zero(s, s.pending(), "left pending")
	return all
}

// pending counts what has no outcome in the database.
func (s *storm) pending() (n int) {
	pool, _, err := s.db.open()
	require.NoError(s, err)
	require.NoError(s, pool.QueryRowContext(s.Context(), `SELECT count(*) FROM fleet.samekey_operations WHERE state = 0`).Scan(&n))
	require.NoError(s, pool.Close())
	return n
}

// judge holds what the server, the workers and the database have written down against what a lease promises:
//
//   - each order had one effect, under one key, and none is pending;
//   - each request at the server is an attempt that a worker has written down, and no attempt came twice;
//   - each attempt had a mark of its own in the database, made before it started, and its claim was not over when it
//     started: by the database's own word, and by the worker's clock;
//   - an operation was settled once, by its latest claim.
func (s *storm) judge() []line {
	s.srv.AssertOnce(s)
	s.srv.AssertSameKey(s)
	require.Equal(s, s.n, s.srv.Effects())
	require.Zero(s, s.srv.Duplicates())
	rows := s.rows()
	require.Len(s, rows, s.n)
	taken := 0
	for i := range s.n {
		order := fmt.Sprint("order-", i+1)
		require.Equal(s, 1, s.srv.EffectsOf(order), order)
		s.settledOnce(order, rows[nameOf(order)])
		taken += tokens(rows[nameOf(order)]) - 1
	}

	starts := map[string]start{}
	var wrong []string
	excused := 0
	for i := range s.workers {
		for _, at := range readStarts(s.T, filepath.Join(s.logs, name(i))) {
			id := fmt.Sprint(at.ID, "/", at.Attempt)
			if _, is := starts[id]; is {
				wrong = append(wrong, id+": started twice under one mark")
			}
			starts[id] = at
			late := past(at, rows[at.ID])
			switch {
			case late == "":
			case s.stoodStill(at):
				excused++
				s.Logf("stopped between the last look at the clock and the first byte: %s (%s): %s", id, name(i), late)
			default:
				wrong = append(wrong, fmt.Sprintf("%s (%s): %s", id, name(i), late))
			}
		}
	}
	require.Empty(s, wrong)
	// Between the last look at the clock and the first byte nobody can look: a process may be stopped there, and a few
	// microseconds are rarely met. It is no way to begin attempts.
	require.LessOrEqual(s, excused, 2)

	requests, faulty, overdue := s.srv.Requests(), 0, 0
	arrived := map[string]bool{}
	for _, r := range requests {
		attempt, err := strconv.Atoi(r.Header.Get(attemptHeader))
		require.NoError(s, err)
		id := fmt.Sprint(nameOf(r.Operation), "/", attempt)
		at, is := starts[id]
		require.True(s, is, "%s arrived, and was never started", id)
		require.False(s, arrived[id], "%s arrived twice", id)
		arrived[id] = true
		if r.At.UnixNano() > at.Until {
			overdue++
		}
		if r.Fault != "" && !strings.Contains(r.Fault, "delay") {
			faulty++
		}
	}
	require.Greater(s, faulty*4, len(requests), "a quarter at least")
	return []line{
		{"effects", []int{s.srv.Effects()}}, {"duplicates", []int{s.srv.Duplicates()}}, {"requests at the server", []int{len(requests)}},
		{"broken by a fault, per mille", []int{1000 * faulty / len(requests)}}, {"claims beyond the first of an operation", []int{taken}},
		{"attempts started", []int{len(starts)}}, {"past their lease", []int{len(wrong)}},
		{"stopped between the last look at the clock and byte", []int{excused}}, {"on their way as the lease ended", []int{overdue}},
	}
}

// past says what is wrong with the time of a start.
func past(at start, rows []row) string {
	var claim row // as it was by then
	marked := false
	for _, r := range rows {
		switch {
		case r.at > at.At:
		case r.token > at.Token:
			return "another had claimed it"
		case r.token == at.Token:
			claim, marked = r, marked || r.attempts == at.Attempt
		}
	}
	switch {
	case !marked:
		return "no mark was there"
	case at.At >= claim.heldUntil:
		return fmt.Sprintf("%d ms past its lease, by the database", (at.At-claim.heldUntil)/1e6)
	case at.At >= at.Until:
		return fmt.Sprintf("%d ms past its lease, by its own clock", (at.At-at.Until)/1e6)
	}
	return ""
}

// stoodStill reports whether the worker was stopped after Prepare had returned and before the attempt started.
func (s *storm) stoodStill(at start) bool {
	for _, p := range s.pauses {
		if p.pid == at.PID && p.from.UnixNano() <= at.At && at.Prepared <= p.to.UnixNano() {
			return true
		}
	}
	return false
}

// settledOnce holds that tokens only grow, that the latest claim has settled, and that it stays so; what recovery settles
// is settled again when its handler has taken the answer.
func (s *storm) settledOnce(order string, rows []row) {
	require.NotEmpty(s, rows, order)
	for i, r := range rows[1:] {
		require.GreaterOrEqual(s, r.token, rows[i].token, order)
		if rows[i].state != samekey.Pending {
			require.Equal(s, rows[i].state, r.state, order)
		}
	}
	last := rows[len(rows)-1]
	require.Equal(s, samekey.Succeeded, last.state, order)
}

// tokens counts claims.
func tokens(rows []row) (n int) {
	last := uint64(0)
	for _, r := range rows {
		if r.token != last {
			n, last = n+1, r.token
		}
	}
	return n
}
