package samekey

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/samekey/samekey/persist"
)

// holding is what a client's recoveries have claimed and do not work at.
type holding struct {
	claiming chan struct{} // a lock: a recovery is about to claim, or has claimed and not yet begun
	held     map[Ref]persist.Claim
	refused  map[Ref]bool // whose answers a handler has refused
}

func newHolding() holding {
	return holding{claiming: make(chan struct{}, 1), held: map[Ref]persist.Claim{}, refused: map[Ref]bool{}}
}

// claims locks, until done is called: calls of this client that meet a claim wait for what becomes of it.
func (c *core) claims(ctx context.Context) (done func(), err error) {
	select {
	case c.holding.claiming <- struct{}{}:
		return func() { <-c.holding.claiming }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// afresh asks the store again about an operation that it said another has: a recovery of this client may only hold it, or
// have given it up meanwhile. None of them claims it before ask has returned. The error is ask's, or that of ctx if it ended
// before: then nobody knows whose the operation is.
func (c *core) afresh(ctx context.Context, ref Ref, ask func() error) error {
	done, err := c.claims(ctx)
	if err != nil {
		return err
	}
	defer done()
	c.mu.Lock()
	claim, is := c.holding.held[ref]
	delete(c.holding.held, ref)
	c.mu.Unlock()
	if is {
		c.letGo(ctx, claim)
	}
	return ask()
}

// letGo ends a claim under which nothing was done, whatever ctx says. A failure shows to who asks next.
func (c *core) letGo(ctx context.Context, claim persist.Claim) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTimeout)
	defer cancel()
	_ = c.cfg.Store.Release(ctx, claim)
}

// take claims one for a call of this client: what its own recovery only holds is no other call's.
func (c *core) take(ctx context.Context, ref Ref) (e persist.Entry, err error) {
	if e, err = c.cfg.Store.Claim(ctx, ref); errors.Is(err, persist.ErrBusy) {
		err = c.afresh(ctx, ref, func() (err error) {
			e, err = c.cfg.Store.Claim(ctx, ref)
			return err
		})
	}
	return e, err
}

// hold keeps a claim until the pass ends, or a call of this client wants the operation.
func (p *pass) hold(c persist.Claim) {
	p.mu.Lock()
	p.held = append(p.held, c)
	p.mu.Unlock()
	p.core.mu.Lock()
	p.holding.held[c.Ref] = c
	p.core.mu.Unlock()
}

// holds reports whether the very claim is held.
func (c *core) holds(claim persist.Claim) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.holding.held[claim.Ref] == claim
}

// giveBack ends the pass's hold.
func (p *pass) giveBack(ctx context.Context) {
	ctx = context.WithoutCancel(ctx)
	wait, cancel := context.WithTimeout(ctx, settleTimeout)
	defer cancel()
	if done, err := p.claims(wait); err == nil { // else a call that has met a claim would find it neither held nor given up
		defer done()
	}
	ctx, cancel = context.WithTimeout(ctx, settleTimeout)
	defer cancel()
	p.mu.Lock()
	held := p.held
	p.mu.Unlock() // what others share goes on, and counts
	for _, c := range held {
		p.core.mu.Lock()
		still := p.holding.held[c.Ref] == c
		if still {
			delete(p.holding.held, c.Ref)
		}
		p.core.mu.Unlock()
		if still {
			_ = p.cfg.Store.Release(ctx, c) // a store that fails here has no claim to hold
		}
	}
}

// refusedBefore reports whether a handler has refused the operation's answer in this process.
func (c *core) refusedBefore(ref Ref) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.holding.refused[ref]
}

func (c *core) noteRefusal(ref Ref, refused bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if refused {
		c.holding.refused[ref] = true
	} else {
		delete(c.holding.refused, ref)
	}
}

// turns lets so many at a time, in the order in which they asked.
type turns struct {
	mu    sync.Mutex
	free  int
	queue []chan struct{}
}

// ask returns what is closed when it is one's turn.
func (t *turns) ask() (turn chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	turn = make(chan struct{})
	if t.free > 0 {
		t.free--
		close(turn)
	} else {
		t.queue = append(t.queue, turn)
	}
	return turn
}

// done ends a turn, or the wait for it.
func (t *turns) done(turn chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if i := slices.Index(t.queue, turn); i >= 0 {
		t.queue = slices.Delete(t.queue, i, i+1)
		return
	}
	if len(t.queue) == 0 {
		t.free++
		return
	}
	close(t.queue[0])
	t.queue = slices.Delete(t.queue, 0, 1)
}
