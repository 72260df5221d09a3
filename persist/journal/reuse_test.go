package journal

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/samekey/samekey/internal/crashfs"
	"github.com/samekey/samekey/persist"
)

// churnSim runs short operations until a segment has been made from an old one.
func churnSim(t *testing.T, j *Journal) {
	t.Helper()
	for i := range 3000 {
		c := begin(t, j, i)
		require.NoError(t, j.Settle(context.Background(), c, persist.Answer{State: persist.Succeeded, Lazy: true}))
		j.mu.Lock()
		found := j.next != nil && j.next.stale
		j.mu.Unlock()
		if found {
			return
		}
	}
	t.Fatal("no segment was used again")
}

// TestOldFramesAreNone: what lies in a file that is used again stays dead, even where both headers of it are lost.
func TestOldFramesAreNone(t *testing.T) {
	ctx := context.Background()
	disk := crashfs.New(1)
	j, err := openSim(disk, tiny)
	require.NoError(t, err)
	churnSim(t, j)
	next := j.next.name
	require.NoError(t, j.Close())
	b := disk.Bytes(next)
	require.False(t, allZero(b[dataStart:]))
	clear(b[:dataStart])
	disk.SetBytes(next, b)
	j, err = openSim(disk, tiny)
	require.NoError(t, err)
	for rec, err := range j.List(ctx, persist.Filter{}) {
		require.NoError(t, err)
		require.Fail(t, "is back", rec.ID)
	}
	require.NotEmpty(t, j.Report().Damage)
	var he *HeaderError
	require.ErrorAs(t, j.Report().Damage[0].Err, &he)
	require.NoError(t, j.Close())
}

// TestReaderKeepsItsSegment: a file that somebody reads is not written over.
func TestReaderKeepsItsSegment(t *testing.T) {
	ctx := context.Background()
	disk := crashfs.New(1)
	j, err := openSim(disk, tiny)
	require.NoError(t, err)
	for i := range 150 {
		begin(t, j, i)
	}
	j.mu.Lock()
	i := j.idx.first(j.idx.hash(numbered(0).Ref))
	v := j.view(j.idx.at(i))
	j.mu.Unlock()
	require.NoError(t, j.compactWhile(ctx, func() bool { return v.put.seg >= j.segs[0].seq }))
	for k := 1000; k < 1200; k++ {
		begin(t, j, k)
	}
	rec, lost := v.record()
	require.Empty(t, lost)
	require.Equal(t, describe(numbered(0)), describe(rec))
	j.mu.Lock()
	require.NotSame(t, v.put.from, j.old)
	j.unview(v)
	require.Zero(t, v.put.from.refs)
	j.mu.Unlock()
	require.NoError(t, j.Close())
}
