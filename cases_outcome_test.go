package samekey_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/samekey/samekey"
	"github.com/samekey/samekey/mockserver"
	"github.com/samekey/samekey/persist"
)

// Every way in which the last answer can be missing is told as unknown, and the same name goes on under the same key.
func TestCase_B14_UnknownIsSaid(t *testing.T) {
	for name, do := range map[string]mockserver.Action{
		"500": mockserver.Status(500, false), "503": mockserver.Status(503, false), "408": mockserver.Status(408, false),
		"drop": mockserver.Drop, "reset": mockserver.Reset, "cut": mockserver.CutBody, "cut chunks": mockserver.CutChunked,
		"silence": mockserver.Stall(0), "silence in the body": mockserver.StallBody(0), "garbage": mockserver.RawResponse([]byte("EHLO\r\n")),
	} {
		t.Run(name, func(t *testing.T) {
			inLab(t, mockserver.Config{}, func(t *testing.T, l *lab) {
				l.Fault(mockserver.Fault{When: mockserver.AfterCommit, Do: do.Then(mockserver.StripAnswerHeader("Idempotent-Replayed"))})
				c := l.client(t, samekey.Config{})
				_, err := c.Do(pay(t, t.Context(), "op"))
				require.ErrorIs(t, err, samekey.ErrUnknown)
				require.NotErrorIs(t, err, samekey.ErrNotSent)
				require.NotErrorIs(t, err, samekey.ErrConflict)
				require.Equal(t, samekey.EffectUnknown, samekey.EffectOf(err))
				unknown := asType[*samekey.OutcomeUnknownError](t, err)
				require.True(t, unknown.MaybeSent)
				require.Equal(t, 4, unknown.Attempts)
				require.Equal(t, stored(t, l.store, "op").Key, unknown.Key)
				require.Contains(t, err.Error(), "outcome unknown")
				require.Contains(t, err.Error(), `"op"`)
				op, err := c.Operation(t.Context(), unknown.Ref)
				require.NoError(t, err)
				require.Equal(t, samekey.Pending, op.State)
				require.Equal(t, 4, op.Attempts)
				require.NoError(t, c.Close())

				l.ClearFaults()
				resp, err := l.client(t, samekey.Config{}).Do(pay(t, t.Context(), "op"))
				require.NoError(t, err)
				require.Equal(t, 201, resp.StatusCode)
				read(t, resp)
				require.Equal(t, slices.Repeat([]string{unknown.Key}, 5), wireKeys(l.Requests()))
				l.AssertOnce(t)
			})
		})
	}
}

// The policy is asked on every path on which an exchange can fail.
func TestCase_B21_ThePolicyHoldsOnEveryPath(t *testing.T) {
	type path struct {
		name   string
		fault  mockserver.Fault
		refuse bool
	}
	for _, p := range []path{
		{name: "dial", refuse: true},
		{name: "header wait", fault: mockserver.Fault{When: mockserver.AfterCommit, Do: mockserver.Stall(0)}},
		{name: "body read", fault: mockserver.Fault{When: mockserver.AfterCommit, Do: mockserver.StallBody(0)}},
		{name: "body cut", fault: mockserver.Fault{When: mockserver.AfterCommit, Do: mockserver.CutBody}},
		{name: "reset", fault: mockserver.Fault{When: mockserver.AfterCommit, Do: mockserver.Reset}},
		{name: "5xx", fault: mockserver.Fault{Do: mockserver.Status(502, false)}},
	} {
		for _, policy := range []struct {
			name    string
			policy  samekey.Policy
			reached int // attempts where the server may have been reached
			dials   int
		}{
			{"no retry", samekey.Policy{MaxAttempts: 1}, 1, 1},
			{"default", samekey.Policy{}, 4, 4},
			{"transport off", samekey.Policy{RetryTransport: samekey.Off, RetryStatus: []int{}}, 1, 4},
			{"vetoed", samekey.Policy{Decide: func(samekey.Attempt) samekey.Decision { return samekey.Stop }}, 1, 1},
		} {
			t.Run(p.name+"/"+policy.name, func(t *testing.T) {
				inLab(t, mockserver.Config{}, func(t *testing.T, l *lab) {
					rec := &recorder{}
					if p.refuse {
						l.rt.Refuse(100)
					} else {
						l.Fault(p.fault)
					}
					// What an endpoint says goes before the default, on every path.
					c := l.client(t, samekey.Config{Observer: rec.observe, Endpoints: map[string]samekey.Policy{"POST api.test/v1/payments": policy.policy}})
					_, err := c.Do(pay(t, t.Context(), "op"))
					if p.refuse {
						require.ErrorIs(t, err, samekey.ErrNotSent)
						require.Len(t, rec.all(samekey.StepAttempt), policy.dials)
						require.Empty(t, l.Requests())
						require.Zero(t, count(t, l.store))
						return
					}
					require.ErrorIs(t, err, samekey.ErrUnknown)
					require.Len(t, l.Requests(), policy.reached)
					l.AssertAtMostOnce(t)
				})
			})
		}
	}
}

