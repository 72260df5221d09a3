package tool

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/samekey/samekey"
	"github.com/samekey/samekey/mockserver"
	"github.com/samekey/samekey/persist"
)

// begin records an operation that has not been sent, or not by a client.
func begin(t *testing.T, dir string, r persist.Record) persist.Record {
	t.Helper()
	if r.Method == "" {
		r.Method = "POST"
	}
	if r.Created.IsZero() {
		r.Created = time.Now()
	}
	if r.Body == nil && r.ID != "keyonly" {
		r.Body = []byte(`{"amount":100}`)
	}
	if r.KeyLife == 0 {
		r.KeyLife = time.Hour
	}
	if r.Named = r.ID != r.Key; r.Progress.Attempts > 0 && r.Progress.FirstSent.IsZero() {
		r.Progress.FirstSent = time.Now()
	}
	j := openJournal(t, dir)
	e, err := j.Begin(t.Context(), r)
	require.NoError(t, err)
	require.NoError(t, j.Release(t.Context(), e.Claim))
	require.NoError(t, j.Close())
	return r
}

const aKey = "3f2a9c1d-0000-4000-8000-000000000001"

func headerOf(name, key string) http.Header {
	return http.Header{"Content-Type": {"application/json"}, name: {key}}
}

// lost makes a journal with one pending operation whose answers were all lost.
func lost(t *testing.T, srv *mockserver.Server, name string) string {
	t.Helper()
	dir := newDir(t)
	always(srv, mockserver.AfterCommit, mockserver.Status(503, false))
	fill(t, dir, samekey.Config{Default: samekey.Policy{MaxAttempts: 2}}, func(c *samekey.Client) {
		require.ErrorIs(t, pay(t, c, srv.URL, name, 100), samekey.ErrUnknown)
	})
	srv.ClearFaults()
	return dir
}

func TestBesideLivingOwner(t *testing.T) {
	srv := newServer(t)
	dir := lost(t, srv, "order-1")
	cmd, in, out := start(t, "hold", dir)
	_, err := out.ReadString('\n')
	require.NoError(t, err)
	pid := fmt.Sprint(cmd.Process.Pid)
	locks, _ := os.ReadFile("/proc/locks")
	told := runtime.GOOS == "linux" && regexp.MustCompile(` `+pid+` `).Match(locks)

	for _, args := range [][]string{{"check", dir}, {"list", dir}, {"show", dir, "order-1"}, {"stats", dir}} {
		r := run(t, args...)
		require.Zero(t, r.code, r.err)
		require.Contains(t, r.out, "pending")
		if told && (args[0] == "check" || args[0] == "stats") {
			require.Contains(t, r.out, "process "+pid+" (")
		}
	}
	require.Len(t, listed(t, dir), 1)
	before := record(t, dir, "", "order-1")
	var refused sync.WaitGroup
	for _, args := range [][]string{{"abandon", dir, "order-1", "-reason", "x"}, {"forget", dir, "order-1", "-yes"}, {"rekey", dir, "order-1", "-yes"},
		{"resume", dir, "order-1"}, {"resume", dir, "-all"}} {
		refused.Go(func() {
			r := run(t, args...)
			assert.Equal(t, 3, r.code, r.err)
			assert.Contains(t, r.err, dir+" is in use by ")
			if told {
				assert.Contains(t, r.err, "process "+pid+" (")
			}
			assert.Empty(t, r.out)
		})
	}
	refused.Wait()
	require.Equal(t, before, record(t, dir, "", "order-1"))

	require.NoError(t, in.Close())
	require.NoError(t, cmd.Wait())
	require.Zero(t, run(t, "abandon", dir, "order-1", "-reason", "x").code)
}

