package samekey_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"strings"
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

// TestReconcile: every reason why an operation may not simply be sent again, and what each word of the hook does to it.
func TestReconcile(t *testing.T) {
	drop := mockserver.Fault{Do: mockserver.Drop, Times: 1}
	once := samekey.Policy{MaxAttempts: 1}
	noKey := once
	noKey.Contract = &samekey.Contract{Carrier: samekey.NoKey}
	keyOnly := once
	keyOnly.Persist, keyOnly.RequireName = samekey.PersistKeyOnly, samekey.On
	for _, row := range []struct {
		why     samekey.Why
		policy  samekey.Policy
		fault   mockserver.Fault
		header  string
		wait    time.Duration
		park    int
		rekeyed bool // SendUnderNewKey can be obeyed
		sent    bool // and is sent then
	}{
		{why: samekey.Expired, policy: once, fault: drop, wait: 25 * time.Hour, rekeyed: true, sent: true},
		{why: samekey.KeyOnly, policy: keyOnly, fault: drop},
		{why: samekey.NoKeyAtServer, policy: noKey, fault: drop},
		{why: samekey.StoredFailure, policy: once, fault: mockserver.Fault{Do: mockserver.Status(500, false).With("Idempotent-Replayed", "true"), Times: 1}, rekeyed: true, sent: true},
		{why: samekey.Parked, policy: once, fault: drop, park: 1, rekeyed: true, sent: true},
		{why: samekey.MissingHeader, policy: once, fault: drop, header: "X-Vendor-Token", rekeyed: true},
	} {
		for name, word := range map[string]struct {
			verdict samekey.Verdict
			err     error
			panics  bool
		}{
			"keep": {verdict: samekey.Keep}, "happened": {verdict: samekey.Happened}, "did not happen": {verdict: samekey.DidNotHappen},
			"new key": {verdict: samekey.SendUnderNewKey}, "error": {verdict: samekey.Happened, err: errors.New("the bank's statement cannot be read")},
			"panic": {panics: true}, "nonsense": {verdict: 99},
		} {
			t.Run(fmt.Sprint(row.why, "/", name), func(t *testing.T) {
				inLab(t, mockserver.Config{}, func(t *testing.T, l *lab) {
					req := func() *http.Request {
						r := pay(t, t.Context(), "op")
						if row.header != "" {
							r.Header.Set(row.header, "s3cr3t")
						}
						return r
					}
					l.Fault(row.fault)
					l.restart(t, samekey.Config{Default: row.policy}, func(c *samekey.Client) {
						_, err := c.Do(req())
						require.ErrorIs(t, err, samekey.ErrUnknown)
					})
					l.ClearFaults()
					key := stored(t, l.store, "op").Key
					time.Sleep(row.wait)
					rec := &recorder{}
					c := l.client(t, samekey.Config{Default: row.policy, Observer: rec.observe})
					asked := 0
					recovery := samekey.Recovery{Jitter: -1, ParkAfter: row.park, Reconcile: func(ctx context.Context, op samekey.Operation, why samekey.Why) (samekey.Verdict, error) {
						asked++
						require.Equal(t, row.why, why)
						require.Equal(t, samekey.Ref{ID: "op"}, op.Ref)
						require.Equal(t, key, op.Key)
						require.NoError(t, ctx.Err())
						if word.panics {
							panic("a bug of the caller's")
						}
						return word.verdict, word.err
					}}
					report, err := c.Recover(t.Context(), recovery)
					require.NoError(t, err)
					require.Equal(t, 1, asked)
					switch {
					case word.err == nil && !word.panics && word.verdict == samekey.Happened:
						require.Equal(t, samekey.Report{Reconciled: 1}, report)
						_, err := c.Do(req())
						require.Equal(t, samekey.Succeeded, asType[*samekey.ExpiredError](t, err).Past)
						require.Len(t, l.Requests(), 1)
					case word.verdict == samekey.DidNotHappen:
						require.Equal(t, samekey.Report{Reconciled: 1}, report)
						require.Zero(t, count(t, l.store))
						require.Len(t, l.Requests(), 1)
						resp, err := c.Do(req())
						require.NoError(t, err)
						read(t, resp)
						if row.why != samekey.NoKeyAtServer {
							require.Len(t, l.Keys(), 2)
							require.NotEqual(t, key, l.Keys()[1])
						}
					case word.verdict == samekey.SendUnderNewKey && row.rekeyed:
						require.Equal(t, samekey.Report{Reconciled: 1}, report)
						fresh := stored(t, l.store, "op")
						require.NotEqual(t, key, fresh.Key)
						if row.sent {
							require.Equal(t, []string{key, fresh.Key}, wireKeys(l.Requests()))
							require.Equal(t, samekey.Succeeded, fresh.State())
						} else { // there is still nobody who supplies the header
							require.Len(t, l.Requests(), 1)
							require.Equal(t, samekey.Pending, fresh.State())
						}
					default:
						require.Equal(t, 1, report.Pending)
						require.Zero(t, report.Reconciled)
						require.Equal(t, 1, pending(t, l.store))
						require.Equal(t, key, stored(t, l.store, "op").Key)
						told := rec.all(samekey.StepHandler)
						require.Equal(t, word.verdict != samekey.Keep || word.panics, len(told) == 1, "what cannot be obeyed is told: %v", told)
						if len(told) > 0 {
							require.ErrorContains(t, told[0].Err, "Recovery.Reconcile")
						}
						time.Sleep(time.Minute)
						_, err = c.Recover(t.Context(), recovery)
						require.NoError(t, err)
						require.Equal(t, 2, asked, "it is asked each time")
						require.Len(t, l.Requests(), 1, "nothing was sent")
					}
				})
			})
		}
	}
}

