package tool

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/samekey/samekey"
	"github.com/samekey/samekey/mockserver"
	"github.com/samekey/samekey/persist"
)

const bankPolicies = `{
  "$schema": "policy.schema.json",
  "Default": {"AttemptTimeout": "5s", "Deadline": "2m", "Budget": 0.2},
  "Endpoints": {
    "POST api.bank.test/v1/payments": {"MaxAttempts": 6, "RetryStatus": [408, 429, "5xx"], "KeyFormat": "ULID"},
    "POST api.bank.test/": {"Contract": {"Name": "bank", "Carrier": "quoted header Idempotency-Key", "Life": "168h", "StoresRejections": true,
      "Rules": [{"If": {"Status": [409]}, "Means": "exists"}]}, "Backoff": {"Min": "1s"}, "MaxRetryAfter": "off"},
    "POST api.mail.test/": {"Contract": {"Carrier": "none"}, "SecretQuery": ["sig"]},
    "PUT api.bank.test/v1/orders/{id}": {"Command": true, "Contract": {"Carrier": "natural"}},
    "GET api.bank.test/": {"MaxAttempts": 3},
    "POST api.pay.test/v1/": {"Contract": "stripe-v1"}
  }
}`

func policyFile(t *testing.T, text string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "policies.json")
	require.NoError(t, os.WriteFile(name, []byte(text), 0o600))
	return name
}

func TestPolicyGolden(t *testing.T) {
	file := policyFile(t, bankPolicies)
	for name, args := range map[string][]string{
		"policy.txt":         {"policy", file},
		"policy.json":        {"policy", file, "-json"},
		"policy-match.txt":   {"policy", file, "-match", "POST https://user:secret@api.bank.test/v1/payments?x=1"},
		"policy-match.json":  {"policy", file, "-json", "-match", "POST https://api.bank.test:8443/v1/orders"},
		"policy-none.txt":    {"policy", "-match", "POST https://api.other.test/", file},
		"policy-read.txt":    {"policy", file, "-match", "GET https://api.bank.test/v1/orders/7"},
		"policy-passed.txt":  {"policy", file, "-match", "GET https://api.other.test/v1/orders/7"},
		"policy-keyless.txt": {"policy", file, "-match", "POST https://api.mail.test/send"},
	} {
		t.Run(name, func(t *testing.T) {
			r := inside(t, "", args...)
			require.Zero(t, r.code, r.err)
			require.Empty(t, r.err)
			require.NotContains(t, r.out, "secret")
			golden(t, name, strings.ReplaceAll(r.out, file, "policies.json"))
		})
	}
}

// TestPolicySchema: what is printed is JSON; that it is what the types say is tested where it is made.
func TestPolicySchema(t *testing.T) {
	r := run(t, "policy", "-schema")
	require.Zero(t, r.code, r.err)
	var s struct {
		Schema string `json:"$schema"`
	}
	require.NoError(t, json.Unmarshal([]byte(r.out), &s))
	require.Equal(t, "https://json-schema.org/draft/2020-12/schema", s.Schema)
}

func TestPolicyRefuses(t *testing.T) {
	good := policyFile(t, bankPolicies)
	for _, c := range []struct {
		code int
		text string
		args string
		want []string
	}{
		{1, "{\"Default\": {\n\"MaxAttempt\": 1,\n\"Deadline\": 5}}", "", []string{"policies.json:2: Default.MaxAttempt", "is MaxAttempts meant?", "policies.json:3: Default.Deadline"}},
		{1, `{"Default": {"RetryStatus": [409], "AttemptTimeout": "2m"}}`, "", []string{"policies.json: default policy: AttemptTimeout: 2m0s is above", "RetryStatus: 409 is a conflict"}},
		{1, `{"Endpoints": {"post /x": {}, "POST a.test/{x}/b": {}, "POST a.test/b/{x}": {}}}`, "", []string{"not in upper case", "neither is narrower"}},
		{1, `{`, "", []string{"unexpected EOF"}},
		{1, `{"Endpoints": {"PUT a.test/": {"MaxAttempts": 2}}}`, "", []string{`endpoint "PUT a.test/": Command`, "nothing else here has an effect"}},
		{2, "", "policy", []string{"FILE is missing"}},
		{2, "", "policy none.json", []string{"none.json"}},
		{2, "", "policy a b", []string{`unexpected argument "b"`}},
		{2, "", "policy -schema a", []string{"-schema stands alone"}},
		{2, "", "policy GOOD -match POST", []string{"wants a method and a URL"}},
		{2, "", "policy GOOD -match POST|/v1/payments", []string{"names no host"}},
		{2, "", "policy GOOD -match PO(ST|https://a.test/", []string{"invalid method"}},
		{2, "", "policy GOOD -match POST|:", []string{"missing protocol scheme"}},
	} {
		args := strings.Fields(strings.ReplaceAll(c.args, "GOOD", good))
		for i, a := range args {
			args[i] = strings.ReplaceAll(a, "|", " ")
		}
		if c.args == "" {
			args = []string{"policy", policyFile(t, c.text)}
		}
		r := run(t, args...)
		assert.Equal(t, c.code, r.code, "%s%s", c.args, c.text)
		for _, want := range c.want {
			assert.Contains(t, r.err, want)
		}
		assert.Empty(t, r.out)
	}
	yaml := filepath.Join(t.TempDir(), "p.yaml")
	require.NoError(t, os.WriteFile(yaml, []byte("Default: {}\n"), 0o600))
	r := run(t, "policy", yaml)
	require.Equal(t, 2, r.code)
	require.Contains(t, r.err, "contrib/yaml")
}

