package journal

import (
	"bytes"
	"errors"
	"io"
)

// hole is a stretch of a segment that should hold frames and does not.
type hole struct {
	off, end int64
	frames   int  // how many are missing, by their numbers; 0 where nothing tells
	tail     bool // nothing follows it
}

// image is a segment's bytes as they were read.
type image struct {
	name    string
	h       header
	b       []byte // the whole file, zero where it could not be read
	bad     []hole // unreadable pages
	short   bool   // the file ends early
	dirty   bool   // a copy of the header is damaged, or there is something between them
	noHdr   bool   // both copies are
	foreign bool   // the header is another segment's: one that was to become this one
	frames  uint32
	last    uint32 // checksum of the last frame
	end     int64  // behind the last frame
	holes   []hole
	mended  []int64 // frames whose salt was damaged
	strange []int64 // frames that are whole but make no sense to this build
}

// readImage reads a segment. Pages that the disk does not give are zero and listed.
func readImage(f file, name string, buf []byte) (*image, error) {
	n, err := f.size()
	if err != nil {
		return nil, err
	}
	if int64(cap(buf)) < n {
		buf = make([]byte, n)
	}
	im := &image{name: name, b: buf[:n], end: dataStart}
	if err := readFull(f, im.b, 0); err == nil {
		return im, nil
	}
	const page = 4096
	for off := int64(0); off < n; off += page {
		p := im.b[off:min(off+page, n)]
		if err := readFull(f, p, off); err != nil {
			clear(p)
			im.bad = append(im.bad, hole{off: off, end: off + int64(len(p))})
		}
	}
	return im, nil
}

// readFull is ReadAt for files whose end nobody moves.
func readFull(f file, b []byte, off int64) error {
	n, err := f.ReadAt(b, off)
	if n == len(b) {
		return nil
	}
	if err == nil || errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return err
}

// readTop finds the header. Where both copies are lost the salt is taken from the first frame, if that proves it.
func (im *image) readTop(seq uint32) {
	h, both, err := readHeader(im.b[:min(len(im.b), dataStart)])
	im.dirty = !both
	if err != nil {
		im.noHdr = true
		h = header{version: formatVersion, seq: seq, size: int64(len(im.b))}
		if len(im.b) > dataStart+frameHeader {
			proven := h
			proven.salt = le.Uint64(im.b[dataStart:])
			if _, ok := proven.parseFrame(im.b, dataStart); ok && proven.salt != 0 {
				h = proven
			}
		}
	}
	im.h = h
	im.short = int64(len(im.b)) < h.size
	im.last = h.seed()
}

// unfinished: nothing but zeros, as a segment is until its header is written, or the second header, torn, which is
// written before the first.
func (im *image) unfinished() bool {
	b, n := im.b, len(im.b)
	return len(im.bad) == 0 && allZero(b[:min(headerCopy, n)]) && allZero(b[min(headerCopy+headerSize, n):])
}

// walk hands each good frame to fn, in order, and notes the holes between them. A place that holds no frame is the end
// only if no frame follows: the salt, which nobody else knows, tells frames from everything else.
func (im *image) walk(fn func(*frame) error) error {
	var salt [8]byte
	le.PutUint64(salt[:], im.h.salt)
	used := int64(len(im.b))
	if !im.h.stale {
		used = dataStart + usedBytes(im.b[min(dataStart, len(im.b)):])
	}
	for off := int64(dataStart); off < int64(len(im.b)); {
		f, ok := im.parse(off)
		if !ok {
			next, found := im.resync(off, used, salt[:])
			if !found {
				if im.h.stale {
					used = im.lastTrace(off, salt[:])
				}
				if off < used {
					im.holes = append(im.holes, hole{off: off, end: used, tail: true})
				}
				break
			}
			im.holes = append(im.holes, hole{off: off, end: next.off, frames: int(int32(next.num - im.frames))})
			f = next
		} else if f.num != im.frames || f.prev != im.last {
			// In its place, but not the follower of its predecessor: something was taken out or put in between.
			im.holes = append(im.holes, hole{off: off, end: off, frames: int(int32(f.num - im.frames))})
		}
		if f.repaired {
			im.mended = append(im.mended, f.off)
		}
		im.frames, im.last, im.end = f.num+1, f.crc, f.end()
		off = f.end()
		if f.payload[0] == kindCut {
			r := &reader{b: f.payload[1:]}
			if to := int64(r.uint()); !r.bad && to > off && to <= int64(len(im.b)) {
				off, im.end = to, to
			}
		}
		if err := fn(&f); err != nil {
			if !errors.Is(err, errFormat) {
				return err
			}
			im.strange = append(im.strange, f.off)
		}
	}
	return nil
}

// parse is parseFrame, but for frames that were not read as a whole: the zeros in their place may happen to be right.
func (im *image) parse(off int64) (frame, bool) {
	f, ok := im.h.parseFrame(im.b, off)
	for _, h := range im.bad {
		ok = ok && (f.end() <= h.off || f.off >= h.end)
	}
	return f, ok
}

// resync finds the next good frame behind a bad place.
func (im *image) resync(off, used int64, salt []byte) (frame, bool) {
	if im.h.salt == 0 {
		return frame{}, false
	}
	for p := off + 1; p < used; p++ {
		i := bytes.Index(im.b[p:used], salt)
		if i < 0 {
			break
		}
		p += int64(i)
		if f, ok := im.parse(p); ok {
			return f, true
		}
	}
	return frame{}, false
}

// lastTrace is where the last torn frame behind off ends, among the remains of an older segment: only the salt tells.
func (im *image) lastTrace(off int64, salt []byte) int64 {
	i := bytes.LastIndex(im.b[off:], salt)
	if i < 0 {
		return off
	}
	p, n := off+int64(i), int64(frameHeader)
	if p+n <= int64(len(im.b)) {
		n += int64(le.Uint32(im.b[p+16:]))
	}
	if p+n > int64(len(im.b)) {
		n = frameHeader // nonsense
	}
	return min(p+n, int64(len(im.b)))
}

// usedBytes is the length of b without the zeros at its end.
func usedBytes(b []byte) int64 {
	n := len(b)
	for n > 0 && allZero(b[max(0, n-len(zeros)):n]) {
		n = max(0, n-len(zeros))
	}
	for n > 0 && b[n-1] == 0 {
		n--
	}
	return int64(n)
}
