package samekey_test

import (
	"net/http"
	"net/http/httptrace"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/samekey/samekey"
)

// TestLateTellingOfTheTransport: net/http writes in goroutines of its own, which may tell of an attempt when the call is
// further on. What they tell is of that attempt, and touches nothing that the call goes on with.
func TestLateTellingOfTheTransport(t *testing.T) {
	var late sync.WaitGroup
	next, n := make(chan struct{}, 2), 0
	base := roundTripper(func(r *http.Request) (*http.Response, error) {
		tr := httptrace.ContextClientTrace(r.Context())
		tr.WroteHeaders()
		if n++; n > 1 {
			next <- struct{}{}
		}
		status := http.StatusCreated
		if n < 3 {
			status = http.StatusServiceUnavailable
			late.Go(func() {
				<-next // the next attempt is under way
				tr.WroteRequest(httptrace.WroteRequestInfo{})
			})
		}
		return &http.Response{StatusCode: status, Header: http.Header{}, Body: http.NoBody, Request: r}, nil
	})
	rec := &recorder{}
	c := newClient(t, samekey.Config{HTTPClient: &http.Client{Transport: base}, Default: quick, Observer: rec.observe})
	resp, err := c.Do(post(t, t.Context(), "http://api.test/", payment))
	require.NoError(t, err)
	read(t, resp)
	late.Wait()
	var attempts []int
	for _, e := range rec.all(samekey.StepBodyWritten) {
		attempts = append(attempts, e.Attempt)
	}
	require.ElementsMatch(t, []int{1, 2}, attempts)
}
