package samekey_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/samekey/samekey"
	"github.com/samekey/samekey/mockserver"
	"github.com/samekey/samekey/persist"
)

// The server itself looks at the store when a request arrives.
func TestCase_B01_OneKeyStoredBeforeTheFirstByte(t *testing.T) {
	var store persist.Store
	var onDisk []string
	cfg := mockserver.Config{OperationOf: func(r *http.Request, _ []byte) string {
		rec, err := store.Get(context.Background(), samekey.Ref{ID: "op"})
		if err == nil {
			onDisk = append(onDisk, rec.Key)
		}
		return "op"
	}}
	inLab(t, cfg, func(t *testing.T, l *lab) {
		store = l.store
		l.Fault(mockserver.Fault{When: mockserver.AfterCommit, Do: mockserver.Stall(5 * time.Second), Times: 3})
		var asked atomic.Int32
		c := l.client(t, samekey.Config{Default: samekey.Policy{
			MaxAttempts: 5, AttemptTimeout: time.Second,
			KeyFormat: samekey.KeyFunc(func(ref samekey.Ref) (string, error) {
				return fmt.Sprintf("%s-%d", ref.ID, asked.Add(1)), nil
			}),
		}})
		before := asked.Load() // New has asked for two
		resp, err := c.Do(pay(t, t.Context(), "op"))
		require.NoError(t, err)
		require.Contains(t, read(t, resp), "paymentId")
		require.EqualValues(t, 1, asked.Load()-before, "the key is made once, outside of the attempts")
		require.Len(t, l.Requests(), 4)
		require.Equal(t, wireKeys(l.Requests()), onDisk)
		for _, k := range onDisk {
			require.Equal(t, onDisk[0], k)
		}
		l.AssertOnce(t)
		l.AssertSameKey(t)
	})
}

// A client that went away in mid-answer, and the three ways on in the next process.
func TestCase_B02_ResumedUnderTheSameKey(t *testing.T) {
	ways := map[string]func(t *testing.T, c *samekey.Client) (int, string){
		"the same name": func(t *testing.T, c *samekey.Client) (int, string) {
			resp, err := c.Do(pay(t, t.Context(), "op"))
			require.NoError(t, err)
			return resp.StatusCode, read(t, resp)
		},
		"Resume": func(t *testing.T, c *samekey.Client) (int, string) {
			resp, err := c.Resume(t.Context(), samekey.Ref{ID: "op"})
			require.NoError(t, err)
			return resp.StatusCode, read(t, resp)
		},
		"Recover": func(t *testing.T, c *samekey.Client) (status int, body string) {
			report, err := c.Recover(t.Context(), samekey.Recovery{Handle: func(_ context.Context, op samekey.Operation, resp *http.Response, err error) error {
				require.NoError(t, err)
				require.Equal(t, "op", op.ID)
				status, body = resp.StatusCode, read(t, resp)
				return nil
			}})
			require.NoError(t, err)
			require.Equal(t, samekey.Report{Succeeded: 1}, report)
			return status, body
		},
	}
	for name, way := range ways {
		t.Run(name, func(t *testing.T) {
			inLab(t, mockserver.Config{}, func(t *testing.T, l *lab) {
				l.Fault(mockserver.Fault{When: mockserver.AfterCommit, Do: mockserver.Stall(0), Times: 1})
				first := l.client(t, samekey.Config{})
				ended := make(chan error, 1)
				go func() {
					_, err := first.Do(pay(t, context.Background(), "op"))
					ended <- err
				}()
				synctest.Wait()
				require.Len(t, l.Requests(), 1)
				require.NoError(t, first.Close())
				err := <-ended
				require.ErrorIs(t, err, samekey.ErrUnknown)
				require.ErrorIs(t, err, samekey.ErrClosed)
				before := stored(t, l.store, "op")

				status, body := way(t, l.client(t, samekey.Config{}))
				require.Equal(t, 201, status)
				require.Contains(t, body, "paymentId")
				reqs := l.Requests()
				require.Len(t, reqs, 2)
				require.True(t, reqs[1].Replayed)
				require.Equal(t, before.Key, reqs[1].Key)
				require.Equal(t, reqs[0].Method+reqs[0].Path, reqs[1].Method+reqs[1].Path)
				require.Equal(t, reqs[0].Body, reqs[1].Body)
				l.AssertOnce(t)
				l.AssertSameKey(t)
			})
		})
	}
}

