package samekey_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/samekey/samekey"
	"github.com/samekey/samekey/mockserver"
	"github.com/samekey/samekey/persist"
)

// TestEveryStatus: a 409 goes out once, a 408 and every 5xx as often as the policy allows, anything else once; each of
// them first, and after an attempt whose answer was lost.
func TestEveryStatus(t *testing.T) {
	gates := []int{401, 403, 407, 421, 425, 429, 431, 451, 511}
	var codes []int
	for s := 200; s <= 600; s++ {
		codes = append(codes, s)
	}
	for _, hint := range []string{"", "HTTP/1.1 103 Early Hints\r\nLink: </style.css>; rel=preload\r\n\r\n"} {
		p, rt := newPeer(t), newGated(t)
		store := newStore(t)
		c := newClient(t, samekey.Config{Store: store, HTTPClient: rt.client(), Default: quick})
		for _, s := range append(codes, 101) {
			for _, before := range []bool{false, true} {
				where := fmt.Sprintf("%d, before=%v, hint=%q", s, before, hint)
				seen := len(p.requests())
				final := func(c net.Conn) bool {
					_, _ = c.Write([]byte(hint))
					return answers(s, `{"error":"E"}`)(c)
				}
				p.meet(final)
				if before {
					p.meet(hangsUp, final)
				}
				var info samekey.Info
				ctx := samekey.WithInfo(t.Context(), &info)
				resp, err := c.Do(samekey.Named(post(t, ctx, p.url+"/v1/x", payment), where))
				got := p.requests()[seen:]

				want := 1
				switch {
				case s == 408 || s >= 500:
					want = 4
				case before:
					want = 2
				}
				require.Len(t, got, want, where)
				require.Equal(t, want, info.Sends, where)
				for _, raw := range got {
					require.Equal(t, got[0], raw, where)
				}
				require.Contains(t, got[0], "\r\nContent-Length: "+strconv.Itoa(len(payment))+"\r\n")
				require.Equal(t, "Idempotency-Key: "+info.Key, keyLine(got[0], "Idempotency-Key"))
				require.True(t, strings.HasSuffix(got[0], "\r\n\r\n"+payment))

				gate := slices.Contains(gates, s)
				switch {
				case s == 409:
					require.ErrorIs(t, err, samekey.ErrConflict, where)
				case s >= 200 && s < 300, slices.Contains([]int{400, 402, 422}, s):
					require.NoError(t, err, where)
				case s == 101, s == 408, s >= 500 && !gate, before:
					require.ErrorIs(t, err, samekey.ErrUnknown, where)
					require.Equal(t, samekey.EffectUnknown, samekey.EffectOf(err))
				default:
					require.NoError(t, err, where)
					require.Equal(t, samekey.Rejected, info.State, where)
				}
				if err == nil {
					require.Equal(t, s, resp.StatusCode)
					body := read(t, resp)
					if s != 204 && s != 304 {
						require.JSONEq(t, `{"error":"E"}`, body)
					}
				}
				_, err = store.Get(t.Context(), samekey.Ref{ID: where})
				if gate && !before {
					require.ErrorIs(t, err, persist.ErrNotFound, where)
				} else {
					require.NoError(t, err, where)
				}
			}
		}
	}
}

