package journal

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/samekey/samekey/persist"
	"github.com/samekey/samekey/persist/persisttest"
)

var quiet = slog.New(slog.DiscardHandler)

// small journals rotate and compact often.
var small = Options{SegmentSize: minSegment, Logger: quiet}

// brokenFS fails every write once it is told to.
type brokenFS struct {
	fsys
	broken atomic.Bool
}

type brokenFile struct {
	file
	fs *brokenFS
}

func (b *brokenFS) open(name string, flag int) (file, error) {
	f, err := b.fsys.open(name, flag)
	return brokenFile{f, b}, err
}

func (f brokenFile) WriteAt(b []byte, off int64) (int, error) {
	if f.fs.broken.Load() {
		return 0, syscall.EIO
	}
	return f.file.WriteAt(b, off)
}

// openBreakable opens a journal on the real disk whose writes can be made to fail.
func openBreakable(ctx context.Context, dir string, o Options) (*Journal, error) {
	d, err := openDir(dir, true, true)
	if err != nil {
		return nil, err
	}
	o, err = o.filled()
	if err != nil {
		return nil, err
	}
	j, err := open(ctx, &brokenFS{fsys: d}, dir, o)
	if err != nil {
		return nil, errors.Join(err, d.close())
	}
	return j, nil
}

// kill leaves everything as the death of the process would: nothing more is written, and the lock is free.
func kill(j *Journal) {
	j.poisonedBy.CompareAndSwap(nil, &PoisonedError{Path: j.path, Err: errors.New("killed")})
	j.cancel()
	j.tending.Wait()
	for busy := true; busy; runtime.Gosched() {
		j.mu.Lock()
		busy = j.writing != nil || j.prep != nil
		j.mu.Unlock()
	}
	unlock(j.held.f)
}

func TestStore(t *testing.T) {
	persisttest.Run(t, persisttest.Harness{
		New: func(t testing.TB) func() (persist.Store, error) {
			dir := filepath.Join(t.TempDir(), "journal")
			t.Cleanup(func() { checkDir(t, dir) })
			return func() (persist.Store, error) { return openBreakable(context.Background(), dir, small) }
		},
		Durable: true,
		Bubble:  true,
		Crash:   func(s persist.Store) { kill(s.(*Journal)) },
		Break:   func(s persist.Store) { s.(*Journal).dir.fsys.(*brokenFS).broken.Store(true) },
	})
}

// checkDir holds the files of a closed journal against their own checksums.
func checkDir(t testing.TB, dir string) {
	if _, err := os.Stat(dir); err != nil {
		return
	}
	r, err := Check(dir)
	require.NoError(t, err)
	require.Empty(t, r.Damage)
}
