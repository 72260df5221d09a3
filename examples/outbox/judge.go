package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/samekey/samekey"
	"github.com/samekey/samekey/mockserver"
	"github.com/samekey/samekey/persist"
	"github.com/samekey/samekey/persist/sqlstore"
)

// evidence is what there is in the end: in the database, at the bank, and what the shop has told its customers.
type evidence struct {
	rows     map[string]string         // the state of each order's row
	charges  map[string]persist.Record // by order
	requests []mockserver.Request      // the bank's ledger
	told     map[string]string         // what each customer heard: committed, sold-out, failed, or nothing
	met      []kill
}

// kill is what one SIGKILL has met: transactions that were open, and charges at the bank without an answer yet.
type kill struct{ open, inFlight int }

// look reads the database. Nothing is claimed by it.
func (e *evidence) look(ctx context.Context, d database) error {
	return d.with(func(db *sql.DB, o sqlstore.Options) (err error) {
		store, err := sqlstore.Open(ctx, db, o)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, store.Close()) }()
		e.charges = map[string]persist.Record{}
		for rec, err := range store.List(ctx, persist.Filter{}) {
			if err != nil {
				return err
			}
			e.charges[orderOf(rec.ID)] = rec
		}
		e.rows, err = ordersOf(ctx, db, d)
		return err
	})
}

func ordersOf(ctx context.Context, db *sql.DB, d database) (map[string]string, error) {
	rows, err := db.QueryContext(ctx, d.sql(`SELECT id, state FROM {orders}`))
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	orders := map[string]string{}
	for rows.Next() {
		var id, state string
		if err := rows.Scan(&id, &state); err != nil {
			return nil, err
		}
		orders[id] = state
	}
	return orders, rows.Err()
}

// unfinished counts the charges whose answer is not known, or not in the order's row.
func (e *evidence) unfinished() (n int) {
	for _, rec := range e.charges {
		if rec.State() == samekey.Pending || rec.Answer.Owed {
			n++
		}
	}
	return n
}

// figures of the table.
type figures struct {
	transactions, committed, rolledBack int
	kills, open, inFlight               int
	requests, effects                   int
	duplicates, missing, pending        int

	// What must not be, and is not in the table.
	unpaid, noCommand, noOrder, uncalled, lied, keys int
}

func (e *evidence) figures() (f figures) {
	effects, keys := map[string]int{}, map[string]map[string]bool{}
	for _, r := range e.requests {
		if keys[r.Operation] == nil {
			keys[r.Operation] = map[string]bool{}
		}
		keys[r.Operation][r.Key] = true
		if r.Effect {
			effects[r.Operation]++
		}
	}
	for _, n := range effects {
		f.effects += n
		f.duplicates += n - 1
	}
	for id, state := range e.rows {
		count(&f.missing, effects[id] == 0)
		count(&f.unpaid, state != "paid")
		_, is := e.charges[id]
		count(&f.noCommand, !is)
	}
	for id := range e.charges {
		_, is := e.rows[id]
		count(&f.noOrder, !is)
	}
	for id := range keys {
		_, is := e.rows[id]
		count(&f.uncalled, !is)
		count(&f.keys, len(keys[id]) > 1)
	}
	for id, heard := range e.told {
		_, is := e.rows[id]
		count(&f.lied, heard == "committed" && !is || heard == "sold-out" && is)
	}
	for _, k := range e.met {
		f.open += k.open
		f.inFlight += k.inFlight
	}
	f.transactions, f.committed, f.kills, f.requests = len(e.told), len(e.rows), len(e.met), len(e.requests)
	f.rolledBack, f.pending = f.transactions-f.committed, e.unfinished()
	return f
}

func count(n *int, is bool) {
	if is {
		*n++
	}
}

func (f figures) table() []line {
	return []line{
		{"transactions", f.transactions}, {"committed", f.committed}, {"rolled back", f.rolledBack},
		{"SIGKILLs", f.kills}, {"transactions open at these", f.open}, {"charges in flight at these", f.inFlight},
		{"requests at the bank", f.requests}, {"effects at the bank", f.effects},
		{"duplicates", f.duplicates}, {"missing", f.missing}, {"pending", f.pending},
	}
}

// verdict holds what happened against what an outbox promises.
func (f figures) verdict(o options) error {
	var errs []error
	wrong := func(n int, format string) {
		if n != 0 {
			errs = append(errs, fmt.Errorf(format, n))
		}
	}
	if f.transactions != o.orders {
		errs = append(errs, fmt.Errorf("%d transactions were begun, not %d", f.transactions, o.orders))
	}
	if f.effects != f.committed {
		errs = append(errs, fmt.Errorf("%d effects at the bank are not %d committed orders", f.effects, f.committed))
	}
	if f.kills != o.kills {
		errs = append(errs, fmt.Errorf("%d SIGKILLs met the shop, not %d", f.kills, o.kills))
	}
	wrong(f.duplicates, "%d effects too many")
	wrong(f.missing, "%d committed orders were not charged")
	wrong(f.pending, "%d charges are left pending")
	wrong(f.unpaid, "%d orders are not marked as paid")
	wrong(f.noCommand, "%d orders are without a command")
	wrong(f.noOrder, "%d commands are without an order")
	wrong(f.uncalled, "the bank was asked for %d orders that were rolled back")
	wrong(f.keys, "%d orders went out under more than one key")
	wrong(f.lied, "%d customers were told what is not so")
	return errors.Join(errs...)
}
