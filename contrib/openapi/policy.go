package openapi

import (
	"cmp"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/getkin/kin-openapi/openapi3"

	"github.com/samekey/samekey"
)

func sorted[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }

// uuid is how a key of format uuid looks.
const uuid = `[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}`

// policy makes one of what is described; false: no key that can be made here is allowed.
func (r *reader) policy(name string, k *key, op *openapi3.Operation) (samekey.Policy, bool) {
	c := &samekey.Contract{Name: r.out.Title, Carrier: k.carrier, Life: r.o.Life}
	p := samekey.Policy{Contract: c}
	formats := []samekey.KeyFormat{nil, samekey.ULID} // nil: the built-in one, UUIDv4
	least, bounded := 0, false
	for _, s := range k.schemas {
		switch format := strings.ToLower(s.Format); format {
		case "uuid", "guid", "uuid4", "uuidv4", "uuid-v4":
			formats, bounded = []samekey.KeyFormat{samekey.UUIDv4}, true
			c.Format = cmp.Or(c.Format, uuid)
		case "ulid":
			formats, bounded = []samekey.KeyFormat{samekey.ULID}, true
		case "":
		default:
			r.note(name, "the key's format %q is not known here, and not checked", format)
		}
		if s.Type != nil && !s.Type.Permits("string") {
			r.note(name, "the key is described as %s: it is sent as a string", strings.Join(s.Type.Slice(), " or "))
		}
		if len(s.Enum) > 0 || s.Const != nil {
			r.note(name, "the key is one of listed values, which none that is made here will be: it is left out")
			return p, false
		}
		if s.MaxLength != nil {
			bounded = true
			if most := int(min(*s.MaxLength, 1<<16)); c.MaxLength == 0 || most < c.MaxLength {
				c.MaxLength = max(most, 1)
			}
		}
		least = max(least, int(min(s.MinLength, 1<<16)))
		if s.Pattern != "" {
			r.pattern(name, c, s.Pattern)
		}
	}
	fits := slices.IndexFunc(formats, func(f samekey.KeyFormat) bool {
		p.KeyFormat = f
		sample, err := cmp.Or(f, samekey.UUIDv4).NewKey(samekey.Ref{})
		return err == nil && len(sample) >= least && build(p, nil) == nil
	})
	if fits < 0 {
		r.note(name, "is left out: neither a UUIDv4 nor a ULID is a key that it takes; write its endpoint by hand, with a KeyFunc")
		return p, false
	}
	r.open(name, k, op, c, bounded)
	return p, true
}

// pattern adds a regular expression of the description's, which need not be anchored, to the contract's format, which is.
func (r *reader) pattern(name string, c *samekey.Contract, pattern string) {
	expr := pattern
	if !strings.HasPrefix(expr, "^") {
		expr = ".*(?:" + expr
	} else {
		expr = "(?:" + expr
	}
	if expr += ")"; !strings.HasSuffix(pattern, "$") {
		expr += ".*"
	}
	if _, err := regexp.Compile(expr); err != nil {
		r.note(name, "the key's pattern %s is none of RE2, and not checked", pattern)
		return
	}
	if c.Format != "" && c.Format != uuid {
		r.note(name, "the key has more than one pattern: %s is not checked", pattern)
		return
	}
	c.Format = expr // narrower than uuid, where both are said
}

// open reads the answers, and notes what they do not say.
func (r *reader) open(name string, k *key, op *openapi3.Operation, c *samekey.Contract, bounded bool) {
	if !k.required {
		r.note(name, "the key is optional: a program that sends the command without one is not protected; samekey always sends it")
	}
	if !bounded && c.Format == "" {
		r.note(name, "how long a key may be is not said: 255 characters are taken to be allowed (Contract.MaxLength)")
	}
	if c.Life == 0 {
		r.note(name, "how long the server knows a key is not said: nothing is sent again after 1h (Contract.Life)")
	}
	echoed, successes, replayed, rejects := 0, 0, "", false
	answers := op.Responses.Map()
	for _, status := range sorted(answers) {
		if answers[status].Value == nil {
			continue
		}
		answer := answers[status].Value
		code, _ := strconv.Atoi(strings.ReplaceAll(strings.ToUpper(status), "XX", "00"))
		if code >= 200 && code < 300 {
			successes++
		}
		for _, h := range sorted(answer.Headers) {
			switch {
			case code >= 200 && code < 300 && strings.EqualFold(h, k.header):
				echoed++
			case strings.Contains(fold(h), "replay"):
				replayed = h
			}
		}
		switch code {
		case http.StatusAccepted:
			c.Rules = append(c.Rules, samekey.Rule{If: samekey.Match{Status: []int{http.StatusAccepted}}, Means: samekey.MeansProcessing})
			r.note(name, "a 202 is taken for accepted and not done; where to ask is not said (Contract.Poll)")
		case http.StatusConflict:
			said := ""
			if d := answer.Description; d != nil && *d != "" {
				said = fmt.Sprintf(" (%q)", shorten(*d, 80))
			}
			r.note(name, "what a 409 means for the key is not said for programs%s: it is a conflict of unknown reason (Contract.Rules)", said)
		case http.StatusBadRequest, http.StatusPaymentRequired, http.StatusUnprocessableEntity:
			rejects = true
		}
	}
	if successes > 0 && echoed == successes {
		c.Echo = http.CanonicalHeaderKey(k.header)
	}
	if rejects {
		r.note(name, "whether rejections (400, 402, 422) are kept under the key is not said: one that follows an unclear attempt leaves the outcome unknown (Contract.StoresRejections)")
	}
	if replayed != "" {
		c.Replayed = samekey.Match{Header: replayed, Values: []string{"true"}}
		r.note(name, `%s: true is taken for the mark of a replay (Contract.Replayed)`, replayed)
	} else {
		r.note(name, "how a replay differs from a first answer is not said (Contract.Replayed)")
	}
}

// shorten takes the first line, up to n characters.
func shorten(s string, n int) string {
	s, _, _ = strings.Cut(strings.TrimSpace(s), "\n")
	if r := []rune(s); len(r) > n {
		return string(r[:n-1]) + "…"
	}
	return s
}
