package samekey_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"math"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/samekey/samekey"
	"github.com/samekey/samekey/contracts"
	"github.com/samekey/samekey/mockserver"
	"github.com/samekey/samekey/persist/journal"
)

// A server that keeps its first 500 under the key. Where it marks the replay, the call ends there, and says why; where
// it does not, the attempts stay bounded. The key is never switched.
func TestCase_B69_StoredFailure(t *testing.T) {
	for _, marks := range []bool{true, false} {
		inLab(t, mockserver.Config{Profile: marking(marks)}, func(t *testing.T, l *lab) {
			l.Fault(mockserver.Fault{Do: mockserver.Status(500, true), Times: 1})
			c := l.client(t, samekey.Config{Default: samekey.Policy{MaxAttempts: 5}})
			_, err := c.Do(pay(t, t.Context(), "op"))
			unknown := asType[*samekey.OutcomeUnknownError](t, err)
			require.Equal(t, 500, unknown.Last.Status)
			if !marks {
				require.NotErrorIs(t, err, samekey.ErrParked)
				require.Len(t, l.Requests(), 5)
				l.AssertSameKey(t)
				return
			}
			require.ErrorIs(t, err, samekey.ErrParked)
			require.ErrorContains(t, err, "the server has stored this failure")
			require.Len(t, l.Requests(), 2, "the first 500 and its replay")
			_, err = c.Do(pay(t, t.Context(), "op"))
			require.ErrorIs(t, err, samekey.ErrParked)
			report, err := c.Recover(t.Context(), samekey.Recovery{Jitter: -1})
			require.NoError(t, err)
			require.Zero(t, report.Succeeded)
			require.Len(t, l.Requests(), 2, "no more tries of their own")
			_, err = c.Resume(t.Context(), samekey.Ref{ID: "op"})
			require.ErrorIs(t, err, samekey.ErrParked)
			require.Len(t, l.Requests(), 3, "an explicit one")
			require.Len(t, l.Keys(), 1)
			l.AssertSameKey(t)
		})
	}
}

// marking is the default profile, with or without the mark of replays.
func marking(marks bool) mockserver.Profile {
	p := mockserver.Default
	if !marks {
		p.Mark = ""
	}
	return p
}

// A server that crashed with the key reserved answers 409 until the lock is gone. The operation is kept, and an explicit
// Resume under the same key succeeds then.
func TestCase_B70_CrashAfterReserve(t *testing.T) {
	inLab(t, mockserver.Config{Profile: mockserver.IETF}, func(t *testing.T, l *lab) {
		l.Fault(mockserver.Fault{Do: mockserver.CrashReserved(10 * time.Second), Times: 1})
		c := l.client(t, samekey.Config{Default: samekey.Policy{Contract: &contracts.IETF}})
		_, err := c.Do(pay(t, t.Context(), "op"))
		conflict := asType[*samekey.ConflictError](t, err)
		require.Equal(t, samekey.ReasonInProgress, conflict.Reason)
		require.True(t, conflict.Ambiguous)
		require.Len(t, l.Requests(), 2)
		_, err = c.Resume(t.Context(), samekey.Ref{ID: "op"})
		require.ErrorIs(t, err, samekey.ErrConflict, "still locked")
		op, err := c.Operation(t.Context(), samekey.Ref{ID: "op"})
		require.NoError(t, err)
		require.Equal(t, samekey.Conflicted, op.State)

		time.Sleep(11 * time.Second)
		resp, err := c.Resume(t.Context(), samekey.Ref{ID: "op"})
		require.NoError(t, err)
		require.Equal(t, 201, resp.StatusCode)
		read(t, resp)
		require.Len(t, l.Requests(), 4)
		require.Equal(t, 1, l.Effects())
		l.AssertSameKey(t)
	})
}

