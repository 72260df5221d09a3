package samekey_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
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

// leave has n operations, op-0 and on, whose answers were lost after the server had them done; their client is gone.
func (l *lab) leave(t *testing.T, n int) {
	t.Helper()
	l.Fault(mockserver.Fault{When: mockserver.AfterCommit, Do: mockserver.Drop, Times: n})
	c := l.client(t, samekey.Config{Default: samekey.Policy{MaxAttempts: 1}})
	for i := range n {
		time.Sleep(time.Millisecond)
		_, err := c.Do(samekey.Named(post(t, t.Context(), labURL+"/v1/payments", numbered(i)), fmt.Sprint("op-", i)))
		require.ErrorIs(t, err, samekey.ErrUnknown)
	}
	require.NoError(t, c.Close())
}

func numbered(i int) string {
	return fmt.Sprintf(`{"amount":%d,"currency":"RUB","orderRef":"order-%d"}`, i+1, i)
}

type handed struct {
	id     string
	status int
	err    error
}

// taker is a handler that keeps what it is given and returns what it is told to.
type taker struct {
	mu    sync.Mutex
	got   []handed
	reply func(n int) error
}

func (h *taker) handle(_ context.Context, op samekey.Operation, resp *http.Response, err error) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.got = append(h.got, handed{op.ID, resp.StatusCode, err})
	if h.reply != nil {
		return h.reply(len(h.got))
	}
	return nil
}

// Oldest first, each under its own key, each once; what is done is done.
func TestRecover(t *testing.T) {
	inLab(t, mockserver.Config{}, func(t *testing.T, l *lab) {
		l.leave(t, 5)
		h := &taker{}
		c := l.client(t, samekey.Config{})
		report, err := c.Recover(t.Context(), samekey.Recovery{Handle: h.handle, Concurrency: 1})
		require.NoError(t, err)
		require.Equal(t, samekey.Report{Succeeded: 5}, report)
		for i, got := range h.got {
			require.Equal(t, handed{fmt.Sprint("op-", i), 201, nil}, got)
		}
		require.Len(t, h.got, 5)
		require.Len(t, l.Requests(), 10)
		for i, r := range l.Requests()[5:] {
			require.Equal(t, l.Requests()[i].Key, r.Key)
			require.Equal(t, numbered(i), string(r.Body))
		}
		l.AssertOnce(t)
		l.AssertSameKey(t)
		report, err = c.Recover(t.Context(), samekey.Recovery{Handle: h.handle})
		require.NoError(t, err)
		require.Zero(t, report)
		require.Len(t, h.got, 5)
		resp, err := c.Do(samekey.Named(post(t, t.Context(), labURL+"/v1/payments", numbered(3)), "op-3"))
		require.NoError(t, err)
		info, _ := samekey.InfoOf(resp)
		require.Equal(t, samekey.Local, info.Source, "a named answer is kept")
		read(t, resp)
	})
}

// A handler that fails or panics is asked again, by the next pass and by the next process, without a request.
func TestRecoverHandsOverAtLeastOnce(t *testing.T) {
	for _, name := range []string{"op", ""} {
		t.Run(name, func(t *testing.T) {
			inLab(t, mockserver.Config{}, func(t *testing.T, l *lab) {
				l.Fault(mockserver.Fault{When: mockserver.AfterCommit, Do: mockserver.Drop, Times: 1})
				first := l.client(t, samekey.Config{Default: samekey.Policy{MaxAttempts: 1}})
				_, err := first.Do(pay(t, t.Context(), name))
				require.ErrorIs(t, err, samekey.ErrUnknown)
				require.NoError(t, first.Close())
				h := &taker{reply: func(n int) error {
					switch n {
					case 1:
						return errors.New("the database is down")
					case 2:
						panic("a bug of the caller's")
					}
					return nil
				}}
				for i := range 4 {
					c := l.client(t, samekey.Config{})
					_, err := c.Recover(t.Context(), samekey.Recovery{Handle: h.handle})
					require.NoError(t, err)
					require.Len(t, h.got, min(i+1, 3))
					require.NoError(t, c.Close())
				}
				for _, got := range h.got {
					require.Equal(t, 201, got.status)
					require.Equal(t, h.got[0].id, got.id)
				}
				require.Len(t, l.Requests(), 2)
				if name == "" {
					require.Zero(t, count(t, l.store), "an anonymous one goes when it was taken")
				} else {
					require.Equal(t, 1, count(t, l.store, samekey.Succeeded))
				}
				l.AssertOnce(t)
			})
		})
	}
}

