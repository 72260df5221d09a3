//go:build unix

package main

import (
	"database/sql"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/samekey/samekey"
	"github.com/samekey/samekey/mockserver"
	"github.com/samekey/samekey/persist/persisttest/servertest"
)

const fenceLease = 1500 * time.Millisecond

// duel is two workers and one order. The first is held up with it, past its lease, and the second takes it over.
type duel struct {
	t      *testing.T
	srv    *mockserver.Server
	db     *sql.DB
	worker func(i int) worker
	first  *fleet
	second *fleet
	open   string // the gate
	log    string // of what the first has started
}

func newDuel(t *testing.T, first watched, faults ...mockserver.Fault) *duel {
	db := testDatabase(t, servertest.Shared(t, servertest.PostgreSQL))
	pool, _, err := db.open()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, pool.Close()) })
	d := &duel{t: t, db: pool, srv: mockserver.NewServer(mockserver.Config{}), open: filepath.Join(t.TempDir(), "open"), log: filepath.Join(t.TempDir(), "first")}
	t.Cleanup(d.srv.Close)
	d.srv.Fault(faults...)
	d.worker = func(i int) worker { return worker{Name: name(i), Server: d.srv.URL, DB: db, Lease: fenceLease} }
	first.Open, first.Log = d.open, d.log
	second := watched{NoKey: first.NoKey, Log: filepath.Join(t.TempDir(), "second")}
	start := func(w watched, i int) *fleet {
		w.worker, w.Ask = d.worker(i), true
		f := newFleet(1, func(int) (*exec.Cmd, error) { return w.command(t), nil })
		t.Cleanup(f.killAll)
		require.NoError(t, f.start(0))
		return f
	}
	d.first, d.second = start(first, 0), start(second, 1)
	return d
}

const theOrder = "order-1"

func ask(f *fleet, what string) {
	f.queue = append(f.queue, what)
	f.feed()
}

// said waits for the next line of a worker.
func (d *duel) said(f *fleet, verb string) (o outcome) {
	d.t.Helper()
	select {
	case e := <-f.events:
		require.NoError(d.t, f.handle(e))
		require.Equal(d.t, verb, e.verb, "%+v", e)
		if verb == "done" {
			require.NoError(d.t, json.Unmarshal([]byte(e.text), &o), e.text)
			d.t.Logf("%s: %+v", e.order, o)
		}
	case <-time.After(30 * time.Second):
		d.t.Fatalf("no %q comes", verb)
	}
	return o
}

func (d *duel) signal(s syscall.Signal) {
	require.NoError(d.t, d.first.workers[0].cmd.Process.Signal(s))
}

// lapse stops the first worker, and waits until it has lost its claim, by the database's own word.
func (d *duel) lapse() {
	d.t.Helper()
	d.signal(syscall.SIGSTOP)
	require.Eventually(d.t, func() bool {
		var held bool
		err := d.db.QueryRow(`SELECT held_until > (extract(epoch FROM clock_timestamp()) * 1000000)::bigint * 1000 FROM fleet.samekey_operations`).Scan(&held)
		return err == nil && !held
	}, 20*time.Second, 20*time.Millisecond)
}

// goOn opens the gate and lets the first worker go on.
func (d *duel) goOn() {
	require.NoError(d.t, os.WriteFile(d.open, nil, 0o600))
	d.signal(syscall.SIGCONT)
}

// requestsFrom counts what the server was sent by a worker.
func (d *duel) requestsFrom(i int) (n int) {
	return requestsOf(d.srv.Requests())[i]
}

func (d *duel) state() (state samekey.State) {
	require.NoError(d.t, d.db.QueryRow(`SELECT state FROM fleet.samekey_operations`).Scan(&state))
	return state
}

// TestStoppedBetweenAttempts: a worker that stands still past its lease, wherever that is before the first byte of an
// attempt, starts none when it goes on. It settles nothing, its caller learns that nobody here knows, and the same name
// gets the answer that another has recorded.
func TestStoppedBetweenAttempts(t *testing.T) {
	t.Parallel()
	refuse := mockserver.Fault{When: mockserver.BeforeCommit, Do: mockserver.Status(http.StatusServiceUnavailable, false), Times: 1}
	for _, tt := range []struct {
		gate    string
		faults  []mockserver.Fault
		recover bool // the first worker has it from recovery
		before  int  // attempts
	}{
		{gate: "begun"},
		{gate: "preparing"},
		{gate: "waiting", faults: []mockserver.Fault{refuse}, before: 1},
		{gate: "marked", faults: []mockserver.Fault{refuse}, before: 1},
		{gate: "marked", recover: true},
		{gate: "preparing", recover: true},
	} {
		for _, patient := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, recovery %v, patient %v", tt.gate, tt.recover, patient), func(t *testing.T) {
				t.Parallel()
				d := newDuel(t, watched{Gate: tt.gate, Patient: patient}, tt.faults...)
				what := theOrder
				if tt.recover {
					d.leavePending()
					what = "recover"
				}
				ask(d.first, what)
				d.said(d.first, "at")
				d.lapse()

				ask(d.second, theOrder)
				second := d.said(d.second, "done")
				require.Equal(t, http.StatusCreated, second.Status)
				require.Equal(t, 1, d.srv.Effects())
				sent, started := len(d.srv.Requests()), readStarts(t, d.log)
				require.Len(t, started, tt.before)

				d.goOn()
				first := d.said(d.first, "done")
				if tt.recover {
					require.Equal(t, samekey.Report{Pending: 1}, first.Report)
				} else {
					require.True(t, first.Unknown && first.Lost, "%+v", first)
				}
				ask(d.first, theOrder)
				again := d.said(d.first, "done")
				require.Equal(t, "local", again.Source)
				require.Equal(t, http.StatusCreated, again.Status)
				require.Equal(t, second.Attempts, again.Attempts, "the record is the second's")

				require.Equal(t, started, readStarts(t, d.log), "it started another attempt")
				require.Len(t, d.srv.Requests(), sent)
				require.Equal(t, 1, d.srv.Effects())
				require.Equal(t, samekey.Succeeded, d.state())
				d.srv.AssertSameKey(t)
			})
		}
	}
}

