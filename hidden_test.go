package samekey_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/samekey/samekey"
	"github.com/samekey/samekey/mockserver"
)

// hiddenCase is an exchange that net/http may repeat by itself.
type hiddenCase struct {
	header string
	h2     bool
	body   string
}

func (h hiddenCase) String() string {
	proto := "HTTP/1"
	if h.h2 {
		proto = "HTTP/2"
	}
	return fmt.Sprintf("%s/%s/body=%v", proto, h.header, h.body != "")
}

func hiddenCases() (all []hiddenCase) {
	for _, header := range []string{"Idempotency-Key", "X-Idempotency-Key", "Request-Id"} {
		for _, h2 := range []bool{false, true} {
			for _, body := range []string{"", payment} {
				all = append(all, hiddenCase{header, h2, body})
			}
		}
	}
	return all
}

// hidden is a server that has served a connection once, and a client that is about to use that connection again.
type hidden struct {
	hiddenCase
	*mockserver.Server
	rt  *gated
	c   *samekey.Client
	rec *recorder
}

func (h hiddenCase) open(t *testing.T, policy samekey.Policy) *hidden {
	profile := mockserver.Default
	profile.Carrier = mockserver.Header(h.header)
	cfg := mockserver.Config{Profile: profile, API: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(w, `{"id":1}`)
	})}
	srv, rt := (*mockserver.Server)(nil), newGated(t)
	if h.h2 {
		srv = mockserver.NewTLSServer(cfg)
		rt.TLSClientConfig = srv.Client().Transport.(*http.Transport).TLSClientConfig.Clone()
		rt.ForceAttemptHTTP2 = true
	} else {
		srv = mockserver.NewServer(cfg)
	}
	t.Cleanup(srv.Close)
	contract := samekey.DefaultContract
	contract.Carrier = samekey.Header(h.header)
	policy.Contract, policy.Backoff.Min = &contract, -1
	rec := &recorder{}
	out := &hidden{hiddenCase: h, Server: srv, rt: rt, rec: rec,
		c: newClient(t, samekey.Config{HTTPClient: rt.client(), Default: policy, Observer: rec.observe})}
	resp, err := out.do(t, t.Context(), "warm-up")
	require.NoError(t, err)
	read(t, resp)
	major := 1
	if h.h2 {
		major = 2
	}
	require.Equal(t, major, resp.ProtoMajor)
	srv.Reset()
	rec.mu.Lock()
	rec.events = nil
	rec.mu.Unlock()
	return out
}

func (h *hidden) do(t *testing.T, ctx context.Context, name string) (*http.Response, error) {
	t.Helper()
	req := post(t, ctx, h.URL+"/v1/things/1/cancel", h.body)
	if h.body == "" {
		req.Body, req.ContentLength = nil, 0
		req.Header.Del("Content-Type")
	}
	return h.c.Do(samekey.Named(req, name))
}

// told sums what the observer was told of the attempts' sends.
func (h *hidden) told() (sends int) {
	for _, e := range h.rec.all(samekey.StepAttemptDone) {
		sends += e.Sends
	}
	return sends
}

func (h *hidden) same(t *testing.T) {
	t.Helper()
	reqs := h.Requests()
	for _, r := range reqs {
		require.Equal(t, reqs[0].Key, r.Key)
		require.Equal(t, h.body, string(r.Body))
		require.Equal(t, reqs[0].Header, r.Header)
	}
}

// TestHiddenSends: the server commits and then loses a connection that had served before. Whoever sends again, net/http
// or the policy, every request at the server is reported.
func TestHiddenSends(t *testing.T) {
	faults := map[string]mockserver.Fault{
		"drop":       {When: mockserver.AfterCommit, Do: mockserver.Drop, Times: 1},
		"reset":      {When: mockserver.AfterCommit, Do: mockserver.Reset, Times: 1},
		"goaway":     {When: mockserver.BeforeCommit, Do: mockserver.GoAway, Times: 1},
		"refused":    {When: mockserver.BeforeCommit, Do: mockserver.StreamReset(7), Times: 1},
		"drop twice": {When: mockserver.AfterCommit, Do: mockserver.Drop, Times: 2},
	}
	repeated := 0
	for _, hc := range hiddenCases() {
		for name, fault := range faults {
			t.Run(hc.String()+"/"+name, func(t *testing.T) {
				h := hc.open(t, samekey.Policy{})
				h.Fault(fault)
				var info samekey.Info
				resp, err := h.do(t, samekey.WithInfo(t.Context(), &info), "order-1/cancel")
				require.NoError(t, err)
				read(t, resp)
				require.Equal(t, len(h.Requests()), info.Sends, "sends reported = requests at the server")
				require.Equal(t, len(h.Requests()), h.told())
				require.Greater(t, len(h.Requests()), 1)
				require.Len(t, h.rec.all(samekey.StepAttempt), info.Attempts)
				outcome := h.rec.all(samekey.StepOutcome)
				require.Equal(t, info.Sends, outcome[len(outcome)-1].Sends)
				require.Equal(t, 1, h.Effects())
				h.same(t)
				if hc.body != "" {
					require.Equal(t, info.Attempts, info.Sends, "nothing is repeated unseen")
				}
				repeated += info.Sends - info.Attempts
			})
		}
	}
	require.Positive(t, repeated, "net/http has repeated nothing by itself: this test proves nothing")
}

