package tool

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/samekey/samekey"
	"github.com/samekey/samekey/internal/endpoint"
)

// matched is what policy -match tells.
type matched struct {
	File    string   `json:"file"`
	Method  string   `json:"method"`
	URL     string   `json:"url"`
	Pattern string   `json:"pattern"` // "": none, the default holds
	Also    []string `json:"also"`    // patterns that match too, and are less specific
	Command bool     `json:"command"`
	Treated string   `json:"treated"` // the same in words
	Values  []value  `json:"values"`
}

func (f *policies) match(request string) (*matched, error) {
	words := strings.Fields(request)
	if len(words) != 2 {
		return nil, bad(`policy: -match wants a method and a URL, as in -match "POST https://api.bank.test/v1/payments"`)
	}
	req, err := http.NewRequest(words[0], words[1], nil)
	if err != nil {
		return nil, bad("policy: -match: %w", err)
	}
	if req.URL.Host == "" {
		return nil, bad("policy: -match: %q names no host", words[1])
	}
	c, err := f.client(f.Default, f.Endpoints)
	if err != nil {
		return nil, bad("%s: %w", f.file, err)
	}
	effective, pattern := c.PolicyFor(req)
	out := &matched{
		File: f.file, Method: req.Method, URL: req.URL.Redacted(), Pattern: pattern, Also: []string{}, Command: effective.Command == samekey.On,
		Values: valuesOf(effective, f.Endpoints[pattern], f.Default, req.Method),
	}
	var counts []string
	if out.Treated, counts = treated(effective, req.Method, pattern); counts != nil {
		out.Values = slices.DeleteFunc(out.Values, func(v value) bool { return !slices.Contains(counts, v.Field) })
	}
	for _, other := range sortedKeys(f.Endpoints) {
		if other == pattern {
			continue
		}
		if alone, problems := endpoint.New([]string{other}); problems == nil && alone.Match(req.Method, req.URL) != "" {
			out.Also = append(out.Also, other)
		}
	}
	return out, c.Close()
}

// treated says what becomes of a request of this method, and which values count there; nil: all of them.
func treated(p samekey.Policy, method, pattern string) (what string, counts []string) {
	switch {
	case p.Command == samekey.Off && (pattern == "" || !reads(method)):
		return "plain HTTP: passed through, tried once; no key and no record", []string{"Command"}
	case p.Command == samekey.Off && (p.MaxAttempts == 1 || p.RetryTransport == samekey.Off && len(p.RetryStatus) == 0):
		return "a read: tried once, since this policy retries none", readCounts
	case p.Command == samekey.Off:
		return "a read: retried by this policy (unless it has a body), the last answer returned", readCounts
	case p.Contract.Carrier == samekey.NoKey:
		return "a command without a key: nothing is repeated that may have arrived", nil
	case p.Contract.Carrier == samekey.Natural:
		return "a command without a key, which is safe to repeat as it is", nil
	}
	return "a command: sent under one key, and repeated under it as stands below", nil
}

// reads are what a pattern has retried although it is no command, as samekey.Client.Do says.
func reads(method string) bool {
	return method == http.MethodGet || method == http.MethodHead || method == http.MethodOptions
}

// readCounts is what Do goes by for those.
var readCounts = []string{"Command", "MaxAttempts", "AttemptTimeout", "Deadline", "Backoff.Min", "Backoff.Max", "MaxRetryAfter", "RetryStatus", "RetryTransport"}

func (m *matched) print(t *tool) {
	tw := tabwriter.NewWriter(t.out, 0, 0, 2, ' ', 0)
	row := func(label, text string) { _, _ = fmt.Fprintf(tw, "%s\t%s\n", label, clean(text)) }
	row("request", m.Method+" "+m.URL)
	if m.Pattern == "" {
		row("pattern", "none matches: the default holds")
	} else {
		row("pattern", m.Pattern)
	}
	for _, p := range m.Also {
		row("passed over", p+" matches too, and is less specific")
	}
	row("treated as", m.Treated)
	_ = tw.Flush()
	t.printf("\n")
	t.values(m.Values)
}
