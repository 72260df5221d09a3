package samekey

import (
	"bytes"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/samekey/samekey/internal/canonjson"
)

// Contract says what a server promises about keys. It is plain data and whole, never merged: a zero field is what is
// named here, the cautious choice.
type Contract struct {
	Name      string        // for errors and logs
	Carrier   Carrier       // Header("Idempotency-Key")
	MaxLength int           // of a key, in characters; 255
	Format    string        // RE2 that a whole key matches; any visible ASCII
	Life      time.Duration // how long the server knows a key; zero: unpublished, nothing is re-sent after 1 h; or Forever
	Rules     []Rule        // from an answer to its meaning, the first that matches; none makes a 409 a retry
	Replayed  Match         // marks an answer that the server gives from its own record; its zero value: none does
	// StoresRejections: 400, 402 and 422 are kept under the key, so that one that follows an ambiguous attempt settles
	// the operation. Off: such an answer leaves it unknown.
	StoresRejections bool
	// Echo is a response header that repeats the key. An answer of the API without it says that something on the way
	// strips the key: the observer is warned, and the call does not send again. One with another key in it leaves the
	// outcome unknown, unless it is a conflict.
	Echo string
	// RetryHint is a response header in which the server says true or false to whether a repeat can help
	// (Stripe-Should-Retry). It is followed within the policy's limits, and never for a 409.
	RetryHint string
	Poll      Poll // how an accepted command is awaited
}

// Forever as [Contract.Life] says that keys do not expire.
const Forever time.Duration = -1

// unpublishedLife is how long a key is re-sent where the server does not say how long it knows one.
const unpublishedLife = time.Hour

// DefaultContract: header Idempotency-Key, keys live for 24 h, 409 (or 400) IdempotencyKeyConflict for a changed payload,
// 202 while processing, rejections stored. The answers of the IETF draft (draft-ietf-httpapi-idempotency-key-header-07,
// section 2.7) are recognised besides, by their titles. [New] copies it.
var DefaultContract = Contract{
	Name:             "default",
	Life:             24 * time.Hour,
	StoresRejections: true,
	Replayed:         Match{Header: "Idempotent-Replayed", Values: []string{"true"}},
	Poll: Poll{
		Processing: Match{Pointer: "/status", Values: []string{"processing"}},
		Failed:     Match{Pointer: "/status", Values: []string{"failed"}},
	},
	Rules: []Rule{
		{If: Match{Pointer: "/error", Values: []string{"IdempotencyKeyConflict"}}, Means: MeansMismatch},
		{If: Match{Pointer: "/title", Values: []string{"A request is outstanding for this Idempotency-Key"}}, Means: MeansInProgress},
		{If: Match{Pointer: "/title", Values: []string{"Idempotency-Key is already used"}}, Means: MeansMismatch},
		{If: Match{Pointer: "/title", Values: []string{"Idempotency-Key is missing"}}, Means: MeansTurnedAway},
		{If: Match{Status: []int{http.StatusAccepted}}, Means: MeansProcessing},
	},
}

// Match is a condition on an answer; its empty fields hold. Where Values is empty the Header or Pointer has to be there.
type Match struct {
	Status   []int    // any one of them; Any5xx is every one from 500 on
	Header   string   // a field's name
	Pointer  string   // RFC 6901, into a JSON body
	Values   []string // of the Header, else of the Pointer: any one of them; a JSON string without its quotes
	Contains string   // text in the body, for what is no JSON, or whose place is not known
}

func (m Match) zero() bool {
	return len(m.Status) == 0 && m.Header == "" && m.Pointer == "" && len(m.Values) == 0 && m.Contains == ""
}

// hasStatus reports whether Status holds.
func (m Match) hasStatus(status int) bool {
	return len(m.Status) == 0 || slices.Contains(m.Status, status) || status >= 500 && slices.Contains(m.Status, Any5xx)
}

