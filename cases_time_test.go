package samekey_test

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/samekey/samekey"
	"github.com/samekey/samekey/mockserver"
	"github.com/samekey/samekey/persist"
)

// window is the documented range of the n-th wait of the default policy.
func window(n int) (least, most time.Duration) {
	return 200 * time.Millisecond, min(200*time.Millisecond<<n, 10*time.Second)
}

func requireWindows(t *testing.T, waits []time.Duration) {
	t.Helper()
	for i, w := range waits {
		least, most := window(i + 1)
		require.GreaterOrEqual(t, w, least, "wait %d", i+1)
		require.LessOrEqual(t, w, most, "wait %d", i+1)
	}
}

// A server that asks for longer than the policy allows ends the call: pending, with its advice kept.
func TestCase_B66_RetryAfterBeyondTheLimit(t *testing.T) {
	for _, after := range []string{"61", "86400", "9223372036", "9223372037", "9223372036854775807", "18446744073709551616", "99999999999999999999",
		"Fri, 31 Dec 9999 23:59:59 GMT"} {
		t.Run(after, func(t *testing.T) {
			inLab(t, mockserver.Config{}, func(t *testing.T, l *lab) {
				l.Fault(mockserver.Fault{Do: mockserver.Status(503, false).With("Retry-After", after), Times: 1})
				c := l.client(t, samekey.Config{Default: samekey.Policy{MaxAttempts: 5, Deadline: -1}})
				start := time.Now()
				_, err := c.Do(pay(t, t.Context(), "op"))
				require.Zero(t, time.Since(start))
				unknown := asType[*samekey.OutcomeUnknownError](t, err)
				require.ErrorContains(t, err, "MaxRetryAfter")
				require.True(t, unknown.RetryAfter.After(start.Add(time.Minute)))
				require.Len(t, l.Requests(), 1)

				op, err := c.Operation(t.Context(), samekey.Ref{ID: "op"})
				require.NoError(t, err)
				require.True(t, op.NotBefore.After(start.Add(time.Minute)))
				_, err = c.Recover(t.Context(), samekey.Recovery{})
				require.NoError(t, err)
				require.Len(t, l.Requests(), 1, "recovery waits as well")
				resp, err := c.Do(pay(t, t.Context(), "op"))
				require.NoError(t, err, "the caller's own word goes before")
				read(t, resp)
				l.AssertOnce(t)
			})
		})
	}
	t.Run("off", func(t *testing.T) {
		inLab(t, mockserver.Config{}, func(t *testing.T, l *lab) {
			l.Fault(mockserver.Fault{Do: mockserver.Status(503, false).With("Retry-After", "86400"), Times: 3})
			resp, err := l.client(t, samekey.Config{Default: samekey.Policy{MaxRetryAfter: -1}}).Do(pay(t, t.Context(), "op"))
			require.NoError(t, err)
			read(t, resp)
			requireWindows(t, gaps(l.Requests()))
		})
	})
	t.Run("as far as the limit", func(t *testing.T) {
		inLab(t, mockserver.Config{}, func(t *testing.T, l *lab) {
			l.Fault(mockserver.Fault{Do: mockserver.Status(503, false).With("Retry-After", "60"), Times: 1})
			resp, err := l.client(t, samekey.Config{Default: samekey.Policy{Deadline: -1}}).Do(pay(t, t.Context(), "op"))
			require.NoError(t, err)
			read(t, resp)
			require.Equal(t, []time.Duration{time.Minute}, gaps(l.Requests()))
		})
	})
}