func TestCase_B03_EveryWireRequestBearsTheStoredKey(t *testing.T) {
	inLab(t, mockserver.Config{}, func(t *testing.T, l *lab) {
		l.Fault(mockserver.Fault{Do: mockserver.Status(503, false), Times: 2})
		first := l.client(t, samekey.Config{Default: samekey.Policy{Backoff: samekey.Backoff{Min: 5 * time.Second}}})
		ended := make(chan error, 1)
		go func() {
			_, err := first.Do(pay(t, context.Background(), ""))
			ended <- err
		}()
		synctest.Wait() // it waits for attempt 2
		require.NoError(t, first.Close())
		unknown := asType[*samekey.OutcomeUnknownError](t, <-ended)
		require.Equal(t, 503, unknown.Last.Status)

		second := l.client(t, samekey.Config{Default: quick})
		report, err := second.Recover(t.Context(), samekey.Recovery{})
		require.NoError(t, err)
		require.Equal(t, 1, report.Succeeded)
		require.Equal(t, []string{unknown.Key, unknown.Key, unknown.Key}, wireKeys(l.Requests()))
		for _, r := range l.Requests() {
			require.Equal(t, []string{unknown.Key}, r.Header["Idempotency-Key"])
		}
		require.Zero(t, count(t, l.store), "an anonymous one leaves the store")
		l.AssertOnce(t)
	})
}

// Whatever changes state and is retried bears a key, with no setting at all; what bears none is not retried.
func TestCase_B07_EveryCommandHasAKey(t *testing.T) {
	protected := samekey.Policy{Command: samekey.On}
	for _, row := range []struct {
		method, path, body string
		policy             *samekey.Policy
		keyed              bool
	}{
		{"POST", "/v1/payments", payment, nil, true},
		{"POST", "/v1/orders", `{"orderRef":"o"}`, nil, true},
		{"POST", "/v1/orders/1/cancel", ``, nil, true},
		{"PATCH", "/v1/orders/1", `{"note":"x"}`, nil, true},
		{"PUT", "/v1/orders/1", `{"note":"x"}`, &protected, true},
		{"DELETE", "/v1/orders/1", ``, &protected, true},
		{"PUT", "/v1/orders/1", `{"note":"x"}`, nil, false},
		{"DELETE", "/v1/orders/1", ``, nil, false},
	} {
		t.Run(row.method+row.path, func(t *testing.T) {
			srv := newServer(t, mockserver.Config{})
			srv.Fault(mockserver.Fault{When: mockserver.AfterCommit, Do: mockserver.Reset, Times: 1})
			cfg := samekey.Config{Default: quick}
			if row.policy != nil {
				cfg.Endpoints = map[string]samekey.Policy{row.method + " /": *row.policy}
			}
			c := newClient(t, cfg)
			req, err := http.NewRequestWithContext(t.Context(), row.method, srv.URL+row.path, strings.NewReader(row.body))
			require.NoError(t, err)
			resp, err := c.Do(req)
			if !row.keyed {
				require.Error(t, err)
				require.Len(t, srv.Requests(), 1)
				require.Empty(t, srv.Keys())
				return
			}
			require.NoError(t, err)
			read(t, resp)
			require.Len(t, srv.Requests(), 2)
			require.Len(t, srv.Keys(), 1)
			require.NotEmpty(t, srv.Keys()[0])
			srv.AssertSameKey(t)
			srv.AssertAtMostOnce(t)
		})
	}
}

