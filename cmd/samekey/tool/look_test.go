package tool

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/samekey/samekey"
	"github.com/samekey/samekey/mockserver"
	"github.com/samekey/samekey/persist"
)

var (
	goldenNow = time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)
	farOff    = time.Date(2099, 1, 1, 0, 0, 0, 0, time.UTC)
)

// goldenJournal holds one operation of each kind, begun at set times.
func goldenJournal(t *testing.T) string {
	t.Helper()
	dir := newDir(t)
	j := openJournal(t, dir)
	ago := func(d time.Duration) time.Time { return goldenNow.Add(-d) }
	key := func(n int) string { return fmt.Sprintf("3f2a9c1d-0000-4000-8000-%012d", n) }
	add := func(n int, old time.Duration, r persist.Record, a *persist.Answer) {
		r.Key, r.Created = key(n), ago(old)
		if r.Named = r.ID != ""; !r.Named {
			r.ID = r.Key
		}
		if r.Method == "" {
			r.Method, r.Target = "POST", "https://api.bank.test/v1/payments"
		}
		if r.Header == nil {
			r.Header = http.Header{"Content-Type": {"application/json"}, "Idempotency-Key": {r.Key}}
		}
		if r.Body == nil {
			r.Body = fmt.Appendf(nil, `{"amount":%d}`, n)
		}
		if r.KeyLife = 24 * time.Hour; r.Progress.Attempts > 0 {
			r.Progress.FirstSent = r.Created.Add(time.Second)
		}
		e, err := j.Begin(t.Context(), r)
		require.NoError(t, err)
		require.True(t, e.New)
		if a != nil {
			require.NoError(t, j.Settle(t.Context(), e.Claim, *a))
		} else {
			require.NoError(t, j.Release(t.Context(), e.Claim))
		}
	}
	prog := func(n, last int, text string) persist.Progress {
		return persist.Progress{Attempts: n, LastStatus: last, LastError: text}
	}
	parked := prog(20, 503, "")
	parked.Parked = true
	later := prog(2, 429, "")
	later.NotBefore = goldenNow.Add(5 * time.Minute)
	add(1, 90*time.Hour, persist.Record{Ref: persist.Ref{ID: "order-4700/charge"}, Progress: prog(4, 0, "connection reset by peer, key "+key(1)), Omitted: []string{"?sig", "Authorization"},
		Method: "POST", Target: "https://api.bank.test/v1/payments?account=DE44-secret&trace=1"}, nil)
	add(2, 30*time.Hour, persist.Record{Ref: persist.Ref{ID: "order-4701/charge"}, Progress: prog(1, 201, "")},
		&persist.Answer{State: persist.Succeeded, Status: 201, Header: http.Header{"Idempotency-Key": {key(2)}, "Location": {"/v1/payments/77"}},
			Body: []byte("{\"paymentId\":\"77\"}\n"), KeepBody: farOff, KeepName: farOff})
	add(3, 5*time.Hour, persist.Record{Progress: parked}, nil)
	add(4, 3*time.Hour+4*time.Minute, persist.Record{Ref: persist.Ref{ID: "order-4702/charge"}, Progress: prog(1, 402, "")},
		&persist.Answer{State: persist.Rejected, Status: 402, Body: []byte{0xff, 0x00, 'x'}, KeepBody: farOff, KeepName: farOff, Owed: true})
	add(5, 2*time.Hour, persist.Record{Ref: persist.Ref{Scope: "tenant-7", ID: "order-1"}, Progress: prog(1, 409, ""), Method: "POST",
		Target: "http://10.0.0.7:8080/v1/orders/4711-aaaa-bbbb-cccc-dddd/cancel-the-whole-order"},
		&persist.Answer{State: persist.Conflicted, Status: 409, Reason: "payload mismatch", KeepBody: farOff, KeepName: farOff})
	add(6, 90*time.Minute, persist.Record{Ref: persist.Ref{Scope: "tenant-with-a-long-name", ID: "a-name-that-goes-on-and-on-and-would-fill-the-table/charge"}, Progress: later}, nil)
	add(7, 42*time.Second, persist.Record{Ref: persist.Ref{ID: "evil\x1b[31m\u202e"}}, nil)
	add(8, 10*time.Minute, persist.Record{Ref: persist.Ref{ID: "order-4703/charge"}, Progress: prog(3, 500, "")},
		&persist.Answer{State: persist.Abandoned, Reason: "refunded by hand, INC-81", KeepBody: farOff, KeepName: farOff})
	add(9, 200*time.Hour, persist.Record{Ref: persist.Ref{ID: "order-1/charge"}, Progress: prog(1, 201, "")},
		&persist.Answer{State: persist.Succeeded, Status: 201, KeepName: farOff})
	require.NoError(t, j.Close())
	return dir
}