// What cannot be read, is past or is no wait means the normal backoff: never a failure, never a hot loop.
func TestCase_B86_OddRetryAfter(t *testing.T) {
	for _, after := range [][]string{
		{"-1"}, {"0"}, {""}, {"soon"}, {"1.5"}, {"1e30"}, {"+3"}, {"0x3"}, {"3, 4"}, {"Sat, 01 Jan 2000 00:00:00 GMT"},
		{"Sun, 06 Nov 1994 08:49:37 GMT"}, {"2000-01-01T00:00:05Z"}, {"soon", "-1"}, {"0", "0"},
	} {
		t.Run(fmt.Sprint(after), func(t *testing.T) {
			inLab(t, mockserver.Config{}, func(t *testing.T, l *lab) {
				do := mockserver.Status(503, false)
				for _, a := range after {
					do = do.With("Retry-After", a)
				}
				l.Fault(mockserver.Fault{Do: do, Times: 3})
				resp, err := l.client(t, samekey.Config{}).Do(pay(t, t.Context(), "op"))
				require.NoError(t, err)
				read(t, resp)
				require.Len(t, l.Requests(), 4)
				requireWindows(t, gaps(l.Requests()))
			})
		})
	}
	for after, want := range map[string]time.Duration{"3": 3 * time.Second, "0005": 5 * time.Second} {
		t.Run("good "+after, func(t *testing.T) {
			inLab(t, mockserver.Config{}, func(t *testing.T, l *lab) {
				l.Fault(mockserver.Fault{Do: mockserver.Status(503, false).With("Retry-After", after), Times: 1})
				resp, err := l.client(t, samekey.Config{}).Do(pay(t, t.Context(), "op"))
				require.NoError(t, err)
				read(t, resp)
				require.Equal(t, []time.Duration{want}, gaps(l.Requests()))
			})
		})
	}
	t.Run("a date", func(t *testing.T) {
		inLab(t, mockserver.Config{}, func(t *testing.T, l *lab) {
			at := time.Now().Add(4 * time.Second).UTC()
			l.Fault(mockserver.Fault{Do: mockserver.Status(503, false).With("Retry-After", at.Format(http.TimeFormat)), Times: 1})
			resp, err := l.client(t, samekey.Config{}).Do(pay(t, t.Context(), "op"))
			require.NoError(t, err)
			read(t, resp)
			require.Equal(t, at, l.Requests()[1].At.UTC())
		})
	})
}

// The real clock, the default build.
func TestCase_B88_RealWaits(t *testing.T) {
	t.Parallel()
	srv := newServer(t, mockserver.Config{})
	srv.Fault(mockserver.Fault{Do: mockserver.Status(503, false)})
	rec := &recorder{}
	c := newClient(t, samekey.Config{Default: samekey.Policy{MaxAttempts: 3}, Observer: rec.observe})
	_, err := c.Do(post(t, t.Context(), srv.URL+"/v1/payments", payment))
	require.ErrorIs(t, err, samekey.ErrUnknown)
	var waits []time.Duration
	for _, e := range rec.all(samekey.StepWait) {
		waits = append(waits, e.Wait)
	}
	require.Len(t, waits, 2)
	requireWindows(t, waits)
	for i, gap := range gaps(srv.Requests()) {
		require.GreaterOrEqual(t, gap, waits[i], "a busy machine comes late, never early")
	}
}

// Clients that start together do not stay together: every wait is drawn, the first one too.
func TestCase_B89_WaitsAreSpread(t *testing.T) {
	inLab(t, mockserver.Config{}, func(t *testing.T, l *lab) {
		l.Fault(mockserver.Fault{Do: mockserver.Status(503, false)})
		c := l.client(t, samekey.Config{})
		start := time.Now()
		ended := make(chan error)
		for i := range 50 {
			go func() {
				_, err := c.Do(pay(t, context.Background(), fmt.Sprint("op-", i)))
				ended <- err
			}()
		}
		for range 50 {
			require.ErrorIs(t, <-ended, samekey.ErrUnknown)
		}
		at := map[time.Duration]int{}
		for _, r := range l.Requests() {
			at[r.At.Sub(start)]++
		}
		require.Equal(t, 50, at[0], "the first attempts are at once")
		require.Greater(t, len(at), 140, "the others are not")
		byKey := map[string][]mockserver.Request{}
		for _, r := range l.Requests() {
			byKey[r.Key] = append(byKey[r.Key], r)
		}
		for _, reqs := range byKey {
			requireWindows(t, gaps(reqs))
		}
	})
	t.Run("recovery", func(t *testing.T) {
		inLab(t, mockserver.Config{}, func(t *testing.T, l *lab) {
			l.Fault(mockserver.Fault{Do: mockserver.Status(503, false)})
			c := l.client(t, samekey.Config{Default: samekey.Policy{MaxAttempts: 1}})
			for i := range 100 {
				_, err := c.Do(pay(t, t.Context(), fmt.Sprint("op-", i)))
				require.ErrorIs(t, err, samekey.ErrUnknown)
			}
			l.ClearFaults()
			l.Fault(mockserver.Fault{Do: mockserver.Delay(time.Second)})
			before := len(l.Requests())
			report, err := c.Recover(t.Context(), samekey.Recovery{Concurrency: 5})
			require.NoError(t, err)
			require.Equal(t, 100, report.Succeeded)
			reqs := l.Requests()[before:]
			require.Len(t, reqs, 100)
			for i, r := range reqs {
				running := 0
				for _, o := range reqs[:i] {
					if o.End.After(r.At) {
						running++
					}
				}
				require.Less(t, running, 5, "the limit holds")
			}
		})
	})
}

