package journal

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/samekey/samekey/internal/crashfs"
	"github.com/samekey/samekey/persist"
)

// TestCloseWaitsForCompaction: a compaction that is deleting files does so under the lock, not beside the next owner.
func TestCloseWaitsForCompaction(t *testing.T) {
	ctx := context.Background()
	disk := crashfs.New(1)
	deleting, goOn := make(chan struct{}), make(chan struct{})
	var armed atomic.Bool
	disk.Before = func(k crashfs.Kind, _ string) {
		if k == crashfs.Remove && armed.CompareAndSwap(true, false) {
			close(deleting)
			<-goOn
		}
	}
	j, err := openSim(disk, tiny)
	require.NoError(t, err)
	for i := 0; filled(j).seg < 3; i++ {
		begin(t, j, i)
	}
	j.cancel()
	j.tending.Wait() // it is the caller's own compaction that is meant
	armed.Store(true)
	go func() { _ = j.Compact(ctx) }()
	<-deleting
	closed := make(chan error)
	go func() { closed <- j.Close() }()
	require.Eventually(t, func() bool { j.mu.Lock(); defer j.mu.Unlock(); return j.closed }, 10*time.Second, time.Millisecond)
	_, err = open(within(t, 300*time.Millisecond), simFS{disk}, "/sim", Options{SegmentSize: tiny, Logger: quiet})
	require.ErrorAs(t, err, new(*InUseError))
	close(goOn)
	require.NoError(t, <-closed)
	require.Zero(t, disk.Handles())
	require.Empty(t, checkSim(t, disk).report.Damage)
}

// TestNothingWaitsForAClosedJournal: who comes after Close, on a full disk that kept it from writing, is not left waiting
// for a writer that has gone.
func TestNothingWaitsForAClosedJournal(t *testing.T) {
	disk := crashfs.New(1)
	j, err := openSim(disk, tiny)
	require.NoError(t, err)
	c := begin(t, j, 1)
	for i := 2; filled(j).seg < 3; i++ {
		begin(t, j, i)
	}
	disk.Fail(crashfs.Write, 1, -1, syscall.ENOSPC)
	require.NoError(t, j.Settle(context.Background(), c, lazyAnswer(100)))
	require.ErrorIs(t, j.Close(), persist.ErrFull)
	require.ErrorIs(t, j.compactOldest(within(t, 5*time.Second)), persist.ErrClosed)
	require.ErrorIs(t, j.Compact(within(t, 5*time.Second)), persist.ErrClosed)
}

// TestCompactionDoesNotHoldContexts: on a full disk a change may have to wait for a compaction; when its context ends, it
// leaves.
func TestCompactionDoesNotHoldContexts(t *testing.T) {
	disk := crashfs.New(1)
	j, err := openSim(disk, tiny)
	require.NoError(t, err)
	disk.SetSpace(0)
	c := begin(t, j, 1)
	j.compacting.Lock() // one that hangs
	inTime(t, "Mark", func() {
		for err == nil {
			ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
			err = j.Mark(ctx, c, persist.Progress{Attempts: 2, LastError: strings.Repeat("x", 300)})
			cancel()
		}
	})
	require.True(t, errors.Is(err, context.DeadlineExceeded) || errors.Is(err, persist.ErrFull), err)
	require.ErrorIs(t, j.Compact(within(t, time.Millisecond)), context.DeadlineExceeded)
	j.compacting.Unlock()
	require.NoError(t, j.Close())
}

// TestLongTombstonesAreCounted as what they take: a sweep does not make them look like waste, or every sweep would start a
// compaction.
func TestLongTombstonesAreCounted(t *testing.T) {
	ctx := context.Background()
	disk := crashfs.New(1)
	j, err := openSim(disk, tiny)
	require.NoError(t, err)
	for i := range 100 {
		rec := numbered(i)
		rec.ID += strings.Repeat("x", 500)
		e, err := j.Begin(ctx, rec)
		require.NoError(t, err)
		require.NoError(t, j.Settle(ctx, e.Claim, persist.Answer{State: persist.Succeeded, KeepName: time.Now().Add(time.Hour)}))
	}
	require.NoError(t, j.Compact(ctx))
	live := j.Stats().LiveBytes
	require.Greater(t, live, int64(100*500))
	j.sweep(time.Now())
	require.Equal(t, live, j.Stats().LiveBytes)
	j.mu.Lock()
	require.False(t, j.wasteful())
	j.mu.Unlock()
	require.NoError(t, j.Close())
}