func TestGolden(t *testing.T) {
	dir := goldenJournal(t)
	bytes := regexp.MustCompile(`("(?:disk|live)Bytes": )\d+|[0-9.]+ [KM]?i?B`)
	for name, args := range map[string][]string{
		"list.txt":          {"list", dir},
		"list-full.txt":     {"list", dir, "-full", "-state", "pending"},
		"list-noscope.txt":  {"list", dir, "-scope", ""},
		"list.json":         {"list", dir, "-json"},
		"show.txt":          {"show", dir, "order-4700/charge"},
		"show-body.txt":     {"show", dir, "order-4701/charge", "-body", "-full"},
		"show-binary.txt":   {"show", dir, "order-4702/charge", "-body"},
		"show-conflict.txt": {"show", dir, "order-1", "-scope", "tenant-7"},
		"show-name.txt":     {"show", dir, "order-1/charge"},
		"show-key.txt":      {"show", dir, "3f2a9c1d-0000-4000-8000-000000000003"},
		"show-evil.txt":     {"show", dir, "evil\x1b[31m\u202e"},
		"show.json":         {"show", dir, "order-4700/charge", "-json"},
		"show-body.json":    {"show", dir, "-json", "-body", "order-4702/charge"},
		"stats.txt":         {"stats", dir},
		"stats.json":        {"stats", dir, "-json"},
		"check.txt":         {"check", dir},
		"check.json":        {"check", dir, "-json"},
	} {
		t.Run(name, func(t *testing.T) {
			r := inside(t, "", args...)
			require.Zero(t, r.code, r.err)
			require.Empty(t, r.err)
			text := strings.ReplaceAll(r.out, dir, "/var/lib/pay/journal")
			if args[0] == "check" || args[0] == "stats" {
				text = bytes.ReplaceAllString(text, "${1}N")
			}
			golden(t, name, text)
			require.NotContains(t, r.out, "\x1b")
			if !strings.HasSuffix(name, ".json") && !strings.Contains(name, "full") && args[0] != "show" {
				for l := range strings.Lines(text) {
					require.LessOrEqual(t, utf8.RuneCountInString(strings.TrimSpace(l)), 100, l)
				}
			}
		})
	}
}

func TestHelp(t *testing.T) {
	var all strings.Builder
	note := func(args ...string) {
		r := run(t, args...)
		require.Zero(t, r.code, args)
		require.Empty(t, r.err)
		fmt.Fprintf(&all, "$ samekey %s\n%s\n", strings.Join(args, " "), r.out)
	}
	note("-h")
	for _, c := range (&tool{}).commands() {
		note(c.name, "-h")
		r := run(t, c.name, "--help")
		require.Equal(t, run(t, "help", c.name), r)
		if eg := "\n  samekey " + c.name; c.most > 0 {
			require.Contains(t, r.out, eg+" /", "an example")
		} else {
			require.Contains(t, r.out, eg+"\n", "an example")
		}
		require.NotRegexp(t, `STORE|[{]`, strings.ReplaceAll(r.out, "/{id}", ""), "words that were not filled in")
	}
	require.Equal(t, run(t, "help"), run(t, "-h"))
	golden(t, "help.txt", all.String())
	for l := range strings.Lines(all.String()) {
		require.LessOrEqual(t, utf8.RuneCountInString(strings.TrimSuffix(l, "\n")), 100, l)
	}
}

