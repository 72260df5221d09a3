package samekey_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/samekey/samekey"
	"github.com/samekey/samekey/mockserver"
	"github.com/samekey/samekey/persist"
)

// TestTimeouts: what time ends, where it ends it, and what may be told of it. Neither an attempt's timeout nor that of
// the client beneath is the caller's deadline.
func TestTimeouts(t *testing.T) {
	errMine := errors.New("the user's patience")
	for _, named := range []bool{true, false} {
		for _, tt := range []struct {
			name     string
			fault    mockserver.Action
			policy   samekey.Policy
			base     time.Duration // http.Client.Timeout beneath
			ctx      func(context.Context) (context.Context, context.CancelFunc)
			refuse   bool
			want     time.Duration
			requests int
			is       []error
			isNot    []error
		}{
			{name: "silence", fault: mockserver.Stall(0), policy: samekey.Policy{AttemptTimeout: 2 * time.Second, MaxAttempts: 3},
				want: 6 * time.Second, requests: 3, is: []error{samekey.ErrTimeout}, isNot: []error{context.DeadlineExceeded, context.Canceled}},
			{name: "silence in the body", fault: mockserver.StallBody(0), policy: samekey.Policy{AttemptTimeout: 2 * time.Second, MaxAttempts: 3},
				want: 6 * time.Second, requests: 3, is: []error{samekey.ErrTimeout}, isNot: []error{context.DeadlineExceeded, context.Canceled}},
			{name: "timeout of the client beneath", fault: mockserver.Stall(0), base: 3 * time.Second, policy: samekey.Policy{MaxAttempts: 2},
				want: 6 * time.Second, requests: 2, is: []error{samekey.ErrTimeout}, isNot: []error{context.DeadlineExceeded, context.Canceled}},
			{name: "the policy's deadline", fault: mockserver.Stall(0), policy: samekey.Policy{AttemptTimeout: 4 * time.Second, Deadline: 10 * time.Second},
				want: 10 * time.Second, requests: 3, is: []error{context.DeadlineExceeded}, isNot: []error{context.Canceled}},
			{name: "the caller's deadline", fault: mockserver.Stall(0),
				ctx: func(ctx context.Context) (context.Context, context.CancelFunc) {
					return context.WithTimeout(ctx, 5*time.Second)
				},
				want: 5 * time.Second, requests: 1, is: []error{context.DeadlineExceeded}, isNot: []error{context.Canceled, samekey.ErrTimeout}},
			{name: "the caller's deadline, with a cause", fault: mockserver.Stall(0),
				ctx: func(ctx context.Context) (context.Context, context.CancelFunc) {
					return context.WithTimeoutCause(ctx, 5*time.Second, errMine)
				},
				want: 5 * time.Second, requests: 1, is: []error{context.DeadlineExceeded, errMine}, isNot: []error{context.Canceled, samekey.ErrTimeout}},
			{name: "no time for the next wait", fault: mockserver.Status(503, false).With("Retry-After", "30"),
				ctx: func(ctx context.Context) (context.Context, context.CancelFunc) {
					return context.WithTimeout(ctx, 20*time.Second)
				},
				requests: 1, is: []error{context.DeadlineExceeded}, isNot: []error{context.Canceled}},
			{name: "no time for the next wait by policy", fault: mockserver.Status(503, false).With("Retry-After", "30"), policy: samekey.Policy{Deadline: 20 * time.Second},
				requests: 1, is: []error{context.DeadlineExceeded}, isNot: []error{context.Canceled}},
			{name: "no time for another dial", refuse: true, policy: samekey.Policy{Backoff: samekey.Backoff{Min: 10 * time.Second, Max: 10 * time.Second}, Deadline: 15 * time.Second},
				want: 10 * time.Second, is: []error{context.DeadlineExceeded}, isNot: []error{context.Canceled}},
		} {
			t.Run(fmt.Sprintf("%s/named=%v", tt.name, named), func(t *testing.T) {
				inLab(t, mockserver.Config{}, func(t *testing.T, l *lab) {
					if tt.refuse {
						l.rt.Refuse(1000)
					} else {
						l.Fault(mockserver.Fault{Do: tt.fault, When: mockserver.AfterCommit})
					}
					policy := tt.policy
					if policy.Backoff.Min == 0 {
						policy.Backoff.Min = -1
					}
					c := l.client(t, samekey.Config{Default: policy, HTTPClient: &http.Client{Transport: l.rt.Transport, Timeout: tt.base}})
					ctx := t.Context()
					if tt.ctx != nil {
						var cancel context.CancelFunc
						ctx, cancel = tt.ctx(ctx)
						defer cancel()
					}
					name := ""
					if named {
						name = opName
					}
					began := time.Now()
					_, err := c.Do(pay(t, ctx, name))
					require.Equal(t, tt.want, time.Since(began))
					for _, target := range tt.is {
						require.ErrorIs(t, err, target)
					}
					for _, target := range tt.isNot {
						require.NotErrorIs(t, err, target)
					}
					require.Len(t, l.Requests(), tt.requests)
					if tt.refuse {
						require.ErrorIs(t, err, samekey.ErrNotSent)
						require.Equal(t, samekey.EffectNone, samekey.EffectOf(err))
						require.Zero(t, count(t, l.store))
						return
					}
					require.ErrorIs(t, err, samekey.ErrUnknown)
					require.Equal(t, samekey.EffectUnknown, samekey.EffectOf(err))
					require.Equal(t, 1, pending(t, l.store))
					l.AssertSameKey(t)
				})
			})
		}
	}
}

