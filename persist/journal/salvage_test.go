package journal

import (
	"context"
	"os"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/samekey/samekey/internal/crashfs"
	"github.com/samekey/samekey/persist"
)

// rot flips a bit in the payload of the frame at l, and returns the frame as it is then.
func rot(t *testing.T, disk *crashfs.FS, l loc) []byte {
	t.Helper()
	f, err := disk.OpenFile(segmentName(l.seg), os.O_RDWR)
	require.NoError(t, err)
	at := int64(l.off)
	n := int64(le.Uint32(disk.Bytes(segmentName(l.seg))[at+16:])) + frameHeader
	b := disk.Bytes(segmentName(l.seg))[at : at+n]
	b[n-2] ^= 1
	_, err = f.WriteAt(b[n-2:n-1], at+n-2)
	require.NoError(t, err)
	require.NoError(t, f.Sync())
	require.NoError(t, f.Close())
	return b
}

// where tells where the parts of operation i lie.
func where(j *Journal, i int) slot {
	j.mu.Lock()
	defer j.mu.Unlock()
	return *j.idx.at(j.idx.first(j.idx.hash(numbered(i).Ref)))
}

// filled tells how far the log goes.
func filled(j *Journal) loc {
	j.mu.Lock()
	defer j.mu.Unlock()
	return loc{j.fill.seg.seq, uint32(j.fill.end())}
}

// TestDamagedPartIsLeftOut: bits of an answer, or of a mark, rot while the journal runs, in another segment than that of
// the request. Compaction keeps the operation: pending, or settled, with its key, as a new opener would find it.
func TestDamagedPartIsLeftOut(t *testing.T) {
	ctx := context.Background()
	progress := persist.Progress{Attempts: 2, FirstSent: time.Unix(50, 0).UTC(), NotBefore: time.Unix(1<<31, 5).UTC(), Parked: true}
	answer := lazyAnswer(40)
	answer.Lazy = false
	const ( // what rots
		ans = 1 << iota
		mark
		put
	)
	for name, c := range map[string]struct {
		rots int
		keep time.Duration // of the answer's body
		want func(t *testing.T, rec persist.Record, err error)
	}{
		"answer": {ans, time.Hour, func(t *testing.T, rec persist.Record, err error) {
			require.NoError(t, err)
			require.Nil(t, rec.Answer)
			require.Equal(t, progress, rec.Progress)
		}},
		"mark": {mark, 0, func(t *testing.T, rec persist.Record, err error) {
			require.NoError(t, err)
			require.Nil(t, rec.Answer)
			require.Equal(t, persist.Progress{Attempts: 1, FirstSent: numbered(1).Created.UTC(), NotBefore: progress.NotBefore, Parked: true},
				rec.Progress, "it may have been sent, and waits as it did")
		}},
		"mark of a settled one": {mark, time.Hour, func(t *testing.T, rec persist.Record, err error) {
			require.NoError(t, err)
			require.Equal(t, answer.Body, rec.Answer.Body)
		}},
		"both": {ans | mark, time.Hour, func(t *testing.T, rec persist.Record, err error) {
			require.NoError(t, err)
			require.Nil(t, rec.Answer)
			require.Equal(t, 1, rec.Progress.Attempts)
		}},
		"answer that is told no more": {ans, 500 * time.Millisecond, func(t *testing.T, rec persist.Record, err error) {
			require.NoError(t, err)
			require.True(t, rec.Tombstone())
			require.Equal(t, persist.Succeeded, rec.State(), "memory knows it")
		}},
		"request": {put, time.Hour, func(t *testing.T, _ persist.Record, err error) {
			require.ErrorIs(t, err, persist.ErrNotFound)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			disk := crashfs.New(1)
			j, err := openSim(disk, tiny)
			require.NoError(t, err)
			rec := numbered(1)
			rec.Progress.Attempts = 0 // enqueued
			e, err := j.Begin(ctx, rec)
			require.NoError(t, err)
			for i := 2; filled(j).seg == 1; i++ {
				begin(t, j, i)
			}
			require.NoError(t, j.Mark(ctx, e.Claim, progress))
			if c.keep > 0 {
				a := answer
				a.KeepBody = time.Now().Add(c.keep)
				require.NoError(t, j.Settle(ctx, e.Claim, a))
			} else {
				require.NoError(t, j.Release(ctx, e.Claim))
			}
			begin(t, j, 1000)
			s := where(j, 1)
			damaged := map[loc][]byte{}
			for bit, l := range map[int]loc{ans: s.ans, mark: s.mark, put: s.put} {
				if c.rots&bit != 0 {
					damaged[l] = rot(t, disk, l)
				}
			}
			if c.keep < time.Minute {
				time.Sleep(c.keep)
			}
			_, err = j.Get(ctx, rec.Ref)
			var de *DamagedError
			require.ErrorAs(t, err, &de)
			require.NoError(t, j.Compact(ctx))
			check := func(j *Journal) {
				got, err := j.Get(ctx, rec.Ref)
				c.want(t, got, err)
				if err == nil && !got.Tombstone() {
					require.Equal(t, rec.Key, got.Key)
					require.Equal(t, rec.Body, got.Body)
				}
			}
			check(j)
			require.Len(t, j.Report().Damage, len(damaged))
			for _, d := range j.Report().Damage {
				b := damaged[loc{seqOf(d.File), uint32(d.Offset)}]
				require.NotNil(t, b, d)
				require.Equal(t, int64(len(b)), d.Length)
				require.Equal(t, b, disk.Bytes(d.Quarantine), "the damaged frame itself is kept")
			}
			require.NoError(t, j.Compact(ctx))
			require.Len(t, j.Report().Damage, len(damaged), "it is told once")
			crashed := disk.Crash(1)
			require.NoError(t, j.Close())
			for _, f := range []*crashfs.FS{disk, crashed} {
				require.Empty(t, checkSim(t, f).report.Damage)
				j, err := openSim(f, tiny)
				require.NoError(t, err)
				check(j)
				require.NoError(t, j.Close())
			}
		})
	}
}

