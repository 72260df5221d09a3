package contracts

import (
	"github.com/samekey/samekey"
)

// Adyen is Checkout v71 and v72 and Transfers v4: POST, at most 64 characters. Every final answer is stored, failures too,
// unless it bears Transient-Error: true, after which a repeat is handled as the first request. Each answer echoes the key,
// the first one as well; a 5xx without the echo is not taken for Adyen's own. The key is one for the company account, and
// not known across regional endpoints; another payload is not documented.
//
// Unverified: the life (at least 7 days; an older page of Adyen's own says 31), and error code 704 for a request that is
// done or in progress, with a 422 or a 409.
//
// Sources: https://docs.adyen.com/development-resources/api-idempotency, https://github.com/Adyen/adyen-openapi
// (json/CheckoutService-v72.json, json/CheckoutService-v69.json), https://github.com/Adyen/adyen-go-api-library,
// secondary: https://github.com/api-evangelist/adyen.
var Adyen = samekey.Contract{
	Name:             "adyen",
	MaxLength:        64,
	Life:             7 * day,
	StoresRejections: true,
	Echo:             "Idempotency-Key",
	Rules: []samekey.Rule{
		{If: is("/errorCode", "704"), Means: samekey.MeansInProgress},
		{If: samekey.Match{Header: "Transient-Error", Values: []string{"true"}}, Means: samekey.MeansUncertain},
		{If: samekey.Match{Status: []int{samekey.Any5xx}, Header: "Idempotency-Key"}, Means: samekey.MeansStoredFailure},
	},
}

// Square is the operations whose body has idempotency_key (52 POST, 11 PUT, which a policy has to call commands). The
// length is declared per operation, from 45 to 255: 45 holds for all. A repeat gets the first successful answer; another
// payload is IDEMPOTENCY_KEY_REUSED, or whatever the API in question does. The life is not published.
//
// Unverified: the status of a mismatch, which no rule asks for.
//
// Sources: https://developer.squareup.com/docs/working-with-apis/idempotency,
// https://developer.squareup.com/forums/t/how-long-are-idempotency-keys-retained-for-the-createpayment-endpoint/28303,
// https://github.com/square/connect-api-specification (api.json), https://github.com/square/square-go-sdk.
var Square = samekey.Contract{
	Name:      "square",
	Carrier:   samekey.BodyMember("/idempotency_key"),
	MaxLength: 45,
	Rules: []samekey.Rule{
		{If: is("/errors/0/code", "IDEMPOTENCY_KEY_REUSED"), Means: samekey.MeansMismatch},
	},
}

// YooKassa is all POST operations, which require the key: Idempotence-Key, spelt so, of at most 64 letters, digits and
// + - _ . characters. A 202 is not done: the official SDKs repeat it under the same key after the retry_after
// milliseconds of the body. A 500 is to be repeated under the same key.
//
// Unverified: keys on DELETE. A life of 24 h is often quoted and not confirmed by YooKassa, so that it counts as
// unpublished here; the answers to a missing key and to another payload are not documented.
//
// Sources: https://yookassa.ru/developers/api/yookassa-openapi-specification.yaml (read as a copy),
// https://yookassa.ru/developers/using-api/response-handling/http-codes,
// https://github.com/yoomoney/yookassa-sdk-php (lib/Client/BaseClient.php), https://github.com/yoomoney/yookassa-sdk-python.
var YooKassa = samekey.Contract{
	Name:      "yookassa",
	Carrier:   samekey.Header("Idempotence-Key"),
	MaxLength: 64,
	Format:    `[0-9a-zA-Z+\-_.]+`,
	Poll:      samekey.Poll{Resend: true},
	Rules:     []samekey.Rule{{If: status(202), Means: samekey.MeansProcessing}},
}

// YooKassaEndpoints gives the endpoints of [YooKassa], where a 202 is awaited by repeating the command.
func YooKassaEndpoints(base string) map[string]samekey.Policy {
	out := at(base, map[string]samekey.Contract{"POST /": YooKassa})
	for pattern, p := range out {
		p.Await = samekey.On
		out[pattern] = p
	}
	return out
}

