package samekey_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/samekey/samekey"
	"github.com/samekey/samekey/mockserver"
	"github.com/samekey/samekey/persist"
)

const (
	sBegin = samekey.StepBegin + iota
	sBegun
	sAttempt
	sConnected
	sHeader
	sBody
	sFirst
	sDone
	sWait
	sOutcome
	sSettled
	sHandler
	sRecovered
	sStoreError
	sPolled
	sWarning
)

// requireSteps compares, in a bubble, what rec was told. That a body is written is told by a goroutine of the
// transport's: once for each head, but at any time from then on.
func requireSteps(t *testing.T, want []samekey.Step, rec *recorder) {
	t.Helper()
	synctest.Wait()
	got := rec.steps()
	require.Len(t, rec.all(sBody), len(rec.all(sHeader)))
	require.Equal(t, want, slices.DeleteFunc(got, func(s samekey.Step) bool { return s == sBody }))
}

// The steps of typical lives, in their order.
func TestObserverSeesEachLife(t *testing.T) {
	whole := []samekey.Step{sAttempt, sConnected, sHeader, sFirst, sDone}
	life := func(parts ...[]samekey.Step) (out []samekey.Step) {
		for _, p := range parts {
			out = append(out, p...)
		}
		return out
	}
	one := func(s ...samekey.Step) []samekey.Step { return s }
	for name, row := range map[string]struct {
		faults []mockserver.Fault
		refuse int
		name   string
		before func(t *testing.T, l *lab)
		policy samekey.Policy
		want   []samekey.Step
	}{
		"success":           {name: "op", want: life(one(sBegin, sBegun), whole, one(sOutcome, sSettled))},
		"anonymous success": {want: life(one(sBegin, sBegun), whole, one(sOutcome, sSettled))},
		"one retry": {name: "op", faults: []mockserver.Fault{{Do: mockserver.Status(503, false), Times: 1}},
			want: life(one(sBegin, sBegun), whole, one(sWait), whole, one(sOutcome, sSettled))},
		"a lost answer": {name: "op", faults: []mockserver.Fault{{When: mockserver.AfterCommit, Do: mockserver.Drop, Times: 1}},
			want: life(one(sBegin, sBegun), one(sAttempt, sConnected, sHeader, sDone), one(sWait), whole, one(sOutcome, sSettled))},
		"not reached": {name: "op", refuse: 1, want: life(one(sBegin, sBegun), one(sAttempt, sDone), one(sWait), whole, one(sOutcome, sSettled))},
		"never reached": {name: "op", refuse: 9, policy: samekey.Policy{MaxAttempts: 1},
			want: life(one(sBegin, sBegun), one(sAttempt, sDone), one(sOutcome, sSettled))},
		"rejected": {name: "op", faults: []mockserver.Fault{{Do: mockserver.Status(400, false)}}, want: life(one(sBegin, sBegun), whole, one(sOutcome, sSettled))},
		"conflict": {name: "op", faults: []mockserver.Fault{{Do: mockserver.Status(409, false)}}, want: life(one(sBegin, sBegun), whole, one(sOutcome, sSettled))},
		"unknown": {name: "op", faults: []mockserver.Fault{{Do: mockserver.Status(503, false)}}, policy: samekey.Policy{MaxAttempts: 1},
			want: life(one(sBegin, sBegun), whole, one(sOutcome))},
		"processing": {name: "op", faults: []mockserver.Fault{{Do: mockserver.Status(202, false)}}, want: life(one(sBegin, sBegun), whole, one(sOutcome))},
		"known": {name: "op", want: one(sBegin, sBegun, sOutcome), before: func(t *testing.T, l *lab) {
			resp, err := l.client(t, samekey.Config{}).Do(pay(t, t.Context(), "op"))
			require.NoError(t, err)
			read(t, resp)
		}},
		"no store kept": {name: "op", policy: samekey.Policy{Persist: samekey.PersistNone}, want: life(one(sBegin, sBegun), whole, one(sOutcome, sSettled))},
	} {
		t.Run(name, func(t *testing.T) {
			inLab(t, mockserver.Config{}, func(t *testing.T, l *lab) {
				if row.before != nil {
					row.before(t, l)
				}
				l.rt.CloseIdleConnections()
				l.Fault(row.faults...)
				l.rt.Refuse(row.refuse)
				rec := &recorder{}
				c := l.client(t, samekey.Config{Observer: rec.observe, Default: row.policy})
				resp, err := c.Do(pay(t, t.Context(), row.name))
				if err == nil {
					read(t, resp)
				}
				requireSteps(t, row.want, rec)
				for _, e := range rec.events {
					require.False(t, e.Time.IsZero())
					require.Equal(t, row.policy.Persist != samekey.PersistNone, e.Durable)
					require.False(t, e.Recovery)
					require.Equal(t, "POST", e.Method)
					require.NotEmpty(t, e.Key)
					require.NotEmpty(t, e.ID)
				}
			})
		})
	}
}

