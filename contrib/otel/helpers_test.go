package otelsamekey_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/samekey/samekey"
	otelsamekey "github.com/samekey/samekey/contrib/otel"
	"github.com/samekey/samekey/mockserver"
	"github.com/samekey/samekey/persist"
	"github.com/samekey/samekey/persist/memory"
)

const payment = `{"amount":100,"currency":"RUB","orderRef":"order-1","card":"4111111111111111"}`

// lab is a server, a store, and what was exported of the clients between them.
type lab struct {
	*mockserver.Engine
	URL string
	srv *mockserver.Server // nil in a bubble
	rt  http.RoundTripper
	*otelsamekey.Observer
	store  persist.Store
	spans  *tracetest.SpanRecorder
	tracer trace.Tracer
	reader *metric.ManualReader
}

func newLab(t *testing.T) *lab {
	t.Helper()
	srv := mockserver.NewServer(mockserver.Config{})
	t.Cleanup(srv.Close)
	return observed(t, &lab{Engine: srv.Engine, URL: srv.URL, srv: srv})
}

// inBubble has a lab in memory, for testing/synctest: there time costs nothing and is exact.
func inBubble(t *testing.T, f func(t *testing.T, l *lab)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		engine := mockserver.New(mockserver.Config{})
		t.Cleanup(engine.Close)
		f(t, observed(t, &lab{Engine: engine, URL: "http://api.test", rt: engine.Transport().Transport}))
	})
}

func observed(t *testing.T, l *lab) *lab {
	t.Helper()
	l.store, l.spans, l.reader = memory.New(), tracetest.NewSpanRecorder(), metric.NewManualReader()
	tp := sdk.NewTracerProvider(sdk.WithSpanProcessor(l.spans))
	l.tracer = tp.Tracer("caller")
	var err error
	l.Observer, err = otelsamekey.New(otelsamekey.Options{
		TracerProvider: tp, MeterProvider: metric.NewMeterProvider(metric.WithReader(l.reader)), Propagator: propagation.TraceContext{},
	})
	require.NoError(t, err)
	return l
}

// client retries at once, and sends to an endpoint that has a pattern.
func (l *lab) client(t *testing.T, change func(*samekey.Config, *samekey.Policy)) *samekey.Client {
	t.Helper()
	policy := samekey.Policy{Backoff: samekey.Backoff{Min: -1}}
	cfg := samekey.Config{Store: l.store, Observer: l.Observe, Prepare: l.Inject}
	if l.rt != nil {
		cfg.HTTPClient = &http.Client{Transport: l.rt}
	}
	if change != nil {
		change(&cfg, &policy)
	}
	cfg.Endpoints = map[string]samekey.Policy{"POST /v1/payments": policy}
	c, err := samekey.New(cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	return c
}

// request is a payment; an empty name is none.
func (l *lab) request(t *testing.T, ctx context.Context, name string) *http.Request {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, l.URL+"/v1/payments?secret=hunter2", strings.NewReader(payment))
	require.NoError(t, err)
	req.Header.Set("Content-Type", "application/json")
	if name != "" {
		req = samekey.Named(req, name)
	}
	return req
}

// do makes one call under a span of the caller's, which it returns.
func (l *lab) do(t *testing.T, c *samekey.Client, name string) (caller trace.SpanContext, err error) {
	t.Helper()
	ctx, span := l.tracer.Start(t.Context(), "caller")
	defer span.End()
	resp, err := c.Do(l.request(t, ctx, name))
	if err == nil {
		read(t, resp)
	}
	return span.SpanContext(), err
}

func read(t *testing.T, resp *http.Response) {
	t.Helper()
	_, err := io.Copy(io.Discard, resp.Body)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
}

// ended returns the spans of a name that were exported.
func (l *lab) ended(name string) (out []sdk.ReadOnlySpan) {
	for _, s := range l.spans.Ended() {
		if s.Name() == name {
			out = append(out, s)
		}
	}
	return out
}

