package flight_test

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/samekey/samekey/internal/flight"
)

type (
	group = flight.Group[string, string]
	call  = flight.Call[string]
)

func joinAll(any) error { return nil }

// caller is one that asks, in a goroutine of its own.
type caller struct {
	v     string
	first bool
	err   error
	done  chan struct{}
}

func ask(g *group, ctx context.Context, run func(context.Context, *call) string) *caller {
	c := &caller{done: make(chan struct{})}
	go func() {
		defer close(c.done)
		c.v, c.first, c.err = g.Do(ctx, "key", nil, joinAll, run)
	}()
	return c
}

func (c *caller) returned() bool {
	synctest.Wait()
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}

// sleeps runs for d, or until its context ends.
func sleeps(d time.Duration) func(context.Context, *call) string {
	return func(ctx context.Context, _ *call) string {
		select {
		case <-time.After(d):
			return "done"
		case <-ctx.Done():
			return context.Cause(ctx).Error()
		}
	}
}

func TestOneCallForAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g group
		var runs atomic.Int32
		run := func(ctx context.Context, c *call) string {
			runs.Add(1)
			return sleeps(time.Second)(ctx, c)
		}
		var callers []*caller
		for range 10 {
			callers = append(callers, ask(&g, t.Context(), run))
			synctest.Wait()
		}
		for i, c := range callers {
			<-c.done
			require.NoError(t, c.err)
			require.Equal(t, "done", c.v)
			require.Equal(t, i == 0, c.first)
		}
		require.Equal(t, int32(1), runs.Load())

		// The next one is a call of its own.
		v, first, err := g.Do(t.Context(), "key", nil, joinAll, run)
		require.NoError(t, err)
		require.True(t, first)
		require.Equal(t, "done", v)
		require.Equal(t, int32(2), runs.Load())
	})
}

func TestKeysDoNotMeet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g group
		var wg sync.WaitGroup
		for _, key := range []string{"a", "b"} {
			wg.Go(func() {
				_, first, err := g.Do(t.Context(), key, nil, joinAll, sleeps(time.Second))
				require.NoError(t, err)
				require.True(t, first)
			})
		}
		wg.Wait()
	})
}

// TestTheCallHasALifeOfItsOwn: it goes on while anyone waits, under the first caller's values but not its end.
func TestTheCallHasALifeOfItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		type valueKey struct{}
		var g group
		ctx1, leave1 := context.WithCancel(context.WithValue(t.Context(), valueKey{}, "mine"))
		one := ask(&g, ctx1, func(ctx context.Context, c *call) string {
			_, has := ctx.Deadline()
			require.False(t, has)
			require.Equal(t, "mine", ctx.Value(valueKey{}))
			return sleeps(time.Second)(ctx, c)
		})
		synctest.Wait()
		two := ask(&g, t.Context(), nil)
		synctest.Wait()
		leave1()
		require.True(t, one.returned())
		require.ErrorIs(t, one.err, flight.ErrLeft)
		require.True(t, one.first)
		require.False(t, two.returned())
		<-two.done
		require.NoError(t, two.err)
		require.Equal(t, "done", two.v)
	})
}

// TestTheLastToLeaveEndsIt, with its own cause, and gets what the call makes of that.
func TestTheLastToLeaveEndsIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g group
		errOne, errTwo := errors.New("one"), errors.New("two")
		ctx1, leave1 := context.WithCancelCause(t.Context())
		ctx2, leave2 := context.WithCancelCause(t.Context())
		ended := make(chan struct{})
		one := ask(&g, ctx1, func(ctx context.Context, _ *call) string {
			<-ctx.Done()
			time.Sleep(time.Second) // its last words
			close(ended)
			return context.Cause(ctx).Error()
		})
		synctest.Wait()
		two := ask(&g, ctx2, nil)
		synctest.Wait()
		leave1(errOne)
		require.True(t, one.returned())
		leave2(errTwo)
		require.False(t, two.returned(), "it waits for the call's end")
		<-two.done
		<-ended
		require.NoError(t, two.err)
		require.Equal(t, "two", two.v)
	})
}

