package samekey_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/samekey/samekey"
	"github.com/samekey/samekey/mockserver"
	"github.com/samekey/samekey/persist"
)

// askFor are the calls that want an operation for themselves.
var askFor = map[string]func(t *testing.T, c *samekey.Client) error{
	"Do": func(t *testing.T, c *samekey.Client) error {
		resp, err := c.Do(samekey.Named(post(t, t.Context(), labURL+"/v1/payments", numbered(0)), "op-0"))
		if err == nil {
			read(t, resp)
		}
		return err
	},
	"Resume": func(t *testing.T, c *samekey.Client) error {
		resp, err := c.Resume(t.Context(), samekey.Ref{ID: "op-0"})
		if err == nil {
			read(t, resp)
		}
		return err
	},
	"Rekey": func(t *testing.T, c *samekey.Client) error {
		_, err := c.Rekey(t.Context(), samekey.Ref{ID: "op-0"})
		return err
	},
	"Abandon": func(t *testing.T, c *samekey.Client) error {
		return c.Abandon(t.Context(), samekey.Ref{ID: "op-0"}, "x")
	},
	"Forget": func(t *testing.T, c *samekey.Client) error { return c.Forget(t.Context(), samekey.Ref{ID: "op-0"}) },
}

// held has a pass that lasts hold op-0, which came due again.
func held(t *testing.T, l *lab, c *samekey.Client) (end func(), report <-chan samekey.Report) {
	bad := l.Keys()[0]
	l.Fault(mockserver.Fault{Key: bad, Do: mockserver.Status(503, false)}, mockserver.Fault{Do: mockserver.Delay(8 * time.Second)})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan samekey.Report, 1)
	go func() {
		report, err := c.Recover(ctx, samekey.Recovery{Concurrency: 1, Jitter: -1})
		if err != nil && ctx.Err() == nil {
			t.Error(err)
		}
		done <- report
	}()
	time.Sleep(60 * time.Second)
	synctest.Wait()
	tried := 0
	for _, r := range l.Requests() {
		if r.Key == bad {
			tried++
		}
	}
	require.Equal(t, 5, tried, "once by each attempt of Do and of the pass")
	_, err := l.store.Claim(t.Context(), samekey.Ref{ID: "op-0"})
	require.ErrorIs(t, err, persist.ErrBusy, "the pass holds it")
	l.ClearFaults()
	return cancel, done
}

// TestWhatRecoveryHoldsIsToBeHad: an operation that came due again during a long pass is not sent a second time by it, and
// is nobody else's either: calls of the same client get it at once.
func TestWhatRecoveryHoldsIsToBeHad(t *testing.T) {
	for name, ask := range askFor {
		t.Run(name, func(t *testing.T) {
			inLab(t, mockserver.Config{}, func(t *testing.T, l *lab) {
				l.leave(t, 12)
				c := l.client(t, samekey.Config{Default: quick})
				_, done := held(t, l, c)
				began := time.Now()
				require.NoError(t, ask(t, c))
				require.Zero(t, time.Since(began))
				report := <-done
				require.Equal(t, 11, report.Succeeded)
				require.Equal(t, 1, report.Pending)
				l.AssertNoOverlap(t)
			})
		})
	}
}

// hooked calls its hooks after the store has answered about op-0.
type hooked struct {
	persist.Store
	released, busy func()
}

func (s *hooked) Release(ctx context.Context, c persist.Claim) error {
	defer called(&s.released, c.Ref.ID == "op-0")
	return s.Store.Release(ctx, c)
}

func (s *hooked) Begin(ctx context.Context, rec persist.Record) (e persist.Entry, err error) {
	e, err = s.Store.Begin(ctx, rec)
	called(&s.busy, err == nil && e.Claim.Token == 0)
	return e, err
}

func (s *hooked) Claim(ctx context.Context, ref persist.Ref) (e persist.Entry, err error) {
	e, err = s.Store.Claim(ctx, ref)
	called(&s.busy, errors.Is(err, persist.ErrBusy))
	return e, err
}

