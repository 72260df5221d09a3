// Package crashfs is one directory in memory that crashes. It keeps apart what programs see and what would survive a
// loss of power: bytes that were not synced may be lost, kept, reordered or torn at any byte, and so may names. It can
// also fail the n-th call of any kind. What survives is drawn from a seed, so that a failure can be replayed.
package crashfs

import (
	"errors"
	"io/fs"
	"math/rand/v2"
	"os"
	"slices"
	"sort"
	"sync"
)

// Kind of call.
type Kind int

// The kinds of calls that can fail.
const (
	Open Kind = iota
	Create
	Read
	Write
	Sync
	Truncate
	Allocate
	Rename
	Remove
	SyncDir
	List
	Kinds // how many there are
)

func (k Kind) String() string {
	return [...]string{"open", "create", "read", "write", "sync", "truncate", "allocate", "rename", "remove", "syncdir", "list"}[k]
}

// ErrLocked is what Lock returns while another handle holds the lock.
var ErrLocked = errors.New("crashfs: locked")

// FS is the directory. It is safe for concurrent use; its zero value is not usable.
type FS struct {
	mu      sync.Mutex
	rng     *rand.Rand
	names   map[string]*inode // as programs see them
	durable map[string]*inode // as the disk has them
	changes []entry           // of names, not synced
	counts  [Kinds]int
	handles int // open files
	fault   fault
	space   int64 // bytes that may still be taken; negative: no bound
	// Before, if set, is called ahead of each call that changes something, with the FS unlocked.
	Before func(Kind, string)
}

// entry is one change of names: it reaches the disk as a whole or not at all.
type entry struct {
	remove, add string
	node        *inode
}

type inode struct {
	data    []byte   // as programs see it
	disk    []byte   // what is certain
	pending []change // what is not
	links   int
	locks   map[*File]bool // true: exclusive
}

type change struct {
	off  int64
	data []byte // nil: truncate to off
}

type fault struct {
	on    bool
	kind  Kind
	at    int // the number of the call that fails, from 1
	times int // how many from there on; negative: all
	err   error
	name  string // only files of this name, if set
}

// New makes an empty directory.
func New(seed uint64) *FS {
	return &FS{rng: rand.New(rand.NewPCG(seed, 0)), names: map[string]*inode{}, durable: map[string]*inode{}, space: -1}
}

// Fail makes the n-th call of a kind from now on, and times-1 more after it (all, if negative), return err. A write that
// fails may have written a part.
func (f *FS) Fail(kind Kind, n, times int, err error) { f.FailName(kind, "", n, times, err) }

// FailName is Fail for the calls on one file.
func (f *FS) FailName(kind Kind, name string, n, times int, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fault = fault{on: true, kind: kind, at: n, times: times, err: err, name: name}
}

// Heal ends what Fail began.
func (f *FS) Heal() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fault = fault{}
}

// SetSpace bounds how many more bytes files may grow by; negative: not at all.
func (f *FS) SetSpace(n int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.space = n
}

// Count tells how many calls of a kind there were.
func (f *FS) Count(kind Kind) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.counts[kind]
}

// Handles tells how many files are open.
func (f *FS) Handles() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.handles
}

func (f *FS) before(kind Kind, name string) {
	if f.Before != nil {
		f.Before(kind, name)
	}
}

// call counts, and returns the fault that is due. Under mu.
func (f *FS) call(kind Kind, name string) error {
	f.counts[kind]++
	if !f.fault.on || f.fault.kind != kind || f.fault.name != "" && f.fault.name != name {
		return nil
	}
	if f.fault.at--; f.fault.at > 0 || f.fault.times == 0 {
		return nil
	}
	f.fault.times--
	return f.fault.err
}

func pathError(op, name string, err error) error { return &fs.PathError{Op: op, Path: name, Err: err} }

