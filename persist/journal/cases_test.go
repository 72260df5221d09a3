package journal

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/samekey/samekey/internal/crashfs"
	"github.com/samekey/samekey/persist"
)

// openDisk opens a journal on the real disk and checks it in the clean-up.
func openDisk(t testing.TB, dir string, o Options) *Journal {
	t.Helper()
	if o.Logger == nil {
		o.Logger = quiet
	}
	j, err := Open(context.Background(), dir, o)
	require.NoError(t, err)
	t.Cleanup(func() {
		_ = j.Close() // again, usually
		checkDir(t, dir)
	})
	return j
}

func within(t testing.TB, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

// TestCaseB32SecondOpener is refused on any path to the directory, at once or when its context ends, and changes nothing.
func TestCaseB32SecondOpener(t *testing.T) {
	base := t.TempDir()
	dir := filepath.Join(base, "j")
	j := openDisk(t, dir, Options{})
	begin(t, j, 1)
	link := filepath.Join(base, "link")
	require.NoError(t, os.Symlink(dir, link))
	before := snapshot(t, dir)
	for _, path := range []string{dir, link} {
		start := time.Now()
		_, err := Open(within(t, 30*time.Millisecond), path, Options{})
		var used *InUseError
		require.ErrorAs(t, err, &used)
		require.Equal(t, path, used.Path)
		require.ErrorContains(t, err, path)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Less(t, time.Since(start), 5*time.Second)
	}
	require.Equal(t, before, snapshot(t, dir))
	// It waits for its turn.
	go func() { time.Sleep(20 * time.Millisecond); _ = j.Close() }()
	j2, err := Open(within(t, 10*time.Second), dir, Options{})
	require.NoError(t, err)
	require.NoError(t, j2.Close())
}

func snapshot(t testing.TB, dir string) map[string]string {
	m := map[string]string{}
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	for _, e := range entries {
		b, err := os.ReadFile(filepath.Join(dir, e.Name()))
		require.NoError(t, err)
		m[e.Name()] = string(b)
	}
	return m
}

// TestCaseB33LockOutlivesCompaction: no file under the lock is ever swapped.
func TestCaseB33LockOutlivesCompaction(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "j")
	j := openDisk(t, dir, small)
	for i := range 300 {
		begin(t, j, i)
	}
	require.NoError(t, j.Compact(context.Background()))
	_, err := Open(within(t, 10*time.Millisecond), dir, Options{})
	var used *InUseError
	require.ErrorAs(t, err, &used)
}

// TestCaseB54DefaultWaitIsFinite: without a deadline Open gives up by itself.
func TestCaseB54DefaultWaitIsFinite(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "j")
	openDisk(t, dir, Options{})
	start := time.Now()
	_, err := Open(context.Background(), dir, Options{})
	var used *InUseError
	require.ErrorAs(t, err, &used)
	require.Less(t, time.Since(start), 20*time.Second)
}

// lockFS has locks that fail, or that always succeed.
type lockFS struct {
	simFS
	err error
}

type lockFile struct {
	file
	err error
}

func (d lockFS) open(name string, flag int) (file, error) {
	f, err := d.simFS.open(name, flag)
	return lockFile{f, d.err}, err
}
func (f lockFile) lock() error { return f.err }

// TestCaseB56LocksThatDoNotWork: an error is told, and behind locks that do nothing the first owner notices the second.
func TestCaseB56LocksThatDoNotWork(t *testing.T) {
	ctx := context.Background()
	disk := crashfs.New(1)
	o := Options{SegmentSize: tiny, Logger: quiet}
	noLocks := errors.New("no locks available")
	_, err := open(ctx, lockFS{simFS{disk}, noLocks}, "/sim", o)
	var lock *LockError
	require.ErrorAs(t, err, &lock)
	require.ErrorIs(t, err, noLocks)

	first, err := open(ctx, lockFS{simFS{disk}, nil}, "/sim", o)
	require.NoError(t, err)
	c := begin(t, first, 1)
	second, err := open(ctx, lockFS{simFS{disk}, nil}, "/sim", o)
	require.NoError(t, err)
	_, err = first.Begin(ctx, numbered(2))
	var oust *OusterError
	require.ErrorAs(t, err, &oust)
	require.ErrorAs(t, first.Mark(ctx, c, persist.Progress{Attempts: 2}), &oust)
	_, err = second.Get(ctx, numbered(1).Ref)
	require.NoError(t, err)
	begin(t, second, 3)
	require.Error(t, first.Close())
	require.NoError(t, second.Close())
	require.Empty(t, checkSim(t, disk).report.Damage)
}

