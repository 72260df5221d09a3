package samekey_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/samekey/samekey"
	"github.com/samekey/samekey/mockserver"
	"github.com/samekey/samekey/persist"
)

// TestIssuedInTheFuture: a key whose caller's clock is ahead is not sent past its life, in a later process either.
func TestIssuedInTheFuture(t *testing.T) {
	inLab(t, mockserver.Config{}, func(t *testing.T, l *lab) {
		l.Fault(mockserver.Fault{Do: mockserver.Drop})
		p := samekey.Policy{MaxAttempts: 1, KeyFormat: samekey.Derived(make([]byte, 32))} // known for 24 h
		began := time.Now()
		pay := func(c *samekey.Client) error {
			_, err := c.Do(pay(t, samekey.WithIssuedAt(t.Context(), began.Add(12*time.Hour)), "op"))
			return err
		}
		first := l.client(t, samekey.Config{Default: p, Store: unmarked{l.store}})
		require.ErrorIs(t, pay(first), samekey.ErrUnknown)
		require.NoError(t, first.Close())
		time.Sleep(30 * time.Hour)
		require.ErrorIs(t, pay(l.client(t, samekey.Config{Default: p})), samekey.ErrExpired)
		require.Len(t, l.Requests(), 1)
	})
}

// TestCapturedWithAnIssueTimeInTheFuture: what is recorded for later counts from now too, and is not sent past its key's
// life.
func TestCapturedWithAnIssueTimeInTheFuture(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, sends := newStore(t), 0
		rt := roundTripper(func(r *http.Request) (*http.Response, error) {
			sends++
			return &http.Response{StatusCode: http.StatusCreated, Header: http.Header{}, Body: http.NoBody, Request: r}, nil
		})
		c := newClient(t, samekey.Config{
			Store: store, HTTPClient: &http.Client{Transport: rt},
			Default: samekey.Policy{KeyFormat: samekey.Derived(make([]byte, 32))}, // known for 24 h
		})
		now := time.Now()
		rec, err := c.Capture(pay(t, samekey.WithIssuedAt(t.Context(), now.Add(12*time.Hour)), "op"))
		require.NoError(t, err)
		require.True(t, rec.Progress.FirstSent.Equal(now))
		e, err := store.Begin(context.Background(), rec)
		require.NoError(t, err)
		require.NoError(t, store.Release(context.Background(), e.Claim))
		time.Sleep(30 * time.Hour)
		report, err := c.Recover(t.Context(), samekey.Recovery{Jitter: -1})
		require.NoError(t, err)
		require.Equal(t, 1, report.Expired)
		require.Zero(t, sends)
	})
}

// unmarked writes no mark, as if the process had died before.
type unmarked struct{ persist.Store }

func (unmarked) Mark(context.Context, persist.Claim, persist.Progress) error {
	return errors.New("the process is gone")
}

// TestIdentityHeaderInAnySpelling: net/http sends a name as it stands in the map, and so it counts.
func TestIdentityHeaderInAnySpelling(t *testing.T) {
	s := newAcquirer(t, http.StatusCreated)
	c := newClient(t, samekey.Config{Default: samekey.Policy{IdentityHeaders: []string{"Stripe-Account"}}})
	do := func(name, account string) error {
		req := s.pay(t, payment)
		req.Header[name] = []string{account}
		resp, err := c.Do(req)
		if err == nil {
			read(t, resp)
		}
		return err
	}
	require.NoError(t, do("stripe-account", "A"))
	require.NoError(t, do("Stripe-Account", "A"))
	require.ErrorIs(t, do("stripe-account", "B"), samekey.ErrMismatch)
	require.ErrorIs(t, do("Stripe-Account", "B"), samekey.ErrMismatch)
	require.Len(t, s.keys(), 1)
}

// TestOpaqueURL: what could not be stored whole is not sent.
func TestOpaqueURL(t *testing.T) {
	s := newAcquirer(t, http.StatusCreated)
	c := newClient(t, samekey.Config{})
	req := s.pay(t, payment)
	req.URL = &url.URL{Scheme: "http", Host: req.URL.Host, Opaque: "/v1/payments"}
	_, err := c.Do(req)
	require.ErrorIs(t, err, samekey.ErrNotSent)
	require.ErrorContains(t, err, "opaque")
	require.Empty(t, s.keys())
}

