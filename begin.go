package samekey

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"time"

	"github.com/samekey/samekey/internal/wire"
	"github.com/samekey/samekey/persist"
)

// call is one run of one command: by Do, Resume or Recover.
type call struct {
	*core
	plan    *plan
	cmd     *command
	outer   context.Context // the caller's
	ctx     context.Context // the caller's, ended by Close too, and by the latest attempt's timeout until it is renewed
	cancel  context.CancelCauseFunc
	waits   deadliner // whoever does
	start   time.Time
	entered bool // counted by Close
	mode    mode
	owed    bool // a handler is to get the answer

	store persist.Store
	rec   persist.Record
	claim persist.Claim // zero: not ours, or given back
	age   keyAge
	// prior: an attempt, of whatever process, may have reached the server before the last one. fresh: the store has
	// said that nothing was sent under this ID before, or the ID is no name.
	prior, fresh bool
	marked       bool // the next attempt's mark is durable already
	n, sends     int  // attempts and physical sends of this call
	polled       bool // a poll was answered
	hop          string
	streams      bool
	exchange     wire.Exchange
	prepared     *http.Request
	last         attempt
	handover     handover
	refused      error     // why an attempt was not begun
	end          error     // what broke the attempts off: context, Close, store; nil if the last attempt's row holds
	limit        error     // what kept the last attempt from being repeated
	held         time.Time // before the store was last asked for the claim: its lease counts from there
	wait         time.Duration
	advised      time.Time // the server's Retry-After
	final        *persist.Answer
	reconciled   bool
}

// mode is who makes a call. What would remove a record leaves it pending in modeRecover.
type mode uint8

const (
	modeDo mode = iota
	modeResume
	modeRecover
)

// deadliner is a context, or all who share a call.
type deadliner interface{ Deadline() (time.Time, bool) }

// newCall makes a call; leave gives back what it holds.
func (c *core) newCall(ctx context.Context, cmd *command, waits deadliner) *call {
	k := &call{core: c, plan: cmd.plan, cmd: cmd, waits: waits, start: time.Now(), rec: cmd.rec, store: c.cfg.Store}
	if cmd.plan.Persist == PersistNone {
		k.store = noStore{}
	}
	k.fresh = !cmd.shareable()
	k.outer = ctx
	k.ctx, k.cancel = context.WithCancelCause(ctx)
	k.entered = c.track(k)
	return k
}

// renew ends what hangs on the last attempt's context, which its timeout may have ended already, and makes a new one.
func (k *call) renew() {
	k.cancel(nil)
	ctx, cancel := context.WithCancelCause(k.outer) // it asks the caller's context, which may be anybody's: not under the lock
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.ctx, k.cancel = ctx, cancel; k.closed {
		cancel(ErrClosed)
	}
}

// leave ends the call, whatever became of it: a claim that was not settled is given back, also after a panic in a hook.
func (k *call) leave() {
	k.release()
	k.last.drop()
	if !k.streams { // a body that still streams needs the context, and ends it when it is closed
		k.finish()
	}
	if k.entered {
		k.calls.Done()
	}
}

// finish ends the call's context.
func (k *call) finish() {
	k.untrack(k)
	k.cancel(nil)
}

// begin makes key and request durable, the first attempt's mark with them. It returns the answer of an operation that
// needs no network or may not have any, nil if there is something to send.
func (k *call) begin() *answer {
	if !k.entered {
		return k.notSent(ErrClosed)
	}
	if u := k.remembered(k.rec.Ref); u != nil {
		if !k.cmd.sameAs(&u.rec) {
			k.rec.Key, k.rec.Progress = u.rec.Key, u.rec.Progress
			return k.failed(&MismatchError{Call: k.call()})
		}
		a := u.answer
		k.outcomeOf(u.kept.Status, Conflicted, a.err)
		return &a
	}
	if k.cmd.adopted && !k.cmd.named {
		if h := k.handingOver(k.rec.Ref); h != nil && h.shared != nil && k.cmd.sameAs(&h.k.rec) {
			a := *h.shared
			k.outcomeOf(a.head.StatusCode, Succeeded, nil)
			return &a
		}
	}
	if err := k.ended(); err != nil {
		return k.notSent(err)
	}
	rec := k.rec
	now := time.Now()
	rec.Progress.Attempts, rec.Progress.Seen = 1, now
	if rec.Progress.FirstSent.IsZero() {
		rec.Progress.FirstSent = now
	}
	k.observe(Event{Step: StepBegin})
	k.held = now
	e, err := k.store.Begin(k.ctx, rec)
	if err == nil && e.State() == Pending && e.Claim.Token == 0 {
		known := e.Record
		err = k.afresh(k.ctx, rec.Ref, func() (err error) {
			k.held = time.Now()
			e, err = k.store.Begin(k.ctx, rec)
			return err
		})
		if ended := k.ended(); err != nil && ended != nil {
			k.rec.Key, k.rec.Progress, k.fresh, k.prior = known.Key, known.Progress, false, true
			return k.unknown(ended)
		}
	}
	if err != nil {
		return k.beginFailed(err)
	}
	k.claim = e.Claim
	k.observe(Event{Step: StepBegun, State: e.State(), Elapsed: time.Since(now)})
	if e.New {
		k.rec, k.fresh, k.prior = rec, true, k.cmd.foreign
		return k.send()
	}
	return k.known(e)
}

