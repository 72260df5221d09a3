package samekey_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/samekey/samekey"
)

// pollable accepts each command with a 202, and answers polls as it is told.
type pollable struct {
	header http.Header // of a 202
	poll   func(n int) (status int, header http.Header)
	posts  int
	polled []string // what was asked
}

func (p *pollable) RoundTrip(r *http.Request) (*http.Response, error) {
	resp := &http.Response{StatusCode: http.StatusAccepted, Header: p.header, Body: http.NoBody, Request: r}
	if r.Method == http.MethodGet {
		p.polled = append(p.polled, r.URL.Path)
		resp.StatusCode, resp.Header = p.poll(len(p.polled))
		if resp.Header == nil {
			resp.Header = p.header
		}
		return resp, nil
	}
	p.posts++
	return resp, nil
}

// doneFrom answers polls from the n-th on with a 200.
func doneFrom(from int) func(int) (int, http.Header) {
	return func(n int) (int, http.Header) {
		if n < from {
			return http.StatusAccepted, nil
		}
		return http.StatusOK, nil
	}
}

// TestWhatIsPolledIsNotParked: an accepted command is asked about however often it was sent before that.
func TestWhatIsPolledIsNotParked(t *testing.T) {
	for name, lost := range map[string]bool{"accepted before": false, "accepted in recovery": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := &pollable{header: http.Header{"Location": {"/operations/1"}}, poll: doneFrom(1000)}
				rt := roundTripper(func(r *http.Request) (*http.Response, error) {
					if lost {
						return nil, errLost
					}
					return p.RoundTrip(r)
				})
				c := newClient(t, samekey.Config{HTTPClient: &http.Client{Transport: rt}, Default: samekey.Policy{Await: samekey.On, MaxAttempts: 1}})
				_, err := c.Do(pay(t, t.Context(), "op"))
				require.ErrorIs(t, err, samekey.ErrUnknown)
				r := samekey.Recovery{Jitter: -1, ParkAfter: 1}
				if lost {
					r.ParkAfter, lost = 2, false
				}
				for range 3 {
					time.Sleep(time.Minute)
					asked := len(p.polled)
					report, err := c.Recover(t.Context(), r)
					require.NoError(t, err)
					require.Equal(t, samekey.Report{Pending: 1}, report)
					require.Greater(t, len(p.polled), asked)
				}
				p.poll = doneFrom(0)
				time.Sleep(time.Minute)
				report, err := c.Recover(t.Context(), r)
				require.NoError(t, err)
				require.Equal(t, samekey.Report{Succeeded: 1}, report)
				require.Equal(t, 1, p.posts)
			})
		})
	}
}

// TestAddressIsKeptWhateverTheWait: a 202 that asks for a longer wait than the call has is asked about by the next
// process, and the command not sent again.
func TestAddressIsKeptWhateverTheWait(t *testing.T) {
	for name, recovered := range map[string]bool{"Do": false, "Recover": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := &pollable{header: http.Header{"Location": {"/operations/1"}, "Retry-After": {"50"}}, poll: doneFrom(1)}
				rt := roundTripper(func(r *http.Request) (*http.Response, error) {
					if recovered && r.Method != http.MethodGet {
						recovered = false
						return nil, errLost
					}
					return p.RoundTrip(r)
				})
				c := newClient(t, samekey.Config{HTTPClient: &http.Client{Transport: rt},
					Default: samekey.Policy{Await: samekey.On, MaxAttempts: 1, Deadline: 20 * time.Second}})
				_, err := c.Do(pay(t, t.Context(), "op"))
				require.ErrorIs(t, err, samekey.ErrUnknown)
				ended := samekey.Report{}
				for range 3 {
					time.Sleep(2 * time.Minute)
					report, err := c.Recover(t.Context(), samekey.Recovery{Jitter: -1})
					require.NoError(t, err)
					ended.Succeeded += report.Succeeded
				}
				require.Equal(t, samekey.Report{Succeeded: 1}, ended)
				require.Equal(t, 1, p.posts)
				require.Len(t, p.polled, 1)
			})
		})
	}
}

