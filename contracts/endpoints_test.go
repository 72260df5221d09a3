package contracts_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/samekey/samekey"
	"github.com/samekey/samekey/contracts"
	"github.com/samekey/samekey/persist/memory"
)

// Sets of endpoints are taken by New, with a path before their own or without, and requests find their contract.
func TestEndpoints(t *testing.T) {
	for name, set := range map[string]struct {
		of       func(base string) map[string]samekey.Policy
		requests map[string]string // to the name of the contract
	}{
		"Stripe":   {contracts.StripeEndpoints, map[string]string{"POST /v1/charges": "stripe-v1", "POST /v2/core/events": "stripe-v2"}},
		"PayPal":   {contracts.PayPalEndpoints, map[string]string{"POST /v2/checkout/orders": "paypal-orders-v2"}},
		"YooKassa": {contracts.YooKassaEndpoints, map[string]string{"POST /payments": "yookassa"}},
		"T-Bank":   {contracts.TBankEndpoints, map[string]string{"POST /v2/Cancel": "tbank-cancel", "POST /v2/Init": "tbank-init"}},
		"Mollie":   {contracts.MollieEndpoints, map[string]string{"POST /v2/payments": "mollie", "DELETE /v2/payments/tr_1": "mollie", "PATCH /v2/payments/tr_1": "mollie"}},
		"Checkout.com": {contracts.CheckoutComEndpoints, map[string]string{
			"POST /payments": "checkout-com", "POST /payments/pay_1/refunds": "checkout-com", "POST /payments/pay_1/voids": "checkout-com", "POST /transfers": "checkout-com"}},
		"Wise":  {contracts.WiseEndpoints, map[string]string{"POST /v1/transfers": "wise-transfers"}},
		"Plaid": {contracts.PlaidEndpoints, map[string]string{"POST /transfer/authorization/create": "plaid-authorizations", "POST /transfer/create": "plaid-transfers"}},
		"Revolut": {contracts.RevolutEndpoints, map[string]string{
			"POST /pay": "revolut-transactions", "POST /cards": "revolut-cards", "POST /card-invitations": "revolut-cards", "POST /payout-links": "revolut-payout-links"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := serve(t, [][]byte{[]byte("HTTP/1.1 201 Created\r\nConnection: close\r\n\r\n{}")})
			defer s.close()
			for _, under := range []string{"", "/api/1.0"} {
				endpoints := set.of("127.0.0.1" + under)
				require.Equal(t, endpoints, set.of("127.0.0.1"+under+"/"))
				store := memory.New()
				c, err := samekey.New(samekey.Config{Store: store, Endpoints: endpoints})
				require.NoError(t, err)
				for request, want := range set.requests {
					method, path, _ := strings.Cut(request, " ")
					var info samekey.Info
					req, err := http.NewRequestWithContext(samekey.WithInfo(t.Context(), &info), method, s.url+under+path, strings.NewReader(`{"a":1}`))
					require.NoError(t, err)
					resp, err := c.Do(req)
					require.NoError(t, err)
					require.NoError(t, resp.Body.Close())
					require.NotEmpty(t, info.Endpoint, request)
					require.Equal(t, want, endpoints[info.Endpoint].Contract.Name, request)
				}
				require.NoError(t, c.Close())
				require.NoError(t, store.Close())
			}
		})
	}
}
