package samekey_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/samekey/samekey"
	"github.com/samekey/samekey/mockserver"
	"github.com/samekey/samekey/persist"
)

// policyErrors are all *PolicyError in err.
func policyErrors(t *testing.T, err error) (out []*samekey.PolicyError) {
	t.Helper()
	for e := range tree(err) {
		if p, ok := e.(*samekey.PolicyError); ok {
			require.ErrorIs(t, p, samekey.ErrPolicy)
			out = append(out, p)
		}
	}
	return out
}

type leasing struct{ persist.Store }

func (leasing) Lease() time.Duration { return 15 * time.Second }

// Every policy that cannot hold is refused by New, with the endpoint and the field that are wrong.
func TestBadPoliciesAreRefused(t *testing.T) {
	constant := samekey.KeyFunc(func(samekey.Ref) (string, error) { return "one-for-all", nil })
	bad := func(f func(*samekey.Contract)) samekey.Policy {
		c := samekey.Contract{Life: time.Hour}
		f(&c)
		return samekey.Policy{Contract: &c}
	}
	noKey := &samekey.Contract{Carrier: samekey.NoKey}
	for _, row := range []struct {
		policy samekey.Policy
		field  string
	}{
		{samekey.Policy{RetryStatus: []int{409}}, "RetryStatus"},
		{samekey.Policy{RetryStatus: []int{200}}, "RetryStatus"},
		{samekey.Policy{RetryStatus: []int{302}}, "RetryStatus"},
		{samekey.Policy{RetryStatus: []int{399}}, "RetryStatus"},
		{samekey.Policy{RetryStatus: []int{-5}}, "RetryStatus"},
		{samekey.Policy{RetryStatus: []int{4}}, "RetryStatus"},
		{samekey.Policy{RetryStatus: []int{1000}}, "RetryStatus"},
		{samekey.Policy{Contract: noKey, RetryStatus: []int{503}}, "RetryStatus, RetryTransport"},
		{samekey.Policy{Contract: noKey, RetryTransport: samekey.On}, "RetryStatus, RetryTransport"},
		{samekey.Policy{MaxAttempts: -1}, "MaxAttempts"},
		{samekey.Policy{AttemptTimeout: 61 * time.Second}, "AttemptTimeout"},
		{samekey.Policy{AttemptTimeout: 2 * time.Second, Deadline: time.Second}, "AttemptTimeout"},
		{samekey.Policy{Backoff: samekey.Backoff{Min: 11 * time.Second}}, "Backoff.Min"},
		{samekey.Policy{Backoff: samekey.Backoff{Max: -1}}, "Backoff.Max"},
		{samekey.Policy{Budget: 1.1}, "Budget"},
		{samekey.Policy{Budget: math.Inf(1)}, "Budget"},
		{samekey.Policy{Budget: math.NaN()}, "Budget"},
		{samekey.Policy{MaxBody: -1}, "MaxBody"},
		{samekey.Policy{MaxResponse: -1}, "MaxResponse"},
		{samekey.Policy{Persist: 77}, "Persist"},
		{samekey.Policy{OnExpiry: 77}, "OnExpiry"},
		{samekey.Policy{Command: 3}, "Command"},
		{samekey.Policy{RequireName: -1}, "RequireName"},
		{samekey.Policy{RetryTransport: 3}, "RetryTransport"},
		{samekey.Policy{Redirects: 3}, "Redirects"},
		{samekey.Policy{KeepRejections: 3}, "KeepRejections"},
		{samekey.Policy{KeyFormat: constant}, "KeyFormat"},
		{samekey.Policy{KeyFormat: samekey.KeyFunc(func(samekey.Ref) (string, error) { return "", errors.New("no entropy") })}, "KeyFormat"},
		{samekey.Policy{KeyFormat: samekey.KeyFunc(func(r samekey.Ref) (string, error) { return r.ID + " with spaces", nil })}, "KeyFormat"},
		{samekey.Policy{KeyFormat: samekey.Derived([]byte("short"))}, "KeyFormat"},
		{samekey.Policy{KeyFormat: samekey.Derived(make([]byte, 32)), OnExpiry: samekey.NewKey}, "OnExpiry"},
		{samekey.Policy{KeepHeaders: []string{"Authorization"}}, "KeepHeaders"},
		{samekey.Policy{KeepHeaders: []string{"X-Fine", "cookie"}}, "KeepHeaders"},
		{samekey.Policy{KeepHeaders: []string{"X-API-Key"}}, "KeepHeaders"},
		{samekey.Policy{KeepHeaders: []string{"X Y"}}, "KeepHeaders"},
		{samekey.Policy{KeepHeaders: []string{""}}, "KeepHeaders"},
		{samekey.Policy{KeepHeaders: []string{"idempotency-key"}}, "KeepHeaders"},
		{samekey.Policy{IdentityHeaders: []string{"Proxy-Authorization"}}, "IdentityHeaders"},
		{samekey.Policy{SecretQuery: []string{""}}, "SecretQuery"},
		{samekey.Policy{FingerprintIgnore: []string{"/fine", "no-slash"}}, "FingerprintIgnore[1]"},
		{samekey.Policy{FingerprintIgnore: []string{"/bad~2"}}, "FingerprintIgnore[0]"},
		{bad(func(c *samekey.Contract) { c.Carrier = samekey.Header("") }), "Contract.Carrier"},
		{bad(func(c *samekey.Contract) { c.Carrier = samekey.Header("X Y") }), "Contract.Carrier"},
		{bad(func(c *samekey.Contract) { c.Carrier = samekey.Header("authorization") }), "Contract.Carrier"},
		{bad(func(c *samekey.Contract) { c.MaxLength = -1 }), "Contract.MaxLength"},
		{bad(func(c *samekey.Contract) { c.MaxLength = 35 }), "KeyFormat"}, // a UUID does not fit
		{bad(func(c *samekey.Contract) { c.Format = "[0-9]+" }), "KeyFormat"},
		{bad(func(c *samekey.Contract) { c.Format = "(" }), "Contract.Format"},
		{bad(func(c *samekey.Contract) { c.Life = -2 }), "Contract.Life"},
		{bad(func(c *samekey.Contract) { c.Life = 10 * time.Second }), "AttemptTimeout"}, // no time for a retry
		{bad(func(c *samekey.Contract) { c.Replayed = samekey.Match{Pointer: "x"} }), "Contract.Replayed"},
		{bad(func(c *samekey.Contract) { c.Rules = []samekey.Rule{{Means: samekey.MeansRejected}} }), "Contract.Rules[0].If"},
		{bad(func(c *samekey.Contract) { c.Rules = []samekey.Rule{{If: samekey.Match{Status: []int{400}}}} }), "Contract.Rules[0].Means"},
		{bad(func(c *samekey.Contract) {
			c.Rules = []samekey.Rule{{If: samekey.Match{Status: []int{4}}, Means: samekey.MeansRejected}}
		}), "Contract.Rules[0].If"},
		{bad(func(c *samekey.Contract) {
			c.Rules = []samekey.Rule{{If: samekey.Match{Values: []string{"x"}}, Means: samekey.MeansRejected}}
		}), "Contract.Rules[0].If"},
		{bad(func(c *samekey.Contract) {
			c.Rules = []samekey.Rule{{If: samekey.Match{Status: []int{409}}, Means: samekey.MeansUncertain}}
		}), "Contract.Rules[0].Means"},
		{bad(func(c *samekey.Contract) {
			c.Rules = []samekey.Rule{{If: samekey.Match{Status: []int{409}}, Means: samekey.MeansExists, Link: "/bad~"}}
		}), "Contract.Rules[0].Link"},
	} {
		for _, endpoint := range []string{"POST api.test/v1/payments", ""} {
			cfg := samekey.Config{Store: newStore(t), Default: row.policy}
			if endpoint != "" {
				cfg.Default, cfg.Endpoints = samekey.Policy{}, map[string]samekey.Policy{endpoint: row.policy, "POST /fine": {}}
			}
			c, err := samekey.New(cfg)
			require.Nil(t, c)
			all := policyErrors(t, err)
			require.Len(t, all, 1, "%+v: %v", row.policy, err)
			require.Equal(t, endpoint, all[0].Endpoint)
			require.Equal(t, row.field, all[0].Field, "%v", err)
			require.NotEmpty(t, all[0].Why)
			require.Contains(t, err.Error(), row.field)
			if endpoint != "" {
				require.Contains(t, err.Error(), endpoint)
			}
		}
	}
}

