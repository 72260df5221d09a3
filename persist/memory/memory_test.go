package memory_test

import (
	"context"
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/samekey/samekey/persist"
	"github.com/samekey/samekey/persist/memory"
	"github.com/samekey/samekey/persist/persisttest"
)

func TestConformance(t *testing.T) {
	persisttest.Run(t, persisttest.Harness{
		New: func(testing.TB) func() (persist.Store, error) {
			return func() (persist.Store, error) { return memory.New(), nil }
		},
		Bubble: true,
	})
}

// TestSweep: what has left the store, or has expired unseen, is not kept in memory for ever.
func TestSweep(t *testing.T) {
	ctx := t.Context()
	s := memory.New()
	for i := range 10_000 {
		e, err := s.Begin(ctx, record(i))
		require.NoError(t, err)
		a := persist.Answer{State: persist.Succeeded, Status: 200}
		if i%2 == 0 {
			a.KeepName = time.Now().Add(time.Microsecond)
		}
		require.NoError(t, s.Settle(ctx, e.Claim, a))
	}
	ops, order := memory.Sizes(s)
	require.Less(t, ops, 1000)
	require.Less(t, order, 1000)
}

// TestAllocations bounds what an anonymous command costs in the store: record, header, body, and little else.
func TestAllocations(t *testing.T) {
	s := memory.New()
	i := 0
	n := testing.AllocsPerRun(1000, func() { i++; command(t, s, i) })
	require.LessOrEqual(t, n, 8.0)
}

func BenchmarkBeginSettle(b *testing.B) {
	s := memory.New()
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		command(b, s, i)
	}
}

func command(t testing.TB, s persist.Store, i int) {
	ctx := context.Background()
	e, err := s.Begin(ctx, record(i))
	if err == nil {
		err = s.Settle(ctx, e.Claim, persist.Answer{State: persist.Succeeded, Status: 200, Lazy: true})
	}
	if err != nil {
		t.Fatal(err)
	}
}

var header = http.Header{"Content-Type": {"application/json"}, "Idempotency-Key": {"k"}}

func record(i int) persist.Record {
	id := strconv.Itoa(i)
	return persist.Record{
		Ref: persist.Ref{ID: id}, Created: time.Now(), Key: id, Method: "POST", Target: "https://bank.test/v1/payments",
		Header: header, Body: []byte(`{"amount":100}`), Progress: persist.Progress{Attempts: 1},
	}
}
