package servertest

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestKilledAndStartedAgain: a server answers, is killed, is gone, answers on the same address again, and leaves nothing.
func TestKilledAndStartedAgain(t *testing.T) {
	for _, k := range []*Kind{PostgreSQL, MariaDB, Redis} {
		t.Run(k.Name, func(t *testing.T) {
			t.Parallel()
			var s *Server
			t.Run("server", func(t *testing.T) {
				s = New(t, k)
				require.NoError(t, s.ask(t.Context()))
				addr := s.Addr()
				s.Kill()
				require.Error(t, s.ask(t.Context()))
				s.Restarted(t)
				require.NoError(t, s.ask(t.Context()))
				require.Equal(t, addr, s.Addr())
				require.FileExists(t, filepath.Join(s.Dir(), "log"))
			})
			if s == nil {
				t.SkipNow() // it has said why
			}
			require.Error(t, s.ask(t.Context()))
			_, err := os.Stat(s.Dir())
			require.ErrorIs(t, err, os.ErrNotExist)
		})
	}
}

// TestNotInstalled and TestDoesNotStart: the errors say how to get it, and what the server said.
func TestNotInstalled(t *testing.T) {
	_, err := Start(t.Context(), &Kind{Name: "none", Package: "none-server", need: []string{"no-such-server"}})
	require.EqualError(t, err, "none: no-such-server is not installed: apt-get install none-server")
}

func TestDoesNotStart(t *testing.T) {
	need(t, func() error { _, err := Redis.find(); return err }())
	_, err := Start(t.Context(), Redis, "--no-such-setting", "1")
	require.ErrorContains(t, err, "redis does not start: it ends at once")
	require.ErrorContains(t, err, "no-such-setting")
}

// TestReplica: a hot standby answers on an address of its own, and outlives its primary.
func TestReplica(t *testing.T) {
	t.Parallel()
	primary := New(t, PostgreSQL)
	replica := primary.Replicated(t)
	require.NotEqual(t, primary.Addr(), replica.Addr())
	require.FileExists(t, filepath.Join(replica.data(), "standby.signal"))
	primary.Kill()
	require.Error(t, primary.ask(t.Context()))
	require.NoError(t, replica.ask(t.Context()))
	replica.Kill()
	replica.Restarted(t)

	_, err := (&Server{kind: Redis}).Replica(t.Context())
	require.EqualError(t, err, "servertest: no replicas of redis")
}