// TestConflictStalledInItsBody: the head of a 409 has come; that its body has not is no reason to ask again.
func TestConflictStalledInItsBody(t *testing.T) {
	inLab(t, mockserver.Config{}, func(t *testing.T, l *lab) {
		l.Fault(mockserver.Fault{Do: mockserver.StallBody(0)})
		c := l.client(t, samekey.Config{Default: samekey.Policy{AttemptTimeout: 2 * time.Second, Backoff: samekey.Backoff{Min: -1}}})
		// The sample API answers 409 to a second cancel; here it is what a mismatch gets.
		l.ClearFaults()
		resp, err := c.Do(withKey(pay(t, t.Context(), "first"), "key-1234"))
		require.NoError(t, err)
		read(t, resp)
		l.Fault(mockserver.Fault{Do: mockserver.StallBody(0), When: mockserver.AfterCommit})
		n := len(l.Requests())
		req := withKey(post(t, t.Context(), labURL+"/v1/payments", `{"amount":5,"currency":"RUB","orderRef":"order-2"}`), "key-1234")
		resp, err = c.Transport().RoundTrip(samekey.Named(req, "second"))
		require.NoError(t, err)
		require.Equal(t, http.StatusConflict, resp.StatusCode)
		require.ErrorIs(t, samekey.ErrorOf(resp), samekey.ErrConflict)
		_, err = resp.Body.Read(make([]byte, 1<<16))
		require.NoError(t, err)
		_, err = resp.Body.Read(make([]byte, 1<<16))
		require.Error(t, err, "a body that was cut off has no clean end")
		require.NoError(t, resp.Body.Close())
		require.Len(t, l.Requests(), n+1)
		require.Equal(t, 1, count(t, l.store, samekey.Conflicted))
		l.AssertConflictFinal(t)
	})
}

func withKey(req *http.Request, key string) *http.Request {
	req.Header.Set("Idempotency-Key", key)
	return req
}

// bent is a store of which single steps fail.
type bent struct {
	persist.Store
	mu   sync.Mutex
	fail func(method string, n int) error // n counts the method's calls from 1
	n    map[string]int
}

func (b *bent) err(method string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.n == nil {
		b.n = map[string]int{}
	}
	b.n[method]++
	if b.fail == nil {
		return nil
	}
	return b.fail(method, b.n[method])
}

