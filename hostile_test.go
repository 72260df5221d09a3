package samekey_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/samekey/samekey"
	"github.com/samekey/samekey/mockserver"
	"github.com/samekey/samekey/persist"
)

// age moves what the store holds of an operation into the past.
func age(t testing.TB, store persist.Store, id string, change func(p *persist.Progress)) {
	t.Helper()
	e, err := store.Claim(context.Background(), samekey.Ref{ID: id})
	require.NoError(t, err)
	p := e.Progress
	change(&p)
	require.NoError(t, store.Mark(context.Background(), e.Claim, p))
	require.NoError(t, store.Release(context.Background(), e.Claim))
}

// A call that takes a new key for an expired operation sends its own body under it, and nothing of the old key, wherever
// the key travels and however little is kept.
func TestNewKeyAfterExpiryIsTheOneThatIsSent(t *testing.T) {
	form := func(t testing.TB, url string) *http.Request {
		req := post(t, t.Context(), url, "amount=1")
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		return req
	}
	json := func(t testing.TB, url string) *http.Request { return post(t, t.Context(), url+"?a=1", `{"amount":1}`) }
	for name, tc := range map[string]struct {
		carrier samekey.Carrier
		request func(testing.TB, string) *http.Request
		body    string
	}{
		"header": {samekey.Header("Idempotency-Key"), json, `"amount":1}`},
		"query":  {samekey.QueryParam("key"), json, `"amount":1}`},
		"body":   {samekey.BodyMember("/key"), json, `"amount":1}`},
		"form":   {samekey.FormField("key"), form, `amount=1`},
	} {
		for kept, persistence := range map[string]samekey.Persist{"full": samekey.PersistFull, "key only": samekey.PersistKeyOnly} {
			t.Run(name+"/"+kept, func(t *testing.T) {
				p := newPeer(t, hangsUp)
				store := newStore(t)
				con := samekey.DefaultContract
				con.Carrier = tc.carrier
				c := newClient(t, samekey.Config{Store: store, Default: samekey.Policy{
					MaxAttempts: 1, Contract: &con, OnExpiry: samekey.NewKey, Persist: persistence, RequireName: samekey.On,
				}})
				_, err := c.Do(samekey.Named(tc.request(t, p.url), "op"))
				require.ErrorIs(t, err, samekey.ErrUnknown)
				old := stored(t, store, "op").Key
				age(t, store, "op", func(p *persist.Progress) { p.FirstSent, p.Seen = p.FirstSent.Add(-48*time.Hour), p.FirstSent })
				p.meet(created)
				resp, err := c.Do(samekey.Named(tc.request(t, p.url), "op"))
				require.NoError(t, err)
				read(t, resp)
				info, _ := samekey.InfoOf(resp)
				require.NotEqual(t, old, info.Key)
				sent := p.requests()[1]
				require.NotContains(t, sent, old, "the old key has expired")
				require.Equal(t, 1, strings.Count(sent, info.Key))
				require.Contains(t, sent, tc.body)
			})
		}
	}
}

// The latest time that was written stays, though the clock is behind it by now: else each restart would make the key
// younger.
func TestAgeNeverShrinksOverRestarts(t *testing.T) {
	p := newPeer(t, hangsUp)
	store := newStore(t)
	for n := range 3 {
		c := newClient(t, samekey.Config{Store: store, Default: samekey.Policy{MaxAttempts: 1}})
		_, err := c.Do(samekey.Named(post(t, t.Context(), p.url, payment), "op"))
		require.ErrorIs(t, err, samekey.ErrUnknown)
		require.NoError(t, c.Close())
		if n == 0 {
			age(t, store, "op", func(p *persist.Progress) { p.Seen = p.FirstSent.Add(20 * time.Hour) }) // then the clock was set back
		}
	}
	progress := stored(t, store, "op").Progress
	require.Equal(t, 3, progress.Attempts)
	require.GreaterOrEqual(t, progress.Seen.Sub(progress.FirstSent), 20*time.Hour)
}

