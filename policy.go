package samekey

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/samekey/samekey/internal/canonjson"
	"github.com/samekey/samekey/persist"
)

// Switch is a yes or no that can be inherited.
type Switch int8

// The values of a Switch.
const (
	Inherit Switch = iota
	On
	Off
)

// Any5xx in Policy.RetryStatus and Match.Status stands for every status from 500 on.
const Any5xx = 5

// Policy says how hard the client tries at an endpoint. Zero and nil inherit from Config.Default, and mean there the
// value named here; negative is off where "off" is named and refused elsewhere; an empty slice is empty. Fields marked c
// may differ per call ([WithPolicy]).
type Policy struct {
	Command        Switch                 // keyed, recorded, protected; On for POST and PATCH
	RequireName    Switch                 // Off; On: commands without a name or key of their own are refused
	Contract       *Contract              // what the server promises; DefaultContract
	KeyFormat      KeyFormat              // UUIDv4
	MaxAttempts    int                    // c 4; 1: no retries
	AttemptTimeout time.Duration          // c 10 s, from the connection to the last byte of the body; off, but not where the store's claims lapse
	Deadline       time.Duration          // c 60 s, attempts and waits of one call; off
	Backoff        Backoff                // c Min 200 ms, Max 10 s
	MaxRetryAfter  time.Duration          // c 60 s; a server that asks for more ends the call; off: Retry-After is ignored
	RetryStatus    []int                  // c 408, Any5xx; 409 and everything below 400 are refused
	RetryTransport Switch                 // c On: timeouts and lost connections; Off: only what provably was not sent
	Decide         func(Attempt) Decision // c may veto or add a retry, never after 2xx, 3xx, 409; nil
	Budget         float64                // retries per request of the endpoint, 0 to 1, beside 10 to start with; off
	Await          Switch                 // Off; On: an accepted command is polled until it is done (Contract.Poll)
	// Resolve may fetch what a conflict is about, and return it as the operation's answer, a success; nil or an error
	// leaves the conflict. It runs once, in the call that met the conflict.
	Resolve           func(ctx context.Context, c *ConflictError) (*http.Response, error)
	Redirects         Switch        // Off; On: 307 and 308 of the same origin are followed, each hop an attempt
	MaxBody           int64         // 1 MiB, in bytes
	MaxResponse       int64         // 1 MiB, in bytes; what is beyond streams
	Persist           Persist       // PersistFull; PersistKeyOnly, PersistNone
	OnExpiry          Expiry        // Surface; NewKey is the caller's word that an expired operation did not happen
	KeepHeaders       []string      // stored beside Content-*, Accept*, If-*, Prefer, User-Agent; credentials are refused
	IdentityHeaders   []string      // stored, and part of the fingerprint (Stripe-Account)
	SecretQuery       []string      // parameters never stored; Prepare adds them when an operation is recovered
	FingerprintIgnore []string      // RFC 6901 pointers of volatile members of a JSON body
	Retention         time.Duration // of a named answer: the key's life, at most 7 days; off: only the name
	KeepRejections    Switch        // On: a named rejection is kept, and only another payload is a new intent; Off: it frees the name
}

// Backoff waits between Min and Min*2^n, drawn evenly, at most Max. Its fields inherit one by one; a negative Min is no
// wait at all.
type Backoff struct{ Min, Max time.Duration }

// Persist says what of a request is kept.
type Persist uint8

// How much is kept.
const (
	PersistInherit Persist = iota
	PersistFull            // key and request: an operation survives the process
	// PersistKeyOnly keeps the key and a fingerprint, and no payload, neither the request's nor the answer's: the next
	// call with the operation's name has to bring the same bytes again, and one after the outcome is an *ExpiredError
	// that tells it (Past). Recover cannot send such an operation, and asks Recovery.Reconcile. Who has the file can still
	// try out payloads against the fingerprint. Needs RequireName.
	PersistKeyOnly
	// PersistNone keeps nothing: the call is retried under one key, and dies with the process. The endpoint steps
	// outside the promises that need a store, by the caller's word.
	PersistNone
)

