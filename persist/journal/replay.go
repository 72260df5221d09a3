package journal

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
)

// loaded is a journal as its files tell it: read by Open, Check and ReadOnly alike. Reading changes nothing.
type loaded struct {
	dir    fsys
	idx    *index
	ops    map[uint64]uint32 // slots by operation number
	segs   []*segment        // oldest first, with those that hold no frame yet
	images []*image          // of segs, without their bytes
	saved  []saved           // damaged bytes, to be set aside
	old    []string          // files kept to become segments
	first  uint32            // segments below are no longer part of it
	opid   uint64            // highest seen
	gen    uint64
	report Report
}

// saved is a copy of damaged bytes, and where they were.
type saved struct {
	name string
	data []byte
	seq  uint32
	off  int64
}

// load reads all segments, and misses what the last owner's stamp tells of. On success the caller closes them.
func load(ctx context.Context, dir fsys, path string, flag int, was stamp) (l *loaded, err error) {
	l = &loaded{dir: dir, idx: newIndex(), ops: map[uint64]uint32{}, report: Report{Dir: path}}
	defer func() {
		if err != nil {
			l.close()
		}
	}()
	if err := l.openAll(flag); err != nil {
		return l, err
	}
	var buf []byte
	for k := 0; k < len(l.segs); k++ {
		if err := ctx.Err(); err != nil {
			return l, err
		}
		s := l.segs[k]
		if s.seq < l.first {
			l.images = append(l.images, nil)
			continue
		}
		im, err := readImage(s.f, s.name, buf)
		if err != nil {
			return l, err
		}
		buf = im.b
		if err := l.segment(k, im); err != nil {
			return l, err
		}
		im.b = nil
		l.images = append(l.images, im)
	}
	l.finish()
	l.against(was)
	return l, nil
}

// against reports what the last owner had and is not there.
func (l *loaded) against(was stamp) {
	top := max(l.first, 1) - 1
	var cur *segment // in use: the last with a frame, or the first
	var end int64
	for k, s := range l.segs {
		top = max(top, s.seq)
		im := l.images[k]
		switch {
		case im == nil || s.seq < l.first || im.foreign:
		case im.noHdr && im.h.salt == 0:
			if s.seq <= was.top && im.end == 0 {
				l.report.Damage = append(l.report.Damage, Damage{File: s.name, Err: errors.New("is empty")})
			}
		case cur == nil || im.frames > 0:
			cur, end = s, im.end
		}
	}
	if was.top > top {
		l.missing(top+1, was.top+1)
	}
	// Closed in order, it ended where the stamp says.
	if cur != nil && was.clean() && (cur.seq < was.top || cur.seq == was.top && end < int64(was.end)) {
		l.report.Damage = append(l.report.Damage, Damage{File: cur.name, Offset: end, Err: errors.New("its last entries are missing")})
	}
}

// finish takes out what lies in segments that are no longer part of the journal, and looks for those that should be.
func (l *loaded) finish() {
	old := func(name string) bool { seq, ok := parseSegmentName(name); return ok && seq < l.first }
	l.report.Damage = slices.DeleteFunc(l.report.Damage, func(d Damage) bool { return old(d.File) })
	for i := uint32(1); i < l.idx.used; i++ {
		if s := l.idx.at(i); s.hash != 0 && s.put.seg < l.first {
			l.idx.remove(i)
		}
	}
	want := l.first
	for k, s := range l.segs {
		if im := l.images[k]; im != nil && im.foreign && im.h.seq >= l.first {
			l.report.Damage = append(l.report.Damage, Damage{File: s.name, Err: fmt.Errorf("holds segment %d", im.h.seq)})
		}
		if s.seq >= l.first {
			l.missing(want, s.seq)
			want = s.seq + 1
		}
	}
	l.ops = nil
}

// missing reports that segments from up to below to are not there. 0: nobody knows the first.
func (l *loaded) missing(from, to uint32) {
	if from != 0 && from < to {
		l.report.Damage = append(l.report.Damage, Damage{File: segmentName(from), Err: fmt.Errorf("%d segments are missing", to-from)})
	}
}

