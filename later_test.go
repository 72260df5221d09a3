package samekey_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/samekey/samekey"
	"github.com/samekey/samekey/mockserver"
	"github.com/samekey/samekey/persist"
)

// acquirer is a server that answers as it is told, and keeps what it was sent.
type acquirer struct {
	*httptest.Server
	mu     sync.Mutex
	status int
	sent   []string // the key of each request, wherever it was
}

func newAcquirer(t *testing.T, status int) *acquirer {
	s := &acquirer{status: status}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		var member struct {
			Key string `json:"requestId"`
		}
		_ = json.Unmarshal(body, &member)
		form, _ := url.ParseQuery(string(body))
		s.mu.Lock()
		defer s.mu.Unlock()
		s.sent = append(s.sent, r.Header.Get("Idempotency-Key")+member.Key+r.URL.Query().Get("requestId")+form.Get("requestId"))
		w.WriteHeader(s.status)
		_, _ = io.WriteString(w, `{}`)
	}))
	t.Cleanup(s.Close)
	return s
}

func (s *acquirer) answers(status int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.status = status
}

func (s *acquirer) keys() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.sent...)
}

func (s *acquirer) pay(t *testing.T, body string) *http.Request {
	return samekey.Named(post(t, t.Context(), s.URL+"/v1/payments", body), "op")
}

// fails has the operation begun, and its answer unknown.
func (s *acquirer) fails(t *testing.T, c *samekey.Client) {
	t.Helper()
	_, err := c.Do(s.pay(t, payment))
	require.ErrorIs(t, err, samekey.ErrUnknown)
}

var (
	theOp = samekey.Ref{ID: "op"}
	once  = samekey.Policy{MaxAttempts: 1}
)

func verdict(v samekey.Verdict) func(context.Context, samekey.Operation, samekey.Why) (samekey.Verdict, error) {
	return func(context.Context, samekey.Operation, samekey.Why) (samekey.Verdict, error) { return v, nil }
}

// TestNewKeyOnTheWire: what Reconcile has sent under a new key bears that key, wherever the contract puts it, and so does
// what follows.
func TestNewKeyOnTheWire(t *testing.T) {
	form := http.Header{"Content-Type": {"application/x-www-form-urlencoded"}}
	for name, place := range map[string]struct {
		carrier samekey.Carrier
		body    string
		header  http.Header
	}{
		"header": {samekey.Header("Idempotency-Key"), payment, nil},
		"body":   {samekey.BodyMember("/requestId"), payment, nil},
		"query":  {samekey.QueryParam("requestId"), payment, nil},
		"form":   {samekey.FormField("requestId"), "amount=1", form},
	} {
		t.Run(name, func(t *testing.T) {
			s := newAcquirer(t, http.StatusInternalServerError)
			p := once
			p.Contract = &samekey.Contract{Carrier: place.carrier, Life: 24 * time.Hour}
			c := newClient(t, samekey.Config{Default: p})
			req := s.pay(t, place.body)
			for name, lines := range place.header {
				req.Header[name] = lines
			}
			_, err := c.Do(req)
			require.ErrorIs(t, err, samekey.ErrUnknown)
			old, err := c.Operation(t.Context(), theOp)
			require.NoError(t, err)
			report, err := c.Recover(t.Context(), samekey.Recovery{Jitter: -1, ParkAfter: 1, Reconcile: verdict(samekey.SendUnderNewKey)})
			require.NoError(t, err)
			require.Equal(t, samekey.Report{Reconciled: 1}, report)
			now, err := c.Operation(t.Context(), theOp)
			require.NoError(t, err)
			require.NotEqual(t, old.Key, now.Key)
			s.answers(http.StatusCreated)
			resp, err := c.Resume(t.Context(), theOp)
			require.NoError(t, err)
			read(t, resp)
			require.Equal(t, []string{old.Key, now.Key, now.Key}, s.keys())
		})
	}
}

// TestReconcileMayTakeItsTime: a hook that is slower than Policy.Deadline costs the attempt that it allows nothing.
func TestReconcileMayTakeItsTime(t *testing.T) {
	inLab(t, mockserver.Config{}, func(t *testing.T, l *lab) {
		l.leave(t, 1)
		l.Fault(mockserver.Fault{Do: mockserver.Delay(100 * time.Millisecond)})
		c := l.client(t, samekey.Config{Default: samekey.Policy{MaxAttempts: 1, AttemptTimeout: time.Second, Deadline: 2 * time.Second}})
		report, err := c.Recover(t.Context(), samekey.Recovery{Jitter: -1, ParkAfter: 1,
			Reconcile: func(context.Context, samekey.Operation, samekey.Why) (samekey.Verdict, error) {
				time.Sleep(time.Minute)
				return samekey.SendUnderNewKey, nil
			}})
		require.NoError(t, err)
		require.Equal(t, samekey.Report{Reconciled: 1}, report)
		require.Zero(t, pending(t, l.store))
	})
}

