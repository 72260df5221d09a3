package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/samekey/samekey"
	"github.com/samekey/samekey/persist/journal"
)

// child is the program that gets killed, and all that a program needs of samekey. Nothing in it knows of kills, and
// nothing tells its first run from its second: it opens its journal, finishes what an earlier process may have left, and
// does its work from the beginning.
func child(ctx context.Context, l load, dir string, log *slog.Logger, out io.Writer) (err error) {
	// The journal is a folder that belongs to one process at a time. Each key, with its request, is on disk there
	// before the first byte of the request leaves.
	store, err := journal.Open(ctx, dir, journal.Options{Logger: log})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }() // after client.Close

	client, err := samekey.New(samekey.Config{
		Store:  store,
		Logger: log,
		// A policy for each endpoint. The defaults are made for real servers and are slower: 4 attempts of 10 s each.
		Endpoints: map[string]samekey.Policy{
			"POST /v1/payments": {
				MaxAttempts:    10,
				AttemptTimeout: attemptTimeout,
				Backoff:        samekey.Backoff{Min: backoffMin, Max: backoffMax},
			},
		},
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, client.Close()) }()

	// What was under way when the last process died goes on first, each operation under the key that it had. The loop
	// below would do the same, as it uses the same names; Recover is for programs that do not know any more what they
	// had begun. A fleet leaves Jitter at its default of a second, so that it does not return all at once.
	report, err := client.Recover(ctx, samekey.Recovery{Jitter: 50 * time.Millisecond})
	if err != nil {
		return err
	}

	var sent, known, failed atomic.Int64
	l.each(func(o order) {
		switch source, err := charge(ctx, client, l, o); {
		case err != nil:
			// Often nobody knows whether the order was charged (samekey.ErrUnknown). It stays in the journal under its
			// key, so that the same name again is always right: here, by the next process.
			log.Warn("not charged for certain", "order", o.name, "error", err)
			failed.Add(1)
		case source == samekey.Local:
			known.Add(1)
		default:
			sent.Add(1)
		}
	})
	_, _ = fmt.Fprintf(out, "recovered %d, then %d were known to the journal, %d went out\n", report.Succeeded, known.Load(), sent.Load())
	if n := failed.Load(); n > 0 {
		return fmt.Errorf("%d orders are not charged for certain", n)
	}
	return nil
}

// charge charges one order. The name that it gives is the whole trick: called again for the same order, by whatever
// process, it goes on under the same key, or gets the stored answer without a network.
func charge(ctx context.Context, client *samekey.Client, l load, o order) (samekey.Source, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, l.Server+"/v1/payments", strings.NewReader(o.body))
	if err != nil {
		return 0, err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := client.Do(samekey.Named(req, o.name+"/charge"))
	if err != nil {
		return 0, err
	}
	_, err = io.Copy(io.Discard, resp.Body)
	if err := errors.Join(err, resp.Body.Close()); err != nil {
		return 0, err
	}
	info, _ := samekey.InfoOf(resp)
	if info.State != samekey.Succeeded { // a rejection such as a 402 is an answer, not an error
		return 0, fmt.Errorf("%s: %s", info.State, resp.Status)
	}
	return info.Source, nil
}
