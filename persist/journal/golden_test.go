package journal

import (
	"context"
	"flag"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/samekey/samekey/internal/crashfs"
	"github.com/samekey/samekey/persist"
)

var update = flag.Bool("update-golden", false, "write testdata/v1 anew; only before version 1 was released")

var far = time.Date(2250, 1, 2, 3, 4, 5, 6, time.UTC)

// goldenRecords are what testdata/v1 holds, in order of age.
func goldenRecords() []persist.Record {
	full := persist.Record{
		Ref: persist.Ref{Scope: "tenant", ID: "full"}, Named: true, Created: time.Unix(1, 2).UTC(), Key: "key", Method: "PATCH", Target: "https://x.test/a?b=c",
		Header: http.Header{"Content-Type": {"application/json"}, "X-None": {}, "X-Two": {"1", "2"}}, Omitted: []string{"Authorization", "token"},
		Body: []byte(`{"a":1}`), Fingerprint: [32]byte{1, 2, 31: 3}, KeyLife: -1, Progress: persist.Progress{
			Attempts: 3, FirstSent: time.Unix(3, 0).UTC(), Seen: time.Unix(4, 5).UTC(), NotBefore: time.Unix(6, 0).UTC(), Parked: true,
			PollURL: "https://x.test/ops/1", LastStatus: 503, LastError: "unavailable"},
	}
	answered := persist.Record{
		Ref: persist.Ref{ID: "answered"}, Created: time.Unix(2, 0).UTC(), Key: "k2", Method: "POST", Target: "https://x.test/", Body: []byte{}, KeyLife: time.Hour,
		Progress: persist.Progress{Attempts: 1}, Answer: &persist.Answer{State: persist.Conflicted, Status: 409, Header: http.Header{"A": {"b"}}, Body: []byte("no"),
			Truncated: true, Reason: "mismatch", KeepBody: far, KeepName: far.Add(time.Hour), Owed: true},
	}
	replaced := persist.Record{Ref: persist.Ref{ID: "replaced"}, Created: time.Unix(3, 0).UTC(), Key: "new", Method: "POST", Target: "https://x.test/", KeyLife: time.Minute}
	return []persist.Record{full, answered, replaced}
}

func writeGolden(t *testing.T, dir string) {
	ctx := context.Background()
	disk := crashfs.New(1)
	j, err := openSim(disk, tiny)
	require.NoError(t, err)
	recs := goldenRecords()
	must := func(e persist.Entry, err error) persist.Claim { require.NoError(t, err); return e.Claim }
	full := recs[0]
	full.Progress = persist.Progress{Attempts: 1}
	require.NoError(t, j.Mark(ctx, must(j.Begin(ctx, full)), recs[0].Progress))
	answered := recs[1]
	answered.Answer = nil
	require.NoError(t, j.Settle(ctx, must(j.Begin(ctx, answered)), *recs[1].Answer))
	old := recs[2]
	old.Key = "old"
	require.NoError(t, j.Replace(ctx, must(j.Begin(ctx, old)), recs[2]))
	tomb := numbered(1)
	require.NoError(t, j.Settle(ctx, must(j.Begin(ctx, tomb)), persist.Answer{State: persist.Rejected, Status: 400, KeepName: far}))
	require.NoError(t, j.Settle(ctx, must(j.Begin(ctx, numbered(2))), persist.Answer{State: persist.Succeeded, Lazy: true}))
	gone := must(j.Begin(ctx, numbered(3)))
	require.NoError(t, j.Release(ctx, gone))
	require.NoError(t, j.Forget(ctx, gone.Ref))
	require.NoError(t, j.Close())
	require.NoError(t, os.MkdirAll(dir, 0o700))
	names, err := disk.Names()
	require.NoError(t, err)
	for _, n := range names {
		require.NoError(t, os.WriteFile(filepath.Join(dir, n), disk.Bytes(n), 0o600))
	}
}

// TestGoldenV1 opens files that an earlier build wrote: whatever changes, version 1 stays readable.
func TestGoldenV1(t *testing.T) {
	ctx := context.Background()
	if *update {
		writeGolden(t, "testdata/v1")
	}
	disk := crashfs.New(1)
	names, err := os.ReadDir("testdata/v1")
	require.NoError(t, err)
	for _, n := range names {
		b, err := os.ReadFile(filepath.Join("testdata/v1", n.Name()))
		require.NoError(t, err)
		disk.SetBytes(n.Name(), b)
	}
	for range 2 { // as it was, and compacted
		j, err := openSim(disk, tiny)
		require.NoError(t, err)
		require.Equal(t, Report{Dir: "/sim"}, j.Report())
		var got []persist.Record
		for r, err := range j.List(ctx, persist.Filter{}) {
			require.NoError(t, err)
			got = append(got, r)
		}
		require.Equal(t, goldenRecords(), got)
		tomb, err := j.Get(ctx, numbered(1).Ref)
		require.NoError(t, err)
		require.True(t, tomb.Tombstone())
		require.Equal(t, &persist.Answer{State: persist.Rejected, KeepName: far}, tomb.Answer)
		for _, i := range []int{2, 3} {
			_, err = j.Get(ctx, numbered(i).Ref)
			require.ErrorIs(t, err, persist.ErrNotFound)
		}
		require.NoError(t, j.Compact(ctx))
		require.NoError(t, j.Close())
	}
}
