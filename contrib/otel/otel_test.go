package otelsamekey_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/trace"

	"github.com/samekey/samekey"
	"github.com/samekey/samekey/mockserver"
	"github.com/samekey/samekey/persist"
)

var errDisk = &persist.Error{Store: "test", Method: "Settle", Err: syscall.EIO}

func status(code int) mockserver.Fault {
	return mockserver.Fault{Do: mockserver.Status(code, false)}
}

func once(f mockserver.Fault) mockserver.Fault {
	f.Times = 1
	return f
}

// TestSuccess: one call, in full.
func TestSuccess(t *testing.T) {
	l := newLab(t)
	c := l.client(t, func(cfg *samekey.Config, _ *samekey.Policy) { cfg.Scope = "shop" })
	caller, err := l.do(t, c, "order-1")
	require.NoError(t, err)
	l.requireNothingLeft(t)

	op, attempt := l.one(t, opSpan), l.one(t, attemptSpan)
	require.Equal(t, caller.SpanID(), op.Parent().SpanID())
	require.Equal(t, caller.TraceID(), op.SpanContext().TraceID())
	require.Equal(t, op.SpanContext().SpanID(), attempt.Parent().SpanID())
	require.Equal(t, trace.SpanKindInternal, op.SpanKind())
	require.Equal(t, trace.SpanKindClient, attempt.SpanKind())
	require.Equal(t, codes.Unset, op.Status().Code)
	key := l.Requests()[0].Key
	require.Equal(t, map[string]string{
		"http.request.method": "POST", "http.response.status_code": "201", "samekey.outcome": "succeeded", "samekey.source": "network",
		"samekey.endpoint": "POST /v1/payments", "samekey.operation.id": "order-1", "samekey.scope": "shop", "samekey.key": key[:8] + "…" + key[32:],
		"samekey.attempts": "1", "samekey.sends": "1", "samekey.durable": "true", "samekey.recovery": "false",
	}, attrs(op.Attributes()))
	require.Equal(t, map[string]string{"http.request.method": "POST", "http.response.status_code": "201", "samekey.sends": "1"}, attrs(attempt.Attributes()))
	require.Equal(t, []string{"samekey.begun", "samekey.outcome", "samekey.settled"}, events(op))
	require.Equal(t, "succeeded", event(t, op, "samekey.settled")["samekey.state"])
	require.Equal(t, "false", event(t, attempt, "samekey.connected")["samekey.connection.reused"])
	require.Subset(t, events(attempt), []string{"samekey.header_written", "samekey.first_byte"})
	require.False(t, attempt.StartTime().Before(op.StartTime()))
	require.False(t, op.EndTime().Before(attempt.EndTime()))
	require.False(t, op.EndTime().Before(op.Events()[2].Time))

	require.Equal(t, map[string]int64{"http.response.status_code=201,samekey.outcome=succeeded,samekey.recovery=false,samekey.source=network": 1}, l.metric(t, "samekey.operation.duration"))
	require.Equal(t, map[string]int64{"http.response.status_code=201,samekey.recovery=false,samekey.retry=false": 1}, l.metric(t, "samekey.attempt.duration"))
	require.Equal(t, map[string]int64{"samekey.store.method=Begin": 1, "samekey.store.method=Settle": 1}, l.metric(t, "samekey.store.duration"))
	for _, none := range []string{"samekey.wait.duration", "samekey.store.errors", "samekey.warnings", "samekey.poll.duration"} {
		require.Empty(t, l.metric(t, none), none)
	}
	for _, m := range l.collect(t) { // a duration is in seconds, and one of this call's
		if h, is := m.Data.(metricdata.Histogram[float64]); is {
			require.Equal(t, "s", m.Unit)
			require.Equal(t, 120.0, h.DataPoints[0].Bounds[16])
			require.Less(t, h.DataPoints[0].Sum, op.EndTime().Sub(op.StartTime()).Seconds()+.1)
		}
	}
}

