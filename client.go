package samekey

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"sync"

	"github.com/samekey/samekey/internal/endpoint"
	"github.com/samekey/samekey/internal/flight"
	"github.com/samekey/samekey/persist"
)

// Config is copied and validated by [New].
type Config struct {
	// Store keeps the operations; required. Whoever opened it closes it, after [Client.Close].
	Store persist.Store
	// HTTPClient gives its Transport and Jar. Its Timeout joins AttemptTimeout, the shorter counts; its CheckRedirect
	// is asked for reads only. Nil: a transport of our own.
	HTTPClient *http.Client
	// Default is what every endpoint inherits from, and what holds for requests that match none.
	Default Policy
	// Endpoints maps patterns of [http.ServeMux] ("POST api.bank.test/v1/orders/{id}/cancel") to policies; each inherits
	// from Default only. The most specific pattern holds, whatever the order; hosts match without case and port, and a
	// pattern with a host goes before all those without. Refused are a port, *, ?, #, a lower-case method, and two
	// patterns of which neither is narrower.
	Endpoints map[string]Policy
	// Scope of the operations whose context has none ([WithScope]).
	Scope string
	// Prepare sets credentials and signatures before every attempt of a command, recovered ones too, and before the GETs
	// that poll an accepted one ([Policy.Await]); what it sets is never stored. [OperationOf] tells it scope and ID,
	// req.GetBody serves signers. Method, target (but for parameters in SecretQuery), body and key must stay as they are.
	// An error is a failed attempt of which nothing was sent. It runs within the attempt's timeout, must be safe for
	// concurrent use, and must not send commands by this client without end: its own commands are prepared too.
	Prepare func(ctx context.Context, req *http.Request) error
	// Observer is told each step; nil: nobody is.
	Observer Observer
	// Logger gets what [LogTo] writes, beside Observer. Nil: silent.
	Logger *slog.Logger
}

// Client sends commands. It is safe for concurrent use. The zero value is not usable; see [New].
type Client struct {
	*core
	responses bool // AsResponses
}

type core struct {
	cfg      Config
	observer Observer
	base     http.RoundTripper
	own      *http.Transport // base, where the caller gave none
	reads    *http.Client    // for what is not a command
	none     *plan           // for requests that match no endpoint
	plans    map[string]*plan
	set      *endpoint.Set
	flights  flight.Group[Ref, *answer]

	ctx   context.Context // ends with Close
	end   context.CancelCauseFunc
	mu    sync.Mutex
	calls sync.WaitGroup
	// live are the calls under way, for Close to end.
	live map[*call]struct{}
	// open are the anonymous successes whose callers have not read them yet; conflicts are those that could not be
	// written down, so that no loop of this process sends them again.
	open      map[Ref]*handover
	conflicts map[Ref]*unwritten
	closed    bool
	closing   sync.Once
	holding   holding
	clock     clock
}