// TestHooksSlowerThanTheLease: what a hook decides holds although the claim has lapsed meanwhile, as long as nobody has
// changed the operation.
func TestHooksSlowerThanTheLease(t *testing.T) {
	slow := func() { time.Sleep(2 * leaseTime) }
	for name, verdict := range map[string]samekey.Verdict{"happened": samekey.Happened, "did not": samekey.DidNotHappen, "new key": samekey.SendUnderNewKey} {
		t.Run("Reconcile, "+name, func(t *testing.T) {
			inLab(t, mockserver.Config{}, func(t *testing.T, l *lab) {
				store := newLapsing(t)
				l.store = store
				l.leave(t, 1)
				c := l.client(t, samekey.Config{Default: once})
				report, err := c.Recover(t.Context(), samekey.Recovery{Jitter: -1, ParkAfter: 1,
					Reconcile: func(context.Context, samekey.Operation, samekey.Why) (samekey.Verdict, error) {
						slow()
						return verdict, nil
					}})
				require.NoError(t, err)
				require.Equal(t, samekey.Report{Reconciled: 1}, report)
				require.Zero(t, pending(t, store))
			})
		})
	}
	for name, end := range map[string]struct {
		fault error
		state samekey.State
	}{"accepted": {nil, samekey.Succeeded}, "abandoned": {samekey.AbandonWith("x"), samekey.Abandoned}, "resumed": {samekey.ResumeAfter(time.Hour), samekey.Pending}} {
		t.Run("Handle, "+name, func(t *testing.T) {
			inLab(t, mockserver.Config{}, func(t *testing.T, l *lab) {
				l.store = newLapsing(t)
				l.leave(t, 1)
				if end.fault != nil {
					l.Fault(mockserver.Fault{Do: mockserver.Status(409, false)})
				}
				c := l.client(t, samekey.Config{Default: once})
				handled := 0
				for range 2 {
					_, err := c.Recover(t.Context(), samekey.Recovery{Jitter: -1, Handle: func(context.Context, samekey.Operation, *http.Response, error) error {
						handled++
						slow()
						return end.fault
					}})
					require.NoError(t, err)
				}
				require.Equal(t, 1, handled)
				op, err := c.Operation(t.Context(), samekey.Ref{ID: "op-0"})
				require.NoError(t, err)
				require.Equal(t, end.state, op.State)
			})
		})
	}
}

// TestNewKeyIsNew: a key format that makes the same key again is refused, and the operation stays as it is.
func TestNewKeyIsNew(t *testing.T) {
	s := newAcquirer(t, http.StatusInternalServerError)
	p := once
	p.KeyFormat = samekey.KeyFunc(func(r samekey.Ref) (string, error) {
		sum := sha256.Sum256([]byte(r.ID))
		return hex.EncodeToString(sum[:16]), nil
	})
	c := newClient(t, samekey.Config{Default: p})
	s.fails(t, c)
	old, err := c.Operation(t.Context(), theOp)
	require.NoError(t, err)
	_, err = c.Rekey(t.Context(), theOp)
	require.ErrorIs(t, err, samekey.ErrKey)
	report, err := c.Recover(t.Context(), samekey.Recovery{Jitter: -1, ParkAfter: 1, Reconcile: verdict(samekey.SendUnderNewKey)})
	require.NoError(t, err)
	require.Equal(t, 1, report.Pending)
	now, err := c.Operation(t.Context(), theOp)
	require.NoError(t, err)
	require.Equal(t, old.FirstSent, now.FirstSent)
	require.Len(t, s.keys(), 1)
}

