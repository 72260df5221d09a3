package otelsamekey

import (
	"context"
	"errors"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/samekey/samekey"
	"github.com/samekey/samekey/persist"
)

// metrics are the instruments.
type metrics struct {
	operation, attempt, poll, wait, store metric.Float64Histogram
	active                                metric.Int64UpDownCounter
	storeErrors, warnings                 metric.Int64Counter
}

func newMetrics(meter metric.Meter) (*metrics, error) {
	var errs []error
	seconds := func(name, what string) metric.Float64Histogram { // from a store in memory to a call's deadline
		h, err := meter.Float64Histogram(name, metric.WithUnit("s"), metric.WithDescription(what),
			metric.WithExplicitBucketBoundaries(.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 120))
		errs = append(errs, err)
		return h
	}
	count := func(name, unit, what string) metric.Int64Counter {
		c, err := meter.Int64Counter(name, metric.WithUnit(unit), metric.WithDescription(what))
		errs = append(errs, err)
		return c
	}
	active, err := meter.Int64UpDownCounter("samekey.operation.active", metric.WithUnit("{operation}"), metric.WithDescription("Operations that this process works at."))
	return &metrics{
		operation:   seconds("samekey.operation.duration", "Duration of calls, by their outcome."),
		attempt:     seconds("samekey.attempt.duration", "Duration of attempts, the answer's body included."),
		poll:        seconds("samekey.poll.duration", "Duration of polls of accepted commands."),
		wait:        seconds("samekey.wait.duration", "Waits before another attempt or poll, as they were begun."),
		store:       seconds("samekey.store.duration", "Duration of the store's writes that begin and settle an operation."),
		storeErrors: count("samekey.store.errors", "{error}", "Failures of the store."),
		warnings:    count("samekey.warnings", "{warning}", "Warnings, and errors of recovery's hooks."),
		active:      active,
	}, errors.Join(append(errs, err)...)
}

// step records what one step says by itself.
func (m *metrics) step(ctx context.Context, e *samekey.Event) {
	with := func(attrs ...attribute.KeyValue) metric.MeasurementOption {
		return metric.WithAttributes(append(attrs, commonOf(e)...)...)
	}
	method := func(name string) attribute.KeyValue { return attribute.String("samekey.store.method", name) }
	switch e.Step {
	case samekey.StepBegun:
		if e.Durable {
			m.store.Record(ctx, e.Elapsed.Seconds(), with(method("Begin")))
		}
	case samekey.StepSettled:
		if e.Durable && e.Elapsed > 0 { // a success without a name does not tell
			m.store.Record(ctx, e.Elapsed.Seconds(), with(method("Settle")))
		}
	case samekey.StepAttemptDone:
		m.attempt.Record(ctx, e.Elapsed.Seconds(), with(append(resultOf(e), attribute.Bool("samekey.retry", e.Attempt > 1), attribute.Bool("samekey.recovery", e.Recovery))...))
	case samekey.StepPolled:
		m.poll.Record(ctx, e.Elapsed.Seconds(), with(resultOf(e)...))
	case samekey.StepWait:
		m.wait.Record(ctx, e.Wait.Seconds(), with())
	case samekey.StepStoreError:
		attrs := resultOf(e)
		if own, ok := errors.AsType[*persist.Error](e.Err); ok {
			attrs = append(attrs, method(own.Method))
		}
		m.storeErrors.Add(ctx, 1, with(attrs...))
	case samekey.StepWarning, samekey.StepHandler:
		if e.Err != nil {
			m.warnings.Add(ctx, 1, with(attribute.String("samekey.step", e.Step.String())))
		}
	}
}
