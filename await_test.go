package samekey_test

import (
	"context"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/samekey/samekey"
	"github.com/samekey/samekey/mockserver"
	"github.com/samekey/samekey/persist"
)

const asyncPayment = `{"amount":100,"currency":"RUB","orderRef":"order-1","async":true}`

// posts counts the commands that the server got.
func posts(eng *mockserver.Engine) (n int) {
	for _, r := range eng.Requests() {
		if r.Method == http.MethodPost {
			n++
		}
	}
	return n
}

func awaiting(t *testing.T, eng *mockserver.Engine, store persist.Store, p samekey.Policy) *samekey.Client {
	rt := eng.Transport()
	t.Cleanup(func() { eng.Close() })
	p.Await = samekey.On
	return newClient(t, samekey.Config{Store: store, HTTPClient: &http.Client{Transport: rt}, Default: p,
		Prepare: func(_ context.Context, r *http.Request) error { r.Header.Set("Authorization", "Bearer t"); return nil }})
}

func TestAwait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		eng := mockserver.New(mockserver.Config{AsyncAfter: 5 * time.Second})
		store := newStore(t)
		c := awaiting(t, eng, store, samekey.Policy{})
		start := time.Now()
		resp, err := c.Do(samekey.Named(post(t, t.Context(), "http://bank.test/v1/payments", asyncPayment), "op"))
		require.NoError(t, err)
		require.Equal(t, 200, resp.StatusCode)
		result, err := samekey.ResultOf(resp)
		require.NoError(t, err)
		require.Equal(t, "succeeded", result.Status)
		require.NotEmpty(t, result.ID)
		require.InDelta(t, 5*time.Second, time.Since(start), float64(1100*time.Millisecond))
		read(t, resp)
		require.Equal(t, 1, posts(eng))
		for _, r := range eng.Requests() {
			require.Equal(t, "Bearer t", r.Header.Get("Authorization"))
			if r.Method == http.MethodGet {
				require.Empty(t, r.Header.Get("Idempotency-Key"), "a poll bears no key")
			}
		}
		info, _ := samekey.InfoOf(resp)
		require.Equal(t, samekey.Succeeded, info.State)
		again, err := c.Do(samekey.Named(post(t, t.Context(), "http://bank.test/v1/payments", asyncPayment), "op"))
		require.NoError(t, err)
		again.Body.Close()
		info, _ = samekey.InfoOf(again)
		require.Equal(t, samekey.Local, info.Source)
	})
}

// A later process goes on asking, also past the key's life, and never posts again.
func TestAwaitGoesOnInRecovery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		eng := mockserver.New(mockserver.Config{AsyncAfter: 48 * time.Hour})
		store := newStore(t)
		c := awaiting(t, eng, store, samekey.Policy{Deadline: 20 * time.Second})
		_, err := c.Do(post(t, t.Context(), "http://bank.test/v1/payments", asyncPayment))
		var unknown *samekey.OutcomeUnknownError
		require.ErrorAs(t, err, &unknown)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, 200, unknown.Last.Status, "the last poll's answer")
		require.NoError(t, c.Close())
		time.Sleep(47 * time.Hour)
		polled := len(eng.Requests())

		second := awaiting(t, eng, store, samekey.Policy{Deadline: 20 * time.Second})
		report, err := second.Recover(t.Context(), samekey.Recovery{})
		require.NoError(t, err)
		require.Equal(t, 1, report.Pending)
		require.Greater(t, len(eng.Requests()), polled)
		time.Sleep(2 * time.Hour)
		var got []int
		report, err = second.Recover(t.Context(), samekey.Recovery{Handle: func(_ context.Context, _ samekey.Operation, resp *http.Response, _ error) error {
			got = append(got, resp.StatusCode)
			return nil
		}})
		require.NoError(t, err)
		require.Equal(t, samekey.Report{Succeeded: 1}, report)
		require.Equal(t, []int{200}, got)
		require.Equal(t, 1, posts(eng))
		require.Zero(t, pending(t, store))
	})
}