// TestOneAttemptWithABodyIsOneRequest: net/http cannot rewind what it does not hold.
func TestOneAttemptWithABodyIsOneRequest(t *testing.T) {
	for _, hc := range hiddenCases() {
		if hc.body == "" {
			continue
		}
		for name, do := range map[string]mockserver.Action{"drop": mockserver.Drop, "goaway": mockserver.GoAway, "refused": mockserver.StreamReset(7)} {
			t.Run(hc.String()+"/"+name, func(t *testing.T) {
				h := hc.open(t, samekey.Policy{MaxAttempts: 1})
				h.Fault(mockserver.Fault{When: mockserver.AfterCommit, Do: do})
				var info samekey.Info
				_, err := h.do(t, samekey.WithInfo(t.Context(), &info), "order-1/cancel")
				require.ErrorIs(t, err, samekey.ErrUnknown)
				require.Len(t, h.Requests(), 1)
				require.Equal(t, 1, info.Sends)
				require.Equal(t, 1, h.told())
			})
		}
	}
}

// TestHiddenSendCountsForTheOutcome: one attempt, in which net/http has sent twice. What the second send meets is no
// proof of what became of the first.
func TestHiddenSendCountsForTheOutcome(t *testing.T) {
	for _, header := range []string{"Idempotency-Key", "X-Idempotency-Key"} {
		hc := hiddenCase{header: header}
		for name, second := range map[string]func(*hidden){
			"401": func(h *hidden) { h.Fault(mockserver.Fault{Do: mockserver.Status(401, false)}) },
			"404": func(h *hidden) { h.Fault(mockserver.Fault{Do: mockserver.Status(404, false)}) },
			"429": func(h *hidden) { h.Fault(mockserver.Fault{Do: mockserver.Status(429, false)}) },
			"a dial that fails": func(h *hidden) {
				h.rt.shut(refuses)
			},
		} {
			t.Run(hc.String()+"/"+name, func(t *testing.T) {
				h := hc.open(t, samekey.Policy{MaxAttempts: 1})
				h.Fault(mockserver.Fault{When: mockserver.AfterCommit, Do: mockserver.Drop, Times: 1})
				second(h)
				var info samekey.Info
				_, err := h.do(t, samekey.WithInfo(t.Context(), &info), "order-1/cancel")
				require.ErrorIs(t, err, samekey.ErrUnknown)
				require.NotErrorIs(t, err, samekey.ErrNotSent)
				require.Equal(t, samekey.EffectUnknown, samekey.EffectOf(err))
				require.Equal(t, 1, h.Effects(), "it did happen")
				require.Equal(t, 1, info.Attempts)
				require.Equal(t, len(h.Requests()), info.Sends)
				require.Equal(t, samekey.Pending, info.State)
			})
		}
		// A conflict says that an earlier send may be what it is about.
		t.Run(hc.String()+"/409", func(t *testing.T) {
			h := hc.open(t, samekey.Policy{MaxAttempts: 1})
			h.Fault(mockserver.Fault{When: mockserver.AfterCommit, Do: mockserver.Drop, Times: 1}, mockserver.Fault{Do: mockserver.Status(409, false)})
			_, err := h.do(t, t.Context(), "order-1/cancel")
			e, ok := errors.AsType[*samekey.ConflictError](err)
			require.True(t, ok)
			require.True(t, e.Ambiguous)
			require.Len(t, h.Requests(), 2)
		})
		// So does an attempt that follows: nothing of a later one undoes the hidden send.
		t.Run(hc.String()+"/401 in the next attempt", func(t *testing.T) {
			h := hc.open(t, samekey.Policy{RetryStatus: []int{429}, MaxAttempts: 2})
			h.Fault(mockserver.Fault{When: mockserver.AfterCommit, Do: mockserver.Drop, Times: 1},
				mockserver.Fault{Do: mockserver.Status(429, false), Times: 1}, mockserver.Fault{Do: mockserver.Status(401, false)})
			var info samekey.Info
			_, err := h.do(t, samekey.WithInfo(t.Context(), &info), "order-1/cancel")
			require.ErrorIs(t, err, samekey.ErrUnknown)
			require.Equal(t, 2, info.Attempts)
			require.Equal(t, 3, info.Sends)
			require.Len(t, h.Requests(), 3)
		})
	}
}

// TestForeignTransportProvesNothing: only net/http's own transport can say that it got no connection.
func TestForeignTransportProvesNothing(t *testing.T) {
	rt, store := newGated(t), newStore(t)
	rt.shut(refuses)
	foreign := roundTripper(func(r *http.Request) (*http.Response, error) { return rt.Transport.RoundTrip(r) })
	rec := &recorder{}
	c := newClient(t, samekey.Config{Store: store, HTTPClient: &http.Client{Transport: foreign}, Default: quick, Observer: rec.observe})
	var info samekey.Info
	_, err := c.Do(samekey.Named(post(t, samekey.WithInfo(t.Context(), &info), "http://api.test/", payment), opName))
	require.ErrorIs(t, err, samekey.ErrUnknown)
	require.NotErrorIs(t, err, samekey.ErrNotSent)
	require.Equal(t, 1, pending(t, store))

	// One that tells nothing of its sends is taken to have sent once each time.
	sum := 0
	for _, e := range rec.all(samekey.StepAttemptDone) {
		sum += e.Sends
	}
	require.Equal(t, 4, info.Sends)
	require.Equal(t, info.Sends, sum)
}