// TestRefusedAnswersComeLast: answers whose handler keeps failing wait behind all that can still be done, from the second
// pass on.
func TestRefusedAnswersComeLast(t *testing.T) {
	inLab(t, mockserver.Config{}, func(t *testing.T, l *lab) {
		l.leave(t, 6)
		c := l.client(t, samekey.Config{})
		var mu sync.Mutex
		var order []string
		refuse := true
		recovery := samekey.Recovery{Jitter: -1, Concurrency: 2, Handle: func(_ context.Context, op samekey.Operation, _ *http.Response, _ error) error {
			mu.Lock()
			order = append(order, op.ID)
			mu.Unlock()
			if refuse && op.ID < "op-3" {
				time.Sleep(time.Minute)
				return errors.New("the database is down")
			}
			return nil
		}}
		report, err := c.Recover(t.Context(), recovery)
		require.NoError(t, err)
		require.Equal(t, 6, report.Succeeded)
		require.Len(t, order, 6)
		require.Len(t, l.Requests(), 12)

		l.Fault(mockserver.Fault{When: mockserver.AfterCommit, Do: mockserver.Drop, Times: 4})
		l.restart(t, samekey.Config{Default: samekey.Policy{MaxAttempts: 1}}, func(other *samekey.Client) {
			for i := 6; i < 10; i++ {
				_, err := other.Do(samekey.Named(post(t, t.Context(), labURL+"/v1/payments", numbered(i)), fmt.Sprint("op-", i)))
				require.ErrorIs(t, err, samekey.ErrUnknown)
			}
		})
		recovery.Concurrency = 1
		for range 2 {
			order = nil
			_, err = c.Recover(t.Context(), recovery)
			require.NoError(t, err)
			require.GreaterOrEqual(t, len(order), 3)
			require.ElementsMatch(t, []string{"op-0", "op-1", "op-2"}, order[len(order)-3:], "they are older, and were refused")
		}
		// A call that asks for one meanwhile has its answer from the store.
		resp, err := c.Do(samekey.Named(post(t, t.Context(), labURL+"/v1/payments", numbered(0)), "op-0"))
		require.NoError(t, err)
		read(t, resp)
		order, refuse = nil, false
		_, err = c.Recover(t.Context(), recovery)
		require.NoError(t, err)
		require.Len(t, order, 3)
		_, err = c.Recover(t.Context(), recovery)
		require.NoError(t, err)
		require.Len(t, order, 3)
		require.Len(t, l.Requests(), 20)
		l.AssertOnce(t)
	})
}

