package samekey_test

import (
	"context"
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
