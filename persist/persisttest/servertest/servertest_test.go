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