func TestCommandLine(t *testing.T) {
	dir := goldenJournal(t)
	empty := newDir(t)
	require.NoError(t, os.Mkdir(empty, 0o700))
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{nil, 2, "Commands"},
		{[]string{"lsit", dir}, 2, `no command "lsit", did you mean "list"?`},
		{[]string{"remuse"}, 2, `did you mean "resume"?`},
		{[]string{"frobnicate"}, 2, `no command "frobnicate"; samekey -h`},
		{[]string{"help", "chekc"}, 2, `did you mean "check"?`},
		{[]string{"check"}, 2, "check: DIR is missing"},
		{[]string{"show", dir}, 2, "show: ID is missing"},
		{[]string{"show", dir, "a", "b"}, 2, `unexpected argument "b"`},
		{[]string{"list", dir, "-colour"}, 2, "flag provided but not defined: -colour"},
		{[]string{"list", dir, "-state", "done"}, 2, "none of pending"},
		{[]string{"list", dir, "-older", "soon"}, 2, "no duration such as"},
		{[]string{"list", dir, "-older", "-1h"}, 2, "no duration such as"},
		{[]string{"list", dir, "-endpoint", "post /x"}, 2, "-endpoint"},
		{[]string{"check", filepath.Join(dir, "none")}, 2, "no such file or directory"},
		{[]string{"check", empty}, 2, "no journal"},
		{[]string{"list", empty}, 2, "no journal"},
		{[]string{"stats", empty}, 2, "no journal"},
		{[]string{"forget", empty, "x"}, 2, "no journal"},
		{[]string{"forget", filepath.Join(dir, "none"), "x"}, 2, "no such file or directory"},
		{[]string{"check", filepath.Join(dir, "lock")}, 2, "is a file, not a directory, and a journal is one; if it is a database of SQLite, samekey-shared is"},
		{[]string{"list", filepath.Join(dir, "lock")}, 2, "is a file, not a directory"},
		{[]string{"show", dir, "order-4711"}, 1, `no operation "order-4711"`},
		{[]string{"show", dir, "order-470"}, 1, `no operation "order-470"; known are "order-4700/charge", "order-4701/charge", "order-4702/charge", …`},
		{[]string{"show", dir, "order-4703"}, 1, "no operation \"order-4703\"; known are \"order-4703/charge\"\n"},
		{[]string{"show", dir, "a-name"}, 1, `known are "a-name-that-goes-on-and-on-and-would-fill-the-table/charge" (-scope "tenant-with-a-long-name")` + "\n"},
		{[]string{"show", dir, "3f2a9c1d-0000"}, 1, "no operation \"3f2a9c1d-0000\"\n"},
		{[]string{"version", dir}, 2, "unexpected argument"},
		{[]string{"show", dir, "order-1"}, 1, `there is one with -scope "tenant-7"`},
		{[]string{"show", dir, "order-4701/charge", "-scope", "t"}, 1, "there is one without a scope"},
		{[]string{"show", dir, "3f2a9c1d-0000-4000-8000-000000000002"}, 1, `that is the key of "order-4701/charge"`},
		{[]string{"forget", dir, "order-4711", "-yes"}, 1, "no operation"},
		{[]string{"abandon", dir, "order-4700/charge"}, 2, "-reason is missing"},
		{[]string{"abandon", dir, "order-4701/charge", "-reason", "x"}, 1, "cannot be abandoned: it has an outcome already: succeeded"},
		{[]string{"rekey", dir, "order-4702/charge", "-yes"}, 1, "cannot be rekeyed: it has an outcome already: rejected"},
		{[]string{"rekey", dir, "order-4700/charge", "-format", "int"}, 2, "-format is uuid or ulid"},
		{[]string{"resume", dir}, 2, "ID is missing; -all takes every pending operation"},
		{[]string{"resume", dir, "x", "-all"}, 2, "an ID or -all, not both"},
		{[]string{"resume", dir, "x", "-older", "1h"}, 2, "go with -all"},
		{[]string{"resume", dir, "order-4703/charge"}, 1, "is abandoned: there is nothing to send"},
		{[]string{"resume", dir, "order-1/charge"}, 1, "is succeeded: there is nothing to send"},
	} {
		t.Run(strings.Join(append(c.args, "-")[:max(1, len(c.args))], " "), func(t *testing.T) {
			r := inside(t, "", c.args...)
			assert.Equal(t, c.code, r.code)
			assert.Contains(t, r.err, c.want)
			assert.Empty(t, r.out)
		})
	}
	for _, args := range [][]string{{"check"}, {"list"}, {"stats"}, {"show", "x"}, {"forget", "x"}, {"resume", "-all"}} {
		for _, mode := range []os.FileMode{0o755, os.ModeSticky | 0o777} {
			open := t.TempDir()
			require.NoError(t, os.WriteFile(filepath.Join(open, "other"), nil, 0o644))
			require.NoError(t, os.Chmod(open, mode))
			r := inside(t, "", append([]string{args[0], open}, args[1:]...)...)
			require.Equal(t, 2, r.code)
			require.Equal(t, "samekey: there is no journal in "+open+"\n", r.err, "what is no journal is not to be closed to others")
		}
	}
	entries, err := os.ReadDir(empty)
	require.NoError(t, err)
	require.Empty(t, entries, "nothing was made")

	require.Zero(t, inside(t, "", "show", "-json", dir, "-body", "--", "order-4701/charge").code)
	require.Contains(t, inside(t, "", "show", dir, "--", "-json").err, `no operation "-json"`)
}

