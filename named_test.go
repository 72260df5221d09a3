package samekey_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/samekey/samekey"
	"github.com/samekey/samekey/mockserver"
	"github.com/samekey/samekey/persist"
)

// restart is the life of one process on the lab's store.
func (l *lab) restart(t *testing.T, cfg samekey.Config, f func(c *samekey.Client)) {
	t.Helper()
	c := l.client(t, cfg)
	f(c)
	require.NoError(t, c.Close())
}

func payBody(t *testing.T, name, body string) *http.Request {
	t.Helper()
	return samekey.Named(post(t, t.Context(), labURL+"/v1/payments", body), name)
}

// The stored bytes go out, whatever spelling of the same JSON the next process brings; also where the server compares
// bytes.
func TestNamedAfterARestartSendsTheStoredBytes(t *testing.T) {
	raw := mockserver.Default
	raw.RawBody = true
	first := `{"amount":100,"currency":"RUB","orderRef":"order-1","note":"a<b","at":"09:00"}`
	for name, row := range map[string]struct {
		body string
		want error
	}{
		"same bytes":           {first, nil},
		"member order":         {`{"at":"09:00","note":"a<b","orderRef":"order-1","currency":"RUB","amount":100}`, nil},
		"white space, escapes": {"{ \"amount\" : 100,\n\"currency\":\"RUB\",\"orderRef\":\"order-1\",\"note\":\"a\\u003cb\",\"at\":\"09:00\"}", nil},
		"an ignored member":    {`{"amount":100,"currency":"RUB","orderRef":"order-1","note":"a<b","at":"17:30"}`, nil},
		"ignored and absent":   {`{"amount":100,"currency":"RUB","orderRef":"order-1","note":"a<b"}`, nil},
		"another amount":       {`{"amount":101,"currency":"RUB","orderRef":"order-1","note":"a<b","at":"09:00"}`, samekey.ErrMismatch},
		"a number as spelt":    {`{"amount":100.0,"currency":"RUB","orderRef":"order-1","note":"a<b","at":"09:00"}`, samekey.ErrMismatch},
		"a member twice":       {`{"amount":100,"amount":100,"currency":"RUB","orderRef":"order-1","note":"a<b","at":"09:00"}`, samekey.ErrMismatch},
	} {
		t.Run(name, func(t *testing.T) {
			inLab(t, mockserver.Config{Profile: raw}, func(t *testing.T, l *lab) {
				cfg := samekey.Config{Default: samekey.Policy{MaxAttempts: 1, FingerprintIgnore: []string{"/at"}}}
				l.Fault(mockserver.Fault{When: mockserver.AfterCommit, Do: mockserver.Drop, Times: 1})
				l.restart(t, cfg, func(c *samekey.Client) {
					_, err := c.Do(payBody(t, "op", first))
					require.ErrorIs(t, err, samekey.ErrUnknown)
				})
				for i := range 3 { // pending, then settled, then settled and long ago
					l.restart(t, cfg, func(c *samekey.Client) {
						resp, err := c.Do(payBody(t, "op", row.body))
						if row.want != nil {
							require.ErrorIs(t, err, row.want)
							return
						}
						require.NoError(t, err)
						info, _ := samekey.InfoOf(resp)
						require.Equal(t, i > 0, info.Source == samekey.Local)
						require.Contains(t, read(t, resp), "paymentId")
					})
					time.Sleep(time.Hour)
				}
				for _, r := range l.Requests() {
					require.Equal(t, first, string(r.Body))
				}
				require.Equal(t, 1, l.Effects())
				l.AssertSameKey(t)
			})
		})
	}
}

