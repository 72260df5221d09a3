// Command contract goes once through what the default contract says: a payment and an order are made (201), an answer is
// lost and replayed, a key comes back with another body (409), an order takes its time (202) and is polled until it has
// succeeded, and a refusal (400) is lost and replayed like a success.
//
//	go run ./examples/contract
//
// The server is the mock server, which keeps its side of the contract. [samekey.DefaultContract] is the other side as
// data; package contracts has it for public APIs.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/samekey/samekey"
	"github.com/samekey/samekey/mockserver"
	"github.com/samekey/samekey/persist/journal"
)

const usage = `contract goes once through what the default contract says, at a mock server, and prints each call and its answer:
a payment, a replay, a mismatch, a conflict (409), an order that is polled (202), and a refusal (400).

  go run ./examples/contract

It takes no flags. Exit status: 0 all is as the contract says, 1 it is not, 2 the command line is wrong.
`

func main() {
	flag.Usage = func() { _, _ = fmt.Fprint(flag.CommandLine.Output(), usage) }
	if flag.Parse(); flag.NArg() > 0 {
		flag.Usage()
		os.Exit(2)
	}
	if err := run(context.Background(), os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "contract:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, out io.Writer) (err error) {
	bank := mockserver.NewServer(mockserver.Config{AsyncAfter: 500 * time.Millisecond})
	defer bank.Close()
	shop, err := open(ctx, bank.URL, out)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, shop.close()) }()
	loseAnswer := func() {
		bank.Fault(mockserver.Fault{When: mockserver.AfterCommit, Do: mockserver.Drop, Times: 1})
	}

	shop.say("A payment, and the same call once more: the name is known, and the journal has the answer.")
	key, err := shop.send(ctx, "order-4711/charge", "/v1/payments", `{"amount":100,"currency":"EUR"}`)
	if err != nil {
		return err
	}
	if _, err := shop.send(ctx, "order-4711/charge", "/v1/payments", `{"amount":100,"currency":"EUR"}`); err != nil {
		return err
	}

	shop.say("An order whose answer is lost: the retry bears the same key, and the server replays what it has stored.")
	loseAnswer()
	if _, err := shop.send(ctx, "order-4711/create", "/v1/orders", `{"items":[{"sku":"ABC","qty":2}]}`); err != nil {
		return err
	}

	shop.say("The payment with another amount: refused here, as the journal knows what the name stands for.")
	_, err = shop.send(ctx, "order-4711/charge", "/v1/payments", `{"amount":999,"currency":"EUR"}`)
	if !errors.Is(err, samekey.ErrMismatch) {
		return fmt.Errorf("a mismatch was expected: %w", err)
	}
	shop.say("  *samekey.MismatchError, nothing was sent")

	shop.say("The same by a program without that journal: the server answers 409, which is sent once and never retried.")
	other, err := open(ctx, bank.URL, out)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, other.close()) }()
	other.key = key
	_, err = other.send(ctx, "order-4711/charge", "/v1/payments", `{"amount":999,"currency":"EUR"}`)
	conflict, ok := errors.AsType[*samekey.ConflictError](err)
	if !ok {
		return fmt.Errorf("a conflict was expected: %w", err)
	}
	shop.say("  *samekey.ConflictError, reason: %s, code %s", conflict.Reason, conflict.APIError().Code)

	shop.say("An order that takes its time: 202, and then polls, until it has succeeded.")
	if _, err := shop.send(ctx, "order-4712/create", "/v1/orders", `{"items":[{"sku":"DEF","qty":1}],"async":true}`); err != nil {
		return err
	}

	shop.say("A bad amount, and the answer is lost: the refusal is stored under the key as well, and is no error of Do.")
	loseAnswer()
	if _, err := shop.send(ctx, "order-4713/charge", "/v1/payments", `{"amount":-5,"currency":"EUR"}`); err != nil {
		return err
	}

	shop.say("The server has seen %d commands, and %d effects: a payment and two orders.", len(bank.Commands()), bank.Effects())
	return nil
}

// program is a client with a journal of its own.
type program struct {
	client *samekey.Client
	store  *journal.Journal
	dir    string
	bank   string
	key    string // a key of the program's own; by default samekey makes one for each operation
	out    io.Writer
}

func open(ctx context.Context, bank string, out io.Writer) (*program, error) {
	dir, err := os.MkdirTemp("", "contract-")
	if err != nil {
		return nil, err
	}
	store, err := journal.Open(ctx, dir, journal.Options{})
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	client, err := samekey.New(samekey.Config{
		Store:   store,
		Default: samekey.Policy{Contract: &samekey.DefaultContract, Await: samekey.On},
	})
	if err != nil {
		return nil, errors.Join(err, store.Close(), os.RemoveAll(dir))
	}
	return &program{client: client, store: store, dir: dir, bank: bank, out: out}, nil
}

func (p *program) close() error {
	return errors.Join(p.client.Close(), p.store.Close(), os.RemoveAll(p.dir))
}

func (p *program) say(format string, args ...any) { _, _ = fmt.Fprintf(p.out, format+"\n", args...) }

// send makes one command, tells its answer, and returns its key.
func (p *program) send(ctx context.Context, name, path, body string) (key string, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, p.bank+path, strings.NewReader(body))
	if err != nil {
		return "", err
	}
	req.Header.Set("Content-Type", "application/json")
	if p.key != "" {
		req.Header.Set("Idempotency-Key", p.key)
	}
	resp, err := p.client.Do(samekey.Named(req, name))
	if err != nil {
		return "", err
	}
	defer func() { _ = resp.Body.Close() }()
	info, _ := samekey.InfoOf(resp)
	refusal, err := samekey.APIErrorOf(resp) // nil below 400
	if err != nil {
		return "", err
	}
	result, err := samekey.ResultOf(resp)
	if err != nil {
		return "", err
	}
	text := result.Status + " " + result.ID
	if refusal != nil {
		text = refusal.Code + ": " + refusal.Message
	}
	p.say("  POST %s -> %s (%s, %s, replayed: %t): %s", path, resp.Status, info.State, info.Source, info.Replayed, text)
	return info.Key, nil
}
