package journal

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/samekey/samekey/internal/crashfs"
	"github.com/samekey/samekey/persist"
)

// soak is how many crash images TestCrashImages takes; CI gives more than the default.
var soak = flag.Int("soak", 300, "crash images to recover from")

// simFS puts a journal on a crashfs.
type simFS struct{ *crashfs.FS }

type simFile struct{ *crashfs.File }

func (d simFS) open(name string, flag int) (file, error) {
	f, err := d.OpenFile(name, flag)
	if err != nil {
		return nil, err
	}
	return simFile{f}, nil
}
func (d simFS) remove(name string) error { return d.Remove(name) }
func (d simFS) rename(a, b string) error { return d.Rename(a, b) }
func (d simFS) list() ([]string, error)  { return d.Names() }
func (d simFS) sync() error              { return d.SyncDir() }
func (d simFS) close() error             { return nil }

func (f simFile) allocate(n int64) error { return f.Allocate(n) }
func (f simFile) sync() error            { return f.Sync() }
func (f simFile) size() (int64, error)   { return f.Size() }
func (f simFile) linked() (bool, error)  { return f.Linked() }
func (f simFile) unlock() error          { return f.Unlock() }
func (f simFile) lock() error            { return simLock(f.Lock()) }
func (f simFile) share() error           { return simLock(f.Share()) }

func simLock(err error) error {
	if errors.Is(err, crashfs.ErrLocked) {
		return errLocked
	}
	return err
}

// openSim opens a journal with segments of any size on a crashfs.
func openSim(f *crashfs.FS, size int64) (*Journal, error) {
	return open(context.Background(), simFS{f}, "/sim", Options{SegmentSize: size, MaxPending: -1, Logger: quiet})
}

const tiny = 16 << 10 // segment size that rotates within a few records

// checkSim reads a crashfs as Check would.
func checkSim(t testing.TB, f *crashfs.FS) *loaded {
	t.Helper()
	l, err := load(context.Background(), simFS{f}, "/sim", 0, stampOf(simFS{f}))
	require.NoError(t, err)
	l.close()
	return l
}

// describe sums up what a record says, to compare states.
func describe(r persist.Record) string {
	if r.Tombstone() {
		return "tomb " + r.Answer.State.String()
	}
	s := fmt.Sprintf("key %s attempts %d body %08x", r.Key, r.Progress.Attempts, crc32.ChecksumIEEE(r.Body))
	if r.Answer != nil {
		s += fmt.Sprintf(" %s %d %08x", r.Answer.State, r.Answer.Status, crc32.ChecksumIEEE(r.Answer.Body))
	}
	return s
}

const absent = "absent"

// ledger knows, for each operation, what a recovery at this instant may find.
type ledger struct {
	mu  sync.Mutex
	may map[persist.Ref][]string
}

func (l *ledger) start(ref persist.Ref, to string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.may[ref]) == 0 {
		l.may[ref] = []string{absent}
	}
	l.may[ref] = append(l.may[ref], to)
}

func (l *ledger) certain(ref persist.Ref, state string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.may[ref] = []string{state}
}

// refused takes back what start added.
func (l *ledger) refused(ref persist.Ref) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.may[ref] = l.may[ref][:len(l.may[ref])-1]
}

// end settles a change that returned err.
func (l *ledger) end(ref persist.Ref, state string, err error) {
	var e *persist.Error
	switch {
	case err == nil:
		l.certain(ref, state)
	case !errors.As(err, &e) || !e.Maybe:
		l.refused(ref)
	}
}

func (l *ledger) copy() map[persist.Ref][]string {
	m := map[persist.Ref][]string{}
	for r, s := range l.may {
		m[r] = slices.Clone(s)
	}
	return m
}

