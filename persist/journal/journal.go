package journal

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/samekey/samekey/persist"
)

// Journal is a persist.Store in a directory. Open makes one; it is safe for concurrent use.
type Journal struct {
	path string
	opt  Options
	dir  *directory
	held *lock
	gen  uint64

	mu      sync.Mutex
	idx     *index
	segs    []*segment // in use, oldest first; the last is being filled
	next    *segment   // prepared to follow
	prep    *prep      // running
	old     *segment   // out of use; its file will become the next
	token   uint64     // last given
	opid    atomic.Uint64
	closed  bool
	report  Report
	fill    *batch   // takes what comes
	queue   []*batch // full ones before it
	writing *batch   // of the committer
	spare   []buffers
	armed   bool // timer

	prepFailed  time.Time
	tight       bool      // the disk had no room for another segment
	tidied      time.Time // when it last made compaction look
	mustCompact uint32    // segments up to this one are damaged

	compacting turnstile
	leftover   []string             // files to be removed, under compacting
	stuck      map[uint64]time.Time // operations that the disk does not give, and since when; under compacting
	unsaved    []saved              // damaged bytes that a full disk could not take

	// Of the committer:
	prevSeg *segment
	cuts    []cut // owed, oldest first; changed under mu

	poisonedBy atomic.Pointer[PoisonedError]
	kick       chan struct{}
	timer      *time.Timer
	stop       chan struct{}
	stopped    chan struct{}
	tidyKick   chan struct{}
	ctx        context.Context // of the background
	cancel     context.CancelFunc
	tending    sync.WaitGroup
	wg         sync.WaitGroup // prep
	scratch    sync.Pool      // *[]byte
	stats      struct{ syncs, bytes atomic.Int64 }
}

var _ persist.Store = (*Journal)(nil)

var (
	errClosed   = persist.ErrClosed
	errAnswered = errors.New("a new record has no answer")
	errNoID     = errors.New("a record needs an ID")
	errLost     = errors.New("it was damaged and is gone; whoever holds it can settle, replace or release it")
	errNoState  = errors.New("an answer needs a state that is not pending")
)

// turnstile is a mutex that one can stop waiting for.
type turnstile chan struct{}

func (t turnstile) Lock()   { t <- struct{}{} }
func (t turnstile) Unlock() { <-t }

