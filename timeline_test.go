package samekey_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/samekey/samekey"
	"github.com/samekey/samekey/crashtest"
	"github.com/samekey/samekey/mockserver"
	"github.com/samekey/samekey/persist"
	"github.com/samekey/samekey/persist/journal"
)

func TestMain(m *testing.M) {
	crashtest.Main(m, map[string]func() error{"send": childSend, "recover": childRecover, "limited": childLimited})
}

// life runs a child to its end.
func life(t *testing.T, child string, env ...string) crashtest.Life {
	t.Helper()
	return crashtest.Run(t, "", crashtest.Child(child, env...))
}

// journalClient is what both processes do first.
func journalClient(dir string, cfg samekey.Config) (*samekey.Client, func() error, error) {
	store, err := journal.Open(context.Background(), dir, journal.Options{})
	if err != nil {
		return nil, nil, err
	}
	cfg.Store = store
	c, err := samekey.New(cfg)
	if err != nil {
		return nil, nil, err
	}
	return c, func() error { return errors.Join(c.Close(), store.Close()) }, nil
}

// childSend places one order under the name in OP (none: anonymous), reads the answer, and dies at KILL.
func childSend() error {
	c, done, err := journalClient(os.Getenv("DIR"), samekey.Config{Default: quick, Observer: crashtest.KillAt(os.Getenv("KILL"))})
	if err != nil {
		return err
	}
	req, err := http.NewRequest(http.MethodPost, os.Getenv("URL"), strings.NewReader(os.Getenv("BODY")))
	if err != nil {
		return err
	}
	if op := os.Getenv("OP"); op != "" {
		req = samekey.Named(req, op)
	}
	resp, err := c.Do(req)
	if err != nil {
		crashtest.Ack("error")
		crashtest.Ack("%s", samekey.EffectOf(err))
		return done()
	}
	if os.Getenv("KILL") == "unread" {
		crashtest.Kill()
	}
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		return err
	}
	if err := resp.Body.Close(); err != nil {
		return err
	}
	crashtest.Ack("%d", resp.StatusCode)
	info, _ := samekey.InfoOf(resp)
	crashtest.Ack("%s", info.Source)
	if os.Getenv("KILL") == "answered" {
		crashtest.Kill()
	}
	return done()
}

// childRecover finishes what is there and prints each answer's status.
func childRecover() error {
	c, done, err := journalClient(os.Getenv("DIR"), samekey.Config{Default: quick})
	if err != nil {
		return err
	}
	report, err := c.Recover(context.Background(), samekey.Recovery{Jitter: -1, Handle: func(_ context.Context, _ samekey.Operation, resp *http.Response, _ error) error {
		crashtest.Ack("%d", resp.StatusCode)
		return nil
	}})
	crashtest.Ack("pending=%d", report.Pending)
	return errors.Join(err, done())
}

// killPoints are all steps of the first attempt, those of a second one after a lost answer, and the caller's own.
var killPoints = []string{
	"begin", "begun", "attempt", "connected", "header written", "body written", "first byte", "attempt done", "wait",
	"attempt/2", "connected/2", "header written/2", "first byte/2", "attempt done/2", "outcome", "unread", "settled", "answered",
}

