package samekey_test

import (
	"fmt"
	"net/http"
	"testing"
	"testing/fstest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/samekey/samekey"
)

func TestLoadPolicies(t *testing.T) {
	files := fstest.MapFS{"p.json": {Data: []byte(`{
  "$schema": "https://api.bank.test/policy.schema.json",
  "Default": {"AttemptTimeout": "5s", "MaxRetryAfter": "off", "Command": true},
  "Endpoints": {
    "POST api.bank.test/v1/payments": {"MaxAttempts": 6, "RetryStatus": [408, 429, "5xx"], "KeyFormat": "ULID", "Backoff": {"Min": "1s"}},
    "POST api.old.test/": {"Contract": {"Carrier": "none"}},
    "POST api.new.test/": {"Contract": {"Carrier": "quoted header Idempotency-Key", "Life": "forever", "StoresRejections": true,
      "Rules": [{"If": {"Status": [429, "5xx"], "Header": "X-Reason", "Values": ["busy"]}, "Means": "in progress", "Link": "/links/self"}]}},
    "POST api.mine.test/": {"Contract": "mine", "Persist": "none", "OnExpiry": "new key", "RetryStatus": []},
    "POST api.default.test/": {"Contract": "default", "Budget": 0.2}
  }
}`)}}
	mine := samekey.Contract{Name: "mine", Carrier: samekey.Header("X-Mine")}
	def, endpoints, err := samekey.LoadPolicies(files, "p.json", mine)
	require.NoError(t, err)
	require.Equal(t, samekey.Policy{AttemptTimeout: 5 * time.Second, MaxRetryAfter: -1, Command: samekey.On}, def)
	require.Equal(t, samekey.Policy{MaxAttempts: 6, RetryStatus: []int{408, 429, samekey.Any5xx}, KeyFormat: samekey.ULID, Backoff: samekey.Backoff{Min: time.Second}},
		endpoints["POST api.bank.test/v1/payments"])
	require.Equal(t, samekey.NoKey, endpoints["POST api.old.test/"].Contract.Carrier)
	c := endpoints["POST api.new.test/"].Contract
	require.Equal(t, samekey.Contract{Carrier: samekey.QuotedHeader("Idempotency-Key"), Life: samekey.Forever, StoresRejections: true,
		Rules: []samekey.Rule{{If: samekey.Match{Status: []int{429, samekey.Any5xx}, Header: "X-Reason", Values: []string{"busy"}}, Means: samekey.MeansInProgress, Link: "/links/self"}}}, *c)
	require.Equal(t, mine, *endpoints["POST api.mine.test/"].Contract)
	require.NotNil(t, endpoints["POST api.mine.test/"].RetryStatus, "empty is not inherited")
	_, err = samekey.New(samekey.Config{Store: newStore(t), Default: def, Endpoints: endpoints})
	require.NoError(t, err)
}

func TestLoadPoliciesRefuses(t *testing.T) {
	for text, want := range map[string]string{
		`{"Default": {"MaxAttempt": 3}}`:                            "p.json:1: Default.MaxAttempt: is no name that is known here; is MaxAttempts meant?",
		"{\"Default\": {\n\"Deadline\": 5}}":                        `p.json:2: Default.Deadline: wants a duration such as "5s", or "off"`,
		`{"Default": {"Deadline": "-1s"}}`:                          `p.json:1: Default.Deadline: is negative; "off" says that there is none`,
		`{"Default": {"Deadline": "0s"}}`:                           `is zero; leave it out to inherit, or write "off"`,
		`{"Default": {"Command": "yes"}}`:                           "Default.Command: wants true or false",
		`{"Default": {"Decide": "x"}}`:                              "Default.Decide: is no name that is known here",
		`{"Default": {"KeyFormat": "UUIDv7"}}`:                      `Default.KeyFormat: wants one of ["ULID" "UUIDv4"]`,
		`{"Default": {"Contract": "stripe"}}`:                       "Default.Contract: is no contract that is known here; known are default",
		`{"Default": {"Contract": {"Carrier": "cookie x"}}}`:        "Default.Contract.Carrier: wants",
		`{"Default": {"MaxAttempts": 1.5}}`:                         "Default.MaxAttempts: wants a whole number",
		`{"Default": {"MaxAttempts": [1]}}`:                         "Default.MaxAttempts: is a list, where a whole number is expected",
		`{"Default": {"RetryStatus": 500}}`:                         "Default.RetryStatus: wants a list",
		`{"Default": {"RetryStatus": ["4xx"]}}`:                     "Default.RetryStatus[0]: wants a whole number",
		`{"Default": {"MaxAttempts": "5xx"}}`:                       "Default.MaxAttempts: wants a whole number",
		`{"Default": {"$schema": ""}}`:                              "Default.$schema: is no name that is known here",
		`{"$schema": 1}`:                                            "$schema: wants a word",
		"{\"Default\": {\"MaxAttempts\": 1,\n \"MaxAttempts\": 2}}": "p.json:2: Default.MaxAttempts: is there twice",
		`{"Default": {"MaxAttempts": 1}`:                            "unexpected EOF",
		`{} {}`:                                                     "something follows the end of the document",
		`[]`:                                                        "is a list, where an object is expected",
		"{\"Endpoints\": {\"POST /a\": {\"Budget\": 1,\n\n\"Retention\": true}}}": "p.json:3: Endpoints.POST /a.Retention: wants a duration",
		``: "unexpected EOF",
	} {
		_, _, err := samekey.LoadPolicies(fstest.MapFS{"p.json": {Data: []byte(text)}}, "p.json")
		require.ErrorContains(t, err, want, text)
		require.ErrorIs(t, err, samekey.ErrPolicy)
	}
	_, _, err := samekey.LoadPolicies(fstest.MapFS{}, "none.json")
	require.ErrorContains(t, err, "none.json")
	for _, name := range []string{"../p.json", "/etc/p.json", "./p.json"} {
		_, _, err := samekey.LoadPolicies(fstest.MapFS{}, name)
		require.ErrorContains(t, err, "as in os.DirFS(dir)")
	}
}

