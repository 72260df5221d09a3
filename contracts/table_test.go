package contracts_test

import (
	"slices"
	"time"

	"github.com/samekey/samekey"
	"github.com/samekey/samekey/contracts"
)

const (
	day         = 24 * time.Hour
	unpublished = time.Hour // what is kept where the server does not say

	mismatch   = samekey.ReasonMismatch
	inProgress = samekey.ReasonInProgress
	exists     = samekey.ReasonExists
	unsaid     = samekey.ReasonUnknown
)

// What most APIs have in common. A refusal that comes after a lost answer settles the operation where the API stores
// refusals, and proves nothing where it does not.
var (
	first      = row{name: "first", play: "created", requests: 1, means: succeeded(201)}
	again      = row{name: "a 500 is tried again", play: "broken, created", requests: 2, means: succeeded(201)}
	atLimit    = row{name: "500s at the limit", play: "broken", requests: 3, means: unknown(500)}
	refusal    = row{name: "a refusal", play: "refused", requests: 1, means: rejected(422)}
	unsettled  = row{name: "a refusal after a lost answer, not stored", play: "drop, refused", requests: 2, means: unknown(422)}
	settled    = row{name: "a refusal after a lost answer, stored", play: "drop, refused", requests: 2, means: rejected(422)}
	conflicted = row{name: "a conflict of the API's own", play: "other conflict", requests: 1, means: conflict(409, unsaid)}
	unmarked   = row{name: "a replay, unmarked", play: "drop, created", requests: 2, means: succeeded(201)}
)

// with is a row with other answers and another meaning.
func (r row) with(play string, m meaning) row { r.play, r.means = play, m; return r }