func TestEventsCarryWhatTheySay(t *testing.T) {
	inLab(t, mockserver.Config{}, func(t *testing.T, l *lab) {
		l.Fault(mockserver.Fault{When: mockserver.AfterCommit, Do: mockserver.Drop, Times: 1}, mockserver.Fault{When: mockserver.AfterCommit, Do: mockserver.Delay(3 * time.Second), Times: 1})
		rec := &recorder{}
		c := l.client(t, samekey.Config{Observer: rec.observe, Scope: "shop", Endpoints: map[string]samekey.Policy{"POST api.test/v1/{kind}": {}}})
		start := time.Now()
		resp, err := c.Do(pay(t, t.Context(), "op"))
		require.NoError(t, err)
		read(t, resp)
		for _, e := range rec.events {
			require.Equal(t, samekey.Ref{Scope: "shop", ID: "op"}, e.Ref)
			require.Equal(t, l.Keys()[0], e.Key)
			require.Equal(t, "POST api.test/v1/{kind}", e.Endpoint)
		}
		require.Equal(t, samekey.Pending, rec.all(sBegun)[0].State)
		attempts, dones := rec.all(sAttempt), rec.all(sDone)
		require.Equal(t, []int{1, 2}, []int{attempts[0].Attempt, attempts[1].Attempt})
		require.Error(t, dones[0].Err)
		require.Zero(t, dones[0].Status)
		require.NoError(t, dones[1].Err)
		require.Equal(t, 201, dones[1].Status)
		require.Equal(t, 3*time.Second, dones[1].Elapsed)
		require.Equal(t, []int{1, 1}, []int{dones[0].Sends, dones[1].Sends})
		wait := rec.all(sWait)[0].Wait
		require.Equal(t, gaps(l.Requests())[0], wait)
		out := rec.all(sOutcome)[0]
		require.Equal(t, samekey.Succeeded, out.State)
		require.Equal(t, samekey.Replay, out.Source)
		require.Equal(t, 2, out.Sends)
		require.Equal(t, 201, out.Status)
		require.Equal(t, time.Since(start), out.Elapsed)
		require.Equal(t, wait+3*time.Second, out.Elapsed)
		require.Equal(t, samekey.Succeeded, rec.all(sSettled)[0].State)

		rec.events = nil
		resp, err = c.Do(pay(t, t.Context(), "op"))
		require.NoError(t, err)
		read(t, resp)
		require.Equal(t, samekey.Succeeded, rec.all(sBegun)[0].State)
		require.Equal(t, samekey.Local, rec.all(sOutcome)[0].Source)
	})
}