func TestCase_B22_DecideSeesTheOperationWithoutAResponse(t *testing.T) {
	srv := newServer(t, mockserver.Config{})
	srv.Fault(mockserver.Fault{When: mockserver.AfterCommit, Do: mockserver.Reset, Times: 2})
	var seen []samekey.Attempt
	policy := quick
	policy.RetryTransport = samekey.Off
	policy.Decide = func(a samekey.Attempt) samekey.Decision {
		seen = append(seen, a)
		return samekey.Retry
	}
	c := newClient(t, samekey.Config{Endpoints: map[string]samekey.Policy{"POST /v1/payments": policy}})
	resp, err := c.Do(samekey.Named(post(t, t.Context(), srv.URL+"/v1/payments", payment), "op"))
	require.NoError(t, err)
	read(t, resp)
	require.Len(t, seen, 2, "not asked after a success")
	for i, a := range seen {
		require.Equal(t, i+1, a.N)
		require.Zero(t, a.Status)
		require.Nil(t, a.Header)
		require.Error(t, a.Err)
		require.Equal(t, "POST", a.Operation.Method)
		require.Equal(t, srv.URL+"/v1/payments", a.Operation.URL)
		require.Equal(t, "op", a.Operation.ID)
		require.Equal(t, srv.Keys()[0], a.Operation.Key)
		require.Equal(t, "POST /v1/payments", a.Operation.Endpoint)
	}
	srv.AssertOnce(t)
}

// A 401 is an answer. Who can mend it says so in Decide: the same key, an attempt more, and once only.
func TestCase_B23_AnExpiredTokenIsNotRetriedUnasked(t *testing.T) {
	fault := mockserver.Fault{When: mockserver.AfterCommit, Do: mockserver.Status(401, false).Then(mockserver.StripAnswerHeader("Idempotent-Replayed"))}
	run := func(t *testing.T, policy samekey.Policy) (*mockserver.Server, *http.Response, error) {
		srv := newServer(t, mockserver.Config{PrincipalOf: func(*http.Request) string { return "we" }})
		srv.Fault(fault)
		n := 0
		c := newClient(t, samekey.Config{Default: policy, Prepare: func(_ context.Context, r *http.Request) error {
			n++
			r.Header.Set("Authorization", fmt.Sprintf("Bearer token-%d", n))
			return nil
		}})
		resp, err := c.Do(samekey.Named(post(t, t.Context(), srv.URL+"/v1/payments", payment), "op"))
		return srv, resp, err
	}
	srv, resp, err := run(t, quick)
	require.NoError(t, err)
	require.Equal(t, 401, resp.StatusCode)
	require.Len(t, srv.Requests(), 1)

	refresh := quick
	refresh.Decide = func(a samekey.Attempt) samekey.Decision {
		if a.Status == 401 && a.N == 1 {
			return samekey.Retry
		}
		return samekey.AsUsual
	}
	srv, resp, err = run(t, refresh)
	require.NoError(t, err)
	require.Equal(t, 401, resp.StatusCode)
	info, _ := samekey.InfoOf(resp)
	require.Equal(t, 2, info.Attempts)
	reqs := srv.Requests()
	require.Len(t, reqs, 2, "once")
	require.Equal(t, reqs[0].Key, reqs[1].Key)
	require.Equal(t, []string{"Bearer token-1"}, reqs[0].Header["Authorization"])
	require.Equal(t, []string{"Bearer token-2"}, reqs[1].Header["Authorization"])
}