// TestACallStaysUntilItHasEnded: one who comes while it ends waits, and makes the next one; two never overlap.
func TestACallStaysUntilItHasEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g group
		var running, runs atomic.Int32
		run := func(ctx context.Context, _ *call) string {
			require.Equal(t, int32(1), running.Add(1), "two at once")
			defer running.Add(-1)
			runs.Add(1)
			select {
			case <-ctx.Done():
				time.Sleep(time.Second)
			case <-time.After(time.Minute):
			}
			return "done"
		}
		ctx, leave := context.WithCancel(t.Context())
		one := ask(&g, ctx, run)
		synctest.Wait()
		leave()
		synctest.Wait()
		two := ask(&g, t.Context(), run)
		impatient, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		three := ask(&g, impatient, run)
		<-three.done
		require.ErrorIs(t, three.err, context.DeadlineExceeded)
		require.False(t, three.first)
		<-one.done
		require.False(t, two.returned())
		require.Equal(t, int32(2), runs.Load())
		<-two.done
		require.True(t, two.first)
		require.NoError(t, two.err)
	})
}

// TestCauses: what ended the last caller is what the call is told, and no deadline passes for a cancel.
func TestCauses(t *testing.T) {
	errMine := errors.New("mine")
	for name, tt := range map[string]struct {
		ctx       func(context.Context) (context.Context, context.CancelFunc)
		is, isNot error
	}{
		"cancel": {func(ctx context.Context) (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancel(ctx)
			time.AfterFunc(time.Second, cancel)
			return ctx, cancel
		}, context.Canceled, context.DeadlineExceeded},
		"cancel with a cause": {func(ctx context.Context) (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancelCause(ctx)
			time.AfterFunc(time.Second, func() { cancel(errMine) })
			return ctx, func() { cancel(nil) }
		}, errMine, context.DeadlineExceeded},
		"deadline": {func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithTimeout(ctx, time.Second)
		},
			context.DeadlineExceeded, context.Canceled},
		"deadline with a cause": {func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithTimeoutCause(ctx, time.Second, errMine)
		}, context.DeadlineExceeded, context.Canceled},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var g group
				ctx, cancel := tt.ctx(t.Context())
				defer cancel()
				var cause error
				_, _, err := g.Do(ctx, "key", nil, joinAll, func(ctx context.Context, _ *call) string {
					<-ctx.Done()
					cause = context.Cause(ctx)
					return ""
				})
				require.NoError(t, err)
				require.ErrorIs(t, cause, tt.is)
				require.NotErrorIs(t, cause, tt.isNot)
				if name == "deadline with a cause" {
					require.ErrorIs(t, cause, errMine)
				}
			})
		})
	}
}

// TestDeadlineIsThatOfWhoWaitsLongest.
func TestDeadlineIsThatOfWhoWaitsLongest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g group
		var c atomic.Pointer[call]
		run := func(ctx context.Context, own *call) string {
			c.Store(own)
			return sleeps(time.Minute)(ctx, own)
		}
		start := time.Now()
		deadline := func() (time.Duration, bool) {
			at, ok := c.Load().Deadline()
			if !ok {
				return 0, false
			}
			return at.Sub(start), true
		}
		ctx1, cancel1 := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel1()
		ctx2, cancel2 := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel2()
		ctx3, cancel3 := context.WithCancel(t.Context())
		defer cancel3()
		ask(&g, ctx1, run)
		synctest.Wait()
		d, ok := deadline()
		require.True(t, ok)
		require.Equal(t, 10*time.Second, d)
		two := ask(&g, ctx2, nil)
		synctest.Wait()
		d, _ = deadline()
		require.Equal(t, 20*time.Second, d)
		ask(&g, ctx3, nil)
		synctest.Wait()
		_, ok = deadline()
		require.False(t, ok, "somebody waits without end")
		cancel3()
		synctest.Wait()
		d, _ = deadline()
		require.Equal(t, 20*time.Second, d)
		<-two.done
		require.Equal(t, 20*time.Second, time.Since(start))
		require.Equal(t, context.DeadlineExceeded.Error(), two.v)
	})
}

func TestJoinMayRefuse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g group
		errOther := errors.New("another payload")
		done := make(chan struct{})
		go func() {
			defer close(done)
			v, _, err := g.Do(t.Context(), "key", "mine", joinAll, sleeps(time.Second))
			require.NoError(t, err)
			require.Equal(t, "done", v)
		}()
		synctest.Wait()
		_, first, err := g.Do(t.Context(), "key", "yours", func(data any) error {
			require.Equal(t, "mine", data)
			return errOther
		}, nil)
		require.ErrorIs(t, err, errOther)
		require.False(t, first)
		<-done
	})
}

