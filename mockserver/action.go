package mockserver

import (
	"fmt"
	"net/http"
	"slices"
	"time"
)

// Action is what a fault does. Actions are values; With, Body and Then return changed copies.
type Action struct{ steps []step }

// step is one thing that an action does, and its JSON form.
type step struct {
	Do     string      `json:"do"`
	Code   int         `json:"code,omitempty"`
	Stored bool        `json:"stored,omitempty"`
	For    duration    `json:"for,omitempty"`
	Header http.Header `json:"header,omitempty"`
	Body   *string     `json:"body,omitempty"`
	Name   string      `json:"name,omitempty"`
	Value  string      `json:"value,omitempty"`
}

const (
	doDrop          = "drop"
	doReset         = "reset"
	doHalfClose     = "half-close"
	doCut           = "cut-body"
	doCutChunked    = "cut-chunked"
	doStatus        = "status"
	doRaw           = "raw"
	doStall         = "stall"
	doStallBody     = "stall-body"
	doDelay         = "delay"
	doSlow          = "slow-bytes"
	doInformational = "informational"
	doStrip         = "strip-header"
	doRename        = "rename-header"
	doAnswerHeader  = "answer-header"
	doStripAnswer   = "strip-answer-header"
	doDuplicate     = "duplicate"
	doForget        = "forget-key"
	doCrashReserved = "crash-reserved"
	doCrashUnstored = "crash-unstored"
	doGoAway        = "goaway"
	doStreamReset   = "stream-reset"
)

func act(s step) Action { return Action{steps: []step{s}} }

// Actions that need nothing said. The client sees
var (
	Drop       = act(step{Do: doDrop})       // the connection closed, and no answer
	Reset      = act(step{Do: doReset})      // the connection reset (RST)
	HalfClose  = act(step{Do: doHalfClose})  // the server's half closed without an answer, while it goes on reading
	CutBody    = act(step{Do: doCut})        // a Content-Length, half of the body, and the end of the connection
	CutChunked = act(step{Do: doCutChunked}) // half of the body in chunks, no last chunk, and the end of the connection
	GoAway     = act(step{Do: doGoAway})     // an HTTP/2 GOAWAY that disowns every stream of the connection; on HTTP/1 Drop

	// Duplicate has a gateway deliver the request twice. The client gets the second answer.
	Duplicate = act(step{Do: doDuplicate})

	// ForgetKey loses the key as soon as the command has happened, as a server without a durable record of it does. The
	// answer still goes out: add Then(Drop).
	ForgetKey = act(step{Do: doForget})
)

// Status answers with a status and, unless Body is called, with an error envelope. Stored, the answer is also what the
// key answers from now on: without an effect before the commit, in place of the true answer after it.
func Status(code int, stored bool) Action { return act(step{Do: doStatus, Code: code, Stored: stored}) }

// Redirect answers with a redirect to location.
func Redirect(code int, location string) Action {
	return act(step{Do: doStatus, Code: code}).With("Location", location)
}

// RawResponse writes bytes to the connection, whatever they are, and closes it. HTTP/1 only; on HTTP/2 it resets the
// stream.
func RawResponse(b []byte) Action {
	s := string(b)
	return act(step{Do: doRaw, Body: &s})
}

// Stall keeps silent for d (zero: as long as the client stays) before any header, and then closes the connection.
func Stall(d time.Duration) Action { return act(step{Do: doStall, For: duration(d)}) }

// StallBody sends the headers and half of the body, keeps silent for d (zero: as long as the client stays), and then
// closes the connection.
func StallBody(d time.Duration) Action { return act(step{Do: doStallBody, For: duration(d)}) }

// Delay waits for d and goes on: before the commit the command happens late, after it the answer goes out late. It
// waits even if the client leaves, so that a request that its client has given up still takes effect.
func Delay(d time.Duration) Action { return act(step{Do: doDelay, For: duration(d)}) }

// SlowBytes sends the body whole, one byte each d.
func SlowBytes(d time.Duration) Action { return act(step{Do: doSlow, For: duration(d)}) }

// Informational sends a 1xx answer first and goes on; With adds its headers.
func Informational(code int) Action { return act(step{Do: doInformational, Code: code}) }

// StripHeader has a gateway drop a header of the request, such as the key's.
func StripHeader(name string) Action { return act(step{Do: doStrip, Name: name}) }

// RenameHeader has a gateway pass a header of the request on under another name.
func RenameHeader(from, to string) Action { return act(step{Do: doRename, Name: from, Value: to}) }

// AnswerHeader overwrites a header of the answer, such as the key's echo.
func AnswerHeader(name, value string) Action {
	return act(step{Do: doAnswerHeader, Name: name, Value: value})
}

// StripAnswerHeader removes a header of the answer, such as a replay's mark.
func StripAnswerHeader(name string) Action { return act(step{Do: doStripAnswer, Name: name}) }

// CrashReserved drops the connection after the key was reserved and before the command ran: the key stays in progress
// until d has passed by the engine's clock (zero: as long as the key lives), or Cure is called, and is free then.
func CrashReserved(d time.Duration) Action {
	return act(step{Do: doCrashReserved, For: duration(d)})
}

// CrashUnstored drops the connection after the command took effect and before its answer was stored: the key stays in
// progress until d has passed by the engine's clock (zero: as long as the key lives), or Cure is called, and answers
// then with the result of that effect.
func CrashUnstored(d time.Duration) Action {
	return act(step{Do: doCrashUnstored, For: duration(d)})
}

// StreamReset resets the HTTP/2 stream with an error code (7 is REFUSED_STREAM, 2 INTERNAL_ERROR, 8 CANCEL), where the
// server is one of NewTLSServer's; elsewhere the code is INTERNAL_ERROR. On HTTP/1 it is Drop.
func StreamReset(code uint32) Action { return act(step{Do: doStreamReset, Code: int(code)}) }

// With adds a header to the answer that the action gives: Status(503, false).With("Retry-After", "soon").
func (a Action) With(name, value string) Action {
	return a.last(func(s *step) {
		s.Header = s.Header.Clone()
		if s.Header == nil {
			s.Header = http.Header{}
		}
		s.Header.Add(name, value)
	})
}

// Body is the body of the answer that the action gives.
func (a Action) Body(body string) Action { return a.last(func(s *step) { s.Body = &body }) }

// Then does one action after another: Delay(time.Second).Then(Drop).
func (a Action) Then(b Action) Action { return Action{steps: slices.Concat(a.steps, b.steps)} }

func (a Action) last(change func(*step)) Action {
	a.steps = slices.Clone(a.steps)
	if len(a.steps) > 0 {
		change(&a.steps[len(a.steps)-1])
	}
	return a
}

func (s step) String() string {
	out := s.Do
	if s.Code != 0 {
		out += " " + itoa(s.Code)
	}
	if s.Stored {
		out += " stored"
	}
	if s.For != 0 {
		out += " " + time.Duration(s.For).String()
	}
	if s.Name != "" {
		out += " " + s.Name
	}
	if s.Value != "" {
		out += fmt.Sprintf(" %q", s.Value)
	}
	return out
}
