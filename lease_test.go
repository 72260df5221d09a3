package samekey_test

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/samekey/samekey"
	"github.com/samekey/samekey/persist"
)

// lapsing is a shared store: its claims lapse, by its own clock, a lease after it has done what was asked. Answers may
// come late.
type lapsing struct {
	persist.Store
	mu    sync.Mutex
	until map[persist.Claim]time.Time
	// late is how long the next answers of a method are under way, by its name. calls counts.
	late  map[string][]time.Duration
	calls map[string]int
}

const leaseTime = 30 * time.Second

func newLapsing(t testing.TB) *lapsing {
	return &lapsing{Store: newStore(t), until: map[persist.Claim]time.Time{}, late: map[string][]time.Duration{}, calls: map[string]int{}}
}

func (l *lapsing) Lease() time.Duration { return leaseTime }

// lapse frees what has lapsed: whoever held it has lost it then.
func (l *lapsing) lapse() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for c, until := range l.until {
		if !time.Now().Before(until) {
			_ = l.Store.Release(context.Background(), c)
			delete(l.until, c)
		}
	}
}

func (l *lapsing) given(c persist.Claim) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if c.Token != 0 {
		l.until[c] = time.Now().Add(leaseTime)
	}
}

func (l *lapsing) ended(c persist.Claim) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.until, c)
}

func (l *lapsing) answers(method string) {
	l.mu.Lock()
	l.calls[method]++
	var d time.Duration
	if late := l.late[method]; len(late) > 0 {
		d, l.late[method] = late[0], late[1:]
	}
	l.mu.Unlock()
	time.Sleep(d)
}

func (l *lapsing) Begin(ctx context.Context, rec persist.Record) (persist.Entry, error) {
	l.lapse()
	e, err := l.Store.Begin(ctx, rec)
	l.given(e.Claim)
	l.answers("Begin")
	return e, err
}

func (l *lapsing) Claim(ctx context.Context, ref persist.Ref) (persist.Entry, error) {
	l.lapse()
	e, err := l.Store.Claim(ctx, ref)
	l.given(e.Claim)
	return e, err
}

func (l *lapsing) ClaimDue(ctx context.Context, n int) ([]persist.Entry, error) {
	l.lapse()
	es, err := l.Store.ClaimDue(ctx, n)
	for _, e := range es {
		l.given(e.Claim)
	}
	return es, err
}

func (l *lapsing) Mark(ctx context.Context, c persist.Claim, p persist.Progress) error {
	l.lapse()
	err := l.Store.Mark(ctx, c, p)
	if err == nil {
		l.given(c)
	}
	l.answers("Mark")
	return err
}

func (l *lapsing) Replace(ctx context.Context, c persist.Claim, rec persist.Record) error {
	l.lapse()
	err := l.Store.Replace(ctx, c, rec)
	if err == nil {
		l.given(c)
	}
	l.answers("Replace")
	return err
}

func (l *lapsing) Settle(ctx context.Context, c persist.Claim, a persist.Answer) error {
	l.lapse()
	err := l.Store.Settle(ctx, c, a)
	if err == nil {
		l.ended(c)
	}
	return err
}

func (l *lapsing) Release(ctx context.Context, c persist.Claim) error {
	l.lapse()
	l.ended(c)
	return l.Store.Release(ctx, c)
}

func (l *lapsing) Forget(ctx context.Context, ref persist.Ref) error {
	l.lapse()
	return l.Store.Forget(ctx, ref)
}

// prepared is a Prepare that takes its time, once.
func prepared(d time.Duration) func(context.Context, *http.Request) error {
	return func(context.Context, *http.Request) error {
		time.Sleep(d)
		d = 0
		return nil
	}
}

// another takes op as soon as it lapses, as if it sent it, and settles it.
func (l *lapsing) another(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() {
		for ; ctx.Err() == nil; time.Sleep(time.Second) {
			if e, err := l.Claim(ctx, samekey.Ref{ID: "op"}); err == nil {
				keep := time.Now().Add(time.Hour)
				_ = l.Settle(ctx, e.Claim, persist.Answer{State: samekey.Succeeded, Status: 200, KeepBody: keep, KeepName: keep})
				return
			}
		}
	})
	t.Cleanup(func() { cancel(); done.Wait() })
}

