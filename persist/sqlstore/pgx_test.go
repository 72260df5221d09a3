package sqlstore_test

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"

	"github.com/samekey/samekey/persist"
	"github.com/samekey/samekey/persist/persisttest/servertest"
	"github.com/samekey/samekey/persist/sqlstore"
)

// TestPgxTransactions: with transactions and a pool of pgx, as in the example, order and command are there together, or
// neither is.
func TestPgxTransactions(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	pool, err := pgxpool.New(ctx, servertest.Shared(t, servertest.PostgreSQL).URL(""))
	require.NoError(t, err)
	defer pool.Close()
	db := stdlib.OpenDBFromPool(pool)
	defer db.Close()
	_, err = pool.Exec(ctx, "CREATE TABLE orders (id integer PRIMARY KEY)")
	require.NoError(t, err)
	o := sqlstore.Options{Dialect: sqlstore.PostgreSQL, Prefix: "pgx_"}
	require.NoError(t, sqlstore.Migrate(ctx, db, o))
	store, err := sqlstore.Open(ctx, db, o)
	require.NoError(t, err)
	defer store.Close()

	rec := func(id string) persist.Record {
		return persist.Record{Ref: persist.Ref{ID: id}, Named: true, Created: time.Now(), Key: "key-" + id, Method: "POST", Target: "https://bank.test/"}
	}
	require.NoError(t, placeOrder(ctx, pool, store, 1, rec("1/charge")))
	require.Error(t, placeOrder(ctx, pool, store, 1, rec("again/charge")), "there is such an order")
	var known *sqlstore.KnownError
	require.ErrorAs(t, placeOrder(ctx, pool, store, 2, rec("1/charge")), &known)

	var orders []int
	require.NoError(t, pool.QueryRow(ctx, "SELECT array_agg(id) FROM orders").Scan(&orders))
	require.Equal(t, []int{1}, orders)
	due, err := store.ClaimDue(ctx, 9)
	require.NoError(t, err)
	require.Len(t, due, 1)
	require.Equal(t, "1/charge", due[0].ID)
	require.Zero(t, due[0].Progress.Attempts)
}
