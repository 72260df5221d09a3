package samekey_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/samekey/samekey"
	"github.com/samekey/samekey/mockserver"
)

func anyCommand(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusCreated) }

// net/http sends again by itself on a connection that it used before, and only under some names of the key's header.
// Whatever the name: the same key, one effect, and as many sends told as requests arrived.
func TestCase_B20_HiddenSendsAreCounted(t *testing.T) {
	for _, header := range []string{"Idempotency-Key", "X-Idempotency-Key", "Request-Id"} {
		for _, body := range []string{payment, ""} {
			for _, do := range []struct {
				name string
				mockserver.Action
			}{{"drop", mockserver.Drop}, {"half close", mockserver.HalfClose}, {"reset", mockserver.Reset}} {
				t.Run(fmt.Sprintf("%s/body=%v/%s", header, body != "", do.name), func(t *testing.T) {
					profile := mockserver.Default
					profile.Carrier = mockserver.Header(header)
					srv := newServer(t, mockserver.Config{Profile: profile, API: http.HandlerFunc(anyCommand)})
					rec := &recorder{}
					policy := quick
					policy.Contract = &samekey.Contract{Carrier: samekey.Header(header), Life: time.Hour}
					c := newClient(t, samekey.Config{Default: policy, Observer: rec.observe})
					path := "/v1/orders/7/cancel"
					resp, err := c.Do(post(t, t.Context(), srv.URL+"/v1/orders", `{"orderRef":"warm-up"}`))
					require.NoError(t, err)
					read(t, resp)
					warm := len(srv.Requests())

					srv.Fault(mockserver.Fault{Match: "POST " + path, When: mockserver.AfterCommit, Do: do.Action, Times: 1})
					resp, err = c.Do(post(t, t.Context(), srv.URL+path, body))
					require.NoError(t, err)
					info, _ := samekey.InfoOf(resp)
					read(t, resp)
					reqs := srv.Requests()[warm:]
					require.Len(t, reqs, 2)
					require.Equal(t, len(reqs), info.Sends)
					told := 0
					for _, e := range rec.all(samekey.StepAttemptDone)[1:] {
						told += e.Sends
					}
					require.Equal(t, len(reqs), told)
					if body != "" {
						require.Equal(t, 2, info.Attempts, "with a body nothing is sent unseen")
					}
					require.Equal(t, []string{info.Key}, reqs[0].Header[http.CanonicalHeaderKey(header)])
					srv.AssertAtMostOnce(t)
					srv.AssertSameKey(t)
				})
			}
		}
	}
}

// HTTP/2 repeats what a server disowned: counted as well.
func TestCase_B20_HTTP2(t *testing.T) {
	for name, do := range map[string]mockserver.Action{"refused": mockserver.StreamReset(7), "goaway": mockserver.GoAway} {
		for _, body := range []string{payment, ""} {
			t.Run(fmt.Sprintf("%s/body=%v", name, body != ""), func(t *testing.T) {
				srv := mockserver.NewTLSServer(mockserver.Config{API: http.HandlerFunc(anyCommand)})
				t.Cleanup(srv.Close)
				srv.Fault(mockserver.Fault{Do: do, Times: 1})
				c := newClient(t, samekey.Config{Default: quick, HTTPClient: srv.Client()})
				resp, err := c.Do(post(t, t.Context(), srv.URL+"/v1/orders/7/cancel", body))
				require.NoError(t, err)
				info, _ := samekey.InfoOf(resp)
				read(t, resp)
				require.Equal(t, "HTTP/2.0", srv.Requests()[0].Proto)
				require.Equal(t, len(srv.Requests()), info.Sends)
				srv.AssertSameKey(t)
				srv.AssertAtMostOnce(t)
			})
		}
	}
}

