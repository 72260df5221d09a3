package samekey_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
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

// fate is a cell of the table of outcomes.
type fate string

const (
	succeeds   fate = "succeeded"
	processing fate = "processing"
	conflicts  fate = "conflict"
	rejected   fate = "rejected"
	removed    fate = "as it is, and removed" // the answer of a gate
	unknown    fate = "unknown"
	parked     fate = "unknown, parked"
	unsent     fate = "not sent"
)

// outcome is a row: what the server does, how often it is asked, and what the call ends with, without and with an
// attempt before that may have reached it.
type outcome struct {
	name         string
	policy       samekey.Policy
	method       string             // POST
	script       func(*world) reply // the server's, after what was before; the same for every attempt
	shut         error              // what every dial meets instead, after what was before
	cfg          func(*world, *samekey.Config)
	once         bool // one attempt; otherwise all that the policy allows
	first, later fate
	reached      int   // requests that reach the server in an operation of which nothing was sent before; -1: none
	cause        error // of an unknown or unsent outcome
	link         string
	says         string // part of the error's text
	reason       samekey.Reason
	status       int // of the answer, where there is one
}

// world is what one cell is tried in.
type world struct {
	t      *testing.T
	p      *peer
	rt     *gated
	store  persist.Store
	cfg    samekey.Config
	client *samekey.Client
	cancel context.CancelFunc
	before bool
}

const opName = "order-7/pay"

var opRef = samekey.Ref{ID: opName}

func always(r reply) func(*world) reply { return func(*world) reply { return r } }

func (o outcome) method1() string {
	if o.method == "" {
		return http.MethodPost
	}
	return o.method
}

func (w *world) request(o outcome, body string) *http.Request {
	req := post(w.t, context.Background(), w.p.url+"/v1/payments?token=hush-hush", body)
	req.Method = o.method1()
	return samekey.Named(req, opName)
}

// TestOutcomes: every row of the table, once with nothing before it and once after an attempt whose answer was lost.
func TestOutcomes(t *testing.T) {
	for _, o := range outcomes() {
		for _, before := range []bool{false, true} {
			if before && o.later == "" {
				continue
			}
			t.Run(fmt.Sprintf("%s/before=%v", o.name, before), func(t *testing.T) {
				t.Parallel()
				o.try(t, before)
			})
		}
	}
}

func (o outcome) try(t *testing.T, before bool) {
	w := &world{t: t, rt: newGated(t), store: newStore(t), before: before}
	w.p = newPeer(t)
	var script []reply
	if before {
		script = append(script, after(func() {
			if o.shut != nil {
				w.rt.shut(func(context.Context) error { return o.shut })
			}
		}, hangsUp))
	} else if o.shut != nil {
		w.rt.shut(func(context.Context) error { return o.shut })
	}
	if o.script != nil {
		script = append(script, o.script(w))
	}
	w.p.meet(script...)
	policy := o.policy
	policy.Backoff.Min = -1
	if policy.Command == samekey.Inherit {
		policy.Command = samekey.On
	}
	rec := &recorder{}
	w.cfg = samekey.Config{Store: w.store, HTTPClient: w.rt.client(), Default: policy, Observer: rec.observe}
	if o.cfg != nil {
		o.cfg(w, &w.cfg)
	}
	w.client = newClient(t, w.cfg)

	var info samekey.Info
	req := w.request(o, payment)
	ctx, cancel := context.WithCancel(samekey.WithInfo(req.Context(), &info))
	w.cancel = cancel
	defer cancel()
	resp, err := w.client.Do(req.WithContext(ctx))

	attempts := 4
	if policy.MaxAttempts > 0 {
		attempts = policy.MaxAttempts
	}
	if o.once {
		attempts = 1
		if before {
			attempts = 2
		}
	}
	reached := attempts
	switch {
	case o.shut != nil && before:
		reached = 1
	case o.shut != nil, o.reached < 0 && !before:
		reached = 0
	case o.reached < 0:
		reached = 1
	}
	got := w.p.requests()
	require.Len(t, got, reached, "requests at the server")
	for i, raw := range got {
		require.Equal(t, got[0], raw, "attempt %d", i+1)
	}
	require.Equal(t, reached, info.Sends)
	require.Len(t, rec.all(samekey.StepAttempt), attempts)
	want := o.first
	if before {
		want = o.later
	}
	o.check(w, want, resp, err, info, got)
}