func TestAwaitOutcomes(t *testing.T) {
	type reply struct {
		status int
		header http.Header
		body   string
	}
	accepted := reply{202, nil, `{"status":"processing","links":{"self":"/ops/1"}}`}
	for name, tc := range map[string]struct {
		post  reply
		polls []reply
		check func(t *testing.T, resp *http.Response, err error)
		state samekey.State
		asked int
	}{
		"failed": {accepted, []reply{{200, nil, `{"status":"failed","error":"NoFunds"}`}}, func(t *testing.T, resp *http.Response, err error) {
			require.NoError(t, err)
			require.Contains(t, read(t, resp), "NoFunds")
		}, samekey.Rejected, 1},
		"gone": {accepted, []reply{{404, nil, ``}}, func(t *testing.T, _ *http.Response, err error) {
			require.ErrorIs(t, err, samekey.ErrUnknown)
			require.ErrorContains(t, err, "404")
		}, samekey.Pending, 1},
		"turned away": {accepted, []reply{{401, nil, ``}}, func(t *testing.T, _ *http.Response, err error) {
			require.ErrorIs(t, err, samekey.ErrUnknown)
		}, samekey.Pending, 1},
		"trouble on the way": {accepted, []reply{{503, nil, ``}, {429, nil, ``}, {200, nil, `{"status":"processing"}`}, {200, nil, `{}`}}, func(t *testing.T, resp *http.Response, err error) {
			require.NoError(t, err)
			read(t, resp)
		}, samekey.Succeeded, 4},
		"by Location": {reply{202, http.Header{"Location": {"/ops/2"}}, ``}, []reply{{201, nil, `{}`}}, func(t *testing.T, resp *http.Response, err error) {
			require.NoError(t, err)
			require.Equal(t, 201, resp.StatusCode)
			read(t, resp)
		}, samekey.Succeeded, 1},
		"of another origin": {reply{202, http.Header{"Location": {"http://evil.test/ops/2"}}, ``}, nil, func(t *testing.T, _ *http.Response, err error) {
			require.ErrorIs(t, err, samekey.ErrUnknown)
			require.ErrorContains(t, err, "its own origin")
		}, samekey.Pending, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				asked := 0
				rt := roundTripper(func(req *http.Request) (*http.Response, error) {
					r := tc.post
					if req.Method == http.MethodGet {
						require.Equal(t, "bank.test", req.URL.Host)
						require.True(t, strings.HasPrefix(req.URL.Path, "/ops/"))
						r = tc.polls[asked]
						asked++
					}
					return answerOf(req, r.status, r.header, r.body), nil
				})
				store := newStore(t)
				c := newClient(t, samekey.Config{Store: store, HTTPClient: &http.Client{Transport: rt}, Default: samekey.Policy{Await: samekey.On}})
				resp, err := c.Do(samekey.Named(post(t, t.Context(), "http://bank.test/v1/payments", payment), "op"))
				tc.check(t, resp, err)
				op, err := c.Operation(t.Context(), samekey.Ref{ID: "op"})
				require.NoError(t, err)
				require.Equal(t, tc.state, op.State)
				require.Equal(t, tc.asked, asked)
			})
		})
	}
}

// Without an address the contract may have the command itself sent again: under its key, as an attempt each time.
func TestAwaitByResending(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var keys []string
		rt := roundTripper(func(req *http.Request) (*http.Response, error) {
			keys = append(keys, req.Header.Get("Idempotency-Key"))
			if len(keys) < 4 {
				return answerOf(req, 202, http.Header{"Retry-After": {"7"}}, ``), nil
			}
			return answerOf(req, 201, nil, `{"id":"x"}`), nil
		})
		con := samekey.DefaultContract
		con.Poll.Resend = true
		c := newClient(t, samekey.Config{HTTPClient: &http.Client{Transport: rt}, Default: samekey.Policy{Await: samekey.On, Contract: &con}})
		start := time.Now()
		resp, err := c.Do(samekey.Named(post(t, t.Context(), "http://bank.test/v1/payments", payment), "op"))
		require.NoError(t, err)
		require.Equal(t, 201, resp.StatusCode)
		read(t, resp)
		require.Len(t, keys, 4)
		require.Equal(t, keys[0], keys[3])
		info, _ := samekey.InfoOf(resp)
		require.Equal(t, 4, info.Attempts)
		require.GreaterOrEqual(t, time.Since(start), 20*time.Second, "Retry-After is honoured")
	})
}

