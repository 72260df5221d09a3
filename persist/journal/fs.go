package journal

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
)

// fsys is the directory that the journal lives in; tests put one beneath it that crashes.
type fsys interface {
	open(name string, flag int) (file, error) // files are 0600
	remove(name string) error
	rename(from, to string) error
	list() ([]string, error)
	sync() error // of the directory's entries
	close() error
}

type file interface {
	io.ReaderAt
	io.WriterAt
	io.Closer
	allocate(size int64) error // reserves blocks, where the system can: fails early on a full disk
	sync() error               // contents, and what is needed to read them back
	size() (int64, error)
	linked() (bool, error) // whether the file still has a name
	lock() error           // exclusive, until closed or unlocked; errLocked at once if another holds or shares it
	share() error          // with other readers; errLocked at once if another has locked it
	unlock() error
}

// directory makes names durable one at a time: a flush that fails may have dropped whatever was changed before it, and no
// later flush brings that back.
type directory struct {
	fsys
	mu sync.Mutex
}

// change makes one name, or takes one away, durably.
func (d *directory) change(f func() error) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := f(); err != nil {
		return err
	}
	return d.sync()
}

// remove is durable; a name that is not there is no error.
func (d *directory) remove(name string) error {
	return d.change(func() error {
		if err := d.fsys.remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	})
}

// create opens a file whose name is durable then; with os.O_EXCL it makes one, and leaves nothing if it fails.
func (d *directory) create(name string, flag int) (f file, err error) {
	made := false
	err = d.change(func() (err error) {
		f, err = d.open(name, os.O_RDWR|os.O_CREATE|flag)
		made = err == nil
		return err
	})
	if err != nil && made {
		err = errors.Join(err, f.Close())
		if flag&os.O_EXCL != 0 {
			err = errors.Join(err, d.fsys.remove(name))
		}
		return nil, err
	}
	return f, err
}

// osDir works through an open directory: neither a change of the working directory nor a rename of a parent misleads it.
type osDir struct{ root *os.Root }

type osFile struct {
	*os.File
	scratch *scratch
}

func (d osDir) open(name string, flag int) (file, error) {
	f, err := d.root.OpenFile(name, flag, 0o600)
	if err != nil {
		return nil, err
	}
	if flag&os.O_CREATE != 0 {
		// Whatever the umask took away.
		if err := f.Chmod(0o600); err != nil {
			return nil, errors.Join(err, f.Close())
		}
	}
	return osFile{f, new(scratch)}, nil
}

func (d osDir) remove(name string) error { return d.root.Remove(name) }
func (d osDir) close() error             { return d.root.Close() }

func (d osDir) rename(from, to string) error { return d.root.Rename(from, to) }

func (d osDir) list() ([]string, error) {
	f, err := d.root.Open(".")
	if err != nil {
		return nil, err
	}
	names, err := f.Readdirnames(-1)
	return names, errors.Join(err, f.Close())
}

func (d osDir) sync() error {
	f, err := d.root.Open(".")
	if err != nil {
		return err
	}
	return errors.Join(syncDir(f), f.Close())
}

func (f osFile) size() (int64, error) {
	st, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return st.Size(), nil
}

// openDir finds or makes dir, 0700 whatever the umask, and refuses one that others can reach.
func openDir(path string, create, network bool) (fsys, error) {
	st, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) && create {
		st, err = makeDir(path)
	}
	if err != nil {
		return nil, err
	}
	if create { // also of a directory that is there: who made it may have died before its entry was durable
		if err := syncParent(path); err != nil {
			return nil, err
		}
	}
	if !st.IsDir() {
		return nil, &fs.PathError{Op: "open", Path: path, Err: errNotDir}
	}
	if permsMatter && st.Mode().Perm()&0o077 != 0 {
		return nil, &PermError{Path: path, Mode: st.Mode()}
	}
	if !network {
		if kind := networkFS(path); kind != "" {
			return nil, &NetworkFSError{Path: path, Kind: kind}
		}
	}
	root, err := os.OpenRoot(path)
	if err != nil {
		return nil, err
	}
	return osDir{root}, nil
}

// makeDir creates the last element only: a missing parent is more often a typo, or a mount that is not there, than a wish.
func makeDir(path string) (fs.FileInfo, error) {
	if err := os.Mkdir(path, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		if errors.Is(err, fs.ErrNotExist) {
			err = fmt.Errorf("%w: make its parent first, only the last directory is made", err)
		}
		return nil, err
	} else if err == nil {
		if err := os.Chmod(path, 0o700); err != nil {
			return nil, err
		}
	}
	return os.Stat(path)
}

// syncParent makes the directory's own entry durable. A parent that may not be read was set up by somebody else.
func syncParent(path string) error {
	parent, err := os.Open(filepath.Dir(path))
	if errors.Is(err, fs.ErrPermission) {
		return nil
	}
	if err != nil {
		return err
	}
	if parentSynced != nil {
		parentSynced(parent.Name())
	}
	return errors.Join(syncDir(parent), parent.Close())
}

// parentSynced is for a test: which directory is synced cannot be seen from outside.
var parentSynced func(dir string)

var errNotDir = errors.New("not a directory")