// check holds what a call returned, and what a later one of the same name meets, against a cell.
func (o outcome) check(w *world, want fate, resp *http.Response, err error, info samekey.Info, got []string) {
	t := w.t
	state := map[fate]samekey.State{
		succeeds: samekey.Succeeded, processing: samekey.Pending, conflicts: samekey.Conflicted, rejected: samekey.Rejected,
		removed: samekey.Rejected, unknown: samekey.Pending, parked: samekey.Pending, unsent: samekey.Abandoned,
	}[want]
	require.Equal(t, state, info.State)
	effect := samekey.EffectUnknown
	answer := ""
	switch want {
	case succeeds, processing, rejected, removed:
		require.NoError(t, err)
		require.NoError(t, samekey.ErrorOf(resp))
		require.Equal(t, o.status, resp.StatusCode)
		answer = read(t, resp)
		of, ok := samekey.InfoOf(resp)
		require.True(t, ok)
		require.Equal(t, info, of)
		require.Equal(t, len(got), info.Attempts)
	case conflicts:
		require.Nil(t, resp)
		require.ErrorIs(t, err, samekey.ErrConflict)
		require.NotErrorIs(t, err, samekey.ErrUnknown)
		e, ok := errors.AsType[*samekey.ConflictError](err)
		require.True(t, ok)
		require.Equal(t, o.status, e.Status)
		require.Equal(t, w.before, e.Ambiguous)
		require.Equal(t, w.before, strings.Contains(e.Error(), "earlier attempt may have succeeded"))
		require.Equal(t, o.reason, e.Reason)
		require.Equal(t, o.link, e.Link)
		require.NotEmpty(t, e.Body)
		require.NotEmpty(t, e.Header)
		require.True(t, e.MaybeSent)
	case unknown, parked:
		require.Nil(t, resp)
		require.ErrorIs(t, err, samekey.ErrUnknown)
		require.NotErrorIs(t, err, samekey.ErrNotSent)
		e, ok := errors.AsType[*samekey.OutcomeUnknownError](err)
		require.True(t, ok)
		require.True(t, e.MaybeSent)
		if o.status != 0 {
			require.NotNil(t, e.Last)
			require.Equal(t, o.status, e.Last.Status)
		} else {
			require.Nil(t, e.Last)
			require.Error(t, e.Err)
		}
		if want == parked {
			require.ErrorIs(t, err, samekey.ErrParked)
		}
		if o.cause != nil {
			require.ErrorIs(t, err, o.cause)
		}
	case unsent:
		require.Nil(t, resp)
		require.ErrorIs(t, err, samekey.ErrNotSent)
		require.NotErrorIs(t, err, samekey.ErrUnknown)
		e, ok := errors.AsType[*samekey.NotSentError](err)
		require.True(t, ok)
		require.False(t, e.MaybeSent)
		if o.cause != nil {
			require.ErrorIs(t, err, o.cause)
		}
		effect = samekey.EffectNone
	}
	if err != nil {
		require.Equal(t, effect, samekey.EffectOf(err))
		require.Contains(t, err.Error(), opName)
		require.Contains(t, err.Error(), o.says)
	}

	// What the store holds.
	rec, gerr := w.store.Get(context.Background(), opRef)
	if want == removed || want == unsent {
		require.ErrorIs(t, gerr, persist.ErrNotFound)
	} else {
		require.NoError(t, gerr)
		require.Equal(t, state, rec.State())
		require.Equal(t, want == parked, rec.Progress.Parked)
		require.True(t, rec.Named)
		require.Equal(t, info.Key, rec.Key)
		require.NotContains(t, fmt.Sprint(rec.Progress.LastError), "hush-hush")
	}

	// What the same name meets later, in another client: the store's answer, the server under the same key, or a new
	// operation.
	require.NoError(t, w.client.Close())
	w.rt.shut(nil)
	w.p.meet(created)
	cfg := w.cfg
	cfg.Prepare, cfg.Store = nil, w.store
	again := newClient(t, cfg)
	resp, err = again.Do(w.request(o, payment))
	all := w.p.requests()
	more := all[len(got):]
	switch want {
	case succeeds, rejected:
		require.NoError(t, err)
		require.Empty(t, more)
		require.Equal(t, o.status, resp.StatusCode)
		require.Equal(t, answer, read(t, resp))
		of, _ := samekey.InfoOf(resp)
		require.Equal(t, samekey.Local, of.Source)
		require.Zero(t, of.Sends)
		require.Equal(t, state, of.State)
	case conflicts:
		require.Empty(t, more)
		e, ok := errors.AsType[*samekey.ConflictError](err)
		require.True(t, ok)
		require.Equal(t, o.status, e.Status)
		require.Equal(t, w.before, e.Ambiguous)
		require.Equal(t, o.reason, e.Reason)
		require.Equal(t, o.link, e.Link)
	case parked:
		require.Empty(t, more)
		require.ErrorIs(t, err, samekey.ErrUnknown)
		require.ErrorIs(t, err, samekey.ErrParked)
	case unknown, processing:
		require.NoError(t, err)
		require.Equal(t, http.StatusCreated, resp.StatusCode)
		require.Len(t, more, 1)
		if len(got) > 0 {
			require.Equal(t, got[0], more[0], "another attempt of the same operation")
		}
	case removed, unsent:
		require.NoError(t, err)
		require.Equal(t, http.StatusCreated, resp.StatusCode)
		require.Len(t, more, 1)
		require.NotContains(t, more[0], info.Key, "a new operation")
	}
	if want == rejected { // the name is free for another payload
		resp, err = again.Do(w.request(o, strings.Replace(payment, "100", "200", 1)))
		require.NoError(t, err)
		require.Equal(t, http.StatusCreated, resp.StatusCode)
		require.Len(t, w.p.requests(), len(all)+1)
		require.NotContains(t, w.p.requests()[len(all)], info.Key)
		return
	}
	if want == removed || want == unsent {
		return
	}
	n := len(w.p.requests())
	_, err = again.Do(w.request(o, strings.Replace(payment, "100", "200", 1)))
	require.ErrorIs(t, err, samekey.ErrMismatch)
	require.Equal(t, samekey.EffectUnknown, samekey.EffectOf(err))
	require.Len(t, w.p.requests(), n)
}

