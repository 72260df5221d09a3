package samekey_test

import (
	"testing"
	"testing/fstest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/samekey/samekey"
)

func TestLoadPolicies(t *testing.T) {
	files := fstest.MapFS{"p.json": {Data: []byte(`{
  "Default": {"AttemptTimeout": "5s", "MaxRetryAfter": "off", "Command": true},
  "Endpoints": {
    "POST api.bank.test/v1/payments": {"MaxAttempts": 6, "RetryStatus": [408, 429, "5xx"], "KeyFormat": "ULID", "Backoff": {"Min": "1s"}},
    "POST api.old.test/": {"Contract": {"Carrier": "none"}},
    "POST api.new.test/": {"Contract": {"Carrier": "quoted header Idempotency-Key", "Life": "forever", "StoresRejections": true,
      "Rules": [{"If": {"Status": [429], "Header": "X-Reason", "Values": ["busy"]}, "Means": "in progress", "Link": "/links/self"}]}},
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
		Rules: []samekey.Rule{{If: samekey.Match{Status: []int{429}, Header: "X-Reason", Values: []string{"busy"}}, Means: samekey.MeansInProgress, Link: "/links/self"}}}, *c)
	require.Equal(t, mine, *endpoints["POST api.mine.test/"].Contract)
	require.NotNil(t, endpoints["POST api.mine.test/"].RetryStatus, "empty is not inherited")
	_, err = samekey.New(samekey.Config{Store: newStore(t), Default: def, Endpoints: endpoints})
	require.NoError(t, err)
}

func TestLoadPoliciesRefuses(t *testing.T) {
	for text, want := range map[string]string{
		`{"Default": {"MaxAttempt": 3}}`:                                          "p.json:1: Default.MaxAttempt: is no name that is known here; is MaxAttempts meant?",
		"{\"Default\": {\n\"Deadline\": 5}}":                                      `p.json:2: Default.Deadline: wants a duration such as "5s", or "off"`,
		`{"Default": {"Deadline": "-1s"}}`:                                        `p.json:1: Default.Deadline: is negative; "off" says that there is none`,
		`{"Default": {"Deadline": "0s"}}`:                                         `is zero; leave it out to inherit, or write "off"`,
		`{"Default": {"Command": "yes"}}`:                                         "Default.Command: wants true or false",
		`{"Default": {"Decide": "x"}}`:                                            "Default.Decide: is no name that is known here",
		`{"Default": {"KeyFormat": "UUIDv7"}}`:                                    `Default.KeyFormat: wants one of ["ULID" "UUIDv4"]`,
		`{"Default": {"Contract": "stripe"}}`:                                     "Default.Contract: is no contract that is known here; known are default",
		`{"Default": {"Contract": {"Carrier": "cookie x"}}}`:                      "Default.Contract.Carrier: wants",
		`{"Default": {"MaxAttempts": 1.5}}`:                                       "Default.MaxAttempts: wants a whole number",
		`{"Default": {"MaxAttempts": [1]}}`:                                       "Default.MaxAttempts: is a list, where a whole number is expected",
		`{"Default": {"RetryStatus": 500}}`:                                       "Default.RetryStatus: wants a list",
		`{"Default": {"RetryStatus": ["4xx"]}}`:                                   "Default.RetryStatus[0]: wants a whole number",
		"{\"Default\": {\"MaxAttempts\": 1,\n \"MaxAttempts\": 2}}":               "p.json:2: Default.MaxAttempts: is there twice",
		`{"Default": {"MaxAttempts": 1}`:                                          "unexpected EOF",
		`{} {}`:                                                                   "something follows the end of the document",
		`[]`:                                                                      "is a list, where an object is expected",
		"{\"Endpoints\": {\"POST /a\": {\"Budget\": 1,\n\n\"Retention\": true}}}": "p.json:3: Endpoints.POST /a.Retention: wants a duration",
		``: "unexpected EOF",
	} {
		_, _, err := samekey.LoadPolicies(fstest.MapFS{"p.json": {Data: []byte(text)}}, "p.json")
		require.ErrorContains(t, err, want, text)
		require.ErrorIs(t, err, samekey.ErrPolicy)
	}
	_, _, err := samekey.LoadPolicies(fstest.MapFS{}, "none.json")
	require.ErrorContains(t, err, "none.json")
}