func TestDamage(t *testing.T) {
	srv := newServer(t)
	dir := newDir(t)
	fill(t, dir, samekey.Config{}, func(c *samekey.Client) {
		for i := range 4 {
			require.NoError(t, pay(t, c, srv.URL, fmt.Sprintf("order-%d", i), 100))
		}
	})
	segments, err := filepath.Glob(filepath.Join(dir, "*.seg"))
	require.NoError(t, err)
	hit := false
	for _, path := range segments {
		b, err := os.ReadFile(path)
		require.NoError(t, err)
		if at := bytes.Index(b, []byte(`"orderRef":"order-1"`)); at > 0 {
			copy(b[at:], "################") // more than one flipped bit, which the journal may mend
			require.NoError(t, os.WriteFile(path, b, 0o600))
			hit = true
		}
	}
	require.True(t, hit)

	r := run(t, "check", dir)
	require.Equal(t, 1, r.code, r.err)
	require.Regexp(t, `verdict +DAMAGED in 1 place\n`, r.out)
	require.Regexp(t, `damaged +0000000001\.seg: \d+ bytes at \d+: checksum mismatch.*, to be kept in quarantine-\S+ once the journal is opened`, r.out)
	r = run(t, "check", dir, "-json")
	require.Equal(t, 1, r.code)
	var c checked
	require.NoError(t, json.Unmarshal([]byte(r.out), &c))
	require.False(t, c.Sound)
	require.Len(t, c.Damage, 1)
	require.False(t, c.Damage[0].Kept)
	require.Empty(t, c.SetAside)

	r = run(t, "list", dir)
	require.Equal(t, 1, r.code)
	require.Contains(t, r.err, "damaged in 1 place")
	require.NotContains(t, r.out, "order-1 ")
	for _, id := range []string{"order-0", "order-2", "order-3"} {
		require.Contains(t, r.out, id, "what is whole is listed")
	}
	require.Equal(t, 1, run(t, "stats", dir).code)
	r = run(t, "show", dir, "order-1")
	require.Equal(t, 1, r.code)
	require.Contains(t, r.err, "damaged")
	require.Zero(t, run(t, "show", dir, "order-2").code)

	r = run(t, "forget", dir, "order-3", "-yes")
	require.Zero(t, r.code, r.err)
	require.Regexp(t, `damaged: .* kept in quarantine-`, r.err)
	require.Regexp(t, `set aside +quarantine-\S+, \d+ B`, run(t, "check", dir).out)
	j := openJournal(t, dir) // takes what is whole out of the damaged file, in the background, and removes it
	require.Eventually(t, func() bool { return run(t, "check", dir).code == 0 }, 10*time.Second, 10*time.Millisecond)
	require.NoError(t, j.Close())
	require.Regexp(t, `verdict +sound\n(.*\n)+set aside +quarantine-\S+, \d+ B`, run(t, "check", dir).out)
}

// TestKilledThenResumed: what a killed program has left is listed, and sent again under its own keys.
func TestKilledThenResumed(t *testing.T) {
	srv := newServer(t)
	srv.Fault(mockserver.Fault{When: mockserver.AfterCommit, Do: mockserver.Stall(0), Skip: 2})
	dir := newDir(t)
	cmd, _, out := start(t, "send", dir, srv.URL)
	for range 2 {
		_, err := out.ReadString('\n')
		require.NoError(t, err)
	}
	require.Eventually(t, func() bool { return srv.Effects() == 6 }, 10*time.Second, 5*time.Millisecond)
	require.NoError(t, cmd.Process.Kill())
	_ = cmd.Wait()
	srv.ClearFaults()

	require.Zero(t, run(t, "check", dir).code)
	ops := listed(t, dir, "-state", "pending")
	require.GreaterOrEqual(t, len(ops), 4, "a success may be in the buffer when it is told")
	r := run(t, "resume", dir, "-all", "-json")
	require.Zero(t, r.code, r.err)
	require.Equal(t, len(ops), strings.Count(r.out, `"state":"succeeded","status":201,"source":"replay","attempts":2}`), r.out)
	require.Empty(t, listed(t, dir, "-state", "pending"))
	require.Len(t, listed(t, dir, "-state", "succeeded"), 6)
	require.Equal(t, 6, srv.Effects())
	srv.AssertOnce(t)
	srv.AssertSameKey(t)

	fill(t, dir, samekey.Config{}, func(c *samekey.Client) {
		require.NoError(t, pay(t, c, srv.URL, "order-3", 100), "the program gets the answer that the tool has fetched")
	})
	require.Equal(t, 6+len(ops), len(srv.Requests()))
}

