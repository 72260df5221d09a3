package journal

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/samekey/samekey/internal/crashfs"
	"github.com/samekey/samekey/persist"
)

// lazyAnswer is kept in the store, and buffered.
func lazyAnswer(n int) persist.Answer {
	return persist.Answer{State: persist.Succeeded, Status: 201, Body: make([]byte, n), Lazy: true,
		KeepBody: time.Now().Add(time.Hour), KeepName: time.Now().Add(2 * time.Hour)}
}

// settledAs requires that operation i has its first key and this many bytes of answer.
func settledAs(t *testing.T, j *Journal, i, n int, note string) {
	t.Helper()
	rec, err := j.Get(context.Background(), numbered(i).Ref)
	require.NoError(t, err, note)
	require.Equal(t, persist.Succeeded, rec.State(), note)
	require.Equal(t, numbered(i).Key, rec.Key, note)
	require.Len(t, rec.Answer.Body, n, note)
}

// TestFullAtWriteKeepsBuffered: on a file system whose prewritten space is not its own, a buffered answer waits for space,
// however long and however often the disk refuses it, and meanwhile takes up no more of the segment.
func TestFullAtWriteKeepsBuffered(t *testing.T) {
	ctx := context.Background()
	disk := crashfs.New(1)
	j, err := openSim(disk, tiny)
	require.NoError(t, err)
	c := begin(t, j, 1)
	gone := begin(t, j, 2)
	named := begin(t, j, 3)
	disk.Fail(crashfs.Write, 1, -1, syscall.ENOSPC)
	require.NoError(t, j.Settle(ctx, c, lazyAnswer(1500)))
	require.NoError(t, j.Settle(ctx, gone, persist.Answer{State: persist.Succeeded, Lazy: true}))
	require.NoError(t, j.Settle(ctx, named, persist.Answer{State: persist.Rejected, Lazy: true, KeepName: time.Now().Add(time.Hour)}))
	buffered := func(j *Journal, note string) {
		settledAs(t, j, 1, 1500, note)
		_, err := j.Get(ctx, numbered(2).Ref)
		require.ErrorIs(t, err, persist.ErrNotFound, note)
		rec, err := j.Get(ctx, numbered(3).Ref)
		require.NoError(t, err, note)
		require.True(t, rec.Tombstone(), note)
		require.Equal(t, persist.Rejected, rec.State(), note)
	}
	var end loc
	for i := range 40 {
		require.ErrorIs(t, j.Flush(ctx), persist.ErrFull)
		if i == 0 {
			end = filled(j)
		}
		require.Equal(t, end, filled(j), "a retry needs no more space")
		buffered(j, "while it is full")
	}
	_, err = j.Begin(ctx, numbered(4))
	require.ErrorIs(t, err, persist.ErrFull)
	e, err := j.Begin(ctx, numbered(1))
	require.NoError(t, err)
	require.False(t, e.New, "it is known")

	disk.Heal()
	require.NoError(t, j.Flush(ctx))
	for seed := range uint64(3) {
		j2, err := openSim(disk.Crash(seed), tiny)
		require.NoError(t, err)
		buffered(j2, "after a crash")
		_, err = j2.Get(ctx, numbered(4).Ref)
		require.ErrorIs(t, err, persist.ErrNotFound, "what was refused does not come back")
		require.Empty(t, j2.Report().Damage)
		require.NoError(t, j2.Close())
	}
	begin(t, j, 4)
	require.NoError(t, j.Compact(ctx))
	buffered(j, "compacted")
	require.NoError(t, j.Close())
	j, err = openSim(disk, tiny)
	require.NoError(t, err)
	buffered(j, "reopened")
	require.True(t, func() bool { r := j.Report(); return r.Empty() }())
	require.NoError(t, j.Close())
}

