package main

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/samekey/samekey"
	"github.com/samekey/samekey/mockserver"
	"github.com/samekey/samekey/persist"
	"github.com/samekey/samekey/persist/persisttest/servertest"
	"github.com/samekey/samekey/persist/redis"
	"github.com/samekey/samekey/persist/sqlstore"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// binary is the tool, built once.
var binary string

const roleVar = "SAMEKEY_TEST_ROLE"

func TestMain(m *testing.M) {
	if os.Getenv(roleVar) == "send" {
		if err := send(os.Args[1], os.Args[2], os.Args[3:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	flag.Parse()
	_ = flag.Set("test.parallel", "8") // most of the time they wait
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "samekey-shared-")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer os.RemoveAll(dir)
		binary = filepath.Join(dir, "samekey-shared.exe")
		if out, err := exec.Command("go", "build", "-buildvcs=false", "-o", binary, ".").CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "%s%v\n", out, err)
			return 1
		}
		defer servertest.EndShared()
		return m.Run()
	}())
}

// place is a store that the tool and programs have in common. Programs open it without the tool's code.
type place struct {
	URL   string // for the tool
	Kind  string
	Where string // for the driver
	O     options
}

// options are those of sqlstore.Options that JSON can bear to another process.
type options struct {
	Dialect        sqlstore.Dialect
	Schema, Prefix string
}

var places atomic.Int64

var sqlKinds = []string{"PostgreSQL", "MariaDB", "SQLite"}

// each runs f with a store of each kind that nobody has used yet.
func each(t *testing.T, f func(t *testing.T, p place)) { of(t, append(sqlKinds[:3:3], "Redis"), f) }

// eachSQL is for those that have tables.
func eachSQL(t *testing.T, f func(t *testing.T, p place)) { of(t, sqlKinds, f) }

func of(t *testing.T, kinds []string, f func(t *testing.T, p place)) {
	t.Parallel()
	for _, kind := range kinds {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			f(t, fresh(t, kind))
		})
	}
}

func fresh(t *testing.T, kind string) place {
	t.Helper()
	p := place{Kind: kind, O: options{Prefix: fmt.Sprintf("t%d_", places.Add(1))}}
	switch kind {
	case "PostgreSQL":
		s := servertest.Shared(t, servertest.PostgreSQL)
		p.Where, p.O.Dialect = s.URL(""), sqlstore.PostgreSQL
		p.URL = p.Where + "&prefix=" + p.O.Prefix
	case "MariaDB":
		s := servertest.Shared(t, servertest.MariaDB)
		p.Where, p.O.Dialect, p.O.Schema = s.URL("mysql"), sqlstore.MariaDB, "samekey_test"
		p.exec(t, "CREATE DATABASE IF NOT EXISTS samekey_test")
		p.URL = fmt.Sprintf("mysql://root@%s?schema=samekey_test&prefix=%s", s.Addr(), p.O.Prefix)
	case "SQLite":
		p.Where, p.O.Dialect = filepath.Join(t.TempDir(), "pay store.db"), sqlstore.SQLite
		p.URL = "sqlite:" + p.Where + "?prefix=" + p.O.Prefix
	case "Redis":
		p.Where = servertest.Shared(t, servertest.Redis).URL("0")
		p.URL = p.Where + "?prefix=" + p.O.Prefix
	}
	return p
}

func (p *place) db() (*sql.DB, error) {
	driver := map[string]string{"PostgreSQL": "pgx", "MariaDB": "mysql", "SQLite": "sqlite"}[p.Kind]
	return sql.Open(driver, p.Where)
}

func (p *place) exec(t *testing.T, queries ...string) {
	t.Helper()
	db, err := p.db()
	require.NoError(t, err)
	defer db.Close()
	for _, q := range queries {
		_, err = db.ExecContext(t.Context(), q)
		require.NoError(t, err, q)
	}
}

