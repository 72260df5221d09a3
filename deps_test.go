package samekey_test

import (
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestDependencies: what an application takes in with the package is named here, so that a heavy driver, or a new
// dependency of any kind, does not come in unseen.
func TestDependencies(t *testing.T) {
	goTool, err := exec.LookPath("go")
	if err != nil {
		t.Skip("needs the go command in the PATH: install Go from your system's packages or go.dev")
	}
	deps := func(pkg string) (all []string) {
		cmd := exec.CommandContext(t.Context(), goTool, "list", "-deps", "-f", "{{if not .Standard}}{{.ImportPath}}{{end}}", pkg)
		cmd.Env = append(cmd.Environ(), "GOFLAGS=-mod=readonly")
		out, err := cmd.Output()
		require.NoError(t, err)
		for _, p := range strings.Fields(string(out)) {
			all = append(all, strings.TrimPrefix(p, "github.com/samekey/samekey/"))
		}
		slices.Sort(all)
		return all
	}
	outside := []string{"github.com/google/uuid", "github.com/hashicorp/go-cleanhttp", "github.com/hashicorp/go-retryablehttp", "github.com/oklog/ulid/v2"}
	root := append([]string{"github.com/samekey/samekey", "internal/brief", "internal/canonjson", "internal/endpoint", "internal/flight", "internal/retryafter", "internal/wire", "persist"}, outside...)
	slices.Sort(root)
	require.Equal(t, root, deps("."))

	require.Equal(t, []string{"internal/brief", "persist"}, deps("./persist"), "stores know nothing of HTTP clients")
	require.Equal(t, []string{"internal/brief", "persist", "persist/memory"}, deps("./persist/memory"))
	require.Equal(t, []string{"internal/brief", "persist", "persist/sealed"}, deps("./persist/sealed"))
	require.Equal(t, []string{"mockserver"}, deps("./mockserver"), "it judges client and stores, and imports neither")
	journal := slices.DeleteFunc(deps("./persist/journal"), func(p string) bool {
		return strings.HasPrefix(p, "internal/") || strings.HasPrefix(p, "golang.org/x/sys/") // locks and fdatasync, by system
	})
	require.Equal(t, []string{"persist", "persist/journal"}, journal)
}
