package samekey_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/samekey/samekey"
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