// Servers are not all as strict about a method's case as RFC 9110: a post is protected as well.
func TestCase_B07_WhateverItsCase(t *testing.T) {
	srv := newServer(t, mockserver.Config{})
	srv.Fault(mockserver.Fault{Do: mockserver.Status(503, false)})
	store := newStore(t)
	c := newClient(t, samekey.Config{Store: store, Default: quick})
	req := post(t, t.Context(), srv.URL+"/v1/payments", payment)
	req.Method = "post"
	_, err := c.Do(req)
	require.ErrorIs(t, err, samekey.ErrUnknown)
	require.Equal(t, 1, pending(t, store))
	require.Len(t, srv.Requests(), 4)
	require.Len(t, srv.Keys(), 1)
}

func TestCase_B09_NoFixedKeyForAll(t *testing.T) {
	_, err := samekey.New(samekey.Config{Store: newStore(t), Default: samekey.Policy{
		KeyFormat: samekey.KeyFunc(func(samekey.Ref) (string, error) { return "always-this", nil }),
	}})
	bad := asType[*samekey.PolicyError](t, err)
	require.Equal(t, "KeyFormat", bad.Field)

	srv := newServer(t, mockserver.Config{})
	c := newClient(t, samekey.Config{Default: samekey.Policy{
		KeyFormat: samekey.KeyFunc(func(ref samekey.Ref) (string, error) {
			id, err := samekey.UUIDv4.NewKey(ref)
			return "shop-" + id, err
		}),
	}})
	for i := range 3 {
		resp, err := c.Do(post(t, t.Context(), srv.URL+"/v1/payments", fmt.Sprintf(`{"amount":1,"currency":"RUB","orderRef":"o-%d"}`, i)))
		require.NoError(t, err)
		read(t, resp)
	}
	require.Len(t, srv.Keys(), 3)
	for _, k := range srv.Keys() {
		require.True(t, strings.HasPrefix(k, "shop-"))
	}
	require.Equal(t, 3, srv.Effects())
}

// The same name with a payload that differs in a volatile member: pending, settled, and with the member ignored.
func TestCase_B10_TheNameIsTheIdentityNotTheBody(t *testing.T) {
	body := func(at int) string {
		return fmt.Sprintf(`{"amount":100,"currency":"RUB","orderRef":"order-1","createdAt":%d}`, at)
	}
	run := func(t *testing.T, ignore []string, check func(t *testing.T, srv *mockserver.Server, c *samekey.Client)) {
		srv := newServer(t, mockserver.Config{})
		srv.Fault(mockserver.Fault{When: mockserver.AfterCommit, Do: mockserver.Drop, Times: 1})
		policy := quick
		policy.MaxAttempts, policy.FingerprintIgnore = 1, ignore
		c := newClient(t, samekey.Config{Default: policy})
		_, err := c.Do(samekey.Named(post(t, t.Context(), srv.URL+"/v1/payments", body(1)), "op"))
		require.ErrorIs(t, err, samekey.ErrUnknown)
		check(t, srv, c)
		srv.AssertSameKey(t)
		require.Equal(t, 1, srv.Effects())
	}
	t.Run("refused while pending and once settled", func(t *testing.T) {
		run(t, nil, func(t *testing.T, srv *mockserver.Server, c *samekey.Client) {
			_, err := c.Do(samekey.Named(post(t, t.Context(), srv.URL+"/v1/payments", body(2)), "op"))
			mismatch := asType[*samekey.MismatchError](t, err)
			require.Equal(t, srv.Keys()[0], mismatch.Key)
			require.Equal(t, samekey.EffectUnknown, samekey.EffectOf(err))
			require.Len(t, srv.Requests(), 1)
			resp, err := c.Do(samekey.Named(post(t, t.Context(), srv.URL+"/v1/payments", body(1)), "op"))
			require.NoError(t, err)
			read(t, resp)
			_, err = c.Do(samekey.Named(post(t, t.Context(), srv.URL+"/v1/payments", body(3)), "op"))
			require.ErrorIs(t, err, samekey.ErrMismatch)
			require.Len(t, srv.Requests(), 2)
		})
	})
	t.Run("ignored by the policy", func(t *testing.T) {
		run(t, []string{"/createdAt"}, func(t *testing.T, srv *mockserver.Server, c *samekey.Client) {
			resp, err := c.Do(samekey.Named(post(t, t.Context(), srv.URL+"/v1/payments", body(2)), "op"))
			require.NoError(t, err)
			read(t, resp)
			require.Len(t, srv.Requests(), 2)
			require.Equal(t, body(1), string(srv.Requests()[1].Body), "the stored bytes go out")
		})
	})
}