// One bad operation keeps nobody waiting, is left alone for a while, and is parked in the end.
func TestRecoverIsNotStarved(t *testing.T) {
	inLab(t, mockserver.Config{}, func(t *testing.T, l *lab) {
		l.leave(t, 4)
		bad := l.Keys()[0]
		l.Fault(mockserver.Fault{Key: bad, Do: mockserver.Stall(0)})
		c := l.client(t, samekey.Config{Default: samekey.Policy{Backoff: quick.Backoff}})
		h := &taker{}
		start := time.Now()
		report, err := c.Recover(t.Context(), samekey.Recovery{Handle: h.handle, Concurrency: 2, Jitter: -1, ParkAfter: 9})
		require.NoError(t, err)
		require.Equal(t, samekey.Report{Succeeded: 3, Pending: 1}, report)
		require.Len(t, h.got, 3)
		require.Equal(t, 40*time.Second, time.Since(start))
		for _, r := range l.Requests() {
			if r.Key != bad {
				require.Less(t, r.At.Sub(start), 10*time.Second, "the others went by")
			}
		}
		sent := len(l.Requests())
		report, err = c.Recover(t.Context(), samekey.Recovery{Jitter: -1, ParkAfter: 9})
		require.NoError(t, err)
		require.Zero(t, report)
		require.Len(t, l.Requests(), sent, "it has just been tried")
		time.Sleep(time.Minute)
		report, err = c.Recover(t.Context(), samekey.Recovery{Jitter: -1, ParkAfter: 9})
		require.NoError(t, err)
		require.Equal(t, samekey.Report{Pending: 1, Parked: 1}, report)
		require.Equal(t, 9, func() int { r := stored(t, l.store, "op-0"); return r.Progress.Attempts }(), "those of Do counted")
		time.Sleep(time.Hour)
		report, err = c.Recover(t.Context(), samekey.Recovery{Jitter: -1, ParkAfter: 9})
		require.NoError(t, err)
		require.Zero(t, report)
		require.Len(t, l.Requests(), sent+4)
		_, err = c.Do(samekey.Named(post(t, t.Context(), labURL+"/v1/payments", numbered(0)), "op-0"))
		require.ErrorIs(t, err, samekey.ErrParked)
		require.ErrorIs(t, err, samekey.ErrUnknown)
		require.Len(t, l.Requests(), sent+4)

		// B105: an explicit Resume has fresh attempts under the same key; its age counts from the first send.
		first := stored(t, l.store, "op-0").Progress.FirstSent
		_, err = c.Resume(t.Context(), samekey.Ref{ID: "op-0"})
		require.ErrorIs(t, err, samekey.ErrUnknown)
		require.Len(t, l.Requests(), sent+8)
		var info samekey.Info
		_, err = c.Resume(samekey.WithInfo(samekey.WithPolicy(t.Context(), samekey.Policy{MaxAttempts: 1}), &info), samekey.Ref{ID: "op-0"})
		require.ErrorIs(t, err, samekey.ErrUnknown)
		require.Len(t, l.Requests(), sent+9, "as often as this call says")
		require.Equal(t, "op-0", info.ID)
		require.Equal(t, 14, info.Attempts)
		_, err = c.Resume(samekey.WithPolicy(t.Context(), samekey.Policy{MaxAttempts: -1}), samekey.Ref{ID: "op-0"})
		require.ErrorIs(t, err, samekey.ErrPolicy)
		require.Equal(t, first, stored(t, l.store, "op-0").Progress.FirstSent)
		l.ClearFaults()
		resp, err := c.Resume(t.Context(), samekey.Ref{ID: "op-0"})
		require.NoError(t, err)
		require.Equal(t, 201, resp.StatusCode)
		read(t, resp)
		l.AssertSameKey(t)
		l.AssertAtMostOnce(t)
	})
}

