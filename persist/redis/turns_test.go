package redis

import (
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

	q = s.ask(forgetScript, s.turn(), hash)
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