// TestOrphan: a result whose maker does not get it is told of once, whoever else does.
func TestOrphan(t *testing.T) {
	for _, tt := range []struct {
		name          string
		first, second time.Duration // when they leave; 0: never
		orphans       int
	}{
		{"both stay", 0, 0, 0},
		{"the maker leaves", time.Second, 0, 1},
		{"the other leaves", 0, time.Second, 0},
		{"the maker leaves first", time.Second, 2 * time.Second, 1},
		{"the maker leaves last", 2 * time.Second, time.Second, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var orphans []string
				g := group{Orphan: func(v string) { orphans = append(orphans, v) }}
				ctx := func(d time.Duration) context.Context {
					ctx, cancel := context.WithCancel(t.Context())
					t.Cleanup(cancel)
					if d > 0 {
						time.AfterFunc(d, cancel)
					}
					return ctx
				}
				one := ask(&g, ctx(tt.first), sleeps(5*time.Second))
				synctest.Wait()
				two := ask(&g, ctx(tt.second), nil)
				<-one.done
				<-two.done
				require.Len(t, orphans, tt.orphans)
			})
		})
	}
}

// TestPanic reaches every caller, where it can be contained, and the key is free again.
func TestPanic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g group
		var caught atomic.Int32
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				defer func() {
					if recover() == "boom" {
						caught.Add(1)
					}
				}()
				_, _, _ = g.Do(t.Context(), "key", nil, joinAll, func(context.Context, *call) string {
					time.Sleep(time.Second)
					panic("boom")
				})
			})
			synctest.Wait()
		}
		wg.Wait()
		require.Equal(t, int32(3), caught.Load())
		v, _, err := g.Do(t.Context(), "key", nil, joinAll, sleeps(0))
		require.NoError(t, err)
		require.Equal(t, "done", v)
	})
}

// TestGoexit: a call that ends its goroutine (t.FailNow in a hook) is no result, and ends those of its callers.
func TestGoexit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g group
		returned := false
		done := make(chan struct{})
		go func() {
			defer close(done)
			_, _, _ = g.Do(t.Context(), "key", nil, joinAll, func(context.Context, *call) string {
				runtime.Goexit()
				return "never"
			})
			returned = true
		}()
		<-done
		require.False(t, returned)
		v, _, err := g.Do(t.Context(), "key", nil, joinAll, sleeps(0))
		require.NoError(t, err)
		require.Equal(t, "done", v)
	})
}

// TestManyComeAndGo under the race detector.
func TestManyComeAndGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g group
		var running atomic.Int32
		run := func(ctx context.Context, c *call) string {
			require.Equal(t, int32(1), running.Add(1))
			defer running.Add(-1)
			return sleeps(7*time.Millisecond)(ctx, c)
		}
		var wg sync.WaitGroup
		for i := range 200 {
			wg.Go(func() {
				time.Sleep(time.Duration(i%13) * time.Millisecond)
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(1+i%11)*time.Millisecond)
				defer cancel()
				_, _, err := g.Do(ctx, "key", nil, joinAll, run)
				if err != nil && !errors.Is(err, flight.ErrLeft) && !errors.Is(err, context.DeadlineExceeded) {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		require.Zero(t, running.Load())
	})
}

// TestJoined: whoever runs a call can tell that another one has come to wait for it, whenever he asks.
func TestJoined(t *testing.T) {
	for _, late := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			var g flight.Group[string, int]
			goOn := make(chan struct{})
			var told atomic.Bool
			run := func(_ context.Context, c *flight.Call[int]) int {
				if late {
					<-goOn
				}
				<-c.Joined()
				told.Store(true)
				return 1
			}
			var wg sync.WaitGroup
			do := func() {
				v, _, err := g.Do(t.Context(), "k", nil, func(any) error { return nil }, run)
				require.NoError(t, err)
				require.Equal(t, 1, v)
			}
			wg.Go(do)
			synctest.Wait()
			require.False(t, told.Load())
			if late {
				wg.Go(do)
				wg.Go(do)
				synctest.Wait()
				require.False(t, told.Load())
				close(goOn)
			} else {
				wg.Go(do)
			}
			wg.Wait()
			require.True(t, told.Load())
		})
	}
}
