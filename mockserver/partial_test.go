package mockserver_test

import (
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/samekey/samekey/mockserver"
)

// TestClientThatDiedInMidRequest: what has come of its body is compared, the rest is no other payload.
func TestClientThatDiedInMidRequest(t *testing.T) {
	const body = `{"amount":1,"currency":"RUB","orderRef":"order-1"}`
	for sent, same := range map[string]bool{body[:20]: true, "": true, `{"amount":2,"curren`: false} {
		srv := mockserver.NewServer(mockserver.Config{})
		c, err := net.Dial("tcp", strings.TrimPrefix(srv.URL, "http://"))
		require.NoError(t, err)
		_, err = fmt.Fprintf(c, "POST /v1/payments HTTP/1.1\r\nHost: x\r\nIdempotency-Key: k1\r\nContent-Length: %d\r\n\r\n%s", len(body), sent)
		require.NoError(t, err)
		require.NoError(t, c.Close())
		require.Eventually(t, func() bool { return len(srv.Requests()) == 1 }, 10*time.Second, time.Millisecond)
		req, err := http.NewRequest(http.MethodPost, srv.URL+"/v1/payments", strings.NewReader(body))
		require.NoError(t, err)
		req.Header.Set("Idempotency-Key", "k1")
		resp, err := srv.Client().Do(req)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		w := &witness{}
		srv.AssertSameKey(w)
		require.Equal(t, same, len(w.said) == 0, "%q: %q", sent, w.said)
		require.True(t, srv.Requests()[0].Partial)
		require.Equal(t, 1, srv.Effects())
		srv.Close()
	}
}