// TestConflictIsSentOnce: whatever a policy, a rule, or a loop above says, and whatever of the answer arrives.
func TestConflictIsSentOnce(t *testing.T) {
	wrong := samekey.DefaultContract
	wrong.Rules = []samekey.Rule{{If: samekey.Match{Pointer: "/error"}, Means: samekey.MeansUncertain}}
	all := make([]int, 0, 600)
	for s := 400; s <= 999; s++ {
		if s != 409 {
			all = append(all, s)
		}
	}
	retry := func(samekey.Attempt) samekey.Decision { return samekey.Retry }
	policies := map[string]samekey.Policy{
		"default":          {},
		"many attempts":    {MaxAttempts: 50},
		"every status":     {RetryStatus: all},
		"Decide":           {Decide: retry},
		"a rule":           {Contract: &wrong},
		"all of it":        {MaxAttempts: 50, RetryStatus: all, Decide: retry, Contract: &wrong, Redirects: samekey.On},
		"no kept answers":  {Retention: -1, KeepRejections: samekey.Off},
		"without a budget": {Budget: 1},
	}
	body := `{"error":"E"}`
	replies := map[string]reply{
		"whole":                   answers(409, body),
		"empty":                   answers(409, ""),
		"asks for a retry":        answers(409, body, "Retry-After: 0"),
		"after a 103":             says("HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 409 Conflict\r\nContent-Length: 0\r\n\r\n"),
		"cut off":                 says("HTTP/1.1 409 Conflict\r\nContent-Type: application/json\r\nContent-Length: 46\r\n\r\n{\"error\":"),
		"cut off before the body": says("HTTP/1.1 409 Conflict\r\nContent-Type: application/json\r\nContent-Length: 46\r\n\r\n"),
		"cut off in chunks":       says("HTTP/1.1 409 Conflict\r\nTransfer-Encoding: chunked\r\n\r\n4\r\n{\"er\r\n"),
	}
	for pname, policy := range policies {
		policy.Backoff.Min = -1
		for rname, answer := range replies {
			for _, before := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s/%s/before=%v", pname, rname, before), func(t *testing.T) {
					t.Parallel()
					p, store := newPeer(t, answer), newStore(t)
					want := 1
					if before {
						p.meet(hangsUp, answer)
						want = 2
					}
					c := newClient(t, samekey.Config{Store: store, HTTPClient: newGated(t).client(), Default: policy})
					send := func() (*http.Response, error) {
						return c.Do(samekey.Named(post(t, t.Context(), p.url+"/v1/x", payment), opName))
					}
					_, err := send()
					e, ok := errors.AsType[*samekey.ConflictError](err)
					require.True(t, ok, "%v", err)
					require.Equal(t, 409, e.Status)
					require.Equal(t, before, e.Ambiguous)
					require.Len(t, p.requests(), want)
					for range 3 {
						_, err = send()
						require.ErrorIs(t, err, samekey.ErrConflict)
					}
					req := samekey.Named(post(t, t.Context(), p.url+"/v1/x", payment), opName)
					resp, err := c.Transport().RoundTrip(req)
					require.NoError(t, err)
					require.Equal(t, 409, resp.StatusCode)
					require.ErrorIs(t, samekey.ErrorOf(resp), samekey.ErrConflict)
					require.NoError(t, resp.Body.Close())
					report, err := c.Recover(t.Context(), samekey.Recovery{Jitter: -1})
					require.NoError(t, err)
					require.Zero(t, report)
					require.Len(t, p.requests(), want, "requests at the server")
					require.Equal(t, 1, count(t, store, samekey.Conflicted))
				})
			}
		}
	}
}

func TestPoliciesThatRetryConflictsAreRefused(t *testing.T) {
	rule := samekey.DefaultContract
	rule.Rules = []samekey.Rule{{If: samekey.Match{Status: []int{409}}, Means: samekey.MeansUncertain}}
	for name, p := range map[string]samekey.Policy{"status": {RetryStatus: []int{503, 409}}, "rule": {Contract: &rule}} {
		t.Run(name, func(t *testing.T) {
			_, err := samekey.New(samekey.Config{Store: newStore(t), Default: p})
			require.ErrorIs(t, err, samekey.ErrPolicy)
			require.ErrorContains(t, err, "409")
			_, err = samekey.New(samekey.Config{Store: newStore(t), Endpoints: map[string]samekey.Policy{"POST /v1/x": p}})
			e, ok := errors.AsType[*samekey.PolicyError](err)
			require.True(t, ok)
			require.Equal(t, "POST /v1/x", e.Endpoint)
		})
	}
	p := newPeer(t, answers(409, "{}"))
	c := newClient(t, samekey.Config{})
	_, err := c.Do(post(t, samekey.WithPolicy(t.Context(), samekey.Policy{RetryStatus: []int{409}}), p.url, payment))
	require.ErrorIs(t, err, samekey.ErrPolicy)
	require.Empty(t, p.requests())
}