// A redirect is the answer: no GET, no POST to where it leads, whoever the caller is.
func TestCase_B36_RedirectsAreNotFollowed(t *testing.T) {
	for _, status := range []int{301, 302, 303, 307, 308, 300, 304} {
		for _, where := range []string{"/v1/orders/1", "http://elsewhere.test/v1/orders/1"} {
			t.Run(fmt.Sprint(status, where), func(t *testing.T) {
				srv := newServer(t, mockserver.Config{})
				srv.Fault(mockserver.Fault{Do: mockserver.Redirect(status, where)})
				store := newStore(t)
				c := newClient(t, samekey.Config{Store: store, Default: quick})
				done := status == 303 && where[0] == '/'
				want := samekey.Rejected
				if done {
					want = samekey.Succeeded
				}
				for name, do := range map[string]func(*http.Request) (*http.Response, error){
					"Do": c.Do, "HTTPClient": c.HTTPClient().Do, "Transport": c.Transport().RoundTrip,
				} {
					resp, err := do(samekey.Named(post(t, t.Context(), srv.URL+"/v1/payments", payment), name))
					require.NoError(t, err, name)
					require.Equal(t, status, resp.StatusCode, name)
					require.Equal(t, where, resp.Header.Get("Location"))
					info, _ := samekey.InfoOf(resp)
					require.Equal(t, want, info.State)
					require.Equal(t, want, func() samekey.State { r := stored(t, store, name); return r.State() }())
					read(t, resp)
				}
				foreign := &http.Client{Transport: c.Transport()}
				resp, err := foreign.Do(samekey.Named(post(t, t.Context(), srv.URL+"/v1/payments", payment), "foreign"))
				if status == 300 || status == 304 { // not followed by net/http
					require.NoError(t, err)
					read(t, resp)
				} else {
					require.ErrorIs(t, err, samekey.ErrRedirect)
				}
				require.Len(t, srv.Requests(), 4)
				for _, r := range srv.Requests() {
					require.Equal(t, "POST", r.Method)
					require.Equal(t, "/v1/payments", r.Path)
				}
				require.Zero(t, srv.Effects())
			})
		}
	}
}

func TestCase_B64_AllowedRedirects(t *testing.T) {
	policy := quick
	policy.Redirects = samekey.On
	t.Run("the same origin", func(t *testing.T) {
		srv := newServer(t, mockserver.Config{})
		srv.Fault(mockserver.Fault{Match: "POST /old", Do: mockserver.Redirect(307, "/older")},
			mockserver.Fault{Match: "POST /older", Do: mockserver.Redirect(308, "/v1/payments")})
		c := newClient(t, samekey.Config{Default: policy})
		req := post(t, t.Context(), srv.URL+"/old", payment)
		req.Header.Set("Authorization", "Bearer secret")
		resp, err := c.Do(req)
		require.NoError(t, err)
		require.Equal(t, 201, resp.StatusCode)
		info, _ := samekey.InfoOf(resp)
		require.Equal(t, 3, info.Attempts, "each hop is one")
		read(t, resp)
		var paths []string
		for _, r := range srv.Requests() {
			paths = append(paths, r.Method+" "+r.Path)
			require.Equal(t, payment, string(r.Body))
			require.Equal(t, info.Key, r.Key)
			require.Equal(t, "Bearer secret", r.Header.Get("Authorization"))
		}
		require.Equal(t, []string{"POST /old", "POST /older", "POST /v1/payments"}, paths)
	})
	for _, where := range []string{"http://127.0.0.1:1/v1/payments", "https://api.test/", "//elsewhere.test/x", "http://user:pass@{host}/x"} {
		t.Run(where, func(t *testing.T) {
			srv := newServer(t, mockserver.Config{})
			where := strings.Replace(where, "{host}", strings.TrimPrefix(srv.URL, "http://"), 1)
			srv.Fault(mockserver.Fault{Do: mockserver.Redirect(307, where)})
			c := newClient(t, samekey.Config{Default: policy})
			resp, err := c.Do(post(t, t.Context(), srv.URL+"/v1/payments", payment))
			require.NoError(t, err)
			require.Equal(t, 307, resp.StatusCode)
			require.Len(t, srv.Requests(), 1)
		})
	}
	t.Run("a loop ends at the limit", func(t *testing.T) {
		srv := newServer(t, mockserver.Config{})
		srv.Fault(mockserver.Fault{Do: mockserver.Redirect(307, "/v1/payments")})
		store := newStore(t)
		c := newClient(t, samekey.Config{Store: store, Default: policy})
		resp, err := c.Do(post(t, t.Context(), srv.URL+"/v1/payments", payment))
		require.NoError(t, err)
		require.Equal(t, 307, resp.StatusCode)
		require.Len(t, srv.Requests(), 4)
		require.Zero(t, pending(t, store))
	})
	t.Run("302 is never one", func(t *testing.T) {
		srv := newServer(t, mockserver.Config{})
		srv.Fault(mockserver.Fault{Do: mockserver.Redirect(302, "/v1/orders")})
		c := newClient(t, samekey.Config{Default: policy})
		_, err := c.Do(post(t, t.Context(), srv.URL+"/v1/payments", payment))
		require.NoError(t, err)
		require.Len(t, srv.Requests(), 1)
	})
	t.Run("a restart begins at the first address", func(t *testing.T) {
		srv := newServer(t, mockserver.Config{})
		srv.Fault(mockserver.Fault{Match: "POST /old", Do: mockserver.Redirect(307, "/v1/payments")},
			mockserver.Fault{Match: "POST /v1/payments", When: mockserver.AfterCommit, Do: mockserver.Drop, Times: 1})
		short := policy
		short.MaxAttempts = 2
		store := newStore(t)
		c := newClient(t, samekey.Config{Store: store, Default: short})
		_, err := c.Do(samekey.Named(post(t, t.Context(), srv.URL+"/old", payment), "op"))
		require.ErrorIs(t, err, samekey.ErrUnknown)
		resp, err := c.Do(samekey.Named(post(t, t.Context(), srv.URL+"/old", payment), "op"))
		require.NoError(t, err)
		require.Equal(t, 201, resp.StatusCode)
		require.Len(t, srv.Keys(), 1)
		require.Equal(t, 1, srv.Effects())
	})
}

