package sqlstore

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/samekey/samekey/persist"
	"github.com/samekey/samekey/persist/persisttest"
)

// changes tells the next change of an operation from other statements.
func changes(sent []byte) bool {
	return bytes.Contains(sent, []byte("held_until > ")) && (bytes.Contains(sent, []byte("UPDATE ")) || bytes.Contains(sent, []byte("DELETE FROM")))
}

// next lets a fate befall the next statement that is such.
func next(such func([]byte) bool, fates ...sending) func([]byte) sending {
	return func(sent []byte) sending {
		if len(fates) == 0 || !such(sent) {
			return sending{}
		}
		fate := fates[0]
		fates = fates[1:]
		return fate
	}
}

// TestTurns: turns order the calls of a store and the tries of a call, and are in no other store's way.
func TestTurns(t *testing.T) {
	s, other := &Store{me: [8]byte{7: 1}}, &Store{me: [8]byte{7: 2}}
	by := s.turn()
	first, last := s.after(by)
	later := func(turn []byte) bool { return bytes.Compare(turn, first) >= 0 && bytes.Compare(turn, last) <= 0 }
	try := by
	for range 1 << 17 {
		try = nextTry(try)
	}
	from, to := tries(by)
	require.Equal(t, from, by)
	require.Equal(t, to, try, "no try is another call's, however many there are")
	require.True(t, sameCall(by, try))
	require.False(t, later(try))
	next := s.turn()
	require.True(t, later(next))
	require.False(t, sameCall(by, next))
	require.Negative(t, bytes.Compare(by, nextTry(by)))
	require.False(t, later(other.turn()))
	require.False(t, later(make([]byte, 16)), "nobody's")
}

// TestLateChanges: a change whose connection was lost arrives after later ones under the same claim.
func TestLateChanges(t *testing.T) {
	each(t, func(t *testing.T, d Dialect) {
		for name, retryFor := range map[string]time.Duration{"tried again": time.Minute, "given up": -1} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				s, watcher := lateStores(t, d, func(o *Options) { o.RetryFor = retryFor })
				persisttest.LateChanges(t, s, watcher, func() func() {
					s.wire.decide(next(changes, sending{late: true}))
					return func() { s.wire.deliver(t) }
				})
			})
		}
	})
}

// TestLateBehindALater: the late one arrives while the later one is being committed, and waits for its lock.
func TestLateBehindALater(t *testing.T) {
	networked(t, func(t *testing.T, d Dialect) {
		s, watcher := lateStores(t, d, func(o *Options) { o.RetryFor = -1 })
		ctx := t.Context()
		e, err := s.Begin(ctx, op("a"))
		require.NoError(t, err)
		old := op("a")
		old.Key = "old"
		s.wire.decide(next(changes, sending{late: true}))
		require.True(t, maybe(t, s.Replace(ctx, e.Claim, old)))

		tx, err := s.pool.BeginTx(ctx, nil)
		require.NoError(t, err)
		anew := op("a")
		anew.Key = "anew"
		hash, by := hashOf(e.Ref), s.turn()
		args := append(requested(&anew), dueOrder(&anew), time.Minute.Nanoseconds())
		n, err := affected(tx.ExecContext(ctx, s.q.replace, append(args, s.mine(by, hash, int64(e.Claim.Token))...)...))
		require.NoError(t, err)
		require.EqualValues(t, 1, n)
		var arriving sync.WaitGroup
		arriving.Go(func() { s.wire.deliver(t) })
		time.Sleep(300 * time.Millisecond)
		require.NoError(t, tx.Commit())
		arriving.Wait()
		got, err := watcher.Get(ctx, e.Ref)
		require.NoError(t, err)
		require.Equal(t, "anew", got.Key)
	})
}