// TestCaseB52DirectoryTaken: files that lost their names are not written to as if nothing had happened.
func TestCaseB52DirectoryTaken(t *testing.T) {
	ctx := context.Background()
	dir := filepath.Join(t.TempDir(), "j")
	j, err := Open(ctx, dir, Options{Logger: quiet})
	require.NoError(t, err)
	begin(t, j, 1)
	require.NoError(t, os.RemoveAll(dir))
	_, err = j.Begin(ctx, numbered(2))
	var oust *OusterError
	require.ErrorAs(t, err, &oust)
	require.Error(t, j.Close())
}

// TestPaths: what Open makes of directories.
func TestPaths(t *testing.T) {
	ctx := context.Background()
	base := t.TempDir()
	_, err := Open(ctx, filepath.Join(base, "no", "such"), Options{})
	require.ErrorIs(t, err, os.ErrNotExist, "a parent is not made")
	require.ErrorContains(t, err, "parent")
	_, err = Open(t.Context(), "", Options{})
	require.ErrorContains(t, err, "empty", "an unset variable is not the working directory")
	require.ErrorContains(t, err, "journal: ")
	f := filepath.Join(base, "file")
	require.NoError(t, os.WriteFile(f, nil, 0o600))
	_, err = Open(ctx, f, Options{})
	require.ErrorIs(t, err, errNotDir)

	if permsMatter {
		loose := filepath.Join(base, "loose")
		require.NoError(t, os.Mkdir(loose, 0o700))
		require.NoError(t, os.Chmod(loose, 0o755)) //nolint:gosec // that is the point
		_, err = Open(ctx, loose, Options{})
		var perm *PermError
		require.ErrorAs(t, err, &perm)
		require.ErrorContains(t, err, "chmod 700 "+loose)
	}

	_, err = Open(ctx, filepath.Join(base, "j"), Options{SegmentSize: 5})
	require.ErrorContains(t, err, "SegmentSize")

	// A relative path is resolved once.
	t.Chdir(base)
	j := openDisk(t, "rel", small)
	require.NoError(t, os.Mkdir("elsewhere", 0o700))
	t.Chdir("elsewhere")
	for i := range 600 { // more than one segment
		begin(t, j, i)
	}
	require.NoError(t, j.Close())
	require.DirExists(t, filepath.Join(base, "rel"))
	checkDir(t, filepath.Join(base, "rel"))
	require.NoDirExists(t, "rel")
	t.Chdir(base)
}

func TestMaxPending(t *testing.T) {
	ctx := context.Background()
	j := openDisk(t, filepath.Join(t.TempDir(), "j"), Options{MaxPending: 2})
	c := begin(t, j, 1)
	begin(t, j, 2)
	_, err := j.Begin(ctx, numbered(3))
	var full *StoreFullError
	require.ErrorAs(t, err, &full)
	require.ErrorIs(t, err, persist.ErrFull)
	require.Equal(t, 2, full.Limit)
	e, err := j.Begin(ctx, numbered(2))
	require.NoError(t, err, "what is known is no new one")
	require.False(t, e.New)
	require.NoError(t, j.Settle(ctx, c, persist.Answer{State: persist.Succeeded}))
	begin(t, j, 3)
}