func TestCase_B57_WhoseDeadlineItIs(t *testing.T) {
	t.Run("the caller's", func(t *testing.T) {
		inLab(t, mockserver.Config{}, func(t *testing.T, l *lab) {
			l.Fault(mockserver.Fault{Do: mockserver.Stall(0)})
			c := l.client(t, samekey.Config{Default: samekey.Policy{AttemptTimeout: time.Second, MaxAttempts: 5}})
			for i, name := range []string{"op", ""} { // shared and inline calls
				ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
				start := time.Now()
				_, err := c.Do(pay(t, ctx, name))
				cancel()
				require.Equal(t, 100*time.Millisecond, time.Since(start))
				require.ErrorIs(t, err, context.DeadlineExceeded)
				require.ErrorIs(t, err, samekey.ErrUnknown)
				require.NotErrorIs(t, err, samekey.ErrTimeout)
				require.Len(t, l.Requests(), i+1)
			}
		})
	})
	t.Run("the attempt's", func(t *testing.T) {
		inLab(t, mockserver.Config{}, func(t *testing.T, l *lab) {
			l.Fault(mockserver.Fault{When: mockserver.AfterCommit, Do: mockserver.Stall(0), Times: 2})
			c := l.client(t, samekey.Config{Default: samekey.Policy{AttemptTimeout: 100 * time.Millisecond, Backoff: samekey.Backoff{Min: -1}}})
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			resp, err := c.Do(pay(t, ctx, "op"))
			require.NoError(t, err)
			read(t, resp)
			require.Equal(t, []time.Duration{100 * time.Millisecond, 100 * time.Millisecond}, gaps(l.Requests()))
			l.AssertOnce(t)
			l.AssertSameKey(t)
		})
	})
	t.Run("the attempts', all of them", func(t *testing.T) {
		inLab(t, mockserver.Config{}, func(t *testing.T, l *lab) {
			l.Fault(mockserver.Fault{Do: mockserver.Stall(0)})
			c := l.client(t, samekey.Config{Default: samekey.Policy{AttemptTimeout: 100 * time.Millisecond, MaxAttempts: 2}})
			_, err := c.Do(pay(t, t.Context(), "op"))
			require.ErrorIs(t, err, samekey.ErrTimeout)
			require.NotErrorIs(t, err, context.DeadlineExceeded, "nobody's deadline passed")
		})
	})
	t.Run("the policy's", func(t *testing.T) {
		inLab(t, mockserver.Config{}, func(t *testing.T, l *lab) {
			l.Fault(mockserver.Fault{Do: mockserver.Stall(0)})
			c := l.client(t, samekey.Config{Default: samekey.Policy{AttemptTimeout: 2 * time.Second, Deadline: 5 * time.Second, MaxAttempts: 50, Backoff: samekey.Backoff{Min: -1}}})
			start := time.Now()
			_, err := c.Do(pay(t, t.Context(), "op"))
			require.Equal(t, 5*time.Second, time.Since(start))
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.ErrorIs(t, err, samekey.ErrUnknown)
			require.Len(t, l.Requests(), 3)
		})
	})
}