// TestPolicyReads: what -match says of a read is what a client does, by what its server found.
func TestPolicyReads(t *testing.T) {
	var found []string
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		found = append(found, r.Header.Get("Idempotency-Key"))
		w.WriteHeader(http.StatusServiceUnavailable)
	}))
	defer srv.Close()
	file := policyFile(t, `{"Default": {"MaxAttempts": 3, "Backoff": {"Min": "off"}}, "Endpoints": {
		"GET /v1/orders/": {"MaxAttempts": 2}, "GET /v1/once/": {"MaxAttempts": 1}, "GET /v1/none/": {"RetryStatus": [], "RetryTransport": false},
		"PUT /v1/orders/": {"Command": false, "MaxAttempts": 2}, "DELETE /v1/orders/": {"Command": false}, "POST /v1/off/": {"Command": false, "KeyFormat": "ULID"}}}`)
	data, err := os.ReadFile(file)
	require.NoError(t, err)
	def, endpoints, err := samekey.ParsePolicies(file, data)
	require.NoError(t, err)
	fill(t, newDir(t), samekey.Config{Default: def, Endpoints: endpoints}, func(c *samekey.Client) {
		for request, want := range map[string]struct {
			sent int
			text string
			rows int
		}{
			"GET /v1/orders/7": {2, "a read: retried by this policy (unless it has a body), the last answer returned", 9},
			"GET /v1/once/7":   {1, "a read: tried once, since this policy retries none", 9},
			"GET /v1/none/7":   {1, "a read: tried once, since this policy retries none", 9},
			"GET /v2/orders/7": {1, "plain HTTP: passed through, tried once; no key", 1},
			"PUT /v1/orders/7": {1, "plain HTTP: passed through, tried once; no key", 1},
			"POST /v1/off/7":   {1, "plain HTTP: passed through, tried once; no key", 1},
		} {
			method, path, _ := strings.Cut(request, " ")
			found = nil
			req, err := http.NewRequestWithContext(t.Context(), method, srv.URL+path, nil)
			require.NoError(t, err)
			resp, err := c.Do(req)
			require.NoError(t, err)
			require.NoError(t, resp.Body.Close())
			require.Equal(t, make([]string, want.sent), found, request)

			r := run(t, "policy", file, "-json", "-match", method+" "+srv.URL+path)
			require.Zero(t, r.code, r.err)
			var m matched
			require.NoError(t, json.Unmarshal([]byte(r.out), &m))
			require.Contains(t, m.Treated, want.text, request)
			require.False(t, m.Command)
			require.Len(t, m.Values, want.rows)
		}
	})
	r := run(t, "policy", file)
	require.Zero(t, r.code, r.err)
	require.Contains(t, r.out, "\nPUT /v1/orders/\n  note: Command is not on for PUT: such calls pass through, and nothing else here has an effect\n")
	require.Contains(t, r.out, "\nPOST /v1/off/\n  note: Command is not on for POST: such calls pass through")
	require.Equal(t, 2, strings.Count(r.out, "note:"), "nothing else is said of DELETE, and reads are retried")
}