// The table of what a name can be known as, each over a restart, without the network.
func TestNamedAfterARestart(t *testing.T) {
	const other = `{"amount":7,"currency":"RUB","orderRef":"order-1"}`
	settle := func(t *testing.T, l *lab, faults ...mockserver.Fault) {
		l.Fault(faults...)
		l.restart(t, samekey.Config{Default: samekey.Policy{MaxAttempts: 1}}, func(c *samekey.Client) {
			resp, err := c.Do(pay(t, t.Context(), "op"))
			if err == nil {
				read(t, resp)
			}
		})
		l.ClearFaults()
	}
	again := func(t *testing.T, l *lab, body string) (resp *http.Response, err error) {
		l.restart(t, samekey.Config{}, func(c *samekey.Client) { resp, err = c.Do(payBody(t, "op", body)) })
		return resp, err
	}
	status := func(code int) mockserver.Fault {
		return mockserver.Fault{Do: mockserver.Status(code, false).Body(`{"error":"E"}`)}
	}
	for _, row := range []struct {
		name    string
		fault   mockserver.Fault
		after   time.Duration
		status  int   // of the answer to the same payload, 0: err
		err     error // of the same payload
		another error // of another payload; nil: a new intent
		sent    int   // requests in all, after both
	}{
		{"succeeded", mockserver.Fault{Do: mockserver.Delay(time.Second)}, 0, 201, nil, samekey.ErrMismatch, 1},
		{"rejected", status(422), 0, 422, nil, nil, 2},
		{"rejected, by a status without a rule", status(404), 0, 404, nil, nil, 2},
		{"turned away", status(401), 0, 201, nil, samekey.ErrMismatch, 2},
		{"conflict", status(409), 0, 0, samekey.ErrConflict, samekey.ErrMismatch, 1},
		{"stored failure", mockserver.Fault{Do: mockserver.Status(500, true).With("Idempotent-Replayed", "true")}, 0, 0, samekey.ErrParked, samekey.ErrMismatch, 1},
		{"tombstone of a success", mockserver.Fault{Do: mockserver.Delay(time.Second)}, 8 * 24 * time.Hour, 0, samekey.ErrExpired, samekey.ErrExpired, 1},
		{"tombstone of a rejection", status(422), 8 * 24 * time.Hour, 0, samekey.ErrExpired, samekey.ErrExpired, 1},
		{"pending, its key expired", mockserver.Fault{Do: mockserver.Drop}, 25 * time.Hour, 0, samekey.ErrExpired, samekey.ErrMismatch, 1},
		{"long forgotten", mockserver.Fault{Do: mockserver.Delay(time.Second)}, 200 * 24 * time.Hour, 201, nil, samekey.ErrMismatch, 2},
	} {
		t.Run(row.name, func(t *testing.T) {
			inLab(t, mockserver.Config{}, func(t *testing.T, l *lab) {
				settle(t, l, row.fault)
				time.Sleep(row.after)
				resp, err := again(t, l, payment)
				if row.status == 0 {
					require.ErrorIs(t, err, row.err)
				} else {
					require.NoError(t, err)
					require.Equal(t, row.status, resp.StatusCode)
					read(t, resp)
				}
				key := l.Keys()[len(l.Keys())-1]
				resp, err = again(t, l, other)
				if row.another != nil {
					require.ErrorIs(t, err, row.another)
				} else {
					require.NoError(t, err)
					require.Equal(t, 201, resp.StatusCode)
					read(t, resp)
					require.NotEqual(t, key, l.Requests()[len(l.Requests())-1].Key, "a new intent has a new key")
				}
				require.Len(t, l.Requests(), row.sent)
			})
		})
	}
}