func TestCase_B58_ACancelIsNoTimeout(t *testing.T) {
	reason := errors.New("the user pressed escape")
	for name, fault := range map[string]mockserver.Fault{
		"header wait": {When: mockserver.AfterCommit, Do: mockserver.Stall(0)},
		"body read":   {When: mockserver.AfterCommit, Do: mockserver.StallBody(0)},
		"backoff":     {Do: mockserver.Status(503, false).With("Retry-After", "50")},
	} {
		for _, named := range []string{"op", ""} {
			t.Run(name+"/"+named, func(t *testing.T) {
				inLab(t, mockserver.Config{}, func(t *testing.T, l *lab) {
					l.Fault(fault)
					c := l.client(t, samekey.Config{HTTPClient: &http.Client{Transport: l.rt.Transport, Timeout: 8 * time.Second}})
					ctx, cancel := context.WithCancelCause(t.Context())
					time.AfterFunc(3*time.Second, func() { cancel(reason) })
					start := time.Now()
					_, err := c.Do(pay(t, ctx, named))
					require.Equal(t, 3*time.Second, time.Since(start))
					require.ErrorIs(t, err, context.Canceled)
					require.ErrorIs(t, err, reason)
					require.ErrorIs(t, err, samekey.ErrUnknown)
					require.NotErrorIs(t, err, samekey.ErrTimeout)
					require.Len(t, l.Requests(), 1)
					require.Equal(t, 1, pending(t, l.store))
				})
			})
		}
	}
	t.Run("while the body is sent", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			store := newStore(t)
			tries := 0
			c := newClient(t, samekey.Config{Store: store, HTTPClient: &http.Client{Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
				tries++
				_, _ = io.CopyN(io.Discard, r.Body, 5)
				<-r.Context().Done()
				return nil, r.Context().Err()
			})}})
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(time.Second, cancel)
			_, err := c.Do(post(t, ctx, labURL, payment))
			require.ErrorIs(t, err, context.Canceled)
			require.ErrorIs(t, err, samekey.ErrUnknown)
			require.Equal(t, 1, tries)
			require.Equal(t, 1, pending(t, store))
		})
	})
	t.Run("before anything", func(t *testing.T) {
		inLab(t, mockserver.Config{}, func(t *testing.T, l *lab) {
			c := l.client(t, samekey.Config{})
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			_, err := c.Do(pay(t, ctx, ""))
			require.ErrorIs(t, err, samekey.ErrNotSent)
			require.Equal(t, samekey.EffectNone, samekey.EffectOf(err))
			_, err = c.Do(pay(t, ctx, "op"))
			require.ErrorIs(t, err, context.Canceled)
			require.Equal(t, samekey.EffectUnknown, samekey.EffectOf(err), "nobody has asked the store about the name")
			require.Empty(t, l.Requests())
			require.Zero(t, count(t, l.store))
		})
	})
}

func TestCase_B62_ACutAnswerIsALostAnswer(t *testing.T) {
	for name, do := range map[string]mockserver.Action{"Content-Length": mockserver.CutBody, "chunked": mockserver.CutChunked} {
		for _, op := range []string{"op", ""} {
			t.Run(name+"/"+op, func(t *testing.T) {
				inLab(t, mockserver.Config{}, func(t *testing.T, l *lab) {
					l.Fault(mockserver.Fault{When: mockserver.AfterCommit, Do: do, Times: 2})
					c := l.client(t, samekey.Config{Default: quick})
					resp, err := c.Do(pay(t, t.Context(), op))
					require.NoError(t, err)
					require.Equal(t, 201, resp.StatusCode)
					require.True(t, strings.HasSuffix(strings.TrimSpace(read(t, resp)), "}"))
					require.Len(t, l.Requests(), 3)
					l.AssertOnce(t)
					l.AssertSameKey(t)
				})
			})
		}
	}
}

