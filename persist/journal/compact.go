package journal

import (
	"cmp"
	"context"
	"errors"
	"fmt"
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
		j.saveUnsaved()
		err := errors.Join(j.leaveDamage(j.ctx), j.compactWhile(j.ctx, j.wasteful))
		if err != nil && j.ctx.Err() == nil {
			j.opt.Logger.Warn("journal compaction failed, will try again", "dir", j.path, "err", err)
		}
	}
}

// leaveDamage goes on in a new segment if the one in use is damaged: only then can it be compacted.
func (j *Journal) leaveDamage(ctx context.Context) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.cur().seq > j.mustCompact || j.usable() != nil {
		return nil
	}
	return j.turn(ctx)
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
	if err := j.lockCompacting(ctx); err != nil {
		return err
	}
	defer j.compacting.Unlock()
	j.saveUnsaved()
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
	if s := j.old; s != nil {
		j.old = nil
		s.release()
		j.leftover = append(j.leftover, s.name)
	}
	var err error
	if s := j.next; s != nil && s.stale {
		// Under mu, and at once: its number is the one that is given next, and a later attempt would hit the wrong file.
		if err = j.dir.fsys.remove(s.name); err == nil {
			j.next = nil
			s.release()
		}
	}
	j.mu.Unlock()
	return errors.Join(err, j.removeLeftovers())
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
			} else if s.bare(now) && s.flags&flagTomb == 0 && s.size > 128 {
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
	if err := j.lockCompacting(ctx); err != nil {
		return err
	}
	defer j.compacting.Unlock()
	return j.compactLocked(ctx, want)
}

// lockCompacting fails once Close has begun, which waits for who came before.
func (j *Journal) lockCompacting(ctx context.Context) error {
	if err := j.compacting.lock(ctx); err != nil {
		return err
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.closed {
		j.compacting.Unlock()
		return errClosed
	}
	return nil
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

var errRestless = errors.New("they keep changing")

func (j *Journal) compactOldest(ctx context.Context) error {
	j.mu.Lock()
	s, follower := j.segs[0], j.segs[1]
	_, err := j.drain(ctx) // nothing of s may still be on its way
	j.mu.Unlock()
	if err != nil {
		return err
	}
	var refused error
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
			return fmt.Errorf("%s: %d records could not be moved: %w", s.name, len(left), cmp.Or(refused, errRestless))
		}
		if refused, err = j.moveAll(ctx, left, s); err != nil {
			return err
		}
	}
	// Only once the log itself says that s is out may the file go.
	if err := j.trim(ctx, follower.seq); err != nil {
		return err
	}
	clear(j.stuck)
	j.mu.Lock()
	j.segs = j.segs[1:]
	// Nobody here reads it any more, and nobody can come to; the lock says whether another process does.
	keep := j.old == nil && s.refs == 1 && s.size == j.opt.SegmentSize && s.seq > j.mustCompact && s.f.lock() == nil
	if !keep {
		s.release()
		j.leftover = append(j.leftover, s.name)
	}
	j.mu.Unlock()
	if keep {
		j.keep(s)
	}
	return j.removeLeftovers()
}

// keep holds s back to make the next segment of it. Its name must not be that of a segment any more: should the trim be
// damaged some day, what it holds would count again, and what removed it has gone with later files.
func (j *Journal) keep(s *segment) {
	name := s.name
	s.name = oldName(s.seq)
	err := j.dir.change(func() error { return j.dir.rename(name, s.name) })
	j.mu.Lock()
	defer j.mu.Unlock()
	if err == nil {
		j.old = s
		return
	}
	s.release()
	j.leftover = append(j.leftover, name, s.name)
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
		if err := j.dir.remove(j.leftover[0]); err != nil {
			return err
		}
		j.leftover = j.leftover[1:]
	}
	return nil
}

// moveAll returns in refused why some may not have been moved: the disk was full when they were written.
func (j *Journal) moveAll(ctx context.Context, all []pick, from *segment) (refused, err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	var into []*batch
	var stuck error
	moved := 0
	for _, p := range all {
		n, b, err := j.move(ctx, p, from)
		if errors.As(err, new(*DamagedError)) {
			stuck = cmp.Or(stuck, err) // the others need not wait for it
			continue
		}
		if err != nil {
			return nil, err
		}
		if b != nil && (len(into) == 0 || into[len(into)-1] != b) {
			into = append(into, b)
		}
		if moved += n; moved > compactBatch {
			moved = 0
			if _, err := j.drain(ctx); err != nil {
				return nil, err
			}
		}
	}
	if _, err := j.drain(ctx); err != nil {
		return nil, err
	}
	for _, b := range into {
		refused = cmp.Or(refused, b.err)
	}
	return refused, stuck
}

// move writes one record anew at the end of the log, with all that has changed since, in one frame. Under mu, which it
// gives up meanwhile.
func (j *Journal) move(ctx context.Context, p pick, from *segment) (n int, into *batch, err error) {
	for {
		if err := ctx.Err(); err != nil {
			return 0, nil, err
		}
		s := j.idx.at(p.slot)
		if s.opid != p.opid || s.put.seg != from.seq {
			return 0, nil, nil
		}
		now := nanos(time.Now())
		if s.flags&flagBusy != 0 {
			if _, err := j.drain(ctx); err != nil {
				return 0, nil, err
			}
			continue
		}
		if s.token == 0 && s.gone(now) {
			j.idx.remove(p.slot)
			return 0, nil, nil
		}
		rec, lost, same := j.salvage(p.slot)
		if !same {
			continue
		}
		if err := j.patience(p.opid, lost); err != nil {
			return 0, nil, err
		}
		if rec.ID == "" {
			if err := j.giveUp(s, lost); err != nil {
				return 0, nil, err
			}
			j.idx.lose(p.slot)
			return 0, nil, nil
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
			return 0, nil, err
		}
		if waited {
			continue
		}
		if err := j.giveUp(s, lost); err != nil {
			return 0, nil, err
		}
		s.flags |= flagBusy
		into, _ = j.push(payload, c)
		return len(payload), into, nil
	}
}
