package main

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/samekey/samekey/crashtest"
	"github.com/samekey/samekey/mockserver"
)

func TestMain(m *testing.M) {
	crashtest.Main(m, map[string]func() error{"shop": func() error {
		return serve(context.Background(), os.Getenv("ADDR"), os.Getenv("DIR"), os.Getenv("BANK"))
	}})
}

func freeAddr(t *testing.T) string {
	t.Helper()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, lis.Close())
	return lis.Addr().String()
}

// buy is a customer who asks again until there is an answer, or gives up with the process.
func buy(t *testing.T, addr string, p *crashtest.Process) (o order, status int) {
	t.Helper()
	for {
		resp, err := http.Post("http://"+addr+"/orders/4711", "application/json", strings.NewReader(`{"amount":100,"currency":"RUB"}`))
		if err == nil {
			b, _ := io.ReadAll(resp.Body)
			_ = resp.Body.Close()
			_ = json.Unmarshal(b, &o)
			return o, resp.StatusCode
		}
		select {
		case <-p.Ended():
			return o, 0
		case <-time.After(5 * time.Millisecond): // it is about to listen
		}
	}
}

// TestKilledBetweenAnswerAndCommit, and everywhere else: the customer's order is charged once, and the next life of the
// shop knows its payment.
func TestKilledBetweenAnswerAndCommit(t *testing.T) {
	for _, point := range []string{
		"answered", "order placed", "begin", "begun", "attempt", "connected", "header written", "body written", "first byte", "attempt done",
		"wait", "first byte/2", "outcome", "settled",
	} {
		t.Run(point, func(t *testing.T) {
			t.Parallel()
			bank := mockserver.NewServer(mockserver.Config{})
			t.Cleanup(bank.Close)
			bank.Fault(mockserver.Fault{When: mockserver.AfterCommit, Do: mockserver.CutBody, Times: 1})
			dir := t.TempDir()
			life := func(point string) (*crashtest.Process, string) {
				addr := freeAddr(t)
				return crashtest.Start(t, point, crashtest.Child("shop", "ADDR="+addr, "DIR="+dir, "BANK="+bank.URL)), addr
			}
			p, addr := life(point)
			_, status := buy(t, addr, p)
			require.Zero(t, status, "the customer gets no answer")
			require.True(t, p.Wait().Killed)

			p, addr = life("")
			o, status := buy(t, addr, p)
			require.Equal(t, http.StatusCreated, status)
			require.NotEmpty(t, o.Payment)
			again, status := buy(t, addr, p)
			require.Equal(t, http.StatusCreated, status)
			require.Equal(t, o, again)
			p.Kill()
			require.Equal(t, 1, bank.Effects())
			bank.AssertOnce(t)
			bank.AssertSameKey(t)
			for _, r := range bank.Requests()[1:] {
				require.True(t, r.Replayed, "the first request had the effect, all others its answer")
			}
		})
	}
}

func TestDeclinedAndUnreachable(t *testing.T) {
	t.Parallel()
	bank := mockserver.NewServer(mockserver.Config{})
	t.Cleanup(bank.Close)
	dir, addr := t.TempDir(), freeAddr(t)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- serve(ctx, addr, dir, bank.URL) }()
	post := func(id, body string) (status int) {
		require.Eventually(t, func() bool {
			resp, err := http.Post("http://"+addr+"/orders/"+id, "application/json", strings.NewReader(body))
			if err != nil {
				return false
			}
			status = resp.StatusCode
			return resp.Body.Close() == nil
		}, 30*time.Second, 5*time.Millisecond)
		return status
	}
	require.Equal(t, http.StatusBadRequest, post("1", "no JSON"))
	require.Equal(t, http.StatusPaymentRequired, post("2", `{"amount":402,"currency":"RUB"}`))
	require.Equal(t, http.StatusPaymentRequired, post("2", `{"amount":402,"currency":"RUB"}`))
	require.Len(t, bank.Requests(), 1, "a rejection holds")
	require.Equal(t, http.StatusCreated, post("3", `{"amount":5,"currency":"RUB"}`))
	resp, err := http.Get("http://" + addr + "/orders/3")
	require.NoError(t, err)
	var o order
	require.NoError(t, json.NewDecoder(resp.Body).Decode(&o))
	require.NoError(t, resp.Body.Close())
	require.NotEmpty(t, o.Payment)
	stop()
	require.NoError(t, <-ended)
}

func TestCommandLine(t *testing.T) {
	for _, c := range []struct {
		args []string
		says string // "": it is right
	}{
		{nil, ""},
		{[]string{"-dir", "/tmp/shop", "-bank", "http://bank"}, ""},
		{[]string{"-h"}, "curl -d '{\"amount\":100"},
		{[]string{"orders"}, `"orders" is no flag; -h shows them`},
		{[]string{"-port", "1"}, "-port"},
	} {
		var out strings.Builder
		_, err := parse(c.args, &out)
		require.Equal(t, c.says == "", err == nil, "%q: %v", c.args, err)
		require.Contains(t, out.String(), c.says)
	}
}