func (s *hooked) Forget(ctx context.Context, ref persist.Ref) (err error) {
	err = s.Store.Forget(ctx, ref)
	called(&s.busy, errors.Is(err, persist.ErrBusy))
	return err
}

// called calls a hook once.
func called(hook *func(), now bool) {
	if f := *hook; now && f != nil {
		*hook = nil
		f()
	}
}

// TestWhatRecoveryGivesUpIsTheAskers: neither does another recovery of the same client snatch what is given up for a call,
// nor is the call told busy when the pass that held the operation ends meanwhile.
func TestWhatRecoveryGivesUpIsTheAskers(t *testing.T) {
	for name, ask := range askFor {
		t.Run(name+", another recovery", func(t *testing.T) {
			inLab(t, mockserver.Config{}, func(t *testing.T, l *lab) {
				l.leave(t, 12)
				h := &hooked{Store: l.store}
				c := l.client(t, samekey.Config{Store: h, Default: quick})
				_, done := held(t, l, c)
				second := make(chan error, 1)
				h.released = func() {
					l.Fault(mockserver.Fault{Do: mockserver.Delay(8 * time.Second)}) // it has not ended when the call goes on
					go func() {
						_, err := c.Recover(t.Context(), samekey.Recovery{Jitter: -1})
						second <- err
					}()
					time.Sleep(time.Second)
				}
				require.NoError(t, ask(t, c))
				require.Nil(t, h.released)
				require.NoError(t, <-second)
				<-done
				l.AssertNoOverlap(t)
			})
		})
		t.Run(name+", the pass ends", func(t *testing.T) {
			inLab(t, mockserver.Config{}, func(t *testing.T, l *lab) {
				l.leave(t, 12)
				h := &hooked{Store: l.store}
				c := l.client(t, samekey.Config{Store: h, Default: quick})
				end, done := held(t, l, c)
				h.busy = func() {
					end()
					<-done
				}
				require.NoError(t, ask(t, c))
				require.Nil(t, h.busy)
				l.AssertNoOverlap(t)
			})
		})
	}
}

// TestDoBesideRecover: calls that ask for what a recovery of the same client claims at that moment are never told that
// another has it.
func TestDoBesideRecover(t *testing.T) {
	srv := newServer(t, mockserver.Config{})
	const n = 200
	srv.Fault(mockserver.Fault{When: mockserver.AfterCommit, Do: mockserver.Drop})
	store := newStore(t)
	do := func(c *samekey.Client, ctx context.Context, i int) error {
		resp, err := c.Do(samekey.Named(post(t, ctx, srv.URL+"/v1/payments", numbered(i)), fmt.Sprint("op-", i)))
		if err == nil {
			err = resp.Body.Close()
		}
		return err
	}
	first := newClient(t, samekey.Config{Store: store, Default: samekey.Policy{MaxAttempts: 1}})
	parallel(8, n, func(i int) {
		if err := do(first, t.Context(), i); !errors.Is(err, samekey.ErrUnknown) {
			t.Error(err)
		}
	})
	require.NoError(t, first.Close())
	srv.ClearFaults()
	c := newClient(t, samekey.Config{Store: store, Default: quick})
	var wg sync.WaitGroup
	var recovered atomic.Int64
	for range 2 {
		wg.Go(func() {
			report, err := c.Recover(t.Context(), samekey.Recovery{Jitter: -1, Concurrency: 4})
			if err != nil {
				t.Error(err)
			}
			recovered.Add(int64(report.Succeeded))
		})
	}
	parallel(8, n, func(i int) {
		if err := do(c, t.Context(), i); err != nil {
			t.Error(err)
		}
	})
	wg.Wait()
	require.Positive(t, recovered.Load())
	require.Zero(t, pending(t, store))
	require.Len(t, srv.Requests(), 2*n, "each once by each client")
	srv.AssertOnce(t)
	srv.AssertNoOverlap(t)
}
