package samekey

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/samekey/samekey/internal/wire"
	"github.com/samekey/samekey/persist"
)

// conclude awaits what was accepted, and settles.
func (k *call) conclude() *answer {
	if k.end == nil && k.last.class == classProcessing && !k.last.misled() && (k.plan.Await == On || k.rec.Progress.PollURL != "") {
		k.poll()
	}
	return k.settle()
}

// settle writes the outcome down and makes the caller's answer of it.
func (k *call) settle() *answer {
	a := &k.last
	if k.end != nil {
		return k.brokenOff()
	}
	if a.misled() {
		return k.unknown(a.echo)
	}
	switch a.class {
	case classSucceeded:
		return k.succeed()
	case classProcessing:
		if k.plan.Await == On || k.last.Resp == nil {
			k.prior = true
			return k.unknown(k.limit)
		}
		k.note()
		return k.answered(Pending)
	case classConflict:
		return k.conflict()
	case classRejected:
		return k.reject(k.rec.Named && k.plan.KeepRejections == On)
	case classGate:
		if !k.prior {
			return k.reject(false)
		}
	case classOther, classFollow:
		if !k.prior {
			return k.reject(k.rec.Named && k.plan.KeepRejections == On)
		}
		if k.rec.Method == http.MethodDelete && (a.status() == http.StatusNotFound || a.status() == http.StatusGone) {
			return k.unknown(errAlreadyGone)
		}
	case classStored:
		k.rec.Progress.Parked, k.rec.Progress.LastError = true, storedFailure
		return k.unknown(errStoredFailure)
	case classUnsent:
		if !k.prior && k.limit != nil {
			return k.notSent(&limitError{cause: a.Err, limit: k.limit})
		}
		if !k.prior {
			return k.notSent(a.Err)
		}
	}
	if exp, ok := errors.AsType[*ExpiredError](k.limit); ok {
		k.prior = k.prior || a.mayHaveActed()
		return k.surface(exp)
	}
	switch {
	case k.limit == nil:
		return k.unknown(a.Err)
	case a.Err == nil:
		return k.unknown(k.limit)
	}
	return k.unknown(&limitError{cause: a.Err, limit: k.limit})
}

// storedFailure is also how a record tells why it is parked.
const storedFailure = "the server has stored this failure under the key, more tries cannot change it"

var errStoredFailure = fmt.Errorf("%w: "+storedFailure, ErrParked)

var errAlreadyGone = errors.New("already gone: an earlier attempt may have deleted it")

// limitError shows the original cause first, then why no retry was made; errors.Is finds both.
type limitError struct{ cause, limit error }

func (e *limitError) Error() string   { return e.cause.Error() + "; not retried: " + e.limit.Error() }
func (e *limitError) Unwrap() []error { return []error{e.cause, e.limit} }

// brokenOff ends a call that its context, Close, the store or the key's life stopped.
func (k *call) brokenOff() *answer {
	if exp, ok := errors.AsType[*ExpiredError](k.end); ok && k.prior {
		return k.surface(exp)
	}
	interrupted := errors.Is(k.end, ErrClosed) || k.ctx.Err() != nil
	if k.prior || !interrupted && !errors.Is(k.end, ErrExpired) {
		return k.unknown(k.end)
	}
	return k.notSent(k.end)
}

// answered is the answer of the last attempt, as it is.
func (k *call) answered(s State) *answer {
	a := k.newAnswer(s)
	if s == Pending {
		k.outcome(s, nil)
	}
	return a
}

// failed is an error without a response of its own.
func (k *call) failed(err error) *answer {
	a := &answer{err: err, info: k.info(k.rec.State())}
	k.outcome(k.rec.State(), err)
	return a
}

// unknown leaves the operation pending and says so. With a claim, what the attempts have taught is noted.
func (k *call) unknown(err error) *answer {
	call := k.call()
	call.MaybeSent = true
	if k.n > 0 || k.mode == modeRecover {
		k.note()
	}
	e := &OutcomeUnknownError{Call: call, Last: k.last.reply(), RetryAfter: k.advised, Err: err}
	a := k.newAnswer(Pending)
	a.err = e
	k.outcome(Pending, e)
	return a
}

// surface is the answer of an operation whose key is too old to be sent.
func (k *call) surface(e *ExpiredError) *answer {
	e.MaybeSent = k.prior
	if k.n > 0 || k.mode == modeRecover || !k.toldExpired() {
		k.note()
	}
	if !k.prior && k.mode != modeRecover { // a derived key that was too old from the start
		return k.notSent(e)
	}
	return k.failed(e)
}

