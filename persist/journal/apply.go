package journal

import (
	"context"
	"time"
)

// apply brings the index to what the disk holds after b, or takes back what b would have changed. Under mu.
func (j *Journal) apply(b *batch) {
	for i := range b.changes {
		c := &b.changes[i]
		if c.kind == kindVoid || c.kind == kindTrim || c.lazy {
			continue // what is lazy is in the index since it was accepted, and in a cut until it can be written
		}
		if b.err != nil && c.class == classSettle && j.refile(b, i) {
			continue
		}
		s := j.idx.at(c.slot)
		s.flags &^= flagBusy
		switch {
		case b.err != nil && c.create:
			j.idx.remove(c.slot)
		case b.err != nil:
			if s.token == 0 {
				j.idx.unclaim(c.slot) // which could not be done while it was written
			}
		case c.left && c.create:
			// Its caller was told that it may be recorded, and left: take it out before anyone finds it.
			// (Without room for that it stays, as it was told.)
			if remove := appendRemove(nil, s.opid); j.fits(uint32(frameHeader + len(remove))) {
				j.idx.remove(c.slot)
				j.push(remove, change{kind: kindVoid})
			} else {
				j.idx.set(c.slot, c.kind, c.meta, b.loc(c.at), b.frameLen(c.at))
				s.token = 0
			}
		case c.kind == kindRemove:
			j.idx.remove(c.slot)
		default:
			j.idx.set(c.slot, c.kind, c.meta, b.loc(c.at), b.frameLen(c.at))
			if c.ends {
				j.idx.unclaim(c.slot)
			}
		}
	}
}

// refile gives a settle that waits, and whose write found the disk full, another place at the end of the prewritten
// space: it is tried once more at once. Under mu.
func (j *Journal) refile(b *batch, i int) bool {
	c := &b.changes[i]
	n := b.frameLen(c.at)
	if j.poisoned() != nil || c.again || !j.fits(n) {
		return false
	}
	again := *c
	again.again = true
	to, k := j.push(b.payload(c.at), again)
	if b.moved == nil {
		b.moved = map[int]place{}
	}
	b.moved[i] = place{to, k}
	return true
}

// fits: there is prewritten space for n more bytes, the reserve included. Under mu.
func (j *Journal) fits(n uint32) bool { return j.fill.end()+int64(n) <= j.fill.seg.size }

func (j *Journal) usable() error {
	if j.closed {
		return errClosed
	}
	return j.poisoned()
}

// poisoned is also read by the committer, without mu.
func (j *Journal) poisoned() error {
	if p := j.poisonedBy.Load(); p != nil {
		return p
	}
	return nil
}

func (j *Journal) poison(err error) error {
	p := &PoisonedError{Path: j.path, Err: err}
	if j.poisonedBy.CompareAndSwap(nil, p) {
		j.opt.Logger.Error("journal is out of service", "dir", j.path, "err", err)
	}
	return j.poisonedBy.Load()
}

// newest is the batch whose end means that all before it have ended, nil if there is none. An empty one serves to write
// what is still owed. Under mu.
func (j *Journal) newest() *batch {
	switch {
	case len(j.fill.buf) > 0 || len(j.cuts) > 0:
		return j.fill
	case len(j.queue) > 0:
		return j.queue[len(j.queue)-1]
	}
	return j.writing
}

// drain waits until all that is written or waits to be is decided, and returns the last of it, which tells nothing of
// those before. Under mu, which it gives up while it waits.
func (j *Journal) drain(ctx context.Context) (*batch, error) {
	if j.closed {
		return nil, errClosed // nobody may be there to write it
	}
	b := j.newest()
	if b == nil {
		return nil, nil
	}
	b.urgent = true
	j.wake()
	j.mu.Unlock()
	defer j.mu.Lock()
	select {
	case <-b.done:
		return b, nil
	case <-ctx.Done():
		return b, ctx.Err()
	}
}

// await returns when change i of b is decided: nil once it is durable. What has not been taken yet is withdrawn when
// ctx ends; what has been is waited for, unless the disk hangs. maybe says of an error that the change may have
// happened all the same.
func (j *Journal) await(ctx context.Context, b *batch, i int) (maybe bool, err error) {
	ended := ctx.Done()
	if ended == nil {
		<-b.done
		return j.outcome(ctx, b, i)
	}
	select {
	case <-b.done:
		return j.outcome(ctx, b, i)
	case <-ended:
	}
	j.mu.Lock()
	if !b.taken {
		ch := &b.changes[i]
		if ch.slot != 0 {
			j.idx.at(ch.slot).flags &^= flagBusy
		}
		if ch.create {
			j.idx.remove(ch.slot)
		}
		b.void(i)
		j.mu.Unlock()
		return false, ctx.Err()
	}
	j.mu.Unlock()
	hang := time.NewTimer(hangGrace)
	defer hang.Stop()
	select {
	case <-b.done:
		return j.outcome(ctx, b, i)
	case <-hang.C:
	}
	j.mu.Lock()
	if b.changes == nil { // decided by now
		j.mu.Unlock()
		<-b.done
		return j.outcome(ctx, b, i)
	}
	b.changes[i].left = true
	j.mu.Unlock()
	return true, ctx.Err()
}

func (j *Journal) outcome(ctx context.Context, b *batch, i int) (maybe bool, err error) {
	for {
		to, ok := b.moved[i]
		if !ok {
			return !b.sure, b.err
		}
		b, i = to.batch, to.i
		select {
		case <-b.done:
		case <-ctx.Done():
			return true, ctx.Err()
		}
	}
}

// frameLen of the frame at, header included.
func (b *batch) frameLen(at uint32) uint32 {
	return frameHeader + le.Uint32(b.buf[at+16:])
}

func (b *batch) payload(at uint32) []byte { return b.buf[at+frameHeader : at+b.frameLen(at)] }
