package samekey_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/samekey/samekey"
	"github.com/samekey/samekey/mockserver"
	"github.com/samekey/samekey/persist"
)

// shift rewrites what the store says as it looks once the machine's clock has been set by d: what is on disk is now by so
// much nearer or further away.
func shift(t *testing.T, store persist.Store, id string, d time.Duration) {
	t.Helper()
	e, err := store.Claim(t.Context(), samekey.Ref{ID: id})
	require.NoError(t, err)
	p := e.Progress
	p.FirstSent, p.Seen = p.FirstSent.Add(-d), p.Seen.Add(-d)
	if !p.NotBefore.IsZero() {
		p.NotBefore = p.NotBefore.Add(-d)
	}
	require.NoError(t, store.Mark(t.Context(), e.Claim, p))
	require.NoError(t, store.Release(t.Context(), e.Claim))
}

// TestClockSetBetweenProcesses: jumps of 6 h both ways between the end of one process and the start of the next. That of
// a clock within a process is TestKeyAgeAndTheClock.
func TestClockSetBetweenProcesses(t *testing.T) {
	const jump, life = 6 * time.Hour, 24 * time.Hour
	policy := samekey.Policy{MaxAttempts: 1, Contract: &samekey.Contract{Life: life}}
	leave := func(t *testing.T, l *lab) {
		l.Fault(mockserver.Fault{When: mockserver.AfterCommit, Do: mockserver.Drop, Times: 1})
		c := l.client(t, samekey.Config{Default: policy})
		_, err := c.Do(pay(t, t.Context(), "op"))
		require.ErrorIs(t, err, samekey.ErrUnknown)
		require.NoError(t, c.Close())
	}
	ways := map[string]func(t *testing.T, c *samekey.Client) error{
		"Do": func(t *testing.T, c *samekey.Client) error { _, err := c.Do(pay(t, t.Context(), "op")); return err },
		"Resume": func(t *testing.T, c *samekey.Client) error {
			_, err := c.Resume(t.Context(), samekey.Ref{ID: "op"})
			return err
		},
		"Recover": func(t *testing.T, c *samekey.Client) error {
			report, err := c.Recover(t.Context(), samekey.Recovery{Jitter: -1})
			if err == nil && (report == samekey.Report{Pending: 1, Expired: 1} || report == samekey.Report{}) { // not due yet, by the clock
				err = samekey.ErrExpired
			}
			return err
		},
	}
	for found, first := range ways {
		for tried, second := range ways {
			t.Run("back, once it was found expired by "+found+", for "+tried, func(t *testing.T) {
				inLab(t, mockserver.Config{}, func(t *testing.T, l *lab) {
					leave(t, l)
					time.Sleep(life + time.Hour)
					c := l.client(t, samekey.Config{Default: policy})
					require.ErrorIs(t, first(t, c), samekey.ErrExpired)
					require.NoError(t, c.Close())
					shift(t, l.store, "op", -jump)
					for range 2 {
						time.Sleep(time.Minute)
						c = l.client(t, samekey.Config{Default: policy})
						require.ErrorIs(t, second(t, c), samekey.ErrExpired)
						require.NoError(t, c.Close())
					}
					require.Len(t, l.Requests(), 1, "nothing goes out under it any more")
				})
			})
		}
	}
	t.Run("back, and time goes on", func(t *testing.T) {
		inLab(t, mockserver.Config{TTL: life}, func(t *testing.T, l *lab) {
			leave(t, l)
			time.Sleep(10 * time.Hour)
			l.Fault(mockserver.Fault{Do: mockserver.Status(503, false), Times: 1})
			c := l.client(t, samekey.Config{Default: policy})
			_, err := c.Do(pay(t, t.Context(), "op")) // 10 h are noted
			require.ErrorIs(t, err, samekey.ErrUnknown)
			require.NoError(t, c.Close())
			shift(t, l.store, "op", -jump)
			time.Sleep(time.Hour)
			l.Fault(mockserver.Fault{Do: mockserver.Status(503, false), Times: 1})
			c = l.client(t, samekey.Config{Default: policy})
			_, err = c.Do(pay(t, t.Context(), "op"))
			require.ErrorIs(t, err, samekey.ErrUnknown)
			require.NoError(t, c.Close())
			require.Len(t, l.Requests(), 3)
			// Of the 11 h the hour between the processes may be lost to the clock, but not more, and never again.
			rec := stored(t, l.store, "op")
			require.GreaterOrEqual(t, time.Since(rec.Progress.FirstSent), 10*time.Hour, "the first send by the clock as it is set now")
			time.Sleep(14 * time.Hour)
			_, err = l.client(t, samekey.Config{Default: policy}).Do(pay(t, t.Context(), "op"))
			require.ErrorIs(t, err, samekey.ErrExpired)
			require.Len(t, l.Requests(), 3)
		})
	})
	t.Run("forward", func(t *testing.T) {
		inLab(t, mockserver.Config{TTL: life}, func(t *testing.T, l *lab) {
			leave(t, l)
			time.Sleep(10 * time.Hour)
			shift(t, l.store, "op", jump)
			c := l.client(t, samekey.Config{Default: policy})
			resp, err := c.Do(pay(t, t.Context(), "op"))
			require.NoError(t, err, "16 h at most")
			read(t, resp)
			l.AssertOnce(t)
		})
		inLab(t, mockserver.Config{TTL: life}, func(t *testing.T, l *lab) {
			leave(t, l)
			time.Sleep(18 * time.Hour)
			shift(t, l.store, "op", jump)
			_, err := l.client(t, samekey.Config{Default: policy}).Do(pay(t, t.Context(), "op"))
			require.ErrorIs(t, err, samekey.ErrExpired, "it may be 24 h")
			require.Len(t, l.Requests(), 1)
		})
	})
}

// TestSleepThroughAWait: the machine is suspended while a call waits for its next attempt. The bubble's clock moves the
// wall and the monotonic clock together; that the wall alone is enough is TestKeyAgeAndTheClock.
func TestSleepThroughAWait(t *testing.T) {
	inLab(t, mockserver.Config{}, func(t *testing.T, l *lab) {
		l.Fault(mockserver.Fault{When: mockserver.AfterCommit, Do: mockserver.Status(503, false)})
		c := l.client(t, samekey.Config{Default: samekey.Policy{
			Deadline: -1, MaxAttempts: 3, Backoff: samekey.Backoff{Min: time.Minute, Max: time.Minute}, Contract: &samekey.Contract{Life: time.Hour},
		}, Observer: func(_ context.Context, e samekey.Event) {
			if e.Step == samekey.StepWait {
				time.Sleep(6 * time.Hour)
			}
		}})
		_, err := c.Do(pay(t, t.Context(), "op"))
		require.ErrorIs(t, err, samekey.ErrExpired)
		require.ErrorIs(t, err, samekey.ErrUnknown)
		require.Len(t, l.Requests(), 1)
	})
}
