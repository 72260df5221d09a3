package servertest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"
)

// New starts a server for t, which ends it. Without the binaries the test is skipped, with a line that says how to get
// them; it fails where the environment has SAMEKEY_REQUIRE_SERVICES=1.
func New(t testing.TB, k *Kind, args ...string) *Server {
	t.Helper()
	s, err := Start(t.Context(), k, args...)
	need(t, err)
	t.Cleanup(s.End)
	return s
}

func need(t testing.TB, err error) {
	t.Helper()
	var missing *NotInstalledError
	switch {
	case err == nil:
	case errors.As(err, &missing) && os.Getenv("SAMEKEY_REQUIRE_SERVICES") != "1":
		t.Skip(err)
	default:
		t.Fatal(err)
	}
}

var shared = struct {
	sync.Mutex
	servers map[*Kind]*Server
}{servers: map[*Kind]*Server{}}

// Shared returns one server for all tests of the process that do it no harm. TestMain calls EndShared after m.Run.
func Shared(t testing.TB, k *Kind) *Server {
	t.Helper()
	shared.Lock()
	defer shared.Unlock()
	if shared.servers[k] == nil {
		s, err := Start(context.WithoutCancel(t.Context()), k)
		need(t, err)
		shared.servers[k] = s
	}
	return shared.servers[k]
}

// EndShared ends the servers that Shared has started, and prints what one that ended before has said.
func EndShared() {
	shared.Lock()
	defer shared.Unlock()
	for k, s := range shared.servers {
		select {
		case <-s.done: // which explains what failed
			fmt.Fprintf(os.Stderr, "servertest: the shared %s has ended by itself, %v; the last it said:\n%s\n", k.Name, s.cmd.ProcessState, s.said())
		default:
		}
		s.End()
		delete(shared.servers, k)
	}
}

// Replicated is Replica for t, which ends it.
func (s *Server) Replicated(t testing.TB) *Server {
	t.Helper()
	r, err := s.Replica(t.Context())
	need(t, err)
	t.Cleanup(r.End)
	return r
}

// Restarted is Restart for a test.
func (s *Server) Restarted(t testing.TB) {
	t.Helper()
	if err := s.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
}