// TestPolicyWithoutEffect: an endpoint's policy whose method is no command is refused, unless it says so itself.
func TestPolicyWithoutEffect(t *testing.T) {
	made := func(pattern string, p, base samekey.Policy) error {
		c, err := samekey.New(samekey.Config{Store: newStore(t), Default: base, Endpoints: map[string]samekey.Policy{pattern: p}})
		if err == nil {
			require.NoError(t, c.Close())
		}
		return err
	}
	for _, pattern := range []string{"PUT api.test/v1/orders/{id}", "DELETE /v1/orders/{id}", "PURGE /"} {
		err := made(pattern, samekey.Policy{MaxAttempts: 5}, samekey.Policy{})
		require.Equal(t, "Command", asType[*samekey.PolicyError](t, err).Field)
		require.ErrorContains(t, err, "On")
		for _, c := range []samekey.Switch{samekey.On, samekey.Off} {
			require.NoError(t, made(pattern, samekey.Policy{Command: c}, samekey.Policy{}))
			require.NoError(t, made(pattern, samekey.Policy{}, samekey.Policy{Command: c}))
		}
	}
	for _, pattern := range []string{"GET /", "HEAD /", "OPTIONS /", "POST /", "PATCH /", "/v1/", "api.test/"} {
		require.NoError(t, made(pattern, samekey.Policy{MaxAttempts: 5}, samekey.Policy{}), pattern)
	}
}

