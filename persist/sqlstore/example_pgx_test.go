package sqlstore_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/samekey/samekey/persist"
	"github.com/samekey/samekey/persist/sqlstore"
)

// pgxTx makes a transaction of pgx fit for Enqueue.
type pgxTx struct{ pgx.Tx }

func (t pgxTx) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	tag, err := t.Exec(ctx, query, args...)
	return driver.RowsAffected(tag.RowsAffected()), err
}

// placeOrder writes an order, and the command that pays for it, in one transaction of pgx. The store itself is on a
// *sql.DB of the same database: stdlib.OpenDBFromPool makes one of the pool.
func placeOrder(ctx context.Context, pool *pgxpool.Pool, store *sqlstore.Store, id int, rec persist.Record) error {
	return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `INSERT INTO orders (id) VALUES ($1)`, id); err != nil {
			return err
		}
		return store.Enqueue(ctx, pgxTx{tx}, rec)
	})
}

// Transactions of pgx itself need an adapter of one method.
func ExampleStore_Enqueue_pgx() {
	var ( // from pgxpool.New, sqlstore.Open and the client's Capture
		pool  *pgxpool.Pool
		store *sqlstore.Store
		rec   persist.Record
	)
	if err := placeOrder(context.Background(), pool, store, 4711, rec); err != nil {
		fmt.Println("there is no order, and no command:", err)
	}
}