// TestLateClaim: a try of a call that claims arrives when a later one was answered. It does not take the operation from
// whoever made that call.
func TestLateClaim(t *testing.T) {
	claims := func(sent []byte) bool { return bytes.Contains(sent, []byte("SET token = ")) }
	each(t, func(t *testing.T, d Dialect) {
		released := func(t *testing.T, by *own) {
			e, err := by.Begin(t.Context(), op("a"))
			require.NoError(t, err)
			require.NoError(t, by.Release(t.Context(), e.Claim))
		}
		for name, claim := range map[string]func(t *testing.T, s, watcher *own) (persist.Entry, error){
			"Claim": func(t *testing.T, s, watcher *own) (persist.Entry, error) {
				released(t, watcher)
				s.wire.decide(next(claims, sending{late: true}))
				return s.Claim(t.Context(), op("a").Ref)
			},
			"Begin of what is there": func(t *testing.T, s, watcher *own) (persist.Entry, error) {
				released(t, watcher)
				s.wire.decide(next(claims, sending{late: true}))
				return s.Begin(t.Context(), op("a"))
			},
			"Begin that is tried again": func(t *testing.T, s, _ *own) (persist.Entry, error) {
				lost := false
				s.wire.decide(func(sent []byte) sending {
					switch {
					case !lost && bytes.Contains(sent, []byte(inserting)):
						lost = true
						return sending{lost: func() {}}
					case claims(sent):
						s.wire.fate = nil
						return sending{late: true}
					}
					return sending{}
				})
				return s.Begin(t.Context(), op("a"))
			},
			"its answer is lost twice": func(t *testing.T, s, watcher *own) (persist.Entry, error) {
				released(t, watcher)
				lost := func() {}
				s.wire.decide(next(claims, sending{lost: lost}, sending{late: true}, sending{lost: lost}))
				return s.Claim(t.Context(), op("a").Ref)
			},
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				s, watcher := lateStores(t, d, nil)
				e, err := claim(t, s, watcher)
				require.NoError(t, err)
				require.NotZero(t, e.Claim.Token)
				s.wire.deliver(t)
				require.NoError(t, s.Settle(t.Context(), e.Claim, persist.Answer{State: persist.Succeeded}), "it was sent, and answered")
				stays(t, watcher, e.Ref)
			})
		}
	})
}

// TestSettleIsTold: what others do with an operation while the answer to the settle that let them is lost takes nothing
// from its truth, and a settle that nobody can know of says so.
func TestSettleIsTold(t *testing.T) {
	keep := time.Now().Add(time.Hour)
	owed := persist.Answer{State: persist.Succeeded, Status: 200, Owed: true}
	kept := persist.Answer{State: persist.Succeeded, Status: 200, KeepBody: keep, KeepName: keep}
	claimed := func(by *own) error {
		_, err := by.Claim(context.Background(), op("a").Ref)
		return err
	}
	begun := func(by *own) error {
		e, err := by.Begin(context.Background(), op("a"))
		if err == nil && !e.New {
			return errForgotten
		}
		return err
	}
	nothing := func(*own) error { return nil }
	for name, c := range map[string]struct {
		answer persist.Answer
		others func(by *own) error
		lapses bool
	}{
		"kept":                       {kept, nothing, false},
		"kept, lapsed":               {kept, nothing, true},
		"owed, claimed":              {owed, claimed, false},
		"owed, claimed, lapsed":      {owed, claimed, true},
		"kept, claimed":              {kept, claimed, false},
		"removed":                    {persist.Answer{State: persist.Succeeded}, nothing, false},
		"removed, lapsed":            {persist.Answer{State: persist.Succeeded}, nothing, true},
		"removed, begun anew":        {persist.Answer{State: persist.Succeeded}, begun, false},
		"removed, begun anew, later": {persist.Answer{State: persist.Succeeded}, begun, true},
	} {
		t.Run(name, func(t *testing.T) {
			each(t, func(t *testing.T, d Dialect) {
				lease := time.Minute
				if c.lapses {
					lease = time.Second
				}
				s, other := lateStores(t, d, func(o *Options) { o.Lease, o.RetryFor = lease, time.Minute })
				e, err := s.Begin(t.Context(), op("a"))
				require.NoError(t, err)
				var wrong error
				s.wire.decide(next(changes, sending{lost: func() {
					wrong = c.others(other)
					if c.lapses {
						time.Sleep(lease)
					}
				}}))
				err = s.Settle(t.Context(), e.Claim, c.answer)
				require.NoError(t, wrong)
				if !c.lapses || name == "kept, lapsed" {
					require.NoError(t, err, "it has happened, as its row or the lease tells")
					return
				}
				require.ErrorIs(t, err, persist.ErrClaimLost)
				require.True(t, maybe(t, err), "it has happened")
			})
		})
	}
}

