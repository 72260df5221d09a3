package contracts

import (
	"github.com/samekey/samekey"
)

// StripeV1 is Stripe's API below /v1: POST, at most 255 characters, known for at least 24 h. A failure is stored like a
// success once execution has begun, 500s too, so that a fix needs a new key; a 409 idempotency_key_in_use is not stored,
// and 401 and 429 come from before the keys. Stripe-Should-Retry is false on most 500s. The key is one for the account.
//
// Unverified: the status of a mismatch (no rule asks for it) and the marker of replays. The echo of the key is what
// stripe-go reads; it is not on the page about keys.
//
// Sources: https://docs.stripe.com/api/idempotent_requests, https://docs.stripe.com/idempotency,
// https://docs.stripe.com/error-low-level, https://github.com/stripe/stripe-go (stripe.go, error.go).
var StripeV1 = samekey.Contract{
	Name:             "stripe-v1",
	MaxLength:        255,
	Life:             day,
	StoresRejections: true,
	Replayed:         samekey.Match{Header: "Idempotent-Replayed", Values: []string{"true"}},
	Echo:             "Idempotency-Key",
	RetryHint:        "Stripe-Should-Retry",
	Rules: []samekey.Rule{
		{If: is("/error/code", "idempotency_key_in_use"), Means: samekey.MeansInProgress},
		{If: is("/error/type", "idempotency_error"), Means: samekey.MeansMismatch},
	},
}

// StripeV2 is Stripe's API below /v2: the same header, the opposite of /v1's promises. Keys are known for 30 days; what
// has failed or succeeded in part is executed again by a repeat, whose answer tells the present state, so that no failure
// counts as stored.
//
// Unverified: that a request without a key is given one, and that DELETE takes keys too. Mismatch and in progress are not
// documented.
//
// Sources: https://docs.stripe.com/api/idempotent_requests?api-version=2026-09-30.preview,
// https://docs.stripe.com/api-v2-overview, https://docs.stripe.com/error-low-level.
var StripeV2 = samekey.Contract{
	Name:      "stripe-v2",
	MaxLength: 255,
	Life:      30 * day,
}

// StripeEndpoints gives the endpoints of [StripeV1] and [StripeV2].
func StripeEndpoints(base string) map[string]samekey.Policy {
	return at(base, map[string]samekey.Contract{"POST /v1/": StripeV1, "POST /v2/": StripeV2})
}
