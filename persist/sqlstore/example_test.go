package sqlstore_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/samekey/samekey/persist"
	"github.com/samekey/samekey/persist/sqlstore"
)

// An order and the command that pays for it are there together, or neither is.
func ExampleStore_Enqueue() {
	placeOrder := func(ctx context.Context, db *sql.DB, store *sqlstore.Store, rec persist.Record) error {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer tx.Rollback() // does nothing after the commit
		if _, err := tx.ExecContext(ctx, `INSERT INTO orders (id) VALUES (4711)`); err != nil {
			return err
		}
		if err := store.Enqueue(ctx, tx, rec); err != nil {
			return err
		}
		return tx.Commit()
	}
	_ = placeOrder
}

// pgxTx makes a transaction of pgx fit for Enqueue.
type pgxTx struct{ pgx.Tx }

func (t pgxTx) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	tag, err := t.Exec(ctx, query, args...)
	return driver.RowsAffected(tag.RowsAffected()), err
}

func ExampleStore_Enqueue_pgx() {
	placeOrder := func(ctx context.Context, conn *pgx.Conn, store *sqlstore.Store, rec persist.Record) error {
		return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, `INSERT INTO orders (id) VALUES (4711)`); err != nil {
				return err
			}
			return store.Enqueue(ctx, pgxTx{tx}, rec)
		})
	}
	_ = placeOrder
}

// A team with a tool of its own for migrations takes the SQL from here.
func ExampleMigrations() {
	for _, m := range sqlstore.Migrations(sqlstore.Options{Dialect: sqlstore.PostgreSQL, Prefix: "billing_"}) {
		fmt.Println(m.Version, m.Name)
	}
	// Output:
	// 1 0001_operations.sql
	// 2 0002_sweep.sql
}
