// Package crashtest shows what becomes of a program that is killed at any step of samekey's protocol and started again.
//
// The program gives its client the [Observer] of this package and, if it likes, names steps of its own with [Reached].
// Both do nothing until the environment names a point:
//
//	SAMEKEY_KILL_AT="first byte/2" ./shop    # dies by SIGKILL when the second answer begins to come in
//
// A test starts the program again and again, with each point in turn, and looks at what is left:
//
//	crashtest.Each(t, crashtest.Points(), func(t *testing.T, point string) crashtest.Case {
//		dir, srv := t.TempDir(), newBank(t)
//		return crashtest.Case{
//			Command: func() *exec.Cmd { return exec.Command(shop, dir, srv.URL) },
//			Check: func(lives []crashtest.Life) {
//				// one effect at srv, and the order is marked as paid
//			},
//		}
//	})
//
// testdata/shop is such a program: an order, its charge, the order marked as paid. It is killed at every point by the
// tests of this package. The package imports neither testing nor flag, so that a program may keep it in production.
package crashtest

import (
	"context"
	"os"
	"strconv"
	"strings"
	"sync"

	"github.com/samekey/samekey"
)

// PointEnv names the environment variable with the point at which the process dies. Empty or unset: it lives.
const PointEnv = "SAMEKEY_KILL_AT"

// passedEnv names a file to which every point that is passed is added, a line each.
const passedEnv = "SAMEKEY_POINTS_PASSED"

// Points are the names of all steps that an operation may pass, in their order. A point is such a name, or the name of a
// step of the program's own, and "name/n" is the n-th time that the process comes there. Not every program passes all of
// them: [Passed] tells which.
func Points() (names []string) {
	for s := samekey.StepBegin; ; s++ {
		name := s.String()
		if name == "invalid" {
			return names
		}
		names = append(names, name)
	}
}

// Observer returns an Observer for [samekey.Config] that kills the process when the point comes that SAMEKEY_KILL_AT
// names. It counts over all clients of the process.
func Observer() samekey.Observer {
	return func(_ context.Context, e samekey.Event) { Reached(e.Step.String()) }
}

// Reached says that the program has come to a step of its own, and returns unless SAMEKEY_KILL_AT names it.
func Reached(name string) { own.reached(name) }

// KillAt is Observer for a point that is given.
func KillAt(point string) samekey.Observer {
	c := &counter{point: point}
	return func(_ context.Context, e samekey.Event) { c.reached(e.Step.String()) }
}

// Kill ends this process as SIGKILL does: nothing deferred runs, nothing buffered is flushed.
func Kill() {
	if p, err := os.FindProcess(os.Getpid()); err == nil {
		_ = p.Kill()
	}
	select {}
}

// counter knows how often each step was passed.
type counter struct {
	point, passed string // passed: the file to tell

	mu   sync.Mutex
	seen map[string]int
}

var own = &counter{point: os.Getenv(PointEnv), passed: os.Getenv(passedEnv)}

func (c *counter) reached(name string) {
	if c.point == "" && c.passed == "" {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.seen == nil {
		c.seen = map[string]int{}
	}
	c.seen[name]++
	if c.passed != "" {
		c.tell(nth(name, c.seen[name]))
	}
	if point, n := split(c.point); point == name && n == c.seen[name] {
		Kill()
	}
}

func (c *counter) tell(point string) {
	f, err := os.OpenFile(c.passed, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return
	}
	_, _ = f.WriteString(point + "\n")
	_ = f.Close()
}

func nth(name string, n int) string {
	if n == 1 {
		return name
	}
	return name + "/" + strconv.Itoa(n)
}

// split takes a point apart. A name may hold a slash where no number follows it.
func split(point string) (name string, n int) {
	if i := strings.LastIndexByte(point, '/'); i >= 0 {
		if n, err := strconv.Atoi(point[i+1:]); err == nil && n > 0 {
			return point[:i], n
		}
	}
	return point, 1
}