// send readies the first attempt of an operation whose mark is durable.
func (k *call) send() *answer {
	k.marked, k.age = true, newKeyAge(k.rec.Progress, time.Now())
	// A derived key that was issued long ago may have been sent from elsewhere; one made now is as young as can be.
	if at, is := k.expired(0); is && !k.cmd.rec.Progress.FirstSent.IsZero() {
		e := &ExpiredError{Call: k.call(), Expired: at}
		if err := k.write(persist.Answer{State: Abandoned, Reason: "expired before it was sent"}, e); err != nil {
			return k.unknown(err)
		}
		return &answer{err: e, info: k.info(Abandoned)}
	}
	if k.plan.budget != nil {
		k.plan.budget.request()
	}
	return nil
}

// beginFailed refuses the command. The store withdraws what it could not record, or says that it cannot.
func (k *call) beginFailed(err error) *answer {
	own, _ := errors.AsType[*persist.Error](err)
	maybe := own != nil && own.Maybe
	if errors.Is(err, persist.ErrClaimLost) || k.claim.Token != 0 && !k.lasts(0) { // whoever has it may have sent it by now
		k.fresh, k.prior = false, true
	}
	ended := k.ended()
	if ended != nil && !maybe {
		if k.claim.Token != 0 && k.fresh { // the earlier intent of this name was rejected, and keeps its answer
			return k.failed(&NotSentError{Call: k.call(), Err: ended})
		}
		return k.notSent(ended)
	}
	if ended != nil && !errors.Is(err, context.Cause(k.ctx)) { // a store may know no more than that it was cancelled
		err = fmt.Errorf("%w: %w", ended, err)
	}
	k.storeFailed(err)
	return k.failed(&StoreError{Call: k.call(), MayBeRecorded: maybe, Err: err})
}

// known answers for an operation that the store knew already.
func (k *call) known(e persist.Entry) *answer {
	k.fresh, k.prior = false, true
	rec := &e.Record
	state, same := rec.State(), k.cmd.sameAs(rec)
	switch {
	case state == Pending && e.Claim.Token == 0:
		k.rec.Key, k.rec.Progress = rec.Key, rec.Progress
		return k.failed(&BusyError{Call: k.call()})
	case rec.Tombstone() || state == Abandoned:
		k.rec.Key = rec.Key
		return k.failed(&ExpiredError{Call: k.call(), Expired: rec.Answer.KeepBody, Past: state, Reason: rec.Answer.Reason})
	case state == Rejected && !same && k.cmd.rec.Key != rec.Key: // an adopted key cannot serve another payload
		return k.newIntent()
	case !same:
		k.rec.Key, k.rec.Progress, k.rec.Answer = rec.Key, rec.Progress, rec.Answer
		return k.failed(&MismatchError{Call: k.call()})
	case state == Pending:
		k.rec = *rec
		return k.takeOver()
	}
	k.rec = *rec
	return k.local()
}

// takeOver goes on with a pending operation that nobody owned: its own key and bytes, the live request's credentials.
func (k *call) takeOver() *answer {
	now := time.Now()
	k.age, k.prior = k.ageOf(k.rec.Progress, now), k.rec.Progress.Attempts > 0 || k.cmd.foreign || isDerived(k.plan.KeyFormat)
	k.cmd.resumed = true
	if err := k.cmd.resume(&k.rec); err != nil {
		return k.failed(&KeyError{Call: k.call(), Why: "the recorded request cannot be sent again", Err: err})
	}
	polls := k.rec.Progress.PollURL != "" // what stops commands (no payload, the key's end) does not stop them
	if k.cmd.body == nil && !polls {
		return k.unknown(errKeyOnly)
	}
	if at, is := k.expired(0); is && !polls && !k.rec.Progress.FirstSent.IsZero() {
		if k.plan.OnExpiry == NewKey && k.mode == modeDo && k.cmd.rec.Key != k.rec.Key {
			return k.replace()
		}
		return k.surface(&ExpiredError{Call: k.call(), Expired: at})
	}
	switch {
	case k.rec.Progress.Parked && k.mode == modeDo:
		return k.unknown(ErrParked)
	case !k.plan.contract.repeatable() && k.prior && !polls:
		return k.unknown(ErrNoKeyAtServer)
	}
	if k.plan.budget != nil {
		k.plan.budget.request()
	}
	return nil
}

