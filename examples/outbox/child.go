package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"time"

	"github.com/samekey/samekey"
	"github.com/samekey/samekey/crashtest"
	"github.com/samekey/samekey/persist/sqlstore"
)

// job is what a shop's process is told.
type job struct {
	DB       database
	Bank     string        // URL
	Lease    time.Duration // how long what a dead process had in hand waits for the next
	Interval time.Duration // of recovery
	First    int           // the order to begin with
	Last     int
	Verbose  bool
}

const (
	customers = 4                     // at a time
	browsing  = 20 * time.Millisecond // of each, after an order
)

// child is the shop's process, which gets killed. Nothing in it knows of kills, and nothing tells its first run from its
// second: what it has committed is in the database, and what it has not never was. It ends when stop does.
func child(ctx context.Context, j job, stop io.Reader, out io.Writer, log *slog.Logger) error {
	s, end, err := j.open(ctx, log)
	if err != nil {
		return err
	}
	running, cancel := context.WithCancel(ctx)
	go func() {
		_, _ = io.Copy(io.Discard, stop)
		cancel()
	}()
	var all sync.WaitGroup
	// KeepRecovering is who sends. It looks into the table whenever a transaction with a charge has committed, and each
	// Interval for what a dead process had in hand, which is free again after its lease. One of these in every process
	// of the shop, or in a worker beside it: two never get the same charge.
	all.Go(func() {
		_ = s.client.KeepRecovering(running, samekey.Recovery{
			Handle:   s.charged,
			Interval: j.Interval,
			Jitter:   20 * time.Millisecond, // a fleet leaves it at a second, so that it does not begin all at once
		})
	})
	s.takeOrders(running, j, &all, out)
	<-running.Done()
	all.Wait()
	return end()
}

// open connects to the database and makes the client.
func (j job) open(ctx context.Context, log *slog.Logger) (s *shop, end func() error, err error) {
	db, o, err := j.DB.open()
	if err != nil {
		return nil, nil, err
	}
	o.Lease, o.Logger = j.Lease, log
	if o.Dialect == sqlstore.PostgreSQL {
		o.Listen = j.DB.listen // else the table is looked at each second
	}
	store, err := sqlstore.Open(ctx, db, o)
	if err != nil {
		return nil, nil, errors.Join(err, db.Close())
	}
	client, err := samekey.New(samekey.Config{
		Store:  store,
		Logger: log,
		// Where nothing is set, an attempt may take 10 s, and a lease 30 s: it has to cover two. Credentials go into
		// Prepare, which runs before each attempt: they are not stored with the charge.
		Default: samekey.Policy{
			RequireName:    samekey.On,
			MaxAttempts:    8,
			AttemptTimeout: min(time.Second, j.Lease/2),
			Backoff:        samekey.Backoff{Min: 20 * time.Millisecond, Max: 200 * time.Millisecond},
		},
		Observer: crashtest.Observer(), // for the test, which kills this program at every step
	})
	if err != nil {
		return nil, nil, errors.Join(err, store.Close(), db.Close())
	}
	s = &shop{database: j.DB, db: db, store: store, client: client, bank: j.Bank}
	return s, func() error { return errors.Join(client.Close(), store.Close(), db.Close()) }, nil
}

// takeOrders lets customers in. What becomes of each order is said on out; before its transaction begins, that it does.
func (s *shop) takeOrders(ctx context.Context, j job, all *sync.WaitGroup, out io.Writer) {
	var mu sync.Mutex
	next := j.First
	begin := func() (n int, is bool) { // in their order, so that a number that was said stands for all before it
		mu.Lock()
		defer mu.Unlock()
		if next > j.Last || ctx.Err() != nil {
			return 0, false
		}
		next++
		_, _ = fmt.Fprintln(out, "begun", next-1)
		return next - 1, true
	}
	for range customers {
		all.Go(func() {
			for n, is := begin(); is; n, is = begin() {
				err := s.place(ctx, orderOfCustomer(n))
				switch {
				case err == nil:
					_, _ = fmt.Fprintln(out, "committed", n)
				case errors.Is(err, errSoldOut):
					_, _ = fmt.Fprintln(out, "sold-out", n)
				default:
					_, _ = fmt.Fprintln(out, "failed", n, fmt.Sprintf("%q", err))
				}
				select {
				case <-time.After(browsing):
				case <-ctx.Done():
				}
			}
		})
	}
}

// orderOfCustomer is the order that customer n makes. A third of them is for what is sold out.
func orderOfCustomer(n int) order {
	return order{ID: fmt.Sprint("order-", n), Amount: 1000 + n, SoldOut: n%3 == 0}
}

// childEnv tells the copies of itself that the program starts, and kills, what they are. The DSN is among it, and a
// command line is there for everybody to see.
const childEnv = "OUTBOX_CHILD"

func readJob(told string) (j job, err error) {
	if err := json.Unmarshal([]byte(told), &j); err != nil {
		return j, fmt.Errorf("%s is set, but not by this program: %w", childEnv, err)
	}
	return j, nil
}
