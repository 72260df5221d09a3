package crashfs

import (
	"io"
	"io/fs"
	"slices"
	"syscall"
)

// File is an open file.
type File struct {
	fs     *FS
	name   string
	node   *inode
	closed bool
}

// ReadAt reads what programs see.
func (f *File) ReadAt(b []byte, off int64) (int, error) {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	if f.closed {
		return 0, fs.ErrClosed
	}
	if err := f.fs.call(Read, f.name); err != nil {
		return 0, pathError("read", f.name, err)
	}
	if off >= int64(len(f.node.data)) {
		return 0, io.EOF
	}
	n := copy(b, f.node.data[off:])
	if n < len(b) {
		return n, io.EOF
	}
	return n, nil
}

// WriteAt is seen at once and durable after Sync.
func (f *File) WriteAt(b []byte, off int64) (int, error) {
	f.fs.before(Write, f.name)
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	if f.closed {
		return 0, fs.ErrClosed
	}
	err := f.fs.call(Write, f.name)
	if err != nil {
		err = pathError("write", f.name, err)
		b = b[:f.fs.rng.IntN(len(b)+1)]
	}
	if grow := off + int64(len(b)) - int64(len(f.node.data)); grow > 0 && f.fs.space >= 0 {
		if grow > f.fs.space {
			b = b[:max(0, int64(len(b))-grow+f.fs.space)]
			grow, err = f.fs.space, pathError("write", f.name, syscall.ENOSPC)
		}
		f.fs.space -= grow
	}
	if len(b) > 0 {
		f.node.data = overwrite(f.node.data, b, off)
		f.node.pending = append(f.node.pending, change{off, slices.Clone(b)})
	}
	return len(b), err
}

// Truncate sets the size.
func (f *File) Truncate(n int64) error {
	f.fs.before(Truncate, f.name)
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	if err := f.fs.call(Truncate, f.name); err != nil {
		return pathError("truncate", f.name, err)
	}
	f.node.data = resize(f.node.data, n)
	f.node.pending = append(f.node.pending, change{off: n})
	return nil
}

// Allocate fails as fallocate would; it reserves nothing.
func (f *File) Allocate(n int64) error {
	f.fs.before(Allocate, f.name)
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	if err := f.fs.call(Allocate, f.name); err != nil {
		return pathError("fallocate", f.name, err)
	}
	if f.fs.space >= 0 && n-int64(len(f.node.data)) > f.fs.space {
		return pathError("fallocate", f.name, syscall.ENOSPC)
	}
	return nil
}

// Sync makes the contents durable, not the name. After a failure nobody knows which writes reached the disk, and those
// that did not never will: a later Sync succeeds without them.
func (f *File) Sync() error {
	f.fs.before(Sync, f.name)
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	if err := f.fs.call(Sync, f.name); err != nil {
		f.node.disk = f.node.survive(f.fs.rng, f.fs.rng.IntN(5))
		f.node.pending = nil
		return pathError("sync", f.name, err)
	}
	for _, c := range f.node.pending {
		if c.data == nil {
			f.node.disk = resize(f.node.disk, c.off)
		} else {
			f.node.disk = overwrite(f.node.disk, c.data, c.off)
		}
	}
	f.node.pending = nil
	return nil
}

// Size is what programs see.
func (f *File) Size() (int64, error) {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	return int64(len(f.node.data)), nil
}

// Linked reports whether the file has a name.
func (f *File) Linked() (bool, error) {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	return f.node.links > 0, nil
}

// Lock is exclusive among handles, until Unlock or Close.
func (f *File) Lock() error { return f.lock(true) }

// Share keeps others from Lock, until Unlock or Close.
func (f *File) Share() error { return f.lock(false) }

func (f *File) lock(exclusive bool) error {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	for o, x := range f.node.locks {
		if o != f && (x || exclusive) {
			return ErrLocked
		}
	}
	if f.node.locks == nil {
		f.node.locks = map[*File]bool{}
	}
	f.node.locks[f] = exclusive
	return nil
}

// Unlock ends Lock or Share.
func (f *File) Unlock() error {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	delete(f.node.locks, f)
	return nil
}

// Close gives the lock back. It syncs nothing.
func (f *File) Close() error {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	if f.closed {
		return fs.ErrClosed
	}
	f.closed = true
	f.fs.handles--
	delete(f.node.locks, f)
	return nil
}
