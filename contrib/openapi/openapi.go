package openapi

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/getkin/kin-openapi/openapi3"

	"github.com/samekey/samekey"
	"github.com/samekey/samekey/persist/memory"
)

// Options say what the description cannot. The zero value is ready for use.
type Options struct {
	// Names of keys beside those that are known: headers without regard to case, others as they are written.
	Names []string
	// Servers are base URLs that stand for the description's own.
	Servers []string
	// Life of a key at the server; 0 where it is not published, or samekey.Forever.
	Life time.Duration
	// Keyless has the POST and PATCH operations that take no key among the endpoints, with samekey.NoKey: by default they
	// are only noted, and a client without a policy for them would send them a key, and repeat them.
	Keyless bool
}

// Description is what has been read.
type Description struct {
	Title     string
	Endpoints []Endpoint // by pattern; none where nothing takes a key (see Options.Keyless)
	Notes     []Note     // what is left open, or cannot be expressed
}

// Endpoint is one operation at one server.
type Endpoint struct {
	Pattern   string // of samekey.Config.Endpoints
	Operation string // "POST /v1/payments", as described
	Required  bool   // the key is
	Policy    samekey.Policy
}

// Note says something of some operations.
type Note struct {
	Text       string
	Operations []string // "POST /v1/payments"; none: it is of the whole description
}

// String is the note in one line.
func (n Note) String() string {
	const most = 3
	ops := n.Operations
	switch {
	case len(ops) == 0:
		return n.Text
	case len(ops) > most:
		return fmt.Sprintf("%s and %d more: %s", strings.Join(ops[:most], ", "), len(ops)-most, n.Text)
	}
	return strings.Join(ops, ", ") + ": " + n.Text
}

// Load reads a description, in YAML or JSON, from a file.
func Load(fsys fs.FS, name string, o Options) (*Description, error) {
	data, err := fs.ReadFile(fsys, name)
	if err != nil {
		return nil, fmt.Errorf("openapi: %w", err)
	}
	return Parse(name, data, o)
}

// Parse is Load for a file that has been read; name is for its errors.
func Parse(name string, data []byte, o Options) (d *Description, err error) {
	fail := func(err error) (*Description, error) { return nil, fmt.Errorf("openapi: %s: %w", name, err) }
	doc, err := read(data)
	if err != nil {
		return fail(err)
	}
	r := &reader{o: o, doc: doc, out: &Description{Title: doc.Info.Title}, notes: map[string]int{}}
	for _, path := range slices.Sorted(maps.Keys(doc.Paths.Map())) {
		item := doc.Paths.Value(path)
		if item == nil {
			continue
		}
		operations := item.Operations()
		for _, method := range slices.Sorted(maps.Keys(operations)) {
			if err := r.operation(method, path, item, operations[method]); err != nil {
				return fail(err)
			}
		}
	}
	if r.keyed == 0 {
		r.note("", "no operation takes a key")
	}
	r.check()
	r.guard()
	r.hostless()
	slices.SortStableFunc(r.out.Endpoints, func(a, b Endpoint) int { return strings.Compare(a.Pattern, b.Pattern) })
	return r.out, nil
}

// read parses and validates a document.
func read(data []byte) (doc *openapi3.T, err error) {
	doc, err = openapi3.NewLoader().LoadFromData(data)
	switch {
	case err != nil:
		return nil, err
	case doc.OpenAPI == "":
		return nil, errors.New(`is no OpenAPI 3 description: it has no member "openapi" with the version`)
	case !strings.HasPrefix(doc.OpenAPI, "3.0.") && !strings.HasPrefix(doc.OpenAPI, "3.1."):
		return nil, fmt.Errorf("is of OpenAPI %s: 3.0 and 3.1 are read", doc.OpenAPI)
	}
	// What does not matter here is not held against the document.
	err = doc.Validate(context.Background(), openapi3.DisableExamplesValidation(), openapi3.DisableSchemaDefaultsValidation(),
		openapi3.DisableSchemaPatternValidation())
	if err != nil {
		return nil, err
	}
	return doc, nil
}

// reader collects what the operations say.
type reader struct {
	o     Options
	doc   *openapi3.T
	out   *Description
	notes map[string]int // by text, the place in out.Notes
	keyed int
	plain []Endpoint // operations without a key
}

func (r *reader) note(operation, format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	i, known := r.notes[text]
	if !known {
		i = len(r.out.Notes)
		r.notes[text] = i
		r.out.Notes = append(r.out.Notes, Note{Text: text})
	}
	if n := &r.out.Notes[i]; operation != "" && !slices.Contains(n.Operations, operation) {
		n.Operations = append(n.Operations, operation)
	}
}

