package openapi_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/samekey/samekey"
	"github.com/samekey/samekey/contrib/openapi"
	"github.com/samekey/samekey/persist/memory"
)

func load(t *testing.T, name string, o openapi.Options) *openapi.Description {
	t.Helper()
	d, err := openapi.Load(os.DirFS("testdata"), name, o)
	require.NoError(t, err)
	c, err := samekey.New(samekey.Config{Store: memory.New(), Endpoints: d.Policies()})
	require.NoError(t, err, "whatever is described, New takes it")
	require.NoError(t, c.Close())
	// The file says the same.
	file, err := d.PolicyFile()
	require.NoError(t, err)
	def, endpoints, err := samekey.ParsePolicies("policies.json", file)
	require.NoError(t, err, "%s", file)
	require.Zero(t, def)
	require.Len(t, endpoints, len(d.Endpoints))
	for _, e := range d.Endpoints {
		require.Equal(t, e.Policy, endpoints[e.Pattern], e.Pattern)
	}
	return d
}

func notes(d *openapi.Description) string {
	var all []string
	for _, n := range d.Notes {
		all = append(all, n.String())
	}
	return strings.Join(all, "\n")
}

// TestPaymentAPI: one operation, a required key in Idempotency-Key, of format uuid.
func TestPaymentAPI(t *testing.T) {
	d := load(t, "payment.yaml", openapi.Options{})
	require.Equal(t, "Payment API", d.Title)
	require.Len(t, d.Endpoints, 1)
	e := d.Endpoints[0]
	require.Equal(t, "POST /v1/payments", e.Pattern)
	require.True(t, e.Required)
	require.Equal(t, samekey.UUIDv4, e.Policy.KeyFormat)
	require.Equal(t, samekey.Header("Idempotency-Key"), e.Policy.Contract.Carrier)
	require.Equal(t, "Idempotency-Key", e.Policy.Contract.Echo, "the only success repeats it")
	require.Zero(t, e.Policy.Contract.Life)
	for _, want := range []string{
		"how long the server knows a key is not said", `what a 409 means for the key is not said for programs ("Конфликт — ключ уже использован для другой операции")`,
		"whether rejections (400, 402, 422) are kept", "how a replay differs", "no server's host",
	} {
		require.Contains(t, notes(d), want)
	}

	d = load(t, "payment.yaml", openapi.Options{Servers: []string{"https://api.bank.test/base/"}, Life: 24 * time.Hour})
	require.Equal(t, "POST api.bank.test/base/v1/payments", d.Endpoints[0].Pattern)
	require.Equal(t, 24*time.Hour, d.Endpoints[0].Policy.Contract.Life)
	require.NotContains(t, notes(d), "how long the server knows")
	require.NotContains(t, notes(d), "host")
}

func TestNoKeys(t *testing.T) {
	src := []byte(`{"openapi": "3.0.3", "info": {"title": "T", "version": "1"}, "servers": [{"url": "https://a.test"}],
		"paths": {"/a": {"post": {"responses": {"200": {"description": ""}}}, "get": {"responses": {"200": {"description": ""}}}}}}`)
	d, err := openapi.Parse("a.json", src, openapi.Options{})
	require.NoError(t, err)
	require.Empty(t, d.Endpoints)
	require.Equal(t, "POST /a: takes no key: without an endpoint of its own a client sends it one all the same, and repeats it. "+
		"-keyless (Options.Keyless) gives it one, with the Carrier none\nno operation takes a key", notes(d))
	hostless := []byte(strings.ReplaceAll(string(src), "https://a.test", "/"))
	d, err = openapi.Parse("a.json", hostless, openapi.Options{})
	require.NoError(t, err)
	require.NotContains(t, notes(d), "no server's host", "there is no pattern that would hold for every host")
	d, err = openapi.Parse("a.json", hostless, openapi.Options{Keyless: true})
	require.NoError(t, err)
	require.Contains(t, notes(d), "POST /a: no server's host is described: the pattern holds for every host")
	d, err = openapi.Parse("a.json", src, openapi.Options{Keyless: true})
	require.NoError(t, err)
	require.Len(t, d.Endpoints, 1)
	require.Equal(t, samekey.NoKey, d.Endpoints[0].Policy.Contract.Carrier)

	d, err = openapi.Parse("a.yaml", []byte("openapi: 3.1.0\ninfo: {title: Hooks, version: '1'}\nwebhooks: {}\n"), openapi.Options{})
	require.NoError(t, err, "3.1 may have no paths")
	require.Empty(t, d.Endpoints)
}

