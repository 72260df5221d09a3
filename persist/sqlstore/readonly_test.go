package sqlstore

import (
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/samekey/samekey/persist"
	"github.com/samekey/samekey/persist/persisttest/servertest"
)

// readsOnly opens db for reading, and wants to find "a" in it, and that nothing is changed.
func readsOnly(t *testing.T, db *sql.DB, o Options) {
	t.Helper()
	o.ReadOnly = true
	s, err := Open(t.Context(), db, o)
	require.NoError(t, err)
	ctx, ref := t.Context(), op("a").Ref
	got, err := s.Get(ctx, ref)
	require.NoError(t, err)
	require.Equal(t, op("a").Body, got.Body)
	n := 0
	for rec, err := range s.List(ctx, persist.Filter{}) {
		require.NoError(t, err)
		require.Equal(t, ref, rec.Ref)
		n++
	}
	require.Equal(t, 1, n)
	_, err = s.Get(ctx, op("b").Ref)
	require.ErrorIs(t, err, persist.ErrNotFound)

	c := persist.Claim{Ref: ref, Token: 1}
	_, begin := s.Begin(ctx, op("b"))
	_, claim := s.Claim(ctx, ref)
	_, due := s.ClaimDue(ctx, 1)
	for _, err := range []error{
		begin, claim, due, s.Mark(ctx, c, persist.Progress{}), s.Replace(ctx, c, op("a")), s.Settle(ctx, c, persist.Answer{State: persist.Succeeded}),
		s.Settle(ctx, c, persist.Answer{State: persist.Succeeded, Owed: true}), s.Release(ctx, c), s.Forget(ctx, ref), s.Enqueue(ctx, nil, queued("b")),
	} {
		var e *persist.Error
		require.ErrorAs(t, err, &e)
		require.False(t, e.Maybe)
		require.ErrorContains(t, err, "opened with Options.ReadOnly")
	}
	require.Nil(t, s.Wake(ctx))
	require.NoError(t, s.Flush(ctx))
	require.NoError(t, s.Close())
	_, err = s.Get(ctx, ref)
	require.ErrorIs(t, err, persist.ErrClosed)
}

func TestReadOnlyReplica(t *testing.T) {
	t.Parallel()
	primary := servertest.New(t, servertest.PostgreSQL)
	p := on(t, PostgreSQL, primary, defaultPrefix).migrated(t)
	works(t, p.db(t), p.options(), "a")
	standby := pool(t, "pgx", primary.Replicated(t).URL(""))
	require.Eventually(t, func() bool { return p.count(t, standby, "1 = 1") == 1 }, time.Minute, 10*time.Millisecond, "it follows")
	readsOnly(t, standby, p.options())
	refused[*ReadOnlyError](t, standby, p.options(), "connect to the primary, not to a replica")
}

// TestReadOnlyUser: SELECT is all it takes, and it is looked at once opened. No durability is asked for.
func TestReadOnlyUser(t *testing.T) {
	t.Parallel()
	forbidden := func(t *testing.T, err error) {
		t.Helper()
		var e *ReadOnlyError
		require.ErrorAs(t, err, &e)
		clean(t, err, "grant SELECT")
	}
	t.Run("PostgreSQL", func(t *testing.T) {
		t.Parallel()
		p := fresh(t, PostgreSQL).migrated(t)
		db, o := p.db(t), p.options()
		works(t, db, o, "a")
		looker, half, blind := p.prefix+"looker", p.prefix+"half", p.prefix+"blind"
		run(t, db, "CREATE ROLE "+looker+" LOGIN", "CREATE ROLE "+half+" LOGIN", "CREATE ROLE "+blind+" LOGIN",
			o.expand("GRANT SELECT ON {operations}, {schema} TO "+looker), o.expand("GRANT SELECT ON {schema} TO "+half))
		readsOnly(t, pool(t, "pgx", secretly(p.where, looker, "")+"&synchronous_commit=off"), o)
		o.ReadOnly = true
		for _, user := range []string{half, blind} {
			_, err := Open(t.Context(), pool(t, "pgx", secretly(p.where, user, "")), o)
			forbidden(t, err)
		}
		refused[*SchemaError](t, db, Options{Dialect: PostgreSQL, Prefix: "none_", ReadOnly: true}, "run sqlstore.Migrate")
	})
	t.Run("MariaDB", func(t *testing.T) {
		t.Parallel()
		srv := servertest.New(t, servertest.MariaDB) // its settings are global
		db, o := pool(t, "mysql", srv.URL("")), Options{Dialect: MariaDB, Schema: "samekey", ReadOnly: true}
		run(t, db, "CREATE DATABASE samekey")
		require.NoError(t, Migrate(t.Context(), db, o))
		works(t, db, Options{Dialect: MariaDB, Schema: "samekey"}, "a")
		for _, user := range []string{"looker", "half"} {
			run(t, db, fmt.Sprintf("CREATE USER %s@'%%' IDENTIFIED BY '%s'", user, strings.ReplaceAll(secret, "_", "/")))
		}
		run(t, db, "GRANT SELECT ON samekey.samekey_operations TO looker@'%'", "GRANT SELECT ON samekey.samekey_schema TO looker@'%'",
			"GRANT SELECT ON samekey.samekey_schema TO half@'%'", "SET GLOBAL read_only = 1", "SET GLOBAL innodb_flush_log_at_trx_commit = 2")
		as := func(user string) *sql.DB { return pool(t, "mysql", secretly(srv.URL(""), user, "/")) }
		readsOnly(t, as("looker"), o)
		_, err := Open(t.Context(), as("half"), o)
		forbidden(t, err)
	})
	t.Run("SQLite", func(t *testing.T) {
		t.Parallel()
		p := fresh(t, SQLite).migrated(t)
		works(t, p.db(t), p.options(), "a")
		readsOnly(t, pool(t, "sqlite", "file:"+p.where+"?mode=ro"), p.options())
	})
}

// TestOpenTakesNoToken: Open looks for the right to one, and leaves the sequence as it is.
func TestOpenTakesNoToken(t *testing.T) {
	networked(t, func(t *testing.T, d Dialect) {
		p := fresh(t, d).migrated(t)
		db, tokens := p.db(t), []int64{}
		for range 2 {
			s, err := Open(t.Context(), db, p.options())
			require.NoError(t, err)
			for range 20 {
				var again *Store
				again, err = Open(t.Context(), db, p.options())
				require.NoError(t, err)
				require.NoError(t, errors.Join(err, again.Close()))
			}
			e, err := s.Begin(t.Context(), op(fmt.Sprint(len(tokens))))
			require.NoError(t, err)
			tokens = append(tokens, int64(e.Claim.Token))
			require.NoError(t, s.Close())
		}
		require.Less(t, tokens[1], int64(20), "a Begin takes one a try, and each Open would take one more")
	})
}