// Rule gives an answer a meaning.
type Rule struct {
	If    Match
	Means Meaning
	Link  string // RFC 6901 pointer, or a field's name, that names the existing resource
}

// Meaning of an answer.
type Meaning uint8

// What an answer can mean.
const (
	MeansSucceeded     Meaning = iota + 1
	MeansRejected              // final, without effect, also after an ambiguous attempt
	MeansTurnedAway            // not looked at: without effect, and the key is unused
	MeansMismatch              // a conflict: the key was used with another payload
	MeansInProgress            // a conflict: the first request is under way
	MeansExists                // a conflict: what was to be created is there
	MeansBusiness              // a conflict: a rule of the API itself
	MeansStoredFailure         // the server keeps this failure under the key: more tries cannot change it
	MeansUncertain             // it may have happened: retried like a 5xx
	MeansProcessing            // accepted, not done
)

// contract is a Contract ready for use.
type contract struct {
	Contract
	format   *regexp.Regexp
	pointer  *canonjson.Pointer // of BodyMember
	rules    []rule
	replayed *matcher
	links    []place // of Poll

	processing, failed matcher // never, where they are not given
}

type rule struct {
	matcher
	means    Meaning
	link     string
	linkPath *canonjson.Pointer
}

type matcher struct {
	Match
	pointer *canonjson.Pointer
	values  [][]byte // Match.Values
}

// keyed reports whether the server is told a key at all.
func (k *contract) keyed() bool { return k.Carrier.keyed() }

// repeatable reports whether a request may be sent again once it may have been reached.
func (k *contract) repeatable() bool { return k.Carrier.in != carrierNone }

// life is how long after the first send a key may go out, negative for ever.
func (k *contract) life() time.Duration {
	switch {
	case k.Life == 0 && k.keyed():
		return unpublishedLife
	case k.Life == 0:
		return Forever
	}
	return k.Life
}

// compile checks c; problems are reported as (field, why).
func (c Contract) compile(bad func(field, why string)) *contract {
	k := &contract{Contract: c}
	if k.Carrier.in == carrierDefault {
		k.Carrier = Header("Idempotency-Key")
	}
	if why := k.Carrier.check(); why != "" {
		bad("Contract.Carrier", why)
	} else if k.Carrier.in == carrierBody {
		p, _ := canonjson.ParsePointer(k.Carrier.name)
		k.pointer = &p
	}
	if k.MaxLength < 0 {
		bad("Contract.MaxLength", "is negative")
	}
	if k.MaxLength <= 0 {
		k.MaxLength = 255
	}
	if k.Life < 0 && k.Life != Forever {
		bad("Contract.Life", "is negative; Forever says that keys do not expire")
	}
	if c.Format != "" {
		re, err := regexp.Compile(`^(?:` + c.Format + `)$`)
		if err != nil {
			bad("Contract.Format", err.Error())
		}
		k.format = re
	}
	for i, r := range c.Rules {
		where := fmt.Sprintf("Contract.Rules[%d]", i)
		cr := rule{matcher: r.If.compile(func(why string) { bad(where+".If", why) }), means: r.Means, link: r.Link}
		switch {
		case r.Means < MeansSucceeded || r.Means > MeansProcessing:
			bad(where+".Means", "names no meaning")
		case r.If.zero():
			bad(where+".If", "is empty and would match every answer")
		case r.Means == MeansUncertain && slices.Contains(r.If.Status, http.StatusConflict):
			bad(where+".Means", "a 409 is never retried; call it MeansInProgress, or leave the rule out")
		}
		if strings.HasPrefix(r.Link, "/") {
			p, err := canonjson.ParsePointer(r.Link)
			if err != nil {
				bad(where+".Link", err.Error())
			}
			cr.linkPath = &p
		}
		k.rules = append(k.rules, cr)
	}
	if k.Poll.Links = c.Poll.Links; k.Poll.Links == nil {
		k.Poll.Links = defaultLinks
	}
	for _, l := range k.Poll.Links {
		p, err := newPlace(l)
		if err != nil {
			bad("Contract.Poll.Links", err.Error())
		}
		k.links = append(k.links, p)
	}
	k.processing = c.Poll.Processing.compile(func(why string) { bad("Contract.Poll.Processing", why) })
	k.failed = c.Poll.Failed.compile(func(why string) { bad("Contract.Poll.Failed", why) })
	if c.Poll.Resend && !k.repeatable() {
		bad("Contract.Poll.Resend", "repeats the command, which nothing protects: the Carrier is NoKey")
	}
	switch {
	case c.Poll.Interval < 0:
		bad("Contract.Poll.Interval", "is negative")
	case c.Poll.Interval == 0:
		k.Poll.Interval = time.Second
	}
	for field, name := range map[string]string{"Echo": c.Echo, "RetryHint": c.RetryHint} {
		if name != "" && !validToken(name) {
			bad("Contract."+field, fmt.Sprintf("%q is no header name", name))
		}
	}
	if !c.Replayed.zero() {
		m := c.Replayed.compile(func(why string) { bad("Contract.Replayed", why) })
		k.replayed = &m
	}
	return k
}

