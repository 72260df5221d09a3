package journal

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/samekey/samekey/internal/crashfs"
	"github.com/samekey/samekey/persist"
)

// TestFaultTable lets the n-th call of each kind fail, once or from then on, and holds what was told to the caller
// against what is there afterwards: in the living journal, to the next opener, and to one after a loss of power.
func TestFaultTable(t *testing.T) {
	for _, kind := range []crashfs.Kind{crashfs.Create, crashfs.Write, crashfs.Sync, crashfs.Allocate, crashfs.SyncDir, crashfs.Remove, crashfs.Rename, crashfs.Read, crashfs.Open, crashfs.List} {
		for _, errno := range []syscall.Errno{syscall.EIO, syscall.ENOSPC} {
			for _, times := range []int{1, -1} {
				t.Run(fmt.Sprintf("%v %v %d", kind, errno, times), func(t *testing.T) {
					t.Parallel()
					for n := 1; n <= 60; n++ {
						liveRun(t, kind, errno, n, times)
						if !faultRun(t, kind, errno, n, times) {
							break
						}
					}
				})
			}
		}
	}
}

// faultRun reports whether the fault was met.
func faultRun(t *testing.T, kind crashfs.Kind, errno syscall.Errno, n, times int) bool {
	seed := uint64(n)*1000 + uint64(kind)
	note := fmt.Sprintf("%v %v at %d", kind, errno, n)
	disk := crashfs.New(seed)
	disk.Fail(kind, n, times, errno)
	l := &ledger{may: map[persist.Ref][]string{}}
	j, err := openSim(disk, tiny)
	if err == nil {
		worker(j, l, rand.New(rand.NewPCG(seed, 1)), "w", 60)
		_ = j.Close() // a poisoned one says so
	}
	met := disk.Count(kind) >= n
	disk.Heal()

	// Power is lost right then.
	crashed := disk.Crash(seed)
	j, err = openSim(crashed, tiny)
	require.NoError(t, err, note)
	verify(t, j, l.copy(), note+", crash")
	require.NoError(t, j.Close())

	// The program starts again, and only then power is lost: what it was told stays true.
	j, err = openSim(disk, tiny)
	require.NoError(t, err, note)
	found := verify(t, j, l.copy(), note+", reopen")
	certain := map[persist.Ref][]string{}
	for ref, s := range found {
		certain[ref] = []string{s}
	}
	crashed = disk.Crash(seed + 1)
	require.NoError(t, j.Close())
	j, err = openSim(crashed, tiny)
	require.NoError(t, err, note)
	verify(t, j, certain, note+", reopen and crash")
	require.NoError(t, j.Close())
	return met
}

// liveRun holds a journal that goes on after a fault to all that it told its callers, also what it has only buffered.
func liveRun(t *testing.T, kind crashfs.Kind, errno syscall.Errno, n, times int) {
	seed := uint64(n)*1000 + uint64(kind)
	note := fmt.Sprintf("%v %v at %d, live", kind, errno, n)
	disk := crashfs.New(seed)
	j, err := openSim(disk, tiny)
	require.NoError(t, err, note)
	disk.Fail(kind, n, times, errno)
	l := &ledger{may: map[persist.Ref][]string{}}
	lazy := worker(j, l, rand.New(rand.NewPCG(seed, 2)), "w", 60)
	may := l.copy()
	for ref, state := range lazy {
		may[ref] = []string{state}
	}
	verifyUnlessRead := func(note string) {
		if kind != crashfs.Read {
			verify(t, j, may, note)
		}
	}
	verifyUnlessRead(note + ", before it heals")
	disk.Heal()
	found := verify(t, j, may, note)
	if j.poisoned() == nil {
		certain := map[persist.Ref][]string{}
		for ref, s := range found {
			certain[ref] = []string{s}
		}
		ctx := context.Background()
		require.NoError(t, j.Flush(ctx), note)
		crashed := []*crashfs.FS{disk.Crash(seed)}
		require.NoError(t, j.Compact(ctx), note)
		verify(t, j, certain, note+", compacted")
		crashed = append(crashed, disk.Crash(seed+1))
		for i, f := range crashed {
			j, err := openSim(f, tiny)
			require.NoError(t, err, note)
			verify(t, j, certain, fmt.Sprintf("%s, crash %d", note, i))
			require.NoError(t, j.Close())
		}
		require.NoError(t, j.Close(), note)
		verifyReopen(t, disk, certain, note+", closed")
		return
	}
	require.Error(t, j.Close(), note)
}

func begin(t testing.TB, j *Journal, i int) persist.Claim {
	t.Helper()
	e, err := j.Begin(context.Background(), numbered(i))
	require.NoError(t, err)
	require.True(t, e.New)
	return e.Claim
}

