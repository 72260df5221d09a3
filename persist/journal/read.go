package journal

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/samekey/samekey/persist"
)

// wrap leaves the sentinels as they are.
func wrap(method string, ref persist.Ref, err error) error {
	for _, s := range []error{persist.ErrNotFound, persist.ErrBusy, persist.ErrClaimLost} {
		if errors.Is(err, s) {
			return err
		}
	}
	return fail(method, ref, false, err)
}

// source is where the bytes of a record are.
type source struct {
	put, mark, ans part
}

// part of a record: still in memory, or in a segment that is held while it is read.
type part struct {
	loc
	buf  []byte
	from *segment
}

// view holds on to the bytes of slot s. Under mu.
func (j *Journal) view(s *slot) source {
	inMemory := append([]*batch{j.writing, j.fill}, j.queue...)
	for _, c := range j.cuts {
		inMemory = append(inMemory, c.batch)
	}
	get := func(l loc) part {
		p := part{loc: l}
		if l.seg == 0 {
			return p
		}
		for _, b := range inMemory {
			if b != nil && !b.owed && b.seg.seq == l.seg && int64(l.off) >= b.off && int64(l.off) < b.end() {
				p.buf = slices.Clone(b.payload(l.off - uint32(b.off)))
				return p
			}
		}
		if p.from = j.segment(l.seg); p.from != nil {
			p.from.refs++
		}
		return p
	}
	return source{get(s.put), get(s.mark), get(s.ans)}
}

func (p *part) read() ([]byte, error) {
	if p.buf != nil {
		return p.buf, nil
	}
	if p.seg == 0 {
		return nil, errLost
	}
	if p.from == nil {
		return nil, errors.New("segment is gone")
	}
	return p.from.readFrame(int64(p.off))
}

// readFrame reads one back, and checks it again.
func (s *segment) readFrame(off int64) ([]byte, error) {
	const guess = 2048
	buf := make([]byte, min(guess, s.size-off))
	if err := readFull(s.f, buf, off); err != nil {
		// What cannot be read may lie behind the frame.
		buf = buf[:frameHeader]
		if err := readFull(s.f, buf, off); err != nil {
			return nil, err
		}
	}
	n := frameHeader + int64(le.Uint32(buf[16:]))
	if off+n > s.size {
		return nil, errChecksum
	}
	if have := int64(len(buf)); n > have {
		buf = append(buf, make([]byte, n-have)...)
		if err := readFull(s.f, buf[have:], off+have); err != nil {
			return nil, err
		}
	}
	f, ok := s.parseFrameAt(buf[:n], off)
	if !ok {
		return nil, errChecksum
	}
	return f.payload, nil
}

// record puts the parts together. The result shares memory with nothing else. What cannot be read is in lost, and left
// out of rec: without its put rec has no ID.
func (v *source) record() (rec persist.Record, lost []*DamagedError) {
	part := func(p *part, decode func([]byte) error) {
		b, err := p.read()
		if err == nil {
			err = decode(b)
		}
		if err != nil {
			lost = append(lost, &DamagedError{File: segmentName(p.seg), Offset: int64(p.off), Err: err})
		}
	}
	part(&v.put, func(b []byte) error {
		_, r, err := decodeRecord(b)
		if err == nil {
			rec = r
		}
		return err
	})
	if v.mark.seg != 0 {
		part(&v.mark, func(b []byte) error {
			_, p, err := decodeMark(b)
			if err == nil {
				rec.Progress = p
			}
			return err
		})
	}
	if v.ans.seg != 0 {
		part(&v.ans, func(b []byte) error {
			_, a, err := decodeSettle(b)
			if err == nil {
				rec.Answer = a
			}
			return err
		})
	}
	return rec, lost
}

func (j *Journal) unview(v source) {
	for _, p := range []part{v.put, v.mark, v.ans} {
		if p.from != nil {
			p.from.release()
		}
	}
}

// load reads what slot i holds. Under mu, which it gives up while it reads; same says that the slot is still what was read.
func (j *Journal) load(i uint32) (rec persist.Record, same bool, err error) {
	rec, lost, same := j.salvage(i)
	if len(lost) > 0 {
		err = lost[0]
	}
	return rec, same, err
}