// A recovered operation has one outcome, whatever its handler does.
func TestObserverOfRecovery(t *testing.T) {
	inLab(t, mockserver.Config{}, func(t *testing.T, l *lab) {
		l.Fault(mockserver.Fault{Do: mockserver.Status(503, false), Times: 1})
		first := l.client(t, samekey.Config{Default: samekey.Policy{MaxAttempts: 1}})
		_, err := first.Do(pay(t, t.Context(), "op"))
		require.ErrorIs(t, err, samekey.ErrUnknown)
		require.NoError(t, first.Close())
		l.rt.CloseIdleConnections()

		rec := &recorder{}
		c := l.client(t, samekey.Config{Observer: rec.observe})
		_, err = c.Recover(t.Context(), samekey.Recovery{Handle: func(context.Context, samekey.Operation, *http.Response, error) error { return nil }})
		require.NoError(t, err)
		requireSteps(t, []samekey.Step{sAttempt, sConnected, sHeader, sFirst, sDone, sOutcome, sSettled, sHandler, sSettled, sRecovered}, rec)
		for _, e := range rec.events {
			require.True(t, e.Recovery)
			require.Equal(t, 2, max(e.Attempt, 2))
		}
		require.Equal(t, samekey.Succeeded, rec.all(sRecovered)[0].State)
	})
}

func TestStepNames(t *testing.T) {
	seen := map[string]bool{}
	for s := sBegin; s <= sWarning; s++ {
		require.NotEqual(t, "invalid", s.String())
		require.False(t, seen[s.String()])
		seen[s.String()] = true
	}
	require.Equal(t, "invalid", samekey.Step(0).String())
	require.Equal(t, "invalid", (sWarning + 1).String())
}

// What may be found nowhere: not in a log, an error, an event, or what the store holds.
var secrets = map[string]string{
	"password in the URL": "hunter2-pass", "user's Basic token": "YWxpY2U6aHVudGVyMi1wYXNz", "query key": "QUERYSECRET",
	"bearer token": "BEARERSECRET", "token of Prepare": "PREPARESECRET", "cookie": "COOKIESECRET", "cookie of the jar": "JARSECRET",
	"vendor's header": "VENDORSECRET", "cookie of the answer": "ANSWERCOOKIE",
}

const card = "4111111111111111"