// Who asks for an operation while it is recovered gets a share, from the moment it is claimed.
func TestDoDuringRecoverShares(t *testing.T) {
	inLab(t, mockserver.Config{}, func(t *testing.T, l *lab) {
		l.leave(t, 3)
		l.Fault(mockserver.Fault{Do: mockserver.Delay(5 * time.Second)})
		c := l.client(t, samekey.Config{})
		done := make(chan samekey.Report, 1)
		go func() {
			report, err := c.Recover(context.Background(), samekey.Recovery{Concurrency: 1, Jitter: -1})
			require.NoError(t, err)
			done <- report
		}()
		for i := range 3 {
			synctest.Wait() // one is under way, those after it wait for their turn
			resp, err := c.Do(samekey.Named(post(t, t.Context(), labURL+"/v1/payments", numbered(i)), fmt.Sprint("op-", i)))
			require.NoError(t, err, i)
			require.Equal(t, 201, resp.StatusCode)
			require.Contains(t, read(t, resp), "paymentId")
		}
		<-done
		require.Len(t, l.Requests(), 6, "each once")
		l.AssertNoOverlap(t)
		l.AssertOnce(t)
	})
	t.Run("and keeps it going when recovery is ended", func(t *testing.T) {
		inLab(t, mockserver.Config{}, func(t *testing.T, l *lab) {
			l.leave(t, 1)
			l.Fault(mockserver.Fault{Do: mockserver.Delay(5 * time.Second)})
			c := l.client(t, samekey.Config{})
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() {
				_, err := c.Recover(ctx, samekey.Recovery{Jitter: -1})
				done <- err
			}()
			synctest.Wait()
			shared := make(chan error, 1)
			go func() {
				resp, err := c.Do(samekey.Named(post(t, context.Background(), labURL+"/v1/payments", numbered(0)), "op-0"))
				if err == nil {
					_ = resp.Body.Close()
				}
				shared <- err
			}()
			synctest.Wait()
			cancel()
			require.ErrorIs(t, <-done, context.Canceled)
			require.NoError(t, <-shared)
			require.Len(t, l.Requests(), 2)
		})
	})
}

// B16: two clients of one store that recover at once: one sender for each operation.
func TestCase_B16_OneSender(t *testing.T) {
	inLab(t, mockserver.Config{}, func(t *testing.T, l *lab) {
		l.leave(t, 6)
		l.Fault(mockserver.Fault{Do: mockserver.Delay(2 * time.Second)})
		sum := make(chan int, 3)
		for range 3 {
			c := l.client(t, samekey.Config{})
			go func() {
				report, err := c.Recover(context.Background(), samekey.Recovery{Concurrency: 2, Jitter: -1})
				require.NoError(t, err)
				sum <- report.Succeeded
			}()
		}
		require.Equal(t, 6, <-sum+<-sum+<-sum)
		require.Len(t, l.Requests(), 12)
		l.AssertNoOverlap(t)
		l.AssertOnce(t)
	})
	t.Run("Resume", func(t *testing.T) {
		inLab(t, mockserver.Config{}, func(t *testing.T, l *lab) {
			l.leave(t, 1)
			l.Fault(mockserver.Fault{Do: mockserver.Delay(2 * time.Second)})
			a, b := l.client(t, samekey.Config{}), l.client(t, samekey.Config{})
			done := make(chan error, 1)
			go func() {
				resp, err := a.Resume(context.Background(), samekey.Ref{ID: "op-0"})
				if err == nil {
					_ = resp.Body.Close()
				}
				done <- err
			}()
			synctest.Wait()
			for name, err := range map[string]error{
				"Resume":  func() error { _, err := b.Resume(t.Context(), samekey.Ref{ID: "op-0"}); return err }(),
				"Rekey":   func() error { _, err := b.Rekey(t.Context(), samekey.Ref{ID: "op-0"}); return err }(),
				"Abandon": b.Abandon(t.Context(), samekey.Ref{ID: "op-0"}, "x"),
				"Forget":  b.Forget(t.Context(), samekey.Ref{ID: "op-0"}),
				"Do": func() error {
					_, err := b.Do(samekey.Named(post(t, t.Context(), labURL+"/v1/payments", numbered(0)), "op-0"))
					return err
				}(),
			} {
				require.ErrorIs(t, err, samekey.ErrBusy, name)
				require.Equal(t, samekey.EffectUnknown, samekey.EffectOf(err))
			}
			require.NoError(t, <-done)
			require.Len(t, l.Requests(), 2)
		})
	})
}

