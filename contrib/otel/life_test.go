package otelsamekey_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/codes"

	"github.com/samekey/samekey"
	"github.com/samekey/samekey/mockserver"
	"github.com/samekey/samekey/persist"
)

// TestRecovery: what a call left behind is sent by Recover, under the span of who called that, until its handler has it.
func TestRecovery(t *testing.T) {
	l := newLab(t)
	l.Fault(mockserver.Fault{Do: mockserver.Status(503, false), Times: 4})
	first := l.client(t, nil)
	caller, err := l.do(t, first, "order-1")
	require.ErrorIs(t, err, samekey.ErrUnknown)
	require.NoError(t, first.Close())

	ctx, span := l.tracer.Start(t.Context(), "recoverer")
	span.End() // the SDK lets an ended span have children, and the count of those that are open stays plain
	refused := errors.New("not now")
	handle := func(context.Context, samekey.Operation, *http.Response, error) error { return refused }
	recovery := samekey.Recovery{Jitter: -1, Handle: func(ctx context.Context, op samekey.Operation, resp *http.Response, err error) error {
		return handle(ctx, op, resp, err)
	}}
	second := l.client(t, nil)
	_, err = second.Recover(ctx, recovery)
	require.NoError(t, err)
	l.requireNothingLeft(t)
	require.Equal(t, 1, l.Effects())

	ops := l.ended(opSpan)
	require.Len(t, ops, 2)
	require.Equal(t, caller.SpanID(), ops[0].Parent().SpanID())
	require.Equal(t, span.SpanContext().SpanID(), ops[1].Parent().SpanID())
	a := attrs(ops[1].Attributes())
	require.Equal(t, []string{"succeeded", "network", "true", "5", "1", "201"}, []string{a["samekey.outcome"], a["samekey.source"], a["samekey.recovery"], a["samekey.attempts"], a["samekey.sends"], a["http.response.status_code"]})
	require.Equal(t, []string{"samekey.outcome", "samekey.settled", "samekey.handler", "samekey.handler", "samekey.recovered"}, events(ops[1]))
	attempts := l.ended(attemptSpan)
	require.Equal(t, "4", attrs(attempts[4].Attributes())["http.request.resend_count"])
	require.Equal(t, map[string]int64{"samekey.step=handler": 1}, l.metric(t, "samekey.warnings"))

	refused = nil // the answer is owed: it is handed over, and nothing is sent
	_, err = second.Recover(ctx, recovery)
	require.NoError(t, err)
	l.requireNothingLeft(t)
	ops = l.ended(opSpan)
	require.Len(t, ops, 3)
	require.Equal(t, "local", attrs(ops[2].Attributes())["samekey.source"])
	require.Len(t, l.Requests(), 5)
	require.Equal(t, map[string]int64{
		"error.type=503,http.response.status_code=503,samekey.outcome=unknown,samekey.recovery=false,samekey.source=network": 1,
		"http.response.status_code=201,samekey.outcome=succeeded,samekey.recovery=true,samekey.source=network":               1,
		"http.response.status_code=201,samekey.outcome=succeeded,samekey.recovery=true,samekey.source=local":                 1,
	}, l.metric(t, "samekey.operation.duration"))
	require.EqualValues(t, 1, l.metric(t, "samekey.attempt.duration")["http.response.status_code=201,samekey.recovery=true,samekey.retry=true"])
}

// TestRecoveryIsStopped: while a handler takes its time, the operation is still one.
func TestRecoveryIsStopped(t *testing.T) {
	l := newLab(t)
	l.Fault(once(status(503)))
	c := l.client(t, func(_ *samekey.Config, p *samekey.Policy) { p.MaxAttempts = 1 })
	_, err := l.do(t, c, "order-1")
	require.ErrorIs(t, err, samekey.ErrUnknown)
	ctx, cancel := context.WithCancel(t.Context())
	_, err = c.Recover(ctx, samekey.Recovery{Jitter: -1, Handle: func(ctx context.Context, _ samekey.Operation, _ *http.Response, _ error) error {
		cancel()
		<-ctx.Done()
		time.Sleep(10 * time.Millisecond)
		return ctx.Err()
	}})
	require.ErrorIs(t, err, context.Canceled)
	within(t, func() bool { return l.Open() == 0 })
	within(t, func() bool { return l.metric(t, "samekey.operation.active")[""] == 0 })
	l.requireNothingLeft(t)
	require.Len(t, l.ended(opSpan), 2)
	require.Equal(t, "succeeded", attrs(l.ended(opSpan)[1].Attributes())["samekey.outcome"])
	require.Equal(t, map[string]int64{"samekey.step=handler": 1}, l.metric(t, "samekey.warnings"))
}

