package tool

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/samekey/samekey/mockserver"
	"github.com/samekey/samekey/persist"
	"github.com/samekey/samekey/persist/memory"
)

// sharedStore is one that processes share: the tool gets it by the URL mem:x, and others act when it is read or claimed.
type sharedStore struct {
	persist.Store
	t       *testing.T
	opened  []Want
	closed  int
	caveat  string
	onGet   func() // after a Get
	onList  func() // after a List
	listErr error
}

func newShared(t *testing.T) *sharedStore { return &sharedStore{Store: memory.New(), t: t} }

func (s *sharedStore) Close() error { s.closed++; return nil }

func (s *sharedStore) Get(ctx context.Context, ref persist.Ref) (persist.Record, error) {
	r, err := s.Store.Get(ctx, ref)
	if f := s.onGet; f != nil {
		s.onGet = nil
		f()
	}
	return r, err
}

func (s *sharedStore) List(ctx context.Context, f persist.Filter) iter.Seq2[persist.Record, error] {
	return func(yield func(persist.Record, error) bool) {
		for r, err := range s.Store.List(ctx, f) {
			if !yield(r, err) {
				return
			}
		}
		if s.listErr != nil {
			yield(persist.Record{}, s.listErr)
		}
		if s.onList != nil {
			s.onList()
		}
	}
}

func (s *sharedStore) kind() Kind {
	return Kind{
		Schemes: []string{"mem", "memory"}, Usage: "mem:NAME\tin memory",
		Open: func(_ context.Context, url string, w Want) (Opened, error) {
			s.opened = append(s.opened, w)
			if url != "mem:x" {
				return Opened{}, fmt.Errorf("there is no store %s", url)
			}
			return Opened{Store: s, Name: url, Caveat: s.caveat}, nil
		},
	}
}

// run runs a tool for s in this process.
func (s *sharedStore) run(args ...string) ran {
	s.t.Helper()
	return s.runEnv(nil, args...)
}

func (s *sharedStore) runEnv(env map[string]string, args ...string) ran {
	var out, errOut bytes.Buffer
	tl := &tool{
		Config: Config{Name: "paytool", Stores: []Kind{s.kind()}}, in: strings.NewReader(""), out: &out, err: &errOut,
		env: func(name string) (string, bool) { v, is := env[name]; return v, is }, now: time.Now,
	}
	code := tl.main(s.t.Context(), args)
	return ran{code, out.String(), errOut.String()}
}

// begin records an operation, and returns the claim.
func (s *sharedStore) begin(id, target string, attempts int) persist.Claim {
	s.t.Helper()
	key := uuid.NewString()
	r := persist.Record{
		Ref: persist.Ref{ID: id}, Named: true, Key: key, Method: "POST", Target: target + "/v1/payments", Header: headerOf("Idempotency-Key", key),
		Body: []byte(`{"amount":100,"currency":"EUR"}`), Created: time.Now(), KeyLife: time.Hour, Progress: persist.Progress{Attempts: attempts},
	}
	if attempts > 0 {
		r.Progress.FirstSent = time.Now()
	}
	e, err := s.Begin(s.t.Context(), r)
	require.NoError(s.t, err)
	require.True(s.t, e.New)
	return e.Claim
}

// free is begin of one that nobody holds.
func (s *sharedStore) free(id, target string, attempts int) {
	s.t.Helper()
	require.NoError(s.t, s.Release(s.t.Context(), s.begin(id, target, attempts)))
}

func (s *sharedStore) get(id string) persist.Record {
	s.t.Helper()
	r, err := s.Store.Get(s.t.Context(), persist.Ref{ID: id})
	require.NoError(s.t, err)
	return r
}

// sent is what another process does: it claims, marks an attempt, gets no answer, and lets go.
func (s *sharedStore) sent(id string) {
	s.t.Helper()
	e, err := s.Claim(s.t.Context(), persist.Ref{ID: id})
	require.NoError(s.t, err)
	p := e.Progress
	p.Attempts++
	p.FirstSent = time.Now()
	require.NoError(s.t, s.Mark(s.t.Context(), e.Claim, p))
	require.NoError(s.t, s.Release(s.t.Context(), e.Claim))
}

