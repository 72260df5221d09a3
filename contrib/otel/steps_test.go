package otelsamekey_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/samekey/samekey"
)

// caller feeds an Observer with the steps of one call, in an order that a client takes only when the machine is slow.
type caller struct {
	t *testing.T
	l *lab
	samekey.Event
	ctx    context.Context
	cancel context.CancelFunc
}

func (l *lab) call(t *testing.T, key string, recovery bool) *caller {
	c := &caller{t: t, l: l, Event: samekey.Event{Ref: samekey.Ref{ID: "order-1"}, Key: key, Method: "POST", Durable: true, Recovery: recovery}}
	c.renew()
	return c
}

// renew is a new attempt's context.
func (c *caller) renew() {
	if c.cancel != nil {
		c.cancel()
		synctest.Wait() // for whoever waits for that
	}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	c.t.Cleanup(c.cancel)
}

func (c *caller) step(s samekey.Step, change ...func(*samekey.Event)) {
	e := c.Event
	e.Step, e.Time = s, time.Now()
	for _, f := range change {
		f(&e)
	}
	c.l.Observe(c.ctx, e)
	synctest.Wait()
}

func (c *caller) attempt() {
	c.Attempt++
	c.step(samekey.StepAttempt)
	c.step(samekey.StepAttemptDone)
}

func local(e *samekey.Event)    { e.Source = samekey.Local }
func rejected(e *samekey.Event) { e.State = samekey.Rejected }
func unknown(e *samekey.Event)  { e.Err = &samekey.OutcomeUnknownError{} }