// TestReconciled: of several outcomes in one recovery the last one counts.
func TestReconciled(t *testing.T) {
	l := newLab(t)
	l.Fault(mockserver.Fault{Do: mockserver.Status(503, false)})
	c := l.client(t, func(_ *samekey.Config, p *samekey.Policy) { p.MaxAttempts = 1 })
	_, err := l.do(t, c, "order-1")
	require.ErrorIs(t, err, samekey.ErrUnknown)
	_, err = c.Recover(t.Context(), samekey.Recovery{Jitter: -1, ParkAfter: 1, Reconcile: func(context.Context, samekey.Operation, samekey.Why) (samekey.Verdict, error) {
		return samekey.Happened, nil
	}})
	require.NoError(t, err)
	l.requireNothingLeft(t)
	ops := l.ended(opSpan)
	require.Len(t, ops, 2)
	require.Equal(t, "succeeded", attrs(ops[1].Attributes())["samekey.outcome"])
	require.Equal(t, []string{"samekey.outcome", "samekey.outcome", "samekey.settled", "samekey.recovered"}, events(ops[1]))
	total := int64(0)
	for _, n := range l.metric(t, "samekey.operation.duration") {
		total += n
	}
	require.EqualValues(t, 2, total)
}

// TestResume: its span ends with its context, which is right after the call.
func TestResume(t *testing.T) {
	for fault, want := range map[int]string{201: "succeeded", 503: "unknown", 409: "conflicted"} {
		l := newLab(t)
		l.Fault(mockserver.Fault{Do: mockserver.Status(503, false), Times: 1}, mockserver.Fault{Do: mockserver.Status(fault, false)})
		if fault == 201 {
			l.ClearFaults()
			l.Fault(mockserver.Fault{Do: mockserver.Status(503, false), Times: 1})
		}
		c := l.client(t, func(_ *samekey.Config, p *samekey.Policy) { p.MaxAttempts = 1 })
		_, err := l.do(t, c, "order-1")
		require.ErrorIs(t, err, samekey.ErrUnknown)
		if resp, err := c.Resume(t.Context(), samekey.Ref{ID: "order-1"}); err == nil {
			read(t, resp)
		}
		within(t, func() bool { return l.Open() == 0 && len(l.ended(opSpan)) == 2 })
		within(t, func() bool { return l.metric(t, "samekey.operation.active")[""] == 0 })
		l.requireNothingLeft(t)
		a := attrs(l.ended(opSpan)[1].Attributes())
		require.Equal(t, []string{want, "true"}, []string{a["samekey.outcome"], a["samekey.recovery"]})
	}
}

// TestPolls: an accepted command is asked about within its span.
func TestPolls(t *testing.T) {
	l := newLab(t)
	l.Fault(mockserver.Fault{Match: "POST /", Do: mockserver.Status(202, false).With("Location", "/v1/operations/7").Body("{}")},
		mockserver.Fault{Match: "GET /", Do: mockserver.Status(202, false), Times: 1}, mockserver.Fault{Match: "GET /", Do: mockserver.Status(200, false).Body("{}")})
	c := l.client(t, func(_ *samekey.Config, p *samekey.Policy) {
		p.Await = samekey.On
		contract := samekey.DefaultContract
		contract.Poll.Interval = time.Millisecond
		p.Contract = &contract
	})
	_, err := l.do(t, c, "order-1")
	require.NoError(t, err)
	l.requireNothingLeft(t)
	op, polls := l.one(t, opSpan), l.ended("GET poll")
	require.Len(t, polls, 2)
	require.Equal(t, op.SpanContext().SpanID(), polls[1].Parent().SpanID())
	require.Equal(t, map[string]string{"http.request.method": "GET", "http.response.status_code": "200"}, attrs(polls[1].Attributes()))
	require.Equal(t, "succeeded", attrs(op.Attributes())["samekey.outcome"])
	require.Equal(t, map[string]int64{"http.response.status_code=202": 1, "http.response.status_code=200": 1}, l.metric(t, "samekey.poll.duration"))
	require.Contains(t, l.Requests()[1].Header.Get("Traceparent"), op.SpanContext().SpanID().String())
}

