package samekey

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"hash"
	"net/http"
	"slices"

	"github.com/samekey/samekey/internal/canonjson"
	"github.com/samekey/samekey/persist"
)

// fingerprint is over what makes a request the same command: method, target and host, identity headers, and the body,
// but for the key in it. Where no body is kept it is salted with the operation's key, so that equal payloads do not look equal.
func (cmd *command) fingerprint(kept *persist.Record) [32]byte {
	r := &cmd.rec
	target, body := cmd.plan.contract.Carrier.without(r.Target, cmd.plain)
	host := r.Header.Get("Host")
	var buf [1024]byte // most commands fit
	head := buf[:0]
	put := func(s string) { head = append(binary.BigEndian.AppendUint64(head, uint64(len(s))), s...) }
	put(r.Method)
	put(target)
	put(host)
	for _, name := range cmd.plan.IdentityHeaders {
		for _, line := range identity(r.Header, name) {
			put(name)
			put(line)
		}
	}
	put("")
	if kept.Body == nil {
		return sumOf(hmac.New(sha256.New, []byte(kept.Key)), bytes.Clone(head), body)
	}
	if len(head)+len(body) <= len(buf) {
		return sha256.Sum256(append(head, body...))
	}
	return sumOf(sha256.New(), bytes.Clone(head), body) // not head itself: what an interface sees leaves the stack
}

// identity are a field's lines in an order of their own: those of a map that has the name in two spellings have none.
func identity(h http.Header, name string) []string {
	lines := linesOf(h, name)
	slices.Sort(lines)
	return lines
}

func sumOf(h hash.Hash, head, body []byte) [32]byte {
	h.Write(head)
	h.Write(body)
	return [32]byte(h.Sum(nil))
}

// sameAs reports whether cmd is the command that rec records. A JSON body may differ in what does not matter: order of
// members, white space, escapes, and the members that the policy ignores.
func (cmd *command) sameAs(rec *persist.Record) bool {
	if cmd.fingerprint(rec) == rec.Fingerprint {
		return true
	}
	c := cmd.plan.contract.Carrier
	target, _ := c.without(cmd.rec.Target, nil)
	other, _ := c.without(rec.Target, nil)
	if rec.Body == nil || cmd.rec.Method != rec.Method || target != other || cmd.rec.Header.Get("Host") != rec.Header.Get("Host") {
		return false
	}
	for _, name := range cmd.plan.IdentityHeaders {
		if !slices.Equal(identity(cmd.rec.Header, name), identity(rec.Header, name)) {
			return false
		}
	}
	mine, ok1 := canonjson.Canonical(nil, cmd.body, cmd.plan.ignore)
	theirs, ok2 := canonjson.Canonical(nil, rec.Body, cmd.plan.ignore)
	return ok1 && ok2 && bytes.Equal(mine, theirs)
}