// TestTimelineKilledBetweenAnyTwoSteps kills a process at every step, and lets a second one run the same code again
// (named), or recover (anonymous). The first answer is lost after its effect, so that each life has two attempts.
func TestTimelineKilledBetweenAnyTwoSteps(t *testing.T) {
	for _, named := range []bool{true, false} {
		for _, point := range killPoints {
			t.Run(fmt.Sprintf("named=%v/%s", named, point), func(t *testing.T) {
				t.Parallel()
				srv := newServer(t, mockserver.Config{})
				srv.Fault(mockserver.Fault{When: mockserver.AfterCommit, Do: mockserver.StallBody(50 * time.Millisecond), Times: 1})
				env := []string{"DIR=" + t.TempDir() + "/j", "URL=" + srv.URL + "/v1/payments", "BODY=" + payment}
				op := ""
				if named {
					op = "order-1/charge"
				}
				first := life(t, "send", append(env, "OP="+op, "KILL="+point)...)
				require.True(t, first.Killed, "%+v", first)
				before := len(srv.Requests())

				if named {
					second := life(t, "send", append(env, "OP="+op, "KILL=")...)
					require.Equal(t, 0, second.Code, second.Stderr)
					require.Equal(t, "201", second.Acks()[0], "the answer reaches the caller")
					require.Equal(t, 1, srv.Effects())
				} else {
					second := life(t, "recover", env...)
					require.Equal(t, 0, second.Code, second.Stderr)
					require.Equal(t, "pending=0", second.Acks()[len(second.Acks())-1])
					switch point {
					case "begin": // never begun: nothing was sent, and nothing is
						require.Zero(t, srv.Effects())
						require.Equal(t, []string{"pending=0"}, second.Acks())
					case "settled", "answered": // the caller had it; a settle that was only buffered costs one repeat
						require.Equal(t, 1, srv.Effects())
					default:
						require.Equal(t, 1, srv.Effects())
						require.Equal(t, "201", second.Acks()[0], "an answer that the first process never had is handed over")
					}
				}
				if srv.Effects() > 0 {
					srv.AssertOnce(t)
					srv.AssertSameKey(t)
				}
				third := life(t, "recover", env...)
				require.Equal(t, []string{"pending=0"}, third.Acks())
				if point == "begin" {
					require.Zero(t, before, "no byte before the key is durable")
				}
			})
		}
	}
}

// A rejection was told: it holds after a kill, without the network; another payload is a new intent under a new key.
func TestTimelineRejectionSettledThenKilled(t *testing.T) {
	srv := newServer(t, mockserver.Config{})
	env := []string{"DIR=" + t.TempDir() + "/j", "URL=" + srv.URL + "/v1/payments", "OP=order-1/charge"}
	bad := strings.Replace(payment, "100", "-1", 1)
	first := life(t, "send", append(env, "BODY="+bad, "KILL=answered")...)
	require.True(t, first.Killed)
	require.Equal(t, []string{"400", "network"}, first.Acks())
	second := life(t, "send", append(env, "BODY="+bad, "KILL=")...)
	require.Equal(t, []string{"400", "local"}, second.Acks(), second.Stderr)
	require.Len(t, srv.Requests(), 1)
	third := life(t, "send", append(env, "BODY="+payment, "KILL=")...)
	require.Equal(t, []string{"201", "network"}, third.Acks(), third.Stderr)
	require.Len(t, srv.Keys(), 2, "a new intent, a new key")
	require.Equal(t, 1, srv.Effects())
}

// childLimited cannot write its journal: the kernel refuses every byte beyond what is there (RLIMIT_FSIZE).
func childLimited() error {
	store, err := journal.Open(context.Background(), os.Getenv("DIR"), journal.Options{SegmentSize: 64 << 10})
	if err != nil {
		return err
	}
	c, err := samekey.New(samekey.Config{Store: store, Default: quick})
	if err != nil {
		return err
	}
	if os.Getenv("LIMIT") != "" {
		if err := limitFileSize(); err != nil {
			return err
		}
	}
	body := `{"amount":1,"currency":"RUB","pad":"` + strings.Repeat("x", 20<<10) + `"}`
	for i := range 60 {
		req, err := http.NewRequest(http.MethodPost, os.Getenv("URL"), strings.NewReader(body))
		if err != nil {
			return err
		}
		resp, err := c.Do(samekey.Named(req, fmt.Sprintf("op-%d", i)))
		var refused *samekey.StoreError
		switch {
		case err == nil:
			_ = resp.Body.Close()
			crashtest.Ack("ok-%d", i)
		case errors.As(err, &refused):
			crashtest.Ack("refused-%d-%v", i, refused.MayBeRecorded)
		default:
			return err
		}
	}
	return nil // as it is: no Close
}

