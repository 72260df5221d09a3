package redis

import (
	"context"
	"errors"
	"fmt"
	"net"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/samekey/samekey/persist"
	"github.com/samekey/samekey/persist/persisttest"
	"github.com/samekey/samekey/persist/persisttest/servertest"
)

func maybe(t *testing.T, err error) bool {
	t.Helper()
	var e *persist.Error
	require.ErrorAs(t, err, &e)
	return e.Maybe
}

// TestNetworkDown: what cannot have left is not Maybe.
func TestNetworkDown(t *testing.T) {
	t.Parallel()
	s := fresh(t).opened(t, func(o *Options) { o.RetryFor = 200 * time.Millisecond })
	s.wire.cut(true)
	require.Eventually(t, func() bool {
		_, err := s.Begin(t.Context(), op("a"))
		require.Error(t, err)
		return !maybe(t, err) // once the pool has no broken connection
	}, 20*time.Second, time.Millisecond)
}

// TestContextEnds: a call ends with its context though the server stands still, whatever the client's settings, and says
// what ended that: a client cancels the context of a call that nobody waits for any more, with the last caller's deadline
// as the cause.
func TestContextEnds(t *testing.T) {
	t.Parallel()
	srv := servertest.New(t, servertest.Redis)
	s := on(srv).opened(t, func(o *Options) { o.Lease = time.Minute })
	held, err := s.Begin(t.Context(), op("held"))
	require.NoError(t, err)
	s.free(t, op("free"))
	srv.Pause()
	defer srv.Resume()
	ref := op("free").Ref
	for method, call := range map[string]func(context.Context) error{
		"Begin":    func(ctx context.Context) error { _, err := s.Begin(ctx, op("new")); return err },
		"Claim":    func(ctx context.Context) error { _, err := s.Claim(ctx, ref); return err },
		"ClaimDue": func(ctx context.Context) error { _, err := s.ClaimDue(ctx, 3); return err },
		"Mark":     func(ctx context.Context) error { return s.Mark(ctx, held.Claim, held.Progress) },
		"Get":      func(ctx context.Context) error { _, err := s.Get(ctx, ref); return err },
		"Forget":   func(ctx context.Context) error { return s.Forget(ctx, ref) },
		"List": func(ctx context.Context) error {
			for _, err := range s.List(ctx, persist.Filter{}) {
				return err
			}
			return nil
		},
	} {
		ctx, cancel := context.WithCancelCause(t.Context())
		start := time.Now()
		time.AfterFunc(100*time.Millisecond, func() { cancel(context.DeadlineExceeded) })
		err := call(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded, method)
		require.ErrorIs(t, err, context.Canceled, method)
		require.Less(t, time.Since(start), resolveFor+1500*time.Millisecond, method)
		// Forget was still looking at what there is.
		require.Equal(t, method == "Begin" || method == "Mark", maybe(t, err), method)
		require.ErrorIs(t, call(ctx), context.DeadlineExceeded, method+", once it has ended")
	}
}

// TestRestart kills the server in the middle of everything.
func TestRestart(t *testing.T) {
	t.Parallel()
	srv := servertest.New(t, servertest.Redis)
	p := on(srv)
	s := p.opened(t, func(o *Options) { o.Lease = time.Minute })
	persisttest.Restarts(t, s, 3, func() {
		srv.Kill()
		time.Sleep(100 * time.Millisecond)
		srv.Restarted(t)
	})
	p.consistent(t)
}

// TestFencing: an owner past its lease changes nothing, be it claimed again or not, over two stores.
func TestFencing(t *testing.T) {
	t.Parallel()
	p := fresh(t)
	slow, other, ctx := p.opened(t, nil), p.opened(t, nil), t.Context()
	e, err := slow.Begin(ctx, op("op"))
	require.NoError(t, err)
	time.Sleep(slow.Lease() + 50*time.Millisecond)
	nothing := func() {
		t.Helper()
		require.ErrorIs(t, slow.Mark(ctx, e.Claim, persist.Progress{Attempts: 9}), persist.ErrClaimLost)
		for _, keep := range []time.Time{{}, time.Now().Add(time.Hour)} {
			require.ErrorIs(t, slow.Settle(ctx, e.Claim, persist.Answer{State: persist.Succeeded, KeepBody: keep}), persist.ErrClaimLost)
		}
		require.ErrorIs(t, slow.Replace(ctx, e.Claim, op("x")), persist.ErrClaimLost)
		require.ErrorIs(t, slow.Release(ctx, e.Claim), persist.ErrClaimLost)
	}
	nothing()
	taken, err := other.Claim(ctx, op("op").Ref)
	require.NoError(t, err)
	require.Greater(t, taken.Claim.Token, e.Claim.Token)
	nothing()
	require.NoError(t, slow.Close())
	require.NoError(t, other.Mark(ctx, taken.Claim, persist.Progress{Attempts: 2}), "Close frees one's own claims only")
}