func (t turnstile) lock(ctx context.Context) error {
	select {
	case t <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func fail(method string, ref persist.Ref, maybe bool, err error) error {
	return &persist.Error{Store: "journal", Method: method, Ref: ref, Maybe: maybe, Err: err}
}

// buffer is one that is used again, once giveBack has it.
func (j *Journal) buffer() *[]byte {
	if b, ok := j.scratch.Get().(*[]byte); ok {
		return b
	}
	return new([]byte)
}

func (j *Journal) giveBack(b *[]byte) {
	if cap(*b) <= 64<<10 {
		j.scratch.Put(b)
	}
}

// Begin is durable when it returns nil. A full disk or Options.MaxPending is persist.ErrFull.
func (j *Journal) Begin(ctx context.Context, rec persist.Record) (e persist.Entry, err error) {
	maybe, err := j.begin(ctx, &rec, &e)
	if err != nil {
		return persist.Entry{}, fail("Begin", rec.Ref, maybe, err)
	}
	return e, nil
}

func (j *Journal) begin(ctx context.Context, rec *persist.Record, e *persist.Entry) (maybe bool, err error) {
	switch {
	case rec.Answer != nil:
		return false, errAnswered
	case rec.ID == "":
		return false, errNoID
	case ctx.Err() != nil:
		return false, ctx.Err()
	}
	// All that takes time is done before the lock is taken.
	buf := j.buffer()
	defer j.giveBack(buf)
	m := metaOf(rec)
	m.opid = j.opid.Add(1)
	*buf = appendPut(openFrame((*buf)[:0]), m.opid, rec)
	closeFrame(*buf, 0)
	hash := j.idx.hash(rec.Ref)

	j.mu.Lock()
	for {
		i, known, err := j.find(ctx, rec.Ref, hash)
		if err != nil {
			j.mu.Unlock()
			return false, err
		}
		if i != 0 {
			e.Record = *known
			if s := j.idx.at(i); s.token == 0 && s.state == persist.Pending {
				e.Claim = j.claim(i, rec.Ref)
			}
			j.mu.Unlock()
			return false, nil
		}
		if j.opt.MaxPending > 0 && j.idx.pending >= j.opt.MaxPending {
			j.mu.Unlock()
			return false, &StoreFullError{Limit: j.opt.MaxPending}
		}
		waited, err := j.room(ctx, len(*buf), classNew)
		if err != nil {
			j.mu.Unlock()
			return false, err
		}
		if !waited {
			break
		}
	}
	i := j.idx.insert(hash, m)
	j.idx.at(i).flags |= flagBusy
	e.Claim = j.claim(i, rec.Ref)
	b, n := j.pushFrame(*buf, change{meta: m, slot: i, kind: kindPut, create: true})
	j.mu.Unlock()
	if maybe, err = j.await(ctx, b, n); err != nil {
		return maybe, err
	}
	e.Record, e.New = *rec, true
	return false, nil
}

// claim gives slot i to the caller. Under mu.
func (j *Journal) claim(i uint32, ref persist.Ref) persist.Claim {
	j.token++
	j.idx.at(i).token = j.token
	return persist.Claim{Ref: ref, Token: j.token}
}

// holder finds the slot that c holds, when nothing of it is being written. Under mu, which it may give up meanwhile.
func (j *Journal) holder(ctx context.Context, c persist.Claim) (uint32, error) {
	for {
		if err := j.usable(); err != nil {
			return 0, err
		}
		i := j.idx.first(j.idx.hash(c.Ref))
		for i != 0 && j.idx.at(i).token != c.Token {
			i = j.idx.after(i)
		}
		if i == 0 || c.Token == 0 {
			return 0, persist.ErrClaimLost
		}
		if j.idx.at(i).flags&flagBusy == 0 {
			return i, nil
		}
		if _, err := j.drain(ctx); err != nil {
			return 0, err
		}
	}
}

// change writes one payload about the operation that c holds. encode is called under mu, when the slot is certain.
func (j *Journal) change(ctx context.Context, method string, c persist.Claim, cls class,
	encode func(buf []byte, i uint32) ([]byte, change)) error {
	if err := ctx.Err(); err != nil {
		return fail(method, c.Ref, false, err)
	}
	buf := j.buffer()
	defer j.giveBack(buf)
	j.mu.Lock()
	for {
		i, err := j.holder(ctx, c)
		if err != nil {
			j.mu.Unlock()
			if errors.Is(err, persist.ErrClaimLost) {
				return err
			}
			return fail(method, c.Ref, false, err)
		}
		if method == "Mark" && j.idx.at(i).put.seg == 0 {
			j.mu.Unlock()
			return fail(method, c.Ref, false, errLost) // no store, no send
		}
		payload, ch := encode((*buf)[:0], i)
		*buf = payload
		waited, err := j.room(ctx, frameHeader+len(payload), cls)
		if err != nil {
			j.mu.Unlock()
			return fail(method, c.Ref, false, err)
		}
		if waited {
			continue
		}
		s := j.idx.at(i)
		ch.slot, ch.opid, ch.class = i, s.opid, cls
		setOp(payload, s.opid)
		if ch.lazy {
			b, n := j.push(payload, ch)
			at := b.changes[n].at
			if ch.kind == kindRemove {
				j.idx.remove(i)
			} else {
				j.idx.set(i, ch.kind, ch.meta, b.loc(at), b.frameLen(at))
				j.idx.unclaim(i)
			}
			j.mu.Unlock()
			return nil
		}
		s.flags |= flagBusy
		b, n := j.push(payload, ch)
		j.mu.Unlock()
		if maybe, err := j.await(ctx, b, n); err != nil {
			return fail(method, c.Ref, maybe, err)
		}
		return nil
	}
}

// Mark is durable when it returns nil.
func (j *Journal) Mark(ctx context.Context, c persist.Claim, p persist.Progress) error {
	return j.change(ctx, "Mark", c, classSettle, func(buf []byte, _ uint32) ([]byte, change) {
		ch := change{kind: kindMark}
		ch.setProgress(p.Parked, p.NotBefore)
		return appendMark(buf, 0, &p), ch
	})
}

// Replace is durable when it returns nil.
func (j *Journal) Replace(ctx context.Context, c persist.Claim, rec persist.Record) error {
	if rec.Answer != nil {
		return fail("Replace", c.Ref, false, errAnswered)
	}
	rec.Ref = c.Ref
	return j.change(ctx, "Replace", c, classNew, func(buf []byte, i uint32) ([]byte, change) {
		ch := change{kind: kindPut, meta: metaOf(&rec)}
		return appendPut(buf, 0, &rec), ch
	})
}

// Settle is durable when it returns nil, unless the answer is Lazy.
func (j *Journal) Settle(ctx context.Context, c persist.Claim, a persist.Answer) error {
	if a.State == persist.Pending || a.State > persist.Abandoned {
		return fail("Settle", c.Ref, false, errNoState)
	}
	if a.Lazy && a.KeepBody.IsZero() && a.KeepName.IsZero() && !a.Owed {
		return j.drop(ctx, c)
	}
	return j.change(ctx, "Settle", c, classSettle, func(buf []byte, i uint32) ([]byte, change) {
		ch := change{lazy: a.Lazy, ends: true}
		s, a := j.idx.at(i), a
		if s.put.seg == 0 && a.KeepName.Before(a.KeepBody) {
			a.KeepName = a.KeepBody // without its request no more than the name can be kept
		}
		ch.setAnswer(&a)
		switch now := nanos(time.Now()); {
		case ch.gone(now):
			ch.kind = kindRemove
			return appendRemove(buf, 0), ch
		case ch.bare(now) || s.put.seg == 0:
			rec := persist.Record{Ref: c.Ref, Named: s.flags&flagNamed != 0, Created: fromNanos(s.created), Answer: &a}
			ch.kind = kindTomb
			ch.created, ch.flags = s.created, s.flags&flagNamed|flagTomb
			return appendTomb(buf, 0, &rec), ch
		}
		ch.kind = kindSettle
		return appendSettle(buf, 0, &a), ch
	})
}

// drop is Settle for what most operations end with: a success that nobody needs to keep. It waits for nothing and
// allocates nothing.
func (j *Journal) drop(ctx context.Context, c persist.Claim) error {
	if err := ctx.Err(); err != nil {
		return fail("Settle", c.Ref, false, err)
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	for {
		i, err := j.holder(ctx, c)
		waited := false
		if err == nil {
			waited, err = j.room(ctx, frameHeader+removeSize, classSettle)
		}
		if err != nil {
			return wrap("Settle", c.Ref, err)
		}
		if waited {
			continue
		}
		var payload [removeSize]byte
		payload[0] = kindRemove
		opid := j.idx.at(i).opid
		setOp(payload[:], opid)
		j.push(payload[:], change{meta: meta{opid: opid}, slot: i, kind: kindRemove, class: classSettle, lazy: true})
		j.idx.remove(i)
		return nil
	}
}

// Release touches memory only: a claim dies with its process anyway.
func (j *Journal) Release(ctx context.Context, c persist.Claim) error {
	if err := ctx.Err(); err != nil {
		return fail("Release", c.Ref, false, err)
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	i, err := j.holder(ctx, c)
	if err != nil {
		if errors.Is(err, persist.ErrClaimLost) {
			return err
		}
		return fail("Release", c.Ref, false, err)
	}
	j.idx.unclaim(i)
	return nil
}

// Forget is durable when it returns nil. It takes out a record that cannot be read back, too.
func (j *Journal) Forget(ctx context.Context, ref persist.Ref) error {
	c, err := j.claimAny(ctx, ref)
	if err != nil {
		return wrap("Forget", ref, err)
	}
	err = j.change(ctx, "Forget", c, classSettle, func(buf []byte, _ uint32) ([]byte, change) {
		return appendRemove(buf, 0), change{kind: kindRemove}
	})
	if err != nil {
		j.unclaim(c)
	}
	return err
}

// Flush makes every buffered change durable.
func (j *Journal) Flush(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return fail("Flush", persist.Ref{}, false, err)
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if err := j.usable(); err != nil {
		return fail("Flush", persist.Ref{}, false, err)
	}
	b, err := j.drain(ctx)
	if err == nil && b != nil && (len(j.cuts) > 0 || j.poisoned() != nil) {
		err = b.err // otherwise what b buffered is on disk, whatever else of it was refused
	}
	if err != nil {
		return fail("Flush", persist.Ref{}, false, err)
	}
	return nil
}