func TestConfigProblemsAreJoined(t *testing.T) {
	_, err := samekey.New(samekey.Config{
		Scope: "a\x00b",
		Endpoints: map[string]samekey.Policy{
			"POST /a": {RetryStatus: []int{409, 200}, MaxAttempts: -1},
			"POST /b": {KeepHeaders: []string{"Cookie", "Authorization"}},
		},
	})
	var where []string
	for _, p := range policyErrors(t, err) {
		where = append(where, p.Endpoint+" "+p.Field)
	}
	require.ElementsMatch(t, []string{" Store", " Scope", "POST /a RetryStatus", "POST /a RetryStatus", "POST /a MaxAttempts", "POST /b KeepHeaders", "POST /b KeepHeaders"}, where)

	_, err = samekey.New(samekey.Config{Store: leasing{newStore(t)}})
	require.Equal(t, "AttemptTimeout", asType[*samekey.PolicyError](t, err).Field, "a lease has to cover an attempt")
	c := newClient(t, samekey.Config{Store: leasing{newStore(t)}, Default: samekey.Policy{AttemptTimeout: 7 * time.Second}})
	_, err = c.Do(post(t, samekey.WithPolicy(t.Context(), samekey.Policy{AttemptTimeout: 8 * time.Second}), "http://127.0.0.1:1/", payment))
	require.Contains(t, asType[*samekey.PolicyError](t, err).Why, "lease")
	off := samekey.Policy{AttemptTimeout: -1}
	_, err = samekey.New(samekey.Config{Store: leasing{newStore(t)}, Default: off})
	require.Equal(t, "AttemptTimeout", asType[*samekey.PolicyError](t, err).Field, "no lease covers an attempt without end")
	_, err = c.Do(post(t, samekey.WithPolicy(t.Context(), off), "http://127.0.0.1:1/", payment))
	require.Contains(t, asType[*samekey.PolicyError](t, err).Why, "lease")
	off.Persist = samekey.PersistNone
	newClient(t, samekey.Config{Store: leasing{newStore(t)}, Default: off})
}

