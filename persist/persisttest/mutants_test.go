package persisttest

import (
	"fmt"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// mutant is a store that breaks the rule named, and is to be caught by it.
type mutant struct {
	rule, flaw string
	h          Harness
}

func mutants() []mutant {
	var all []mutant
	add := func(rule, flaw string, change func(*bent)) {
		all = append(all, mutant{rule, flaw, inMemory(bend(change))})
	}
	mutantsOfBegin(add)
	mutantsOfClaims(add)
	mutantsOfChanges(add)
	mutantsOfSettle(add)
	mutantsOfReads(add)
	mutantsOfCalls(add)
	return append(all, mutantsOfPlaces()...)
}

// TestMutants: each rule catches the stores that are made to break it, and there is one at least for each.
func TestMutants(t *testing.T) {
	patience = 300 * time.Millisecond
	t.Cleanup(func() { patience = time.Minute })
	caught := map[string]bool{}
	for _, m := range mutants() {
		t.Run(m.rule+": "+m.flaw, func(t *testing.T) {
			at := slices.IndexFunc(rules(), func(r rule) bool { return r.name == m.rule })
			require.GreaterOrEqual(t, at, 0, "no such rule")
			r := rules()[at]
			require.Empty(t, m.h.lacks(r))
			m.h.Seed = 7
			rec := &recorder{}
			r.run = rec.around(r.run)
			m.h.check(t, r, func(t testing.TB) testing.TB { rec.TB = t; return rec })
			require.NotEmpty(t, rec.failure, "nobody noticed")
			t.Log(rec.failure)
			caught[m.rule] = true
		})
	}
	for _, r := range rules() {
		require.True(t, caught[r.name], "no mutant shows that %q can fail", r.name)
	}
}

// recorder takes the failures of a rule instead of its test.
type recorder struct {
	testing.TB
	failure string
}

// around lets run end at its first failure, as it would end its test.
func (r *recorder) around(run func(*place)) func(*place) {
	return func(p *place) {
		done := make(chan struct{})
		go func() { defer close(done); run(p) }()
		<-done
	}
}

func (r *recorder) Helper()                           {}
func (r *recorder) Errorf(format string, args ...any) { r.failure += fmt.Sprintf(format, args...) }
func (r *recorder) FailNow()                          { runtime.Goexit() }

func (r *recorder) Fatalf(format string, args ...any) {
	r.Errorf(format, args...)
	r.FailNow()
}

func (r *recorder) Fatal(args ...any) {
	r.failure += fmt.Sprint(args...)
	r.FailNow()
}

// adder adds a mutant of package memory.
type adder func(rule, flaw string, change func(*bent))