// Expiry says what a call does that meets a pending operation past its key's life.
type Expiry uint8

// What becomes of an expired operation.
const (
	ExpiryInherit Expiry = iota
	Surface              // *ExpiredError
	NewKey               // it is sent under a new key: right only where an expired command cannot have happened
)

// Attempt is one exchange as Policy.Decide sees it; Status is 0 and Header nil when no answer came.
type Attempt struct {
	Operation Operation
	N         int // of this call, from 1
	Status    int
	Header    http.Header
	Body      []byte
	Err       error
}

// Decision of Policy.Decide.
type Decision uint8

// What Decide can say.
const (
	AsUsual Decision = iota
	Stop             // no retry
	Retry            // a retry, within the limits and the budget
)

// tombstoneLife is how long a name is known once its answer is gone.
const tombstoneLife = 90 * 24 * time.Hour

// maxRetention bounds the default of Policy.Retention.
const maxRetention = 7 * 24 * time.Hour

// builtin is what Config.Default inherits from.
func builtin() Policy {
	return Policy{
		RequireName: Off, Contract: &DefaultContract, KeyFormat: UUIDv4,
		MaxAttempts: 4, AttemptTimeout: 10 * time.Second, Deadline: 60 * time.Second,
		Backoff: Backoff{Min: 200 * time.Millisecond, Max: 10 * time.Second}, MaxRetryAfter: 60 * time.Second,
		RetryStatus: []int{http.StatusRequestTimeout, Any5xx}, RetryTransport: On, Await: Off, Redirects: Off,
		MaxBody: 1 << 20, MaxResponse: 1 << 20, Persist: PersistFull, OnExpiry: Surface, KeepRejections: On,
	}
}

// over returns p with what it leaves open taken from base. It goes by reflection so that no field can be forgotten.
func (p Policy) over(base Policy) Policy {
	inherit(reflect.ValueOf(&p).Elem(), reflect.ValueOf(base))
	p.RetryStatus, p.FingerprintIgnore = slices.Clone(p.RetryStatus), slices.Clone(p.FingerprintIgnore)
	p.KeepHeaders, p.IdentityHeaders, p.SecretQuery = slices.Clone(p.KeepHeaders), slices.Clone(p.IdentityHeaders), slices.Clone(p.SecretQuery)
	return p
}

// inherit fills the zero fields of dst; a nil slice is zero, an empty one is not.
func inherit(dst, base reflect.Value) {
	for i := range dst.NumField() {
		switch f := dst.Field(i); {
		case f.Kind() == reflect.Struct:
			inherit(f, base.Field(i))
		case f.IsZero():
			f.Set(base.Field(i))
		}
	}
}

// plan is the policy of one endpoint, resolved and checked; durations that are off are zero in it.
type plan struct {
	Policy
	pattern  string // "" for the default
	contract *contract
	ignore   []canonjson.Pointer
	budget   *budget
	lease    time.Duration // of the store's claims, 0 for none
}