func (b *bent) mend() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.fail = nil
}

func (b *bent) Begin(ctx context.Context, r persist.Record) (persist.Entry, error) {
	if err := b.err("Begin"); err != nil {
		return persist.Entry{}, err
	}
	return b.Store.Begin(ctx, r)
}

func (b *bent) Mark(ctx context.Context, c persist.Claim, p persist.Progress) error {
	if err := b.err("Mark"); err != nil {
		return err
	}
	return b.Store.Mark(ctx, c, p)
}

func (b *bent) Settle(ctx context.Context, c persist.Claim, a persist.Answer) error {
	if err := b.err("Settle"); err != nil {
		return err
	}
	return b.Store.Settle(ctx, c, a)
}

// TestStoreFailsUnderWay: "no effect" is told only once it is durable; a success or a conflict keeps its answer.
func TestStoreFailsUnderWay(t *testing.T) {
	poisoned := &persist.Error{Store: "bent", Method: "any", Err: errors.New("fsync: input/output error")}
	lost := fmt.Errorf("bent: %w", persist.ErrClaimLost)
	for _, failure := range []error{poisoned, lost} {
		for _, tt := range []struct {
			name    string
			script  []reply
			shut    bool
			method  string
			unknown bool
			status  int
			sent    int
		}{
			{"mark of the second attempt", []reply{answers(503, "{}"), created}, false, "Mark", true, 503, 1},
			{"mark after a dial that failed", []reply{created}, true, "Mark", true, 0, 0},
			{"taking back what was not sent", []reply{created}, true, "Settle", true, 0, 0},
			{"rejection", []reply{answers(400, "{}")}, false, "Settle", true, 400, 1},
			{"gate", []reply{answers(401, "{}")}, false, "Settle", true, 401, 1},
			{"success", []reply{created}, false, "Settle", false, 201, 1},
			{"conflict", []reply{answers(409, "{}")}, false, "Settle", false, 409, 1},
		} {
			t.Run(fmt.Sprintf("%s/%v", tt.name, failure), func(t *testing.T) {
				p, rt := newPeer(t, tt.script...), newGated(t)
				if tt.shut {
					rt.shut(refuses)
				}
				store := &bent{Store: newStore(t), fail: func(method string, _ int) error {
					if method == tt.method {
						return failure
					}
					return nil
				}}
				rec := &recorder{}
				c := newClient(t, samekey.Config{Store: store, HTTPClient: rt.client(), Default: quick, Observer: rec.observe})
				var info samekey.Info
				send := func() (*http.Response, error) {
					return c.Do(samekey.Named(post(t, samekey.WithInfo(t.Context(), &info), p.url, payment), opName))
				}
				resp, err := send()
				require.Len(t, p.requests(), tt.sent)
				require.NotEmpty(t, rec.all(samekey.StepStoreError))
				require.Equal(t, samekey.EffectUnknown, samekey.EffectOf(err))
				if tt.unknown {
					require.ErrorIs(t, err, samekey.ErrUnknown)
					require.ErrorIs(t, err, failure)
					e, _ := errors.AsType[*samekey.OutcomeUnknownError](err)
					if tt.status == 0 {
						require.Nil(t, e.Last)
					} else {
						require.Equal(t, tt.status, e.Last.Status)
						require.Equal(t, "{}", string(e.Last.Body))
					}
					require.Equal(t, 1, pending(t, store))
					return
				}
				require.ErrorIs(t, info.StoreErr, failure)
				if tt.status == 201 {
					require.NoError(t, err)
					require.JSONEq(t, `{"id":1}`, read(t, resp))
					require.Equal(t, samekey.Succeeded, info.State)
					return
				}
				require.ErrorIs(t, err, samekey.ErrConflict)
				// Nothing of this process sends it again, whether the store has come back or not.
				for i := range 3 {
					_, err = send()
					require.ErrorIs(t, err, samekey.ErrConflict)
					require.Equal(t, samekey.Local, info.Source)
					require.Zero(t, info.Sends)
					_, err = c.Recover(t.Context(), samekey.Recovery{Jitter: -1})
					require.NoError(t, err)
					if i == 1 {
						store.mend()
					}
				}
				require.Len(t, p.requests(), 1)
				// Resume is the caller's word.
				p.meet(created)
				resp, err = c.Resume(t.Context(), opRef)
				require.NoError(t, err)
				read(t, resp)
				require.Len(t, p.requests(), 2)
			})
		}
	}
}