func TestCase_B59_TheBaseClientsTimeoutIsAnAttempts(t *testing.T) {
	inLab(t, mockserver.Config{}, func(t *testing.T, l *lab) {
		l.Fault(mockserver.Fault{When: mockserver.AfterCommit, Do: mockserver.Stall(time.Second), Times: 1})
		c := l.client(t, samekey.Config{Default: quick, HTTPClient: &http.Client{Transport: l.rt.Transport, Timeout: 800 * time.Millisecond}})
		resp, err := c.Do(pay(t, t.Context(), "op"))
		require.NoError(t, err)
		require.Equal(t, []time.Duration{800 * time.Millisecond}, gaps(l.Requests()))
		time.Sleep(time.Minute) // the answer's body is not bound to it any more
		require.Contains(t, read(t, resp), "paymentId")
		l.AssertOnce(t)
	})
}

// The defaults bound a call whose caller does not.
func TestCase_B61_ADefaultCallEnds(t *testing.T) {
	for name, do := range map[string]mockserver.Action{
		"never answers": mockserver.Stall(0), "stalls in the body": mockserver.StallBody(0), "drips": mockserver.SlowBytes(5 * time.Second),
	} {
		t.Run(name, func(t *testing.T) {
			inLab(t, mockserver.Config{}, func(t *testing.T, l *lab) {
				l.Fault(mockserver.Fault{When: mockserver.AfterCommit, Do: do})
				c := l.client(t, samekey.Config{})
				start := time.Now()
				_, err := c.Do(pay(t, t.Context(), "op"))
				require.ErrorIs(t, err, samekey.ErrUnknown)
				require.ErrorIs(t, err, samekey.ErrTimeout)
				require.LessOrEqual(t, time.Since(start), 60*time.Second)
				require.Len(t, l.Requests(), 4)
				require.Equal(t, 1, pending(t, l.store))
				l.AssertSameKey(t)
				l.AssertAtMostOnce(t)
			})
		})
	}
}

type readCloser struct{ io.Reader }

func (readCloser) Close() error { return nil }