// TestNoAttemptPastTheLease: whatever comes between the claim and the first byte and takes longer than the lease, the
// attempt is not begun: by then another may have had the operation, have sent it, and settled it.
func TestNoAttemptPastTheLease(t *testing.T) {
	const late = leaseTime + 5*time.Second
	endless := samekey.Policy{Backoff: samekey.Backoff{Min: -1}, AttemptTimeout: leaseTime / 2, Deadline: -1} // the longest there is
	for _, tt := range []struct {
		name    string
		policy  samekey.Policy
		method  string // whose next answer comes late
		prepare time.Duration
		replies []canned // before
	}{
		{name: "Begin", policy: endless, method: "Begin"},
		{name: "Begin, with timeouts", method: "Begin"},
		{name: "Prepare", policy: endless, prepare: late},
		{name: "Prepare, with timeouts", prepare: late},
		{name: "Mark", policy: endless, method: "Mark", replies: []canned{{err: errLost}}},
		{name: "the renewal", policy: endless, method: "Mark", prepare: leaseTime - time.Second},
	} {
		for _, taken := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, taken over: %v", tt.name, taken), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					store := newLapsing(t)
					store.late[tt.method] = []time.Duration{late}
					s := &script{replies: append(tt.replies, canned{status: 201})}
					c := newClient(t, samekey.Config{Store: store, HTTPClient: &http.Client{Transport: s}, Default: tt.policy, Prepare: prepared(tt.prepare)})
					if taken {
						store.another(t)
					}
					resp, err := c.Do(pay(t, t.Context(), "op"))
					require.Nil(t, resp)
					require.ErrorIs(t, err, samekey.ErrUnknown)
					require.Equal(t, samekey.EffectUnknown, samekey.EffectOf(err))
					sent, status := len(tt.replies), 201
					require.Len(t, s.sent, sent)

					if taken {
						status = 200 // the other's answer
					} else {
						sent++
					}
					resp, err = c.Do(pay(t, t.Context(), "op"))
					require.NoError(t, err)
					read(t, resp)
					require.Equal(t, status, resp.StatusCode)
					require.Len(t, s.sent, sent)
				})
			})
		}
	}
}

// TestNewKeyPastTheLease: the mark that comes with a new key is no better than others.
func TestNewKeyPastTheLease(t *testing.T) {
	const late = leaseTime + 5*time.Second
	synctest.Test(t, func(t *testing.T) {
		store := newLapsing(t)
		s := &script{replies: []canned{{err: errLost}, {status: 201}}}
		c := newClient(t, samekey.Config{Store: store, HTTPClient: &http.Client{Transport: s}, Default: samekey.Policy{MaxAttempts: 1, OnExpiry: samekey.NewKey}})
		_, err := c.Do(pay(t, t.Context(), "op"))
		require.ErrorIs(t, err, samekey.ErrUnknown)
		time.Sleep(25 * time.Hour)

		store.late["Replace"] = []time.Duration{late, late}
		_, err = c.Do(pay(t, t.Context(), "op"))
		require.ErrorIs(t, err, samekey.ErrUnknown)
		require.ErrorIs(t, err, persist.ErrClaimLost)
		require.Len(t, s.sent, 1)

		time.Sleep(25 * time.Hour)
		newKey := samekey.Recovery{Jitter: -1, Reconcile: func(context.Context, samekey.Operation, samekey.Why) (samekey.Verdict, error) {
			return samekey.SendUnderNewKey, nil
		}}
		_, err = c.Recover(t.Context(), newKey)
		require.NoError(t, err)
		require.Equal(t, 2, store.calls["Replace"], "it was asked")
		require.Len(t, s.sent, 1)

		time.Sleep(25 * time.Hour)
		marks := store.calls["Mark"]
		_, err = c.Recover(t.Context(), newKey)
		require.NoError(t, err)
		require.Len(t, s.sent, 2)
		require.Equal(t, samekey.Succeeded, stored(t, store, "op").Answer.State)
		require.Equal(t, marks+1, store.calls["Mark"], "the one that noted that the old key has expired")
	})
}