func TestSteps(t *testing.T) {
	for name, row := range map[string]struct {
		do   func(t *testing.T, l *lab)
		want []string // the outcomes, each of a span
	}{
		"the same key again, after a panic": {want: []string{"unknown"}, do: func(t *testing.T, l *lab) {
			for range 2 {
				c := l.call(t, "key", false)
				c.step(samekey.StepBegin)
				c.attempt()
				c.cancel()
				synctest.Wait()
			}
			require.Equal(t, 2, l.Open())
			time.Sleep(2 * time.Minute)
			synctest.Wait()
			require.Len(t, l.ended("samekey POST"), 2)
			c := l.call(t, "key", false)
			c.step(samekey.StepBegin)
			c.step(samekey.StepOutcome, unknown, local)
		}},
		"the same key, ended before it began": {want: []string{"unknown", "succeeded"}, do: func(t *testing.T, l *lab) {
			c, other := l.call(t, "key", false), l.call(t, "key", false)
			c.step(samekey.StepBegin)
			c.attempt()
			c.renew()
			other.step(samekey.StepOutcome, unknown, local)
			c.attempt()
			done := func(e *samekey.Event) { e.State = samekey.Succeeded }
			c.step(samekey.StepOutcome, done)
			c.step(samekey.StepSettled, done)
			for _, a := range l.ended(attemptSpan) {
				require.Equal(t, l.ended("samekey POST")[1].SpanContext().SpanID(), a.Parent().SpanID())
			}
		}},
		"another client's call of the name": {want: []string{"unknown", "unknown"}, do: func(t *testing.T, l *lab) {
			c, other := l.call(t, "this-0123456789", false), l.call(t, "that-0123456789", false)
			other.step(samekey.StepBegin)
			c.step(samekey.StepBegin)
			for range 2 {
				other.attempt()
				c.attempt()
				c.cancel() // cut off, and not yet out of its attempt
				other.renew()
			}
			other.attempt()
			require.Equal(t, 2, l.Open())
			other.step(samekey.StepOutcome, unknown)
			require.Equal(t, 1, l.Open())
			c.step(samekey.StepOutcome, unknown)
			attempts := map[string]int{}
			for _, a := range l.ended(attemptSpan) {
				for _, op := range l.ended("samekey POST") {
					if op.SpanContext().SpanID() == a.Parent().SpanID() {
						attempts[attrs(op.Attributes())["samekey.key"]]++
					}
				}
			}
			require.Equal(t, map[string]int{"this-012…6789": 2, "that-012…6789": 3}, attempts)
		}},
		"a recovery under a new key": {want: []string{"unknown"}, do: func(t *testing.T, l *lab) {
			c := l.call(t, "key", true)
			c.attempt()
			c.step(samekey.StepOutcome, unknown)
			c.Key = "new"
			c.step(samekey.StepAttempt)
			c.step(samekey.StepAttemptDone)
			c.cancel()
			c.ctx, c.cancel = context.WithCancel(context.Background())
			c.attempt()
			c.step(samekey.StepOutcome, unknown)
			c.step(samekey.StepRecovered)
			c.cancel()
		}},
		"cut off while it settles": {want: []string{"unknown"}, do: func(t *testing.T, l *lab) {
			c := l.call(t, "key", false)
			c.step(samekey.StepBegin)
			c.attempt()
			c.step(samekey.StepOutcome, rejected)
			c.cancel()
			synctest.Wait()
			c.step(samekey.StepStoreError, unknown)
			c.step(samekey.StepOutcome, unknown)
			require.Equal(t, []string{"samekey.outcome", "samekey.store_error", "samekey.outcome"}, events(l.one(t, "samekey POST")))
		}},
		"a recovery that is cut off": {want: slices.Repeat([]string{"unknown"}, 100), do: func(t *testing.T, l *lab) {
			for range 100 { // what watches the context comes before or after the outcome
				c := l.call(t, "key", true)
				c.attempt()
				c.cancel()
				c.step(samekey.StepOutcome, unknown)
				c.step(samekey.StepRecovered, unknown)
			}
			for _, op := range l.ended("samekey POST") {
				require.Equal(t, []string{"samekey.outcome", "samekey.recovered"}, events(op))
			}
		}},
		"a Resume, whose end is that of its context": {want: []string{"unknown"}, do: func(t *testing.T, l *lab) {
			c := l.call(t, "key", true)
			sent := time.Now()
			time.Sleep(time.Second)
			c.attempt()
			c.step(samekey.StepOutcome, unknown)
			c.step(samekey.StepBodyWritten, func(e *samekey.Event) { e.Time = sent })
			require.Equal(t, 1, l.Open())
			c.cancel()
			synctest.Wait()
			require.Equal(t, time.Now(), l.one(t, "samekey POST").EndTime())
		}},
		"a recovery that only polls": {want: []string{"succeeded"}, do: func(t *testing.T, l *lab) {
			c := l.call(t, "key", true)
			c.step(samekey.StepWait)
			c.renew()
			c.step(samekey.StepPolled)
			done := func(e *samekey.Event) { e.State = samekey.Succeeded }
			c.step(samekey.StepOutcome, done)
			c.step(samekey.StepSettled, done)
			c.step(samekey.StepRecovered, done)
			op := l.one(t, "samekey POST")
			require.Equal(t, []string{"samekey.wait", "samekey.outcome", "samekey.settled", "samekey.recovered"}, events(op))
			require.Equal(t, op.SpanContext().SpanID(), l.one(t, "GET poll").Parent().SpanID())
		}},
		"what the transport tells late": {want: []string{"unknown"}, do: func(t *testing.T, l *lab) {
			c := l.call(t, "key", false)
			late := func(e *samekey.Event) { e.Attempt = 1 }
			for n := 1; n <= 2; n++ {
				c.Attempt = n
				c.step(samekey.StepAttempt)
				c.step(samekey.StepBodyWritten, late)
				c.step(samekey.StepAttemptDone)
			}
			c.step(samekey.StepOutcome, unknown)
			c.step(samekey.StepBodyWritten, late)
			c.step(samekey.StepStoreError, unknown)
			attempts := l.ended(attemptSpan)
			require.Equal(t, []string{"samekey.body_written"}, events(attempts[0]))
			require.Empty(t, events(attempts[1]))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, l *lab) {
				row.do(t, l)
				l.requireNothingLeft(t)
				var got []string
				for _, op := range l.ended("samekey POST") {
					if o := attrs(op.Attributes())["samekey.outcome"]; o != "aborted" {
						got = append(got, o)
					}
				}
				require.Equal(t, row.want, got)
			})
		})
	}
}