// How long waits grow, and that no setting overflows.
func TestBackoffGrowsToItsLimit(t *testing.T) {
	for _, row := range []struct {
		b    samekey.Backoff
		n    int
		most func(n int) time.Duration
	}{
		{samekey.Backoff{Min: time.Second, Max: 8 * time.Second}, 70, func(n int) time.Duration { return min(time.Second<<min(n, 10), 8*time.Second) }},
		{samekey.Backoff{Min: time.Hour, Max: 1 << 62}, 70, func(n int) time.Duration {
			if n > 20 {
				return 1 << 62
			}
			return time.Hour << n
		}},
		{samekey.Backoff{Min: time.Second, Max: time.Second}, 5, func(int) time.Duration { return time.Second }},
	} {
		synctest.Test(t, func(t *testing.T) {
			var waits []time.Duration
			stop := 0
			c := newClient(t, samekey.Config{
				Default: samekey.Policy{
					Backoff: row.b, MaxAttempts: row.n, Deadline: -1, Contract: &samekey.Contract{Life: samekey.Forever},
					Decide: func(samekey.Attempt) samekey.Decision { stop++; return samekey.AsUsual },
				},
				HTTPClient: &http.Client{Transport: roundTripper(func(*http.Request) (*http.Response, error) {
					return &http.Response{StatusCode: 503, Header: http.Header{}, Body: http.NoBody}, nil
				})},
				Observer: func(_ context.Context, e samekey.Event) {
					if e.Step == samekey.StepWait {
						waits = append(waits, e.Wait)
					}
				},
			})
			ctx, cancel := context.WithTimeout(t.Context(), 200*365*24*time.Hour)
			defer cancel()
			_, err := c.Do(post(t, ctx, labURL, payment))
			require.ErrorIs(t, err, samekey.ErrUnknown)
			require.NotEmpty(t, waits)
			for i, w := range waits {
				require.GreaterOrEqual(t, w, row.b.Min)
				require.LessOrEqual(t, w, row.most(i+1))
			}
		})
	}
}

