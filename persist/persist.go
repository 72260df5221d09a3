// Package persist is the contract between samekey and the places that keep its operations: what a store must make
// durable, when, and who may send an operation. It knows nothing of HTTP clients.
//
// The embedded default is package journal; package memory is the reference and the model for tests. A store of one's
// own is held against the same rules by package persisttest.
package persist

import (
	"context"
	"errors"
	"iter"
	"net/http"
	"time"

	"github.com/samekey/samekey/internal/brief"
)

// Store keeps operations. It is safe for concurrent use, honours ctx while it waits, and shares no memory with its
// caller once a method has returned: not the slices and maps of a Record it was given, nor those of one it handed out.
//
// Every change is durable when its method returns nil, but for Release and a Settle whose Answer is Lazy: those take
// effect for every later call at once, and may reach the disk later, in order, with the next durable change, within a
// second, or at Close, whatever comes first.
//
// A store's own failures are *Error; the sentinels below are returned as they are or wrapped in an *Error.
type Store interface {
	// Begin records rec with its Progress as given (Attempts 1: about to be sent; 0: enqueued) and claims it, in one
	// atomic step for each Ref; rec.Answer must be nil. If the Ref is known already, rec is dropped, and a pending
	// operation that nobody holds is claimed in its place; Entry tells what is there now. After an error rec never
	// comes back; where a store cannot promise that, it sets Error.Maybe. rec.Created orders operations ("oldest
	// first"). Tokens grow over Forget and a new Begin too.
	Begin(ctx context.Context, rec Record) (Entry, error)
	// Claim takes one operation that nobody holds, pending or settled: ErrNotFound if it is not there (or only its
	// name is), ErrBusy if it is held.
	Claim(ctx context.Context, ref Ref) (Entry, error)
	// ClaimDue takes at most n operations that nobody holds, oldest first: those pending, not Parked, whose NotBefore
	// has passed; and those settled whose answer is Owed. None due is no error.
	ClaimDue(ctx context.Context, n int) ([]Entry, error)

	// Mark, Replace, Settle and Release need the claim. Without it, or once it lapsed, they change nothing and return
	// ErrClaimLost; with Error.Maybe an earlier try of the same call may have changed it. One that arrives after a later
	// one under the same claim changes nothing either.

	// Mark overwrites Progress and renews the claim. It comes before each further send or poll.
	Mark(ctx context.Context, c Claim, p Progress) error
	// Replace gives the operation a new key and request, pending again; the Ref stays, the claim too. After a crash
	// the old one is there, or the new one.
	Replace(ctx context.Context, c Claim, rec Record) error
	// Settle writes or rewrites the answer and ends the claim. An answer whose KeepBody and KeepName are past, and
	// that is not Owed, takes the operation out of the store at once.
	Settle(ctx context.Context, c Claim, a Answer) error
	// Release ends the claim and changes nothing else.
	Release(ctx context.Context, c Claim) error

	// Get returns ErrNotFound, never a zero Record. It sees tombstones (an Answer without status, header and body).
	Get(ctx context.Context, ref Ref) (Record, error)
	// List yields what f selects, oldest first, one record in memory at a time. An error ends it.
	List(ctx context.Context, f Filter) iter.Seq2[Record, error]
	// Forget takes an operation, pending or settled, or its tombstone, out of the store: ErrNotFound; ErrBusy while
	// it is held.
	Forget(ctx context.Context, ref Ref) error
	// Flush makes every buffered change durable.
	Flush(ctx context.Context) error
	// Close flushes, frees claims and locks. Every method returns ErrClosed from then on, Close itself nil.
	Close() error
}

// Ref names an operation; ID is unique within Scope.
type Ref struct{ Scope, ID string }

// Claim is the right to send and settle. Token grows with every claim of a Ref (fencing); 0 is no claim.
type Claim struct {
	Ref
	Token uint64
}

// Entry is what a store holds, with the claim if it was given.
type Entry struct {
	Record
	Claim Claim // zero: another holds it, or (Begin) it is settled
	New   bool  // Begin created it
}

