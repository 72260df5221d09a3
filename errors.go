package samekey

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/samekey/samekey/internal/brief"
)

// What errors.Is matches. Every error of a command is one of the types below and matches at most two of these.
var (
	ErrConflict = errors.New("samekey: conflict")
	ErrUnknown  = errors.New("samekey: outcome unknown")
	ErrNotSent  = errors.New("samekey: not sent")
	ErrMismatch = errors.New("samekey: payload differs")
	ErrBusy     = errors.New("samekey: operation in progress elsewhere")
	ErrExpired  = errors.New("samekey: key expired")
	ErrStore    = errors.New("samekey: store failed")
	ErrClosed   = errors.New("samekey: client closed")
	ErrKey      = errors.New("samekey: invalid key or name")
	ErrPolicy   = errors.New("samekey: invalid policy")
	ErrTooLarge = errors.New("samekey: body too large")
	// ErrRedirect comes from a foreign http.Client over [Client.Transport] that tried to follow the redirect that a
	// command was answered with. The redirect was not sent; the command's own answer is what its status says.
	ErrRedirect = errors.New("samekey: redirect of a command not followed")
	// ErrBudget is the cause where the retry budget ended a call.
	ErrBudget = errors.New("samekey: retry budget exhausted")
	// ErrParked is the cause where an operation waits for an explicit Resume or Rekey.
	ErrParked = errors.New("samekey: operation is parked")
	// ErrTimeout is the cause of an attempt that Policy.AttemptTimeout ended. It is no context.DeadlineExceeded: the
	// caller's own deadline did not pass.
	ErrTimeout = errors.New("samekey: attempt timed out")
	// ErrNoKeyAtServer is the cause where an endpoint knows no keys and an earlier attempt may have reached it.
	ErrNoKeyAtServer = errors.New("samekey: the endpoint knows no keys and may have been reached")
)

// Call is what every error of a command knows of it. Its text holds no query string, credential or payload, and the key
// only in part.
type Call struct {
	Ref
	Key      string // the server was given it, if anything was sent; "" where the call ended before it had one
	Method   string
	URL      string // without userinfo and query
	Endpoint string // the pattern that matched, "" for none
	Attempts int    // over all processes
	// MaybeSent: some attempt, of this process or an earlier one, may have reached the server.
	MaybeSent bool

	unkept  bool // PersistNone
	keyless bool // the endpoint's contract has no key
	adopted bool // the key came with the request
	fresh   bool // nothing can have been sent under this ID before: it is anonymous, or the store says so
}

// String names the call as all error texts do.
func (c *Call) String() string {
	var parts []string
	if c.Method != "" {
		parts = append(parts, strings.TrimSpace(c.Method+" "+c.URL))
	}
	if c.ID != "" && c.ID != c.Key {
		parts = append(parts, fmt.Sprintf("operation %.100q", brief.ID(c.ID)))
	}
	if c.Key != "" {
		parts = append(parts, "key "+brief.Key(c.Key))
	}
	switch c.Attempts {
	case 0:
	case 1:
		parts = append(parts, "1 attempt")
	default:
		parts = append(parts, fmt.Sprintf("%d attempts", c.Attempts))
	}
	return strings.Join(parts, ", ")
}

// tell is err's text. The texts of stores name an operation by its ID, which is the key where nobody has named it, and
// transports may quote the header: the key is shortened there too.
func (c *Call) tell(err error) string { return hideKey(oneLine.Replace(err.Error()), c.Key) }

// oneLine keeps what others wrote, as errors.Join does, from breaking a log's lines.
var oneLine = strings.NewReplacer("\r\n", "; ", "\n", "; ", "\r", "; ")

func hideKey(text, key string) string {
	if len(key) <= 12 {
		return text // too short to be told from other words
	}
	return strings.ReplaceAll(text, key, brief.Key(key))
}

// Reply is a response that ended or preceded an error. Body is cut at Policy.MaxResponse. Callers that shared a call share
// its error too: Header and Body are for reading.
type Reply struct {
	Status int
	Header http.Header
	Body   []byte
}

// Reason tells conflicts apart.
type Reason uint8

// The reasons of a conflict.
const (
	ReasonUnknown    Reason = iota // the answer does not say
	ReasonMismatch                 // the key was used with another payload
	ReasonInProgress               // the first request is still under way: Resume later fetches its answer
	ReasonExists                   // what was to be created is there already
	ReasonBusiness                 // a rule of the API itself
)

func (r Reason) String() string {
	switch r {
	case ReasonMismatch:
		return "payload mismatch"
	case ReasonInProgress:
		return "in progress"
	case ReasonExists:
		return "already exists"
	case ReasonBusiness:
		return "business rule"
	}
	return "unknown reason"
}

// ConflictError is the server's 409, or what the endpoint's contract calls one. It was sent once and is never retried;
// every later call of the operation gets it from the store until Resume or Rekey moves it. Matches ErrConflict.
//
// Call.MaybeSent is true, as the server did answer; Ambiguous says whether an attempt before the answered one may have
// had an effect, which then is what the conflict may be about.
type ConflictError struct {
	Call
	Reply
	Reason    Reason
	Link      string // of the existing resource, where the answer names one
	Ambiguous bool
}