// A wait that cannot end in time is not begun.
func TestDeadlineThatAWaitCannotFit(t *testing.T) {
	inLab(t, mockserver.Config{}, func(t *testing.T, l *lab) {
		l.Fault(mockserver.Fault{Do: mockserver.Status(503, false).With("Retry-After", "20")})
		c := l.client(t, samekey.Config{Default: samekey.Policy{AttemptTimeout: time.Second, Deadline: 10 * time.Second}})
		start := time.Now()
		_, err := c.Do(pay(t, t.Context(), "a"))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorIs(t, err, samekey.ErrUnknown)
		require.Zero(t, time.Since(start))

		wide := l.client(t, samekey.Config{})
		for _, name := range []string{"b", ""} {
			ctx, cancel := context.WithTimeout(t.Context(), 19*time.Second)
			_, err = wide.Do(pay(t, ctx, name))
			cancel()
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.ErrorIs(t, err, samekey.ErrUnknown)
			require.Equal(t, 503, asType[*samekey.OutcomeUnknownError](t, err).Last.Status)
			require.Zero(t, time.Since(start))
		}
		require.Len(t, l.Requests(), 3)

		// Who waits longer keeps the call going for both.
		short, cancel := context.WithTimeout(t.Context(), 19*time.Second)
		defer cancel()
		first := make(chan error, 1)
		go func() { _, err := wide.Do(pay(t, short, "c")); first <- err }()
		long := make(chan error, 1)
		go func() { _, err := wide.Do(pay(t, context.Background(), "c")); long <- err }()
		err = <-first
		require.ErrorIs(t, err, samekey.ErrUnknown)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		l.ClearFaults()
		require.NoError(t, <-long)
		require.Equal(t, 1, l.EffectsOf("order-1"))
	})
}