// compile resolves and checks p. All problems are returned joined, each a *PolicyError.
func compile(pattern string, p, base Policy, leaser persist.Leaser) (*plan, error) {
	var errs []error
	bad := func(field, why string) {
		errs = append(errs, &PolicyError{Endpoint: pattern, Field: field, Why: why})
	}
	pl := &plan{Policy: p.over(base), pattern: pattern}
	pl.contract = pl.Contract.compile(bad)
	if !pl.contract.repeatable() {
		p.checkKeyless(bad)
		pl.RetryStatus, pl.RetryTransport = nil, Off
	}
	if leaser != nil {
		pl.lease = leaser.Lease()
	}
	pl.checkTrying(bad)

	for _, f := range []struct {
		name string
		s    Switch
	}{{"Command", p.Command}, {"RequireName", p.RequireName}, {"RetryTransport", p.RetryTransport}, {"Await", p.Await}, {"Redirects", p.Redirects}, {"KeepRejections", p.KeepRejections}} {
		if f.s < Inherit || f.s > Off {
			bad(f.name, "is none of Inherit, On, Off")
		}
	}
	if pl.MaxBody < 0 {
		bad("MaxBody", "is negative")
	}
	if pl.MaxResponse < 0 {
		bad("MaxResponse", "is negative")
	}
	// One byte beyond is looked for.
	pl.MaxBody, pl.MaxResponse = min(pl.MaxBody, math.MaxInt64-1), min(pl.MaxResponse, math.MaxInt64-1)
	if !(pl.Budget <= 1) { // NaN is none either
		bad("Budget", fmt.Sprintf("is a share of retries among requests, at most 1, not %g", pl.Budget))
	}
	if pl.Budget > 0 {
		pl.budget = newBudget(pl.Budget)
	}
	if pl.Persist > PersistNone {
		bad("Persist", "is none of PersistFull, PersistKeyOnly, PersistNone")
	}
	if pl.Persist == PersistKeyOnly && pl.RequireName != On {
		bad("Persist", "PersistKeyOnly needs RequireName: nobody could bring the payload of an anonymous operation again")
	}
	if pl.OnExpiry > NewKey {
		bad("OnExpiry", "is neither Surface nor NewKey")
	}
	pl.checkNames(bad)
	pl.checkKeyFormat(bad)
	for i, s := range pl.FingerprintIgnore {
		ptr, err := canonjson.ParsePointer(s)
		if err != nil {
			bad(fmt.Sprintf("FingerprintIgnore[%d]", i), err.Error())
		}
		pl.ignore = append(pl.ignore, ptr)
	}
	if pl.contract.pointer != nil {
		pl.ignore = append(pl.ignore, *pl.contract.pointer)
	}
	switch {
	case pl.Retention < 0:
		pl.Retention = 0
	case pl.Retention == 0:
		pl.Retention = pl.retention()
	}
	return pl, errors.Join(errs...)
}

// checkKeyless refuses what would repeat commands that nothing protects.
func (p Policy) checkKeyless(bad func(field, why string)) {
	if len(p.RetryStatus) > 0 || p.RetryTransport == On {
		bad("RetryStatus, RetryTransport", "retries without a key: the endpoint's Contract knows none, so that a repeat may be a second effect")
	}
}

// checkTrying checks and normalises the fields that WithPolicy may set as well.
func (pl *plan) checkTrying(bad func(field, why string)) {
	if pl.MaxAttempts < 1 {
		bad("MaxAttempts", fmt.Sprintf("%d is below 1; 1 is no retries, 0 inherits", pl.MaxAttempts))
	}
	if pl.AttemptTimeout > 0 && pl.Deadline > 0 && pl.AttemptTimeout > pl.Deadline {
		bad("AttemptTimeout", fmt.Sprintf("%v is above the Deadline of %v", pl.AttemptTimeout, pl.Deadline))
	}
	switch {
	case pl.lease == 0 || pl.Persist == PersistNone:
	case pl.AttemptTimeout < 0:
		bad("AttemptTimeout", fmt.Sprintf("is off: the claim would lapse while an attempt runs, and another process send beside it; set it, to at most half of the store's lease of %v", pl.lease))
	case pl.AttemptTimeout > pl.lease/2:
		bad("AttemptTimeout", fmt.Sprintf("%v is above half of the store's lease of %v: the claim would lapse while an attempt runs; set it, in Config.Default where nothing else does, or give the store a longer lease", pl.AttemptTimeout, pl.lease))
	}
	switch {
	case pl.Backoff.Max < 0:
		bad("Backoff.Max", "is negative")
	case pl.Backoff.Min > pl.Backoff.Max:
		bad("Backoff.Min", fmt.Sprintf("%v is above Max, %v", pl.Backoff.Min, pl.Backoff.Max))
	}
	pl.AttemptTimeout, pl.Deadline = max(pl.AttemptTimeout, 0), max(pl.Deadline, 0)
	pl.Backoff.Min, pl.MaxRetryAfter = max(pl.Backoff.Min, 0), max(pl.MaxRetryAfter, 0)
	for _, s := range pl.RetryStatus {
		switch {
		case s == Any5xx:
		case s == http.StatusConflict:
			bad("RetryStatus", "409 is a conflict and never retried; a rule of the Contract may say what it means")
		case s < 400 || s > 999:
			bad("RetryStatus", fmt.Sprintf("%d is not retried; a status from 400 on, or Any5xx", s))
		}
	}
	if pl.contract != nil && pl.contract.keyed() && pl.MaxAttempts > 1 && pl.contract.life() > 0 && pl.contract.life() <= pl.margin() {
		bad("AttemptTimeout", fmt.Sprintf("%v leaves no time for a retry within the key's life of %v; lower it, or set MaxAttempts to 1", pl.AttemptTimeout, pl.contract.life()))
	}
}

