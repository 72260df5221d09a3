package samekey

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/hashicorp/go-retryablehttp"

	"github.com/samekey/samekey/internal/retryafter"
	"github.com/samekey/samekey/internal/wire"
	"github.com/samekey/samekey/persist"
)

// attempt is one exchange and what it means.
type attempt struct {
	wire.Result
	meaning
	dropped bool // the rest of its body is gone
}

// attempts sends until there is an outcome or a limit is met. go-retryablehttp drives the loop; what it is told and asks
// for is this call's state, as its own hooks see neither a whole answer nor the reason of a failure.
func (k *call) attempts() {
	if k.rec.Progress.PollURL != "" { // it was accepted: it is asked about, and never sent again
		k.last.meaning.class = classProcessing
		return
	}
	l := loops.Get().(*loop)
	l.call = k
	_, err := l.client.Do(&l.blank) //nolint:bodyclose // RoundTrip's answer has no body
	l.call = nil
	loops.Put(l) // not after a panic: who knows what it has left
	if err != nil && k.end == nil {
		k.end = k.ended() // in a wait
	}
}

// loop is go-retryablehttp's client and what it believes to send: one request after another of the call's, under the
// call's context. It is the RoundTripper under that client too: the answer stays in the call, since net/http's client
// would follow, refuse or rewrap what is only to be judged. It does not export CloseIdleConnections, which the client
// would call after a failure.
type loop struct {
	call   *call
	client retryablehttp.Client
	blank  retryablehttp.Request
}

var loops = sync.Pool{New: func() any {
	l := &loop{}
	l.client = retryablehttp.Client{
		HTTPClient: &http.Client{Transport: l, CheckRedirect: noRedirect}, RetryMax: math.MaxInt,
		CheckRetry: func(context.Context, *http.Response, error) (bool, error) { return l.call.again(), nil },
		Backoff:    func(_, _ time.Duration, _ int, _ *http.Response) time.Duration { return l.call.wait },
	}
	l.blank.Request = blank.WithContext((*loopContext)(l))
	return l
}}

func (l *loop) RoundTrip(*http.Request) (*http.Response, error) {
	l.call.attempt()
	return blankAnswer, nil
}

// loopContext is the context of whatever call the loop serves.
type loopContext loop

func (c *loopContext) Deadline() (time.Time, bool) { return c.call.ctx.Deadline() }
func (c *loopContext) Done() <-chan struct{}       { return c.call.ctx.Done() }
func (c *loopContext) Err() error                  { return c.call.ctx.Err() }
func (c *loopContext) Value(key any) any           { return c.call.ctx.Value(key) }

// blank is what a loop believes to send; blankAnswer what it believes to get.
var (
	blank       = &http.Request{Method: http.MethodPost, URL: &url.URL{Scheme: "http", Host: "attempt"}, Header: http.Header{}}
	blankAnswer = &http.Response{StatusCode: http.StatusNoContent, Header: http.Header{}, Body: http.NoBody}
)

// attempt makes one exchange, its mark first.
func (k *call) attempt() {
	if k.n > 0 {
		k.renew()
	}
	if k.refused = k.ready(); k.refused != nil {
		return
	}
	k.n++
	k.observe(Event{Step: StepAttempt})
	x := &k.exchange
	x.Base, x.MaxResponse, x.OnPoint = k.base, k.plan.MaxResponse, k.onPoint()
	x.Timeout, x.TimeoutErr = k.attemptTimeout()
	sent := time.Now()
	k.last = attempt{Result: x.Do(k.ctx, k.cancel, k)}
	if k.last.Late {
		k.renew()
	}
	k.keepCookies()
	if !k.last.Unsent && k.last.Sends == 0 { // a foreign transport tells nothing
		k.last.Sends = 1
	}
	k.sends += k.last.Sends
	k.judge(x.TimeoutErr)
	_, missing := errors.AsType[*missingError](k.last.Err)
	switch {
	case missing:
		k.rec.Progress.Attempts-- // nothing was sent: only real attempts park an operation, and tell its last status
	case k.last.Unsent && k.cmd.resumed && !k.plan.contract.repeatable() && k.rec.Progress.Attempts == 1:
		k.rec.Progress.Attempts-- // else nobody might ever send it
		fallthrough
	default:
		k.rec.Progress.LastStatus, k.rec.Progress.LastError = k.last.status(), ""
	}
	if k.last.Err != nil {
		k.rec.Progress.LastError = k.last.Err.Error()
	}
	k.observe(Event{Step: StepAttemptDone, Sends: k.last.Sends, Status: k.last.status(), Elapsed: time.Since(sent), Err: k.last.Err})
}