func TestCase_B11_TheSameNameGoesOnUnderTheFirstKey(t *testing.T) {
	srv := newServer(t, mockserver.Config{})
	srv.Fault(mockserver.Fault{When: mockserver.AfterCommit, Do: mockserver.Status(500, false), Times: 5})
	policy := quick
	policy.MaxAttempts = 2
	store := newStore(t)
	for i := range 2 {
		c := newClient(t, samekey.Config{Store: store, Default: policy})
		_, err := c.Do(samekey.Named(post(t, t.Context(), srv.URL+"/v1/payments", payment), "op"))
		unknown := asType[*samekey.OutcomeUnknownError](t, err)
		require.Equal(t, 2*(i+1), unknown.Attempts, "over all processes")
		require.NoError(t, c.Close())
	}
	c := newClient(t, samekey.Config{Store: store, Default: policy})
	resp, err := c.Do(samekey.Named(post(t, t.Context(), srv.URL+"/v1/payments", payment), "op"))
	require.NoError(t, err)
	read(t, resp)
	require.Len(t, srv.Requests(), 6)
	require.Len(t, srv.Keys(), 1)
	srv.AssertOnce(t)
}

// A rejection is final: the same payload gets it from the store, another one is a new intent under a new key.
func TestCase_B41_ARejectionEndsTheOperation(t *testing.T) {
	declined := fmt.Sprintf(`{"amount":%d,"currency":"RUB","orderRef":"order-1"}`, mockserver.DeclinedAmount)
	named := func(t *testing.T, url, body string) *http.Request {
		return samekey.Named(post(t, t.Context(), url, body), "order-1/charge")
	}
	t.Run("named", func(t *testing.T) {
		srv := newServer(t, mockserver.Config{})
		store := newStore(t)
		c := newClient(t, samekey.Config{Store: store, Default: quick})
		url := srv.URL + "/v1/payments"
		for i := range 2 {
			resp, err := c.Do(named(t, url, declined))
			require.NoError(t, err)
			require.Equal(t, 402, resp.StatusCode)
			info, _ := samekey.InfoOf(resp)
			require.Equal(t, samekey.Rejected, info.State)
			require.Equal(t, i == 1, info.Source == samekey.Local)
			require.NotEmpty(t, read(t, resp))
		}
		require.Len(t, srv.Requests(), 1)
		resp, err := c.Do(named(t, url, payment))
		require.NoError(t, err)
		require.Equal(t, 201, resp.StatusCode)
		read(t, resp)
		require.Len(t, srv.Keys(), 2, "a corrected attempt has a key of its own")
		rec := stored(t, store, "order-1/charge")
		require.Equal(t, samekey.Succeeded, rec.State())
		require.Equal(t, srv.Keys()[1], rec.Key)
		_, err = c.Do(named(t, url, declined))
		require.ErrorIs(t, err, samekey.ErrMismatch, "a success does not make room")
		require.Equal(t, 1, srv.Effects())
	})
	t.Run("anonymous", func(t *testing.T) {
		srv := newServer(t, mockserver.Config{})
		store := newStore(t)
		c := newClient(t, samekey.Config{Store: store, Default: quick})
		for range 2 {
			resp, err := c.Do(post(t, t.Context(), srv.URL+"/v1/payments", declined))
			require.NoError(t, err)
			require.Equal(t, 402, resp.StatusCode)
			require.Zero(t, count(t, store), "it has left the store")
			read(t, resp)
		}
		require.Len(t, srv.Keys(), 2)
	})
	t.Run("the finished key with another body", func(t *testing.T) {
		srv := newServer(t, mockserver.Config{})
		c := newClient(t, samekey.Config{Default: quick})
		for i, body := range []string{declined, payment} {
			req := named(t, srv.URL+"/v1/payments", body)
			req.Header.Set("Idempotency-Key", "the-callers-own")
			_, err := c.Do(req)
			if i == 0 {
				require.NoError(t, err)
				continue
			}
			require.ErrorIs(t, err, samekey.ErrMismatch)
		}
		require.Len(t, srv.Requests(), 1)
	})
	t.Run("KeepRejections off frees the name", func(t *testing.T) {
		srv := newServer(t, mockserver.Config{})
		store := newStore(t)
		policy := quick
		policy.KeepRejections = samekey.Off
		c := newClient(t, samekey.Config{Store: store, Default: policy})
		for range 2 {
			resp, err := c.Do(named(t, srv.URL+"/v1/payments", declined))
			require.NoError(t, err)
			read(t, resp)
			require.Zero(t, count(t, store))
		}
		require.Len(t, srv.Keys(), 2)
	})
}

