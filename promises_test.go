package samekey_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/samekey/samekey"
	"github.com/samekey/samekey/persist"
)

// script answers each request with the next of its replies, the last one for ever, and keeps what it was sent.
type script struct {
	replies []canned
	sent    []*http.Request
	open    int // bodies that nobody has closed
}

type canned struct {
	status int
	header http.Header
	body   string
	err    error
}

func (s *script) RoundTrip(req *http.Request) (*http.Response, error) {
	if _, err := io.Copy(io.Discard, req.Body); err != nil {
		return nil, err
	}
	s.sent = append(s.sent, req)
	r := s.replies[min(len(s.sent), len(s.replies))-1]
	if r.err != nil {
		return nil, r.err
	}
	if r.header == nil {
		r.header = http.Header{}
	}
	s.open++
	return &http.Response{StatusCode: r.status, Header: r.header, ContentLength: int64(len(r.body)), Request: req,
		Body: &counted{Reader: strings.NewReader(r.body), open: &s.open}}, nil
}

type counted struct {
	io.Reader
	open *int
}

func (c *counted) Close() error {
	if c.open != nil {
		*c.open--
		c.open = nil
	}
	return nil
}

var errLost = errors.New("connection reset")

// TestTakenOverWithTheBytesOfTheFirstSend: a contract that was changed between two processes must not change how a key
// that the server may know already is written.
func TestTakenOverWithTheBytesOfTheFirstSend(t *testing.T) {
	store := newStore(t)
	s := &script{replies: []canned{{err: errLost}, {status: 201}}}
	do := func(carrier samekey.Carrier) error {
		c := newClient(t, samekey.Config{Store: store, HTTPClient: &http.Client{Transport: s},
			Default: samekey.Policy{MaxAttempts: 1, Contract: &samekey.Contract{Carrier: carrier}}})
		resp, err := c.Do(pay(t, t.Context(), "op"))
		if err == nil {
			read(t, resp)
		}
		return err
	}
	require.ErrorIs(t, do(samekey.Header("Idempotency-Key")), samekey.ErrUnknown)
	require.NoError(t, do(samekey.QuotedHeader("Idempotency-Key")))
	require.Len(t, s.sent, 2)
	require.Equal(t, s.sent[0].Header["Idempotency-Key"], s.sent[1].Header["Idempotency-Key"])
}

// TestConflictThatEchoesAnotherKey is a conflict all the same: it is not asked for again.
func TestConflictThatEchoesAnotherKey(t *testing.T) {
	s := &script{replies: []canned{{status: 409, header: http.Header{"Echo": {"another"}}}}}
	c := newClient(t, samekey.Config{HTTPClient: &http.Client{Transport: s},
		Default: samekey.Policy{Contract: &samekey.Contract{Echo: "Echo"}}})
	for range 2 {
		_, err := c.Do(pay(t, t.Context(), "op"))
		require.ErrorIs(t, err, samekey.ErrConflict)
	}
	require.Len(t, s.sent, 1)
}

// TestKeyOnlyKeepsNoConflictsBody: and still tells the conflict and its reason.
func TestKeyOnlyKeepsNoConflictsBody(t *testing.T) {
	store := newStore(t)
	s := &script{replies: []canned{{status: 409, body: `{"error":"IdempotencyKeyConflict","payload":"card 4111"}`}}}
	c := newClient(t, samekey.Config{Store: store, HTTPClient: &http.Client{Transport: s},
		Default: samekey.Policy{Persist: samekey.PersistKeyOnly, RequireName: samekey.On}})
	for range 2 {
		_, err := c.Do(pay(t, t.Context(), "op"))
		require.Equal(t, samekey.ReasonMismatch, asType[*samekey.ConflictError](t, err).Reason)
	}
	require.Len(t, s.sent, 1)
	rec := stored(t, store, "op")
	require.Equal(t, samekey.Conflicted, rec.State())
	require.Empty(t, rec.Answer.Body)
	require.Empty(t, rec.Answer.Header)
}

// replacing is a store whose Replace ends the caller's context and fails with it.
type replacing struct {
	persist.Store
	end context.CancelFunc
}

func (r replacing) Replace(ctx context.Context, _ persist.Claim, _ persist.Record) error {
	r.end()
	<-ctx.Done()
	return ctx.Err()
}

