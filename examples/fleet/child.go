package main

import (
	"bufio"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/samekey/samekey"
	"github.com/samekey/samekey/persist"
	"github.com/samekey/samekey/persist/sqlstore"
)

// worker is what one process of the fleet is told.
type worker struct {
	Name    string        // the server's ledger has it with each request
	Server  string        // URL
	DB      database      // the same for all
	Lease   time.Duration // the same for all
	Verbose bool
}

// hands is how many orders a worker has in hand at a time.
const hands = 8

// child is one worker, and all that such a program needs of samekey. It knows nothing of the others. They share a table,
// and the names of the orders.
func child(ctx context.Context, w worker, tasks io.Reader, out io.Writer, log *slog.Logger) (err error) {
	db, store, err := w.open(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close(), db.Close()) }() // after client.Close
	client, err := samekey.New(w.config(store, log))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, client.Close()) }()
	w.serve(ctx, client, tasks, out)
	return nil
}

func (w worker) open(ctx context.Context) (*sql.DB, *sqlstore.Store, error) {
	db, o, err := w.DB.open()
	if err != nil {
		return nil, nil, err
	}
	db.SetMaxIdleConns(2 * hands) // what this worker uses at once
	o.Lease = w.Lease
	store, err := sqlstore.Open(ctx, db, o)
	if err != nil {
		return nil, nil, errors.Join(err, db.Close())
	}
	return db, store, nil
}

func (w worker) config(store persist.Store, log *slog.Logger) samekey.Config {
	return samekey.Config{
		Store:  store,
		Logger: log,
		Default: samekey.Policy{
			MaxAttempts: 8,
			// A lease covers at least two of these: New refuses less. It is what others wait for when a worker has
			// died. Where nothing is set, a lease is 30 s and an attempt at most 10 s.
			AttemptTimeout: w.Lease / 3,
			Backoff:        samekey.Backoff{Min: 20 * time.Millisecond, Max: 200 * time.Millisecond},
		},
		// Here credentials would be set, by every worker its own: they are not in the table.
		Prepare: func(_ context.Context, r *http.Request) error {
			r.Header.Set(workerHeader, w.Name)
			return nil
		},
	}
}

const workerHeader = "X-Worker"

// serve charges the orders that come in, one name a line, and says of each what became of it, until the input ends.
func (w worker) serve(ctx context.Context, client *samekey.Client, tasks io.Reader, out io.Writer) {
	var all sync.WaitGroup
	defer all.Wait()
	recovering, stop := context.WithCancel(ctx)
	defer stop()
	// What others have left, because they died or did not come to an answer, is finished here. Each second the store
	// looks whether there is any: an order whose lease is over. Two that look at once get different ones.
	all.Go(func() {
		_ = client.KeepRecovering(recovering, samekey.Recovery{
			Handle: func(_ context.Context, op samekey.Operation, _ *http.Response, _ error) error {
				_, err := fmt.Fprintln(out, "recovered", orderOf(op.ID)) // here an order would be marked as paid
				return err
			},
		})
	})

	orders := make(chan string)
	var working sync.WaitGroup
	for range hands {
		working.Go(func() {
			for order := range orders {
				if err := w.charge(ctx, client, order); err != nil {
					// Nobody knows yet, or another worker has it. It is in the table under its key: whoever recovers it
					// finishes it, and the same name again, in whatever worker, is always right.
					_, _ = fmt.Fprintln(out, "later", order, oneLine(err))
					continue
				}
				_, _ = fmt.Fprintln(out, "done", order)
			}
		})
	}
	for lines := bufio.NewScanner(tasks); lines.Scan(); {
		orders <- lines.Text()
	}
	close(orders)
	working.Wait()
}

// charge charges one order, once, however often and by however many workers it is called.
func (w worker) charge(ctx context.Context, client *samekey.Client, order string) error {
	resp, err := w.do(ctx, client, order)
	if err != nil {
		return err
	}
	if info, _ := samekey.InfoOf(resp); info.State != samekey.Succeeded { // a rejection is an answer, not an error
		return fmt.Errorf("%s: %s", info.State, resp.Status)
	}
	return nil
}

// do returns an answer whose body has been read.
func (w worker) do(ctx context.Context, client *samekey.Client, order string) (*http.Response, error) {
	body := fmt.Sprintf(`{"amount":1000,"currency":"EUR","orderRef":%q}`, order)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, w.Server+"/v1/payments", strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := client.Do(samekey.Named(req, nameOf(order)))
	if err != nil {
		return nil, err
	}
	_, err = io.Copy(io.Discard, resp.Body)
	return resp, errors.Join(err, resp.Body.Close())
}

func nameOf(order string) string { return order + "/charge" }
func orderOf(name string) string { return strings.TrimSuffix(name, "/charge") }

func oneLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }

// childEnv tells the copies of itself that the program starts, and kills, what they are. The DSN is among it, and a
// command line is there for everybody to see.
const childEnv = "FLEET_WORKER"

func readWorker(told string) (w worker, err error) {
	if err := json.Unmarshal([]byte(told), &w); err != nil {
		return w, fmt.Errorf("%s is set, but not by this program: %w", childEnv, err)
	}
	return w, nil
}
