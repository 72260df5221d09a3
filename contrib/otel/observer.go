package otelsamekey

import (
	"context"
	"net/http"
	"slices"
	"sync"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/propagation"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/samekey/samekey"
)

// Options say where to. Nil is what go.opentelemetry.io/otel has globally.
type Options struct {
	TracerProvider trace.TracerProvider
	MeterProvider  metric.MeterProvider
	Propagator     propagation.TextMapPropagator // for Inject
}

// Observer turns a client's steps into spans and metrics: its Observe is for samekey.Config.Observer, its Inject for
// Config.Prepare. It is safe for concurrent use, and one may serve several clients. The zero value is not usable; see New.
type Observer struct {
	tracer     trace.Tracer
	propagator propagation.TextMapPropagator
	metrics    *metrics

	mu  sync.Mutex
	ops map[samekey.Ref][]*operation // under way: one, but for calls that only learn that another is
}

// New makes an Observer. An error is the meter provider's, which refused an instrument.
func New(opts Options) (*Observer, error) {
	if opts.TracerProvider == nil {
		opts.TracerProvider = otel.GetTracerProvider()
	}
	if opts.MeterProvider == nil {
		opts.MeterProvider = otel.GetMeterProvider()
	}
	if opts.Propagator == nil {
		opts.Propagator = otel.GetTextMapPropagator()
	}
	const scope = "github.com/samekey/samekey/contrib/otel"
	m, err := newMetrics(opts.MeterProvider.Meter(scope, metric.WithSchemaURL(semconv.SchemaURL)))
	tracer := opts.TracerProvider.Tracer(scope, trace.WithSchemaURL(semconv.SchemaURL))
	return &Observer{tracer: tracer, propagator: opts.Propagator, metrics: m, ops: map[samekey.Ref][]*operation{}}, err
}

// Observe takes one step. It is a samekey.Observer.
func (o *Observer) Observe(ctx context.Context, e samekey.Event) {
	op := o.find(ctx, &e)
	if op == nil {
		o.metrics.step(ctx, &e)
		return
	}
	o.metrics.step(op.ctx, &e)
	if op.step(ctx, o.tracer, &e) {
		o.end(op)
	}
}

// Inject writes the span of the attempt that is being prepared into req's header, so that the server's spans are its
// children: with propagation.TraceContext as traceparent and tracestate. It is for Config.Prepare, or to be called there,
// and returns nil.
func (o *Observer) Inject(ctx context.Context, req *http.Request) error {
	if known, ok := samekey.OperationOf(ctx); ok {
		o.mu.Lock()
		op := o.match(known.Ref, ctx, func(op *operation) bool { return op.key == known.Key })
		o.mu.Unlock()
		if op != nil {
			ctx = trace.ContextWithSpan(ctx, op.innermost())
		}
	}
	o.propagator.Inject(ctx, propagation.HeaderCarrier(req.Header))
	return nil
}

// match needs o.mu. It finds the operation of a call by the call's context; or, where that is unknown, one that may be it,
// and whose own context has ended: each attempt and each poll has a new one.
func (o *Observer) match(ref samekey.Ref, ctx context.Context, may func(*operation) bool) (renewed *operation) {
	for _, op := range o.ops[ref] {
		if op.call.Done() == ctx.Done() {
			return op
		}
		if op.call.Err() != nil && may(op) {
			renewed = op
		}
	}
	return renewed
}

// find returns the operation that a step is of, nil for what comes after the end of one.
func (o *Observer) find(ctx context.Context, e *samekey.Event) *operation {
	o.mu.Lock()
	defer o.mu.Unlock()
	op := o.match(e.Ref, ctx, func(op *operation) bool {
		same := op.recovery == e.Recovery && op.key == e.Key // else it is another client's, perhaps
		begins := e.Step == samekey.StepBegin || e.Step == samekey.StepOutcome && e.Source == samekey.Local && op.n.Load() > 0
		return same && !begins // what has made an attempt has no local answer
	})
	switch e.Step {
	case samekey.StepBegin, samekey.StepAttempt, samekey.StepWait, samekey.StepPolled, samekey.StepOutcome:
		if op == nil { // Resume and Recover pass no StepBegin, and a call may have nothing but its outcome
			op = newOperation(ctx, o.tracer, e)
			o.metrics.active.Add(op.ctx, 1, op.common)
			o.ops[e.Ref] = append(o.ops[e.Ref], op)
		}
	}
	if op != nil {
		op.key = e.Key
		if op.call == nil || op.call.Done() != ctx.Done() {
			o.watch(op, ctx)
		}
	}
	return op
}

// grace is how long a call whose context has ended may take for its next step before it is taken to be over. Between two
// attempts the store is asked, under the next one's context.
const grace = time.Minute

// watch needs o.mu. The end of the call's context ends op where no step does: Resume has no last one, and a hook that
// panics leaves none behind.
func (o *Observer) watch(op *operation, ctx context.Context) {
	if op.unwatch != nil {
		op.unwatch()
	}
	var timer *time.Timer
	stop := context.AfterFunc(ctx, func() {
		if op.over() {
			o.end(op)
			return
		}
		o.mu.Lock()
		defer o.mu.Unlock()
		if op.call.Done() == ctx.Done() && slices.Contains(o.ops[op.ref], op) {
			timer = time.AfterFunc(grace, func() { o.end(op) })
		}
	})
	op.call, op.unwatch = ctx, func() {
		stop()
		if timer != nil {
			timer.Stop()
		}
	}
}

// end ends op, once.
func (o *Observer) end(op *operation) {
	o.mu.Lock()
	others := o.ops[op.ref]
	i := slices.Index(others, op)
	if i >= 0 {
		op.unwatch()
		if o.ops[op.ref] = slices.Delete(others, i, i+1); len(others) == 1 {
			delete(o.ops, op.ref)
		}
	}
	o.mu.Unlock()
	if i >= 0 {
		duration, attrs := op.end()
		o.metrics.active.Add(op.ctx, -1, op.common)
		o.metrics.operation.Record(op.ctx, duration.Seconds(), op.common, metric.WithAttributes(attrs...))
	}
}