// TestRejectionOutlivesABrokenOffIntent: a caller who leaves while the name of a rejected operation is taken for a new
// payload has changed nothing.
func TestRejectionOutlivesABrokenOffIntent(t *testing.T) {
	s := &script{replies: []canned{{status: 422, body: `{"error":"no"}`}}}
	ctx, cancel := context.WithCancel(t.Context())
	c := newClient(t, samekey.Config{Store: replacing{newStore(t), cancel}, HTTPClient: &http.Client{Transport: s}})
	resp, err := c.Do(pay(t, t.Context(), "op"))
	require.NoError(t, err)
	read(t, resp)
	_, err = c.Do(samekey.Named(post(t, ctx, labURL+"/v1/payments", `{"amount":2}`), "op"))
	require.ErrorIs(t, err, samekey.ErrNotSent)
	require.ErrorIs(t, err, context.Canceled)
	resp, err = c.Do(pay(t, t.Context(), "op"))
	require.NoError(t, err)
	read(t, resp)
	info, _ := samekey.InfoOf(resp)
	require.Equal(t, samekey.Local, info.Source)
	require.Len(t, s.sent, 1)
}

// TestResendNeedsAKey: what nothing protects is not sent again to learn of its outcome.
func TestResendNeedsAKey(t *testing.T) {
	con := samekey.Contract{Carrier: samekey.NoKey, Poll: samekey.Poll{Resend: true}}
	_, err := samekey.New(samekey.Config{Store: newStore(t), Default: samekey.Policy{Contract: &con}})
	require.Equal(t, "Contract.Poll.Resend", asType[*samekey.PolicyError](t, err).Field)
}

// TestRedirectThatDropsTheKey: a key in the query goes only where the redirect's target bears it.
func TestRedirectThatDropsTheKey(t *testing.T) {
	for _, kept := range []bool{false, true} {
		s := &script{}
		s.replies = []canned{{status: 307, header: http.Header{}}, {status: 201}}
		c := newClient(t, samekey.Config{HTTPClient: &http.Client{Transport: s},
			Default: samekey.Policy{Redirects: samekey.On, Contract: &samekey.Contract{Carrier: samekey.QueryParam("key")}}})
		s.replies[0].header.Set("Location", "/elsewhere")
		if kept {
			s.replies[0].header.Set("Location", "/elsewhere?key=0123456789")
		}
		req := post(t, t.Context(), labURL+"/v1/payments?key=0123456789", payment)
		resp, err := c.Do(req)
		require.NoError(t, err)
		read(t, resp)
		if !kept {
			require.Equal(t, 307, resp.StatusCode)
			require.Len(t, s.sent, 1)
			continue
		}
		require.Equal(t, 201, resp.StatusCode)
		require.Equal(t, "0123456789", s.sent[1].URL.Query().Get("key"))
	}
}

// slowMark is a store whose marks take their time.
type slowMark struct {
	persist.Store
	takes time.Duration
}

func (s slowMark) Mark(ctx context.Context, c persist.Claim, p persist.Progress) error {
	time.Sleep(s.takes)
	return s.Store.Mark(ctx, c, p)
}

// TestKeyThatExpiresWhileItsMarkIsWritten is not sent.
func TestKeyThatExpiresWhileItsMarkIsWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{replies: []canned{{status: 503}}}
		c := newClient(t, samekey.Config{Store: slowMark{newStore(t), 25 * time.Hour}, HTTPClient: &http.Client{Transport: s},
			Default: samekey.Policy{Deadline: -1}})
		_, err := c.Do(pay(t, t.Context(), "op"))
		require.ErrorIs(t, err, samekey.ErrExpired)
		require.ErrorIs(t, err, samekey.ErrUnknown)
		require.Len(t, s.sent, 1)
	})
}

// TestBodiesBeyondMaxResponseAreClosed as soon as something follows their answers, so that they hold no connection.
func TestBodiesBeyondMaxResponseAreClosed(t *testing.T) {
	long := strings.Repeat("x", 100)
	self := http.Header{"Location": {"/elsewhere"}}
	for name, replies := range map[string][]canned{
		"redirect": {{status: 307, header: self, body: long}, {status: 201}},
		"await": {{status: 202, header: self, body: long}, {status: 503, body: long}, {status: 202, header: self, body: long},
			{status: 200, body: `{}`}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &script{replies: replies}
				atMost := func(req *http.Request) (*http.Response, error) {
					require.Zero(t, s.open)
					if req.Body == nil {
						req.Body = http.NoBody
					}
					return s.RoundTrip(req)
				}
				c := newClient(t, samekey.Config{HTTPClient: &http.Client{Transport: roundTripper(atMost)},
					Default: samekey.Policy{MaxResponse: 10, Redirects: samekey.On, Await: samekey.On}})
				resp, err := c.Do(pay(t, t.Context(), "op"))
				require.NoError(t, err)
				read(t, resp)
				require.Len(t, s.sent, len(replies))
				require.Zero(t, s.open)
			})
		})
	}
}