func (e *ConflictError) Error() string {
	s := fmt.Sprintf("samekey: conflict (%s, status %d): %s", e.Reason, e.Status, &e.Call)
	if e.Ambiguous {
		s += "; an earlier attempt may have succeeded"
	}
	return s
}

// Is matches ErrConflict.
func (e *ConflictError) Is(target error) bool { return target == ErrConflict }

// OutcomeUnknownError says that the call ended without a final answer: the command may have happened or not. The
// operation stays pending; the same name again, Resume or Recover goes on under the same key. Matches ErrUnknown and
// whatever its cause matches.
type OutcomeUnknownError struct {
	Call
	Last       *Reply    // nil when the last attempt got none
	RetryAfter time.Time // zero: no advice from the server
	Err        error     // the last attempt's failure, or what ended the call; nil where Last is why
}

func (e *OutcomeUnknownError) Error() string {
	s := "samekey: outcome unknown: " + e.Call.String()
	if e.Last != nil {
		s += fmt.Sprintf(", last status %d", e.Last.Status)
	}
	if e.Err != nil {
		s += ": " + e.tell(e.Err)
	}
	switch {
	case e.unkept:
		return s + " (Policy.Persist keeps nothing of it: running the code again would be a second operation)"
	case errors.Is(e.Err, ErrParked):
		return s + " (parked: only Resume, Rekey or Recovery.Reconcile moves it)"
	case e.keyless:
		return s + " (pending: the endpoint knows no keys, and it is not sent again; find out, then Abandon or Forget)"
	case e.adopted:
		return s + " (pending: the same key again goes on)"
	case e.ID == e.Key && e.Key != "":
		return s + " (pending: Recover or Resume goes on under this key; running the code again would be a second operation)"
	}
	return s + " (pending: the same name again goes on under this key)"
}

// Is matches ErrUnknown.
func (e *OutcomeUnknownError) Is(target error) bool { return target == ErrUnknown }

func (e *OutcomeUnknownError) Unwrap() error { return e.Err }

// NotSentError says that this call sent nothing that may have had an effect, and that nothing of it will be sent later:
// what it recorded is gone. Whether an earlier call under the same name did is another question, which EffectOf answers:
// a call that ended before the store was asked cannot know. Matches ErrNotSent and whatever its cause matches.
type NotSentError struct {
	Call
	Err error
}

func (e *NotSentError) Error() string {
	return "samekey: not sent: " + e.Call.String() + ": " + e.tell(e.Err)
}

// Is matches ErrNotSent.
func (e *NotSentError) Is(target error) bool { return target == ErrNotSent }

func (e *NotSentError) Unwrap() error { return e.Err }

// MismatchError says that the operation's name, or the key of one without a name, is known with another method, target
// or payload; keys of named operations are not compared with each other. This call sent nothing; what became of the
// known one is for Operation to say, and another intent needs another name. Matches ErrMismatch.
type MismatchError struct{ Call }

func (e *MismatchError) Error() string {
	return "samekey: another command is known under this ID (method, target or payload differ; a new intent needs a name of its own): " + e.Call.String()
}

// Is matches ErrMismatch.
func (e *MismatchError) Is(target error) bool { return target == ErrMismatch }

// BusyError says that another process, or another client on the same store, is sending the operation now. Matches
// ErrBusy.
type BusyError struct{ Call }

func (e *BusyError) Error() string {
	return "samekey: operation in progress elsewhere: " + e.Call.String()
}

// Is matches ErrBusy.
func (e *BusyError) Is(target error) bool { return target == ErrBusy }

// ExpiredError says that the server may have forgotten the key, so that nothing goes out under it any more; or that the
// operation is over (Past) and its answer not kept: it was abandoned, its Retention has passed, or PersistKeyOnly keeps
// none. Forget lets such a name be used anew. Matches ErrExpired, and ErrUnknown where MaybeSent and Past is Pending.
type ExpiredError struct {
	Call
	Expired time.Time // of the key, or where it is over of its answer
	Past    State     // what became of it, where that is known; else Pending
	Reason  string
}

func (e *ExpiredError) Error() string {
	var s string
	switch e.Past {
	case Pending:
		s = "samekey: key expired: " + e.Call.String()
		if e.MaybeSent {
			s = "samekey: key expired, outcome unknown: " + e.Call.String() + "; reconcile it, then Rekey or Abandon"
		}
	case Abandoned:
		s = "samekey: operation was abandoned: " + e.Call.String()
	default:
		s = "samekey: operation is over, its answer is not kept: " + e.Call.String() + ": " + e.Past.String()
	}
	if e.Reason != "" {
		s += " (" + oneLine.Replace(e.Reason) + ")"
	}
	return s
}