// An endpoint that knows no keys: one try, repeated only where provably nothing left.
func TestCase_B75_NoKeyNoRepeat(t *testing.T) {
	policy := samekey.Policy{Contract: &samekey.Contract{Carrier: samekey.NoKey}, Backoff: samekey.Backoff{Min: -1}, AttemptTimeout: time.Second}
	for name, fault := range map[string]mockserver.Fault{
		"reset after commit": {When: mockserver.AfterCommit, Do: mockserver.Reset},
		"cut off":            {When: mockserver.AfterCommit, Do: mockserver.CutBody},
		"timeout":            {When: mockserver.AfterCommit, Do: mockserver.Stall(0)},
		"503":                {Do: mockserver.Status(503, false)},
		"408":                {Do: mockserver.Status(408, false)},
	} {
		t.Run(name, func(t *testing.T) {
			inLab(t, mockserver.Config{}, func(t *testing.T, l *lab) {
				l.Fault(fault)
				retry := policy
				retry.Decide = func(samekey.Attempt) samekey.Decision { return samekey.Retry } // not even by the caller's word
				c := l.client(t, samekey.Config{Default: retry})
				_, err := c.Do(pay(t, t.Context(), "op"))
				require.ErrorIs(t, err, samekey.ErrUnknown)
				require.Len(t, l.Requests(), 1)
				require.Empty(t, l.Requests()[0].Header["Idempotency-Key"])
				require.Equal(t, 1, pending(t, l.store))

				l.ClearFaults()
				_, err = c.Do(pay(t, t.Context(), "op"))
				require.ErrorIs(t, err, samekey.ErrUnknown)
				require.ErrorIs(t, err, samekey.ErrNoKeyAtServer)
				_, err = c.Resume(t.Context(), samekey.Ref{ID: "op"})
				require.ErrorIs(t, err, samekey.ErrNoKeyAtServer)
				report, err := c.Recover(t.Context(), samekey.Recovery{})
				require.NoError(t, err)
				require.Equal(t, 1, report.Pending)
				require.Len(t, l.Requests(), 1, "never taken over")
			})
		})
	}
	t.Run("not reached", func(t *testing.T) {
		inLab(t, mockserver.Config{}, func(t *testing.T, l *lab) {
			l.rt.Refuse(2)
			c := l.client(t, samekey.Config{Default: policy})
			resp, err := c.Do(pay(t, t.Context(), "op"))
			require.NoError(t, err)
			info, _ := samekey.InfoOf(resp)
			require.Equal(t, 3, info.Attempts)
			require.Equal(t, 1, info.Sends)
			read(t, resp)
			require.Len(t, l.Requests(), 1)
		})
	})
}