// Patterns that could never match, or that exclude each other, are refused by name.
func TestBadPatternsAreRefused(t *testing.T) {
	for _, patterns := range [][]string{
		{"POST api.test:8080/x"}, {"post api.test/x"}, {"POST API.test/x"}, {"POST *.test/x"}, {"POST api.test/x?y=1"}, {"POST https://api.test/x"},
		{"POST"}, {""}, {"POST /a/{id"}, {"POST /{a}/{a}"}, {"POST /x#y"}, {"CONNECT /x"}, {"POST /a//b"}, {"GET|POST /x"},
		{"POST /{a}/x", "POST /x/{b}"},
	} {
		endpoints := map[string]samekey.Policy{}
		for _, p := range patterns {
			endpoints[p] = samekey.Policy{}
		}
		_, err := samekey.New(samekey.Config{Store: newStore(t), Endpoints: endpoints})
		all := policyErrors(t, err)
		require.Len(t, all, 1, patterns)
		require.Equal(t, "pattern", all[0].Field)
		require.Contains(t, patterns, all[0].Endpoint)
	}
}

// The most specific pattern holds, whatever the order, the case of the host or its port.
func TestTheMostSpecificEndpointHolds(t *testing.T) {
	endpoints := map[string]samekey.Policy{}
	for i, p := range []string{
		"POST /v1/{kind}", "POST /v1/payments", "/v1/", "POST api.test/v1/", "POST api.test/v1/orders/{id}/cancel", "PUT api.test/v1/orders/{id}", "other.test/",
	} {
		endpoints[p] = samekey.Policy{Command: samekey.On, MaxAttempts: i + 1}
	}
	sends := 0
	c := newClient(t, samekey.Config{Endpoints: endpoints, Default: samekey.Policy{Backoff: quick.Backoff, Command: samekey.On, MaxAttempts: 9},
		HTTPClient: &http.Client{Transport: roundTripper(func(*http.Request) (*http.Response, error) {
			sends++
			return nil, errors.New("down")
		})}})
	for _, row := range []struct{ method, url, want string }{
		{"POST", "http://x.test/v1/payments", "POST /v1/payments"},
		{"POST", "http://x.test/v1/orders", "POST /v1/{kind}"},
		{"PATCH", "http://x.test/v1/orders", "/v1/"},
		{"POST", "http://x.test/v1/a/b", "/v1/"},
		{"POST", "http://api.test/v1/payments", "POST api.test/v1/"},
		{"POST", "https://API.Test:8443/v1/payments", "POST api.test/v1/"},
		{"POST", "http://api.test./v1/payments", "POST api.test/v1/"},
		{"POST", "http://api.test/v1/orders/7/cancel", "POST api.test/v1/orders/{id}/cancel"},
		{"POST", "http://api.test/v1/orders/a%2Fb/cancel", "POST api.test/v1/orders/{id}/cancel"},
		{"POST", "http://api.test/v1//orders/7/cancel", "POST api.test/v1/orders/{id}/cancel"},
		{"PUT", "http://api.test/v1/orders/7", "PUT api.test/v1/orders/{id}"},
		{"DELETE", "http://other.test/v1/payments", "other.test/"},
		{"POST", "http://x.test/v2/payments", ""},
	} {
		sends = 0
		req, err := http.NewRequestWithContext(t.Context(), row.method, row.url, nil)
		require.NoError(t, err)
		_, err = c.Do(req)
		unknown := asType[*samekey.OutcomeUnknownError](t, err)
		require.Equal(t, row.want, unknown.Endpoint, row.url)
		want := 9
		if row.want != "" {
			want = endpoints[row.want].MaxAttempts
		}
		require.Equal(t, want, sends, row.url)
	}
}

