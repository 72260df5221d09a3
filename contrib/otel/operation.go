package otelsamekey

import (
	"cmp"
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/samekey/samekey"
)

// operation is one call under way.
type operation struct {
	ref      samekey.Ref
	recovery bool
	ctx      context.Context // of the first step, with the span
	span     trace.Span
	start    time.Time
	common   metric.MeasurementOption

	n atomic.Int64 // of the last attempt over all processes, 0: none yet

	// These are under the Observer's lock.
	call    context.Context // the call's, as of its last step
	key     string          // likewise
	unwatch func()

	mu      sync.Mutex
	attempt trace.Span // nil: none is under way
	outcome *samekey.Event
	cut     bool // before the outcome: the call's context had ended
	last    time.Time
	ended   bool
}

func newOperation(ctx context.Context, tracer trace.Tracer, e *samekey.Event) *operation {
	op := &operation{ref: e.Ref, recovery: e.Recovery, start: e.Time.Add(-e.Elapsed), common: metric.WithAttributes(commonOf(e)...)}
	op.ctx, op.span = tracer.Start(ctx, "samekey "+cmp.Or(e.Endpoint, e.Method), trace.WithTimestamp(op.start), trace.WithAttributes(identityOf(e)...))
	return op
}

// step adds one step to the spans, and reports whether none follows that belongs there.
func (op *operation) step(ctx context.Context, tracer trace.Tracer, e *samekey.Event) (last bool) {
	op.mu.Lock()
	defer op.mu.Unlock()
	if op.ended { // meanwhile
		return false
	}
	if e.Time.After(op.last) { // the transport may tell late
		op.last = e.Time
	}
	at := trace.WithTimestamp(e.Time)
	exchange := func(name string, start time.Time, attrs ...attribute.KeyValue) trace.Span {
		_, span := tracer.Start(op.ctx, name, trace.WithTimestamp(start), trace.WithSpanKind(trace.SpanKindClient), trace.WithAttributes(attrs...))
		return span
	}
	span := op.span
	switch e.Step {
	case samekey.StepBegin:
		return false
	case samekey.StepAttempt:
		attrs := methodOf(e)
		if e.Attempt > 1 {
			attrs = append(attrs, semconv.HTTPRequestResendCount(e.Attempt-1))
		}
		op.n.Store(int64(e.Attempt))
		op.outcome = nil // Recovery.Reconcile had it sent under a new key
		op.attempt = exchange(e.Method+" attempt", e.Time, attrs...)
		return false
	case samekey.StepPolled:
		endExchange(exchange("GET poll", e.Time.Add(-e.Elapsed), semconv.HTTPRequestMethodGet), e)
		return false
	case samekey.StepAttemptDone:
		if op.attempt != nil {
			op.attempt.SetAttributes(attribute.Int("samekey.sends", e.Sends))
			endExchange(op.attempt, e)
			op.attempt = nil
		}
		return false
	case samekey.StepConnected, samekey.StepHeaderWritten, samekey.StepBodyWritten, samekey.StepFirstByte:
		if op.attempt == nil || op.n.Load() != int64(e.Attempt) {
			return false
		}
		span = op.attempt
	}
	span.AddEvent("samekey."+strings.ReplaceAll(e.Step.String(), " ", "_"), at, trace.WithAttributes(detailsOf(e)...))
	return op.ends(ctx, e)
}

// ends reports whether e is the last step. A Resume's cannot be told from those of a Recover, which goes on to its
// handler: its context ends it.
func (op *operation) ends(ctx context.Context, e *samekey.Event) bool {
	told := op.outcome
	if e.Step == samekey.StepOutcome || e.Step == samekey.StepRecovered && told == nil {
		op.outcome, op.cut = e, ctx.Err() != nil
	}
	switch {
	case e.Recovery:
		return e.Step == samekey.StepRecovered
	case e.Step == samekey.StepOutcome:
		return !settles(e)
	case e.Step == samekey.StepSettled:
		return told != nil
	case e.Step == samekey.StepStoreError: // it makes of what was without effect what is unknown: another outcome
		return told != nil && (told.State == samekey.Succeeded || told.State == samekey.Conflicted)
	}
	return false
}

// settles reports whether the store is about to be told of an outcome.
func settles(e *samekey.Event) bool {
	switch {
	case e.State == samekey.Pending, e.Source == samekey.Local && e.State != samekey.Abandoned:
		return false
	case e.State == samekey.Succeeded && e.ID == e.Key: // without a name: once its caller has read it
		return !e.Durable
	}
	return true
}

// over reports whether the end of the call's context is that of the call. In a Resume it comes after the outcome.
func (op *operation) over() bool {
	op.mu.Lock()
	defer op.mu.Unlock()
	return op.recovery && op.outcome != nil && !op.cut
}

// innermost is the span of the attempt, else of the operation.
func (op *operation) innermost() trace.Span {
	op.mu.Lock()
	defer op.mu.Unlock()
	if op.attempt != nil {
		return op.attempt
	}
	return op.span
}

// end ends the spans, and returns what the metric has to know.
func (op *operation) end() (time.Duration, []attribute.KeyValue) {
	op.mu.Lock()
	defer op.mu.Unlock()
	op.ended = true
	if op.attempt != nil { // a hook panicked
		op.attempt.End(trace.WithTimestamp(op.last))
	}
	e := cmp.Or(op.outcome, &samekey.Event{})
	result := append(resultOf(e), attribute.String("samekey.outcome", outcomeOf(e)), attribute.Bool("samekey.recovery", op.recovery))
	switch {
	case op.outcome == nil:
		op.span.SetStatus(codes.Error, "the call ended without an outcome")
	case e.Err != nil:
		op.span.SetStatus(codes.Error, textOf(e))
		fallthrough
	default:
		result = append(result, attribute.String("samekey.source", e.Source.String()))
		op.span.SetAttributes(attribute.Int("samekey.attempts", e.Attempt), attribute.Int("samekey.sends", e.Sends))
	}
	op.span.SetAttributes(result...)
	op.span.End(trace.WithTimestamp(op.last))
	return cmp.Or(e.Elapsed, op.last.Sub(op.start)), result
}

// endExchange ends the span of an attempt or a poll.
func endExchange(span trace.Span, e *samekey.Event) {
	span.SetAttributes(resultOf(e)...)
	if e.Err != nil {
		span.SetStatus(codes.Error, textOf(e))
	} else if e.Status >= 400 { // as the conventions for HTTP clients have it
		span.SetStatus(codes.Error, "")
	}
	span.End(trace.WithTimestamp(e.Time))
}
