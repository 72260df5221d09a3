package redis

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/samekey/samekey/persist"
	"github.com/samekey/samekey/persist/persisttest"
	"github.com/samekey/samekey/persist/persisttest/servertest"
)

// TestLostAnswers loses each seventh answer of the server.
func TestLostAnswers(t *testing.T) {
	t.Parallel()
	p := fresh(t)
	s := p.opened(t, func(o *Options) { o.Lease = time.Minute })
	var reads atomic.Int64
	s.wire.listen(func() bool { return reads.Add(1)%7 != 0 })
	persisttest.LostAnswers(t, s, p.opened(t, nil))
	s.wire.listen(nil)
	p.consistent(t)
}

// TestSentOnce: go-redis, which repeats commands of its own accord, does not repeat these. The store does, and counts.
func TestSentOnce(t *testing.T) {
	t.Parallel()
	p := on(servertest.New(t, servertest.Redis)) // whose statistics are ours alone
	s := p.opened(t, func(o *Options) { o.Lease, o.RetryFor, o.SweepEvery = time.Minute, -1, -1 })
	admin := p.admin(t)
	e, err := s.Begin(t.Context(), op("a"))
	require.NoError(t, err)
	calls := func() (n int) {
		info, err := admin.Info(t.Context(), "commandstats").Result()
		require.NoError(t, err)
		_, stat, _ := strings.Cut(info, "cmdstat_evalsha:calls=")
		_, _ = fmt.Sscan(strings.Split(stat, ",")[0], &n)
		return n
	}
	require.NoError(t, s.Mark(t.Context(), e.Claim, e.Progress)) // the script is known
	before := calls()
	s.wire.listen(func() bool { return false })
	require.True(t, maybe(t, s.Mark(t.Context(), e.Claim, e.Progress)))
	require.Equal(t, before+1, calls())
}

// TestLateTries: a try that arrives after a later one of its call was answered, or after the call was withdrawn, does
// nothing, whatever has become of the operation since.
func TestLateTries(t *testing.T) {
	t.Parallel()
	p := fresh(t)
	s, ctx := p.opened(t, func(o *Options) { o.Lease = time.Minute }), t.Context()
	try := func(q query, lost int) string {
		t.Helper()
		q.args[1] = lost
		reply, err := q.script.run(ctx, s.Store.client, q.keys, q.args)
		require.NoError(t, err)
		return reply[0].(string)
	}
	rec := op("a")
	hash := hashOf(rec.Ref)
	begin := func() query {
		return s.ask(beginScript, s.turn(), hash, ordered(rec.Created), "0", "0", encodeName(&rec), encodeRequest(&rec), encodeProgress(&rec.Progress))
	}
	nothing := func() {
		t.Helper()
		_, err := s.Get(ctx, rec.Ref)
		require.ErrorIs(t, err, persist.ErrNotFound)
	}
	settle := func(token string) {
		t.Helper()
		require.Equal(t, "done", try(s.ask(settleScript, s.turn(), hash, token, "1", "0", "0", "0", "", ""), 0))
		nothing()
	}
	token := func() string {
		t.Helper()
		m, err := s.client.HGet(ctx, s.record(hash), "m").Result()
		require.NoError(t, err)
		return strings.Fields(m)[8]
	}

	q := begin()
	require.Equal(t, "new", try(q, 1))
	settle(token())
	require.Equal(t, "void", try(q, 0))
	nothing()

	q = begin()
	require.Equal(t, "new", try(q, 0))
	first := token()
	require.Equal(t, "again", try(q, 1))
	require.Greater(t, token(), first)
	settle(token())
	require.Equal(t, "void", try(q, 0))
	nothing()

	q = begin()
	require.True(t, s.withdraw(ctx, q.turn, hash), "before it arrives")
	require.Equal(t, "void", try(q, 0))
	require.Equal(t, "void", try(q, 5))
	nothing()

	q = begin()
	require.Equal(t, "new", try(q, 0))
	require.True(t, s.withdraw(ctx, q.turn, hash), "after it arrived")
	nothing()

	e, err := s.Begin(ctx, rec)
	require.NoError(t, err)
	require.NoError(t, s.Release(ctx, e.Claim))
	q = begin()
	require.Equal(t, "taken", try(q, 0))
	require.True(t, s.withdraw(ctx, q.turn, hash), "of a take-over the claim is given back")
	e, err = s.Claim(ctx, rec.Ref)
	require.NoError(t, err)
	require.NoError(t, s.Release(ctx, e.Claim))

	q = s.ask(forgetScript, s.turn(), hash, token())
	require.Equal(t, "done", try(q, 0))
	s.free(t, rec)
	require.Equal(t, "done", try(q, 1), "it has happened")
	got, err := s.Get(ctx, rec.Ref)
	require.NoError(t, err, "what has begun anew is not forgotten")
	require.Equal(t, rec.Key, got.Key)

	q = s.ask(claimScript, s.turn(), hash)
	require.Equal(t, "taken", try(q, 1))
	require.Equal(t, "taken", try(q, 1))
	require.Equal(t, "void", try(q, 0))
	a := persist.Answer{State: persist.Succeeded, Status: 200, KeepBody: time.Now().Add(time.Hour)}
	q = s.ask(settleScript, s.turn(), hash, token(), "1", "0", micros(a.KeepBody), "0", encodeEnd(&a), encodeAnswer(&a))
	require.Equal(t, "done", try(q, 0))
	require.Equal(t, "done", try(q, 1))
	require.Equal(t, "void", try(q, 0))
	p.consistent(t)
}

