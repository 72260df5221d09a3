// Command worker consumes orders from a NATS JetStream stream and charges each at a bank. Run it with -h.
//
// worker.go is the part to copy.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/samekey/samekey/mockserver"
)

const usage = `worker consumes orders from a NATS JetStream stream and charges each at a bank.

JetStream delivers at least once: a worker that dies, or is slow to acknowledge, gets the same message again. That
becomes no second charge, because the message's ID is the operation's name.

  go run ./examples/worker                              a demonstration: NATS server, bank and worker in one process
  go run ./examples/worker -nats nats://... -bank URL   the worker alone, until it is interrupted

Exit status: 0 each message is one charge, or it was interrupted; 1 not so; 2 the command line is wrong.

Flags
`

func main() {
	cfg, err := parse(os.Args[1:], os.Stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return
	case err != nil:
		os.Exit(2)
	}
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

// parse says on errOut what is wrong with the command line, or, with -h, how it is used.
func parse(args []string, errOut io.Writer) (config, error) {
	cfg := config{ackWait: 30 * time.Second}
	f := flag.NewFlagSet("worker", flag.ContinueOnError)
	f.SetOutput(errOut)
	f.StringVar(&cfg.nats, "nats", "", "`URL` of the NATS server; empty: a demonstration")
	f.StringVar(&cfg.bank, "bank", "", "`URL` of the bank")
	f.StringVar(&cfg.dir, "dir", "worker-journal", "`folder` of the journal, of the worker alone")
	f.Usage = func() { _, _ = fmt.Fprint(errOut, usage); f.PrintDefaults() }
	if err := f.Parse(args); err != nil {
		return cfg, err
	}
	wrong := ""
	switch {
	case f.NArg() > 0:
		wrong = fmt.Sprintf("%q is no flag", f.Arg(0))
	case cfg.nats != "" && cfg.bank == "":
		wrong = "-nats needs -bank, the URL of who is to charge"
	case cfg.nats == "" && cfg.bank != "":
		wrong = "-bank needs -nats, the URL of the server that has the orders; the demonstration has a bank of its own"
	default:
		return cfg, nil
	}
	err := fmt.Errorf("worker: %s; -h shows the flags", wrong)
	_, _ = fmt.Fprintln(errOut, err)
	return cfg, err
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