func TestCase_B80_WhatCannotBeSentFailsAtOnce(t *testing.T) {
	run := func(t *testing.T, hc *http.Client, req *http.Request) []samekey.Event {
		store, rec := newStore(t), &recorder{}
		c := newClient(t, samekey.Config{Store: store, HTTPClient: hc, Observer: rec.observe})
		_, err := c.Do(samekey.Named(req, "op"))
		require.ErrorIs(t, err, samekey.ErrNotSent)
		require.NotErrorIs(t, err, samekey.ErrUnknown)
		require.Empty(t, rec.all(samekey.StepWait))
		require.False(t, asType[*samekey.NotSentError](t, err).MaybeSent)
		require.Zero(t, count(t, store), "the record is gone")
		return rec.all(samekey.StepAttempt)
	}
	t.Run("certificate", func(t *testing.T) {
		srv := mockserver.NewTLSServer(mockserver.Config{})
		t.Cleanup(srv.Close)
		require.Len(t, run(t, nil, post(t, t.Context(), srv.URL+"/v1/payments", payment)), 1)
		require.Empty(t, srv.Requests())
	})
	t.Run("scheme", func(t *testing.T) {
		require.Empty(t, run(t, nil, post(t, t.Context(), "htp://api.test/v1/payments", payment)))
	})
	t.Run("header", func(t *testing.T) {
		req := post(t, t.Context(), labURL, payment)
		req.Header["X-Token"] = []string{"secret\r\nX-Other: 1"}
		require.Empty(t, run(t, nil, req))
	})
	t.Run("redirect loop", func(t *testing.T) {
		srv := newServer(t, mockserver.Config{})
		srv.Fault(mockserver.Fault{Do: mockserver.Redirect(302, "/v1/payments")})
		c := newClient(t, samekey.Config{Default: quick})
		resp, err := c.Do(post(t, t.Context(), srv.URL+"/v1/payments", payment))
		require.NoError(t, err)
		require.Equal(t, 302, resp.StatusCode)
		require.Len(t, srv.Requests(), 1)
	})
	t.Run("a location that cannot be read", func(t *testing.T) {
		srv := newServer(t, mockserver.Config{})
		srv.Fault(mockserver.Fault{Do: mockserver.Redirect(302, "http://[::bad")})
		c := newClient(t, samekey.Config{Default: quick})
		resp, err := c.Do(post(t, t.Context(), srv.URL+"/v1/payments", payment))
		require.NoError(t, err)
		require.Equal(t, 302, resp.StatusCode)
		require.Len(t, srv.Requests(), 1)
	})
}

// Statuses that a policy adds are retried, and end as their row says.
func TestCase_B81_AddedStatuses(t *testing.T) {
	for _, row := range []struct {
		status  int
		retry   []int
		sends   int
		unknown bool
	}{
		{400, nil, 1, false}, {401, nil, 1, false}, {402, nil, 1, false}, {404, nil, 1, false}, {410, nil, 1, false},
		{422, nil, 1, false}, {425, nil, 1, false}, {429, nil, 1, false},
		{408, nil, 4, true}, {501, nil, 4, true}, {505, nil, 4, true}, {599, nil, 4, true},
		{425, []int{425}, 4, false}, {429, []int{425, 429}, 4, false}, {503, []int{429}, 1, true}, {503, []int{}, 1, true},
		{503, []int{503}, 4, true}, {500, []int{503}, 1, true}, {404, []int{404}, 4, true}, {418, []int{418}, 4, true},
	} {
		t.Run(fmt.Sprint(row.status, row.retry), func(t *testing.T) {
			srv := newServer(t, mockserver.Config{})
			srv.Fault(mockserver.Fault{Do: mockserver.Status(row.status, false)})
			policy := quick
			policy.RetryStatus = row.retry
			store := newStore(t)
			c := newClient(t, samekey.Config{Store: store, Default: policy})
			resp, err := c.Do(samekey.Named(post(t, t.Context(), srv.URL+"/v1/payments", payment), "op"))
			require.Len(t, srv.Requests(), row.sends)
			if row.unknown {
				require.ErrorIs(t, err, samekey.ErrUnknown)
				require.Equal(t, 1, pending(t, store))
				return
			}
			require.NoError(t, err)
			require.Equal(t, row.status, resp.StatusCode)
			require.Zero(t, pending(t, store))
		})
	}
}

