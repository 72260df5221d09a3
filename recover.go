package samekey

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"github.com/samekey/samekey/internal/flight"
	"github.com/samekey/samekey/persist"
)

// Recovery says how pending operations of earlier processes are finished. Its zero value records the answers only.
type Recovery struct {
	// Handle gets each final answer at least once: err is nil or a *ConflictError, resp the answer in both cases. An
	// anonymous operation is kept until Handle has returned nil; a named one keeps its answer in any case. Nil: nobody
	// is told.
	Handle      func(ctx context.Context, op Operation, resp *http.Response, err error) error
	Concurrency int // operations at a time; 8
	ParkAfter   int // attempts over all processes, those of Do counted, after which an operation is parked; 20
	// Jitter spreads the start of each operation over this time, so that a fleet that restarts does not send all at
	// once; 1 s, negative: none.
	Jitter time.Duration
}

// Report counts what Recover did.
type Report struct {
	Succeeded, Rejected, Conflicted int
	Pending                         int // tried, and still unknown
	Expired                         int // not sent: the server may have forgotten their keys
	Parked                          int // of the Pending: only Resume or Rekey moves them
}

// Recover finishes what is pending and unowned, oldest first, each under its own key, byte for byte as it was first sent,
// with what Prepare sets anew. It returns when each was tried once; what is still unknown then is left alone for a
// while, so that one bad operation never keeps the others waiting. The error is the context's, the store's or ErrClosed.
// What a live call of this or another process owns is not touched.
func (c *Client) Recover(ctx context.Context, r Recovery) (Report, error) {
	if r.Concurrency == 0 {
		r.Concurrency = 8
	}
	if r.ParkAfter == 0 {
		r.ParkAfter = 20
	}
	if r.Jitter == 0 {
		r.Jitter = time.Second
	}
	if r.Concurrency < 0 || r.ParkAfter < 0 {
		return Report{}, &PolicyError{Field: "Recovery", Why: "Concurrency and ParkAfter cannot be negative"}
	}
	if !c.enter() {
		return Report{}, ErrClosed
	}
	defer c.calls.Done()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(c.ctx, func() { cancel(ErrClosed) })()

	var (
		p     = &pass{core: c.core, Recovery: r, tried: map[Ref]bool{}}
		slots = make(chan struct{}, r.Concurrency)
		wg    sync.WaitGroup
	)
	defer p.giveBack(ctx)
	defer wg.Wait()
	for {
		entries, err := c.cfg.Store.ClaimDue(ctx, r.Concurrency)
		if err == nil && len(entries) == 0 {
			wg.Wait()
			return p.report, nil
		}
		if err != nil {
			if ctx.Err() != nil {
				err = endOf(ctx)
			}
			wg.Wait()
			return p.report, err
		}
		for _, e := range entries {
			if !p.take(e) {
				continue
			}
			select {
			case slots <- struct{}{}:
			case <-ctx.Done():
				p.hold(e.Claim)
				continue
			}
			wg.Go(func() {
				defer func() { <-slots }()
				p.one(ctx, e)
			})
		}
	}
}

// pass is one Recover.
type pass struct {
	*core
	Recovery
	mu     sync.Mutex
	report Report
	tried  map[Ref]bool
	held   []persist.Claim
}

// take reports whether e is for this pass. What comes due again within it is held until its end: given back, it would
// only be claimed again.
func (p *pass) take(e persist.Entry) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.tried[e.Record.Ref] {
		p.held = append(p.held, e.Claim)
		return false
	}
	p.tried[e.Record.Ref] = true
	return true
}

func (p *pass) hold(c persist.Claim) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.held = append(p.held, c)
}

func (p *pass) giveBack(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTimeout)
	defer cancel()
	for _, c := range p.held {
		_ = p.cfg.Store.Release(ctx, c) // a store that fails here has no claim to hold
	}
}

// recoverAgain is the least time after which an operation that stayed unknown is due again.
const recoverAgain = 30 * time.Second

// one finishes one operation.
func (p *pass) one(ctx context.Context, e persist.Entry) {
	if p.Jitter > 0 {
		t := time.NewTimer(rand.N(p.Jitter))
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
		}
	}
	cmd, err := p.recorded(&e.Record)
	if err != nil { // a target that this version cannot read
		p.hold(e.Claim)
		p.count(func(r *Report) { r.Pending++ })
		return
	}
	run := func(ctx context.Context, deadline func() (time.Time, bool)) *answer {
		k := p.newCall(ctx, cmd, deadline)
		defer k.leave()
		k.mode, k.owed, k.rec, k.claim = modeRecover, p.Handle != nil, e.Record, e.Claim
		a := p.finish(k)
		if k.final != nil && k.final.Owed {
			p.hand(ctx, k, a)
		}
		p.count(func(r *Report) { r.add(a, k.rec.Progress.Parked) })
		k.observe(Event{Step: StepRecovered, State: a.info.State, Status: k.last.status(), Err: a.err})
		return a
	}
	// A call of this process that asks for the operation meanwhile gets a share of the answer.
	a, _, err := p.flights.Do(ctx, e.Record.Ref, cmd, func(any) error { return errNoShare },
		func(ctx context.Context, f *flight.Call[*answer]) *answer { return run(ctx, f.Deadline) })
	if errors.Is(err, errNoShare) { // one has asked already, and is about to learn that it is busy
		a = run(ctx, ctx.Deadline)
	}
	if a != nil {
		a.drop()
	}
}

