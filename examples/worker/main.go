// Command worker consumes orders from a NATS JetStream stream and charges each at a bank.
//
// JetStream delivers at least once: a worker that dies, or is slow to acknowledge, gets the same message again. That
// becomes no second charge, because the message's ID is the operation's name. worker.go is the part to copy.
//
//	go run .                                              a demonstration: NATS server, bank and worker in one process
//	go run . -nats nats://... -bank URL -dir FOLDER       the worker alone
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/samekey/samekey/mockserver"
)

func main() {
	var cfg config
	flag.StringVar(&cfg.nats, "nats", "", "`URL` of the NATS server; empty: a demonstration")
	flag.StringVar(&cfg.bank, "bank", "", "`URL` of the bank")
	flag.StringVar(&cfg.dir, "dir", "worker-journal", "`folder` of the journal")
	flag.Parse()
	cfg.ackWait = 30 * time.Second
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	do := func() error { return work(ctx, cfg) }
	if cfg.nats == "" {
		do = func() error { return demonstrate(ctx) }
	}
	if err := do(); err != nil {
		fmt.Fprintln(os.Stderr, "worker:", err)
		os.Exit(1)
	}
}

// demonstrate publishes 20 orders to a bank that is slower than JetStream's patience, so that messages come again while
// they are charged, and that loses the answers to half of them.
func demonstrate(ctx context.Context) (err error) {
	dir, err := os.MkdirTemp("", "worker-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	broker, err := startNATS(dir + "/nats")
	if err != nil {
		return err
	}
	defer broker.Shutdown()
	bank := mockserver.NewServer(mockserver.Config{})
	defer bank.Close()
	bank.Fault(
		mockserver.Fault{When: mockserver.AfterCommit, Do: mockserver.Drop, Attempt: 1, Share: 0.5},
		mockserver.Fault{Do: mockserver.Delay(150 * time.Millisecond)},
	)

	const n = 20
	if err := publish(ctx, broker.ClientURL(), n); err != nil {
		return err
	}
	working, enough := context.WithCancel(ctx)
	go func() {
		for bank.Effects() < n && working.Err() == nil {
			time.Sleep(10 * time.Millisecond)
		}
		time.Sleep(300 * time.Millisecond) // for what would come twice
		enough()
	}()
	err = work(working, config{nats: broker.ClientURL(), bank: bank.URL, dir: dir + "/journal", ackWait: 100 * time.Millisecond})
	fmt.Printf("%d messages, %d requests at the bank, %d charges\n", n, len(bank.Requests()), bank.Effects())
	if err == nil && bank.Effects() != n {
		err = errors.New("that is not one charge for each message")
	}
	return err
}

// startNATS starts a server with JetStream in this process.
func startNATS(dir string) (*server.Server, error) {
	s, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT, JetStream: true, StoreDir: dir, NoSigs: true})
	if err != nil {
		return nil, err
	}
	s.Start()
	if !s.ReadyForConnections(10 * time.Second) {
		return nil, errors.New("the NATS server does not start")
	}
	return s, nil
}

// publish puts n orders into the stream.
func publish(ctx context.Context, url string, n int) error {
	nc, err := nats.Connect(url)
	if err != nil {
		return err
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	if _, err := js.CreateOrUpdateStream(ctx, jetstream.StreamConfig{Name: stream, Subjects: []string{"orders.>"}}); err != nil {
		return err
	}
	for i := range n {
		body := fmt.Sprintf(`{"amount":%d,"currency":"RUB","orderRef":"order-%d"}`, 100+i, i)
		if _, err := js.Publish(ctx, "orders.placed", []byte(body), jetstream.WithMsgID(fmt.Sprintf("order-%d", i))); err != nil {
			return err
		}
	}
	return nil
}
