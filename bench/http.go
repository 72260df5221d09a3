package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"time"

	"github.com/failsafe-go/failsafe-go/failsafehttp"
	"github.com/failsafe-go/failsafe-go/timeout"
	"github.com/hashicorp/go-retryablehttp"

	"github.com/samekey/samekey"
	"github.com/samekey/samekey/persist/journal"
	"github.com/samekey/samekey/persist/memory"
)

// client is a contender for the HTTP path.
type client struct {
	do    func(*http.Request) (*http.Response, error)
	close func() error
}

var clientNames = []string{"net/http", "go-retryablehttp", "failsafe-go", "samekey memory", "samekey journal"}

// newClient makes one over rt; dir is for those with something on disk. All get the same request; only samekey gives it
// a key.
func newClient(name string, rt http.RoundTripper, dir string) (client, error) {
	plain := &http.Client{Transport: rt}
	none := func() error { return nil }
	switch name {
	case "net/http":
		return client{plain.Do, none}, nil
	case "go-retryablehttp":
		c := retryablehttp.NewClient()
		c.HTTPClient, c.Logger = plain, nil
		return client{func(req *http.Request) (*http.Response, error) {
			r, err := retryablehttp.FromRequest(req)
			if err != nil {
				return nil, err
			}
			return c.Do(r)
		}, none}, nil
	case "failsafe-go":
		// The same policy as samekey's: four attempts, their backoff, and a timeout for each.
		retries := failsafehttp.NewRetryPolicyBuilder().WithMaxAttempts(4).WithBackoff(200*time.Millisecond, 10*time.Second).Build()
		c := &http.Client{Transport: failsafehttp.NewRoundTripper(rt, retries, timeout.New[*http.Response](10*time.Second))}
		return client{c.Do, none}, nil
	}
	store := memory.New()
	if name == "samekey journal" {
		s, err := newJournal(dir, journal.Options{})
		if err != nil {
			return client{}, err
		}
		store = s.Journal
	}
	c, err := samekey.New(samekey.Config{Store: store, HTTPClient: plain})
	if err != nil {
		return client{}, closeAll(err, store)
	}
	return client{c.Do, func() error { return closeAll(c.Close(), store) }}, nil
}

var (
	payment = record[:350]
	receipt = []byte(`{"status":"succeeded","paymentId":"pay_1"}`)
)

// pay makes one call.
func (c client) pay(url string) error {
	req, err := http.NewRequestWithContext(context.Background(), http.MethodPost, url, bytes.NewReader(payment))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := c.do(req)
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, resp.Body)
	if resp.StatusCode != http.StatusCreated {
		err = errors.Join(err, fmt.Errorf("the answer is %s", resp.Status))
	}
	return closeAll(err, resp.Body)
}

// nowhere answers without a network.
type nowhere struct{}

func (nowhere) RoundTrip(req *http.Request) (*http.Response, error) {
	if _, err := io.Copy(io.Discard, req.Body); err != nil {
		return nil, err
	}
	return &http.Response{
		StatusCode: http.StatusCreated, Status: "201 Created", Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{"Content-Type": {"application/json"}}, ContentLength: int64(len(receipt)),
		Body: io.NopCloser(bytes.NewReader(receipt)), Request: req,
	}, req.Body.Close()
}

// withClients makes those of names whose run is among runs, each over a transport of its own, and has them measured.
func (b *bench) withClients(setting string, runs []string, rt func() http.RoundTripper, do func(map[string]client) error) (err error) {
	made := map[string]client{}
	for _, name := range clientNames {
		if !slices.Contains(runs, at(name, setting)) {
			continue
		}
		dir, err := b.scratch()
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
		c, err := newClient(name, rt(), dir)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, c.close()) }()
		made[name] = c
	}
	return do(made)
}

// calls measures the path of one call, without a network.
func (b *bench) calls(runs []string) error {
	return b.withClients("call", runs, func() http.RoundTripper { return nowhere{} }, func(made map[string]client) error {
		var cs []contestant
		for _, name := range clientNames {
			c, ok := made[name]
			if !ok {
				continue
			}
			n := size(b, 2000, 5000)
			if name == "samekey journal" {
				n /= 20 // each waits for the disk
			}
			cs = append(cs, contestant{run: at(name, "call"), measure: func() (sample, error) {
				return counted(func() (sample, error) {
					return drive(1, times(n), func() error { return c.pay("http://bank.test/v1/payments") })
				})
			}})
		}
		return b.interleave(size(b, 3, 4), cs)
	})
}

// handlers are how long those of the loopback server take.
var handlers = []string{"0ms", "5ms"}

// serve answers on loopback after a while, in the same process.
func serve(after time.Duration) (url string, stop func() error, err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	srv := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		_, _ = io.Copy(io.Discard, req.Body)
		if after > 0 {
			time.Sleep(after)
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusCreated)
		_, _ = w.Write(receipt)
	})}
	go func() { _ = srv.Serve(l) }()
	return "http://" + l.Addr().String() + "/v1/payments", srv.Close, nil
}

func overLoopback() http.RoundTripper {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.MaxIdleConnsPerHost = 64
	return t
}

// loopback measures throughput, 64 at a time.
func (b *bench) loopback(runs []string) error {
	_, setting := cut(runs[0])
	after, err := time.ParseDuration(setting)
	if err != nil {
		return err
	}
	url, stop, err := serve(after)
	if err != nil {
		return err
	}
	err = b.withClients(setting, runs, overLoopback, func(made map[string]client) error {
		var cs []contestant
		for _, name := range clientNames {
			if c, ok := made[name]; ok {
				cs = append(cs, contestant{run: at(name, setting), measure: func() (sample, error) {
					return drive(64, lasting(size(b, 60*time.Millisecond, 150*time.Millisecond)), func() error { return c.pay(url) })
				}})
			}
		}
		return b.interleave(size(b, 3, 4), cs)
	})
	return errors.Join(err, stop())
}

// paced measures the latency that the journal adds at low load, beside that of a raw commit that comes as rarely: each
// of the 8 makes a plain call in between.
func (b *bench) paced(runs []string) error {
	url, stop, err := serve(5 * time.Millisecond)
	if err != nil {
		return err
	}
	err = b.withClients("paced", []string{"net/http@paced", "samekey journal@paced"}, overLoopback, func(made map[string]client) error {
		dir, err := b.scratch()
		if err != nil {
			return err
		}
		raw, err := newRaw(dir, 16<<20)
		if err != nil {
			return err
		}
		timed := func(op func(w *stopwatch) error) func() (sample, error) {
			return func() (sample, error) {
				var w stopwatch
				s, err := drive(8, lasting(size(b, 300*time.Millisecond, 700*time.Millisecond)), func() error { return op(&w) })
				s.P50 = w.p50()
				return s, err
			}
		}
		call := func(c client) func(*stopwatch) error {
			return func(w *stopwatch) error {
				defer w.since(time.Now())
				return c.pay(url)
			}
		}
		cs := []contestant{
			{run: "net/http@paced", measure: timed(call(made["net/http"]))},
			{run: "samekey journal@paced", measure: timed(call(made["samekey journal"]))},
			{run: "raw@paced", measure: timed(func(w *stopwatch) error {
				start := time.Now()
				if _, err := raw.begin(nextID()); err != nil {
					return err
				}
				w.since(start)
				return made["net/http"].pay(url)
			})},
		}
		cs = slices.DeleteFunc(cs, func(c contestant) bool { return !slices.Contains(runs, c.run) })
		return errors.Join(b.interleave(1, cs), raw.close(), os.RemoveAll(dir))
	})
	return errors.Join(err, stop())
}