// TestBodyOfWhatExpiresIsClosed: a call that ends in an error without the answer leaves nothing of it open.
func TestBodyOfWhatExpiresIsClosed(t *testing.T) {
	for name, replies := range map[string][]canned{
		"expired":  {{status: 503, header: http.Header{"Retry-After": {"50"}}, body: strings.Repeat("x", 100)}},
		"not sent": {{status: 429, body: strings.Repeat("x", 100)}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &script{replies: replies}
				ctx, cancel := context.WithCancel(t.Context())
				rt := roundTripper(func(r *http.Request) (*http.Response, error) {
					if name == "not sent" {
						defer cancel()
					}
					return s.RoundTrip(r)
				})
				c := newClient(t, samekey.Config{HTTPClient: &http.Client{Transport: rt}, Default: samekey.Policy{
					MaxResponse: 10, RetryStatus: []int{429, 503}, Contract: &samekey.Contract{Life: 30 * time.Second}}})
				_, err := c.Do(pay(t, ctx, ""))
				require.True(t, isAny(err, samekey.ErrExpired, samekey.ErrNotSent), err)
				require.Len(t, s.sent, 1)
				require.Zero(t, s.open)
			})
		})
	}
}

// TestPollAddressWithTheDefaultPort is of the command's own origin.
func TestPollAddressWithTheDefaultPort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked string
		c := newClient(t, samekey.Config{Default: samekey.Policy{Await: samekey.On}, HTTPClient: &http.Client{
			Transport: roundTripper(func(req *http.Request) (*http.Response, error) {
				status := 202
				if req.Method == http.MethodGet {
					status, asked = 200, req.URL.String()
				}
				return &http.Response{StatusCode: status, Header: http.Header{"Location": {"http://API.test:80/operations/1"}},
					Body: http.NoBody, Request: req}, nil
			})}})
		resp, err := c.Do(pay(t, t.Context(), "op"))
		require.NoError(t, err)
		read(t, resp)
		require.Equal(t, "http://API.test:80/operations/1", asked)
	})
}

// TestKeyOnlyIsAskedAboutInRecovery: a poll needs no payload.
func TestKeyOnlyIsAskedAboutInRecovery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore(t)
		done := false
		rt := roundTripper(func(req *http.Request) (*http.Response, error) {
			status := 202
			if req.Method == http.MethodGet && done {
				status = 200
			}
			return &http.Response{StatusCode: status, Header: http.Header{"Location": {"/operations/1"}}, Body: http.NoBody, Request: req}, nil
		})
		c := newClient(t, samekey.Config{Store: store, HTTPClient: &http.Client{Transport: rt}, Default: samekey.Policy{
			Await: samekey.On, Persist: samekey.PersistKeyOnly, RequireName: samekey.On}})
		_, err := c.Do(pay(t, t.Context(), "op"))
		require.ErrorIs(t, err, samekey.ErrUnknown)
		done = true
		time.Sleep(time.Hour)
		report, err := c.Recover(t.Context(), samekey.Recovery{})
		require.NoError(t, err)
		require.Equal(t, 1, report.Succeeded)
	})
}

// TestPolledAnswerOfARecoveryIsNotLocal: it came from the server.
func TestPolledAnswerOfARecoveryIsNotLocal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		status := 202
		rt := roundTripper(func(req *http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: status, Header: http.Header{"Location": {"/operations/1"}}, Body: http.NoBody, Request: req}, nil
		})
		var rec recorder
		c := newClient(t, samekey.Config{HTTPClient: &http.Client{Transport: rt}, Default: samekey.Policy{Await: samekey.On}, Observer: rec.observe})
		_, err := c.Do(pay(t, t.Context(), "op"))
		require.ErrorIs(t, err, samekey.ErrUnknown)
		status = 200
		time.Sleep(time.Hour)
		report, err := c.Recover(t.Context(), samekey.Recovery{})
		require.NoError(t, err)
		require.Equal(t, 1, report.Succeeded)
		outcomes := rec.all(samekey.StepOutcome)
		require.Equal(t, samekey.Network, outcomes[len(outcomes)-1].Source)
	})
}