// TestRetry: what the server sees of each attempt hangs below its span.
func TestRetry(t *testing.T) {
	l := newLab(t)
	l.Fault(once(status(503)), once(mockserver.Fault{When: mockserver.AfterCommit, Do: mockserver.Drop}))
	_, err := l.do(t, l.client(t, func(_ *samekey.Config, p *samekey.Policy) {
		p.Backoff = samekey.Backoff{Min: time.Millisecond, Max: time.Millisecond}
	}), "order-1")
	require.NoError(t, err)
	l.requireNothingLeft(t)
	l.AssertOnce(t)

	op, attempts, requests := l.one(t, opSpan), l.ended(attemptSpan), l.Requests()
	require.Len(t, attempts, 3)
	for i, a := range attempts {
		require.Equal(t, op.SpanContext().SpanID(), a.Parent().SpanID())
		require.Equal(t, fmt.Sprintf("00-%s-%s-01", op.SpanContext().TraceID(), a.SpanContext().SpanID()), requests[i].Header.Get("Traceparent"))
	}
	require.Equal(t, map[string]string{"http.request.method": "POST", "http.response.status_code": "503", "error.type": "503", "samekey.sends": "1"}, attrs(attempts[0].Attributes()))
	require.Equal(t, map[string]string{"http.request.method": "POST", "http.request.resend_count": "1", "error.type": "eof", "samekey.sends": "1"}, attrs(attempts[1].Attributes()))
	require.Equal(t, map[string]string{"http.request.method": "POST", "http.request.resend_count": "2", "http.response.status_code": "201", "samekey.sends": "1"}, attrs(attempts[2].Attributes()))
	require.Equal(t, []codes.Code{codes.Error, codes.Error, codes.Unset}, []codes.Code{attempts[0].Status().Code, attempts[1].Status().Code, attempts[2].Status().Code})
	require.Equal(t, []string{"samekey.begun", "samekey.wait", "samekey.wait", "samekey.outcome", "samekey.settled"}, events(op))
	require.Equal(t, "0.001", event(t, op, "samekey.wait")["samekey.wait"])
	require.Equal(t, "replay", attrs(op.Attributes())["samekey.source"])
	require.Equal(t, "3", attrs(op.Attributes())["samekey.attempts"])

	require.Equal(t, map[string]int64{
		"error.type=503,http.response.status_code=503,samekey.recovery=false,samekey.retry=false": 1,
		"error.type=eof,samekey.recovery=false,samekey.retry=true":                                1,
		"http.response.status_code=201,samekey.recovery=false,samekey.retry=true":                 1,
	}, l.metric(t, "samekey.attempt.duration"))
	require.Equal(t, map[string]int64{"": 2}, l.metric(t, "samekey.wait.duration"))
}

