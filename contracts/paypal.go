package contracts

import (
	"time"

	"github.com/samekey/samekey"
)

// PayPal's REST APIs, one contract each, as length and life differ: POST, where the reference of the operation lists the
// header. A repeat gets the present status of what the first request made, not a copy of its answer, and nothing marks
// it. 5xx and timeouts may be repeated for as long as the key is known.
//
// The codes are those of the error pages: PREVIOUS_REQUEST_IN_PROGRESS with a 409 (Payments v2),
// PAYPAL_REQUEST_ID_PREVIOUSLY_USED (Vault v3), DUPLICATE_REQUEST_ID (Payments v1 and older APIs), and
// PAYPAL_REQUEST_ID_REQUIRED with a 400 (Orders v2). There is no central page about another payload, and the place of the
// second and third code in the answer is not documented.
//
// Unverified: a length of 38, which is taken here where an API declares none.
//
// Sources: https://developer.paypal.com/api/rest/reference/idempotency/,
// https://developer.paypal.com/reference/guidelines/idempotency.md,
// https://developer.paypal.com/api/payment-tokens/v3/errors/paypal_request_id_previously_used,
// https://developer.paypal.com/api/deprecated/payments/v1/errors/duplicate_request_id,
// https://github.com/paypal/paypal-rest-api-specifications (openapi/checkout_orders_v2.json, payments_payment_v2.json).
var (
	PayPalOrdersV2      = payPal("paypal-orders-v2", 108, 6*time.Hour) // the life can be raised to 72 h for an account
	PayPalPaymentsV2    = payPal("paypal-payments-v2", 0, 45*day)
	PayPalPaymentsV1    = payPal("paypal-payments-v1", 78, 30*day)
	PayPalPayouts       = payPal("paypal-payouts", 1000, 30*day)
	PayPalSubscriptions = payPal("paypal-subscriptions", 0, 72*time.Hour)
	PayPalCatalog       = payPal("paypal-catalog", 0, 72*time.Hour)
	PayPalVaultV3       = payPal("paypal-vault-v3", 0, 3*time.Hour)     // the key is required
	PayPalWebProfiles   = payPal("paypal-web-profiles", 0, 3*time.Hour) // the key is required
	PayPalOrdersV1      = payPal("paypal-orders-v1", 0, samekey.Forever)
)

func payPal(name string, length int, life time.Duration) samekey.Contract {
	if length == 0 {
		length = 38
	}
	refused := []int{400, 409, 422}
	return samekey.Contract{
		Name:      name,
		Carrier:   samekey.Header("PayPal-Request-Id"),
		MaxLength: length,
		Life:      life,
		Rules: []samekey.Rule{
			{If: is("/details/0/issue", "PREVIOUS_REQUEST_IN_PROGRESS"), Means: samekey.MeansInProgress},
			{If: is("/details/0/issue", "PAYPAL_REQUEST_ID_REQUIRED"), Means: samekey.MeansTurnedAway},
			{If: samekey.Match{Status: refused, Contains: `"PAYPAL_REQUEST_ID_PREVIOUSLY_USED"`}, Means: samekey.MeansMismatch},
			{If: samekey.Match{Status: refused, Contains: `"DUPLICATE_REQUEST_ID"`}, Means: samekey.MeansMismatch},
		},
	}
}

// PayPalEndpoints gives the endpoint of [PayPalOrdersV2] that the sources name. Which operations of the other APIs list the header
// is for their references to say.
func PayPalEndpoints(base string) map[string]samekey.Policy {
	return at(base, map[string]samekey.Contract{"POST /v2/checkout/orders": PayPalOrdersV2})
}
