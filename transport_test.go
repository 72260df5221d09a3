package samekey_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/samekey/samekey"
	"github.com/samekey/samekey/mockserver"
)

// doer is what generated API clients ask for.
type doer interface {
	Do(*http.Request) (*http.Response, error)
}

var (
	_ doer = (*samekey.Client)(nil)
	_ doer = (*http.Client)(nil)
)

// generated is a client as generators write them: it knows nothing of samekey, and decodes error bodies.
type generated struct {
	server string
	client doer
}

type apiError struct {
	status int
	body   string
}

func (e *apiError) Error() string { return fmt.Sprintf("API: %d: %s", e.status, e.body) }

func (g generated) createPayment(ctx context.Context, body string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, g.server+"/v1/payments", strings.NewReader(body))
	if err != nil {
		return "", err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := g.client.Do(req)
	if err != nil {
		return "", err
	}
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode >= 300 {
		err = &apiError{resp.StatusCode, string(b)}
	}
	return string(b), err
}

func TestDoerOfAGeneratedClient(t *testing.T) {
	srv := newServer(t, mockserver.Config{})
	srv.Fault(mockserver.Fault{When: mockserver.AfterCommit, Do: mockserver.Drop, Times: 2})
	c := newClient(t, samekey.Config{Default: quick})
	var info samekey.Info
	api := generated{srv.URL, c}
	got, err := api.createPayment(samekey.WithInfo(samekey.WithOperation(t.Context(), opName), &info), payment)
	require.NoError(t, err)
	require.Contains(t, got, "paymentId")
	require.Equal(t, 3, info.Attempts)
	require.Equal(t, opName, info.ID)
	srv.AssertOnce(t)
	srv.AssertSameKey(t)

	// The error is samekey's, as it is: no *url.Error around it.
	srv.Fault(mockserver.Fault{Do: mockserver.Status(409, false)})
	_, err = api.createPayment(samekey.WithOperation(t.Context(), opName+"/2"), payment)
	_, isConflict := err.(*samekey.ConflictError)
	require.True(t, isConflict)

	// AsResponses leaves the answer to the generated client.
	api.client = c.AsResponses()
	_, err = api.createPayment(samekey.WithOperation(t.Context(), opName+"/3"), payment)
	require.Equal(t, 409, asType[*apiError](t, err).status)
	require.Contains(t, err.Error(), "InjectedFault")
	require.Len(t, srv.Requests(), 5)
}

// sdk has a retry loop of its own, and repeats a 409 as some do. It makes no key, or one for all of its tries.
type sdk struct {
	base string
	hc   *http.Client
	key  string
}

func (s sdk) pay(ctx context.Context, body string, tries int) (status int, errs []error) {
	for range tries {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.base+"/v1/payments", strings.NewReader(body))
		if err != nil {
			return 0, append(errs, err)
		}
		req.Header.Set("Content-Type", "application/json")
		if s.key != "" {
			req.Header.Set("Idempotency-Key", s.key)
		}
		resp, err := s.hc.Do(req)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		errs = append(errs, samekey.ErrorOf(resp))
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
		if status = resp.StatusCode; status < 400 {
			return status, errs
		}
	}
	return status, errs
}

// TestLoopAboveMeetsTheStoredConflict: an SDK that repeats a 409 does not reach the server again.
func TestLoopAboveMeetsTheStoredConflict(t *testing.T) {
	for _, how := range []string{"a name", "a key of its own"} {
		t.Run(how, func(t *testing.T) {
			srv := newServer(t, mockserver.Config{})
			srv.Fault(mockserver.Fault{Do: mockserver.Status(409, false)})
			c := newClient(t, samekey.Config{Default: quick})
			ctx, s := t.Context(), sdk{base: srv.URL, hc: c.HTTPClient()}
			if how == "a name" {
				ctx = samekey.WithOperation(ctx, opName)
			} else {
				s.key = "sdk-key-1"
			}
			status, errs := s.pay(ctx, payment, 5)
			require.Equal(t, 409, status)
			require.Len(t, errs, 5)
			for _, err := range errs {
				require.ErrorIs(t, err, samekey.ErrConflict)
			}
			require.Len(t, srv.Requests(), 1)
			srv.AssertConflictFinal(t)
		})
	}
}