// TestTimelineJournalCannotBeWritten: what was refused was not sent, and a later process sends nothing of it.
func TestTimelineJournalCannotBeWritten(t *testing.T) {
	check := func(t *testing.T, dir, want string, prepare, mend func(), env ...string) {
		srv := newServer(t, mockserver.Config{})
		vars := append([]string{"DIR=" + dir, "URL=" + srv.URL + "/v1/payments"}, env...)
		prepare()
		r := life(t, "limited", vars...)
		var ok, refused, maybe int
		for _, ack := range r.Acks() {
			switch {
			case strings.HasPrefix(ack, "ok-"):
				ok++
			case strings.HasSuffix(ack, "-true"):
				maybe++
			default:
				refused++
			}
		}
		t.Logf("%s: sent %d, refused %d, may be recorded %d, exit %d: %s", want, ok, refused, maybe, r.Code, r.Stderr)
		if r.Code == 0 {
			require.Positive(t, refused+maybe, "nothing was refused")
		} else {
			require.Zero(t, ok, "a journal that does not open sends nothing")
		}
		require.Equal(t, ok, srv.Effects(), "the server sees exactly what was not refused")
		require.Len(t, srv.Requests(), ok)
		mend()
		again := life(t, "recover", vars...)
		require.Equal(t, 0, again.Code, again.Stderr)
		assert.Equal(t, ok, srv.Effects(), "and nothing of the rest later")
		if ok > 0 {
			srv.AssertSameKey(t)
		}
	}
	nothing := func() {}
	t.Run("file size limit", func(t *testing.T) {
		check(t, t.TempDir()+"/j", "EFBIG", nothing, nothing, "LIMIT=1")
	})
	mount := func(t *testing.T, options string) string {
		dir := t.TempDir()
		if err := mountTmpfs(dir, options); err != nil {
			if os.Getenv("SAMEKEY_REQUIRE_SERVICES") == "1" {
				t.Fatalf("a tmpfs cannot be mounted: %v", err)
			}
			t.Skipf("needs the right to mount a tmpfs (run as root): %v", err)
		}
		t.Cleanup(func() { assert.NoError(t, unmount(dir)) })
		return dir
	}
	t.Run("full tmpfs", func(t *testing.T) {
		dir := mount(t, "size=1m")
		check(t, dir+"/j", "ENOSPC", nothing, func() { require.NoError(t, remount(dir, false, "size=16m")) })
	})
	t.Run("tmpfs full from the start", func(t *testing.T) {
		dir := mount(t, "size=2m")
		fill := func() { _ = os.WriteFile(dir+"/ballast", make([]byte, 4<<20), 0o600) }
		check(t, dir+"/j", "ENOSPC", fill, func() { require.NoError(t, os.Remove(dir+"/ballast")) })
	})
	t.Run("read-only mount", func(t *testing.T) {
		dir := mount(t, "size=16m")
		check(t, dir+"/j", "EROFS", func() { require.NoError(t, remount(dir, true, "")) }, func() { require.NoError(t, remount(dir, false, "")) })
	})
}

// failing is a store whose methods fail when told to.
type failing struct {
	persist.Store
	begin, settle, mark func() error
}

func (f *failing) Begin(ctx context.Context, r persist.Record) (persist.Entry, error) {
	if f.begin != nil {
		if err := f.begin(); err != nil {
			return persist.Entry{}, err
		}
	}
	return f.Store.Begin(ctx, r)
}

func (f *failing) Settle(ctx context.Context, c persist.Claim, a persist.Answer) error {
	if f.settle != nil {
		if err := f.settle(); err != nil {
			return err
		}
	}
	return f.Store.Settle(ctx, c, a)
}

func (f *failing) Mark(ctx context.Context, c persist.Claim, p persist.Progress) error {
	if f.mark != nil {
		if err := f.mark(); err != nil {
			return err
		}
	}
	return f.Store.Mark(ctx, c, p)
}

var errDisk = &persist.Error{Store: "test", Method: "Sync", Err: syscall.EIO}

