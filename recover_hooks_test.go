package samekey_test

import (
	"context"
	"errors"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/samekey/samekey"
	"github.com/samekey/samekey/mockserver"
)

// A hook that panics for one operation ends neither the program nor the recovery of the others.
func TestRecoverContainsPanics(t *testing.T) {
	srv := newServer(t, mockserver.Config{})
	srv.Fault(mockserver.Fault{Do: mockserver.Status(503, false), Times: 3})
	store := newStore(t)
	one := quick
	one.MaxAttempts = 1
	c := newClient(t, samekey.Config{Store: store, Default: one})
	for _, name := range []string{"a", "bad", "c"} {
		_, err := c.Do(samekey.Named(post(t, t.Context(), srv.URL+"/v1/payments", payment), name))
		require.ErrorIs(t, err, samekey.ErrUnknown)
	}
	require.NoError(t, c.Close())
	rec := &recorder{}
	second := newClient(t, samekey.Config{Store: store, Default: one, Observer: rec.observe, Prepare: func(ctx context.Context, _ *http.Request) error {
		if op, _ := samekey.OperationOf(ctx); op.ID == "bad" {
			panic("no credentials")
		}
		return nil
	}})
	report, err := second.Recover(t.Context(), samekey.Recovery{Jitter: -1})
	require.NoError(t, err)
	require.Equal(t, samekey.Report{Succeeded: 2, Pending: 1}, report)
	require.Len(t, rec.all(samekey.StepWarning), 1)
	require.ErrorContains(t, rec.all(samekey.StepWarning)[0].Err, "no credentials")
	op, err := second.Operation(t.Context(), samekey.Ref{ID: "bad"})
	require.NoError(t, err)
	require.Equal(t, samekey.Pending, op.State)
}

// What sends nothing is no attempt: it parks nothing, and does not hide what the last real one met.
func TestWhatSendsNothingIsNoAttempt(t *testing.T) {
	srv := newServer(t, mockserver.Config{})
	srv.Fault(mockserver.Fault{Do: mockserver.Status(503, false)})
	store := newStore(t)
	one := quick
	one.MaxAttempts = 1
	c := newClient(t, samekey.Config{Store: store, Default: one})
	req := post(t, t.Context(), srv.URL+"/v1/payments", payment)
	req.Header.Set("Authorization", "Bearer t")
	_, err := c.Do(samekey.Named(req, "op"))
	require.ErrorIs(t, err, samekey.ErrUnknown)
	for range 3 {
		_, err = c.Resume(t.Context(), samekey.Ref{ID: "op"})
		require.ErrorContains(t, err, "header Authorization")
	}
	op, err := c.Operation(t.Context(), samekey.Ref{ID: "op"})
	require.NoError(t, err)
	require.Equal(t, 1, op.Attempts)
	require.Equal(t, 503, op.LastStatus)
	require.Contains(t, op.LastError, "header Authorization", "and says what is missing")
	require.Len(t, srv.Requests(), 1)
}

// A handler that does not accept an answer is told of in the report, and asked again by the next pass.
func TestReportCountsWhatIsOwed(t *testing.T) {
	srv := newServer(t, mockserver.Config{})
	srv.Fault(mockserver.Fault{Do: mockserver.Status(503, false), Times: 1})
	store := newStore(t)
	one := quick
	one.MaxAttempts = 1
	c := newClient(t, samekey.Config{Store: store, Default: one})
	_, err := c.Do(post(t, t.Context(), srv.URL+"/v1/payments", payment))
	require.ErrorIs(t, err, samekey.ErrUnknown)
	ready := false
	r := samekey.Recovery{Jitter: -1, Handle: func(context.Context, samekey.Operation, *http.Response, error) error {
		if !ready {
			return errors.New("the database is down")
		}
		return nil
	}}
	report, err := c.Recover(t.Context(), r)
	require.NoError(t, err)
	require.Equal(t, samekey.Report{Succeeded: 1, Owed: 1}, report)
	ready = true
	report, err = c.Recover(t.Context(), r)
	require.NoError(t, err)
	require.Equal(t, samekey.Report{Succeeded: 1}, report)
	require.Zero(t, count(t, store))
}

// What is owed to a handler waits for one: a recovery without leaves it, and calls nothing.
func TestOwedWithoutAHandler(t *testing.T) {
	s := newAcquirer(t, http.StatusServiceUnavailable)
	events := &recorder{}
	c := newClient(t, samekey.Config{Default: once, Observer: events.observe})
	s.fails(t, c)
	s.answers(http.StatusCreated)
	ready := false
	r := samekey.Recovery{Jitter: -1, Handle: func(context.Context, samekey.Operation, *http.Response, error) error {
		if !ready {
			return errors.New("the database is down")
		}
		return nil
	}}
	_, err := c.Recover(t.Context(), r)
	require.NoError(t, err)
	handled := len(events.all(samekey.StepHandler))
	report, err := c.Recover(t.Context(), samekey.Recovery{Jitter: -1})
	require.NoError(t, err)
	require.Equal(t, samekey.Report{Succeeded: 1, Owed: 1}, report)
	require.Len(t, events.all(samekey.StepHandler), handled)
	ready = true
	report, err = c.Recover(t.Context(), r)
	require.NoError(t, err)
	require.Equal(t, samekey.Report{Succeeded: 1}, report)
	require.Len(t, s.keys(), 2)
}