// TestAnonymousOutcomes: what the store keeps of an operation that nobody can name again.
func TestAnonymousOutcomes(t *testing.T) {
	for _, tt := range []struct {
		name   string
		reply  reply
		state  samekey.State
		kept   int // operations in the store once the caller has the answer
		effect samekey.Effect
	}{
		{"succeeded", created, samekey.Succeeded, 0, 0},
		{"processing", answers(202, `{}`), samekey.Pending, 1, 0},
		{"rejected", answers(400, `{}`), samekey.Rejected, 0, 0},
		{"gate", answers(401, `{}`), samekey.Rejected, 0, 0},
		{"conflict", answers(409, `{}`), samekey.Conflicted, 1, samekey.EffectUnknown},
		{"unknown", answers(503, `{}`), samekey.Pending, 1, samekey.EffectUnknown},
		{"lost", hangsUp, samekey.Pending, 1, samekey.EffectUnknown},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p, store := newPeer(t, tt.reply), newStore(t)
			c := newClient(t, samekey.Config{Store: store, HTTPClient: newGated(t).client(), Default: quick})
			var info samekey.Info
			resp, err := c.Do(post(t, samekey.WithInfo(t.Context(), &info), p.url, payment))
			require.Equal(t, tt.state, info.State)
			require.Equal(t, info.Key, info.ID)
			require.Equal(t, "Idempotency-Key: "+info.Key, keyLine(p.requests()[0], "Idempotency-Key"))
			if err == nil {
				read(t, resp)
			} else {
				require.Equal(t, tt.effect, samekey.EffectOf(err))
			}
			require.Equal(t, tt.kept, count(t, store))
			// The same code again is a second operation.
			p.meet(created)
			n := len(p.requests())
			resp, err = c.Do(post(t, t.Context(), p.url, payment))
			require.NoError(t, err)
			read(t, resp)
			require.Len(t, p.requests(), n+1)
			require.NotContains(t, p.requests()[n], info.Key)
		})
	}
	t.Run("not sent", func(t *testing.T) {
		store, rt := newStore(t), newGated(t)
		rt.shut(refuses)
		c := newClient(t, samekey.Config{Store: store, HTTPClient: rt.client(), Default: quick})
		_, err := c.Do(post(t, t.Context(), "http://api.test/", payment))
		require.ErrorIs(t, err, samekey.ErrNotSent)
		require.Equal(t, samekey.EffectNone, samekey.EffectOf(err))
		require.Zero(t, count(t, store))
	})
}

// TestAdoptedKeyIsAName: a key that came with the request may have been sent before, so that no failure short of the
// store's word proves anything.
func TestAdoptedKeyIsAName(t *testing.T) {
	p, store := newPeer(t, hangsUp), newStore(t)
	c := newClient(t, samekey.Config{Store: store, HTTPClient: newGated(t).client(), Default: quick})
	req := func(ctx context.Context, body string) *http.Request {
		r := post(t, ctx, p.url, body)
		r.Header.Set("Idempotency-Key", "from-an-sdk-above-1")
		return r
	}
	_, err := c.Do(req(t.Context(), payment))
	require.ErrorIs(t, err, samekey.ErrUnknown)
	require.Len(t, p.requests(), 4)

	gone, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = c.Do(req(gone, payment))
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, samekey.EffectUnknown, samekey.EffectOf(err), "%v", err)
	_, err = c.Do(req(t.Context(), strings.Repeat("x", 1<<20+1)))
	require.ErrorIs(t, err, samekey.ErrTooLarge)
	require.Equal(t, samekey.EffectUnknown, samekey.EffectOf(err), "%v", err)
	bad := req(t.Context(), payment)
	bad.Header["X-Bad"] = []string{"a\nb"}
	_, err = c.Do(bad)
	require.Equal(t, samekey.EffectUnknown, samekey.EffectOf(err), "%v", err)
	require.Len(t, p.requests(), 4)
	require.Equal(t, 1, pending(t, store))

	p.meet(created)
	resp, err := c.Do(req(t.Context(), payment))
	require.NoError(t, err)
	read(t, resp)
	got := p.requests()
	require.Equal(t, got[0], got[4])
}

