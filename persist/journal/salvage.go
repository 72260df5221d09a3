package journal

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"time"

	"github.com/samekey/samekey/persist"
)

// fillIn replaces what was lost of rec by what memory knows. Without its answer an operation is pending again: a repeat
// under the same key does no harm, and brings the answer back. Under mu.
func (s *slot) fillIn(rec *persist.Record, lost []*DamagedError, bare bool) {
	for _, e := range lost {
		switch (loc{seqOf(e.File), uint32(e.Offset)}) {
		case s.mark:
			// It counts as sent, for as long as that may be.
			p := &rec.Progress
			p.Attempts = max(1, p.Attempts)
			if p.FirstSent.IsZero() {
				p.FirstSent = rec.Created
			}
			if s.state == persist.Pending {
				p.Parked, p.NotBefore = s.flags&flagParked != 0, fromNanos(s.when)
			}
		case s.ans:
			if bare { // nothing else would be told of it
				rec.Answer = &persist.Answer{State: s.state, KeepName: fromNanos(s.when)}
			}
		}
	}
}

// patience is an error as long as what the disk does not give may come back: reading has not failed for a minute yet.
// What it gives wrong stays wrong. Under compacting.
func (j *Journal) patience(opid uint64, lost []*DamagedError) error {
	for _, e := range lost {
		if errors.Is(e, errChecksum) || errors.Is(e, errFormat) {
			continue
		}
		since, ok := j.stuck[opid]
		if !ok {
			since = time.Now()
			j.stuck[opid] = since
		}
		if time.Since(since) < giveUpAfter {
			return e
		}
		return nil
	}
	delete(j.stuck, opid)
	return nil
}

// giveUp keeps the bytes of what was lost of s, and reports them. A full disk must not keep compaction from making space:
// then they wait for it in memory. Under mu.
func (j *Journal) giveUp(s *slot, lost []*DamagedError) error {
	for _, e := range lost {
		if slices.ContainsFunc(j.report.Damage, func(d Damage) bool { return d.File == e.File && d.Offset == e.Offset }) {
			continue // an earlier attempt did
		}
		d := Damage{File: e.File, Offset: e.Offset, Length: int64(s.size), Frames: 1, Err: e.Err}
		if from := j.segment(seqOf(e.File)); from != nil {
			// Its own length may be what is damaged: it is no longer than all of s, and ends where the next begins.
			data := make([]byte, min(d.Length, from.size-d.Offset))
			if readFull(from.f, data, d.Offset) == nil {
				if n := bytes.Index(data[min(len(data), frameHeader):], le.AppendUint64(nil, from.salt)); n >= 0 {
					data = data[:frameHeader+n]
				}
				d.Length = int64(len(data))
				d.Quarantine = fmt.Sprintf("quarantine-%010d-%010d.bin", from.seq, d.Offset)
				q := saved{d.Quarantine, data, from.seq, d.Offset}
				if err := j.setAside(q); noSpace(err) {
					d.Quarantine = ""
					j.unsaved = append(j.unsaved, q)
				} else if err != nil {
					return err
				}
			}
		}
		j.report.Damage = append(j.report.Damage, d)
		j.opt.Logger.Error("journal is damaged", "dir", j.path, "damage", d.String())
	}
	return nil
}

// setAside leaves nothing if it fails, but what was kept under this name before.
func (j *Journal) setAside(q saved) error {
	f, err := j.dir.create(q.name, os.O_EXCL)
	made := err == nil
	if errors.Is(err, fs.ErrExist) {
		f, err = j.dir.create(q.name, 0)
	}
	if err == nil {
		err = writeFull(f, q.data, 0)
		if err == nil {
			err = f.sync()
		}
		err = errors.Join(err, f.Close())
		if err != nil && made {
			err = errors.Join(err, j.dir.remove(q.name))
		}
	}
	if noSpace(err) {
		return &NoSpaceError{Path: j.path, Err: err}
	}
	return err
}

// saveUnsaved tries again to keep what a full disk had no space for.
func (j *Journal) saveUnsaved() {
	j.mu.Lock()
	defer j.mu.Unlock()
	for len(j.unsaved) > 0 {
		q := j.unsaved[0]
		if err := j.setAside(q); err != nil {
			return
		}
		q.in(j.report.Damage, q.name)
		j.unsaved = j.unsaved[1:]
	}
}

// claimAny claims for Forget: tombstones, and what cannot be read back, too. Of the latter it may know no more than the
// hash, which is as good as the name.
func (j *Journal) claimAny(ctx context.Context, ref persist.Ref) (persist.Claim, error) {
	if err := ctx.Err(); err != nil {
		return persist.Claim{}, err
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	for {
		if err := j.usable(); err != nil {
			return persist.Claim{}, err
		}
		i, _, err := j.find(ctx, ref, j.idx.hash(ref))
		if i == 0 {
			return persist.Claim{}, cmp.Or(err, persist.ErrNotFound)
		}
		if j.idx.at(i).token != 0 {
			return persist.Claim{}, persist.ErrBusy
		}
		if err != nil {
			_, lost, same := j.salvage(i)
			if !same {
				continue
			}
			if err := j.giveUp(j.idx.at(i), lost); err != nil {
				return persist.Claim{}, err
			}
		}
		return j.claim(i, ref), nil
	}
}