func (l *loaded) close() {
	for _, s := range l.segs {
		_ = s.f.Close() // only read so far
	}
	l.segs = nil
}

// openAll opens the segments and reads their headers, and refuses newer formats before anything else is looked at.
func (l *loaded) openAll(flag int) error {
	names, err := l.dir.list()
	if err != nil {
		return err
	}
	slices.Sort(names)
	for _, name := range names {
		if isOldName(name) {
			l.old = append(l.old, name)
		}
		seq, ok := parseSegmentName(name)
		if !ok {
			continue
		}
		f, err := l.dir.open(name, flag)
		if errors.Is(err, fs.ErrNotExist) {
			continue // compacted away meanwhile
		}
		if err != nil {
			return err
		}
		// An owner beside us does not write over what we share.
		if flag == os.O_RDONLY && errors.Is(f.share(), errLocked) {
			_ = f.Close()
			continue // it is about to
		}
		s := &segment{name: name, f: f, refs: 1, header: header{seq: seq}}
		l.segs = append(l.segs, s)
		page := make([]byte, dataStart)
		n, err := f.size()
		if err != nil {
			return err
		}
		page = page[:min(n, dataStart)]
		if readFull(f, page, 0) != nil {
			clear(page) // readImage goes page by page
			continue
		}
		h, _, err := readHeader(page)
		if err != nil {
			continue
		}
		if h.version > formatVersion {
			return &VersionError{Path: l.report.Dir + string(os.PathSeparator) + name, Version: h.version, Highest: formatVersion}
		}
		l.first, l.gen = max(l.first, h.first), max(l.gen, h.gen)
		s.header = h
	}
	return nil
}

// segment reads the k-th.
func (l *loaded) segment(k int, im *image) error {
	s := l.segs[k]
	im.readTop(s.seq)
	s.header, s.crc = im.h, im.last
	if s.seq = seqOf(s.name); s.seq != im.h.seq {
		im.foreign, im.end = true, 0
		return nil
	}
	if im.noHdr {
		if im.unfinished() {
			im.end = 0
			return nil
		}
		if im.h.salt == 0 {
			l.damage(im, hole{off: 0, end: usedBytes(im.b)}, &HeaderError{File: s.name})
			return nil
		}
	}
	if im.dirty {
		l.report.note("%s: its header is damaged, the copy serves", s.name)
	}
	err := im.walk(func(f *frame) error { return l.frame(k, f) })
	if err != nil {
		return err
	}
	s.frames, s.crc = im.frames, im.last
	for _, off := range im.mended {
		l.report.note("%s: entry at %d was damaged and could be mended", s.name, off)
	}
	for _, off := range im.strange {
		f, _ := im.h.parseFrame(im.b, off)
		l.damage(im, hole{off: off, end: f.end(), frames: 1}, errors.New("whole, but makes no sense"))
	}
	for _, h := range im.bad {
		l.damage(im, h, errors.New("the disk does not give it"))
	}
	last := l.lastUsed(k)
	for _, h := range im.holes {
		switch {
		case h.off == h.end:
			l.report.Damage = append(l.report.Damage, Damage{File: s.name, Offset: h.off, Frames: max(0, h.frames), Err: errors.New("entries are missing here")})
		case h.tail && last:
			l.report.Cut = append(l.report.Cut, l.save(im, h, errors.New("torn tail")))
		default:
			l.damage(im, h, errChecksum)
		}
	}
	if im.short {
		d := Damage{File: s.name, Offset: int64(len(im.b)), Length: im.h.size - int64(len(im.b)), Err: errors.New("the file was cut short")}
		if last {
			l.report.Cut = append(l.report.Cut, d)
		} else {
			l.report.Damage = append(l.report.Damage, d)
		}
	}
	return nil
}

func seqOf(name string) uint32 { seq, _ := parseSegmentName(name); return seq }

