package samekey_test

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/samekey/samekey"
	"github.com/samekey/samekey/mockserver"
)

// A 409 after a lost answer: sent once, and it says that the attempt before may have succeeded. It is kept, and every
// later call is answered from the store.
func TestCase_B37_AConflictAfterALostAnswer(t *testing.T) {
	for _, ambiguous := range []bool{true, false} {
		t.Run(fmt.Sprint(ambiguous), func(t *testing.T) {
			srv := newServer(t, mockserver.Config{})
			if ambiguous {
				srv.Fault(mockserver.Fault{When: mockserver.AfterCommit, Do: mockserver.Drop, Times: 1})
			}
			srv.Fault(mockserver.Fault{Do: mockserver.Status(409, false).Body(`{"error":"AlreadyExists","message":"order-1 exists"}`).With("Location", "/v1/orders/1")})
			policy := quick
			policy.Contract = &samekey.Contract{Life: time.Hour, Rules: []samekey.Rule{{
				If: samekey.Match{Status: []int{409}, Pointer: "/error", Values: []string{"AlreadyExists"}}, Means: samekey.MeansExists, Link: "Location",
			}}}
			store := newStore(t)
			sends := 1
			if ambiguous {
				sends = 2
			}
			check := func(err error) {
				t.Helper()
				conflict := asType[*samekey.ConflictError](t, err)
				require.ErrorIs(t, err, samekey.ErrConflict)
				require.NotErrorIs(t, err, samekey.ErrUnknown)
				require.Equal(t, samekey.EffectUnknown, samekey.EffectOf(err))
				require.Equal(t, ambiguous, conflict.Ambiguous)
				require.Equal(t, samekey.ReasonExists, conflict.Reason)
				require.Equal(t, "/v1/orders/1", conflict.Link)
				require.Equal(t, sends, conflict.Attempts)
				require.Equal(t, 409, conflict.Status)
				require.Contains(t, string(conflict.Body), "order-1 exists")
				require.Len(t, srv.Requests(), sends)
			}
			for range 2 { // the second in another process
				c := newClient(t, samekey.Config{Store: store, Default: policy})
				for range 2 {
					_, err := c.Do(samekey.Named(post(t, t.Context(), srv.URL+"/v1/payments", payment), "op"))
					check(err)
				}
				_, err := c.Do(samekey.Named(post(t, t.Context(), srv.URL+"/v1/payments", `{"other":1}`), "op"))
				require.ErrorIs(t, err, samekey.ErrMismatch)
				for _, do := range []func(*http.Request) (*http.Response, error){c.AsResponses().Do, c.HTTPClient().Do, c.Transport().RoundTrip} {
					resp, err := do(samekey.Named(post(t, t.Context(), srv.URL+"/v1/payments", payment), "op"))
					require.NoError(t, err)
					require.Equal(t, 409, resp.StatusCode)
					check(samekey.ErrorOf(resp))
					require.Contains(t, read(t, resp), "order-1 exists")
				}
				report, err := c.Recover(t.Context(), samekey.Recovery{Jitter: -1})
				require.NoError(t, err)
				require.Zero(t, report)
				require.Len(t, srv.Requests(), sends)
				require.NoError(t, c.Close())
			}
			srv.AssertConflictFinal(t)
		})
	}
}