// One store, several tenants: neither names nor keys of the caller's own meet.
func TestCase_B34_ScopesNeverMix(t *testing.T) {
	srv := newServer(t, mockserver.Config{})
	store := newStore(t)
	url := srv.URL + "/v1/payments"
	for _, explicit := range []bool{true, false} {
		for _, tenant := range []string{"a", "b"} {
			c := newClient(t, samekey.Config{Store: store, Scope: tenant, Default: quick})
			req := post(t, t.Context(), url, payment)
			if explicit {
				req.Header.Set("Idempotency-Key", "the-same-key")
			}
			req.Header.Set("Authorization", "Bearer "+tenant)
			req = samekey.Named(req, fmt.Sprintf("op-%v", explicit))
			resp, err := c.Do(req)
			require.NoError(t, err)
			info, _ := samekey.InfoOf(resp)
			require.Equal(t, tenant, info.Scope)
			require.Equal(t, samekey.Network, info.Source)
			read(t, resp)
		}
	}
	require.Equal(t, 4, count(t, store))
	require.Equal(t, 4, srv.Effects())
	require.Len(t, srv.Keys(), 3, "the given one and two made ones")

	c := newClient(t, samekey.Config{Store: store, Scope: "c", Default: quick})
	_, err := c.Operation(t.Context(), samekey.Ref{ID: "op-true"})
	require.ErrorIs(t, err, persist.ErrNotFound)
	req := post(t, samekey.WithScope(t.Context(), "a"), url, payment) // the context's scope goes before the client's
	resp, err := c.Do(samekey.Named(req, "op-false"))
	require.NoError(t, err)
	info, _ := samekey.InfoOf(resp)
	require.Equal(t, samekey.Local, info.Source)
	require.Equal(t, "a", info.Scope)
	read(t, resp)

	// Another base URL under the same name and key is another command.
	other := samekey.Named(post(t, samekey.WithScope(t.Context(), "a"), "http://elsewhere.test/v1/payments", payment), "op-false")
	_, err = c.Do(other)
	require.ErrorIs(t, err, samekey.ErrMismatch)
	require.Equal(t, 4, srv.Effects())
}

// A key that the store knows belongs to one method, target and body.
func TestCase_B95_AKeyIsBoundToItsRequest(t *testing.T) {
	srv := newServer(t, mockserver.Config{})
	srv.Fault(mockserver.Fault{Do: mockserver.Status(503, false)})
	policy := quick
	policy.MaxAttempts = 1
	c := newClient(t, samekey.Config{Default: policy, Endpoints: map[string]samekey.Policy{"PUT /": {Command: samekey.On}}})
	send := func(method, path, body string) error {
		req, err := http.NewRequestWithContext(t.Context(), method, srv.URL+path, strings.NewReader(body))
		require.NoError(t, err)
		req.Header.Set("Idempotency-Key", "mine")
		_, err = c.Do(req)
		return err
	}
	require.ErrorIs(t, send("POST", "/v1/orders/1/pay", "{}"), samekey.ErrUnknown)
	require.ErrorIs(t, send("POST", "/v1/orders/2/pay", "{}"), samekey.ErrMismatch)
	require.ErrorIs(t, send("POST", "/v1/orders/1/pay?x=1", "{}"), samekey.ErrMismatch)
	require.ErrorIs(t, send("POST", "/v1/refunds", "{}"), samekey.ErrMismatch)
	require.ErrorIs(t, send("PUT", "/v1/orders/1/pay", "{}"), samekey.ErrMismatch)
	require.ErrorIs(t, send("POST", "/v1/orders/1/pay", `{"a":1}`), samekey.ErrMismatch)
	require.Len(t, srv.Requests(), 1)
	require.ErrorIs(t, send("POST", "/v1/orders/1/pay", " { } "), samekey.ErrUnknown)
	require.Len(t, srv.Requests(), 2)
}