// TestResumedConflictIsPending: once a conflicted operation is sent again, the conflict is not its answer any more.
func TestResumedConflictIsPending(t *testing.T) {
	t.Run("unknown", func(t *testing.T) {
		s := newAcquirer(t, http.StatusConflict)
		c := newClient(t, samekey.Config{Default: once})
		_, err := c.Do(s.pay(t, payment))
		require.ErrorIs(t, err, samekey.ErrConflict)
		s.answers(http.StatusServiceUnavailable)
		_, err = c.Resume(t.Context(), theOp)
		require.ErrorIs(t, err, samekey.ErrUnknown)
		op, err := c.Operation(t.Context(), theOp)
		require.NoError(t, err)
		require.Equal(t, samekey.Pending, op.State)
		s.answers(http.StatusCreated)
		resp, err := c.Do(s.pay(t, payment))
		require.NoError(t, err)
		read(t, resp)
		require.Equal(t, []string{op.Key, op.Key, op.Key}, s.keys())
	})
	t.Run("conflicted again", func(t *testing.T) {
		s := newAcquirer(t, http.StatusConflict)
		c := newClient(t, samekey.Config{Default: once})
		_, err := c.Do(s.pay(t, payment))
		require.ErrorIs(t, err, samekey.ErrConflict)
		_, err = c.Resume(t.Context(), theOp)
		require.ErrorIs(t, err, samekey.ErrConflict)
		_, err = c.Do(s.pay(t, payment))
		require.ErrorIs(t, err, samekey.ErrConflict)
		require.Len(t, s.keys(), 2, "the last was answered here")
	})
	t.Run("accepted", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			status, posts, polls := http.StatusConflict, 0, 0
			rt := roundTripper(func(r *http.Request) (*http.Response, error) {
				resp := &http.Response{StatusCode: status, Header: http.Header{}, Body: io.NopCloser(strings.NewReader("{}")), Request: r}
				if r.Method == http.MethodGet {
					polls++
				} else {
					posts++
					resp.Header.Set("Location", "/ops/1")
				}
				return resp, nil
			})
			c := newClient(t, samekey.Config{HTTPClient: &http.Client{Transport: rt}, Default: samekey.Policy{Await: samekey.On}})
			do := func() error {
				resp, err := c.Do(pay(t, t.Context(), "op"))
				if err == nil {
					read(t, resp)
				}
				return err
			}
			require.ErrorIs(t, do(), samekey.ErrConflict)
			status = http.StatusAccepted
			_, err := c.Resume(t.Context(), theOp)
			require.ErrorIs(t, err, samekey.ErrUnknown, "it is processed for longer than Deadline")
			asked := polls
			require.Positive(t, asked)
			status = http.StatusOK
			time.Sleep(time.Minute)
			report, err := c.Recover(t.Context(), samekey.Recovery{Jitter: -1})
			require.NoError(t, err)
			require.Equal(t, samekey.Report{Succeeded: 1}, report)
			require.Equal(t, asked+1, polls)
			require.Equal(t, 2, posts)
			require.NoError(t, do())
		})
	})
}

// unwritable refuses to settle while it is told to.
type unwritable struct {
	persist.Store
	bad bool
}

func (s *unwritable) Settle(ctx context.Context, c persist.Claim, a persist.Answer) error {
	if s.bad {
		return errors.New("disk trouble")
	}
	return s.Store.Settle(ctx, c, a)
}

// TestConflictOfAnEarlierKey: a conflict that could not be written down is not the answer of the operation under the key
// that another process has given it since.
func TestConflictOfAnEarlierKey(t *testing.T) {
	s := newAcquirer(t, http.StatusConflict)
	store := &unwritable{Store: newStore(t), bad: true}
	a, b := newClient(t, samekey.Config{Store: store}), newClient(t, samekey.Config{Store: store.Store})
	_, err := a.Do(s.pay(t, payment))
	require.ErrorIs(t, err, samekey.ErrConflict)
	store.bad = false
	key, err := b.Rekey(t.Context(), theOp)
	require.NoError(t, err)
	s.answers(http.StatusCreated)
	report, err := a.Recover(t.Context(), samekey.Recovery{Jitter: -1})
	require.NoError(t, err)
	require.Equal(t, samekey.Report{Succeeded: 1}, report)
	resp, err := a.Do(s.pay(t, payment))
	require.NoError(t, err, "and a knows it")
	read(t, resp)
	require.Len(t, s.keys(), 2)
	require.Equal(t, key, s.keys()[1])
}

