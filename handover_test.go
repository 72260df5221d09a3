package samekey_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/samekey/samekey"
	"github.com/samekey/samekey/persist"
)

// TestReadSlowly: a success whose caller takes longer to read it than the store's lease lasts is not sent again meanwhile,
// neither by a recovery of the same client nor by another process.
func TestReadSlowly(t *testing.T) {
	for name, paused := range map[string]bool{"renewed": false, "lapsed": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				shared, sent := newLapsing(t), 0
				var store persist.Store = shared
				rt := roundTripper(func(r *http.Request) (*http.Response, error) {
					sent++
					return &http.Response{StatusCode: http.StatusCreated, Header: http.Header{}, Body: io.NopCloser(strings.NewReader("{}")), Request: r}, nil
				})
				ctx, cancel := context.WithCancel(t.Context())
				recovering := func(store persist.Store) *samekey.Client {
					c := newClient(t, samekey.Config{Store: store, HTTPClient: &http.Client{Transport: rt}})
					go func() { _ = c.KeepRecovering(ctx, samekey.Recovery{}) }()
					return c
				}
				if paused { // only its own recovery knows then that it is read
					store = unrenewed{shared}
				} else {
					recovering(store)
				}
				c := recovering(store)
				resp, err := c.Do(pay(t, t.Context(), ""))
				require.NoError(t, err)
				time.Sleep(5 * leaseTime)
				require.Equal(t, 1, pending(t, store))
				read(t, resp)
				require.Zero(t, pending(t, store), "it is settled under whatever claim it has by now")
				time.Sleep(5 * leaseTime)
				require.Equal(t, 1, sent)
				cancel()
				synctest.Wait()
			})
		})
	}
}

// unrenewed is a store that renews nothing, as if the process had been paused.
type unrenewed struct{ *lapsing }

func (unrenewed) Mark(context.Context, persist.Claim, persist.Progress) error {
	return persist.ErrClaimLost
}

// deaf is a shared store that does not answer a Settle.
type deaf struct{ *lapsing }

func (deaf) Settle(ctx context.Context, _ persist.Claim, _ persist.Answer) error {
	<-ctx.Done()
	return ctx.Err()
}

// TestCloseDoesNotHang: closing an answer waits for no store that stands still.
func TestCloseDoesNotHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := roundTripper(func(r *http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: http.StatusCreated, Header: http.Header{}, Body: io.NopCloser(strings.NewReader("{}")), Request: r}, nil
		})
		c := newClient(t, samekey.Config{Store: deaf{newLapsing(t)}, HTTPClient: &http.Client{Transport: rt}})
		resp, err := c.Do(pay(t, t.Context(), ""))
		require.NoError(t, err)
		began := time.Now()
		require.NoError(t, resp.Body.Close())
		require.Equal(t, 10*time.Second, time.Since(began))
	})
}
