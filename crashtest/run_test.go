package crashtest_test

import (
	"os/exec"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/samekey/samekey/crashtest"
)

// twiceChild passes a step of its own twice.
func twiceChild() error {
	for range 2 {
		crashtest.Reached("a/step")
		crashtest.Ack("passed")
	}
	return nil
}

func hangChild() error {
	crashtest.Ack("here")
	select {}
}

// failure is a TB that notes that it failed.
type failure struct {
	testing.TB
	failed bool
}

func (f *failure) Fatalf(string, ...any) { f.failed = true; panic(f) }

func fails(t *testing.T, f func(tb crashtest.TB)) {
	t.Helper()
	tb := &failure{TB: t}
	func() {
		defer func() {
			if v := recover(); v != nil && v != any(tb) {
				panic(v)
			}
		}()
		f(tb)
	}()
	require.True(t, tb.failed)
}

func TestPoints(t *testing.T) {
	all := crashtest.Points()
	for _, name := range []string{"begin", "begun", "attempt", "connected", "header written", "body written", "first byte", "attempt done", "wait", "outcome", "settled", "handler", "recovered"} {
		require.Contains(t, all, name)
	}
	require.NotContains(t, all, "invalid")
	require.Len(t, slices.Compact(slices.Sorted(slices.Values(all))), len(all))
}

func TestLives(t *testing.T) {
	for point, acks := range map[string]int{"a/step": 0, "a/step/1": 0, "a/step/2": 1} {
		life := crashtest.Run(t, point, crashtest.Child("twice"))
		require.True(t, life.Killed, point)
		require.Len(t, life.Acks(), acks, point)
	}
	for _, point := range []string{"", "a/step/3", "a/step/0", "a", "step"} {
		life := crashtest.Run(t, point, crashtest.Child("twice"))
		require.False(t, life.Killed, point)
		require.Len(t, life.Acks(), 2, point)
		require.Zero(t, life.Code)
	}
	require.Equal(t, []string{"a/step", "a/step/2"}, crashtest.Passed(t, crashtest.Child("twice")))

	life := crashtest.Run(t, "", crashtest.Child("nobody"))
	require.Equal(t, 2, life.Code)
	require.Contains(t, life.Stderr, "nobody")
	p := crashtest.Start(t, "", crashtest.Child("hang"))
	p.Kill()
	require.True(t, p.Wait().Killed)
	require.True(t, p.Wait().Killed, "a second word is the same")

	cmd := crashtest.Child("twice")
	cmd.Path = t.TempDir() + "/none"
	fails(t, func(tb crashtest.TB) { crashtest.Run(tb, "", cmd) })
	fails(t, func(tb crashtest.TB) { crashtest.Passed(tb, crashtest.Child("nobody")) })
	fails(t, func(tb crashtest.TB) { crashtest.Passed(tb, crashtest.Child("silent")) })
}

// TestEachNeedsItsPoint: a point that is not passed tests nothing, and says so.
func TestEachNeedsItsPoint(t *testing.T) {
	var checked int
	each := func(tb *sub, point string) {
		crashtest.Each(tb, []string{point}, func(*sub, string) crashtest.Case {
			return crashtest.Case{
				Command: func() *exec.Cmd { return crashtest.Child("twice") },
				Check: func(lives []crashtest.Life) {
					checked += len(lives)
				},
			}
		})
	}
	each(&sub{failure: &failure{TB: t}}, "a/step then a/step/2")
	require.Equal(t, 3, checked)
	fails(t, func(tb crashtest.TB) { each(&sub{failure: tb.(*failure)}, "another step") })
	require.Equal(t, 3, checked)
}

// sub runs its subtests in place.
type sub struct{ *failure }

func (s *sub) Run(_ string, f func(*sub)) bool { f(s); return !s.failed }
