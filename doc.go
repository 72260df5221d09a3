// Package samekey makes state-changing HTTP calls safe to retry.
//
// A client that gets no answer cannot know whether its payment went through. Servers offer idempotency keys; samekey
// keeps the client's side of the bargain: one key per logical operation, durable on disk together with the request
// before the first byte is sent, the same on every attempt in this process and in the next one.
//
//	store, err := journal.Open(ctx, "/var/lib/shop/samekey", journal.Options{})
//	client, err := samekey.New(samekey.Config{Store: store})
//	resp, err := client.Do(samekey.Named(req, "order-4711/charge"))
//
// # Types to know
//
// [Client] sends; [Config] and [Policy] say how hard it tries, [Contract] what the server promises about keys. [Named]
// gives a request the name of its operation: after a crash the same code, run again, finds its pending key or its stored
// answer. [EffectOf] answers what most callers ask of an error: did it happen? [Client.Recover] finishes what earlier
// processes left. Stores are in persist and below: journal is the embedded default, memory is for tests; sqlstore and
// redis, modules of their own, serve a fleet, and sealed encrypts what any of them keeps.
//
// # What an answer means
//
// An operation ends as succeeded, rejected or conflicted, or stays pending because its outcome is unknown. "Before" asks
// whether an earlier attempt, or an earlier physical send of the same one, may have reached the server.
//
//	answer                                    before: no                          before: yes
//	2xx; 303 of the same origin               succeeded                           succeeded
//	202 that the contract calls processing    returned, stays pending             same
//	409                                       *ConflictError, never retried       same, Ambiguous
//	key reuse by a contract's rule            *ConflictError                      same
//	400 402 422 where the contract stores     rejected: returned as it is         rejected
//	them, a 4xx marked as a replay
//	401 403 407 421 425 429 431 451 511       returned as it is; record removed   unknown
//	any other 3xx, 4xx                        rejected                            unknown
//	408, 5xx                                  retried; at the limit unknown       same
//	5xx marked as a replay                    unknown at once, parked             same
//	no connection (dial, DNS, TLS)            retried; at the limit not sent      retried; at the limit unknown
//	timeout, reset, EOF, cut-off body         retried; at the limit unknown       same
//	the caller's context, Close               not sent, or unknown once a         unknown
//	                                          byte may have left
//
// Unknown is [OutcomeUnknownError]: the operation stays pending, and the same name again goes on under the same key. Not
// sent is [NotSentError]: nothing left that may have had an effect, and nothing will. A 404 or 410 to a DELETE that follows
// an ambiguous attempt is unknown too: the first one may have deleted it.
//
// A 425 or 429 that the policy retries does not count as an attempt that may have acted: the server said that it turned
// it away.
//
// # What it cannot promise
//
// No client can promise more than the server lets it. One effect holds as far as the server honours its contract: one
// that forgets a key before its stated life, or has the effect without a durable record of the key, may have it twice.
// No promise covers a request that the network delivers past the key's life, nor a process that is paused between
// samekey's last look at the clock and the write. A process killed between reading a 409 and recording it asks once
// more. A server that reserves a key for ever keeps its operation unknown until the key expires. An endpoint that is
// configured with [PersistNone] keeps nothing on disk, one whose contract has [NoKey] is not retried once it may have
// been reached: they step outside the promises by the caller's own word.
//
// A command that passes through [Client.Do] without a name is an operation of its own: after a crash [Client.Recover]
// finishes it, and running the same code again is a second one. [Policy.RequireName] refuses such commands.
package samekey
