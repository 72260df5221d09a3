package journal

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"time"

	"github.com/samekey/samekey/persist"
)

// tidy asks for a look at what could be given back.
func (j *Journal) tidy() {
	select {
	case j.tidyKick <- struct{}{}:
	default:
	}
}

// tend sweeps and compacts in the background.
func (j *Journal) tend() {
	tick := time.NewTicker(sweepEvery)
	defer tick.Stop()
	for {
		select {
		case <-j.tidyKick:
		case <-tick.C:
			j.sweep(time.Now())
		case <-j.ctx.Done():
			return
		}
		if err := j.compactWhile(j.ctx, j.wasteful); err != nil && j.ctx.Err() == nil {
			j.opt.Logger.Warn("journal compaction failed, will try again", "dir", j.path, "err", err)
		}
	}
}

// Compact rewrites all that is alive and gives the rest of the disk back, whatever compaction in the background thinks of
// it. Past KeepBody nothing of an answer or request is left on disk then.
func (j *Journal) Compact(ctx context.Context) error {
	if err := j.compactAll(ctx); err != nil {
		return fail("Compact", persist.Ref{}, false, err)
	}
	return nil
}

func (j *Journal) compactAll(ctx context.Context) error {
	j.compacting.Lock()
	defer j.compacting.Unlock()
	j.sweep(time.Now())
	if err := j.dropStale(ctx); err != nil {
		return err
	}
	j.mu.Lock()
	err := j.turn(ctx)
	upTo := j.cur().seq
	j.mu.Unlock()
	if err != nil {
		return err
	}
	if err := j.compactLocked(ctx, func() bool { return j.segs[0].seq < upTo }); err != nil {
		return err
	}
	return j.dropStale(ctx) // what compaction kept for later use
}

// dropStale removes the files that hold an older segment's bytes and nothing of the journal. Under compacting.
func (j *Journal) dropStale(ctx context.Context) error {
	j.mu.Lock()
	for j.prep != nil {
		p := j.prep
		j.mu.Unlock()
		select {
		case <-p.done:
		case <-ctx.Done():
			return ctx.Err()
		}
		j.mu.Lock()
	}
	for _, p := range []**segment{&j.old, &j.next} {
		if s := *p; s != nil && (p == &j.old || s.stale) {
			*p = nil
			s.release()
			j.leftover = append(j.leftover, s.name)
		}
	}
	j.mu.Unlock()
	return j.removeLeftovers()
}

// turn goes on in a new segment. Under mu, which it gives up meanwhile.
func (j *Journal) turn(ctx context.Context) error {
	for was := j.cur(); was == j.cur(); {
		if err := j.usable(); err != nil {
			return err
		}
		if j.next != nil {
			j.rotate()
			break
		}
		p := j.prepare(0)
		j.mu.Unlock()
		select {
		case <-p.done:
		case <-ctx.Done():
		}
		j.mu.Lock()
		if err := ctx.Err(); err != nil {
			return err
		}
		if p.err != nil {
			return p.err
		}
	}
	return nil
}

// wasteful: what lies in full segments is mostly dead. Under mu.
func (j *Journal) wasteful() bool {
	if len(j.segs) < 2 || j.usable() != nil {
		return false
	}
	var full int64
	for _, s := range j.segs[:len(j.segs)-1] {
		full += s.size - dataStart
	}
	return full > j.opt.SegmentSize/2+2*j.idx.live || j.tight || j.segs[0].seq <= j.mustCompact
}

// sweep forgets names whose time has passed, and counts bodies whose time has passed as dead.
func (j *Journal) sweep(at time.Time) {
	now := nanos(at)
	for c := 0; ; c++ {
		j.mu.Lock()
		if c >= len(j.idx.chunks) {
			j.mu.Unlock()
			return
		}
		for k := range chunkSlots {
			i := uint32(c*chunkSlots + k)
			s := j.idx.at(i)
			if s.hash == 0 || s.token != 0 || s.flags&flagBusy != 0 {
				continue
			}
			if s.gone(now) {
				j.idx.remove(i)
			} else if s.bare(now) && s.size > 128 {
				j.idx.live -= int64(s.size - 128)
				s.size = 128
			}
		}
		j.mu.Unlock()
	}
}

// compactWhile takes the oldest segment out of use as long as want, which is asked under mu, says so. Always the oldest:
// then whatever removes an operation lies in the same segment as its record or a later one, never an earlier, and cannot
// be gone before it.
func (j *Journal) compactWhile(ctx context.Context, want func() bool) error {
	j.compacting.Lock()
	defer j.compacting.Unlock()
	return j.compactLocked(ctx, want)
}

func (j *Journal) compactLocked(ctx context.Context, want func() bool) error {
	if err := j.removeLeftovers(); err != nil {
		return err
	}
	for {
		j.mu.Lock()
		more := len(j.segs) > 1 && want()
		j.mu.Unlock()
		if !more {
			return nil
		}
		if err := j.compactOldest(ctx); errors.Is(err, errScarce) {
			return nil
		} else if err != nil {
			return err
		}
	}
}