// New validates cfg. Its errors are *PolicyError, naming endpoint and field, all of them joined.
func New(cfg Config) (*Client, error) {
	c := &core{cfg: cfg, live: map[*call]struct{}{}, open: map[Ref]*handover{}, conflicts: map[Ref]*unwritten{}, plans: map[string]*plan{}, holding: newHolding()}
	var errs []error
	if cfg.Store == nil {
		errs = append(errs, &PolicyError{Field: "Store", Why: "is missing: journal.Open makes one on disk, memory.New one for tests"})
	}
	if why := checkName("scope", cfg.Scope); why != "" {
		errs = append(errs, &PolicyError{Field: "Scope", Why: why})
	}
	leaser, _ := cfg.Store.(persist.Leaser)
	compilePlan := func(pattern string, p, base Policy) *plan {
		pl, err := compile(pattern, p, base, leaser)
		if err != nil {
			errs = append(errs, err)
		}
		return pl
	}
	c.none = compilePlan("", cfg.Default, builtin())
	patterns := slices.Sorted(maps.Keys(cfg.Endpoints))
	for _, pattern := range patterns {
		c.plans[pattern] = compilePlan(pattern, cfg.Endpoints[pattern], cfg.Default.over(builtin()))
	}
	var problems []endpoint.Problem
	c.flights.Orphan = (*answer).drop
	c.set, problems = endpoint.New(patterns)
	for _, p := range problems {
		errs = append(errs, &PolicyError{Endpoint: p.Pattern, Field: "pattern", Why: p.Why})
	}
	for _, pattern := range patterns {
		if pl := c.plans[pattern]; len(problems) == 0 && pl != nil && pl.idle() {
			errs = append(errs, &PolicyError{Endpoint: pattern, Field: "Command",
				Why: "is not set, and this method is no command by itself, so that nothing else here has an effect: set it to On, or to Off to say so"})
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}

	c.cfg.Default, c.cfg.Endpoints = Policy{}, nil // the plans hold copies
	c.observer = observers(cfg.Observer, cfg.Logger)
	c.reads = &http.Client{}
	if hc := cfg.HTTPClient; hc == nil {
		c.own = http.DefaultTransport.(*http.Transport).Clone()
		c.base = c.own
	} else {
		*c.reads = *hc
		if c.base = hc.Transport; c.base == nil {
			c.base = http.DefaultTransport
		}
	}
	c.reads.Transport = c.base
	c.ctx, c.end = context.WithCancelCause(context.Background())
	return &Client{core: c}, nil
}

func observers(o Observer, l *slog.Logger) Observer {
	if l == nil {
		return o
	}
	logTo := LogTo(l)
	if o == nil {
		return logTo
	}
	return func(ctx context.Context, e Event) { o(ctx, e); logTo(ctx, e) }
}

// Do sends req as one logical command: under one key, which is durable with the request before the first byte leaves,
// repeated by the endpoint's policy. It reads req.Body first, for as long as that takes, whatever the context says, closes
// it, and changes nothing of req; for another Do make another request.
//
// A key that req bears already, where the endpoint's contract has it, is adopted: sent as it is, and the operation's name
// where there is no other. Two keys, or one that the contract does not allow, are a *KeyError. Under a name that is known
// the stored key goes out, whatever key req bears.
//
// A nil error comes with the final answer: a success (2xx, or a 303 of the same origin), a rejection (see the package
// documentation), or a 202 that is still processed (Info.State is Pending). The caller closes its body. An
// anonymous success stays pending until that, or until the body was read to its end: after a restart Recover would send it
// again, under its key. Errors are *ConflictError, *OutcomeUnknownError, *NotSentError, *MismatchError,
// *BusyError, *ExpiredError, *StoreError, *BodyTooLargeError, *KeyError and *PolicyError; [EffectOf] answers what most
// callers ask of them. Unlike http.Client's they are not wrapped in a *url.Error.
//
// What is no command (a GET, by default everything but POST and PATCH) passes through as by http.Client.Do, without
// Config.Prepare. A GET, HEAD or OPTIONS without a body that a pattern of Config.Endpoints matches is retried by that
// policy; the last answer or failure is returned as it is.
func (c *Client) Do(req *http.Request) (*http.Response, error) {
	pl := c.planFor(req)
	if !pl.isCommand(req.Method) {
		return c.read(c.reads, req, pl)
	}
	return c.command(req, pl, c.responses)
}

// planFor finds the endpoint's policy.
func (c *core) planFor(req *http.Request) *plan {
	if req.URL != nil && len(c.plans) > 0 {
		if pattern := c.set.Match(req.Method, req.URL); pattern != "" {
			return c.plans[pattern]
		}
	}
	return c.none
}

// PolicyFor tells the policy that holds for req, and the pattern of Config.Endpoints that it is found by, "" where
// Config.Default holds. Nothing in it is left open: what is inherited stands there, Command says what becomes of this
// method, Contract has its defaults in place, and what is off is negative. Another client that is given it as its
// Default does the same. What a context overrides ([WithPolicy]) is not in it.
func (c *Client) PolicyFor(req *http.Request) (p Policy, pattern string) {
	pl := c.planFor(req)
	return pl.effective(req.Method), pl.pattern
}

// command takes one request from its capture to its caller's answer.
func (c *core) command(req *http.Request, pl *plan, responses bool) (*http.Response, error) {
	a, first := c.answer(req, pl)
	if info, ok := req.Context().Value(infoKey{}).(*Info); ok && info != nil {
		*info = a.infoFor(first)
	}
	if a.err != nil && (!responses || a.head == nil) {
		if first {
			a.drop()
		}
		return nil, a.err
	}
	return a.response(req, first), nil
}

// answer makes the call, or joins the one that another caller of the same operation has under way; first tells which.
func (c *core) answer(req *http.Request, pl *plan) (a *answer, first bool) {
	pl, err := pl.forCall(req.Context())
	if err != nil {
		closeBody(req)
		return refused(c.describe(req, pl), err), true
	}
	cmd, err := c.capture(req, pl)
	if err != nil {
		return refused(c.describe(req, pl), err), true
	}
	ctx := req.Context()
	if !cmd.shareable() || ctx.Err() != nil { // who has left already starts nothing for others
		return c.run(ctx, cmd, ctx), true
	}
	share := func() {
		a, first, err = c.flights.Do(ctx, cmd.rec.Ref, cmd,
			func(data any) error {
				if other := data.(*command); !cmd.sameAs(&other.rec) {
					return &MismatchError{Call: cmd.unkeyed()}
				}
				return nil
			},
			func(ctx context.Context, f *flight.Call[*answer]) *answer { return c.run(ctx, cmd, f) })
	}
	if share(); err == nil && !first && ctx.Err() == nil {
		if _, missing := errors.AsType[*missingError](a.err); missing { // a recovery lacked what this request may bring
			share()
		}
	}
	if err != nil {
		call := cmd.unkeyed()
		if !errors.Is(err, ErrMismatch) { // the caller's own context ended, the call that it shared or waited for did not
			call.MaybeSent = true
			err = &OutcomeUnknownError{Call: call, Err: endOf(ctx)}
		}
		return refused(call, err), true
	}
	return a, first
}

// run is the protocol: begin, attempts, outcome, settle.
func (c *core) run(ctx context.Context, cmd *command, waits deadliner) *answer {
	k := c.newCall(ctx, cmd, waits)
	defer k.leave()
	if known := k.begin(); known != nil {
		return known
	}
	k.attempts()
	return k.conclude()
}

// Close ends calls in flight (their operations stay pending), waits for their last word to the store, and flushes it. It
// leaves the Store open. Called from a hook of the client's own (Prepare, Decide, Resolve, Handle, Reconcile) it would
// wait for itself. Commands from then on return ErrClosed. A second Close waits for the first.
func (c *Client) Close() (err error) {
	c.closing.Do(func() { err = c.shutDown() }) // a second one waits for the first
	return err
}

func (c *core) shutDown() error {
	c.mu.Lock()
	c.closed = true
	for k := range c.live {
		k.cancel(ErrClosed)
	}
	c.mu.Unlock()
	c.end(ErrClosed)
	c.calls.Wait()

	c.mu.Lock()
	open := slices.Collect(maps.Values(c.open))
	c.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), settleTimeout)
	defer cancel()
	for _, h := range open { // answers that nobody read: they stay pending for recovery
		h.release(ctx)
	}
	if c.own != nil {
		c.own.CloseIdleConnections()
	}
	if err := c.cfg.Store.Flush(ctx); err != nil && !errors.Is(err, persist.ErrClosed) {
		return fmt.Errorf("samekey: close: %w", err)
	}
	return nil
}

// enter counts something that Close waits for; false once the client is closed.
func (c *core) enter() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return false
	}
	c.calls.Add(1)
	return true
}

func (c *core) isClosed() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.closed
}

// track has Close end k, from now until untrack.
func (c *core) track(k *call) (ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return false
	}
	c.calls.Add(1)
	c.live[k] = struct{}{}
	return true
}

func (c *core) untrack(k *call) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.live, k)
}
