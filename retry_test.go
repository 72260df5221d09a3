package samekey_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/samekey/samekey"
	"github.com/samekey/samekey/mockserver"
)

// An answer beyond MaxResponse is settled at its head. Who made the call gets all of it, however long that takes; who
// shares it or comes later gets what is kept, and no clean end.
func TestAnswersBeyondMaxResponse(t *testing.T) {
	whole := strings.Repeat("0123456789abcdef", 256<<10/16) // more than what buffers on the way would take
	api := func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(w, whole)
	}
	inLab(t, mockserver.Config{API: http.HandlerFunc(api)}, func(t *testing.T, l *lab) {
		c := l.client(t, samekey.Config{Default: samekey.Policy{MaxResponse: 1024}})
		l.Fault(mockserver.Fault{Do: mockserver.Delay(time.Second), Times: 1})
		shared := make(chan string, 1)
		go func() {
			time.Sleep(100 * time.Millisecond)
			resp, err := c.Do(pay(t, context.Background(), "op"))
			if err != nil {
				shared <- err.Error()
				return
			}
			b, err := io.ReadAll(resp.Body)
			if err != io.ErrUnexpectedEOF {
				shared <- "a clean end"
				return
			}
			shared <- string(b)
		}()
		resp, err := c.Do(pay(t, t.Context(), "op"))
		require.NoError(t, err)
		require.Equal(t, 1, count(t, l.store, samekey.Succeeded), "at its head")
		part := <-shared
		require.NotEmpty(t, part)
		require.Less(t, len(part), 2048)
		require.True(t, strings.HasPrefix(whole, part))
		time.Sleep(time.Hour)
		require.Equal(t, whole, read(t, resp), "without the attempt's timeout")

		resp, err = c.Do(pay(t, t.Context(), "op"))
		require.NoError(t, err)
		b, err := io.ReadAll(resp.Body)
		require.ErrorIs(t, err, io.ErrUnexpectedEOF)
		require.Equal(t, part, string(b))
		require.Len(t, l.Requests(), 1)

		resp, err = c.Do(pay(t, t.Context(), "")) // an anonymous one is had when it is read or closed
		require.NoError(t, err)
		_, err = io.CopyN(io.Discard, resp.Body, 3000)
		require.NoError(t, err)
		require.Equal(t, 1, pending(t, l.store))
		require.NoError(t, resp.Body.Close())
		require.Zero(t, pending(t, l.store))
	})
	for _, how := range []string{"the caller's context", "Close"} {
		t.Run("ended by "+how, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				pr, pw := io.Pipe()
				c := newClient(t, samekey.Config{Default: samekey.Policy{MaxResponse: 1024}, HTTPClient: &http.Client{Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
					go func() {
						_, _ = io.WriteString(pw, whole[:4096])
						<-r.Context().Done()
						_ = pw.CloseWithError(context.Cause(r.Context()))
					}()
					return &http.Response{StatusCode: 201, Header: http.Header{}, Body: pr, ContentLength: -1}, nil
				})}})
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				resp, err := c.Do(post(t, ctx, labURL, payment))
				require.NoError(t, err)
				time.AfterFunc(time.Minute, func() {
					if how == "Close" {
						_ = c.Close()
					} else {
						cancel()
					}
				})
				n, err := io.Copy(io.Discard, resp.Body)
				require.EqualValues(t, 4096, n)
				if how == "Close" {
					require.ErrorIs(t, err, samekey.ErrClosed)
				} else {
					require.ErrorIs(t, err, context.Canceled)
				}
				require.NoError(t, resp.Body.Close())
			})
		})
	}
}

// Close ends what is under way: calls, waits and shared calls return, their operations stay pending, and nothing is sent
// any more.
func TestCloseEndsCalls(t *testing.T) {
	inLab(t, mockserver.Config{}, func(t *testing.T, l *lab) {
		l.Fault(mockserver.Fault{Key: "stalls", Do: mockserver.Stall(0)}, mockserver.Fault{Do: mockserver.Status(503, false).With("Retry-After", "50")})
		c := l.client(t, samekey.Config{Default: samekey.Policy{AttemptTimeout: 50 * time.Second}})
		ended := make(chan error, 3)
		for _, key := range []string{"stalls", "stalls", "waits"} {
			go func() {
				req := pay(t, context.Background(), "")
				req.Header.Set("Idempotency-Key", key)
				_, err := c.Do(req)
				ended <- err
			}()
		}
		synctest.Wait()
		require.Len(t, l.Requests(), 2)
		start := time.Now()
		require.NoError(t, c.Close())
		for range 3 {
			err := <-ended
			require.ErrorIs(t, err, samekey.ErrClosed)
			require.ErrorIs(t, err, samekey.ErrUnknown)
		}
		require.Zero(t, time.Since(start))
		require.Equal(t, 2, pending(t, l.store))
		for _, name := range []string{"op", ""} {
			_, err := c.Do(pay(t, t.Context(), name))
			require.ErrorIs(t, err, samekey.ErrClosed)
			require.ErrorIs(t, err, samekey.ErrNotSent)
		}
		time.Sleep(time.Hour)
		require.Len(t, l.Requests(), 2)
		require.Equal(t, 2, count(t, l.store))
	})
}

// TestAttemptContextsEnd: what a transport has hung on an attempt's context ends before the next attempt, with the call,
// or with the body that streams; one attempt's timeout ends that attempt only.
func TestAttemptContextsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var contexts []context.Context
		c := newClient(t, samekey.Config{Default: samekey.Policy{MaxResponse: 8, AttemptTimeout: time.Second}, HTTPClient: &http.Client{Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
			for _, ctx := range contexts {
				require.Error(t, ctx.Err())
			}
			contexts = append(contexts, r.Context())
			require.NoError(t, r.Context().Err())
			body, status := "long enough to stream", http.StatusCreated
			switch len(contexts) {
			case 1:
				<-r.Context().Done()
				require.ErrorIs(t, context.Cause(r.Context()), samekey.ErrTimeout)
				return nil, r.Context().Err()
			case 2:
				status = http.StatusServiceUnavailable
			case 4:
				body = "short"
			}
			return &http.Response{StatusCode: status, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(body)), ContentLength: -1}, nil
		})}})
		resp, err := c.Do(post(t, t.Context(), labURL, payment))
		require.NoError(t, err)
		require.Len(t, contexts, 3)
		require.NoError(t, contexts[2].Err(), "the body still streams")
		require.NoError(t, resp.Body.Close())
		require.Error(t, contexts[2].Err())

		resp, err = c.Do(post(t, t.Context(), labURL, payment))
		require.NoError(t, err)
		require.Len(t, contexts, 4)
		require.Error(t, contexts[3].Err())
		require.Equal(t, "short", read(t, resp))
	})
}
