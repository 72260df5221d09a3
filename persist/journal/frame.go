package journal

import (
	"hash/crc32"
	"math/bits"
	"slices"
)

// A frame is a header of 24 bytes and a payload whose first byte is its kind.
//
//	0  salt of the segment
//	8  checksum of the frame before (for the first: of the salt)
//	12 number of the frame within its segment
//	16 length of the payload
//	20 CRC-32C over the payload and the 20 bytes above, xor the frame's offset in the file and the segment's number
const frameHeader = 24

// Kinds of payload.
const (
	kindPut    = 1 // a whole record with its progress, and its answer if there is one: begin, replace, compaction
	kindMark   = 2 // progress
	kindSettle = 3 // answer
	kindRemove = 4 // the operation leaves
	kindTomb   = 5 // name, outcome and expiry of an operation: all that is left
	kindTrim   = 6 // segments below this number are no longer part of the journal
	kindLink   = 7 // first frame of a segment: how many frames its predecessor had, and the checksum of the last
	kindVoid   = 8 // nothing: a change that was withdrawn before it was written
	kindCut    = 9 // what lies between here and the given offset was refused
)

// openFrame makes room for a frame's header; closeFrame completes it with what is known before its place in the chain is.
func openFrame(b []byte) []byte { return append(b, zeros[:frameHeader]...) }

func closeFrame(b []byte, at int) {
	payload := b[at+frameHeader:]
	le.PutUint32(b[at+16:], uint32(len(payload)))
	le.PutUint32(b[at+20:], crc32.Checksum(payload, castagnoli))
}

// chain gives the frames of buf, which will lie at off, their salt, numbers and links.
func (s *segment) chain(buf []byte, off int64) {
	for p := 0; p < len(buf); {
		h := buf[p : p+frameHeader]
		le.PutUint64(h, s.salt)
		le.PutUint32(h[8:], s.crc)
		le.PutUint32(h[12:], s.frames)
		s.crc = frameCRC(le.Uint32(h[20:]), h, off+int64(p), s.seq)
		le.PutUint32(h[20:], s.crc)
		s.frames++
		p += frameHeader + int(le.Uint32(h[16:]))
	}
}

// frameCRC binds a payload's checksum to the salt, the place in the chain and the place in the file: a copy of these
// bytes elsewhere is no frame.
func frameCRC(payload uint32, h []byte, off int64, seq uint32) uint32 {
	return crc32.Update(payload, castagnoli, h[:20]) ^ uint32(off) ^ bits.Reverse32(seq)
}

// frame is one that was read.
type frame struct {
	off      int64
	num      uint32
	prev     uint32
	crc      uint32
	payload  []byte
	repaired bool // its salt was damaged: everything else agrees
}

func (f *frame) end() int64 { return f.off + frameHeader + int64(len(f.payload)) }

// parseFrame reads the frame at off of a segment's bytes, if there is a good one.
func (h *header) parseFrame(seg []byte, off int64) (frame, bool) {
	return h.parseFrameAt(seg[off:], off)
}

// parseFrameAt reads the frame that b starts with, which lies at off in its segment.
func (h *header) parseFrameAt(b []byte, off int64) (frame, bool) {
	if len(b) < frameHeader {
		return frame{}, false
	}
	n := int64(le.Uint32(b[16:]))
	if n == 0 || frameHeader+n > int64(len(b)) {
		return frame{}, false
	}
	f := frame{off: off, prev: le.Uint32(b[8:]), num: le.Uint32(b[12:]), crc: le.Uint32(b[20:]), payload: b[frameHeader:][:n:n]}
	top := b[:frameHeader]
	if le.Uint64(top) != h.salt {
		f.repaired = true
		top = slices.Clone(top)
		le.PutUint64(top, h.salt)
	}
	return f, frameCRC(crc32.Checksum(f.payload, castagnoli), top, off, h.seq) == f.crc
}