// TestResumePolicy: with the program's own contract, an answer counts for what it means there.
func TestResumePolicy(t *testing.T) {
	srv := newServer(t)
	stores := policyFile(t, `{"Default": {"Contract": {"Life": "24h", "StoresRejections": true}, "MaxAttempts": 1}}`)
	dir := lost(t, srv, "order-1")
	srv.Fault(mockserver.Fault{Do: mockserver.Status(422, false), Times: 2})
	r := run(t, "resume", dir, "order-1")
	require.Equal(t, 1, r.code, "by the record alone it settles nothing")
	r = run(t, "resume", dir, "order-1", "-policy", stores, "-timeout", "7s")
	require.Zero(t, r.code, r.err)
	require.Regexp(t, `^rejected +422 `, r.out)

	sent := len(srv.Requests())
	for text, want := range map[string]string{
		`{"Default": {"Contract": {"Carrier": "header X-Idempotency-Key"}}}`:           "does not bear its key as",
		`{"Default": {"Contract": {"Carrier": "quoted header Idempotency-Key"}}}`:      "(quoted header Idempotency-Key)",
		`{"Endpoints": {"POST /v1/payments": {"Contract": {"Carrier": "query key"}}}}`: "says for POST /v1/payments (query key)",
		`{"Default": {"Contract": {"Carrier": "body /requestId"}}}`:                    "(body /requestId)",
		`{"Default": {"Contract": {"Carrier": "form key"}}}`:                           "(form key)",
		`{"Default": {"Contract": {"Carrier": "repeatability"}}}`:                      "(repeatability)",
	} {
		dir := lost(t, srv, "order-2")
		sent += 2
		r := run(t, "resume", dir, "order-2", "-policy", policyFile(t, text))
		assert.Equal(t, 1, r.code, text)
		assert.Contains(t, r.err, want)
		r = run(t, "rekey", dir, "order-2", "-yes", "-policy", policyFile(t, text))
		assert.Equal(t, 1, r.code, text)
		assert.Contains(t, r.err, want)
	}
	require.Len(t, srv.Requests(), sent, "the file of another program sends nothing")
	r = run(t, "resume", dir, "order-1", "-policy", policyFile(t, `{"Default": {"Deadlin": "1s"}}`))
	require.Equal(t, 2, r.code)
	require.Contains(t, r.err, "is Deadline meant?")
	require.Equal(t, 2, run(t, "resume", dir, "order-1", "-policy", "none.json").code)
}

// TestBodyKeyPolicy: a key in the body is found by the policy file only.
func TestBodyKeyPolicy(t *testing.T) {
	srv := newServer(t)
	dir := newDir(t)
	record := persist.Record{
		Ref: persist.Ref{ID: "order-1"}, Key: aKey, Target: srv.URL + "/v1/payments", Created: time.Now(), KeyLife: time.Hour,
		Header: http.Header{"Content-Type": {"application/json"}}, Body: []byte(`{"requestId":"` + aKey + `","amount":1,"currency":"EUR"}`),
		Progress: persist.Progress{Attempts: 1, FirstSent: time.Now()},
	}
	begin(t, dir, record)
	r := run(t, "resume", dir, "order-1")
	require.Equal(t, 1, r.code)
	require.Contains(t, r.err, "without -policy only the program itself can tell")
	file := policyFile(t, `{"Default": {"Contract": {"Carrier": "body /requestId", "Life": "1h"}, "KeyFormat": "ULID"}}`)
	require.Equal(t, 1, run(t, "rekey", dir, "order-1", "-yes").code)
	require.Equal(t, 2, run(t, "rekey", dir, "order-1", "-yes", "-policy", file, "-format", "uuid").code)
	r = run(t, "rekey", dir, "order-1", "-yes", "-policy", file)
	require.Zero(t, r.code, r.err)
	rec := recordOf(t, dir)
	require.Len(t, rec.Key, 26)
	require.Contains(t, string(rec.Body), `"requestId":"`+rec.Key+`"`)
	r = run(t, "resume", dir, "order-1", "-policy", file)
	require.NotContains(t, r.err, "only the program", "it is sent: what the server makes of it is another matter")
	require.Len(t, srv.Requests(), 1)
}

func recordOf(t *testing.T, dir string) persist.Record {
	t.Helper()
	return record(t, dir, "", "order-1")
}

// TestValues: every field of a policy is told of, or can only be set in code.
func TestValues(t *testing.T) {
	f := &policies{}
	list, err := f.values("", samekey.Policy{})
	require.NoError(t, err)
	var names []string
	for _, v := range list {
		names = append(names, v.Field)
		require.Equal(t, fromBuiltIn, v.From)
	}
	for _, want := range []string{"Command", "Contract.Carrier", "Backoff.Min", "RetryStatus", "KeepRejections"} {
		require.Contains(t, names, want)
	}
	require.NotContains(t, names, "Decide")
	require.Equal(t, "1h30m 1m30s 36h 1m 200ms off", strings.Join([]string{duration(90 * time.Minute), duration(90 * time.Second), duration(36 * time.Hour),
		duration(time.Minute), duration(200 * time.Millisecond), duration(-1)}, " "))
}
