package policyschema_test

import (
	"encoding/json"
	"flag"
	"os"
	"reflect"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/samekey/samekey"
	"github.com/samekey/samekey/internal/policyschema"
)

var update = flag.Bool("update", false, "rewrite the published schema")

// TestPublished: the committed file is what the types say.
func TestPublished(t *testing.T) {
	const path = "../../cmd/samekey/tool/policy.schema.json"
	made, err := policyschema.Generate("../..")
	require.NoError(t, err)
	if *update {
		require.NoError(t, os.WriteFile(path, made, 0o644))
	}
	published, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, string(published), string(made), "go test ./internal/policyschema -update")
}

// TestEveryField: whatever a file may say is in the schema, and nothing else; it is explained in the words of the source.
func TestEveryField(t *testing.T) {
	made, err := policyschema.Generate("../..")
	require.NoError(t, err)
	var s struct {
		Defs map[string]struct {
			Properties map[string]struct{ Description string }
			Enum       []string
		} `json:"$defs"`
	}
	require.NoError(t, json.Unmarshal(made, &s))
	for _, typ := range []reflect.Type{reflect.TypeFor[samekey.Policy](), reflect.TypeFor[samekey.Contract](), reflect.TypeFor[samekey.Match](),
		reflect.TypeFor[samekey.Rule](), reflect.TypeFor[samekey.Poll](), reflect.TypeFor[samekey.Backoff]()} {
		known := s.Defs[typ.Name()].Properties
		for f := range typ.Fields() {
			_, ok := known[f.Name]
			require.Equal(t, f.Type.Kind() != reflect.Func, ok, "%s.%s", typ.Name(), f.Name)
			delete(known, f.Name)
		}
		require.Empty(t, known)
	}
	require.Contains(t, string(made), "10 s, from the connection to the last byte of the body; off")
	require.Contains(t, string(made), `"turned away"`)
}