func TestURLsOfOthers(t *testing.T) {
	for _, u := range []string{"postgres://u:secret@h/db", "postgresql:///db", "mysql://h/db", "mariadb://h/db", "sqlite:x.db", "redis://h", "rediss://h", "Postgres://h", "etcd://h"} {
		for _, args := range [][]string{{"check", u}, {"list", u}, {"show", u, "x"}, {"stats", u}, {"abandon", u, "x", "-reason", "y"}, {"forget", u, "x", "-yes"}, {"rekey", u, "x", "-yes"},
			{"resume", u, "x"}, {"resume", u, "-all"}} {
			r := run(t, args...)
			require.Equal(t, 2, r.code, args)
			require.Contains(t, r.err, "samekey knows journal directories only")
			require.Contains(t, r.err, "samekey-shared is this tool for shared stores")
			require.Contains(t, r.err, "go install ./cmd/samekey-shared")
			require.NotContains(t, r.err, "secret")
			require.Empty(t, r.out)
		}
	}
	r := run(t, "migrate", "postgres://h/db")
	require.Equal(t, 2, r.code)
	require.Contains(t, r.err, "samekey-shared")
	r = newShared(t).run("list", "etcd://h")
	require.Equal(t, 2, r.code)
	require.Contains(t, r.err, `no store has URLs of the scheme "etcd": paytool knows journal directories, and mem:, memory:`)
	require.Equal(t, 2, newShared(t).run("list", "mem:y").code)

	dir := lost(t, newServer(t), "order-1")
	odd := filepath.Join(filepath.Dir(dir), "sqlite:x") // a directory of such a name is a journal all the same
	require.NoError(t, os.Rename(dir, odd))
	t.Chdir(filepath.Dir(odd))
	require.Zero(t, run(t, "check", "sqlite:x").code)
	require.Zero(t, runEnv(t, []string{"SAMEKEY_STORE=" + odd}, "check", "-").code)
	require.Contains(t, runEnv(t, []string{"SAMEKEY_STORE="}, "check", "-").err, "SAMEKEY_STORE, which is not set")
}

const notTold = "paytool: the program's Recovery.Handle is not told of this; with -owed its next Recover hands the answer over\n"

// TestWant: what each command asks of a store, and that it closes it.
func TestWant(t *testing.T) {
	bank := newServer(t)
	s := newShared(t)
	s.caveat = "fsync is off"
	n := 0
	want := func(use Use, lease time.Duration, args ...string) {
		t.Helper()
		r := s.run(args...)
		require.Zero(t, r.code, r.err)
		n++
		require.Len(t, s.opened, n)
		require.Equal(t, n, s.closed)
		require.Equal(t, Want{use, lease}, s.opened[n-1])
		if use == Changing {
			require.Equal(t, "paytool: mem:x may lose what is changed now: fsync is off\n", strings.TrimSuffix(r.err, notTold))
		} else {
			require.Empty(t, r.err)
		}
	}
	for _, id := range []string{"a", "b", "c", "d", "e", "f"} {
		s.free(id, bank.URL, 0)
	}
	want(Checking, 0, "check", "mem:x")
	want(Reading, 0, "list", "MEM:x")
	want(Reading, 0, "show", "mem:x", "a")
	want(Reading, 0, "stats", "mem:x")
	want(Changing, 0, "abandon", "mem:x", "a", "-reason", "r")
	want(Changing, 0, "forget", "mem:x", "b")
	want(Changing, 0, "rekey", "mem:x", "c")
	want(Changing, time.Minute, "resume", "mem:x", "c")
	want(Changing, 20*time.Second, "resume", "mem:x", "d", "-timeout", "2s")
	want(Changing, 90*time.Second, "resume", "mem:x", "e", "-timeout", "45s")
	file := policyFile(t, `{"Default": {"Contract": {"Life": "24h"}}, "Endpoints": {"POST a.test/": {"AttemptTimeout": "50s", "Deadline": "2m"}}}`)
	want(Changing, 100*time.Second, "resume", "mem:x", "-all", "-policy", file)
	require.Equal(t, 4, bank.Effects())
}