// The caller's maps, slices and structs are copied: what becomes of them later changes nothing.
func TestConfigIsCopied(t *testing.T) {
	srv := newServer(t, mockserver.Config{})
	srv.Fault(mockserver.Fault{Do: mockserver.Status(503, false)})
	contract := &samekey.Contract{Carrier: samekey.Header("X-Key"), Life: time.Hour, Rules: []samekey.Rule{
		{If: samekey.Match{Status: []int{418}, Pointer: "/error", Values: []string{"InjectedFault"}}, Means: samekey.MeansBusiness}}}
	p := samekey.Policy{
		Contract: contract, Backoff: quick.Backoff, RetryStatus: []int{503}, KeepHeaders: []string{"X-Kept"}, IdentityHeaders: []string{"X-Account"},
		SecretQuery: []string{"token"}, FingerprintIgnore: []string{"/at"},
	}
	endpoints := map[string]samekey.Policy{"POST /v1/payments": p}
	hc := &http.Client{}
	store := newStore(t)
	c := newClient(t, samekey.Config{Store: store, Endpoints: endpoints, HTTPClient: hc})

	hc.Transport = roundTripper(func(*http.Request) (*http.Response, error) { return nil, errors.New("changed") })
	hc.Timeout = time.Nanosecond
	p.RetryStatus[0], p.KeepHeaders[0], p.IdentityHeaders[0], p.SecretQuery[0], p.FingerprintIgnore[0] = 599, "X-Else", "X-Else", "else", "/else"
	contract.Carrier, contract.Life = samekey.NoKey, 1
	contract.Rules[0].If.Status[0], contract.Rules[0].If.Values[0], contract.Rules[0].Means = 503, "Else", samekey.MeansRejected
	delete(endpoints, "POST /v1/payments")

	do := func(at, account string) error {
		req := post(t, t.Context(), srv.URL+"/v1/payments?token=SECRET", `{"at":`+at+`}`)
		req.Header.Set("X-Kept", "kept")
		req.Header.Set("X-Account", account)
		_, err := c.Do(samekey.Named(req, "op"))
		return err
	}
	require.ErrorIs(t, do("1", "a"), samekey.ErrUnknown)
	require.Len(t, srv.Requests(), 4)
	require.ErrorIs(t, do("2", "a"), samekey.ErrUnknown, "still ignored")
	require.ErrorIs(t, do("2", "b"), samekey.ErrMismatch, "still identity")
	rec := stored(t, store, "op")
	require.Equal(t, []string{"kept"}, rec.Header["X-Kept"])
	require.Equal(t, []string{rec.Key}, rec.Header["X-Key"])
	require.NotContains(t, rec.Target, "SECRET")
	require.Equal(t, time.Hour, rec.KeyLife)
	srv.ClearFaults()
	srv.Fault(mockserver.Fault{Do: mockserver.Status(418, false)})
	require.ErrorIs(t, do("3", "a"), samekey.ErrConflict, "still the old rule")
}

