package sqlstore_test

import (
	"context"
	"database/sql"
	"fmt"

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

// A team with a tool of its own for migrations takes the SQL from here.
func ExampleMigrations() {
	for _, m := range sqlstore.Migrations(sqlstore.Options{Dialect: sqlstore.PostgreSQL, Prefix: "billing_"}) {
		fmt.Println(m.Version, m.Name)
	}
	// Output:
	// 1 0001_operations.sql
	// 2 0002_sweep.sql
}
