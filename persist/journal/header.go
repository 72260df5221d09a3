package journal

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"hash/crc32"
	"strings"
)

// A segment starts with two copies of its header, on pages of their own: whatever tears or flips, one is left.
const (
	formatVersion = 1
	magic         = "SAMEKEYJ"
	headerSize    = 64
	headerCopy    = 4096 // where the second copy lies
	dataStart     = 8192
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// header is what a segment knows of itself. Its bytes up to the version, and the checksum over the first 60, keep their
// place in every format version, so that an older build can tell a newer file from a damaged one.
type header struct {
	version uint32
	seq     uint32 // number of the segment; one higher than that of its predecessor
	salt    uint64 // random, borne by every frame
	size    int64  // of the whole file, prewritten
	first   uint32 // the oldest segment in use when this one was made
	gen     uint64 // of the opener that made it
	stale   bool   // made from an older segment: behind its frames lie that one's, not zeros
}

func newSalt() uint64 {
	var b [8]byte
	for {
		_, _ = rand.Read(b[:]) // never fails: crypto/rand ends the program instead
		if s := le.Uint64(b[:]); s != 0 {
			return s
		}
	}
}

func (h header) encode() []byte {
	b := make([]byte, headerSize)
	copy(b, magic)
	le.PutUint32(b[8:], h.version)
	le.PutUint32(b[12:], h.seq)
	le.PutUint64(b[16:], h.salt)
	le.PutUint64(b[24:], uint64(h.size))
	le.PutUint32(b[32:], h.first)
	if h.stale {
		le.PutUint32(b[36:], 1)
	}
	le.PutUint64(b[40:], h.gen)
	le.PutUint32(b[60:], crc32.Checksum(b[:60], castagnoli))
	return b
}

var errHeader = errors.New("damaged header")

func decodeHeader(b []byte) (header, error) {
	if len(b) < headerSize || string(b[:8]) != magic || le.Uint32(b[60:]) != crc32.Checksum(b[:60], castagnoli) {
		return header{}, errHeader
	}
	h := header{
		version: le.Uint32(b[8:]), seq: le.Uint32(b[12:]), salt: le.Uint64(b[16:]),
		size: int64(le.Uint64(b[24:])), first: le.Uint32(b[32:]), stale: le.Uint32(b[36:])&1 != 0, gen: le.Uint64(b[40:]),
	}
	if h.version == formatVersion && (h.size < dataStart || h.size > 2*maxRecord || h.salt == 0) {
		return header{}, errHeader
	}
	return h, nil
}

// seed is what the first frame of a segment has for the checksum of its predecessor.
func (h header) seed() uint32 {
	return crc32.Checksum(le.AppendUint64(nil, h.salt), castagnoli)
}

// readHeader takes the first good copy; both says whether the other agrees, and whether the space around them is clean.
func readHeader(page []byte) (h header, both bool, err error) {
	at := func(off int) []byte {
		if off >= len(page) {
			return nil
		}
		return page[off:min(off+headerSize, len(page))]
	}
	a, errA := decodeHeader(at(0))
	b, errB := decodeHeader(at(headerCopy))
	switch {
	case errA == nil && errB == nil:
		// They differ only if something else wrote here; the first is written last.
		return a, a == b && cleanHeaderPages(page), nil
	case errA == nil:
		return a, false, nil
	case errB == nil:
		return b, false, nil
	}
	return header{}, false, errHeader
}

func cleanHeaderPages(page []byte) bool {
	return len(page) >= dataStart && allZero(page[headerSize:headerCopy]) && allZero(page[headerCopy+headerSize:dataStart])
}

var zeros [64 << 10]byte

func allZero(b []byte) bool {
	for len(b) > len(zeros) {
		if !bytes.Equal(b[:len(zeros)], zeros[:]) {
			return false
		}
		b = b[len(zeros):]
	}
	return bytes.Equal(b, zeros[:len(b)])
}

const (
	segmentSuffix = ".seg"
	oldSuffix     = ".old"
)

func segmentName(seq uint32) string { return fmt.Sprintf("%010d%s", seq, segmentSuffix) }

// oldName is that of a segment that left the journal and whose file is kept to become another.
func oldName(seq uint32) string {
	return strings.TrimSuffix(segmentName(seq), segmentSuffix) + oldSuffix
}

func isOldName(name string) bool {
	digits, ok := strings.CutSuffix(name, oldSuffix)
	_, numbered := parseSegmentName(digits + segmentSuffix)
	return ok && numbered
}

func parseSegmentName(name string) (uint32, bool) {
	digits, ok := strings.CutSuffix(name, segmentSuffix)
	var seq uint32
	if !ok || len(digits) != 10 {
		return 0, false
	}
	if _, err := fmt.Sscanf(digits, "%d", &seq); err != nil || segmentName(seq) != name {
		return 0, false
	}
	return seq, true
}