// "In progress" is a conflict as well; the answer is fetched by an explicit Resume once the server is done.
func TestCase_B38_InProgressIsFetchedByResume(t *testing.T) {
	contract := &samekey.Contract{Carrier: samekey.QuotedHeader("Idempotency-Key"), Life: time.Hour, Rules: []samekey.Rule{
		{If: samekey.Match{Status: []int{409}, Pointer: "/type", Values: []string{"https://mockserver.invalid/problems/in-progress"}}, Means: samekey.MeansInProgress},
		{If: samekey.Match{Status: []int{422}, Pointer: "/type", Values: []string{"https://mockserver.invalid/problems/key-reused"}}, Means: samekey.MeansMismatch},
	}}
	slow := func(w http.ResponseWriter, _ *http.Request) {
		time.Sleep(10 * time.Second)
		w.WriteHeader(http.StatusCreated)
	}
	inLab(t, mockserver.Config{Profile: mockserver.IETF, API: http.HandlerFunc(slow)}, func(t *testing.T, l *lab) {
		c := l.client(t, samekey.Config{Default: samekey.Policy{Contract: contract, AttemptTimeout: time.Second, Backoff: samekey.Backoff{Min: -1}}})
		_, err := c.Do(pay(t, t.Context(), "op"))
		conflict := asType[*samekey.ConflictError](t, err)
		require.Equal(t, samekey.ReasonInProgress, conflict.Reason)
		require.True(t, conflict.Ambiguous)
		require.Len(t, l.Requests(), 2)
		_, err = c.Do(pay(t, t.Context(), "op"))
		require.ErrorIs(t, err, samekey.ErrConflict)
		_, err = c.Resume(t.Context(), samekey.Ref{ID: "op"})
		require.ErrorIs(t, err, samekey.ErrConflict, "not done yet")
		require.Len(t, l.Requests(), 3)

		time.Sleep(10 * time.Second)
		_, err = c.Do(pay(t, t.Context(), "op"))
		require.ErrorIs(t, err, samekey.ErrConflict, "no loop of the caller's moves it")
		require.Len(t, l.Requests(), 3)
		resp, err := c.Resume(t.Context(), samekey.Ref{ID: "op"})
		require.NoError(t, err)
		require.Equal(t, 201, resp.StatusCode)
		read(t, resp)
		resp, err = c.Do(pay(t, t.Context(), "op"))
		require.NoError(t, err)
		read(t, resp)
		require.Len(t, l.Requests(), 4)
		require.Equal(t, 1, l.Effects())
		l.AssertSameKey(t)

		// The same key with another payload at the server is told apart.
		req := pay(t, t.Context(), "other")
		req.Header.Set("Idempotency-Key", `"`+conflict.Key+`"`)
		req.Body, req.ContentLength = http.NoBody, 0
		_, err = c.Do(req)
		require.Equal(t, samekey.ReasonMismatch, asType[*samekey.ConflictError](t, err).Reason)
	})
}

// The default contract tells the answers of the articles and of the IETF draft apart.
func TestConflictReasons(t *testing.T) {
	for _, row := range []struct {
		status int
		body   string
		want   samekey.Reason
	}{
		{409, `{"error":"IdempotencyKeyConflict"}`, samekey.ReasonMismatch},
		{409, `{"title":"A request is outstanding for this Idempotency-Key"}`, samekey.ReasonInProgress},
		{422, `{"title":"Idempotency-Key is already used"}`, samekey.ReasonMismatch},
		{409, `{"error":"AlreadyCancelled"}`, samekey.ReasonUnknown},
		{409, `not even JSON`, samekey.ReasonUnknown},
		{409, ``, samekey.ReasonUnknown},
	} {
		srv := newServer(t, mockserver.Config{})
		srv.Fault(mockserver.Fault{Do: mockserver.Status(row.status, false).Body(row.body)})
		c := newClient(t, samekey.Config{Default: quick})
		for range 2 { // from the network and from the store
			_, err := c.Do(samekey.Named(post(t, t.Context(), srv.URL+"/v1/payments", payment), "op"))
			require.Equal(t, row.want, asType[*samekey.ConflictError](t, err).Reason, row.body)
		}
		require.Len(t, srv.Requests(), 1)
	}
}

// Nothing makes a 409 a retry: no list, no rule, no veto.
func TestCase_B39_AConflictIsNeverRetried(t *testing.T) {
	always := func(samekey.Attempt) samekey.Decision { return samekey.Retry }
	for _, means := range []samekey.Meaning{0, samekey.MeansSucceeded, samekey.MeansRejected, samekey.MeansTurnedAway, samekey.MeansStoredFailure,
		samekey.MeansProcessing, samekey.MeansInProgress} {
		srv := newServer(t, mockserver.Config{})
		srv.Fault(mockserver.Fault{Do: mockserver.Status(409, false)})
		policy := samekey.Policy{MaxAttempts: 5, Decide: always, Backoff: quick.Backoff, Contract: &samekey.Contract{Life: time.Hour}}
		if means != 0 {
			policy.Contract.Rules = []samekey.Rule{{If: samekey.Match{Status: []int{409}}, Means: means}}
		}
		c := newClient(t, samekey.Config{Default: policy})
		_, err := c.Do(post(t, t.Context(), srv.URL+"/v1/payments", payment))
		require.ErrorIs(t, err, samekey.ErrConflict, means)
		require.Len(t, srv.Requests(), 1)
	}
	for _, p := range []samekey.Policy{
		{RetryStatus: []int{409}},
		{RetryStatus: []int{503, 409}},
		{Contract: &samekey.Contract{Rules: []samekey.Rule{{If: samekey.Match{Status: []int{409}}, Means: samekey.MeansUncertain}}}},
	} {
		_, err := samekey.New(samekey.Config{Store: newStore(t), Endpoints: map[string]samekey.Policy{"POST /x": p}})
		require.ErrorIs(t, err, samekey.ErrPolicy)
		require.ErrorContains(t, err, "409")
	}
	// A rule without a status that happens to meet one.
	srv := newServer(t, mockserver.Config{})
	srv.Fault(mockserver.Fault{Do: mockserver.Status(409, false).Body(`{"error":"Busy"}`)})
	c := newClient(t, samekey.Config{Default: samekey.Policy{Backoff: quick.Backoff, Contract: &samekey.Contract{Life: time.Hour, Rules: []samekey.Rule{
		{If: samekey.Match{Pointer: "/error", Values: []string{"Busy"}}, Means: samekey.MeansUncertain},
	}}}})
	_, err := c.Do(post(t, t.Context(), srv.URL+"/v1/payments", payment))
	require.ErrorIs(t, err, samekey.ErrConflict)
	require.Len(t, srv.Requests(), 1)
}