func TestCase_B83_TheErrorTellsWhatHappened(t *testing.T) {
	inLab(t, mockserver.Config{}, func(t *testing.T, l *lab) {
		l.Fault(mockserver.Fault{Do: mockserver.Status(503, false).With("X-Reason", "maintenance").Body(`{"error":"Down"}`)})
		c := l.client(t, samekey.Config{})
		check := func(err error, attempts int) {
			t.Helper()
			wrapped := fmt.Errorf("charging: %w", err)
			unknown := asType[*samekey.OutcomeUnknownError](t, wrapped)
			require.ErrorIs(t, wrapped, samekey.ErrUnknown)
			require.Equal(t, attempts, unknown.Attempts)
			require.Equal(t, 503, unknown.Last.Status)
			require.Equal(t, "maintenance", unknown.Last.Header.Get("X-Reason"))
			require.JSONEq(t, `{"error":"Down"}`, string(unknown.Last.Body))
			require.Equal(t, labURL+"/v1/payments", unknown.URL)
			require.Contains(t, err.Error(), "503")
			require.Contains(t, err.Error(), fmt.Sprintf("%d attempt", attempts))
		}
		_, err := c.Do(pay(t, t.Context(), "op"))
		check(err, 4)

		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond) // in the first wait
		defer cancel()
		_, err = c.Do(pay(t, ctx, "op-2"))
		check(err, 1)
		require.ErrorIs(t, err, context.DeadlineExceeded)

		for name, do := range map[string]func(*http.Request) (*http.Response, error){
			"AsResponses": c.AsResponses().Do, "Transport": c.Transport().RoundTrip, "HTTPClient": c.HTTPClient().Do,
		} {
			resp, err := do(pay(t, t.Context(), name))
			require.NoError(t, err, name)
			require.Equal(t, 503, resp.StatusCode)
			require.JSONEq(t, `{"error":"Down"}`, read(t, resp), "a body that can be read")
			check(samekey.ErrorOf(resp), 4)
		}

		l.ClearFaults()
		l.Fault(mockserver.Fault{Do: mockserver.Status(503, false), Times: 3}, mockserver.Fault{Do: mockserver.Reset})
		_, err = c.Do(pay(t, t.Context(), "op-3"))
		unknown := asType[*samekey.OutcomeUnknownError](t, err)
		require.Nil(t, unknown.Last, "the last attempt got none")
		require.ErrorContains(t, err, "reset")
		_, err = c.AsResponses().Do(pay(t, t.Context(), "op-4"))
		require.ErrorIs(t, err, samekey.ErrUnknown, "there is no response to give")
	})
}