// TestRemoveFailsOnce: a file that could not be removed is not removed later, when its name is that of a segment in use.
func TestRemoveFailsOnce(t *testing.T) {
	ctx := context.Background()
	disk := crashfs.New(1)
	j, err := openSim(disk, tiny)
	require.NoError(t, err)
	churnSim(t, j)
	disk.FailName(crashfs.Remove, j.next.name, 1, 1, syscall.EIO)
	require.ErrorIs(t, j.Compact(ctx), syscall.EIO)
	first := filled(j).seg
	n := 0
	for ; filled(j).seg < first+2; n++ {
		begin(t, j, 10_000+n)
	}
	require.NoError(t, j.Compact(ctx))
	begin(t, j, 10_000+n)
	for _, f := range []*crashfs.FS{disk.Kill(), disk.Crash(1)} {
		j2, err := openSim(f, tiny)
		require.NoError(t, err)
		require.Empty(t, j2.Report().Damage)
		for i := range n + 1 {
			_, err := j2.Get(ctx, numbered(10_000+i).Ref)
			require.NoError(t, err)
		}
		require.NoError(t, j2.Close())
	}
	require.NoError(t, j.Close())
}

// TestDirectoryFlushFails for one file while another is being made: the other's name is durable before it is used.
func TestDirectoryFlushFails(t *testing.T) {
	for seed := range uint64(10) {
		disk := crashfs.New(seed)
		met := false
		var j *Journal
		disk.Before = func(k crashfs.Kind, name string) {
			if k == crashfs.Sync && name == segmentName(2) && !met { // made, and not yet finished
				met = true
				disk.Fail(crashfs.SyncDir, 1, 1, syscall.EIO)
				if err := j.removeLeftovers(); !errors.Is(err, syscall.EIO) {
					t.Errorf("flush of the directory: %v", err)
				}
			}
		}
		var err error
		j, err = openSim(disk, tiny)
		require.NoError(t, err)
		j.compacting.Lock()
		j.leftover = []string{"no such file"}
		n := 0
		for ; filled(j).seg < 2; n++ {
			begin(t, j, n)
		}
		begin(t, j, n)
		require.True(t, met)
		j2, err := openSim(disk.Crash(seed), tiny)
		require.NoError(t, err)
		_, err = j2.Get(context.Background(), numbered(n).Ref)
		require.NoError(t, err)
		require.Empty(t, j2.Report().Damage)
		require.NoError(t, j2.Close())
		j.compacting.Unlock()
		require.NoError(t, j.Close())
	}
}

// TestDamagedTrim: what a kept file holds stays out of the journal although the frame that says so is damaged.
func TestDamagedTrim(t *testing.T) {
	ctx := context.Background()
	disk := crashfs.New(1)
	j, err := openSim(disk, tiny)
	require.NoError(t, err)
	j.compacting.Lock() // nobody else compacts
	var claims []persist.Claim
	for filled(j).seg == 1 {
		claims = append(claims, begin(t, j, len(claims)))
	}
	for _, c := range claims {
		require.NoError(t, j.Settle(ctx, c, persist.Answer{State: persist.Succeeded}))
	}
	for i := 1000; filled(j).seg == 2; i++ {
		require.NoError(t, j.Settle(ctx, begin(t, j, i), persist.Answer{State: persist.Succeeded}))
	}
	require.NoError(t, j.compactOldest(ctx))
	require.NoError(t, j.compactOldest(ctx))
	require.NotNil(t, j.old)
	require.Equal(t, uint32(1), j.old.seq)
	begin(t, j, 2000)
	image := disk.Kill()
	trims := 0
	b := image.Bytes(segmentName(3))
	for _, f := range framesOf(t, b, 3) {
		if f.payload[0] == kindTrim {
			b[f.off+frameHeader+2] ^= 1
			trims++
		}
	}
	require.Equal(t, 2, trims)
	image.SetBytes(segmentName(3), b)
	j.compacting.Unlock()
	require.NoError(t, j.Close())

	j, err = openSim(image, tiny)
	require.NoError(t, err)
	require.NotEmpty(t, j.Report().Damage)
	for i := range claims {
		_, err := j.Get(ctx, numbered(i).Ref)
		require.ErrorIs(t, err, persist.ErrNotFound, "%d", i)
	}
	_, err = j.Get(ctx, numbered(2000).Ref)
	require.NoError(t, err)
	require.NoError(t, j.Close())
	names, err := image.Names()
	require.NoError(t, err)
	require.NotContains(t, names, "0000000001.old", "it is removed")
}

// framesOf reads the frames of a segment where they lie.
func framesOf(t *testing.T, b []byte, seq uint32) (out []frame) {
	im := &image{b: b, end: dataStart}
	im.readTop(seq)
	require.NoError(t, im.walk(func(f *frame) error { out = append(out, *f); return nil }))
	return out
}