// worker runs random operations and keeps the ledger. It returns what those have become that were settled last, and are
// perhaps only buffered.
func worker(j *Journal, l *ledger, rng *rand.Rand, name string, n int) map[persist.Ref]string {
	ctx := context.Background()
	type op struct {
		rec   persist.Record
		claim persist.Claim
	}
	var open []op
	var lazy []op // settled, perhaps not on disk
	solid := func() {
		for _, o := range lazy {
			l.certain(o.rec.Ref, stateOf(o.rec))
		}
		lazy = nil
	}
	for i := range n {
		if len(open) == 0 || rng.IntN(2) == 0 {
			rec := persist.Record{Ref: persist.Ref{Scope: name, ID: fmt.Sprint(i)}, Key: fmt.Sprintf("k%d", i), Method: "POST", Target: "https://x.test/",
				Created: time.Unix(int64(i), 0), Body: randomBytes(rng, rng.IntN(1200)), Progress: persist.Progress{Attempts: 1}}
			l.start(rec.Ref, describe(rec))
			e, err := j.Begin(ctx, rec)
			l.end(rec.Ref, describe(rec), err)
			if err == nil {
				solid()
				open = append(open, op{rec, e.Claim})
			}
			continue
		}
		k := rng.IntN(len(open))
		o := &open[k]
		switch rng.IntN(8) {
		case 0, 1:
			next := o.rec
			next.Progress.Attempts++
			l.start(o.rec.Ref, describe(next))
			err := j.Mark(ctx, o.claim, next.Progress)
			l.end(o.rec.Ref, describe(next), err)
			if err == nil {
				o.rec = next
				solid()
			}
		case 2:
			next := o.rec
			next.Key, next.Body = fmt.Sprintf("r%d", i), randomBytes(rng, rng.IntN(300))
			l.start(o.rec.Ref, describe(next))
			err := j.Replace(ctx, o.claim, next)
			l.end(o.rec.Ref, describe(next), err)
			if err == nil {
				o.rec = next
				solid()
			}
		default:
			a := persist.Answer{State: persist.Succeeded, Status: 200, Body: randomBytes(rng, rng.IntN(500)), Lazy: rng.IntN(2) == 0}
			switch rng.IntN(4) {
			case 0:
				a.KeepName = time.Now().Add(time.Hour)
			case 1:
				a.KeepBody, a.KeepName = time.Now().Add(time.Hour), time.Now().Add(2*time.Hour)
			}
			next := o.rec
			next.Answer = &a
			l.start(o.rec.Ref, stateOf(next))
			err := j.Settle(ctx, o.claim, a)
			switch {
			case err != nil:
				l.end(o.rec.Ref, stateOf(next), err)
			case a.Lazy:
				lazy = append(lazy, op{rec: next})
			default:
				l.certain(o.rec.Ref, stateOf(next))
				solid()
			}
			open = slices.Delete(open, k, k+1)
		}
	}
	buffered := map[persist.Ref]string{}
	for _, o := range lazy {
		buffered[o.rec.Ref] = stateOf(o.rec)
	}
	return buffered
}

// stateOf tells what a record in memory looks like once it is stored.
func stateOf(r persist.Record) string {
	switch a := r.Answer; {
	case a == nil || a.KeepBody.After(time.Now()):
		return describe(r)
	case a.KeepName.After(time.Now()):
		return "tomb " + a.State.String()
	}
	return absent
}

func randomBytes(rng *rand.Rand, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(rng.Uint32())
	}
	return b
}

// verify holds a recovered journal against what it may hold.
func verify(t testing.TB, j *Journal, may map[persist.Ref][]string, note string) map[persist.Ref]string {
	t.Helper()
	found := map[persist.Ref]string{}
	for ref, states := range may {
		rec, err := j.Get(context.Background(), ref)
		state := describe0(rec, err)
		if err != nil {
			require.ErrorIs(t, err, persist.ErrNotFound, note)
		}
		if !slices.Contains(states, state) {
			require.Failf(t, "wrong state", "%s: %v is %q, may be %q; report %+v", note, ref, state, states, j.Report())
		}
		found[ref] = state
	}
	for rec, err := range j.List(context.Background(), persist.Filter{}) {
		require.NoError(t, err, note)
		require.Contains(t, found, rec.Ref, note)
	}
	return found
}

func describe0(r persist.Record, err error) string {
	if err != nil {
		return absent
	}
	return describe(r)
}

