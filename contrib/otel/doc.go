// Package otelsamekey has a samekey client tell OpenTelemetry what it does: a span and metrics for each operation.
//
//	o, err := otelsamekey.New(otelsamekey.Options{})
//	...
//	client, err := samekey.New(samekey.Config{Store: store, Observer: o.Observe, Prepare: o.Inject})
//
// Names that OpenTelemetry's semantic conventions (1.43) have are theirs; samekey.* are samekey's own. Neither
// holds a payload, a header, a query or a whole key. Metrics hold no ID either: what they are told apart by is one of few
// values, and as many endpoints as Config.Endpoints has patterns.
//
// Spans are ended in the goroutine of the call: give the tracer provider a batching processor, not one that exports at once.
//
// # Spans
//
//	samekey <endpoint, else method>   one call of an operation: child of the span in the caller's context, internal
//	  <method> attempt                child of it, one each, client
//	  GET poll                        child of it: an accepted command was asked about, client
//
// The operation's span ends when its answer is written down, or, where nothing is to be written, with its outcome; a
// recovered one's when its handler has had the answer. The time in which a caller reads a body that streams is not in it.
// Its attributes:
//
//	http.request.method         one that the conventions know, else _OTHER and http.request.method_original
//	http.response.status_code   of the last answer; none came: absent
//	error.type                  of an error: see below
//	samekey.outcome             succeeded, rejected, conflicted, abandoned, processing (a 202), unknown, not_sent, mismatch, busy,
//	                            expired, store (the record could not be made durable), key; aborted: a hook panicked
//	samekey.source              network, replay (by the server), local (from the store)
//	samekey.endpoint            the pattern of Config.Endpoints; none matched: absent
//	samekey.operation.id        the name; shortened if it is a UUID or a ULID, as keys are
//	samekey.key                 the first eight and last four characters; absent if it has no more than twelve
//	samekey.scope
//	samekey.attempts            over all processes
//	samekey.sends               of this call, on the wire
//	samekey.durable             false: PersistNone
//	samekey.recovery            true: by Recover or Resume
//
// Attempts have http.request.method, http.request.resend_count (over all processes), http.response.status_code,
// error.type and samekey.sends. Address and URL are not in them, as the steps do not tell them. A span's status is an error
// where the call returned one, or an attempt's status is 400 or above.
//
// The other steps are events of the operation's span, named after the step (samekey.begun, samekey.wait, samekey.outcome,
// samekey.settled, samekey.store_error, samekey.warning, samekey.handler, samekey.recovered), with samekey.state,
// samekey.wait in seconds, error.type and exception.message; those of the connection (samekey.connected,
// samekey.header_written, samekey.body_written, samekey.first_byte) of the attempt's.
//
// error.type is the status of an answer from 400 on, or one of timeout, canceled, closed, connect, connection, dns,
// certificate, eof, store, claim_lost, expired, parked, budget, no_key_at_server, mismatch, busy, key, _OTHER.
//
// # Metrics
//
//	samekey.operation.duration   histogram, s              samekey.outcome, samekey.source, samekey.recovery, status, error.type
//	samekey.operation.active     up-down, {operation}
//	samekey.attempt.duration     histogram, s              samekey.retry (not the first, over all processes), samekey.recovery, status, error.type
//	samekey.poll.duration        histogram, s              status, error.type
//	samekey.wait.duration        histogram, s
//	samekey.store.duration       histogram, s              samekey.store.method: Begin, Settle
//	samekey.store.errors         counter, {error}          samekey.store.method, error.type
//	samekey.warnings             counter, {warning}        samekey.step: warning, handler (a hook of Recovery returned an error)
//
// All have http.request.method and samekey.endpoint. The counts of the histograms are the numbers of operations by outcome
// (conflicts, unknown outcomes and those left processing among them, and with samekey.recovery what was recovered), of
// attempts, of retries, and of waits. A call is counted once, whatever its store makes of the outcome; but if Policy.Resolve
// puts a success in a conflict's place, or Recovery.Reconcile a new key in that of one just tried, both are told.
//
// # What is not seen
//
// A call that ends before it has a record (a bad request, body, key or policy), and one that shares another's answer, take
// no step of their own. Reads take none either. How much is pending in the store is for [samekey.Client.Operations] to say.
// A recovered operation's span does not know the trace of the call that began it: that is not stored. Success
// without a name is settled when its caller has read it, after the span's end, and how long that took the store is not told.
// The span of a Resume, whose last step cannot be told from a Recover's, ends in a goroutine of its own, right after it; a
// minute after it where its context had ended, and so does that of a call in which a hook panicked. When they say they
// ended is in both cases the time of the last step.
//
// # The server's spans
//
// Inject lets them be children of the attempt's, and overwrites what the request bore. A traceparent that the caller's own
// request bears is, like any header that is not kept, demanded again after a restart, and Inject supplies it. A
// tracing RoundTripper beneath the client (otelhttp) works too; but with a transport that is not net/http's own nothing
// proves any more that a server was not reached, and *NotSentError becomes *OutcomeUnknownError.
package otelsamekey