// Past the key's life nothing goes out under it, in this process or a later one, and no new key is taken unasked.
func TestCase_B15_ExpiredKeysAreNotSent(t *testing.T) {
	const life = 20 * time.Second
	policy := func(p samekey.Policy) samekey.Policy {
		p.Contract = &samekey.Contract{Life: life, StoresRejections: true}
		p.AttemptTimeout = time.Second
		return p
	}
	lose := mockserver.Fault{When: mockserver.AfterCommit, Do: mockserver.Drop, Times: 1}
	server := mockserver.Config{TTL: life}

	t.Run("in a wait", func(t *testing.T) {
		inLab(t, server, func(t *testing.T, l *lab) {
			l.Fault(lose)
			c := l.client(t, samekey.Config{Default: policy(samekey.Policy{Backoff: samekey.Backoff{Min: 30 * time.Second, Max: 30 * time.Second}})})
			_, err := c.Do(pay(t, t.Context(), "op"))
			expired := asType[*samekey.ExpiredError](t, err)
			require.ErrorIs(t, err, samekey.ErrExpired)
			require.ErrorIs(t, err, samekey.ErrUnknown)
			require.Equal(t, samekey.Pending, expired.Past)
			require.Equal(t, samekey.EffectUnknown, samekey.EffectOf(err))
			require.Len(t, l.Requests(), 1)
			require.Equal(t, 1, pending(t, l.store))
		})
	})
	t.Run("the margin counts", func(t *testing.T) {
		inLab(t, server, func(t *testing.T, l *lab) {
			l.Fault(lose)
			c := l.client(t, samekey.Config{Default: policy(samekey.Policy{MaxAttempts: 1})})
			_, err := c.Do(pay(t, t.Context(), "op"))
			require.ErrorIs(t, err, samekey.ErrUnknown)
			time.Sleep(life - time.Second)
			_, err = c.Do(pay(t, t.Context(), "op"))
			require.ErrorIs(t, err, samekey.ErrExpired, "it might arrive too late")
			require.Len(t, l.Requests(), 1)
		})
		inLab(t, server, func(t *testing.T, l *lab) {
			l.Fault(lose)
			c := l.client(t, samekey.Config{Default: policy(samekey.Policy{MaxAttempts: 1})})
			_, err := c.Do(pay(t, t.Context(), "op"))
			require.ErrorIs(t, err, samekey.ErrUnknown)
			time.Sleep(life - time.Second - time.Millisecond)
			resp, err := c.Do(pay(t, t.Context(), "op"))
			require.NoError(t, err)
			read(t, resp)
			l.AssertOnce(t)
		})
	})
	for _, after := range []time.Duration{life, 365 * 24 * time.Hour} {
		t.Run("after a restart", func(t *testing.T) {
			inLab(t, server, func(t *testing.T, l *lab) {
				l.Fault(lose)
				first := l.client(t, samekey.Config{Default: policy(samekey.Policy{MaxAttempts: 1})})
				_, err := first.Do(pay(t, t.Context(), "op"))
				require.ErrorIs(t, err, samekey.ErrUnknown)
				require.NoError(t, first.Close())
				key := stored(t, l.store, "op").Key
				time.Sleep(after)

				c := l.client(t, samekey.Config{Default: policy(samekey.Policy{})})
				_, err = c.Do(pay(t, t.Context(), "op"))
				require.ErrorIs(t, err, samekey.ErrExpired)
				require.ErrorIs(t, err, samekey.ErrUnknown)
				_, err = c.Resume(t.Context(), samekey.Ref{ID: "op"})
				require.ErrorIs(t, err, samekey.ErrExpired)
				report, err := c.Recover(t.Context(), samekey.Recovery{Handle: func(context.Context, samekey.Operation, *http.Response, error) error {
					t.Error("there is no answer to hand over")
					return nil
				}})
				require.NoError(t, err)
				require.Equal(t, 1, report.Expired)
				require.Len(t, l.Requests(), 1, "nothing was sent")
				require.Equal(t, key, stored(t, l.store, "op").Key, "and no new key taken")
				_, err = c.Do(pay(t, t.Context(), "op"))
				require.ErrorIs(t, err, samekey.ErrExpired, "recovery has not moved it")

				fresh, err := c.Rekey(t.Context(), samekey.Ref{ID: "op"})
				require.NoError(t, err)
				require.NotEqual(t, key, fresh)
				resp, err := c.Do(pay(t, t.Context(), "op"))
				require.NoError(t, err)
				read(t, resp)
				require.Equal(t, []string{key, fresh}, wireKeys(l.Requests()))
			})
		})
	}
	t.Run("OnExpiry NewKey is the caller's word", func(t *testing.T) {
		inLab(t, server, func(t *testing.T, l *lab) {
			l.Fault(mockserver.Fault{Do: mockserver.Drop, Times: 1})
			c := l.client(t, samekey.Config{Default: policy(samekey.Policy{MaxAttempts: 1, OnExpiry: samekey.NewKey})})
			_, err := c.Do(pay(t, t.Context(), "op"))
			require.ErrorIs(t, err, samekey.ErrUnknown)
			time.Sleep(life)
			resp, err := c.Do(pay(t, t.Context(), "op"))
			require.NoError(t, err)
			read(t, resp)
			require.Len(t, l.Keys(), 2)
			require.Equal(t, l.Keys()[1], stored(t, l.store, "op").Key)
			l.AssertAtMostOnce(t)
			resp, err = c.Do(pay(t, t.Context(), "op"))
			require.NoError(t, err)
			read(t, resp)
			require.Len(t, l.Requests(), 2)
		})
	})
	t.Run("a clock that was set back makes no key younger", func(t *testing.T) {
		inLab(t, server, func(t *testing.T, l *lab) {
			l.Fault(lose)
			c := l.client(t, samekey.Config{Default: policy(samekey.Policy{MaxAttempts: 1})})
			_, err := c.Do(pay(t, t.Context(), "op"))
			require.ErrorIs(t, err, samekey.ErrUnknown)
			e, err := l.store.Claim(t.Context(), samekey.Ref{ID: "op"})
			require.NoError(t, err)
			e.Progress.Seen = e.Progress.FirstSent.Add(time.Hour) // an earlier process saw a time that is yet to come
			require.NoError(t, l.store.Mark(t.Context(), e.Claim, e.Progress))
			require.NoError(t, l.store.Release(t.Context(), e.Claim))
			_, err = c.Do(pay(t, t.Context(), "op"))
			require.ErrorIs(t, err, samekey.ErrExpired)
			require.Len(t, l.Requests(), 1)
		})
	})
	t.Run("a life that one attempt may outlast", func(t *testing.T) {
		inLab(t, server, func(t *testing.T, l *lab) {
			c := l.client(t, samekey.Config{Default: samekey.Policy{MaxAttempts: 1, Contract: &samekey.Contract{Life: 5 * time.Second}}})
			resp, err := c.Do(pay(t, t.Context(), "op"))
			require.NoError(t, err, "the first send is always in time")
			read(t, resp)
			l.AssertOnce(t)
		})
	})
	t.Run("unpublished is an hour, Forever has no end", func(t *testing.T) {
		inLab(t, mockserver.Config{TTL: -1}, func(t *testing.T, l *lab) {
			l.Fault(mockserver.Fault{When: mockserver.AfterCommit, Do: mockserver.Drop, Times: 3})
			c := l.client(t, samekey.Config{Default: samekey.Policy{MaxAttempts: 1}, Endpoints: map[string]samekey.Policy{
				"unpublished.test/": {Contract: &samekey.Contract{}},
				"forever.test/":     {Contract: &samekey.Contract{Life: samekey.Forever}},
			}})
			do := func(host string) error {
				resp, err := c.Do(samekey.Named(post(t, t.Context(), "http://"+host+"/v1/payments", `{"amount":1,"currency":"RUB","orderRef":"`+host+`"}`), host))
				if err == nil {
					read(t, resp)
				}
				return err
			}
			hosts := []string{"default.test", "unpublished.test", "forever.test"}
			for _, h := range hosts {
				require.ErrorIs(t, do(h), samekey.ErrUnknown)
			}
			time.Sleep(time.Hour)
			require.ErrorIs(t, do("unpublished.test"), samekey.ErrExpired)
			time.Sleep(23 * time.Hour)
			require.ErrorIs(t, do("default.test"), samekey.ErrExpired)
			time.Sleep(10 * 365 * 24 * time.Hour)
			require.NoError(t, do("forever.test"))
			op, err := c.Operation(t.Context(), samekey.Ref{ID: "forever.test"})
			require.NoError(t, err)
			require.Zero(t, op.Expires)
			l.AssertAtMostOnce(t)
		})
	})
}