// TestLoopAboveGoesOnUnderOneKey: what stayed unknown goes on under its key with the loop's next try.
func TestLoopAboveGoesOnUnderOneKey(t *testing.T) {
	srv := newServer(t, mockserver.Config{})
	srv.Fault(mockserver.Fault{When: mockserver.AfterCommit, Do: mockserver.Drop, Times: 3}, mockserver.Fault{When: mockserver.AfterCommit, Do: mockserver.Status(503, false), Times: 3})
	one := quick
	one.MaxAttempts = 2
	c := newClient(t, samekey.Config{Default: one})
	status, errs := sdk{base: srv.URL, hc: c.HTTPClient()}.pay(samekey.WithOperation(t.Context(), opName), payment, 5)
	require.Equal(t, 201, status)
	require.Len(t, errs, 4)
	require.ErrorIs(t, errs[0], samekey.ErrUnknown) // no answer at all: an error
	require.ErrorIs(t, errs[1], samekey.ErrUnknown) // a 503: a response
	require.Len(t, srv.Requests(), 7)
	srv.AssertOnce(t)
	srv.AssertSameKey(t)
}

// TestTransportReturnsWhatTheLastAttemptGot: a response wherever there is one, an error otherwise; ErrorOf, InfoOf and
// WithInfo tell the same.
func TestTransportReturnsWhatTheLastAttemptGot(t *testing.T) {
	for _, tt := range []struct {
		name   string
		script []reply
		status int // 0: an error
		is     error
	}{
		{"success", []reply{created}, 201, nil},
		{"rejected", []reply{answers(400, "{}")}, 400, nil},
		{"conflict", []reply{answers(409, "{}")}, 409, samekey.ErrConflict},
		{"last 5xx", []reply{hangsUp, answers(503, "{}")}, 503, samekey.ErrUnknown},
		{"gate after a lost answer", []reply{hangsUp, answers(401, "{}")}, 401, samekey.ErrUnknown},
		{"lost", []reply{answers(503, "{}"), hangsUp}, 0, samekey.ErrUnknown},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for how, do := range map[string]func(*samekey.Client) doer{
				"Transport":               func(c *samekey.Client) doer { return &http.Client{Transport: c.Transport()} },
				"HTTPClient":              func(c *samekey.Client) doer { return c.HTTPClient() },
				"AsResponses":             func(c *samekey.Client) doer { return c.AsResponses() },
				"AsResponses, HTTPClient": func(c *samekey.Client) doer { return c.AsResponses().HTTPClient() },
				"with a Timeout above": func(c *samekey.Client) doer {
					return &http.Client{Transport: c.Transport(), Timeout: time.Minute}
				},
			} {
				p := newPeer(t, tt.script...)
				c := newClient(t, samekey.Config{HTTPClient: newGated(t).client(), Default: quick})
				var info samekey.Info
				resp, err := do(c).Do(samekey.Named(post(t, samekey.WithInfo(t.Context(), &info), p.url, payment), opName))
				if tt.status == 0 {
					require.ErrorIs(t, err, tt.is, how)
					require.Equal(t, samekey.EffectUnknown, samekey.EffectOf(err))
					require.Equal(t, 4, info.Attempts)
					continue
				}
				require.NoError(t, err, how)
				require.Equal(t, tt.status, resp.StatusCode)
				require.NotEmpty(t, read(t, resp))
				if tt.is == nil {
					require.NoError(t, samekey.ErrorOf(resp), how)
				} else {
					require.ErrorIs(t, samekey.ErrorOf(resp), tt.is, how)
				}
				got, ok := samekey.InfoOf(resp)
				require.True(t, ok, how)
				require.Equal(t, info, got, how)
				require.Equal(t, opName, info.ID)
				require.Equal(t, len(p.requests()), info.Sends)
			}
		})
	}
	_, ok := samekey.InfoOf(nil)
	require.False(t, ok)
	require.NoError(t, samekey.ErrorOf(&http.Response{}))
}

