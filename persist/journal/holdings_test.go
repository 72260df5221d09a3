package journal

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/samekey/samekey/internal/crashfs"
	"github.com/samekey/samekey/persist"
)

// TestLostSegment: a file that somebody deleted is missed.
func TestLostSegment(t *testing.T) {
	ctx := context.Background()
	disk := crashfs.New(1)
	j, err := openSim(disk, tiny)
	require.NoError(t, err)
	for i := range 200 {
		begin(t, j, i)
	}
	require.NoError(t, j.Close())
	names, err := disk.Names()
	require.NoError(t, err)
	require.Greater(t, len(names), 4)
	for _, n := range names {
		if n == lockName || n == names[len(names)-2] {
			continue // the lock, and the segment that was prepared and may go
		}
		f := disk.Kill()
		require.NoError(t, f.Remove(n))
		j, err := openSim(f, tiny)
		require.NoError(t, err)
		require.NotEmpty(t, j.Report().Damage, "%s of %v", n, names)
		for _, err := range j.List(ctx, persist.Filter{}) {
			require.NoError(t, err)
		}
		require.NoError(t, j.Close())
	}
	// All of it gone is not a new journal.
	f := disk.Kill()
	for _, n := range names {
		if n != lockName {
			require.NoError(t, f.Remove(n))
		}
	}
	j, err = openSim(f, tiny)
	require.NoError(t, err)
	require.NotEmpty(t, j.Report().Damage)
	require.NoError(t, j.Close())
}

func TestLargeRecords(t *testing.T) {
	ctx := context.Background()
	dir := filepath.Join(t.TempDir(), "j")
	j := openDisk(t, dir, small)
	var recs []persist.Record
	for i, n := range []int{10, 60 << 10, 70 << 10, 1 << 20, 5, 3 << 20} {
		rec := numbered(i)
		rec.Body = []byte(strings.Repeat(fmt.Sprint(i), n))
		_, err := j.Begin(ctx, rec)
		require.NoError(t, err)
		recs = append(recs, rec)
	}
	require.NoError(t, j.Close())
	j = openDisk(t, dir, small)
	require.NoError(t, j.Compact(ctx))
	for _, rec := range recs {
		got, err := j.Get(ctx, rec.Ref)
		require.NoError(t, err)
		require.Equal(t, describe(rec), describe(got))
	}
}

// TestRetentionLeavesTheDisk: past KeepBody the bytes go, past KeepName the name.
func TestRetentionLeavesTheDisk(t *testing.T) {
	ctx := context.Background()
	disk := crashfs.New(1)
	j, err := openSim(disk, tiny)
	require.NoError(t, err)
	soon := time.Now().Add(30 * time.Millisecond)
	for i, until := range []time.Time{time.Now().Add(time.Hour), soon} {
		rec := numbered(i)
		rec.Body = []byte("SECRET-REQUEST")
		e, err := j.Begin(ctx, rec)
		require.NoError(t, err)
		require.NoError(t, j.Settle(ctx, e.Claim, persist.Answer{State: persist.Succeeded, Status: 200, Body: []byte("SECRET-ANSWER"), KeepBody: soon, KeepName: until}))
	}
	onDisk := func(s string) bool {
		names, err := disk.Names()
		require.NoError(t, err)
		for _, n := range names {
			if strings.Contains(string(disk.Bytes(n)), s) {
				return true
			}
		}
		return false
	}
	require.True(t, onDisk("SECRET-ANSWER"))
	time.Sleep(time.Until(soon) + time.Millisecond)
	require.NoError(t, j.Compact(ctx))
	require.False(t, onDisk("SECRET"))
	require.True(t, onDisk("op-00"))
	require.False(t, onDisk("op-01"))
	require.Equal(t, 1, j.Stats().Operations)
	require.LessOrEqual(t, j.Stats().LiveBytes, int64(64+len("sop-00")), "a tombstone is small")
	require.NoError(t, j.Close())
	l := checkSim(t, disk)
	require.Equal(t, 1, l.idx.count)
}

// TestBesideAnOwner: Check and ReadOnly look at a journal that is being written, take no lock and see no damage.
func TestBesideAnOwner(t *testing.T) {
	ctx := context.Background()
	dir := filepath.Join(t.TempDir(), "j")
	j := openDisk(t, dir, small)
	for i := range 50 {
		begin(t, j, 1000+i)
	}
	done := make(chan struct{})
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-done:
					return
				default:
				}
				rec := numbered(i)
				rec.Scope = fmt.Sprint(w)
				e, err := j.Begin(ctx, rec)
				if err == nil {
					err = j.Settle(ctx, e.Claim, persist.Answer{State: persist.Succeeded, Lazy: true})
				}
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	for range 60 {
		r, err := Check(dir)
		require.NoError(t, err)
		require.True(t, r.OK(), "%+v", r.Damage)
		require.GreaterOrEqual(t, r.Pending, 50)
		v, err := ReadOnly(dir)
		require.NoError(t, err)
		scope := "s"
		n := 0
		for _, err := range v.List(ctx, persist.Filter{Scope: &scope, States: []persist.State{persist.Pending}}) {
			require.NoError(t, err)
			n++
		}
		require.Equal(t, 50, n)
		require.NoError(t, v.Close())
	}
	close(done)
	wg.Wait()
	require.NoError(t, j.Close())
	r, err := Check(dir)
	require.NoError(t, err)
	require.Equal(t, 50, r.States[persist.Pending])
	require.Equal(t, 50, r.Pending)
	require.Positive(t, r.DiskBytes)
	require.Equal(t, int64(1000), r.Oldest.Unix())
	_, err = Check(filepath.Join(dir, "none"))
	require.ErrorIs(t, err, os.ErrNotExist)
}