// TestChangedMeanwhile: what another process has sent between the look and the change is left alone. An operation that was
// never sent may be forgotten, or get another key, without being asked; one that was, may not.
func TestChangedMeanwhile(t *testing.T) {
	for _, args := range [][]string{{"forget", "mem:x", "order"}, {"rekey", "mem:x", "order"}, {"abandon", "mem:x", "order", "-reason", "r"}, {"forget", "mem:x", "order", "-yes"}} {
		s := newShared(t)
		s.free("order", "https://a.test", 0)
		key := s.get("order").Key
		s.onGet = func() { s.sent("order") }
		r := s.run(args...)
		require.Equal(t, 1, r.code, args)
		require.Equal(t, "paytool: order has changed meanwhile, nothing was done\n", r.err)
		require.Empty(t, r.out)
		rec := s.get("order")
		require.Equal(t, persist.Pending, rec.State())
		require.Equal(t, key, rec.Key)
		s.sent("order") // the claim was given back
	}
}

// TestHeld: what another process holds is left alone, and nobody waits for it.
func TestHeld(t *testing.T) {
	bank := newServer(t)
	s := newShared(t)
	claim := s.begin("held", bank.URL, 1)
	before := s.get("held")
	for _, args := range [][]string{{"abandon", "mem:x", "held", "-reason", "r"}, {"forget", "mem:x", "held", "-yes"}, {"rekey", "mem:x", "held", "-yes"}, {"resume", "mem:x", "held"}, {"resume", "mem:x", "-all"}} {
		r := s.run(args...)
		require.Equal(t, 3, r.code, args)
		require.Contains(t, r.err, "paytool: held is held by another process, and nothing was done")
		require.Equal(t, 1, strings.Count(r.err, "\n"))
		require.Empty(t, r.out)
	}
	for _, args := range [][]string{{"check", "mem:x"}, {"list", "mem:x"}, {"stats", "mem:x"}, {"show", "mem:x", "held"}} {
		require.Zero(t, s.run(args...).code)
	}
	require.Equal(t, before, s.get("held"))
	require.NoError(t, s.Mark(t.Context(), claim, before.Progress), "the claim is the other's still")

	s.free("free", bank.URL, 1)
	r := s.run("resume", "mem:x", "-all")
	require.Equal(t, 3, r.code, "the others have their answer")
	require.Regexp(t, `^succeeded +201 +free `, r.out)
	bank.Fault(mockserver.Fault{Do: mockserver.Status(500, false)})
	s.free("unknown", bank.URL, 1)
	r = s.run("resume", "mem:x", "-all", "-timeout", "1s")
	require.Equal(t, 1, r.code, "an outcome is unknown, which weighs more")
}

// TestEndedMeanwhile: what others have ended since it was chosen is neither sent nor an error.
func TestEndedMeanwhile(t *testing.T) {
	bank := newServer(t)
	s := newShared(t)
	for _, id := range []string{"forgotten", "settled", "parked", "left"} {
		s.free(id, bank.URL, 1)
	}
	s.onList = func() {
		s.onList = nil
		for id, a := range map[string]persist.Answer{"forgotten": {State: persist.Succeeded}, "settled": {State: persist.Succeeded, Status: 201, KeepBody: farOff, KeepName: farOff}} {
			e, err := s.Claim(t.Context(), persist.Ref{ID: id})
			require.NoError(t, err)
			require.NoError(t, s.Settle(t.Context(), e.Claim, a))
		}
		e, err := s.Claim(t.Context(), persist.Ref{ID: "parked"})
		require.NoError(t, err)
		e.Progress.Parked = true
		require.NoError(t, s.Mark(t.Context(), e.Claim, e.Progress))
		require.NoError(t, s.Release(t.Context(), e.Claim))
	}
	r := s.run("resume", "mem:x", "-all")
	require.Zero(t, r.code, r.err)
	require.Equal(t, notTold, r.err)
	require.Regexp(t, `^succeeded +201 +left .*\n$`, r.out)
	require.Len(t, bank.Requests(), 1)
}