// TestCloseLeavesNoIdleConnections of the transport that New made.
func TestCloseLeavesNoIdleConnections(t *testing.T) {
	closed := make(chan struct{})
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(201) }))
	srv.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		if s == http.StateClosed {
			close(closed)
		}
	}
	srv.Start()
	t.Cleanup(srv.Close)
	c := newClient(t, samekey.Config{})
	resp, err := c.Do(post(t, t.Context(), srv.URL, payment))
	require.NoError(t, err)
	read(t, resp)
	require.NoError(t, c.Close())
	select {
	case <-closed:
	case <-time.After(10 * time.Second):
		t.Fatal("the connection is still open")
	}
}

// TestResultWithMembersOfOtherTypes reads what it can.
func TestResultWithMembersOfOtherTypes(t *testing.T) {
	answer := func(status int, body string) *http.Response {
		return &http.Response{StatusCode: status, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(body))}
	}
	r, err := samekey.ResultOf(answer(200, `{"status":"succeeded","message":{"text":"done"},"links":{"self":{"href":"/1"},"next":"/2"},"resultId":"r1"}`))
	require.NoError(t, err)
	require.Equal(t, "succeeded", r.Status)
	require.Equal(t, "r1", r.ID)
	require.Equal(t, "/2", r.Links["next"])
	for _, body := range []string{`[]`, `"text"`, `{`, ``} {
		_, err = samekey.ResultOf(answer(200, body))
		require.Error(t, err, body)
	}
	e, err := samekey.APIErrorOf(answer(422, `{"error":"TooMuch","message":["a","b"],"traceId":"t1"}`))
	require.NoError(t, err)
	require.Equal(t, "TooMuch", e.Code)
	require.Equal(t, "t1", e.TraceID)
}

// lingering is a store whose first Release returns only when it is told to; the claim is free before.
type lingering struct {
	persist.Store
	first *atomic.Bool
	leave chan struct{}
}

func (l lingering) Release(ctx context.Context, c persist.Claim) error {
	err := l.Store.Release(ctx, c)
	if l.first.CompareAndSwap(false, true) {
		<-l.leave
	}
	return err
}

// TestRecoveryThatEndsWhileItWaitsForACall gives the claim back that it has taken meanwhile.
func TestRecoveryThatEndsWhileItWaitsForACall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := lingering{newStore(t), new(atomic.Bool), make(chan struct{})}
		c := newClient(t, samekey.Config{Store: store, HTTPClient: &http.Client{
			Transport: roundTripper(func(req *http.Request) (*http.Response, error) {
				<-req.Context().Done()
				return nil, req.Context().Err()
			})}})
		run := func(f func(ctx context.Context) error) (end func() error) {
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() { done <- f(ctx) }()
			synctest.Wait()
			return func() error { cancel(); return <-done }
		}
		endCall := run(func(ctx context.Context) error { _, err := c.Do(pay(t, ctx, "op")); return err })
		called := make(chan error, 1)
		go func() { called <- endCall() }()
		synctest.Wait()
		endRecovery := run(func(ctx context.Context) error { _, err := c.Recover(ctx, samekey.Recovery{Jitter: -1}); return err })
		require.ErrorIs(t, endRecovery(), context.Canceled)
		close(store.leave)
		require.ErrorIs(t, <-called, samekey.ErrUnknown)
		_, err := store.Claim(t.Context(), samekey.Ref{ID: "op"})
		require.NoError(t, err)
	})
}

// TestResolverOfAnOperationThatMovedOn: what has a new key by now is not settled by what was learnt of the old one.
func TestResolverOfAnOperationThatMovedOn(t *testing.T) {
	store := newStore(t)
	s := &script{replies: []canned{{status: 409}}}
	var c *samekey.Client
	c = newClient(t, samekey.Config{Store: store, HTTPClient: &http.Client{Transport: s}, Default: samekey.Policy{
		Resolve: func(ctx context.Context, e *samekey.ConflictError) (*http.Response, error) {
			_, err := c.Rekey(ctx, e.Ref)
			return &http.Response{StatusCode: 200}, err
		}}})
	_, err := c.Do(pay(t, t.Context(), "op"))
	require.ErrorIs(t, err, samekey.ErrConflict)
	rec := stored(t, store, "op")
	require.Equal(t, samekey.Pending, rec.State())
	_, err = store.Claim(t.Context(), rec.Ref)
	require.NoError(t, err)
}