// TestLateRequest keeps the bytes of a Begin from the server until its context has ended: the call says that nothing was
// recorded, and once they arrive, nothing is.
func TestLateRequest(t *testing.T) {
	t.Parallel()
	p := fresh(t)
	s := p.opened(t, func(o *Options) { o.Lease = time.Minute })
	e, err := s.Begin(t.Context(), op("warm"))
	require.NoError(t, err)
	require.NoError(t, s.Settle(t.Context(), e.Claim, persist.Answer{State: persist.Succeeded}))

	arrived, release := make(chan struct{}), make(chan struct{})
	s.wire.delay(func(b []byte) {
		if strings.Contains(string(b), "key-late") {
			<-release
			time.AfterFunc(100*time.Millisecond, func() { close(arrived) })
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, err = s.Begin(ctx, op("late"))
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.False(t, maybe(t, err))
	close(release)
	<-arrived
	_, err = s.Get(t.Context(), op("late").Ref)
	require.ErrorIs(t, err, persist.ErrNotFound)
	p.consistent(t)
}

// TestOvertaken: the claim of a Begin whose answer was lost lapses before the store gets through again, and another store
// has taken it by then; one store withdraws at once, the other tries again.
func TestOvertaken(t *testing.T) {
	t.Parallel()
	for name, retryFor := range map[string]time.Duration{"withdrawn": -1, "tried_again": 30 * time.Second} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := fresh(t)
			s := p.opened(t, func(o *Options) { o.Lease, o.RetryFor = 300*time.Millisecond, retryFor })
			other := p.opened(t, func(o *Options) { o.Lease = time.Minute })
			persisttest.Overtaken(t, s, other, s.wire.lose)
			p.consistent(t)
		})
	}
}

// TestBothTriesLost: another had what the first try recorded, and has removed it; the second try has recorded it anew, and
// the third finds that.
func TestBothTriesLost(t *testing.T) {
	t.Parallel()
	for name, retryFor := range map[string]time.Duration{"withdrawn": 0, "tried_again": 30 * time.Second} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := fresh(t)
			// Retries are over when the second try's answer is lost, or are not.
			s := p.opened(t, func(o *Options) { o.Lease, o.RetryFor = 300*time.Millisecond, cmp.Or(retryFor, 700*time.Millisecond) })
			other := p.opened(t, func(o *Options) { o.Lease = time.Minute })
			require.NoError(t, s.Flush(t.Context()))
			s.free(t, op("warm"))
			require.NoError(t, s.Forget(t.Context(), op("warm").Ref))
			var wrong error
			s.wire.lose(func() {
				time.Sleep(400 * time.Millisecond)
				var e persist.Entry
				if e, wrong = other.Claim(t.Context(), op("a").Ref); wrong == nil {
					wrong = other.Settle(t.Context(), e.Claim, persist.Answer{State: persist.Succeeded, Status: 201})
				}
				s.wire.lose(func() { time.Sleep(500 * time.Millisecond) })
			})
			_, err := s.Begin(t.Context(), op("a"))
			require.NoError(t, wrong)
			require.Error(t, err)
			require.True(t, maybe(t, err))
			_, err = other.Get(t.Context(), op("a").Ref)
			require.ErrorIs(t, err, persist.ErrNotFound, "nothing is sent by this call")
			p.consistent(t)
		})
	}
}

