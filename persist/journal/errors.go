package journal

import (
	"errors"
	"fmt"
	"io/fs"
	"syscall"

	"github.com/samekey/samekey/persist"
)

// InUseError says that another opener, in this process or another, holds the journal.
type InUseError struct {
	Path string // absolute
	Err  error  // what ended the wait: the context's error, context.DeadlineExceeded after Open's own second too
}

func (e *InUseError) Error() string {
	s := "journal: " + e.Path + " is in use by another process or another Open of this one, which can share its Journal"
	if e.Err != nil {
		s += " (waited: " + e.Err.Error() + ")"
	}
	return s
}

func (e *InUseError) Unwrap() error { return e.Err }

// VersionError says that a segment was written by a newer samekey. Nothing was changed.
type VersionError struct {
	Path             string // of the segment
	Version, Highest uint32 // found, and the newest that this build reads
}

func (e *VersionError) Error() string {
	return fmt.Sprintf("journal: %s has format version %d, this build reads up to %d: upgrade samekey", e.Path, e.Version, e.Highest)
}

// PermError says that an existing directory is open to others.
type PermError struct {
	Path string
	Mode fs.FileMode
}

func (e *PermError) Error() string {
	return fmt.Sprintf("journal: %s has mode %04o, others could reach what it keeps: chmod 700 %s", e.Path, e.Mode.Perm(), e.Path)
}

// NetworkFSError says that the directory lies on a network file system.
type NetworkFSError struct{ Path, Kind string }

func (e *NetworkFSError) Error() string {
	return fmt.Sprintf("journal: %s is on a network file system (%s), whose locks and flushes cannot be trusted: use a local disk, or set Options.AllowNetworkFS", e.Path, e.Kind)
}

// LockError says that the file system could not lock; without a lock nothing keeps a second writer out.
type LockError struct {
	Path string
	Err  error
}

func (e *LockError) Error() string { return "journal: lock " + e.Path + ": " + e.Err.Error() }
func (e *LockError) Unwrap() error { return e.Err }

// StoreFullError says that Options.MaxPending operations are pending. It is persist.ErrFull.
type StoreFullError struct{ Limit int }

func (e *StoreFullError) Error() string {
	return fmt.Sprintf("%d operations are pending, Options.MaxPending allows no more", e.Limit)
}
func (e *StoreFullError) Unwrap() error { return persist.ErrFull }

// NoSpaceError says that the disk has no room for another segment. Known operations can still be settled; new ones are
// refused until there is space, no restart needed. It is persist.ErrFull, and the system's own error.
type NoSpaceError struct {
	Path string
	Err  error
}

func (e *NoSpaceError) Error() string   { return "no space left in " + e.Path + ": " + e.Err.Error() }
func (e *NoSpaceError) Unwrap() []error { return []error{persist.ErrFull, e.Err} }

// PoisonedError says that a write or a flush failed, or that the journal was taken away: nothing can be made durable
// any more until it is closed and opened anew. Get and List still work.
type PoisonedError struct {
	Path string
	Err  error
}

func (e *PoisonedError) Error() string {
	return "journal " + e.Path + " is out of service until it is opened anew: " + e.Err.Error()
}
func (e *PoisonedError) Unwrap() error { return e.Err }

// OusterError says that another writer has taken the journal over although this one holds the lock: the file system's
// locks do not work. It comes inside a *PoisonedError.
type OusterError struct{ Path, What string }

func (e *OusterError) Error() string { return e.Path + ": " + e.What }

// HeaderError says that both copies of a segment's header are damaged. It comes in Damage.Err.
type HeaderError struct{ File string }

func (e *HeaderError) Error() string { return "both headers of " + e.File + " are damaged" }

// DamagedError says that a record could not be read back: its bytes on disk have changed since they were written, or
// the disk does not give them.
type DamagedError struct {
	File   string
	Offset int64
	Err    error
}

func (e *DamagedError) Error() string {
	return fmt.Sprintf("record at %s:%d is damaged: %v", e.File, e.Offset, e.Err)
}
func (e *DamagedError) Unwrap() error { return e.Err }

var (
	errChecksum = errors.New("checksum mismatch")
	errFormat   = errors.New("malformed payload")
	errLocked   = errors.New("locked by another")
)

func noSpace(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) || errors.Is(err, syscall.EFBIG) || errors.Is(err, errDiskFull)
}