// TestRedirectsOfCommandsAreNotFollowed: a redirect is the answer, also for a foreign http.Client above that would follow
// it: nothing more is sent, to no host.
func TestRedirectsOfCommandsAreNotFollowed(t *testing.T) {
	for _, status := range []int{301, 302, 303, 307, 308} {
		for _, where := range []string{"same host", "other host"} {
			for _, above := range []string{"Do", "HTTPClient", "foreign http.Client", "foreign http.Client that keeps the body"} {
				t.Run(fmt.Sprintf("%d/%s/%s", status, where, above), func(t *testing.T) {
					p, other, store := newPeer(t), newPeer(t, created), newStore(t)
					to := p.url + "/elsewhere"
					if where == "other host" {
						to = other.url + "/elsewhere"
					}
					p.meet(answers(status, "", "Location: "+to), created)
					c := newClient(t, samekey.Config{Store: store, HTTPClient: newGated(t).client(), Default: quick})
					req := samekey.Named(post(t, t.Context(), p.url, payment), opName)
					var d doer = c
					switch above {
					case "HTTPClient":
						d = c.HTTPClient()
					case "foreign http.Client":
						d = &http.Client{Transport: c.Transport()}
						req.GetBody = nil
					case "foreign http.Client that keeps the body":
						d = &http.Client{Transport: c.Transport(), CheckRedirect: func(*http.Request, []*http.Request) error { return nil }}
					}
					resp, err := d.Do(req)
					if err != nil {
						require.ErrorIs(t, err, samekey.ErrRedirect)
						require.Contains(t, above, "foreign")
					} else {
						require.Equal(t, status, resp.StatusCode)
						require.NoError(t, resp.Body.Close())
						require.NotContains(t, above, "foreign http.Client that", "it follows whatever it is given")
					}
					require.Len(t, p.requests(), 1)
					require.Empty(t, other.requests())
					want := samekey.Rejected
					if status == 303 && where == "same host" {
						want = samekey.Succeeded
					}
					rec := stored(t, store, opName)
					require.Equal(t, want, rec.State())
				})
			}
		}
	}
}