// Whatever kind of reader a body is, every attempt sends the same bytes with their length.
func TestCase_B24_EveryKindOfBodyIsSentWhole(t *testing.T) {
	raw := json.RawMessage(payment)
	for name, body := range map[string]func() io.Reader{
		"bytes.Buffer":        func() io.Reader { return bytes.NewBufferString(payment) },
		"strings.Reader":      func() io.Reader { return strings.NewReader(payment) },
		"bytes.Reader":        func() io.Reader { return bytes.NewReader(raw) },
		"NopCloser of Buffer": func() io.Reader { return io.NopCloser(bytes.NewBufferString(payment)) },
		"one byte a read":     func() io.Reader { return readCloser{iotestOneByte{strings.NewReader(payment)}} },
		"pipe": func() io.Reader {
			r, w := io.Pipe()
			go func() { _, _ = io.WriteString(w, payment); _ = w.Close() }()
			return r
		},
	} {
		t.Run(name, func(t *testing.T) {
			srv := newServer(t, mockserver.Config{})
			srv.Fault(mockserver.Fault{Do: mockserver.Status(503, false), Times: 1}, mockserver.Fault{When: mockserver.AfterCommit, Do: mockserver.Reset, Times: 1})
			store := newStore(t)
			c := newClient(t, samekey.Config{Store: store, Default: quick})
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, srv.URL+"/v1/payments", body())
			require.NoError(t, err)
			length := req.ContentLength
			resp, err := c.Do(samekey.Named(req, "op"))
			require.NoError(t, err)
			read(t, resp)
			require.Equal(t, length, req.ContentLength, "the caller's request is left as it was")
			require.Empty(t, req.Header)
			require.Len(t, srv.Requests(), 3)
			for _, r := range srv.Requests() {
				require.Equal(t, payment, string(r.Body))
				require.Equal(t, fmt.Sprint(len(payment)), r.Header.Get("Content-Length"))
				require.False(t, r.Partial)
			}
			require.Equal(t, payment, string(stored(t, store, "op").Body))
			srv.AssertOnce(t)
			srv.AssertSameKey(t)
		})
	}
}

type iotestOneByte struct{ r io.Reader }

func (o iotestOneByte) Read(p []byte) (int, error) { return o.r.Read(p[:min(1, len(p))]) }

// A body is serialised once: what a Go map, a float or an HTML character was turned into is what every attempt sends,
// also in the next process, so that a server that hashes bytes agrees.
func TestCase_B77_SerialisedOnce(t *testing.T) {
	profile := mockserver.Default
	profile.RawBody = true
	srv := newServer(t, mockserver.Config{Profile: profile})
	srv.Fault(mockserver.Fault{When: mockserver.AfterCommit, Do: mockserver.Status(503, false).Then(mockserver.StripAnswerHeader("Idempotent-Replayed")), Times: 3})
	body, err := json.Marshal(map[string]any{
		"orderRef": "o-1", "note": "<b>&é\u2028", "amount": 1e21, "exact": json.Number("9007199254740993"), "none": nil, "rate": 0.1,
	})
	require.NoError(t, err)
	policy := quick
	policy.MaxAttempts = 2
	store := newStore(t)
	for i := range 2 {
		c := newClient(t, samekey.Config{Store: store, Default: policy})
		resp, err := c.Do(samekey.Named(post(t, t.Context(), srv.URL+"/v1/orders", string(body)), "op"))
		if i == 0 {
			require.ErrorIs(t, err, samekey.ErrUnknown)
			require.NoError(t, c.Close())
			continue
		}
		require.NoError(t, err)
		read(t, resp)
	}
	require.Len(t, srv.Requests(), 4)
	for _, r := range srv.Requests() {
		require.Equal(t, string(body), string(r.Body))
	}
	srv.AssertOnce(t)
}

