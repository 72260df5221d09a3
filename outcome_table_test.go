package samekey_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"

	"github.com/samekey/samekey"
)

const longBody = `{"status":"succeeded","resultId":"pay_000001"}`

func outcomes() (all []outcome) {
	add := func(o outcome) { all = append(all, o) }
	status := func(s int, first, later fate) outcome {
		return outcome{name: strconv.Itoa(s), script: always(answers(s, `{"error":"E"}`)), once: true, first: first, later: later, status: s}
	}
	with := func(o outcome, name string, change func(*outcome)) outcome {
		o.name = name
		change(&o)
		return o
	}
	location := func(s int, loc string) func(*outcome) {
		return func(o *outcome) { o.script = always(answers(s, "", "Location: "+loc)) }
	}

	add(status(200, succeeds, succeeds))
	add(status(201, succeeds, succeeds))
	add(status(202, processing, processing))
	add(status(204, succeeds, succeeds))
	add(with(status(303, succeeds, succeeds), "303 of the same origin", location(303, "/v1/payments/1")))
	add(with(status(303, succeeds, succeeds), "303 of the same origin, absolute", func(o *outcome) {
		o.script = func(w *world) reply { return answers(303, "", "Location: "+w.p.url+"/v1/payments/1") }
	}))
	add(with(status(303, rejected, unknown), "303 elsewhere", location(303, "http://other.test/v1/payments/1")))
	add(with(status(303, rejected, unknown), "303 to another scheme", func(o *outcome) {
		o.script = func(w *world) reply {
			return answers(303, "", "Location: https"+strings.TrimPrefix(w.p.url, "http")+"/v1/payments/1")
		}
	}))
	add(with(status(303, rejected, unknown), "303 nowhere", location(303, "http://%zz")))
	add(with(status(303, rejected, unknown), "303 without a place", func(o *outcome) { o.script = always(answers(303, "")) }))
	add(with(status(302, rejected, unknown), "302", location(302, "/login")))
	add(with(status(307, rejected, unknown), "307 elsewhere, followed by policy", func(o *outcome) {
		location(307, "http://other.test/")(o)
		o.policy.Redirects = samekey.On
	}))

	// 409 and what a contract calls a conflict.
	conflict := func(name, body string, reason samekey.Reason) {
		add(outcome{name: "409 " + name, script: always(answers(409, body)), once: true, first: conflicts, later: conflicts, status: 409, reason: reason})
	}
	conflict("that says nothing", `{"a":1}`, samekey.ReasonUnknown)
	conflict("no JSON", `conflict`, samekey.ReasonUnknown)
	conflict("mismatch", `{"error":"IdempotencyKeyConflict"}`, samekey.ReasonMismatch)
	conflict("in progress", `{"type":"about:blank","title":"A request is outstanding for this Idempotency-Key"}`, samekey.ReasonInProgress)
	add(outcome{name: "422 of the IETF draft", script: always(answers(422, `{"title":"Idempotency-Key is already used"}`)), once: true,
		first: conflicts, later: conflicts, status: 422, reason: samekey.ReasonMismatch})
	add(outcome{name: "409 marked as a replay", script: always(answers(409, `{}`, "Idempotent-Replayed: true")), once: true,
		first: conflicts, later: conflicts, status: 409})

	// Every meaning of a rule, on a status that means nothing of the kind by itself.
	rule := func(m samekey.Meaning, s int, once bool, first, later fate, reason samekey.Reason) {
		c := samekey.DefaultContract
		c.Rules = []samekey.Rule{{If: samekey.Match{Header: "X-Says", Values: []string{"so"}}, Means: m, Link: "/link"}}
		o := outcome{name: fmt.Sprintf("rule %d on %d", m, s), policy: samekey.Policy{Contract: &c}, once: once, first: first, later: later, status: s,
			script: always(answers(s, `{"link":"/v1/payments/9"}`, "X-Says: so")), reason: reason}
		if first == conflicts {
			o.link = "/v1/payments/9"
		}
		add(o)
	}
	for _, s := range []int{200, 409, 418, 429, 503} {
		rule(samekey.MeansMismatch, s, true, conflicts, conflicts, samekey.ReasonMismatch)
		rule(samekey.MeansInProgress, s, true, conflicts, conflicts, samekey.ReasonInProgress)
		rule(samekey.MeansExists, s, true, conflicts, conflicts, samekey.ReasonExists)
		rule(samekey.MeansBusiness, s, true, conflicts, conflicts, samekey.ReasonBusiness)
	}
	for _, m := range []samekey.Meaning{samekey.MeansSucceeded, samekey.MeansRejected, samekey.MeansTurnedAway, samekey.MeansStoredFailure,
		samekey.MeansUncertain, samekey.MeansProcessing} {
		rule(m, 409, true, conflicts, conflicts, samekey.ReasonUnknown) // whatever a rule calls it
	}
	rule(samekey.MeansSucceeded, 418, true, succeeds, succeeds, 0)
	rule(samekey.MeansSucceeded, 503, true, succeeds, succeeds, 0)
	rule(samekey.MeansRejected, 418, true, rejected, rejected, 0)
	rule(samekey.MeansRejected, 503, true, rejected, rejected, 0)
	rule(samekey.MeansRejected, 200, true, rejected, rejected, 0)
	rule(samekey.MeansTurnedAway, 418, true, removed, unknown, 0)
	rule(samekey.MeansTurnedAway, 503, false, removed, unknown, 0) // the policy retries a 503
	rule(samekey.MeansStoredFailure, 503, true, parked, parked, 0)
	rule(samekey.MeansStoredFailure, 418, true, parked, parked, 0)
	rule(samekey.MeansUncertain, 418, false, unknown, unknown, 0)
	rule(samekey.MeansUncertain, 200, false, unknown, unknown, 0)
	rule(samekey.MeansProcessing, 418, true, processing, processing, 0)

	// What the server says it gives from its record.
	for _, s := range []int{400, 401, 404, 408, 429, 499} {
		add(with(status(s, rejected, rejected), strconv.Itoa(s)+" marked as a replay", func(o *outcome) {
			o.script = always(answers(s, `{}`, "Idempotent-Replayed: true"))
		}))
	}
	for _, s := range []int{500, 503, 511} {
		add(with(status(s, parked, parked), strconv.Itoa(s)+" marked as a replay", func(o *outcome) {
			o.script = always(answers(s, `{}`, "Idempotent-Replayed: true"))
		}))
	}
	for _, s := range []int{400, 402, 422} {
		add(status(s, rejected, rejected))
		add(with(status(s, rejected, unknown), strconv.Itoa(s)+" not stored", func(o *outcome) {
			c := samekey.DefaultContract
			c.StoresRejections = false
			o.policy.Contract = &c
		}))
	}
	for _, s := range []int{401, 403, 407, 421, 425, 429, 431, 451} {
		add(status(s, removed, unknown))
	}
	add(with(status(511, removed, unknown), "511", func(o *outcome) { o.once = false })) // a 5xx, and a gate
	for _, s := range []int{404, 405, 410, 412, 423, 424, 428} {
		add(status(s, rejected, unknown))
	}
	for _, s := range []int{404, 410} {
		add(with(status(s, rejected, unknown), strconv.Itoa(s)+" to a DELETE", func(o *outcome) {
			o.method, o.says = http.MethodDelete, "already gone"
		}))
	}
	add(with(status(404, unknown, unknown), "404 that the policy retries", func(o *outcome) { // the first one is before the last
		o.policy.RetryStatus, o.once = []int{404}, false
	}))
	for _, s := range []int{408, 500, 502, 503, 504} {
		add(with(status(s, unknown, unknown), strconv.Itoa(s), func(o *outcome) { o.once = false }))
		add(with(status(s, unknown, unknown), strconv.Itoa(s)+" that the policy does not retry", func(o *outcome) {
			o.policy.RetryStatus = []int{}
		}))
	}
	for _, s := range []int{425, 429} {
		add(with(status(s, removed, unknown), strconv.Itoa(s)+" that the policy retries", func(o *outcome) {
			o.policy.RetryStatus, o.once = []int{425, 429}, false
		}))
		add(with(status(s, removed, unknown), strconv.Itoa(s)+" that Decide retries", func(o *outcome) {
			o.policy.Decide, o.once = func(samekey.Attempt) samekey.Decision { return samekey.Retry }, false
		}))
	}
	add(with(status(503, unknown, unknown), "503 that Decide stops", func(o *outcome) {
		o.policy.Decide = func(a samekey.Attempt) samekey.Decision {
			if a.Status == 503 {
				return samekey.Stop
			}
			return samekey.AsUsual
		}
	}))
	add(with(status(503, unknown, unknown), "503 that asks for more time than the policy allows", func(o *outcome) {
		o.script = always(answers(503, `{}`, "Retry-After: 3600"))
	}))

	// Not reached, and what a repeat cannot mend.
	errDial := refuses(context.Background())
	add(outcome{name: "connection refused", shut: errDial, first: unsent, later: unknown, cause: errDial})
	add(outcome{name: "no such host", shut: &net.DNSError{Err: "no such host", Name: "api.test", IsNotFound: true}, first: unsent, later: unknown})
	add(outcome{name: "connection refused, no retries of lost connections", shut: errDial, policy: samekey.Policy{MaxAttempts: 2, RetryTransport: samekey.Off},
		first: unsent, cause: errDial})
	for name, err := range map[string]error{
		"authority":    x509.UnknownAuthorityError{},
		"host":         x509.HostnameError{Certificate: &x509.Certificate{}, Host: "api.test"},
		"invalid":      x509.CertificateInvalidError{Reason: x509.Expired},
		"verification": &tls.CertificateVerificationError{Err: errors.New("no")},
	} {
		add(outcome{name: "bad certificate, " + name, shut: err, once: true, first: unsent, later: unknown})
	}
	prepare := func(name string, once bool, cause error, f func(*http.Request) error) {
		add(outcome{name: "Prepare " + name, once: once, reached: -1, first: unsent, later: unknown, cause: cause, script: always(created),
			cfg: func(w *world, c *samekey.Config) {
				n := 0
				c.Prepare = func(_ context.Context, req *http.Request) error {
					if n++; n == 1 && w.before {
						return nil
					}
					return f(req)
				}
			}})
	}
	errToken := errors.New("no token today")
	prepare("fails", false, errToken, func(*http.Request) error { return errToken })
	prepare("sets a header with a newline", true, nil, func(r *http.Request) error {
		r.Header["X-Bad"] = []string{"a\nb"}
		return nil
	})
	prepare("sets a header that is none", true, nil, func(r *http.Request) error {
		r.Header["X Bad"] = []string{"a"}
		return nil
	})
	prepare("changes the key", true, nil, func(r *http.Request) error {
		r.Header.Set("Idempotency-Key", "another")
		return nil
	})
	prepare("changes the body", true, nil, func(r *http.Request) error {
		r.Body = http.NoBody
		return nil
	})
	prepare("changes the target", true, nil, func(r *http.Request) error {
		r.URL.Path = "/v1/refunds"
		return nil
	})
	prepare("changes the method", true, nil, func(r *http.Request) error {
		r.Method = http.MethodPut
		return nil
	})

	// Lost answers.
	lost := func(name string, r reply) {
		add(outcome{name: name, script: always(r), first: unknown, later: unknown})
		add(outcome{name: name + ", one attempt", script: always(r), policy: samekey.Policy{MaxAttempts: 1}, first: unknown})
		add(outcome{name: name + ", no retries of lost connections", script: always(r), policy: samekey.Policy{RetryTransport: samekey.Off}, once: true, first: unknown})
	}
	lost("connection closed", hangsUp)
	lost("connection reset", resets)
	lost("no HTTP", says("SSH-2.0-OpenSSH_9.6\r\n\r\n"))
	lost("cut off in the head", says("HTTP/1.1 201 Created\r\nContent-Le"))
	lost("cut off by Content-Length", says("HTTP/1.1 201 Created\r\nContent-Length: 46\r\n\r\n"+longBody[:20]))
	lost("cut off before the body", says("HTTP/1.1 201 Created\r\nContent-Length: 46\r\n\r\n"))
	lost("cut off in a chunk", says("HTTP/1.1 201 Created\r\nTransfer-Encoding: chunked\r\n\r\n2e\r\n"+longBody[:20]))
	lost("cut off between chunks", says("HTTP/1.1 201 Created\r\nTransfer-Encoding: chunked\r\n\r\n14\r\n"+longBody[:20]+"\r\n"))
	lost("cut off after a 1xx", says("HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"))
	lost("a rejection cut off", says("HTTP/1.1 400 Bad Request\r\nContent-Length: 46\r\n\r\n{"))
	return all
}