// apis are what is documented, by the sources that the contracts name.
func apis() []api {
	own := []api{
		{contract: samekey.DefaultContract, place: header("Idempotency-Key"), longest: 255, life: day, rows: []row{
			first, again, conflicted,
			refusal.with("refused", rejected(400)), settled.with("drop, refused", rejected(400)),
			{name: "replay", play: "drop, replay", requests: 2, means: replayed(201)},
			{name: "mismatch", play: "mismatch", requests: 1, means: conflict(409, mismatch)},
			{name: "mismatch as a 400", play: "mismatch as 400", requests: 1, means: conflict(400, mismatch)},
			{name: "mismatch after a lost answer", play: "drop, mismatch", requests: 2, means: conflict(409, mismatch).afterDoubt()},
			{name: "processing", play: "processing", requests: 1, means: processing(202)},
			{name: "stored 500", play: "stored 500", requests: 1, means: stored(500)},
			{name: "the draft's in progress", play: "draft in progress", requests: 1, means: conflict(409, inProgress), then: "created"},
			{name: "the draft's mismatch", play: "draft mismatch", requests: 1, means: conflict(422, mismatch)},
			{name: "the draft's missing key", play: "draft missing", requests: 1, means: turnedAway(400)},
			{name: "the draft's missing key, after a lost answer", play: "drop, draft missing", requests: 2, means: unknown(400)},
			{name: "another problem", play: "other problem", requests: 1, means: rejected(422)},
		}},
		{contract: contracts.StripeV1, place: header("Idempotency-Key"), longest: 255, life: day, rows: []row{
			first.with("created", succeeded(200)), again.with("broken, created", succeeded(200)), conflicted,
			refusal.with("refused", rejected(402)), settled.with("drop, refused", rejected(402)),
			{name: "replay", play: "drop, replay", requests: 2, means: replayed(200)},
			{name: "stored 402", play: "drop, stored refusal", requests: 2, means: meaning{status: 402, state: samekey.Rejected, replayed: true}},
			{name: "stored 404", play: "drop, stored refusal@404", requests: 2, means: meaning{status: 404, state: samekey.Rejected, replayed: true}},
			{name: "stored 500", play: "stored 500", requests: 1, means: stored(500)},
			{name: "a 500 that a repeat cannot help", play: "advised 500", requests: 1, means: unknown(500)},
			{name: "mismatch", play: "mismatch", requests: 1, means: conflict(400, mismatch)},
			{name: "in progress", play: "in progress", requests: 1, means: conflict(409, inProgress), then: "created"},
			{name: "in progress after a lost answer", play: "drop, in progress", requests: 2, means: conflict(409, inProgress).afterDoubt(), then: "replay"},
			{name: "from before the keys", play: "limited", requests: 1, means: turnedAway(429)},
			{name: "no echo", play: "no echo", requests: 1, means: succeeded(200).warned()},
		}},
		{contract: contracts.StripeV2, place: header("Idempotency-Key"), longest: 255, life: 30 * day, rows: []row{
			first, again, conflicted, refusal, unsettled,
			{name: "executed again, the answer updated", play: "broken, updated", requests: 2, means: succeeded(200)},
		}},
		{contract: contracts.Adyen, place: header("Idempotency-Key"), longest: 64, life: 7 * day, rows: []row{
			first.with("created", succeeded(200)), unmarked.with("drop, created", succeeded(200)), conflicted, refusal, settled,
			{name: "done or in progress", play: "in progress", requests: 1, means: conflict(422, inProgress), then: "created"},
			{name: "done or in progress, as a 409", play: "in progress as 409", requests: 1, means: conflict(409, inProgress), then: "created"},
			{name: "transient", play: "transient, created", requests: 2, means: succeeded(200)},
			{name: "transient 500", play: "transient 500, created", requests: 2, means: succeeded(200)},
			{name: "stored 500", play: "stored 500", requests: 1, means: stored(500)},
			{name: "stored, and says so", play: "not transient", requests: 1, means: stored(500)},
			{name: "a gateway's", play: "gateway, created", requests: 2, means: succeeded(200)},
			{name: "no echo", play: "no echo", requests: 1, means: succeeded(200).warned()},
		}},
		{contract: contracts.Square, place: member("idempotency_key"), longest: 45, life: unpublished, rows: []row{
			first, unmarked, again, conflicted,
			refusal.with("refused", rejected(400)), unsettled.with("drop, refused", unknown(400)),
			{name: "mismatch", play: "mismatch", requests: 1, means: conflict(400, mismatch)},
			{name: "missing key", play: "missing key", requests: 1, means: rejected(400)},
		}},
		{contract: contracts.YooKassa, place: header("Idempotence-Key"), longest: 64, badForm: "a/b", life: unpublished, rows: []row{
			first.with("created", succeeded(200)), again.with("broken, created", succeeded(200)), atLimit, conflicted,
			refusal.with("refused", rejected(400)), unsettled.with("drop, refused", unknown(400)),
			{name: "processing", play: "processing", requests: 1, means: processing(202)},
			{name: "processing, awaited", play: "processing, processing, created", requests: 3, means: succeeded(200), await: true},
		}},
		{contract: contracts.TBankCancel, answers: "plain", place: member("ExternalRequestId"), longest: 256, life: unpublished, rows: []row{
			first, again, conflicted, refusal, unsettled,
			{name: "the present state", play: "drop, current state", requests: 2, means: succeeded(200)},
		}},
		{contract: contracts.TBankInit, answers: "plain", place: nowhere, life: samekey.Forever, rows: []row{
			first, conflicted, refusal,
			{name: "nothing is repeated", play: "broken", requests: 1, means: unknown(500)},
			{name: "nor after a lost answer", play: "drop", requests: 1, means: unknown(0)},
		}},
		{contract: contracts.Mollie, answers: "plain", place: header("Idempotency-Key"), longest: 255, life: time.Hour, rows: []row{
			first, unmarked, again, conflicted, refusal, unsettled,
		}},
		{contract: contracts.CheckoutCom, place: header("Cko-Idempotency-Key"), longest: 255, life: day, rows: []row{
			first, unmarked, again, refusal, unsettled,
			{name: "in progress", play: "in progress", requests: 1, means: conflict(409, inProgress), then: "created"},
			{name: "in progress, as it was once", play: "drop, limited", requests: 2, means: unknown(429)},
			{name: "a replay as a 202", play: "drop, replay as 202", requests: 2, means: succeeded(202)},
		}},
		{contract: contracts.GoCardless, place: header("Idempotency-Key"), longest: 255, life: unpublished, rows: []row{
			first, again, conflicted, refusal, unsettled,
			{name: "replay", play: "drop, replay", requests: 2, means: conflict(409, exists).naming("PM123").afterDoubt()},
			{name: "mismatch", play: "replay", requests: 1, means: conflict(409, exists).naming("PM123")},
		}},
		{contract: contracts.WiseTransfers, answers: "plain", place: member("customerTransactionId"), longest: 36, badForm: "no-uuid", life: unpublished, rows: []row{
			first, again, conflicted, refusal, unsettled,
			{name: "no second transfer", play: "drop, current state", requests: 2, means: succeeded(200)},
		}},
		{contract: contracts.WiseUUID, answers: "plain", place: header("X-idempotence-uuid"), longest: 36, badForm: "no-uuid", life: unpublished, rows: []row{
			first, again, conflicted, refusal, unsettled,
		}},
		{contract: contracts.WiseProfiles, answers: "plain", place: header("X-idempotence-uuid"), longest: 36, badForm: "no-uuid", life: unpublished, rows: []row{
			first, again, refusal, unsettled,
			{name: "there is a profile", play: "other conflict", requests: 1, means: conflict(409, exists)},
		}},
		{contract: contracts.PlaidTransfers, answers: "plain", place: nowhere, life: samekey.Forever, rows: []row{
			first, again, unmarked, conflicted, refusal, unsettled,
		}},
		{contract: contracts.ModernTreasury, answers: "checkout-com", place: header("Idempotency-Key"), longest: 255, life: day, rows: []row{
			first, unmarked, again, refusal, unsettled,
			{name: "mismatch: the first answer, whatever is asked", play: "created", requests: 1, means: succeeded(201)},
			{name: "in progress", play: "in progress", requests: 1, means: conflict(409, inProgress), then: "created"},
		}},
		{contract: contracts.Increase, place: header("Idempotency-Key"), longest: 200, life: unpublished, rows: []row{
			first, again, conflicted, refusal, unsettled,
			{name: "replay", play: "drop, replay", requests: 2, means: replayed(200)},
			{name: "no replay", play: "drop, unmarked", requests: 2, means: succeeded(200)},
			{name: "mismatch", play: "mismatch", requests: 1, means: conflict(409, mismatch).naming("transfer_7")},
		}},
		{contract: contracts.Dwolla, answers: "checkout-com", place: header("Idempotency-Key"), longest: 255, life: day, rows: []row{
			first, unmarked, again, refusal, unsettled,
			{name: "in progress", play: "in progress", requests: 1, means: conflict(409, inProgress), then: "created"},
			{name: "locked by a 500", play: "broken, in progress", requests: 2, means: conflict(409, inProgress).afterDoubt(), then: "created"},
		}},
		{contract: contracts.RevolutTransactions, answers: "revolut", place: member("request_id"), longest: 40, life: 14 * day, rows: []row{
			first, again, conflicted, refusal, unsettled,
			{name: "a repeat", play: "drop, duplicate", requests: 2, means: conflict(400, exists).afterDoubt()},
			{name: "another 400", play: "invalid", requests: 1, means: rejected(400)},
		}},
		{contract: contracts.RevolutCards, answers: "revolut", place: member("request_id"), longest: 40, life: unpublished, rows: []row{
			first, again, conflicted, refusal, unsettled,
			{name: "in progress", play: "in progress", requests: 1, means: conflict(429, inProgress), then: "created"},
			{name: "stored failure", play: "stored failure", requests: 1, means: stored(422)},
			{name: "another 422", play: "other 422", requests: 1, means: rejected(422)},
		}},
		{contract: contracts.RevolutPayoutLinks, answers: "revolut", place: member("request_id"), longest: 40, life: unpublished, rows: []row{
			first, again, conflicted, refusal, unsettled,
		}},
		{contract: contracts.GoogleCloud, answers: "plain", place: query("requestId"), longest: 36, badForm: "00000000-0000-0000-0000-000000000000", life: time.Hour, rows: []row{
			first, unmarked, again, conflicted, refusal, unsettled,
			{name: "stale success", play: "drop, current state", requests: 2, means: succeeded(200)},
		}},
		{contract: contracts.AzureRepeatability, place: pair, longest: 36, badForm: "no-uuid", life: 5 * time.Minute, rows: []row{
			first, unmarked, again, conflicted,
			refusal.with("refused", rejected(400)), unsettled.with("drop, refused", unknown(400)),
			{name: "mismatch", play: "mismatch", requests: 1, means: conflict(400, mismatch)},
			{name: "no support", play: "unsupported", requests: 1, means: rejected(501)},
		}},
		{contract: contracts.IETF, place: quotedHeader("Idempotency-Key"), longest: 255, life: unpublished, rows: []row{
			first, unmarked, again, atLimit,
			refusal.with("refused", rejected(400)), settled.with("drop, refused", rejected(400)),
			{name: "mismatch", play: "mismatch", requests: 1, means: conflict(422, mismatch)},
			{name: "mismatch, by a link", play: "mismatch by link", requests: 1, means: conflict(422, mismatch)},
			{name: "in progress", play: "in progress", requests: 1, means: conflict(409, inProgress), then: "created"},
			{name: "in progress, by a link", play: "in progress by link", requests: 1, means: conflict(409, inProgress), then: "created"},
			{name: "missing key", play: "missing key", requests: 1, means: turnedAway(400)},
		}},
		{contract: contracts.Zalando, place: header("Idempotency-Key"), longest: 255, life: unpublished, rows: []row{
			first, unmarked, again, atLimit, conflicted, refusal, settled,
			{name: "mismatch, which nothing tells from other 400s", play: "mismatch", requests: 1, means: rejected(400)},
		}},
	}
	return slices.Concat(own, payPals(), plaids(), clouds())
}