func (r *reader) operation(method, path string, item *openapi3.PathItem, op *openapi3.Operation) error {
	name := method + " " + path
	k := r.key(name, item, op)
	reads := slices.Contains([]string{"GET", "HEAD", "OPTIONS", "TRACE", "QUERY"}, method)
	command := method == "POST" || method == "PATCH"
	var p samekey.Policy
	switch {
	case reads && k != nil:
		r.note(name, "takes a key, but reads: it is left out")
		return nil
	case reads:
		return nil
	case k != nil:
		r.keyed++
		var ok bool
		if p, ok = r.policy(name, k, op); !ok {
			return nil
		}
		if !command {
			p.Command = samekey.On
		}
	case command:
		p = samekey.Policy{Contract: &samekey.Contract{Name: r.out.Title, Carrier: samekey.NoKey}}
		if !r.o.Keyless {
			r.note(name, "takes no key: without an endpoint of its own a client sends it one all the same, and repeats it. -keyless (Options.Keyless) gives it one, with the Carrier none")
		}
	default:
		p = samekey.Policy{Command: samekey.Off}
	}
	patterns, err := r.patterns(name, method, path, item, op)
	if err != nil {
		return err
	}
	for _, pattern := range patterns {
		e := Endpoint{Pattern: pattern, Operation: name, Required: k != nil && k.required, Policy: p}
		if k != nil || command && r.o.Keyless {
			r.out.Endpoints = append(r.out.Endpoints, e)
		} else {
			r.plain = append(r.plain, e)
		}
	}
	return nil
}

// check leaves out what New refuses, and says why.
func (r *reader) check() {
	for {
		refused := map[string]string{}
		for _, err := range parts(build(samekey.Policy{}, r.out.Policies())) {
			if e, ok := errors.AsType[*samekey.PolicyError](err); ok && e.Endpoint != "" {
				refused[e.Endpoint] = e.Why
			}
		}
		before := len(r.out.Endpoints)
		r.out.Endpoints = slices.DeleteFunc(r.out.Endpoints, func(e Endpoint) bool {
			why, bad := refused[e.Pattern]
			if bad {
				r.note(e.Operation, "is left out: the pattern %q %s", e.Pattern, why)
			}
			return bad
		})
		if len(r.out.Endpoints) == before {
			return
		}
	}
}

// guard gives an operation without a key an endpoint of its own where it would fall under another's wildcard, and be sent
// with a key that the server does not know.
func (r *reader) guard() {
	policies := r.out.Policies()
	mux := http.NewServeMux()
	for pattern := range policies {
		mux.Handle(pattern, http.NotFoundHandler())
	}
	for _, e := range r.plain {
		method, place, _ := strings.Cut(e.Pattern, " ")
		host, path, _ := strings.Cut(place, "/")
		path = "/" + strings.NewReplacer("{$}", "", "{", "", "}", "").Replace(path) // a wildcard's name is as good as any value
		_, other := mux.Handler(&http.Request{Method: method, Host: host, URL: &url.URL{Host: host, Path: path}})
		if _, taken := policies[e.Pattern]; other == "" || taken {
			continue
		}
		policies[e.Pattern] = e.Policy
		if build(samekey.Policy{}, policies) != nil {
			delete(policies, e.Pattern)
			r.note(e.Operation, "takes no key, and %q matches it too: it needs an endpoint of its own", other)
			continue
		}
		r.out.Endpoints = append(r.out.Endpoints, e)
		r.note(e.Operation, "takes no key, and %q matches it too: it has an endpoint of its own", other)
	}
}

// hostless notes the endpoints whose patterns name no host.
func (r *reader) hostless() {
	for _, e := range r.out.Endpoints {
		if _, place, _ := strings.Cut(e.Pattern, " "); strings.HasPrefix(place, "/") {
			r.note(e.Operation, "no server's host is described: the pattern holds for every host")
		}
	}
}

// build has New check policies.
func build(def samekey.Policy, endpoints map[string]samekey.Policy) error {
	c, err := samekey.New(samekey.Config{Store: memory.New(), Default: def, Endpoints: endpoints})
	if err != nil {
		return err
	}
	return c.Close()
}

func parts(err error) (out []error) {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		for _, e := range joined.Unwrap() {
			out = append(out, parts(e)...)
		}
		return out
	}
	return []error{err}
}

// Policies are for samekey.Config.Endpoints, which takes them as they are.
func (d *Description) Policies() map[string]samekey.Policy {
	out := make(map[string]samekey.Policy, len(d.Endpoints))
	for _, e := range d.Endpoints {
		out[e.Pattern] = e.Policy
	}
	return out
}
