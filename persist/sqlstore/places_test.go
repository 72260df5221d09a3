package sqlstore

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"

	"github.com/samekey/samekey/persist"
	"github.com/samekey/samekey/persist/persisttest/servertest"
)

func TestMain(m *testing.M) {
	_ = mysql.SetLogger(silent{}) // of connections that tests break
	if len(os.Args) > 1 && os.Args[1] == "worker" {
		work()
		return
	}
	flag.Parse()
	_ = flag.Set("test.parallel", "16") // most of the time they wait for leases
	// Servers and files are in memory if there is such a place: no test takes the power away, and a busy disk would upset
	// the rules about time. Benchmarks want a disk, and whoever sets TMPDIR has said where.
	if os.Getenv("TMPDIR") == "" {
		dir := "/dev/shm"
		if info, err := os.Stat(dir); err != nil || !info.IsDir() || flag.Lookup("test.bench").Value.String() != "" {
			dir = os.TempDir()
		}
		_ = os.Setenv("TMPDIR", dir)
	}
	code := m.Run()
	servertest.EndShared()
	os.Exit(code)
}

type silent struct{}

func (silent) Print(...any) {}

// wire is the connections of one pool, which can be cut, and forbidden.
type wire struct {
	mu    sync.Mutex
	dead  bool
	conns map[net.Conn]bool
	// answer, if set, is asked before bytes from the server are handed over; false loses them and the connection.
	answer func() bool
	// fate, if set, is asked what becomes of bytes for the server.
	fate func(sent []byte) sending
	late []func(t *testing.T)
}

// sending says what becomes of a statement.
type sending struct {
	late bool   // it arrives once deliver is called, its connection is lost for who sent it
	lost func() // called once it was answered; the answer is lost
}

type wired struct {
	net.Conn
	w *wire
	sending
}

func (w *wire) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.dead {
		return nil, errors.New("the network is down")
	}
	c, err := (&net.Dialer{}).DialContext(ctx, network, addr)
	if err == nil {
		if w.conns == nil {
			w.conns = map[net.Conn]bool{}
		}
		w.conns[c] = true
		c = &wired{Conn: c, w: w}
	}
	return c, err
}

func (c *wired) Write(b []byte) (int, error) {
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	if c.late { // its end
		return len(b), nil
	}
	if c.w.fate != nil {
		c.sending = c.w.fate(b)
	}
	if !c.late {
		return c.Conn.Write(b)
	}
	delete(c.w.conns, c.Conn)
	_ = c.Conn.SetReadDeadline(time.Now()) // a driver that found the write slow reads already
	b = bytes.Clone(b)
	c.w.late = append(c.w.late, func(t *testing.T) {
		require.NoError(t, c.Conn.SetDeadline(time.Now().Add(20*time.Second)))
		_, err := c.Conn.Write(b)
		require.NoError(t, err)
		_, err = c.Conn.Read(make([]byte, 4096))
		require.NoError(t, err, "it was executed")
		require.NoError(t, c.Conn.Close())
	})
	return len(b), nil
}

// deliver lets late statements arrive.
func (w *wire) deliver(t *testing.T) {
	t.Helper()
	w.mu.Lock()
	late := w.late
	w.late = nil
	w.mu.Unlock()
	require.NotEmpty(t, late)
	for _, f := range late {
		f(t)
	}
}

func (w *wire) decide(fate func(sent []byte) sending) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.fate = fate
}

func (c *wired) fate() sending {
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	return c.sending
}

func (c *wired) Read(b []byte) (int, error) {
	if c.fate().late {
		return 0, net.ErrClosed
	}
	n, err := c.Conn.Read(b)
	fate := c.fate()
	if fate.late {
		return 0, net.ErrClosed
	}
	if fate.lost != nil {
		fate.lost()
		_ = c.Conn.Close()
		return 0, net.ErrClosed
	}
	c.w.mu.Lock()
	answer := c.w.answer
	c.w.mu.Unlock()
	if answer != nil && n > 0 && !answer() {
		_ = c.Conn.Close()
		return 0, net.ErrClosed
	}
	return n, err
}

func (c *wired) SetDeadline(at time.Time) error {
	if c.fate().late {
		return nil
	}
	return c.Conn.SetDeadline(at)
}

func (c *wired) Close() error {
	if c.fate().late {
		return nil
	}
	c.w.mu.Lock()
	delete(c.w.conns, c.Conn)
	c.w.mu.Unlock()
	return c.Conn.Close()
}