// TestLocalErrors: what the request itself forbids is refused before anything is stored or sent.
func TestLocalErrors(t *testing.T) {
	p, store := newPeer(t, created), newStore(t)
	c := newClient(t, samekey.Config{Store: store, HTTPClient: newGated(t).client()})
	for name, change := range map[string]func(*http.Request){
		"header with a newline":      func(r *http.Request) { r.Header["X-A"] = []string{"a\r\nX-B: b"} },
		"header name":                func(r *http.Request) { r.Header["X A"] = []string{"a"} },
		"scheme":                     func(r *http.Request) { r.URL.Scheme = "htp" },
		"no scheme":                  func(r *http.Request) { r.URL.Scheme = "" },
		"no host":                    func(r *http.Request) { r.URL.Host = "" },
		"host with a newline":        func(r *http.Request) { r.Host = "a\r\nX-B: b" },
		"host in the URL, a newline": func(r *http.Request) { r.URL.Host = "a\r\nX-B: b" },
		"method":                     func(r *http.Request) { r.Method = "PO ST" },
	} {
		t.Run(name, func(t *testing.T) {
			for _, named := range []bool{false, true} {
				req := post(t, samekey.WithPolicy(t.Context(), samekey.Policy{MaxAttempts: 3}), p.url+"/x?token=hush-hush", payment)
				if named {
					req = samekey.Named(req, opName)
				}
				change(req)
				pl := map[bool]samekey.Effect{false: samekey.EffectNone, true: samekey.EffectUnknown}
				cl := c
				if req.Method != http.MethodPost {
					cl = newClient(t, samekey.Config{Store: store, Default: samekey.Policy{Command: samekey.On}})
				}
				_, err := cl.Do(req)
				require.ErrorIs(t, err, samekey.ErrNotSent)
				require.Equal(t, pl[named], samekey.EffectOf(err), "a name may be known: only the store can say that it is not")
				require.NotContains(t, err.Error(), "hush-hush")
				require.Zero(t, count(t, store))
			}
		})
	}
	require.Empty(t, p.requests())

	t.Run("certificate", func(t *testing.T) {
		srv := mockserver.NewTLSServer(mockserver.Config{})
		t.Cleanup(srv.Close)
		rec := &recorder{}
		c := newClient(t, samekey.Config{Store: store, HTTPClient: newGated(t).client(), Default: quick, Observer: rec.observe})
		_, err := c.Do(samekey.Named(post(t, t.Context(), srv.URL, payment), opName))
		require.ErrorIs(t, err, samekey.ErrNotSent)
		require.ErrorAs(t, err, new(*tls.CertificateVerificationError))
		require.Equal(t, samekey.EffectNone, samekey.EffectOf(err))
		require.Len(t, rec.all(samekey.StepAttempt), 1)
		require.Zero(t, count(t, store))
		require.Empty(t, srv.Requests())
	})
}