// leavePending has the order begun by a worker that dies before it has sent anything.
func (d *duel) leavePending() {
	w := watched{Gate: "begun", Open: "never", Ask: true, Log: filepath.Join(d.t.TempDir(), "dead")}
	w.worker = d.worker(2)
	f := newFleet(1, func(int) (*exec.Cmd, error) { return w.command(d.t), nil })
	d.t.Cleanup(f.killAll)
	require.NoError(d.t, f.start(0))
	ask(f, theOrder)
	d.said(f, "at")
	f.killAll()
	_, err := d.db.Exec(`UPDATE fleet.samekey_operations SET held_until = 0`)
	require.NoError(d.t, err)
}

// TestStoppedWhileTheAnswerIsOnItsWay: bytes that were on their way bear the key that everybody sends. The caller gets
// the answer, which is true, and learns that it could not be recorded; or, if the attempt's time was over first, that
// nobody here knows.
func TestStoppedWhileTheAnswerIsOnItsWay(t *testing.T) {
	t.Parallel()
	for _, patient := range []bool{false, true} {
		t.Run(fmt.Sprint("patient ", patient), func(t *testing.T) {
			t.Parallel()
			d := newDuel(t, watched{Patient: patient}, mockserver.Fault{When: mockserver.AfterCommit, Do: mockserver.Delay(300 * time.Millisecond), Times: 1})
			ask(d.first, theOrder)
			require.Eventually(t, func() bool { return d.srv.Effects() == 1 }, 20*time.Second, time.Millisecond)
			d.lapse()
			require.Equal(t, http.StatusCreated, d.srv.Requests()[0].Status, "the answer has been sent")

			ask(d.second, theOrder)
			second := d.said(d.second, "done")
			require.Equal(t, http.StatusCreated, second.Status)
			require.Equal(t, "replay", second.Source)

			d.goOn()
			first := d.said(d.first, "done")
			answered := first.Status == http.StatusCreated && first.Lost
			require.True(t, answered || first.Unknown, "%+v", first)
			require.Len(t, readStarts(t, d.log), 1, "it started another attempt")
			require.Equal(t, 1, d.requestsFrom(0))
			require.Equal(t, 1, d.srv.Effects())
			require.Equal(t, samekey.Succeeded, d.state())
			d.srv.AssertSameKey(t)
		})
	}
}

// TestWithoutAKeyNobodyTakesOver: where the server knows no keys, an operation with an attempt marked is not sent again by
// anybody: not by others, and not by a worker that marked it, was stopped, and cannot know.
func TestWithoutAKeyNobodyTakesOver(t *testing.T) {
	t.Parallel()
	for _, gate := range []string{"begun", "preparing", ""} {
		t.Run("stopped at "+gate, func(t *testing.T) {
			t.Parallel()
			d := newDuel(t, watched{Gate: gate, NoKey: true, Patient: true}, mockserver.Fault{When: mockserver.AfterCommit, Do: mockserver.Delay(300 * time.Millisecond)})
			ask(d.first, theOrder)
			effects := 0
			if gate == "" { // its answer is on the way
				effects = 1
				require.Eventually(t, func() bool { return d.srv.Effects() == 1 }, 20*time.Second, time.Millisecond)
			} else {
				d.said(d.first, "at")
			}
			d.lapse()

			ask(d.second, "recover")
			require.Equal(t, samekey.Report{Pending: 1}, d.said(d.second, "done").Report)
			ask(d.second, theOrder)
			second := d.said(d.second, "done")
			require.True(t, second.Unknown && second.NoKey, "%+v", second)
			require.Zero(t, d.requestsFrom(1))

			d.goOn()
			first := d.said(d.first, "done")
			if gate == "" { // as in TestStoppedWhileTheAnswerIsOnItsWay
				require.True(t, first.Status == http.StatusCreated && first.Lost || first.Unknown, "%+v", first)
			} else {
				require.True(t, first.Unknown && first.Lost, "%+v", first)
			}
			require.Equal(t, effects, d.requestsFrom(0))
			require.Len(t, readStarts(t, d.log), effects)
			require.Equal(t, effects, d.srv.Effects())
			require.Equal(t, samekey.Pending, d.state(), "it stays for somebody who can find out")
		})
	}
}

// TestClockOfTheDatabaseJumps: the lease ends long before its owner can know. It goes on, under the same key, and settles
// nothing.
func TestClockOfTheDatabaseJumps(t *testing.T) {
	t.Parallel()
	d := newDuel(t, watched{Gate: "preparing", Patient: true})
	ask(d.first, theOrder)
	d.said(d.first, "at")
	_, err := d.db.Exec(`UPDATE fleet.samekey_operations SET held_until = 1`)
	require.NoError(t, err)
	ask(d.second, theOrder)
	require.Equal(t, http.StatusCreated, d.said(d.second, "done").Status)

	d.goOn()
	first := d.said(d.first, "done")
	require.True(t, first.Lost, "%+v", first)
	require.Equal(t, 1, d.srv.Effects())
	require.Equal(t, samekey.Succeeded, d.state())
	d.srv.AssertSameKey(t)
}
