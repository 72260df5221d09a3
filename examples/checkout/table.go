package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"sync"
)

// order is a row; Payment is empty until it is paid.
type order struct {
	ID       string `json:"id"`
	Amount   int    `json:"amount"`
	Currency string `json:"currency"`
	Payment  string `json:"payment,omitempty"`
}

// table stands in for the shop's database: a file to which each change of an order is added as a line of JSON, durable
// before the method returns.
type table struct {
	path string
	mu   sync.Mutex
}

// place adds an order, unless it is there already: then that one is returned.
func (t *table) place(o order) (order, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if known, is := t.rows()[o.ID]; is {
		return known, nil
	}
	o.Payment = ""
	return o, t.add(o)
}

func (t *table) markPaid(o order) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.rows()[o.ID].Payment == o.Payment {
		return nil
	}
	return t.add(o)
}

func (t *table) get(id string) (order, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	o, is := t.rows()[id]
	return o, is
}

func (t *table) unpaid() (out []order) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, o := range t.rows() {
		if o.Payment == "" {
			out = append(out, o)
		}
	}
	return out
}

// rows reads the latest of each order. A last line that a crash has torn was never acknowledged.
func (t *table) rows() map[string]order {
	rows := map[string]order{}
	b, _ := os.ReadFile(t.path)
	for line := range bytes.Lines(b) {
		var o order
		if json.Unmarshal(line, &o) == nil {
			rows[o.ID] = o
		}
	}
	return rows
}

func (t *table) add(o order) error {
	line, err := json.Marshal(o)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(t.path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(append(append([]byte{'\n'}, line...), '\n')) // away from a torn line
	return errors.Join(err, f.Sync(), f.Close())
}
