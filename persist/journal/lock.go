package journal

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"hash/crc32"
	"os"
	"time"
)

// lockName is never renamed and never removed: whoever holds its lock is the one.
const lockName = "lock"

// stampSize: generation, 16 random bytes, the segment in use when it was written, where it ended, 4 spare, checksum.
const stampSize = 40

// lock is the claim to the directory. Besides the kernel's lock it leaves a stamp: on a file system whose locks do
// nothing, the one who was there first sees that it is no longer its own.
type lock struct {
	f     file
	path  string
	stamp [stampSize]byte
	check [stampSize]byte
}

// stamp is what the last owner left.
type stamp struct {
	gen   uint64
	top   uint32 // the segment in use
	end   uint32 // of its frames; 0: not closed in order
	found bool
	bad   bool // unreadable
}

func (s stamp) clean() bool { return s.end != 0 }

var errWait error = waitError{}

// waitError is a context.DeadlineExceeded where no caller has set a deadline.
type waitError struct{}

func (waitError) Error() string        { return defaultWait.String() + ", as the context has no deadline" }
func (waitError) Is(target error) bool { return target == context.DeadlineExceeded }

// acquire waits for the lock as long as ctx allows, or a second.
func acquire(ctx context.Context, dir fsys, path string) (*lock, error) {
	f, err := dir.open(lockName, os.O_RDWR|os.O_CREATE)
	if err != nil {
		return nil, err
	}
	l := &lock{f: f, path: path}
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, defaultWait, errWait)
		defer cancel()
	}
	for pause := 2 * time.Millisecond; ; pause = min(2*pause, 50*time.Millisecond) {
		err := f.lock()
		if err == nil {
			return l, nil
		}
		if !errors.Is(err, errLocked) {
			return nil, errors.Join(&LockError{Path: path, Err: err}, f.Close())
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			why := ctx.Err()
			if errors.Is(context.Cause(ctx), errWait) {
				why = errWait
			}
			return nil, errors.Join(&InUseError{Path: path, Err: why}, f.Close())
		}
	}
}

func readStamp(f file) (s stamp) {
	var b [stampSize]byte
	n, err := f.size()
	if err == nil && n == 0 {
		return s
	}
	s.found = true
	if err != nil || readFull(f, b[:], 0) != nil || le.Uint32(b[36:]) != crc32.Checksum(b[:36], castagnoli) {
		s.bad = true
		return s
	}
	s.gen, s.top, s.end = le.Uint64(b[:]), le.Uint32(b[24:]), le.Uint32(b[28:])
	return s
}

// write leaves our stamp, durably.
func (l *lock) write(gen uint64, top, end uint32) error {
	b := l.stamp[:]
	if le.Uint64(b) != gen {
		le.PutUint64(b, gen)
		_, _ = rand.Read(b[8:24])
	}
	le.PutUint32(b[24:], top)
	le.PutUint32(b[28:], end)
	le.PutUint32(b[36:], crc32.Checksum(b[:36], castagnoli))
	if err := writeFull(l.f, b, 0); err != nil {
		return err
	}
	return l.f.sync()
}

// ours fails once the stamp is another's or the file has lost its name.
func (l *lock) ours() error {
	if err := readFull(l.f, l.check[:], 0); err != nil {
		return err
	}
	if !bytes.Equal(l.check[:], l.stamp[:]) {
		return &OusterError{Path: l.path, What: "another writer has opened it, the file system's locks do not work"}
	}
	if ok, err := l.f.linked(); err != nil {
		return err
	} else if !ok {
		return &OusterError{Path: l.path, What: "its lock file was deleted"}
	}
	return nil
}

// guard is asked before a write and before its success is told.
func (j *Journal) guard(s *segment) error {
	if err := j.held.ours(); err != nil {
		return err
	}
	if ok, err := s.f.linked(); err != nil {
		return err
	} else if !ok {
		return &OusterError{Path: j.path, What: s.name + " was deleted"}
	}
	return nil
}
