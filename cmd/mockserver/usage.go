package main

import (
	"flag"
	"fmt"
)

const teach = `mockserver is an HTTP API with idempotency keys that misbehaves on demand. Point a client at it, break its
exchanges, and read in the ledger how often each command took effect.

  mockserver -addr 127.0.0.1:8099 -faults faults.json

The sample API
  POST /v1/payments             {"amount": 100, "currency": "EUR", "orderRef": "order-1"}
                                not a positive integer: 400; 402: declined (402); above 100000000: 422
  POST /v1/orders               any JSON object; POST /v1/orders/{id}/cancel; GET, PUT, PATCH, DELETE /v1/orders/{id}
  GET  /v1/operations/{id}      of a command sent with "Prefer: respond-async", which is answered with a 202

Faults, as a file or by POST /_mock/faults: one or a list of
  {"match": "POST /v1/payments", "when": "after", "do": "drop", "times": 1}
  {"do": {"do": "status", "code": 503, "header": {"Retry-After": ["2"]}}, "share": 0.1}
  {"when": "after", "do": [{"do": "delay", "for": "2s"}, "cut-body"], "attempt": 2}
  match  a pattern of Go's http.ServeMux (method, path, {wildcards}); nothing: every request
  when   before (the default): nothing happened. after: the command took effect and its answer is stored
  do     drop reset half-close cut-body cut-chunked stall stall-body delay slow-bytes status raw informational
         strip-header rename-header answer-header strip-answer-header duplicate forget-key crash-reserved
         crash-unstored goaway stream-reset; members: code, stored, for, header, body, name, value
  times, skip, attempt, key, share    when it fires

The server itself
  GET  /                        a page for people      GET  /_mock/ledger     the figures
  GET  /_mock/requests[?key=]   every request          POST /_mock/reset      as new
  GET, POST, DELETE /_mock/faults                      POST /_mock/clock      {"advance": "25h"}
  POST /_mock/operations/{id}   {"status": "failed"}   POST /_mock/cure       ends crashes
  POST /_mock/forget            loses all keys

Exit codes: 0 a signal ended it, 1 it cannot listen or write, 2 a bad command line, profile or faults

Flags
`

func usage(fs *flag.FlagSet) {
	_, _ = fmt.Fprint(fs.Output(), teach)
	fs.PrintDefaults()
}