// TestDataLost: a server that comes back without its data does not give out a token that was there before.
func TestDataLost(t *testing.T) {
	t.Parallel()
	p := on(servertest.New(t, servertest.Redis))
	s, ctx := p.opened(t, nil), t.Context()
	old, err := s.Begin(ctx, op("op"))
	require.NoError(t, err)
	require.NoError(t, p.admin(t).FlushAll(ctx).Err())
	require.NoError(t, p.admin(t).ScriptFlush(ctx).Err())
	e, err := s.Begin(ctx, op("op"))
	require.NoError(t, err)
	require.True(t, e.New)
	require.Greater(t, e.Claim.Token, old.Claim.Token)
	require.ErrorIs(t, s.Settle(ctx, old.Claim, persist.Answer{State: persist.Succeeded}), persist.ErrClaimLost)
	// Nor does one whose clock was set back: the counter holds.
	ahead := uint64(time.Now().Add(time.Hour).UnixMicro())
	require.NoError(t, p.admin(t).Set(ctx, s.o.key("token"), ahead, 0).Err())
	e, err = s.Begin(ctx, op("other"))
	require.NoError(t, err)
	require.Equal(t, ahead+1, e.Claim.Token)
}

// TestFull: a server whose memory is full refuses what is new, and lets go on what it has.
func TestFull(t *testing.T) {
	t.Parallel()
	p := on(servertest.New(t, servertest.Redis))
	s, ctx := p.opened(t, func(o *Options) { o.Lease, o.SweepEvery = time.Minute, -1 }), t.Context()
	var es []persist.Entry
	for i := range 5 {
		e, err := s.Begin(ctx, op(fmt.Sprint(i)))
		require.NoError(t, err)
		es = append(es, e)
	}
	s.free(t, op("due"))
	keep := time.Now().Add(300 * time.Millisecond)
	name, err := s.Begin(ctx, op("name"))
	require.NoError(t, err)
	require.NoError(t, s.Settle(ctx, name.Claim, persist.Answer{State: persist.Succeeded, KeepBody: keep, KeepName: keep.Add(time.Hour)}))
	require.NoError(t, p.admin(t).ConfigSet(ctx, "maxmemory", "1mb").Err())

	_, err = s.Begin(ctx, op("new"))
	require.ErrorIs(t, err, persist.ErrFull)
	require.False(t, maybe(t, err))
	_, err = s.Get(ctx, op("new").Ref)
	require.ErrorIs(t, err, persist.ErrNotFound)

	require.NoError(t, s.Mark(ctx, es[0].Claim, es[0].Progress))
	require.NoError(t, s.Settle(ctx, es[0].Claim, persist.Answer{State: persist.Succeeded}))
	require.NoError(t, s.Settle(ctx, es[1].Claim, persist.Answer{State: persist.Succeeded, Status: 200, Body: []byte("x"), KeepBody: time.Now().Add(time.Hour)}))
	require.NoError(t, s.Settle(ctx, es[2].Claim, persist.Answer{State: persist.Succeeded, KeepName: time.Now().Add(time.Hour)}))
	require.NoError(t, s.Release(ctx, es[3].Claim))
	require.NoError(t, s.Replace(ctx, es[4].Claim, op("4")))
	due, err := s.ClaimDue(ctx, 9)
	require.NoError(t, err)
	require.Len(t, due, 2)
	e, err := s.Claim(ctx, op("1").Ref)
	require.NoError(t, err)
	require.NoError(t, s.Release(ctx, e.Claim))
	require.NoError(t, s.Forget(ctx, op("1").Ref))
	time.Sleep(time.Until(keep) + 10*time.Millisecond)
	require.NoError(t, s.sweep(ctx))
	// A repeated try of what the server has done is one too.
	q := s.ask(releaseScript, s.turn(), hashOf(op("4").Ref), fmt.Sprint(es[4].Claim.Token))
	for lost := range 2 {
		q.args[1] = lost
		reply, err := q.script.run(ctx, s.Store.client, q.keys, q.args)
		require.NoError(t, err)
		require.Equal(t, "done", reply[0])
	}
	require.NoError(t, p.admin(t).ConfigSet(ctx, "maxmemory", "0").Err())
	_, err = s.Begin(ctx, op("new"))
	require.NoError(t, err)
	p.consistent(t)
}

