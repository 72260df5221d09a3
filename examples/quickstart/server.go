package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/samekey/samekey/mockserver"
)

// How hard the clients of this example try, samekey's and the naive one alike.
const (
	attemptTimeout = time.Second
	backoffMin     = 20 * time.Millisecond
	backoffMax     = 200 * time.Millisecond
)

// faults are what the server does to the orders. Which orders they strike is drawn by the server's seed. Each strikes an
// order at most once, so that enough attempts always come through.
func faults() []mockserver.Fault {
	const charge = "POST /v1/payments"
	some := func(share float64, when mockserver.Phase, do mockserver.Action) mockserver.Fault {
		return mockserver.Fault{Match: charge, When: when, Do: do, Share: share, Attempt: 1}
	}
	return []mockserver.Fault{
		// The order is charged, and the client does not hear of it. The first order of all is always among these.
		{Match: charge, When: mockserver.AfterCommit, Do: mockserver.Drop, Times: 1},
		some(0.15, mockserver.AfterCommit, mockserver.Drop),
		some(0.05, mockserver.AfterCommit, mockserver.CutBody),
		some(0.05, mockserver.AfterCommit, mockserver.Stall(0)),
		some(0.05, mockserver.AfterCommit, mockserver.Status(http.StatusBadGateway, false)),
		// The order is not charged.
		some(0.10, mockserver.BeforeCommit, mockserver.Status(http.StatusServiceUnavailable, false)),
		// All others are charged slowly, also when the client has died meanwhile.
		{Match: charge, Do: mockserver.Delay(120 * time.Millisecond)},
	}
}

// open starts a mock server on loopback, unless l names one, and sets the faults there.
func (l load) open(ctx context.Context, seed uint64) (opened load, stop func(), err error) {
	if l.Server == "" {
		srv := mockserver.NewServer(mockserver.Config{Seed: seed})
		srv.Fault(faults()...)
		l.Server = srv.URL
		return l, srv.Close, nil
	}
	led, err := readLedger(ctx, l)
	switch {
	case err != nil:
		return l, nil, fmt.Errorf("no mock server at %s: %w", l.Server, err)
	case len(led) > 0:
		return l, nil, fmt.Errorf("the server knows the orders of %s already: take another -seed, or POST %s/_mock/reset", l.Run, l.Server)
	}
	url := l.Server + "/_mock/faults"
	var set []json.RawMessage
	if err := admin(ctx, http.MethodGet, url, nil, &set); err != nil {
		return l, nil, err
	}
	if len(set) > 0 { // somebody's own, which are to be tried
		return l, func() {}, nil
	}
	if err := admin(ctx, http.MethodPost, url, faults(), nil); err != nil {
		return l, nil, err
	}
	return l, func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		_ = admin(ctx, http.MethodDelete, url, nil, nil)
	}, nil
}

// admin talks to the mock server itself.
func admin(ctx context.Context, method, url string, in, out any) error {
	body, err := json.Marshal(in)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	answer, err := io.ReadAll(resp.Body)
	switch err = errors.Join(err, resp.Body.Close()); {
	case err != nil:
		return err
	case resp.StatusCode >= 300:
		return fmt.Errorf("%s %s: %s", method, url, strings.TrimSpace(resp.Status+" "+string(answer)))
	case out == nil:
		return nil
	}
	return json.Unmarshal(answer, out)
}