// TestKeepRecovering goes on until there is an outcome, a limit, its context's end or Close.
func TestKeepRecovering(t *testing.T) {
	t.Run("an outcome, in the end", func(t *testing.T) {
		inLab(t, mockserver.Config{}, func(t *testing.T, l *lab) {
			l.leave(t, 3)
			l.Fault(mockserver.Fault{Do: mockserver.Status(503, false)})
			c := l.client(t, samekey.Config{Default: samekey.Policy{MaxAttempts: 1}})
			h := &taker{}
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() {
				ended <- c.KeepRecovering(ctx, samekey.Recovery{Handle: h.handle, Interval: time.Minute})
			}()
			time.Sleep(10 * time.Minute)
			require.Zero(t, h.taken())
			require.Greater(t, len(l.Requests()), 3+3*5)
			l.ClearFaults()
			time.Sleep(3 * time.Minute)
			require.Equal(t, 3, h.taken())
			sent := len(l.Requests())
			time.Sleep(time.Hour)
			require.Len(t, l.Requests(), sent)
			cancel()
			require.ErrorIs(t, <-ended, context.Canceled)
			l.AssertOnce(t)
			l.AssertSameKey(t)
		})
	})
	t.Run("a limit", func(t *testing.T) {
		inLab(t, mockserver.Config{}, func(t *testing.T, l *lab) {
			l.leave(t, 1)
			l.Fault(mockserver.Fault{Do: mockserver.Status(503, false)})
			c := l.client(t, samekey.Config{Default: samekey.Policy{MaxAttempts: 2}})
			ended := make(chan error, 1)
			go func() {
				ended <- c.KeepRecovering(context.Background(), samekey.Recovery{Interval: time.Minute, ParkAfter: 7})
			}()
			time.Sleep(5 * time.Hour)
			require.Len(t, l.Requests(), 7)
			require.True(t, stored(t, l.store, "op-0").Progress.Parked)
			require.NoError(t, c.Close())
			require.ErrorIs(t, <-ended, samekey.ErrClosed)
		})
	})
	t.Run("a store that fails for a while, and one that wakes it", func(t *testing.T) {
		inLab(t, mockserver.Config{}, func(t *testing.T, l *lab) {
			l.leave(t, 1)
			store := &waking{Store: l.store, wake: make(chan struct{}, 1)}
			store.broken.Store(true)
			rec := &recorder{}
			c := l.client(t, samekey.Config{Store: store, Observer: rec.observe})
			ended := make(chan error, 1)
			go func() { ended <- c.KeepRecovering(context.Background(), samekey.Recovery{Interval: time.Hour}) }()
			time.Sleep(2 * time.Hour)
			require.NotEmpty(t, rec.all(samekey.StepStoreError))
			require.Len(t, l.Requests(), 1)
			store.broken.Store(false)
			store.wake <- struct{}{}
			synctest.Wait()
			require.Len(t, l.Requests(), 2, "at once")
			require.NoError(t, c.Close())
			require.ErrorIs(t, <-ended, samekey.ErrClosed)
		})
	})
}

// TestWokenWhileOneStalls: what is enqueued while a pass waits for a slow answer is sent at once, and nothing twice.
func TestWokenWhileOneStalls(t *testing.T) {
	inLab(t, mockserver.Config{}, func(t *testing.T, l *lab) {
		l.leave(t, 1)
		l.Fault(mockserver.Fault{Do: mockserver.Delay(50 * time.Second), Times: 1})
		store := &waking{Store: l.store, wake: make(chan struct{}, 1)}
		c := l.client(t, samekey.Config{Store: store, Default: samekey.Policy{AttemptTimeout: time.Minute, Deadline: time.Hour}})
		ended := make(chan error, 1)
		go func() {
			ended <- c.KeepRecovering(context.Background(), samekey.Recovery{Interval: time.Hour, Jitter: -1})
		}()
		synctest.Wait()
		require.Len(t, l.Requests(), 2)
		for i := 1; i <= 3; i++ {
			rec, err := c.Capture(samekey.Named(post(t, t.Context(), labURL+"/v1/payments", numbered(i)), fmt.Sprint("op-", i)))
			require.NoError(t, err)
			e, err := l.store.Begin(t.Context(), rec)
			require.NoError(t, err)
			require.NoError(t, l.store.Release(t.Context(), e.Claim))
			store.wake <- struct{}{}
			time.Sleep(time.Second)
			require.Len(t, l.Requests(), 2+i, "at once")
			require.NotNil(t, stored(t, l.store, fmt.Sprint("op-", i)).Answer)
		}
		require.Nil(t, stored(t, l.store, "op-0").Answer)
		time.Sleep(2 * time.Minute)
		require.NotNil(t, stored(t, l.store, "op-0").Answer)
		require.NoError(t, c.Close())
		require.ErrorIs(t, <-ended, samekey.ErrClosed)
		l.AssertOnce(t)
	})
}

// taken is how many answers the handler has got.
func (h *taker) taken() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.got)
}

// waking is a store that fails, and tells of new work.
type waking struct {
	persist.Store
	broken atomic.Bool
	wake   chan struct{}
}