// hold keeps the next request with this text from the server, and its connection with it. It returns what lets it
// through, and waits until the server has done with it.
func (o *own) hold(t *testing.T, text string) (release func()) {
	t.Helper()
	gate, gone := make(chan struct{}), make(chan struct{})
	var once sync.Once
	o.wire.delay(func(b []byte) {
		if strings.Contains(string(b), text) {
			mine := false
			once.Do(func() { mine = true })
			if mine {
				<-gate
				time.AfterFunc(100*time.Millisecond, func() { close(gone) })
			}
		}
	})
	return func() {
		close(gate)
		<-gone
	}
}

// short is a context that ends while the server is not to be reached.
func short(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	t.Cleanup(cancel)
	return ctx
}

// TestLateForget: a Forget whose call has long failed arrives when the name has begun anew.
func TestLateForget(t *testing.T) {
	t.Parallel()
	p := fresh(t)
	s, ctx := p.opened(t, func(o *Options) { o.Lease = time.Minute }), t.Context()
	s.free(t, op("warm"))
	require.NoError(t, s.Forget(ctx, op("warm").Ref))
	s.free(t, op("a"))
	release := s.hold(t, forgetScript.sha)
	err := s.Forget(short(t), op("a").Ref)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.True(t, maybe(t, err))
	require.NoError(t, s.Forget(ctx, op("a").Ref))
	s.free(t, op("a"))
	release()
	_, err = s.Get(ctx, op("a").Ref)
	require.NoError(t, err, "nobody has forgotten what has begun since")
	require.NoError(t, s.Forget(ctx, op("a").Ref))
	p.consistent(t)
}

// TestLateMark: a change whose call has failed arrives after later ones of the same claim, and does not undo what those
// have written.
func TestLateMark(t *testing.T) {
	t.Parallel()
	anew := op("a")
	anew.Key = "anew"
	for name, first := range map[string]struct {
		script *script
		call   func(context.Context, *own, persist.Claim) error
	}{
		"Mark": {markScript, func(ctx context.Context, s *own, c persist.Claim) error {
			return s.Mark(ctx, c, persist.Progress{Attempts: 1, LastError: "late"})
		}},
		"Replace": {replaceScript, func(ctx context.Context, s *own, c persist.Claim) error { return s.Replace(ctx, c, op("a")) }},
		"Settle": {settleScript, func(ctx context.Context, s *own, c persist.Claim) error {
			return s.Settle(ctx, c, persist.Answer{State: persist.Succeeded})
		}},
		"Release": {releaseScript, func(ctx context.Context, s *own, c persist.Claim) error { return s.Release(ctx, c) }},
	} {
		for _, then := range []string{"Mark", "Replace"} {
			t.Run(name+"_after_"+then, func(t *testing.T) {
				t.Parallel()
				p := fresh(t)
				s, ctx := p.opened(t, func(o *Options) { o.Lease = time.Minute }), t.Context()
				e, err := s.Begin(ctx, op("warm")) // the scripts are known
				require.NoError(t, err)
				require.NoError(t, s.Release(ctx, e.Claim))
				e, err = s.Claim(ctx, e.Ref)
				require.NoError(t, err)
				require.NoError(t, s.Settle(ctx, e.Claim, persist.Answer{State: persist.Succeeded}))
				e, err = s.Begin(ctx, anew)
				require.NoError(t, err)
				require.NoError(t, s.Replace(ctx, e.Claim, anew))
				require.NoError(t, s.Mark(ctx, e.Claim, anew.Progress))
				release := s.hold(t, first.script.sha)
				err = first.call(short(t), s, e.Claim)
				require.ErrorIs(t, err, context.DeadlineExceeded)
				require.True(t, maybe(t, err))
				want := persist.Progress{Attempts: 7, Parked: true, PollURL: "https://bank.test/poll"}
				if then == "Mark" {
					require.NoError(t, s.Mark(ctx, e.Claim, want))
				} else {
					rec := anew
					rec.Progress = want
					require.NoError(t, s.Replace(ctx, e.Claim, rec))
				}
				release()
				got, err := s.Get(ctx, op("a").Ref)
				require.NoError(t, err)
				require.Equal(t, "anew", got.Key)
				require.Equal(t, want, got.Progress)
				require.NoError(t, s.Mark(ctx, e.Claim, want), "the claim holds")
				p.consistent(t)
			})
		}
	}
}