func TestAbandon(t *testing.T) {
	srv := newServer(t)
	dir := lost(t, srv, "order-1")
	r := run(t, "abandon", dir, "order-1", "-reason", "refunded by hand")
	require.Zero(t, r.code, r.err)
	require.Contains(t, r.out, "abandoned order-1: pending after 2 attempts, the last answered with 503")
	require.Contains(t, run(t, "show", dir, "order-1").out, "refunded by hand")
	fill(t, dir, samekey.Config{}, func(c *samekey.Client) {
		err := pay(t, c, srv.URL, "order-1", 100)
		require.ErrorIs(t, err, samekey.ErrExpired)
		require.ErrorContains(t, err, "refunded by hand")
	})
	require.Equal(t, 1, run(t, "abandon", dir, "order-1", "-reason", "again").code)
}

func TestForgetAsks(t *testing.T) {
	srv := newServer(t)
	dir := lost(t, srv, "order-1")
	begin(t, dir, persist.Record{Ref: persist.Ref{ID: "unsent"}, Key: aKey, Target: srv.URL, Header: headerOf("Idempotency-Key", aKey)})
	r := run(t, "forget", dir, "unsent")
	require.Zero(t, r.code, r.err)
	require.Contains(t, r.out, "forgot unsent: pending after 0 attempts")

	for _, answer := range []string{"", "no\n", "y\n", "\n"} { // "": nobody is there to ask
		r := inside(t, answer, "forget", dir, "order-1")
		require.Equal(t, 1, r.code)
		require.Contains(t, r.err, "may have been sent, and the server may have acted on it")
		require.Contains(t, r.err, "a new key, which the server takes for a new command")
		require.Contains(t, r.err, "not confirmed: nothing was done")
		require.Equal(t, answer == "", strings.Contains(r.err, "-yes"))
		require.Equal(t, answer != "", strings.Contains(r.err, `Type "yes"`))
		require.Empty(t, r.out)
	}
	require.Len(t, listed(t, dir), 1)
	require.Zero(t, inside(t, "yes\n", "forget", dir, "order-1").code)
	require.Empty(t, listed(t, dir))

	fill(t, dir, samekey.Config{}, func(c *samekey.Client) {
		require.NoError(t, pay(t, c, srv.URL, "done", 100))
		require.NoError(t, pay(t, c, srv.URL, "declined", mockserver.DeclinedAmount))
	})
	require.Contains(t, run(t, "forget", dir, "done").err, "has happened")
	require.Zero(t, run(t, "forget", dir, "declined").code, "a rejection had no effect")
	require.Zero(t, run(t, "forget", dir, "done", "-yes").code)

	gone := goldenJournal(t)
	r = run(t, "forget", gone, "order-1/charge")
	require.Equal(t, 1, r.code)
	require.Contains(t, r.err, "order-1/charge has happened (succeeded, only the name is kept)")
	require.Zero(t, run(t, "forget", gone, "order-1/charge", "-yes").code)
	require.Equal(t, 1, run(t, "show", gone, "order-1/charge").code)
}

// TestChangedWhileAsking: nobody holds the journal while somebody thinks, and a yes is to what was shown.
func TestChangedWhileAsking(t *testing.T) {
	srv := newServer(t)
	dir := lost(t, srv, "order-1")
	var out, errOut bytes.Buffer
	tl := &tool{out: &out, err: &errOut, env: os.LookupEnv, now: time.Now, asks: true, in: reader(func() string {
		require.Zero(t, run(t, "resume", dir, "order-1").code, "not locked")
		return "yes\n"
	})}
	require.Equal(t, 1, tl.main(t.Context(), []string{"forget", dir, "order-1"}))
	require.Contains(t, errOut.String(), "has changed meanwhile, nothing was done")
	require.Len(t, listed(t, dir, "-state", "succeeded"), 1)

	ctx, cancel := context.WithCancel(t.Context())
	tl.in = reader(func() string { cancel(); time.Sleep(time.Second); return "yes\n" })
	require.Equal(t, 1, tl.main(ctx, []string{"forget", dir, "order-1"}))
	require.Contains(t, errOut.String(), "interrupted: nothing was done")
	require.Len(t, listed(t, dir), 1)
}

type reader func() string

func (f reader) Read(p []byte) (int, error) { return copy(p, f()), nil }

