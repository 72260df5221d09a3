package mockserver

import (
	"context"
	"net/http"
	"reflect"
	"regexp"
	"sync"
	"time"
)

// Config says what an Engine is. The zero value is the default profile in front of the sample API.
type Config struct {
	// Profile is how the server answers in matters of keys; the zero value is Default. To change one thing of a
	// profile, copy it: p := mockserver.Default; p.Require = true.
	Profile Profile

	// TTL is how long a key is remembered. Zero takes the profile's, a negative one is for ever.
	TTL time.Duration

	// Seed decides every draw of faults with a Share. The same seed and the same requests meet the same faults.
	Seed uint64

	// API does the work behind the keys; nil is the sample API (payments, orders, operations).
	API http.Handler

	// Now is the clock of keys, operations and the ledger; nil is time.Now. Advance moves either. Delays and stalls
	// take real time (a synctest bubble's, within one).
	Now func() time.Time

	// OperationOf names the one intent that a request serves, whatever key it carries, so that a client that takes a
	// fresh key for each attempt is found out. An empty name is none. Nil is Member("orderRef").
	OperationOf func(r *http.Request, body []byte) string

	// PrincipalOf names whom a request comes from. Nil takes it from the Authorization header: the user of Basic, a
	// short hash of anything else, so that a fresh token is another principal with keys of its own.
	PrincipalOf func(r *http.Request) string

	// AsyncAfter is how long an operation of the sample API that was accepted with a 202 stays "processing", by Now.
	// Zero is one second; a negative one is until Finish.
	AsyncAfter time.Duration

	// MaxLedger is how many requests the ledger keeps; the totals go on counting. Zero is 100 000.
	MaxLedger int
}

// Engine is an http.Handler: an API behind idempotency keys, faults and a ledger. It is safe for concurrent use.
// Inside a synctest bubble, make it inside.
type Engine struct {
	cfg     Config
	profile Profile
	format  *regexp.Regexp
	ttl     time.Duration
	api     http.Handler
	sample  *sampleAPI // nil with an API of the caller's
	admin   http.Handler
	ctx     context.Context // ends with Close
	cancel  context.CancelFunc

	mu      sync.Mutex
	offset  time.Duration // what Advance has added to Now
	keys    map[string]*record
	byAge   []*record // reservations in order, for the sweep
	faults  []*armed
	ledger  *ledger
	closers []func()
}

// New makes an Engine. It panics if the profile's Format is no regular expression.
func New(cfg Config) *Engine {
	if reflect.ValueOf(cfg.Profile).IsZero() {
		cfg.Profile = Default
	}
	e := &Engine{cfg: cfg, profile: cfg.Profile.filled(), ttl: cfg.TTL}
	e.ctx, e.cancel = context.WithCancel(context.Background())
	if e.profile.Format != "" {
		e.format = regexp.MustCompile(`^(?:` + e.profile.Format + `)$`)
	}
	if e.ttl == 0 {
		e.ttl = e.profile.TTL
	}
	if e.cfg.Now == nil {
		e.cfg.Now = time.Now
	}
	if e.cfg.OperationOf == nil {
		e.cfg.OperationOf = Member("orderRef")
	}
	if e.cfg.PrincipalOf == nil {
		e.cfg.PrincipalOf = principalOf
	}
	if e.cfg.MaxLedger <= 0 {
		e.cfg.MaxLedger = 100_000
	}
	e.api = e.cfg.API
	if e.api == nil {
		e.sample = newSampleAPI(e.Now, e.cfg.AsyncAfter)
		e.api = e.sample
	}
	e.admin = e.adminMux()
	e.Reset()
	return e
}

// Wrap puts keys, faults and a ledger in front of an API of the caller's.
func Wrap(api http.Handler, profile Profile) *Engine { return New(Config{API: api, Profile: profile}) }

// Reset makes the engine as new: no keys, no faults, an empty ledger and sample API, the clock where Now has it.
func (e *Engine) Reset() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.offset = 0
	e.keys, e.byAge = map[string]*record{}, nil
	e.faults = nil
	e.ledger = newLedger(e.cfg.MaxLedger)
	if e.sample != nil {
		e.sample.reset()
	}
}

// Close ends every stall and delay and every Transport of the engine. It need not be called for an Engine that has
// neither.
func (e *Engine) Close() {
	e.cancel()
	e.mu.Lock()
	closers := e.closers
	e.closers = nil
	e.mu.Unlock()
	for _, c := range closers {
		c()
	}
}

// Now is the engine's time: Config.Now and what Advance has added.
func (e *Engine) Now() time.Time {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.now()
}

func (e *Engine) now() time.Time { return e.cfg.Now().Add(e.offset) }

// Advance moves the engine's clock forward: keys expire, operations of the sample API finish.
func (e *Engine) Advance(d time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.offset += d
}

// SetNow moves the engine's clock to a time, from where it goes on.
func (e *Engine) SetNow(t time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.offset = t.Sub(e.cfg.Now())
}

// ServeHTTP serves one exchange: its fault, its key, the API, the answer. The paths under /_mock/ are the engine's own.
func (e *Engine) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if e.serveAdmin(w, r) {
		return
	}
	x := e.receive(w, r)
	defer x.finish()
	if x.line.Partial {
		x.drop() // the request itself was cut off, or is beyond measure
		return
	}
	x.early()
	if x.acts(BeforeCommit) {
		return
	}
	x.answer = x.process()
	if x.twice {
		x.redeliver()
	}
	if x.acts(AfterCommit) {
		return
	}
	x.write()
}

// wait sleeps for d (zero: without end) and says whether it slept it out. It ends early when the engine closes or,
// unless the server is to go on without its client, when the client hangs up.
func (e *Engine) wait(ctx context.Context, d time.Duration) bool {
	var due <-chan time.Time
	if d > 0 {
		t := time.NewTimer(d)
		defer t.Stop()
		due = t.C
	}
	select {
	case <-due:
		return true
	case <-ctx.Done():
		return false
	case <-e.ctx.Done():
		return false
	}
}