// TestPollGoesToTheCommandsHost: a Host of the caller's own is that of the polls too.
func TestPollGoesToTheCommandsHost(t *testing.T) {
	var hosts []string
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		hosts = append(hosts, r.Method+" "+r.Host)
		if r.Method == http.MethodPost {
			w.Header().Set("Location", "/ops/1")
			w.WriteHeader(http.StatusAccepted)
		}
		_, _ = io.WriteString(w, `{}`)
	}))
	t.Cleanup(srv.Close)
	contract := samekey.DefaultContract
	contract.Poll.Interval = time.Millisecond
	c := newClient(t, samekey.Config{Default: samekey.Policy{Await: samekey.On, Contract: &contract}})
	req := post(t, t.Context(), srv.URL+"/v1/payments", payment)
	req.Host = "api.internal"
	resp, err := c.Do(req)
	require.NoError(t, err)
	read(t, resp)
	require.Equal(t, []string{"POST api.internal", "GET api.internal"}, hosts)
}

// TestPrepareMayReadEveryBody: signers read GetBody, of what has no body and of polls too.
func TestPrepareMayReadEveryBody(t *testing.T) {
	var got []string
	rt := roundTripper(func(r *http.Request) (*http.Response, error) {
		resp := &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: http.NoBody, Request: r}
		if r.Method == http.MethodPost {
			resp.StatusCode = http.StatusAccepted
			resp.Header.Set("Location", "/ops/1")
		}
		return resp, nil
	})
	contract := samekey.DefaultContract
	contract.Poll.Interval = time.Millisecond
	c := newClient(t, samekey.Config{
		HTTPClient: &http.Client{Transport: rt},
		Default:    samekey.Policy{Await: samekey.On, Contract: &contract},
		Prepare: func(_ context.Context, req *http.Request) error {
			body, err := req.GetBody()
			if err != nil {
				return err
			}
			b, err := io.ReadAll(body)
			got = append(got, req.Method+string(b))
			return err
		},
	})
	for _, body := range []string{"", "x"} {
		resp, err := c.Do(post(t, t.Context(), labURL+"/v1/payments", body))
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
	}
	require.Equal(t, []string{"POST", "GET", "POSTx", "GET"}, got)
}

// settlesNothing fails to settle, and names the operation in the error.
type settlesNothing struct{ persist.Store }

func (s settlesNothing) Settle(_ context.Context, c persist.Claim, _ persist.Answer) error {
	return &persist.Error{Store: "test", Method: "Settle", Ref: c.Ref, Err: errors.New("disk trouble")}
}

// TestStoreErrorsShowNoWholeKey: an operation's name may be its key.
func TestStoreErrorsShowNoWholeKey(t *testing.T) {
	s := newAcquirer(t, http.StatusUnprocessableEntity)
	var events recorder
	c := newClient(t, samekey.Config{Store: settlesNothing{newStore(t)}, Observer: events.observe})
	_, err := c.Do(post(t, t.Context(), s.URL+"/v1/payments", payment))
	require.ErrorIs(t, err, samekey.ErrUnknown)
	key := s.keys()[0]
	require.NotContains(t, err.Error(), key)
	failed := events.all(samekey.StepStoreError)
	require.NotEmpty(t, failed)
	for _, e := range failed {
		require.NotContains(t, e.Err.Error(), key)
		require.Contains(t, e.Err.Error(), "disk trouble")
		require.Equal(t, "Settle", asType[*persist.Error](t, e.Err).Method)
	}
}

// TestStreamEndsWithItsReader: the context of whoever reads a streamed answer ends it, whether the operation has a name
// or not.
func TestStreamEndsWithItsReader(t *testing.T) {
	for name, named := range map[string]string{"named": "op", "anonymous": ""} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rt := roundTripper(func(r *http.Request) (*http.Response, error) {
					body := io.MultiReader(bytes.NewReader(make([]byte, 5000)), stalled{r.Context()})
					return &http.Response{StatusCode: http.StatusCreated, Header: http.Header{}, ContentLength: 100_000, Body: io.NopCloser(body), Request: r}, nil
				})
				c := newClient(t, samekey.Config{HTTPClient: &http.Client{Transport: rt}, Default: samekey.Policy{MaxResponse: 1000, AttemptTimeout: -1}})
				gone := errors.New("the reader is gone")
				ctx, cancel := context.WithCancelCause(t.Context())
				resp, err := c.Do(pay(t, ctx, named))
				require.NoError(t, err)
				time.AfterFunc(time.Second, func() { cancel(gone) })
				began := time.Now()
				_, err = io.ReadAll(resp.Body)
				require.ErrorIs(t, err, gone)
				require.Equal(t, time.Second, time.Since(began))
				require.NoError(t, resp.Body.Close())
			})
		})
	}
}

