package samekey

import (
	"context"
	"net/http"
	"time"

	"github.com/samekey/samekey/persist"
)

// Ref names an operation within its scope.
type Ref = persist.Ref

// State of an operation.
type State = persist.State

// The states of an operation.
const (
	Pending    = persist.Pending // not sent yet, under way, or its outcome is unknown
	Succeeded  = persist.Succeeded
	Rejected   = persist.Rejected
	Conflicted = persist.Conflicted
	Abandoned  = persist.Abandoned
)

type (
	nameKey   struct{}
	scopeKey  struct{}
	issuedKey struct{}
	infoKey   struct{}
	servedKey struct{}
	resultKey struct{}
)

// Named returns req under the operation id (at most 1,024 bytes): the returned request carries the name, and nothing
// else that shares req's context does. It is the main way to name an operation. An empty id is an error from Do.
func Named(req *http.Request, id string) *http.Request {
	return req.WithContext(WithOperation(req.Context(), id))
}

// WithOperation names the one command that is sent with ctx, for SDKs that hide the request. Derive a context for each
// command: a second one with another payload under the same name is a *MismatchError.
func WithOperation(ctx context.Context, id string) context.Context {
	return context.WithValue(ctx, nameKey{}, id)
}

// WithScope sets the tenant or principal for the commands sent with ctx. An operation's name is unique within its scope.
func WithScope(ctx context.Context, scope string) context.Context {
	return context.WithValue(ctx, scopeKey{}, scope)
}

// WithIssuedAt tells when the command sent with ctx was first decided on, wherever that was. [Derived] keys demand it:
// their life counts from there.
func WithIssuedAt(ctx context.Context, t time.Time) context.Context {
	return context.WithValue(ctx, issuedKey{}, t)
}

// WithInfo has info filled when the call returns, error or not: for SDKs that hide the response.
func WithInfo(ctx context.Context, info *Info) context.Context {
	return context.WithValue(ctx, infoKey{}, info)
}

// Source tells where an answer came from.
type Source uint8

// The sources of an answer.
const (
	Network Source = iota // this call's own exchange
	Replay                // this call's own exchange, in which the server answered from its own record
	Local                 // samekey's store; nothing was sent
	Shared                // another call of this process
)

func (s Source) String() string {
	switch s {
	case Network:
		return "network"
	case Replay:
		return "replay"
	case Local:
		return "local"
	case Shared:
		return "shared"
	}
	return "invalid"
}

// Info tells how an answer was obtained.
type Info struct {
	Ref
	Key      string
	Endpoint string // the pattern that matched, "" for none
	State    State  // of the operation as the call left it; Pending with a 2xx: the server is still processing
	Attempts int    // over all processes
	Sends    int    // requests that this call put on the wire, those included that net/http repeated by itself
	Source   Source
	Replayed bool  // the server marked the answer as a replay, now or when it was stored
	StoreErr error // the answer could not be recorded; a later call sends again under the same key
}

// result travels with a response, in the context of its Request: a wrapper around the body would be lost under
// http.Client.Timeout.
type result struct {
	*answer
	first bool
}

// InfoOf reports how resp was obtained; false for a response that did not come from a command.
func InfoOf(resp *http.Response) (Info, bool) {
	if r := resultOf(resp); r != nil {
		return r.infoFor(r.first), true
	}
	return Info{}, false
}

// ErrorOf returns the typed error that resp stands for, nil if none: what [Client.Do] would have returned where
// [Client.Transport], [Client.HTTPClient] or [Client.AsResponses] gave the response.
func ErrorOf(resp *http.Response) error {
	if r := resultOf(resp); r != nil {
		return r.err
	}
	return nil
}

func resultOf(resp *http.Response) *result {
	if resp == nil || resp.Request == nil {
		return nil
	}
	r, _ := resp.Request.Context().Value(resultKey{}).(*result)
	return r
}

// OperationOf tells [Config.Prepare] and the transports beneath which operation they serve; false outside of an attempt.
func OperationOf(ctx context.Context) (Operation, bool) {
	if k, ok := ctx.Value(servedKey{}).(*call); ok && k != nil {
		return operationOf(&k.rec, k.plan.pattern), true
	}
	return Operation{}, false
}

// Operation is a snapshot of what the store keeps of one.
type Operation struct {
	Ref
	Named              bool // the ID is the caller's word, not the key
	Key, Method        string
	URL                string // without userinfo and query
	Endpoint           string // the pattern that matches, "" for none
	State              State
	Created, FirstSent time.Time // FirstSent: zero before the first attempt; of a derived key, sent or not, what WithIssuedAt said
	Expires            time.Time // when the server may have forgotten the key; zero: never, or not sent yet
	NotBefore          time.Time // recovery leaves it alone until then
	Attempts           int       // over all processes
	LastStatus         int       // of the answer, or of the last attempt so far; 0: none came
	LastError          string    // of the same attempt, redacted
	Parked             bool      // only an explicit Resume or Rekey moves it
	record             *persist.Record
}

// Request rebuilds the stored request: method, target, body and the headers that were kept, without credentials. It
// returns an error where only the name or the fingerprint is kept.
func (o Operation) Request(ctx context.Context) (*http.Request, error) {
	if o.record == nil || o.record.Method == "" || o.record.Body == nil {
		return nil, errNoRequest
	}
	return rebuild(ctx, o.record)
}

func operationOf(r *persist.Record, pattern string) Operation {
	kept := *r // the call that owns r goes on with it
	o := Operation{
		Ref: r.Ref, Named: r.Named, Key: r.Key, Method: r.Method, URL: bareURL(r.Target), Endpoint: pattern,
		State: r.State(), Created: r.Created, FirstSent: r.Progress.FirstSent, NotBefore: r.Progress.NotBefore,
		Attempts: r.Progress.Attempts, LastStatus: r.Progress.LastStatus, LastError: r.Progress.LastError,
		Parked: r.Progress.Parked, record: &kept,
	}
	if r.Answer != nil {
		o.LastStatus, o.LastError = r.Answer.Status, ""
	}
	if r.KeyLife >= 0 && !r.Progress.FirstSent.IsZero() {
		o.Expires = r.Progress.FirstSent.Add(r.KeyLife)
	}
	return o
}
