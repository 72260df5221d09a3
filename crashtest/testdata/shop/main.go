// Command shop takes one order: it writes the order down, charges it at a bank, and marks it as paid. It may be killed
// anywhere and started again, and it charges once. Nothing in it tells a first life from a second.
//
//	shop [-anonymous] DIR BANK
//
// By default the charge has a name, and running the same code again is all there is to it. With -anonymous the charge
// is an operation without a name: what an earlier life began is finished by Recover, before anything new is begun.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/samekey/samekey"
	"github.com/samekey/samekey/crashtest"
	"github.com/samekey/samekey/persist/journal"
)

const order = "order-1"

func main() {
	anonymous := flag.Bool("anonymous", false, "charge without a name, and recover")
	flag.Parse()
	if err := run(context.Background(), flag.Arg(0), flag.Arg(1), *anonymous); err != nil {
		fmt.Fprintln(os.Stderr, "shop:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, dir, bank string, anonymous bool) (err error) {
	orders := table{filepath.Join(dir, "orders")}
	store, err := journal.Open(ctx, filepath.Join(dir, "journal"), journal.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	client, err := samekey.New(samekey.Config{
		Store:    store,
		Default:  samekey.Policy{Backoff: samekey.Backoff{Min: time.Millisecond, Max: 10 * time.Millisecond}},
		Observer: crashtest.Observer(), // the only line that is here to be killed by
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, client.Close()) }()

	if anonymous {
		report, err := client.Recover(ctx, samekey.Recovery{Jitter: -1, Handle: orders.recovered})
		if err != nil {
			return err
		}
		if report.Pending > 0 { // the order may be among them: begin nothing new
			return fmt.Errorf("%d charges are still unknown", report.Pending)
		}
	}

	if err := orders.addOnce(order + " placed"); err != nil {
		return err
	}
	if !orders.has(order + " paid") {
		crashtest.Reached("order placed")
		if err := charge(ctx, client, bank, orders, anonymous); err != nil {
			return err
		}
	}
	fmt.Println("paid")
	return nil
}

func charge(ctx context.Context, client *samekey.Client, bank string, orders table, anonymous bool) error {
	body := fmt.Sprintf(`{"amount":100,"currency":"RUB","orderRef":%q}`, order)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, bank+"/v1/payments", strings.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	if !anonymous {
		req = samekey.Named(req, order+"/charge")
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	// An anonymous success is forgotten once its body is closed. So that comes last.
	return errors.Join(orders.markPaid(resp), resp.Body.Close())
}

// recovered gets the answer of a charge that an earlier life began.
func (t table) recovered(_ context.Context, _ samekey.Operation, resp *http.Response, err error) error {
	if err != nil { // a conflict: for a human
		return nil
	}
	crashtest.Reached("in the handler")
	return t.markPaid(resp)
}

func (t table) markPaid(resp *http.Response) error {
	if resp.StatusCode != http.StatusCreated {
		return fmt.Errorf("the bank says %s", resp.Status)
	}
	answer := make([]byte, resp.ContentLength) // not to the end of the body: see charge
	if _, err := io.ReadFull(resp.Body, answer); err != nil {
		return err
	}
	var payment struct{ PaymentID string }
	if err := json.Unmarshal(answer, &payment); err != nil {
		return err
	}
	crashtest.Reached("answer read")
	err := t.addOnce(order + " paid by " + payment.PaymentID)
	crashtest.Reached("marked paid")
	return err
}

// table is a file with a row on each line.
type table struct{ path string }

func (t table) has(row string) bool {
	b, _ := os.ReadFile(t.path)
	return bytes.Contains(b, []byte(row))
}

// addOnce is durable when it returns nil.
func (t table) addOnce(row string) error {
	if t.has(row) {
		return nil
	}
	f, err := os.OpenFile(t.path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(f, row)
	return errors.Join(err, f.Sync(), f.Close())
}