// open is how a program opens the store.
func (p *place) open(ctx context.Context, lease time.Duration) (persist.Store, error) {
	if p.Kind == "Redis" {
		o, err := goredis.ParseURL(p.Where)
		if err != nil {
			return nil, err
		}
		client := goredis.NewClient(o)
		s, err := redis.Open(ctx, client, redis.Options{Prefix: p.O.Prefix, Lease: lease})
		if err != nil {
			return nil, errors.Join(err, client.Close())
		}
		return redisStore{s, client}, nil
	}
	db, err := p.db()
	if err != nil {
		return nil, err
	}
	s, err := sqlstore.Open(ctx, db, sqlstore.Options{Dialect: p.O.Dialect, Schema: p.O.Schema, Prefix: p.O.Prefix, Lease: lease})
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return store{s, db}, nil
}

// migrated makes the tables, by the tool; of Redis it makes what a program's first Open does.
func (p place) migrated(t *testing.T) place {
	t.Helper()
	r := run(t, "migrate", p.URL)
	require.Zero(t, r.code, r.err)
	if p.Kind == "Redis" {
		require.Empty(t, r.out)
		require.Equal(t, "samekey-shared: redis: stores need no migration: there is nothing to make before the first use\n", r.err)
		s, err := p.open(t.Context(), time.Minute)
		require.NoError(t, err)
		require.NoError(t, s.Close())
	}
	return p
}

// fill lends a client on the store to f.
func (p *place) fill(t *testing.T, cfg samekey.Config, f func(c *samekey.Client)) {
	t.Helper()
	s, err := p.open(t.Context(), time.Minute)
	require.NoError(t, err)
	cfg.Store = s
	if cfg.Default.Backoff == (samekey.Backoff{}) {
		cfg.Default.Backoff.Min = -1
	}
	c, err := samekey.New(cfg)
	require.NoError(t, err)
	f(c)
	require.NoError(t, c.Close())
	require.NoError(t, s.Close())
}

// record is what a store of its own reads.
func (p *place) record(t *testing.T, scope, id string) persist.Record {
	t.Helper()
	s, err := p.open(t.Context(), time.Minute)
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Close()) }()
	r, err := s.Get(t.Context(), persist.Ref{Scope: scope, ID: id})
	require.NoError(t, err)
	return r
}

func (p *place) ids(t *testing.T, f persist.Filter) (out []string) {
	t.Helper()
	s, err := p.open(t.Context(), time.Minute)
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Close()) }()
	for r, err := range s.List(t.Context(), f) {
		require.NoError(t, err)
		out = append(out, r.ID)
	}
	return out
}

// lease of the other process. It marks an attempt, which renews its claim, every attemptTimeout.
const (
	lease          = 10 * time.Second
	attemptTimeout = 2 * time.Second
)

// send is what another process does: it sends commands, one at a time, and again and again, until it is killed or has
// them all answered.
func send(spec, bank string, ids []string) error {
	ctx := context.Background()
	var p place
	if err := json.Unmarshal([]byte(spec), &p); err != nil {
		return err
	}
	s, err := p.open(ctx, lease)
	if err != nil {
		return err
	}
	c, err := samekey.New(samekey.Config{Store: s, Default: samekey.Policy{
		MaxAttempts: 1000, AttemptTimeout: attemptTimeout, Deadline: time.Hour, Backoff: samekey.Backoff{Min: -1},
	}})
	if err != nil {
		return err
	}
	for _, id := range ids {
		req, err := payment(ctx, bank, id, 100)
		if err != nil {
			return err
		}
		resp, err := c.Do(req)
		if err != nil {
			return err
		}
		_ = resp.Body.Close()
	}
	return errors.Join(c.Close(), s.Close())
}

// sender starts another process that sends.
func (p *place) sender(t *testing.T, bank string, ids ...string) *exec.Cmd {
	t.Helper()
	spec, err := json.Marshal(p)
	require.NoError(t, err)
	cmd := exec.Command(os.Args[0], append([]string{string(spec), bank}, ids...)...)
	cmd.Env = append(os.Environ(), roleVar+"=send")
	cmd.Stderr = os.Stderr
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return cmd
}

