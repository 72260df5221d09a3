package samekey

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/samekey/samekey/internal/wire"
	"github.com/samekey/samekey/persist"
)

// class is the row of the table of outcomes (see the package documentation) that an attempt falls into.
type class uint8

const (
	classUncertain  class = iota // may have happened: 408, 5xx, a timeout, a lost connection
	classUnsent                  // nothing left
	classSucceeded               //
	classProcessing              // accepted, not done
	classConflict                // never retried
	classRejected                // final and without effect, whatever came before
	classGate                    // turned away: without effect, but says nothing of what came before
	classOther                   // final only if nothing came before
	classStored                  // the server keeps its failure under the key
	classFollow                  // a redirect that the policy follows
)

// meaning is what an attempt says.
type meaning struct {
	class
	reason    Reason
	link      string // of the existing resource, or the redirect's target
	byRule    bool
	permanent bool // a repeat cannot help
	replayed  bool
	echo      error // the answer does not repeat the key
}

// status of the answer, 0 for none.
func (a *attempt) status() int {
	if a.Resp == nil {
		return 0
	}
	return a.Resp.StatusCode
}

// mayHaveActed reports whether the command may have happened in this attempt, for what comes after it. An answer that
// turned it away says it did not, unless the transport had sent it more than once.
func (a *attempt) mayHaveActed() bool {
	return !a.Unsent && (a.Sends > 1 || a.class != classGate && a.class != classFollow)
}

// drop closes what was not read of a body that nobody gets.
func (a *attempt) drop() {
	if a.Rest != nil {
		_ = a.Rest.Close()
		a.Rest, a.dropped = nil, true
	}
}

func (a *attempt) reply() *Reply {
	if a.Resp == nil {
		return nil
	}
	return &Reply{Status: a.Resp.StatusCode, Header: a.Resp.Header, Body: a.Body}
}

// permanentError is a failure that a repeat cannot mend.
type permanentError struct{ error }

func (e permanentError) Unwrap() error { return e.error }

// judge finds the last attempt's row.
func (k *call) judge(timeout error) {
	a := &k.last
	if a.Err != nil {
		a.class, a.permanent = classUncertain, isPermanent(a.Err)
		if a.Unsent {
			a.class = classUnsent
		}
		switch ended := k.ended(); {
		case ended != nil:
			a.Err = ended
		case a.TimedOut:
			a.Err = timeout
		default:
			a.Err = k.redact(a.Err)
		}
		return
	}
	a.meaning = k.plan.judgeAnswer(a.Resp, a.Body)
	if a.echo = k.checkEcho(); a.echo != nil {
		k.observe(Event{Step: StepWarning, Status: a.status(), Err: a.echo})
	}
	if a.class == classOther && k.plan.Redirects == On && (a.status() == 307 || a.status() == 308) {
		if target, ok := sameOrigin(a.Resp, k.url()); ok {
			a.class, a.link = classFollow, target
		}
	}
	if a.class == classOther && a.status() == http.StatusSeeOther {
		_, ok := sameOrigin(a.Resp, k.url())
		if host := k.rec.Header.Get("Host"); !ok && host != "" { // what the server believes to be
			named := *k.url()
			named.Host = host
			_, ok = sameOrigin(a.Resp, &named)
		}
		if ok {
			a.class = classSucceeded
		}
	}
}

// judgeAnswer finds the row of an answer: first what the contract says, then what HTTP says.
func (pl *plan) judgeAnswer(resp *http.Response, body []byte) (m meaning) {
	status := resp.StatusCode
	says, link := pl.contract.meaning(status, resp.Header, body)
	m.link, m.byRule, m.replayed = link, says != 0, pl.contract.isReplay(status, resp.Header, body)
	switch says {
	case MeansMismatch:
		m.class, m.reason = classConflict, ReasonMismatch
	case MeansInProgress:
		m.class, m.reason = classConflict, ReasonInProgress
	case MeansExists:
		m.class, m.reason = classConflict, ReasonExists
	case MeansBusiness:
		m.class, m.reason = classConflict, ReasonBusiness
	}
	if m.class == classConflict || status == http.StatusConflict {
		m.class = classConflict // whatever a rule calls it
		return m
	}
	switch says {
	case MeansSucceeded:
		m.class = classSucceeded
	case MeansProcessing:
		m.class = classProcessing
	case MeansRejected:
		m.class = classRejected
	case MeansTurnedAway:
		m.class = classGate
	case MeansStoredFailure:
		m.class = classStored
	case MeansUncertain:
		m.class = classUncertain
	}
	if says != 0 {
		return m
	}
	switch {
	case status >= 200 && status < 300:
		m.class = classSucceeded
	case m.replayed && status >= 400 && status < 500:
		m.class = classRejected
	case m.replayed && status >= 500:
		m.class = classStored
	case pl.contract.StoresRejections && slices.Contains([]int{400, 402, 422}, status):
		m.class = classRejected
	case slices.Contains([]int{401, 403, 407, 421, 425, 429, 431, 451, 511}, status):
		m.class = classGate
	case status == http.StatusRequestTimeout || status >= 500 || status < 200:
		m.class = classUncertain
	default:
		m.class = classOther
	}
	return m
}