// note makes durable what the attempts have taught: status, error, advised time, parked. The operation stays pending, so
// that a failure costs nothing but the note.
func (k *call) note() {
	if k.claim.Token == 0 {
		return
	}
	ctx, cancel := k.lastWord()
	defer cancel()
	p := k.rec.Progress
	k.seen(&p, time.Now())
	p.NotBefore = k.dueAgain()
	if err := k.store.Mark(ctx, k.claim, p); err != nil {
		k.storeFailed(err)
	}
}

// dueAgain is the advised time, as long as that is before the end of the key's life: recovery is to find it expired,
// whatever a server asks for. What a recovery has tried is left alone for a while.
func (k *call) dueAgain() time.Time {
	now, due := time.Now(), k.advised
	if k.mode == modeRecover && k.ended() == nil { // else the next process may go on at once
		due = latest(due, now.Add(recoverAgain))
	}
	end := now.Add(maxRetention)
	if life := k.rec.KeyLife; life >= 0 && k.plan.contract.keyed() && !k.rec.Progress.FirstSent.IsZero() {
		end = latest(k.rec.Progress.FirstSent.Add(life), now.Add(recoverAgain))
	}
	if due.After(end) {
		return end
	}
	return due
}

// notSent takes back an operation of which nothing left. Where that cannot be made durable it is unknown: a later
// recovery would send it.
func (k *call) notSent(err error) *answer {
	call := k.call()
	call.MaybeSent = false
	e := &NotSentError{Call: call, Err: err}
	if k.claim.Token == 0 {
		return k.failed(e)
	}
	if k.cmd.resumed { // enqueued or given a new key: it is still to be sent
		return k.unknown(err)
	}
	if serr := k.write(persist.Answer{State: Abandoned, Reason: "not sent"}, e); serr != nil {
		return k.unknown(fmt.Errorf("%w; and taking it back failed: %w", err, serr))
	}
	return &answer{err: e, info: k.info(Abandoned)}
}

// reject ends an operation without effect. That is told only once it is durable.
func (k *call) reject(keep bool) *answer {
	if k.last.class == classGate && (k.mode == modeRecover || k.cmd.resumed) { // it is still to be sent
		return k.unknown(nil)
	}
	if err := k.write(k.toKeep(Rejected, keep), nil); err != nil {
		return k.unknown(err)
	}
	return k.answered(Rejected)
}

// conflict keeps the operation as conflicted, so that every later call is answered here.
func (k *call) conflict() *answer {
	e := &ConflictError{Call: k.call(), Reply: *k.last.reply(), Reason: k.last.reason, Link: k.last.link, Ambiguous: k.prior}
	e.MaybeSent = true
	rec := k.toKeep(Conflicted, true)
	rec.Reason = conflictNote(e)
	if least := time.Now().Add(k.plan.retention()); rec.KeepBody.Before(least) { // Resume needs the request, whatever Retention says
		rec.KeepBody, rec.KeepName = least, least.Add(tombstoneLife)
	}
	err := k.write(rec, e)
	if resolved := k.resolve(e, err); resolved != nil {
		return resolved
	}
	a := k.newAnswer(Conflicted)
	if a.err = e; err != nil {
		a.info.StoreErr = k.hiding(err)
	}
	if err != nil || k.plan.Persist == PersistNone && k.cmd.shareable() {
		k.remember(*a, rec)
	}
	return a
}

// resolve lets Policy.Resolve put an answer in the place of a conflict that is written down.
func (k *call) resolve(e *ConflictError, written error) *answer {
	if k.plan.Resolve == nil || written != nil {
		return nil
	}
	resp, err := k.plan.Resolve(&attemptContext{k.ctx, nil}, e)
	if err == nil && resp == nil {
		return nil
	}
	var body []byte
	if err == nil && resp.Body != nil {
		body, err = io.ReadAll(io.LimitReader(resp.Body, k.plan.MaxResponse+1))
		_ = resp.Body.Close()
	}
	if err == nil && int64(len(body)) > k.plan.MaxResponse {
		err = fmt.Errorf("the answer is above Policy.MaxResponse, %d bytes", k.plan.MaxResponse)
	}
	if err == nil && k.plan.Persist != PersistNone {
		ctx, cancel := k.lastWord()
		defer cancel()
		var entry persist.Entry
		if entry, err = k.store.Claim(ctx, k.rec.Ref); err == nil {
			k.claim = entry.Claim
			if entry.State() != Conflicted || entry.Key != k.rec.Key {
				err = errors.New("the operation has moved on meanwhile")
			}
		}
	}
	if err != nil {
		k.observe(Event{Step: StepWarning, Status: e.Status, Err: fmt.Errorf("Policy.Resolve: %w", k.redact(err))})
		return nil
	}
	k.last.drop()
	if resp.Header == nil {
		resp.Header = http.Header{}
	}
	k.last = attempt{Result: wire.Result{Resp: resp, Body: body}, meaning: meaning{class: classSucceeded}}
	return k.succeed()
}