// TestCaseB29SyncFails: what could not be flushed is refused, and no later flush is believed.
func TestCaseB29SyncFails(t *testing.T) {
	ctx := context.Background()
	disk := crashfs.New(1)
	j, err := openSim(disk, tiny)
	require.NoError(t, err)
	c := begin(t, j, 1)
	require.Eventually(t, func() bool { return j.Stats().Segments == 2 }, 10*time.Second, time.Millisecond) // nothing else is flushed
	disk.FailName(crashfs.Sync, segmentName(1), 1, 1, syscall.EIO)
	_, err = j.Begin(ctx, numbered(2))
	var e *persist.Error
	var p *PoisonedError
	require.ErrorAs(t, err, &e)
	require.True(t, e.Maybe)
	require.Equal(t, "op-02", e.Ref.ID)
	require.ErrorAs(t, err, &p)
	require.ErrorIs(t, err, syscall.EIO)
	syncs := disk.Count(crashfs.Sync)
	_, err = j.Begin(ctx, numbered(3))
	require.ErrorAs(t, err, &e)
	require.False(t, e.Maybe, "nothing was written")
	require.ErrorAs(t, j.Settle(ctx, c, persist.Answer{State: persist.Succeeded}), &p)
	require.ErrorAs(t, j.Flush(ctx), &p)
	require.Equal(t, syncs, disk.Count(crashfs.Sync), "the descriptor is not asked again")
	rec, err := j.Get(ctx, numbered(1).Ref)
	require.NoError(t, err, "what is there can be read")
	require.Equal(t, numbered(1).Body, rec.Body)
	require.ErrorAs(t, j.Close(), &p)
	require.NoError(t, j.Close())
	j, err = openSim(disk, tiny)
	require.NoError(t, err)
	_, err = j.Claim(ctx, numbered(1).Ref)
	require.NoError(t, err)
	require.NoError(t, j.Close())
}

// TestDiskFull: new records are refused, those known are settled, and with space it goes on without a restart.
func TestDiskFull(t *testing.T) {
	ctx := context.Background()
	disk := crashfs.New(1)
	j, err := openSim(disk, tiny)
	require.NoError(t, err)
	disk.SetSpace(100)
	var claims []persist.Claim
	var full *NoSpaceError
	for i := 0; full == nil; i++ {
		rec := numbered(i)
		rec.Body = make([]byte, 300)
		e, err := j.Begin(ctx, rec)
		if err != nil {
			require.ErrorAs(t, err, &full)
			require.ErrorIs(t, err, persist.ErrFull)
			require.ErrorIs(t, err, syscall.ENOSPC)
			break
		}
		claims = append(claims, e.Claim)
	}
	require.Greater(t, len(claims), 5)
	for i, c := range claims[1:] {
		a := persist.Answer{State: persist.Succeeded, Status: 200, Lazy: i%2 == 0}
		require.NoError(t, j.Settle(ctx, c, a))
	}
	require.NoError(t, j.Flush(ctx))
	j2, err := openSim(disk.Kill(), tiny)
	if err == nil { // it may need space for a segment of its own
		_, err = j2.Get(ctx, claims[0].Ref)
		require.NoError(t, err)
		require.NoError(t, j2.Close())
	}
	disk.SetSpace(-1)
	begin(t, j, 999)
	require.NoError(t, j.Mark(ctx, claims[0], persist.Progress{Attempts: 7}))
	require.NoError(t, j.Close())
	require.Empty(t, checkSim(t, disk).report.Damage)
}

// TestDiskFullSettlesAll: however many are pending when the disk is full, each can be settled, and what they leave is used
// again.
func TestDiskFullSettlesAll(t *testing.T) {
	ctx := context.Background()
	disk := crashfs.New(1)
	disk.SetSpace(40 * tiny)
	j, err := openSim(disk, tiny)
	require.NoError(t, err)
	var claims []persist.Claim
	for i := 0; ; i++ {
		e, err := j.Begin(ctx, numbered(i))
		if err != nil {
			require.ErrorIs(t, err, persist.ErrFull)
			break
		}
		claims = append(claims, e.Claim)
	}
	require.Greater(t, len(claims), 2000)
	for i, c := range claims {
		require.NoError(t, j.Settle(ctx, c, persist.Answer{State: persist.Succeeded, Lazy: i%2 == 0}), "%d of %d", i, len(claims))
	}
	for i := range 1000 {
		require.Eventually(t, func() bool {
			_, err := j.Begin(ctx, numbered(10_000+i))
			return err == nil
		}, 10*time.Second, 10*time.Millisecond)
	}
	require.NoError(t, j.Close())
	l := checkSim(t, disk)
	require.Empty(t, l.report.Damage)
	require.Equal(t, 1000, l.idx.pending)
}