// TestEndings: whatever becomes of a call, it is one span and one in the metric, at once.
func TestEndings(t *testing.T) {
	closed, cancel := context.WithCancel(t.Context())
	cancel()
	leaving, leave := context.WithCancel(t.Context())
	leaving2, leave2 := context.WithCancel(t.Context())
	type row struct {
		faults []mockserver.Fault
		name   string // of the operation; empty: none
		store  failing
		change func(*samekey.Config, *samekey.Policy)
		before func(t *testing.T, l *lab, c *samekey.Client)
		ctx    context.Context
		want   string // outcome, source, error.type
		fails  error
	}
	none := func(_ *samekey.Config, p *samekey.Policy) { p.Persist = samekey.PersistNone }
	first := func(t *testing.T, l *lab, c *samekey.Client) { _, _ = l.do(t, c, "op") }
	for name, r := range map[string]row{
		"anonymous":            {want: "succeeded network"},
		"adopted key":          {want: "succeeded network", name: "key:0123456789abcdef"},
		"nothing kept":         {change: none, want: "succeeded network"},
		"nothing kept, named":  {name: "op", change: none, want: "succeeded network"},
		"rejected":             {name: "op", faults: []mockserver.Fault{status(400)}, want: "rejected network"},
		"turned away":          {name: "op", faults: []mockserver.Fault{status(401)}, want: "rejected network"},
		"conflict":             {name: "op", faults: []mockserver.Fault{status(409)}, want: "conflicted network 409", fails: samekey.ErrConflict},
		"anonymous conflict":   {faults: []mockserver.Fault{status(409)}, want: "conflicted network 409", fails: samekey.ErrConflict},
		"conflict, none kept":  {name: "op", faults: []mockserver.Fault{status(409)}, change: none, want: "conflicted network 409", fails: samekey.ErrConflict},
		"unknown":              {name: "op", faults: []mockserver.Fault{status(503)}, want: "unknown network 503", fails: samekey.ErrUnknown},
		"unknown, a lost line": {name: "op", faults: []mockserver.Fault{{Do: mockserver.Drop}}, want: "unknown network eof", fails: samekey.ErrUnknown},
		"unknown, a timeout": {name: "op", faults: []mockserver.Fault{{Do: mockserver.Stall(time.Minute)}}, want: "unknown network timeout", fails: samekey.ErrUnknown,
			change: func(_ *samekey.Config, p *samekey.Policy) {
				p.AttemptTimeout, p.MaxAttempts = 50*time.Millisecond, 2
			}},
		"processing": {name: "op", faults: []mockserver.Fault{status(202)}, want: "processing network"},
		"not reached": {name: "op", want: "not_sent network connect", fails: samekey.ErrNotSent, change: func(cfg *samekey.Config, _ *samekey.Policy) {
			// A closed port may be another's by then.
			cfg.HTTPClient = &http.Client{Transport: &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
				return nil, &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
			}}}
		}},
		"not sent: Prepare": {name: "op", want: "not_sent network _OTHER", fails: samekey.ErrNotSent, change: func(cfg *samekey.Config, p *samekey.Policy) {
			cfg.Prepare = func(context.Context, *http.Request) error { return errors.New("no token") }
			p.MaxAttempts = 1
		}},
		"begin fails":                  {name: "op", store: failing{begin: errDisk}, want: "store local store", fails: samekey.ErrStore},
		"settle fails, a success":      {name: "op", store: failing{settle: errDisk}, want: "succeeded network"},
		"settle fails, an anonymous":   {store: failing{settle: errDisk}, want: "succeeded network"},
		"settle fails, a conflict":     {name: "op", store: failing{settle: errDisk}, faults: []mockserver.Fault{status(409)}, want: "conflicted network 409", fails: samekey.ErrConflict},
		"settle fails, a rejection":    {name: "op", store: failing{settle: errDisk}, faults: []mockserver.Fault{status(400)}, want: "unknown network store", fails: samekey.ErrUnknown},
		"known":                        {name: "op", before: first, want: "succeeded local"},
		"known conflict":               {name: "op", before: first, faults: []mockserver.Fault{status(409)}, want: "conflicted local 409", fails: samekey.ErrConflict},
		"unwritten conflict, again":    {name: "op", before: first, store: failing{settle: errDisk}, faults: []mockserver.Fault{status(409)}, want: "conflicted local 409", fails: samekey.ErrConflict},
		"goes on with a pending one":   {name: "op", before: first, faults: []mockserver.Fault{{Do: mockserver.Status(503, false), Times: 4}}, want: "succeeded network"},
		"another payload":              {name: "op", before: mismatch, want: "mismatch local mismatch", fails: samekey.ErrMismatch},
		"left as it begins":            {ctx: leaving, store: failing{begun: leave}, want: "not_sent local canceled", fails: samekey.ErrNotSent},
		"left, and settle fails":       {ctx: leaving2, store: failing{begun: leave2, settle: errDisk}, want: "unknown local canceled", fails: samekey.ErrUnknown},
		"the caller has left":          {name: "op", ctx: closed, want: "not_sent local canceled", fails: samekey.ErrNotSent},
		"the caller has left, unnamed": {ctx: closed, want: "not_sent local canceled", fails: samekey.ErrNotSent},
		"closed": {name: "op", want: "not_sent local closed", fails: samekey.ErrClosed, before: func(t *testing.T, _ *lab, c *samekey.Client) {
			require.NoError(t, c.Close())
		}},
		"busy": {name: "op", want: "busy local busy", fails: samekey.ErrBusy, before: func(t *testing.T, l *lab, _ *samekey.Client) {
			e, err := l.store.Begin(t.Context(), persist.Record{Ref: persist.Ref{ID: "op"}, Created: time.Now(), Key: "k", Method: "POST", Target: l.URL, Body: []byte{}})
			require.NoError(t, err)
			t.Cleanup(func() { _ = l.store.Release(context.Background(), e.Claim) })
		}},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t)
			l.Fault(r.faults...)
			c := l.client(t, func(cfg *samekey.Config, p *samekey.Policy) {
				r.store.Store = l.store
				cfg.Store = &r.store
				if r.change != nil {
					r.change(cfg, p)
				}
			})
			if r.before != nil {
				r.before(t, l, c)
				l.requireNothingLeft(t)
			}
			earlier := l.ended(opSpan)
			counted := l.metric(t, "samekey.operation.duration")
			ctx := r.ctx
			if ctx == nil {
				ctx = t.Context()
			}
			op, key, _ := strings.Cut(r.name, ":")
			if key != "" {
				op = ""
			}
			req := l.request(t, ctx, op)
			if key != "" {
				req.Header.Set("Idempotency-Key", key)
			}
			resp, err := c.Do(req)
			l.requireNothingLeft(t) // before a body is read
			require.ErrorIs(t, err, r.fails)
			if err == nil {
				read(t, resp)
			}
			l.requireNothingLeft(t)

			now := l.ended(opSpan)
			require.Len(t, now, len(earlier)+1)
			span := now[len(earlier)]
			a := attrs(span.Attributes())
			got := strings.TrimSpace(a["samekey.outcome"] + " " + a["samekey.source"] + " " + a["error.type"])
			require.Equal(t, r.want, got)
			require.Equal(t, err != nil, span.Status().Code == codes.Error)
			require.Equal(t, fmt.Sprint(r.change == nil || !strings.Contains(name, "kept")), a["samekey.durable"])
			added := int64(0)
			for series, n := range l.metric(t, "samekey.operation.duration") {
				if n -= counted[series]; n > 0 {
					added += n
					require.Contains(t, series, "samekey.outcome="+a["samekey.outcome"])
				}
			}
			require.EqualValues(t, 1, added)
			outcomes := 1
			if r.store.settle != nil && a["samekey.outcome"] == "unknown" { // first it was said to be without effect
				outcomes = 2
			}
			require.Len(t, slices.DeleteFunc(events(span), func(e string) bool { return e != "samekey.outcome" }), outcomes)
			if name == "left as it begins" {
				require.Equal(t, []string{"samekey.begun", "samekey.outcome", "samekey.settled"}, events(span))
			}
		})
	}
}