// lastUsed: no later segment holds a frame, so that the k-th is the one that was being written.
func (l *loaded) lastUsed(k int) bool {
	for _, s := range l.segs[k+1:] {
		var b [frameHeader]byte
		if readFull(s.f, b[:], dataStart) != nil || le.Uint64(b[:]) == s.salt && s.salt != 0 {
			return false
		}
	}
	return true
}

func (l *loaded) damage(im *image, h hole, err error) {
	l.report.Damage = append(l.report.Damage, l.save(im, h, err))
}

// save keeps a copy of what is there for quarantine. The name says where it was: a second Open finds it kept.
func (l *loaded) save(im *image, h hole, err error) Damage {
	d := Damage{File: im.name, Offset: h.off, Length: h.end - h.off, Frames: max(0, h.frames), Err: err}
	if data := im.b[h.off:h.end]; !allZero(data) {
		d.Quarantine = fmt.Sprintf("quarantine-%010d-%010d.bin", seqOf(im.name), h.off)
		l.saved = append(l.saved, saved{d.Quarantine, slices.Clone(data), seqOf(im.name), h.off})
	}
	return d
}

// frame applies one.
func (l *loaded) frame(k int, f *frame) error {
	p := f.payload
	here := loc{l.segs[k].seq, uint32(f.off)}
	n := uint32(f.end() - f.off)
	switch p[0] {
	case kindVoid, kindCut:
		return nil
	case kindLink:
		return l.link(k, p)
	case kindTrim:
		r := &reader{b: p[1:]}
		if first := r.op(); r.err() == nil && first <= uint64(here.seg) {
			l.first = max(l.first, uint32(first))
			return nil
		}
		return errFormat
	case kindPut, kindMark, kindSettle, kindRemove, kindTomb:
	default:
		return errFormat
	}
	m, scope, id, err := peek(p)
	if err != nil {
		return err
	}
	l.opid = max(l.opid, m.opid)
	i, known := l.ops[m.opid]
	switch {
	case p[0] == kindRemove:
		if known {
			l.idx.remove(i)
			delete(l.ops, m.opid)
		}
	case known:
		m.opid = l.idx.at(i).opid
		l.idx.set(i, p[0], m, here, n)
	case p[0] == kindPut || p[0] == kindTomb:
		hash := l.idx.hashBytes(scope, id)
		if err := l.supersede(hash, string(scope), string(id)); err != nil {
			return err
		}
		i = l.idx.insert(hash, m)
		l.ops[m.opid] = i
		l.idx.set(i, p[0], m, here, n)
	}
	// A mark or an answer without its record: compaction has dropped it, or damage did, and that is reported.
	return nil
}

// supersede drops an older operation of the same name: its retention had ended when the name was used again.
func (l *loaded) supersede(hash uint64, scope, id string) error {
	for i := l.idx.first(hash); i != 0; i = l.idx.after(i) {
		s := l.idx.at(i)
		seg := l.find(s.put.seg)
		if seg == nil {
			continue
		}
		p, err := seg.readFrame(int64(s.put.off))
		if err != nil {
			continue
		}
		if _, sc, d, err := peek(p); err == nil && string(sc) == scope && string(d) == id {
			delete(l.ops, s.opid)
			l.idx.remove(i)
			return nil
		}
	}
	return nil
}

func (l *loaded) find(seq uint32) *segment {
	for _, s := range l.segs {
		if s.seq == seq {
			return s
		}
	}
	return nil
}

// link checks that the segment before ends where its successor says.
func (l *loaded) link(k int, p []byte) error {
	if len(p) != linkFrame-frameHeader {
		return errFormat
	}
	if k == 0 || l.images[k-1] == nil || l.segs[k-1].seq != le.Uint32(p[1:]) {
		return nil
	}
	was := l.images[k-1]
	if frames, crc := le.Uint32(p[5:]), le.Uint32(p[9:]); was.frames != frames || was.last != crc {
		l.report.Damage = append(l.report.Damage, Damage{File: was.name, Offset: was.end, Frames: max(0, int(frames)-int(was.frames)),
			Err: errors.New("its last entries are missing")})
	}
	return nil
}