// cut ends all connections; for ever keeps new ones from being made.
func (w *wire) cut(forEver bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.dead = w.dead || forEver
	for c := range w.conns {
		_ = c.Close()
	}
	clear(w.conns)
}

func (w *wire) listen(answer func() bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.answer = answer
}

// database is one that tests of all dialects can open.
type database struct {
	dialect Dialect
	where   string // a URL, or SQLite's file
	prefix  string
}

var (
	prefixes atomic.Int64
	kinds    = map[Dialect]*servertest.Kind{PostgreSQL: servertest.PostgreSQL, MariaDB: servertest.MariaDB}
)

// fresh returns where there are no tables yet.
func fresh(t testing.TB, d Dialect) database {
	t.Helper()
	prefix := fmt.Sprintf("t%d_", prefixes.Add(1))
	if d == SQLite {
		return database{d, filepath.Join(t.TempDir(), "samekey.db"), prefix}
	}
	return on(t, d, servertest.Shared(t, kinds[d]), prefix)
}

// on returns a database of a server.
func on(t testing.TB, d Dialect, s *servertest.Server, prefix string) database {
	t.Helper()
	if d == PostgreSQL {
		return database{d, s.URL(""), prefix}
	}
	db, err := sql.Open("mysql", s.URL(""))
	require.NoError(t, err)
	defer db.Close()
	_, err = db.Exec("CREATE DATABASE IF NOT EXISTS samekey")
	require.NoError(t, err)
	return database{d, s.URL("samekey"), prefix}
}

func (p database) open(w *wire) (*sql.DB, error) {
	switch p.dialect {
	case PostgreSQL:
		cfg, err := pgx.ParseConfig(p.where)
		if err != nil {
			return nil, err
		}
		cfg.DialFunc = w.dial
		return stdlib.OpenDB(*cfg), nil
	case MariaDB:
		cfg, err := mysql.ParseDSN(p.where)
		if err != nil {
			return nil, err
		}
		cfg.DialFunc = w.dial
		cfg.InterpolateParams = true
		c, err := mysql.NewConnector(cfg)
		if err != nil {
			return nil, err
		}
		return sql.OpenDB(c), nil
	}
	return sql.OpenDB(fileWire{"file:" + p.where, w}), nil
}

func (p database) options() Options {
	return Options{Dialect: p.dialect, Prefix: p.prefix, Lease: time.Minute, SweepEvery: time.Second}
}

func (p database) db(t testing.TB) *sql.DB {
	t.Helper()
	db, err := p.open(&wire{})
	require.NoError(t, err)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

func (p database) migrated(t testing.TB) database {
	t.Helper()
	require.NoError(t, Migrate(context.Background(), p.db(t), p.options()))
	return p
}

// own is a store with its pool.
type own struct {
	*Store
	pool *sql.DB
	wire *wire
}

func (o *own) Close() error { return errors.Join(o.Store.Close(), o.pool.Close()) }

func (p database) store(change func(*Options)) (*own, error) {
	w := &wire{}
	db, err := p.open(w)
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(16)
	db.SetMaxIdleConns(16)
	o := p.options()
	if change != nil {
		change(&o)
	}
	s, err := Open(context.Background(), db, o)
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return &own{s, db, w}, nil
}

func (p database) opened(t testing.TB, change func(*Options)) *own {
	t.Helper()
	s, err := p.store(change)
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// crash ends a store as the death of its process would.
func crash(s *own) {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.stop()
	s.wire.cut(true)
	s.tending.Wait()
	_ = s.pool.Close()
}

func each(t *testing.T, test func(t *testing.T, d Dialect)) {
	t.Parallel()
	for _, d := range []Dialect{PostgreSQL, MariaDB, SQLite} {
		t.Run(d.String(), func(t *testing.T) {
			t.Parallel()
			test(t, d)
		})
	}
}

func op(id string) persist.Record {
	return persist.Record{
		Ref: persist.Ref{Scope: "tenant", ID: id}, Created: time.Now(), Key: "key-" + id, Method: "POST", Target: "https://bank.test/v1/payments",
		Header: map[string][]string{"Content-Type": {"application/json"}, "Idempotency-Key": {"key-" + id}},
		Body:   []byte(`{"amount":100,"currency":"EUR"}`), Progress: persist.Progress{Attempts: 1},
	}
}
