package samekey

import (
	"context"
	"log/slog"
	"time"

	"github.com/samekey/samekey/internal/brief"
)

// Step of an operation's life that an Observer is told of.
type Step uint8

// The steps, in the order in which an operation passes them.
const (
	StepBegin         Step = iota + 1 // the record is about to be written
	StepBegun                         // it is durable, or was known: Event.State tells as what
	StepAttempt                       // an attempt's mark is durable; the connection is asked for next
	StepConnected                     // a connection is there
	StepHeaderWritten                 // the request's head left; more than once where net/http sends again by itself
	StepBodyWritten                   // the whole request left; the transport may tell it late, also after the answer
	StepFirstByte                     // the answer's first byte is there
	StepAttemptDone                   // the answer was read to its end, or the attempt failed
	StepWait                          // the next attempt comes after Event.Wait
	StepOutcome                       // the outcome is known, and about to be written
	StepSettled                       // it is written: durable, or buffered where losing it is harmless
	StepHandler                       // a recovered answer is about to be handed over
	StepRecovered                     // recovery is done with the operation
	StepStoreError                    // the store failed: Event.Err
	StepPolled                        // an accepted command was asked about
	StepWarning                       // Event.Err is something that an operator should know, and the call goes on
)

var stepNames = [...]string{
	StepBegin: "begin", StepBegun: "begun", StepAttempt: "attempt", StepConnected: "connected", StepHeaderWritten: "header written",
	StepBodyWritten: "body written", StepFirstByte: "first byte", StepAttemptDone: "attempt done", StepWait: "wait",
	StepPolled: "polled", StepWarning: "warning", StepOutcome: "outcome", StepSettled: "settled", StepHandler: "handler", StepRecovered: "recovered", StepStoreError: "store error",
}

func (s Step) String() string {
	if int(s) < len(stepNames) && stepNames[s] != "" {
		return stepNames[s]
	}
	return "invalid"
}

// Event is one step of one operation. It holds no payload, header or query, and its error texts are redacted. What does
// not belong to a step is zero.
type Event struct {
	Step Step
	Time time.Time
	Ref
	Key      string
	Method   string
	Endpoint string        // the pattern that matched, "" for none
	Durable  bool          // false: the endpoint keeps no record (PersistNone)
	Recovery bool          // the operation runs in Recover or Resume, not in Do
	Attempt  int           // over all processes
	Sends    int           // of this attempt: requests that left, those included that net/http repeated by itself
	Status   int           // of the answer, 0 for none
	Reused   bool          // StepConnected: the connection had served before
	State    State         // StepBegun, StepOutcome, StepSettled, StepRecovered
	Source   Source        // StepOutcome
	Elapsed  time.Duration // StepAttemptDone: of the attempt; StepBegun, StepSettled: in the store; StepOutcome: of the call
	Wait     time.Duration // StepWait
	Err      error
}

// Observer is told each step as it happens, by the goroutine that takes it: it must be quick and safe for concurrent
// use, and must not call the client. A panic in it ends the program.
type Observer func(ctx context.Context, e Event)

// LogTo returns an Observer that writes to l: attempts and waits at debug level, outcomes at info, what an operator
// should see (unknown outcomes, failures of the store) at warn and error. Keys are shortened.
func LogTo(l *slog.Logger) Observer {
	return func(ctx context.Context, e Event) {
		level := slog.LevelDebug
		switch {
		case e.Step == StepStoreError:
			level = slog.LevelError
		case e.Step == StepOutcome && e.Err != nil, e.Step == StepHandler && e.Err != nil, e.Step == StepWarning:
			level = slog.LevelWarn
		case e.Step == StepOutcome && e.Source != Local, e.Step == StepRecovered:
			level = slog.LevelInfo
		}
		if !l.Enabled(ctx, level) {
			return
		}
		attrs := make([]slog.Attr, 0, 16)
		add := func(set bool, a slog.Attr) {
			if set {
				attrs = append(attrs, a)
			}
		}
		add(e.Scope != "", slog.String("scope", e.Scope))
		add(e.ID != e.Key, slog.String("operation", brief.ID(e.ID)))
		add(e.Key != "", slog.String("key", brief.Key(e.Key)))
		add(true, slog.String("method", e.Method))
		add(e.Endpoint != "", slog.String("endpoint", e.Endpoint))
		add(!e.Durable, slog.Bool("durable", false))
		add(e.Recovery, slog.Bool("recovery", true))
		add(e.Attempt > 0, slog.Int("attempt", e.Attempt))
		add(e.Sends > 1, slog.Int("sends", e.Sends))
		add(e.Status > 0, slog.Int("status", e.Status))
		add(e.Step == StepBegun || e.Step == StepOutcome || e.Step == StepSettled || e.Step == StepRecovered, slog.String("state", e.State.String()))
		add(e.Step == StepOutcome, slog.String("source", e.Source.String()))
		add(e.Elapsed > 0, slog.Duration("elapsed", e.Elapsed))
		add(e.Step == StepWait, slog.Duration("wait", e.Wait))
		if e.Err != nil {
			attrs = append(attrs, slog.String("error", e.Err.Error()))
		}
		l.LogAttrs(ctx, level, "samekey: "+e.Step.String(), attrs...)
	}
}