// TestEnded: the caller's cancel and deadline, Close and the budget, before a byte left, after one, and in a wait.
func TestEnded(t *testing.T) {
	errMine := errors.New("the user has left")
	type ender struct {
		name  string
		end   func(*world, context.CancelCauseFunc)
		is    []error
		isNot []error
	}
	enders := []ender{
		{"cancel", func(_ *world, c context.CancelCauseFunc) { c(nil) }, []error{context.Canceled}, []error{context.DeadlineExceeded, samekey.ErrClosed}},
		{"cancel with a cause", func(_ *world, c context.CancelCauseFunc) { c(errMine) }, []error{context.Canceled, errMine}, []error{context.DeadlineExceeded}},
		{"Close", func(w *world, _ context.CancelCauseFunc) { go func() { _ = w.client.Close() }() }, []error{samekey.ErrClosed}, []error{context.Canceled, context.DeadlineExceeded}},
	}
	for _, named := range []bool{true, false} {
		for _, e := range enders {
			for _, when := range []string{"at begin", "at dial", "on the wire", "in a wait after a dial", "in a wait after an answer", "at dial, after a lost answer"} {
				t.Run(fmt.Sprintf("%s/%s/named=%v", e.name, when, named), func(t *testing.T) {
					t.Parallel()
					w := &world{t: t, rt: newGated(t), store: newStore(t)}
					w.p = newPeer(t)
					ctx, cancel := context.WithCancelCause(t.Context())
					var once sync.Once
					end := func() { once.Do(func() { e.end(w, cancel) }) }
					cfg := samekey.Config{Store: w.store, HTTPClient: w.rt.client(), Default: quick}
					waits := func(ctx context.Context) error {
						end()
						<-ctx.Done()
						return ctx.Err()
					}
					requests, want := 1, unknown
					switch when {
					case "at begin":
						cfg.Observer = func(octx context.Context, ev samekey.Event) {
							if ev.Step == samekey.StepBegun {
								end()
								<-octx.Done()
							}
						}
						requests, want = 0, unsent
					case "at dial":
						w.rt.shut(waits)
						requests, want = 0, unsent
					case "on the wire":
						w.p.meet(after(end, staysSilent))
					case "in a wait after a dial", "in a wait after an answer":
						cfg.Default.Backoff = samekey.Backoff{Min: 30_000_000_000, Max: 30_000_000_000}
						cfg.Observer = func(_ context.Context, ev samekey.Event) {
							if ev.Step == samekey.StepWait {
								end()
							}
						}
						if w.p.meet(answers(503, "{}")); when == "in a wait after a dial" {
							w.rt.shut(refuses)
							requests, want = 0, unsent
						}
					case "at dial, after a lost answer":
						w.p.meet(after(func() { w.rt.shut(waits) }, hangsUp))
					}
					w.client = newClient(t, cfg)
					req := post(t, ctx, w.p.url, payment)
					if named {
						req = samekey.Named(req, opName)
					}
					_, err := w.client.Do(req)
					for _, target := range e.is {
						require.ErrorIs(t, err, target)
					}
					for _, target := range e.isNot {
						require.NotErrorIs(t, err, target)
					}
					require.Len(t, w.p.requests(), requests)
					if want == unsent {
						require.ErrorIs(t, err, samekey.ErrNotSent)
						require.Equal(t, samekey.EffectNone, samekey.EffectOf(err))
						require.Zero(t, count(t, w.store))
						return
					}
					require.ErrorIs(t, err, samekey.ErrUnknown)
					require.Equal(t, samekey.EffectUnknown, samekey.EffectOf(err))
					require.Equal(t, 1, pending(t, w.store))
				})
			}
		}
	}
}

