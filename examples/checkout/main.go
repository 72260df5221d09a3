// Command checkout is a shop's web server: an order comes in, is written down, charged at a bank, and marked as paid.
//
//	POST /orders/{id}   {"amount":100,"currency":"RUB"}
//	GET  /orders/{id}
//
// It may be killed anywhere, also between the bank's answer and the row that says so, and the customer may ask again
// meanwhile: the bank charges once. checkout.go is the part to read. With a mock bank:
//
//	go run ./cmd/mockserver -addr 127.0.0.1:8099 &
//	go run ./examples/checkout -addr 127.0.0.1:8080 -dir /tmp/shop -bank http://127.0.0.1:8099
//	curl -d '{"amount":100,"currency":"RUB"}' http://127.0.0.1:8080/orders/4711
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
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

func main() {
	addr := flag.String("addr", "127.0.0.1:8080", "listen here")
	dir := flag.String("dir", "shop-data", "keep orders and journal in this `folder`")
	bank := flag.String("bank", "http://127.0.0.1:8099", "`URL` of the bank")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := serve(ctx, *addr, *dir, *bank); err != nil {
		fmt.Fprintln(os.Stderr, "checkout:", err)
		os.Exit(1)
	}
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
