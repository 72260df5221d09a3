package journal

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/samekey/samekey/persist"
)

// Open opens the journal in dir, or makes one there: the directory is created, its parent is not. A relative dir is
// resolved once; the working directory may change afterwards.
//
// If another holds the journal, Open waits as long as ctx allows, a second if ctx has no deadline, and returns an
// *InUseError. It also returns *PermError, *NetworkFSError, *VersionError, *LockError and the system's errors; none of
// them leaves anything changed. Damage is no error: what is whole is loaded, the rest is set aside and reported.
// ctx does not bound the life of the journal.
func Open(ctx context.Context, dir string, o Options) (*Journal, error) {
	o, err := o.filled()
	if err != nil {
		return nil, err
	}
	if dir == "" { // of an unset variable; "." says that it is meant
		return nil, errors.New("journal: the directory's name is empty")
	}
	path, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("journal: %w", err)
	}
	d, err := openDir(path, true, o.AllowNetworkFS)
	if err != nil {
		return nil, prefixed(err)
	}
	j, err := open(ctx, d, path, o)
	if err != nil {
		return nil, errors.Join(prefixed(err), d.close())
	}
	return j, nil
}

// prefixed says whose error it is; the package's own types do so themselves.
func prefixed(err error) error {
	var p *fs.PathError
	if errors.As(err, &p) {
		return fmt.Errorf("journal: %w", err)
	}
	return err
}

// open works on any directory. It closes everything it opened if it fails, but dir.
func open(ctx context.Context, dir fsys, path string, o Options) (_ *Journal, err error) {
	held, err := acquire(ctx, dir, path)
	if err != nil {
		return nil, err
	}
	j := &Journal{path: path, opt: o, dir: &directory{fsys: dir}, held: held, compacting: make(turnstile, 1), stuck: map[uint64]time.Time{},
		kick: make(chan struct{}, 1), tidyKick: make(chan struct{}, 1), stop: make(chan struct{}), stopped: make(chan struct{})}
	var l *loaded
	defer func() {
		if err == nil {
			return
		}
		for _, s := range j.segs {
			s.release()
		}
		err = errors.Join(err, held.f.Close())
	}()
	was := readStamp(held.f)
	if l, err = look(dir, path); err != nil {
		return nil, err
	}
	j.gen = max(was.gen, l.gen) + 1
	if err = held.write(j.gen, was.top, 0); err != nil {
		return nil, fmt.Errorf("journal: stamp %s: %w", path, err)
	}
	if l, err = load(ctx, dir, path, os.O_RDWR, was); err != nil {
		return nil, err
	}
	j.segs = l.segs
	if was.bad {
		l.report.note("the stamp in the lock file was damaged")
	}
	if err = j.adopt(l, was); err != nil {
		return nil, err
	}
	if was.top != j.fill.seg.seq { // only now: until all is mended, what is missing is to be missed again
		if err = held.write(j.gen, j.fill.seg.seq, 0); err != nil {
			return nil, err
		}
	}
	j.sweep(time.Now())
	j.timer = time.NewTimer(time.Hour)
	j.timer.Stop()
	j.tell()
	j.start()
	return j, nil
}

// look reads the headers only.
func look(dir fsys, path string) (*loaded, error) {
	l := &loaded{dir: dir, report: Report{Dir: path}}
	err := l.openAll(os.O_RDONLY)
	l.close()
	return l, err
}

// adopt makes what was loaded fit for writing: damaged bytes are set aside first, then tails are cut, and all of it is
// durable before anything is appended.
func (j *Journal) adopt(l *loaded, was stamp) error {
	j.idx = l.idx
	j.opid.Store(l.opid)
	j.token = j.gen << 40
	if err := j.quarantine(l); err != nil {
		return err
	}
	keep, cur := j.segs[:0:0], -1
	top := max(l.first, 1) - 1 // the last number that is not given again
	var drop []*segment
	worst := uint32(0) // the last damaged one
	for k, s := range l.segs {
		im := l.images[k]
		switch {
		case im == nil || s.seq < l.first:
			drop = append(drop, s)
		case im.foreign:
			l.report.note("%s had not been finished", s.name)
			drop = append(drop, s)
		case im.noHdr && im.h.salt == 0:
			switch {
			case im.end > 0:
				top = max(top, s.seq)
			case s.seq > was.top:
				l.report.note("%s had not been finished", s.name)
			}
			drop = append(drop, s)
		default:
			if im.frames > 0 {
				cur = len(keep)
			}
			if len(im.bad)+len(im.strange) > 0 || im.noHdr {
				worst = s.seq
			}
			for _, h := range im.holes {
				if !h.tail {
					worst = s.seq
				}
			}
			keep = append(keep, s)
		}
	}
	top = max(top, was.top)
	if cur < 0 && len(keep) > 0 {
		cur = 0
	}
	// Behind the one in use there may be one that was prepared; it is made anew if anything is odd about it.
	if cur >= 0 {
		for _, s := range keep[cur+1:] {
			im := l.imageOf(s)
			if j.next == nil && s.seq == keep[cur].seq+1 && !im.short && !im.dirty && len(im.holes)+len(im.bad) == 0 {
				j.next = s
			} else {
				drop = append(drop, s)
			}
		}
		keep = keep[:cur+1]
	}
	j.segs = keep
	for _, s := range keep {
		top = max(top, s.seq)
		if err := j.mend(s, l.imageOf(s), cur >= 0 && s == keep[cur], was.clean()); err != nil {
			return err
		}
	}
	if err := j.removeSegments(drop, l.first); err != nil {
		return err
	}
	j.leftover = append(j.leftover, l.old...)
	if err := j.removeLeftovers(); err != nil {
		l.report.note("%s could not be removed yet: %v", j.leftover[0], err)
	}
	j.report = l.report
	j.mustCompact = worst
	return j.begins(l, top)
}

