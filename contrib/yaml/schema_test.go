package yaml_test

import (
	"bytes"
	"os"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/require"

	"github.com/samekey/samekey"
	"github.com/samekey/samekey/contrib/yaml"
)

func published(t *testing.T) func(doc []byte) error {
	t.Helper()
	src, err := os.Open("../../cmd/samekey/tool/policy.schema.json")
	require.NoError(t, err)
	defer func() { require.NoError(t, src.Close()) }()
	doc, err := jsonschema.UnmarshalJSON(src)
	require.NoError(t, err)
	c := jsonschema.NewCompiler()
	require.NoError(t, c.AddResource("policy.schema.json", doc))
	schema, err := c.Compile("policy.schema.json")
	require.NoError(t, err)
	return func(doc []byte) error {
		v, err := jsonschema.UnmarshalJSON(bytes.NewReader(doc))
		if err != nil {
			return err
		}
		return schema.Validate(v)
	}
}

// TestSchema: the published schema takes what the reader takes, and refuses what it refuses.
func TestSchema(t *testing.T) {
	valid := published(t)
	for _, name := range []string{"policies.yaml", "policies.json"} {
		src, err := os.ReadFile("testdata/" + name)
		require.NoError(t, err)
		doc, err := yaml.ToJSON(name, src)
		require.NoError(t, err)
		require.NoError(t, valid(doc), name)
	}
	values := []string{
		`true`, `1`, `-1`, `0`, `1.5`, `0.2`, `"5s"`, `"1m30s"`, `"1.5h"`, `".5s"`, `"5"`, `"5 s"`, `"-5s"`, `"0s"`, `"0h0m"`, `"off"`, `"forever"`, `"5xx"`, `"ULID"`,
		`"UUIDv4"`, `"full"`, `"key only"`, `"new key"`, `"surface"`, `"in progress"`, `"none"`, `"natural"`, `"header X-Key"`, `"quoted header X-Key"`, `"cookie x"`,
		`"body /a"`, `"default"`, `null`, `[]`, `[408]`, `["5xx"]`, `["a"]`, `[1.5]`, `[null]`, `{}`, `{"Min": "1s"}`, `{"min": "1s"}`, `{"Carrier": "query key"}`,
		`{"Carrier": {}}`, `{"Rules": [{"If": {"Status": [409]}, "Means": "exists"}]}`, `{"Rules": [{"If": {"Status": ["5xx"]}}]}`, `{"Poll": {"Interval": 1}}`,
		`{"Poll": {"Links": ["/a"], "Resend": true, "Failed": {"Pointer": "/s"}}}`, `{"StoresRejections": "yes"}`, `{"MaxLength": 36}`,
		`{"Life": "24h"}`, `{"Life": "forever"}`, `{"Life": "off"}`, `{"Life": "0s"}`, `{"Life": 1}`,
	}
	fields := []string{
		"Command", "RequireName", "Contract", "KeyFormat", "MaxAttempts", "AttemptTimeout", "Backoff", "RetryStatus", "Budget", "Persist", "OnExpiry", "KeepHeaders",
		"MaxBody", "Retention", "Decide", "Resolve", "MaxAttempt", "maxAttempts", "",
	}
	agree := 0
	for _, field := range fields {
		for _, value := range values {
			for _, doc := range []string{
				`{"Default": {"` + field + `": ` + value + `}}`,
				`{"Endpoints": {"POST /a": {"` + field + `": ` + value + `}}}`,
			} {
				if field == "Contract" && value[0] == '"' && value != `"default"` {
					continue // names are the program's
				}
				_, _, err := samekey.ParsePolicies("p.json", []byte(doc))
				serr := valid([]byte(doc))
				require.Equal(t, err == nil, serr == nil, "%s\nreader: %v\nschema: %v", doc, err, serr)
				if err == nil {
					agree++
				}
			}
		}
	}
	require.Greater(t, agree, 80, "both say yes often enough")
	for _, doc := range []string{`{"Defaults": {}}`, `[]`, `{"Default": null}`, `{"Endpoints": []}`, `{"$schema": 1}`, `{"Default": {"$schema": ""}}`} {
		_, _, err := samekey.ParsePolicies("p.json", []byte(doc))
		require.Error(t, err, doc)
		require.Error(t, valid([]byte(doc)), doc)
	}
}