// TestFullAtWriteUsedUp: the segment fills up with what was refused, and still nothing that was accepted is lost.
func TestFullAtWriteUsedUp(t *testing.T) {
	ctx := context.Background()
	disk := crashfs.New(1)
	j, err := openSim(disk, tiny)
	require.NoError(t, err)
	var claims []persist.Claim
	for i := range 40 {
		claims = append(claims, begin(t, j, i))
	}
	disk.Fail(crashfs.Write, 1, -1, syscall.ENOSPC)
	var refused []persist.Claim
	for i, c := range claims {
		if err := j.Settle(ctx, c, lazyAnswer(700)); err != nil {
			require.ErrorIs(t, err, persist.ErrFull)
			refused = append(refused, c)
		}
		for k := range 5 {
			_, err := j.Begin(ctx, numbered(1000+10*i+k))
			require.ErrorIs(t, err, persist.ErrFull)
		}
		require.ErrorIs(t, j.Flush(ctx), persist.ErrFull)
	}
	require.NotEmpty(t, refused, "there is no room for all of them")
	require.Less(t, len(refused), len(claims))
	disk.Heal()
	require.NoError(t, j.Flush(ctx))
	for _, c := range refused {
		require.NoError(t, j.Settle(ctx, c, lazyAnswer(700)))
	}
	require.NoError(t, j.Flush(ctx))
	j2, err := openSim(disk.Crash(1), tiny)
	require.NoError(t, err)
	for _, j := range []*Journal{j, j2} {
		for i := range claims {
			settledAs(t, j, i, 700, "")
		}
		require.Equal(t, len(claims), j.Stats().Operations)
		require.NoError(t, j.Close())
	}
}

// TestFullAtWriteTriesAgain: nobody asks for a flush, and with space what was buffered is written within a second.
func TestFullAtWriteTriesAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := crashfs.New(1)
		j, err := openSim(disk, 64<<10)
		require.NoError(t, err)
		c := begin(t, j, 1)
		disk.Fail(crashfs.Write, 1, -1, syscall.ENOSPC)
		require.NoError(t, j.Settle(context.Background(), c, lazyAnswer(20_000)))
		time.Sleep(time.Minute)
		settledAs(t, j, 1, 20_000, "while it is full")
		disk.Heal()
		time.Sleep(time.Second)
		j2, err := openSim(disk.Crash(1), 64<<10)
		require.NoError(t, err)
		settledAs(t, j2, 1, 20_000, "after a crash")
		require.NoError(t, j2.Close())
		require.NoError(t, j.Close())
	})
}

// TestCloseOnFullDisk: Close tells that something buffered could not be written, and the next opener finds the operation
// pending and no damage.
func TestCloseOnFullDisk(t *testing.T) {
	disk := crashfs.New(1)
	j, err := openSim(disk, tiny)
	require.NoError(t, err)
	c := begin(t, j, 1)
	disk.FailName(crashfs.Write, segmentName(1), 1, -1, syscall.ENOSPC)
	require.NoError(t, j.Settle(context.Background(), c, lazyAnswer(100)))
	require.ErrorIs(t, j.Close(), persist.ErrFull)
	disk.Heal()
	j, err = openSim(disk, tiny)
	require.NoError(t, err)
	require.Empty(t, j.Report().Damage)
	e, err := j.Claim(context.Background(), numbered(1).Ref)
	require.NoError(t, err)
	require.Equal(t, numbered(1).Key, e.Key)
	require.NoError(t, j.Close())
}

