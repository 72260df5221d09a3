package sealed_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/samekey/samekey/persist"
	"github.com/samekey/samekey/persist/memory"
	"github.com/samekey/samekey/persist/sealed"
)

// open makes a pending operation that nobody holds, the i-th by age.
func open(t *testing.T, s persist.Store, i int, id string) persist.Ref {
	t.Helper()
	r := full(id)
	r.Answer, r.Progress.NotBefore, r.Created = nil, time.Time{}, r.Created.Add(time.Duration(i))
	e, err := s.Begin(t.Context(), r)
	require.NoError(t, err)
	require.NoError(t, s.Release(t.Context(), e.Claim))
	return r.Ref
}

// unopened checks that err is about an operation sealed under k1, which is not there.
func unopened(t *testing.T, err error, method string, ref persist.Ref) {
	t.Helper()
	var own *persist.Error
	require.ErrorAs(t, err, &own)
	require.Equal(t, []any{"sealed", method, ref, false}, []any{own.Store, own.Method, own.Ref, own.Maybe})
	var open *sealed.OpenError
	require.ErrorAs(t, err, &open)
	require.ErrorIs(t, err, sealed.ErrNoKey)
	require.Equal(t, "k1", open.KeyID)
}

// TestOthersGoOn: operations that do not open are told of, hold nothing up, and are held by nobody.
func TestOthersGoOn(t *testing.T) {
	ctx, inner := t.Context(), memory.New()
	was, both := sealer(t, true, "k1").Store(inner), sealer(t, true, "k2", "k1").Store(inner)
	var log bytes.Buffer
	renewed, err := sealed.New(sealed.Options{Keys: []sealed.Key{key("k2")}, Strict: true, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	require.NoError(t, err)
	s := renewed.Store(inner)
	var bad []persist.Ref
	for i := range 5 {
		bad = append(bad, open(t, was, i, fmt.Sprint("bad-", i)))
	}
	for i := range 3 {
		open(t, both, 10+i, fmt.Sprint("good-", i))
	}
	claimDue := func(s persist.Store) (ids []string) {
		t.Helper()
		es, err := s.ClaimDue(ctx, 1)
		require.NoError(t, err)
		for _, e := range es {
			require.NoError(t, s.Mark(ctx, e.Claim, e.Progress))
			ids = append(ids, e.ID)
		}
		return ids
	}
	require.Equal(t, []string{"good-0"}, claimDue(s), "the oldest ones are passed over")
	_, err = s.Claim(ctx, bad[0])
	unopened(t, err, "Claim", bad[0])
	require.NoError(t, s.Forget(ctx, bad[4]), "it needs no key")
	require.Equal(t, []string{"good-1"}, claimDue(s))
	require.Equal(t, []string{"good-2"}, claimDue(s))
	_, err = inner.Claim(ctx, bad[1])
	require.ErrorIs(t, err, persist.ErrBusy, "kept, as long as there are others")
	require.Empty(t, claimDue(s))
	require.Equal(t, []string{"bad-0"}, claimDue(both), "one who has the key gets them")

	_, err = s.Get(ctx, bad[1])
	unopened(t, err, "Get", bad[1])
	_, err = s.Begin(ctx, full("bad-1"))
	require.Error(t, err, "memory refuses an answer")
	again := full("bad-1")
	again.Answer = nil
	_, err = s.Begin(ctx, again)
	unopened(t, err, "Begin", bad[1])
	require.Equal(t, []string{"bad-1"}, claimDue(both), "Begin has not kept the claim")

	var listed []string
	var end error
	for r, err := range s.List(ctx, persist.Filter{}) {
		require.NoError(t, end, "an error ends it")
		if end = err; err == nil {
			listed = append(listed, r.ID)
		}
	}
	require.Equal(t, []string{"good-0", "good-1", "good-2"}, listed)
	unopened(t, end, "List", bad[0])
	for range s.List(ctx, persist.Filter{}) {
		break // what is listed may be left early
	}

	require.Equal(t, 5, strings.Count(log.String(), "does not open"), "each once:\n%s", &log)
	for _, ref := range bad {
		require.Contains(t, log.String(), "id="+ref.ID+" ")
	}
	require.Contains(t, log.String(), "k1")
	require.NotContains(t, log.String(), secret)
}

// TestLogHidesKeys: the ID of an operation that nobody has named is its key.
func TestLogHidesKeys(t *testing.T) {
	var log bytes.Buffer
	s, err := sealed.New(sealed.Options{Keys: []sealed.Key{key("k2")}, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	require.NoError(t, err)
	inner := memory.New()
	r := full("7c9e6679-7425-40de-944b-e07fc1f90ae7")
	r.Named, r.Answer, r.Progress.NotBefore = false, nil, time.Time{}
	e, err := sealer(t, true, "k1").Store(inner).Begin(t.Context(), r)
	require.NoError(t, err)
	require.NoError(t, inner.Release(t.Context(), e.Claim))
	es, err := s.Store(inner).ClaimDue(t.Context(), 9)
	require.NoError(t, err)
	require.Empty(t, es)
	require.Contains(t, log.String(), "7c9e6679…0ae7")
	require.NotContains(t, log.String(), r.ID)
}

// forgetful is a store whose claims lapse at once.
type forgetful struct{ persist.Store }

func (f forgetful) Lease() time.Duration { return 0 }

func (f forgetful) ClaimDue(ctx context.Context, n int) ([]persist.Entry, error) {
	es, err := f.Store.ClaimDue(ctx, n)
	for _, e := range es {
		_ = f.Release(ctx, e.Claim)
	}
	return es, err
}

func (f forgetful) Wake(context.Context) <-chan struct{} {
	woken := make(chan struct{}, 1)
	woken <- struct{}{}
	return woken
}

// TestLapsed: a claim that lapses while it is kept does not make ClaimDue go round for ever.
func TestLapsed(t *testing.T) {
	inner := memory.New()
	open(t, sealer(t, true, "k1").Store(inner), 0, "bad")
	s := sealer(t, true, "k2").Store(forgetful{inner})
	for range 3 {
		es, err := s.ClaimDue(t.Context(), 2)
		require.NoError(t, err)
		require.Empty(t, es)
	}
}

// TestInnerAbilities: the client finds what the inner store can do, and no more.
func TestInnerAbilities(t *testing.T) {
	type waker interface {
		Wake(context.Context) <-chan struct{}
	}
	s := sealer(t, true, "k1")
	plain, able := s.Store(memory.New()), s.Store(forgetful{memory.New()})
	_, is := plain.(persist.Leaser)
	require.False(t, is)
	require.Nil(t, plain.(waker).Wake(t.Context()))
	l, is := able.(persist.Leaser)
	require.True(t, is)
	require.Zero(t, l.Lease())
	require.Len(t, able.(waker).Wake(t.Context()), 1)
}

// TestLeavesNothing: an answer that is not kept is not even given to the inner store.
func TestLeavesNothing(t *testing.T) {
	spy := &spy{Store: memory.New()}
	s := sealer(t, true, "k1").Store(spy)
	r := full("op")
	r.Answer = nil
	e, err := s.Begin(t.Context(), r)
	require.NoError(t, err)
	require.NoError(t, s.Settle(t.Context(), e.Claim, persist.Answer{State: persist.Succeeded, Status: 201, Body: []byte(secret), Lazy: true}))
	require.Equal(t, []persist.Answer{{State: persist.Succeeded, Status: 201, Lazy: true}}, spy.settled)
}

type spy struct {
	persist.Store
	settled []persist.Answer
}

func (s *spy) Settle(ctx context.Context, c persist.Claim, a persist.Answer) error {
	s.settled = append(s.settled, a)
	return s.Store.Settle(ctx, c, a)
}
