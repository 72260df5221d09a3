package tool

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/samekey/samekey"
	"github.com/samekey/samekey/mockserver"
	"github.com/samekey/samekey/persist/journal"
)

// TestPoisonedOperation: one operation of twenty that the server answers with 500 whatever comes, over ten restarts of the
// program, a minute apart. The others are done after the first; it ends parked, and an operator finds it.
func TestPoisonedOperation(t *testing.T) {
	dir := newDir(t)
	var end time.Time // by the bubble's clock
	synctest.Test(t, func(t *testing.T) {
		eng := mockserver.New(mockserver.Config{})
		defer eng.Close()
		life := func(f func(c *samekey.Client)) {
			store, err := journal.Open(t.Context(), dir, journal.Options{})
			require.NoError(t, err)
			c, err := samekey.New(samekey.Config{Store: store, HTTPClient: &http.Client{Transport: eng.Transport().Transport}})
			require.NoError(t, err)
			f(c)
			require.NoError(t, c.Close())
			require.NoError(t, store.Close())
		}
		eng.Fault(mockserver.Fault{When: mockserver.AfterCommit, Do: mockserver.Drop})
		life(func(c *samekey.Client) {
			for i := range 20 {
				req, err := payment(samekey.WithPolicy(t.Context(), samekey.Policy{MaxAttempts: 1}), "http://api.test", fmt.Sprint("order-", i), 100+i)
				require.NoError(t, err)
				_, err = c.Do(req)
				require.ErrorIs(t, err, samekey.ErrUnknown)
			}
		})
		poisoned := eng.Keys()[7]
		eng.ClearFaults()
		eng.Fault(mockserver.Fault{Key: poisoned, Do: mockserver.Status(500, false)})
		var reports []samekey.Report
		for range 10 {
			time.Sleep(time.Minute)
			life(func(c *samekey.Client) {
				report, err := c.Recover(t.Context(), samekey.Recovery{})
				require.NoError(t, err)
				reports = append(reports, report)
			})
		}
		require.Equal(t, samekey.Report{Succeeded: 19, Pending: 1}, reports[0], "the others finish at the first")
		require.Equal(t, samekey.Report{Pending: 1, Parked: 1}, reports[4])
		for _, r := range reports[5:] {
			require.Zero(t, r, "it is left alone")
		}
		require.Equal(t, 20, eng.Effects(), "its effect was had before the first 500")
		sent := 0
		for _, r := range eng.Requests() {
			if r.Key == poisoned {
				sent++
			}
		}
		require.Equal(t, 21, sent, "a bounded total over all restarts, the attempt of Do among it")
		end = time.Now()
	})

	samekey := func(args ...string) string {
		var out, errOut bytes.Buffer
		tl := &tool{in: strings.NewReader(""), out: &out, err: &errOut, env: os.LookupEnv, now: func() time.Time { return end }}
		require.Zero(t, tl.main(t.Context(), args), errOut.String())
		return out.String()
	}
	require.Regexp(t, `^AGE .*\n10m\S* +parked +21 +500 .* order-7 +POST \S*api.test/v1/payments\n$`, samekey("list", dir, "-state", "pending"))
	require.Equal(t, 1, strings.Count(samekey("list", dir, "-parked", "-json"), "\n"))
	require.Contains(t, samekey("show", dir, "order-7"), "parked")
}