func TestStoreRefusesBegin(t *testing.T) {
	for _, maybe := range []bool{false, true} {
		p := newPeer(t, created)
		cause := errors.New("no space left on device")
		store := &bent{Store: newStore(t), fail: func(string, int) error {
			return &persist.Error{Store: "bent", Method: "Begin", Maybe: maybe, Err: cause}
		}}
		c := newClient(t, samekey.Config{Store: store, HTTPClient: newGated(t).client(), Default: quick})
		for _, named := range []bool{true, false} {
			req := post(t, t.Context(), p.url, payment)
			want := samekey.EffectNone
			if named {
				req = samekey.Named(req, opName)
			}
			if named || maybe {
				want = samekey.EffectUnknown
			}
			_, err := c.Do(req)
			e, ok := errors.AsType[*samekey.StoreError](err)
			require.True(t, ok)
			require.ErrorIs(t, err, samekey.ErrStore)
			require.ErrorIs(t, err, cause)
			require.Equal(t, maybe, e.MayBeRecorded)
			require.Equal(t, want, samekey.EffectOf(err), "maybe=%v named=%v", maybe, named)
			if named {
				require.Equal(t, opName, e.ID)
			} else {
				require.Equal(t, e.Key, e.ID, "how else would anybody find it")
			}
		}
		require.Empty(t, p.requests())
	}
}

// TestLeavingAFlight: one call, two callers. Who leaves does not know; the other gets the answer of the one request.
func TestLeavingAFlight(t *testing.T) {
	for _, leaver := range []string{"the first", "the second"} {
		t.Run(leaver, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				eng := mockserver.New(mockserver.Config{})
				defer eng.Close()
				eng.Fault(mockserver.Fault{Do: mockserver.Delay(5 * time.Second)})
				store := newStore(t)
				c := newClient(t, samekey.Config{Store: store, HTTPClient: &http.Client{Transport: eng.Transport().Transport}, Default: quick})
				errLeft := errors.New("gone to lunch")
				impatient, leave := context.WithCancelCause(t.Context())
				ctxs := []context.Context{impatient, t.Context()}
				if leaver == "the second" {
					ctxs[0], ctxs[1] = ctxs[1], ctxs[0]
				}
				type result struct {
					resp *http.Response
					info samekey.Info
					err  error
				}
				var results [2]result
				var wg sync.WaitGroup
				for i, ctx := range ctxs {
					wg.Go(func() {
						r := &results[i]
						r.resp, r.err = c.Do(pay(t, samekey.WithInfo(ctx, &r.info), opName))
					})
					synctest.Wait()
				}
				// A third asks for something else under the same name.
				_, err := c.Do(samekey.Named(post(t, t.Context(), labURL+"/v1/payments", `{"amount":7}`), opName))
				mismatch, ok := errors.AsType[*samekey.MismatchError](err)
				require.True(t, ok)
				require.Equal(t, samekey.EffectUnknown, samekey.EffectOf(err))

				leave(errLeft)
				synctest.Wait()
				gone, stays := &results[0], &results[1]
				if leaver == "the second" {
					gone, stays = stays, gone
				}
				require.ErrorIs(t, gone.err, samekey.ErrUnknown)
				require.ErrorIs(t, gone.err, errLeft)
				require.ErrorIs(t, gone.err, context.Canceled)
				require.Equal(t, samekey.EffectUnknown, samekey.EffectOf(gone.err))
				wg.Wait()
				require.NoError(t, stays.err)
				require.Equal(t, http.StatusCreated, stays.resp.StatusCode)
				read(t, stays.resp)
				require.Len(t, eng.Requests(), 1)
				for _, call := range []samekey.Call{asType[*samekey.OutcomeUnknownError](t, gone.err).Call, mismatch.Call} {
					if call.Key != "" {
						require.Equal(t, eng.Requests()[0].Key, call.Key, "a key that the server was never given")
					}
				}
				source := samekey.Shared
				if leaver == "the second" {
					source = samekey.Network
				}
				require.Equal(t, source, stays.info.Source)
				rec := stored(t, store, opName)
				require.Equal(t, samekey.Succeeded, rec.State())
			})
		})
	}
}

