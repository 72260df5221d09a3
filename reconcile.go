package samekey

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/samekey/samekey/persist"
)

// Why an operation may not simply be sent again.
type Why uint8

// The reasons.
const (
	Expired       Why = iota + 1 // the server may have forgotten the key
	KeyOnly                      // its payload is not kept (PersistKeyOnly)
	NoKeyAtServer                // the endpoint knows no keys, and may have been reached
	StoredFailure                // the server keeps its failure under the key
	Parked                       // too many attempts
	MissingHeader                // it needs a header or parameter that is not stored and that nobody supplies
)

func (w Why) String() string {
	switch w {
	case Expired:
		return "expired"
	case KeyOnly:
		return "key only"
	case NoKeyAtServer:
		return "no key at the server"
	case StoredFailure:
		return "stored failure"
	case Parked:
		return "parked"
	case MissingHeader:
		return "missing header"
	}
	return "invalid"
}

// Verdict of Recovery.Reconcile.
type Verdict uint8

// The verdicts.
const (
	Keep            Verdict = iota // nothing is known yet
	Happened                       // the operation ends as succeeded; its answer is not known
	DidNotHappen                   // it leaves the store, and its name is new again
	SendUnderNewKey                // it did not happen, and is sent again, under a new key
)

// ResumeAfter is what Recovery.Handle returns for a conflict that is to be sent again, under its key, d from now: how the
// answer is fetched of a request that was in progress.
func ResumeAfter(d time.Duration) error { return &decision{after: d} }

// AbandonWith is what Recovery.Handle returns for a conflict that is given up.
func AbandonWith(reason string) error { return &decision{abandon: true, reason: reason} }

type decision struct {
	after   time.Duration
	abandon bool
	reason  string
}

func (d *decision) Error() string {
	if d.abandon {
		return "samekey: abandon: " + d.reason
	}
	return "samekey: resume after " + d.after.String()
}

// errKeyOnly is the cause where there is nothing to send.
var errKeyOnly = errors.New("samekey: the payload is not kept: the same name again, with its payload, goes on under the key")

// stuck tells why the operation may not be sent again, 0 if it may or has ended.
func (k *call) stuck(a *answer) Why {
	_, missing := errors.AsType[*missingError](a.err)
	switch {
	case a.err == nil || errors.Is(a.err, ErrConflict):
		return 0
	case errors.Is(a.err, ErrExpired):
		return Expired
	case errors.Is(a.err, errKeyOnly):
		return KeyOnly
	case errors.Is(a.err, ErrNoKeyAtServer):
		return NoKeyAtServer
	case errors.Is(a.err, errStoredFailure):
		return StoredFailure
	case missing:
		return MissingHeader
	case k.rec.Progress.Parked:
		return Parked
	}
	return 0
}

// reconcile asks the hook, whose word then stands.
func (p *pass) reconcile(k *call, a *answer, why Why) *answer {
	verdict, err := p.ask(k, why)
	if err == nil && verdict != Keep {
		err = k.unhurried(Pending, func() error { return p.obey(k, verdict) })
	}
	switch {
	case err != nil:
		k.observe(Event{Step: StepHandler, State: Pending, Err: fmt.Errorf("Recovery.Reconcile: %w", err)})
		return a
	case verdict == Keep:
		return a
	}
	k.reconciled = true
	if verdict == SendUnderNewKey {
		k.takeBack(a)
		k.hop, k.advised = "", time.Time{}
		k.attempts()
		return k.conclude()
	}
	return a
}

func (p *pass) ask(k *call, why Why) (v Verdict, err error) {
	defer func() {
		if r := recover(); r != nil {
			v, err = Keep, fmt.Errorf("panicked: %v", r)
		}
	}()
	return p.Reconcile(&attemptContext{k.ctx, nil}, operationOf(&k.rec, k.plan.pattern), why)
}