// WithPolicy changes how hard one call tries, and nothing of what the endpoint is.
func TestPolicyOfOneCall(t *testing.T) {
	inLab(t, mockserver.Config{}, func(t *testing.T, l *lab) {
		l.Fault(mockserver.Fault{Do: mockserver.Status(503, false).With("Retry-After", "5")})
		c := l.client(t, samekey.Config{Default: samekey.Policy{MaxAttempts: 3, Deadline: -1, MaxRetryAfter: -1, Backoff: quick.Backoff}, Endpoints: map[string]samekey.Policy{
			"POST nokey.test/": {Contract: &samekey.Contract{Carrier: samekey.NoKey}},
		}})
		n := 0
		do := func(p samekey.Policy) (sends int, err error) {
			n++
			before := len(l.Requests())
			_, err = c.Do(pay(t, samekey.WithPolicy(t.Context(), p), fmt.Sprint("op-", n)))
			return len(l.Requests()) - before, err
		}
		for _, row := range []struct {
			p    samekey.Policy
			want int
		}{
			{samekey.Policy{}, 3},
			{samekey.Policy{MaxAttempts: 1}, 1},
			{samekey.Policy{MaxAttempts: 6}, 6},
			{samekey.Policy{RetryStatus: []int{}}, 1},
			{samekey.Policy{RetryStatus: []int{429}}, 1},
			{samekey.Policy{Decide: func(samekey.Attempt) samekey.Decision { return samekey.Stop }}, 1},
			{samekey.Policy{MaxRetryAfter: time.Second}, 1},
			{samekey.Policy{RetryTransport: samekey.Off}, 3},
		} {
			got, err := do(row.p)
			require.ErrorIs(t, err, samekey.ErrUnknown)
			require.Equal(t, row.want, got, "%+v", row.p)
		}
		// What is off stays off, and what is set for a call is in force for it.
		start := time.Now()
		_, err := do(samekey.Policy{Backoff: samekey.Backoff{Min: 20 * time.Second, Max: 20 * time.Second}, MaxAttempts: 5})
		require.ErrorIs(t, err, samekey.ErrUnknown)
		require.NotErrorIs(t, err, samekey.ErrPolicy)
		require.Equal(t, 80*time.Second, time.Since(start), "the Deadline is still off")
		start = time.Now()
		_, err = do(samekey.Policy{MaxAttempts: 5})
		require.ErrorIs(t, err, samekey.ErrUnknown)
		require.Zero(t, time.Since(start), "waits are off again, and Retry-After ignored")

		for _, p := range []samekey.Policy{
			{MaxAttempts: -1}, {AttemptTimeout: time.Minute, Deadline: time.Second}, {RetryStatus: []int{409}}, {RetryStatus: []int{204}},
			{Backoff: samekey.Backoff{Min: time.Hour}}, {AttemptTimeout: 25 * time.Hour},
		} {
			got, err := do(p)
			bad, is := err.(*samekey.PolicyError) // for a type switch, as by Do's documentation
			require.True(t, is, "%T", err)
			require.Contains(t, bad.Field, "WithPolicy: ")
			require.Contains(t, err.Error(), "samekey: WithPolicy: ", "nobody else's policy is to blame")
			require.Zero(t, got)
		}
		// The fields that are not a call's, by reflection.
		mine := map[string]bool{"MaxAttempts": true, "AttemptTimeout": true, "Deadline": true, "Backoff": true, "MaxRetryAfter": true,
			"RetryStatus": true, "RetryTransport": true, "Decide": true}
		for i := range reflect.TypeFor[samekey.Policy]().NumField() {
			f := reflect.TypeFor[samekey.Policy]().Field(i)
			if mine[f.Name] {
				continue
			}
			p := samekey.Policy{}
			v := reflect.ValueOf(&p).Elem().Field(i)
			switch {
			case v.CanInt():
				v.SetInt(1)
			case v.CanUint():
				v.SetUint(1)
			case v.CanFloat():
				v.SetFloat(0.5)
			case v.Kind() == reflect.Slice:
				v.Set(reflect.MakeSlice(f.Type, 0, 0))
			case f.Name == "Contract":
				p.Contract = &samekey.Contract{}
			case f.Name == "Resolve":
				p.Resolve = func(context.Context, *samekey.ConflictError) (*http.Response, error) { return nil, nil }
			default:
				p.KeyFormat = samekey.ULID
			}
			got, err := do(p)
			bad := asType[*samekey.PolicyError](t, err)
			require.Equal(t, "WithPolicy: "+f.Name, bad.Field)
			require.Zero(t, got)
		}
		require.Equal(t, n-6-(reflect.TypeFor[samekey.Policy]().NumField()-len(mine)), pending(t, l.store), "refused calls leave nothing")

		req := samekey.Named(post(t, samekey.WithPolicy(t.Context(), samekey.Policy{RetryTransport: samekey.On}), "http://nokey.test/", payment), "nokey")
		_, err = c.Do(req)
		require.ErrorIs(t, err, samekey.ErrPolicy, "retries without a key")
	})
}