// Forget makes a name new, over restarts too, whatever it was.
func TestForgetOverARestart(t *testing.T) {
	inLab(t, mockserver.Config{OperationOf: func(*http.Request, []byte) string { return "" }}, func(t *testing.T, l *lab) {
		for i, fault := range []mockserver.Action{mockserver.Delay(time.Second), mockserver.Status(422, false), mockserver.Status(409, false), mockserver.Drop} {
			l.ClearFaults()
			l.Fault(mockserver.Fault{Do: fault})
			l.restart(t, samekey.Config{Default: samekey.Policy{MaxAttempts: 1}}, func(c *samekey.Client) {
				resp, err := c.Do(pay(t, t.Context(), "op"))
				if err == nil {
					read(t, resp)
				}
				require.NoError(t, c.Forget(t.Context(), samekey.Ref{ID: "op"}))
			})
			require.Zero(t, count(t, l.store))
			require.Len(t, l.Keys(), i+1, "each is a new operation")
		}
		c := l.client(t, samekey.Config{Default: samekey.Policy{Retention: -1}})
		l.ClearFaults()
		resp, err := c.Do(pay(t, t.Context(), "tomb"))
		require.NoError(t, err)
		read(t, resp)
		require.NoError(t, c.Forget(t.Context(), samekey.Ref{ID: "tomb"}), "a tombstone too")
		resp, err = c.Do(pay(t, t.Context(), "tomb"))
		require.NoError(t, err)
		read(t, resp)
		require.Len(t, l.Keys(), 6)
	})
}

// Each tenant's operations are found under its own names and sent with its own credentials, by whatever process.
func TestScopesOverARestart(t *testing.T) {
	inLab(t, mockserver.Config{}, func(t *testing.T, l *lab) {
		token := func(scope string) string { return "Bearer token-of-" + scope }
		cfg := samekey.Config{
			Scope: "acme", Default: samekey.Policy{MaxAttempts: 1},
			Prepare: func(ctx context.Context, r *http.Request) error {
				op, ok := samekey.OperationOf(ctx)
				if !ok {
					return errors.New("no operation")
				}
				r.Header.Set("Authorization", token(op.Scope))
				r.Header.Set("X-Op", op.ID)
				return nil
			},
		}
		l.Fault(mockserver.Fault{When: mockserver.AfterCommit, Do: mockserver.Drop, Times: 4})
		scopes := []string{"acme", "globex", "initech", ""}
		req := func(i int, scope string) *http.Request {
			return samekey.Named(post(t, samekey.WithScope(t.Context(), scope), labURL+"/v1/payments", numbered(i)), "order/charge")
		}
		l.restart(t, cfg, func(c *samekey.Client) {
			for i, scope := range scopes {
				_, err := c.Do(req(i, scope))
				require.ErrorIs(t, err, samekey.ErrUnknown)
			}
		})
		require.Len(t, l.Keys(), 4)
		l.restart(t, cfg, func(c *samekey.Client) {
			resp, err := c.Do(req(1, "globex"))
			require.NoError(t, err)
			read(t, resp)
			resp, err = c.Resume(t.Context(), samekey.Ref{Scope: "initech", ID: "order/charge"})
			require.NoError(t, err)
			read(t, resp)
			_, err = c.Do(req(0, "globex"))
			require.ErrorIs(t, err, samekey.ErrMismatch)
			report, err := c.Recover(t.Context(), samekey.Recovery{Jitter: -1})
			require.NoError(t, err)
			require.Equal(t, samekey.Report{Succeeded: 2}, report)
			seen := 0
			for op, err := range c.Operations(t.Context(), persist.Filter{Scope: &scopes[1]}) {
				require.NoError(t, err)
				require.Equal(t, samekey.Ref{Scope: "globex", ID: "order/charge"}, op.Ref)
				seen++
			}
			require.Equal(t, 1, seen)
		})
		require.Len(t, l.Requests(), 8)
		for _, r := range l.Requests() {
			var i int
			_, err := fmt.Sscanf(r.Operation, "order-%d", &i)
			require.NoError(t, err)
			require.Equal(t, token(scopes[i]), r.Header.Get("Authorization"), "never another tenant's")
			require.Equal(t, "order/charge", r.Header.Get("X-Op"))
		}
		l.AssertOnce(t)
	})
}

