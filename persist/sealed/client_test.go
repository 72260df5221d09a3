package sealed_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/samekey/samekey"
	"github.com/samekey/samekey/crashtest"
	"github.com/samekey/samekey/mockserver"
	"github.com/samekey/samekey/persist"
	"github.com/samekey/samekey/persist/journal"
	"github.com/samekey/samekey/persist/memory"
	"github.com/samekey/samekey/persist/sealed"
)

func TestMain(m *testing.M) { crashtest.Main(m, map[string]func() error{"pay": pay}) }

func newClient(t *testing.T, s persist.Store, cfg samekey.Config) *samekey.Client {
	t.Helper()
	cfg.Store = s
	c, err := samekey.New(cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	return c
}

func newServer(t *testing.T, cfg mockserver.Config) *mockserver.Server {
	t.Helper()
	srv := mockserver.NewServer(cfg)
	t.Cleanup(srv.Close)
	return srv
}

// do sends a command of this name.
func do(t *testing.T, c *samekey.Client, name, url, body string) (int, error) {
	t.Helper()
	return doIn(t.Context(), t, c, name, url, body)
}

func doIn(ctx context.Context, t *testing.T, c *samekey.Client, name, url, body string) (int, error) {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(body))
	require.NoError(t, err)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("X-Customer", "header-"+secret)
	resp, err := c.Do(samekey.Named(req, name))
	if err != nil {
		return 0, err
	}
	_, err = io.Copy(io.Discard, resp.Body)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	return resp.StatusCode, nil
}

// work has one operation of each kind end up in s, and returns what was kept of them that nobody should find.
func work(t *testing.T, s persist.Store) (hidden map[string]string) {
	srv := newServer(t, mockserver.Config{AsyncAfter: -1})
	refuses := false
	c := newClient(t, s, samekey.Config{
		Default: samekey.Policy{MaxAttempts: 2, Backoff: samekey.Backoff{Min: -1}, KeepHeaders: []string{"X-Customer"}, Await: samekey.On},
		Prepare: func(context.Context, *http.Request) error {
			if refuses {
				return errors.New("error-" + secret)
			}
			return nil
		},
	})
	pay := func(name string) (int, error) {
		return do(t, c, name, srv.URL+"/v1/payments?q=query-"+secret, `{"amount":100,"currency":"RUB","orderRef":"body-`+name+secret+`"}`)
	}
	srv.Fault(mockserver.Fault{When: mockserver.AfterCommit, Do: mockserver.AnswerHeader("X-Account", "answer-"+secret), Times: 1})
	status, err := pay("settled")
	require.NoError(t, err)
	require.Equal(t, 201, status)

	_, err = do(t, c, "settled", srv.URL+"/v1/payments?q=query-"+secret, `{"amount":101}`)
	require.ErrorIs(t, err, samekey.ErrMismatch, "the fingerprint tells")

	srv.Fault(mockserver.Fault{When: mockserver.AfterCommit, Do: mockserver.Status(409, true).Body(`{"error":"conflict-` + secret + `"}`), Times: 1})
	_, err = pay("conflicted")
	require.ErrorIs(t, err, samekey.ErrConflict)

	srv.Fault(mockserver.Fault{When: mockserver.AfterCommit, Do: mockserver.Drop, Times: 4})
	for _, name := range []string{"pending", "abandoned"} {
		_, err = pay(name)
		require.ErrorIs(t, err, samekey.ErrUnknown)
	}
	require.NoError(t, c.Abandon(t.Context(), samekey.Ref{ID: "abandoned"}, "reason-"+secret))
	refuses = true
	_, err = pay("pending")
	require.ErrorIs(t, err, samekey.ErrUnknown)
	refuses = false

	ctx, leave := context.WithCancel(t.Context())
	waits := newClient(t, s, samekey.Config{
		Default: samekey.Policy{Await: samekey.On},
		Observer: func(_ context.Context, e samekey.Event) { // the address is durable, and it waits for its time to ask
			if e.Step == samekey.StepWait {
				leave()
			}
		},
	})
	_, err = doIn(ctx, t, waits, "accepted", srv.URL+"/v1/orders", `{"async":true,"note":"order-`+secret+`"}`)
	require.ErrorIs(t, err, samekey.ErrUnknown)

	hidden = map[string]string{"target": "/v1/payments", "name of a header": "X-Customer"}
	for _, word := range []string{
		"header-", "query-", "body-settled", "body-conflicted", "body-pending", "body-abandoned", "order-", "answer-", "conflict-", "error-", "reason-",
	} {
		hidden[word] = word + secret
	}
	require.Len(t, srv.Keys(), 5)
	for i, key := range srv.Keys() {
		hidden[fmt.Sprint("key ", i)] = key
	}
	for rec, err := range s.List(t.Context(), persist.Filter{}) {
		require.NoError(t, err)
		hidden["fingerprint of "+rec.ID] = string(rec.Fingerprint[:])
		if rec.Progress.PollURL != "" {
			hidden["poll address"] = rec.Progress.PollURL
		}
	}
	require.Contains(t, hidden, "poll address")
	require.Len(t, hidden, 2+11+5+5+1)
	return hidden
}