// The bytes that went out first go out for ever: a server that compares raw bytes takes them after a restart as well,
// however the program writes the body the second time.
func TestCase_B93_TheSameBytesAfterARestart(t *testing.T) {
	order := map[string]any{
		"orderRef": "order-1", "amount": 100, "currency": "EUR", "rate": 0.1 + 0.2, "tiny": math.SmallestNonzeroFloat64,
		"big": json.Number("12345678901234567890123"), "note": `<b>&"é` + "\u2028", "nothing": nil,
	}
	first, err := json.Marshal(order)
	require.NoError(t, err)
	var again strings.Builder
	enc := json.NewEncoder(&again)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	require.NoError(t, enc.Encode(order))
	require.NotEqual(t, string(first), again.String())
	delete(order, "nothing")
	absent, err := json.Marshal(order)
	require.NoError(t, err)

	for _, raw := range []bool{true, false} {
		profile := mockserver.Default
		profile.RawBody = raw
		for _, how := range []string{"Do", "Recover"} {
			srv := newServer(t, mockserver.Config{Profile: profile})
			srv.Fault(mockserver.Fault{When: mockserver.AfterCommit, Do: mockserver.Drop, Times: 1})
			dir := filepath.Join(t.TempDir(), "journal")
			process := func(f func(c *samekey.Client)) {
				store, err := journal.Open(t.Context(), dir, journal.Options{})
				require.NoError(t, err)
				policy := quick
				policy.MaxAttempts = 1
				c, err := samekey.New(samekey.Config{Store: store, Default: policy})
				require.NoError(t, err)
				f(c)
				require.NoError(t, c.Close())
				require.NoError(t, store.Close())
			}
			send := func(c *samekey.Client, body string) (*http.Response, error) {
				return c.Do(samekey.Named(post(t, t.Context(), srv.URL+"/v1/payments", body), "op"))
			}
			process(func(c *samekey.Client) {
				_, err := send(c, string(first))
				require.ErrorIs(t, err, samekey.ErrUnknown)
			})
			process(func(c *samekey.Client) {
				_, err := send(c, string(absent))
				require.ErrorIs(t, err, samekey.ErrMismatch, "null and absent differ")
				if how == "Recover" {
					report, err := c.Recover(t.Context(), samekey.Recovery{Jitter: -1})
					require.NoError(t, err)
					require.Equal(t, samekey.Report{Succeeded: 1}, report)
					return
				}
				resp, err := send(c, again.String())
				require.NoError(t, err)
				require.Equal(t, 201, resp.StatusCode)
				info, _ := samekey.InfoOf(resp)
				require.True(t, info.Replayed)
				read(t, resp)
			})
			reqs := srv.Requests()
			require.Len(t, reqs, 2)
			for _, r := range reqs {
				require.Equal(t, string(first), string(r.Body))
			}
			require.Equal(t, 1, srv.Effects())
			srv.AssertSameKey(t)
		}
	}
}

// A replay is a success whatever 2xx it has; Info tells that it is one.
func TestCase_B94_AReplayMayLookDifferent(t *testing.T) {
	different := mockserver.Default
	different.Replay = mockserver.ReplayCurrent // a 200 with the present state, and no Location
	for _, row := range []struct {
		profile mockserver.Profile
		status  int
	}{{mockserver.Default, 201}, {different, 200}} {
		srv := newServer(t, mockserver.Config{Profile: row.profile})
		srv.Fault(mockserver.Fault{When: mockserver.AfterCommit, Do: mockserver.Drop, Times: 1})
		c := newClient(t, samekey.Config{Default: quick})
		resp, err := c.Do(samekey.Named(post(t, t.Context(), srv.URL+"/v1/payments", payment), "op"))
		require.NoError(t, err)
		info, _ := samekey.InfoOf(resp)
		require.Equal(t, samekey.Succeeded, info.State)
		require.Equal(t, samekey.Replay, info.Source)
		require.True(t, info.Replayed)
		require.Equal(t, row.status, resp.StatusCode)
		require.Equal(t, row.status == 201, resp.Header.Get("Location") != "")
		body := read(t, resp)
		require.Len(t, srv.Requests(), 2)

		stored, err := c.Do(samekey.Named(post(t, t.Context(), srv.URL+"/v1/payments", payment), "op"))
		require.NoError(t, err)
		info, _ = samekey.InfoOf(stored)
		require.Equal(t, samekey.Local, info.Source)
		require.True(t, info.Replayed, "also where the store answers")
		require.Equal(t, body, read(t, stored))
		require.Len(t, srv.Requests(), 2)
	}
}