// credentials are never stored, whatever a policy says.
var credentials = []string{"Authorization", "Proxy-Authorization", "Cookie", "Set-Cookie", "X-Api-Key", "Api-Key", "X-Auth-Token"}

func (pl *plan) checkNames(bad func(field, why string)) {
	for _, f := range []struct {
		name string
		list []string
	}{{"KeepHeaders", pl.KeepHeaders}, {"IdentityHeaders", pl.IdentityHeaders}} {
		for i, h := range f.list {
			f.list[i] = http.CanonicalHeaderKey(h)
			switch {
			case !validToken(h):
				bad(f.name, fmt.Sprintf("%q is no header name", h))
			case slices.Contains(credentials, f.list[i]):
				bad(f.name, h+" is a credential and never stored; Prepare sets it before each attempt")
			case pl.contract.Carrier.inHeader() && f.list[i] == pl.contract.Carrier.name:
				bad(f.name, h+" carries the key and is stored in any case")
			}
		}
	}
	for _, q := range pl.SecretQuery {
		switch {
		case q == "":
			bad("SecretQuery", "holds an empty name")
		case pl.contract.Carrier.in == carrierQuery && q == pl.contract.Carrier.name:
			bad("SecretQuery", q+" carries the key and is stored in any case")
		}
	}
}

// checkKeyFormat asks the format for two keys.
func (pl *plan) checkKeyFormat(bad func(field, why string)) {
	if !pl.contract.keyed() && !isDerived(pl.KeyFormat) {
		return // the key never leaves the process
	}
	var keys [2]string
	for i := range keys {
		key, err := pl.KeyFormat.NewKey(Ref{Scope: "samekey", ID: fmt.Sprintf("probe-%d", i)})
		if err != nil {
			bad("KeyFormat", err.Error())
			return
		}
		if why := pl.contract.check(key); why != "" {
			bad("KeyFormat", why)
			return
		}
		keys[i] = key
	}
	if keys[0] == keys[1] {
		bad("KeyFormat", "gives two operations the same key")
	}
	if isDerived(pl.KeyFormat) && pl.OnExpiry == NewKey {
		bad("OnExpiry", "a derived key cannot be replaced by a new one")
	}
}

// margin before the end of the key's life from which nothing is sent: what is sent must also arrive in time.
func (pl *plan) margin() time.Duration {
	if pl.AttemptTimeout > 0 {
		return pl.AttemptTimeout
	}
	return time.Minute
}

// retention is what Policy.Retention is where nobody has set it.
func (pl *plan) retention() time.Duration {
	if life := pl.contract.life(); life > 0 {
		return min(life, maxRetention)
	}
	return maxRetention
}