// mismatch makes "op" known with another payload.
func mismatch(t *testing.T, l *lab, c *samekey.Client) {
	req := l.request(t, t.Context(), "op")
	req.URL.RawQuery = "page=2"
	resp, err := c.Do(req)
	require.NoError(t, err)
	read(t, resp)
}

// TestStoreErrors: which of the store's methods failed is counted; whose operation it was is not.
func TestStoreErrors(t *testing.T) {
	l := newLab(t)
	store := &failing{Store: l.store, begin: &persist.Error{Store: "test", Method: "Begin", Err: syscall.ENOSPC}}
	c := l.client(t, func(cfg *samekey.Config, _ *samekey.Policy) { cfg.Store = store })
	_, err := l.do(t, c, "order-1")
	require.ErrorIs(t, err, samekey.ErrStore)
	require.Empty(t, l.Requests())
	require.Empty(t, l.ended(attemptSpan))
	require.Equal(t, "no space left on device", last(event(t, l.one(t, opSpan), "samekey.store_error")["exception.message"]))
	store.begin, store.settle = nil, errDisk
	_, err = l.do(t, c, "order-1")
	require.NoError(t, err)
	require.Equal(t, map[string]int64{"error.type=store,samekey.store.method=Begin": 1, "error.type=store,samekey.store.method=Settle": 1}, l.metric(t, "samekey.store.errors"))
	require.Equal(t, map[string]int64{"samekey.store.method=Begin": 1}, l.metric(t, "samekey.store.duration"), "what failed has no duration")
	l.requireNothingLeft(t)
}

func last(text string) string {
	parts := strings.Split(text, ": ")
	return parts[len(parts)-1]
}