// Record is all that is kept of an operation. Only Progress and Answer change, but for Replace. Scope and ID may be any
// bytes; times are kept to the nanosecond, from 1969 to 2261, without their location.
type Record struct {
	Ref
	Named          bool // the ID is the caller's word, not the key
	Created        time.Time
	Key            string
	Method, Target string        // Target: absolute URL without userinfo and secret parameters
	Header         http.Header   // the fields that may be kept, and the key's own line as it is sent
	Omitted        []string      // names of the headers and parameters that were not kept
	Body           []byte        // nil, not empty, where only the fingerprint is kept
	Fingerprint    [32]byte      // SHA-256 over method, target, identity headers and body, without the key; an HMAC where no payload is kept
	KeyLife        time.Duration // from Progress.FirstSent; negative: no end
	Progress       Progress
	Answer         *Answer // nil while pending
}

// State returns Pending, or the state of the answer.
func (r *Record) State() State {
	if r.Answer == nil {
		return Pending
	}
	return r.Answer.State
}

// Tombstone reports whether only the name and the outcome of r are left.
func (r *Record) Tombstone() bool { return r.Answer != nil && r.Answer.Status == 0 && r.Method == "" }

// Progress of the sending.
type Progress struct {
	Attempts        int       // begun, over all processes; 0: no byte has left
	FirstSent, Seen time.Time // Seen: the latest time written, so that age never shrinks
	NotBefore       time.Time // recovery leaves it alone until then
	Parked          bool      // only an explicit Resume or Rekey moves it
	PollURL         string    // a 202 is awaited there
	LastStatus      int       // of the last attempt; 0: it got no answer
	LastError       string    // redacted
}

// Answer is the final outcome.
type Answer struct {
	State     State // Succeeded, Rejected, Conflicted, Abandoned
	Status    int
	Header    http.Header
	Body      []byte
	Truncated bool   // Body is a prefix
	Reason    string // why it was abandoned; which kind of conflict it is
	// KeepBody and KeepName bound how long it is known. Past KeepBody the answer's and the request's headers and
	// bodies go, and past both the Ref is unknown; zero is past. In between a tombstone is left: Ref, Named, Created,
	// State and KeepName, perhaps Reason. A store may keep either a little longer on disk, but tells neither.
	KeepBody, KeepName time.Time
	Owed               bool // a recovery handler has yet to accept it: stays whatever Keep says
	Lazy               bool // this Settle may be buffered; not kept
}

// Error is a store's own failure.
type Error struct {
	Store, Method string // "journal", "Begin"
	Ref           Ref
	Maybe         bool // the change may have happened all the same
	Err           error
}

func (e *Error) Error() string {
	s := e.Store + ": " + e.Method
	if e.Ref.ID != "" {
		s += " " + brief.ID(e.Ref.ID)
	}
	return s + ": " + e.Err.Error()
}

func (e *Error) Unwrap() error { return e.Err }

// State of an operation.
type State uint8

// The states of an operation.
const (
	Pending State = iota
	Succeeded
	Rejected
	Conflicted
	Abandoned
)

func (s State) String() string {
	switch s {
	case Pending:
		return "pending"
	case Succeeded:
		return "succeeded"
	case Rejected:
		return "rejected"
	case Conflicted:
		return "conflicted"
	case Abandoned:
		return "abandoned"
	}
	return "invalid"
}

// Filter selects; its zero value selects everything that has not become a tombstone.
type Filter struct {
	Scope  *string
	States []State   // empty: all
	Before time.Time // created earlier; zero: all
}

// Match reports whether f selects r; stores without an index of their own use it.
func (f Filter) Match(r *Record) bool {
	if f.Scope != nil && *f.Scope != r.Scope || !f.Before.IsZero() && !r.Created.Before(f.Before) || r.Tombstone() {
		return false
	}
	if len(f.States) == 0 {
		return true
	}
	for _, s := range f.States {
		if s == r.State() {
			return true
		}
	}
	return false
}

// What the methods of a Store return beside their own failures.
var (
	ErrNotFound  = errors.New("persist: no such operation")
	ErrBusy      = errors.New("persist: operation is claimed")
	ErrClaimLost = errors.New("persist: claim lost")
	ErrFull      = errors.New("persist: store is full")
	ErrClosed    = errors.New("persist: store is closed")
)

// Leaser is implemented by stores whose claims lapse on their own, and by those that wrap one. A client counts a lease from
// before it asked for the claim, begins no attempt that it does not cover, and refuses an attempt timeout that a lease
// cannot cover.
type Leaser interface{ Lease() time.Duration }
