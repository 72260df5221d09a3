package main

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"
)

// row is a request as the server's ledger has it.
type row struct {
	N         int        `json:"n"`
	End       *time.Time `json:"end"` // nil: still running
	Key       string     `json:"key"`
	Operation string     `json:"operation"`
	Status    int        `json:"status"`
	Effect    bool       `json:"effect"`
	Lost      bool       `json:"lost"`   // the answer did not go out whole
	HungUp    bool       `json:"hungUp"` // the client was gone by then
}

func (r *row) unheard() bool { return r.Lost || r.HungUp }

// ledger is what the server knows of one run.
type ledger []row

func readLedger(ctx context.Context, l load) (ledger, error) {
	var all ledger
	if err := admin(ctx, http.MethodGet, l.Server+"/_mock/requests", nil, &all); err != nil {
		return nil, fmt.Errorf("the server's ledger: %w", err)
	}
	var own ledger
	for _, r := range all {
		if strings.HasPrefix(r.Operation, l.Run+"/") {
			own = append(own, r)
		}
	}
	return own, nil
}

// settledLedger waits until the server has nothing left to do: it may still be at work for a client that was killed.
func settledLedger(ctx context.Context, l load) (ledger, error) {
	for {
		led, err := readLedger(ctx, l)
		if err != nil || led.running() == 0 {
			return led, err
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func (led ledger) running() (n int) {
	for _, r := range led {
		if r.End == nil {
			n++
		}
	}
	return n
}

// last is the number of the latest request.
func (led ledger) last() int {
	if len(led) == 0 {
		return 0
	}
	return led[len(led)-1].N
}

// inFlight counts the operations that were asked for after request number since, and whose success went out to nobody.
func (led ledger) inFlight(since int) int {
	asked, answered := map[string]bool{}, map[string]bool{}
	for _, r := range led {
		if r.N <= since {
			continue
		}
		asked[r.Operation] = true
		if r.End != nil && r.Status/100 == 2 && !r.unheard() {
			answered[r.Operation] = true
		}
	}
	return len(asked) - len(answered)
}

type figures struct{ operations, attempts, keys, lost, effects, duplicates int }

func (led ledger) figures() figures {
	f := figures{attempts: len(led)}
	operations, keys := map[string]int{}, map[string]int{} // how many effects each had
	for _, r := range led {
		operations[r.Operation] += 0
		if r.Key != "" {
			keys[r.Key] += 0
		}
		if r.unheard() {
			f.lost++
		}
		if !r.Effect {
			continue
		}
		f.effects++
		if operations[r.Operation] > 0 || keys[r.Key] > 0 {
			f.duplicates++
		}
		operations[r.Operation]++
		if r.Key != "" {
			keys[r.Key]++
		}
	}
	f.operations, f.keys = len(operations), len(keys)
	return f
}