// TestPlaces: where a key may be, and what of a description cannot be expressed.
func TestPlaces(t *testing.T) {
	d := load(t, "places.yaml", openapi.Options{Names: []string{"X-Request-Id"}})
	got := map[string]string{}
	for _, e := range d.Endpoints {
		form := "-"
		if e.Policy.KeyFormat != nil {
			form = fmt.Sprint(e.Policy.KeyFormat)
		}
		required := "optional"
		if e.Required {
			required = "required"
		}
		got[e.Pattern] = e.Policy.Contract.Carrier.String() + " " + form + " " + required
	}
	want := map[string]string{}
	for _, host := range []string{"api.bank.test", "eu.bank.test"} {
		for tail, what := range map[string]string{
			"POST /payments": "header X-Idempotency-Key UUIDv4 required",
			"PUT /payments/{payment_id}/refunds/{payment_id_}": "query idempotency_key ULID optional",
			"POST /orders/{$}": "body /idempotency_key - required",
			"POST /charges":    "form idempotencyKey - optional",
			"POST /draft":      "quoted header Idempotency-Key - required",
			"DELETE /named":    "header X-Request-Id ULID required",
			"POST /lookahead":  "header Idempotency-Key - optional",
			"POST /y/{b}":      "header Idempotency-Key - optional", // the first of two that exclude each other
		} {
			method, path, _ := strings.Cut(tail, " ")
			want[method+" "+host+"/v2"+path] = what
		}
	}
	want["PATCH /v9/oasis"] = "repeatability UUIDv4 required"
	require.Equal(t, want, got)

	policies := d.Policies()
	require.Equal(t, 45, policies["POST eu.bank.test/v2/orders/{$}"].Contract.MaxLength, "by allOf")
	require.Equal(t, samekey.On, policies["DELETE eu.bank.test/v2/named"].Command)
	require.Equal(t, samekey.On, policies["PUT eu.bank.test/v2/payments/{payment_id}/refunds/{payment_id_}"].Command)
	require.Equal(t, `.*(?:[a-z0-9-]+).*`, policies["POST eu.bank.test/v2/charges"].Contract.Format, "a pattern is found anywhere")
	require.Equal(t, samekey.Match{Header: "Idempotency-Replayed", Values: []string{"true"}}, policies["POST eu.bank.test/v2/draft"].Contract.Replayed)
	require.Equal(t, []samekey.Rule{{If: samekey.Match{Status: []int{202}}, Means: samekey.MeansProcessing}}, policies["POST eu.bank.test/v2/payments"].Contract.Rules)
	for _, text := range []string{
		"the server https://{region}.bank.test/v2 has a variable region: the patterns have its default \"eu\" only",
		`POST /payments: what a 409 means for the key is not said for programs ("Taken.")`,
		"GET /payments, GET /reads: takes a key, but reads: it is left out",
		"POST /orders/: takes a key in bodies of application/vnd.bank+json; charset=utf-8, and not in those of text/csv",
		`POST /upload: takes a key "idempotencyKey" in a body of multipart/form-data, where no carrier can place it`,
		`POST /cookie: takes a key "idempotency-key" in the cookie, where no carrier can place it`,
		"POST /cookie, POST /mail, POST /upload: takes no key",
		"POST /files/{name}.json: is left out: {name}.json is not a whole segment of its path",
		"POST /digits, POST /short: is left out: neither a UUIDv4 nor a ULID is a key that it takes",
		"POST /digits: the key is described as integer",
		"POST /lookahead: the key's pattern ^(?=.*a).{3,}$ is none of RE2",
		"POST /{a}/x", "neither is narrower",
		"PATCH /oasis: no server's host is described",
		"Idempotency-Replayed: true is taken for the mark of a replay",
	} {
		require.Contains(t, notes(d), text)
	}
	require.Equal(t, 1, strings.Count(notes(d), "no server's host is described"))
	load(t, "places.yaml", openapi.Options{Keyless: true})
}

func TestTwoPlaces(t *testing.T) {
	d, err := openapi.Parse("a.yaml", []byte(`
openapi: 3.0.0
info: {title: T, version: "1"}
paths:
  /a:
    post:
      parameters:
        - {in: query, name: idempotencyKey, schema: {type: string}}
        - {in: header, name: Idempotency-Key, content: {text/plain: {schema: {type: string, format: uuid, enum: [a]}}}}
      responses: {'200': {description: ok}}
  /b:
    post:
      parameters: [{in: header, name: Idempotency-Key, schema: {type: string, format: hex, minLength: 40}}]
      responses: {2XX: {description: ok}}
`), openapi.Options{})
	require.NoError(t, err)
	require.Empty(t, d.Endpoints)
	for _, text := range []string{
		"POST /a: takes a key in more than one place: header Idempotency-Key is used, query idempotencyKey is not",
		"POST /a: the key is one of listed values", `POST /b: the key's format "hex" is not known here`, "POST /b: is left out: neither",
	} {
		require.Contains(t, notes(d), text)
	}
	require.Equal(t, "A, B, C and 2 more: x", openapi.Note{Text: "x", Operations: []string{"A", "B", "C", "D", "E"}}.String())
}

