package journal

import (
	"context"
	"fmt"
	"os"
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

// The journal's own directory entry is made durable before anything is begun, also where an earlier process made the
// directory and died before it had.
func TestCase_B28_ParentOfTheDirectoryIsSynced(t *testing.T) {
	var synced []string
	parentSynced = func(dir string) { synced = append(synced, dir) }
	defer func() { parentSynced = nil }()
	parent := t.TempDir()
	for _, made := range []bool{false, true} {
		dir := filepath.Join(parent, fmt.Sprintf("j-%v", made))
		if made {
			require.NoError(t, os.Mkdir(dir, 0o700))
		}
		synced = nil
		j, err := Open(t.Context(), dir, small)
		require.NoError(t, err)
		require.Equal(t, []string{parent}, synced)
		_, err = j.Begin(t.Context(), persist.Record{Ref: persist.Ref{ID: "a"}, Method: "POST"})
		require.NoError(t, err)
		require.NoError(t, j.Close())
		checkDir(t, dir)
	}
}