// TestSettleIsNotTold: a settle that never arrived is not told to have, because a late Release has ended the claim.
func TestSettleIsNotTold(t *testing.T) {
	t.Parallel()
	p := fresh(t)
	s, ctx := p.opened(t, func(o *Options) { o.Lease = time.Minute }), t.Context()
	s.free(t, op("warm")) // the scripts are known
	e, err := s.Claim(ctx, op("warm").Ref)
	require.NoError(t, err)
	require.NoError(t, s.Settle(ctx, e.Claim, persist.Answer{State: persist.Succeeded}))
	e, err = s.Begin(ctx, op("a"))
	require.NoError(t, err)
	release := s.hold(t, releaseScript.sha)
	require.True(t, maybe(t, s.Release(short(t), e.Claim)))
	var once sync.Once
	s.wire.delay(func(b []byte) {
		if strings.Contains(string(b), settleScript.sha) {
			once.Do(func() {
				release()
				s.wire.lose(func() {})
			})
		}
	})
	err = s.Settle(ctx, e.Claim, persist.Answer{State: persist.Succeeded})
	require.ErrorIs(t, err, persist.ErrClaimLost)
	require.True(t, maybe(t, err))
	got, err := s.Get(ctx, op("a").Ref)
	require.NoError(t, err)
	require.Equal(t, persist.Pending, got.State())
	p.consistent(t)
}

// TestHammer lets many callers use the same few operations over a wire that loses answers; no call may fail but for
// that, and what is left is whole.
func TestHammer(t *testing.T) {
	t.Parallel()
	p := fresh(t)
	s := p.opened(t, func(o *Options) { o.Lease = time.Minute })
	var reads atomic.Int64
	s.wire.listen(func() bool { return reads.Add(1)%31 != 0 })
	ctx := t.Context()
	var failures sync.Map
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for n := range 60 {
				e, err := s.Begin(ctx, op(fmt.Sprint(n%3)))
				if err == nil && e.Claim.Token == 0 && n%2 == 0 {
					e, err = s.Claim(ctx, e.Ref)
					if errors.Is(err, persist.ErrBusy) || errors.Is(err, persist.ErrNotFound) {
						err = nil
					}
				}
				if err == nil && e.Claim.Token != 0 {
					keep := time.Now().Add(time.Duration(n%5-2) * 20 * time.Millisecond)
					switch n % 3 {
					case 0:
						err = s.Release(ctx, e.Claim)
					case 1:
						rec := op(e.ID)
						if n%4 < 2 {
							rec.Created = e.Created
						}
						err = errors.Join(s.Replace(ctx, e.Claim, rec), s.Release(ctx, e.Claim))
					case 2:
						err = s.Settle(ctx, e.Claim, persist.Answer{State: persist.Succeeded, KeepBody: keep, KeepName: keep.Add(20 * time.Millisecond), Owed: n%2 == 0})
					}
				}
				if err == nil {
					var es []persist.Entry
					es, err = s.ClaimDue(ctx, 2)
					for _, e := range es {
						err = errors.Join(err, s.Settle(ctx, e.Claim, persist.Answer{State: persist.Succeeded}))
					}
				}
				if err == nil && n%10 == 0 {
					err = s.sweep(ctx)
				}
				if err != nil {
					failures.Store(i, err)
				}
			}
		})
	}
	all.Wait()
	failures.Range(func(_, err any) bool {
		t.Error(err)
		return true
	})
	s.wire.listen(nil)
	time.Sleep(250 * time.Millisecond) // what was settled is past its retention
	p.consistent(t)
	require.NoError(t, s.sweep(ctx))
	p.consistent(t)
	require.Zero(t, p.count(t, p.admin(t), "keep"))
}