var errNoShare = errors.New("samekey: a call under way is not shared with recovery")

func (r *Report) add(a *answer, parked bool) {
	switch {
	case errors.Is(a.err, ErrExpired):
		r.Expired++
	case a.info.State == Succeeded:
		r.Succeeded++
	case a.info.State == Rejected:
		r.Rejected++
	case a.info.State == Conflicted:
		r.Conflicted++
	default:
		r.Pending++
		if parked {
			r.Parked++
		}
	}
}

func (p *pass) finish(k *call) *answer {
	if k.rec.Answer != nil { // settled, and its handler has not taken it yet
		k.final = k.rec.Answer
		return k.local()
	}
	if a := k.takeOver(); a != nil {
		return a
	}
	if k.rec.Progress.Attempts >= p.ParkAfter {
		k.rec.Progress.Parked = true
		return k.unknown(ErrParked)
	}
	k.attempts()
	k.advised = latest(k.advised, time.Now().Add(recoverAgain))
	k.rec.Progress.Parked = k.rec.Progress.Attempts >= p.ParkAfter
	return k.settle()
}

// hand gives the answer to the handler; the operation is owed until that returned nil.
func (p *pass) hand(ctx context.Context, k *call, a *answer) {
	if k.claim.Token == 0 { // given up with the settle
		e, err := p.cfg.Store.Claim(ctx, k.rec.Ref)
		if err != nil {
			k.storeFailed(err)
			return
		}
		k.claim = e.Claim
	}
	k.observe(Event{Step: StepHandler, State: k.final.State, Status: k.final.Status})
	req, err := rebuild(ctx, &k.rec)
	if err == nil {
		op := operationOf(&k.rec, k.plan.pattern)
		op.State = k.final.State
		err = p.handle(ctx, op, a.response(req, true), a.err)
	}
	if err != nil {
		k.observe(Event{Step: StepHandler, State: k.final.State, Err: err})
		return // leave gives the claim back
	}
	final := *k.final
	final.Owed, final.Lazy = false, false
	_ = k.write(final, a.err)
}

// handle contains a panic of the handler: one bad answer must not end the recovery of the others.
func (p *pass) handle(ctx context.Context, op Operation, resp *http.Response, err error) (herr error) {
	defer func() {
		if v := recover(); v != nil {
			herr = fmt.Errorf("samekey: Recovery.Handle panicked: %v", v)
		}
	}()
	return p.Handle(ctx, op, resp, err)
}

