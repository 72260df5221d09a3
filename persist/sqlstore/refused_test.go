package sqlstore

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/samekey/samekey/persist/persisttest/servertest"
)

// refused opens db and wants one clean error, of type T.
func refused[T error](t *testing.T, db *sql.DB, o Options, mend string) T {
	t.Helper()
	s, err := Open(t.Context(), db, o)
	require.Error(t, err)
	require.True(t, s == nil)
	is, ok := err.(T)
	require.True(t, ok, "%T: %v", err, err)
	clean(t, err, mend)
	return is
}

// clean wants one line that names the mend, and no password.
func clean(t *testing.T, err error, mend string) {
	t.Helper()
	require.Contains(t, err.Error(), mend)
	require.NotContains(t, err.Error(), "\n")
	require.Equal(t, 1, strings.Count(err.Error(), "sqlstore:"), err.Error())
	for part := range strings.FieldsFuncSeq(secret, func(r rune) bool { return r == '_' }) {
		require.NotContains(t, err.Error(), part)
	}
}

// secret is a password; secretly sets it in a DSN, with some character in its middle.
const secret = "hunter2_swordfish"

func secretly(dsn, user, middle string) string {
	_, rest, _ := strings.Cut(dsn, "@")
	scheme, _, is := strings.Cut(dsn, "://")
	if is {
		user = scheme + "://" + user
	}
	return user + ":" + strings.ReplaceAll(secret, "_", middle) + "@" + rest
}

