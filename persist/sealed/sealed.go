package sealed

import (
	"crypto/cipher"
	"errors"
	"fmt"
	"log/slog"
	"regexp"

	"github.com/samekey/samekey/persist"
)

// Options of a Sealer.
type Options struct {
	// Keys open what was sealed under them, and the first one seals. At least one.
	Keys []Key
	// Strict refuses what is not sealed, but for names without a reason, which stores write by themselves. Off,
	// operations that were written before sealing was introduced are read as they are, and what is written of them from
	// then on is sealed. Turn it on once they have left: until then, whoever can write to the inner store can have any
	// request sent. It also refuses an answer that a tool without the key has written (samekey abandon, on a journal).
	Strict bool
	// Logger is told, once each, of operations that ClaimDue and List have passed over. Nil: slog.Default.
	Logger *slog.Logger
}

// Key is an AEAD under a name.
type Key struct {
	// ID is written beside all that is sealed under the key, in the clear: 1 to 32 letters, digits, '.', '_' and '-'.
	// It must never come to mean another key.
	ID string
	// AEAD must be safe for concurrent use, as those of crypto/cipher are. Its nonces, which are random, need 12 bytes
	// at least, or none where it makes its own.
	AEAD cipher.AEAD
}

// Sealer seals records and opens them. It is safe for concurrent use, and keeps nothing of them.
type Sealer struct {
	first  Key
	keys   map[string]cipher.AEAD
	strict bool
	log    *slog.Logger
}

var keyIDs = regexp.MustCompile(`^[A-Za-z0-9._-]{1,32}$`)

const leastNonce = 12

// New returns an error where a key cannot serve.
func New(o Options) (*Sealer, error) {
	if len(o.Keys) == 0 {
		return nil, errors.New("sealed: Options.Keys is empty: give it the key to seal with")
	}
	s := &Sealer{first: o.Keys[0], keys: map[string]cipher.AEAD{}, strict: o.Strict, log: o.Logger}
	for i, k := range o.Keys {
		switch {
		case !keyIDs.MatchString(k.ID):
			return nil, fmt.Errorf("sealed: Options.Keys[%d]: the ID %.40q is not 1 to 32 letters, digits, '.', '_' and '-'", i, k.ID)
		case k.AEAD == nil:
			return nil, fmt.Errorf("sealed: Options.Keys[%d], %q, has no AEAD", i, k.ID)
		case s.keys[k.ID] != nil:
			return nil, fmt.Errorf("sealed: Options.Keys[%d]: %q is there already: each key needs an ID of its own", i, k.ID)
		}
		if n := k.AEAD.NonceSize(); n != 0 && n < leastNonce {
			return nil, fmt.Errorf("sealed: Options.Keys[%d], %q: random nonces of %d bytes would repeat: take an AEAD with %d or more", i, k.ID, n, leastNonce)
		}
		s.keys[k.ID] = k.AEAD
	}
	if s.log == nil {
		s.log = slog.Default()
	}
	return s, nil
}

// Store returns inner with all that it keeps sealed. Its limits are inner's: a body grows by some hundred bytes, a poll
// address and a reason by half. It is a persist.Leaser if inner is one, and Close closes inner.
func (s *Sealer) Store(inner persist.Store) persist.Store {
	st := &store{Store: inner, sealer: s, bad: map[persist.Ref]persist.Claim{}}
	if l, is := inner.(persist.Leaser); is {
		return &leased{st, l}
	}
	return st
}

// Seal returns rec as a Store of s would give it to its inner store, for those who write there by themselves
// (sqlstore.Enqueue). The two share no memory, but that a tombstone, and what is sealed already, is returned as it is.
func (s *Sealer) Seal(rec persist.Record) persist.Record {
	if _, _, is := cutMark(rec.Target); is && rec.Key == "" || rec.Tombstone() {
		return rec
	}
	out := persist.Record{Ref: rec.Ref, Named: rec.Named, Created: rec.Created, Method: rec.Method, KeyLife: rec.KeyLife}
	out.Target, out.Body = s.request(&rec)
	out.Progress = s.progress(rec.Ref, rec.Progress)
	if rec.Answer != nil {
		a := s.answer(rec.Ref, *rec.Answer)
		out.Answer = &a
	}
	return out
}

// Open undoes Seal, of a record that was read from the inner store, or from a journal beside its owner
// (journal.ReadOnly). The error is an *OpenError in a *persist.Error.
func (s *Sealer) Open(rec persist.Record) (persist.Record, error) {
	out, err := s.open(rec)
	if err != nil {
		return persist.Record{}, fail("Open", rec.Ref, err)
	}
	return out, nil
}

func (s *Sealer) open(rec persist.Record) (persist.Record, error) {
	var err error
	isSealed := rec.Key == "" // a plain record has one
	if !rec.Tombstone() {
		switch {
		case isSealed:
			err = s.openRequest(&rec)
		case s.strict:
			err = &OpenError{Part: partRequest, Err: ErrNotSealed}
		}
		if err == nil {
			rec.Progress, err = s.openProgress(rec.Ref, rec.Progress, isSealed)
		}
	}
	if err == nil && rec.Answer != nil {
		rec.Answer, err = s.openAnswer(&rec, isSealed)
	}
	if err != nil {
		return persist.Record{}, err
	}
	return rec, nil
}