// A 409 is a conflict whatever else the answer says.
func TestConflictWithAnotherKeysEchoIsNotSentAgain(t *testing.T) {
	con := samekey.DefaultContract
	con.Echo = "Idempotency-Key"
	p := newPeer(t, answers(http.StatusConflict, `{}`, "Idempotency-Key: another"), created)
	c := newClient(t, samekey.Config{Default: samekey.Policy{Contract: &con}})
	for range 2 {
		_, err := c.Do(samekey.Named(post(t, t.Context(), p.url, payment), "op"))
		require.ErrorIs(t, err, samekey.ErrConflict)
	}
	_, err := c.Recover(t.Context(), samekey.Recovery{Jitter: -1})
	require.NoError(t, err)
	require.Len(t, p.requests(), 1)
}

// A transport that breaks the rules of http.RoundTripper ends a call like any other lost answer, without a panic.
func TestTransportsThatBreakTheRules(t *testing.T) {
	for name, tc := range map[string]struct {
		resp *http.Response
		err  error
		want error
	}{
		"neither":                {nil, nil, samekey.ErrUnknown},
		"both":                   {&http.Response{StatusCode: 201, Body: http.NoBody}, errors.New("and an error"), samekey.ErrUnknown},
		"no body":                {&http.Response{StatusCode: 201}, nil, nil},
		"a length, no body":      {&http.Response{StatusCode: 201, ContentLength: 7}, nil, samekey.ErrUnknown},
		"no body of a 409":       {&http.Response{StatusCode: 409, ContentLength: 7}, nil, samekey.ErrConflict},
		"no body of a 101":       {&http.Response{StatusCode: 101}, nil, samekey.ErrUnknown},
		"no status and no body":  {&http.Response{}, nil, samekey.ErrUnknown},
		"no body of a rejection": {&http.Response{StatusCode: 422}, nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			rt := roundTripper(func(*http.Request) (*http.Response, error) {
				if tc.resp == nil {
					return nil, tc.err
				}
				resp := *tc.resp
				return &resp, tc.err
			})
			c := newClient(t, samekey.Config{HTTPClient: &http.Client{Transport: rt}, Default: quick})
			for _, id := range []string{"op", ""} {
				req := post(t, t.Context(), "http://bank.test/x", payment)
				if id != "" {
					req = samekey.Named(req, id)
				}
				resp, err := c.Do(req)
				if tc.want != nil {
					require.ErrorIs(t, err, tc.want)
					continue
				}
				require.NoError(t, err)
				require.Empty(t, read(t, resp))
				require.NotNil(t, resp.Header)
			}
		})
	}
}

// What a server has net/http quote in an error is bounded, and holds none of the request's secrets, however they are
// quoted.
func TestErrorsThatAServerWrites(t *testing.T) {
	const token, signature = `tok"en\with-quotes-1234567890`, `c2lnbmF0dXJlLTEyMzQ1Njc4OTA`
	for name, raw := range map[string]string{
		"status line":       token + " " + signature + "\r\n\r\n",
		"header line":       "HTTP/1.1 200 OK\r\n" + token + " " + signature + "\r\n\r\n",
		"quoted":            "HTTP/1.1 200 OK\r\n\"" + signature + "\" \"" + token + "\"\r\n\r\n",
		"content length":    "HTTP/1.1 200 OK\r\nContent-Length: " + token + "\r\n\r\n",
		"transfer encoding": "HTTP/1.1 200 OK\r\nTransfer-Encoding: " + token + "\r\n\r\n",
		"endless":           "HTTP/1.1 200 OK\r\n" + strings.Repeat("x", 1<<20) + "\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			p := newPeer(t, says(raw))
			store := newStore(t)
			c := newClient(t, samekey.Config{Store: store, Default: samekey.Policy{MaxAttempts: 1}})
			req := post(t, t.Context(), p.url, payment)
			req.Header.Set("Authorization", "Bearer "+token)
			req.Header.Set("Signature", `keyId="k",signature="`+signature+`"`)
			_, err := c.Do(samekey.Named(req, "op"))
			require.ErrorIs(t, err, samekey.ErrUnknown)
			for _, text := range []string{err.Error(), stored(t, store, "op").Progress.LastError} {
				require.NotEmpty(t, text)
				require.Less(t, len(text), 2048)
				require.NotContains(t, text, "1234567890")
				require.NotContains(t, text, signature)
			}
		})
	}
}