// TestPolicyThatKeepsNothingAnyMore: what was stored before the endpoint's policy became PersistNone is finished there,
// its claim kept and given up.
func TestPolicyThatKeepsNothingAnyMore(t *testing.T) {
	none := once
	none.Persist = samekey.PersistNone
	begun := func(t *testing.T, store persist.Store) (*acquirer, *samekey.Client) {
		s := newAcquirer(t, http.StatusInternalServerError)
		before := newClient(t, samekey.Config{Store: store, Default: once})
		s.fails(t, before)
		require.NoError(t, before.Close())
		s.answers(http.StatusCreated)
		return s, newClient(t, samekey.Config{Store: store, Default: none})
	}
	t.Run("Recover", func(t *testing.T) {
		store := newLapsing(t)
		s, c := begun(t, store)
		handled := 0
		for i, want := range []samekey.Report{{Succeeded: 1}, {}} {
			report, err := c.Recover(t.Context(), samekey.Recovery{Jitter: -1, Handle: func(context.Context, samekey.Operation, *http.Response, error) error {
				handled++
				return nil
			}})
			require.NoError(t, err)
			require.Equal(t, want, report, i)
		}
		require.Equal(t, 1, handled)
		require.Len(t, s.keys(), 2)
		require.Zero(t, pending(t, store))
	})
	t.Run("Resume", func(t *testing.T) {
		store := newStore(t)
		_, c := begun(t, store)
		resp, err := c.Resume(t.Context(), theOp)
		require.NoError(t, err)
		read(t, resp)
		require.Zero(t, pending(t, store))
		require.NoError(t, c.Forget(t.Context(), theOp), "nobody holds it")
	})
	t.Run("Reconcile", func(t *testing.T) {
		store := newStore(t)
		_, c := begun(t, store)
		report, err := c.Recover(t.Context(), samekey.Recovery{Jitter: -1, ParkAfter: 1, Reconcile: verdict(samekey.SendUnderNewKey)})
		require.NoError(t, err)
		require.Equal(t, samekey.Report{Reconciled: 1}, report)
		require.Zero(t, pending(t, store))
	})
}

// TestOwedRejectionStays: another payload does not take the name while a handler has yet to get the rejection.
func TestOwedRejectionStays(t *testing.T) {
	s := newAcquirer(t, http.StatusInternalServerError)
	c := newClient(t, samekey.Config{Default: once})
	s.fails(t, c)
	s.answers(http.StatusUnprocessableEntity)
	var handled []int
	refusal := errors.New("database down")
	r := samekey.Recovery{Jitter: -1, Handle: func(_ context.Context, _ samekey.Operation, resp *http.Response, _ error) error {
		handled = append(handled, resp.StatusCode)
		return refusal
	}}
	report, err := c.Recover(t.Context(), r)
	require.NoError(t, err)
	require.Equal(t, 1, report.Owed)
	s.answers(http.StatusCreated)
	_, err = c.Do(s.pay(t, `{"amount":2}`))
	require.ErrorIs(t, err, samekey.ErrBusy)
	refusal = nil
	_, err = c.Recover(t.Context(), r)
	require.NoError(t, err)
	require.Equal(t, []int{422, 422}, handled)
	resp, err := c.Do(s.pay(t, `{"amount":2}`))
	require.NoError(t, err)
	read(t, resp)
	require.Len(t, s.keys(), 3)
}

// claimed calls a hook before the first Claim.
type claimed struct {
	persist.Store
	before func()
}

func (s *claimed) Claim(ctx context.Context, ref persist.Ref) (persist.Entry, error) {
	if f := s.before; f != nil {
		s.before = nil
		f()
	}
	return s.Store.Claim(ctx, ref)
}

// TestNewIntentOfTwo: the new intent of a rejected name that another process was quicker with, and that was rejected, is
// not sent a second time.
func TestNewIntentOfTwo(t *testing.T) {
	s := newAcquirer(t, http.StatusUnprocessableEntity)
	shared := &claimed{Store: newStore(t)}
	other := newClient(t, samekey.Config{Store: shared.Store})
	do := func(c *samekey.Client, body string) {
		resp, err := c.Do(s.pay(t, body))
		require.NoError(t, err)
		require.Equal(t, 422, resp.StatusCode)
		read(t, resp)
	}
	do(other, payment)
	shared.before = func() { do(other, `{"amount":2}`) }
	do(newClient(t, samekey.Config{Store: shared}), `{"amount":2}`)
	require.Len(t, s.keys(), 2)
}

// enqueued captures a request and records it as an outbox does.
func enqueued(t *testing.T, c *samekey.Client, store persist.Store, req *http.Request) {
	t.Helper()
	rec, err := c.Capture(req)
	require.NoError(t, err)
	e, err := store.Begin(t.Context(), rec)
	require.NoError(t, err)
	require.NoError(t, store.Release(t.Context(), e.Claim))
}

