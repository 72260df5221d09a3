package journal

import (
	"context"
	"flag"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/samekey/samekey/persist"
)

// churned is how many operations TestCaseB100Growth runs through a journal; the bars J5 and J7 speak of a million.
var churned = flag.Int("churn", 60_000, "operations of TestCaseB100Growth")

// TestCaseB100Growth runs many short operations with at most 100 pending: the disk holds four segments at most (J7), and
// what is left afterwards is opened faster than the bytes that went through could be read once (J5).
func TestCaseB100Growth(t *testing.T) {
	ctx := context.Background()
	dir := filepath.Join(t.TempDir(), "j")
	o := Options{Logger: quiet, SegmentSize: 1 << 20}
	if *churned >= 1_000_000 {
		o.SegmentSize = 0
	}
	j := openDisk(t, dir, o)
	ids := make([]string, *churned)
	for i := range ids {
		ids[i] = strconv.Itoa(i)
	}
	var most atomic.Int64
	spread(100, *churned, func(_, i int) {
		rec := benchRecord(ids[i])
		e, err := j.Begin(ctx, rec)
		if err == nil {
			err = j.Settle(ctx, e.Claim, persist.Answer{State: persist.Succeeded, Lazy: true})
		}
		if err != nil {
			panic(err)
		}
		if i%1000 == 0 {
			files, err := filepath.Glob(filepath.Join(dir, "0*")) // with one that is kept to be used again
			if err != nil {
				panic(err)
			}
			most.Store(max(most.Load(), int64(len(files))))
		}
	})
	require.LessOrEqual(t, most.Load(), int64(4), "segments on disk")
	through := j.Stats().Written
	for i := range 1000 {
		begin(t, j, 2_000_000+i)
	}
	require.NoError(t, j.Close())
	start := time.Now()
	j = openDisk(t, dir, o)
	opened := time.Since(start)
	require.Equal(t, 1000, j.Stats().Pending)
	require.NoError(t, j.Close())
	read := readOnce(t, dir, through)
	t.Logf("J7 at most %d segments of %d operations, J5 open %v against %v for reading %d MB once: %.2f", most.Load(), *churned, opened, read,
		through>>20, float64(opened)/float64(read))
}

// readOnce reads n bytes that are in the page cache.
func readOnce(t testing.TB, dir string, n int64) time.Duration {
	path := filepath.Join(filepath.Dir(dir), "plain")
	require.NoError(t, os.WriteFile(path, make([]byte, 16<<20), 0o600))
	f, err := os.Open(path)
	require.NoError(t, err)
	defer func() { _ = f.Close() }()
	buf := make([]byte, 1<<20)
	start := time.Now()
	for n > 0 {
		k, err := f.Read(buf)
		if err == io.EOF {
			_, err = f.Seek(0, io.SeekStart)
		}
		require.NoError(t, err)
		n -= int64(k)
	}
	return time.Since(start)
}

// TestMemoryPerPending is bar J6: 128 bytes beside what lies on disk.
func TestMemoryPerPending(t *testing.T) {
	// The index alone: a hundred thousand begins would be a hundred thousand records on disk.
	const n = 200_000
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := heap()
	x := newIndex()
	for i := range n {
		ref := persist.Ref{Scope: "tenant", ID: strconv.Itoa(i)}
		s := x.insert(x.hash(ref), meta{opid: uint64(i)})
		x.set(s, kindPut, meta{opid: uint64(i)}, loc{1, uint32(i)}, 700)
	}
	per := float64(heap()-before) / n
	runtime.KeepAlive(x)
	t.Logf("J6 %.1f bytes per pending operation", per)
	require.Less(t, per, 128.0)
	require.Equal(t, n, x.pending)
}