// TestLostClaimEndsTheCall at once: no wait, and no further attempt, brings it back.
func TestLostClaimEndsTheCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, events := newLapsing(t), &recorder{}
		store.late["Begin"] = []time.Duration{leaseTime}
		store.another(t)
		s := &script{replies: []canned{{status: 201}}}
		c := newClient(t, samekey.Config{Store: store, HTTPClient: &http.Client{Transport: s}, Observer: events.observe,
			Default: samekey.Policy{Backoff: samekey.Backoff{Min: time.Second, Max: time.Second}}})
		start := time.Now()
		_, err := c.Do(pay(t, t.Context(), "op"))
		require.ErrorIs(t, err, persist.ErrClaimLost)
		require.Equal(t, leaseTime, time.Since(start))
		require.Len(t, events.all(samekey.StepAttemptDone), 1)
		require.Empty(t, s.sent)
	})
}

// TestClaimRenewedBeforeAnAttempt: what leaves too little of the lease for an attempt costs a mark, and is no attempt
// of its own; what leaves enough costs nothing.
func TestClaimRenewedBeforeAnAttempt(t *testing.T) {
	for late, marks := range map[time.Duration]int{0: 0, 16 * time.Second: 0, 18 * time.Second: 1, 29 * time.Second: 1} {
		synctest.Test(t, func(t *testing.T) {
			store := newLapsing(t)
			store.late["Begin"] = []time.Duration{late}
			s := &script{replies: []canned{{status: 201}}}
			c := newClient(t, samekey.Config{Store: store, HTTPClient: &http.Client{Transport: s}}) // attempts of 10 s
			resp, err := c.Do(pay(t, t.Context(), "op"))
			require.NoError(t, err)
			read(t, resp)
			require.Len(t, s.sent, 1)
			require.Equal(t, marks, store.calls["Mark"], late)
			info, _ := samekey.InfoOf(resp)
			require.Equal(t, 1, info.Attempts)
			require.NoError(t, info.StoreErr)
		})
	}
	synctest.Test(t, func(t *testing.T) { // what puts a new intent in the place of a rejected one claims anew
		store := newLapsing(t)
		s := &script{replies: []canned{{status: 422}, {status: 201}}}
		c := newClient(t, samekey.Config{Store: store, HTTPClient: &http.Client{Transport: s}})
		for i := range 2 {
			resp, err := c.Do(samekey.Named(post(t, t.Context(), labURL+"/v1/payments", fmt.Sprint(i)), "op"))
			require.NoError(t, err)
			read(t, resp)
			store.late["Begin"] = []time.Duration{18 * time.Second}
		}
		require.Equal(t, map[string]int{"Begin": 2, "Replace": 1}, store.calls)
	})
}

// TestPollingOutlastsTheLease: each poll has the claim renewed.
func TestPollingOutlastsTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		wait := http.Header{"Retry-After": {"10"}, "Location": {"/operations/1"}}
		s := &script{replies: []canned{{status: 202, header: wait}}}
		polls := 0
		rt := roundTripper(func(r *http.Request) (*http.Response, error) {
			if r.Method != http.MethodGet {
				return s.RoundTrip(r)
			}
			if polls++; polls < 6 {
				return &http.Response{StatusCode: 202, Header: wait, Body: http.NoBody}, nil
			}
			return &http.Response{StatusCode: 200, Header: http.Header{}, Body: http.NoBody}, nil
		})
		c := newClient(t, samekey.Config{Store: newLapsing(t), HTTPClient: &http.Client{Transport: rt}, Default: samekey.Policy{Await: samekey.On, Deadline: -1}})
		start := time.Now()
		resp, err := c.Do(pay(t, t.Context(), "op"))
		require.NoError(t, err)
		read(t, resp)
		require.Equal(t, time.Minute, time.Since(start))
		info, _ := samekey.InfoOf(resp)
		require.NoError(t, info.StoreErr)
	})
}