// isCommand reports whether method changes state under the plan.
func (pl *plan) isCommand(method string) bool {
	switch pl.Command {
	case On:
		return true
	case Off:
		return false
	}
	method = strings.ToUpper(method) // servers and endpoint patterns are not all as strict about case as RFC 9110
	return method == http.MethodPost || method == http.MethodPatch
}

// idle reports whether the plan is for a method to which it does nothing.
func (pl *plan) idle() bool {
	method, _, has := strings.Cut(pl.pattern, " ")
	return has && pl.Command == Inherit && !pl.isCommand(method) && !isRead(method)
}

// retriesStatus reports whether the policy repeats an answer of this status.
func (pl *plan) retriesStatus(status int) bool {
	return status != http.StatusConflict &&
		(slices.Contains(pl.RetryStatus, status) || status >= 500 && slices.Contains(pl.RetryStatus, Any5xx))
}

type policyKey struct{}

// WithPolicy overrides, for the calls made with ctx, the fields of p that are marked c. The others are refused: they
// describe the endpoint, not the call.
func WithPolicy(ctx context.Context, p Policy) context.Context {
	return context.WithValue(ctx, policyKey{}, &p)
}

// forCall applies the policy that ctx carries.
func (pl *plan) forCall(ctx context.Context) (*plan, error) {
	p, ok := ctx.Value(policyKey{}).(*Policy)
	if !ok {
		return pl, nil
	}
	rest := *p
	rest.MaxAttempts, rest.AttemptTimeout, rest.Deadline, rest.Backoff, rest.MaxRetryAfter = 0, 0, 0, Backoff{}, 0
	rest.RetryStatus, rest.RetryTransport, rest.Decide = nil, 0, nil
	var err error // the first: callers of Do tell errors apart by their types
	bad := func(field, why string) {
		if err == nil {
			err = &PolicyError{Endpoint: pl.pattern, Field: "WithPolicy: " + field, Why: why}
		}
	}
	if fields := rest.set(); len(fields) > 0 {
		bad(strings.Join(fields, ", "), "cannot differ per call: that is for Config")
	}
	if !pl.contract.repeatable() {
		p.checkKeyless(bad)
	}
	out := *pl
	out.Policy = p.over(pl.open())
	out.checkTrying(bad)
	return &out, err
}

// stored is the plan for what a store holds: where the policy has come to keep nothing, that still ends there, and is kept
// as little of as can be.
func (pl *plan) stored() *plan {
	if pl.Persist != PersistNone {
		return pl
	}
	out := *pl
	out.Persist = PersistKeyOnly
	if pl.lease > 0 {
		out.AttemptTimeout = min(cmp.Or(pl.AttemptTimeout, pl.lease), pl.lease/2)
	}
	return &out
}

// open is the plan's policy with negative durations where they are off: as zero, which is off in a plan, they would
// inherit.
func (pl *plan) open() Policy {
	p := pl.Policy
	for _, d := range []*time.Duration{&p.AttemptTimeout, &p.Deadline, &p.MaxRetryAfter, &p.Backoff.Min} {
		if *d == 0 {
			*d = -1
		}
	}
	return p
}

// effective is the policy for a request with this method, with all that is inherited and implied in place.
func (pl *plan) effective(method string) Policy {
	p := pl.open().over(Policy{})
	if p.Command = Off; pl.isCommand(method) {
		p.Command = On
	}
	if p.RetryStatus == nil {
		p.RetryStatus = []int{} // nil would inherit
	}
	if p.Retention == 0 {
		p.Retention = -1
	}
	if p.Budget == 0 {
		p.Budget = -1
	}
	con := pl.contract.Contract
	con.Rules, con.Poll.Links = slices.Clone(con.Rules), slices.Clone(con.Poll.Links)
	p.Contract = &con
	return p
}

// set names the fields of p that are not zero.
func (p Policy) set() []string {
	var out []string
	for f, v := range reflect.ValueOf(p).Fields() {
		if !v.IsZero() {
			out = append(out, f.Name)
		}
	}
	return out
}