// TestWords: what a policy file says and what is printed are the same words.
func TestWords(t *testing.T) {
	require.Equal(t, "key only", samekey.PersistKeyOnly.String())
	require.Equal(t, "new key", samekey.NewKey.String())
	require.Equal(t, "in progress", samekey.MeansInProgress.String())
	require.Equal(t, "Persist(0)", samekey.PersistInherit.String())
	require.Equal(t, "Meaning(99)", samekey.Meaning(99).String())
	require.Equal(t, "UUIDv4 ULID", fmt.Sprint(samekey.UUIDv4, " ", samekey.ULID))
}

func TestPolicyFor(t *testing.T) {
	newClient := func(def samekey.Policy, endpoints map[string]samekey.Policy) *samekey.Client {
		c, err := samekey.New(samekey.Config{Store: newStore(t), Default: def, Endpoints: endpoints})
		require.NoError(t, err)
		return c
	}
	request := func(method, url string) *http.Request {
		req, err := http.NewRequestWithContext(t.Context(), method, url, nil)
		require.NoError(t, err)
		return req
	}
	rules := []samekey.Rule{{If: samekey.Match{Status: []int{409}}, Means: samekey.MeansExists}}
	c := newClient(samekey.Policy{MaxAttempts: 7, Deadline: -1, KeepHeaders: []string{"x-tenant"}}, map[string]samekey.Policy{
		"POST api.bank.test/v1/": {AttemptTimeout: time.Second, Contract: &samekey.Contract{Rules: rules}},
		"POST api.mail.test/":    {Contract: &samekey.Contract{Carrier: samekey.NoKey}, Retention: -1},
	})
	p, pattern := c.PolicyFor(request("POST", "https://api.bank.test/v1/payments"))
	require.Equal(t, "POST api.bank.test/v1/", pattern)
	require.Equal(t, samekey.On, p.Command)
	require.Equal(t, 7, p.MaxAttempts)
	require.Equal(t, time.Second, p.AttemptTimeout)
	require.Negative(t, p.Deadline)
	require.Equal(t, []int{408, samekey.Any5xx}, p.RetryStatus)
	require.Equal(t, []string{"X-Tenant"}, p.KeepHeaders)
	require.Equal(t, "header Idempotency-Key", p.Contract.Carrier.String())
	require.Equal(t, 255, p.Contract.MaxLength)
	p.RetryStatus[0], p.Contract.Rules[0].Means, p.Contract.Poll.Links[0] = 409, 0, ""
	again, _ := c.PolicyFor(request("POST", "https://api.bank.test/v1/payments"))
	require.Equal(t, 408, again.RetryStatus[0], "a copy")
	require.Equal(t, samekey.MeansExists, again.Contract.Rules[0].Means)
	require.Equal(t, "/links/self", again.Contract.Poll.Links[0])

	for _, req := range []*http.Request{request("POST", "https://api.mail.test/send"), request("POST", "https://other.test/"), request("GET", "https://api.bank.test/v1/payments")} {
		p, pattern = c.PolicyFor(req)
		require.Equal(t, req.Host == "api.mail.test", pattern != "")
		same, _ := newClient(p, nil).PolicyFor(req)
		require.Equal(t, p, same, "it says all")
	}
	require.Equal(t, samekey.Off, p.Command, "a GET")
	p, _ = c.PolicyFor(request("POST", "https://api.mail.test/send"))
	require.Equal(t, samekey.Off, p.RetryTransport)
	require.Equal(t, []int{}, p.RetryStatus)
	require.Negative(t, p.Retention)
}