func TestCarriers(t *testing.T) {
	for name, tc := range map[string]struct {
		carrier       samekey.Carrier
		url, kind     string
		body, changed string
		find          func(r mockserver.Request) string
		want          string // the body on the wire; KEY stands for the key
	}{
		"body":        {carrier: samekey.BodyMember("/requestId"), body: `{"b":1, "a":12345678901234567890}`, changed: `{"b":2}`, want: `{"requestId":"KEY","b":1, "a":12345678901234567890}`},
		"body, empty": {carrier: samekey.BodyMember("/requestId"), body: ` {} `, changed: `{"x":1}`, want: ` {"requestId":"KEY"} `},
		"body, deep":  {carrier: samekey.BodyMember("/meta/~1id"), body: `{"meta":{"x":[1,2]}}`, changed: `{"meta":{}}`, want: `{"meta":{"/id":"KEY","x":[1,2]}}`},
		"query":       {carrier: samekey.QueryParam("request id"), url: "?a=1&b=%20", body: `x`, changed: `y`, want: `x`},
		"form":        {carrier: samekey.FormField("k"), kind: "application/x-www-form-urlencoded; charset=utf-8", body: `a=1&b=+2`, changed: `a=2`, want: `a=1&b=+2&k=KEY`},
		"pair":        {carrier: samekey.Repeatability, body: `x`, changed: `y`, want: `x`},
	} {
		t.Run(name, func(t *testing.T) {
			srv := newServer(t, mockserver.Config{})
			srv.Fault(mockserver.Fault{When: mockserver.AfterCommit, Do: mockserver.Status(503, false), Times: 2})
			store := newStore(t)
			cfg := samekey.Config{Store: store, Default: quick}
			cfg.Default.Contract = &samekey.Contract{Carrier: tc.carrier}
			cfg.Default.MaxAttempts = 2
			c := newClient(t, cfg)
			send := func(c *samekey.Client, body string) (*http.Response, error) {
				req := post(t, t.Context(), srv.URL+"/v1/anything"+tc.url, body)
				if tc.kind != "" {
					req.Header.Set("Content-Type", tc.kind)
				}
				return c.Do(samekey.Named(req, "op"))
			}
			_, err := send(c, tc.body)
			require.ErrorIs(t, err, samekey.ErrUnknown)
			_, err = send(c, tc.changed)
			require.ErrorIs(t, err, samekey.ErrMismatch, "the key is no part of what is compared")
			require.NoError(t, c.Close())

			cfg.Store = store
			second := newClient(t, cfg)
			resp, _ := send(second, tc.body) // whatever it answers
			if resp != nil {
				read(t, resp)
			}
			reqs := srv.Requests()
			require.Len(t, reqs, 3)
			op, err := second.Operation(t.Context(), samekey.Ref{ID: "op"})
			require.NoError(t, err)
			for _, r := range reqs {
				require.Equal(t, strings.ReplaceAll(tc.want, "KEY", op.Key), string(r.Body))
				require.Equal(t, reqs[0].Header.Get("Repeatability-First-Sent"), r.Header.Get("Repeatability-First-Sent"))
				if tc.carrier == samekey.Repeatability {
					require.Equal(t, op.Key, r.Header.Get("Repeatability-Request-ID"))
					at, err := http.ParseTime(r.Header.Get("Repeatability-First-Sent"))
					require.NoError(t, err)
					require.WithinDuration(t, time.Now(), at, time.Minute)
				}
				if tc.url != "" {
					require.Equal(t, "a=1&b=%20&request+id="+op.Key, r.Query)
				}
			}
		})
	}
}