// TestBudget: an exhausted budget ends the call as the last attempt's row says, and is a cause.
func TestBudget(t *testing.T) {
	policy := samekey.Policy{Backoff: samekey.Backoff{Min: -1}, MaxAttempts: 100, Budget: 0.001}
	t.Run("503", func(t *testing.T) {
		p, store := newPeer(t, answers(503, "{}")), newStore(t)
		c := newClient(t, samekey.Config{Store: store, HTTPClient: newGated(t).client(), Default: policy})
		_, err := c.Do(samekey.Named(post(t, t.Context(), p.url, payment), opName))
		require.ErrorIs(t, err, samekey.ErrUnknown)
		require.ErrorIs(t, err, samekey.ErrBudget)
		require.Len(t, p.requests(), 11)
		require.Equal(t, 1, pending(t, store))
		_, err = c.Do(samekey.Named(post(t, t.Context(), p.url, payment), opName+"/2"))
		require.ErrorIs(t, err, samekey.ErrBudget)
		require.Len(t, p.requests(), 12)
	})
	t.Run("connection refused", func(t *testing.T) {
		p, store, rt, rec := newPeer(t, created), newStore(t), newGated(t), &recorder{}
		rt.shut(refuses)
		c := newClient(t, samekey.Config{Store: store, HTTPClient: rt.client(), Default: policy, Observer: rec.observe})
		_, err := c.Do(samekey.Named(post(t, t.Context(), p.url, payment), opName))
		require.ErrorIs(t, err, samekey.ErrNotSent)
		require.ErrorIs(t, err, samekey.ErrBudget)
		require.ErrorContains(t, err, "connection refused")
		require.Equal(t, samekey.EffectNone, samekey.EffectOf(err))
		require.Len(t, rec.all(samekey.StepAttempt), 11)
		require.Empty(t, p.requests())
		require.Zero(t, count(t, store))
	})
}

// TestSeeOther: a 303 is a success where it leads to the same origin, however that is written.
func TestSeeOther(t *testing.T) {
	for _, tt := range []struct {
		url, host, location string
		want                samekey.State
	}{
		{"http://api.test/v1/payments", "", "/v1/payments/1", samekey.Succeeded},
		{"http://api.test/v1/payments", "", "1", samekey.Succeeded},
		{"http://api.test/v1/payments", "", "//api.test/v1/payments/1", samekey.Succeeded},
		{"http://api.test/v1/payments", "", "http://API.test:80/v1/payments/1", samekey.Succeeded},
		{"http://api.test:80/v1/payments", "", "http://api.test/v1/payments/1", samekey.Succeeded},
		{"https://api.test/v1/payments", "", "https://api.test:443/v1/payments/1", samekey.Succeeded},
		{"http://127.0.0.1:8080/v1/payments", "api.test", "http://api.test/v1/payments/1", samekey.Succeeded},
		{"http://127.0.0.1:8080/v1/payments", "api.test", "http://127.0.0.1:8080/v1/payments/1", samekey.Succeeded},
		{"http://api.test/v1/payments", "", "http://api.test:8080/v1/payments/1", samekey.Rejected},
		{"http://api.test/v1/payments", "", "https://api.test/v1/payments/1", samekey.Rejected},
		{"http://api.test/v1/payments", "", "https://api.test:80/v1/payments/1", samekey.Rejected},
		{"http://api.test/v1/payments", "", "//login.test/", samekey.Rejected},
		{"http://api.test/v1/payments", "", "http://user@api.test/v1/payments/1", samekey.Rejected},
		{"http://api.test/v1/payments", "", "mailto:api.test", samekey.Rejected},
	} {
		inLab(t, mockserver.Config{}, func(t *testing.T, l *lab) {
			l.Fault(mockserver.Fault{Do: mockserver.Redirect(303, tt.location)})
			var info samekey.Info
			req := samekey.Named(post(t, samekey.WithInfo(t.Context(), &info), tt.url, payment), opName)
			req.Host = tt.host
			resp, err := l.client(t, samekey.Config{}).Do(req)
			require.NoError(t, err)
			require.Equal(t, 303, resp.StatusCode)
			require.NoError(t, resp.Body.Close())
			require.Equal(t, tt.want, info.State, "%s -> %s", tt.url, tt.location)
			require.Len(t, l.Requests(), 1)
		})
	}
}