const (
	opSpan      = "samekey POST /v1/payments"
	attemptSpan = "POST attempt"
)

// one returns the only span of a name.
func (l *lab) one(t *testing.T, name string) sdk.ReadOnlySpan {
	t.Helper()
	all := l.ended(name)
	require.Len(t, all, 1, name)
	return all[0]
}

// attrs are a span's or an event's, as text.
func attrs(kvs []attribute.KeyValue) map[string]string {
	m := map[string]string{}
	for _, kv := range kvs {
		m[string(kv.Key)] = kv.Value.String()
	}
	return m
}

func events(s sdk.ReadOnlySpan) (names []string) {
	for _, e := range s.Events() {
		names = append(names, e.Name)
	}
	return names
}

// event returns the attributes of a span's first event of a name.
func event(t *testing.T, s sdk.ReadOnlySpan, name string) map[string]string {
	t.Helper()
	for _, e := range s.Events() {
		if e.Name == name {
			return attrs(e.Attributes)
		}
	}
	require.Fail(t, "no event", "%s, only %v", name, events(s))
	return nil
}

const common = "http.request.method=POST,samekey.endpoint=POST /v1/payments"

// metric returns what was counted under a name: by all attributes but those that every series has.
func (l *lab) metric(t *testing.T, name string) map[string]int64 {
	t.Helper()
	out := map[string]int64{}
	add := func(set attribute.Set, n int64) {
		rest := ""
		for _, kv := range set.ToSlice() {
			if !strings.Contains(common, string(kv.Key)+"=") {
				rest += "," + string(kv.Key) + "=" + kv.Value.String()
			}
		}
		out[strings.TrimPrefix(rest, ",")] += n
	}
	for _, m := range l.collect(t) {
		if m.Name != name {
			continue
		}
		switch d := m.Data.(type) {
		case metricdata.Histogram[float64]:
			for _, p := range d.DataPoints {
				add(p.Attributes, int64(p.Count))
			}
		case metricdata.Sum[int64]:
			for _, p := range d.DataPoints {
				add(p.Attributes, p.Value)
			}
		default:
			require.Fail(t, "unexpected kind", "%s: %T", name, d)
		}
	}
	return out
}

func (l *lab) collect(t *testing.T) []metricdata.Metrics {
	t.Helper()
	var rm metricdata.ResourceMetrics
	require.NoError(t, l.reader.Collect(context.Background(), &rm))
	if len(rm.ScopeMetrics) == 0 {
		return nil
	}
	require.Len(t, rm.ScopeMetrics, 1)
	return rm.ScopeMetrics[0].Metrics
}

// requireNothingLeft is about the very moment: a program may end once its call has returned.
func (l *lab) requireNothingLeft(t *testing.T) {
	t.Helper()
	require.Zero(t, l.Open(), "operations")
	require.Len(t, l.spans.Ended(), len(l.spans.Started()), "spans that were begun and not ended")
	for series, n := range l.metric(t, "samekey.operation.active") {
		require.Zero(t, n, series)
	}
}

// failing is a store whose Begin and Settle fail when told to.
type failing struct {
	persist.Store
	begin, settle error
	begun         func() // after a Begin
}

func (f *failing) Begin(ctx context.Context, r persist.Record) (persist.Entry, error) {
	if f.begin != nil {
		return persist.Entry{}, f.begin
	}
	if f.begun != nil {
		defer f.begun()
	}
	return f.Store.Begin(ctx, r)
}

func (f *failing) Settle(ctx context.Context, c persist.Claim, a persist.Answer) error {
	if f.settle != nil {
		return f.settle
	}
	return f.Store.Settle(ctx, c, a)
}

func within(t *testing.T, cond func() bool) {
	t.Helper()
	require.Eventually(t, cond, 10*time.Second, time.Millisecond)
}