// unhurried writes what a hook or a reader took any time for: a claim that lapsed meanwhile is taken again, if the
// operation is in state s still, and as it was.
func (k *call) unhurried(s State, write func() error) error {
	err := write()
	if !errors.Is(err, persist.ErrClaimLost) {
		return err
	}
	k.claim = persist.Claim{}
	ctx, cancel := k.lastWord()
	defer cancel()
	e, cerr := k.store.Claim(ctx, k.rec.Ref)
	if cerr != nil {
		return err
	}
	k.claim = e.Claim
	if e.State() != s || e.Key != k.rec.Key || e.Progress.Attempts != k.rec.Progress.Attempts {
		return err
	}
	return write()
}

// obey makes a verdict durable.
func (p *pass) obey(k *call, v Verdict) error {
	switch v {
	case Happened:
		return k.write(persist.Answer{State: Succeeded, Reason: "reconciled: it happened", KeepName: time.Now().Add(tombstoneLife)}, nil)
	case DidNotHappen:
		return k.write(persist.Answer{State: Abandoned, Reason: "reconciled: it did not happen"}, nil)
	case SendUnderNewKey:
		rec, err := rekeyed(&k.rec, k.plan)
		if err != nil {
			return err
		}
		now := time.Now()
		rec.Progress = persist.Progress{Attempts: 1, FirstSent: now, Seen: now}
		ctx, cancel := k.lastWord()
		defer cancel()
		k.held = now
		if err := k.store.Replace(ctx, k.claim, rec); err != nil {
			return err
		}
		k.rec, k.prior, k.marked, k.age, k.end, k.limit, k.refused = rec, false, true, newKeyAge(rec.Progress, now), nil, nil, nil
		k.start = now // the hook's time is not the call's
		return k.cmd.resume(&k.rec)
	}
	return fmt.Errorf("samekey: %d is no verdict", v)
}

// rekeyed is rec under a new key.
func rekeyed(old *persist.Record, pl *plan) (rec persist.Record, err error) {
	call := Call{Ref: old.Ref, Key: old.Key, Method: old.Method, URL: bareURL(old.Target), Endpoint: pl.pattern, Attempts: old.Progress.Attempts}
	switch {
	case isDerived(pl.KeyFormat) || !pl.contract.keyed():
		return rec, &KeyError{Call: call, Why: "the endpoint's keys cannot be replaced"}
	case old.Body == nil: // its fingerprint is bound to the key, and only the payload could bind it to another
		return rec, &KeyError{Call: call, Why: "the payload is not kept, and a new key cannot be bound to it", Err: errKeyOnly}
	}
	rec = *old
	if rec.Key, err = pl.KeyFormat.NewKey(old.Ref); err != nil {
		return rec, &KeyError{Call: call, Why: "the key format failed", Err: err}
	}
	if why := pl.contract.check(rec.Key); why != "" {
		return rec, &KeyError{Call: call, Why: why}
	}
	if rec.Key == old.Key {
		return rec, &KeyError{Call: call, Why: "the key format gave the same key again"}
	}
	rec.Answer, rec.Progress, rec.KeyLife = nil, persist.Progress{Seen: time.Now()}, pl.contract.life()
	rec.Header = rec.Header.Clone()
	delete(rec.Header, firstSentHeader) // a new key has a first send of its own
	rec.Created = time.Now()
	body, why := pl.contract.carry(&rec, rec.Key, rec.Body)
	rec.Created = old.Created
	if why != "" {
		return rec, &KeyError{Call: call, Why: why}
	}
	rec.Body = body
	return rec, nil
}

// decide does what the handler said of a conflict. A failure leaves it owed.
func (p *pass) decide(k *call, a *answer, d *decision) *answer {
	if d.abandon {
		now := time.Now()
		final := persist.Answer{State: Abandoned, Reason: d.reason, KeepBody: now.Add(k.plan.Retention), KeepName: now.Add(k.plan.Retention + tombstoneLife)}
		_ = k.unhurried(Conflicted, func() error { return k.write(final, nil) })
		return a
	}
	rec := k.rec
	rec.Answer, rec.Progress.NotBefore = nil, time.Now().Add(d.after)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(k.ctx), settleTimeout)
	defer cancel()
	if err := k.unhurried(Conflicted, func() error { return k.store.Replace(ctx, k.claim, rec) }); err != nil {
		k.storeFailed(err)
	}
	return a
}