// TestSecretsStayOut: not in a span, an event, a status or a metric, whatever the ending; and metrics have no IDs.
func TestSecretsStayOut(t *testing.T) {
	quoting := func(r *http.Request) (*http.Response, error) {
		return nil, fmt.Errorf("cannot send %s %s with %v", r.Method, r.URL, r.Header)
	}
	for name, rt := range map[string]http.RoundTripper{"mock": nil, "quoting": roundTripper(quoting)} {
		for _, fault := range []mockserver.Fault{status(201), status(503), status(409), status(400), {Do: mockserver.Drop}} {
			l := newLab(t)
			l.Fault(fault)
			c := l.client(t, func(cfg *samekey.Config, p *samekey.Policy) {
				cfg.HTTPClient, p.SecretQuery = &http.Client{Transport: rt}, []string{"secret"}
			})
			for _, op := range []string{"order-1", "", ""} {
				req := l.request(t, t.Context(), op)
				req.Header.Set("Authorization", "Bearer BEARERSECRET")
				if op == "" {
					req.Header.Set("Idempotency-Key", "adopted-key-of-33-characters-0001")
				}
				if resp, err := c.Do(req); err == nil {
					read(t, resp)
				}
			}
			keys := []string{"adopted-key-of-33-characters-0001"}
			for rec, err := range l.store.List(t.Context(), persist.Filter{}) {
				require.NoError(t, err)
				keys = append(keys, rec.Key)
			}
			for _, r := range l.Requests() {
				keys = append(keys, r.Key)
			}
			var all []string
			for _, s := range l.spans.Ended() {
				all = append(all, fmt.Sprint(s.Name(), s.Attributes(), s.Status(), s.Events()))
			}
			require.NotEmpty(t, all)
			for _, m := range l.collect(t) {
				all = append(all, fmt.Sprintf("%+v", m))
			}
			text := strings.Join(all, "\n")
			for _, secret := range append(keys, "hunter2", "BEARERSECRET", "4111111111111111", "secret=") {
				require.NotContains(t, text, secret, name)
			}
			l.requireMetricAttributes(t)
		}
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// requireMetricAttributes: none but those that have few values.
func (l *lab) requireMetricAttributes(t *testing.T) {
	t.Helper()
	few := []string{"http.request.method", "samekey.endpoint", "http.response.status_code", "error.type", "samekey.outcome", "samekey.source",
		"samekey.recovery", "samekey.retry", "samekey.store.method", "samekey.step"}
	for _, m := range l.collect(t) {
		switch d := m.Data.(type) {
		case metricdata.Histogram[float64]:
			for _, p := range d.DataPoints {
				require.Subset(t, few, slices.Collect(maps.Keys(attrs(p.Attributes.ToSlice()))), m.Name)
			}
		case metricdata.Sum[int64]:
			for _, p := range d.DataPoints {
				require.Subset(t, few, slices.Collect(maps.Keys(attrs(p.Attributes.ToSlice()))), m.Name)
			}
		}
	}
}

// TestMethods: one that the conventions do not know makes no series of its own.
func TestMethods(t *testing.T) {
	l := newLab(t)
	on := samekey.Policy{Command: samekey.On, MaxAttempts: 1}
	c, err := samekey.New(samekey.Config{Store: l.store, Observer: l.Observe, Default: on})
	require.NoError(t, err)
	defer c.Close()
	for _, method := range []string{"MINT", "BREW"} {
		req, err := http.NewRequestWithContext(t.Context(), method, l.URL+"/v1/payments", nil)
		require.NoError(t, err)
		if resp, err := c.Do(req); err == nil {
			read(t, resp)
		}
		a := attrs(l.one(t, "samekey "+method).Attributes())
		require.Equal(t, method, a["http.request.method_original"])
		require.Equal(t, "_OTHER", a["http.request.method"])
		require.NotContains(t, a, "samekey.endpoint")
	}
	l.requireMetricAttributes(t)
	for _, m := range l.collect(t) {
		require.NotContains(t, fmt.Sprintf("%+v", m), "MINT")
	}
	l.requireNothingLeft(t)
}
