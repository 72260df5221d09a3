package crashtest_test

import (
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/samekey/samekey/crashtest"
	"github.com/samekey/samekey/mockserver"
)

// A program is killed at every point that it passes, and started again.
func ExampleEach() {
	_ = func(t *testing.T) {
		var program, dir string // a binary of yours, whose client has crashtest.Observer(), and a place for its data
		world := func(t *testing.T) (command func() *exec.Cmd, bank *mockserver.Server) {
			bank = mockserver.NewServer(mockserver.Config{})
			t.Cleanup(bank.Close)
			dir = t.TempDir()
			return func() *exec.Cmd { return exec.Command(program, dir, bank.URL) }, bank
		}
		first, _ := world(t)
		crashtest.Each(t, crashtest.Passed(t, first()), func(t *testing.T, _ string) crashtest.Case {
			command, bank := world(t)
			return crashtest.Case{Command: command, Check: func(lives []crashtest.Life) {
				require.Zero(t, lives[len(lives)-1].Code)
				bank.AssertOnce(t)
				bank.AssertSameKey(t)
			}}
		})
	}
}