// B91: at least one request, at most as many as are said.
func TestCase_B91_MaxAttempts(t *testing.T) {
	for n, want := range map[int]int{0: 4, 1: 1, 2: 2, 7: 7} {
		srv := newServer(t, mockserver.Config{})
		srv.Fault(mockserver.Fault{Do: mockserver.Status(503, false)})
		c := newClient(t, samekey.Config{Default: samekey.Policy{MaxAttempts: n, Backoff: quick.Backoff}})
		_, err := c.Do(post(t, t.Context(), srv.URL+"/v1/payments", payment))
		require.ErrorIs(t, err, samekey.ErrUnknown)
		require.Len(t, srv.Requests(), want)
	}
	_, err := samekey.New(samekey.Config{Store: newStore(t), Default: samekey.Policy{MaxAttempts: -1}})
	require.ErrorIs(t, err, samekey.ErrPolicy)
}

// A budget bounds an endpoint's retries, not its requests, and each endpoint has its own.
func TestBudgetsAreAnEndpoints(t *testing.T) {
	srv := newServer(t, mockserver.Config{})
	srv.Fault(mockserver.Fault{Do: mockserver.Status(503, false)})
	c := newClient(t, samekey.Config{
		Default:   samekey.Policy{Backoff: quick.Backoff, Budget: 0.5},
		Endpoints: map[string]samekey.Policy{"POST /v1/orders": {}, "POST /v1/free": {Budget: -1}},
	})
	send := func(path string, n int) (sends int) {
		before := len(srv.Requests())
		for i := range n {
			_, err := c.Do(post(t, t.Context(), srv.URL+path, fmt.Sprintf(`{"orderRef":"%s-%d"}`, path, i)))
			require.ErrorIs(t, err, samekey.ErrUnknown)
		}
		return len(srv.Requests()) - before
	}
	require.Equal(t, 40+20+10-1, send("/v1/payments", 40), "ten to start with, and one for every second request") // the first finds it full
	require.Equal(t, 4, send("/v1/orders", 1))
	require.Equal(t, 40, send("/v1/free", 10))
}

// An endpoint that keeps nothing retries under one key all the same, and its error does not promise what is not there.
func TestPersistNone(t *testing.T) {
	srv := newServer(t, mockserver.Config{})
	srv.Fault(mockserver.Fault{When: mockserver.AfterCommit, Do: mockserver.Drop, Times: 1})
	broken := &failing{Store: newStore(t), begin: func() error { return errDisk }}
	rec := &recorder{}
	policy := quick
	policy.Persist = samekey.PersistNone
	c := newClient(t, samekey.Config{Store: broken, Default: policy, Observer: rec.observe})
	resp, err := c.Do(samekey.Named(post(t, t.Context(), srv.URL+"/v1/payments", payment), "op"))
	require.NoError(t, err)
	read(t, resp)
	srv.AssertOnce(t)
	srv.AssertSameKey(t)
	require.Zero(t, count(t, broken.Store))
	require.False(t, rec.events[0].Durable)

	srv.Fault(mockserver.Fault{Do: mockserver.Status(503, false)})
	_, err = c.Do(samekey.Named(post(t, t.Context(), srv.URL+"/v1/orders", `{}`), "op"))
	require.ErrorIs(t, err, samekey.ErrUnknown)
	require.False(t, strings.Contains(err.Error(), "pending"), err.Error())
}