// TestFirstPollOfARecoveryIsNotPutOff by what keeps recovery itself from coming back at once.
func TestFirstPollOfARecoveryIsNotPutOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, lost := &pollable{header: http.Header{"Location": {"/operations/1"}}, poll: doneFrom(1)}, true
		rt := roundTripper(func(r *http.Request) (*http.Response, error) {
			if lost {
				return nil, errLost
			}
			return p.RoundTrip(r)
		})
		c := newClient(t, samekey.Config{HTTPClient: &http.Client{Transport: rt},
			Default: samekey.Policy{Await: samekey.On, MaxAttempts: 1, Deadline: 20 * time.Second}})
		_, err := c.Do(pay(t, t.Context(), "op"))
		require.ErrorIs(t, err, samekey.ErrUnknown)
		lost = false
		report, err := c.Recover(t.Context(), samekey.Recovery{Jitter: -1})
		require.NoError(t, err)
		require.Equal(t, samekey.Report{Succeeded: 1}, report)
	})
}

// TestAcceptedUnderAnotherKey: a 202 that repeats another key names another operation's address, whose outcome is not
// this one's; nothing is asked there, and nothing sent again.
func TestAcceptedUnderAnotherKey(t *testing.T) {
	for _, resend := range []bool{false, true} {
		t.Run(fmt.Sprintf("resend %v", resend), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := &pollable{header: http.Header{"Location": {"/operations/1"}, "Idempotency-Key": {"another"}}, poll: doneFrom(1)}
				con := samekey.DefaultContract
				con.Echo, con.Poll.Resend = "Idempotency-Key", resend
				store := newStore(t)
				c := newClient(t, samekey.Config{Store: store, HTTPClient: &http.Client{Transport: p}, Default: samekey.Policy{Await: samekey.On, Contract: &con}})
				_, err := c.Do(pay(t, t.Context(), "op"))
				require.ErrorIs(t, err, samekey.ErrUnknown)
				require.ErrorContains(t, err, "another key")
				require.Equal(t, 1, p.posts)
				require.Empty(t, p.polled)
				require.Empty(t, stored(t, store, "op").Progress.PollURL)
			})
		})
	}
}

// TestFirstPollWaitsNoLongerThanAllowed: Policy.MaxRetryAfter bounds what the accepting answer asks for too.
func TestFirstPollWaitsNoLongerThanAllowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &pollable{header: http.Header{"Location": {"/operations/1"}, "Retry-After": {"3000000000"}}, poll: doneFrom(1)}
		c := newClient(t, samekey.Config{HTTPClient: &http.Client{Transport: p}, Default: samekey.Policy{Await: samekey.On, Deadline: -1}})
		began := time.Now()
		resp, err := c.Do(pay(t, t.Context(), "op"))
		require.NoError(t, err)
		read(t, resp)
		require.Equal(t, time.Minute, time.Since(began))
	})
}

// TestRelativePollAddress is relative to where it was read.
func TestRelativePollAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &pollable{header: http.Header{"Location": {"operations/1"}}, poll: func(n int) (int, http.Header) {
			switch n {
			case 1:
				return http.StatusAccepted, http.Header{"Location": {"2"}}
			case 2:
				return http.StatusServiceUnavailable, http.Header{"Location": {"elsewhere"}}
			case 3:
				return http.StatusAccepted, http.Header{"Location": {"./3"}}
			}
			return http.StatusOK, nil
		}}
		c := newClient(t, samekey.Config{HTTPClient: &http.Client{Transport: p}, Default: samekey.Policy{Await: samekey.On}})
		resp, err := c.Do(pay(t, t.Context(), "op"))
		require.NoError(t, err)
		read(t, resp)
		require.Equal(t, "/v1/operations/1 /v1/operations/2 /v1/operations/2 /v1/operations/3", strings.Join(p.polled, " "))
	})
}