// TestSharedAnswersAreSeparate: what one caller does to its response is no matter of the other's, also under an adopted
// key without a name.
func TestSharedAnswersAreSeparate(t *testing.T) {
	for _, named := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			eng := mockserver.New(mockserver.Config{})
			defer eng.Close()
			eng.Fault(mockserver.Fault{Do: mockserver.Delay(time.Second)})
			c := newClient(t, samekey.Config{HTTPClient: &http.Client{Transport: eng.Transport().Transport}, Default: quick})
			var wg sync.WaitGroup
			for range 8 {
				wg.Go(func() {
					req := withKey(pay(t, t.Context(), ""), "key-of-all")
					if named {
						req = pay(t, t.Context(), opName)
					}
					resp, err := c.Do(req)
					require.NoError(t, err)
					require.Empty(t, resp.Header.Get("X-Mine"))
					resp.Header.Set("X-Mine", "yes")
					require.Contains(t, read(t, resp), "paymentId")
				})
			}
			wg.Wait()
			require.Len(t, eng.Requests(), 1)
		})
	}
}

// TestLargeAnswers: beyond MaxResponse an answer is settled at its head; the caller gets all of it, an error or the store
// exactly as much as the policy allows, and nobody a clean end of what was cut.
func TestLargeAnswers(t *testing.T) {
	body := make([]byte, 10_000)
	for i := range body {
		body[i] = 'a' + byte(i%26)
	}
	policy := samekey.Policy{Backoff: samekey.Backoff{Min: -1}, MaxResponse: 1000}
	t.Run("success", func(t *testing.T) {
		p, store := newPeer(t, answers(200, string(body))), newStore(t)
		c := newClient(t, samekey.Config{Store: store, HTTPClient: newGated(t).client(), Default: policy})
		resp, err := c.Do(samekey.Named(post(t, t.Context(), p.url, payment), opName))
		require.NoError(t, err)
		require.Equal(t, string(body), read(t, resp))
		rec := stored(t, store, opName)
		require.True(t, rec.Answer.Truncated)
		require.Equal(t, string(body[:1000]), string(rec.Answer.Body))
		resp, err = c.Do(samekey.Named(post(t, t.Context(), p.url, payment), opName))
		require.NoError(t, err)
		got := make([]byte, 2000)
		n, err := readFull(resp, got)
		require.Equal(t, 1000, n)
		require.Error(t, err)
		require.Len(t, p.requests(), 1)
	})
	t.Run("conflict", func(t *testing.T) {
		p, store := newPeer(t, answers(409, string(body))), newStore(t)
		c := newClient(t, samekey.Config{Store: store, HTTPClient: newGated(t).client(), Default: policy})
		_, err := c.Do(samekey.Named(post(t, t.Context(), p.url, payment), opName))
		require.Len(t, asType[*samekey.ConflictError](t, err).Body, 1000)
	})
	t.Run("503, and the caller leaves in the wait", func(t *testing.T) {
		p := newPeer(t, answers(503, string(body)))
		ctx, cancel := context.WithCancel(t.Context())
		slow := policy
		slow.Backoff = samekey.Backoff{Min: time.Hour, Max: time.Hour}
		slow.Deadline = -1
		c := newClient(t, samekey.Config{HTTPClient: newGated(t).client(), Default: slow, Observer: func(_ context.Context, e samekey.Event) {
			if e.Step == samekey.StepWait {
				cancel()
			}
		}})
		resp, err := c.Transport().RoundTrip(samekey.Named(post(t, ctx, p.url, payment), opName))
		require.NoError(t, err)
		require.ErrorIs(t, samekey.ErrorOf(resp), context.Canceled)
		n, err := readFull(resp, make([]byte, 20_000))
		require.Less(t, n, len(body))
		require.Error(t, err)
	})
	t.Run("no limit", func(t *testing.T) {
		p := newPeer(t, answers(200, string(body)))
		all := samekey.Policy{MaxResponse: 1<<63 - 1, MaxBody: 1<<63 - 1}
		c := newClient(t, samekey.Config{HTTPClient: newGated(t).client(), Default: all})
		req := post(t, t.Context(), p.url, payment)
		req.ContentLength, req.GetBody = -1, nil
		resp, err := c.Do(req)
		require.NoError(t, err)
		require.Equal(t, string(body), read(t, resp))
		require.Contains(t, p.requests()[0], payment)
		p.meet(says("HTTP/1.1 200 OK\r\nContent-Length: 9223372036854775806\r\n\r\nabc"))
		_, err = c.Do(post(t, samekey.WithPolicy(t.Context(), samekey.Policy{MaxAttempts: 1}), p.url, payment))
		require.ErrorIs(t, err, samekey.ErrUnknown)
	})
}