// TestNotNow: a server that cannot serve for a moment is waited for; one that goes on so is no Maybe.
func TestNotNow(t *testing.T) {
	t.Parallel()
	p := on(servertest.New(t, servertest.Redis))
	primary := on(servertest.New(t, servertest.Redis))
	s, ctx, admin := p.opened(t, func(o *Options) { o.RetryFor = 20 * time.Second }), t.Context(), p.admin(t)
	impatient := p.opened(t, func(o *Options) { o.RetryFor = 100 * time.Millisecond })
	host, port, err := net.SplitHostPort(primary.addr)
	require.NoError(t, err)

	require.NoError(t, admin.SlaveOf(ctx, host, port).Err()) // a failover takes it for a replica, and then not
	_, err = impatient.Begin(ctx, op("replica"))
	require.Error(t, err)
	require.False(t, maybe(t, err))
	time.AfterFunc(300*time.Millisecond, func() { _ = admin.SlaveOf(context.Background(), "NO", "ONE").Err() })
	_, err = s.Begin(ctx, op("primary"))
	require.NoError(t, err)

	require.NoError(t, admin.ConfigSet(ctx, "min-replicas-to-write", "1").Err())
	_, err = impatient.Begin(ctx, op("alone"))
	require.ErrorContains(t, err, "NOREPLICAS")
	require.False(t, maybe(t, err))
	require.NoError(t, admin.ConfigSet(ctx, "min-replicas-to-write", "0").Err())

	require.NoError(t, admin.ConfigSet(ctx, "lua-time-limit", "20").Err())
	busy := make(chan error, 1)
	go func() {
		busy <- admin.Eval(context.Background(), `for i = 1, 30000000 do end return 1`, nil).Err()
	}()
	time.Sleep(50 * time.Millisecond)
	_, err = s.Begin(ctx, op("busy"))
	require.NoError(t, err)
	require.NoError(t, <-busy)
}

// TestProxy: an error that is no server's own, as of a proxy which has lost the answer, does not say that nothing has
// happened.
func TestProxy(t *testing.T) {
	t.Parallel()
	for _, says := range []string{"-upstream failure\r\n", "-ERR Connection timed out\r\n", "$-1\r\n"} {
		p, ctx := fresh(t), t.Context()
		forge := func(s *own) {
			_, err := s.Get(ctx, op("warm").Ref)
			require.ErrorIs(t, err, persist.ErrNotFound)
			s.wire.mu.Lock()
			defer s.wire.mu.Unlock()
			s.wire.instead = says
		}
		one := p.opened(t, func(o *Options) { o.Lease, o.RetryFor = time.Minute, -1 })
		several := p.opened(t, func(o *Options) { o.Lease = time.Minute })
		warm, err := one.Begin(ctx, op("warm")) // the scripts are known
		require.NoError(t, err)
		require.NoError(t, one.Mark(ctx, warm.Claim, warm.Progress))
		require.NoError(t, one.Settle(ctx, warm.Claim, persist.Answer{State: persist.Succeeded}))

		forge(one)
		_, err = one.Begin(ctx, op("withdrawn"))
		require.Error(t, err)
		require.False(t, maybe(t, err))
		_, err = one.Get(ctx, op("withdrawn").Ref)
		require.ErrorIs(t, err, persist.ErrNotFound)

		forge(several)
		e, err := several.Begin(ctx, op("again"))
		require.NoError(t, err)
		require.True(t, e.New)
		forge(several)
		require.NoError(t, several.Settle(ctx, e.Claim, persist.Answer{State: persist.Succeeded}))

		e, err = one.Begin(ctx, op("marked"))
		require.NoError(t, err)
		forge(one)
		require.True(t, maybe(t, one.Mark(ctx, e.Claim, e.Progress)))
	}
}

func TestFateOf(t *testing.T) {
	says := func(s string) error {
		return fmt.Errorf("x: %w", redisError(s))
	}
	for want, errs := range map[fate][]error{
		unknown: {errors.New("?"), context.Canceled, net.ErrClosed, &net.OpError{Op: "read", Err: errors.New("reset")}, says("upstream failure"), says("ERR Connection timed out")},
		failed:  {says("WRONGTYPE x"), says("ERR unknown command"), says("NOPERM x"), says("NOAUTH x"), says("ERR user_script:35: samekey-format 2 k script: f, on @user_script:35."), says("OOM command not allowed"), goredis.ErrClosed, says("MISCONF Errors writing to the AOF file: No space left on device")},
		again: {
			says("LOADING Redis is loading the dataset in memory"), says("READONLY You can't write"), says("TRYAGAIN x"), says("CLUSTERDOWN x"),
			says("MOVED 1 127.0.0.1:1"), says("MISCONF Redis is configured to save"), says("BUSY x"), says("ERR max number of clients reached"),
			says("ERR Error running script (call to f_1): @user_script:1: @user_script: 1: -READONLY You can't write against a read only replica."),
		},
		unsent: {goredis.ErrPoolTimeout, fmt.Errorf("x: %w", &net.OpError{Op: "dial", Err: errors.New("refused")})},
	} {
		for _, err := range errs {
			require.Equal(t, want, fateOf(err), err.Error())
		}
	}
	require.True(t, full(says("OOM command not allowed when used memory > 'maxmemory'.")))
	require.True(t, full(says("ERR Error running script (call to f_1): @user_script:1: @user_script: 1: -OOM command not allowed")))
	require.False(t, full(says("MISCONF Redis is configured to save")))
}

type redisError string

func (e redisError) Error() string { return string(e) }
func (redisError) RedisError()     {}
