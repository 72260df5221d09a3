package crashtest_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/samekey/samekey"
	"github.com/samekey/samekey/crashtest"
	"github.com/samekey/samekey/mockserver"
	"github.com/samekey/samekey/persist"
	"github.com/samekey/samekey/persist/journal"
)

// stormChild places N orders from 8 goroutines, beside a recovery of what earlier lives left.
func stormChild() (err error) {
	ctx := context.Background()
	n, err := strconv.Atoi(os.Getenv("N"))
	if err != nil {
		return err
	}
	store, err := journal.Open(ctx, os.Getenv("DIR"), journal.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	client, err := samekey.New(samekey.Config{
		Store: store, Observer: crashtest.Observer(),
		Default: samekey.Policy{MaxAttempts: 20, AttemptTimeout: 500 * time.Millisecond, Deadline: -1, Backoff: samekey.Backoff{Min: time.Millisecond, Max: 8 * time.Millisecond}},
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, client.Close()) }()
	var next, answered atomic.Int64
	var wg sync.WaitGroup
	wg.Go(func() {
		if _, rerr := client.Recover(ctx, samekey.Recovery{Jitter: -1}); rerr != nil {
			fmt.Fprintln(os.Stderr, rerr)
		}
	})
	for range 8 {
		wg.Go(func() {
			for i := next.Add(1); i <= int64(n); i = next.Add(1) {
				if err := order(ctx, client, i); err != nil {
					fmt.Fprintln(os.Stderr, err)
					continue
				}
				answered.Add(1)
			}
		})
	}
	wg.Wait()
	crashtest.Ack("%d", answered.Load())
	return nil
}

func order(ctx context.Context, client *samekey.Client, i int64) error {
	body := fmt.Sprintf(`{"amount":%d,"currency":"RUB","orderRef":"order-%d"}`, 1000+i, i)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, os.Getenv("URL")+"/v1/payments", strings.NewReader(body))
	if err != nil {
		return err
	}
	resp, err := client.Do(samekey.Named(req, fmt.Sprintf("order-%d/charge", i)))
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, resp.Body)
	if resp.StatusCode != http.StatusCreated {
		err = errors.New(resp.Status)
	}
	return errors.Join(err, resp.Body.Close())
}

// TestStorm: many operations at once through a bad network, and a SIGKILL again and again, each at a step and a time
// that the seed draws, with the other goroutines wherever they are.
func TestStorm(t *testing.T) {
	n, kills := 150, 5
	if os.Getenv("CI") != "" {
		n, kills = 1000, 20
	}
	for seed := uint64(1); seed <= 2; seed++ {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			t.Parallel()
			srv := mockserver.NewServer(mockserver.Config{Seed: seed})
			t.Cleanup(srv.Close)
			passed := 1.0 // of all attempts, those that no fault so far has met
			for _, f := range []mockserver.Fault{
				{When: mockserver.AfterCommit, Do: mockserver.Drop},
				{When: mockserver.AfterCommit, Do: mockserver.CutBody},
				{When: mockserver.AfterCommit, Do: mockserver.Status(502, false)},
				{When: mockserver.BeforeCommit, Do: mockserver.Status(503, false)},
				{When: mockserver.BeforeCommit, Do: mockserver.Reset},
			} {
				f.Share = 0.06 / passed // 30 % in all
				passed -= 0.06
				srv.Fault(f)
			}
			srv.Fault(mockserver.Fault{When: mockserver.AfterCommit, Do: mockserver.Stall(0), Share: 0.005}, mockserver.Fault{Do: mockserver.Delay(3 * time.Millisecond)})
			dir := t.TempDir() + "/journal"
			env := []string{"DIR=" + dir, "URL=" + srv.URL, "N=" + strconv.Itoa(n)}
			draw := rand.New(rand.NewPCG(seed, 0))
			points := []string{"attempt", "connected", "header written", "body written", "first byte", "attempt done", "settled"}
			began, open := time.Now(), 0
			for i := range kills {
				point := fmt.Sprintf("%s/%d", points[draw.IntN(len(points))], 5+draw.IntN(n/kills-8))
				life := crashtest.Run(t, point, crashtest.Child("storm", env...))
				require.True(t, life.Killed, "life %d was to die at %q: %s", i, point, life.Stderr)
				open += pending(t, dir)
			}
			last := crashtest.Run(t, "", crashtest.Child("storm", env...))
			require.Equal(t, []string{strconv.Itoa(n)}, last.Acks(), last.Stderr)
			require.Zero(t, pending(t, dir))

			totals := srv.Totals()
			faults := 0
			for _, r := range srv.Requests() {
				if r.Fault != "" && !strings.Contains(r.Fault, "delay") {
					faults++
				}
			}
			t.Logf("%d operations, %d SIGKILLs that left %d pending, %d requests of which %d met a fault, %d effects, %v",
				n, kills, open, totals.Requests, faults, totals.Effects, time.Since(began).Round(time.Millisecond))
			require.Equal(t, n, totals.Effects)
			require.Equal(t, n, totals.Keys)
			require.Zero(t, totals.Duplicates)
			require.Greater(t, open, kills, "a kill that nothing is pending at shows little")
			require.InDelta(t, 0.3, float64(faults)/float64(totals.Requests), 0.1)
			srv.AssertOnce(t)
			srv.AssertSameKey(t)
			srv.AssertNoOverlap(t)
		})
	}
}

// pending counts what a journal that nobody holds has unfinished.
func pending(t *testing.T, dir string) (n int) {
	t.Helper()
	v, err := journal.ReadOnly(dir)
	require.NoError(t, err)
	defer func() { require.NoError(t, v.Close()) }()
	for _, err := range v.List(t.Context(), persist.Filter{States: []persist.State{persist.Pending}}) {
		require.NoError(t, err)
		n++
	}
	return n
}
