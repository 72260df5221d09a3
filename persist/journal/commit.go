package journal

import (
	"context"
	"errors"
	"hash/crc32"
	"runtime"
	"time"
)

// batch is what goes to disk in one write and one flush.
type batch struct {
	seg     *segment
	off     int64 // where buf goes
	buf     []byte
	changes []change // to apply once it is durable
	urgent  bool     // somebody waits, or it has waited long enough
	taken   bool     // the committer has it: nothing can be withdrawn any more
	owed    bool     // a cut has taken its place

	// Set before done is closed, when the buffers above are given back.
	done  chan struct{}
	err   error
	sure  bool          // nothing of a failed batch can come back
	moved map[int]place // where the changes went that a full disk must not refuse
}

// place of a change.
type place struct {
	*batch
	i int
}

// buffers of a batch are used again, the batch is not: those who waited still look at it.
type buffers struct {
	buf     []byte
	changes []change
}

// change is a frame in a batch and what it does to the index.
type change struct {
	meta
	slot   uint32
	at     uint32 // in buf
	kind   byte
	class  class
	lazy   bool // already in the index
	left   bool // its caller has gone: a begin is withdrawn
	create bool // of a begin
	ends   bool // ends the claim
	again  bool // was refiled
	calm   bool // of compaction, which asks for the flush itself
}

// class says how much of the last segment a change may use while no other is ready.
type class uint8

const (
	classNew class = iota
	classCompact
	classSettle
	classTrim
)

func (b *batch) end() int64 { return b.off + int64(len(b.buf)) }

const linkFrame = frameHeader + 1 + 4 + 4 + 4

// newBatch starts one at off. Under mu.
func (j *Journal) newBatch(s *segment, off int64) *batch {
	b := &batch{seg: s, off: off, done: make(chan struct{})}
	if n := len(j.spare); n > 0 {
		b.buf, b.changes = j.spare[n-1].buf[:0], j.spare[n-1].changes[:0]
		j.spare = j.spare[:n-1]
	}
	return b
}

// rotate goes on in the next segment. Under mu.
func (j *Journal) rotate() {
	if len(j.fill.buf) > 0 || j.fill.urgent {
		j.fill.urgent = true
		j.queue = append(j.queue, j.fill)
	}
	s := j.next
	j.next = nil
	j.segs = append(j.segs, s)
	j.fill = j.newBatch(s, dataStart)
	j.fill.buf = append(openFrame(j.fill.buf), kindLink)
	j.fill.buf = append(j.fill.buf, zeros[:12]...) // known once the predecessor is written
	closeFrame(j.fill.buf, 0)
	j.wake()
	j.tidy()
}

// room makes sure that n bytes fit where fill ends. Under mu, which it gives up while it waits: what was known of the
// index before is not known after.
func (j *Journal) room(ctx context.Context, n int, c class) (waited bool, err error) {
	if n > maxRecord {
		return false, errors.New("record is larger than 1 GiB")
	}
	var failed error
	compacted := false
	for {
		if err := j.usable(); err != nil {
			return waited, err
		}
		s, end := j.fill.seg, j.fill.end()+int64(n)
		limit := s.size
		if j.next == nil {
			limit = s.limit(c)
		}
		if j.tight && end > s.limit(classNew) && time.Since(j.tidied) > 50*time.Millisecond {
			j.tidied = time.Now()
			j.tidy()
		}
		if end <= limit {
			if end > s.size/2 && j.next == nil && j.prep == nil && time.Since(j.prepFailed) > time.Second {
				j.prepare(0)
			}
			return waited, nil
		}
		if j.next != nil {
			j.rotate()
			continue
		}
		if failed != nil {
			// What was settled before may have left room; to find that out takes too long for each begin that is refused.
			if compacted || c == classCompact || c == classTrim || c == classNew && time.Since(j.tidied) < 50*time.Millisecond {
				return waited, failed
			}
			j.tidied = time.Now()
			failed, compacted, waited = nil, true, true
			j.mu.Unlock()
			_ = j.compactWhile(ctx, j.wasteful) // it may have got somewhere all the same
			j.mu.Lock()
			continue
		}
		waited = true
		p := j.prepare(int64(n))
		j.mu.Unlock()
		select {
		case <-p.done:
		case <-ctx.Done():
		}
		j.mu.Lock()
		if err := ctx.Err(); err != nil {
			return waited, err
		}
		failed = p.err
	}
}

// add puts a frame at the end of b.
func (b *batch) add(payload []byte) {
	at := len(b.buf)
	b.buf = append(openFrame(b.buf), payload...)
	closeFrame(b.buf, at)
}

// push puts a payload at the end of fill, where room has made sure that it fits, and returns its place. Under mu.
func (j *Journal) push(payload []byte, c change) (*batch, int) {
	at := len(j.fill.buf)
	j.fill.add(payload)
	return j.pushed(at, c)
}

