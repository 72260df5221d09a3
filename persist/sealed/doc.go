// Package sealed keeps operations encrypted in any other store, by an AEAD of the caller's.
//
//	block, err := aes.NewCipher(key) // 32 bytes from your KMS: AES-256
//	aead, err := cipher.NewGCM(block)
//	sealer, err := sealed.New(sealed.Options{Keys: []sealed.Key{{ID: "2026-12", AEAD: aead}}})
//	inner, err := journal.Open(ctx, dir, journal.Options{})
//	client, err := samekey.New(samekey.Config{Store: sealer.Store(inner)})
//
// For sqlstore's Enqueue, whose transaction is the caller's, [Sealer.Seal] seals one record.
//
// # What is sealed, and what is not
//
// Sealed are the key, the target with its query, the header with its names, the names of what was not kept, the body
// and the fingerprint of a request (from a fingerprint a short body could be guessed); the poll address and the last
// error; the header, the body and the reason of an answer.
//
// In the clear is what stores find and order operations by, and what operators look at first:
//
//   - Scope and ID: lookups go by them. An ID should hold nothing personal: "order-4711", not an address.
//   - The times, the number of attempts, parked, owed, named and the state: recovery and retention go by them.
//   - Method, statuses, the life of the key, the ID of the sealing key; and, as encryption does not hide it, how long
//     everything is.
//   - Once a request and its answer are past their retention: name, outcome and time, which stores write by themselves.
//
// The ID of an operation that nobody has named is its key, so that such a key is in the clear. That of a named operation
// is not.
//
// # What a thief can do
//
// Whoever reads the disk, a backup or the database learns what is in the clear, and can neither read a payload nor send
// a named command again, whose key is not there to be read.
//
// Whoever also writes there can take operations out, leave a name as over, and put an older state of an operation back,
// whole or in parts: nothing tells that from what the store had written itself. A command that was done may so be sent
// again, by its own owner, under its own key; an old key beside the first send of the one that took its place looks young.
// A payload cannot be made, changed, or moved to another operation; nor can
// what is in the clear beside it be changed (a later first send would make an old key look young). Each sealed part is
// bound to the Ref, the sealing key's ID and those fields, and does not open beside others. But as long as
// [Options].Strict is off, an operation that was never sealed can be planted, and recovery would send it, with what
// Config.Prepare sets.
//
// Payloads are in the process's memory while they are worked at, as ever, and so in what is swapped or dumped of it.
// Claims are the inner store's affair. What a journal held before it was sealed stays in its files until they are
// compacted: Journal.Compact leaves none.
//
// # Keys
//
// Nonces are random. With the 96 bits of AES-GCM a key may seal 2^32 times (NIST SP 800-38D, section 8.3), in all
// processes and stores together. A Begin or Replace seals twice, a Mark once, a Settle twice, or not at all where the
// answer is not kept: change keys before five hundred million operations. An AEAD that makes its own nonces serves as well
// (cipher.NewGCMWithRandomNonce: the same limit); those with nonces of 24 bytes have no limit to speak of.
//
// To change keys, first give all processes the new key behind the old one, then put it first: a process that lacks a key
// passes over what is sealed under it, and holds that up meanwhile. An operation keeps the key that it was sealed under,
// while marks and answers use the first. The old key can go once everything sealed under it has left: that is what is
// pending, the answers within Policy.Retention, and the names behind them. In the inner store the Target of a record
// tells the key of its request: ":sealed1:2026-12"; [KeyOf] reads it.
//
// # Operations that do not open
//
// Where the key is missing, or the tag does not fit, the error is an [*OpenError] in a [*persist.Error]: which operation,
// which part, which key. Begin, Claim and Get return it, and hold no claim then: nothing is sent, and Forget still
// works. Nothing else is held up: ClaimDue passes such operations over, and List goes on behind them, and ends with the
// first error. Both tell Options.Logger of each operation once.
//
// A process that opens the inner store without this package sends nothing of what is sealed: the target is no address.
package sealed
