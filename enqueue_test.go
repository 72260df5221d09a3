package samekey_test

import (
	"context"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/samekey/samekey"
	"github.com/samekey/samekey/mockserver"
)

// A captured command is sent by recovery, once, under the key that it was recorded with.
func TestCapture(t *testing.T) {
	srv := newServer(t, mockserver.Config{})
	store := newStore(t)
	c := newClient(t, samekey.Config{Store: store, Default: quick, Endpoints: map[string]samekey.Policy{"POST /none": {Persist: samekey.PersistNone}},
		Prepare: func(_ context.Context, r *http.Request) error { r.Header.Set("Authorization", "Bearer t"); return nil }})
	req := post(t, t.Context(), srv.URL+"/v1/payments", payment)
	req.Header.Set("Authorization", "Bearer old")
	rec, err := c.Capture(samekey.Named(req, "op"))
	require.NoError(t, err)
	require.Zero(t, rec.Progress.Attempts)
	require.Empty(t, srv.Requests())
	entry, err := store.Begin(t.Context(), rec)
	require.NoError(t, err)
	require.NoError(t, store.Release(t.Context(), entry.Claim))

	report, err := c.Recover(t.Context(), samekey.Recovery{Jitter: -1})
	require.NoError(t, err)
	require.Equal(t, samekey.Report{Succeeded: 1}, report)
	require.Equal(t, rec.Key, srv.Requests()[0].Key)
	require.Equal(t, "Bearer t", srv.Requests()[0].Header.Get("Authorization"))
	srv.AssertOnce(t)

	_, err = c.Capture(post(t, t.Context(), srv.URL+"/none", payment))
	require.ErrorIs(t, err, samekey.ErrPolicy)
	get, err := http.NewRequest(http.MethodGet, srv.URL, nil)
	require.NoError(t, err)
	_, err = c.Capture(get)
	require.ErrorContains(t, err, "no command")

	// Without Prepare nobody could supply it later.
	req = post(t, t.Context(), srv.URL+"/v1/payments", payment)
	req.Header.Set("Authorization", "Bearer secret")
	_, err = newClient(t, samekey.Config{Store: store}).Capture(samekey.Named(req, "op-2"))
	require.ErrorIs(t, err, samekey.ErrNotSent)
	require.ErrorContains(t, err, "header Authorization was on the first request and is not stored; Config.Prepare has to set it")
	require.NotContains(t, err.Error(), "secret")
}