// TestWaitsCountFromTheClaim: not from the attempt, which came later; and a poll may come as late as an attempt.
func TestWaitsCountFromTheClaim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newLapsing(t)
		store.late["Begin"] = []time.Duration{15 * time.Second}
		s := &script{replies: []canned{{status: 503, header: http.Header{"Retry-After": {"20"}}}}}
		c := newClient(t, samekey.Config{Store: store, HTTPClient: &http.Client{Transport: s}})
		start := time.Now()
		_, err := c.Do(pay(t, t.Context(), "op"))
		require.ErrorIs(t, err, samekey.ErrUnknown)
		require.ErrorContains(t, err, "lease of 30s")
		require.Equal(t, 15*time.Second, time.Since(start))
	})
	for wait, polls := range map[string]int{"15": 1, "20": 1, "28": 0} {
		synctest.Test(t, func(t *testing.T) {
			s := &script{replies: []canned{{status: 202, header: http.Header{"Retry-After": {wait}, "Location": {"/operations/1"}}}}}
			asked := 0
			rt := roundTripper(func(r *http.Request) (*http.Response, error) {
				if r.Method == http.MethodGet {
					asked++
					return nil, errLost
				}
				return s.RoundTrip(r)
			})
			c := newClient(t, samekey.Config{Store: newLapsing(t), HTTPClient: &http.Client{Transport: rt}, Default: samekey.Policy{Await: samekey.On, Deadline: 29 * time.Second}})
			_, err := c.Do(pay(t, t.Context(), "op"))
			require.ErrorIs(t, err, samekey.ErrUnknown)
			require.Equal(t, polls > 0, asked > 0, wait)
		})
	}
}

// TestNoLeaseWithoutARecord: an endpoint that keeps none has no claim that could lapse.
func TestNoLeaseWithoutARecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newLapsing(t)
		s := &script{replies: []canned{{status: 503, header: http.Header{"Retry-After": {"40"}}}, {status: 201}}}
		c := newClient(t, samekey.Config{Store: store, HTTPClient: &http.Client{Transport: s}, Prepare: prepared(0),
			Default: samekey.Policy{Persist: samekey.PersistNone, AttemptTimeout: 40 * time.Second, Deadline: 2 * time.Minute}})
		resp, err := c.Do(pay(t, t.Context(), "op"))
		require.NoError(t, err)
		read(t, resp)
		require.Len(t, s.sent, 2)
		require.Empty(t, store.calls)
	})
}

// TestKeyExpiresInPrepare: the last look at the key's age comes after Prepare.
func TestKeyExpiresInPrepare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{replies: []canned{{status: 201}}}
		c := newClient(t, samekey.Config{HTTPClient: &http.Client{Transport: s}, Prepare: prepared(2 * time.Hour),
			Default: samekey.Policy{AttemptTimeout: -1, Deadline: -1, Contract: &samekey.Contract{Life: time.Hour}}})
		_, err := c.Do(pay(t, t.Context(), "op"))
		require.ErrorIs(t, err, samekey.ErrExpired)
		require.Empty(t, s.sent)
	})
}

// TestPollWithinTheLease: a wait that leaves the poll too little of the lease renews it first.
func TestPollWithinTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		rt := roundTripper(func(r *http.Request) (*http.Response, error) {
			if r.Method == http.MethodGet {
				asked++
				return &http.Response{StatusCode: 200, Header: http.Header{}, Body: http.NoBody}, nil
			}
			return &http.Response{StatusCode: 202, Header: http.Header{"Retry-After": {"20"}, "Location": {"/operations/1"}}, Body: http.NoBody}, nil
		})
		c := newClient(t, samekey.Config{Store: newLapsing(t), HTTPClient: &http.Client{Transport: rt}, Default: samekey.Policy{Await: samekey.On}})
		resp, err := c.Do(pay(t, t.Context(), "op"))
		require.NoError(t, err)
		read(t, resp)
		require.Equal(t, 1, asked)
	})
}