func TestVersions(t *testing.T) {
	disk := crashfs.New(1)
	j, err := openSim(disk, tiny)
	require.NoError(t, err)
	begin(t, j, 1)
	require.NoError(t, j.Close())
	h, _, err := readHeader(disk.Bytes(segmentName(1))[:dataStart])
	require.NoError(t, err)
	h.version = formatVersion + 1
	newer := make([]byte, tiny)
	copy(newer, h.encode())
	disk.SetBytes(segmentName(2), newer)
	before := map[string]string{}
	names, err := disk.Names()
	require.NoError(t, err)
	for _, n := range names {
		before[n] = string(disk.Bytes(n))
	}
	_, err = openSim(disk, tiny)
	var v *VersionError
	require.ErrorAs(t, err, &v)
	require.Equal(t, uint32(2), v.Version)
	require.Equal(t, uint32(1), v.Highest)
	require.ErrorContains(t, err, "upgrade")
	for n, b := range before {
		require.Equal(t, b, string(disk.Bytes(n)), "%s was changed", n)
	}
}

// TestForgedFrames: bytes inside a payload that look like a frame are none, even where the frame around them is damaged.
func TestForgedFrames(t *testing.T) {
	ctx := context.Background()
	disk := crashfs.New(1)
	j, err := openSim(disk, tiny)
	require.NoError(t, err)
	// A copy of the log itself, and a frame of another segment's salt: the worst that a payload can be.
	begin(t, j, 1)
	rec := numbered(2)
	other := &segment{header: header{salt: 42}}
	forged := appendPut(openFrame(nil), 99, new(numbered(66)))
	closeFrame(forged, 0)
	other.chain(forged, 8300)
	rec.Body = append(disk.Bytes(segmentName(1))[dataStart:dataStart+400], forged...)
	at := j.fill.end()
	_, err = j.Begin(ctx, rec)
	require.NoError(t, err)
	begin(t, j, 3)
	require.NoError(t, j.Close())
	b := disk.Bytes(segmentName(1))
	b[at+16] ^= 0xff // the length
	disk.SetBytes(segmentName(1), b)
	j, err = openSim(disk, tiny)
	require.NoError(t, err)
	require.Len(t, j.Report().Damage, 1)
	require.Equal(t, 1, j.Report().Damage[0].Frames)
	var ids []string
	for r, err := range j.List(ctx, persist.Filter{}) {
		require.NoError(t, err)
		ids = append(ids, r.ID)
	}
	require.Equal(t, []string{"op-01", "op-03"}, ids)
	require.NoError(t, j.Close())
}

// TestCaseB27PowerLoss: whatever of the unsynced bytes and names survives, what was acknowledged is there, whole.
func TestCaseB27PowerLoss(t *testing.T) {
	ctx := context.Background()
	disk := crashfs.New(1)
	j, err := openSim(disk, tiny)
	require.NoError(t, err)
	for i := range 120 { // over several segments
		begin(t, j, i)
		crashed, err := openSim(disk.Crash(uint64(i)), tiny)
		require.NoError(t, err)
		for k := range i + 1 {
			rec, err := crashed.Get(ctx, numbered(k).Ref)
			require.NoError(t, err)
			require.Equal(t, describe(numbered(k)), describe(rec))
		}
		require.NoError(t, crashed.Close())
	}
	require.NoError(t, j.Close())
}

// TestCaseB103RenameFails: a segment that cannot be used again is replaced by a new one, and nothing is left behind.
func TestCaseB103RenameFails(t *testing.T) {
	ctx := context.Background()
	disk := crashfs.New(1)
	disk.Fail(crashfs.Rename, 1, -1, syscall.EACCES)
	j, err := openSim(disk, tiny)
	require.NoError(t, err)
	for i := range 2000 {
		c := begin(t, j, i)
		require.NoError(t, j.Settle(ctx, c, persist.Answer{State: persist.Succeeded, Lazy: true}))
	}
	require.Positive(t, disk.Count(crashfs.Rename))
	require.NoError(t, j.Compact(ctx))
	require.NoError(t, j.Close())
	names, err := disk.Names()
	require.NoError(t, err)
	require.LessOrEqual(t, len(names), 4)
	require.Empty(t, checkSim(t, disk).report.Damage)
}