const longBody = `{"status":"succeeded","resultId":"pay_000001"}`

func outcomes() (all []outcome) {
	add := func(o outcome) { all = append(all, o) }
	status := func(s int, first, later fate) outcome {
		return outcome{name: strconv.Itoa(s), script: always(answers(s, `{"error":"E"}`)), once: true, first: first, later: later, status: s}
	}
	with := func(o outcome, name string, change func(*outcome)) outcome {
		o.name = name
		change(&o)
		return o
	}
	location := func(s int, loc string) func(*outcome) {
		return func(o *outcome) { o.script = always(answers(s, "", "Location: "+loc)) }
	}

	add(status(200, succeeds, succeeds))
	add(status(201, succeeds, succeeds))
	add(status(202, processing, processing))
	add(status(204, succeeds, succeeds))
	add(with(status(303, succeeds, succeeds), "303 of the same origin", location(303, "/v1/payments/1")))
	add(with(status(303, succeeds, succeeds), "303 of the same origin, absolute", func(o *outcome) {
		o.script = func(w *world) reply { return answers(303, "", "Location: "+w.p.url+"/v1/payments/1") }
	}))
	add(with(status(303, rejected, unknown), "303 elsewhere", location(303, "http://other.test/v1/payments/1")))
	add(with(status(303, rejected, unknown), "303 to another scheme", func(o *outcome) {
		o.script = func(w *world) reply {
			return answers(303, "", "Location: https"+strings.TrimPrefix(w.p.url, "http")+"/v1/payments/1")
		}
	}))
	add(with(status(303, rejected, unknown), "303 nowhere", location(303, "http://%zz")))
	add(with(status(303, rejected, unknown), "303 without a place", func(o *outcome) { o.script = always(answers(303, "")) }))
	add(with(status(302, rejected, unknown), "302", location(302, "/login")))
	add(with(status(307, rejected, unknown), "307 elsewhere, followed by policy", func(o *outcome) {
		location(307, "http://other.test/")(o)
		o.policy.Redirects = samekey.On
	}))

	// 409 and what a contract calls a conflict.
	conflict := func(name, body string, reason samekey.Reason) {
		add(outcome{name: "409 " + name, script: always(answers(409, body)), once: true, first: conflicts, later: conflicts, status: 409, reason: reason})
	}
	conflict("that says nothing", `{"a":1}`, samekey.ReasonUnknown)
	conflict("no JSON", `conflict`, samekey.ReasonUnknown)
	conflict("mismatch", `{"error":"IdempotencyKeyConflict"}`, samekey.ReasonMismatch)
	conflict("in progress", `{"type":"about:blank","title":"A request is outstanding for this Idempotency-Key"}`, samekey.ReasonInProgress)
	add(outcome{name: "422 of the IETF draft", script: always(answers(422, `{"title":"Idempotency-Key is already used"}`)), once: true,
		first: conflicts, later: conflicts, status: 422, reason: samekey.ReasonMismatch})
	add(outcome{name: "409 marked as a replay", script: always(answers(409, `{}`, "Idempotent-Replayed: true")), once: true,
		first: conflicts, later: conflicts, status: 409})

	// Every meaning of a rule, on a status that means nothing of the kind by itself.
	rule := func(m samekey.Meaning, s int, once bool, first, later fate, reason samekey.Reason) {
		c := samekey.DefaultContract
		c.Rules = []samekey.Rule{{If: samekey.Match{Header: "X-Says", Values: []string{"so"}}, Means: m, Link: "/link"}}
		o := outcome{name: fmt.Sprintf("rule %d on %d", m, s), policy: samekey.Policy{Contract: &c}, once: once, first: first, later: later, status: s,
			script: always(answers(s, `{"link":"/v1/payments/9"}`, "X-Says: so")), reason: reason}
		if first == conflicts {
			o.link = "/v1/payments/9"
		}
		add(o)
	}
	for _, s := range []int{200, 409, 418, 429, 503} {
		rule(samekey.MeansMismatch, s, true, conflicts, conflicts, samekey.ReasonMismatch)
		rule(samekey.MeansInProgress, s, true, conflicts, conflicts, samekey.ReasonInProgress)
		rule(samekey.MeansExists, s, true, conflicts, conflicts, samekey.ReasonExists)
		rule(samekey.MeansBusiness, s, true, conflicts, conflicts, samekey.ReasonBusiness)
	}
	for _, m := range []samekey.Meaning{samekey.MeansSucceeded, samekey.MeansRejected, samekey.MeansTurnedAway, samekey.MeansStoredFailure,
		samekey.MeansUncertain, samekey.MeansProcessing} {
		rule(m, 409, true, conflicts, conflicts, samekey.ReasonUnknown) // whatever a rule calls it
	}
	rule(samekey.MeansSucceeded, 418, true, succeeds, succeeds, 0)
	rule(samekey.MeansSucceeded, 503, true, succeeds, succeeds, 0)
	rule(samekey.MeansRejected, 418, true, rejected, rejected, 0)
	rule(samekey.MeansRejected, 503, true, rejected, rejected, 0)
	rule(samekey.MeansRejected, 200, true, rejected, rejected, 0)
	rule(samekey.MeansTurnedAway, 418, true, removed, unknown, 0)
	rule(samekey.MeansTurnedAway, 503, false, removed, unknown, 0) // the policy retries a 503
	rule(samekey.MeansStoredFailure, 503, true, parked, parked, 0)
	rule(samekey.MeansStoredFailure, 418, true, parked, parked, 0)
	rule(samekey.MeansUncertain, 418, false, unknown, unknown, 0)
	rule(samekey.MeansUncertain, 200, false, unknown, unknown, 0)
	rule(samekey.MeansProcessing, 418, true, processing, processing, 0)

	// What the server says it gives from its record.
	for _, s := range []int{400, 401, 404, 408, 429, 499} {
		add(with(status(s, rejected, rejected), strconv.Itoa(s)+" marked as a replay", func(o *outcome) {
			o.script = always(answers(s, `{}`, "Idempotent-Replayed: true"))
		}))
	}
	for _, s := range []int{500, 503, 511} {
		add(with(status(s, parked, parked), strconv.Itoa(s)+" marked as a replay", func(o *outcome) {
			o.script = always(answers(s, `{}`, "Idempotent-Replayed: true"))
		}))
	}
	for _, s := range []int{400, 402, 422} {
		add(status(s, rejected, rejected))
		add(with(status(s, rejected, unknown), strconv.Itoa(s)+" not stored", func(o *outcome) {
			c := samekey.DefaultContract
			c.StoresRejections = false
			o.policy.Contract = &c
		}))
	}
	for _, s := range []int{401, 403, 407, 421, 425, 429, 431, 451} {
		add(status(s, removed, unknown))
	}
	add(with(status(511, removed, unknown), "511", func(o *outcome) { o.once = false })) // a 5xx, and a gate
	for _, s := range []int{404, 405, 410, 412, 423, 424, 428} {
		add(status(s, rejected, unknown))
	}
	for _, s := range []int{404, 410} {
		add(with(status(s, rejected, unknown), strconv.Itoa(s)+" to a DELETE", func(o *outcome) {
			o.method, o.says = http.MethodDelete, "already gone"
		}))
	}
	add(with(status(404, unknown, unknown), "404 that the policy retries", func(o *outcome) { // the first one is before the last
		o.policy.RetryStatus, o.once = []int{404}, false
	}))
	for _, s := range []int{408, 500, 502, 503, 504} {
		add(with(status(s, unknown, unknown), strconv.Itoa(s), func(o *outcome) { o.once = false }))
		add(with(status(s, unknown, unknown), strconv.Itoa(s)+" that the policy does not retry", func(o *outcome) {
			o.policy.RetryStatus = []int{}
		}))
	}
	for _, s := range []int{425, 429} {
		add(with(status(s, removed, unknown), strconv.Itoa(s)+" that the policy retries", func(o *outcome) {
			o.policy.RetryStatus, o.once = []int{425, 429}, false
		}))
		add(with(status(s, removed, unknown), strconv.Itoa(s)+" that Decide retries", func(o *outcome) {
			o.policy.Decide, o.once = func(samekey.Attempt) samekey.Decision { return samekey.Retry }, false
		}))
	}
	add(with(status(503, unknown, unknown), "503 that Decide stops", func(o *outcome) {
		o.policy.Decide = func(a samekey.Attempt) samekey.Decision {
			if a.Status == 503 {
				return samekey.Stop
			}
			return samekey.AsUsual
		}
	}))
	add(with(status(503, unknown, unknown), "503 that asks for more time than the policy allows", func(o *outcome) {
		o.script = always(answers(503, `{}`, "Retry-After: 3600"))
	}))

	// Not reached, and what a repeat cannot mend.
	errDial := refuses(context.Background())
	add(outcome{name: "connection refused", shut: errDial, first: unsent, later: unknown, cause: errDial})
	add(outcome{name: "no such host", shut: &net.DNSError{Err: "no such host", Name: "api.test", IsNotFound: true}, first: unsent, later: unknown})
	add(outcome{name: "connection refused, no retries of lost connections", shut: errDial, policy: samekey.Policy{MaxAttempts: 2, RetryTransport: samekey.Off},
		first: unsent, cause: errDial})
	for name, err := range map[string]error{
		"authority":    x509.UnknownAuthorityError{},
		"host":         x509.HostnameError{Certificate: &x509.Certificate{}, Host: "api.test"},
		"invalid":      x509.CertificateInvalidError{Reason: x509.Expired},
		"verification": &tls.CertificateVerificationError{Err: errors.New("no")},
	} {
		add(outcome{name: "bad certificate, " + name, shut: err, once: true, first: unsent, later: unknown})
	}
	prepare := func(name string, once bool, cause error, f func(*http.Request) error) {
		add(outcome{name: "Prepare " + name, once: once, reached: -1, first: unsent, later: unknown, cause: cause, script: always(created),
			cfg: func(w *world, c *samekey.Config) {
				n := 0
				c.Prepare = func(_ context.Context, req *http.Request) error {
					if n++; n == 1 && w.before {
						return nil
					}
					return f(req)
				}
			}})
	}
	errToken := errors.New("no token today")
	prepare("fails", false, errToken, func(*http.Request) error { return errToken })
	prepare("sets a header with a newline", true, nil, func(r *http.Request) error {
		r.Header["X-Bad"] = []string{"a\nb"}
		return nil
	})
	prepare("sets a header that is none", true, nil, func(r *http.Request) error {
		r.Header["X Bad"] = []string{"a"}
		return nil
	})
	prepare("changes the key", true, nil, func(r *http.Request) error {
		r.Header.Set("Idempotency-Key", "another")
		return nil
	})
	prepare("changes the body", true, nil, func(r *http.Request) error {
		r.Body = http.NoBody
		return nil
	})
	prepare("changes the target", true, nil, func(r *http.Request) error {
		r.URL.Path = "/v1/refunds"
		return nil
	})
	prepare("changes the method", true, nil, func(r *http.Request) error {
		r.Method = http.MethodPut
		return nil
	})

	// Lost answers.
	lost := func(name string, r reply) {
		add(outcome{name: name, script: always(r), first: unknown, later: unknown})
		add(outcome{name: name + ", one attempt", script: always(r), policy: samekey.Policy{MaxAttempts: 1}, first: unknown})
		add(outcome{name: name + ", no retries of lost connections", script: always(r), policy: samekey.Policy{RetryTransport: samekey.Off}, once: true, first: unknown})
	}
	lost("connection closed", hangsUp)
	lost("connection reset", resets)
	lost("no HTTP", says("SSH-2.0-OpenSSH_9.6\r\n\r\n"))
	lost("cut off in the head", says("HTTP/1.1 201 Created\r\nContent-Le"))
	lost("cut off by Content-Length", says("HTTP/1.1 201 Created\r\nContent-Length: 46\r\n\r\n"+longBody[:20]))
	lost("cut off before the body", says("HTTP/1.1 201 Created\r\nContent-Length: 46\r\n\r\n"))
	lost("cut off in a chunk", says("HTTP/1.1 201 Created\r\nTransfer-Encoding: chunked\r\n\r\n2e\r\n"+longBody[:20]))
	lost("cut off between chunks", says("HTTP/1.1 201 Created\r\nTransfer-Encoding: chunked\r\n\r\n14\r\n"+longBody[:20]+"\r\n"))
	lost("cut off after a 1xx", says("HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"))
	lost("a rejection cut off", says("HTTP/1.1 400 Bad Request\r\nContent-Length: 46\r\n\r\n{"))
	return all
}

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