// TestSettleIsNotTold: a settle that never arrived is not told to have, because a late change has ended the claim.
func TestSettleIsNotTold(t *testing.T) {
	keep := time.Now().Add(time.Hour)
	kept := persist.Answer{State: persist.Succeeded, Status: 200, KeepBody: keep, KeepName: keep}
	each(t, func(t *testing.T, d Dialect) {
		for _, taken := range []bool{false, true} {
			t.Run(fmt.Sprint("taken since=", taken), func(t *testing.T) {
				t.Parallel()
				s, watcher := lateStores(t, d, nil)
				e, err := s.Begin(t.Context(), op("a"))
				require.NoError(t, err)
				ctx, cancel := context.WithCancel(t.Context())
				s.wire.decide(func(sent []byte) sending {
					if !changes(sent) {
						return sending{}
					}
					cancel()
					return sending{late: true}
				})
				require.True(t, maybe(t, s.Release(ctx, e.Claim)))
				release := s.wire.late[0]
				tries := 0
				s.wire.decide(func(sent []byte) sending {
					if !changes(sent) {
						return sending{}
					}
					if tries++; tries == 2 {
						release(t)
						if taken {
							_, err = watcher.Claim(t.Context(), e.Ref)
						}
					}
					return sending{late: tries == 1}
				})
				settled := s.Settle(t.Context(), e.Claim, kept)
				require.NoError(t, err)
				require.ErrorIs(t, settled, persist.ErrClaimLost)
				require.True(t, maybe(t, settled))
				got, err := watcher.Get(t.Context(), e.Ref)
				require.NoError(t, err)
				require.Equal(t, persist.Pending, got.State())
			})
		}
	})
}

// TestOvertakenByALater: a change that is tried again after a later call's does not undo that, and says so.
func TestOvertakenByALater(t *testing.T) {
	networked(t, func(t *testing.T, d Dialect) { // a file has one writer at a time
		s, watcher := lateStores(t, d, nil)
		e, err := s.Begin(t.Context(), op("a"))
		require.NoError(t, err)
		var later error
		s.wire.decide(next(changes, sending{lost: func() {
			later = s.Mark(t.Context(), e.Claim, persist.Progress{Attempts: 3})
		}}))
		err = s.Mark(t.Context(), e.Claim, persist.Progress{Attempts: 2})
		require.NoError(t, later)
		require.ErrorIs(t, err, errLate)
		require.NotErrorIs(t, err, persist.ErrClaimLost)
		require.True(t, maybe(t, err))
		got, err := watcher.Get(t.Context(), e.Ref)
		require.NoError(t, err)
		require.Equal(t, 3, got.Progress.Attempts)
		require.NoError(t, s.Settle(t.Context(), e.Claim, persist.Answer{State: persist.Succeeded}))
	})
}

// TestMarkIsTold: a Mark that has happened, but whose claim has lapsed since, does not say that it changed nothing.
func TestMarkIsTold(t *testing.T) {
	each(t, func(t *testing.T, d Dialect) {
		s, _ := lateStores(t, d, func(o *Options) { o.Lease, o.RetryFor = time.Second, time.Minute })
		e, err := s.Begin(t.Context(), op("a"))
		require.NoError(t, err)
		s.wire.decide(next(changes, sending{lost: func() { time.Sleep(1100 * time.Millisecond) }}))
		err = s.Mark(t.Context(), e.Claim, persist.Progress{Attempts: 2})
		require.ErrorIs(t, err, persist.ErrClaimLost)
		require.True(t, maybe(t, err))
	})
}
