package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/samekey/samekey/persist"
)

// refused opens db and wants one clear error of type T, on one line, that names the mend.
func refused[T error](t *testing.T, db *sql.DB, o Options, mend string) T {
	t.Helper()
	s, err := Open(t.Context(), db, o)
	require.Error(t, err)
	require.True(t, s == nil)
	var is T
	require.ErrorAs(t, err, &is)
	require.Contains(t, err.Error(), mend)
	require.NotContains(t, strings.TrimSpace(err.Error()), "\n")
	return is
}

func TestOpenRefusesOptions(t *testing.T) {
	for _, o := range []Options{
		{}, {Dialect: 9}, {Dialect: PostgreSQL, Prefix: "a b"}, {Dialect: PostgreSQL, Prefix: "1"}, {Dialect: SQLite, Schema: "x"},
		{Dialect: MariaDB, Schema: "x;y"}, {Dialect: SQLite, Lease: 1}, {Dialect: SQLite, Lease: -1},
		{Dialect: MariaDB, Listen: func(context.Context, string, func()) error { return nil }},
	} {
		_, err := Open(t.Context(), nil, o)
		require.Error(t, err)
		require.Error(t, Migrate(t.Context(), nil, o))
	}
}

func TestOpenRefusesSchema(t *testing.T) {
	each(t, func(t *testing.T, d Dialect) {
		p := fresh(t, d)
		db, o := p.db(t), p.options()
		e := refused[*SchemaError](t, db, o, "run sqlstore.Migrate")
		require.Zero(t, e.Have)

		steps := Migrations(o)
		apply(t, db, steps[0])
		e = refused[*SchemaError](t, db, o, "run sqlstore.Migrate")
		require.Equal(t, []int{1, len(steps)}, []int{e.Have, e.Want})

		for _, m := range steps[1:] {
			apply(t, db, m) // as a tool of one's own would
		}
		s, err := Open(t.Context(), db, o)
		require.NoError(t, err)
		require.NoError(t, s.Close())

		_, err = db.Exec(o.expand("INSERT INTO {schema} (version) VALUES (99)"))
		require.NoError(t, err)
		refused[*SchemaError](t, db, o, "upgrade")
		var newer *SchemaError
		require.ErrorAs(t, Migrate(t.Context(), db, o), &newer)
	})
}

func apply(t *testing.T, db *sql.DB, m Migration) {
	t.Helper()
	for statement := range strings.SplitSeq(m.SQL, ";\n") {
		if strings.TrimSpace(statement) != "" {
			_, err := db.Exec(statement)
			require.NoError(t, err, statement)
		}
	}
}

// TestMigrateFromOlder: what an older version has recorded is there after the migration, and swept in time.
func TestMigrateFromOlder(t *testing.T) {
	each(t, func(t *testing.T, d Dialect) {
		p := fresh(t, d)
		db, o := p.db(t), p.options()
		apply(t, db, Migrations(o)[0])
		q := o.statements()
		pending := op("pending")
		for _, rec := range []persist.Record{pending, op("settled"), op("named")} {
			_, err := db.Exec(q.enqueue, inserted(hashOf(rec.Ref), &rec, make([]byte, 16))...)
			require.NoError(t, err)
		}
		for id, keepName := range map[string]int64{"settled": 5, "named": 1 << 62} {
			_, err := db.Exec(o.expand(`UPDATE {operations} SET state = 1, status = 200, keep_body = 5, keep_name = ?, due_order = NULL WHERE ref_hash = ?`),
				keepName, hashOf(op(id).Ref))
			require.NoError(t, err)
		}
		require.NoError(t, Migrate(t.Context(), db, o))
		s := p.opened(t, nil)
		got, err := s.Get(t.Context(), pending.Ref)
		require.NoError(t, err)
		require.Equal(t, pending.Header, got.Header)
		require.NoError(t, s.sweep(t.Context()))
		require.Equal(t, 2, p.count(t, db, "1 = 1"))
		require.Equal(t, 1, p.count(t, db, "state = 1 AND body IS NULL"))
	})
}

func (p database) count(t testing.TB, db *sql.DB, where string) (n int) {
	t.Helper()
	require.NoError(t, db.QueryRow(p.options().expand(`SELECT count(*) FROM {operations} WHERE `+where)).Scan(&n))
	return n
}