// Key only: the next call has to bring the bytes; recovery asks, and can say what happened.
func TestKeyOnlyOverARestart(t *testing.T) {
	cfg := samekey.Config{Default: samekey.Policy{MaxAttempts: 1, Persist: samekey.PersistKeyOnly, RequireName: samekey.On}}
	leave := func(t *testing.T, l *lab) {
		l.Fault(mockserver.Fault{When: mockserver.AfterCommit, Do: mockserver.Drop, Times: 1})
		l.restart(t, cfg, func(c *samekey.Client) {
			_, err := c.Do(pay(t, t.Context(), "op"))
			require.ErrorIs(t, err, samekey.ErrUnknown)
		})
		require.Nil(t, stored(t, l.store, "op").Body)
	}
	t.Run("the payload again", func(t *testing.T) {
		inLab(t, mockserver.Config{}, func(t *testing.T, l *lab) {
			leave(t, l)
			l.restart(t, cfg, func(c *samekey.Client) {
				_, err := c.Do(payBody(t, "op", `{"currency":"RUB","amount":100,"orderRef":"order-1"}`))
				require.ErrorIs(t, err, samekey.ErrMismatch, "there are no stored bytes to send in their place")
				_, err = c.Resume(t.Context(), samekey.Ref{ID: "op"})
				require.ErrorIs(t, err, samekey.ErrUnknown)
				require.ErrorContains(t, err, "payload")
				_, err = c.Rekey(t.Context(), samekey.Ref{ID: "op"})
				require.ErrorIs(t, err, samekey.ErrKey)
				require.Len(t, l.Requests(), 1)
				resp, err := c.Do(pay(t, t.Context(), "op"))
				require.NoError(t, err)
				require.Contains(t, read(t, resp), "paymentId")
			})
			l.AssertOnce(t)
			l.AssertSameKey(t)
			l.restart(t, cfg, func(c *samekey.Client) {
				_, err := c.Do(pay(t, t.Context(), "op"))
				expired := asType[*samekey.ExpiredError](t, err)
				require.Equal(t, samekey.Succeeded, expired.Past, "its outcome is known, its answer is not")
			})
			require.Len(t, l.Requests(), 2)
		})
	})
	for verdict, then := range map[samekey.Verdict]func(t *testing.T, l *lab, c *samekey.Client){
		samekey.Keep: func(t *testing.T, l *lab, c *samekey.Client) {
			resp, err := c.Do(pay(t, t.Context(), "op"))
			require.NoError(t, err)
			read(t, resp)
			l.AssertSameKey(t)
		},
		samekey.Happened: func(t *testing.T, l *lab, c *samekey.Client) {
			_, err := c.Do(pay(t, t.Context(), "op"))
			require.Equal(t, samekey.Succeeded, asType[*samekey.ExpiredError](t, err).Past)
			require.Len(t, l.Requests(), 1)
		},
		samekey.DidNotHappen: func(t *testing.T, l *lab, c *samekey.Client) {
			resp, err := c.Do(pay(t, t.Context(), "op"))
			require.NoError(t, err)
			read(t, resp)
			require.Len(t, l.Keys(), 2)
		},
		samekey.SendUnderNewKey: func(t *testing.T, l *lab, c *samekey.Client) {
			require.Equal(t, 1, pending(t, l.store), "no new key can be bound to a payload that is not there")
			require.Len(t, l.Requests(), 1)
		},
	} {
		t.Run(fmt.Sprint("verdict ", verdict), func(t *testing.T) {
			inLab(t, mockserver.Config{}, func(t *testing.T, l *lab) {
				leave(t, l)
				l.restart(t, cfg, func(c *samekey.Client) {
					var asked []samekey.Why
					_, err := c.Recover(t.Context(), samekey.Recovery{Jitter: -1, Reconcile: func(_ context.Context, op samekey.Operation, why samekey.Why) (samekey.Verdict, error) {
						_, rerr := op.Request(t.Context())
						require.Error(t, rerr)
						asked = append(asked, why)
						return verdict, nil
					}})
					require.NoError(t, err)
					require.Equal(t, []samekey.Why{samekey.KeyOnly}, asked)
					then(t, l, c)
				})
			})
		})
	}
}
