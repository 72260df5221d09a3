//go:build unix

package main

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/samekey/samekey/mockserver"
	"github.com/samekey/samekey/persist/persisttest/servertest"
)

var (
	stormOps  = flag.Int("ops", 0, "operations of the storm; 0: 600, with CI in the environment 2000")
	stormSeed = flag.Uint64("seed", 0, "of the storm's chances; 0: a new one")
)

const (
	stormLease = 2 * time.Second
	stormTime  = 4 * time.Minute // at most
)

// TestStorm: three workers are killed and stopped at random, for longer than their lease too, the database is killed
// twice, and the server breaks three of ten exchanges. Orders come from a queue that delivers until somebody says that
// the order is done. In the end each was charged once, nothing is pending, and no attempt was started by a worker whose
// lease was over: see judge.
func TestStorm(t *testing.T) {
	n := *stormOps
	switch {
	case n == 0 && os.Getenv("CI") != "":
		n = 2000
	case n == 0:
		n = 600
	}
	s := newStorm(t, n)
	s.rage()
	s.figures = append(s.figures, s.judge()...)
	for _, f := range s.figures {
		t.Logf("%-52s %6d", f.name, f.figures[0])
	}
}

// storm is a fleet and what befalls it.
type storm struct {
	*testing.T
	*fleet
	rand *rand.Rand
	n    int
	pg   *servertest.Server
	db   database
	srv  *mockserver.Server
	logs string // folder of the starts

	settled  map[string]bool
	again    []delivery
	paused   map[int]pause // workers that stand still
	pauses   []pause
	empty    map[int]time.Time // places of killed workers, until when
	next     time.Time         // something happens
	restarts int
	down     chan error // the database is being started again

	kills, recovered, later int
	figures                 []line
}

// delivery is an order that is to be handed out again.
type delivery struct {
	order string
	at    time.Time
}

// pause is a time in which a process stood still.
type pause struct {
	pid      int
	from, to time.Time
}

func newStorm(t *testing.T, n int) *storm {
	seed := *stormSeed
	if seed == 0 {
		seed = uint64(rand.Uint32())
	}
	t.Logf("%d operations, lease %v, seed %d", n, stormLease, seed)
	s := &storm{
		T: t, rand: rand.New(rand.NewPCG(seed, 0)), n: n, logs: t.TempDir(), pg: servertest.New(t, servertest.PostgreSQL),
		settled: map[string]bool{}, paused: map[int]pause{}, empty: map[int]time.Time{}, next: time.Now().Add(time.Second),
	}
	s.db = testDatabase(t, s.pg)
	s.audit()
	s.srv = mockserver.NewServer(mockserver.Config{Seed: seed})
	t.Cleanup(s.srv.Close)
	s.srv.Fault(faults()...)
	s.fleet = newFleet(3, func(i int) (*exec.Cmd, error) {
		w := watched{worker: worker{Name: name(i), Server: s.srv.URL, DB: s.db, Lease: stormLease}, Log: filepath.Join(s.logs, name(i))}
		return w.command(t), nil
	})
	t.Cleanup(s.killAll)
	for i := range n {
		s.queue = append(s.queue, fmt.Sprint("order-", i+1))
	}
	return s
}

// rage goes on until each order was said to be done, and none is pending: a worker that was stopped past its lease while
// the answer was on its way has it, and has lost the claim to write it down, which is for recovery then.
func (s *storm) rage() {
	began := time.Now()
	for i := range s.workers {
		require.NoError(s, s.start(i))
	}
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for len(s.settled) < s.n || s.down != nil || s.pending() > 0 {
		require.Less(s, time.Since(began), stormTime, "%d of %d orders are done, and %d effects had", len(s.settled), s.n, s.srv.Effects())
		select {
		case e := <-s.events:
			s.heard(e)
		case <-tick.C:
			s.pass(time.Now())
		}
	}
	for i, p := range s.paused {
		s.goOn(i, p)
	}
	took := time.Since(began)
	require.NoError(s, s.end())
	long := 0
	for _, p := range s.pauses {
		if p.to.Sub(p.from) > stormLease {
			long++
		}
	}
	require.Equal(s, 2, s.restarts)
	require.Positive(s, s.kills)
	require.Positive(s, long)
	s.figures = []line{
		{"operations", []int{s.n}}, {"seconds", []int{int(took.Seconds())}}, {"workers killed", []int{s.kills}},
		{"workers stopped", []int{len(s.pauses)}}, {"for longer than the lease", []int{long}}, {"database killed", []int{s.restarts}},
		{"finished by recovery", []int{s.recovered}}, {"calls that did not know, or met another's claim", []int{s.later}},
	}
}

