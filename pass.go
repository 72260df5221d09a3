package samekey

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/samekey/samekey/internal/flight"
	"github.com/samekey/samekey/persist"
)

// pass is one Recover.
type pass struct {
	*core
	Recovery
	leased  bool
	batch   int           // claimed at once
	slots   chan struct{} // one for each that is claimed: those under way, and twice as many that wait for their turn
	turns   turns
	running sync.WaitGroup
	idle    chan struct{} // nothing ran any more

	mu     sync.Mutex
	active int // of running
	report Report
	tried  map[Ref]bool // what may come due again
	held   []persist.Claim
	late   []Ref // whose answers were refused before: all others go first
	lasts  bool  // it is their time
}

// due takes what is due, until nothing is that this pass has not tried.
func (p *pass) due(ctx context.Context) error {
	for {
		if !p.reserve(ctx, p.batch) {
			return ctx.Err()
		}
		n, err := p.claim(ctx)
		if err != nil || n == 0 {
			return err
		}
	}
}

// attend waits for what runs. One that takes its time keeps nothing from what is new meanwhile.
func (p *pass) attend(ctx context.Context, wake <-chan struct{}) (first error) {
	for wake != nil && p.runs(0) > 0 {
		select {
		case _, open := <-wake:
			if !open {
				return first
			}
			p.mu.Lock()
			clear(p.tried) // what is due again by now has waited its time
			p.mu.Unlock()
			first = cmp.Or(first, p.due(ctx))
		case <-p.idle:
		}
	}
	return first
}

// runs counts what starts (1) and ends (-1), and returns how much runs.
func (p *pass) runs(more int) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.active += more
	if p.active == 0 && more < 0 {
		select {
		case p.idle <- struct{}{}:
		default:
		}
	}
	return p.active
}

// claim takes a batch that is due, in slots that are reserved.
func (p *pass) claim(ctx context.Context) (n int, err error) {
	free := p.batch
	defer func() { p.free(free) }()
	done, err := p.claims(ctx)
	if err != nil {
		return 0, err
	}
	defer done()
	entries, err := p.cfg.Store.ClaimDue(ctx, free)
	var begun sync.WaitGroup
	for _, e := range entries {
		if e.Claim.Token == 0 || e.Claim.Ref != e.Ref || p.holds(e.Claim) {
			err = errors.Join(err, errUnclaimed) // to go on would be to be given the same for ever
		} else if p.start(ctx, e, &begun) {
			free--
		}
	}
	begun.Wait()
	return len(entries), err
}

var errUnclaimed = errors.New("samekey: the store's ClaimDue returned an operation without a new claim")

// reserve waits for n slots, as long as ctx allows.
func (p *pass) reserve(ctx context.Context, n int) bool {
	for i := range n {
		select {
		case p.slots <- struct{}{}:
		case <-ctx.Done():
			p.free(i)
			return false
		}
	}
	return true
}

func (p *pass) free(n int) {
	for range n {
		<-p.slots
	}
}

// parked asks about what is due for nobody but Reconcile.
func (p *pass) parked(ctx context.Context) (first error) {
	if p.Reconcile == nil {
		return nil
	}
	for rec, err := range p.cfg.Store.List(ctx, persist.Filter{States: []State{Pending}}) {
		if err == nil && rec.Progress.Parked {
			err = p.single(ctx, rec.Ref)
		}
		if first = cmp.Or(first, err); ctx.Err() != nil {
			break
		}
	}
	return first
}

// last has those answers handed over that a handler has refused before.
func (p *pass) last(ctx context.Context) (first error) {
	p.lasts = true
	for _, ref := range p.late {
		_ = p.afresh(ctx, ref, func() error { return nil })
		p.mu.Lock()
		delete(p.tried, ref)
		p.mu.Unlock()
		if first = cmp.Or(first, p.single(ctx, ref)); ctx.Err() != nil {
			break
		}
	}
	return first
}

// single takes one operation, if it is to be had.
func (p *pass) single(ctx context.Context, ref Ref) error {
	if !p.reserve(ctx, 1) {
		return ctx.Err()
	}
	started := false
	defer func() {
		if !started {
			p.free(1)
		}
	}()
	done, err := p.claims(ctx)
	if err != nil {
		return err
	}
	defer done()
	e, err := p.cfg.Store.Claim(ctx, ref)
	switch {
	case errors.Is(err, persist.ErrBusy), errors.Is(err, persist.ErrNotFound):
		return nil
	case err == nil:
		var begun sync.WaitGroup
		started = p.start(ctx, e, &begun)
		begun.Wait()
	}
	return err
}