func TestRekey(t *testing.T) {
	srv := newServer(t)
	dir := lost(t, srv, "order-1")
	old := record(t, dir, "", "order-1")
	require.Equal(t, 1, run(t, "rekey", dir, "order-1").code)
	require.Equal(t, old, record(t, dir, "", "order-1"))
	r := run(t, "rekey", dir, "order-1", "-yes")
	require.Zero(t, r.code, r.err)
	rec := record(t, dir, "", "order-1")
	require.NotEqual(t, old.Key, rec.Key)
	require.Contains(t, r.out, short(old.Key)+" is now "+short(rec.Key))
	require.Equal(t, []string{rec.Key}, rec.Header["Idempotency-Key"])
	require.Equal(t, old.Body, rec.Body)
	require.Equal(t, 24*time.Hour, rec.KeyLife)
	require.Zero(t, rec.Progress.Attempts)
	require.Equal(t, 1, srv.Effects(), "nothing was sent")
	require.Zero(t, run(t, "rekey", dir, "order-1").code, "not sent under the second key: nothing to confirm")
	require.Zero(t, run(t, "resume", dir, "order-1").code)
	require.Equal(t, 2, srv.Effects(), "as the text says")

	// The form, the header and the life of the old key are kept.
	begin(t, dir, persist.Record{Ref: persist.Ref{ID: "ulid"}, Key: "01ARZ3NDEKTSV4RRFFQ69G5FAV", Target: srv.URL, KeyLife: -1,
		Header: headerOf("X-Request-Key", `"01ARZ3NDEKTSV4RRFFQ69G5FAV"`), Progress: persist.Progress{Attempts: 1}})
	require.Zero(t, run(t, "rekey", dir, "ulid", "-yes").code)
	rec = record(t, dir, "", "ulid")
	require.True(t, isULID(rec.Key))
	require.Equal(t, []string{`"` + rec.Key + `"`}, rec.Header["X-Request-Key"])
	require.NotContains(t, rec.Header, "Idempotency-Key")
	require.Negative(t, rec.KeyLife)

	begin(t, dir, persist.Record{Ref: persist.Ref{ID: "own"}, Key: "order-4711-v1", Target: srv.URL, Header: headerOf("Idempotency-Key", "order-4711-v1")})
	r = run(t, "rekey", dir, "own", "-yes")
	require.Equal(t, 1, r.code)
	require.Contains(t, r.err, "neither a UUID nor a ULID")
	require.Zero(t, run(t, "rekey", dir, "own", "-format", "uuid").code)

	for id, c := range map[string]struct {
		r    persist.Record
		want string
	}{
		"derived": {persist.Record{Header: headerOf("Idempotency-Key", aKey), Progress: persist.Progress{Attempts: 1, FirstSent: time.Now().Add(-time.Minute)}}, "may be derived"},
		"keyless": {persist.Record{Header: headerOf("Accept", "*/*"), Progress: persist.Progress{Attempts: 1}}, "in no header of its own"},
		"twice":   {persist.Record{Header: http.Header{"A": {aKey}, "B": {aKey}}, Progress: persist.Progress{Attempts: 1}}, "more than one header"},
		"keyonly": {persist.Record{Header: headerOf("Idempotency-Key", aKey), Progress: persist.Progress{Attempts: 1}}, "payload of keyonly is not kept"},
	} {
		c.r.ID, c.r.Key, c.r.Target = id, aKey, srv.URL
		begin(t, dir, c.r)
		before := record(t, dir, "", id)
		r := run(t, "rekey", dir, id, "-yes")
		assert.Equal(t, 1, r.code, id)
		assert.Contains(t, r.err, c.want)
		assert.Equal(t, before, record(t, dir, "", id))
	}
	require.Equal(t, 2, srv.Effects())
}

func TestForeignOwner(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can give a directory away: run it as root")
	}
	dir := lost(t, newServer(t), "order-1")
	require.NoError(t, os.Chown(dir, 54321, 54321))
	r := run(t, "abandon", dir, "order-1", "-reason", "x")
	require.Equal(t, 2, r.code)
	require.Contains(t, r.err, "belongs to uid 54321")
	require.Contains(t, r.err, "sudo -u '#54321' samekey")
	require.Zero(t, run(t, "list", dir).code, "looking is harmless")
}