// TestRedirectsByPolicy: 307 and 308 of the same origin are followed with the same method, body and key, each hop an
// attempt; nothing else is.
func TestRedirectsByPolicy(t *testing.T) {
	follow := samekey.Policy{Redirects: samekey.On, Backoff: samekey.Backoff{Min: -1}}
	start := func(t *testing.T) (*peer, func() (*http.Response, samekey.Info, error)) {
		p := newPeer(t)
		c := newClient(t, samekey.Config{HTTPClient: newGated(t).client(), Default: follow})
		return p, func() (*http.Response, samekey.Info, error) {
			var info samekey.Info
			resp, err := c.Do(samekey.Named(post(t, samekey.WithInfo(t.Context(), &info), p.url+"/a?q=1", payment), opName))
			return resp, info, err
		}
	}
	for _, status := range []int{307, 308} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			p, do := start(t)
			p.meet(answers(status, "", "Location: /b?q=2"), answers(status, "", "Location: "+p.url+"/c"), hangsUp, created)
			resp, info, err := do()
			require.NoError(t, err)
			read(t, resp)
			require.Equal(t, 4, info.Sends)
			require.Equal(t, 4, info.Attempts)
			got := p.requests()
			require.Len(t, got, 4)
			for i, line := range []string{"POST /a?q=1 HTTP/1.1", "POST /b?q=2 HTTP/1.1", "POST /c HTTP/1.1", "POST /c HTTP/1.1"} {
				first, rest, _ := strings.Cut(got[i], "\r\n")
				require.Equal(t, line, first)
				_, rest0, _ := strings.Cut(got[0], "\r\n")
				require.Equal(t, rest0, rest, "key, headers and body")
			}
		})
		t.Run(fmt.Sprintf("%d without end", status), func(t *testing.T) {
			p, do := start(t)
			p.meet(answers(status, "", "Location: /a?q=1"))
			resp, info, err := do()
			require.NoError(t, err)
			require.Equal(t, status, resp.StatusCode)
			require.Equal(t, samekey.Rejected, info.State)
			require.Len(t, p.requests(), 4)
		})
		t.Run(fmt.Sprintf("%d, then a conflict", status), func(t *testing.T) {
			p, do := start(t)
			p.meet(answers(status, "", "Location: /b"), answers(409, "{}"))
			_, _, err := do()
			require.False(t, asType[*samekey.ConflictError](t, err).Ambiguous)
			require.Len(t, p.requests(), 2)
		})
		t.Run(fmt.Sprintf("%d, then a gate", status), func(t *testing.T) {
			p, do := start(t)
			p.meet(answers(status, "", "Location: /b"), answers(401, "{}"))
			resp, info, err := do()
			require.NoError(t, err)
			require.Equal(t, 401, resp.StatusCode)
			require.Equal(t, samekey.Rejected, info.State)
		})
	}
	for name, r := range map[string]func(*peer, *peer) reply{
		"other host":       func(_, o *peer) reply { return answers(307, "", "Location: "+o.url+"/b") },
		"other scheme":     func(p, _ *peer) reply { return answers(307, "", "Location: https"+p.url[4:]+"/b") },
		"without a place":  func(_, _ *peer) reply { return answers(307, "") },
		"user in its link": func(p, _ *peer) reply { return answers(307, "", "Location: http://u:p@"+p.url[7:]+"/b") },
		"302":              func(_, _ *peer) reply { return answers(302, "", "Location: /b") },
		"301":              func(_, _ *peer) reply { return answers(301, "", "Location: /b") },
	} {
		t.Run(name, func(t *testing.T) {
			p, do := start(t)
			other := newPeer(t, created)
			p.meet(r(p, other))
			resp, info, err := do()
			require.NoError(t, err)
			require.GreaterOrEqual(t, resp.StatusCode, 300)
			require.Equal(t, samekey.Rejected, info.State)
			require.Len(t, p.requests(), 1)
			require.Empty(t, other.requests())
		})
	}
}

func TestReadsFollowRedirectsAsUsual(t *testing.T) {
	p := newPeer(t, answers(302, "", "Location: /b"), answers(200, "here"))
	c := newClient(t, samekey.Config{HTTPClient: newGated(t).client()})
	for name, d := range map[string]doer{"Do": c, "HTTPClient": c.HTTPClient(), "foreign": &http.Client{Transport: c.Transport()}} {
		p.meet(answers(302, "", "Location: /b"), answers(200, "here"))
		n := len(p.requests())
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, p.url+"/a", nil)
		require.NoError(t, err)
		resp, err := d.Do(req)
		require.NoError(t, err, name)
		require.Equal(t, "here", read(t, resp))
		got := p.requests()[n:]
		require.Len(t, got, 2)
		require.Empty(t, keyLine(got[0], "Idempotency-Key"))
		_, ok := samekey.InfoOf(resp)
		require.False(t, ok)
	}
}

