package mockserver

import (
	"net/http"
	"time"
)

// Default is the contract of this project's articles: the key bare in the header Idempotency-Key and optional, kept for
// a day; every answer is stored, refusals too; another payload under the same key is a 409; a duplicate of a running
// request waits for its answer.
var Default = Profile{
	Name: "default",
	TTL:  24 * time.Hour,
	Wait: true,
	Mark: "Idempotent-Replayed: true",
	Echo: "Idempotency-Key: {key}",
	Missing: Answer{Status: 400, Body: `{"error":"IdempotencyKeyMissing","message":"This command needs an Idempotency-Key.",` +
		`"details":null,"traceId":"{trace}"}`},
	Malformed: Answer{Status: 400, Body: `{"error":"IdempotencyKeyMalformed","message":"The Idempotency-Key is not one ` +
		`that this server takes.","details":{"idempotencyKey":"{key}"},"traceId":"{trace}"}`},
	Mismatch: Answer{Status: 409, Body: `{"error":"IdempotencyKeyConflict","message":"This Idempotency-Key belongs to a ` +
		`request with another payload.","idempotencyKey":"{key}"}`},
	InProgress: Answer{Status: 202, Header: http.Header{"Location": {"/v1/operations/{operation}"}, "Retry-After": {"1"}},
		Body: `{"status":"processing","resultId":"{operation}","links":{"self":"/v1/operations/{operation}"}}`},
	Repeated: Answer{Status: 409, Body: `{"error":"AlreadyDone","message":"This Idempotency-Key has made {id}.",` +
		`"idempotencyKey":"{key}"}`},
}

// IETF is draft-ietf-httpapi-idempotency-key-header with the key required: a quoted string, problem details, 400 without
// a key, 422 for another payload, 409 while the first request runs.
var IETF = Profile{
	Name:       "ietf",
	Carrier:    QuotedHeader("Idempotency-Key"),
	Methods:    []string{"POST", "PATCH"},
	Require:    true,
	TTL:        24 * time.Hour,
	Missing:    problem(400, "missing-key", "The Idempotency-Key header is missing"),
	Malformed:  problem(400, "malformed-key", "The Idempotency-Key header is not a quoted string that this server takes"),
	Mismatch:   problem(422, "key-reused", "The Idempotency-Key was used with another payload"),
	InProgress: problem(409, "in-progress", "A request with this Idempotency-Key is being processed"),
}

func problem(status int, kind, title string) Answer {
	return Answer{Status: status, Header: http.Header{"Content-Type": {"application/problem+json"}},
		Body: `{"type":"https://mockserver.invalid/problems/` + kind + `","title":"` + title + `","status":` +
			itoa(status) + `,"instance":"{trace}"}`}
}
