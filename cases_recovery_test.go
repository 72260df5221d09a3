package samekey_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/samekey/samekey"
	"github.com/samekey/samekey/crashtest"
	"github.com/samekey/samekey/mockserver"
	"github.com/samekey/samekey/persist"
	"github.com/samekey/samekey/persist/journal"
)

// onDisk lists what a journal holds that nobody has open.
func onDisk(t *testing.T, dir string) (recs []persist.Record) {
	t.Helper()
	v, err := journal.ReadOnly(dir)
	require.NoError(t, err)
	defer func() { require.NoError(t, v.Close()) }()
	for rec, err := range v.List(t.Context(), persist.Filter{}) {
		require.NoError(t, err)
		recs = append(recs, rec)
	}
	return recs
}

// A process that is killed while the server is silent, at its first send and while it recovers, leaves the record; it
// goes only with an outcome.
func TestCase_B04_KilledWhileTheServerIsSilent(t *testing.T) {
	t.Parallel()
	srv := newServer(t, mockserver.Config{})
	srv.Fault(mockserver.Fault{When: mockserver.AfterCommit, Do: mockserver.Stall(0)})
	dir := t.TempDir() + "/j"
	env := []string{"DIR=" + dir, "URL=" + srv.URL + "/v1/payments", "BODY=" + payment, "OP=", "KILL="}
	var key string
	for i, child := range []string{"send", "recover", "recover"} {
		p := crashtest.Start(t, "", crashtest.Child(child, env...))
		require.Eventually(t, func() bool { return len(srv.Requests()) == i+1 }, 30*time.Second, time.Millisecond)
		p.Kill()
		require.True(t, p.Wait().Killed)
		recs := onDisk(t, dir)
		require.Len(t, recs, 1, child)
		require.Equal(t, samekey.Pending, recs[0].State())
		require.Equal(t, i+1, recs[0].Progress.Attempts)
		require.Equal(t, payment, string(recs[0].Body))
		if i == 0 {
			key = recs[0].Key
		}
		require.Equal(t, key, recs[0].Key)
	}
	srv.ClearFaults()
	last := life(t, "recover", env...)
	require.Equal(t, []string{"201", "pending=0"}, last.Acks(), last.Stderr)
	require.Empty(t, onDisk(t, dir), "an anonymous one goes with its outcome")
	srv.AssertOnce(t)
	srv.AssertSameKey(t)
}

// Between the answer and its mark: a kill, and a store that fails.
func TestCase_B05_AnsweredAndNotWrittenDown(t *testing.T) {
	t.Run("killed", func(t *testing.T) {
		t.Parallel()
		for _, op := range []string{"order-1/charge", ""} {
			srv := newServer(t, mockserver.Config{})
			dir := t.TempDir() + "/j"
			env := []string{"DIR=" + dir, "URL=" + srv.URL + "/v1/payments", "BODY=" + payment, "OP=" + op}
			first := life(t, "send", append(env, "KILL=outcome")...)
			require.True(t, first.Killed)
			require.Equal(t, samekey.Pending, onDisk(t, dir)[0].State())
			second := life(t, "recover", env...)
			require.Equal(t, []string{"201", "pending=0"}, second.Acks(), second.Stderr)
			require.Len(t, srv.Requests(), 2)
			require.True(t, srv.Requests()[1].Replayed)
			srv.AssertOnce(t)
			srv.AssertSameKey(t)
			third := life(t, "recover", env...)
			require.Equal(t, []string{"pending=0"}, third.Acks())
		}
	})
	t.Run("write error", func(t *testing.T) {
		inLab(t, mockserver.Config{}, func(t *testing.T, l *lab) {
			broken := &bent{Store: l.store, fail: func(method string, _ int) error {
				if method == "Settle" {
					return errDisk
				}
				return nil
			}}
			c := l.client(t, samekey.Config{Store: broken})
			resp, err := c.Do(pay(t, t.Context(), "op"))
			require.NoError(t, err)
			info, _ := samekey.InfoOf(resp)
			require.ErrorIs(t, info.StoreErr, errDisk)
			read(t, resp)
			require.NoError(t, c.Close())
			require.Equal(t, 1, pending(t, l.store))

			report, err := l.client(t, samekey.Config{}).Recover(t.Context(), samekey.Recovery{})
			require.NoError(t, err)
			require.Equal(t, samekey.Report{Succeeded: 1}, report)
			require.True(t, l.Requests()[1].Replayed)
			require.Zero(t, pending(t, l.store))
			l.AssertOnce(t)
			l.AssertSameKey(t)
		})
	})
}

