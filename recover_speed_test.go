package samekey_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/samekey/samekey"
	"github.com/samekey/samekey/persist/journal"
)

// backlog is a journal with n operations whose answers an earlier process never got.
func backlog(t testing.TB, n int, url string) (dir string) {
	t.Helper()
	dir = t.TempDir() + "/journal"
	store, err := journal.Open(t.Context(), dir, journal.Options{})
	require.NoError(t, err)
	lost := roundTripper(func(*http.Request) (*http.Response, error) { return nil, errors.New("the network is gone") })
	c, err := samekey.New(samekey.Config{Store: store, HTTPClient: &http.Client{Transport: lost}, Default: samekey.Policy{MaxAttempts: 1}})
	require.NoError(t, err)
	parallel(64, n, func(i int) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(bulky(i)))
		if err != nil {
			t.Error(err)
			return
		}
		req.Header.Set("Content-Type", "application/json")
		if _, err := c.Do(samekey.Named(req, fmt.Sprintf("order-%d/charge", i))); !errors.Is(err, samekey.ErrUnknown) {
			t.Error(err)
		}
	})
	require.NoError(t, c.Close())
	require.NoError(t, store.Close())
	return dir
}

// bulky is a payload of 4 KiB.
func bulky(i int) string {
	return fmt.Sprintf(`{"amount":%d,"currency":"RUB","pad":"%s"}`, i+1, strings.Repeat("x", 4000))
}

func parallel(goroutines, n int, f func(i int)) {
	var next atomic.Int64
	var wg sync.WaitGroup
	for range goroutines {
		wg.Go(func() {
			for i := next.Add(1); i <= int64(n); i = next.Add(1) {
				f(int(i - 1))
			}
		})
	}
	wg.Wait()
}

// TestRecoverySpeed recovers a backlog beside a plain client that sends the same requests, in turn. What recovery adds
// is a durable mark before each request and the record of each answer.
func TestRecoverySpeed(t *testing.T) {
	n, bar, rounds := 2000, 1.3, 2
	if os.Getenv("CI") != "" {
		n, rounds = 10_000, 5
	}
	if raceOn {
		n, rounds = 500, 1
	}
	const concurrency = 64
	var served, heap atomic.Int64
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		time.Sleep(5 * time.Millisecond) // the latency; nothing is waited for
		_, _ = io.Copy(io.Discard, r.Body)
		if served.Add(1)%500 == 0 {
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			for h := heap.Load(); int64(m.HeapAlloc) > h && !heap.CompareAndSwap(h, int64(m.HeapAlloc)); h = heap.Load() {
			}
		}
		w.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(w, `{"paymentId":"p-1"}`)
	}))
	defer srv.Close()
	transport := func() *http.Transport { return &http.Transport{MaxIdleConnsPerHost: concurrency} }
	dir := backlog(t, n, srv.URL)

	plain := func() time.Duration {
		tr := transport()
		defer tr.CloseIdleConnections()
		c := &http.Client{Transport: tr}
		began := time.Now()
		parallel(concurrency, n, func(i int) {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, srv.URL, strings.NewReader(bulky(i)))
			if err != nil {
				t.Error(err)
				return
			}
			req.Header.Set("Content-Type", "application/json")
			req.Header.Set("Idempotency-Key", fmt.Sprintf("order-%d/charge/0123456789abcdef", i))
			resp, err := c.Do(req)
			if err != nil {
				t.Error(err)
				return
			}
			_, _ = io.Copy(io.Discard, resp.Body)
			_ = resp.Body.Close()
		})
		return time.Since(began)
	}
	recovered := func(handle func(context.Context, samekey.Operation, *http.Response, error) error) (took time.Duration, grew int64) {
		copied := t.TempDir() + "/journal"
		require.NoError(t, os.CopyFS(copied, os.DirFS(dir)))
		require.NoError(t, os.Chmod(copied, 0o700))
		store, err := journal.Open(t.Context(), copied, journal.Options{})
		require.NoError(t, err)
		defer func() { require.NoError(t, store.Close()) }()
		tr := transport()
		defer tr.CloseIdleConnections()
		c, err := samekey.New(samekey.Config{Store: store, HTTPClient: &http.Client{Transport: tr}})
		require.NoError(t, err)
		defer func() { require.NoError(t, c.Close()) }()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		heap.Store(int64(m.HeapAlloc))
		began := time.Now()
		report, err := c.Recover(t.Context(), samekey.Recovery{Concurrency: concurrency, Jitter: -1, Handle: handle})
		took = time.Since(began)
		require.NoError(t, err)
		require.Equal(t, samekey.Report{Succeeded: n}, report)
		return took, heap.Load() - int64(m.HeapAlloc)
	}

	plain() // the first one warms up
	var ratios []float64
	var most int64
	for range rounds {
		a := plain()
		b, grew := recovered(nil)
		ratios, most = append(ratios, b.Seconds()/a.Seconds()), max(most, grew)
		t.Logf("%d operations: plain %v, Recover %v, %.2f times; memory grew by %.1f MiB", n, a.Round(time.Millisecond), b.Round(time.Millisecond), ratios[len(ratios)-1], float64(grew)/(1<<20))
	}
	handled, _ := recovered(func(context.Context, samekey.Operation, *http.Response, error) error { return nil })
	t.Logf("with a handler: %v", handled.Round(time.Millisecond))
	require.Less(t, most, int64(24<<20), "the payloads alone are %d MiB", n*4>>10)
	if raceOn || os.Getenv("CI") == "" {
		t.Log("the ratio is held against its bar with CI set, without -race, on a machine that does nothing else")
		return
	}
	slices.SortFunc(ratios, cmp.Compare)
	require.LessOrEqual(t, ratios[len(ratios)/2], bar)
}
