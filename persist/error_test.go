package persist_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/samekey/samekey/persist"
)

// TestErrorShowsNoWholeKey: an operation without a name goes by its key, which texts show in part; names are shown.
func TestErrorShowsNoWholeKey(t *testing.T) {
	for id, shown := range map[string]string{
		"948cc8c9-3f5c-4d0a-9a52-1f0c7e5a3ee6":  "948cc8c9…3ee6",
		"948CC8C9-3F5C-4D0A-9A52-1F0C7E5A3EE6":  "948CC8C9…3EE6",
		"01ARZ3NDEKTSV4RRFFQ69G5FAV":            "01ARZ3ND…5FAV",
		"order-4711/charge":                     "order-4711/charge",
		"948cc8c9-3f5c-4d0a-9a52-1f0c7e5a3ee6x": "948cc8c9-3f5c-4d0a-9a52-1f0c7e5a3ee6x",
		"948cc8c9x3f5c-4d0a-9a52-1f0c7e5a3ee6":  "948cc8c9x3f5c-4d0a-9a52-1f0c7e5a3ee6",
		"INVOICE-OF-THE-YEAR-2026-1":            "INVOICE-OF-THE-YEAR-2026-1",
		"":                                      "",
	} {
		err := &persist.Error{Store: "journal", Method: "Settle", Ref: persist.Ref{ID: id}, Err: errors.New("disk trouble")}
		want := "journal: Settle " + shown + ": disk trouble"
		if id == "" {
			want = "journal: Settle: disk trouble"
		}
		require.Equal(t, want, err.Error())
		require.Equal(t, id, err.Ref.ID)
	}
}