// A hundred callers of one operation are one stream of attempts.
func TestCase_B96_CallersShareOneStream(t *testing.T) {
	inLab(t, mockserver.Config{}, func(t *testing.T, l *lab) {
		l.Fault(mockserver.Fault{When: mockserver.AfterCommit, Do: mockserver.Drop, Times: 1},
			mockserver.Fault{Do: mockserver.Delay(time.Second)})
		c := l.client(t, samekey.Config{})
		type got struct {
			body string
			src  samekey.Source
		}
		answers := make(chan got, 100)
		for range 100 {
			go func() {
				resp, err := c.Do(pay(t, context.Background(), "op"))
				if err != nil {
					answers <- got{body: err.Error()}
					return
				}
				info, _ := samekey.InfoOf(resp)
				var p struct{ PaymentID string }
				_ = json.NewDecoder(resp.Body).Decode(&p)
				_ = resp.Body.Close()
				answers <- got{p.PaymentID, info.Source}
			}()
		}
		shared := 0
		first := <-answers
		require.NotEmpty(t, first.body)
		for range 99 {
			a := <-answers
			require.Equal(t, first.body, a.body)
			if a.src == samekey.Shared {
				shared++
			}
		}
		require.GreaterOrEqual(t, shared, 98)
		require.Len(t, l.Requests(), 2)
		l.AssertOnce(t)
		l.AssertNoOverlap(t)
	})
}

func TestCase_B97_BadKeysAreRefusedBeforeTheStore(t *testing.T) {
	srv := newServer(t, mockserver.Config{})
	short := samekey.Policy{Contract: &samekey.Contract{MaxLength: 36, Format: `[a-f0-9-]+`, Life: time.Hour}}
	store := newStore(t)
	rec := &recorder{}
	c := newClient(t, samekey.Config{Store: store, Observer: rec.observe, Endpoints: map[string]samekey.Policy{
		"POST /v1/orders": short,
		"POST /v1/quoted": {Contract: &samekey.Contract{Carrier: samekey.QuotedHeader("Idempotency-Key"), Life: time.Hour}},
	}})
	for _, row := range []struct {
		path, key string
		ok        bool
	}{
		{"/v1/payments", "", false},
		{"/v1/payments", "   ", false},
		{"/v1/payments", strings.Repeat("k", 255), true},
		{"/v1/payments", strings.Repeat("k", 256), false},
		{"/v1/payments", strings.Repeat("k", 10_000), false},
		{"/v1/payments", "a\r\nX-Other: 1", false},
		{"/v1/payments", "a\nb", false},
		{"/v1/payments", "a\tb", false},
		{"/v1/payments", "a\x7f", false},
		{"/v1/payments", `"quoted"`, true}, // visible ASCII, and sent as it is
		{"/v1/payments", "key-😀", false},
		{"/v1/payments", "schlüssel", false},
		{"/v1/payments", " leading", false},
		{"/v1/payments", "trailing ", false},
		{"/v1/orders", strings.Repeat("a", 36), true},
		{"/v1/orders", strings.Repeat("a", 37), false},
		{"/v1/orders", "not-of-the-format", false},
		{"/v1/quoted", `"good"`, true},
		{"/v1/quoted", `"go\"od"`, true},
		{"/v1/quoted", `bare`, false},
		{"/v1/quoted", `"open`, false},
		{"/v1/quoted", `"a"b"`, false},
		{"/v1/quoted", `""`, false},
	} {
		sent, held := len(srv.Requests()), count(t, store)
		req := post(t, t.Context(), srv.URL+row.path, payment)
		req.Header["Idempotency-Key"] = []string{row.key}
		resp, err := c.Do(req)
		if row.ok {
			require.NoError(t, err, "%.40q", row.key)
			read(t, resp)
			reqs := srv.Requests()
			require.Equal(t, []string{row.key}, reqs[len(reqs)-1].Header["Idempotency-Key"], "as it was given, not cut")
			continue
		}
		require.Error(t, err, "%.40q", row.key)
		require.True(t, isAny(err, samekey.ErrKey, samekey.ErrNotSent), "%v", err)
		if len(row.key) > 4 {
			require.NotContains(t, err.Error(), row.key)
		}
		require.Len(t, srv.Requests(), sent, "%.40q", row.key)
		require.Equal(t, held, count(t, store), "%.40q", row.key)
	}
	two := post(t, t.Context(), srv.URL+"/v1/payments", payment)
	two.Header["Idempotency-Key"] = []string{"one", "two"}
	_, err := c.Do(two)
	require.ErrorIs(t, err, samekey.ErrKey)
}
