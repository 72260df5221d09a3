package samekey_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/samekey/samekey"
	"github.com/samekey/samekey/mockserver"
)

func TestLostAnswerIsRepeatedUnderOneKey(t *testing.T) {
	srv := newServer(t, mockserver.Config{})
	srv.Fault(mockserver.Fault{When: mockserver.AfterCommit, Do: mockserver.Drop, Times: 1},
		mockserver.Fault{Do: mockserver.Status(503, false), Times: 1})
	store := newStore(t)
	c := newClient(t, samekey.Config{Store: store, Default: quick})
	resp, err := c.Do(post(t, t.Context(), srv.URL+"/v1/payments", payment))
	require.NoError(t, err)
	info, ok := samekey.InfoOf(resp)
	require.True(t, ok)
	require.Equal(t, 1, pending(t, store), "until the caller has it")
	require.Contains(t, read(t, resp), "paymentId")
	require.Equal(t, 201, resp.StatusCode)
	require.Equal(t, 3, info.Attempts)
	require.Equal(t, 3, info.Sends)
	require.Equal(t, samekey.Replay, info.Source)
	require.Equal(t, 0, pending(t, store))
	srv.AssertOnce(t)
	srv.AssertSameKey(t)
	require.Len(t, srv.Requests(), 3)
}