// start finishes e in a slot that is reserved, when its turn comes. What comes due again within this pass is held until
// its end: given back, it would only be claimed again. Once begun is through, a call of this client that asks for the
// operation finds it under way, or held.
func (p *pass) start(ctx context.Context, e persist.Entry, begun *sync.WaitGroup) bool {
	p.mu.Lock()
	hold := p.tried[e.Ref]
	p.tried[e.Ref] = true
	if !hold && !p.lasts && e.Answer != nil && p.refusedBefore(e.Ref) {
		hold, p.late = true, append(p.late, e.Ref)
	}
	p.mu.Unlock()
	if h := p.handingOver(e.Ref); h != nil && h.adopt(e.Claim) { // its caller reads the answer, and settles under this claim
		if !hold {
			p.count(func(r *Report) { r.Pending++ })
		}
		return false
	}
	if hold {
		p.hold(e.Claim)
		return false
	}
	begun.Add(1)
	turn := p.turns.ask()
	p.runs(1)
	p.running.Go(func() {
		known := sync.OnceFunc(begun.Done)
		defer p.runs(-1)
		defer p.free(1)
		defer known()
		defer p.turns.done(turn)
		defer p.contain(ctx, &e.Record)
		p.one(ctx, e, known, turn)
	})
	return true
}

// contain keeps a panic in one of the caller's hooks from ending the recovery of the others; the operation stays pending.
func (p *pass) contain(ctx context.Context, rec *persist.Record) {
	v := recover()
	if v == nil {
		return
	}
	p.count(func(r *Report) { r.Pending++ })
	if p.observer != nil {
		p.observer(ctx, Event{Step: StepWarning, Time: time.Now(), Ref: rec.Ref, Key: rec.Key, Method: rec.Method, Recovery: true,
			Durable: true, Attempt: rec.Progress.Attempts, Err: fmt.Errorf("samekey: a hook panicked: %v", v)})
	}
}

// recoverAgain is the least time after which an operation that stayed unknown is due again.
const recoverAgain = 30 * time.Second

// one finishes one operation, when it is its turn. It calls known once those who ask for it can find it under way.
func (p *pass) one(ctx context.Context, e persist.Entry, known func(), turn <-chan struct{}) {
	cmd, err := p.recorded(&e.Record)
	if err != nil { // a target that this version cannot read
		p.hold(e.Claim)
		p.count(func(r *Report) { r.Pending++ })
		return
	}
	run := func(ctx context.Context, f *flight.Call[*answer]) *answer {
		k := p.newCall(ctx, cmd, f)
		defer k.leave()
		k.mode, k.owed, k.rec, k.claim = modeRecover, p.Handle != nil, e.Record, e.Claim
		a := p.finish(k, func() bool {
			select {
			case <-turn:
			case <-f.Joined():
			case <-k.ctx.Done():
				return false
			}
			return true
		})
		if a == nil {
			call := k.call()
			call.MaybeSent = true
			return refused(call, &OutcomeUnknownError{Call: call, Err: endOf(k.ctx)})
		}
		if why := k.stuck(a); why != 0 && p.Reconcile != nil {
			a = p.reconcile(k, a, why)
		}
		if k.final != nil && k.final.Owed && p.Handle != nil {
			a = p.hand(ctx, k, a)
		}
		p.count(func(r *Report) { r.add(a, k) })
		k.observe(Event{Step: StepRecovered, State: a.info.State, Status: k.last.status(), Err: a.err})
		if k.final != nil && !k.final.Owed { // it does not come due again
			p.mu.Lock()
			delete(p.tried, e.Ref)
			p.mu.Unlock()
		}
		return a
	}
	// A call of this client that asks for the operation meanwhile gets a share of the answer, and waits for no turn.
	a, _, err := p.flights.Do(ctx, e.Ref, cmd, func(any) error { return errNoShare },
		func(ctx context.Context, f *flight.Call[*answer]) *answer {
			known()
			return run(ctx, f)
		})
	switch {
	case errors.Is(err, flight.ErrLeft): // others share it, and it ends without the pass
	case err != nil: // one has asked already, and gets it; or the pass ended while a call before it did
		p.hold(e.Claim)
	case a != nil:
		a.drop()
	}
}

var errNoShare = errors.New("samekey: a call under way is not shared with recovery")

// result is the report so far: what a call of this process shares may go on when the pass has ended.
func (p *pass) result() Report {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.report
}

func (p *pass) count(f func(*Report)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f(&p.report)
}

