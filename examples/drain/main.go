// Command drain shuts down while 50 calls are under way, as a service does that is deployed anew, and loses none.
//
//	go run ./examples/drain
//
// Close does not wait for the answers of a slow bank: it ends the calls, whose operations stay in the journal under
// their keys, and returns at once. The next process finishes them, and each order is charged once. life is the part to
// read; the bank is a mock server that takes its time.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/samekey/samekey"
	"github.com/samekey/samekey/mockserver"
	"github.com/samekey/samekey/persist/journal"
)

const orders = 50

const usage = `drain shuts a service down while 50 calls are under way, as a new deployment does, starts it again, and shows
that none is lost: each order is charged once, by the ledger of the bank, which is a mock server.

  go run ./examples/drain

It takes no flags. Exit status: 0 it holds, 1 it does not, 2 the command line is wrong.
`

func main() {
	flag.Usage = func() { _, _ = fmt.Fprint(flag.CommandLine.Output(), usage) }
	if flag.Parse(); flag.NArg() > 0 {
		flag.Usage()
		os.Exit(2)
	}
	dir, err := os.MkdirTemp("", "drain-")
	if err == nil {
		err = errors.Join(run(context.Background(), os.Stdout, dir), os.RemoveAll(dir))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "drain:", err)
		os.Exit(1)
	}
}

// run is two lives of a service, and a SIGTERM between them.
func run(ctx context.Context, out io.Writer, dir string) error {
	bank := mockserver.NewServer(mockserver.Config{})
	defer bank.Close()
	bank.Fault(mockserver.Fault{Do: mockserver.Delay(time.Minute)}) // the charge happens then, whoever has left meanwhile

	first, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	go func() {
		for len(bank.Requests()) < orders { // all are at the bank
			time.Sleep(time.Millisecond)
		}
		stop() // what a SIGTERM does
	}()
	if err := life(first, out, filepath.Join(dir, "journal"), bank.URL); err != nil {
		return err
	}

	bank.ClearFaults()
	second, cancel := context.WithCancel(ctx)
	cancel() // it takes no new orders
	if err := life(second, out, filepath.Join(dir, "journal"), bank.URL); err != nil {
		return err
	}
	bank.Engine.Close() // ends the delays
	if n := bank.Effects(); n != orders {
		return fmt.Errorf("%d orders were charged %d times", orders, n)
	}
	_, err := fmt.Fprintf(out, "the bank has charged %d orders, each once\n", bank.Effects())
	return err
}

// life is a service from its start to its end: it finishes what is left from the last one, and charges until it is told to
// stop.
func life(stop context.Context, out io.Writer, dir, bank string) (err error) {
	ctx := context.WithoutCancel(stop) // a stop is no reason to give a customer's call up before Close does
	store, err := journal.Open(ctx, dir, journal.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }() // last
	client, err := samekey.New(samekey.Config{Store: store})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, client.Close()) }()

	report, err := client.Recover(ctx, samekey.Recovery{Concurrency: 16, Jitter: -1})
	if err != nil {
		return err
	}
	_, _ = fmt.Fprintf(out, "started: %d operations of the last life are finished, %d are still unknown\n", report.Succeeded, report.Pending)

	var calls sync.WaitGroup
	var kept atomic.Int64
	for i := 0; i < orders && stop.Err() == nil; i++ {
		calls.Go(func() {
			if err := charge(ctx, client, bank, i); errors.Is(err, samekey.ErrUnknown) {
				kept.Add(1) // errors.Is(err, samekey.ErrClosed) too
			}
		})
	}
	<-stop.Done()

	began := time.Now()
	err = client.Close()
	calls.Wait()
	_, _ = fmt.Fprintf(out, "stopped in %d ms: %d calls were under way, and are kept\n", time.Since(began).Milliseconds(), kept.Load())
	return err
}

func charge(ctx context.Context, client *samekey.Client, bank string, i int) error {
	body := fmt.Sprintf(`{"amount":%d,"currency":"RUB","orderRef":"order-%d"}`, 100+i, i)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, bank+"/v1/payments", strings.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := client.Do(samekey.Named(req, fmt.Sprintf("order-%d/charge", i)))
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, resp.Body)
	return errors.Join(err, resp.Body.Close())
}
