package contracts

import (
	"time"

	"github.com/samekey/samekey"
)

// Wise has two carriers, both for UUIDs: customerTransactionId in the body of a transfer (text that is no UUID is
// refused), and the header X-idempotence-uuid, required on four balance operations and optional where profiles are
// created. A repeat makes no second transfer. A 409 where a profile is created says that there is one.
//
// Life, mismatch and in progress are not documented. The paths of balances and profiles are for Wise's reference to say.
//
// Sources: https://docs.wise.com/guides/product/send-money/standard-api-transfers,
// https://github.com/transferwise/api-docs (_borderless.md, pull request 130), https://github.com/api-evangelist/wise (a copy
// of the OpenAPI document).
var (
	WiseTransfers = samekey.Contract{Name: "wise-transfers", Carrier: samekey.BodyMember("/customerTransactionId"), MaxLength: 36, Format: uuid}
	WiseUUID      = samekey.Contract{Name: "wise-uuid", Carrier: samekey.Header("X-idempotence-uuid"), MaxLength: 36, Format: uuid}
	WiseProfiles  = samekey.Contract{
		Name: "wise-profiles", Carrier: samekey.Header("X-idempotence-uuid"), MaxLength: 36, Format: uuid,
		Rules: []samekey.Rule{{If: status(409), Means: samekey.MeansExists}},
	}
)

// WiseEndpoints gives the endpoint of [WiseTransfers].
func WiseEndpoints(base string) map[string]samekey.Policy {
	return at(base, map[string]samekey.Contract{"POST /v1/transfers": WiseTransfers})
}

// Plaid's keys are in the body, and differ by product: authorisations of transfers (50 characters, 48 h), bank transfers
// (50, at least 7 days; a key counts together with amount, account, type and network, so that a changed amount is another
// transfer), consents of payment initiation (128, 48 h) and wallets (128, 24 h; a reversal wants a minute before a repeat).
// /transfer/create needs none: its authorization_id is the key. An authorisation that asks for the user is exempt: the
// same key goes on once the user has acted.
//
// Mismatch and in progress are not documented, nor is what answers a repeat that a wallet or a consent prevents.
//
// Sources: https://plaid.com/docs/bank-transfers/idempotency-and-retries, https://github.com/plaid/plaid-go
// (model_transfer_authorization_create_request.go, model_wallet_transaction_execute_request.go,
// model_transfer_create_request.go).
var (
	PlaidAuthorizations = plaid("plaid-authorizations", 50, 48*time.Hour)
	PlaidTransfers      = samekey.Contract{Name: "plaid-transfers", Carrier: samekey.Natural}
	PlaidBankTransfers  = plaid("plaid-bank-transfers", 50, 7*day)
	PlaidConsents       = plaid("plaid-consents", 128, 48*time.Hour)
	PlaidWallets        = plaid("plaid-wallets", 128, day)
)

func plaid(name string, length int, life time.Duration) samekey.Contract {
	return samekey.Contract{Name: name, Carrier: samekey.BodyMember("/idempotency_key"), MaxLength: length, Life: life}
}

// PlaidEndpoints gives the endpoints of [PlaidAuthorizations] and [PlaidTransfers], whose paths the sources name.
func PlaidEndpoints(base string) map[string]samekey.Policy {
	return at(base, map[string]samekey.Contract{
		"POST /transfer/authorization/create": PlaidAuthorizations,
		"POST /transfer/create":               PlaidTransfers,
	})
}

// ModernTreasury is every POST: known for 24 h, in progress is a 409, and only successes are stored. Payloads are not
// compared, and keys do not depend on the path: whoever repeats a key gets its first answer, also from another endpoint.
// The key belongs to the API key that sent it: under a new one it is executed again, so let operations end before API
// keys are rotated.
//
// Sources: https://docs.moderntreasury.com/reference/idempotent-requests,
// https://github.com/Modern-Treasury/modern-treasury-go, https://github.com/Modern-Treasury/modern-treasury-openapi.
var ModernTreasury = samekey.Contract{
	Name:  "modern-treasury",
	Life:  day,
	Rules: []samekey.Rule{{If: status(409), Means: samekey.MeansInProgress}},
}

// Increase is every POST: at most 200 characters; the key is an attribute of what it made, one for all of Increase and
// across types, and a repeat gets that object, marked. Another payload is a 409 that names the object's ID.
//
// The life is not stated, in progress is not documented.
//
// Sources: https://increase.com/documentation/idempotency-keys.md, https://github.com/Increase/increase-go,
// https://github.com/api-evangelist/increase (a copy of the OpenAPI document).
var Increase = samekey.Contract{
	Name:      "increase",
	MaxLength: 200,
	Replayed:  samekey.Match{Header: "Idempotent-Replayed", Values: []string{"true"}},
	Rules: []samekey.Rule{
		{If: is("/type", "idempotency_key_already_used_error"), Means: samekey.MeansMismatch, Link: "/resource_id"},
	},
}

// Dwolla is POST /transfers and POST /mass-payments: known for 24 h together with the exact body; in progress is a 409, a
// repeat gets the 201 of the first. A 500 has been seen to lock its key, so that repeats got the 409 for a day; Dwolla's
// advice was to look, and only then to take a new key ([samekey.Client.Rekey]).
//
// What answers another payload is not stated.
//
// Sources: https://developers.dwolla.com/docs/api-reference/api-fundamentals/idempotency-key.md,
// https://status.dwolla.com/incidents/bkl5393wxlhf, https://github.com/Dwolla/v2-ach-api-docs,
// https://github.com/Dwolla/dwolla-openapi.
var Dwolla = samekey.Contract{
	Name:  "dwolla",
	Life:  day,
	Rules: []samekey.Rule{{If: status(409), Means: samekey.MeansInProgress}},
}

// Revolut Business requires request_id in the body of six operations, of at most 40 characters. Transactions know it for
// two weeks; /pay answers a repeat with a 400 of code 3020, and the transaction can be looked up by its request_id. For
// cards and invitations a 429 is a request in progress, not a limit, and a 422 of code 33009 is the stored failure of the
// first. Payout links declare no length, and neither they nor cards a life.
//
// Sources: https://github.com/revolut-engineering/revolut-openapi (yaml/business.yaml).
var (
	RevolutTransactions = revolut("revolut-transactions", 14*day,
		samekey.Rule{If: is("/code", "3020"), Means: samekey.MeansExists})
	RevolutCards = revolut("revolut-cards", 0,
		samekey.Rule{If: status(429), Means: samekey.MeansInProgress},
		samekey.Rule{If: is("/code", "33009"), Means: samekey.MeansStoredFailure})
	RevolutPayoutLinks = revolut("revolut-payout-links", 0)
)

func revolut(name string, life time.Duration, rules ...samekey.Rule) samekey.Contract {
	return samekey.Contract{Name: name, Carrier: samekey.BodyMember("/request_id"), MaxLength: 40, Life: life, Rules: rules}
}

// RevolutEndpoints gives the endpoints of [RevolutTransactions], [RevolutCards] and [RevolutPayoutLinks].
func RevolutEndpoints(base string) map[string]samekey.Policy {
	return at(base, map[string]samekey.Contract{
		"POST /pay": RevolutTransactions, "POST /transfer": RevolutTransactions, "POST /exchange": RevolutTransactions,
		"POST /cards": RevolutCards, "POST /card-invitations": RevolutCards, "POST /payout-links": RevolutPayoutLinks,
	})
}
