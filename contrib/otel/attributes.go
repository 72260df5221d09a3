package otelsamekey

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"

	"github.com/samekey/samekey"
	"github.com/samekey/samekey/persist"
)

// methodOf bounds what a method may be, as the conventions ask; a span tells the original too.
func methodOf(e *samekey.Event) []attribute.KeyValue {
	switch e.Method {
	case http.MethodConnect, http.MethodDelete, http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodPatch, http.MethodPost,
		http.MethodPut, http.MethodTrace, "QUERY":
		return []attribute.KeyValue{semconv.HTTPRequestMethodKey.String(e.Method)}
	}
	return []attribute.KeyValue{semconv.HTTPRequestMethodOther, semconv.HTTPRequestMethodOriginal(e.Method)}
}

// commonOf is what all metrics have.
func commonOf(e *samekey.Event) []attribute.KeyValue {
	attrs := methodOf(e)[:1]
	if e.Endpoint != "" {
		attrs = append(attrs, attribute.String("samekey.endpoint", e.Endpoint))
	}
	return attrs
}

// identityOf is what the span of an operation starts with.
func identityOf(e *samekey.Event) []attribute.KeyValue {
	attrs := append(methodOf(e), attribute.Bool("samekey.durable", e.Durable))
	id := e.ID
	if e.ID == e.Key {
		id = ""
	} else if looksLikeKey(id) { // that of an operation without a name, before it was given another
		id = short(id)
	}
	for name, value := range map[string]string{"endpoint": e.Endpoint, "scope": e.Scope, "key": short(e.Key), "operation.id": id} {
		if value != "" {
			attrs = append(attrs, attribute.String("samekey."+name, strings.ToValidUTF8(value, "�")))
		}
	}
	return attrs
}

// short is enough of a key to find it, as samekey's own texts show it, and too little to send it.
func short(key string) string {
	if len(key) <= 12 {
		return ""
	}
	return key[:8] + "…" + key[len(key)-4:]
}

// looksLikeKey is true of UUIDs and ULIDs.
func looksLikeKey(id string) bool {
	const alnum = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
	return (len(id) == 36 && strings.Count(id, "-") == 4 || len(id) == 26) && strings.Trim(id, "-"+alnum) == ""
}

// detailsOf is what an event within a span says.
func detailsOf(e *samekey.Event) []attribute.KeyValue {
	attrs := resultOf(e)
	switch e.Step {
	case samekey.StepBegun, samekey.StepOutcome, samekey.StepSettled, samekey.StepHandler, samekey.StepRecovered:
		attrs = append(attrs, attribute.String("samekey.state", e.State.String()))
	case samekey.StepConnected:
		attrs = append(attrs, attribute.Bool("samekey.connection.reused", e.Reused))
	case samekey.StepWait:
		attrs = append(attrs, attribute.Float64("samekey.wait", e.Wait.Seconds()))
	}
	if e.Err != nil {
		attrs = append(attrs, semconv.ExceptionMessage(textOf(e)))
	}
	return attrs
}

// textOf is the error's text without the key, which transports may quote.
func textOf(e *samekey.Event) string {
	text := e.Err.Error()
	if len(e.Key) > 3 { // less is no secret, and stands in every other word
		text = strings.ReplaceAll(text, e.Key, "…")
	}
	return strings.ToValidUTF8(text, "�")
}

// resultOf is status and error.type, as far as there are any.
func resultOf(e *samekey.Event) (attrs []attribute.KeyValue) {
	if e.Status > 0 {
		attrs = append(attrs, semconv.HTTPResponseStatusCode(e.Status))
	}
	if exchange := e.Step == samekey.StepAttemptDone || e.Step == samekey.StepPolled; e.Err != nil || exchange && e.Status >= 400 {
		attrs = append(attrs, semconv.ErrorTypeKey.String(errorType(e)))
	}
	return attrs
}

type word struct {
	err  error
	word string
}

var (
	outcomes = append([]word{{samekey.ErrConflict, "conflicted"}, {samekey.ErrUnknown, "unknown"}, {samekey.ErrNotSent, "not_sent"}}, refusals...)
	refusals = []word{
		{samekey.ErrMismatch, "mismatch"}, {samekey.ErrBusy, "busy"}, {samekey.ErrExpired, "expired"}, {samekey.ErrStore, "store"}, {samekey.ErrKey, "key"},
	}
	causes = append(refusals, []word{
		{samekey.ErrTimeout, "timeout"}, {samekey.ErrClosed, "closed"}, {samekey.ErrParked, "parked"}, {samekey.ErrBudget, "budget"},
		{samekey.ErrNoKeyAtServer, "no_key_at_server"}, {persist.ErrClaimLost, "claim_lost"}, {context.DeadlineExceeded, "timeout"},
		{context.Canceled, "canceled"}, {io.ErrUnexpectedEOF, "eof"}, {io.EOF, "eof"},
	}...)
)

func in(words []word, err error) string {
	for _, w := range words {
		if errors.Is(err, w.err) {
			return w.word
		}
	}
	return ""
}

// outcomeOf is what became of a call.
func outcomeOf(e *samekey.Event) string {
	switch w := in(outcomes, e.Err); {
	case w != "":
		return w
	case e.Step == 0:
		return "aborted"
	case e.State == samekey.Pending:
		return "processing"
	}
	return e.State.String()
}

// errorType is one of few words, or the status.
func errorType(e *samekey.Event) string {
	own, _ := errors.AsType[*persist.Error](e.Err)
	dns, _ := errors.AsType[*net.DNSError](e.Err)
	cert, _ := errors.AsType[*tls.CertificateVerificationError](e.Err)
	op, _ := errors.AsType[*net.OpError](e.Err)
	conflict, _ := errors.AsType[*samekey.ConflictError](e.Err)
	switch w := in(causes, e.Err); {
	case w != "":
		return w
	case conflict != nil: // one that is remembered comes without a status of the event's own
		return strconv.Itoa(conflict.Status)
	case own != nil || e.Step == samekey.StepStoreError:
		return "store"
	case dns != nil:
		return "dns"
	case cert != nil:
		return "certificate"
	case op != nil && op.Op == "dial":
		return "connect"
	case op != nil:
		return "connection"
	case e.Status >= 400:
		return strconv.Itoa(e.Status)
	}
	return semconv.ErrorTypeOther.Value.AsString()
}