// leasedWaking is a shared store that tells of new work.
type leasedWaking struct{ *waking }

func (leasedWaking) Lease() time.Duration { return leaseTime }

// TestSlowRecovererHoardsNothing: what comes due again beside a slow answer is sent again, whoever is woken first.
func TestSlowRecovererHoardsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newLapsing(t)
		var slow atomic.Bool
		var sent atomic.Int32
		rt := roundTripper(func(r *http.Request) (*http.Response, error) {
			switch {
			case slow.Load() && r.URL.Path == "/slow":
				time.Sleep(10 * time.Minute)
				return &http.Response{StatusCode: 201, Header: http.Header{}, Body: http.NoBody}, nil
			case slow.Load():
				sent.Add(1)
			}
			return nil, errLost
		})
		cfg := samekey.Config{Store: store, HTTPClient: &http.Client{Transport: rt}, Default: samekey.Policy{MaxAttempts: 1, AttemptTimeout: leaseTime / 2, Deadline: -1}}
		for _, name := range []string{"slow", "quick"} {
			_, err := newClient(t, cfg).Do(samekey.Named(post(t, t.Context(), labURL+"/"+name, "{}"), name))
			require.ErrorIs(t, err, samekey.ErrUnknown)
		}
		slow.Store(true)
		w := &waking{Store: store, wake: make(chan struct{}, 1)}
		cfg.Store = leasedWaking{w}
		woken := newClient(t, cfg)
		ended := make(chan error, 1)
		go func() {
			ended <- woken.KeepRecovering(context.Background(), samekey.Recovery{Jitter: -1, Interval: time.Second})
		}()
		synctest.Wait()
		cfg.Store = store
		other := newClient(t, cfg)
		for range 300 {
			time.Sleep(time.Second)
			select {
			case w.wake <- struct{}{}:
			default:
			}
			synctest.Wait() // the one that is woken is quicker
			_, err := other.Recover(t.Context(), samekey.Recovery{Jitter: -1})
			require.NoError(t, err)
		}
		require.GreaterOrEqual(t, int(sent.Load()), 9, "each half minute, for five of them")
		time.Sleep(10 * time.Minute)
		require.NoError(t, woken.Close())
		require.ErrorIs(t, <-ended, samekey.ErrClosed)
	})
}

// stopped is a store before whose Replace the process stands still for longer than lease and caller wait.
type stopped struct{ *lapsing }

func (s stopped) Replace(ctx context.Context, _ persist.Claim, _ persist.Record) error {
	time.Sleep(2 * leaseTime)
	return ctx.Err()
}

// TestNewIntentPastTheLease: a call that took a rejected name for another payload, and stood still past its lease, does
// not say that nothing happened: another process has done the same command meanwhile.
func TestNewIntentPastTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		status := http.StatusUnprocessableEntity
		rt := roundTripper(func(*http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: status, Header: http.Header{}, Body: http.NoBody}, nil
		})
		store := newLapsing(t)
		cfg := samekey.Config{Store: store, HTTPClient: &http.Client{Transport: rt}}
		other := newClient(t, cfg)
		cfg.Store = stopped{store}
		slow := newClient(t, cfg)
		do := func(c *samekey.Client, body string) error {
			resp, err := c.Do(samekey.Named(post(t, t.Context(), labURL+"/payments", body), "op"))
			if err == nil {
				read(t, resp)
			}
			return err
		}
		require.NoError(t, do(other, `{"amount":1}`))
		status = http.StatusCreated
		told := make(chan error, 1)
		go func() {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			_, err := slow.Do(samekey.Named(post(t, ctx, labURL+"/payments", `{"amount":2}`), "op"))
			told <- err
		}()
		time.Sleep(leaseTime + time.Second)
		require.NoError(t, do(other, `{"amount":2}`))
		require.Equal(t, samekey.EffectUnknown, samekey.EffectOf(<-told))
	})
}
