package mockserver_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/samekey/samekey/mockserver"
)

// answer is what a raw client got.
type answer struct {
	status int
	header http.Header
	body   string
	err    error // of the exchange or of reading the body
}

// send makes one exchange, without a retry that net/http would do on its own.
func send(t testing.TB, c http.RoundTripper, method, url, key, body string, header ...string) answer {
	t.Helper()
	return sendCtx(t, t.Context(), c, method, url, key, body, header...)
}

// sendFor is send by a client that gives up after d.
func sendFor(t testing.TB, c http.RoundTripper, d time.Duration, method, url, key, body string) answer {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	return sendCtx(t, ctx, c, method, url, key, body)
}

func sendCtx(t testing.TB, ctx context.Context, c http.RoundTripper, method, url, key, body string, header ...string) answer {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	require.NoError(t, err)
	req.GetBody = nil
	if key != "" {
		req.Header.Set("Idempotency-Key", key)
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	return exchange(c, req)
}

func exchange(c http.RoundTripper, req *http.Request) answer {
	resp, err := c.RoundTrip(req)
	if err != nil {
		return answer{err: err}
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return answer{resp.StatusCode, resp.Header, string(b), err}
}

// inMemory runs a test in a bubble with an engine and its transport.
func inMemory(t *testing.T, cfg mockserver.Config, test func(*testing.T, *mockserver.Engine, *mockserver.Memory)) {
	synctest.Test(t, func(t *testing.T) {
		e := mockserver.New(cfg)
		defer e.Close()
		test(t, e, e.Transport())
	})
}

const pay = "http://api.test/v1/payments"

func TestReplaysByteForByte(t *testing.T) {
	inMemory(t, mockserver.Config{}, func(t *testing.T, e *mockserver.Engine, c *mockserver.Memory) {
		for i, body := range []string{`{"amount":1}`, `{"amount":0}`, `{"amount":402}`, `{"amount":999999999}`} {
			key := fmt.Sprint("key-", i)
			first := send(t, c, "POST", pay, key, body)
			again := send(t, c, "POST", pay, key, body)
			assert.Equal(t, []int{201, 400, 402, 422}[i], first.status)
			assert.Equal(t, first.status, again.status)
			assert.Equal(t, first.body, again.body)
			assert.Empty(t, first.header.Get("Idempotent-Replayed"))
			assert.Equal(t, "true", again.header.Get("Idempotent-Replayed"))
			again.header.Del("Idempotent-Replayed")
			assert.Equal(t, first.header, again.header)
		}
		assert.Equal(t, 1, e.Effects())
		e.AssertOnce(t)
		e.AssertSameKey(t)
		e.AssertNoOverlap(t)
	})
}

func TestConflictAndCanonicalBody(t *testing.T) {
	inMemory(t, mockserver.Config{}, func(t *testing.T, e *mockserver.Engine, c *mockserver.Memory) {
		first := send(t, c, "POST", pay, "k", `{"amount":1,"currency":"EUR"}`)
		same := send(t, c, "POST", pay, "k", `{ "currency" : "\u0045UR", "amount" : 1 }`)
		other := send(t, c, "POST", pay, "k", `{"amount":2,"currency":"EUR"}`)
		assert.Equal(t, first.body, same.body)
		assert.Equal(t, 409, other.status)
		assert.JSONEq(t, `{"error":"IdempotencyKeyConflict","idempotencyKey":"k",
			"message":"This Idempotency-Key belongs to a request with another payload."}`, other.body)
		assert.Equal(t, 201, send(t, c, "POST", pay, "k", `{"amount":2}`, "Authorization", "Bearer x").status, "another principal")
		assert.Equal(t, 201, send(t, c, "POST", "http://api.test/v1/orders", "k", `{}`).status, "another path")
	})
}

func TestKeysExpireByTheClock(t *testing.T) {
	inMemory(t, mockserver.Config{TTL: time.Hour}, func(t *testing.T, e *mockserver.Engine, c *mockserver.Memory) {
		first := send(t, c, "POST", pay, "k", `{"amount":1}`)
		e.Advance(59 * time.Minute)
		assert.Equal(t, first.body, send(t, c, "POST", pay, "k", `{"amount":1}`).body)
		e.Advance(time.Minute)
		assert.NotEqual(t, first.body, send(t, c, "POST", pay, "k", `{"amount":1}`).body)
		assert.Equal(t, 2, e.EffectsOfKey("k"))
		assert.Equal(t, 1, e.Duplicates())
	})
}

func TestParallelDuplicatesRunOnce(t *testing.T) {
	for _, wait := range []bool{true, false} {
		p := mockserver.Default
		p.Wait = wait
		release := make(chan struct{})
		var once sync.Once
		api := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			<-release
			w.WriteHeader(http.StatusCreated)
		})
		srv := mockserver.NewServer(mockserver.Config{Profile: p, API: api})
		t.Cleanup(srv.Close)
		var wg sync.WaitGroup
		var mu sync.Mutex
		got := map[int]int{}
		for range 100 {
			wg.Go(func() {
				a := send(t, srv.Client().Transport, "POST", srv.URL+"/v1/payments", "k", `{}`)
				mu.Lock()
				defer mu.Unlock()
				got[a.status]++
				if got[202] == 99 {
					once.Do(func() { close(release) })
				}
			})
		}
		if wait {
			for srv.Totals().Requests < 100 {
				time.Sleep(time.Millisecond)
			}
			close(release)
		}
		wg.Wait()
		assert.Equal(t, 1, srv.Effects())
		if wait {
			assert.Equal(t, map[int]int{201: 100}, got)
		} else {
			assert.Equal(t, map[int]int{201: 1, 202: 99}, got)
		}
	}
}

