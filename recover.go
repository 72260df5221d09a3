package samekey

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/samekey/samekey/persist"
)

// Recovery says how pending operations of earlier processes are finished. Its zero value sends them again and records
// the answers, nothing else.
type Recovery struct {
	// Handle gets each final answer at least once: err is nil or a *ConflictError, resp the answer in both cases. The
	// operation is owed to it until it has returned nil, over restarts too; a panic in it counts as an error. For a
	// conflict it decides: nil keeps it, [ResumeAfter] and [AbandonWith] do what they say. It must not ask Do for op
	// itself, which would wait for Handle. An answer that Do or Resume has returned is their caller's: Handle is not told
	// of it. Nil: nobody is told.
	Handle func(ctx context.Context, op Operation, resp *http.Response, err error) error
	// Reconcile is asked about operations that may not simply be sent again, each time that Recover meets one; like Handle
	// it must not ask Do for op itself. Nil: they stay as they are.
	Reconcile   func(ctx context.Context, op Operation, why Why) (Verdict, error)
	Concurrency int           // operations at a time; 8
	Interval    time.Duration // KeepRecovering: from the end of one pass to the start of the next, give or take half of it; 30 s
	ParkAfter   int           // attempts over all processes, those of Do counted, after which an operation is parked; 20
	// Jitter bounds the random wait before the first operation, so that a fleet that restarts does not send all at
	// once; 1 s, negative: none.
	Jitter time.Duration
}

// Report counts what Recover did.
type Report struct {
	Succeeded, Rejected, Conflicted int
	Reconciled                      int // ended or put under a new key by Recovery.Reconcile
	Pending                         int // tried, and still unknown, or their answer is still being read
	Expired                         int // of the Pending: not sent, as the server may have forgotten their keys
	Parked                          int // of the Pending: only Resume, Rekey or Reconcile moves them
	Owed                            int // of those that ended: Handle has not accepted the answer yet
}

func (r Recovery) filled() (Recovery, error) {
	if r.Concurrency < 0 || r.ParkAfter < 0 || r.Interval < 0 {
		return r, &PolicyError{Field: "Recovery", Why: "Concurrency, ParkAfter and Interval cannot be negative"}
	}
	if r.Concurrency == 0 {
		r.Concurrency = 8
	}
	if r.ParkAfter == 0 {
		r.ParkAfter = 20
	}
	if r.Interval == 0 {
		r.Interval = 30 * time.Second
	}
	if r.Jitter == 0 {
		r.Jitter = time.Second
	}
	return r, nil
}

// Recover finishes what is pending and unowned, oldest first, each under its own key, byte for byte as it was first sent,
// with what Prepare sets anew. It returns when each was tried once; what is still unknown then is left alone for a
// while, so that one bad operation never keeps the others waiting. The error is the context's, the store's or ErrClosed.
// What a live call of this or another process owns is not touched.
func (c *Client) Recover(ctx context.Context, r Recovery) (Report, error) {
	r, err := r.filled()
	if err != nil {
		return Report{}, err
	}
	return c.recover(ctx, r, nil)
}

// recover makes one pass, and takes on what wake tells of meanwhile.
func (c *Client) recover(ctx context.Context, r Recovery, wake <-chan struct{}) (Report, error) {
	if !c.enter() {
		return Report{}, ErrClosed
	}
	defer c.calls.Done()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(c.ctx, func() { cancel(ErrClosed) })()

	p := &pass{
		core: c.core, Recovery: r, tried: map[Ref]bool{}, batch: r.Concurrency,
		slots: make(chan struct{}, 3*r.Concurrency), turns: turns{free: r.Concurrency}, idle: make(chan struct{}, 1),
	}
	if _, p.leased = c.cfg.Store.(persist.Leaser); p.leased { // a claim that waits may lapse
		p.batch, p.slots = (r.Concurrency+3)/4, make(chan struct{}, r.Concurrency)
	}
	defer p.giveBack(ctx)
	if !sleep(ctx, jitter(r.Jitter)) {
		return Report{}, endOf(ctx)
	}
	err := p.due(ctx)
	if err == nil {
		err = cmp.Or(p.parked(ctx), p.last(ctx)) // both: what one of them cannot read keeps nothing from the other
	}
	if err == nil {
		err = p.attend(ctx, wake)
	}
	p.running.Wait()
	switch {
	case ctx.Err() != nil:
		err = endOf(ctx)
	case err == nil && c.isClosed(): // it ends the calls first
		err = ErrClosed
	}
	return p.result(), err
}

// KeepRecovering recovers now, and again Interval after each pass, until ctx ends or the client is closed: run it in a
// goroutine. A store that can tell of new work (Wake(ctx) <-chan struct{}) is listened to, during a pass too. A failing
// store is tried again at the next pass, and the observer told. It returns the context's error or ErrClosed.
func (c *Client) KeepRecovering(ctx context.Context, r Recovery) error {
	r, err := r.filled()
	if err != nil {
		return err
	}
	var wake <-chan struct{}
	if w, ok := c.cfg.Store.(interface {
		Wake(ctx context.Context) <-chan struct{}
	}); ok {
		wake = w.Wake(ctx)
	}
	for {
		_, err := c.recover(ctx, r, wake)
		switch {
		case errors.Is(err, ErrClosed), errors.Is(err, persist.ErrClosed):
			return ErrClosed
		case ctx.Err() != nil:
			return endOf(ctx)
		case err != nil && c.observer != nil:
			c.observer(ctx, Event{Step: StepStoreError, Time: time.Now(), Recovery: true, Err: err})
		}
		t := time.NewTimer(r.Interval/2 + jitter(r.Interval))
		select {
		case <-t.C:
		case _, open := <-wake:
			if !open { // the store is about to be closed
				wake = nil
			}
		case <-ctx.Done():
		case <-c.ctx.Done():
		}
		t.Stop()
		r.Jitter = -1 // the interval has its own
	}
}

func jitter(d time.Duration) time.Duration {
	if d <= 0 {
		return 0
	}
	return rand.N(d)
}

// sleep reports whether the whole time passed.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}
