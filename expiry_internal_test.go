package samekey

import (
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/samekey/samekey/persist"
)

// set is t as the wall would tell it had it been set by d meanwhile: the monotonic reading stays. Nothing in package time
// makes such a value but a clock that is set; its layout is held against what the package says of it.
func set(t *testing.T, at time.Time, d time.Duration) time.Time {
	t.Helper()
	moved := at.Add(d)
	type layout struct {
		wall uint64
		ext  int64
		loc  *time.Location
	}
	require.Equal(t, unsafe.Sizeof(layout{}), unsafe.Sizeof(at))
	(*layout)(unsafe.Pointer(&moved)).ext = (*layout)(unsafe.Pointer(&at)).ext
	require.Equal(t, d, moved.Round(0).Sub(at.Round(0)), "the wall moved")
	require.Zero(t, moved.Sub(at), "the monotonic clock did not")
	return moved
}

// TestKeyAgeAndTheClock: no jump of the clock, and no sleep of the machine, makes a key younger.
func TestKeyAgeAndTheClock(t *testing.T) {
	const jump = 6 * time.Hour
	start := time.Now()
	sent := persist.Progress{Attempts: 1, FirstSent: start.Round(0), Seen: start.Round(0)}
	for name, row := range map[string]struct {
		passed, set time.Duration
		want        time.Duration
	}{
		"no jump":             {2 * time.Hour, 0, 2 * time.Hour},
		"forward":             {2 * time.Hour, jump, 8 * time.Hour},
		"backward":            {2 * time.Hour, -jump, 2 * time.Hour},
		"backward, much time": {10 * time.Hour, -jump, 10 * time.Hour},
		// A suspended machine stops the monotonic clock, and the wall tells how long it slept.
		"suspended": {0, jump, jump},
	} {
		now := set(t, start.Add(row.passed), row.set)
		age := newKeyAge(sent, start)
		require.Equal(t, row.want, age.at(now), name)

		// What the record bears then, and another process, an hour later by the same clock, makes of it.
		first, seen := age.anchor(now)
		later := now.Add(time.Hour).Round(0)
		next := newKeyAge(persist.Progress{FirstSent: first, Seen: seen}, later)
		require.GreaterOrEqual(t, next.at(later), row.want+time.Hour, name)
		if row.set == 0 {
			require.Equal(t, sent.FirstSent, first, name)
		}
		require.False(t, seen.Before(first), name)
		// Set by as much again before the next process starts: it is as old as it was known to be, at least.
		for _, d := range []time.Duration{-jump, jump} {
			restarted := now.Add(d).Round(0)
			require.GreaterOrEqual(t, newKeyAge(persist.Progress{FirstSent: first, Seen: seen}, restarted).at(restarted), row.want, "%s, then %v", name, d)
		}
	}
}

// TestClockThatIsSetBack: a later call of the same process takes the operation up; only the record knows of the first.
func TestClockThatIsSetBack(t *testing.T) {
	const jump = 6 * time.Hour
	start := time.Now()
	c := &core{}
	sent := persist.Progress{Attempts: 1, FirstSent: start.Round(0), Seen: start.Round(0)}
	age := func(p persist.Progress, now time.Time) time.Duration { return c.ageOf(p, now).at(now) }
	require.Zero(t, age(sent, start))
	now := set(t, start.Add(10*time.Hour), 0)
	require.Equal(t, 10*time.Hour, age(sent, now))
	now = set(t, start.Add(12*time.Hour), -jump)
	require.Equal(t, 12*time.Hour, age(sent, now), "the wall says 6 h")
	require.Equal(t, 12*time.Hour, age(sent, now), "looking twice changes nothing")
	now = set(t, start.Add(13*time.Hour), -2*jump)
	require.Equal(t, 13*time.Hour, age(sent, now), "set back a second time")

	fresh := persist.Progress{Attempts: 1, FirstSent: start.Add(40 * time.Hour).Round(0), Seen: start.Add(40 * time.Hour).Round(0)}
	now = set(t, start.Add(54*time.Hour), -2*jump)
	require.Equal(t, 2*time.Hour, age(fresh, now), "sent when the clock had passed where it was set back from")
	require.Equal(t, 54*time.Hour, age(sent, now))

	forward := &core{}
	require.Zero(t, forward.ageOf(sent, start).at(start))
	now = set(t, start.Add(time.Hour), jump)
	require.Equal(t, 7*time.Hour, forward.ageOf(sent, now).at(now), "a clock that was set forward only makes keys older")
	require.Equal(t, time.Duration(0), forward.clock.back)
}
