package persisttest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/samekey/samekey/persist"
)

// LostAnswers holds a store behind a network against its word while answers of its server are lost now and then, which is
// for the caller to arrange, on the connections of s alone: each call either tells what has happened, or fails and says
// Maybe. watcher is another store on the same place; it must be empty, and claims must last.
func LostAnswers(t testing.TB, s, watcher persist.Store) {
	t.Helper()
	ctx, sure := t.Context(), 0
	for i := range 60 {
		rec := payment(fmt.Sprint("op-", i))
		e, err := s.Begin(ctx, rec)
		got, there := watcher.Get(ctx, rec.Ref)
		if err != nil {
			if !maybe(t, err) {
				require.ErrorIs(t, there, persist.ErrNotFound)
			}
			continue
		}
		require.NoError(t, there)
		require.Equal(t, rec.Key, got.Key)
		require.True(t, e.New)
		require.NotZero(t, e.Claim.Token)
		if err = s.Mark(ctx, e.Claim, persist.Progress{Attempts: 2}); err != nil {
			maybe(t, err)
			continue
		}
		got, err = watcher.Get(ctx, rec.Ref)
		require.NoError(t, err)
		require.Equal(t, 2, got.Progress.Attempts)
		a := persist.Answer{State: persist.Succeeded, Status: 200}
		if i%2 == 0 {
			a.KeepBody, a.KeepName = time.Now().Add(time.Hour), time.Now().Add(time.Hour)
		}
		if err = s.Settle(ctx, e.Claim, a); err != nil {
			maybe(t, err)
			require.NotErrorIs(t, err, persist.ErrClaimLost, "it is ours, and within its lease")
			continue
		}
		got, err = watcher.Get(ctx, rec.Ref)
		if i%2 == 0 {
			require.NoError(t, err)
			require.Equal(t, persist.Succeeded, got.State())
			if err = s.Forget(ctx, rec.Ref); err != nil {
				require.NotErrorIs(t, err, persist.ErrNotFound, "it was there")
				require.NotErrorIs(t, err, persist.ErrBusy, "nobody holds it")
				if !maybe(t, err) {
					_, err = watcher.Get(ctx, rec.Ref)
					require.NoError(t, err)
				}
				continue
			}
			_, err = watcher.Get(ctx, rec.Ref)
		}
		require.ErrorIs(t, err, persist.ErrNotFound)
		sure++
	}
	require.Greater(t, sure, 40, "most calls find out")
}

// Restarts has eight callers at work on s while restart, which returns when the server answers again, kills it: what was
// acknowledged is there after it, what was refused is not, and the store goes on by itself.
func Restarts(t testing.TB, s persist.Store, times int, restart func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var settled, pending, nothing sync.Map
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				time.Sleep(rand.N(4 * time.Millisecond)) // leaves the machine to others
				rec := payment(fmt.Sprint(i, "-", n))
				e, err := s.Begin(context.Background(), rec)
				if err != nil {
					if own, is := errors.AsType[*persist.Error](err); is && !own.Maybe {
						nothing.Store(rec.Ref, true)
					}
					continue
				}
				keep := time.Now().Add(time.Hour)
				err = s.Settle(context.Background(), e.Claim, persist.Answer{State: persist.Succeeded, KeepBody: keep, KeepName: keep, Lazy: true})
				if err == nil {
					settled.Store(rec.Ref, true)
				} else {
					pending.Store(rec.Ref, true)
				}
			}
		})
	}
	for range times {
		time.Sleep(time.Duration(400+rand.IntN(400)) * time.Millisecond)
		restart()
	}
	time.Sleep(500 * time.Millisecond)
	cancel()
	all.Wait()
	count := 0
	settled.Range(func(ref, _ any) bool {
		count++
		got, err := s.Get(t.Context(), ref.(persist.Ref))
		require.NoError(t, err)
		require.Equal(t, persist.Succeeded, got.State())
		return true
	})
	pending.Range(func(ref, _ any) bool {
		_, err := s.Get(t.Context(), ref.(persist.Ref))
		require.NoError(t, err)
		return true
	})
	nothing.Range(func(ref, _ any) bool {
		_, err := s.Get(t.Context(), ref.(persist.Ref))
		require.ErrorIs(t, err, persist.ErrNotFound)
		return true
	})
	require.Greater(t, count, 20)
}

func payment(id string) persist.Record {
	return persist.Record{
		Ref: ref(id), Created: time.Now(), Key: "key-" + id, Method: "POST", Target: "https://bank.test/v1/payments",
		Header: map[string][]string{"Content-Type": {"application/json"}, "Idempotency-Key": {"key-" + id}},
		Body:   []byte(`{"amount":100,"currency":"EUR"}`), Progress: persist.Progress{Attempts: 1},
	}
}

func maybe(t testing.TB, err error) bool {
	t.Helper()
	own, is := errors.AsType[*persist.Error](err)
	require.True(t, is, "%v", err)
	return own.Maybe
}