// T-Bank's acquiring. Cancel takes an ExternalRequestId (at most 256 characters, 100 for instalments, UUIDv4 for Dolyami;
// it does not work for SBP), and answers a repeat with the present state of the payment; without one a refund is made
// whatever was refunded before. Init has no key: OrderId has to be unique, but elsewhere is said not to be, so that nothing
// is repeated there once it may have been reached.
//
// Life, mismatch and in progress are not documented.
//
// Sources: https://github.com/kravetsone/t-kassa-api (openapi.json), http://developer.tbank.ru/ecosystembundle/api/init.
var (
	TBankCancel = samekey.Contract{Name: "tbank-cancel", Carrier: samekey.BodyMember("/ExternalRequestId"), MaxLength: 256}
	TBankInit   = samekey.Contract{Name: "tbank-init", Carrier: samekey.NoKey}
)

// TBankEndpoints gives the endpoints of [TBankCancel] and [TBankInit].
func TBankEndpoints(base string) map[string]samekey.Policy {
	return at(base, map[string]samekey.Contract{"POST /v2/Cancel": TBankCancel, "POST /v2/Init": TBankInit})
}

// Mollie is any request: a repeat gets the cached first answer. A 409 is not only about keys (two equal refunds in short
// succession, states), so that its reason stays unknown.
//
// Unverified: the life of 1 h, and the note on 409. In progress and mismatch are not documented.
//
// Sources: https://docs.mollie.com/reference/api-idempotency, https://docs.mollie.com/overview/api-idempotency,
// https://github.com/mollie/mollie-api-golang (.speakeasy/out.openapi.yaml), https://github.com/mollie/mollie-api-php,
// secondary: https://github.com/api-evangelist/mollie.
var Mollie = samekey.Contract{Name: "mollie", Life: day / 24}

// MollieEndpoints gives the endpoints of [Mollie], with DELETE as a command: its SDK sends keys there too.
func MollieEndpoints(base string) map[string]samekey.Policy {
	out := at(base, map[string]samekey.Contract{"POST /": Mollie, "PATCH /": Mollie, "DELETE /": Mollie})
	for pattern, p := range out {
		p.Command = samekey.On
		out[pattern] = p
	}
	return out
}

// CheckoutCom is the payment endpoints of [CheckoutComEndpoints]: known for 24 h, or as agreed for the account. Only
// successes are kept: a repeat of anything else is a new try. A 409 says that another request is being processed, and asks
// for 30 s before the next; it was a 429 once, and some pages still say so, which here is a turn-away like any 429. A
// repeat may be answered with a 202 that has the payment: a success. Another payload is not documented.
//
// Sources: https://checkout.com/docs/payments/manage-payments/retry-a-payment,
// https://www.checkout.com/docs/developer-resources/api/idempotency,
// https://support.checkout.com/hc/en-us/articles/24570669653010-Why-did-I-receive-a-409-HTTP-response-to-my-idempotent-API-request-instead-of-429,
// https://support.checkout.com/hc/en-us/articles/26763450855186-Duplicate-payment-request-responses,
// https://github.com/checkout/checkout-sdk-go (client/client.go).
var CheckoutCom = samekey.Contract{
	Name:    "checkout-com",
	Carrier: samekey.Header("Cko-Idempotency-Key"),
	Life:    day,
	Rules:   []samekey.Rule{{If: status(409), Means: samekey.MeansInProgress}},
}

// CheckoutComEndpoints gives the endpoints of [CheckoutCom].
func CheckoutComEndpoints(base string) map[string]samekey.Policy {
	paths := map[string]samekey.Contract{"POST /payment-contexts": CheckoutCom, "POST /payments": CheckoutCom, "POST /transfers": CheckoutCom}
	for _, action := range []string{"authorizations", "cancellations", "captures", "refunds", "voids"} {
		paths["POST /payments/{id}/"+action] = CheckoutCom
	}
	return at(base, paths)
}

// GoCardless is the endpoints that create: a key that has made something is answered with a 409
// idempotent_creation_conflict that names it, and not with the first answer. [samekey.Policy.Resolve] can fetch it and
// make it the answer. Where nothing was made, a repeat is a new try.
//
// Unverified: that another payload is answered alike. Life and in progress are not documented.
//
// Sources: https://gocardless.com/blog/idempotency-keys, https://github.com/gocardless/gocardless-pro-python
// (services/base_service.py, errors.py), https://github.com/gocardless/gocardless-pro-go (retries.go, gc.go), secondary:
// https://github.com/api-evangelist/gocardless.
var GoCardless = samekey.Contract{
	Name: "gocardless",
	Rules: []samekey.Rule{{
		If:    is("/error/errors/0/reason", "idempotent_creation_conflict"),
		Means: samekey.MeansExists,
		Link:  "/error/errors/0/links/conflicting_resource_id",
	}},
}
