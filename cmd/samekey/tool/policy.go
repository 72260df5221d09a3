package tool

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/samekey/samekey"
	"github.com/samekey/samekey/contracts"
	"github.com/samekey/samekey/persist"
	"github.com/samekey/samekey/persist/memory"
)

// policySchema is made by internal/policyschema.
//
//go:embed policy.schema.json
var policySchema string

var policyCommand = &command{
	name: "policy", args: "FILE", short: "check a policy file, and say what a request would get", least: 0, most: 1,
	long: `
Checks a policy file (JSON, as samekey.LoadPolicies reads it), and prints what holds at each of its
endpoints: every value, and where it comes from. With -match it prints what one request would get,
and which pattern it is found by. Sends nothing.

The file may name contracts of the package contracts ("stripe-v1"); those of the program's own are
not known here, and neither is what it sets in its code, on top of the file.

  {name} policy /etc/pay/policies.json
  {name} policy /etc/pay/policies.json -match "POST https://api.bank.test/v1/payments"
  {name} policy -schema >policy.schema.json`,
	exits: `
  0  the file is sound
  1  something in the file is refused
  2  a bad command line, or the file cannot be read`,
	setup: func(t *tool, fs *flag.FlagSet) func(context.Context, []string) error {
		match := fs.String("match", "", "`\"METHOD URL\"`: the request to ask about")
		schema := fs.Bool("schema", false, "print the JSON Schema of policy files, for editors and validators")
		asJSON := fs.Bool("json", false, "print one JSON object")
		return func(_ context.Context, args []string) error {
			switch {
			case *schema && (len(args) > 0 || *match != "" || *asJSON):
				return bad("policy: -schema stands alone")
			case *schema:
				t.printf("%s", policySchema)
				return nil
			case len(args) == 0:
				return bad("policy: FILE is missing; -schema prints what one may hold")
			}
			f, err := t.loadPolicies(args[0])
			if err != nil {
				return err
			}
			var out interface{ print(*tool) }
			if *match != "" {
				out, err = f.match(*match)
			} else {
				out, err = f.all()
			}
			switch {
			case err != nil:
				return err
			case *asJSON:
				return t.printJSON(out, true)
			}
			out.print(t)
			return nil
		}
	},
}

// policies is a policy file that has been read and checked.
type policies struct {
	file string
	samekey.Config
}

// loadPolicies reads one, says all that is refused in it, and ends with exit code 1 then.
func (t *tool) loadPolicies(name string) (*policies, error) {
	data, err := os.ReadFile(name)
	if err != nil {
		return nil, bad("%w", err)
	}
	if ext := strings.ToLower(filepath.Ext(name)); ext == ".yaml" || ext == ".yml" {
		return nil, bad("%s: this tool reads JSON; YAML files are read by github.com/samekey/samekey/contrib/yaml", name)
	}
	f := &policies{file: name}
	if f.Default, f.Endpoints, err = samekey.ParsePolicies(name, data, contracts.All()...); err == nil {
		var c *samekey.Client
		if c, err = f.client(f.Default, f.Endpoints); err == nil {
			return f, c.Close()
		}
	}
	for _, e := range parts(err) {
		if p, ok := errors.AsType[*samekey.PolicyError](e); ok {
			e = fmt.Errorf("%s: %w", name, errors.New(trimName(p)))
		}
		t.complain(e)
	}
	return nil, quiet(exitNo)
}

const policyUsage = "`FILE`: the program's policy file (JSON)"

// policyFlag reads the file of -policy: one that is refused is a bad command line.
func (t *tool) policyFlag(name string) (*policies, error) {
	f, err := t.loadPolicies(name)
	if codeOf(err) == exitNo {
		err = quiet(exitUsage)
	}
	return f, err
}

// fits refuses a record that does not bear its key where the file says: it is another program's file, or has changed since,
// and the server would not know the operation again.
func (f *policies) fits(r *persist.Record) error {
	req, err := http.NewRequest(r.Method, r.Target, nil)
	if err != nil {
		return no("the stored target of %s cannot be read", name(r.Ref))
	}
	c, err := f.client(f.Default, f.Endpoints)
	if err != nil {
		return bad("%s: %w", f.file, err)
	}
	p, pattern := c.PolicyFor(req)
	_ = c.Close()
	if pattern == "" {
		pattern = "the default"
	}
	carrier := p.Contract.Carrier
	kind, where, _ := strings.Cut(carrier.String(), " ")
	bears := true
	switch kind {
	case "header":
		bears = r.Header.Get(where) == r.Key
	case "quoted":
		bears = r.Header.Get(strings.TrimPrefix(where, "header ")) == quoted(r.Key)
	case "repeatability":
		bears = r.Header.Get("Repeatability-Request-Id") == r.Key
	case "query":
		bears = req.URL.Query().Get(where) == r.Key
	case "form":
		bears = r.Body == nil || bytes.Contains(r.Body, []byte(url.QueryEscape(r.Key)))
	case "body":
		bears = r.Body == nil || bytes.Contains(r.Body, []byte(r.Key)) // no key that is made here needs escapes
	}
	if !bears {
		return no("%s does not bear its key as %s says for %s (%s): it is not the file that the program ran with", name(r.Ref), f.file, pattern, carrier)
	}
	return nil
}