// TestBufferedCanBeReadMeanwhile: while what a full disk refused is written again, in another place, it is read from there.
func TestBufferedCanBeReadMeanwhile(t *testing.T) {
	ctx := context.Background()
	disk := crashfs.New(1)
	j, err := openSim(disk, tiny)
	require.NoError(t, err)
	c := begin(t, j, 1)
	require.NoError(t, j.Settle(ctx, begin(t, j, 2), lazyAnswer(200)))
	require.NoError(t, j.Flush(ctx))
	require.Eventually(t, func() bool { return j.Stats().Segments == 2 }, 10*time.Second, time.Millisecond) // nothing else is written
	disk.FailName(crashfs.Write, segmentName(1), 1, 1, syscall.ENOSPC)
	var done atomic.Bool
	writes, read := 0, 0
	disk.Before = func(k crashfs.Kind, name string) {
		if done.Load() || name != segmentName(1) {
			return
		}
		if k == crashfs.Write {
			writes++
		}
		if writes > 1 {
			read++
			// Not require, which would end the journal's own goroutine.
			if rec, err := j.Get(ctx, numbered(1).Ref); err != nil || rec.Answer == nil || len(rec.Answer.Body) != 300 {
				t.Errorf("before a %v: %+v, %v", k, rec, err)
			}
		}
	}
	j.mu.Lock()
	// Ahead of it lies what will be refused.
	j.push(appendRemove(nil, 1<<60), change{kind: kindVoid, calm: true})
	j.mu.Unlock()
	require.NoError(t, j.Settle(ctx, c, lazyAnswer(300)))
	require.NoError(t, j.Flush(ctx), "what was buffered is on disk")
	done.Store(true)
	require.Equal(t, 2, read, "before the second write and before its flush")
	settledAs(t, j, 1, 300, "")
	j2, err := openSim(disk.Crash(1), tiny)
	require.NoError(t, err)
	settledAs(t, j2, 1, 300, "")
	require.NoError(t, j2.Close())
	require.NoError(t, j.Close())
}

// TestPoisonedKeepsBuffered: what was buffered can be read as long as the journal is open.
func TestPoisonedKeepsBuffered(t *testing.T) {
	ctx := context.Background()
	disk := crashfs.New(1)
	j, err := openSim(disk, tiny)
	require.NoError(t, err)
	c := begin(t, j, 1)
	require.NoError(t, j.Settle(ctx, c, lazyAnswer(100)))
	disk.FailName(crashfs.Read, lockName, 1, -1, syscall.EIO) // the write is not even tried
	var p *PoisonedError
	require.ErrorAs(t, j.Flush(ctx), &p)
	settledAs(t, j, 1, 100, "poisoned")
	require.ErrorAs(t, j.Close(), &p)
}

// TestTrimIsAwaited: a segment leaves only when its trim is durable. Here the trim is refused by a full disk, and a batch
// that came to be the newest before anyone looked is not.
func TestTrimIsAwaited(t *testing.T) {
	ctx := context.Background()
	for times := 0; times < 40; { // it takes luck to meet the moment
		disk := crashfs.New(1)
		j, err := openSim(disk, tiny)
		require.NoError(t, err)
		j.compacting.Lock() // nobody else compacts
		for i := 0; j.Stats().Segments < 3; i++ {
			begin(t, j, i)
		}
		var refused, stop atomic.Bool
		var wg sync.WaitGroup
		for range 4 { // so many that one of them gets the lock as soon as it is free
			wg.Go(func() {
				for !stop.Load() {
					j.mu.Lock()
					if b := j.fill; !refused.Load() && slices.ContainsFunc(b.changes, func(c change) bool { return c.kind == kindTrim }) {
						refused.Store(true)
						disk.Fail(crashfs.Write, 1, 1, syscall.ENOSPC)
						j.queue = append(j.queue, b)
						j.fill = j.newBatch(b.seg, b.end())
						j.push(appendRemove(nil, 1<<60), change{kind: kindVoid})
					}
					j.mu.Unlock()
				}
			})
		}
		err = j.compactOldest(ctx)
		stop.Store(true)
		wg.Wait()
		image := disk.Kill()
		j.compacting.Unlock()
		require.NoError(t, j.Close())
		require.Empty(t, checkSim(t, image).report.Damage)
		if err != nil { // else the disk has refused a batch before it, if any
			require.True(t, refused.Load())
			require.ErrorIs(t, err, persist.ErrFull)
			times++
		}
	}
}