// stalled is a body that ends with its request's context.
type stalled struct{ ctx context.Context }

func (s stalled) Read([]byte) (int, error) {
	<-s.ctx.Done()
	return 0, context.Cause(s.ctx)
}

// TestURLThatCannotBeKept: a hand-made URL that would be another one, or none, once it is stored and read again, is
// refused before anything is stored or sent.
func TestURLThatCannotBeKept(t *testing.T) {
	for name, change := range map[string]func(*url.URL){
		"path without a slash":        func(u *url.URL) { u.Path = "v1/payments" },
		"* for a path":                func(u *url.URL) { u.Path = "*" },
		"# in the query":              func(u *url.URL) { u.RawQuery = "a=#b" },
		"a line's end in the query":   func(u *url.URL) { u.RawQuery = "a=b\r\nX-Evil: 1" },
		"a control in the query":      func(u *url.URL) { u.RawQuery = "a=\x7f" },
		"a line's end in SecretQuery": func(u *url.URL) { u.RawQuery = "sig=\n" },
	} {
		t.Run(name, func(t *testing.T) {
			s, store := newAcquirer(t, http.StatusCreated), newStore(t)
			c := newClient(t, samekey.Config{Store: store, Default: samekey.Policy{SecretQuery: []string{"sig"}}})
			req := s.pay(t, payment)
			change(req.URL)
			_, err := c.Do(req)
			require.ErrorIs(t, err, samekey.ErrNotSent)
			require.ErrorContains(t, err, "the URL's ")
			require.Empty(t, s.keys())
			require.Zero(t, count(t, store))
		})
	}
}

// TestKeyThatNobodyWouldRead: a key that would stand behind a compressed form, or beside others of its name, is refused.
func TestKeyThatNobodyWouldRead(t *testing.T) {
	for name, tt := range map[string]struct {
		carrier    samekey.Carrier
		kind, code string
		body       string
		want       error
	}{
		"form":                {samekey.FormField("requestId"), "application/x-www-form-urlencoded", "", "a=1", nil},
		"form, as it is":      {samekey.FormField("requestId"), "application/x-www-form-urlencoded", "identity", "a=1", nil},
		"compressed form":     {samekey.FormField("requestId"), "application/x-www-form-urlencoded", "gzip", "\x1f\x8b\x08a", samekey.ErrKey},
		"compressed document": {samekey.BodyMember("/requestId"), "application/json", "gzip", "\x1f\x8b\x08a", samekey.ErrKey},
		"two keys":            {samekey.BodyMember("/requestId"), "application/json", "", `{"requestId":"a","requestId":"b"}`, samekey.ErrKey},
		"the same twice":      {samekey.BodyMember("/requestId"), "application/json", "", `{"requestId":"a","requestId":"a"}`, samekey.ErrKey},
		"two, one escaped":    {samekey.BodyMember("/requestId"), "application/json", "", `{"requestId":"a","request\u0049d":"b"}`, samekey.ErrKey},
		"other members twice": {samekey.BodyMember("/requestId"), "application/json", "", `{"a":1,"a":2}`, nil},
	} {
		t.Run(name, func(t *testing.T) {
			s, store := newAcquirer(t, http.StatusCreated), newStore(t)
			c := newClient(t, samekey.Config{Store: store, Default: samekey.Policy{Contract: &samekey.Contract{Carrier: tt.carrier}}})
			req := s.pay(t, tt.body)
			req.Header.Set("Content-Type", tt.kind)
			if tt.code != "" {
				req.Header.Set("Content-Encoding", tt.code)
			}
			resp, err := c.Do(req)
			if tt.want != nil {
				require.ErrorIs(t, err, tt.want)
				require.Empty(t, s.keys())
				require.Zero(t, count(t, store))
				return
			}
			require.NoError(t, err)
			read(t, resp)
			require.Equal(t, []string{stored(t, store, "op").Key}, s.keys())
		})
	}
}
