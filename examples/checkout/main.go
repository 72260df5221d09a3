// Command checkout is a shop's web server: an order comes in, is written down, charged at a bank, and marked as paid.
// Run it with -h. checkout.go is the part to read.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/samekey/samekey"
	"github.com/samekey/samekey/crashtest"
	"github.com/samekey/samekey/persist/journal"
)

const usage = `checkout is a shop's web server: an order comes in, is written down, charged at a bank, and marked as paid.

  POST /orders/{id}   {"amount":100,"currency":"RUB"}
  GET  /orders/{id}

It may be killed anywhere, also between the bank's answer and the row that says so, and the customer may ask again
meanwhile: the bank charges once. With a mock bank:

  go run ./cmd/mockserver -addr 127.0.0.1:8099 &
  go run ./examples/checkout -dir /tmp/shop
  curl -d '{"amount":100,"currency":"RUB"}' http://127.0.0.1:8080/orders/4711
  curl http://127.0.0.1:8099/_mock/ledger

Exit status: 0 it was interrupted, 1 it could not go on, 2 the command line is wrong.

Flags
`

type options struct{ addr, dir, bank string }

func main() {
	o, err := parse(os.Args[1:], os.Stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return
	case err != nil:
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := serve(ctx, o.addr, o.dir, o.bank); err != nil {
		fmt.Fprintln(os.Stderr, "checkout:", err)
		os.Exit(1)
	}
}

// parse says on errOut what is wrong with the command line, or, with -h, how it is used.
func parse(args []string, errOut io.Writer) (o options, err error) {
	f := flag.NewFlagSet("checkout", flag.ContinueOnError)
	f.SetOutput(errOut)
	f.StringVar(&o.addr, "addr", "127.0.0.1:8080", "listen here")
	f.StringVar(&o.dir, "dir", "shop-data", "keep orders and journal in this `folder`")
	f.StringVar(&o.bank, "bank", "http://127.0.0.1:8099", "`URL` of the bank")
	f.Usage = func() { _, _ = fmt.Fprint(errOut, usage); f.PrintDefaults() }
	if err = f.Parse(args); err == nil && f.NArg() > 0 {
		err = fmt.Errorf("checkout: %q is no flag; -h shows them", f.Arg(0))
		_, _ = fmt.Fprintln(errOut, err)
	}
	return o, err
}

func serve(ctx context.Context, addr, dir, bank string) (err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	store, err := journal.Open(ctx, filepath.Join(dir, "journal"), journal.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }() // after client.Close
	client, err := samekey.New(samekey.Config{
		Store:    store,
		Default:  samekey.Policy{RequireName: samekey.On}, // every command here has a name; one without is a bug
		Observer: crashtest.Observer(),                    // for the test, which kills this program at every step
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, client.Close()) }()

	s := &shop{client: client, bank: bank, orders: table{path: filepath.Join(dir, "orders")}}
	if err := s.catchUp(ctx); err != nil {
		return err
	}
	lis, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	fmt.Println("listening on http://" + lis.Addr().String())
	srv := &http.Server{Handler: s.handler(), ReadHeaderTimeout: 5 * time.Second}
	go func() {
		<-ctx.Done()
		grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		_ = srv.Shutdown(grace)
	}()
	if err := srv.Serve(lis); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