func TestCarriersAdoptAndRefuse(t *testing.T) {
	srv := newServer(t, mockserver.Config{})
	for _, tc := range []struct {
		carrier         samekey.Carrier
		kind, url, body string
		key, why        string
	}{
		{carrier: samekey.BodyMember("/id"), body: `{"id":"mine-1"}`, key: "mine-1"},
		{carrier: samekey.BodyMember("/id"), body: `{"id":7}`, why: "is no string"},
		{carrier: samekey.BodyMember("/id"), body: `[1]`, why: "no JSON document with an object"},
		{carrier: samekey.BodyMember("/meta/id"), body: `{"x":1}`, why: "no JSON document with an object"},
		{carrier: samekey.QueryParam("k"), url: "?k=mine-2", body: `x`, key: "mine-2"},
		{carrier: samekey.QueryParam("k"), url: "?k=a1&k=b1", body: `x`, why: "more than one key"},
		{carrier: samekey.FormField("k"), kind: "application/x-www-form-urlencoded", body: `a=1&k=mine-3`, key: "mine-3"},
		{carrier: samekey.FormField("k"), body: `a=1`, why: "no form"},
		{carrier: samekey.Repeatability, body: `x`, key: ""},
	} {
		c := newClient(t, samekey.Config{Default: samekey.Policy{Contract: &samekey.Contract{Carrier: tc.carrier}}})
		req := post(t, t.Context(), srv.URL+"/v1/anything"+tc.url, tc.body)
		if tc.kind != "" {
			req.Header.Set("Content-Type", tc.kind)
		}
		var info samekey.Info
		resp, err := c.Do(req.WithContext(samekey.WithInfo(req.Context(), &info)))
		if resp != nil {
			read(t, resp)
		}
		if tc.why != "" {
			require.ErrorIs(t, err, samekey.ErrKey)
			require.ErrorContains(t, err, tc.why)
			continue
		}
		if tc.key != "" {
			require.Equal(t, tc.key, info.Key)
		}
	}
	for _, bad := range []samekey.Carrier{samekey.Header(""), samekey.Header("a b"), samekey.Header("cookie"), samekey.BodyMember(""), samekey.BodyMember("x"), samekey.QueryParam(""), samekey.FormField("")} {
		_, err := samekey.New(samekey.Config{Store: newStore(t), Default: samekey.Policy{Contract: &samekey.Contract{Carrier: bad}}})
		require.ErrorContains(t, err, "Contract.Carrier", bad.String())
	}
}

// A gateway that strips the key is noticed at the first answer.
func TestEcho(t *testing.T) {
	con := samekey.Contract{Echo: "Idempotency-Key", StoresRejections: true}
	for name, tc := range map[string]struct {
		echo func(sent string) string
		body string
		err  error
	}{
		"right":   {func(s string) string { return s }, "", nil},
		"missing": {func(string) string { return "" }, "does not repeat the key", nil},
		"wrong":   {func(string) string { return "another" }, "repeats another key", samekey.ErrUnknown},
	} {
		t.Run(name, func(t *testing.T) {
			rec := &recorder{}
			rt := roundTripper(func(req *http.Request) (*http.Response, error) {
				h := http.Header{}
				if e := tc.echo(req.Header.Get("Idempotency-Key")); e != "" {
					h.Set("Idempotency-Key", e)
				}
				return answerOf(req, 201, h, `{}`), nil
			})
			c := newClient(t, samekey.Config{HTTPClient: &http.Client{Transport: rt}, Default: samekey.Policy{Contract: &con}, Observer: rec.observe})
			resp, err := c.Do(samekey.Named(post(t, t.Context(), "http://bank.test/x", payment), "op"))
			if tc.err != nil {
				require.ErrorIs(t, err, tc.err)
			} else {
				require.NoError(t, err)
				read(t, resp)
			}
			warnings := rec.all(samekey.StepWarning)
			if tc.body == "" {
				require.Empty(t, warnings)
				return
			}
			require.Len(t, warnings, 1)
			require.ErrorContains(t, warnings[0].Err, tc.body)
		})
	}
}