// A success is known until its retention ends, then its name is, and then it is a new one.
func TestCase_B15_WhatIsKeptOfAName(t *testing.T) {
	inLab(t, mockserver.Config{}, func(t *testing.T, l *lab) {
		c := l.client(t, samekey.Config{Default: quick, Endpoints: map[string]samekey.Policy{
			"off.test/": {Retention: -1}, "long.test/": {Retention: 30 * 24 * time.Hour},
		}})
		do := func(host string) (samekey.Info, error) {
			resp, err := c.Do(samekey.Named(post(t, t.Context(), "http://"+host+"/v1/payments", `{"amount":1,"currency":"RUB","orderRef":"`+host+`"}`), host))
			if err != nil {
				return samekey.Info{}, err
			}
			info, _ := samekey.InfoOf(resp)
			read(t, resp)
			return info, nil
		}
		for _, host := range []string{"api.test", "off.test", "long.test"} {
			info, err := do(host)
			require.NoError(t, err)
			require.Equal(t, samekey.Network, info.Source)
		}
		local := func(host string) {
			t.Helper()
			info, err := do(host)
			require.NoError(t, err)
			require.Equal(t, samekey.Local, info.Source)
		}
		past := func(host string) {
			t.Helper()
			_, err := do(host)
			expired := asType[*samekey.ExpiredError](t, err)
			require.Equal(t, samekey.Succeeded, expired.Past)
			require.NotErrorIs(t, err, samekey.ErrUnknown, "it is known what became of it")
			require.Equal(t, samekey.EffectUnknown, samekey.EffectOf(err), "and it is not none")
			rec, err := l.store.Get(t.Context(), samekey.Ref{ID: host})
			require.NoError(t, err)
			require.True(t, rec.Tombstone())
			require.Empty(t, rec.Body)
		}
		past("off.test")
		local("api.test")
		local("long.test")
		time.Sleep(24*time.Hour - time.Second)
		local("api.test")
		time.Sleep(2 * time.Second)
		past("api.test")
		local("long.test")
		time.Sleep(29 * 24 * time.Hour)
		past("long.test")
		require.Len(t, l.Requests(), 3)
		time.Sleep(90 * 24 * time.Hour)
		_, err := l.store.Get(t.Context(), samekey.Ref{ID: "api.test"})
		require.ErrorIs(t, err, persist.ErrNotFound)
	})
}
