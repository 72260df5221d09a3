package tool

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/oklog/ulid/v2"

	"github.com/samekey/samekey"
	"github.com/samekey/samekey/persist"
)

// word makes a policy of what a record says of its endpoint, where the program's own policies are not at hand. It goes
// by what was on the wire, and is as cautious as can be about the rest.
type word struct {
	format  string        // of a new key; "": that of the old one
	timeout time.Duration // of one attempt; 0: the default
}

// policy is for sending the operation again under its own key.
func (w *word) policy(r *persist.Record) (samekey.Policy, error) {
	carrier, found, err := carrierOf(r)
	if err != nil {
		return samekey.Policy{}, err
	}
	contract := samekey.Contract{
		Name: "as recorded", Carrier: carrier,
		// What 409 and 202 mean, and how a replay is marked, is much the same everywhere. Whether rejections are stored
		// under the key is not: without a mark they settle nothing that may have been sent before.
		Rules: samekey.DefaultContract.Rules, Replayed: samekey.DefaultContract.Replayed,
	}
	p := samekey.Policy{Contract: &contract}
	if found {
		contract.Life = r.KeyLife
	}
	if w.timeout > 0 {
		p.AttemptTimeout = w.timeout
		p.Deadline = max(time.Minute, 2*w.timeout)
	}
	if contract.Life > 0 { // nothing goes out within an attempt's time of the key's end
		if p.AttemptTimeout == 0 {
			p.AttemptTimeout = 10 * time.Second
		}
		p.AttemptTimeout = min(p.AttemptTimeout, contract.Life/2)
	}
	for _, name := range r.Omitted {
		if param, is := strings.CutPrefix(name, "?"); is {
			p.SecretQuery = append(p.SecretQuery, param)
		}
	}
	return p, nil
}

// rekeyable refuses what must keep its key, or what the tool cannot give another.
func rekeyable(r *persist.Record) error {
	if err := open(r, "rekeyed"); err != nil {
		return err
	}
	if r.Body == nil { // its fingerprint is bound to the key
		return no("the payload of %s is not kept, and what is kept of it holds for the old key only: abandon or forget it", name(r.Ref))
	}
	// A derived key looks like any UUID, but is dated by its caller: before the operation was begun.
	if first := r.Progress.FirstSent; !first.IsZero() && first.Before(r.Created) {
		return no("the key of %s was issued before the operation was begun here, so that it may be derived from its name: "+
			"another machine would go on with the old one. Only the program itself can rekey it", name(r.Ref))
	}
	return nil
}

// rekey is for giving the operation a new key.
func (w *word) rekey(r *persist.Record) (samekey.Policy, error) {
	p, err := w.policy(r)
	if err != nil {
		return p, err
	}
	if c, found, _ := carrierOf(r); !found {
		return p, no("%s bears its key in no header of its own (%s): without -policy only the program itself can rekey it", name(r.Ref), c)
	}
	if err := rekeyable(r); err != nil {
		return p, err
	}
	switch form := w.format; {
	case form == "" && isULID(r.Key), form == "ulid":
		p.KeyFormat = samekey.ULID
	case form == "" && uuid.Validate(r.Key) == nil, form == "uuid":
		p.KeyFormat = samekey.UUIDv4
	default:
		return p, no("the key of %s is neither a UUID nor a ULID: -format chooses one, if the server takes it", name(r.Ref))
	}
	return p, nil
}

func isULID(key string) bool {
	_, err := ulid.ParseStrict(key)
	return err == nil
}

// carrierOf finds the header that bears the key.
func carrierOf(r *persist.Record) (c samekey.Carrier, found bool, err error) {
	inQuotes := quoted(r.Key)
	for _, header := range slices.Sorted(maps.Keys(r.Header)) {
		lines := r.Header[header]
		if len(lines) != 1 || lines[0] != r.Key && lines[0] != inQuotes {
			continue
		}
		if found {
			return c, false, no("%s bears its key in more than one header: only the program itself knows which is which", name(r.Ref))
		}
		c, found = samekey.Header(header), true
		if lines[0] == inQuotes {
			c = samekey.QuotedHeader(header)
		}
	}
	if !found {
		c = samekey.NoKey
	}
	return c, found, nil
}

// quoted is the key as an RFC 9651 string.
func quoted(key string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(key) + `"`
}
