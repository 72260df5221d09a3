package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/hashicorp/go-retryablehttp"
)

// withoutSamekey charges the same orders by go-retryablehttp alone, in the two ways in which that goes wrong. Nothing is
// killed, the server's faults are enough.
func withoutSamekey(ctx context.Context, o options, s *screen, _ io.Writer) error {
	ways := []struct {
		name string
		base http.RoundTripper
	}{
		{"key per attempt", freshKeys{newTransport()}},
		{"no key", newTransport()},
	}
	var (
		heads []string
		lines = []line{{name: "operations"}, {name: "attempts on the wire"}, {name: "keys"}, {name: "answers lost"},
			{name: "effects at the server"}, {name: "duplicates"}, {name: "errors returned"}}
		again int
	)
	s.say("%d orders to charge by go-retryablehttp alone, twice; no SIGKILLs (seed %d)", o.Orders, o.seed)
	for _, way := range ways {
		l := o.load
		l.Run += "-" + strings.ReplaceAll(way.name, " ", "-")
		f, failed, err := naive(ctx, l, o.seed, s, way.name, way.base)
		if err != nil {
			return err
		}
		heads = append(heads, way.name)
		for i, n := range []int{f.operations, f.attempts, f.keys, f.lost, f.effects, f.duplicates, failed} {
			lines[i].figures = append(lines[i].figures, n)
		}
		again += f.duplicates
	}
	s.table(heads, lines)
	if again == 0 {
		s.say("No order was charged twice: the faults that this server has lose no answer.")
		return nil
	}
	s.say("Orders were charged twice. Their answers were lost after the charge, and to the server the retry was another")
	s.say("order: it came without a key, or under a new one. Without -naive the same faults, and kills on top, leave")
	s.say("effects = operations.")
	return nil
}

// freshKeys sets a key where many programs do, in a transport. The retries come from above it, so that each attempt
// gets a key of its own. (There would be more duplicates still, but net/http, beneath this transport, repeats some lost
// requests by itself, and those keep their key.)
type freshKeys struct{ next http.RoundTripper }

func (t freshKeys) RoundTrip(req *http.Request) (*http.Response, error) {
	req = req.Clone(req.Context())
	req.Header.Set("Idempotency-Key", uuid.NewString())
	return t.next.RoundTrip(req)
}

func newTransport() *http.Transport { return http.DefaultTransport.(*http.Transport).Clone() }

// naive charges all orders once, and reads in the ledger what came of it. failed is how many orders the client was told
// had failed.
func naive(ctx context.Context, l load, seed uint64, s *screen, name string, base http.RoundTripper) (f figures, failed int, err error) {
	l, stop, err := l.open(ctx, seed)
	if err != nil {
		return f, 0, err
	}
	defer stop()
	client := retryablehttp.NewClient()
	client.Logger = nil
	client.HTTPClient = &http.Client{Transport: base, Timeout: attemptTimeout}
	client.RetryMax, client.RetryWaitMin, client.RetryWaitMax = 9, backoffMin, backoffMax

	var broken atomic.Int64
	done := make(chan struct{})
	go func() {
		defer close(done)
		l.each(func(o order) {
			if chargeNaively(ctx, client, l, o) != nil {
				broken.Add(1)
			}
		})
	}()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			if led, err := readLedger(ctx, l); err == nil {
				f := led.figures()
				s.progress("%s: %d effects, %d attempts, %d answers lost", name, f.effects, f.attempts, f.lost)
			}
		case <-done:
			led, err := settledLedger(ctx, l)
			return led.figures(), int(broken.Load()), err
		}
	}
}

func chargeNaively(ctx context.Context, client *retryablehttp.Client, l load, o order) error {
	req, err := retryablehttp.NewRequestWithContext(ctx, http.MethodPost, l.Server+"/v1/payments", []byte(o.body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, resp.Body)
	if err := errors.Join(err, resp.Body.Close()); err != nil {
		return err
	}
	if resp.StatusCode >= 300 {
		return fmt.Errorf("status %s", resp.Status)
	}
	return nil
}