// TestForgetName: a name without an operation is forgotten too.
func TestForgetName(t *testing.T) {
	s := newShared(t)
	require.NoError(t, s.Settle(t.Context(), s.begin("done", "https://a.test", 1), persist.Answer{State: persist.Succeeded, KeepName: farOff}))
	r := s.run("forget", "mem:x", "done")
	require.Equal(t, 1, r.code)
	require.Contains(t, r.err, "done has happened (succeeded, only the name is kept)")
	require.Zero(t, s.run("forget", "mem:x", "done", "-yes").code)
	require.Equal(t, 1, s.run("show", "mem:x", "done").code)
}

// TestListBroken: a store that fails in the middle has shown what it had, and is exit code 2.
func TestListBroken(t *testing.T) {
	s := newShared(t)
	s.free("order-1", "https://a.test", 0)
	s.listErr = errors.New("first line:\n\tsecond line\nwith mem://u:hunter2@h in it")
	for _, cmd := range []string{"list", "stats", "check"} {
		r := s.runEnv(map[string]string{"SAMEKEY_STORE": "mem://u:hunter2@h"}, cmd, "mem:x")
		require.Equal(t, 2, r.code)
		require.Equal(t, "paytool: first line: second line; with mem://u:xxxxx@h in it\n", r.err)
		require.Equal(t, cmd == "list", strings.Contains(r.out, "order-1"))
	}
}

func TestMigrateNone(t *testing.T) {
	s := newShared(t)
	for _, args := range [][]string{{"migrate", "mem:x"}, {"migrate", "-print", "mem"}, {"migrate", "-print", "mem:x"}} {
		r := s.run(args...)
		require.Zero(t, r.code)
		require.Equal(t, "paytool: mem: stores need no migration: there is nothing to make before the first use\n", r.err)
		require.Empty(t, r.out)
	}
	require.Empty(t, s.opened)
	require.Contains(t, s.run("-h").out, "mem:NAME  in memory")
	require.NotRegexp(t, `[{]`, s.run("-h").out+s.run("migrate", "-h").out)
}