// TestResolve: a success that Policy.Resolve finds behind a conflict is told beside it.
func TestResolve(t *testing.T) {
	l := newLab(t)
	l.Fault(status(409))
	c := l.client(t, func(_ *samekey.Config, p *samekey.Policy) {
		p.Resolve = func(context.Context, *samekey.ConflictError) (*http.Response, error) {
			return &http.Response{StatusCode: 200, Body: http.NoBody}, nil
		}
	})
	_, err := l.do(t, c, "order-1")
	require.NoError(t, err)
	l.requireNothingLeft(t)
	ops := l.ended(opSpan)
	require.Len(t, ops, 2)
	require.Equal(t, []string{"conflicted", "succeeded"}, []string{attrs(ops[0].Attributes())["samekey.outcome"], attrs(ops[1].Attributes())["samekey.outcome"]})
}

// TestJoined: callers that share an answer are one operation, in the trace of the first.
func TestJoined(t *testing.T) {
	l := newLab(t)
	l.Fault(mockserver.Fault{Do: mockserver.Delay(200 * time.Millisecond)})
	c := l.client(t, nil)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			_, err := l.do(t, c, "order-1")
			require.NoError(t, err)
		})
	}
	wg.Wait()
	l.requireNothingLeft(t)
	l.AssertOnce(t)
	sent := 0
	for _, op := range l.ended(opSpan) {
		if attrs(op.Attributes())["samekey.source"] != "local" {
			sent++
		}
	}
	require.Equal(t, 1, sent)
	require.Len(t, l.ended(attemptSpan), 1)
}

// TestOwnName: a call that ends before it has begun, under the name of one that is under way, is a span of its own.
func TestOwnName(t *testing.T) {
	l := newLab(t)
	l.Fault(once(status(503)))
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	var c *samekey.Client
	var meanwhile atomic.Int32
	c = l.client(t, func(cfg *samekey.Config, _ *samekey.Policy) {
		cfg.Prepare = func(ctx context.Context, req *http.Request) error {
			_, err := c.Do(l.request(t, gone, "order-1"))
			require.ErrorIs(t, err, samekey.ErrNotSent)
			meanwhile.Add(1)
			return l.Inject(ctx, req)
		}
	})
	_, err := l.do(t, c, "order-1")
	require.NoError(t, err)
	l.requireNothingLeft(t)
	require.EqualValues(t, 2, meanwhile.Load())
	ops := l.ended(opSpan)
	require.Len(t, ops, 3)
	require.Equal(t, []string{"not_sent", "not_sent", "succeeded"}, []string{attrs(ops[0].Attributes())["samekey.outcome"],
		attrs(ops[1].Attributes())["samekey.outcome"], attrs(ops[2].Attributes())["samekey.outcome"]})
	for i, a := range l.ended(attemptSpan) {
		require.Equal(t, ops[2].SpanContext().SpanID(), a.Parent().SpanID())
		require.Contains(t, l.Requests()[i].Header.Get("Traceparent"), a.SpanContext().SpanID().String())
	}
}

// TestStreamed: a body that is still read keeps nothing.
func TestStreamed(t *testing.T) {
	for _, name := range []string{"order-1", ""} {
		l := newLab(t)
		l.Fault(mockserver.Fault{Do: mockserver.Status(200, false).Body(strings.Repeat("x", 10_000))})
		c := l.client(t, func(_ *samekey.Config, p *samekey.Policy) { p.MaxResponse = 100 })
		resp, err := c.Do(l.request(t, t.Context(), name))
		require.NoError(t, err)
		l.requireNothingLeft(t)
		read(t, resp)
		require.NoError(t, c.Close())
		l.requireNothingLeft(t)
		require.Len(t, l.ended(opSpan), 1)
	}
}