// Why there was no retry comes after what went wrong, and both are in the chain.
func TestCase_B78_TheCauseFirst(t *testing.T) {
	inLab(t, mockserver.Config{}, func(t *testing.T, l *lab) {
		l.Fault(mockserver.Fault{Do: mockserver.Reset})
		c := l.client(t, samekey.Config{Default: samekey.Policy{Backoff: samekey.Backoff{Min: time.Minute, Max: time.Hour}, AttemptTimeout: time.Second, Deadline: 10 * time.Second}})
		_, err := c.Do(pay(t, t.Context(), "op"))
		unknown := asType[*samekey.OutcomeUnknownError](t, err)
		require.ErrorContains(t, unknown.Err, "reset")
		require.ErrorContains(t, unknown.Err, "deadline")
		require.Less(t, strings.Index(err.Error(), "reset"), strings.Index(err.Error(), "deadline"))
	})
	t.Run("a body that cannot be kept is refused whole", func(t *testing.T) {
		srv := newServer(t, mockserver.Config{})
		store := newStore(t)
		c := newClient(t, samekey.Config{Store: store, Default: samekey.Policy{MaxBody: 16}})
		for _, length := range []bool{true, false} {
			req := post(t, t.Context(), srv.URL+"/v1/payments", payment)
			if !length {
				req.ContentLength = -1
			}
			_, err := c.Do(req)
			require.EqualValues(t, 16, asType[*samekey.BodyTooLargeError](t, err).Limit)
			require.ErrorIs(t, err, samekey.ErrTooLarge)
		}
		req := post(t, t.Context(), srv.URL+"/v1/payments", "1234567890123456")
		resp, err := c.Do(req)
		require.NoError(t, err)
		read(t, resp)
		require.Len(t, srv.Requests(), 1)
	})
	t.Run("a body that breaks off", func(t *testing.T) {
		srv := newServer(t, mockserver.Config{})
		store := newStore(t)
		broken := errors.New("disk fell out")
		c := newClient(t, samekey.Config{Store: store})
		req := post(t, t.Context(), srv.URL+"/v1/payments", payment)
		req.Body = io.NopCloser(io.MultiReader(strings.NewReader("{"), errReader{broken}))
		req.ContentLength = -1
		_, err := c.Do(req)
		require.ErrorIs(t, err, samekey.ErrNotSent)
		require.ErrorIs(t, err, broken)
		req = post(t, t.Context(), srv.URL+"/v1/payments", payment)
		req.ContentLength++
		_, err = c.Do(req)
		require.ErrorIs(t, err, samekey.ErrNotSent)
		require.Empty(t, srv.Requests())
		require.Zero(t, count(t, store))
	})
}

type errReader struct{ error }

func (e errReader) Read([]byte) (int, error) { return 0, e.error }

// What is not a command passes through as it is, without a key or a record, and is retried only where an endpoint is
// configured.
func TestReadsPassThrough(t *testing.T) {
	srv := newServer(t, mockserver.Config{})
	store := newStore(t)
	c := newClient(t, samekey.Config{Store: store, Default: quick, Endpoints: map[string]samekey.Policy{"GET /v1/orders/{id}": {}}})
	for _, row := range []struct {
		path  string
		sends int
	}{{"/v1/orders/1", 4}, {"/v1/payments/1", 1}} {
		srv.Reset()
		srv.Fault(mockserver.Fault{Do: mockserver.Status(503, false)})
		for _, do := range []func(*http.Request) (*http.Response, error){c.Do, c.Transport().RoundTrip} {
			before := len(srv.Requests())
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, srv.URL+row.path, nil)
			require.NoError(t, err)
			resp, err := do(req)
			require.NoError(t, err)
			require.Equal(t, 503, resp.StatusCode)
			_, is := samekey.InfoOf(resp)
			require.False(t, is)
			read(t, resp)
			require.Len(t, srv.Requests(), before+row.sends)
		}
		for _, r := range srv.Requests() {
			require.Empty(t, r.Header["Idempotency-Key"])
		}
	}
	require.Zero(t, count(t, store))
	_, err := c.Do(&http.Request{Method: "GET", URL: &url.URL{Scheme: "http", Host: "127.0.0.1:1"}, Header: http.Header{}})
	require.Error(t, err)
}