// Two processes on one journal: the second one is told that it is in use, and sends nothing.
func TestCase_B16_TwoProcesses(t *testing.T) {
	t.Parallel()
	srv := newServer(t, mockserver.Config{})
	srv.Fault(mockserver.Fault{When: mockserver.AfterCommit, Do: mockserver.Drop, Times: 1}, mockserver.Fault{Do: mockserver.Stall(0), Times: 1})
	env := []string{"DIR=" + t.TempDir() + "/j", "URL=" + srv.URL + "/v1/payments", "BODY=" + payment, "OP=op"}
	require.True(t, life(t, "send", append(env, "KILL=attempt done")...).Killed)
	first := crashtest.Start(t, "", crashtest.Child("recover", env...))
	require.Eventually(t, func() bool { return len(srv.Requests()) == 2 }, 30*time.Second, time.Millisecond)
	var wg sync.WaitGroup
	for _, child := range []string{"recover", "send"} {
		wg.Go(func() {
			second := life(t, child, append(env, "KILL=")...)
			require.Equal(t, 1, second.Code)
			require.Contains(t, second.Stderr, "in use")
		})
	}
	wg.Wait()
	require.Len(t, srv.Requests(), 2)
	first.Kill()
	last := life(t, "recover", env...)
	require.Equal(t, []string{"201", "pending=0"}, last.Acks(), last.Stderr)
	srv.AssertOnce(t)
	srv.AssertNoOverlap(t)
	srv.AssertSameKey(t)
}

// A journal of the first format, as a release has left it: everything in it is found under its own key. That a newer
// format is refused, and its files left alone, is a test of package journal.
func TestCase_B74_GoldenJournalIsRecovered(t *testing.T) {
	dir := t.TempDir() + "/j"
	require.NoError(t, os.CopyFS(dir, os.DirFS("persist/journal/testdata/v1")))
	require.NoError(t, os.Chmod(dir, 0o700))
	store, err := journal.Open(t.Context(), dir, journal.Options{})
	require.NoError(t, err)
	defer func() { require.NoError(t, store.Close()) }()
	c := newClient(t, samekey.Config{Store: store, HTTPClient: &http.Client{Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
		require.Equal(t, "GET https://x.test/ops/1", r.Method+" "+r.URL.String(), "one was accepted, and is asked about; commands are not sent")
		return &http.Response{StatusCode: 200, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(`{"status":"succeeded"}`))}, nil
	})}})
	var mu sync.Mutex
	found := map[string]string{}
	note := func(op samekey.Operation, what string) {
		mu.Lock()
		defer mu.Unlock()
		found[op.ID] = op.Key + ", " + what
	}
	report, err := c.Recover(t.Context(), samekey.Recovery{
		Jitter: -1,
		Handle: func(_ context.Context, op samekey.Operation, resp *http.Response, err error) error {
			require.Equal(t, op.State == samekey.Conflicted, errors.Is(err, samekey.ErrConflict))
			note(op, strconv.Itoa(resp.StatusCode))
			return nil
		},
		Reconcile: func(_ context.Context, op samekey.Operation, why samekey.Why) (samekey.Verdict, error) {
			note(op, why.String())
			return samekey.Keep, nil
		},
	})
	require.NoError(t, err)
	require.Equal(t, samekey.Report{Succeeded: 1, Conflicted: 1, Pending: 1}, report)
	require.Equal(t, map[string]string{"answered": "k2, 409", "replaced": "new, key only", "full": "key, 200"}, found)
}

// grep returns the files below dir that hold one of the words.
func grep(t *testing.T, dir string, words ...string) (hits []string) {
	t.Helper()
	seen := 0
	require.NoError(t, filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		seen++
		for _, w := range words {
			if strings.Contains(string(b), w) {
				hits = append(hits, filepath.Base(path)+": "+w)
			}
		}
		return nil
	}))
	require.NotZero(t, seen)
	return hits
}