// ready makes the attempt's mark durable, or says why there is none.
func (k *call) ready() error {
	if err := k.ended(); err != nil {
		return err
	}
	if k.marked {
		k.marked = false
		return nil
	}
	if at, is := k.expired(0); is { // the machine may have slept through the wait
		return &ExpiredError{Call: k.call(), Expired: at}
	}
	p := k.rec.Progress
	p.Attempts++
	now := time.Now()
	if p.FirstSent.IsZero() {
		p.FirstSent, p.Seen = now, now
		k.age = newKeyAge(p, now)
	}
	k.seen(&p, now)
	p.NotBefore = time.Time{}
	if err := k.mark(p); err != nil {
		return err
	}
	if at, is := k.expired(0); is { // the store may have taken its time
		return &ExpiredError{Call: k.call(), Expired: at}
	}
	return nil
}

// mark makes p durable under the claim, and renews it.
func (k *call) mark(p persist.Progress) error {
	k.held = time.Now()
	if err := k.store.Mark(k.ctx, k.claim, p); err != nil {
		if ended := k.ended(); ended != nil {
			return ended
		}
		k.storeFailed(err)
		return err
	}
	k.rec.Progress = p
	return nil
}

// attemptTimeout is the policy's, cut to what is left of the call's deadline.
func (k *call) attemptTimeout() (time.Duration, error) {
	d := k.plan.AttemptTimeout
	if t := k.reads.Timeout; t > 0 && (d == 0 || t < d) {
		d = t
	}
	if k.plan.Deadline > 0 {
		if left := k.plan.Deadline - time.Since(k.start); d == 0 || left < d {
			return max(left, 1), &deadlineError{k.plan.Deadline}
		}
	}
	return d, ErrTimeout
}

func (k *call) onPoint() func(wire.Point, bool) {
	if k.observer == nil {
		return nil
	}
	ctx, attempt := k.ctx, k.about(Event{}) // now: the transport's goroutines may come late, when the call is further on
	return func(p wire.Point, reused bool) {
		e := attempt
		e.Time, e.Step, e.Reused = time.Now(), pointSteps[p], reused
		k.observer(ctx, e)
	}
}

var pointSteps = [...]Step{wire.Connected: StepConnected, wire.HeaderWritten: StepHeaderWritten, wire.BodyWritten: StepBodyWritten, wire.FirstByte: StepFirstByte}

// again decides, after an attempt, whether another follows, and after which wait.
func (k *call) again() bool {
	if k.refused != nil {
		k.end = k.refused
		return false
	}
	a, before := &k.last, k.prior
	k.prior = before || a.mayHaveActed()
	if err := k.ended(); err != nil && a.Err != nil {
		k.end = err
		return false
	}
	advice := k.backoff()
	switch {
	case a.class == classFollow && k.n < k.plan.MaxAttempts:
		k.hop, k.wait = a.link, 0
		a.drop()
		return true
	case !k.wantsRetry(), k.n >= k.plan.MaxAttempts:
		return k.stop(before, nil)
	case advice > k.plan.MaxRetryAfter:
		return k.stop(before, fmt.Errorf("the server asks for a wait of %v, above Policy.MaxRetryAfter", advice.Round(time.Second)))
	}
	if err := k.ended(); err != nil {
		k.end = err
		return false
	}
	if at, is := k.expired(k.wait); is {
		return k.stop(before, &ExpiredError{Call: k.call(), Expired: at})
	}
	if end, ok := k.endTime(); ok && !time.Now().Add(k.wait).Before(end) {
		return k.stop(before, k.tooLate())
	}
	if err := k.lapses(); err != nil {
		return k.stop(before, err)
	}
	if k.plan.budget != nil && !k.plan.budget.take() {
		return k.stop(before, ErrBudget)
	}
	a.drop()
	k.observe(Event{Step: StepWait, Wait: k.wait, Status: a.status()})
	return true
}

// stop ends the attempts at a limit. The row of the last one in the table of outcomes asks for what was before it.
func (k *call) stop(before bool, limit error) bool {
	k.limit, k.prior = limit, before || k.last.Sends > 1
	return false
}

// wantsRetry is what the policy says of the last attempt, its limits aside.
func (k *call) wantsRetry() bool {
	a, pl := &k.last, k.plan
	var retry bool
	switch {
	case a.permanent || a.echo != nil || a.class == classConflict || a.class == classSucceeded || a.class == classProcessing || a.class == classStored:
		return false
	case !pl.contract.repeatable() && !a.Unsent:
		return false
	case a.Unsent:
		retry = true
	case a.Err != nil:
		retry = pl.RetryTransport == On
	default:
		retry = a.class != classRejected && pl.retriesStatus(a.status()) || a.byRule && a.class == classUncertain && pl.retriesStatus(http.StatusServiceUnavailable)
	}
	if hint := pl.contract.RetryHint; hint != "" && a.Resp != nil && a.status() >= 400 {
		switch a.Resp.Header.Get(hint) {
		case "false":
			retry = false
		case "true":
			retry = true
		}
	}
	if pl.Decide != nil && (a.Err != nil || a.status() >= 400) {
		view := Attempt{Operation: operationOf(&k.rec, pl.pattern), N: k.n, Status: a.status(), Err: a.Err, Body: a.Body}
		if a.Resp != nil {
			view.Header = a.Resp.Header
		}
		switch pl.Decide(view) {
		case Stop:
			return false
		case Retry:
			return true
		}
	}
	return retry
}