func (s *storm) heard(e event) {
	switch e.verb {
	case "done":
		s.settled[e.order] = true
	case "recovered":
		s.recovered++
	case "later":
		s.later++
		s.again = append(s.again, delivery{e.order, time.Now().Add(200 * time.Millisecond)})
	}
	require.NoError(s, s.handle(e), "a worker has ended by itself")
}

// pass does what is due by now.
func (s *storm) pass(now time.Time) {
	s.again = slices.DeleteFunc(s.again, func(d delivery) bool {
		if now.Before(d.at) {
			return false
		}
		if !s.settled[d.order] {
			s.queue = append(s.queue, d.order)
		}
		return true
	})
	for i, p := range s.paused {
		if now.After(p.to) {
			s.goOn(i, p)
		}
	}
	for i, until := range s.empty {
		if now.After(until) {
			delete(s.empty, i)
			require.NoError(s, s.start(i))
		}
	}
	select {
	case err := <-s.down:
		require.NoError(s, err)
		s.down = nil
	default:
	}
	if s.down == nil && s.restarts < 2 && len(s.settled) > (s.restarts+1)*s.n/3 {
		s.killDatabase()
	}
	if now.After(s.next) {
		s.next = now.Add(200*time.Millisecond + s.upTo(800*time.Millisecond))
		s.strike(s.rand.IntN(len(s.workers)), now)
	}
	s.feed()
}

func (s *storm) upTo(d time.Duration) time.Duration { return time.Duration(s.rand.Int64N(int64(d))) }

// strike kills or stops a worker, or kills one that stands still.
func (s *storm) strike(i int, now time.Time) {
	p := s.workers[i]
	if p == nil {
		return
	}
	_, still := s.paused[i]
	chance := s.rand.IntN(12)
	switch {
	case s.kills == 0 && !still: // one of each at least, however short the storm
		chance = 0
	case len(s.pauses)+len(s.paused) == 0:
		chance = 11
	}
	switch {
	case still && chance < 9:
	case still || chance < 4:
		delete(s.paused, i)
		s.kill(p)
		s.kills++
		for order := range p.inHand {
			s.again = append(s.again, delivery{order, now.Add(200 * time.Millisecond)})
		}
		s.empty[i] = now.Add(s.upTo(time.Second))
	case chance < 6:
		s.stop(i, p, s.upTo(stormLease/2))
	default:
		s.stop(i, p, stormLease+s.upTo(stormLease/2))
	}
}

func (s *storm) stop(i int, p *process, d time.Duration) {
	now := time.Now()
	require.NoError(s, p.cmd.Process.Signal(syscall.SIGSTOP))
	s.paused[i] = pause{p.cmd.Process.Pid, now, now.Add(d)}
}

func (s *storm) goOn(i int, p pause) {
	require.NoError(s, s.workers[i].cmd.Process.Signal(syscall.SIGCONT))
	p.to = time.Now()
	s.pauses = append(s.pauses, p)
	delete(s.paused, i)
}

// killDatabase kills the server, and has it started again after a moment.
func (s *storm) killDatabase() {
	s.restarts++
	s.down = make(chan error, 1)
	wait := s.upTo(500 * time.Millisecond)
	go func() {
		s.pg.Kill()
		time.Sleep(wait)
		s.down <- s.pg.Restart(s.Context())
	}()
}