// B45: exhaustion ends the call, not the record; identical bodies are two operations.
func TestCase_B45_ExhaustedAndStillThere(t *testing.T) {
	inLab(t, mockserver.Config{OperationOf: func(*http.Request, []byte) string { return "" }}, func(t *testing.T, l *lab) {
		l.Fault(mockserver.Fault{Do: mockserver.Status(503, false)})
		c := l.client(t, samekey.Config{})
		for _, name := range []string{"a", "b", "c", "", ""} { // all of one body
			_, err := c.Do(pay(t, t.Context(), name))
			require.ErrorIs(t, err, samekey.ErrUnknown)
		}
		require.Equal(t, 5, pending(t, l.store))
		require.NoError(t, c.Close())
		l.ClearFaults()
		time.Sleep(time.Hour)
		h := &taker{}
		report, err := l.client(t, samekey.Config{}).Recover(t.Context(), samekey.Recovery{Handle: h.handle})
		require.NoError(t, err)
		require.Equal(t, 5, report.Succeeded)
		require.Len(t, h.got, 5)
		require.Len(t, l.Keys(), 5)
		for _, key := range l.Keys() {
			require.Equal(t, 1, l.EffectsOfKey(key))
		}
	})
}

// What an operation that was recorded before any byte of it left may not lose: a gate, or a server that is not there.
func TestEnqueuedStaysPending(t *testing.T) {
	inLab(t, mockserver.Config{}, func(t *testing.T, l *lab) {
		l.leave(t, 1)
		c := l.client(t, samekey.Config{Default: samekey.Policy{MaxAttempts: 1}})
		key, err := c.Rekey(t.Context(), samekey.Ref{ID: "op-0"}) // as good as new: nothing left under this key
		require.NoError(t, err)
		require.Zero(t, stored(t, l.store, "op-0").Progress.Attempts)
		ways := map[string]func() error{
			"Do": func() error {
				_, err := c.Do(samekey.Named(post(t, t.Context(), labURL+"/v1/payments", numbered(0)), "op-0"))
				return err
			},
			"Resume":  func() error { _, err := c.Resume(t.Context(), samekey.Ref{ID: "op-0"}); return err },
			"Recover": func() error { _, err := c.Recover(t.Context(), samekey.Recovery{Jitter: -1}); return err },
		}
		for name, way := range ways {
			for _, gate := range []bool{false, true} {
				e, err := l.store.Claim(t.Context(), samekey.Ref{ID: "op-0"})
				require.NoError(t, err)
				require.NoError(t, l.store.Mark(t.Context(), e.Claim, persist.Progress{Seen: time.Now()}))
				require.NoError(t, l.store.Release(t.Context(), e.Claim))
				l.ClearFaults()
				if gate {
					l.Fault(mockserver.Fault{Do: mockserver.Status(401, false)})
				} else {
					l.rt.CloseIdleConnections()
					l.rt.Refuse(1)
				}
				err = way()
				if name == "Recover" {
					require.NoError(t, err)
				} else {
					require.Error(t, err)
					require.Equal(t, samekey.EffectUnknown, samekey.EffectOf(err), "%s %v", name, err)
				}
				require.Equal(t, 1, pending(t, l.store), "%s, gate=%v", name, gate)
				require.Equal(t, key, stored(t, l.store, "op-0").Key)
			}
		}
	})
}

