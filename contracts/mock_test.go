package contracts_test

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/samekey/samekey"
	"github.com/samekey/samekey/contracts"
	"github.com/samekey/samekey/mockserver"
)

// The mock server's dialects, which are written apart from the contracts, are understood: a lost answer, and another
// payload under a known key.
func TestDialectsOfTheMockServer(t *testing.T) {
	for name, tc := range map[string]struct {
		contract  samekey.Contract
		repeat    samekey.Reason // of the conflict that a repeat is; unsaid: it is a success
		different samekey.Reason // of another payload's; unsaid: the API does not say, or not notice
	}{
		"default":             {samekey.DefaultContract, unsaid, mismatch},
		"ietf":                {contracts.IETF, unsaid, mismatch},
		"stripe-v1":           {contracts.StripeV1, unsaid, mismatch},
		"paypal":              {contracts.PayPalOrdersV2, unsaid, mismatch},
		"adyen":               {contracts.Adyen, unsaid, unsaid},
		"square":              {contracts.Square, unsaid, mismatch},
		"yookassa":            {contracts.YooKassa, unsaid, unsaid},
		"tbank-acquiring":     {contracts.TBankCancel, unsaid, unsaid},
		"mollie":              {contracts.Mollie, unsaid, unsaid},
		"checkout-com":        {contracts.CheckoutCom, unsaid, inProgress}, // any 409 is, by what is documented
		"gocardless":          {contracts.GoCardless, exists, exists},
		"wise":                {contracts.WiseTransfers, unsaid, unsaid},
		"modern-treasury":     {contracts.ModernTreasury, unsaid, unsaid},
		"increase":            {contracts.Increase, unsaid, mismatch},
		"dwolla":              {contracts.Dwolla, unsaid, inProgress},
		"revolut-business":    {contracts.RevolutTransactions, exists, unsaid},
		"aws":                 {contracts.AWSEC2Query, unsaid, mismatch},
		"google-cloud":        {contracts.GoogleCloud, unsaid, unsaid},
		"azure-repeatability": {contracts.AzureRepeatability, unsaid, mismatch},
		"zalando":             {contracts.Zalando, unsaid, unsaid},
	} {
		t.Run(name, func(t *testing.T) {
			profile, err := mockserver.ProfileByName(name)
			require.NoError(t, err)
			srv := mockserver.NewServer(mockserver.Config{Profile: profile, API: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Method == http.MethodPost {
					w.Header().Set("Location", "/v1/things/1")
					w.WriteHeader(http.StatusCreated)
				}
				_, _ = io.WriteString(w, `{"id":"1"}`)
			})})
			defer srv.Close()
			// Each call is by a client that knows nothing of the others.
			send := func(body string) (status int, reason samekey.Reason, err error) {
				c, err := newClient(tc.contract, keys(map[string]string{"op": key}), false)
				require.NoError(t, err)
				defer func() { require.NoError(t, c.close()) }()
				req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, srv.URL+"/v1/things", strings.NewReader(body))
				require.NoError(t, err)
				req.Header.Set("Content-Type", "application/json")
				resp, err := c.Do(samekey.Named(req, "op"))
				if conflict, ok := errors.AsType[*samekey.ConflictError](err); ok {
					return conflict.Status, conflict.Reason, nil
				}
				if resp != nil {
					status = resp.StatusCode
					require.NoError(t, resp.Body.Close())
				}
				return status, unsaid, err
			}
			srv.Fault(mockserver.Fault{When: mockserver.AfterCommit, Do: mockserver.Drop, Times: 1})
			status, reason, err := send(`{"amount":100}`)
			require.NoError(t, err)
			require.Equal(t, tc.repeat, reason)
			require.True(t, tc.repeat != unsaid || status < 300, status)
			require.Len(t, srv.Requests(), 2)
			_, reason, err = send(`{"amount":999}`)
			require.NoError(t, err)
			require.Equal(t, tc.different, reason)
			require.Len(t, srv.Requests(), 3)
			require.Equal(t, 1, srv.Effects())
		})
	}
}