func (r *Report) add(a *answer, k *call) {
	if k.final != nil && k.final.Owed {
		r.Owed++
	}
	switch {
	case k.reconciled:
		r.Reconciled++
	case a.info.State == Succeeded:
		r.Succeeded++
	case a.info.State == Rejected:
		r.Rejected++
	case a.info.State == Conflicted:
		r.Conflicted++
	default:
		r.Pending++
		if errors.Is(a.err, ErrExpired) {
			r.Expired++
		}
		if k.rec.Progress.Parked {
			r.Parked++
		}
	}
}

// finish sends what may be sent, when turn says so. It returns nil if the pass ended before.
func (p *pass) finish(k *call, turn func() bool) *answer {
	if k.rec.Answer != nil { // settled, and its handler has not taken it yet
		if !turn() {
			return nil
		}
		k.final = k.rec.Answer
		return k.local()
	}
	u := p.remembered(k.rec.Ref)
	if u != nil && !u.none && u.rec.Key != k.rec.Key { // another process has given it a new key since
		p.forget(k.rec.Ref)
	}
	if u != nil && u.rec.Key == k.rec.Key { // a conflict is not sent again; it may be written down by now
		if !turn() {
			return nil
		}
		a, kept := u.answer, u.kept
		if kept.Owed = k.owed; k.put(kept) == nil {
			p.forget(k.rec.Ref)
		}
		return &a
	}
	a, before := k.takeOver(), k.rec.Progress
	switch {
	case a != nil:
	case before.Parked && before.PollURL == "": // it is here for Reconcile only
		a = k.unknown(parkedFor(&k.rec))
	case before.Attempts < p.ParkAfter:
		p.markEarly(k)
	}
	switch ready := turn(); {
	case !ready:
		if k.marked { // nothing left
			ctx, cancel := k.lastWord()
			defer cancel()
			_ = k.store.Mark(ctx, k.claim, before) // else it counts as tried
		}
		return nil
	case a != nil:
		return a
	case before.Attempts >= p.ParkAfter && before.PollURL == "":
		k.rec.Progress.Parked = true
		return k.unknown(ErrParked)
	}
	k.start = time.Now()
	if at, is := k.expired(0); is && k.marked {
		return k.surface(&ExpiredError{Call: k.call(), Expired: at})
	}
	k.attempts()
	k.rec.Progress.Parked = k.rec.Progress.Attempts >= p.ParkAfter && k.rec.Progress.PollURL == ""
	return k.conclude()
}

// parkedFor is why rec is parked.
func parkedFor(rec *persist.Record) error {
	if rec.Progress.LastError == storedFailure {
		return errStoredFailure
	}
	return ErrParked
}

// markEarly makes the next attempt's mark durable while the operation waits for its turn, so that the disk and the
// server work at the same time. Not where a mark by itself changes what may be done: after the first, or without keys.
func (p *pass) markEarly(k *call) {
	if p.leased || k.rec.Progress.Attempts == 0 || k.rec.Progress.PollURL != "" || !k.plan.contract.repeatable() {
		return
	}
	k.marked = k.ready() == nil // a failure is told by the attempt, which marks again
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// hand gives the answer to the handler; the operation is owed until that returned nil.
func (p *pass) hand(ctx context.Context, k *call, a *answer) *answer {
	if k.claim.Token == 0 { // given up with the settle
		e, err := p.take(ctx, k.rec.Ref) // this pass may have claimed it as due, and hold it
		switch {
		case errors.Is(err, persist.ErrBusy): // another client has claimed it, and hands it over
			return a
		case errors.Is(err, persist.ErrNotFound): // another has handed it over, or forgotten it
			k.final = nil
			return a
		case err != nil:
			k.storeFailed(err)
			return a
		}
		k.claim = e.Claim
		if kept := e.Answer; kept == nil || !kept.Owed || kept.State != k.final.State || e.Key != k.rec.Key {
			k.final = kept // it has moved on: what this pass knows must not be written over it
			return a
		}
	}
	k.observe(Event{Step: StepHandler, State: k.final.State, Status: k.final.Status})
	req, err := rebuild(ctx, &k.rec)
	if err == nil {
		op := operationOf(&k.rec, k.plan.pattern)
		op.State = k.final.State
		err = p.handle(ctx, op, a.response(req, true), a.err)
	}
	var decided *decision
	switch {
	case err == nil:
		final := *k.final
		final.Owed, final.Lazy = false, false
		_ = k.unhurried(final.State, func() error { return k.put(final) }) // a failure leaves it owed
		p.noteRefusal(k.rec.Ref, false)
	case k.final.State == Conflicted && errors.As(err, &decided):
		return p.decide(k, a, decided)
	default:
		p.noteRefusal(k.rec.Ref, true)
		k.observe(Event{Step: StepHandler, State: k.final.State, Err: err})
	}
	return a
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