// The server's side of B95: the mismatch is the profile's code, whatever differs, and the client tells it as one.
func TestCase_B95_TheServersMismatch(t *testing.T) {
	for _, row := range []struct {
		profile  mockserver.Profile
		contract samekey.Contract
		status   int
	}{{mockserver.Default, samekey.DefaultContract, 409}, {mockserver.IETF, contracts.IETF, 422}} {
		row.profile.Account = true // one key for all paths
		srv := newServer(t, mockserver.Config{Profile: row.profile})
		send := func(method, path, body string) (*http.Response, error) {
			policy := quick
			policy.Contract = &row.contract
			c := newClient(t, samekey.Config{Default: policy})
			req, err := http.NewRequestWithContext(t.Context(), method, srv.URL+path, strings.NewReader(body))
			require.NoError(t, err)
			req.Header.Set("Content-Type", "application/json")
			req.Header.Set("Idempotency-Key", map[int]string{409: "mine", 422: `"mine"`}[row.status])
			return c.Do(req) // each by a client that knows nothing of the others
		}
		resp, err := send("POST", "/v1/orders", `{"items":["a"]}`)
		require.NoError(t, err)
		read(t, resp)
		for _, other := range [][3]string{
			{"POST", "/v1/payments", `{"items":["a"]}`}, {"POST", "/v1/orders/1/cancel", `{"items":["a"]}`},
			{"POST", "/v1/orders/2/cancel", `{"items":["a"]}`}, {"PATCH", "/v1/orders", `{"items":["a"]}`}, {"POST", "/v1/orders", `{"items":["b"]}`},
		} {
			before := len(srv.Requests())
			_, err := send(other[0], other[1], other[2])
			conflict := asType[*samekey.ConflictError](t, err)
			require.Equal(t, row.status, conflict.Status, other)
			require.Equal(t, samekey.ReasonMismatch, conflict.Reason, other)
			require.Len(t, srv.Requests(), before+1)
		}
		require.Equal(t, 1, srv.Effects())
	}
}

// The server's side of B96: a hundred clients that know nothing of each other, one key, one effect. Whoever waits gets
// the answer; where the server does not let them wait they are told that it is in progress.
func TestCase_B96_TheServerRunsOnce(t *testing.T) {
	for name, row := range map[string]struct {
		profile  mockserver.Profile
		contract samekey.Contract
		key      string
	}{"they wait": {mockserver.Default, samekey.DefaultContract, "mine"}, "they are told": {mockserver.IETF, contracts.IETF, `"mine"`}} {
		t.Run(name, func(t *testing.T) {
			inLab(t, mockserver.Config{Profile: row.profile, API: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				time.Sleep(time.Second)
				w.WriteHeader(http.StatusCreated)
				_, _ = io.WriteString(w, `{"id":"1"}`)
			})}, func(t *testing.T, l *lab) {
				var mu sync.Mutex
				var wg sync.WaitGroup
				created, told := 0, 0
				for range 100 {
					c := l.client(t, samekey.Config{Store: newStore(t), Default: samekey.Policy{Contract: &row.contract}})
					wg.Go(func() {
						req, _ := http.NewRequestWithContext(context.Background(), http.MethodPost, labURL+"/v1/payments", strings.NewReader(payment))
						req.Header.Set("Idempotency-Key", row.key)
						resp, err := c.Do(req)
						var reason samekey.Reason
						if conflict, ok := errors.AsType[*samekey.ConflictError](err); ok {
							reason = conflict.Reason
						}
						mu.Lock()
						defer mu.Unlock()
						switch {
						case err == nil && resp.StatusCode == 201:
							created++
							_, _ = io.Copy(io.Discard, resp.Body)
							_ = resp.Body.Close()
						case reason == samekey.ReasonInProgress:
							told++
						}
					})
				}
				wg.Wait()
				require.Equal(t, 100, created+told)
				if name == "they wait" {
					require.Equal(t, 100, created)
				} else {
					require.Equal(t, 99, told)
				}
				require.Len(t, l.Requests(), 100)
				require.Equal(t, 1, l.Effects())
			})
		})
	}
}
