package mockserver_test

import (
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/samekey/samekey/mockserver"
)

// Two commands whose first requests were cut off before their bodies came are two commands, though what has come of them
// looks alike.
func TestRequestsThatWereCutOffAreNotTakenForEachOther(t *testing.T) {
	srv := mockserver.NewServer(mockserver.Config{})
	defer srv.Close()
	for _, key := range []string{"a", "b"} {
		c, err := net.Dial("tcp", strings.TrimPrefix(srv.URL, "http://"))
		require.NoError(t, err)
		_, err = c.Write([]byte("POST /v1/payments HTTP/1.1\r\nHost: x\r\nIdempotency-Key: " + key + "\r\nContent-Type: application/json\r\nContent-Length: 99\r\n\r\n"))
		require.NoError(t, err)
		require.NoError(t, c.Close())
	}
	require.Eventually(t, func() bool { // the server has seen both end
		all := srv.Requests()
		return len(all) == 2 && all[0].Partial && all[1].Partial && !all[0].End.IsZero() && !all[1].End.IsZero()
	}, 5*time.Second, time.Millisecond)
	for _, key := range []string{"a", "b"} {
		send(t, srv.Client().Transport, "POST", srv.URL+"/v1/payments", key, `{"amount":1,"currency":"RUB","orderRef":"`+key+`"}`)
	}
	var w witness
	srv.AssertOnce(&w)
	srv.AssertSameKey(&w)
	assert.Empty(t, w.said)
}

// A client that had left before the 409 was given could not know of it.
func TestConflictThatNobodyWaitedForIsNotHeldAgainstTheClient(t *testing.T) {
	inMemory(t, mockserver.Config{}, func(t *testing.T, e *mockserver.Engine, c *mockserver.Memory) {
		e.Fault(mockserver.Fault{Do: mockserver.Delay(time.Second).Then(mockserver.Status(409, false)), Times: 1})
		sendFor(t, c, time.Millisecond, "POST", pay, "k", `{"amount":1,"orderRef":"o"}`)
		time.Sleep(2 * time.Second)
		send(t, c, "POST", pay, "k", `{"amount":1,"orderRef":"o"}`)
		require.Equal(t, 409, e.Requests()[0].Status)
		e.AssertConflictFinal(t)
	})
}