func payment(ctx context.Context, bank, name string, amount int) (*http.Request, error) {
	body := fmt.Sprintf(`{"amount":%d,"currency":"EUR","orderRef":"%s"}`, amount, name)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, bank+"/v1/payments", strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	if name != "" {
		req = samekey.Named(req, name)
	}
	return req, nil
}

// pay sends one payment and drops the answer.
func pay(t *testing.T, c *samekey.Client, bank, name string, amount int) error {
	t.Helper()
	req, err := payment(t.Context(), bank, name, amount)
	require.NoError(t, err)
	resp, err := c.Do(req)
	if err == nil {
		_, rerr := io.Copy(io.Discard, resp.Body)
		require.NoError(t, errors.Join(rerr, resp.Body.Close()))
	}
	return err
}

func newBank(t *testing.T) *mockserver.Server {
	t.Helper()
	srv := mockserver.NewServer(mockserver.Config{Seed: 1})
	t.Cleanup(srv.Close)
	return srv
}

// lost leaves operations pending whose answers were all lost.
func (p *place) lost(t *testing.T, bank *mockserver.Server, ids ...string) {
	t.Helper()
	bank.Fault(mockserver.Fault{When: mockserver.AfterCommit, Do: mockserver.Status(503, false)})
	p.fill(t, samekey.Config{Default: samekey.Policy{MaxAttempts: 2}}, func(c *samekey.Client) {
		for _, id := range ids {
			require.ErrorIs(t, pay(t, c, bank.URL, id, 100), samekey.ErrUnknown)
		}
	})
	bank.ClearFaults()
}

// ran is what one run of the tool left.
type ran struct {
	code     int
	out, err string
}

func run(t *testing.T, args ...string) ran {
	t.Helper()
	return runEnv(t, nil, args...)
}

func runEnv(t *testing.T, env []string, args ...string) ran {
	t.Helper()
	return runTool(t, binary, env, args...)
}

func runTool(t *testing.T, tool string, env []string, args ...string) ran {
	t.Helper()
	cmd := exec.Command(tool, args...)
	cmd.Env = append(os.Environ(), env...)
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	err := cmd.Run()
	var e *exec.ExitError
	if err != nil && !errors.As(err, &e) {
		require.NoError(t, err)
	}
	return ran{cmd.ProcessState.ExitCode(), out.String(), errOut.String()}
}

// operation is the part of list -json that tests look at.
type operation struct {
	ID, Scope, State, Key string
	Attempts, LastStatus  int
}

// listed runs list -json.
func listed(t *testing.T, p place, args ...string) (ops []operation) {
	t.Helper()
	r := run(t, append([]string{"list", p.URL, "-json"}, args...)...)
	require.Zero(t, r.code, r.err)
	dec := json.NewDecoder(strings.NewReader(r.out))
	for dec.More() {
		var o operation
		require.NoError(t, dec.Decode(&o))
		ops = append(ops, o)
	}
	return ops
}

func ids(ops []operation) (out []string) {
	for _, o := range ops {
		out = append(out, o.ID)
	}
	return out
}

// began starts the tool; what it says on stderr is there once it has ended.
func began(t *testing.T, args ...string) (*exec.Cmd, *bytes.Buffer) {
	t.Helper()
	cmd := exec.Command(binary, args...)
	var errOut bytes.Buffer
	cmd.Stderr = &errOut
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return cmd, &errOut
}

// interrupted sends an interrupt, and waits for the end.
func interrupted(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	require.NoError(t, cmd.Process.Signal(os.Interrupt))
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = cmd.Wait()
	}()
	select {
	case <-done:
	case <-time.After(20 * time.Second):
		t.Fatal("an interrupt does not end it")
	}
}