func (l *loaded) imageOf(s *segment) *image {
	for k := range l.segs {
		if l.segs[k] == s {
			return l.images[k]
		}
	}
	return nil
}

// begins decides where the next frame goes.
func (j *Journal) begins(l *loaded, top uint32) error {
	if n := len(j.segs); n > 0 {
		cur := j.segs[n-1]
		im := l.imageOf(cur)
		if cur.seq > j.mustCompact {
			j.prevSeg = cur
			j.fill = j.newBatch(cur, im.end)
			return nil
		}
		// Not behind damage: there compaction takes out what is whole, and the file goes.
		if j.next == nil {
			h := header{version: formatVersion, seq: top + 1, salt: newSalt(), size: j.opt.SegmentSize, first: j.segs[0].seq, gen: j.gen}
			s, err := makeSegment(j.dir, h)
			if err != nil && noSpace(err) && len(im.bad) == 0 {
				// Behind it all the same, until there is space: all that may still count there was read.
				j.prevSeg = cur
				j.fill = j.newBatch(cur, im.end)
				j.tight, j.prepFailed = true, time.Now()
				return nil
			}
			if err != nil {
				return err
			}
			j.next = s
		}
		j.prevSeg = cur
		j.fill = j.newBatch(cur, cur.size)
		j.rotate()
		return nil
	}
	h := header{version: formatVersion, seq: top + 1, salt: newSalt(), size: min(starterSize, j.opt.SegmentSize), first: top + 1, gen: j.gen}
	s, err := makeSegment(j.dir, h)
	if err != nil {
		return err
	}
	j.segs = append(j.segs, s)
	j.fill = j.newBatch(s, dataStart)
	return nil
}

// mend brings a segment into the form that it should have. The one in use is written again as it was read: if an earlier
// owner's flush failed, the page cache may hold what the disk does not.
func (j *Journal) mend(s *segment, im *image, cur, clean bool) error {
	if im.dirty {
		if err := errors.Join(writeZeros(s.f, headerSize, headerCopy), writeZeros(s.f, headerCopy+headerSize, dataStart)); err != nil {
			return err
		}
		if err := writeHeader(s.f, s.header); err != nil {
			return err
		}
	}
	tail := im.end
	for _, h := range im.holes {
		if h.tail {
			tail = h.end
		}
	}
	if im.short {
		n, err := s.f.size()
		if err != nil {
			return err
		}
		if err := writeZeros(s.f, n, s.size); err != nil {
			return err
		}
	}
	if tail == im.end && !im.short && (!cur || clean) {
		return nil
	}
	if err := writeZeros(s.f, im.end, tail); err != nil {
		return err
	}
	if cur && !clean && len(im.bad) == 0 {
		buf := make([]byte, im.end-dataStart)
		if err := readFull(s.f, buf, dataStart); err != nil {
			return err
		}
		if err := writeFull(s.f, buf, dataStart); err != nil {
			return err
		}
	}
	return s.f.sync()
}

// quarantine keeps damaged bytes before anything is changed. On a full disk those of a torn tail go, as nobody was told
// of them, and the others wait for space in memory.
func (j *Journal) quarantine(l *loaded) error {
	for _, q := range l.saved {
		err := j.setAside(q)
		switch {
		case err == nil:
		case !noSpace(err):
			return fmt.Errorf("journal: keep damaged bytes in %s: %w", q.name, err)
		default:
			l.report.note("there is no space to keep what was at %d in %s", q.off, segmentName(q.seq))
			if !q.in(l.report.Cut, "") {
				q.in(l.report.Damage, "")
				j.unsaved = append(j.unsaved, q)
			}
		}
	}
	return nil
}

// removeSegments removes segments that are no longer part of the journal, oldest first, each durably before the next.
// Names below first can wait: they are not given again.
func (j *Journal) removeSegments(segs []*segment, first uint32) error {
	for _, s := range segs {
		s.release()
		if seqOf(s.name) < first {
			j.leftover = append(j.leftover, s.name)
		} else if err := j.dir.remove(s.name); err != nil {
			return err
		}
	}
	return nil
}

func (j *Journal) start() {
	j.ctx, j.cancel = context.WithCancel(context.Background())
	go j.run()
	j.tending.Go(j.tend)
	j.tidy()
}

// Close flushes and lets others in. Begins that are still on their way become durable; later calls get
// persist.ErrClosed. It waits for the disk. An error says that buffered changes may not be there when it is opened again.
func (j *Journal) Close() error {
	j.mu.Lock()
	if j.closed {
		j.mu.Unlock()
		<-j.stopped
		return nil
	}
	j.closed = true
	last := j.newest()
	if last != nil {
		last.urgent = true
	}
	j.mu.Unlock()
	j.cancel()
	j.tending.Wait()
	j.compacting.Lock() // no compaction is under way, and none begins
	defer j.compacting.Unlock()
	j.saveUnsaved()
	close(j.stop)
	<-j.stopped
	j.wg.Wait()
	err := j.poisoned()
	switch {
	case err != nil:
	case len(j.cuts) > 0:
		err = last.err // buffered changes could not be written
	default:
		err = j.held.write(j.gen, j.fill.seg.seq, uint32(j.fill.off))
	}
	j.mu.Lock()
	for _, s := range j.segs {
		s.release()
	}
	for _, s := range []*segment{j.next, j.old} {
		if s != nil {
			s.release()
		}
	}
	j.mu.Unlock()
	// Last of all: then the next one may come.
	if err := errors.Join(err, j.held.f.Close(), j.dir.close()); err != nil {
		return fail("Close", persist.Ref{}, false, err)
	}
	return nil
}
