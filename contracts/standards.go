package contracts

import (
	"github.com/samekey/samekey"
)

// IETF is draft-ietf-httpapi-idempotency-key-header-07 (2025-10-15, expired): the key as a quoted string, 409 while the
// first request runs, 422 for another payload, 400 for a missing key, and stored answers, errors too. The life is for each
// server to publish.
//
// The draft fixes statuses, not titles. A 422 is taken for a reused key whatever it says, as the opposite mistake would
// call an operation without effect that has had one; a server that validates with 422 needs a copy whose rule asks for
// its title. Only the draft's own title tells a missing key.
//
// Unverified: that the draft has expired.
//
// Sources: https://github.com/ietf-wg-httpapi/idempotency, -07 at
// https://www.nic.funet.fi/pub/files/index/networking/documents/misc/internet-drafts/.
var IETF = samekey.Contract{
	Name:             "ietf-draft",
	Carrier:          samekey.QuotedHeader("Idempotency-Key"),
	StoresRejections: true,
	Rules: []samekey.Rule{
		{If: status(409), Means: samekey.MeansInProgress},
		{If: status(422), Means: samekey.MeansMismatch},
		{If: is("/title", "Idempotency-Key is missing"), Means: samekey.MeansTurnedAway},
	},
}

// Zalando is rule 230 of Zalando's RESTful guidelines: POST and PATCH, the same answer for a repeat whether it was a success
// or a failure. The life is for each server to choose. A 400 is recommended for another payload, without a code: it is a
// rejection here, and a server's own code needs a rule in a copy.
//
// Source: https://github.com/zalando/restful-api-guidelines (chapters/http-headers.adoc).
var Zalando = samekey.Contract{Name: "zalando", StoresRejections: true}