func TestFilters(t *testing.T) {
	dir := goldenJournal(t)
	for _, c := range []struct {
		args string
		want string
	}{
		{"-state pending", "order-4700/charge 3 a-name evil"},
		{"-state rejected,conflicted", "order-4702/charge order-1"},
		{"-state abandoned", "order-4703/charge"},
		{"-state succeeded", "order-4701/charge"},
		{"-state expired", "order-4700/charge"},
		{"-state parked", "3"},
		{"-parked", "3"},
		{"-parked -state pending", "3"},
		{"-parked -state succeeded", ""},
		{"-state succeeded,parked", "order-4701/charge 3"},
		{"-scope tenant-7", "order-1"},
		{"-older 1d", "order-4700/charge order-4701/charge"},
		{"-older 1d6h", "order-4700/charge"},
		{"-url 10.0.0.7", "order-1"},
		{"-url DE44", ""},
		{"-state pending -older 1h -scope  -url bank", "order-4700/charge 3"},
	} {
		r := inside(t, "", append([]string{"list", dir, "-json"}, strings.Split(c.args, " ")...)...)
		require.Zero(t, r.code, r.err)
		var got []string
		for _, m := range regexp.MustCompile(`"id":"(?:3f2a9c1d-0000-4000-8000-0+)?(order-[^"]*|a-name|evil|3)`).FindAllStringSubmatch(r.out, -1) {
			got = append(got, m[1])
		}
		assert.Equal(t, c.want, strings.Join(got, " "), c.args)
	}
	r := inside(t, "", "list", dir, "-endpoint", "POST api.bank.test/v1/{what}", "-state", "succeeded")
	require.Contains(t, r.out, "order-4701/charge")
	r = inside(t, "", "list", dir, "-endpoint", "/v1/orders/")
	require.Contains(t, r.out, "order-1")
	require.NotContains(t, r.out, "order-47")
	r = inside(t, "", "list", dir, "-url", "nowhere")
	require.Equal(t, ran{}, r, "nothing is no error")
}

