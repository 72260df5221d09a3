package samekey_test

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/samekey/samekey"
	"github.com/samekey/samekey/mockserver"
	"github.com/samekey/samekey/persist/journal"
)

// goroutines returns the stacks of those that run samekey's code, but for the tests' own.
func goroutines() (out []string) {
	buf := make([]byte, 8<<20)
	buf = buf[:runtime.Stack(buf, true)]
	for g := range strings.SplitSeq(string(buf), "\n\n") {
		if strings.Contains(g, "samekey/samekey.(*") || strings.Contains(g, "internal/flight") || strings.Contains(g, "retryablehttp") {
			out = append(out, g)
		}
	}
	return out
}

// TestCloseWithCallsUnderWay: calls that wait for an answer, for a connection or for their next attempt, calls that
// share, and a recovery with operations in hand. Close returns within a second, leaves no goroutine, and each operation
// is pending or settled; a new client has the store at once and finishes them.
func TestCloseWithCallsUnderWay(t *testing.T) {
	srv := newServer(t, mockserver.Config{})
	dir := t.TempDir() + "/journal"
	open := func() (*journal.Journal, *samekey.Client) {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond) // it is free at once
		defer cancel()
		store, err := journal.Open(ctx, dir, journal.Options{})
		require.NoError(t, err)
		waits := &recorder{}
		c, err := samekey.New(samekey.Config{Store: store, Observer: waits.observe, Default: samekey.Policy{
			Backoff: samekey.Backoff{Min: time.Minute, Max: time.Minute}, Deadline: -1, AttemptTimeout: time.Minute,
		}})
		require.NoError(t, err)
		return store, c
	}
	send := func(c *samekey.Client, i int, name string) error {
		req := post(t, context.Background(), srv.URL+"/v1/payments", numbered(i))
		if name != "" {
			req = samekey.Named(req, name)
		}
		resp, err := c.Do(req)
		if err == nil {
			err = resp.Body.Close()
		}
		return err
	}

	// An earlier process leaves ten for a recovery, which will hang.
	store, c := open()
	srv.Fault(mockserver.Fault{When: mockserver.AfterCommit, Do: mockserver.Drop})
	for i := range 10 {
		require.ErrorIs(t, func() error {
			resp, err := c.Do(samekey.Named(post(t, samekey.WithPolicy(t.Context(), samekey.Policy{MaxAttempts: 1}), srv.URL+"/v1/payments", numbered(i)), fmt.Sprint("op-", i)))
			if err == nil {
				_ = resp.Body.Close()
			}
			return err
		}(), samekey.ErrUnknown)
	}
	require.NoError(t, c.Close())
	require.NoError(t, store.Close())

	store, c = open()
	srv.ClearFaults()
	srv.Fault(
		mockserver.Fault{When: mockserver.AfterCommit, Do: mockserver.Stall(0), Times: 10}, // the recovered ones
	)
	var wg sync.WaitGroup
	wg.Go(func() {
		_, err := c.Recover(context.Background(), samekey.Recovery{Jitter: -1, Concurrency: 10})
		require.ErrorIs(t, err, samekey.ErrClosed)
	})
	arrived := func(n int) {
		require.Eventually(t, func() bool { return len(srv.Requests()) >= n }, 10*time.Second, time.Millisecond)
	}
	arrived(20)
	srv.Fault(
		mockserver.Fault{When: mockserver.AfterCommit, Do: mockserver.Stall(0), Times: 15},
		mockserver.Fault{When: mockserver.AfterCommit, Do: mockserver.StallBody(0), Times: 5},
		mockserver.Fault{When: mockserver.BeforeCommit, Do: mockserver.Status(503, false), Times: 20},
	)
	errs := make(chan error, 60)
	for i := range 40 {
		name := fmt.Sprint("new-", i)
		if i%4 == 0 {
			name = ""
		}
		wg.Go(func() { errs <- send(c, 100+i, name) })
	}
	arrived(60)
	for i := range 20 { // these share
		if i%4 != 0 {
			wg.Go(func() { errs <- send(c, 100+i, fmt.Sprint("new-", i)) })
		}
	}
	require.NotEmpty(t, goroutines())

	began := time.Now()
	require.NoError(t, c.Close())
	took := time.Since(began)
	t.Logf("Close took %v", took)
	require.Less(t, took, time.Second)
	wg.Wait()
	close(errs)
	for err := range errs {
		if isAny(err, samekey.ErrNotSent) { // a late one that was to share
			require.ErrorIs(t, err, samekey.ErrClosed)
			continue
		}
		require.ErrorIs(t, err, samekey.ErrUnknown)
		require.ErrorIs(t, err, samekey.ErrClosed)
	}
	require.ErrorIs(t, send(c, 1000, "late"), samekey.ErrClosed)
	require.Eventually(t, func() bool { return len(goroutines()) == 0 }, time.Second, time.Millisecond) // their last steps are behind their last word
	sent := len(srv.Requests())
	require.Equal(t, 50, pending(t, store))
	require.Equal(t, 50, count(t, store))
	require.NoError(t, store.Close())

	store, c = open()
	srv.ClearFaults()
	report, err := c.Recover(t.Context(), samekey.Recovery{Jitter: -1, Concurrency: 10})
	require.NoError(t, err)
	require.Equal(t, samekey.Report{Succeeded: 50}, report)
	require.Len(t, srv.Requests(), sent+50)
	require.NoError(t, c.Close())
	require.NoError(t, store.Close())
	srv.AssertOnce(t)
	srv.AssertSameKey(t)
	srv.AssertNoOverlap(t)
	require.Equal(t, 50, srv.Effects())
}

// TestCloseInABubble: the same where the bubble itself ends the test if a goroutine is left, and time stands still: Close
// waits for nothing.
func TestCloseInABubble(t *testing.T) {
	inLab(t, mockserver.Config{}, func(t *testing.T, l *lab) {
		l.leave(t, 3)
		l.Fault(mockserver.Fault{Do: mockserver.Status(503, false), Times: 3}, mockserver.Fault{Do: mockserver.Stall(0)})
		c := l.client(t, samekey.Config{})
		var wg sync.WaitGroup
		for i := range 6 {
			wg.Go(func() {
				_, err := c.Do(samekey.Named(post(t, context.Background(), labURL+"/v1/payments", numbered(10+i)), fmt.Sprint("new-", i)))
				require.ErrorIs(t, err, samekey.ErrClosed)
			})
		}
		for range 2 {
			wg.Go(func() {
				require.ErrorIs(t, c.KeepRecovering(context.Background(), samekey.Recovery{}), samekey.ErrClosed)
			})
		}
		wg.Go(func() {
			_, err := c.Resume(context.Background(), samekey.Ref{ID: "op-1"})
			require.True(t, isAny(err, samekey.ErrClosed, samekey.ErrBusy), "%v", err)
		})
		time.Sleep(100 * time.Millisecond)
		began := time.Now()
		require.NoError(t, c.Close())
		require.Zero(t, time.Since(began))
		wg.Wait()
		require.Equal(t, count(t, l.store), pending(t, l.store))
		_, err := c.Recover(t.Context(), samekey.Recovery{})
		require.ErrorIs(t, err, samekey.ErrClosed)
		require.ErrorIs(t, c.KeepRecovering(t.Context(), samekey.Recovery{}), samekey.ErrClosed)
	})
}