// TestTraceparentOfTheCaller: the header is not stored, and Inject supplies it after a restart.
func TestTraceparentOfTheCaller(t *testing.T) {
	l := newLab(t)
	l.Fault(once(status(503)))
	first := l.client(t, func(_ *samekey.Config, p *samekey.Policy) { p.MaxAttempts = 1 })
	req := l.request(t, t.Context(), "order-1")
	req.Header.Set("Traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
	_, err := first.Do(req)
	require.ErrorIs(t, err, samekey.ErrUnknown)
	require.NoError(t, first.Close())
	report, err := l.client(t, nil).Recover(t.Context(), samekey.Recovery{Jitter: -1})
	require.NoError(t, err)
	require.Equal(t, samekey.Report{Succeeded: 1}, report)
	for i, a := range l.ended(attemptSpan) {
		require.Contains(t, l.Requests()[i].Header.Get("Traceparent"), a.SpanContext().SpanID().String())
	}
}

// TestRekeyed: the first key of an operation without a name stays its ID, and is shortened as a key.
func TestRekeyed(t *testing.T) {
	l := newLab(t)
	l.Fault(once(status(503)))
	c := l.client(t, func(_ *samekey.Config, p *samekey.Policy) { p.MaxAttempts = 1 })
	_, err := l.do(t, c, "")
	require.ErrorIs(t, err, samekey.ErrUnknown)
	old := l.Requests()[0].Key
	_, err = c.Rekey(t.Context(), samekey.Ref{ID: old})
	require.NoError(t, err)
	report, err := c.Recover(t.Context(), samekey.Recovery{Jitter: -1})
	require.NoError(t, err)
	require.Equal(t, 1, report.Succeeded)
	ops := l.ended(opSpan)
	require.Len(t, ops, 2)
	require.Equal(t, old[:8]+"…"+old[32:], attrs(ops[1].Attributes())["samekey.operation.id"])
	require.NotEqual(t, attrs(ops[0].Attributes())["samekey.key"], attrs(ops[1].Attributes())["samekey.key"])
}

// TestPanics: a hook that panics leaves no outcome, and no state once its call cannot go on any more.
func TestPanics(t *testing.T) {
	inBubble(t, func(t *testing.T, l *lab) {
		c := l.client(t, func(cfg *samekey.Config, _ *samekey.Policy) {
			cfg.Prepare = func(context.Context, *http.Request) error { panic("a bug") }
		})
		for i := range 10 {
			require.PanicsWithValue(t, "a bug", func() { _, _ = c.Do(l.request(t, t.Context(), fmt.Sprint("order-", i%9))) })
		}
		_, err := c.Recover(t.Context(), samekey.Recovery{Jitter: -1})
		require.NoError(t, err)
		require.NotZero(t, l.Open())
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		l.requireNothingLeft(t)
		require.Len(t, l.ended(opSpan), 19)
		for _, op := range l.ended(opSpan) {
			require.Equal(t, "aborted", attrs(op.Attributes())["samekey.outcome"])
			require.Equal(t, codes.Error, op.Status().Code)
			require.Less(t, op.EndTime().Sub(op.StartTime()), time.Second, "it ended with its last step")
		}
		require.Equal(t, map[string]int64{"samekey.outcome=aborted,samekey.recovery=false": 10, "samekey.outcome=aborted,samekey.recovery=true": 9}, l.metric(t, "samekey.operation.duration"))
	})
}

// TestSlowStore: a call between two attempts has no context of its own until the store has answered.
func TestSlowStore(t *testing.T) {
	inBubble(t, func(t *testing.T, l *lab) {
		l.Fault(mockserver.Fault{Do: mockserver.Stall(time.Hour), Times: 2})
		c := l.client(t, func(cfg *samekey.Config, p *samekey.Policy) {
			cfg.Store = slow{l.store}
			p.AttemptTimeout, p.Deadline = 5*time.Second, 10*time.Minute
			p.Backoff = samekey.Backoff{Min: 90 * time.Second, Max: 90 * time.Second}
		})
		_, err := l.do(t, c, "order-1")
		require.NoError(t, err)
		l.requireNothingLeft(t)
		require.Len(t, l.ended(attemptSpan), 3)
		for _, a := range l.ended(attemptSpan) {
			require.Equal(t, l.one(t, opSpan).SpanContext().SpanID(), a.Parent().SpanID())
		}
		require.Greater(t, l.one(t, opSpan).EndTime().Sub(l.one(t, opSpan).StartTime()), 4*time.Minute)
	})
}

type slow struct{ persist.Store }

func (s slow) Mark(ctx context.Context, c persist.Claim, p persist.Progress) error {
	time.Sleep(50 * time.Second)
	return s.Store.Mark(ctx, c, p)
}

// TestNothingIsLeft: many operations at once, of every kind of ending, two clients and a recovery among them.
func TestNothingIsLeft(t *testing.T) {
	l := newLab(t)
	for i, f := range []mockserver.Action{mockserver.Status(503, false), mockserver.Status(409, false), mockserver.Status(400, false), mockserver.Drop, mockserver.Reset} {
		l.Fault(mockserver.Fault{Do: f, Share: .1, When: mockserver.Phase(i % 2)})
	}
	quick := func(_ *samekey.Config, p *samekey.Policy) { p.MaxAttempts = 2 }
	clients := []*samekey.Client{l.client(t, quick), l.client(t, quick), l.client(t, func(cfg *samekey.Config, p *samekey.Policy) {
		quick(cfg, p)
		p.Persist = samekey.PersistNone
	})}
	ctx, cancel := context.WithCancel(t.Context())
	var recovering, wg sync.WaitGroup
	recovering.Go(func() {
		_ = clients[0].KeepRecovering(ctx, samekey.Recovery{Interval: time.Millisecond, Jitter: -1, ParkAfter: 1000})
	})
	var calls atomic.Int64
	for g := range 16 {
		wg.Go(func() {
			for i := range 60 {
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(g*i%7)*time.Millisecond)
				if i%3 > 0 {
					cancel()
					ctx, cancel = context.WithCancel(t.Context())
				}
				name := fmt.Sprint("order-", i%20) // shared by all
				if i%4 == 0 {
					name = ""
				}
				calls.Add(1)
				if resp, err := clients[(g+i)%3].Do(l.request(t, ctx, name)); err == nil {
					_ = resp.Body.Close()
				}
				cancel()
			}
		})
	}
	wg.Wait()
	cancel()
	recovering.Wait()
	for _, c := range clients {
		require.NoError(t, c.Close())
	}
	within(t, func() bool { return l.Open() == 0 }) // a recovery that was cancelled has no last step
	within(t, func() bool { return l.metric(t, "samekey.operation.active")[""] == 0 })
	l.requireNothingLeft(t)
	l.requireMetricAttributes(t)
	var counted, aborted int64
	for series, n := range l.metric(t, "samekey.operation.duration") {
		counted += n
		if strings.Contains(series, "aborted") {
			aborted += n
		}
	}
	require.EqualValues(t, len(l.ended(opSpan)), counted)
	require.Zero(t, aborted)
	t.Logf("%d calls, %d operations, %d attempts", calls.Load(), counted, len(l.ended(attemptSpan)))
	var attempts int64
	for _, n := range l.metric(t, "samekey.attempt.duration") {
		attempts += n
	}
	require.EqualValues(t, len(l.ended(attemptSpan)), attempts)
	ends := map[string]int{}
	for _, op := range l.ended(opSpan) {
		ends[op.SpanContext().SpanID().String()] = int(op.EndTime().UnixNano())
	}
	for _, a := range l.ended(attemptSpan) { // none outlives its operation, or is ended by another call's outcome
		require.LessOrEqual(t, int(a.EndTime().UnixNano()), ends[a.Parent().SpanID().String()], "%v", attrs(a.Attributes()))
		require.Contains(t, attrs(a.Attributes()), "samekey.sends")
	}
}