// TestRealJournal looks at what a client has left.
func TestRealJournal(t *testing.T) {
	srv := newServer(t)
	dir := newDir(t)
	fill(t, dir, samekey.Config{Default: samekey.Policy{MaxAttempts: 2}}, func(c *samekey.Client) {
		require.NoError(t, pay(t, c, srv.URL, "paid", 100))
		require.NoError(t, pay(t, c, srv.URL, "", 100), "anonymous, and gone")
		require.NoError(t, pay(t, c, srv.URL, "declined", mockserver.DeclinedAmount))
		req, err := payment(samekey.WithScope(t.Context(), "tenant-7"), srv.URL, "paid", 200)
		require.NoError(t, err)
		require.NoError(t, do(t, c, req))
		srv.Fault(mockserver.Fault{Do: mockserver.Status(409, false), Times: 1})
		require.ErrorIs(t, pay(t, c, srv.URL, "conflict", 100), samekey.ErrConflict)
		always(srv, mockserver.AfterCommit, mockserver.Status(503, false))
		require.ErrorIs(t, pay(t, c, srv.URL, "lost", 100), samekey.ErrUnknown)
		require.ErrorIs(t, pay(t, c, srv.URL, "", 300), samekey.ErrUnknown)
	})
	ops := listed(t, dir)
	require.Len(t, ops, 6)
	for i, want := range []struct {
		id, scope, state string
		attempts, status int
	}{{"paid", "", "succeeded", 1, 201}, {"declined", "", "rejected", 1, 402}, {"paid", "tenant-7", "succeeded", 1, 201},
		{"conflict", "", "conflicted", 1, 409}, {"lost", "", "pending", 2, 503}, {ops[5].Key, "", "pending", 2, 503}} {
		o := ops[i]
		assert.Equal(t, want.id, o.ID)
		assert.Equal(t, want.scope, o.Scope)
		assert.Equal(t, want.state, o.State)
		assert.Equal(t, want.attempts, o.Attempts)
		if o.Answer != nil {
			assert.Equal(t, want.status, o.Answer.Status)
		} else {
			assert.Equal(t, want.status, o.LastStatus)
		}
		assert.False(t, o.Expired)
		assert.WithinDuration(t, o.Created.Add(24*time.Hour), o.Expires, time.Minute)
	}
	require.False(t, ops[5].Named)

	r := run(t, "list", dir)
	require.Zero(t, r.code)
	require.NotContains(t, r.out, ops[0].Key, "shortened")
	require.Contains(t, r.out, short(ops[0].Key))
	r = run(t, "show", dir, "lost")
	require.Zero(t, r.code)
	require.NotContains(t, r.out, "amount")
	require.NotContains(t, r.out, ops[4].Key)
	r = run(t, "show", dir, "paid", "-body")
	require.Contains(t, r.out, `"amount":100`)
	require.Contains(t, r.out, "paymentId")
	require.Contains(t, run(t, "show", dir, "paid", "-body", "-scope", "tenant-7").out, `"amount":200`)
	r = run(t, "check", dir)
	require.Zero(t, r.code)
	require.Contains(t, r.out, "sound")
	require.Contains(t, run(t, "stats", dir).out, "503×2")
}

func TestText(t *testing.T) {
	for d, want := range map[time.Duration]string{0: "0s", 59 * time.Second: "59s", 61 * time.Second: "1m01s", 3*time.Hour + 4*time.Minute: "3h04m",
		49 * time.Hour: "2d01h", 2400 * time.Hour: "100d", -time.Minute: "-1m00s"} {
		assert.Equal(t, want, age(d))
	}
	for n, want := range map[int64]string{0: "0 B", 1023: "1023 B", 1024: "1.0 KiB", 48 << 20: "48.0 MiB", 5 << 40: "5.0 TiB"} {
		assert.Equal(t, want, size(n))
	}
	for in, want := range map[string]time.Duration{"90s": 90 * time.Second, "7d": 168 * time.Hour, "2d12h": 60 * time.Hour, "36h": 36 * time.Hour} {
		var s span
		require.NoError(t, s.Set(in))
		assert.Equal(t, want, time.Duration(s))
	}
	for _, in := range []string{"", "d", "-1d", "1d-2h", "7", "xd"} {
		assert.Error(t, new(span).Set(in), in)
	}
	assert.Equal(t, "abc…xyz", cut("abcdefxyz", 7))
	assert.Equal(t, "ü…ö", cut("üäö!ö", 3))
	for n, want := range map[int]string{
		38: "POST http://127.0.0.1:8199/v1/payments", 37: "POST http://…7.0.0.1:8199/v1/payments", 33: "POST http://…0.1:8199/v1/payments",
		30: "POST …7.0.0.1:8199/v1/payments", 17: "POST …v1/payments",
	} {
		assert.Equal(t, want, cutRequest("POST http://127.0.0.1:8199/v1/payments", n), n)
	}
	assert.Equal(t, "abcd…", short("abcdefghijkl"))
	assert.Equal(t, "…", short(""))
	assert.Equal(t, `a\tb\x1bc\xff\u202e é`, clean("a\tb\x1bc\xff\u202e é"))
	for _, c := range []struct {
		a, b string
		want int
	}{{"list", "list", 0}, {"lsit", "list", 1}, {"", "list", 4}, {"shw", "show", 1}, {"resme", "resume", 1}, {"abandonn", "abandon", 1}} {
		assert.Equal(t, c.want, distance(c.a, c.b), c.a)
	}
}