func payPals() (all []api) {
	rows := []row{
		first, again, refusal, unsettled, conflicted,
		{name: "the latest status", play: "drop, latest status", requests: 2, means: succeeded(200)},
		{name: "in progress", play: "in progress", requests: 1, means: conflict(409, inProgress), then: "created"},
		{name: "missing key", play: "missing key", requests: 1, means: turnedAway(400)},
		{name: "no error", play: "talk of keys", requests: 1, means: succeeded(201)},
	}
	for _, code := range []string{"previously used", "duplicate"} {
		for status, suffix := range map[int]string{400: "@400", 409: "@409", 422: "@422"} {
			rows = append(rows, row{name: code + suffix, play: code + suffix, requests: 1, means: conflict(status, mismatch)})
		}
	}
	for _, a := range []api{
		{contract: contracts.PayPalOrdersV2, longest: 108, life: 6 * time.Hour},
		{contract: contracts.PayPalPaymentsV2, longest: 38, life: 45 * day},
		{contract: contracts.PayPalPaymentsV1, longest: 78, life: 30 * day},
		{contract: contracts.PayPalPayouts, longest: 1000, life: 30 * day},
		{contract: contracts.PayPalSubscriptions, longest: 38, life: 72 * time.Hour},
		{contract: contracts.PayPalCatalog, longest: 38, life: 72 * time.Hour},
		{contract: contracts.PayPalVaultV3, longest: 38, life: 3 * time.Hour},
		{contract: contracts.PayPalWebProfiles, longest: 38, life: 3 * time.Hour},
		{contract: contracts.PayPalOrdersV1, longest: 38, life: samekey.Forever},
	} {
		a.answers, a.place, a.rows = "paypal", header("PayPal-Request-Id"), rows
		all = append(all, a)
	}
	return all
}

