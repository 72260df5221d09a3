package journal

import "slices"

// cut is a stretch that a failed write may have left frames in. What was buffered there was accepted: it is written again
// in the same place, as often as it takes, so that a full disk uses up no space; the rest is to be jumped over.
type cut struct {
	*batch       // of the buffered changes; buf is read by others under mu
	to     int64 // where the next batch begins
}

// owe notes that nothing of b is on disk for sure, and keeps what it buffered.
func (j *Journal) owe(b *batch) {
	if len(b.buf) == 0 {
		return
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	b.owed = true
	if n := len(j.cuts); n == 0 || j.cuts[n-1].seg != b.seg {
		j.cuts = append(j.cuts, cut{batch: &batch{seg: b.seg, off: b.off}})
	}
	c := &j.cuts[len(j.cuts)-1]
	c.to = b.end()
	for i := range b.changes {
		ch := &b.changes[i]
		if !ch.lazy {
			continue
		}
		was, now := b.loc(ch.at), c.loc(uint32(len(c.buf)))
		c.add(b.payload(ch.at))
		if s := j.idx.at(ch.slot); s.opid == ch.opid {
			switch was {
			case s.ans:
				s.ans = now
			case s.put:
				s.put = now
			}
		}
	}
}

// failedWrite makes sure that what was refused does not come back: a frame in its place sends readers over it. On a full
// disk the journal goes on, after anything else it does not.
func (j *Journal) failedWrite(b *batch, err error) (error, bool) {
	full := noSpace(err)
	j.owe(b)
	cutErr := j.writeCut()
	if !full || cutErr != nil && !noSpace(cutErr) {
		return j.poison(err), cutErr == nil
	}
	return &NoSpaceError{Path: j.path, Err: err}, cutErr == nil
}

// writeCut writes the first stretch that is owed and makes it durable.
func (j *Journal) writeCut() error {
	c := j.cuts[0]
	out := batch{buf: slices.Clone(c.buf)}
	if c.end() < c.to {
		// What was refused leaves room for it: no frame is shorter.
		out.add(appendUint([]byte{kindCut}, uint64(c.to)))
	}
	frames, crc := c.seg.frames, c.seg.crc
	c.seg.chain(out.buf, c.off)
	if err := writeFull(c.seg.f, out.buf, c.off); err != nil {
		c.seg.frames, c.seg.crc = frames, crc
		if !noSpace(err) {
			return j.poison(err)
		}
		return &NoSpaceError{Path: j.path, Err: err}
	}
	if err := j.sync(c.seg); err != nil {
		return j.poison(err)
	}
	j.mu.Lock()
	j.cuts = j.cuts[1:]
	j.mu.Unlock()
	return nil
}