// TestNothingOnDisk: of what a client has kept in a sealed journal, no file holds a word. In a plain one all is found.
func TestNothingOnDisk(t *testing.T) {
	for name, wrap := range map[string]func(persist.Store) persist.Store{
		"sealed": sealer(t, true, "k1").Store,
		"plain":  func(s persist.Store) persist.Store { return s },
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "journal")
			j, err := journal.Open(t.Context(), dir, journal.Options{SegmentSize: 64 << 10, Logger: quiet})
			require.NoError(t, err)
			s := wrap(j)
			hidden := work(t, s)
			require.NoError(t, s.Close())
			var all []byte
			for _, b := range snapshot(t, dir) {
				all = append(all, b...)
			}
			for what, word := range hidden {
				require.Equal(t, name == "plain", bytes.Contains(all, []byte(word)), what)
			}
			for _, id := range []string{"settled", "conflicted", "pending", "abandoned", "accepted"} {
				require.True(t, bytes.Contains(all, []byte(id)), "names are in the clear")
			}
		})
	}
}

// TestRecoverGoesOn: recovery finishes what it has the keys for, and neither sends the rest nor loses it.
func TestRecoverGoesOn(t *testing.T) {
	const n = 6
	srv, inner, ctx := newServer(t, mockserver.Config{}), memory.New(), t.Context()
	srv.Fault(mockserver.Fault{When: mockserver.AfterCommit, Do: mockserver.Drop, Times: 2 * n})
	body := func(i int) string {
		return fmt.Sprintf(`{"amount":%d,"currency":"RUB","orderRef":"order-%d"}`, i+1, i)
	}
	send := func(c *samekey.Client, i int) error {
		_, err := do(t, c, fmt.Sprint("op-", i), srv.URL+"/v1/payments", body(i))
		return err
	}
	once := samekey.Config{Default: samekey.Policy{MaxAttempts: 1, KeepHeaders: []string{"X-Customer"}}}
	for _, k := range []string{"k1", "k2"} { // those of the key that will be missing are the oldest
		c := newClient(t, sealer(t, true, k).Store(inner), once)
		for i := range n {
			if (i < n/2) == (k == "k1") {
				require.ErrorIs(t, send(c, i), samekey.ErrUnknown)
			}
		}
	}
	srv.ClearFaults()
	require.Len(t, srv.Requests(), n)

	plain := newClient(t, inner, samekey.Config{}) // who does not know that it is sealed
	report, err := plain.Recover(ctx, samekey.Recovery{Jitter: -1})
	require.NoError(t, err)
	require.Equal(t, samekey.Report{Pending: n}, report)
	require.ErrorIs(t, send(plain, 0), samekey.ErrMismatch)
	_, err = plain.Resume(ctx, samekey.Ref{ID: "op-0"})
	require.Error(t, err)
	_, err = plain.Rekey(ctx, samekey.Ref{ID: "op-0"})
	require.Error(t, err)
	require.Len(t, srv.Requests(), n, "it sends nothing")

	renewed := newClient(t, sealer(t, true, "k2").Store(inner), samekey.Config{})
	report, err = renewed.Recover(ctx, samekey.Recovery{Jitter: -1, Concurrency: 1})
	require.NoError(t, err)
	require.Equal(t, samekey.Report{Succeeded: n / 2}, report)
	err = send(renewed, 0)
	require.ErrorIs(t, err, samekey.ErrStore)
	var open *sealed.OpenError
	require.ErrorAs(t, err, &open)
	require.Equal(t, "k1", open.KeyID)
	require.Equal(t, samekey.EffectUnknown, samekey.EffectOf(err))
	require.Len(t, srv.Requests(), n+n/2, "nothing was sent of what does not open")

	both := newClient(t, sealer(t, true, "k2", "k1").Store(inner), samekey.Config{})
	report, err = both.Recover(ctx, samekey.Recovery{Jitter: -1})
	require.NoError(t, err)
	require.Equal(t, samekey.Report{Succeeded: n / 2}, report)
	srv.AssertOnce(t)
	srv.AssertSameKey(t)
	for i, r := range srv.Requests()[:n] {
		require.Equal(t, body(i), string(r.Body))
	}
	require.Len(t, srv.Keys(), n)
}

