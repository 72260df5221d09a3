package samekey_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
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

// TestReadDuringALongPass: a success that is still being read is settled under the claim of the pass that met it, also
// where that met it twice; the pass says that it is pending, once.
func TestReadDuringALongPass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared := newLapsing(t)
		sends, fail := map[string]int{}, true
		rt := roundTripper(func(r *http.Request) (*http.Response, error) {
			status := http.StatusCreated
			if r.Header.Get("Accept") != "" && fail {
				status = http.StatusServiceUnavailable
			}
			sends[r.Header.Get("Accept")]++
			return &http.Response{StatusCode: status, Header: http.Header{}, Body: io.NopCloser(strings.NewReader("{}")), Request: r}, nil
		})
		c := newClient(t, samekey.Config{
			Store: unread{shared}, HTTPClient: &http.Client{Transport: rt}, Default: samekey.Policy{MaxAttempts: 1},
		})
		resp, err := c.Do(pay(t, t.Context(), ""))
		require.NoError(t, err)
		for _, name := range []string{"slow", "slow too"} {
			req := pay(t, t.Context(), name)
			req.Header.Set("Accept", name)
			_, err := c.Do(req)
			require.ErrorIs(t, err, samekey.ErrUnknown)
			time.Sleep(leaseTime + time.Second) // the reader's claim lapses
		}
		fail = false
		handled, before, after := 0, 0, 0
		report, err := c.Recover(t.Context(), samekey.Recovery{
			Concurrency: 1, Jitter: -1,
			Handle: func(_ context.Context, op samekey.Operation, _ *http.Response, err error) error {
				handled++
				if op.ID == "slow" { // the pass meets the one that is read once more
					time.Sleep(leaseTime + time.Second)
				} else {
					before = pending(t, shared)
					_ = resp.Body.Close()
					after = pending(t, shared)
				}
				return err
			},
		})
		require.NoError(t, err)
		require.Equal(t, 2, handled)
		require.Equal(t, 1, before)
		require.Zero(t, after, "it is settled when it was read, not left to be sent again")
		require.Equal(t, samekey.Report{Succeeded: 2, Pending: 1}, report)
		require.Equal(t, map[string]int{"": 1, "slow": 2, "slow too": 2}, sends)
	})
}

// unread is a store that renews nothing of an operation without a name, as if its reader had been paused.
type unread struct{ *lapsing }

func (u unread) Mark(ctx context.Context, c persist.Claim, p persist.Progress) error {
	if !strings.HasPrefix(c.ID, "slow") {
		return persist.ErrClaimLost
	}
	return u.lapsing.Mark(ctx, c, p)
}

// mute is a store without leases that does not answer a Settle.
type mute struct{ persist.Store }

func (mute) Settle(ctx context.Context, _ persist.Claim, _ persist.Answer) error {
	<-ctx.Done()
	return ctx.Err()
}

// TestCloseDoesNotHangOnOneProcessStore: a store of one process may wait for its disk.
func TestCloseDoesNotHangOnOneProcessStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := roundTripper(func(r *http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: http.StatusCreated, Header: http.Header{}, Body: io.NopCloser(strings.NewReader("{}")), Request: r}, nil
		})
		store := newStore(t)
		c := newClient(t, samekey.Config{Store: mute{store}, HTTPClient: &http.Client{Transport: rt}})
		resp, err := c.Do(pay(t, t.Context(), ""))
		require.NoError(t, err)
		closed := make(chan time.Duration)
		began := time.Now()
		go func() {
			_ = resp.Body.Close()
			closed <- time.Since(began)
		}()
		select {
		case took := <-closed:
			require.Equal(t, 10*time.Second, took)
		case <-time.After(time.Hour):
			t.Fatal("Body.Close waits for the store without end")
		}
		require.Equal(t, 1, pending(t, store), "it is left to a recovery")
	})
}

// readInClaimDue has an answer read between the claim of a pass and what becomes of it. Nothing is renewed before.
type readInClaimDue struct {
	*lapsing
	paused atomic.Bool
	read   func()
}

func (r *readInClaimDue) Mark(ctx context.Context, c persist.Claim, p persist.Progress) error {
	if r.paused.Load() {
		return persist.ErrClaimLost
	}
	return r.lapsing.Mark(ctx, c, p)
}

func (r *readInClaimDue) ClaimDue(ctx context.Context, n int) ([]persist.Entry, error) {
	es, err := r.lapsing.ClaimDue(ctx, n)
	if len(es) > 0 && r.paused.CompareAndSwap(true, false) {
		r.read()
	}
	return es, err
}

// TestReadAsAPassClaims: the reader whose claim has lapsed ends while a pass of its client has just claimed the operation.
// It settles under the claim of the pass, and nothing is sent again.
func TestReadAsAPassClaims(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{replies: []canned{{status: 201, body: "{}"}}}
		store := &readInClaimDue{lapsing: newLapsing(t)}
		c := newClient(t, samekey.Config{Store: store, HTTPClient: &http.Client{Transport: s}})
		resp, err := c.Do(pay(t, t.Context(), ""))
		require.NoError(t, err)
		store.paused.Store(true)
		store.read = func() {
			go func() { _ = resp.Body.Close() }()
			synctest.Wait()
		}
		time.Sleep(2*leaseTime + time.Second) // between two renewals
		report, err := c.Recover(t.Context(), samekey.Recovery{Jitter: -1})
		require.NoError(t, err)
		require.Equal(t, samekey.Report{Pending: 1}, report)
		synctest.Wait()
		require.Len(t, s.sent, 1)
		require.Zero(t, pending(t, store))
	})
}