// A conflict that cannot be written down keeps its answer, and no loop of this process sends it again.
func TestConflictThatCannotBeWrittenDown(t *testing.T) {
	for _, name := range []string{"op", ""} {
		srv := newServer(t, mockserver.Config{})
		srv.Fault(mockserver.Fault{Do: mockserver.Status(409, false)})
		inner, broken := newStore(t), true
		store := &failing{Store: inner, settle: func() error {
			if broken {
				return errDisk
			}
			return nil
		}}
		c := newClient(t, samekey.Config{Store: store, Default: quick})
		req := func(body string) *http.Request {
			r := post(t, t.Context(), srv.URL+"/v1/payments", body)
			if name != "" {
				return samekey.Named(r, name)
			}
			r.Header.Set("Idempotency-Key", "the-callers-own-key")
			return r
		}
		resp, err := c.AsResponses().Do(req(payment))
		require.NoError(t, err)
		info, _ := samekey.InfoOf(resp)
		require.ErrorIs(t, info.StoreErr, errDisk)
		for range 2 {
			_, err = c.Do(req(payment))
			require.ErrorIs(t, err, samekey.ErrConflict)
			_, err = c.Do(req(`{"other":1}`))
			require.ErrorIs(t, err, samekey.ErrMismatch)
			report, err := c.Recover(t.Context(), samekey.Recovery{Jitter: -1})
			require.NoError(t, err)
			require.Equal(t, 1, report.Conflicted)
			require.Len(t, srv.Requests(), 1, "nor does recovery")
		}
		require.Equal(t, 1, pending(t, inner))
		broken = false
		handled := 0
		_, err = c.Recover(t.Context(), samekey.Recovery{Jitter: -1, Handle: func(_ context.Context, _ samekey.Operation, _ *http.Response, err error) error {
			handled++
			require.ErrorIs(t, err, samekey.ErrConflict)
			return nil
		}})
		require.NoError(t, err)
		require.Equal(t, 1, handled)
		require.Equal(t, 1, count(t, inner, samekey.Conflicted), "written down at last")
		require.NoError(t, c.Close())

		next := newClient(t, samekey.Config{Store: inner, Default: quick})
		_, err = next.Do(req(payment))
		require.ErrorIs(t, err, samekey.ErrConflict)
		require.Len(t, srv.Requests(), 1)
	}
}

// A conflict is no answer yet: what Resume needs is kept, whatever is said of answers.
func TestConflictOutlivesRetention(t *testing.T) {
	srv := newServer(t, mockserver.Config{})
	srv.Fault(mockserver.Fault{Do: mockserver.Status(409, false), Times: 1})
	policy := quick
	policy.Retention = -1
	store := newStore(t)
	c := newClient(t, samekey.Config{Store: store, Default: policy})
	for range 2 {
		_, err := c.Do(samekey.Named(post(t, t.Context(), srv.URL+"/v1/payments", payment), "op"))
		require.ErrorIs(t, err, samekey.ErrConflict)
	}
	resp, err := c.Resume(t.Context(), samekey.Ref{ID: "op"})
	require.NoError(t, err)
	require.Equal(t, 201, resp.StatusCode)
	read(t, resp)
	_, err = c.Operation(t.Context(), samekey.Ref{ID: "op"})
	require.NoError(t, err)
	rec := stored(t, store, "op")
	require.True(t, rec.Tombstone(), "of a success only the name")
}
