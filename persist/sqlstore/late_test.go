package sqlstore

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/samekey/samekey/persist"
)

// statement tells the nth statement that begins so from others on the wire.
func statement(begins string, fates ...sending) func([]byte) sending {
	return func(sent []byte) sending {
		if len(fates) == 0 || !bytes.Contains(sent, []byte(begins)) {
			return sending{}
		}
		fate := fates[0]
		fates = fates[1:]
		return fate
	}
}

// lateStores are a store whose statements can be late, since their texts are on the wire, and a watcher.
func lateStores(t *testing.T, d Dialect, change func(*Options)) (s, watcher *own) {
	p := fresh(t, d).migrated(t)
	watcher = p.opened(t, nil)
	if d == PostgreSQL {
		p.where += "&default_query_exec_mode=exec"
	}
	return p.opened(t, change), watcher
}

func stays(t *testing.T, s *own, ref persist.Ref) {
	t.Helper()
	for range 20 {
		_, err := s.Get(t.Context(), ref)
		require.ErrorIs(t, err, persist.ErrNotFound)
		time.Sleep(10 * time.Millisecond)
	}
}

// TestLateInsert: a Begin that fails, and is sure of it, does not come back with an INSERT that arrives late.
func TestLateInsert(t *testing.T) {
	const insert = "INSERT INTO"
	networked(t, func(t *testing.T, d Dialect) {
		t.Run("the only one", func(t *testing.T) {
			t.Parallel()
			s, watcher := lateStores(t, d, func(o *Options) { o.RetryFor = -1 })
			s.wire.decide(statement(insert, sending{late: true}))
			_, err := s.Begin(t.Context(), op("a"))
			require.Error(t, err)
			require.False(t, maybe(t, err), "it was prevented")
			s.wire.deliver(t)
			stays(t, watcher, op("a").Ref)
			e, err := watcher.Begin(t.Context(), op("a"))
			require.NoError(t, err)
			require.True(t, e.New, "what prevents it is in nobody's way")
		})
		t.Run("the first of two", func(t *testing.T) {
			t.Parallel()
			s, watcher := lateStores(t, d, nil)
			ctx, cancel := context.WithCancel(t.Context())
			s.wire.decide(statement(insert, sending{late: true}, sending{lost: cancel}))
			_, err := s.Begin(ctx, op("a"))
			require.ErrorIs(t, err, context.Canceled)
			require.False(t, maybe(t, err))
			s.wire.deliver(t)
			stays(t, watcher, op("a").Ref)
		})
		t.Run("the withdrawal is lost", func(t *testing.T) {
			t.Parallel()
			s, watcher := lateStores(t, d, nil)
			ctx, cancel := context.WithCancel(t.Context())
			s.wire.decide(statement(insert, sending{lost: cancel}, sending{lost: func() {}}))
			_, err := s.Begin(ctx, op("a"))
			require.ErrorIs(t, err, context.Canceled)
			require.False(t, maybe(t, err))
			stays(t, watcher, op("a").Ref)
		})
		t.Run("another has begun it", func(t *testing.T) {
			t.Parallel()
			s, watcher := lateStores(t, d, func(o *Options) { o.RetryFor = -1 })
			var other persist.Entry
			var began error
			s.wire.decide(func(sent []byte) sending {
				if began != nil || other.New || !bytes.Contains(sent, []byte(insert)) {
					return sending{}
				}
				other, began = watcher.Begin(context.Background(), op("a"))
				return sending{late: true}
			})
			_, err := s.Begin(t.Context(), op("a"))
			require.NoError(t, began)
			require.True(t, other.New)
			require.True(t, maybe(t, err), "once that is over, it may come")
			s.wire.deliver(t)
			require.NoError(t, watcher.Mark(t.Context(), other.Claim, persist.Progress{Attempts: 2}), "its claim is untouched")
		})
		t.Run("a later try worked", func(t *testing.T) {
			t.Parallel()
			s, watcher := lateStores(t, d, nil)
			s.wire.decide(statement(insert, sending{late: true}))
			e, err := s.Begin(t.Context(), op("a"))
			require.NoError(t, err)
			require.True(t, e.New)
			require.NoError(t, s.Settle(t.Context(), e.Claim, persist.Answer{State: persist.Rejected}))
			s.wire.deliver(t)
			stays(t, watcher, op("a").Ref)
			e, err = watcher.Begin(t.Context(), op("a"))
			require.NoError(t, err)
			require.True(t, e.New)
		})
	})
}

// TestLateForget: a Forget that is tried again, or arrives late, leaves alone what was begun since.
func TestLateForget(t *testing.T) {
	const remove = "DELETE FROM"
	networked(t, func(t *testing.T, d Dialect) {
		anew := func(watcher *own) error {
			e, err := watcher.Begin(context.Background(), op("a"))
			if err == nil && !e.New {
				err = errors.New("it is there still")
			}
			return errors.Join(err, watcher.Release(context.Background(), e.Claim))
		}
		begun := func(t *testing.T, s *own) {
			t.Helper()
			e, err := s.Begin(t.Context(), op("a"))
			require.NoError(t, err)
			require.NoError(t, s.Release(t.Context(), e.Claim))
		}
		t.Run("tried again", func(t *testing.T) {
			t.Parallel()
			s, watcher := lateStores(t, d, nil)
			begun(t, s)
			var err error
			s.wire.decide(statement(remove, sending{lost: func() { err = anew(watcher) }}))
			require.NoError(t, s.Forget(t.Context(), op("a").Ref))
			require.NoError(t, err)
			_, err = watcher.Get(t.Context(), op("a").Ref)
			require.NoError(t, err, "the new one is not what was to be forgotten")
		})
		t.Run("nothing was deleted yet", func(t *testing.T) {
			t.Parallel()
			s, watcher := lateStores(t, d, nil)
			begun(t, s)
			s.wire.decide(statement("SELECT seq, token", sending{lost: func() {}}))
			require.NoError(t, s.Forget(t.Context(), op("a").Ref))
			stays(t, watcher, op("a").Ref)
			s.wire.decide(statement("SELECT seq, token", sending{lost: func() {}}))
			require.ErrorIs(t, s.Forget(t.Context(), op("a").Ref), persist.ErrNotFound)
		})
		t.Run("late", func(t *testing.T) {
			t.Parallel()
			s, watcher := lateStores(t, d, nil)
			begun(t, s)
			s.wire.decide(statement(remove, sending{late: true}))
			require.NoError(t, s.Forget(t.Context(), op("a").Ref))
			require.NoError(t, anew(watcher))
			s.wire.deliver(t)
			for range 20 {
				_, err := watcher.Get(t.Context(), op("a").Ref)
				require.NoError(t, err)
				time.Sleep(10 * time.Millisecond)
			}
		})
	})
}