// Recovery finds an operation whose key has expired, whenever the server has asked to come back.
func TestRetryAfterDoesNotHideAnExpiredOperation(t *testing.T) {
	inLab(t, mockserver.Config{}, func(t *testing.T, l *lab) {
		l.Fault(mockserver.Fault{Do: mockserver.Status(503, false).With("Retry-After", "3000000000"), Times: 1})
		c := l.client(t, samekey.Config{})
		_, err := c.Do(pay(t, t.Context(), "op"))
		require.ErrorIs(t, err, samekey.ErrUnknown)
		ask := func() (asked []samekey.Why) {
			_, err := c.Recover(t.Context(), samekey.Recovery{Jitter: -1, Reconcile: func(_ context.Context, _ samekey.Operation, why samekey.Why) (samekey.Verdict, error) {
				asked = append(asked, why)
				return samekey.Keep, nil
			}})
			require.NoError(t, err)
			return asked
		}
		time.Sleep(23 * time.Hour)
		require.Empty(t, ask(), "the advised time is kept while the key lives")
		time.Sleep(2 * time.Hour)
		require.Equal(t, []samekey.Why{samekey.Expired}, ask())
		require.Len(t, l.Requests(), 1)
	})
}

// A server cannot have a client poll without a pause, and what it answers beyond MaxResponse does not pile up.
func TestPollsAreBounded(t *testing.T) {
	for name, body := range map[string]string{"at once": `{"retry_after":1}`, "large": strings.Repeat(" ", 2<<20)} {
		t.Run(name, func(t *testing.T) {
			inLab(t, mockserver.Config{}, func(t *testing.T, l *lab) {
				polls, open := 0, 0
				rt := roundTripper(func(req *http.Request) (*http.Response, error) {
					polls++
					open++
					return &http.Response{
						StatusCode: http.StatusAccepted, Header: http.Header{"Location": {"/op"}}, ContentLength: -1, Request: req,
						Body: &closes{Reader: strings.NewReader(body), open: &open},
					}, nil
				})
				c := l.client(t, samekey.Config{HTTPClient: &http.Client{Transport: rt}, Default: samekey.Policy{Await: samekey.On}})
				_, err := c.Do(pay(t, t.Context(), "op"))
				require.ErrorIs(t, err, samekey.ErrUnknown)
				require.LessOrEqual(t, polls, 601)
				require.Zero(t, open)
			})
		})
	}
}

type closes struct {
	io.Reader
	open *int
}

func (c *closes) Close() error { *c.open--; return nil }

// claimsAgain is a store that hands out the same operation for ever.
type claimsAgain struct {
	persist.Store
	entry persist.Entry
	calls int
}

func (s *claimsAgain) ClaimDue(ctx context.Context, _ int) ([]persist.Entry, error) {
	s.calls++
	if s.entry.Key == "" {
		return make([]persist.Entry, 1), nil
	}
	return []persist.Entry{s.entry}, nil
}

// A store that breaks its contract ends a recovery with an error; it does not keep it going.
func TestStoreThatNeverStopsClaiming(t *testing.T) {
	for name, entry := range map[string]persist.Entry{
		"nothing":      {},
		"without one":  {Record: persist.Record{Ref: samekey.Ref{ID: "op"}, Key: "k", Method: "POST", Target: "http://127.0.0.1:1/"}},
		"the same one": {Record: persist.Record{Ref: samekey.Ref{ID: "op"}, Key: "k", Method: "POST", Target: "http://127.0.0.1:1/"}, Claim: persist.Claim{Ref: samekey.Ref{ID: "op"}, Token: 7}},
	} {
		t.Run(name, func(t *testing.T) {
			store := &claimsAgain{Store: newStore(t), entry: entry}
			c := newClient(t, samekey.Config{Store: store})
			_, err := c.Recover(t.Context(), samekey.Recovery{Jitter: -1})
			require.ErrorContains(t, err, "without a new claim")
			require.LessOrEqual(t, store.calls, 3)
		})
	}
}