// TestGuard: what takes no key does not fall under the wildcard of what takes one.
func TestGuard(t *testing.T) {
	src := []byte(`
openapi: 3.0.0
info: {title: T, version: "1"}
servers: [{url: "https://a.test/v1"}]
paths:
  /orders/{id}: &keyed
    parameters: [{in: path, name: id, required: true, schema: {type: string}}, {in: header, name: Idempotency-Key, schema: {type: string}}]
    post: {responses: {'200': {description: ok}}}
    put: {responses: {'200': {description: ok}}}
  /orders/search: &plain
    post: {responses: {'200': {description: ok}}}
    put: {responses: {'200': {description: ok}}}
    get: {responses: {'200': {description: ok}}}
  /elsewhere: *plain
`)
	for _, keyless := range []bool{false, true} {
		d, err := openapi.Parse("a.yaml", src, openapi.Options{Keyless: keyless})
		require.NoError(t, err)
		file, err := d.PolicyFile()
		require.NoError(t, err)
		_, endpoints, err := samekey.ParsePolicies("p", file)
		require.NoError(t, err)
		require.Equal(t, d.Policies(), endpoints)
		require.Equal(t, samekey.NoKey, endpoints["POST a.test/v1/orders/search"].Contract.Carrier)
		require.Equal(t, samekey.Policy{Command: samekey.Off}, endpoints["PUT a.test/v1/orders/search"])
		require.Contains(t, notes(d), `PUT /orders/search: takes no key, and "PUT a.test/v1/orders/{id}" matches it too: it has an endpoint of its own`)
		_, written := endpoints["POST a.test/v1/elsewhere"]
		require.Equal(t, keyless, written)
		require.NotContains(t, endpoints, "PUT a.test/v1/elsewhere")
	}
}

func TestMalformed(t *testing.T) {
	head := "openapi: 3.0.0\ninfo: {title: T, version: '1'}\n"
	op := "{post: {parameters: [{in: header, name: Idempotency-Key, schema: {type: string}}], responses: {'200': {description: ok}}}}"
	for text, want := range map[string]string{
		"":                              "openapi: a.yaml: ",
		"[]":                            "openapi: a.yaml: ",
		"a: b: c":                       "openapi: a.yaml: ",
		"{":                             "openapi: a.yaml: ",
		"swagger: '2.0'\ninfo: {}\n":    `is no OpenAPI 3 description: it has no member "openapi"`,
		"openapi: 4.0.0\n":              "is of OpenAPI 4.0.0: 3.0 and 3.1 are read",
		"openapi: 3\n":                  "openapi: a.yaml: ",
		"openapi: 3.0.0\npaths: {}\n":   "invalid info",
		head:                            "invalid paths",
		head + "paths: {a: {}}\n":       "a",
		head + "paths: {/a: {post: 1}}": "openapi: a.yaml: ",
		head + "paths: {/a: {post: {parameters: [{$ref: '#/components/parameters/None'}], responses: {}}}}": "None",
		head + "paths: {/a: {post: {parameters: [{$ref: 'https://evil.test/x.yaml#/a'}], responses: {}}}}":  "disallowed external reference",
		head + "paths: {/a: {post: {parameters: [{$ref: '/etc/passwd'}], responses: {}}}}":                  "disallowed external reference",
		head + "paths: {/a/{id}: " + op + "}":                                                                               "id",
		head + "servers: [{url: 'https://{x}.test'}]\npaths: {/a: " + op + "}":                                              "server",
		head + "servers: [{url: 'https://u:p@a.test'}]\npaths: {/a: " + op + "}":                                            "is more than scheme, host and path",
		head + "servers: [{url: 'https://a b.test'}]\npaths: {/a: " + op + "}":                                              "is no URL",
		head + "paths: {/a: {post: {parameters: [{in: header, name: Idempotency-Key, schema: {type: 7}}], responses: {}}}}": "openapi: a.yaml: ",
	} {
		_, err := openapi.Parse("a.yaml", []byte(text), openapi.Options{})
		require.ErrorContains(t, err, want, text)
		require.ErrorContains(t, err, "openapi: a.yaml: ", text)
	}
	_, err := openapi.Load(os.DirFS("testdata"), "none.yaml", openapi.Options{})
	require.ErrorContains(t, err, "none.yaml")
}

// FuzzParse: no description brings it down, and what it yields is taken by New.
func FuzzParse(f *testing.F) {
	for _, name := range []string{"payment.yaml", "places.yaml"} {
		src, err := os.ReadFile("testdata/" + name)
		require.NoError(f, err)
		f.Add(src)
	}
	f.Fuzz(func(t *testing.T, src []byte) {
		d, err := openapi.Parse("a.yaml", src, openapi.Options{Keyless: true})
		if err != nil {
			return
		}
		c, err := samekey.New(samekey.Config{Store: memory.New(), Endpoints: d.Policies()})
		require.NoError(t, err)
		require.NoError(t, c.Close())
		file, err := d.PolicyFile()
		require.NoError(t, err)
		_, endpoints, err := samekey.ParsePolicies("p", file)
		require.NoError(t, err)
		require.True(t, slices.IsSortedFunc(d.Endpoints, func(a, b openapi.Endpoint) int { return strings.Compare(a.Pattern, b.Pattern) }))
		require.LessOrEqual(t, len(endpoints), len(d.Endpoints))
	})
}
