package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/samekey/samekey"
	"github.com/samekey/samekey/crashtest"
)

// shop takes orders and has the bank charge them.
type shop struct {
	client *samekey.Client
	bank   string
	orders table
}

func (s *shop) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /orders/{id}", s.post)
	mux.HandleFunc("GET /orders/{id}", s.get)
	return mux
}

// post places an order and pays for it. A customer who asks again, after a timeout or with a double click, gets here
// again, and nothing happens twice.
func (s *shop) post(w http.ResponseWriter, r *http.Request) {
	o := order{ID: r.PathValue("id")}
	if err := json.NewDecoder(io.LimitReader(r.Body, 1<<16)).Decode(&o); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	o, err := s.orders.place(o)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	crashtest.Reached("order placed")
	paid, err := s.pay(r.Context(), o)
	switch {
	case err == nil:
		answer(w, http.StatusCreated, paid)
	case errors.Is(err, errDeclined):
		http.Error(w, err.Error(), http.StatusPaymentRequired)
	case samekey.EffectOf(err) == samekey.EffectNone: // it did not happen: for the customer to try again
		http.Error(w, "the bank cannot be reached", http.StatusBadGateway)
	default: // it may have happened: the order stays as it is, and is paid by the next who asks, or by catchUp
		answer(w, http.StatusAccepted, o)
	}
}

func (s *shop) get(w http.ResponseWriter, r *http.Request) {
	o, is := s.orders.get(r.PathValue("id"))
	if !is {
		http.NotFound(w, r)
		return
	}
	answer(w, http.StatusOK, o)
}

func answer(w http.ResponseWriter, status int, o order) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(o)
}

var errDeclined = errors.New("the bank declines the payment")

// pay charges an order and marks it as paid. Whoever calls it for the same order, in this process or after its death,
// means the same charge: the name says so.
func (s *shop) pay(ctx context.Context, o order) (order, error) {
	if o.Payment != "" {
		return o, nil
	}
	body := fmt.Sprintf(`{"amount":%d,"currency":%q,"orderRef":%q}`, o.Amount, o.Currency, o.ID)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.bank+"/v1/payments", strings.NewReader(body))
	if err != nil {
		return o, err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := s.client.Do(samekey.Named(req, "order-"+o.ID+"/charge"))
	if err != nil {
		return o, err
	}
	defer func() { _ = resp.Body.Close() }()
	var payment struct{ PaymentID string }
	switch err := json.NewDecoder(resp.Body).Decode(&payment); {
	case resp.StatusCode >= 400: // a rejection is an answer, not an error
		return o, errDeclined
	case err != nil:
		return o, err
	}
	crashtest.Reached("answered") // here is where a program without samekey charges twice, or never
	o.Payment = payment.PaymentID
	return o, s.orders.markPaid(o)
}

// catchUp pays for what an earlier life has left unpaid: by the same code, under the same names. The bank knows the key
// of a charge that it has made, and gives the same answer again; mostly it is not even asked, as the answer is in the
// journal.
func (s *shop) catchUp(ctx context.Context) error {
	for _, o := range s.orders.unpaid() {
		if _, err := s.pay(ctx, o); err != nil && !errors.Is(err, errDeclined) {
			return fmt.Errorf("order %s: %w", o.ID, err)
		}
	}
	return nil
}