// TestSwappedOnDisk: who can write to the journal cannot have one operation's payload sent under another's name.
func TestSwappedOnDisk(t *testing.T) {
	srv, ctx := newServer(t, mockserver.Config{}), t.Context()
	srv.Fault(mockserver.Fault{When: mockserver.BeforeCommit, Do: mockserver.Drop, Times: 6})
	j, err := journal.Open(ctx, filepath.Join(t.TempDir(), "journal"), journal.Options{Logger: quiet})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, j.Close()) })
	once := samekey.Config{Default: samekey.Policy{MaxAttempts: 1, KeepHeaders: []string{"X-Customer"}}}
	c := newClient(t, sealer(t, true, "k1").Store(j), once)
	for i, id := range []string{"mine", "yours", "other"} {
		_, err := do(t, c, id, srv.URL+"/v1/payments", fmt.Sprintf(`{"amount":%d,"currency":"RUB","orderRef":%q}`, i+1, id))
		require.ErrorIs(t, err, samekey.ErrUnknown)
	}
	srv.ClearFaults()
	var es [2]persist.Entry
	for i, id := range []string{"mine", "yours"} {
		es[i], err = j.Claim(ctx, samekey.Ref{ID: id})
		require.NoError(t, err)
	}
	for i, e := range es {
		e.Body = es[1-i].Body
		require.NoError(t, j.Replace(ctx, e.Claim, e.Record))
		require.NoError(t, j.Release(ctx, e.Claim))
	}
	report, err := c.Recover(ctx, samekey.Recovery{Jitter: -1})
	require.NoError(t, err)
	require.Equal(t, samekey.Report{Succeeded: 1}, report)
	require.Equal(t, 1, srv.EffectsOf("other"))
	require.Equal(t, 1, srv.Effects())
	_, err = c.Operation(ctx, samekey.Ref{ID: "mine"})
	require.ErrorIs(t, err, sealed.ErrChanged)
	require.NoError(t, c.Forget(ctx, samekey.Ref{ID: "mine"}))
}

// pay is a program that pays for one order, and in mode "recover" first finishes what its last life has left.
func pay() (err error) {
	ctx := context.Background()
	o := sealed.Options{Strict: true}
	for id := range strings.SplitSeq(os.Getenv("KEYS"), ",") {
		o.Keys = append(o.Keys, key(id))
	}
	s, err := sealed.New(o)
	if err != nil {
		return err
	}
	j, err := journal.Open(ctx, os.Getenv("DIR"), journal.Options{})
	if err != nil {
		return err
	}
	store := s.Store(j)
	defer func() { err = errors.Join(err, store.Close()) }()
	client, err := samekey.New(samekey.Config{Store: store, Observer: crashtest.Observer(), Default: samekey.Policy{Backoff: samekey.Backoff{Min: -1}}})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, client.Close()) }()
	if os.Getenv("MODE") == "recover" {
		if _, err := client.Recover(ctx, samekey.Recovery{Jitter: -1}); err != nil {
			return err
		}
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, os.Getenv("URL")+"/v1/payments", strings.NewReader(order))
	if err != nil {
		return err
	}
	resp, err := client.Do(samekey.Named(req, "order-1/charge"))
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, resp.Body)
	crashtest.Ack("%d", resp.StatusCode)
	return errors.Join(err, resp.Body.Close())
}

