package tool

import (
	"encoding/json"
	"regexp"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestVersion: the journal's format is that of a journal which this build has made.
func TestVersion(t *testing.T) {
	r := run(t, "version")
	require.Zero(t, r.code, r.err)
	require.Empty(t, r.err)
	require.Regexp(t, `^program  samekey \S+\nmodule   github\.com/samekey/samekey \S+\ngo       `+regexp.QuoteMeta(runtime.Version())+`\njournal  format version \d+\n$`, r.out)
	require.Equal(t, r, run(t, "-version"))
	require.Equal(t, r, run(t, "--version"))

	dir := newDir(t)
	enqueued(t, dir, "http://api.bank.test", "order-1")
	var c checked
	require.NoError(t, json.Unmarshal([]byte(run(t, "check", dir, "-json").out), &c))
	require.EqualValues(t, journalFormat, c.Version)
	var v version
	require.NoError(t, json.Unmarshal([]byte(run(t, "version", "-json").out), &v))
	require.Equal(t, []format{{"journal", "format version 1"}}, v.Formats)
	require.Equal(t, runtime.Version(), v.Go)
}
