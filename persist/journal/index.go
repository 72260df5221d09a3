package journal

import (
	"hash/maphash"
	"math/bits"

	"github.com/samekey/samekey/persist"
)

// loc is where a frame lies; seg 0 is nowhere.
type loc struct{ seg, off uint32 }

// slot is what memory holds of an operation: where its bytes are, never the bytes. Keep it small: there is one for each.
type slot struct {
	meta
	hash           uint64 // of the Ref; 0: free
	token          uint64 // of the claim; 0: nobody holds it
	put, mark, ans loc    // mark and ans: what changed since put
	size           uint32 // of these frames together
	next           uint32 // in the bucket, or in the free list
}

const chunkSlots = 128

// chunk counts its slots that recovery could want, so that looking for due ones passes over settled history.
type chunk struct {
	slots  [chunkSlots]slot
	active int
}

// index finds operations. Slot 0 is none. The caller serialises.
type index struct {
	seed    maphash.Seed
	chunks  []*chunk
	buckets []uint32
	free    uint32
	used    uint32 // slots ever used, with slot 0
	count   int
	pending int
	live    int64 // bytes on disk that belong to something
}

func newIndex() *index {
	return &index{seed: maphash.MakeSeed(), buckets: make([]uint32, 256), used: 1}
}

func (x *index) hash(ref persist.Ref) uint64 {
	return bits.RotateLeft64(maphash.String(x.seed, ref.Scope), 1) ^ maphash.String(x.seed, ref.ID) | 1
}

func (x *index) hashBytes(scope, id []byte) uint64 {
	return bits.RotateLeft64(maphash.Bytes(x.seed, scope), 1) ^ maphash.Bytes(x.seed, id) | 1
}

func (x *index) at(i uint32) *slot { return &x.chunks[i/chunkSlots].slots[i%chunkSlots] }

func (x *index) bucket(hash uint64) *uint32 { return &x.buckets[hash>>1&uint64(len(x.buckets)-1)] }

// first and after walk the slots of a hash: nearly always one or none.
func (x *index) first(hash uint64) uint32 { return x.seek(*x.bucket(hash), hash) }
func (x *index) after(i uint32) uint32    { s := x.at(i); return x.seek(s.next, s.hash) }

func (x *index) seek(i uint32, hash uint64) uint32 {
	for i != 0 && x.at(i).hash != hash {
		i = x.at(i).next
	}
	return i
}

// insert takes a slot; it is found before older ones of the same hash.
func (x *index) insert(hash uint64, m meta) uint32 {
	if x.count >= len(x.buckets) {
		x.grow()
	}
	i := x.free
	if i != 0 {
		x.free = x.at(i).next
	} else {
		i = x.used
		x.used++
		if int(i/chunkSlots) == len(x.chunks) {
			x.chunks = append(x.chunks, new(chunk))
		}
	}
	b := x.bucket(hash)
	*x.at(i) = slot{hash: hash, meta: m, next: *b}
	*b = i
	x.count++
	x.tally(i, 1)
	return i
}

func (x *index) remove(i uint32) {
	x.tally(i, -1)
	s := x.at(i)
	p := x.bucket(s.hash)
	for *p != i {
		p = &x.at(*p).next
	}
	*p = s.next
	x.live -= int64(s.size)
	x.count--
	*s = slot{next: x.free}
	x.free = i
}

// lose takes out what is on disk of slot i no more. While somebody holds it the name stays taken: a request may be under
// way. Then put is nowhere.
func (x *index) lose(i uint32) {
	s := x.at(i)
	if s.token == 0 {
		x.remove(i)
		return
	}
	x.live -= int64(s.size)
	s.put, s.mark, s.ans, s.size = loc{}, loc{}, loc{}, 0
}

// unclaim ends the claim of slot i.
func (x *index) unclaim(i uint32) {
	s := x.at(i)
	if s.token = 0; s.put.seg == 0 {
		x.remove(i)
	}
}

func (x *index) grow() {
	old := x.buckets
	x.buckets = make([]uint32, 2*len(old))
	for _, i := range old {
		// Reversed, so that pushing to the front keeps the order of equal hashes.
		var rev uint32
		for i != 0 {
			s := x.at(i)
			i, s.next, rev = s.next, rev, i
		}
		for rev != 0 {
			s := x.at(rev)
			b := x.bucket(s.hash)
			rev, s.next, *b = s.next, *b, rev
		}
	}
}

// tally adds slot i to the counts, or takes it out of them.
func (x *index) tally(i uint32, d int) {
	s := x.at(i)
	if s.state == persist.Pending {
		x.pending += d
	}
	if s.active() {
		x.chunks[i/chunkSlots].active += d
	}
}

// active: recovery may want it, now or later.
func (s *slot) active() bool {
	return s.state == persist.Pending && s.flags&flagParked == 0 || s.flags&flagOwed != 0
}

func (s *slot) due(now int64) bool { return s.flags&flagBusy == 0 && s.free(now) }

// free is due, whether it is being written or not.
func (s *slot) free(now int64) bool {
	return s.token == 0 && s.flags&flagDamaged == 0 && s.active() && (s.state != persist.Pending || s.when <= now)
}

// set gives slot i the state of a payload that is written or read, of n bytes at l.
func (x *index) set(i uint32, kind byte, m meta, l loc, n uint32) {
	x.tally(i, -1)
	s := x.at(i)
	switch kind {
	case kindPut, kindTomb:
		s.meta, s.put, s.mark, s.ans = m, l, loc{}, loc{}
		x.live += int64(n) - int64(s.size)
		s.size = n
	case kindMark:
		if s.state == persist.Pending {
			s.when, s.flags = m.when, s.flags&^flagParked|m.flags&flagParked
		}
		s.mark = l
	case kindSettle:
		s.state, s.when, s.body = m.state, m.when, m.body
		s.flags = s.flags&^(flagParked|flagOwed) | m.flags&flagOwed
		s.ans = l
	}
	if kind == kindMark || kind == kindSettle {
		// What an earlier mark or answer took counts as alive until compaction: close enough.
		s.size += n
		x.live += int64(n)
	}
	x.tally(i, 1)
}