const order = `{"amount": 100, "currency": "RUB", "orderRef": "` + secret + `"}`

// TestKilled kills a program with a sealed journal at each point that it passes. The next life has a new key to seal with,
// and goes on under the operation's own key, byte for byte.
func TestKilled(t *testing.T) {
	for _, mode := range []string{"again", "recover"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			bank := func(t *testing.T) *mockserver.Server {
				srv := newServer(t, mockserver.Config{})
				srv.Fault(mockserver.Fault{When: mockserver.AfterCommit, Do: mockserver.CutBody, Times: 1}) // so that there are two attempts
				return srv
			}
			child := func(dir, url, keys string) *exec.Cmd {
				return crashtest.Child("pay", "DIR="+dir, "URL="+url, "KEYS="+keys, "MODE="+mode)
			}
			points := crashtest.Passed(t, child(filepath.Join(t.TempDir(), "journal"), bank(t).URL, "k1"))
			require.Contains(t, points, "begun")
			require.Contains(t, points, "first byte/2")
			crashtest.Each(t, points, func(t *testing.T, _ string) crashtest.Case {
				t.Parallel()
				dir, srv := filepath.Join(t.TempDir(), "journal"), bank(t)
				keys := []string{"k1", "k2,k1"}
				return crashtest.Case{
					Command: func() *exec.Cmd {
						cmd := child(dir, srv.URL, keys[0])
						keys = keys[1:]
						return cmd
					},
					Check: func(lives []crashtest.Life) {
						last := lives[len(lives)-1]
						require.Zero(t, last.Code, last.Stderr)
						require.Equal(t, []string{"201"}, last.Acks())
						srv.AssertOnce(t)
						srv.AssertSameKey(t)
						require.Len(t, srv.Keys(), 1)
						for _, r := range srv.Requests() {
							require.Equal(t, order, string(r.Body))
						}
						for name, b := range snapshot(t, dir) {
							require.False(t, bytes.Contains(b, []byte(secret)), name)
							require.False(t, bytes.Contains(b, []byte(srv.Keys()[0])), name)
						}
					},
				}
			})
		})
	}
}

// TestAnswerMadeWithoutTheKey: whoever can write to the inner store cannot make the answer of a sealed operation, Strict
// or not.
func TestAnswerMadeWithoutTheKey(t *testing.T) {
	srv, inner, ctx := newServer(t, mockserver.Config{}), memory.New(), t.Context()
	srv.Fault(mockserver.Fault{When: mockserver.BeforeCommit, Do: mockserver.Drop, Times: 1})
	c := newClient(t, sealer(t, false, "k1").Store(inner), samekey.Config{Default: samekey.Policy{MaxAttempts: 1}})
	send := func() error {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, srv.URL+"/v1/payments", strings.NewReader(`{"amount":1,"currency":"RUB"}`))
		require.NoError(t, err)
		_, err = c.Do(samekey.Named(req, "op")) //nolint:bodyclose // there is none
		return err
	}
	require.ErrorIs(t, send(), samekey.ErrUnknown)
	e, err := inner.Claim(ctx, persist.Ref{ID: "op"})
	require.NoError(t, err)
	keep := time.Now().Add(time.Hour)
	require.NoError(t, inner.Settle(ctx, e.Claim, persist.Answer{State: persist.Succeeded, Status: 201, Body: []byte(`{"resultId":"forged"}`), KeepBody: keep, KeepName: keep}))
	require.ErrorIs(t, send(), sealed.ErrChanged)
	require.Empty(t, srv.Effects())
}
