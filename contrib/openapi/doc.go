// Package openapi makes policies of an OpenAPI description (3.0, 3.1): which operations take an idempotency key, under
// which name and where, and what a key may look like.
//
//	d, err := openapi.Load(os.DirFS("."), "payments.yaml", openapi.Options{})
//	...
//	for _, n := range d.Notes {
//		log.Print(n) // what the description leaves open
//	}
//	client, err := samekey.New(samekey.Config{Store: store, Endpoints: d.Policies()})
//
// The command samekey-openapi prints the same as a policy file, which is the better way: a person reads it, settles what
// the notes ask, and keeps it.
//
// # What is read
//
// A parameter in the header or the query, or a member of a JSON or form body, is a key if its name is Idempotency-Key in
// any spelling (X-Idempotency-Key, idempotency_key, idempotencyKey, Idempotence-Key), Repeatability-Request-ID, or one of
// Options.Names. Of its schema count format (uuid: UUIDv4, ulid: ULID), maxLength, minLength and pattern. Servers give
// the host and the first part of the path; {id} becomes a wildcard. A header that every described success repeats the key
// in is the contract's Echo, a response header with "replay" in its name its mark of a replay, and a 202 means
// processing.
//
// An OpenAPI description has no place for the rest of a contract: how long a key lives, what a 409 means, whether
// rejections are stored. Prose is not read. What is left open is named in Notes, and stands in the policy at its cautious
// value; so is what a pattern of net/http.ServeMux cannot express.
//
// # The parser
//
// It is github.com/getkin/kin-openapi, in active development, which reads and validates 3.0 and 3.1 with few
// dependencies. github.com/pb33f/libopenapi is as alive and knows more of 3.1, but leaves validation to a second module;
// nothing here needs more. References to other files or addresses are refused: nothing but the document is opened.
package openapi