// newIntent takes the name of a rejected operation for another payload, under a new key.
func (k *call) newIntent() *answer {
	e, err := k.take(k.ctx, k.rec.Ref)
	switch {
	case errors.Is(err, persist.ErrBusy):
		return k.failed(&BusyError{Call: k.call()})
	case errors.Is(err, persist.ErrNotFound): // forgotten meanwhile, or past its retention
		return k.begin()
	case err != nil:
		return k.beginFailed(fmt.Errorf("claiming a rejected operation for a new intent: %w", err))
	}
	k.claim = e.Claim
	switch {
	case e.State() != Rejected, k.cmd.sameAs(&e.Record): // another process was quicker
		return k.known(e)
	case e.Answer.Owed: // to a handler, which would never get it
		return k.failed(&BusyError{Call: k.call()})
	}
	k.fresh, k.prior = true, false
	return k.replace()
}

// replace puts this call's request and new key in the place of the stored ones.
func (k *call) replace() *answer {
	rec := k.cmd.rec
	rec.Header = maps.Clone(rec.Header)               // those who join look at the command's own
	if why := k.cmd.carry(&rec, rec.Key); why != "" { // what is sent bore the old one
		return k.failed(&KeyError{Call: k.call(), Why: why})
	}
	now := time.Now()
	rec.Progress.Attempts, rec.Progress.Seen, rec.Progress.FirstSent = 1, now, now
	held := k.held
	k.held = now
	if err := k.store.Replace(k.ctx, k.claim, rec); err != nil {
		k.held = held
		return k.beginFailed(err)
	}
	k.rec, k.fresh, k.prior = rec, true, false
	k.cmd.resumed = false
	return k.send()
}

// release gives the claim back and leaves the operation as it is.
func (k *call) release() {
	if k.claim.Token == 0 {
		return
	}
	ctx, cancel := k.lastWord()
	defer cancel()
	if err := k.store.Release(ctx, k.claim); err != nil {
		k.storeFailed(err)
	}
	k.claim = persist.Claim{}
}

// settleTimeout bounds what is still written once a call has ended.
const settleTimeout = 10 * time.Second

// lastWord is the context of what is written whatever the caller's context says.
func (k *call) lastWord() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(k.ctx), settleTimeout)
}

// call is what errors say of k.
func (k *call) call() Call {
	c := k.cmd.call()
	c.Key, c.Attempts = k.rec.Key, k.rec.Progress.Attempts
	c.fresh, c.MaybeSent, c.unkept = k.fresh, k.prior, k.plan.Persist == PersistNone
	return c
}

// call is what errors before the store say of cmd.
func (cmd *command) call() Call {
	return Call{
		Ref: cmd.rec.Ref, Key: cmd.rec.Key, Method: cmd.rec.Method, URL: bareURL(cmd.rec.Target), Endpoint: cmd.plan.pattern,
		fresh: !cmd.shareable(), keyless: !cmd.plan.contract.repeatable(), adopted: cmd.adopted && !cmd.named,
	}
}

// unkeyed is call for one that shares, or waits for, what another began: under which key is for that one to say.
func (cmd *command) unkeyed() Call {
	c := cmd.call()
	if !cmd.adopted {
		c.Key = ""
	}
	return c
}

func (k *call) observe(e Event) {
	if k.observer == nil {
		return
	}
	if e.Err != nil {
		e.Err = k.hiding(e.Err)
	}
	k.observer(k.ctx, k.about(e))
}

// about fills in what all events of k have.
func (k *call) about(e Event) Event {
	e.Time, e.Ref, e.Key, e.Method, e.Endpoint = time.Now(), k.rec.Ref, k.rec.Key, k.rec.Method, k.plan.pattern
	e.Durable, e.Recovery, e.Attempt = k.plan.Persist != PersistNone, k.mode != modeDo, k.rec.Progress.Attempts
	return e
}

func (k *call) storeFailed(err error) { k.observe(Event{Step: StepStoreError, Err: err}) }

// hiding is an error of a store or transport as it may be told where none of ours is around it: of the key, a part.
func (k *call) hiding(err error) error {
	if text := hideKey(err.Error(), k.rec.Key); text != err.Error() {
		return &redactedError{text: text, err: err}
	}
	return err
}

// noStore stands in where the policy keeps nothing.
type noStore struct{ persist.Store }

func (noStore) Begin(_ context.Context, r persist.Record) (persist.Entry, error) {
	return persist.Entry{Record: r, Claim: persist.Claim{Ref: r.Ref, Token: 1}, New: true}, nil
}
func (noStore) Mark(context.Context, persist.Claim, persist.Progress) error { return nil }
func (noStore) Settle(context.Context, persist.Claim, persist.Answer) error { return nil }
func (noStore) Release(context.Context, persist.Claim) error                { return nil }