// TestCrashImages loses power at random instants of a busy journal, and again during the recovery.
func TestCrashImages(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	if s := os.Getenv("JOURNAL_SEED"); s != "" {
		_, err := fmt.Sscan(s, &seed)
		require.NoError(t, err)
	}
	t.Logf("JOURNAL_SEED=%d", seed)
	const perRun = 25
	for run := 0; run*perRun < *soak; run++ {
		crashRun(t, seed+uint64(run), perRun)
	}
}

type crashImage struct {
	fs   *crashfs.FS
	may  map[persist.Ref][]string
	seed uint64
}

func crashRun(t *testing.T, seed uint64, images int) {
	rng := rand.New(rand.NewPCG(seed, 7))
	disk := crashfs.New(seed)
	l := &ledger{may: map[persist.Ref][]string{}}
	var mu sync.Mutex
	var taken []crashImage
	pick := rand.New(rand.NewPCG(seed, 8))
	disk.Before = func(crashfs.Kind, string) {
		mu.Lock()
		defer mu.Unlock()
		if pick.IntN(12) != 0 || len(taken) >= images {
			return
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		s := pick.Uint64()
		taken = append(taken, crashImage{disk.Crash(s), l.copy(), s})
	}
	j, err := openSim(disk, tiny)
	require.NoError(t, err)
	var wg sync.WaitGroup
	n := 30 + rng.IntN(20)
	for w := range 3 {
		r := rand.New(rand.NewPCG(seed, 100+uint64(w)))
		wg.Go(func() { worker(j, l, r, fmt.Sprint("w", w), n) })
	}
	wg.Wait()
	require.NoError(t, j.Close())
	verifyReopen(t, disk, l.copy(), fmt.Sprintf("seed %d, after Close", seed))
	for i, im := range taken {
		recoverImage(t, im, fmt.Sprintf("JOURNAL_SEED=%d image %d", seed, i))
	}
}

func verifyReopen(t *testing.T, disk *crashfs.FS, may map[persist.Ref][]string, note string) {
	t.Helper()
	disk.Before = nil
	j, err := openSim(disk, tiny)
	require.NoError(t, err, note)
	verify(t, j, may, note)
	require.NoError(t, j.Close(), note)
	r := checkSim(t, disk).report
	require.Empty(t, r.Damage, note)
	require.Empty(t, r.Cut, "a tail is cut once: "+note)
}

func recoverImage(t *testing.T, im crashImage, note string) {
	t.Helper()
	// Power fails once more, somewhere in the recovery.
	rng := rand.New(rand.NewPCG(im.seed, 9))
	var again *crashfs.FS
	at := rng.IntN(12)
	var mu sync.Mutex
	im.fs.Before = func(crashfs.Kind, string) {
		mu.Lock()
		defer mu.Unlock()
		if at--; at == 0 {
			again = im.fs.Crash(im.seed + 1)
		}
	}
	j, err := openSim(im.fs, tiny)
	require.NoError(t, err, note)
	found := verify(t, j, im.may, note)
	require.NoError(t, j.Compact(context.Background()))
	require.Equal(t, found, verify(t, j, im.may, note+", compacted"))
	// What it acknowledges from now on holds as well.
	rec := persist.Record{Ref: persist.Ref{ID: "after"}, Key: "after", Method: "POST", Progress: persist.Progress{Attempts: 1}}
	_, err = j.Begin(context.Background(), rec)
	require.NoError(t, err, note)
	im.may[rec.Ref] = []string{describe(rec)}
	next := im.fs.Crash(im.seed + 2)
	require.NoError(t, j.Close())
	certain := map[persist.Ref][]string{rec.Ref: {describe(rec)}}
	for ref, s := range found {
		certain[ref] = []string{s}
	}
	verifyReopen(t, next, certain, note+", crashed again")
	verifyReopen(t, im.fs, certain, note+", closed")
	delete(im.may, rec.Ref)
	mu.Lock()
	defer mu.Unlock()
	if again != nil {
		again.Before = nil
		j, err := openSim(again, tiny)
		require.NoError(t, err, note)
		verify(t, j, im.may, note+", crashed in recovery")
		require.NoError(t, j.Close())
	}
}
