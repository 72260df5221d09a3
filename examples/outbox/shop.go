package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/samekey/samekey"
	"github.com/samekey/samekey/crashtest"
	"github.com/samekey/samekey/persist/sqlstore"
)

// shop takes orders. It never waits for the bank to take one: the charge is written down in the order's own transaction,
// and sent after the commit.
type shop struct {
	database
	db     *sql.DB
	store  *sqlstore.Store
	client *samekey.Client
	bank   string
}

// order is what a customer asks for.
type order struct {
	ID      string
	Amount  int
	SoldOut bool // which the shop finds out last
}

var errSoldOut = errors.New("sold out")

// place is one transaction: with the order goes the command that charges it, and without it nothing.
func (s *shop) place(ctx context.Context, o order) error {
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // does nothing after the commit
	if _, err := tx.ExecContext(ctx, s.sql(`INSERT INTO {orders} (id, amount, state) VALUES (?, ?, 'placed')`), o.ID, o.Amount); err != nil {
		return err
	}
	crashtest.Reached("order written")
	if err := s.enqueueCharge(ctx, tx, o); err != nil {
		return err
	}
	crashtest.Reached("command written")
	if o.SoldOut {
		return errSoldOut // the order leaves, and its charge with it
	}
	if err := tx.Commit(); err != nil {
		return err
	}
	crashtest.Reached("committed") // here is where a program without an outbox forgets to charge
	return nil
}

// enqueueCharge writes the charge down. Capture makes of the request what is kept of it, its key included, and sends
// nothing; Enqueue needs of a transaction that it can ExecContext.
func (s *shop) enqueueCharge(ctx context.Context, tx *sql.Tx, o order) error {
	body := fmt.Sprintf(`{"amount":%d,"currency":"EUR","orderRef":%q}`, o.Amount, o.ID)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.bank+"/v1/payments", strings.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	rec, err := s.client.Capture(samekey.Named(req, chargeOf(o.ID)))
	if err != nil {
		return err
	}
	return s.store.Enqueue(ctx, tx, rec)
}

// The name of the charge is how its answer finds the order.
func chargeOf(order string) string { return order + "/charge" }
func orderOf(charge string) string { return strings.TrimSuffix(charge, "/charge") }

// charged writes the bank's answer into the order's row. It is told each answer at least once: if the process dies before
// samekey has noted that charged returned nil, the next one is told again, and then the row is no longer 'placed'.
func (s *shop) charged(ctx context.Context, op samekey.Operation, resp *http.Response, err error) error {
	state, payment := "declined", struct{ PaymentID string }{}
	switch {
	case err != nil: // a conflict: the bank says no for good, and a human has to look
		state = "disputed"
	case resp.StatusCode < 300:
		state = "paid"
		if err := json.NewDecoder(resp.Body).Decode(&payment); err != nil {
			return err // told again
		}
	}
	_, err = s.db.ExecContext(ctx, s.sql(`UPDATE {orders} SET state = ?, payment = ? WHERE id = ? AND state = 'placed'`),
		state, payment.PaymentID, orderOf(op.ID))
	if err == nil {
		crashtest.Reached("order paid")
	}
	return err
}