// pushFrame is push for a payload that has had its header already. Under mu.
func (j *Journal) pushFrame(frame []byte, c change) (*batch, int) {
	at := len(j.fill.buf)
	j.fill.buf = append(j.fill.buf, frame...)
	return j.pushed(at, c)
}

func (j *Journal) pushed(at int, c change) (*batch, int) {
	b := j.fill
	c.at = uint32(at)
	b.changes = append(b.changes, c)
	switch {
	case c.calm:
	case c.lazy:
		j.arm()
	default:
		b.urgent = true
		j.wake()
	}
	return b, len(b.changes) - 1
}

// arm makes sure that what waits is written soon. Under mu.
func (j *Journal) arm() {
	if !j.armed {
		j.armed = true
		j.timer.Reset(flushAfter)
	}
}

func (b *batch) loc(at uint32) loc { return loc{b.seg.seq, uint32(b.off) + at} }

// void turns a change that was not taken into nothing. Under mu.
func (b *batch) void(i int) {
	c := &b.changes[i]
	payload := b.payload(c.at)
	clear(payload)
	payload[0] = kindVoid
	le.PutUint32(b.buf[c.at+20:], crc32.Checksum(payload, castagnoli))
	c.kind = kindVoid
}

func (j *Journal) wake() {
	select {
	case j.kick <- struct{}{}:
	default:
	}
}

// run is the committer: the one goroutine that writes.
func (j *Journal) run() {
	defer close(j.stopped)
	for {
		select {
		case <-j.kick:
		case <-j.timer.C:
			j.mu.Lock()
			j.armed = false
			j.fill.urgent = j.fill.urgent || len(j.fill.buf)+len(j.cuts) > 0
			j.mu.Unlock()
		case <-j.stop:
			for j.commitNext() {
			}
			return
		}
		for {
			runtime.Gosched() // those that are about to begin get on this batch instead of the next
			if !j.commitNext() {
				break
			}
		}
	}
}

// take returns the batch to be written, if there is one.
func (j *Journal) take() *batch {
	j.mu.Lock()
	defer j.mu.Unlock()
	var b *batch
	if len(j.queue) > 0 {
		b = j.queue[0]
		j.queue = append(j.queue[:0], j.queue[1:]...)
	} else if b = j.fill; b.urgent {
		j.fill = j.newBatch(b.seg, b.end())
	} else {
		return nil
	}
	b.taken = true
	j.writing = b
	return b
}

func (j *Journal) commitNext() bool {
	b := j.take()
	if b == nil {
		return false
	}
	err, sure := j.write(b)
	j.mu.Lock()
	j.writing = nil
	b.err, b.sure = err, sure
	j.apply(b)
	if len(j.cuts) > 0 && j.poisoned() == nil {
		j.arm() // perhaps there is space by then
	}
	if cap(b.buf) <= keepBuffer && len(j.spare) < 2 {
		j.spare = append(j.spare, buffers{b.buf, b.changes})
	}
	b.buf, b.changes = nil, nil
	j.mu.Unlock()
	close(b.done)
	return true
}

// write makes b durable. sure says of an error that nothing of b can come back.
func (j *Journal) write(b *batch) (err error, sure bool) {
	if err := j.poisoned(); err != nil {
		j.owe(b)
		return err, true
	}
	if err := j.guard(b.seg); err != nil {
		j.owe(b)
		return j.poison(err), true
	}
	for len(j.cuts) > 0 {
		if err := j.writeCut(); err != nil {
			j.owe(b)
			return err, false // b was not written, but what was refiled in it may have been before
		}
	}
	b.seg.link(b, j.prevSeg)
	j.prevSeg = b.seg
	frames, crc := b.seg.frames, b.seg.crc
	b.seg.chain(b.buf, b.off)
	if err := writeFull(b.seg.f, b.buf, b.off); err != nil {
		b.seg.frames, b.seg.crc = frames, crc
		return j.failedWrite(b, err)
	}
	j.stats.bytes.Add(int64(len(b.buf)))
	if err := j.sync(b.seg); err != nil {
		return j.poison(err), false
	}
	if err := j.guard(b.seg); err != nil {
		// Written under another's eyes: it may or may not have seen it.
		return j.poison(err), false
	}
	return nil, true
}

func (j *Journal) sync(s *segment) error {
	j.stats.syncs.Add(1)
	return s.f.sync()
}

// link completes the first frame of a segment.
func (s *segment) link(b *batch, prev *segment) {
	if s.frames != 0 || b.off != dataStart || len(b.buf) < linkFrame || b.buf[frameHeader] != kindLink || prev == nil {
		return
	}
	p := b.buf[frameHeader:linkFrame]
	le.PutUint32(p[1:], prev.seq)
	le.PutUint32(p[5:], prev.frames)
	le.PutUint32(p[9:], prev.crc)
	le.PutUint32(b.buf[20:], crc32.Checksum(p, castagnoli))
}
