package journal

import (
	"cmp"
	"context"
	"iter"
	"slices"
	"time"

	"github.com/samekey/samekey/persist"
)

// pick is a slot as it was when it was looked at: opid tells whether it still is.
type pick struct {
	created int64
	opid    uint64
	slot    uint32
}

func older(a, b pick) int {
	if c := cmp.Compare(a.created, b.created); c != 0 {
		return c
	}
	return cmp.Compare(a.opid, b.opid)
}

// picks collects the slots that want accepts, chunk by chunk, so that nobody waits long for mu. No more than n, the oldest, if n > 0.
func (j *Journal) picks(n int, activeOnly bool, want func(*slot) bool) []pick {
	var out []pick
	for c := 0; ; c++ {
		j.mu.Lock()
		if c >= len(j.idx.chunks) {
			j.mu.Unlock()
			break
		}
		ch := j.idx.chunks[c]
		if !activeOnly || ch.active > 0 {
			for k := range ch.slots {
				if s := &ch.slots[k]; s.hash != 0 && want(s) {
					out = append(out, pick{s.created, s.opid, uint32(c*chunkSlots + k)})
				}
			}
		}
		j.mu.Unlock()
		if n > 0 && len(out) >= 2*n+1024 {
			slices.SortFunc(out, older)
			out = out[:n]
		}
	}
	slices.SortFunc(out, older)
	if n > 0 && len(out) > n {
		out = out[:n]
	}
	return out
}

// ClaimDue skips records that cannot be read back; they are logged, and Get tells of them.
func (j *Journal) ClaimDue(ctx context.Context, n int) ([]persist.Entry, error) {
	var out []persist.Entry
	for again, moving := true, false; again && n > len(out); {
		again = false
		j.mu.Lock()
		err := j.usable()
		if moving && err == nil {
			_, err = j.drain(ctx)
			moving = false
		}
		j.mu.Unlock()
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			for _, e := range out {
				j.unclaim(e.Claim)
			}
			return nil, fail("ClaimDue", persist.Ref{}, false, err)
		}
		now := nanos(time.Now())
		due := j.picks(n-len(out), true, func(s *slot) bool {
			moving = moving || s.flags&flagBusy != 0 && s.free(now) // a compaction has it in hand: it is due all the same
			return s.due(now)
		})
		for _, p := range due {
			e, ok := j.claimPick(p, now)
			if ok {
				out = append(out, e)
			}
			again = again || !ok // others may be due in its place
		}
		again = again || moving
	}
	return out, nil
}

func (j *Journal) claimPick(p pick, now int64) (e persist.Entry, ok bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	s := j.idx.at(p.slot)
	if s.opid != p.opid || !s.due(now) {
		return e, false
	}
	// Under the claim nothing but its place can change.
	c := j.claim(p.slot, persist.Ref{})
	rec, _, err := j.load(p.slot)
	if s.opid != p.opid || s.token != c.Token {
		return e, false
	}
	if err != nil {
		j.idx.unclaim(p.slot)
		return e, false
	}
	c.Ref = rec.Ref
	return persist.Entry{Record: rec, Claim: c}, true
}

// List goes on behind records that cannot be read back, and ends with the first such error. It works on a poisoned
// journal too.
func (j *Journal) List(ctx context.Context, f persist.Filter) iter.Seq2[persist.Record, error] {
	return func(yield func(persist.Record, error) bool) {
		j.mu.Lock()
		var err error
		if j.closed {
			err = errClosed
		}
		j.mu.Unlock()
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			yield(persist.Record{}, fail("List", persist.Ref{}, false, err))
			return
		}
		if err := j.list(ctx, f, yield); err != nil {
			yield(persist.Record{}, fail("List", persist.Ref{}, false, err))
		}
	}
}

func (j *Journal) list(ctx context.Context, f persist.Filter, yield func(persist.Record, error) bool) error {
	now, before := nanos(time.Now()), nanos(f.Before)
	picks := j.picks(0, false, func(s *slot) bool {
		return s.put.seg != 0 && !s.bare(now) && (f.Before.IsZero() || s.created < before) &&
			(len(f.States) == 0 || slices.Contains(f.States, s.state))
	})
	var bad error
	for _, p := range picks {
		if err := ctx.Err(); err != nil {
			return err
		}
		rec, ok, err := j.loadPick(p)
		switch {
		case err != nil && bad == nil:
			bad = err
		case ok && f.Match(&rec):
			if !yield(rec, nil) {
				return nil
			}
		}
	}
	return bad
}

// loadPick reads a slot as it is now, if it is still the same operation.
func (j *Journal) loadPick(p pick) (persist.Record, bool, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.closed {
		return persist.Record{}, false, errClosed
	}
	if s := j.idx.at(p.slot); s.opid != p.opid || s.put.seg == 0 {
		return persist.Record{}, false, nil
	}
	rec, _, err := j.load(p.slot)
	return rec, err == nil, err
}