// TestTimeoutAbove: http.Client.Timeout above the Transport is the caller's deadline. net/http hides the error's type,
// WithInfo tells.
func TestTimeoutAbove(t *testing.T) {
	inLab(t, mockserver.Config{}, func(t *testing.T, l *lab) {
		l.Fault(mockserver.Fault{Do: mockserver.Stall(0), When: mockserver.AfterCommit, Times: 2})
		c := l.client(t, samekey.Config{Default: samekey.Policy{AttemptTimeout: 3 * time.Second, Backoff: samekey.Backoff{Min: -1}}})
		hc := &http.Client{Transport: c.Transport(), Timeout: 5 * time.Second}
		var info samekey.Info
		began := time.Now()
		_, err := hc.Do(pay(t, samekey.WithInfo(t.Context(), &info), opName))
		require.Equal(t, 5*time.Second, time.Since(began))
		require.ErrorAs(t, err, new(*url.Error))
		require.ErrorContains(t, err, "exceeded")
		require.Equal(t, samekey.Pending, info.State)
		require.Equal(t, 2, info.Sends)
		require.Equal(t, 1, pending(t, l.store))
		resp, err := hc.Do(pay(t, t.Context(), opName))
		require.NoError(t, err)
		require.Equal(t, 201, resp.StatusCode)
		read(t, resp)
		l.AssertOnce(t)
		l.AssertSameKey(t)
	})
}

// TestBodyUnderATimeoutAbove: the wrapper that http.Client puts around a body does not hide how the answer was obtained,
// nor when its caller has it.
func TestBodyUnderATimeoutAbove(t *testing.T) {
	srv, store := newServer(t, mockserver.Config{}), newStore(t)
	c := newClient(t, samekey.Config{Store: store, Default: quick})
	hc := &http.Client{Transport: c.Transport(), Timeout: time.Minute}
	resp, err := hc.Do(post(t, t.Context(), srv.URL+"/v1/payments", payment))
	require.NoError(t, err)
	info, ok := samekey.InfoOf(resp)
	require.True(t, ok)
	require.Equal(t, info.Key, srv.Requests()[0].Key)
	require.Equal(t, 1, pending(t, store))
	read(t, resp)
	require.Zero(t, count(t, store))
}

// TestCookieJar: cookies that answers set go out with later commands, whichever attempt brought them, and are not stored.
func TestCookieJar(t *testing.T) {
	for _, above := range []bool{false, true} {
		p, store := newPeer(t, answers(503, "{}", "Set-Cookie: sid=from-the-503"), answers(201, "{}", "Set-Cookie: sid=from-the-201"), created), newStore(t)
		jar, err := cookiejar.New(nil)
		require.NoError(t, err)
		hc := newGated(t).client()
		if !above {
			hc.Jar = jar
		}
		c := newClient(t, samekey.Config{Store: store, HTTPClient: hc, Default: quick})
		var d doer = c
		if above {
			d = &http.Client{Transport: c.Transport(), Jar: jar}
		}
		for i := range 2 {
			resp, err := d.Do(samekey.Named(post(t, t.Context(), p.url, payment), fmt.Sprint(opName, i)))
			require.NoError(t, err)
			read(t, resp)
		}
		var got []string
		for _, raw := range p.requests() {
			got = append(got, keyLine(raw, "Cookie"))
		}
		if above { // one exchange, as far as that jar knows
			require.Equal(t, []string{"", "", "Cookie: sid=from-the-201"}, got)
		} else {
			require.Equal(t, []string{"", "Cookie: sid=from-the-503", "Cookie: sid=from-the-201"}, got)
		}
		for i := range 2 {
			rec := stored(t, store, fmt.Sprint(opName, i))
			require.NotContains(t, fmt.Sprint(rec.Header), "sid")
			require.NotContains(t, fmt.Sprint(rec.Answer.Header), "sid")
		}
	}
}

