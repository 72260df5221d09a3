package sqlstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
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

const inserting = "INSERT INTO"

// TestLateInsert: a Begin that fails, and is sure of it, does not come back with an INSERT that arrives late.
func TestLateInsert(t *testing.T) {
	each(t, func(t *testing.T, d Dialect) {
		t.Run("the only one", func(t *testing.T) {
			t.Parallel()
			s, watcher := lateStores(t, d, func(o *Options) { o.RetryFor = -1 })
			s.wire.decide(statement(inserting, sending{late: true}))
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
			s.wire.decide(statement(inserting, sending{late: true}, sending{lost: cancel}))
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
			s.wire.decide(statement(inserting, sending{lost: cancel}, sending{lost: func() {}}))
			_, err := s.Begin(ctx, op("a"))
			require.ErrorIs(t, err, context.Canceled)
			require.False(t, maybe(t, err))
			stays(t, watcher, op("a").Ref)
		})
		t.Run("its claim is late", func(t *testing.T) {
			t.Parallel()
			s, watcher := lateStores(t, d, nil)
			ctx, cancel := context.WithCancel(t.Context())
			lost := false
			s.wire.decide(func(sent []byte) sending {
				switch {
				case !lost && bytes.Contains(sent, []byte(inserting)):
					lost = true
					return sending{lost: func() {}}
				case ctx.Err() == nil && bytes.Contains(sent, []byte("SET token = ")):
					cancel()
					return sending{late: true}
				}
				return sending{}
			})
			_, err := s.Begin(ctx, op("a"))
			require.ErrorIs(t, err, context.Canceled)
			require.False(t, maybe(t, err))
			stays(t, watcher, op("a").Ref)
			s.wire.deliver(t)
			stays(t, watcher, op("a").Ref)
		})
		t.Run("another has begun it", func(t *testing.T) {
			t.Parallel()
			s, watcher := lateStores(t, d, func(o *Options) { o.RetryFor = -1 })
			var other persist.Entry
			var began error
			s.wire.decide(func(sent []byte) sending {
				if began != nil || other.New || !bytes.Contains(sent, []byte(inserting)) {
					return sending{}
				}
				other, began = watcher.Begin(context.Background(), op("a"))
				return sending{late: true}
			})
			_, err := s.Begin(t.Context(), op("a"))
			require.NoError(t, began)
			require.True(t, other.New)
			require.False(t, maybe(t, err), "that is in its way")
			require.NoError(t, watcher.Mark(t.Context(), other.Claim, persist.Progress{Attempts: 2}), "its claim is untouched")
			require.NoError(t, watcher.Settle(t.Context(), other.Claim, persist.Answer{State: persist.Rejected}))
			s.wire.deliver(t)
			stays(t, watcher, op("a").Ref)
		})
		t.Run("a later try worked", func(t *testing.T) {
			t.Parallel()
			s, watcher := lateStores(t, d, nil)
			s.wire.decide(statement(inserting, sending{late: true}))
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

// TestLateInsertMeetsAnother: what has begun under the name meanwhile, in whatever process, may leave in whatever way.
func TestLateInsertMeetsAnother(t *testing.T) {
	rejected := persist.Answer{State: persist.Rejected}
	leaves := map[string]func(t *testing.T, s *own, e persist.Entry){
		"settled": func(t *testing.T, s *own, e persist.Entry) {
			require.NoError(t, s.Settle(t.Context(), e.Claim, rejected))
		},
		"forgotten": func(t *testing.T, s *own, e persist.Entry) {
			require.NoError(t, s.Release(t.Context(), e.Claim))
			require.NoError(t, s.Forget(t.Context(), e.Ref))
			require.ErrorIs(t, s.Forget(t.Context(), e.Ref), persist.ErrNotFound)
		},
		"replaced, then settled": func(t *testing.T, s *own, e persist.Entry) {
			require.NoError(t, s.Replace(t.Context(), e.Claim, op("a")))
			require.NoError(t, s.Settle(t.Context(), e.Claim, rejected))
		},
		"owed, then accepted": func(t *testing.T, s *own, e persist.Entry) {
			require.NoError(t, s.Settle(t.Context(), e.Claim, persist.Answer{State: persist.Succeeded, Status: 200, Owed: true}))
			e, err := s.Claim(t.Context(), e.Ref)
			require.NoError(t, err)
			require.NoError(t, s.Settle(t.Context(), e.Claim, persist.Answer{State: persist.Succeeded}))
		},
		"kept, then settled anew": func(t *testing.T, s *own, e persist.Entry) {
			keep := time.Now().Add(time.Hour)
			require.NoError(t, s.Settle(t.Context(), e.Claim, persist.Answer{State: persist.Conflicted, KeepBody: keep, KeepName: keep}))
			e, err := s.Claim(t.Context(), e.Ref)
			require.NoError(t, err)
			require.NoError(t, s.Settle(t.Context(), e.Claim, rejected))
		},
		"past its retention": func(t *testing.T, s *own, e persist.Entry) {
			keep := time.Now().Add(500 * time.Millisecond)
			require.NoError(t, s.Settle(t.Context(), e.Claim, persist.Answer{State: persist.Rejected, KeepBody: keep, KeepName: keep}))
			time.Sleep(time.Until(keep) + 10*time.Millisecond)
			require.NoError(t, s.sweep(t.Context()))
		},
		"past the retention of its name": func(t *testing.T, s *own, e persist.Entry) {
			keep := time.Now().Add(500 * time.Millisecond)
			require.NoError(t, s.Settle(t.Context(), e.Claim, persist.Answer{State: persist.Rejected, KeepName: keep}))
			time.Sleep(time.Until(keep) + 10*time.Millisecond)
			require.NoError(t, s.sweep(t.Context()))
		},
	}
	begun := func(t *testing.T, s *own) persist.Entry {
		e, err := s.Begin(t.Context(), op("a"))
		require.NoError(t, err)
		require.True(t, e.New)
		return e
	}
	begins := map[string]func(t *testing.T, s, by *own) persist.Entry{
		"withdrawn": func(t *testing.T, s, by *own) persist.Entry {
			ctx, cancel := context.WithCancel(t.Context())
			s.wire.decide(statement(inserting, sending{late: true}, sending{lost: cancel}))
			_, err := s.Begin(ctx, op("a"))
			require.ErrorIs(t, err, context.Canceled)
			require.False(t, maybe(t, err))
			return begun(t, by)
		},
		"withdrawn, another enqueued": func(t *testing.T, s, by *own) persist.Entry {
			ctx, cancel := context.WithCancel(t.Context())
			s.wire.decide(statement(inserting, sending{late: true}, sending{lost: cancel}))
			_, err := s.Begin(ctx, op("a"))
			require.ErrorIs(t, err, context.Canceled)
			tx, err := by.pool.Begin()
			require.NoError(t, err)
			require.NoError(t, by.Enqueue(t.Context(), tx, queued("a")))
			require.NoError(t, tx.Commit())
			es, err := by.ClaimDue(t.Context(), 1)
			require.NoError(t, err)
			require.Len(t, es, 1)
			require.Equal(t, queued("a").Body, es[0].Body)
			return es[0]
		},
		"a later try worked": func(t *testing.T, s, by *own) persist.Entry {
			s.wire.decide(statement(inserting, sending{late: true}))
			e := begun(t, s)
			require.NoError(t, s.Release(t.Context(), e.Claim))
			e, err := by.Claim(t.Context(), e.Ref)
			require.NoError(t, err)
			return e
		},
		"a later try met another": func(t *testing.T, s, by *own) persist.Entry {
			other := begun(t, by)
			s.wire.decide(statement(inserting, sending{late: true}))
			e, err := s.Begin(t.Context(), op("a"))
			require.NoError(t, err)
			require.Zero(t, e.Claim)
			return other
		},
	}
	each(t, func(t *testing.T, d Dialect) {
		for how, begin := range begins {
			for what, leave := range leaves {
				for _, same := range []bool{true, false} {
					t.Run(fmt.Sprintf("%s/%s/same store=%t", how, what, same), func(t *testing.T) {
						t.Parallel()
						s, watcher := lateStores(t, d, func(o *Options) { o.SweepEvery = -1 })
						by := watcher
						if same {
							by = s
						}
						e := begin(t, s, by)
						leave(t, by, e)
						stays(t, watcher, e.Ref)
						s.wire.deliver(t)
						stays(t, watcher, e.Ref)
						var longer int
						require.NoError(t, watcher.pool.QueryRow(watcher.o.expand("SELECT count(*) FROM {operations} WHERE sweep_at > {late}")).Scan(&longer))
						require.Zero(t, longer, "no longer than it must")
						again := begun(t, watcher)
						require.Greater(t, again.Claim.Token, e.Claim.Token)
						require.NoError(t, watcher.Mark(t.Context(), again.Claim, persist.Progress{Attempts: 2}))
					})
				}
			}
		}
	})
}

// TestLateTakeover: a Begin that takes a marker's place and fails does not come back either, nor is its answer lost twice.
func TestLateTakeover(t *testing.T) {
	const takeover = "SET scope"
	each(t, func(t *testing.T, d Dialect) {
		marked := func(t *testing.T, change func(*Options)) (s, watcher *own) {
			s, watcher = lateStores(t, d, change)
			e, err := s.Begin(t.Context(), op("a"))
			require.NoError(t, err)
			require.NoError(t, s.Release(t.Context(), e.Claim))
			require.NoError(t, s.Forget(t.Context(), e.Ref))
			return s, watcher
		}
		for _, begunSince := range []bool{false, true} {
			t.Run(fmt.Sprintf("late/begun since=%t", begunSince), func(t *testing.T) {
				t.Parallel()
				s, watcher := marked(t, func(o *Options) { o.RetryFor = -1 })
				s.wire.decide(statement(takeover, sending{late: true}))
				_, err := s.Begin(t.Context(), op("a"))
				require.Error(t, err)
				require.False(t, maybe(t, err))
				if begunSince {
					e, err := watcher.Begin(t.Context(), op("a"))
					require.NoError(t, err)
					require.True(t, e.New)
					require.NoError(t, watcher.Settle(t.Context(), e.Claim, persist.Answer{State: persist.Rejected}))
				}
				s.wire.deliver(t)
				stays(t, watcher, op("a").Ref)
			})
		}
		t.Run("its answer is lost", func(t *testing.T) {
			t.Parallel()
			s, watcher := marked(t, nil)
			s.wire.decide(statement(takeover, sending{lost: func() {}}))
			e, err := s.Begin(t.Context(), op("a"))
			require.NoError(t, err)
			require.True(t, e.New)
			_, err = watcher.Claim(t.Context(), e.Ref)
			require.ErrorIs(t, err, persist.ErrBusy)
			require.NoError(t, s.Mark(t.Context(), e.Claim, persist.Progress{Attempts: 1}))
		})
	})
}

// TestLateForget: a Forget that is tried again, or arrives late, leaves alone what was begun since.
func TestLateForget(t *testing.T) {
	const remove = "SET state = 4"
	each(t, func(t *testing.T, d Dialect) {
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
		t.Run("its answer is lost", func(t *testing.T) {
			t.Parallel()
			s, watcher := lateStores(t, d, nil)
			begun(t, s)
			s.wire.decide(statement(remove, sending{lost: func() {}}))
			require.NoError(t, s.Forget(t.Context(), op("a").Ref))
			stays(t, watcher, op("a").Ref)
		})
		for what, others := range map[string]struct {
			do   func(s *own) error
			then func(t *testing.T, watcher *own, err error)
		}{
			"claimed meanwhile": {
				do: func(s *own) error {
					e, err := s.Claim(context.Background(), op("a").Ref)
					return errors.Join(err, s.Release(context.Background(), e.Claim))
				},
				then: func(t *testing.T, watcher *own, err error) {
					require.NoError(t, err)
					stays(t, watcher, op("a").Ref)
				},
			},
			"settled meanwhile": {
				do: func(s *own) error {
					keep := time.Now().Add(time.Hour)
					e, err := s.Claim(context.Background(), op("a").Ref)
					return errors.Join(err, s.Settle(context.Background(), e.Claim, persist.Answer{State: persist.Succeeded, Status: 200, KeepBody: keep, KeepName: keep}))
				},
				then: func(t *testing.T, watcher *own, err error) {
					require.True(t, maybe(t, err), "it could be another's")
					_, err = watcher.Get(t.Context(), op("a").Ref)
					require.NoError(t, err)
				},
			},
		} {
			t.Run(what, func(t *testing.T) {
				t.Parallel()
				s, watcher := lateStores(t, d, nil)
				begun(t, s)
				var did bool
				var err error
				s.wire.decide(func(sent []byte) sending {
					if did || !bytes.Contains(sent, []byte(remove)) {
						return sending{}
					}
					did, err = true, others.do(watcher)
					return sending{late: true}
				})
				forgot := s.Forget(t.Context(), op("a").Ref)
				require.NoError(t, err)
				others.then(t, watcher, forgot)
				s.wire.deliver(t)
				others.then(t, watcher, forgot)
			})
		}
		t.Run("nothing was deleted yet", func(t *testing.T) {
			t.Parallel()
			s, watcher := lateStores(t, d, nil)
			begun(t, s)
			s.wire.decide(statement("SELECT token, CASE", sending{lost: func() {}}))
			require.NoError(t, s.Forget(t.Context(), op("a").Ref))
			stays(t, watcher, op("a").Ref)
			s.wire.decide(statement("SELECT token, CASE", sending{lost: func() {}}))
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