// TestResolverWithoutABody is an answer without one.
func TestResolverWithoutABody(t *testing.T) {
	s := &script{replies: []canned{{status: 409}}}
	c := newClient(t, samekey.Config{HTTPClient: &http.Client{Transport: s}, Default: samekey.Policy{
		Resolve: func(context.Context, *samekey.ConflictError) (*http.Response, error) {
			return &http.Response{StatusCode: 200}, nil
		}}})
	resp, err := c.Do(pay(t, t.Context(), "op"))
	require.NoError(t, err)
	require.Empty(t, read(t, resp))
	require.NotNil(t, resp.Header)
}

// closing is a store that has the client closed before a recovery gets what it has claimed.
type closing struct {
	persist.Store
	then func()
}

func (c closing) ClaimDue(ctx context.Context, n int) ([]persist.Entry, error) {
	due, err := c.Store.ClaimDue(ctx, n)
	if len(due) > 0 {
		c.then()
	}
	return due, err
}

// TestRecoveryStartsNothingOnceClosed: it gives back what it has claimed by then.
func TestRecoveryStartsNothingOnceClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{replies: []canned{{err: errLost}}}
		hc := &http.Client{Transport: s}
		store := newStore(t)
		_, err := newClient(t, samekey.Config{Store: store, HTTPClient: hc, Default: samekey.Policy{MaxAttempts: 1}}).Do(pay(t, t.Context(), "op"))
		require.ErrorIs(t, err, samekey.ErrUnknown)
		var c *samekey.Client
		c = newClient(t, samekey.Config{HTTPClient: hc, Store: closing{store, func() {
			go func() { _ = c.Close() }()
			synctest.Wait()
		}}})
		_, err = c.Recover(t.Context(), samekey.Recovery{Jitter: -1})
		require.ErrorIs(t, err, samekey.ErrClosed)
		require.Len(t, s.sent, 1)
		synctest.Wait()
		e, err := store.Claim(t.Context(), samekey.Ref{ID: "op"})
		require.NoError(t, err)
		require.Equal(t, 1, e.Progress.Attempts)
	})
}

type leasedStore struct {
	persist.Store
	lease time.Duration
}

func (l leasedStore) Lease() time.Duration { return l.lease }

// TestWaitBeyondTheLease: the claim would be lost by the time of the next attempt, and the wait in vain.
func TestWaitBeyondTheLease(t *testing.T) {
	for after, sends := range map[string]int{"10": 2, "40": 1} {
		synctest.Test(t, func(t *testing.T) {
			s := &script{replies: []canned{{status: 503, header: http.Header{"Retry-After": {after}}}, {status: 201}}}
			c := newClient(t, samekey.Config{Store: leasedStore{newStore(t), 30 * time.Second}, HTTPClient: &http.Client{Transport: s}})
			start := time.Now()
			resp, err := c.Do(pay(t, t.Context(), "op"))
			require.Len(t, s.sent, sends)
			if sends == 2 {
				require.NoError(t, err)
				read(t, resp)
				return
			}
			unknown := asType[*samekey.OutcomeUnknownError](t, err)
			require.ErrorContains(t, err, "lease of 30s")
			require.Zero(t, time.Since(start))
			require.Equal(t, 40*time.Second, unknown.RetryAfter.Sub(start).Round(time.Second))
		})
	}
}

// TestPollBeyondTheLease is left to recovery, which finds the address.
func TestPollBeyondTheLease(t *testing.T) {
	for _, resend := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			store := newStore(t)
			con := samekey.DefaultContract
			con.Poll.Resend = resend
			s := &script{replies: []canned{{status: 202, header: http.Header{"Retry-After": {"40"}, "Location": {"/operations/1"}}}}}
			c := newClient(t, samekey.Config{Store: leasedStore{store, 30 * time.Second}, HTTPClient: &http.Client{Transport: s},
				Default: samekey.Policy{Await: samekey.On, Contract: &con}})
			start := time.Now()
			_, err := c.Do(pay(t, t.Context(), "op"))
			require.ErrorIs(t, err, samekey.ErrUnknown)
			require.ErrorContains(t, err, "lease of 30s")
			require.Zero(t, time.Since(start))
			require.Len(t, s.sent, 1)
			if !resend {
				require.Equal(t, labURL+"/operations/1", stored(t, store, "op").Progress.PollURL)
			}
		})
	}
}
