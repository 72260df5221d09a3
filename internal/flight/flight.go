// Package flight shares one call among all who ask for the same thing at the same time. Unlike singleflight the call
// has a life of its own: it goes on while anyone waits, ends when the last one leaves, and stays in the table until it
// has ended, so that two calls for one key never overlap.
package flight

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"
)

// ErrLeft is returned to a caller whose context ended while the call went on for others.
var ErrLeft = errors.New("flight: left while the call goes on for others")

// Group is a table of calls; its zero value is empty. It is safe for concurrent use.
type Group[K comparable, V any] struct {
	// Orphan is told of a result whose maker left before it was there. May be nil.
	Orphan func(V)

	mu    sync.Mutex
	calls map[K]*Call[V]
}

// Call is one call under way.
type Call[V any] struct {
	// Data is what the first caller gave, for those who join to look at.
	Data any

	mu      *sync.Mutex
	cancel  context.CancelCauseFunc
	done    chan struct{}
	val     V
	panic   any  // what run panicked with, for every caller to panic with
	exited  bool // run ended its goroutine (t.FailNow in a hook), for every caller to end its own
	waiting map[*waiter]struct{}
	joined  chan struct{} // closed once a second caller waits; made when somebody asks
	shared  bool
	last    *waiter // who left last, and gets the result all the same
	ending  bool    // the last waiter left
	ended   bool    // nobody can leave any more
}

// Joined is closed once another caller has joined the first one.
func (c *Call[V]) Joined() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.joined == nil {
		c.joined = make(chan struct{})
		if c.shared {
			close(c.joined)
		}
	}
	return c.joined
}

type waiter struct{ deadline time.Time } // zero: none

// Deadline returns the latest time that anyone waits until; false if somebody waits without end.
func (c *Call[V]) Deadline() (time.Time, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var last time.Time
	for w := range c.waiting {
		if w.deadline.IsZero() {
			return time.Time{}, false
		}
		if w.deadline.After(last) {
			last = w.deadline
		}
	}
	return last, !last.IsZero()
}

// Do joins the call under key or makes it with run, in a goroutine of its own under the first caller's values but not
// its end. join may refuse to share a call that it looked at. The result is run's; first tells who made the call. An
// error is join's, ErrLeft, or the context's while it waited for an ending call to be gone.
//
// The last caller whose context ends ends run's with the same cause, waits until run has returned, and gets its result.
func (g *Group[K, V]) Do(ctx context.Context, key K, data any, join func(data any) error, run func(ctx context.Context, c *Call[V]) V) (v V, first bool, err error) {
	w := &waiter{}
	w.deadline, _ = ctx.Deadline()
	for {
		g.mu.Lock()
		c := g.calls[key]
		if c == nil {
			c = g.start(ctx, key, data, w, run)
			g.mu.Unlock()
			v, err = c.wait(ctx, w)
			return v, true, err
		}
		if !c.ending {
			if err := join(c.Data); err != nil {
				g.mu.Unlock()
				return v, false, err
			}
			c.waiting[w] = struct{}{}
			if !c.shared && c.joined != nil {
				close(c.joined)
			}
			c.shared = true
			g.mu.Unlock()
			v, err = c.wait(ctx, w)
			return v, false, err
		}
		g.mu.Unlock()
		select {
		case <-c.done:
		case <-ctx.Done():
			return v, false, ctx.Err()
		}
	}
}

// start needs g.mu.
func (g *Group[K, V]) start(ctx context.Context, key K, data any, w *waiter, run func(context.Context, *Call[V]) V) *Call[V] {
	fctx, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	c := &Call[V]{Data: data, mu: &g.mu, cancel: cancel, done: make(chan struct{}), waiting: map[*waiter]struct{}{w: {}}}
	if g.calls == nil {
		g.calls = make(map[K]*Call[V])
	}
	g.calls[key] = c
	go func() {
		returned := false
		defer func() {
			c.panic = recover() // a caller may be able to contain it, this goroutine cannot
			c.exited = !returned && c.panic == nil
			g.mu.Lock()
			delete(g.calls, key)
			c.ended = true
			_, made := c.waiting[w]
			made = made || c.last == w
			g.mu.Unlock()
			if !made && g.Orphan != nil && returned {
				g.Orphan(c.val)
			}
			close(c.done)
		}()
		c.val = run(fctx, c)
		returned = true
	}()
	return c
}

func (c *Call[V]) result() V {
	if c.panic != nil {
		panic(c.panic)
	}
	if c.exited {
		runtime.Goexit()
	}
	return c.val
}

// causeOf is ctx's cause, and its error where that hides it: the call's own context was cancelled, whatever ended ctx.
func causeOf(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if errors.Is(err, context.DeadlineExceeded) && !errors.Is(cause, err) {
		return fmt.Errorf("%w: %w", err, cause)
	}
	return cause
}

func (c *Call[V]) wait(ctx context.Context, w *waiter) (v V, err error) {
	select {
	case <-c.done:
		return c.result(), nil
	case <-ctx.Done():
	}
	c.mu.Lock()
	ended := c.ended
	if !ended {
		delete(c.waiting, w)
		if len(c.waiting) == 0 {
			c.ending, c.last = true, w
		}
	}
	last := c.ending
	c.mu.Unlock()
	if !ended && !last {
		return v, ErrLeft
	}
	c.cancel(causeOf(ctx))
	<-c.done
	return c.result(), nil
}