func (p *pass) count(f func(*Report)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f(&p.report)
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// recorded makes a command of what is stored.
func (c *core) recorded(rec *persist.Record) (*command, error) {
	req, err := rebuild(c.ctx, rec)
	if err != nil {
		return nil, fmt.Errorf("samekey: the stored target of %q cannot be read: %w", rec.ID, err)
	}
	return &command{plan: c.planFor(req), rec: *rec, body: rec.Body, url: req.URL, named: rec.Named, resumed: true}, nil
}

// Operations lists what the store keeps, oldest first. A store error ends it.
func (c *Client) Operations(ctx context.Context, f persist.Filter) iter.Seq2[Operation, error] {
	return func(yield func(Operation, error) bool) {
		for rec, err := range c.cfg.Store.List(ctx, f) {
			if err != nil {
				yield(Operation{}, err)
				return
			}
			if !yield(c.operation(&rec), nil) {
				return
			}
		}
	}
}

// Operation returns one; errors.Is(err, persist.ErrNotFound) where the store does not know it.
func (c *Client) Operation(ctx context.Context, ref Ref) (Operation, error) {
	rec, err := c.cfg.Store.Get(ctx, ref)
	if err != nil {
		return Operation{}, err
	}
	return c.operation(&rec), nil
}

func (c *core) operation(rec *persist.Record) Operation {
	pattern := ""
	if req, err := rebuild(c.ctx, rec); err == nil {
		pattern = c.planFor(req).pattern
	}
	return operationOf(rec, pattern)
}

// Resume sends one pending, parked or conflicted operation again: a fresh budget of attempts, the same key, and the
// original time of its first send, which bounds the key's life. Its answer is Do's. A settled one is answered from the
// store. Errors are Do's, and persist.ErrNotFound.
func (c *Client) Resume(ctx context.Context, ref Ref) (*http.Response, error) {
	e, err := c.cfg.Store.Claim(ctx, ref)
	switch {
	case errors.Is(err, persist.ErrBusy):
		return nil, &BusyError{Call: Call{Ref: ref}}
	case errors.Is(err, persist.ErrNotFound):
		return nil, err
	case err != nil:
		return nil, &StoreError{Call: Call{Ref: ref}, Err: err}
	}
	cmd, err := c.recorded(&e.Record)
	if err != nil {
		_ = c.cfg.Store.Release(ctx, e.Claim)
		return nil, err
	}
	c.forget(ref)
	k := c.newCall(ctx, cmd, ctx.Deadline)
	defer k.leave()
	k.mode, k.rec, k.claim = modeResume, e.Record, e.Claim
	req, err := rebuild(ctx, &e.Record)
	if err != nil {
		return nil, err
	}
	var a *answer
	switch {
	case !k.entered:
		a = k.failed(&OutcomeUnknownError{Call: k.call(), Err: ErrClosed})
	case e.State() == Pending, e.State() == Conflicted:
		k.rec.Progress.Parked = false
		if a = k.takeOver(); a == nil {
			k.attempts()
			a = k.settle()
		}
	default:
		a = k.local()
	}
	if a.err != nil && (!c.responses || a.head == nil) {
		a.drop()
		return nil, a.err
	}
	return a.response(req, true), nil
}

// Rekey gives an expired, parked, conflicted or pending operation a new key, by the caller's word that it did not happen
// under the old one. It sends nothing: Resume, Recover or the same name again does. Refused while another call owns the
// operation, for one that is settled otherwise, and for derived keys.
func (c *Client) Rekey(ctx context.Context, ref Ref) (newKey string, err error) {
	err = c.change(ctx, ref, func(e persist.Entry) error {
		if s := e.State(); s != Pending && s != Conflicted {
			return fmt.Errorf("samekey: rekey %q: it %s", ref.ID, s)
		}
		cmd, err := c.recorded(&e.Record)
		if err != nil {
			return err
		}
		pl := cmd.plan
		if isDerived(pl.KeyFormat) || !pl.contract.keyed() {
			return &KeyError{Call: cmd.call(), Why: "the endpoint's keys cannot be replaced"}
		}
		if newKey, err = pl.KeyFormat.NewKey(ref); err != nil {
			return &KeyError{Call: cmd.call(), Why: "the key format failed", Err: err}
		}
		if why := pl.contract.check(newKey); why != "" {
			return &KeyError{Call: cmd.call(), Why: why}
		}
		rec := e.Record
		rec.Key, rec.Answer, rec.Progress = newKey, nil, persist.Progress{Seen: time.Now()}
		rec.Header = pl.contract.placedIn(rec.Header, newKey)
		if err := c.cfg.Store.Replace(ctx, e.Claim, rec); err != nil {
			return err
		}
		return c.cfg.Store.Release(ctx, e.Claim)
	})
	if err != nil {
		return "", err
	}
	return newKey, nil
}

// Abandon ends a pending or conflicted operation without an answer: nothing more is sent, and a later Do under its name
// is an *ExpiredError that says so. The reason is kept with the name.
func (c *Client) Abandon(ctx context.Context, ref Ref, reason string) error {
	return c.change(ctx, ref, func(e persist.Entry) error {
		if s := e.State(); s != Pending && s != Conflicted {
			return fmt.Errorf("samekey: abandon %q: it %s", ref.ID, s)
		}
		now := time.Now()
		return c.cfg.Store.Settle(ctx, e.Claim, persist.Answer{State: Abandoned, Reason: reason, KeepBody: now.Add(maxRetention), KeepName: now.Add(tombstoneLife)})
	})
}

// Forget takes an operation out of the store, whatever its state: the name is new again. Forgetting one that may have
// been sent gives its protection away.
func (c *Client) Forget(ctx context.Context, ref Ref) error {
	err := c.cfg.Store.Forget(ctx, ref)
	if errors.Is(err, persist.ErrBusy) {
		return &BusyError{Call: Call{Ref: ref}}
	}
	if err == nil {
		c.forget(ref)
	}
	return err
}

// change does something to an operation that nobody owns.
func (c *Client) change(ctx context.Context, ref Ref, f func(persist.Entry) error) error {
	e, err := c.cfg.Store.Claim(ctx, ref)
	if errors.Is(err, persist.ErrBusy) {
		return &BusyError{Call: Call{Ref: ref}}
	}
	if err != nil {
		return err
	}
	if err := f(e); err != nil {
		if rerr := c.cfg.Store.Release(context.WithoutCancel(ctx), e.Claim); rerr != nil && !errors.Is(rerr, persist.ErrClaimLost) {
			err = errors.Join(err, rerr)
		}
		return err
	}
	c.forget(ref)
	return nil
}
