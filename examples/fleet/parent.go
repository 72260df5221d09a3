package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"slices"
	"time"

	"github.com/samekey/samekey"
	"github.com/samekey/samekey/mockserver"
	"github.com/samekey/samekey/persist"
)

// story is what fleet does.
func story(ctx context.Context, o options, s *screen, errOut io.Writer) (err error) {
	db, remove, err := newDatabase(ctx, o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, remove()) }()
	srv := mockserver.NewServer(mockserver.Config{Seed: o.seed})
	defer srv.Close()
	srv.Fault(faults()...)

	s.say("%d orders, 3 workers, a lease of %v (seed %d)", o.orders, o.lease, o.seed)
	f := newFleet(3, func(i int) (*exec.Cmd, error) {
		return command(worker{Name: name(i), Server: srv.URL, DB: db, Lease: o.lease, Verbose: o.verbose}, errOut)
	})
	defer f.killAll()
	for i := range o.orders {
		f.queue = append(f.queue, fmt.Sprint("order-", i+1))
	}
	own := worker{DB: db, Lease: o.lease}
	pool, store, err := own.open(ctx) // to look on: nothing is claimed by it
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close(), pool.Close()) }()

	k, err := f.run(ctx, o, s, srv, store)
	if err != nil {
		return err
	}
	if err := f.end(); err != nil {
		return err
	}
	k.judge(srv.Requests())
	pending, err := count(ctx, store, samekey.Pending)
	if err != nil {
		return err
	}
	totals := srv.Totals()
	s.table([]line{
		{"operations", []int{totals.Operations}},
		{"effects at the server", []int{totals.Effects}},
		{"duplicates", []int{totals.Duplicates}},
		{"left pending", []int{pending}},
		{"requests of workers 1 2 3", requestsOf(srv.Requests())},
		{"answers lost", []int{totals.Lost}},
		{"in flight at the SIGKILL", []int{len(k.inFlight)}},
		{"taken over by others", []int{k.takenOver}},
	})
	if err := verdict(totals, o.orders, pending, k); err != nil {
		return err
	}
	s.say("Each of the %d orders was charged once. What worker 2 had in flight went on %.1f s to %.1f s after the kill: a lease of\n"+
		"%v, from the latest mark of each, and up to a second until somebody looked.", o.orders, k.first.Seconds(), k.last.Seconds(), o.lease)
	return nil
}

// verdict holds what happened against what samekey promises.
func verdict(t mockserver.Totals, orders, pending int, k *kill) error {
	var errs []error
	wrong := func(is bool, format string, args ...any) {
		if is {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	wrong(t.Operations != orders, "%d operations reached the server, not %d", t.Operations, orders)
	wrong(t.Effects != t.Operations, "%d effects are not %d operations", t.Effects, t.Operations)
	wrong(t.Duplicates > 0, "%d orders were charged again", t.Duplicates)
	wrong(t.Keys != t.Operations, "%d keys for %d operations", t.Keys, t.Operations)
	wrong(pending > 0, "%d operations are left pending", pending)
	wrong(len(k.inFlight) == 0, "the SIGKILL met no operation in flight")
	wrong(len(k.inFlight) > 0 && k.takenOver == 0, "nobody took over the %d operations in flight", len(k.inFlight))
	return errors.Join(errs...)
}

// faults are what the server does to three of ten requests.
func faults() []mockserver.Fault {
	const charge = "POST /v1/payments"
	some := func(share float64, when mockserver.Phase, do mockserver.Action) mockserver.Fault {
		return mockserver.Fault{Match: charge, When: when, Do: do, Share: share}
	}
	return []mockserver.Fault{
		// The order is charged, and the client does not hear of it.
		some(0.12, mockserver.AfterCommit, mockserver.Drop),
		some(0.06, mockserver.AfterCommit, mockserver.CutBody),
		some(0.03, mockserver.AfterCommit, mockserver.Stall(0)),
		some(0.06, mockserver.AfterCommit, mockserver.Status(http.StatusBadGateway, false)),
		// The order is not charged.
		some(0.08, mockserver.BeforeCommit, mockserver.Status(http.StatusServiceUnavailable, false)),
		// All others are charged slowly, also when the client has died meanwhile.
		{Match: charge, Do: mockserver.Delay(120 * time.Millisecond)},
	}
}

// kill is what the SIGKILL has met.
type kill struct {
	at          time.Time
	inFlight    []string
	takenOver   int
	first, last time.Duration // from the kill until others went on
}

const victim = 1 // worker 2

// run hands out orders until all are done, and kills a worker when a third of them is.
func (f *fleet) run(ctx context.Context, o options, s *screen, srv *mockserver.Server, store persist.Store) (k *kill, err error) {
	for i := range f.workers {
		if err := f.start(i); err != nil {
			return nil, err
		}
	}
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return k, ctx.Err()
		case e := <-f.events:
			if err := f.handle(e); err != nil {
				return k, err
			}
			continue
		case <-tick.C:
			f.feed()
		}
		s.progress("%d of %d orders charged, %d requests, %d answers lost", srv.Effects(), o.orders, srv.Totals().Requests, srv.Totals().Lost)
		switch {
		case k == nil && f.done >= o.orders/3 && len(f.workers[victim].inHand) > 0:
			if k, err = f.killOne(ctx, store); err != nil {
				return k, err
			}
			s.say("worker 2: SIGKILL at %d effects, with %d operations in flight", srv.Effects(), len(k.inFlight))
		case k != nil && f.idle():
			if n, err := count(ctx, store, samekey.Pending); err != nil || n == 0 {
				return k, err
			}
		}
	}
}

// killOne kills worker 2 and asks the store what became of the orders that it had in hand.
func (f *fleet) killOne(ctx context.Context, store persist.Store) (*kill, error) {
	p := f.workers[victim]
	k := &kill{at: time.Now()}
	f.kill(p)
	time.Sleep(100 * time.Millisecond) // the database may be at its last statements still
	for order := range p.inHand {
		rec, err := store.Get(ctx, samekey.Ref{ID: nameOf(order)})
		switch {
		case errors.Is(err, persist.ErrNotFound): // nothing of it was recorded, so nothing was sent: it is handed out again
			f.queue = append(f.queue, order)
		case err != nil:
			return k, err
		case rec.State() == samekey.Pending:
			k.inFlight = append(k.inFlight, order)
		}
	}
	return k, nil
}

// judge finds in the server's ledger who went on with what was in flight, and when.
func (k *kill) judge(ledger []mockserver.Request) {
	first := map[string]time.Duration{}
	for _, r := range ledger {
		after := r.At.Sub(k.at)
		if _, known := first[r.Operation]; !known && after > 0 && r.Header.Get(workerHeader) != name(victim) && slices.Contains(k.inFlight, r.Operation) {
			first[r.Operation] = after
			k.last = max(k.last, after)
			if len(first) == 1 {
				k.first = after
			}
		}
	}
	k.takenOver = len(first)
}

func requestsOf(ledger []mockserver.Request) []int {
	n := make([]int, 3)
	for _, r := range ledger {
		for i := range n {
			if r.Header.Get(workerHeader) == name(i) {
				n[i]++
			}
		}
	}
	return n
}

func count(ctx context.Context, store persist.Store, states ...samekey.State) (n int, err error) {
	for _, err := range store.List(ctx, persist.Filter{States: states}) {
		if err != nil {
			return n, err
		}
		n++
	}
	return n, nil
}