func TestAsyncOperation(t *testing.T) {
	inMemory(t, mockserver.Config{AsyncAfter: time.Minute}, func(t *testing.T, e *mockserver.Engine, c *mockserver.Memory) {
		a := send(t, c, "POST", pay, "k", `{"amount":1}`, "Prefer", "respond-async")
		assert.Equal(t, 202, a.status)
		assert.JSONEq(t, `{"status":"processing","resultId":"op_000001","links":{"self":"/v1/operations/op_000001"}}`, a.body)
		poll := func() string { return send(t, c, "GET", "http://api.test/v1/operations/op_000001", "", "").body }
		assert.Contains(t, poll(), `"processing"`)
		e.Advance(time.Minute)
		assert.JSONEq(t, `{"status":"succeeded","resultId":"op_000001","paymentId":"pay_000001",
			"links":{"self":"/v1/operations/op_000001","result":"/v1/payments/pay_000001"}}`, poll())
		send(t, c, "POST", pay, "k2", `{"amount":1,"async":true}`)
		assert.True(t, e.Finish("op_000002", false))
		assert.False(t, e.Finish("op_000002", true))
		assert.Contains(t, send(t, c, "GET", "http://api.test/v1/operations/op_000002", "", "").body, `"failed"`)
	})
}

func TestTwoFaultsThenOne(t *testing.T) {
	inMemory(t, mockserver.Config{}, func(t *testing.T, e *mockserver.Engine, c *mockserver.Memory) {
		e.Fault(mockserver.Fault{Match: "POST /v1/payments", When: mockserver.AfterCommit, Do: mockserver.Drop, Times: 1},
			mockserver.Fault{Match: "POST /v1/payments", Do: mockserver.Status(503, false).With("Retry-After", "soon"), Times: 1})
		require.Error(t, send(t, c, "POST", pay, "k", `{"amount":1}`).err)
		second := send(t, c, "POST", pay, "k", `{"amount":1}`)
		assert.Equal(t, 503, second.status)
		assert.Equal(t, "soon", second.header.Get("Retry-After"))
		third := send(t, c, "POST", pay, "k", `{"amount":1}`)
		assert.Equal(t, 201, third.status)
		assert.Equal(t, "true", third.header.Get("Idempotent-Replayed"))
		e.AssertOnce(t)
		e.AssertSameKey(t)
		e.AssertSettled(t)
		assert.Equal(t, 1, e.Totals().Lost)
	})
}

// TestCloseEndsEverything leaves no goroutine behind, whatever still hangs.
func TestCloseEndsEverything(t *testing.T) {
	before := runtime.NumGoroutine()
	for _, start := range []func(mockserver.Config) *mockserver.Server{mockserver.NewServer, mockserver.NewTLSServer} {
		srv := start(mockserver.Config{})
		srv.Fault(mockserver.Fault{Key: "1", Do: mockserver.Stall(0)}, mockserver.Fault{Key: "2", Do: mockserver.StallBody(0)},
			mockserver.Fault{Key: "3", Do: mockserver.Delay(time.Hour)}, mockserver.Fault{Key: "4", Do: mockserver.SlowBytes(time.Hour)},
			mockserver.Fault{Key: "5", When: mockserver.AfterCommit, Do: mockserver.StreamReset(7)})
		var wg sync.WaitGroup
		for i := range 6 {
			wg.Go(func() { send(t, srv.Client().Transport, "POST", srv.URL+"/v1/orders", strconv.Itoa(i), `{}`) })
		}
		require.Eventually(t, func() bool { return srv.Totals().Requests == 6 }, 10*time.Second, time.Millisecond)
		srv.Close()
		wg.Wait()
	}
	for end := time.Now().Add(10 * time.Second); runtime.NumGoroutine() > before && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	assert.LessOrEqual(t, runtime.NumGoroutine(), before)
}

// TestStandsAlone: neither a client nor a store, so that it can judge both.
func TestStandsAlone(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", "-f", "{{if not .Standard}}{{.ImportPath}}{{end}}", ".").Output()
	require.NoError(t, err)
	assert.Equal(t, "github.com/samekey/samekey/mockserver", strings.TrimSpace(string(out)))
}
