package mockserver

import (
	"net/http"
	"time"
)

// vendors imitate what public APIs document about their keys (contracts/, with sources and dates), in front of whatever
// API stands behind. Codes and statuses are theirs, wording and the rest of the bodies are not. What a comment calls
// secondary rests on others' reports; what it calls open is not documented and answers as Default does.
var vendors = []Profile{
	{
		// The mismatch's status is secondary.
		Name: "stripe-v1", Carrier: Header("Idempotency-Key"), Methods: post, TTL: day, Account: true,
		Mark: "Idempotent-Replayed: true", Echo: "Idempotency-Key: {key}", Unstored: []int{400, 429},
		Mismatch:   says(400, `{"error":{"type":"idempotency_error","message":"The key belongs to another request."}}`),
		InProgress: says(409, `{"error":{"type":"invalid_request_error","code":"idempotency_key_in_use","message":"The key is in use."}}`),
	},
	{
		// Orders v2: its life and length. In progress is Payments v2's answer, the mismatch Vault v3's.
		Name: "paypal", Carrier: Header("PayPal-Request-Id"), Methods: post, TTL: 6 * time.Hour, MaxLength: 108,
		Replay: ReplayCurrent, Unstored: []int{5},
		Missing:    says(400, `{"name":"INVALID_REQUEST","details":[{"issue":"PAYPAL_REQUEST_ID_REQUIRED"}]}`),
		Mismatch:   says(422, `{"name":"UNPROCESSABLE_ENTITY","details":[{"issue":"PAYPAL_REQUEST_ID_PREVIOUSLY_USED"}]}`),
		InProgress: says(409, `{"name":"RESOURCE_CONFLICT","details":[{"issue":"PREVIOUS_REQUEST_IN_PROGRESS"}]}`),
	},
	{
		// Life and in progress are secondary, the mismatch is open.
		Name: "adyen", Carrier: Header("Idempotency-Key"), Methods: post, TTL: 7 * day, MaxLength: 64, Account: true,
		Echo:       "Idempotency-Key: {key}",
		InProgress: says(422, `{"status":422,"errorCode":"704","message":"The request is done or in progress."}`),
	},
	{
		// The life is not published; the mismatch's status is secondary, in progress is open.
		Name: "square", Carrier: BodyMember("idempotency_key"), Methods: []string{"POST", "PUT"}, MaxLength: 45, Unstored: failures,
		Missing:  says(400, `{"errors":[{"category":"INVALID_REQUEST_ERROR","code":"MISSING_REQUIRED_PARAMETER","field":"idempotency_key"}]}`),
		Mismatch: says(400, `{"errors":[{"category":"INVALID_REQUEST_ERROR","code":"IDEMPOTENCY_KEY_REUSED"}]}`),
	},
	{
		// The life is secondary; missing and mismatch are open.
		Name: "yookassa", Carrier: Header("Idempotence-Key"), Methods: post, Require: true, TTL: day,
		Format: `[0-9a-zA-Z+\-_.]{1,64}`, MaxLength: 64,
		InProgress: says(202, `{"type":"processing","retry_after":1800}`),
	},
	{
		// POST /v2/Cancel. In progress and the mismatch are open.
		Name: "tbank-acquiring", Carrier: BodyMember("ExternalRequestId"), Methods: post, MaxLength: 256, Replay: ReplayCurrent,
	},
	{
		// The life is secondary; in progress and the mismatch are open.
		Name: "mollie", Carrier: Header("Idempotency-Key"), TTL: time.Hour,
	},
	{
		// The mismatch is open.
		Name: "checkout-com", Carrier: Header("Cko-Idempotency-Key"), Methods: post, TTL: day, Unstored: failures,
		InProgress: says(409, `{"error_type":"request_conflict","error_codes":["another_request_in_progress"]}`),
	},
	{
		// A repeat is refused and names what the first made. The mismatch is secondary; life and in progress are open.
		Name: "gocardless", Carrier: Header("Idempotency-Key"), Methods: post, Unstored: failures, Replay: ReplayError,
		Mismatch: gocardless, Repeated: gocardless,
	},
	{
		// POST /v1/transfers. Life, in progress and the mismatch are open.
		Name: "wise", Carrier: BodyMember("customerTransactionId"), Methods: post, Require: true, UUID: true,
	},
	{
		// Whoever has the key gets the answer, whatever else they ask for and wherever.
		Name: "modern-treasury", Carrier: Header("Idempotency-Key"), Methods: post, TTL: day, Account: true, AnyPayload: true,
		Unstored:   failures,
		InProgress: says(409, `{"errors":{"code":"conflict","message":"The first request is in progress."}}`),
	},
	{
		// The life is not stated; in progress is open.
		Name: "increase", Carrier: Header("Idempotency-Key"), Methods: post, MaxLength: 200, Account: true,
		Mark:     "Idempotent-Replayed: true",
		Mismatch: says(409, `{"type":"idempotency_key_already_used_error","status":409,"title":"The key is in use.","resource_id":"{id}"}`),
	},
	{
		// The mismatch is open.
		Name: "dwolla", Carrier: Header("Idempotency-Key"), Methods: post, TTL: day,
		InProgress: says(409, `{"code":"Conflict","message":"The first request is in progress."}`),
	},
	{
		// A repeat of a payment is an error; in progress is that of cards. The mismatch is open.
		Name: "revolut-business", Carrier: BodyMember("request_id"), Methods: post, Require: true, MaxLength: 40, TTL: 14 * day,
		Replay:     ReplayError,
		InProgress: says(429, `{"code":9000,"message":"Another request with this key is running."}`),
		Repeated:   says(400, `{"code":3020,"message":"Duplicate request: {key}"}`),
	},
	{
		// EC2's query API. In progress is open.
		Name: "aws", Carrier: QueryParam("ClientToken"), Methods: post, MaxLength: 64, TTL: day, Replay: ReplayCurrent,
		Mismatch: Answer{Status: 400, Header: http.Header{"Content-Type": {"text/xml"}},
			Body: `<Response><Errors><Error><Code>IdempotentParameterMismatch</Code></Error></Errors></Response>`},
	},
	{
		// In progress and the mismatch are open.
		Name: "google-cloud", Carrier: QueryParam("requestId"), UUID: true, TTL: time.Hour, Unstored: failures,
	},
	{
		// The time of the first send travels beside the key. The answers' header is secondary; the life is the least allowed.
		Name: "azure-repeatability", Carrier: Carrier{In: "header", Name: "Repeatability-Request-ID", Beside: "Repeatability-First-Sent"},
		UUID: true, TTL: 5 * time.Minute, Echo: "Repeatability-Result: accepted",
		Mismatch: Answer{Status: 400, Header: http.Header{"Repeatability-Result": {"rejected"}},
			Body: `{"error":{"code":"BadRequest","message":"The request differs from the first."}}`},
		Malformed: Answer{Status: 400, Header: http.Header{"Repeatability-Result": {"rejected"}},
			Body: `{"error":{"code":"BadRequest","message":"The repeatability headers are incomplete or malformed."}}`},
	},
	{
		// Rule 230. In progress is open.
		Name: "zalando", Carrier: Header("Idempotency-Key"), Methods: []string{"POST", "PATCH"}, TTL: day,
		Mismatch: problem(400, "key-reused", "The Idempotency-Key was used with another payload"),
	},
}

const day = 24 * time.Hour

var (
	post       = []string{"POST"}
	failures   = []int{3, 4, 5}
	gocardless = says(409, `{"error":{"type":"invalid_state","code":409,"errors":[{"reason":"idempotent_creation_conflict",`+
		`"links":{"conflicting_resource_id":"{id}"}}]}}`)
)

func says(status int, body string) Answer { return Answer{Status: status, Body: body} }
