package mockserver

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
)

// reference reads a member with encoding/json; ok is false where the two may differ: no JSON object, or a name twice.
func reference(body []byte, name string) (string, bool) {
	d := json.NewDecoder(bytes.NewReader(body))
	if t, err := d.Token(); err != nil || t != json.Delim('{') || !json.Valid(body) {
		return "", false
	}
	value, seen := "", 0
	for d.More() {
		key, _ := d.Token()
		var raw json.RawMessage
		_ = d.Decode(&raw)
		if key != name {
			continue
		}
		seen++
		var s string
		switch {
		case json.Unmarshal(raw, &s) == nil:
			value = s
		case raw[0] != '{' && raw[0] != '[':
			value = string(raw)
		}
	}
	return value, seen < 2
}

func TestMemberByPointer(t *testing.T) {
	body := []byte(`{"a/b":{"~":[1],"c":{"id":"x"}},"n":{"id":12}}`)
	for pointer, want := range map[string]string{"/n/id": "12", "/a~1b/c/id": "x", "/a~1b/~0": "", "/n": "", "/n/x": "", "n": ""} {
		assert.Equal(t, want, member(body, pointer), pointer)
	}
}

func TestCanonical(t *testing.T) {
	for body, want := range map[string]string{
		`{"b":1,"a":{"d":[1, 2],"c":"\u0041"}}`: `{"a":{"c":"A","d":[1,2]},"b":1}`,
		`{"n":1.0}`:                             `{"n":1.0}`,
		`not json`:                              `not json`,
		`{"a":1} {}`:                            `{"a":1} {}`,
		``:                                      ``,
	} {
		assert.Equal(t, want, string(canonical([]byte(body))))
	}
}
