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

// Overtaken holds a store behind a network against its word where the answer to a Begin is lost, its claim lapses before
// the store gets through again, and another takes over what it has recorded: it must neither say that nothing has
// happened, nor that the operation is new. s implements persist.Leaser, and its lease is short; other is another store
// on the same place, whose leases last. lose is for the caller to arrange, on the connections of s alone: the server
// does what it is asked next, its answer is lost, and meanwhile is called once before s gets through again.
func Overtaken(t testing.TB, s, other persist.Store, lose func(meanwhile func())) {
	t.Helper()
	ctx, lease := t.Context(), s.(persist.Leaser).Lease()
	keep := time.Now().Add(time.Hour)
	settled := func(keep time.Time) func(persist.Claim) error {
		return func(c persist.Claim) error {
			return other.Settle(ctx, c, persist.Answer{State: persist.Succeeded, Status: 201, KeepBody: keep, KeepName: keep})
		}
	}
	for name, after := range map[string]func(persist.Claim) error{ // what the other does with what it has taken
		"sends":      func(persist.Claim) error { return nil },
		"keeps":      settled(keep),
		"removes":    settled(time.Time{}),
		"gives back": func(c persist.Claim) error { return other.Release(ctx, c) },
		"begins anew": func(c persist.Claim) error {
			anew := payment(c.ID)
			anew.Key = "key-anew"
			err := settled(time.Time{})(c)
			if err == nil {
				_, err = other.Begin(ctx, anew)
			}
			return err
		},
	} {
		known, err := s.Begin(ctx, payment("warm")) // statements are prepared, scripts are loaded
		require.NoError(t, err)
		require.NoError(t, s.Settle(ctx, known.Claim, persist.Answer{State: persist.Succeeded}))
		rec := payment(name)
		var taken persist.Entry
		var wrong error
		called := false
		lose(func() {
			called = true
			time.Sleep(lease)
			for end := time.Now().Add(20 * time.Second); ; time.Sleep(10 * time.Millisecond) {
				if taken, wrong = other.Claim(ctx, rec.Ref); wrong == nil || time.Now().After(end) {
					break
				}
			}
			if wrong == nil {
				wrong = after(taken.Claim)
			}
		})
		e, err := s.Begin(ctx, rec)
		require.True(t, called, name)
		require.NoError(t, wrong, "it was recorded, and its lease has lapsed: the other %s", name)
		if err != nil {
			require.True(t, maybe(t, err), "the other %s: %v", name, err)
		} else {
			require.False(t, e.New, "the other %s: it may have been sent", name)
		}
		switch got, err := other.Get(ctx, rec.Ref); name {
		case "sends":
			require.NoError(t, other.Mark(ctx, taken.Claim, persist.Progress{Attempts: 2}), "its claim holds")
			require.Zero(t, e.Claim.Token)
		case "keeps":
			require.NoError(t, err)
			require.Equal(t, persist.Succeeded, got.State())
		case "removes":
			require.ErrorIs(t, err, persist.ErrNotFound)
		case "begins anew":
			require.NoError(t, err)
			require.Equal(t, "key-anew", got.Key)
			require.Zero(t, e.Claim.Token)
		}
	}
	// Nobody has taken it: what the store says of it is so, and stays so.
	rec := payment("nobody")
	lose(func() { time.Sleep(lease + lease/2) })
	e, err := s.Begin(ctx, rec)
	_, there := other.Get(ctx, rec.Ref)
	switch {
	case err == nil:
		require.NoError(t, there)
		require.NotZero(t, e.Claim.Token)
	case !maybe(t, err):
		require.ErrorIs(t, there, persist.ErrNotFound)
	}
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
