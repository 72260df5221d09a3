package journal

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/samekey/samekey/persist"
)

// What a compaction has in hand is due all the same: a recovery that began beside one would otherwise leave it out.
func TestClaimDueBesideACompaction(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "j")
	j, err := Open(t.Context(), dir, small)
	require.NoError(t, err)
	defer func() { require.NoError(t, j.Close()); checkDir(t, dir) }()
	const pending = 300
	fill := func(round int) { // what is settled at once makes room that a compaction gives back
		for i := range 100 {
			e, err := j.Begin(t.Context(), persist.Record{Ref: persist.Ref{ID: fmt.Sprintf("gone-%d-%d", round, i)}, Method: "POST", Body: make([]byte, 500)})
			require.NoError(t, err)
			require.NoError(t, j.Settle(t.Context(), e.Claim, persist.Answer{State: persist.Succeeded, Lazy: true}))
		}
	}
	for i := range pending {
		e, err := j.Begin(t.Context(), persist.Record{Ref: persist.Ref{ID: fmt.Sprint(i)}, Created: time.Now(), Method: "POST", Body: make([]byte, 500)})
		require.NoError(t, err)
		require.NoError(t, j.Release(t.Context(), e.Claim))
	}
	for round := range 20 {
		fill(round)
		done := make(chan error, 1)
		go func() { done <- j.Compact(context.Background()) }()
		for range 5 {
			es, err := j.ClaimDue(t.Context(), 2*pending)
			require.NoError(t, err)
			require.Equal(t, pending, len(es))
			for _, e := range es {
				require.NoError(t, j.Release(t.Context(), e.Claim))
			}
		}
		require.NoError(t, <-done)
	}
}
