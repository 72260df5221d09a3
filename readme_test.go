package samekey_test

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestReadme holds README's first program and the Example that runs it together.
func TestReadme(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	require.NoError(t, err)
	example, err := os.ReadFile("example_readme_test.go")
	require.NoError(t, err)
	_, program, ok := strings.Cut(string(readme), "```go\n")
	require.True(t, ok)
	program, _, ok = strings.Cut(program, "```\n")
	require.True(t, ok)
	require.Contains(t, string(example), "\n"+program)
}
