//go:build unix

package journal

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

const permsMatter = true

var errDiskFull = unix.ENOSPC

func syncDir(d *os.File) error { return d.Sync() }

// lock is tied to the open file: the kernel frees it when its holder dies, however it dies, and a second Open of the
// same process is refused like any other.
func (f osFile) lock() error   { return f.flock(unix.LOCK_EX) }
func (f osFile) share() error  { return f.flock(unix.LOCK_SH) }
func (f osFile) unlock() error { return f.flock(unix.LOCK_UN) }

func (f osFile) flock(how int) error {
	for {
		err := unix.Flock(int(f.Fd()), how|unix.LOCK_NB)
		switch {
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.EWOULDBLOCK):
			return errLocked
		default:
			return os.NewSyscallError("flock", err)
		}
	}
}