// parts takes errors apart that were joined, in any depth.
func parts(err error) (out []error) {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		for _, e := range joined.Unwrap() {
			out = append(out, parts(e)...)
		}
		return out
	}
	return []error{err}
}

// client is one that sends nothing: New checks its policies, and it is asked for them.
func (f *policies) client(def samekey.Policy, endpoints map[string]samekey.Policy) (*samekey.Client, error) {
	return samekey.New(samekey.Config{Store: memory.New(), Default: def, Endpoints: endpoints})
}

// listedPolicies is what policy tells of a file, and what -json prints.
type listedPolicies struct {
	File      string           `json:"file"`
	Default   []value          `json:"default"`
	Endpoints []endpointPolicy `json:"endpoints"`
}

type endpointPolicy struct {
	Pattern string  `json:"pattern"`
	Note    string  `json:"note,omitempty"`
	Values  []value `json:"values"`
}

func (f *policies) all() (*listedPolicies, error) {
	out := &listedPolicies{File: f.file, Endpoints: []endpointPolicy{}}
	var err error
	if out.Default, err = f.values("", samekey.Policy{}); err != nil {
		return nil, err
	}
	for _, pattern := range sortedKeys(f.Endpoints) {
		values, err := f.values(pattern, f.Endpoints[pattern])
		if err != nil {
			return nil, err
		}
		out.Endpoints = append(out.Endpoints, endpointPolicy{pattern, idle(pattern, values), values})
	}
	return out, nil
}

// idle says of an endpoint whose method is no command and no read that what is set there has no effect. Where nobody has
// switched Command off, loadPolicies has refused that.
func idle(pattern string, values []value) string {
	method, _, named := strings.Cut(pattern, " ")
	if !named || reads(method) {
		return ""
	}
	own, off := 0, false
	for _, v := range values {
		if v.Field == "Command" {
			off = v.Value == "false"
		} else if v.From == fromEndpoint {
			own++
		}
	}
	if !off || own == 0 {
		return ""
	}
	return fmt.Sprintf("Command is not on for %s: such calls pass through, and nothing else here has an effect", method)
}

// values are what holds at an endpoint, whatever the request: it is asked for alone, under a pattern that all match.
func (f *policies) values(pattern string, p samekey.Policy) ([]value, error) {
	c, err := f.client(f.Default, map[string]samekey.Policy{"/": p})
	if err != nil {
		return nil, bad("%s: %w", f.file, err)
	}
	method, _, named := strings.Cut(pattern, " ")
	if !named {
		method = ""
	}
	effective, _ := c.PolicyFor(&http.Request{Method: method, URL: &url.URL{Scheme: "https", Host: "any", Path: "/"}})
	return valuesOf(effective, p, f.Default, method), c.Close()
}

func (l *listedPolicies) print(t *tool) {
	t.printf("%s is sound: %s\n", clean(l.File), count(len(l.Endpoints), "endpoint", "endpoints"))
	t.printf("\nwhere no pattern matches\n")
	t.values(l.Default)
	for _, e := range l.Endpoints {
		t.printf("\n%s\n", clean(e.Pattern))
		if e.Note != "" {
			t.printf("  note: %s\n", clean(e.Note))
		}
		t.values(slices.DeleteFunc(slices.Clone(e.Values), func(v value) bool { return slices.Contains(l.Default, v) }))
	}
	if len(l.Endpoints) > 0 {
		t.printf("\nWhat is not said of an endpoint is as where no pattern matches.\n")
	}
}

func (t *tool) values(list []value) {
	tw := tabwriter.NewWriter(t.out, 0, 0, 2, ' ', 0)
	for _, v := range list {
		_, _ = fmt.Fprintf(tw, "  %s\t%s\t%s\n", v.Field, clean(v.Value), v.From)
	}
	_ = tw.Flush()
}
