// Package contracts has what public APIs promise about their idempotency keys, as values of [samekey.Contract]:
//
//	client, err := samekey.New(samekey.Config{
//		Store:     store,
//		Endpoints: contracts.StripeEndpoints("api.stripe.com"),
//	})
//
// A function such as [StripeEndpoints] gives the endpoints of an API whose promises differ by path, or that a policy has to say
// more about; its base is the host, with a path if the API has one before its own. For the others a contract is set where
// it holds ("POST api.dwolla.com/transfers": {Contract: &contracts.Dwolla}). In policy files they are known by name:
//
//	def, endpoints, err := samekey.LoadPolicies(fsys, "policies.json", contracts.All()...)
//
// # How far to trust them
//
// These are other people's promises, as documented by 2026-11-30: each value names the pages, and says what is unverified,
// that is, known from secondary pages only. What an API does not document is left at the cautious choice: an unpublished
// life is 1 h, no answer counts as stored, a 409 without a rule is a conflict of unknown reason, and a length is 255 or
// the least that any page names. An API may differ by account and version: copy the value, change what is known better.
//
//	c := contracts.CheckoutCom
//	c.Life = 72 * time.Hour // as agreed for the account
//
// testdata has the documented answers in their raw form, and the tests hold the values against them.
//
// # What cannot be expressed
//
//   - Shopify's GraphQL Admin API: the key is an argument of the directive @idempotent, or of a field, inside the text of
//     the GraphQL document, where no carrier reaches; reads and writes share one endpoint; and errors come in userErrors of
//     a 200, as a list without fixed places. Its legacy REST unique_token is documented by name only, without its place.
//   - Keys in gRPC messages (Google Cloud's request_id): no HTTP request of the program carries them.
//   - Zalando's rule 230 recommends a 400 for another payload, and no code that would tell it from other 400s: it is a
//     rejection (see [Zalando]). The IETF draft allows a missing key to be told by a Link field instead of a title, which
//     nothing tells from other 400s either.
//   - A mismatch that the server does not notice: Modern Treasury answers with the first response, whatever is asked,
//     Plaid's bank transfers execute a changed amount, Dwolla protects an exact body only. The store of the client does
//     notice, for operations whose name is their key.
//   - Scopes: a key is known per account, API key, region or endpoint, and a request that goes to another one of them is a
//     first request. Operations of different accounts belong into different scopes ([samekey.WithScope]).
//   - Rules that depend on the request: Plaid exempts authorisations that wait for the user, T-Bank's ExternalRequestId
//     does not work for SBP payments, PayPal demands a key where the body has a payment_source.
//   - AWS services whose token does nothing (documented for Billing Conductor and DataZone): for those [samekey.NoKey]
//     is right. And error codes in x-amzn-ErrorType headers, whose exact values are not documented.
package contracts
