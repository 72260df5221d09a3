//go:build unix && !linux

package journal

import (
	"os"

	"golang.org/x/sys/unix"
)

// sync: os.File.Sync asks for F_FULLFSYNC where a plain fsync stops at the drive's cache.
func (f osFile) sync() error { return f.Sync() }

func (f osFile) allocate(int64) error { return nil }

func (f osFile) linked() (bool, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return false, os.NewSyscallError("fstat", err)
	}
	return st.Nlink > 0, nil
}

type scratch struct{}