// A life full of secrets, through every kind of ending.
func TestCase_B71_SecretsStayOut(t *testing.T) {
	endings := map[string][]mockserver.Fault{
		"unknown":   {{Do: mockserver.Status(503, false)}},
		"lost":      {{When: mockserver.AfterCommit, Do: mockserver.Reset}},
		"success":   {{When: mockserver.AfterCommit, Do: mockserver.AnswerHeader("Set-Cookie", "session=ANSWERCOOKIE")}},
		"conflict":  {{Do: mockserver.Status(409, false).With("Set-Cookie", "session=ANSWERCOOKIE")}},
		"rejection": {{Do: mockserver.Status(400, false).With("Set-Cookie", "session=ANSWERCOOKIE")}},
		"redirect":  {{Do: mockserver.Redirect(302, "/login?next=x")}},
	}
	for name, faults := range endings {
		for _, quoting := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/quoting=%v", name, quoting), func(t *testing.T) {
				inLab(t, mockserver.Config{}, func(t *testing.T, l *lab) {
					l.Fault(faults...)
					var base http.RoundTripper = l.rt.Transport
					if quoting { // a transport that tells all it knows
						base = roundTripper(func(r *http.Request) (*http.Response, error) {
							body := new(bytes.Buffer)
							_, _ = body.ReadFrom(r.Body)
							return nil, fmt.Errorf("cannot send %s %s with %v and %s", r.Method, r.URL, r.Header, body)
						})
					}
					jar, err := cookiejar.New(nil)
					require.NoError(t, err)
					at, _ := url.Parse(labURL)
					jar.SetCookies(at, []*http.Cookie{{Name: "j", Value: "JARSECRET"}})
					var log bytes.Buffer
					rec := &recorder{}
					cfg := samekey.Config{
						HTTPClient: &http.Client{Transport: base, Jar: jar}, Observer: rec.observe,
						Logger:  slog.New(slog.NewJSONHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})),
						Default: samekey.Policy{Backoff: quick.Backoff, SecretQuery: []string{"api_key"}},
						Prepare: func(_ context.Context, r *http.Request) error {
							r.Header.Set("X-Signature", "PREPARESECRET")
							return nil
						},
					}
					c := l.client(t, cfg)
					var told []string
					for _, named := range []bool{true, false} {
						req := post(t, t.Context(), "http://alice:hunter2-pass@api.test/v1/payments?api_key=QUERYSECRET&page=1",
							`{"amount":100,"currency":"RUB","orderRef":"order-1","card":"`+card+`"}`)
						req.Header.Set("Cookie", "c=COOKIESECRET")
						req.Header.Set("X-Vendor-Token", "VENDORSECRET")
						if !named {
							req.Header.Set("Authorization", "Bearer BEARERSECRET")
						} else {
							req = samekey.Named(req, "op")
						}
						resp, err := c.Do(req)
						if err != nil {
							for e := range tree(err) { // however deep somebody looks
								if !quoting {
									told = append(told, e.Error())
								}
							}
							told = append(told, err.Error(), fmt.Sprintf("%v %s", err, err))
						} else {
							_ = resp.Body.Close()
						}
					}
					_, err = c.Resume(t.Context(), samekey.Ref{ID: "op"}) // without the credentials that only Do's caller has
					if err != nil {
						told = append(told, err.Error())
					}
					for _, e := range rec.events {
						if e.Err != nil {
							told = append(told, e.Err.Error())
						}
						e.Err = nil
						told = append(told, fmt.Sprintf("%+v", e))
					}
					told = append(told, log.String())
					require.NotEmpty(t, log.String())
					for what, secret := range secrets {
						for _, text := range told {
							require.NotContains(t, text, secret, what)
						}
					}
					for _, text := range told {
						require.NotContains(t, text, card)
						require.NotContains(t, text, "api_key=")
					}
					for rec, err := range l.store.List(t.Context(), persist.Filter{}) {
						require.NoError(t, err)
						all := fmt.Sprintf("%+v %s", rec, rec.Body)
						if rec.Answer != nil {
							all += fmt.Sprintf("%+v %s", *rec.Answer, rec.Answer.Body)
						}
						for what, secret := range secrets {
							require.NotContains(t, all, secret, what)
						}
						require.Subset(t, rec.Omitted, []string{"?api_key", "Authorization", "Cookie", "X-Vendor-Token"})
						for _, key := range []string{rec.Key} { // logs and errors show it in part only
							require.NotContains(t, log.String(), key)
						}
					}
					if !quoting { // the server did get them
						r := l.Requests()[0]
						require.Equal(t, "api_key=QUERYSECRET&page=1", r.Query)
						require.Equal(t, "Basic YWxpY2U6aHVudGVyMi1wYXNz", r.Header.Get("Authorization"))
						require.Contains(t, strings.Join(r.Header["Cookie"], ";"), "COOKIESECRET")
						require.Contains(t, strings.Join(r.Header["Cookie"], ";"), "JARSECRET")
						require.Equal(t, "PREPARESECRET", r.Header.Get("X-Signature"))
					}
				})
			})
		}
	}
}

// tree yields err and all that it wraps.
func tree(err error) func(yield func(error) bool) {
	var walk func(err error, yield func(error) bool) bool
	walk = func(err error, yield func(error) bool) bool {
		if err == nil {
			return true
		}
		if !yield(err) {
			return false
		}
		switch e := err.(type) {
		case interface{ Unwrap() error }:
			return walk(e.Unwrap(), yield)
		case interface{ Unwrap() []error }:
			for _, err := range e.Unwrap() {
				if !walk(err, yield) {
					return false
				}
			}
		}
		return true
	}
	return func(yield func(error) bool) { walk(err, yield) }
}