func (w *waking) ClaimDue(ctx context.Context, n int) ([]persist.Entry, error) {
	if w.broken.Load() {
		return nil, errDisk
	}
	return w.Store.ClaimDue(ctx, n)
}

func (w *waking) Wake(context.Context) <-chan struct{} { return w.wake }

// listsBadly is a store with an operation that List cannot read.
type listsBadly struct{ persist.Store }

var errUnreadable = errors.New("a record is damaged")

func (s listsBadly) List(ctx context.Context, f persist.Filter) iter.Seq2[persist.Record, error] {
	return func(yield func(persist.Record, error) bool) {
		if yield(persist.Record{}, errUnreadable) {
			s.Store.List(ctx, f)(yield)
		}
	}
}

// TestWhatCannotBeReadHoldsNobodyUp: an operation that Reconcile cannot be asked about is told of at the end of each pass,
// and keeps neither the others from it nor answers that were refused before from their handler.
func TestWhatCannotBeReadHoldsNobodyUp(t *testing.T) {
	inLab(t, mockserver.Config{}, func(t *testing.T, l *lab) {
		l.leave(t, 1)
		l.Fault(mockserver.Fault{Do: mockserver.Drop, Times: 1})
		l.restart(t, samekey.Config{Default: samekey.Policy{MaxAttempts: 1}}, func(other *samekey.Client) {
			_, err := other.Do(samekey.Named(post(t, t.Context(), labURL+"/v1/payments", numbered(1)), "parked"))
			require.ErrorIs(t, err, samekey.ErrUnknown)
		})
		e, err := l.store.Claim(t.Context(), samekey.Ref{ID: "parked"})
		require.NoError(t, err)
		e.Progress.Parked = true
		require.NoError(t, l.store.Mark(t.Context(), e.Claim, e.Progress))
		require.NoError(t, l.store.Release(t.Context(), e.Claim))
		c := l.client(t, samekey.Config{Store: listsBadly{l.store}})
		handled, asked := 0, 0
		recovery := samekey.Recovery{
			Jitter: -1,
			Handle: func(context.Context, samekey.Operation, *http.Response, error) error {
				handled++
				return errors.New("the database is down")
			},
			Reconcile: func(context.Context, samekey.Operation, samekey.Why) (samekey.Verdict, error) {
				asked++
				return samekey.Keep, nil
			},
		}
		for pass := 1; pass <= 3; pass++ {
			_, err := c.Recover(t.Context(), recovery)
			require.ErrorIs(t, err, errUnreadable)
			require.Equal(t, pass, handled)
			require.Equal(t, pass, asked)
		}
	})
}

// TestNewKeyAfterAStreamingAnswer: what is sent under a new key, after an answer that streams, is under way like any
// other: Close ends it, and its context ends with it.
func TestNewKeyAfterAStreamingAnswer(t *testing.T) {
	for _, body := range []string{"short", "a body that is longer than MaxResponse"} {
		synctest.Test(t, func(t *testing.T) {
			n, sending := 0, make(chan context.Context, 1)
			rt := roundTripper(func(r *http.Request) (*http.Response, error) {
				switch n++; n {
				case 1:
					return nil, errLost
				case 2:
					return &http.Response{StatusCode: 500, Header: http.Header{"Idempotent-Replayed": {"true"}}, Body: io.NopCloser(strings.NewReader(body)), ContentLength: -1}, nil
				}
				sending <- r.Context()
				<-r.Context().Done()
				return nil, r.Context().Err()
			})
			cfg := samekey.Config{Store: newStore(t), HTTPClient: &http.Client{Transport: rt}, Default: samekey.Policy{MaxResponse: 8, MaxAttempts: 1, AttemptTimeout: -1, Deadline: -1}}
			_, err := newClient(t, cfg).Do(pay(t, t.Context(), "op"))
			require.ErrorIs(t, err, samekey.ErrUnknown)
			c := newClient(t, cfg)
			time.Sleep(time.Hour)
			ended := make(chan error, 1)
			go func() {
				_, err := c.Recover(context.Background(), samekey.Recovery{Jitter: -1, Reconcile: func(context.Context, samekey.Operation, samekey.Why) (samekey.Verdict, error) {
					return samekey.SendUnderNewKey, nil
				}})
				ended <- err
			}()
			ctx := <-sending
			start := time.Now()
			require.NoError(t, c.Close())
			require.ErrorIs(t, <-ended, samekey.ErrClosed)
			require.Zero(t, time.Since(start))
			require.Error(t, ctx.Err())
		})
	}
}