// What a store's directory tells to whoever reads it.
func TestCase_B72_FilesAtRest(t *testing.T) {
	const cardNumber = "4111-1111-1111-1111"
	body := `{"amount":100,"currency":"RUB","orderRef":"order-1","card":"` + cardNumber + `"}`
	run := func(t *testing.T, srv *mockserver.Server, policy samekey.Policy, f func(c *samekey.Client, store *journal.Journal, req func(name string) *http.Request)) string {
		dir := t.TempDir() + "/j"
		store, err := journal.Open(t.Context(), dir, journal.Options{})
		require.NoError(t, err)
		policy.Backoff = quick.Backoff
		policy.SecretQuery = []string{"sig"}
		c, err := samekey.New(samekey.Config{Store: store, Default: policy, Prepare: func(_ context.Context, r *http.Request) error {
			r.Header.Set("X-Signature", "PREPARESECRET")
			return nil
		}})
		require.NoError(t, err)
		f(c, store, func(name string) *http.Request {
			req := post(t, t.Context(), strings.Replace(srv.URL, "//", "//user:URLSECRET@", 1)+"/v1/payments?sig=QUERYSECRET", body)
			req.Header.Set("Cookie", "c=COOKIESECRET")
			req.Header.Set("X-Vendor-Token", "VENDORSECRET")
			if name != "" {
				req = samekey.Named(req, name)
			}
			return req
		})
		require.NoError(t, c.Close())
		require.NoError(t, store.Close())
		info, err := os.Stat(dir)
		require.NoError(t, err)
		require.Equal(t, os.FileMode(0o700), info.Mode().Perm())
		entries, err := os.ReadDir(dir)
		require.NoError(t, err)
		for _, e := range entries {
			info, err := e.Info()
			require.NoError(t, err)
			require.Equal(t, os.FileMode(0o600), info.Mode().Perm(), e.Name())
		}
		require.Empty(t, grep(t, dir, "URLSECRET", "VVJMU0VDUkVU", "QUERYSECRET", "COOKIESECRET", "VENDORSECRET", "PREPARESECRET", "ANSWERCOOKIE"))
		return dir
	}
	setCookie := mockserver.Fault{When: mockserver.AfterCommit, Do: mockserver.AnswerHeader("Set-Cookie", "session=ANSWERCOOKIE")}
	lost := mockserver.Fault{When: mockserver.AfterCommit, Do: mockserver.Drop, Times: 4}

	t.Run("pending and named operations keep their payload", func(t *testing.T) {
		srv := newServer(t, mockserver.Config{})
		srv.Fault(lost, setCookie)
		dir := run(t, srv, samekey.Policy{}, func(c *samekey.Client, _ *journal.Journal, req func(string) *http.Request) {
			_, err := c.Do(req("op"))
			require.ErrorIs(t, err, samekey.ErrUnknown)
			resp, err := c.Do(req("op"))
			require.NoError(t, err)
			read(t, resp)
		})
		require.NotEmpty(t, grep(t, dir, cardNumber), "this is what grep finds where it is")
	})
	t.Run("past its retention nothing is left", func(t *testing.T) {
		srv := newServer(t, mockserver.Config{})
		srv.Fault(setCookie)
		dir := run(t, srv, samekey.Policy{Retention: -1}, func(c *samekey.Client, store *journal.Journal, req func(string) *http.Request) {
			for _, name := range []string{"op", ""} {
				resp, err := c.Do(req(name))
				require.NoError(t, err)
				read(t, resp)
			}
			require.NoError(t, store.Compact(t.Context()))
		})
		require.Empty(t, grep(t, dir, cardNumber, "paymentId"))
	})
	t.Run("key only", func(t *testing.T) {
		srv := newServer(t, mockserver.Config{})
		srv.Fault(lost, setCookie)
		keyOnly := samekey.Policy{Persist: samekey.PersistKeyOnly, RequireName: samekey.On}
		dir := run(t, srv, keyOnly, func(c *samekey.Client, _ *journal.Journal, req func(string) *http.Request) {
			_, err := c.Do(req("op"))
			require.ErrorIs(t, err, samekey.ErrUnknown)
			resp, err := c.Do(req("op"))
			require.NoError(t, err)
			require.Contains(t, read(t, resp), "paymentId")
			_, err = c.Do(req("op"))
			require.ErrorIs(t, err, samekey.ErrExpired, "what became of it is known, the answer is not")
		})
		require.Empty(t, grep(t, dir, cardNumber, "4111", "paymentId", `"amount"`))
		srv.AssertOnce(t)
	})
	t.Run("none", func(t *testing.T) {
		srv := newServer(t, mockserver.Config{})
		srv.Fault(lost)
		dir := run(t, srv, samekey.Policy{Persist: samekey.PersistNone}, func(c *samekey.Client, store *journal.Journal, req func(string) *http.Request) {
			_, err := c.Do(req("op"))
			require.ErrorIs(t, err, samekey.ErrUnknown)
			require.Zero(t, count(t, store))
		})
		require.Empty(t, grep(t, dir, cardNumber, "op", srv.Keys()[0]))
	})
}