// The key of an anonymous operation is its ID: a store's errors name it, and are shortened as well.
func TestCase_B72_KeysAreShortened(t *testing.T) {
	srv := newServer(t, mockserver.Config{})
	var log bytes.Buffer
	fail := func() error { return errDisk }
	named := func(ref persist.Ref) error {
		return &persist.Error{Store: "test", Method: "Begin", Ref: ref, Err: errors.New("no space")}
	}
	key := "0123456789abcdef0123456789abcdef"
	for _, f := range []*failing{
		{begin: func() error { return named(persist.Ref{ID: key}) }},
		{settle: fail}, {mark: fail},
	} {
		srv.Reset()
		srv.Fault(mockserver.Fault{Do: mockserver.Status(503, false), Times: 1}, mockserver.Fault{Do: mockserver.Status(400, false)})
		f.Store = newStore(t)
		c := newClient(t, samekey.Config{Store: f, Default: quick, Logger: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))})
		req := post(t, t.Context(), srv.URL+"/v1/payments", payment)
		req.Header.Set("Idempotency-Key", key)
		_, err := c.Do(req)
		require.Error(t, err)
		require.NotContains(t, err.Error(), key)
		require.Contains(t, err.Error(), "01234567…cdef")
		require.NotContains(t, log.String(), key)
	}
	require.Contains(t, log.String(), "01234567…cdef")
	require.Contains(t, log.String(), "level=ERROR")
}

// Levels are what an operator filters by.
func TestLogLevels(t *testing.T) {
	srv := newServer(t, mockserver.Config{})
	srv.Fault(mockserver.Fault{Do: mockserver.Status(503, false), Times: 5})
	var log bytes.Buffer
	c := newClient(t, samekey.Config{Default: quick, Logger: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelInfo}))})
	_, err := c.Do(samekey.Named(post(t, t.Context(), srv.URL+"/v1/payments", payment), "op"))
	require.ErrorIs(t, err, samekey.ErrUnknown)
	require.Equal(t, 1, strings.Count(log.String(), "\n"), log.String())
	require.Contains(t, log.String(), "level=WARN")
	require.Contains(t, log.String(), "operation=op")
	log.Reset()
	resp, err := c.Do(samekey.Named(post(t, t.Context(), srv.URL+"/v1/payments", payment), "op"))
	require.NoError(t, err)
	read(t, resp)
	require.Equal(t, 1, strings.Count(log.String(), "\n"), log.String())
	require.Contains(t, log.String(), "level=INFO")
	require.Contains(t, log.String(), "state=succeeded")
}

// TestEventsHideKeys: what a store or a transport quotes of a key, and an ID that is a former key, are told in part.
func TestEventsHideKeys(t *testing.T) {
	var log bytes.Buffer
	var mu sync.Mutex
	var texts []string
	logged := samekey.LogTo(slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})))
	quotes := roundTripper(func(r *http.Request) (*http.Response, error) {
		return nil, fmt.Errorf("lost %v", r.Header)
	})
	c := newClient(t, samekey.Config{HTTPClient: &http.Client{Transport: quotes}, Default: once, Observer: func(ctx context.Context, e samekey.Event) {
		mu.Lock()
		defer mu.Unlock()
		if e.Err != nil {
			texts = append(texts, e.Err.Error())
		}
		logged(ctx, e)
	}})
	_, err := c.Do(post(t, t.Context(), labURL+"/payments", payment))
	require.ErrorIs(t, err, samekey.ErrUnknown)
	was := asType[*samekey.OutcomeUnknownError](t, err).Key
	now, err := c.Rekey(t.Context(), samekey.Ref{ID: was})
	require.NoError(t, err)
	_, err = c.Resume(t.Context(), samekey.Ref{ID: was})
	require.ErrorIs(t, err, samekey.ErrUnknown)
	require.NotContains(t, err.Error(), was)
	mu.Lock()
	defer mu.Unlock()
	for _, key := range []string{was, now} {
		require.NotContains(t, strings.Join(texts, "\n"), key)
		require.NotContains(t, log.String(), key)
	}
	require.NotEmpty(t, texts)
}