// TestMasks: in whatever spelling a password stands in an error, it is not shown; the rest is.
func TestMasks(t *testing.T) {
	for _, c := range []struct{ arg, text, want string }{
		{"postgres://ops:hunter2@h/db", "x hunter2 y", "x xxxxx y"},
		{"postgres://ops:hunter2@h/db", "postgres://ops:hunter2@h/db", "postgres://ops:xxxxx@h/db"},
		{"postgres://ops:p%40ss%2Fw@h/db", "p@ss/w, p%40ss%2Fw", "xxxxx, xxxxx"},
		{"postgres://ops:p@ss/w@h/db", "p@ss/w p%40ss%2Fw", "xxxxx xxxxx"},
		{`postgres://ops:a"b\c@h/db`, fmt.Sprintf("%q", `a"b\c`), `"xxxxx"`},
		{"postgres://ops:hunter2?x@h/db", "host ops:hunter2", "host ops:xxxxx"},
		{"postgres://ops@h/db?sslmode=x&password=hunter2", "hunter2", "xxxxx"},
		{"postgres://ops@h/db?p%61ssword=hunter%202", "hunter 2", "xxxxx"},
		{"postgres://ops:a@h/db", "ops:a@h, a host", "ops:xxxxx@h, a host"},
		{"redis://:hunter2@h/0", "hunter2", "xxxxx"},
		{"postgres://h:5432/db?user=ops@azure", "h 5432 db ops@azure", "h 5432 db ops@azure"},
		{"postgres://ops@h:5432/db", "ops h 5432 db", "ops h 5432 db"},
		{"order-1", "order-1", "order-1"},
		{"etcd://ops:hun@ter2@h", "hun@ter2, hun, ter2", "xxxxx, xxxxx, xxxxx"},
		{"etcd://ops:hun@ter2/xyz@h", "hun@ter2/xyz, ter2", "xxxxx, xxxxx"},
		{"ops:hunter2@tcp(h:1)/db", "hunter2 ops h", "xxxxx ops h"},
		{"//ops:hunter2@h/db", "hunter2 ops h", "xxxxx ops h"},
		{"postgres:ops:hunter2@h/db", "postgres ops hunter2 h", "postgres ops xxxxx h"},
		{"host=h user=ops password='hun ter2' x=y", "hun ter2 ops h", "xxxxx ops h"},
		{"host=h user=ops password=hunter2", "hunter2 ops h", "xxxxx ops h"},
		{"redis://hunter2@h/0", "hunter2 h", "xxxxx h"},
		{"redis:hunter2@h", "hunter2 h", "xxxxx h"},
		{"postgres://ops@h/db", "ops h", "ops h"},
		{"/var/pay@eu/journal", "pay eu", "pay eu"},
		{"POST https://h/x", "POST https://h/x", "POST https://h/x"},
	} {
		tl := &tool{env: func(string) (string, bool) { return "", false }}
		tl.mask([]string{"list", c.arg})
		assert.Equal(t, c.want, tl.masked(c.text), c.arg)
		tl = &tool{env: func(string) (string, bool) { return c.arg, true }}
		tl.mask(nil)
		assert.Equal(t, c.want, tl.masked(c.text), c.arg)
	}
	for _, password := range []string{"hunter2", "p@ss:w/r?d#1", "päss wört", `a"b\c`, "100%", "%zz%"} {
		u := url.URL{Scheme: "mysql", User: url.UserPassword("ops", password), Host: "h"}
		_, err := url.Parse(u.String() + ":x")
		require.Error(t, err)
		tl := &tool{env: os.LookupEnv}
		tl.mask([]string{u.String()})
		text := tl.masked(err.Error() + password)
		require.NotContains(t, text, password)
	}
}

// endless is a store of any number of operations, which are made when they are listed.
type endless struct {
	persist.Store
	n    int
	most uint64 // of the heap, on the way
}

func (e *endless) Close() error { return nil }

func (e *endless) List(context.Context, persist.Filter) iter.Seq2[persist.Record, error] {
	return func(yield func(persist.Record, error) bool) {
		start := time.Now()
		for i := range e.n {
			id := fmt.Sprint("order-", i)
			r := persist.Record{
				Ref: persist.Ref{ID: id}, Named: true, Key: aKey, Method: "POST", Target: "https://a.test/v1/payments", Created: start.Add(time.Duration(i)),
				Body: make([]byte, 1024), Header: headerOf("Idempotency-Key", aKey),
			}
			if i%25_000 == 24_999 {
				var m runtime.MemStats
				runtime.GC()
				runtime.ReadMemStats(&m)
				e.most = max(e.most, m.HeapAlloc)
			}
			if !yield(r, nil) {
				return
			}
		}
	}
}

// TestStreams: list, stats and check hold no more than a block of operations, however many there are.
func TestStreams(t *testing.T) {
	n := 250_000
	if raceOn {
		n = 100_000
	}
	for _, args := range [][]string{{"list", "mem:x"}, {"list", "mem:x", "-json"}, {"stats", "mem:x"}, {"check", "mem:x"}} {
		e := &endless{n: n}
		k := Kind{Schemes: []string{"mem"}, Open: func(context.Context, string, Want) (Opened, error) { return Opened{Store: e}, nil }}
		var lines counter
		tl := &tool{Config: Config{Stores: []Kind{k}}, out: &lines, err: io.Discard, env: os.LookupEnv, now: time.Now}
		require.Zero(t, tl.main(t.Context(), args))
		if args[0] == "list" {
			require.GreaterOrEqual(t, lines.n, n)
		}
		require.Less(t, e.most, uint64(32<<20), "%v: with their bodies they would be %d MB", args, n>>10)
	}
}

// counter counts lines.
type counter struct{ n int }

func (c *counter) Write(p []byte) (int, error) {
	c.n += bytes.Count(p, []byte("\n"))
	return len(p), nil
}
