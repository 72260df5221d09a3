package main

import (
	"bytes"
	"os/exec"
	"regexp"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestDrain(t *testing.T) {
	var out bytes.Buffer
	require.NoError(t, run(t.Context(), &out, t.TempDir()))
	t.Log(out.String())
	m := regexp.MustCompile(`^started: 0 operations of the last life are finished, 0 are still unknown
stopped in (\d+) ms: 50 calls were under way, and are kept
started: 50 operations of the last life are finished, 0 are still unknown
stopped in \d+ ms: 0 calls were under way, and are kept
the bank has charged 50 orders, each once
$`).FindStringSubmatch(out.String())
	require.NotNil(t, m, out.String())
	ms, err := strconv.Atoi(m[1])
	require.NoError(t, err)
	require.Less(t, ms, 1000)
}

// TestHelp: -h explains, and runs nothing.
func TestHelp(t *testing.T) {
	cmd := exec.Command("go", "run", "-buildvcs=false", ".", "-h")
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	require.NoError(t, cmd.Run(), errOut.String())
	require.Empty(t, out.String())
	require.Contains(t, errOut.String(), "go run ./examples/drain\n")
	require.ErrorContains(t, exec.Command("go", "run", "-buildvcs=false", ".", "more").Run(), "exit status")
}