// A begin that failed is refused, and a restart finds nothing of it.
func TestTimelineBeginFailedAndARestart(t *testing.T) {
	srv := newServer(t, mockserver.Config{})
	store := newStore(t)
	c := newClient(t, samekey.Config{Store: &failing{Store: store, begin: func() error { return errDisk }}, Default: quick})
	_, err := c.Do(samekey.Named(post(t, t.Context(), srv.URL+"/v1/payments", payment), "op"))
	require.ErrorIs(t, err, samekey.ErrStore)
	require.ErrorIs(t, err, syscall.EIO)
	require.Equal(t, samekey.EffectUnknown, samekey.EffectOf(err), "the store has not said whether the name is new")
	_, err = c.Do(post(t, t.Context(), srv.URL+"/v1/payments", payment))
	require.Equal(t, samekey.EffectNone, samekey.EffectOf(err), "an anonymous one cannot have been sent before")
	require.NoError(t, c.Close())

	again := newClient(t, samekey.Config{Store: store, Default: quick})
	report, err := again.Recover(t.Context(), samekey.Recovery{Jitter: -1})
	require.NoError(t, err)
	require.Zero(t, report)
	require.Empty(t, srv.Requests())
}

// "No effect" is told only once it is durable: else the answer is unknown, with the response inside.
func TestTimelineNoEffectWhoseSettleFails(t *testing.T) {
	for _, status := range []int{400, 401, 404} {
		srv := newServer(t, mockserver.Config{})
		srv.Fault(mockserver.Fault{Do: mockserver.Status(status, false), Times: 1})
		store := newStore(t)
		c := newClient(t, samekey.Config{Store: &failing{Store: store, settle: func() error { return errDisk }}, Default: quick})
		_, err := c.Do(samekey.Named(post(t, t.Context(), srv.URL+"/v1/payments", payment), "op"))
		var unknown *samekey.OutcomeUnknownError
		require.ErrorAs(t, err, &unknown)
		require.Equal(t, status, unknown.Last.Status)
		require.ErrorIs(t, err, syscall.EIO)
		require.Equal(t, samekey.EffectUnknown, samekey.EffectOf(err))
		require.NoError(t, c.Close())
		require.Equal(t, 1, pending(t, store))

		again := newClient(t, samekey.Config{Store: store, Default: quick})
		resp, err := again.Do(samekey.Named(post(t, t.Context(), srv.URL+"/v1/payments", payment), "op"))
		require.NoError(t, err)
		require.Equal(t, 201, resp.StatusCode)
		read(t, resp)
		srv.AssertSameKey(t)
		require.Equal(t, 1, srv.Effects())
	}
}

// A 402 after a timeout, the first attempt still under way: where the server stores rejections it is the operation's
// outcome; where it does not, the first attempt may yet succeed.
func TestTimelineDeclinedWhileTheFirstAttemptIsUnderWay(t *testing.T) {
	for _, stores := range []bool{true, false} {
		srv := newServer(t, mockserver.Config{})
		srv.Fault(mockserver.Fault{Do: mockserver.Delay(300 * time.Millisecond), Times: 1},
			mockserver.Fault{Do: mockserver.Status(402, false), Times: 1})
		policy := quick
		policy.AttemptTimeout = 100 * time.Millisecond
		policy.Contract = &samekey.Contract{StoresRejections: stores, Life: time.Hour}
		store := newStore(t)
		c := newClient(t, samekey.Config{Store: store, Default: policy})
		resp, err := c.Do(samekey.Named(post(t, t.Context(), srv.URL+"/v1/payments", payment), "op"))
		if stores {
			require.NoError(t, err)
			require.Equal(t, 402, resp.StatusCode)
			read(t, resp)
			require.Equal(t, 1, count(t, store, samekey.Rejected))
			continue
		}
		var unknown *samekey.OutcomeUnknownError
		require.ErrorAs(t, err, &unknown)
		require.Equal(t, 402, unknown.Last.Status)
		require.Equal(t, 1, pending(t, store))
		resp, err = c.Do(samekey.Named(post(t, t.Context(), srv.URL+"/v1/payments", payment), "op"))
		require.NoError(t, err, "the same name again learns what became of it")
		require.Equal(t, 201, resp.StatusCode)
		read(t, resp)
		srv.AssertOnce(t)
	}
}