func (m Match) compile(bad func(why string)) matcher {
	m.Status, m.Values = slices.Clone(m.Status), slices.Clone(m.Values)
	out := matcher{Match: m}
	for _, v := range m.Values {
		out.values = append(out.values, []byte(v))
	}
	if m.Pointer != "" {
		p, err := canonjson.ParsePointer(m.Pointer)
		if err != nil {
			bad(err.Error())
		}
		out.pointer = &p
	}
	if len(m.Values) > 0 && m.Header == "" && m.Pointer == "" {
		bad("Values without a Header or Pointer that has them")
	}
	for _, s := range m.Status {
		if s != Any5xx && (s < 100 || s > 999) {
			bad(fmt.Sprintf("%d is no status", s))
		}
	}
	return out
}

// match reports whether the answer meets a condition; one that says nothing is met by none.
func (m *matcher) match(status int, h http.Header, body []byte) bool {
	if m.zero() {
		return false
	}
	if !m.hasStatus(status) || m.Contains != "" && !bytes.Contains(body, []byte(m.Contains)) {
		return false
	}
	if m.Header != "" {
		lines := h.Values(m.Header)
		if len(lines) == 0 || len(m.Values) > 0 && !slices.ContainsFunc(lines, func(l string) bool { return slices.Contains(m.Values, l) }) {
			return false
		}
	}
	if m.pointer != nil {
		if m.Header == "" && len(m.Values) > 0 && !mayHold(body, m.values) {
			return false // most answers of most rules, without reading the document
		}
		v, ok := lookup(body, *m.pointer)
		if !ok || m.Header == "" && len(m.Values) > 0 && !slices.Contains(m.Values, v) {
			return false
		}
	}
	return true
}

// mayHold reports whether one of values may stand in a JSON document: without escapes it would stand as it is.
func mayHold(body []byte, values [][]byte) bool {
	return bytes.IndexByte(body, '\\') >= 0 || slices.ContainsFunc(values, func(v []byte) bool { return bytes.Contains(body, v) })
}

// meaning returns what the first matching rule says, 0 for none, and the link it names.
func (k *contract) meaning(status int, h http.Header, body []byte) (Meaning, string) {
	for i := range k.rules {
		r := &k.rules[i]
		if !r.match(status, h, body) {
			continue
		}
		link := ""
		switch {
		case r.linkPath != nil:
			link, _ = lookup(body, *r.linkPath)
		case r.link != "":
			link = h.Get(r.link)
		}
		return r.means, link
	}
	return 0, ""
}

// isReplay reports whether the server gave the answer from its own record.
func (k *contract) isReplay(status int, h http.Header, body []byte) bool {
	return k.replayed != nil && k.replayed.match(status, h, body)
}