func plaids() (all []api) {
	for _, a := range []api{
		{contract: contracts.PlaidAuthorizations, longest: 50, life: 48 * time.Hour},
		{contract: contracts.PlaidBankTransfers, longest: 50, life: 7 * day},
		{contract: contracts.PlaidConsents, longest: 128, life: 48 * time.Hour},
		{contract: contracts.PlaidWallets, longest: 128, life: day},
	} {
		a.answers, a.place = "plain", member("idempotency_key")
		a.rows = []row{first, unmarked, again, conflicted, refusal, unsettled}
		all = append(all, a)
	}
	return all
}

func clouds() (all []api) {
	for _, a := range []api{
		{contract: contracts.AWSEC2, place: field("ClientToken"), form: true},
		{contract: contracts.AWSEC2Query, place: query("ClientToken")},
	} {
		a.answers, a.longest, a.life = "aws-ec2", 64, unpublished
		a.rows = []row{
			first.with("created", succeeded(200)), unmarked.with("drop, created", succeeded(200)), again.with("broken, created", succeeded(200)), conflicted,
			refusal.with("refused", rejected(400)), unsettled.with("drop, refused", unknown(400)),
			{name: "mismatch", play: "mismatch", requests: 1, means: conflict(400, mismatch)},
		}
		all = append(all, a)
	}
	for _, name := range []string{"clientToken", "clientRequestToken"} {
		a := api{contract: contracts.AWS(name), answers: "aws", place: member(name), longest: 64, life: unpublished, rows: []row{
			first, unmarked, again, conflicted,
			refusal.with("refused", rejected(400)), unsettled.with("drop, refused", unknown(400)),
			{name: "no error", play: "talk of codes", requests: 1, means: succeeded(200)},
		}}
		for status, suffix := range map[int]string{400: "@400", 409: "@409"} {
			a.rows = append(a.rows,
				row{name: "mismatch" + suffix, play: "mismatch" + suffix, requests: 1, means: conflict(status, mismatch)},
				row{name: "prior" + suffix, play: "in progress" + suffix, requests: 1, means: conflict(status, inProgress), then: "created"},
				row{name: "transaction" + suffix, play: "in progress too" + suffix, requests: 1, means: conflict(status, inProgress), then: "created"})
		}
		all = append(all, a)
	}
	return all
}