// readFull reads until an end, and returns it if it was no clean one.
func readFull(resp *http.Response, buf []byte) (n int, err error) {
	defer func() { _ = resp.Body.Close() }()
	for n < len(buf) {
		m, err := resp.Body.Read(buf[n:])
		n += m
		if err != nil && err.Error() == "EOF" {
			return n, nil
		}
		if err != nil {
			return n, err
		}
	}
	return n, nil
}

// TestStillToBeSent: an operation that was given a new key is not taken back by a call that gets nowhere.
func TestStillToBeSent(t *testing.T) {
	for _, how := range []string{"gate", "not reached"} {
		p, rt, store := newPeer(t, hangsUp), newGated(t), newStore(t)
		c := newClient(t, samekey.Config{Store: store, HTTPClient: rt.client(), Default: quick})
		send := func() (*http.Response, error) {
			return c.Do(samekey.Named(post(t, t.Context(), p.url, payment), opName))
		}
		_, err := send()
		require.ErrorIs(t, err, samekey.ErrUnknown)
		key, err := c.Rekey(t.Context(), opRef)
		require.NoError(t, err)
		n := len(p.requests())
		if p.meet(answers(401, "{}")); how == "not reached" {
			rt.shut(refuses)
		}
		_, err = send()
		require.ErrorIs(t, err, samekey.ErrUnknown, how)
		require.Equal(t, key, stored(t, store, opName).Key)
		require.Equal(t, 1, pending(t, store))
		rt.shut(nil)
		p.meet(created)
		resp, err := send()
		require.NoError(t, err)
		read(t, resp)
		for _, raw := range p.requests()[n:] {
			require.Equal(t, "Idempotency-Key: "+key, keyLine(raw, "Idempotency-Key"))
		}
	}
}

// TestEndedBeforeItBegan: who has left when it calls starts nothing, however quick.
func TestEndedBeforeItBegan(t *testing.T) {
	inLab(t, mockserver.Config{}, func(t *testing.T, l *lab) {
		rec := &recorder{}
		c := l.client(t, samekey.Config{Observer: rec.observe})
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		for i := range 500 {
			_, err := c.Do(pay(t, ctx, fmt.Sprint(opName, i)))
			require.ErrorIs(t, err, samekey.ErrNotSent)
			require.ErrorIs(t, err, context.Canceled)
		}
		require.Empty(t, rec.all(samekey.StepBegin))
		require.Empty(t, l.Requests())
		require.Zero(t, count(t, l.store))
	})
}
