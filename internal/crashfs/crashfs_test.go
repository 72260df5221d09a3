package crashfs

import (
	"errors"
	"io/fs"
	"os"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

func create(t *testing.T, f *FS, name string) *File {
	t.Helper()
	h, err := f.OpenFile(name, os.O_RDWR|os.O_CREATE)
	require.NoError(t, err)
	return h
}

func write(t *testing.T, h *File, s string, off int64) {
	t.Helper()
	n, err := h.WriteAt([]byte(s), off)
	require.NoError(t, err)
	require.Equal(t, len(s), n)
}

func TestWhatIsSyncedSurvivesEveryCrash(t *testing.T) {
	f := New(1)
	h := create(t, f, "a")
	write(t, h, "hello", 0)
	require.NoError(t, h.Sync())
	require.NoError(t, f.SyncDir())
	write(t, h, "J", 0)
	seen := map[string]bool{}
	for seed := range uint64(200) {
		seen[string(f.Crash(seed).Bytes("a"))] = true
	}
	require.Equal(t, map[string]bool{"hello": true, "Jello": true}, seen)
}

func TestNamesNeedADirectorySync(t *testing.T) {
	f := New(1)
	h := create(t, f, "a")
	require.NoError(t, h.Sync())
	lost, kept := 0, 0
	for seed := range uint64(200) {
		names, err := f.Crash(seed).Names()
		require.NoError(t, err)
		if len(names) == 0 {
			lost++
		} else {
			kept++
		}
	}
	require.NotZero(t, lost)
	require.NotZero(t, kept)
	require.NoError(t, f.SyncDir())
	require.NoError(t, f.Rename("a", "b"))
	for seed := range uint64(50) {
		names, err := f.Crash(seed).Names()
		require.NoError(t, err)
		require.Len(t, names, 1, "a rename is whole or not there")
	}
}

func TestUnsyncedBytesTearAndReorder(t *testing.T) {
	f := New(1)
	h := create(t, f, "a")
	write(t, h, string(make([]byte, 2048)), 0)
	require.NoError(t, h.Sync())
	require.NoError(t, f.SyncDir())
	write(t, h, string(bytesOf('x', 1024)), 0)
	write(t, h, string(bytesOf('y', 1024)), 1024)
	reordered, torn := false, false
	for seed := range uint64(2000) {
		b := f.Crash(seed).Bytes("a")
		require.Equal(t, b, f.Crash(seed).Bytes("a"), "the same seed, the same crash")
		reordered = reordered || b[0] == 0 && b[1024] == 'y'
		torn = torn || b[0] == 'x' && b[511] == 0
	}
	require.True(t, reordered)
	require.True(t, torn)
}

func bytesOf(c byte, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = c
	}
	return b
}

func TestAFailedSyncIsNotMadeGoodByTheNext(t *testing.T) {
	lost := false
	for seed := range uint64(50) {
		f := New(seed)
		h := create(t, f, "a")
		require.NoError(t, f.SyncDir())
		write(t, h, "x", 0)
		f.Fail(Sync, 1, 1, syscall.EIO)
		require.ErrorIs(t, h.Sync(), syscall.EIO)
		require.NoError(t, h.Sync())
		require.Equal(t, "x", string(f.Bytes("a")), "programs go on seeing it")
		lost = lost || len(f.Crash(seed).Bytes("a")) == 0
	}
	require.True(t, lost)
}

func TestFaultsSpaceAndLocks(t *testing.T) {
	f := New(1)
	h := create(t, f, "a")
	f.Fail(Write, 2, 1, syscall.EIO)
	write(t, h, "1", 0)
	_, err := h.WriteAt([]byte("2"), 0)
	require.ErrorIs(t, err, syscall.EIO)
	write(t, h, "3", 0)

	f.SetSpace(3)
	n, err := h.WriteAt([]byte("12345"), 0)
	require.ErrorIs(t, err, syscall.ENOSPC)
	require.Equal(t, 4, n)
	require.ErrorIs(t, h.Allocate(9), syscall.ENOSPC)
	require.NoError(t, f.Remove("a"))
	h2 := create(t, f, "b")
	write(t, h2, "1234", 0)

	require.NoError(t, h.Lock())
	require.NoError(t, h2.Lock())
	h3, err := f.OpenFile("b", os.O_RDWR)
	require.NoError(t, err)
	require.ErrorIs(t, h3.Lock(), ErrLocked)
	require.NoError(t, h2.Close())
	require.NoError(t, h3.Lock())
	_, err = f.OpenFile("none", os.O_RDWR)
	require.ErrorIs(t, err, fs.ErrNotExist)
	_, err = f.OpenFile("b", os.O_CREATE|os.O_EXCL)
	require.ErrorIs(t, err, fs.ErrExist)
	linked, err := h.Linked()
	require.NoError(t, err)
	require.False(t, linked)
	require.True(t, errors.Is(f.Kill().Remove("none"), fs.ErrNotExist))
}
