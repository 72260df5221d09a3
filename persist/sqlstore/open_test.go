package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/samekey/samekey/persist"
)

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
