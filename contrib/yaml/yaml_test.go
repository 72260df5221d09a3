package yaml_test

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/samekey/samekey"
	"github.com/samekey/samekey/contrib/yaml"
	"github.com/samekey/samekey/persist/memory"
)

var mine = samekey.Contract{Name: "mine", Carrier: samekey.Header("X-Mine")}

// TestSameAsJSON: one document, written in both ways, gives the same policies.
func TestSameAsJSON(t *testing.T) {
	files := os.DirFS("testdata")
	def, endpoints, err := yaml.LoadPolicies(files, "policies.yaml", mine)
	require.NoError(t, err)
	wantDef, want, err := samekey.LoadPolicies(files, "policies.json", mine)
	require.NoError(t, err)
	require.Equal(t, wantDef, def)
	require.Equal(t, want, endpoints)
	require.Equal(t, 6, endpoints["POST api.bank.test/v1/orders/{id}/cancel"].MaxAttempts, "by its alias")
	require.Equal(t, samekey.Policy{AttemptTimeout: 5 * time.Second, MaxRetryAfter: -1, Command: samekey.On}, def)
	c, err := samekey.New(samekey.Config{Store: memory.New(), Default: def, Endpoints: endpoints})
	require.NoError(t, err)
	require.NoError(t, c.Close())

	// JSON is YAML too.
	def, endpoints, err = yaml.LoadPolicies(files, "policies.json", mine)
	require.NoError(t, err)
	require.Equal(t, wantDef, def)
	require.Equal(t, want, endpoints)
}

// TestLines: what JSON says of YAML's lines holds for the YAML file.
func TestLines(t *testing.T) {
	src, err := os.ReadFile("testdata/policies.yaml")
	require.NoError(t, err)
	doc, err := yaml.ToJSON("p", src)
	require.NoError(t, err)
	in, out := strings.Split(string(src), "\n"), strings.Split(string(doc), "\n")
	for _, word := range []string{"AttemptTimeout", "POST api.bank.test/v1/orders", "Interval", "KeepHeaders", "X-Tenant", "422", "36h"} {
		find := func(lines []string) int {
			for i, l := range lines {
				if strings.Contains(l, word) {
					return i
				}
			}
			return -1
		}
		require.Equal(t, find(in), find(out), word)
	}
}

func TestRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"Default:\n  MaxAttempt: 3\n":                                    "p.yaml:2: Default.MaxAttempt: is no name that is known here; is MaxAttempts meant?",
		"# a comment\n\nDefault:\n  Deadline:\n    5\n":                  `p.yaml:5: Default.Deadline: wants a duration such as "5s", or "off"`,
		"Default:\n  Command: yes\n":                                     "p.yaml:2: Default.Command: wants true or false",
		"Default:\n  Command: !!bool yes\n":                              "p.yaml:2: Default.Command: wants true or false",
		"Default:\n  MaxAttempts: 0x10\n":                                "p.yaml:2: Default.MaxAttempts: wants a whole number",
		"Default:\n  MaxAttempts: 0777\n":                                "wants a whole number",
		"Default:\n  Budget: .inf\n":                                     "Default.Budget: wants a number",
		"Default:\n  MaxAttempts: !!int \"{\\n}\"\n  Deadline: 5\n":      "p.yaml:3: Default.Deadline",
		"Default:\n  MaxAttempts:\n    a: 1\n":                           "p.yaml:2: Default.MaxAttempts: is an object, where a whole number is expected",
		"Default:\n  MaxAttempts: 1\n  Deadline: 5s\n  MaxAttempts: 2\n": "p.yaml:4: Default.MaxAttempts: is there twice",
		"Default:\r\n  MaxAttempts: 1\r\n  Persist: some\r\n":            "p.yaml:3: Default.Persist: wants one of",
		"Default:\n":                            "p.yaml:1: Default: wants an object",
		"- a\n":                                 "p.yaml:1: is a list, where an object is expected",
		"":                                      "p.yaml:1: is empty",
		"# nothing\n":                           "p.yaml:1: is empty",
		"Default: {}\n---\nDefault: {}\n":       "a second document begins",
		"Default: {}\n...\nx\n":                 "p.yaml:3: ",
		"Default:\n  - a\n b: c\n":              "p.yaml:3: ",
		"Default: {\nMaxAttempts: 1\n":          "p.yaml:",
		"Default: *none\n":                      "p.yaml:1: ",
		"Default: \x00\n":                       "p.yaml:1: ",
		"Default: !mine {}\n":                   "p.yaml:1: has the tag !mine, which is not read here",
		"Default:\n  Deadline: !!binary aGk=\n": "p.yaml:2: has the tag !!binary",
		"Default: &d\n  Deadline: 5s\nEndpoints:\n  POST /a:\n    <<: *d\n":        "p.yaml:5: merge keys (<<) are not read",
		"Default:\n  ? [a, b]\n  : 1\n":                                            "p.yaml:2: a name is one word",
		"Default: &d\n  Backoff: *d\n":                                             "nested deeper than 32 levels",
		"Endpoints:\n  POST /a: &a\n    MaxAttempts: x\n  POST /b: *a\n":           "p.yaml:3: Endpoints.POST /a.MaxAttempts: wants a whole number\nsamekey: p.yaml:4: Endpoints.POST /b.MaxAttempts",
		"Default:\n  Contract: minne\n":                                            "p.yaml:2: Default.Contract: is no contract that is known here; is mine meant?",
		"Default: " + strings.Repeat("[", 40) + strings.Repeat("]", 40):            "nested deeper than 32 levels",
		"Default:\n  KeepHeaders: [a\n    , b]\n  Decide: x\n  # more\n  Await: 1": "p.yaml:4: Default.Decide: is no name that is known here",
	} {
		_, _, err := yaml.LoadPolicies(fstest.MapFS{"p.yaml": {Data: []byte(text)}}, "p.yaml", mine)
		require.ErrorContains(t, err, want, text)
		require.ErrorIs(t, err, samekey.ErrPolicy)
		_, ok := errors.AsType[*samekey.PolicyFileError](err)
		require.True(t, ok)
	}
	_, _, err := yaml.LoadPolicies(fstest.MapFS{}, "none.yaml")
	require.ErrorContains(t, err, "none.yaml")
}

// TestBomb: aliases of aliases end soon.
func TestBomb(t *testing.T) {
	var b strings.Builder
	b.WriteString("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n")
	for i := range 20 {
		fmt.Fprintf(&b, "a%d: &a%d [%s*a%d]\n", i+1, i+1, strings.Repeat(fmt.Sprintf("*a%d, ", i), 9), i)
	}
	start := time.Now()
	_, err := yaml.ToJSON("p.yaml", []byte(b.String()))
	require.ErrorContains(t, err, "stands for more than 100000 values")
	require.Less(t, time.Since(start), 5*time.Second)
}

func FuzzToJSON(f *testing.F) {
	for _, name := range []string{"policies.yaml", "policies.json"} {
		src, err := os.ReadFile("testdata/" + name)
		require.NoError(f, err)
		f.Add(src)
	}
	f.Add([]byte("Default: &d\n  Backoff: *d\n"))
	f.Add([]byte("a: !!int '1\n\n 2'\n? *x\n: {<<: y}\n--- >\n"))
	f.Fuzz(func(t *testing.T, src []byte) {
		doc, err := yaml.ToJSON("p", src)
		if err != nil {
			e, ok := errors.AsType[*samekey.PolicyFileError](err)
			require.True(t, ok)
			require.Positive(t, e.Line)
			return
		}
		def, endpoints, err := samekey.ParsePolicies("p", doc)
		if err != nil {
			require.ErrorIs(t, err, samekey.ErrPolicy)
			require.NotContains(t, err.Error(), "invalid character", "what is written is JSON")
			require.NotContains(t, err.Error(), "EOF")
			return
		}
		// Where the source is JSON already, both readers agree.
		if d, e, err := samekey.ParsePolicies("p", src); err == nil {
			require.Equal(t, d, def)
			require.Equal(t, e, endpoints)
		}
	})
}