// The operator's tools: what they show, what they do, what they refuse.
func TestOperations(t *testing.T) {
	inLab(t, mockserver.Config{}, func(t *testing.T, l *lab) {
		l.leave(t, 3)
		c := l.client(t, samekey.Config{Endpoints: map[string]samekey.Policy{"POST api.test/v1/payments": {}}})
		list := func(f persist.Filter) (ids []string) {
			for op, err := range c.Operations(t.Context(), f) {
				require.NoError(t, err)
				ids = append(ids, op.ID)
			}
			return ids
		}
		require.Equal(t, []string{"op-0", "op-1", "op-2"}, list(persist.Filter{}))
		for range c.Operations(t.Context(), persist.Filter{}) {
			break // a caller may stop
		}
		op, err := c.Operation(t.Context(), samekey.Ref{ID: "op-1"})
		require.NoError(t, err)
		require.True(t, op.Named)
		require.Equal(t, "POST", op.Method)
		require.Equal(t, labURL+"/v1/payments", op.URL)
		require.Equal(t, "POST api.test/v1/payments", op.Endpoint)
		require.Equal(t, samekey.Pending, op.State)
		require.Equal(t, 1, op.Attempts)
		require.Equal(t, op.FirstSent.Add(24*time.Hour), op.Expires)
		require.NotEmpty(t, op.LastError)
		require.Zero(t, op.LastStatus)
		req, err := op.Request(t.Context())
		require.NoError(t, err)
		require.Equal(t, labURL+"/v1/payments", req.URL.String())

		require.NoError(t, c.Abandon(t.Context(), samekey.Ref{ID: "op-1"}, "the customer left"))
		for _, again := range []func() error{
			func() error {
				_, err := c.Do(samekey.Named(post(t, t.Context(), labURL+"/v1/payments", numbered(1)), "op-1"))
				return err
			},
			func() error { _, err := c.Resume(t.Context(), samekey.Ref{ID: "op-1"}); return err },
		} {
			err = again()
			expired := asType[*samekey.ExpiredError](t, err)
			require.Equal(t, samekey.Abandoned, expired.Past)
			require.Equal(t, "the customer left", expired.Reason)
			require.NotErrorIs(t, err, samekey.ErrUnknown)
		}
		require.Error(t, c.Abandon(t.Context(), samekey.Ref{ID: "op-1"}, "again"))
		_, err = c.Rekey(t.Context(), samekey.Ref{ID: "op-1"})
		require.Error(t, err)

		require.NoError(t, c.Forget(t.Context(), samekey.Ref{ID: "op-2"}))
		require.ErrorIs(t, c.Forget(t.Context(), samekey.Ref{ID: "op-2"}), persist.ErrNotFound)
		for _, err := range []error{
			func() error { _, err := c.Operation(t.Context(), samekey.Ref{ID: "op-2"}); return err }(),
			func() error { _, err := c.Resume(t.Context(), samekey.Ref{ID: "op-2"}); return err }(),
			func() error { _, err := c.Rekey(t.Context(), samekey.Ref{ID: "op-2"}); return err }(),
			c.Abandon(t.Context(), samekey.Ref{ID: "op-2"}, ""),
		} {
			require.ErrorIs(t, err, persist.ErrNotFound)
		}

		old := stored(t, l.store, "op-0").Key
		fresh, err := c.Rekey(t.Context(), samekey.Ref{ID: "op-0"})
		require.NoError(t, err)
		rec := stored(t, l.store, "op-0")
		require.Equal(t, fresh, rec.Key)
		require.Equal(t, []string{fresh}, rec.Header["Idempotency-Key"])
		require.NotEqual(t, old, fresh)
		require.Len(t, l.Requests(), 3, "none of it sends")

		report, err := c.Recover(t.Context(), samekey.Recovery{})
		require.NoError(t, err)
		require.Equal(t, samekey.Report{Succeeded: 1}, report)
		require.Equal(t, fresh, l.Requests()[3].Key)
		_, err = c.Rekey(t.Context(), samekey.Ref{ID: "op-0"})
		require.ErrorContains(t, err, "succeeded", "a settled one")
		resp, err := c.Resume(t.Context(), samekey.Ref{ID: "op-0"})
		require.NoError(t, err)
		info, _ := samekey.InfoOf(resp)
		require.Equal(t, samekey.Local, info.Source)
		read(t, resp)
		require.Equal(t, []string{"op-0"}, list(persist.Filter{States: []samekey.State{samekey.Succeeded}}))
	})
}

// A conflict is moved by Resume, or by what the handler of its recovery decides, and by nothing else.
func TestConflictsAreMovedByWord(t *testing.T) {
	for name, row := range map[string]struct {
		decide error
		then   func(t *testing.T, l *lab, c *samekey.Client)
	}{
		"kept": {nil, func(t *testing.T, l *lab, c *samekey.Client) {
			require.Equal(t, 1, count(t, l.store, samekey.Conflicted))
			resp, err := c.Resume(t.Context(), samekey.Ref{ID: "op-0"})
			require.NoError(t, err)
			read(t, resp)
		}},
		"resumed later": {samekey.ResumeAfter(time.Minute), func(t *testing.T, l *lab, c *samekey.Client) {
			sent := len(l.Requests())
			report, err := c.Recover(t.Context(), samekey.Recovery{Jitter: -1})
			require.NoError(t, err)
			require.Zero(t, report)
			require.Len(t, l.Requests(), sent)
			time.Sleep(time.Minute)
			h := &taker{}
			report, err = c.Recover(t.Context(), samekey.Recovery{Jitter: -1, Handle: h.handle})
			require.NoError(t, err)
			require.Equal(t, 1, report.Succeeded)
			require.Equal(t, 201, h.got[0].status)
		}},
		"given up": {samekey.AbandonWith("no use"), func(t *testing.T, l *lab, c *samekey.Client) {
			_, err := c.Do(samekey.Named(post(t, t.Context(), labURL+"/v1/payments", numbered(0)), "op-0"))
			require.Equal(t, "no use", asType[*samekey.ExpiredError](t, err).Reason)
			require.Equal(t, 2, len(l.Requests()))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			inLab(t, mockserver.Config{}, func(t *testing.T, l *lab) {
				l.leave(t, 1)
				l.Fault(mockserver.Fault{Do: mockserver.Status(409, false), Times: 1})
				c := l.client(t, samekey.Config{})
				h := &taker{reply: func(int) error { return row.decide }}
				report, err := c.Recover(t.Context(), samekey.Recovery{Handle: h.handle})
				require.NoError(t, err)
				require.Len(t, h.got, 1)
				require.ErrorIs(t, h.got[0].err, samekey.ErrConflict)
				require.Equal(t, 409, h.got[0].status)
				require.True(t, asType[*samekey.ConflictError](t, h.got[0].err).Ambiguous)
				require.NotZero(t, report)
				row.then(t, l, c)
				l.AssertAtMostOnce(t)
				require.Len(t, slices.Compact(slices.Sorted(slices.Values(wireKeys(l.Requests())))), 1)
			})
		})
	}
}

