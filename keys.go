package samekey

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/google/uuid"
	"github.com/oklog/ulid/v2"
)

// KeyFormat makes keys. It is asked once for each operation, before anything is stored or sent, and never inside the
// attempt loop. It must be safe for concurrent use. [New] asks each for two keys and holds them against the endpoint's
// contract: the same key twice is refused.
type KeyFormat interface {
	NewKey(op Ref) (string, error)
}

// KeyFunc adapts a function to KeyFormat.
type KeyFunc func(op Ref) (string, error)

// NewKey calls f.
func (f KeyFunc) NewKey(op Ref) (string, error) { return f(op) }

// The two usual formats. Both draw from crypto/rand; neither depends on the clock for uniqueness.
var (
	// UUIDv4 makes keys of 36 characters with 122 random bits (RFC 9562, section 5.4).
	UUIDv4 KeyFormat = uuidFormat{}
	// ULID makes keys of 26 characters that sort by millisecond, with 80 random bits beside the time. Two keys are
	// distinct as long as the clock stands still or not; should it be stepped, those 80 bits still have to collide.
	ULID KeyFormat = ulidFormat{}
)

type uuidFormat struct{}

func (uuidFormat) NewKey(Ref) (string, error) {
	id, err := uuid.NewRandom() // uuid.New panics without entropy, and the pool is process-wide: neither is for a library
	if err != nil {
		return "", err
	}
	return id.String(), nil
}

type ulidFormat struct{}

func (ulidFormat) NewKey(Ref) (string, error) {
	id, err := ulid.New(ulid.Now(), rand.Reader) // ulid.Make draws from math/rand seeded by the clock
	if err != nil {
		return "", err
	}
	return id.String(), nil
}

// Derived makes the same key, in the shape of a UUIDv4, for the same scope and ID on any machine that has secret (of at
// least 16 bytes): for clients that may lose their disk. Because the key may have been sent from elsewhere, it demands
// a name and [WithIssuedAt], which bounds the key's life; an earlier send is always taken to be possible, and Rekey is
// refused.
func Derived(secret []byte) KeyFormat { return derivedFormat{secret: string(secret)} }

type derivedFormat struct{ secret string }

func (d derivedFormat) NewKey(op Ref) (string, error) {
	if len(d.secret) < 16 {
		return "", fmt.Errorf("Derived needs a secret of at least 16 bytes, has %d", len(d.secret))
	}
	mac := hmac.New(sha256.New, []byte(d.secret))
	var n [8]byte
	binary.BigEndian.PutUint64(n[:], uint64(len(op.Scope))) // so that ("a","bc") and ("ab","c") differ
	mac.Write(n[:])
	mac.Write([]byte(op.Scope))
	mac.Write([]byte(op.ID))
	var id uuid.UUID
	copy(id[:], mac.Sum(nil))
	id[6], id[8] = id[6]&0x0f|0x40, id[8]&0x3f|0x80
	return id.String(), nil
}

func isDerived(f KeyFormat) bool {
	_, ok := f.(derivedFormat)
	return ok
}

// check says what is wrong with key under the contract, "" if nothing.
func (k *contract) check(key string) string {
	switch {
	case key == "":
		return "the key is empty"
	case len(key) > k.MaxLength:
		return fmt.Sprintf("the key has %d characters, the contract allows %d", len(key), k.MaxLength)
	}
	for i := 0; i < len(key); i++ {
		if key[i] <= ' ' || key[i] > '~' {
			return "the key holds a byte outside visible ASCII"
		}
	}
	if k.format != nil && !k.format.MatchString(key) {
		return fmt.Sprintf("the key does not match the contract's format %q", k.Format)
	}
	return ""
}

// unquote reads an RFC 9651 string.
func unquote(s string) (string, bool) {
	if len(s) < 2 || s[0] != '"' || s[len(s)-1] != '"' {
		return "", false
	}
	var b strings.Builder
	for s = s[1 : len(s)-1]; s != ""; s = s[1:] {
		if s[0] == '"' {
			return "", false
		}
		if s[0] == '\\' {
			if s = s[1:]; s == "" || s[0] != '"' && s[0] != '\\' {
				return "", false
			}
		}
		b.WriteByte(s[0])
	}
	return b.String(), true
}

// maxName bounds an operation's name and a scope, in bytes: they are stored, listed and printed.
const maxName = 1024

// checkName says what is wrong with an operation's name or a scope, "" if nothing.
func checkName(what, s string) string {
	switch {
	case len(s) > maxName:
		return fmt.Sprintf("the %s has %d bytes, at most %d are kept", what, len(s), maxName)
	case !utf8.ValidString(s):
		return "the " + what + " is not valid UTF-8"
	case strings.ContainsFunc(s, unicode.IsControl):
		return "the " + what + " holds a control character"
	}
	return ""
}