// Hooks that sign run before each attempt, whoever makes it; key and body stay, and what they set is not stored.
func TestCase_B102_EachAttemptIsSignedAnew(t *testing.T) {
	inLab(t, mockserver.Config{TTL: 48 * time.Hour, PrincipalOf: func(*http.Request) string { return "we" }}, func(t *testing.T, l *lab) {
		nonce := 0
		sign := func(r *http.Request) {
			nonce++
			r.Header.Set("X-Signed-At", time.Now().Format(time.RFC3339Nano))
			r.Header.Set("X-Nonce", fmt.Sprint(nonce))
		}
		beneath := &http.Client{Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
			r = r.Clone(r.Context())
			sign(r)
			return l.rt.RoundTrip(r)
		})}
		prepare := func(_ context.Context, r *http.Request) error { sign(r); return nil }
		for i, cfg := range []samekey.Config{{HTTPClient: beneath}, {Prepare: prepare}} {
			t.Logf("way %d", i)
			l.Reset()
			cfg.Default = samekey.Policy{Backoff: samekey.Backoff{Min: 10 * time.Second}, MaxAttempts: 2}
			l.Fault(mockserver.Fault{Do: mockserver.Status(503, false), Times: 2})
			name := fmt.Sprint("op-", i)
			first := l.client(t, cfg)
			_, err := first.Do(pay(t, t.Context(), name))
			require.ErrorIs(t, err, samekey.ErrUnknown)
			require.NoError(t, first.Close())
			time.Sleep(time.Hour)
			report, err := l.client(t, cfg).Recover(t.Context(), samekey.Recovery{})
			require.NoError(t, err)
			require.Equal(t, 1, report.Succeeded)
			seen := map[string]bool{}
			for _, r := range l.Requests() {
				at, err := time.Parse(time.RFC3339Nano, r.Header.Get("X-Signed-At"))
				require.NoError(t, err)
				require.Zero(t, r.At.Sub(at))
				require.False(t, seen[r.Header.Get("X-Nonce")])
				seen[r.Header.Get("X-Nonce")] = true
			}
			require.Len(t, seen, 3)
			l.AssertSameKey(t)
			rec := stored(t, l.store, name)
			require.NotContains(t, rec.Header, "X-Nonce")
			require.NotContains(t, rec.Omitted, "X-Nonce", "the caller had not set it")
		}
	})
}

// A success that cannot be written down keeps its answer and says so; the same name again is safe under the same key.
func TestCase_B29_ASuccessThatCannotBeWrittenDown(t *testing.T) {
	for _, name := range []string{"op", ""} {
		srv := newServer(t, mockserver.Config{})
		inner := newStore(t)
		rec := &recorder{}
		c := newClient(t, samekey.Config{Store: &failing{Store: inner, settle: func() error { return errDisk }}, Default: quick, Observer: rec.observe})
		req := post(t, t.Context(), srv.URL+"/v1/payments", payment)
		if name != "" {
			req = samekey.Named(req, name)
		}
		resp, err := c.Do(req)
		require.NoError(t, err)
		require.Equal(t, 201, resp.StatusCode)
		require.Contains(t, read(t, resp), "paymentId")
		if name != "" {
			info, _ := samekey.InfoOf(resp)
			require.ErrorIs(t, info.StoreErr, errDisk)
		}
		require.ErrorIs(t, rec.all(sStoreError)[0].Err, errDisk)
		require.NoError(t, c.Close())
		require.Equal(t, 1, pending(t, inner))
		report, err := newClient(t, samekey.Config{Store: inner}).Recover(t.Context(), samekey.Recovery{Jitter: -1})
		require.NoError(t, err)
		require.Equal(t, 1, report.Succeeded, name)
		require.Zero(t, pending(t, inner))
		srv.AssertOnce(t)
		srv.AssertSameKey(t)
	}
}

// A mark that fails ends the attempts: no send that the store does not know of.
func TestMarkThatFails(t *testing.T) {
	for _, err := range []error{errDisk, persist.ErrClaimLost} {
		srv := newServer(t, mockserver.Config{})
		srv.Fault(mockserver.Fault{Do: mockserver.Status(503, false)})
		inner := newStore(t)
		c := newClient(t, samekey.Config{Store: &failing{Store: inner, mark: func() error { return err }}, Default: quick})
		_, got := c.Do(samekey.Named(post(t, t.Context(), srv.URL+"/v1/payments", payment), "op"))
		require.ErrorIs(t, got, samekey.ErrUnknown)
		require.ErrorIs(t, got, err)
		require.Equal(t, 503, asType[*samekey.OutcomeUnknownError](t, got).Last.Status)
		require.Len(t, srv.Requests(), 1)
		require.Equal(t, 1, pending(t, inner))
	}
}