// Is matches ErrExpired, and ErrUnknown where the outcome is.
func (e *ExpiredError) Is(target error) bool {
	return target == ErrExpired || target == ErrUnknown && e.MaybeSent && e.Past == Pending
}

// StoreError says that the command was refused because its record could not be made durable, or read. Nothing was
// sent. Matches ErrStore and whatever its cause matches.
type StoreError struct {
	Call
	MayBeRecorded bool // the record may be on disk all the same, and a later recovery send it: Forget or Resume it
	Err           error
}

func (e *StoreError) Error() string {
	s := "samekey: store failed, nothing was sent: " + e.Call.String() + ": " + e.tell(e.Err)
	if e.MayBeRecorded {
		s += "; the operation may be recorded, and a later recovery may send it: Forget or Resume it"
	}
	return s
}

// Is matches ErrStore.
func (e *StoreError) Is(target error) bool { return target == ErrStore }

func (e *StoreError) Unwrap() error { return e.Err }

// BodyTooLargeError says that the request's body is above Policy.MaxBody. Nothing was sent. Matches ErrTooLarge.
type BodyTooLargeError struct {
	Call
	Limit int64 // bytes
}

func (e *BodyTooLargeError) Error() string {
	return fmt.Sprintf("samekey: body above %d bytes, not sent: %s; raise Policy.MaxBody", e.Limit, &e.Call)
}

// Is matches ErrTooLarge.
func (e *BodyTooLargeError) Is(target error) bool { return target == ErrTooLarge }

// KeyError says what is wrong with a key or with an operation's name. Nothing was stored or sent. Matches ErrKey.
type KeyError struct {
	Call
	Why string
	Err error // what the key format returned; nil otherwise
}

func (e *KeyError) Error() string {
	s := "samekey: " + e.Why + ": " + e.Call.String()
	if e.Err != nil {
		s += ": " + e.tell(e.Err)
	}
	return s
}

// Is matches ErrKey.
func (e *KeyError) Is(target error) bool { return target == ErrKey }

func (e *KeyError) Unwrap() error { return e.Err }

// PolicyError names a setting that cannot hold. Matches ErrPolicy.
type PolicyError struct {
	Endpoint string // pattern; "" for the default policy or the Config itself
	Field    string
	Why      string
}

func (e *PolicyError) Error() string {
	where := "default policy"
	switch {
	case strings.HasPrefix(e.Field, "WithPolicy"):
		return "samekey: " + e.Field + ": " + e.Why
	case e.Endpoint != "":
		where = fmt.Sprintf("endpoint %q", e.Endpoint)
	case e.Field == "Store" || e.Field == "Scope":
		where = "Config"
	case e.Field == "Recovery":
		return "samekey: Recovery: " + e.Why
	}
	return "samekey: " + where + ": " + e.Field + ": " + e.Why
}

// Is matches ErrPolicy.
func (e *PolicyError) Is(target error) bool { return target == ErrPolicy }

// Effect answers the one question that most callers have about an error of Do.
type Effect uint8

// What an error of Do says about the command's effect.
const (
	EffectUnknown Effect = iota // it may have happened: the same name again, never a new key
	EffectNone                  // it did not happen, and no part of samekey will send it: free to start anew
)

func (e Effect) String() string {
	if e == EffectNone {
		return "none"
	}
	return "unknown"
}

// EffectOf classifies an error of [Client.Do]. It says EffectNone only if nothing was sent under the operation's name,
// by this call or an earlier one, and nothing will be: for a named operation the store has to have answered that the
// name is new (or that its earlier intent was rejected) before the call failed. A nil error, and whatever is not
// samekey's, is EffectUnknown.
func EffectOf(err error) Effect {
	if errors.Is(err, ErrConflict) || errors.Is(err, ErrUnknown) {
		return EffectUnknown
	}
	if c := callOf(err); c != nil && c.fresh && !c.MaybeSent {
		if s, ok := errors.AsType[*StoreError](err); ok && s.MayBeRecorded {
			return EffectUnknown
		}
		return EffectNone
	}
	return EffectUnknown
}

// callOf finds the Call of the first error in err's tree that has one and speaks of something not sent.
func callOf(err error) *Call {
	if e, ok := errors.AsType[*NotSentError](err); ok {
		return &e.Call
	}
	if e, ok := errors.AsType[*StoreError](err); ok {
		return &e.Call
	}
	if e, ok := errors.AsType[*BodyTooLargeError](err); ok {
		return &e.Call
	}
	if e, ok := errors.AsType[*KeyError](err); ok {
		return &e.Call
	}
	return nil
}

// deadlineError is the cause where Policy.Deadline ended a call.
type deadlineError struct{ limit time.Duration }

func (e *deadlineError) Error() string {
	return "samekey: policy deadline of " + e.limit.String() + " reached"
}

func (e *deadlineError) Is(target error) bool { return target == context.DeadlineExceeded }

// redactedError keeps the chain of an error and hides the call's secrets in its text.
type redactedError struct {
	text string
	err  error
}

func (e *redactedError) Error() string { return e.text }
func (e *redactedError) Unwrap() error { return e.err }
