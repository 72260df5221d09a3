// Package mockserver is an HTTP API with idempotency keys that misbehaves on demand, for tests of clients that retry.
//
// An [Engine] stands in front of an API, the built-in sample or any http.Handler, and does what a careful server does
// with keys: it runs a command once per key, keeps the answer, replays it byte for byte, refuses a key that comes back
// with another payload, and forgets it when its time is over. A [Profile] says how it answers in each of these cases.
// A [Fault] breaks one exchange before or after the command took effect: the connection is dropped or reset, the body is
// cut off, the answer is late, is a 503, or never comes. The ledger remembers every request as it arrived and every
// effect, so that a test asserts on what the server saw and not on what the client says:
//
//	srv := mockserver.NewServer(mockserver.Config{Seed: 1})
//	defer srv.Close()
//	srv.Fault(mockserver.Fault{Match: "POST /v1/payments", When: mockserver.AfterCommit, Do: mockserver.Drop, Times: 1})
//	// ... the client under test pays at srv.URL + "/v1/payments" ...
//	srv.AssertOnce(t)
//	srv.AssertSameKey(t)
//
// [NewServer] listens on loopback, [NewTLSServer] speaks HTTP/2, and [Engine.Transport] needs no socket at all, so that it
// works inside a testing/synctest bubble. cmd/mockserver is the same engine as a program, for clients in any language.
//
// The package imports nothing but the standard library: neither a client nor a store of this project.
package mockserver