// TestFullAtWrite: a file system that has no room although the space was prewritten.
func TestFullAtWrite(t *testing.T) {
	ctx := context.Background()
	for _, times := range []int{1, 2, 3} { // the write; its cut as well; the next write, too
		disk := crashfs.New(uint64(times))
		j, err := openSim(disk, tiny)
		require.NoError(t, err)
		c := begin(t, j, 1)
		c2 := begin(t, j, 2)
		disk.FailName(crashfs.Write, segmentName(1), 1, times, syscall.ENOSPC)
		_, err = j.Begin(ctx, numbered(3))
		var e *persist.Error
		require.ErrorAs(t, err, &e)
		require.ErrorIs(t, err, persist.ErrFull)
		require.Equal(t, times > 1, e.Maybe)
		require.NoError(t, j.Settle(ctx, c, persist.Answer{State: persist.Succeeded, Lazy: true}))
		err = j.Settle(ctx, c2, persist.Answer{State: persist.Rejected, Status: 400, KeepBody: time.Now().Add(time.Hour)})
		require.NoError(t, err, "a settle is tried again")
		begin(t, j, 4)
		for _, image := range []*crashfs.FS{disk.Kill(), disk.Crash(1), disk.Crash(2)} {
			j2, err := openSim(image, tiny)
			require.NoError(t, err)
			_, err = j2.Get(ctx, numbered(3).Ref)
			require.ErrorIs(t, err, persist.ErrNotFound, "what was refused does not come back")
			_, err = j2.Get(ctx, numbered(1).Ref)
			require.ErrorIs(t, err, persist.ErrNotFound)
			rec, err := j2.Get(ctx, numbered(2).Ref)
			require.NoError(t, err)
			require.Equal(t, persist.Rejected, rec.State())
			_, err = j2.Get(ctx, numbered(4).Ref)
			require.NoError(t, err)
			require.Empty(t, j2.Report().Damage)
			require.NoError(t, j2.Close())
		}
		require.NoError(t, j.Close())
	}
}

// hangFS holds every sync of a segment as long as it is told to.
type hangFS struct {
	simFS
	hold *atomic.Pointer[chan struct{}]
}

type hangFile struct {
	file
	hold *atomic.Pointer[chan struct{}]
}

func (d hangFS) open(name string, flag int) (file, error) {
	f, err := d.simFS.open(name, flag)
	return hangFile{f, d.hold}, err
}

func (f hangFile) sync() error {
	if c := f.hold.Load(); c != nil {
		<-*c
	}
	return f.file.sync()
}

// TestBeginOutlivedByItsContext: withdrawn where it can be, waited for where it is being written, and withdrawn
// afterwards if the disk hangs.
func TestBeginOutlivedByItsContext(t *testing.T) {
	disk := crashfs.New(1)
	var hold atomic.Pointer[chan struct{}]
	j, err := open(context.Background(), hangFS{simFS{disk}, &hold}, "/sim", Options{SegmentSize: tiny, Logger: quiet, MaxPending: 100})
	require.NoError(t, err)
	gate := make(chan struct{})
	hold.Store(&gate)

	ctx, cancel := context.WithCancel(context.Background())
	first := make(chan error)
	go func() { _, err := j.Begin(ctx, numbered(1)); first <- err }()
	require.Eventually(t, func() bool { j.mu.Lock(); defer j.mu.Unlock(); return j.writing != nil }, 5*time.Second, time.Millisecond)
	second := make(chan error)
	go func() { _, err := j.Begin(ctx, numbered(2)); second <- err }()
	require.Eventually(t, func() bool { return j.Stats().Pending == 2 }, 5*time.Second, time.Millisecond)
	cancel()
	var e *persist.Error
	err = <-second
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorAs(t, err, &e)
	require.False(t, e.Maybe, "it was taken out of the queue")
	err = <-first
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorAs(t, err, &e)
	require.True(t, e.Maybe, "it was being written")

	close(gate)
	hold.Store(nil)
	bg := context.Background()
	require.NoError(t, j.Flush(bg))
	require.NoError(t, j.Flush(bg)) // the withdrawal
	for _, image := range []*crashfs.FS{disk.Kill(), disk.Crash(3)} {
		j2, err := openSim(image, tiny)
		require.NoError(t, err)
		for _, i := range []int{1, 2} {
			_, err = j2.Get(bg, numbered(i).Ref)
			require.ErrorIs(t, err, persist.ErrNotFound)
		}
		require.NoError(t, j2.Close())
	}
	begin(t, j, 1)
	begin(t, j, 2)
	require.NoError(t, j.Close())
}