// succeed settles a success. An anonymous one is settled when its caller has it.
func (k *call) succeed() *answer {
	if !k.rec.Named && k.plan.Persist != PersistNone && k.mode != modeRecover {
		k.outcome(Succeeded, nil)
		a := k.answered(Succeeded)
		k.handOver(a)
		return a
	}
	err := k.write(k.toKeep(Succeeded, k.rec.Named), nil)
	a := k.answered(Succeeded)
	if err != nil {
		a.info.StoreErr = k.hiding(err)
	}
	return a
}

// toKeep is what the store keeps of the last answer.
func (k *call) toKeep(s State, keep bool) persist.Answer {
	a := &k.last
	out := persist.Answer{State: s, Status: a.status(), Header: storable(a.Resp.Header), Body: a.Body, Truncated: a.Rest != nil}
	if keep {
		out.KeepBody, out.KeepName = k.keepUntil()
	}
	if k.plan.Persist == PersistKeyOnly { // no payload, the answer's neither
		out.Header, out.Body, out.KeepBody = nil, nil, time.Time{}
	}
	out.Owed, out.Lazy = k.owed, k.lazy(s)
	return out
}

// lazy reports whether an answer may be buffered. A success that is lost costs one harmless repeat under the same key;
// without one, or where an expired operation is taken not to have happened, it would cost a second effect.
func (k *call) lazy(s State) bool {
	return !k.owed && s == Succeeded && k.plan.contract.keyed() && k.plan.OnExpiry != NewKey
}

// storable is an answer's header without what no file may hold.
func storable(h http.Header) http.Header {
	if !slices.ContainsFunc(credentials, func(name string) bool { return h[name] != nil }) {
		return h
	}
	h = h.Clone()
	for _, name := range credentials {
		delete(h, name)
	}
	return h
}

// write settles, and with that gives the claim up. err is the outcome's, for the observer.
func (k *call) write(a persist.Answer, err error) error {
	k.outcome(a.State, err)
	return k.put(a)
}

// put is write for an answer whose outcome was told before.
func (k *call) put(a persist.Answer) error {
	ctx, cancel := k.lastWord()
	defer cancel()
	began := time.Now()
	if err := k.store.Settle(ctx, k.claim, a); err != nil {
		k.storeFailed(err)
		return err
	}
	k.claim, k.final = persist.Claim{}, &a
	k.observe(Event{Step: StepSettled, State: a.State, Status: a.Status, Elapsed: time.Since(began)})
	return nil
}

func (k *call) outcome(s State, err error) { k.outcomeOf(k.last.status(), s, err) }

func (k *call) outcomeOf(status int, s State, err error) {
	k.observe(Event{Step: StepOutcome, State: s, Status: status, Sends: k.sends, Source: k.source(), Elapsed: time.Since(k.start), Err: err})
}

// keepUntil is how long a named answer, and then its name, is known.
func (k *call) keepUntil() (body, name time.Time) {
	now := time.Now()
	if k.plan.Retention > 0 {
		body = now.Add(k.plan.Retention)
	}
	return body, now.Add(k.plan.Retention + tombstoneLife)
}

// conflictNote keeps with a conflict what its stored answer does not tell.
func conflictNote(e *ConflictError) string {
	if e.Ambiguous {
		return e.Reason.String() + ambiguousNote
	}
	return e.Reason.String()
}

const ambiguousNote = "; an earlier attempt may have succeeded"

// noted is what conflictNote kept.
func noted(note string) (reason Reason, ambiguous bool) {
	note, ambiguous = strings.CutSuffix(note, ambiguousNote)
	for r := ReasonMismatch; r <= ReasonBusiness; r++ {
		if note == r.String() {
			reason = r
		}
	}
	return reason, ambiguous
}