// salvage is load for those who can do with less than all of it.
func (j *Journal) salvage(i uint32) (rec persist.Record, lost []*DamagedError, same bool) {
	s := j.idx.at(i)
	was := *s
	v := j.view(s)
	j.mu.Unlock()
	rec, lost = v.record()
	j.mu.Lock()
	j.unview(v)
	same = s.opid == was.opid && s.hash == was.hash && s.put == was.put && s.mark == was.mark && s.ans == was.ans && s.flags&flagBusy == 0
	switch {
	case !same:
	case len(lost) == 0:
		s.flags &^= flagDamaged // the disk gives it again
	case s.flags&flagDamaged == 0:
		s.flags |= flagDamaged
		j.opt.Logger.Error("journal record cannot be read back", "dir", j.path, "err", lost[0])
		for _, e := range lost {
			j.mustCompact = max(j.mustCompact, seqOf(e.File))
		}
		j.tidy() // until compaction has seen to it, it blocks its name
	}
	return rec, lost, same
}

// stripped is all that may be told past KeepBody.
func stripped(r *persist.Record) persist.Record {
	return persist.Record{Ref: r.Ref, Named: r.Named, Created: r.Created,
		Answer: &persist.Answer{State: r.Answer.State, KeepName: r.Answer.KeepName}}
}

// find returns the slot of ref and its record, or 0; the slot and an error if the record cannot be read back as a whole.
// Under mu, which it may give up meanwhile, but not after it has looked for the last time.
func (j *Journal) find(ctx context.Context, ref persist.Ref, hash uint64) (uint32, *persist.Record, error) {
	var others []uint64 // operations of the same hash
	for {
		if j.closed {
			return 0, nil, errClosed
		}
		i := j.idx.first(hash)
		for i != 0 && slices.Contains(others, j.idx.at(i).opid) {
			i = j.idx.after(i)
		}
		if i == 0 {
			return 0, nil, nil
		}
		s := j.idx.at(i)
		if s.flags&flagBusy != 0 {
			if _, err := j.drain(ctx); err != nil {
				return 0, nil, err
			}
			continue
		}
		if s.token == 0 && s.gone(nanos(time.Now())) {
			j.idx.remove(i)
			continue
		}
		opid := s.opid
		rec, same, err := j.load(i)
		switch {
		case !same:
		case err != nil:
			return i, nil, err
		case rec.Ref == ref:
			if s.bare(nanos(time.Now())) {
				rec = stripped(&rec)
			}
			return i, &rec, nil
		default:
			others = append(others, opid)
		}
		if err := ctx.Err(); err != nil {
			return 0, nil, err
		}
	}
}

// claimOne claims one that nobody holds.
func (j *Journal) claimOne(ctx context.Context, ref persist.Ref) (e persist.Entry, err error) {
	if err := ctx.Err(); err != nil {
		return e, err
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if err := j.usable(); err != nil {
		return e, err
	}
	i, rec, err := j.find(ctx, ref, j.idx.hash(ref))
	switch {
	case err != nil:
		return e, err
	case i == 0 || rec.Tombstone():
		return e, persist.ErrNotFound
	case j.idx.at(i).token != 0:
		return e, persist.ErrBusy
	}
	return persist.Entry{Record: *rec, Claim: j.claim(i, ref)}, nil
}

func (j *Journal) unclaim(c persist.Claim) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for i := j.idx.first(j.idx.hash(c.Ref)); i != 0; i = j.idx.after(i) {
		if s := j.idx.at(i); s.token == c.Token {
			if s.flags&flagBusy == 0 {
				j.idx.unclaim(i)
			} else {
				s.token = 0
			}
			return
		}
	}
}

// Claim reads the operation and takes it.
func (j *Journal) Claim(ctx context.Context, ref persist.Ref) (persist.Entry, error) {
	e, err := j.claimOne(ctx, ref)
	if err != nil {
		return persist.Entry{}, wrap("Claim", ref, err)
	}
	return e, nil
}

// Get works on a poisoned journal too.
func (j *Journal) Get(ctx context.Context, ref persist.Ref) (persist.Record, error) {
	if err := ctx.Err(); err != nil {
		return persist.Record{}, fail("Get", ref, false, err)
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	i, rec, err := j.find(ctx, ref, j.idx.hash(ref))
	if err != nil {
		return persist.Record{}, wrap("Get", ref, err)
	}
	if i == 0 {
		return persist.Record{}, persist.ErrNotFound
	}
	return *rec, nil
}