// errScarce: the disk is full, and moving what is alive in the oldest segment would take the space that settles need, or
// gain little.
var errScarce = errors.New("no space to compact")

func (j *Journal) compactOldest(ctx context.Context) error {
	j.mu.Lock()
	s, follower := j.segs[0], j.segs[1]
	_, err := j.drain(ctx) // nothing of s may still be on its way
	j.mu.Unlock()
	if err != nil {
		return err
	}
	for round := 0; ; round++ {
		var alive int64
		left := j.picks(0, false, func(x *slot) bool {
			if x.put.seg != s.seq {
				return false
			}
			alive += int64(x.size)
			return true
		})
		if len(left) == 0 {
			break
		}
		j.mu.Lock()
		scarce := j.tight && (alive > (s.size-dataStart)/4 || j.fill.end()+alive > j.fill.seg.limit(classCompact))
		j.mu.Unlock()
		if scarce {
			return errScarce
		}
		if round > 3 {
			return fmt.Errorf("%s: %d records could not be moved", s.name, len(left))
		}
		if err := j.moveAll(ctx, left, s); err != nil {
			return err
		}
	}
	// Only once the log itself says that s is out may the file go.
	if err := j.trim(ctx, follower.seq); err != nil {
		return err
	}
	j.mu.Lock()
	j.segs = j.segs[1:]
	if j.old == nil && s.refs == 1 && s.size == j.opt.SegmentSize && s.seq > j.mustCompact {
		j.old = s // nobody reads it any more, and nobody can come to
	} else {
		s.release()
		j.leftover = append(j.leftover, s.name)
	}
	j.mu.Unlock()
	return j.removeLeftovers()
}

// trim is durable when it returns nil: whatever becomes of other batches, it is this one that counts.
func (j *Journal) trim(ctx context.Context, first uint32) error {
	payload := appendTrim(nil, first)
	j.mu.Lock()
	_, err := j.room(ctx, frameHeader+len(payload), classTrim)
	if err != nil {
		j.mu.Unlock()
		return err
	}
	b, i := j.push(payload, change{kind: kindTrim, class: classTrim})
	j.mu.Unlock()
	_, err = j.await(ctx, b, i)
	return err
}

// removeLeftovers deletes files that are out of use. What fails is tried again, and Open would do it, too.
func (j *Journal) removeLeftovers() error {
	for len(j.leftover) > 0 {
		if err := j.dir.remove(j.leftover[0]); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if err := j.dir.sync(); err != nil {
			return err
		}
		j.leftover = j.leftover[1:]
	}
	return nil
}

func (j *Journal) moveAll(ctx context.Context, all []pick, from *segment) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	moved := 0
	for _, p := range all {
		n, err := j.move(ctx, p, from)
		if err != nil {
			return err
		}
		if moved += n; moved > compactBatch {
			moved = 0
			if _, err := j.drain(ctx); err != nil {
				return err
			}
		}
	}
	_, err := j.drain(ctx)
	return err
}

// move writes one record anew at the end of the log, with all that has changed since, in one frame. Under mu, which it
// gives up meanwhile.
func (j *Journal) move(ctx context.Context, p pick, from *segment) (int, error) {
	for {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		s := j.idx.at(p.slot)
		if s.opid != p.opid || s.put.seg != from.seq {
			return 0, nil
		}
		now := nanos(time.Now())
		if s.flags&flagBusy != 0 {
			if _, err := j.drain(ctx); err != nil {
				return 0, err
			}
			continue
		}
		if s.token == 0 && s.gone(now) {
			j.idx.remove(p.slot)
			return 0, nil
		}
		rec, lost, same := j.salvage(p.slot)
		if !same {
			continue
		}
		if err := j.patience(p.opid, lost); err != nil {
			return 0, err
		}
		if rec.ID == "" {
			if err := j.giveUp(s, lost); err != nil {
				return 0, err
			}
			j.idx.remove(p.slot)
			return 0, nil
		}
		bare := s.flags&flagTomb != 0 || s.token == 0 && s.bare(now)
		s.fillIn(&rec, lost, bare)
		c := change{meta: metaOf(&rec), slot: p.slot, kind: kindPut, class: classCompact, calm: true}
		c.opid = s.opid
		var payload []byte
		if bare {
			c.kind, c.flags, c.body = kindTomb, c.flags|flagTomb, math.MinInt64
			payload = appendTomb(nil, s.opid, &rec)
		} else {
			payload = appendPut(nil, s.opid, &rec)
		}
		waited, err := j.room(ctx, frameHeader+len(payload), classCompact)
		if err != nil {
			return 0, err
		}
		if waited {
			continue
		}
		if err := j.giveUp(s, lost); err != nil {
			return 0, err
		}
		s.flags |= flagBusy
		j.push(payload, c)
		return len(payload), nil
	}
}
