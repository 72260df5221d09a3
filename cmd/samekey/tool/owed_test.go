package tool

import (
	"context"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/samekey/samekey"
	"github.com/samekey/samekey/mockserver"
	"github.com/samekey/samekey/persist"
	"github.com/samekey/samekey/persist/memory"
)

// told is what a program's handler gets from the next Recover on the journal in dir: status, error and payload by ID.
func told(t *testing.T, dir string) map[string][]string {
	t.Helper()
	got := map[string][]string{}
	fill(t, dir, samekey.Config{}, func(c *samekey.Client) {
		_, err := c.Recover(t.Context(), samekey.Recovery{Jitter: -1, Concurrency: 1, Handle: func(_ context.Context, op samekey.Operation, resp *http.Response, err error) error {
			b, rerr := io.ReadAll(resp.Body)
			require.NoError(t, rerr)
			text := resp.Status + " " + string(b)
			if err != nil {
				text += " " + err.Error()
			}
			got[op.ID] = append(got[op.ID], text)
			return nil
		}})
		require.NoError(t, err)
	})
	return got
}

// enqueued are operations that nobody has sent yet.
func enqueued(t *testing.T, dir, url string, names ...string) {
	t.Helper()
	j := openJournal(t, dir)
	c, err := samekey.New(samekey.Config{Store: j})
	require.NoError(t, err)
	for _, n := range names {
		req, err := payment(t.Context(), url, n, 100)
		require.NoError(t, err)
		rec, err := c.Capture(req)
		require.NoError(t, err)
		e, err := j.Begin(t.Context(), rec)
		require.NoError(t, err)
		require.NoError(t, j.Release(t.Context(), e.Claim))
	}
	require.NoError(t, c.Close())
	require.NoError(t, j.Close())
}

// TestResumeOwed: what is resumed with -owed is handed to the program by its next Recover, once.
func TestResumeOwed(t *testing.T) {
	srv := newServer(t)
	dir := newDir(t)
	enqueued(t, dir, srv.URL, "order-1", "order-2", "order-3")
	r := run(t, "resume", dir, "order-1", "-owed")
	require.Zero(t, r.code, r.err)
	require.Equal(t, "succeeded   201  order-1  1 attempt, owed to the program\n", r.out)
	require.Empty(t, r.err)
	r = run(t, "resume", dir, "-all", "-owed", "-json")
	require.Zero(t, r.code, r.err)
	require.Regexp(t, `^(\{"scope":"","id":"order-[23]","state":"succeeded","status":201,.*"owed":true\}\n){2}$`, r.out)
	require.Empty(t, r.err)
	require.Regexp(t, `owed +3 answers have yet`, run(t, "check", dir).out)

	got := told(t, dir)
	require.Len(t, got, 3)
	for id, texts := range got {
		require.Len(t, texts, 1, id)
		require.Regexp(t, `^201 Created .*paymentId`, texts[0])
	}
	require.Empty(t, told(t, dir), "once")
	require.Len(t, srv.Requests(), 3)
	require.Equal(t, 3, srv.Effects())
}

// TestResumeUntold: without -owed the program is not told, which is said once; -owed makes up for it without a send.
func TestResumeUntold(t *testing.T) {
	const notTold = "samekey: the program's Recovery.Handle is not told of this; with -owed its next Recover hands the answer over\n"
	srv := newServer(t)
	dir := newDir(t)
	enqueued(t, dir, srv.URL, "order-1", "order-2", "order-3")
	r := run(t, "resume", dir, "order-1", "-json")
	require.Zero(t, r.code)
	require.Equal(t, `{"scope":"","id":"order-1","state":"succeeded","status":201,"source":"network","attempts":1}`+"\n", r.out)
	require.Equal(t, notTold, r.err)
	r = run(t, "resume", dir, "-all")
	require.Zero(t, r.code)
	require.Equal(t, notTold, r.err, "once a run")
	require.Empty(t, told(t, dir))

	for range 2 {
		r = run(t, "resume", dir, "order-1", "-owed")
		require.Zero(t, r.code, r.err)
		require.Equal(t, "succeeded   201  order-1  1 attempt, owed to the program\n", r.out)
		require.Empty(t, r.err)
	}
	require.Empty(t, run(t, "resume", dir, "order-1").err, "it is owed already")
	got := told(t, dir)
	require.Len(t, got, 1)
	require.Len(t, got["order-1"], 1)
	require.Contains(t, got["order-1"][0], "paymentId")
	require.Len(t, srv.Requests(), 3)
}

// TestResumeOwedElse: a conflict is the program's to decide; what could not be left owed is not sent; an outcome that is
// unknown is owed by nobody.
func TestResumeOwedElse(t *testing.T) {
	srv := newServer(t)
	dir := newDir(t)
	enqueued(t, dir, srv.URL, "conflict", "unknown", "")
	srv.Fault(mockserver.Fault{Do: mockserver.Status(409, false), Times: 1})
	r := run(t, "resume", dir, "conflict", "-owed")
	require.Equal(t, 1, r.code)
	require.Regexp(t, `^conflicted  409  conflict  1 attempt, owed to the program\n$`, r.out)

	srv.Fault(mockserver.Fault{Do: mockserver.Status(503, false)})
	r = run(t, "resume", dir, "unknown", "-owed", "-timeout", "1s")
	require.Equal(t, 1, r.code)
	require.NotContains(t, r.out, "owed")
	srv.ClearFaults()
	require.Zero(t, run(t, "abandon", dir, "unknown", "-reason", "x").code)

	sent := len(srv.Requests())
	r = run(t, "resume", dir, "-all", "-owed")
	require.Equal(t, 1, r.code)
	require.Empty(t, r.out)
	require.Contains(t, r.err, "was not sent: nobody named it, so that its success leaves the store at once and cannot be left owed")
	require.Len(t, srv.Requests(), sent)
	require.Zero(t, run(t, "resume", dir, "-all").code)

	got := told(t, dir)
	require.Len(t, got, 1)
	require.Len(t, got["conflict"], 1)
	require.Contains(t, got["conflict"][0], "conflict (unknown reason, status 409)")
}

type leasing struct{ persist.Store }

func (leasing) Lease() time.Duration { return time.Minute }

// TestOwingLease: what bounds an attempt is told through -owed too.
func TestOwingLease(t *testing.T) {
	l, is := (&owing{Store: leasing{memory.New()}}).store().(persist.Leaser)
	require.True(t, is)
	require.Equal(t, time.Minute, l.Lease())
	_, is = (&owing{Store: memory.New()}).store().(persist.Leaser)
	require.False(t, is)
}