// TestViewOutlivesCompaction: files that a View in another process may still read are not made into new segments.
func TestViewOutlivesCompaction(t *testing.T) {
	ctx := context.Background()
	dir := filepath.Join(t.TempDir(), "j")
	j := openDisk(t, dir, small)
	for i := range 50 {
		begin(t, j, i)
	}
	v, err := ReadOnly(dir)
	require.NoError(t, err)
	reused := 0
	for i := 0; reused < 3; i++ {
		require.Less(t, i, 100_000)
		require.NoError(t, j.Settle(ctx, begin(t, j, 1000+i), persist.Answer{State: persist.Succeeded, Lazy: true}))
		j.mu.Lock()
		if j.next != nil && j.next.stale {
			reused = max(reused, int(j.next.seq)-int(v.l.segs[0].seq))
		}
		j.mu.Unlock()
	}
	require.NoError(t, j.Compact(ctx))
	for i := range 300 {
		begin(t, j, 200_000+i)
	}
	n := 0
	for rec, err := range v.List(ctx, persist.Filter{}) {
		require.NoError(t, err)
		require.Equal(t, describe(numbered(n)), describe(rec))
		n++
	}
	require.Equal(t, 50, n)
	require.NoError(t, v.Close())
}

// TestTornHeader: a crash tears the first header that is written of a new segment, the second one. Nothing is lost with it.
func TestTornHeader(t *testing.T) {
	disk := crashfs.New(1)
	j, err := openSim(disk, tiny)
	require.NoError(t, err)
	begin(t, j, 1)
	require.NoError(t, j.Close())
	h := header{version: formatVersion, seq: 2, salt: newSalt(), size: tiny, first: 1, gen: 1}
	for at, damaged := range map[int]bool{headerCopy: false, 0: true, headerCopy + 32: true, dataStart: true} {
		f := disk.Kill()
		b := make([]byte, tiny)
		copy(b[at:], h.encode()[:40])
		f.SetBytes(segmentName(2), b)
		require.Equal(t, damaged, len(checkSim(t, f).report.Damage) > 0, at)
		j, err := openSim(f, tiny)
		require.NoError(t, err)
		require.Equal(t, damaged, len(j.Report().Damage) > 0, at)
		require.Equal(t, !damaged, len(j.Report().Notes) > 0, at)
		_, err = j.Get(context.Background(), numbered(1).Ref)
		require.NoError(t, err)
		require.NoError(t, j.Close())
		require.Empty(t, checkSim(t, f).report.Damage)
	}
}

// TestNoGapBehindDamage: a segment that was never finished gives its number back.
func TestNoGapBehindDamage(t *testing.T) {
	disk := fifty(t)
	b := disk.Bytes(segmentName(1))
	b[dataStart+300] ^= 1
	disk.SetBytes(segmentName(1), b)
	disk.SetBytes(segmentName(2), make([]byte, 100))
	before := checkSim(t, disk).report.Damage
	require.Len(t, before, 1)
	j, err := openSim(disk, damageSize)
	require.NoError(t, err)
	require.Equal(t, uint32(2), filled(j).seg)
	after := checkSim(t, disk.Kill()).report.Damage
	require.Subset(t, before, after)
	require.NoError(t, j.Compact(context.Background()))
	require.NoError(t, j.Close())
	require.Empty(t, checkSim(t, disk).report.Damage)
}

// TestCheckMissesWhatOpenMisses: the last segments are gone, the last entries, or all of it.
func TestCheckMissesWhatOpenMisses(t *testing.T) {
	disk := crashfs.New(1)
	j, err := openSim(disk, tiny)
	require.NoError(t, err)
	for i := 0; filled(j).seg < 4; i++ {
		begin(t, j, i)
	}
	begin(t, j, 999)
	require.NoError(t, j.Close())
	names, err := disk.Names()
	require.NoError(t, err)
	lost := map[string]func(f *crashfs.FS){
		"last segment": func(f *crashfs.FS) { require.NoError(t, f.Remove(segmentName(4))) },
		"all of them": func(f *crashfs.FS) {
			for _, n := range names {
				if n != lockName {
					require.NoError(t, f.Remove(n))
				}
			}
		},
		"last entries": func(f *crashfs.FS) {
			b := f.Bytes(segmentName(4))
			clear(b[dataStart+linkFrame:])
			f.SetBytes(segmentName(4), b)
		},
		"contents": func(f *crashfs.FS) { f.SetBytes(segmentName(4), make([]byte, tiny)) },
	}
	for name, lose := range lost {
		t.Run(name, func(t *testing.T) {
			f := disk.Kill()
			lose(f)
			seen := checkSim(t, f).report.Damage
			require.NotEmpty(t, seen)
			j, err := openSim(f, tiny)
			require.NoError(t, err)
			require.Equal(t, seen, j.Report().Damage)
			killed := f.Kill()
			require.NoError(t, j.Close())
			j, err = openSim(killed, tiny)
			require.NoError(t, err)
			require.Empty(t, j.Report().Damage, "it is told once")
			require.NoError(t, j.Close())
		})
	}
}