func TestMigrateAtOnce(t *testing.T) {
	each(t, func(t *testing.T, d Dialect) {
		p := fresh(t, d)
		errs := make([]error, 4)
		var all sync.WaitGroup
		for i := range errs {
			db := p.db(t)
			all.Go(func() { errs[i] = Migrate(context.Background(), db, p.options()) })
		}
		all.Wait()
		require.NoError(t, errors.Join(errs...))
		p.opened(t, nil)
	})
}

func TestOpenRefusesServer(t *testing.T) {
	ctx := t.Context()
	open := func(driver, dsn string) *sql.DB {
		db, err := sql.Open(driver, dsn)
		require.NoError(t, err)
		t.Cleanup(func() { _ = db.Close() })
		return db
	}
	t.Run("SQLite", func(t *testing.T) {
		dir := t.TempDir()
		path := filepath.Join(dir, "samekey.db")
		o := Options{Dialect: SQLite}
		refused[*ConnectError](t, open("sqlite", "file:"+filepath.Join(dir, "none", "samekey.db")), o, "check the DSN")
		require.NoError(t, Migrate(ctx, open("sqlite", path), o))
		refused[*ReadOnlyError](t, open("sqlite", "file:"+path+"?mode=ro"), o, "may write")
		refused[*DialectError](t, open("sqlite", path), Options{Dialect: MariaDB}, "MariaDB")
		memory := open("sqlite", ":memory:")
		memory.SetMaxOpenConns(1)
		require.NoError(t, Migrate(ctx, memory, o))
		refused[*VolatileError](t, memory, o, "AllowVolatile")
		o.AllowVolatile = true
		s, err := Open(ctx, memory, o)
		require.NoError(t, err)
		require.NoError(t, s.Close())
		_, err = os.Stat(path)
		require.NoError(t, err)
	})
	t.Run("PostgreSQL", func(t *testing.T) {
		p := fresh(t, PostgreSQL).migrated(t)
		dsn, o := sharedPostgreSQL.get(t).postgresDSN("postgres"), p.options()
		refused[*ConnectError](t, open("pgx", sharedPostgreSQL.s.postgresDSN("nowhere")), o, "check the DSN")
		refused[*ConnectError](t, open("pgx", strings.Replace(dsn, "127.0.0.1:", "127.0.0.1:1", 1)), o, "check the DSN")
		refused[*ReadOnlyError](t, open("pgx", dsn+"&default_transaction_read_only=on"), o, "primary")
		refused[*VolatileError](t, open("pgx", dsn+"&synchronous_commit=off"), o, "synchronous_commit")
		refused[*DialectError](t, open("pgx", dsn), Options{Dialect: SQLite}, "SQLite")
		o.Schema = "elsewhere"
		refused[*SchemaError](t, open("pgx", dsn), o, "Options.Schema")
		_, err := open("pgx", dsn).Exec("CREATE SCHEMA IF NOT EXISTS elsewhere")
		require.NoError(t, err)
		require.NoError(t, Migrate(ctx, open("pgx", dsn), o))
		s, err := Open(ctx, open("pgx", dsn), o)
		require.NoError(t, err)
		_, err = s.Begin(ctx, op("a"))
		require.NoError(t, err)
		require.NoError(t, s.Close())
	})
	t.Run("MariaDB", func(t *testing.T) {
		s, end := mariaDB.serve(t) // its settings are global
		defer end()
		db, o := open("mysql", s.mariaDSN("")), Options{Dialect: MariaDB, Schema: "samekey"}
		exec := func(query string) {
			t.Helper()
			_, err := db.Exec(query)
			require.NoError(t, err)
		}
		exec("CREATE DATABASE samekey")
		refused[*SchemaError](t, db, o, "Options.Schema")
		require.NoError(t, Migrate(ctx, db, o))
		refused[*ConnectError](t, open("mysql", s.mariaDSN("nowhere")), o, "check the DSN")
		refused[*DialectError](t, db, Options{Dialect: PostgreSQL}, "PostgreSQL")
		exec("SET GLOBAL innodb_flush_log_at_trx_commit = 2")
		refused[*VolatileError](t, db, o, "innodb_flush_log_at_trx_commit")
		exec("SET GLOBAL innodb_flush_log_at_trx_commit = 1")
		exec("SET GLOBAL read_only = 1")
		refused[*ReadOnlyError](t, db, o, "primary")
		exec("SET GLOBAL read_only = 0")
		st, err := Open(ctx, db, o)
		require.NoError(t, err)
		_, err = st.Begin(ctx, op("a"))
		require.NoError(t, err)
		require.NoError(t, st.Close())
	})
}