func TestRetryHint(t *testing.T) {
	for _, tc := range []struct {
		status int
		hint   string
		want   int
	}{{500, "", 3}, {500, "false", 1}, {404, "", 1}, {404, "true", 3}, {409, "true", 1}} {
		n := 0
		rt := roundTripper(func(req *http.Request) (*http.Response, error) {
			n++
			h := http.Header{}
			if tc.hint != "" {
				h.Set("Stripe-Should-Retry", tc.hint)
			}
			return answerOf(req, tc.status, h, ``), nil
		})
		policy := quick
		policy.MaxAttempts, policy.Contract = 3, &samekey.Contract{RetryHint: "Stripe-Should-Retry"}
		c := newClient(t, samekey.Config{HTTPClient: &http.Client{Transport: rt}, Default: policy})
		resp, _ := c.AsResponses().Do(post(t, t.Context(), "http://bank.test/x", payment))
		read(t, resp)
		require.Equal(t, tc.want, n, tc)
	}
}

func TestResolve(t *testing.T) {
	srv := newServer(t, mockserver.Config{})
	srv.Fault(mockserver.Fault{Match: "POST /v1/orders", Do: mockserver.Status(409, false).Body(`{"error":"AlreadyExists","id":"ord_1"}`)})
	store := newStore(t)
	calls := 0
	policy := quick
	policy.Resolve = func(ctx context.Context, e *samekey.ConflictError) (*http.Response, error) {
		calls++
		require.Contains(t, string(e.Body), "ord_1")
		return answerOf(nil, 200, http.Header{"X-Found": {"yes"}}, `{"orderId":"ord_1"}`), nil
	}
	c := newClient(t, samekey.Config{Store: store, Default: policy})
	for range 2 {
		resp, err := c.Do(samekey.Named(post(t, t.Context(), srv.URL+"/v1/orders", payment), "op"))
		require.NoError(t, err)
		require.Equal(t, 200, resp.StatusCode)
		require.Equal(t, `{"orderId":"ord_1"}`, read(t, resp))
	}
	require.Equal(t, 1, calls)
	require.Len(t, srv.Requests(), 1, "a conflict is sent once")
	require.Equal(t, 1, count(t, store, samekey.Succeeded))
}

func TestResultAndAPIError(t *testing.T) {
	r, err := samekey.ResultOf(answerOf(nil, 201, nil, `{"status":"accepted","orderId":"ord_987","links":{"self":"/v1/orders/ord_987"}}`))
	require.NoError(t, err)
	require.Equal(t, samekey.Result{Status: "accepted", ID: "ord_987", Links: map[string]string{"self": "/v1/orders/ord_987"}}, r)
	for body, id := range map[string]string{`{"aId":"1","resultId":2}`: "2", `{"id":"x"}`: "x", `{"traceId":"t","id":"x"}`: "x", `{}`: ""} {
		resp := answerOf(nil, 200, nil, body)
		r, err := samekey.ResultOf(resp)
		require.NoError(t, err)
		require.Equal(t, id, r.ID, body)
		require.Equal(t, body, read(t, resp), "it can be read again")
	}
	_, err = samekey.ResultOf(answerOf(nil, 200, nil, `[]`))
	require.Error(t, err)

	e, err := samekey.APIErrorOf(answerOf(nil, 400, nil, `{"error":"BadAmount","message":"not a number","details":[1],"traceId":"t-1"}`))
	require.NoError(t, err)
	require.Equal(t, "status 400: BadAmount: not a number (trace t-1)", e.Error())
	require.JSONEq(t, `[1]`, string(e.Details))
	e, err = samekey.APIErrorOf(answerOf(nil, 422, http.Header{"Content-Type": {"application/problem+json"}}, `{"title":"Key reused","detail":"no","status":422}`))
	require.NoError(t, err)
	require.Equal(t, "Key reused", e.Code)
	require.Equal(t, "Key reused", e.Problem.Title)
	e, err = samekey.APIErrorOf(answerOf(nil, 200, nil, `{}`))
	require.NoError(t, err)
	require.Nil(t, e)
	e, err = samekey.APIErrorOf(answerOf(nil, 502, nil, `<html>`))
	require.NoError(t, err)
	require.Equal(t, "status 502", e.Error())
}

func answerOf(req *http.Request, status int, h http.Header, body string) *http.Response {
	if h == nil {
		h = http.Header{}
	}
	return &http.Response{StatusCode: status, Status: strconv.Itoa(status), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: h, ContentLength: int64(len(body)), Body: io.NopCloser(strings.NewReader(body)), Request: req}
}