// TestEnqueuedDerivedMayHaveBeenSent: an answer that an earlier send explains as well is no rejection, for a key that may
// have been sent from elsewhere.
func TestEnqueuedDerivedMayHaveBeenSent(t *testing.T) {
	s := newAcquirer(t, http.StatusNotFound)
	store := newStore(t)
	p := once
	p.KeyFormat = samekey.Derived([]byte("0123456789abcdef0123"))
	c := newClient(t, samekey.Config{Store: store, Default: p})
	req := s.pay(t, payment)
	enqueued(t, c, store, req.WithContext(samekey.WithIssuedAt(req.Context(), time.Now().Add(-time.Hour))))
	report, err := c.Recover(t.Context(), samekey.Recovery{Jitter: -1})
	require.NoError(t, err)
	require.Equal(t, samekey.Report{Pending: 1}, report)
	require.Len(t, s.keys(), 1)
}

// TestEnqueuedWithoutKeys: an attempt of which nothing left does not keep an enqueued command of an endpoint without keys
// from being sent.
func TestEnqueuedWithoutKeys(t *testing.T) {
	s := newAcquirer(t, http.StatusCreated)
	store := newStore(t)
	p := once
	p.Contract = &samekey.Contract{Carrier: samekey.NoKey}
	down := true
	c := newClient(t, samekey.Config{Store: store, Default: p, Prepare: func(context.Context, *http.Request) error {
		if down {
			return errors.New("token service down")
		}
		return nil
	}})
	enqueued(t, c, store, s.pay(t, payment))
	_, err := c.Resume(t.Context(), theOp)
	require.ErrorIs(t, err, samekey.ErrUnknown)
	down = false
	resp, err := c.Resume(t.Context(), theOp)
	require.NoError(t, err)
	read(t, resp)
	require.Len(t, s.keys(), 1)
}

// losesReplace is a store whose claims lapse before a Replace arrives.
type losesReplace struct{ persist.Store }

func (losesReplace) Replace(context.Context, persist.Claim, persist.Record) error {
	return persist.ErrClaimLost
}

// TestNewIntentWhoseClaimIsLost: whoever has the claim of the rejected name by then may have sent the same intent.
func TestNewIntentWhoseClaimIsLost(t *testing.T) {
	s := newAcquirer(t, http.StatusUnprocessableEntity)
	c := newClient(t, samekey.Config{Store: losesReplace{newStore(t)}, Default: once})
	resp, err := c.Do(s.pay(t, payment))
	require.NoError(t, err)
	read(t, resp)
	_, err = c.Do(s.pay(t, `{"amount":2}`))
	require.ErrorIs(t, err, samekey.ErrStore)
	require.True(t, asType[*samekey.StoreError](t, err).MaybeSent)
	require.Equal(t, samekey.EffectUnknown, samekey.EffectOf(err))
	require.Len(t, s.keys(), 1)
}

// TestForgetConflictThatNoStoreHolds: what only this process remembers is its to forget.
func TestForgetConflictThatNoStoreHolds(t *testing.T) {
	s := newAcquirer(t, http.StatusConflict)
	none := once
	none.Persist = samekey.PersistNone
	c := newClient(t, samekey.Config{Default: none})
	for range 2 {
		_, err := c.Do(s.pay(t, payment))
		require.ErrorIs(t, err, samekey.ErrConflict)
	}
	require.Len(t, s.keys(), 1)
	s.answers(http.StatusCreated)
	require.NoError(t, c.Forget(t.Context(), theOp))
	require.ErrorIs(t, c.Forget(t.Context(), theOp), persist.ErrNotFound)
	resp, err := c.Do(s.pay(t, payment))
	require.NoError(t, err)
	read(t, resp)
	require.Len(t, s.keys(), 2)
}

// forgetful does not say why a Begin was broken off, only that it was.
type forgetful struct{ persist.Store }

func (forgetful) Begin(ctx context.Context, rec persist.Record) (persist.Entry, error) {
	<-ctx.Done()
	return persist.Entry{}, &persist.Error{Store: "forgetful", Method: "Begin", Ref: rec.Ref, Maybe: true, Err: context.Canceled}
}

// TestDeadlineIsToldWhateverTheStoreSays: a caller whose deadline has passed in the store learns that from the error.
func TestDeadlineIsToldWhateverTheStoreSays(t *testing.T) {
	c := newClient(t, samekey.Config{Store: forgetful{newStore(t)}, Default: once})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	_, err := c.Do(post(t, ctx, labURL+"/payments", payment))
	require.ErrorIs(t, err, samekey.ErrStore)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.True(t, asType[*samekey.StoreError](t, err).MayBeRecorded)
}
