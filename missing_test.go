package samekey_test

import (
	"context"
	"net/http"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/samekey/samekey"
	"github.com/samekey/samekey/mockserver"
)

// TestJoinedRecoveryLacksAHeader: a call that brings what recovery lacks goes on, whether it meets recovery or not; one
// that lacks it too is told.
func TestJoinedRecoveryLacksAHeader(t *testing.T) {
	for name, brings := range map[string]bool{"brings it": true, "lacks it too": false} {
		t.Run(name, func(t *testing.T) {
			inLab(t, mockserver.Config{}, func(t *testing.T, l *lab) {
				l.Fault(mockserver.Fault{Do: mockserver.Drop, Times: 1})
				gate := make(chan struct{})
				c := l.client(t, samekey.Config{
					Default: samekey.Policy{MaxAttempts: 1},
					Prepare: func(ctx context.Context, r *http.Request) error {
						if r.Header.Get("X-Vendor-Token") == "" {
							<-gate
						}
						return nil
					},
				})
				do := func(token string) (*http.Response, error) {
					req := pay(t, t.Context(), "op")
					if token != "" {
						req.Header.Set("X-Vendor-Token", token)
					}
					return c.Do(req)
				}
				_, err := do("secret")
				require.ErrorIs(t, err, samekey.ErrUnknown)
				type result struct {
					resp *http.Response
					err  error
				}
				joined, recovered := make(chan result, 1), make(chan error, 1)
				go func() {
					_, err := c.Recover(t.Context(), samekey.Recovery{Jitter: -1})
					recovered <- err
				}()
				synctest.Wait() // it is in Prepare
				go func() {
					token := ""
					if brings {
						token = "secret"
					}
					resp, err := do(token)
					joined <- result{resp, err}
				}()
				synctest.Wait()
				close(gate)
				got := <-joined
				require.NoError(t, <-recovered)
				if !brings {
					require.ErrorIs(t, got.err, samekey.ErrUnknown)
					require.ErrorContains(t, got.err, "X-Vendor-Token")
					require.Len(t, l.Requests(), 1)
					return
				}
				require.NoError(t, got.err)
				require.Equal(t, http.StatusCreated, got.resp.StatusCode)
				read(t, got.resp)
				keys := wireKeys(l.Requests())
				require.Len(t, keys, 2)
				require.Equal(t, keys[0], keys[1])
			})
		})
	}
}

// TestSuppliedInAnySpelling: net/http sends a field's name as it stands in the map, so that it is supplied.
func TestSuppliedInAnySpelling(t *testing.T) {
	inLab(t, mockserver.Config{}, func(t *testing.T, l *lab) {
		l.Fault(mockserver.Fault{Do: mockserver.Drop, Times: 1})
		c := l.client(t, samekey.Config{Default: samekey.Policy{MaxAttempts: 1}})
		do := func() (*http.Response, error) {
			req := pay(t, t.Context(), "op")
			req.Header["x-vendor-token"] = []string{"secret"}
			return c.Do(req)
		}
		_, err := do()
		require.ErrorIs(t, err, samekey.ErrUnknown)
		resp, err := do()
		require.NoError(t, err)
		read(t, resp)
		require.Len(t, l.Requests(), 2)
	})
}