func pool(t *testing.T, driver, dsn string) *sql.DB {
	t.Helper()
	db, err := sql.Open(driver, dsn)
	require.NoError(t, err)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

func run(t *testing.T, db *sql.DB, queries ...string) {
	t.Helper()
	for _, query := range queries {
		_, err := db.Exec(query)
		require.NoError(t, err, query)
	}
}

// works begins an operation.
func works(t *testing.T, db *sql.DB, o Options, id string) {
	t.Helper()
	s, err := Open(t.Context(), db, o)
	require.NoError(t, err)
	_, err = s.Begin(t.Context(), op(id))
	require.NoError(t, err)
	require.NoError(t, s.Close())
}

func TestOpenRefusesSQLite(t *testing.T) {
	t.Parallel()
	dir, o := t.TempDir(), Options{Dialect: SQLite}
	path := filepath.Join(dir, "samekey.db")
	noDatabase := filepath.Join(dir, "notes")
	require.NoError(t, os.WriteFile(noDatabase, []byte(strings.Repeat("not a database\n", 100)), 0o600))
	for _, dsn := range []string{"file:" + filepath.Join(dir, "none", "samekey.db"), "file:" + dir, "file:" + noDatabase, "file:" + path + "?mode=rw"} {
		refused[*ConnectError](t, pool(t, "sqlite", dsn), o, "check the DSN")
	}
	require.NoError(t, Migrate(t.Context(), pool(t, "sqlite", path), o))
	refused[*ReadOnlyError](t, pool(t, "sqlite", "file:"+path+"?mode=ro"), o, "may read and write")
	refused[*DialectError](t, pool(t, "sqlite", path), Options{Dialect: MariaDB}, "MariaDB")
	memory := pool(t, "sqlite", ":memory:")
	memory.SetMaxOpenConns(1)
	require.NoError(t, Migrate(t.Context(), memory, o))
	refused[*VolatileError](t, memory, o, "AllowVolatile")
	o.AllowVolatile = true
	works(t, memory, o, "a")
}

func TestOpenRefusesPostgreSQL(t *testing.T) {
	t.Parallel()
	p := fresh(t, PostgreSQL).migrated(t)
	dsn, o := p.where, p.options()
	db := pool(t, "pgx", dsn)
	for what, wrong := range map[string]string{
		"database": strings.Replace(dsn, "/postgres?", "/nowhere?", 1), "user": secretly(dsn, "nobody", ""),
		"port": fmt.Sprintf("postgres://samekey:%s@127.0.0.1:1/postgres", secret), "sslmode": secretly(dsn, "samekey", "") + "&sslmode=what",
		"words": "host=127.0.0.1 port=x password='" + secret + "'", "open quote": "password='" + secret + " host=127.0.0.1",
	} {
		t.Log(what)
		refused[*ConnectError](t, pool(t, "pgx", wrong), o, "check the DSN")
	}
	for _, reserved := range []string{"/", "%zz", " ", "@x:y", "/@", "`/`"} {
		refused[*ConnectError](t, pool(t, "pgx", secretly(dsn, "samekey", reserved)), o, "check the DSN")
		clean(t, Migrate(t.Context(), pool(t, "pgx", secretly(dsn, "samekey", reserved)), o), "check the DSN")
	}
	refused[*ReadOnlyError](t, pool(t, "pgx", dsn+"&default_transaction_read_only=on"), o, "primary")
	refused[*VolatileError](t, pool(t, "pgx", dsn+"&synchronous_commit=off"), o, "synchronous_commit")
	refused[*DialectError](t, db, Options{Dialect: SQLite}, "SQLite")

	run(t, db, "CREATE ROLE stranger LOGIN", "CREATE ROLE reader LOGIN", "CREATE ROLE writer LOGIN", "CREATE ROLE almost LOGIN",
		o.expand("GRANT SELECT ON {operations}, {schema} TO reader"),
		o.expand("GRANT SELECT, INSERT, UPDATE, DELETE ON {operations} TO almost, writer"), o.expand("GRANT SELECT ON {schema} TO almost, writer"),
		o.expand("GRANT USAGE ON SEQUENCE {token} TO writer"))
	for _, user := range []string{"stranger", "reader", "almost"} {
		refused[*ReadOnlyError](t, pool(t, "pgx", secretly(dsn, user, "")), o, "as a user who may read and write its tables: ERROR: permission denied")
	}
	works(t, pool(t, "pgx", secretly(dsn, "writer", "")), o, "a")

	o.Schema = "elsewhere"
	refused[*SchemaError](t, db, o, "Options.Schema")
	run(t, db, "CREATE SCHEMA IF NOT EXISTS elsewhere")
	require.NoError(t, Migrate(t.Context(), db, o))
	works(t, db, o, "a")
}

// TestOpenRefusesReplica: a hot standby is no place for commands, migrated or not, until it is promoted; then what its
// primary had is there.
func TestOpenRefusesReplica(t *testing.T) {
	t.Parallel()
	primary := servertest.New(t, servertest.PostgreSQL)
	p := on(t, PostgreSQL, primary, defaultPrefix)
	db := p.migrated(t).db(t)
	run(t, db, "CREATE DATABASE bare")
	replica := primary.Replicated(t)
	works(t, db, p.options(), "a")

	standby := pool(t, "pgx", replica.URL(""))
	e := refused[*ReadOnlyError](t, standby, p.options(), "connect to the primary, not to a replica")
	require.NoError(t, e.Err, "the server says so itself")
	refused[*ReadOnlyError](t, pool(t, "pgx", replica.URL("bare")), p.options(), "connect to the primary")
	err := Migrate(t.Context(), pool(t, "pgx", replica.URL("bare")), p.options())
	require.ErrorAs(t, err, &e)
	clean(t, err, "connect to the primary")

	require.Eventually(t, func() bool { return p.count(t, standby, "1 = 1") == 1 }, time.Minute, 10*time.Millisecond, "it follows")
	primary.Kill()
	run(t, standby, "SELECT pg_promote()")
	s, err := Open(t.Context(), standby, p.options())
	require.NoError(t, err)
	got, err := s.Get(t.Context(), op("a").Ref)
	require.NoError(t, err)
	require.Equal(t, op("a").Body, got.Body)
	require.NoError(t, s.Close())
	works(t, standby, p.options(), "b")
}

func TestOpenRefusesMariaDB(t *testing.T) {
	t.Parallel()
	srv := servertest.New(t, servertest.MariaDB) // its settings are global
	db, o := pool(t, "mysql", srv.URL("")), Options{Dialect: MariaDB, Schema: "samekey"}
	run(t, db, "CREATE DATABASE samekey")
	for _, user := range []string{"stranger", "reader", "almost", "writer"} {
		run(t, db, fmt.Sprintf("CREATE USER %s@'%%' IDENTIFIED BY '%s'", user, strings.ReplaceAll(secret, "_", "/")))
	}
	run(t, db, "GRANT ALL ON samekey.* TO writer@'%'", "GRANT SELECT ON samekey.* TO reader@'%'", "GRANT SELECT, INSERT, UPDATE ON samekey.* TO almost@'%'")
	as := func(user string) *sql.DB { return pool(t, "mysql", secretly(srv.URL(""), user, "/")) }
	refused[*SchemaError](t, db, o, "Options.Schema")
	refused[*SchemaError](t, db, Options{Dialect: MariaDB}, "the database that the DSN names")
	require.NoError(t, Migrate(t.Context(), db, o))

	for what, wrong := range map[string]string{
		"database": srv.URL("nowhere"), "user": secretly(srv.URL(""), "nobody", "/"), "password": secretly(srv.URL(""), "writer", "("),
		"port": "writer:" + secret + "@tcp(127.0.0.1:1)/samekey",
	} {
		t.Log(what)
		refused[*ConnectError](t, pool(t, "mysql", wrong), o, "check the DSN")
	}
	refused[*DialectError](t, db, Options{Dialect: PostgreSQL}, "PostgreSQL")
	run(t, db, "SET GLOBAL innodb_flush_log_at_trx_commit = 2")
	refused[*VolatileError](t, db, o, "innodb_flush_log_at_trx_commit")
	run(t, db, "SET GLOBAL innodb_flush_log_at_trx_commit = 1")
	refused[*VolatileError](t, pool(t, "mysql", srv.URL("samekey")+"&autocommit=0"), o, "autocommit is off")
	refused[*ConnectError](t, pool(t, "mysql", srv.URL("samekey")+"&clientFoundRows=true"), o, "clientFoundRows=true")

	run(t, db, "SET GLOBAL read_only = 1")
	_, err := as("writer").Exec("CREATE TABLE samekey.x (a integer)")
	require.ErrorContains(t, err, "read-only", "this user has no READ ONLY ADMIN right")
	e := refused[*ReadOnlyError](t, as("writer"), o, "connect to the primary")
	require.NoError(t, e.Err, "the server says so itself")
	refused[*ReadOnlyError](t, db, o, "connect to the primary") // who has the right would do what a replica must not
	clean(t, Migrate(t.Context(), as("writer"), Options{Dialect: MariaDB, Schema: "samekey", Prefix: "new_"}), "connect to the primary")
	run(t, db, "SET GLOBAL read_only = 0")
	refused[*ReadOnlyError](t, pool(t, "mysql", srv.URL("")+"&tx_read_only=1"), o, "connect to the primary")

	refused[*SchemaError](t, as("stranger"), o, "Options.Schema") // who does not even see the tables
	for _, user := range []string{"reader", "almost"} {
		refused[*ReadOnlyError](t, as(user), o, "as a user who may read and write its tables")
	}
	works(t, as("writer"), o, "a")
}

// TestNoDSNInErrors: drivers that show a DSN that cannot be parsed do not get it into our errors.
func TestNoDSNInErrors(t *testing.T) {
	_, err := url.Parse("postgres://samekey:" + strings.ReplaceAll(secret, "_", "/") + "@db/shop")
	require.ErrorContains(t, err, "hunter2")
	for _, e := range []error{
		&ConnectError{Dialect: PostgreSQL, Err: fmt.Errorf("driver: %w", err)}, &DialectError{Dialect: PostgreSQL, Err: err},
		&ReadOnlyError{Dialect: PostgreSQL, Err: err}, &SchemaError{Table: "samekey_operations", Want: 2, Err: err},
	} {
		clean(t, e, "percent-encoded")
	}
	_, err = Open(t.Context(), sql.OpenDB(unparsable{}), Options{Dialect: PostgreSQL})
	require.ErrorAs(t, err, new(*url.Error), "for programs it is there")
	clean(t, err, "percent-encoded")
	require.Equal(t, "a: b; c", plain(errors.New("a:\n\tb\n\tc\n\tb\n")))
}

// unparsable is a driver that finds its DSN to be no URL.
type unparsable struct{}

func (unparsable) Driver() driver.Driver { return nil }
func (unparsable) Connect(context.Context) (driver.Conn, error) {
	return nil, &url.Error{Op: "parse", URL: "postgres://samekey:" + secret + "@db:x", Err: errors.New("invalid port")}
}