// TestDamagedAnswerIsDueAgain: what has become pending is found by recovery, and can be settled.
func TestDamagedAnswerIsDueAgain(t *testing.T) {
	ctx := context.Background()
	disk := crashfs.New(1)
	j, err := openSim(disk, tiny)
	require.NoError(t, err)
	c := begin(t, j, 1)
	a := lazyAnswer(40)
	a.Lazy = false
	require.NoError(t, j.Settle(ctx, c, a))
	require.Zero(t, j.Stats().Pending)
	rot(t, disk, where(j, 1).ans)
	require.NoError(t, j.Compact(ctx))
	require.Equal(t, 1, j.Stats().Pending)
	es, err := j.ClaimDue(ctx, 10)
	require.NoError(t, err)
	require.Len(t, es, 1)
	require.Equal(t, numbered(1).Key, es[0].Key)
	require.NoError(t, j.Settle(ctx, es[0].Claim, a))
	settledAs(t, j, 1, 40, "")
	require.NoError(t, j.Close())
}

// TestUnreadableForAWhile: a disk that refuses to be read may come back; only after a minute a record is given up.
func TestUnreadableForAWhile(t *testing.T) {
	for _, heals := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			ctx := context.Background()
			disk := crashfs.New(1)
			j, err := openSim(disk, tiny)
			require.NoError(t, err)
			require.NoError(t, j.Release(ctx, begin(t, j, 1)))
			disk.FailName(crashfs.Read, segmentName(1), 1, -1, syscall.EIO)
			require.ErrorIs(t, j.Compact(ctx), syscall.EIO)
			time.Sleep(50 * time.Second)
			require.ErrorIs(t, j.Compact(ctx), syscall.EIO)
			require.Empty(t, j.Report().Damage)
			if heals {
				disk.Heal()
			}
			time.Sleep(3 * time.Minute)
			require.NoError(t, j.Compact(ctx))
			_, err = j.Claim(ctx, numbered(1).Ref)
			if heals {
				require.NoError(t, err)
				require.Empty(t, j.Report().Damage)
			} else {
				require.ErrorIs(t, err, persist.ErrNotFound)
				require.Len(t, j.Report().Damage, 1)
			}
			require.NoError(t, j.Close())
		})
	}
}

// TestForgetDamaged: a name whose record cannot be read back is free again once it is forgotten.
func TestForgetDamaged(t *testing.T) {
	ctx := context.Background()
	for _, settled := range []bool{false, true} {
		disk := crashfs.New(1)
		j, err := openSim(disk, tiny)
		require.NoError(t, err)
		c := begin(t, j, 1)
		if settled {
			a := lazyAnswer(40)
			a.Lazy = false
			require.NoError(t, j.Settle(ctx, c, a))
		}
		begin(t, j, 2)
		s := where(j, 1)
		var kept []byte
		j.compacting.Lock() // which would do it as well
		if settled {
			kept = rot(t, disk, s.ans)
		} else {
			kept = rot(t, disk, s.put)
			require.ErrorIs(t, j.Forget(ctx, numbered(1).Ref), persist.ErrBusy, "somebody holds it")
			require.NoError(t, j.Release(ctx, c))
		}
		var de *DamagedError
		_, err = j.Begin(ctx, numbered(1))
		require.ErrorAs(t, err, &de)
		require.NoError(t, j.Forget(ctx, numbered(1).Ref))
		require.ErrorIs(t, j.Forget(ctx, numbered(1).Ref), persist.ErrNotFound)
		require.Len(t, j.Report().Damage, 1)
		require.Equal(t, kept, disk.Bytes(j.Report().Damage[0].Quarantine))
		j2, err := openSim(disk.Crash(1), tiny)
		require.NoError(t, err)
		_, err = j2.Get(ctx, numbered(1).Ref)
		require.ErrorIs(t, err, persist.ErrNotFound, "it is durable")
		require.NoError(t, j2.Close())
		begin(t, j, 1)
		_, err = j.Get(ctx, numbered(2).Ref)
		require.NoError(t, err)
		j.compacting.Unlock()
		require.NoError(t, j.Close())
	}
}

// TestScarceIsJudgedAnew: on a full disk compaction moves what little is alive; when a write of it is refused, it tries
// again, and what it tried before does not count as more.
func TestScarceIsJudgedAnew(t *testing.T) {
	ctx := context.Background()
	disk := crashfs.New(1)
	j, err := openSim(disk, tiny)
	require.NoError(t, err)
	j.compacting.Lock() // nobody else compacts
	alive := int64(0)
	for i := 0; filled(j).seg == 1; i++ {
		c := begin(t, j, i)
		if size := int64(where(j, i).size); alive+size < (tiny-dataStart)/5 { // a quarter is too much
			alive += size
			continue
		}
		require.NoError(t, j.Settle(ctx, c, persist.Answer{State: persist.Succeeded, Lazy: true}))
	}
	require.NoError(t, j.Flush(ctx))
	j.mu.Lock()
	j.tight = true
	j.mu.Unlock()
	disk.FailName(crashfs.Write, segmentName(2), 1, 1, syscall.ENOSPC)
	require.NoError(t, j.compactOldest(ctx))
	require.Equal(t, uint32(2), j.segs[0].seq)
	j.compacting.Unlock()
	require.NoError(t, j.Close())
	require.Empty(t, checkSim(t, disk).report.Damage)
}