// OpenFile knows os.O_CREATE, os.O_EXCL and os.O_TRUNC.
func (f *FS) OpenFile(name string, flag int) (*File, error) {
	kind := Open
	if flag&os.O_CREATE != 0 {
		kind = Create
		f.before(kind, name)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.call(kind, name); err != nil {
		return nil, pathError("open", name, err)
	}
	n := f.names[name]
	switch {
	case n == nil && flag&os.O_CREATE == 0:
		return nil, pathError("open", name, fs.ErrNotExist)
	case n != nil && flag&os.O_EXCL != 0:
		return nil, pathError("open", name, fs.ErrExist)
	case n == nil:
		n = &inode{links: 1}
		f.names[name] = n
		f.changes = append(f.changes, entry{add: name, node: n})
	case flag&os.O_TRUNC != 0:
		n.data = nil
		n.pending = append(n.pending, change{})
	}
	f.handles++
	return &File{fs: f, name: name, node: n}, nil
}

// Remove takes a name away.
func (f *FS) Remove(name string) error {
	f.before(Remove, name)
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.call(Remove, name); err != nil {
		return pathError("remove", name, err)
	}
	n := f.names[name]
	if n == nil {
		return pathError("remove", name, fs.ErrNotExist)
	}
	delete(f.names, name)
	if n.links--; f.space >= 0 {
		f.space += int64(len(n.data))
	}
	f.changes = append(f.changes, entry{remove: name})
	return nil
}

// Rename replaces what had the new name.
func (f *FS) Rename(from, to string) error {
	f.before(Rename, from)
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.call(Rename, from); err != nil {
		return pathError("rename", from, err)
	}
	n := f.names[from]
	if n == nil {
		return pathError("rename", from, fs.ErrNotExist)
	}
	if old := f.names[to]; old != nil {
		old.links--
	}
	delete(f.names, from)
	f.names[to] = n
	f.changes = append(f.changes, entry{remove: from, add: to, node: n})
	return nil
}

// Names lists the directory.
func (f *FS) Names() ([]string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.call(List, ""); err != nil {
		return nil, err
	}
	var names []string
	for n := range f.names {
		names = append(names, n)
	}
	sort.Strings(names)
	return names, nil
}

// SyncDir makes names durable, not the contents of files.
func (f *FS) SyncDir() error {
	f.before(SyncDir, "")
	f.mu.Lock()
	defer f.mu.Unlock()
	err := f.call(SyncDir, "")
	for _, e := range f.changes {
		if err == nil || f.rng.IntN(2) == 0 { // after a failure nobody knows, and the next sync does not help
			e.apply(f.durable)
		}
	}
	f.changes = nil
	return err
}

func (e entry) apply(names map[string]*inode) {
	if e.remove != "" {
		delete(names, e.remove)
	}
	if e.add != "" {
		names[e.add] = e.node
	}
}

// Crash returns the directory as a loss of power at this instant could leave it. The FS itself goes on.
func (f *FS) Crash(seed uint64) *FS {
	f.mu.Lock()
	defer f.mu.Unlock()
	c := New(seed)
	rng := rand.New(rand.NewPCG(seed, 1))
	keep := rng.IntN(5) // of 4: some crashes lose everything, some nothing
	names := map[string]*inode{}
	for n, node := range f.durable {
		names[n] = node
	}
	for _, e := range f.changes {
		if rng.IntN(4) < keep {
			e.apply(names)
		}
	}
	clones := map[*inode]*inode{}
	ordered := make([]string, 0, len(names))
	for n := range names {
		ordered = append(ordered, n)
	}
	sort.Strings(ordered)
	for _, n := range ordered {
		node := names[n]
		if clones[node] == nil {
			b := node.survive(rng, keep)
			clones[node] = &inode{data: b, disk: slices.Clone(b)}
		}
		clones[node].links++
		c.names[n], c.durable[n] = clones[node], clones[node]
	}
	return c
}

// Bytes returns what programs see of a file.
func (f *FS) Bytes(name string) []byte {
	f.mu.Lock()
	defer f.mu.Unlock()
	if n := f.names[name]; n != nil {
		return slices.Clone(n.data)
	}
	return nil
}

// SetBytes makes a file, durably, with these contents.
func (f *FS) SetBytes(name string, b []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := &inode{data: slices.Clone(b), disk: slices.Clone(b), links: 1}
	f.names[name], f.durable[name] = n, n
}

// Kill returns the directory as the death of the process leaves it: all that was written is there.
func (f *FS) Kill() *FS {
	f.mu.Lock()
	defer f.mu.Unlock()
	c := New(0)
	for n, node := range f.names {
		c.names[n] = &inode{data: slices.Clone(node.data), disk: slices.Clone(node.data), links: 1}
		c.durable[n] = c.names[n]
	}
	return c
}

const sector = 512

// survive draws what is left of a file: each sector of each unsynced write is kept or lost by itself, and one may be torn.
func (n *inode) survive(rng *rand.Rand, keep int) []byte {
	b := slices.Clone(n.disk)
	for _, c := range n.pending {
		if c.data == nil {
			if rng.IntN(4) < keep {
				b = resize(b, c.off)
			}
			continue
		}
		for from := int64(0); from < int64(len(c.data)); {
			to := min(int64(len(c.data)), (c.off+from)/sector*sector+sector-c.off)
			part := c.data[from:to]
			switch {
			case rng.IntN(4) >= keep:
				part = nil
			case rng.IntN(16) == 0:
				part = part[:rng.IntN(len(part)+1)]
			}
			b = overwrite(b, part, c.off+from)
			from = to
		}
	}
	return b
}

func resize(b []byte, n int64) []byte {
	if int64(len(b)) >= n {
		return b[:n]
	}
	return append(b, make([]byte, n-int64(len(b)))...)
}

func overwrite(b, part []byte, off int64) []byte {
	if len(part) == 0 {
		return b
	}
	if end := off + int64(len(part)); end > int64(len(b)) {
		b = resize(b, end)
	}
	copy(b[off:], part)
	return b
}