// backoff sets the wait before the next attempt, and returns what the server advised.
func (k *call) backoff() (advice time.Duration) {
	b := k.plan.Backoff
	k.wait, k.advised = 0, time.Time{}
	if b.Min > 0 {
		ceiling := b.Max
		if k.n < 63 && b.Min < b.Max>>k.n {
			ceiling = b.Min << k.n
		}
		k.wait = b.Min + rand.N(ceiling-b.Min+1)
	}
	if k.last.Resp == nil || k.plan.MaxRetryAfter == 0 {
		return 0
	}
	now := time.Now()
	advice, ok := retryafter.Parse(k.last.Resp.Header, now)
	if !ok {
		return 0
	}
	k.advised = now.Add(min(advice, maxAdvice))
	k.wait = max(k.wait, min(advice, k.plan.MaxRetryAfter))
	return advice
}

// retryAfter notes what an answer to a poll advises.
func (k *call) retryAfter(resp *http.Response) {
	k.advised = time.Time{}
	now := time.Now()
	if d, ok := retryafter.Parse(resp.Header, now); ok && k.plan.MaxRetryAfter > 0 {
		k.advised = now.Add(min(d, k.plan.MaxRetryAfter))
	}
}

// maxAdvice keeps a server's Retry-After within what a time.Time can hold.
const maxAdvice = 100 * 365 * 24 * time.Hour

// ended says why the call may not go on, nil while it may.
func (k *call) ended() error {
	if k.ctx.Err() == nil {
		return nil
	}
	return endOf(k.ctx)
}

// endOf joins what ended ctx with what errors.Is has to find: a caller's own cause hides context.Canceled.
func endOf(ctx context.Context) error {
	cause, err := context.Cause(ctx), ctx.Err()
	if errors.Is(cause, ErrClosed) || errors.Is(cause, context.Canceled) || errors.Is(cause, context.DeadlineExceeded) {
		return cause
	}
	return fmt.Errorf("%w: %w", err, cause)
}

// endTime is the earlier one of the policy's deadline and of that of whoever waits.
func (k *call) endTime() (time.Time, bool) {
	end, ok := k.waits.Deadline()
	if k.plan.Deadline > 0 {
		if own := k.start.Add(k.plan.Deadline); !ok || own.Before(end) {
			return own, true
		}
	}
	return end, ok
}

// tooLate is the error of a wait that cannot end in time.
func (k *call) tooLate() error {
	if end, ok := k.waits.Deadline(); ok && !time.Now().Add(k.wait).Before(end) {
		return fmt.Errorf("the next attempt would come after the caller's deadline: %w", context.DeadlineExceeded)
	}
	return &deadlineError{k.plan.Deadline}
}

// lasts reports whether the claim lasts d from now by our own clock, with a tenth of its lease to spare. Like a key's age
// the lease counts from before the store was asked, by the wall or by monotonic time, whichever has moved more.
func (k *call) lasts(d time.Duration) bool {
	lease := k.plan.lease
	if lease == 0 || k.plan.Persist == PersistNone { // there is no claim
		return true
	}
	now := time.Now()
	return max(now.Sub(k.held), now.Round(0).Sub(k.held.Round(0))) < lease-lease/10-d
}

// lapses is the error of a wait that the claim does not last: what follows could not be marked.
func (k *call) lapses() error {
	if k.lasts(k.wait) {
		return nil
	}
	return fmt.Errorf("a wait of %v is longer than what is left of the store's lease of %v", k.wait.Round(time.Millisecond), k.plan.lease)
}

// fence comes last before the first byte: the store, Prepare, or a pause of the process may have taken long. A claim that
// may not last the attempt has to be renewed (the store knows whether another has had the operation meanwhile), and a key
// that the server may have forgotten by now is not sent.
func (k *call) fence() error {
	var err error
	if !k.lasts(k.plan.AttemptTimeout) {
		if err = k.mark(k.rec.Progress); err == nil && !k.lasts(0) {
			err = errLapsed
		}
	}
	if at, is := k.expired(-k.plan.margin()); is && err == nil {
		err = &ExpiredError{Call: k.call(), Expired: at}
	}
	if k.ctx.Err() == nil { // else the attempt has ended by itself
		k.refused = err
	}
	return err
}

var errLapsed = errors.New("the store takes longer to renew a claim than its lease lasts")

func noRedirect(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// budget bounds retries to a share of requests, so that an outage is not answered with a multiple of the load.
type budget struct {
	mu           sync.Mutex
	share, saved float64
}

// budgetReserve is what an endpoint may retry before it has earned anything.
const budgetReserve = 10

func newBudget(share float64) *budget { return &budget{share: share, saved: budgetReserve} }

func (b *budget) request() {
	b.mu.Lock()
	b.saved = min(b.saved+b.share, budgetReserve)
	b.mu.Unlock()
}

func (b *budget) take() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.saved < 1 {
		return false
	}
	b.saved--
	return true
}