var errNoEcho = errors.New("samekey: the answer does not repeat the key: something on the way strips it")

// checkEcho holds an answer of the API itself against the contract's echo. A gateway's own (a 5xx, a 401) has none.
func (k *call) checkEcho() error {
	con := k.plan.contract
	if con.Echo == "" || k.last.class == classUncertain || k.last.class == classGate {
		return nil
	}
	got := k.last.Resp.Header.Get(con.Echo)
	if plain, ok := unquote(got); ok {
		got = plain
	}
	switch got {
	case k.rec.Key:
		return nil
	case "":
		return errNoEcho
	}
	return errors.New("samekey: the answer repeats another key: it may be another operation's")
}

// isPermanent reports whether err would be the same at the next attempt.
func isPermanent(err error) bool {
	if _, ok := errors.AsType[permanentError](err); ok {
		return true
	}
	var (
		cert      *tls.CertificateVerificationError
		authority x509.UnknownAuthorityError
		host      x509.HostnameError
		invalid   x509.CertificateInvalidError
	)
	return errors.As(err, &cert) || errors.As(err, &authority) || errors.As(err, &host) || errors.As(err, &invalid)
}

// sameOrigin returns the absolute Location of resp if it is of the origin of from.
func sameOrigin(resp *http.Response, from *url.URL) (string, bool) {
	loc := resp.Header.Get("Location")
	if loc == "" {
		return "", false
	}
	u, err := from.Parse(loc)
	if err != nil || origin(u) != origin(from) || u.User != nil {
		return "", false
	}
	return u.String(), true
}

// origin is scheme, host and port, whether the port is written or not.
func origin(u *url.URL) string {
	port := u.Port()
	if port == "" && u.Scheme == "http" {
		port = "80"
	} else if port == "" {
		port = "443"
	}
	return strings.ToLower(u.Scheme + "://" + u.Hostname() + ":" + port)
}

// conclude awaits what was accepted, and settles.
func (k *call) conclude() *answer {
	if k.end == nil && k.last.class == classProcessing && (k.plan.Await == On || k.rec.Progress.PollURL != "") {
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
	if a.echo != nil && !errors.Is(a.echo, errNoEcho) {
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
		k.rec.Progress.Parked = true
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

var errStoredFailure = fmt.Errorf("%w: the server has stored this failure under the key, more tries cannot change it", ErrParked)

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
	if k.n > 0 || k.mode == modeRecover {
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
	p.NotBefore = k.advised
	if err := k.store.Mark(ctx, k.claim, p); err != nil {
		k.storeFailed(err)
	}
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
	a.err, a.info.StoreErr = e, err
	if err != nil {
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
	if err == nil {
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
		}
	}
	if err != nil {
		k.observe(Event{Step: StepWarning, Status: e.Status, Err: fmt.Errorf("Policy.Resolve: %w", k.redact(err))})
		return nil
	}
	k.last.drop()
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
	a.info.StoreErr = err
	return a
}

// toKeep is what the store keeps of the last answer.
func (k *call) toKeep(s State, keep bool) persist.Answer {
	a := &k.last
	out := persist.Answer{State: s, Status: a.status(), Header: storable(a.Resp.Header), Body: a.Body, Truncated: a.Rest != nil}
	if keep {
		out.KeepBody, out.KeepName = k.keepUntil()
	}
	// A success that is lost costs one harmless repeat under the same key; without one, or where an expired operation
	// is taken not to have happened, it would cost a second effect.
	if k.plan.Persist == PersistKeyOnly {
		out.KeepBody = time.Time{}
	}
	out.Owed = k.owed
	out.Lazy = !k.owed && s == Succeeded && k.plan.contract.keyed() && k.plan.OnExpiry != NewKey
	return out
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

func (k *call) outcome(s State, err error) {
	source := Network
	if k.last.replayed {
		source = Replay
	}
	if k.n == 0 {
		source = Local
	}
	k.observe(Event{Step: StepOutcome, State: s, Status: k.last.status(), Sends: k.sends, Source: source, Elapsed: time.Since(k.start), Err: err})
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
