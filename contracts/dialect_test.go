package contracts_test

import (
	"bytes"
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/samekey/samekey"
)

// A 409 is sent once in every dialect, whatever the server says beside it, and an explicit Resume fetches the answer
// once there is one.
func TestConflictInEveryDialect(t *testing.T) {
	for _, a := range apis() {
		t.Run(a.contract.Name, func(t *testing.T) {
			t.Parallel()
			all := readAnswers(t, a.file())
			conflicts := map[string][]byte{
				"bare":     []byte("HTTP/1.1 409 Conflict\r\nConnection: close\r\n\r\n"),
				"pressing": []byte("HTTP/1.1 409 Conflict\r\nConnection: close\r\nRetry-After: 0\r\nStripe-Should-Retry: true\r\nTransient-Error: true\r\n\r\n{}"),
			}
			for name, raw := range all {
				if bytes.HasPrefix(raw, []byte("HTTP/1.1 409")) {
					conflicts[name] = raw
				}
			}
			require.Greater(t, len(conflicts), 2)
			for _, name := range slices.Sorted(maps.Keys(conflicts)) {
				require.NoError(t, a.once(t, conflicts[name], all["created"]), name)
			}
		})
	}
}

// once checks a conflict that is followed by a success.
func (a api) once(t *testing.T, conflict, success []byte) error {
	s := serve(t, [][]byte{conflict, success})
	defer s.close()
	c, err := newClient(a.contract, keys(map[string]string{"op": key}), false)
	require.NoError(t, err)
	defer func() { require.NoError(t, c.close()) }()
	req, err := a.request(s)
	require.NoError(t, err)
	_, err = c.Do(req)
	require.ErrorIs(t, err, samekey.ErrConflict)
	if err := a.sent(s, 1); err != nil {
		return err
	}
	op, err := c.Operation(t.Context(), samekey.Ref{ID: "op"})
	require.NoError(t, err)
	require.Equal(t, samekey.Conflicted, op.State)
	report, err := c.Recover(t.Context(), samekey.Recovery{Jitter: -1})
	require.NoError(t, err)
	require.Zero(t, report, "no recovery sends it either")
	if a.contract.Carrier == samekey.NoKey { // of which a repeat may be a second effect
		_, err = c.Resume(t.Context(), samekey.Ref{ID: "op"})
		require.Error(t, err)
		return a.sent(s, 1)
	}
	return a.resumes(s, c, row{requests: 1})
}
