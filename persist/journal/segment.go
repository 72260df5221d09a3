package journal

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"
)

// segment is an open log file. Readers hold it by refs, so that compaction can drop one that is being read.
type segment struct {
	header
	name string
	f    file
	refs int // under Journal.mu; the journal's own is one

	// Of the committer alone:
	frames uint32 // written so far
	crc    uint32 // of the last
}

// limit is how far changes of a class may fill the last prewritten segment while no other is ready. On a full disk new
// records stop well short of its end, compaction leaves room to settle, and settles leave room for the one small frame
// that gives a dead segment back.
func (s *segment) limit(c class) int64 {
	switch c {
	case classNew:
		return s.size - s.size/4
	case classCompact:
		return s.size - s.size/16
	case classSettle:
		return s.size - 4*(frameHeader+removeSize)
	}
	return s.size
}

// makeSegment prepares a file: space first, zeros over all of it, and only then the header, so that a crash leaves
// something blank, or a segment.
func makeSegment(dir *directory, h header) (*segment, error) {
	name := segmentName(h.seq)
	f, err := dir.create(name, os.O_EXCL)
	if errors.Is(err, fs.ErrExist) {
		// Left by an attempt that failed and could not clean up after itself.
		if err := dir.remove(name); err != nil {
			return nil, err
		}
		f, err = dir.create(name, os.O_EXCL)
	}
	if err != nil {
		return nil, err
	}
	if err := fillSegment(f, h); err != nil {
		return nil, errors.Join(err, f.Close(), dir.remove(name))
	}
	return &segment{header: h, name: name, f: f, refs: 1, crc: h.seed()}, nil
}

var errNoOld = errors.New("no segment to use again")

// reuseSegment makes a segment of one that compaction took out of use: its space is prewritten already, and the new salt
// makes what lies there nothing. The name is durable before the header is touched, so that at any instant the file is
// the old segment, which the log has declared out of use, or the new one.
func reuseSegment(dir *directory, old *segment, h header) (*segment, error) {
	h.stale = true
	s := &segment{header: h, name: segmentName(h.seq), f: old.f, refs: 1, crc: h.seed()}
	err := dir.change(func() error { return dir.rename(old.name, s.name) })
	if err == nil {
		err = writeHeader(s.f, h)
	}
	if err == nil {
		err = s.f.unlock()
	}
	if err != nil {
		_ = old.f.Close() // nothing in it matters
		return nil, errors.Join(err, dir.remove(old.name), dir.remove(s.name))
	}
	return s, nil
}

func fillSegment(f file, h header) error {
	if err := f.allocate(h.size); err != nil {
		return err
	}
	if err := writeZeros(f, 0, h.size); err != nil {
		return err
	}
	if err := f.sync(); err != nil {
		return err
	}
	return writeHeader(f, h)
}

// writeHeader flushes after each copy: one of them is whole at any time.
func writeHeader(f file, h header) error {
	for _, off := range []int64{headerCopy, 0} {
		if err := writeFull(f, h.encode(), off); err != nil {
			return err
		}
		if err := f.sync(); err != nil {
			return err
		}
	}
	return nil
}

func writeZeros(f file, from, to int64) error {
	for from < to {
		n := min(to-from, int64(len(zeros)))
		if err := writeFull(f, zeros[:n], from); err != nil {
			return err
		}
		from += n
	}
	return nil
}

// writeFull goes on after a short write, as long as it gets anywhere.
func writeFull(f file, b []byte, off int64) error {
	for len(b) > 0 {
		n, err := f.WriteAt(b, off)
		if err != nil {
			return err
		}
		if n <= 0 {
			return errors.New("short write")
		}
		b, off = b[n:], off+int64(n)
	}
	return nil
}

// prep is the preparation of the next segment, shared by all that wait for it.
type prep struct {
	done chan struct{}
	err  error
}

// prepare starts to make the next segment, big enough for a frame of n bytes. Under mu; at most one at a time.
func (j *Journal) prepare(n int64) *prep {
	if j.prep != nil {
		return j.prep
	}
	size := max(j.opt.SegmentSize, (n+dataStart+linkFrame+4095)&^4095)
	if n > j.opt.SegmentSize/2 {
		size += size / 3 / 4096 * 4096 // it must fit below the reserve, too
	}
	h := header{version: formatVersion, seq: j.cur().seq + 1, salt: newSalt(), size: size, first: j.segs[0].seq, gen: j.gen}
	p := &prep{done: make(chan struct{})}
	j.prep = p
	var old *segment
	if j.old != nil && j.old.size == size {
		old, j.old = j.old, nil
	}
	j.wg.Go(func() {
		var s *segment
		err := errNoOld
		if old != nil {
			s, err = reuseSegment(j.dir, old, h)
		}
		if err != nil {
			s, err = makeSegment(j.dir, h)
		}
		j.mu.Lock()
		defer j.mu.Unlock()
		j.prep = nil
		j.next = s
		j.tight = err != nil && noSpace(err)
		if err != nil {
			j.prepFailed = time.Now()
			p.err = fmt.Errorf("prepare segment %d: %w", h.seq, err)
			if noSpace(err) {
				p.err = &NoSpaceError{Path: j.path, Err: p.err}
			}
		}
		close(p.done)
	})
	return p
}

// release gives a reader's hold back, and closes the file of a dropped segment with the last one. Under mu.
func (s *segment) release() {
	if s.refs--; s.refs == 0 {
		_ = s.f.Close() // nothing was written through it since its last sync
	}
}

func (j *Journal) cur() *segment { return j.fill.seg }

// segment finds one by number. Under mu.
func (j *Journal) segment(seq uint32) *segment {
	if i := int(seq) - int(j.segs[0].seq); i >= 0 && i < len(j.segs) && j.segs[i].seq == seq {
		return j.segs[i]
	}
	for _, s := range j.segs { // after damage there may be gaps
		if s.seq == seq {
			return s
		}
	}
	return nil
}