// Recover ends with its context, with Close, and with a store that fails, and loses nothing by it.
func TestRecoverThatIsEnded(t *testing.T) {
	for _, how := range []string{"context", "Close", "store"} {
		t.Run(how, func(t *testing.T) {
			inLab(t, mockserver.Config{}, func(t *testing.T, l *lab) {
				l.leave(t, 4)
				l.Fault(mockserver.Fault{Do: mockserver.Stall(0)})
				var broken atomic.Bool
				store := &failing{Store: l.store, mark: func() error {
					if broken.Load() {
						return errDisk
					}
					return nil
				}}
				c := l.client(t, samekey.Config{Store: store})
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				done := make(chan error, 1)
				go func() {
					_, err := c.Recover(ctx, samekey.Recovery{Concurrency: 2, Jitter: -1})
					done <- err
				}()
				synctest.Wait()
				require.Len(t, l.Requests(), 6)
				want := context.Canceled
				switch how {
				case "context":
					cancel()
				case "Close":
					want = samekey.ErrClosed
					require.NoError(t, c.Close())
				case "store":
					broken.Store(true)
					want = nil
				}
				err := <-done
				if want == nil {
					require.NoError(t, err, "each operation is told apart: nothing is wrong with the list")
				} else {
					require.ErrorIs(t, err, want)
				}
				require.Equal(t, 4, pending(t, l.store))
				require.NoError(t, c.Close())
				l.ClearFaults()
				time.Sleep(time.Minute)
				report, err := l.client(t, samekey.Config{}).Recover(t.Context(), samekey.Recovery{Jitter: -1})
				require.NoError(t, err)
				require.Equal(t, 4, report.Succeeded, "all claims are free")
				l.AssertOnce(t)
			})
		})
	}
	c := newClient(t, samekey.Config{})
	for _, r := range []samekey.Recovery{{Concurrency: -1}, {ParkAfter: -1}} {
		_, err := c.Recover(t.Context(), r)
		require.ErrorIs(t, err, samekey.ErrPolicy)
	}
	require.NoError(t, c.Close())
	_, err := c.Recover(t.Context(), samekey.Recovery{})
	require.ErrorIs(t, err, samekey.ErrClosed)
	require.NoError(t, c.Close(), "twice does nothing")
}

// An anonymous success stays pending until its caller has it, and so does one that Close finds unread.
func TestAnonymousSuccessUntilItIsRead(t *testing.T) {
	inLab(t, mockserver.Config{}, func(t *testing.T, l *lab) {
		c := l.client(t, samekey.Config{})
		resp, err := c.Do(pay(t, t.Context(), ""))
		require.NoError(t, err)
		report, err := c.Recover(t.Context(), samekey.Recovery{Jitter: -1})
		require.NoError(t, err)
		require.Zero(t, report, "it is owned")
		require.NoError(t, c.Close())
		require.Equal(t, 1, pending(t, l.store))
		_ = resp.Body.Close()
		require.Equal(t, 1, pending(t, l.store), "too late")

		h := &taker{}
		next := l.client(t, samekey.Config{})
		_, err = next.Recover(t.Context(), samekey.Recovery{Handle: h.handle})
		require.NoError(t, err)
		require.Len(t, h.got, 1)
		require.Zero(t, count(t, l.store))
		l.AssertOnce(t)

		resp, err = next.Do(pay(t, t.Context(), ""))
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close(), "closing is having it")
		require.Zero(t, count(t, l.store))
	})
}