// TestOneFailingCallLeavesTheConnectionsOfOthers alone; the method of the Transport closes them.
func TestOneFailingCallLeavesTheConnectionsOfOthers(t *testing.T) {
	good, bad := newPeer(t, created), newPeer(t, hangsUp)
	rt := newGated(t)
	var dials atomic.Int32
	dial := rt.DialContext
	rt.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
		if strings.HasSuffix(good.url, addr) {
			dials.Add(1)
		}
		return dial(ctx, network, addr)
	}
	c := newClient(t, samekey.Config{HTTPClient: rt.client(), Default: quick,
		Endpoints: map[string]samekey.Policy{"GET /lost": {MaxAttempts: 3}}})
	ok := func() {
		resp, err := c.Do(post(t, t.Context(), good.url, payment))
		require.NoError(t, err)
		read(t, resp)
	}
	ok()
	_, err := c.Do(post(t, t.Context(), bad.url, payment))
	require.ErrorIs(t, err, samekey.ErrUnknown)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, bad.url+"/lost", nil)
	require.NoError(t, err)
	_, err = c.Do(req)
	require.Error(t, err)
	ok()
	require.Equal(t, int32(1), dials.Load(), "one connection for both")

	(&http.Client{Transport: c.Transport()}).CloseIdleConnections()
	ok()
	require.Equal(t, int32(2), dials.Load())
}

// TestTransportKeepsTheRules of http.RoundTripper: the request stays as it was, its body is closed, whatever happens.
func TestTransportKeepsTheRules(t *testing.T) {
	p := newPeer(t, created)
	c := newClient(t, samekey.Config{HTTPClient: newGated(t).client(), Default: samekey.Policy{MaxBody: 64, Backoff: samekey.Backoff{Min: -1}}})
	closed := false
	for name, change := range map[string]func(*http.Request){
		"sent":           func(*http.Request) {},
		"body too large": func(r *http.Request) { r.ContentLength = 1000 },
		"bad header":     func(r *http.Request) { r.Header["X-A"] = []string{"\n"} },
		"bad policy": func(r *http.Request) {
			*r = *r.WithContext(samekey.WithPolicy(r.Context(), samekey.Policy{MaxAttempts: -1}))
		},
		"empty name": func(r *http.Request) { *r = *samekey.Named(r, "") },
		"redirected": func(r *http.Request) {
			resp, err := c.Do(post(t, t.Context(), p.url, payment))
			require.NoError(t, err)
			read(t, resp)
			r.Response = resp
		},
	} {
		t.Run(name, func(t *testing.T) {
			closed = false
			req := post(t, t.Context(), p.url+"/x?a=b", "")
			req.Body, req.ContentLength = closeTeller{strings.NewReader(payment), &closed}, int64(len(payment))
			req.Header.Set("Authorization", "Bearer token")
			change(req)
			before := req.Clone(req.Context())
			resp, err := c.Transport().RoundTrip(req)
			if name == "sent" {
				require.NoError(t, err)
				require.NoError(t, resp.Body.Close())
			} else {
				require.Error(t, err)
			}
			require.True(t, closed, "the body is closed")
			require.Equal(t, before.Header, req.Header)
			require.Equal(t, before.URL, req.URL)
			require.Equal(t, before.ContentLength, req.ContentLength)
		})
	}
}

type closeTeller struct {
	io.Reader
	closed *bool
}

func (c closeTeller) Close() error {
	*c.closed = true
	return nil
}

// TestWithInfoTellsOfErrors where there is no response to ask.
func TestWithInfoTellsOfErrors(t *testing.T) {
	rt := newGated(t)
	rt.shut(refuses)
	c := newClient(t, samekey.Config{HTTPClient: rt.client(), Default: quick, Endpoints: map[string]samekey.Policy{"POST api.test/v1/": {}}})
	var info samekey.Info
	_, err := c.Do(samekey.Named(post(t, samekey.WithInfo(t.Context(), &info), "http://api.test/v1/x", payment), opName))
	require.ErrorIs(t, err, samekey.ErrNotSent)
	e, _ := errors.AsType[*samekey.NotSentError](err)
	require.Equal(t, samekey.Info{Ref: opRef, Key: e.Key, Endpoint: "POST api.test/v1/", State: samekey.Abandoned, Attempts: 4}, info)
	_, err = c.Do(samekey.Named(post(t, samekey.WithInfo(t.Context(), &info), "http://api.test/v1/x", payment), ""))
	require.ErrorIs(t, err, samekey.ErrKey)
	require.Equal(t, samekey.Local, info.Source)
}
