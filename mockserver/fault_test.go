package mockserver_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/textproto"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/samekey/samekey/mockserver"
)

// wire is one way to reach an engine.
type wire struct {
	name string
	h2   bool
	open func(*testing.T, mockserver.Config) (*mockserver.Engine, http.RoundTripper, string)
}

var wires = []wire{
	{"tcp", false, func(t *testing.T, cfg mockserver.Config) (*mockserver.Engine, http.RoundTripper, string) {
		srv := mockserver.NewServer(cfg)
		t.Cleanup(srv.Close)
		return srv.Engine, srv.Client().Transport, srv.URL
	}},
	{"memory", false, func(t *testing.T, cfg mockserver.Config) (*mockserver.Engine, http.RoundTripper, string) {
		e := mockserver.New(cfg)
		t.Cleanup(e.Close)
		return e, e.Transport(), "https://api.test"
	}},
	{"tls", false, func(t *testing.T, cfg mockserver.Config) (*mockserver.Engine, http.RoundTripper, string) {
		srv := mockserver.NewTLSServer(cfg)
		t.Cleanup(srv.Close)
		tr := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: srv.CertPool()}}
		t.Cleanup(tr.CloseIdleConnections)
		return srv.Engine, tr, srv.URL
	}},
	{"h2", true, func(t *testing.T, cfg mockserver.Config) (*mockserver.Engine, http.RoundTripper, string) {
		srv := mockserver.NewTLSServer(cfg)
		t.Cleanup(srv.Close)
		return srv.Engine, srv.Client().Transport, srv.URL
	}},
}

// TestFaultsOnTheWire proves each fault that breaks an exchange by what a raw client sees of it, over each wire, and that
// the command happened only after the commit.
func TestFaultsOnTheWire(t *testing.T) {
	is := func(targets ...error) func(*testing.T, wire, answer) {
		return func(t *testing.T, w wire, a answer) {
			if w.h2 {
				require.Error(t, a.err) // a stream error or a lost connection, as net/http words it
				return
			}
			require.Error(t, a.err)
			for _, target := range targets {
				if errors.Is(a.err, target) {
					return
				}
			}
			t.Errorf("got %v, not %v", a.err, targets)
		}
	}
	cut := func(t *testing.T, w wire, a answer) {
		assert.NotZero(t, a.status, "the headers arrived")
		assert.NotEmpty(t, a.body, "a part of the body arrived")
		is(io.ErrUnexpectedEOF)(t, w, a)
	}
	for _, f := range []struct {
		name string
		do   mockserver.Action
		sees func(*testing.T, wire, answer)
	}{
		{"drop", mockserver.Drop, is(io.EOF)},
		{"reset", mockserver.Reset, is(syscall.ECONNRESET)},
		{"half-close", mockserver.HalfClose, is(io.EOF)},
		{"stall", mockserver.Stall(time.Millisecond), is(io.EOF)},
		{"stall body", mockserver.StallBody(time.Millisecond), cut},
		{"cut body", mockserver.CutBody, func(t *testing.T, w wire, a answer) {
			assert.NotEmpty(t, a.header.Get("Content-Length"))
			cut(t, w, a)
		}},
		{"cut chunked", mockserver.CutChunked, func(t *testing.T, w wire, a answer) {
			assert.Empty(t, a.header.Get("Content-Length"))
			cut(t, w, a)
		}},
		{"goaway", mockserver.GoAway, func(t *testing.T, w wire, a answer) {
			if w.h2 {
				assert.ErrorContains(t, a.err, "GOAWAY")
			} else {
				is(io.EOF)(t, w, a)
			}
		}},
		{"refused stream", mockserver.StreamReset(7), func(t *testing.T, w wire, a answer) {
			if w.h2 {
				assert.ErrorContains(t, a.err, "REFUSED_STREAM")
			} else {
				is(io.EOF)(t, w, a)
			}
		}},
		{"cancelled stream", mockserver.StreamReset(8), func(t *testing.T, w wire, a answer) {
			if w.h2 {
				assert.ErrorContains(t, a.err, "CANCEL")
			} else {
				is(io.EOF)(t, w, a)
			}
		}},
		{"internal stream error", mockserver.StreamReset(2), func(t *testing.T, w wire, a answer) {
			if w.h2 {
				assert.ErrorContains(t, a.err, "INTERNAL_ERROR")
			} else {
				is(io.EOF)(t, w, a)
			}
		}},
		{"garbage", mockserver.RawResponse([]byte("NONSENSE\r\n\r\n")), func(t *testing.T, w wire, a answer) {
			require.Error(t, a.err)
			if !w.h2 {
				assert.ErrorContains(t, a.err, "malformed HTTP")
			}
		}},
	} {
		for _, w := range wires {
			for _, when := range []mockserver.Phase{mockserver.BeforeCommit, mockserver.AfterCommit} {
				t.Run(f.name+"/"+w.name+"/"+[]string{"before", "after"}[when], func(t *testing.T) {
					e, c, url := w.open(t, mockserver.Config{})
					require.Equal(t, 201, send(t, c, "POST", url+"/v1/orders", "warm", `{}`).status, "warms the connection")
					e.Fault(mockserver.Fault{Match: "POST /v1/payments", When: when, Do: f.do, Times: 1})
					f.sees(t, w, send(t, c, "POST", url+"/v1/payments", "k", `{"amount":1}`))
					assert.Equal(t, int(when), e.EffectsOfKey("k"))
					assert.Equal(t, 1, e.Totals().Lost)
					again := send(t, c, "POST", url+"/v1/payments", "k", `{"amount":1}`)
					require.NoError(t, again.err)
					assert.Equal(t, 201, again.status)
					assert.Equal(t, when == mockserver.AfterCommit, again.header.Get("Idempotent-Replayed") != "")
					assert.Equal(t, 1, e.EffectsOfKey("k"))
					e.AssertOnce(t)
					e.AssertSameKey(t)
					e.AssertNoOverlap(t)
					e.AssertSettled(t)
				})
			}
		}
	}
}

func TestAnswersInPlaceOfTheAPI(t *testing.T) {
	for _, c := range []struct {
		name         string
		when         mockserver.Phase
		do           mockserver.Action
		first, again int
		effects      int
	}{
		{"503, before", mockserver.BeforeCommit, mockserver.Status(503, false), 503, 201, 1},
		{"503, after", mockserver.AfterCommit, mockserver.Status(503, false), 503, 201, 1},
		{"500 stored, before", mockserver.BeforeCommit, mockserver.Status(500, true), 500, 500, 0},
		{"500 stored, after", mockserver.AfterCommit, mockserver.Status(500, true), 500, 500, 1},
		{"redirect", mockserver.BeforeCommit, mockserver.Redirect(307, "/v1/elsewhere"), 307, 201, 1},
		{"key forgotten", mockserver.AfterCommit, mockserver.ForgetKey, 201, 201, 2},
		{"delivered twice", mockserver.BeforeCommit, mockserver.Duplicate, 201, 201, 1},
		{"key stripped", mockserver.BeforeCommit, mockserver.StripHeader("Idempotency-Key"), 201, 201, 2},
		{"key renamed", mockserver.BeforeCommit, mockserver.RenameHeader("Idempotency-Key", "X-Key"), 201, 201, 2},
		{"key stripped, delivered twice", mockserver.BeforeCommit,
			mockserver.StripHeader("Idempotency-Key").Then(mockserver.Duplicate), 201, 201, 3},
		{"slow", mockserver.AfterCommit, mockserver.SlowBytes(time.Millisecond), 201, 201, 1},
		{"late", mockserver.BeforeCommit, mockserver.Delay(time.Second), 201, 201, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			inMemory(t, mockserver.Config{}, func(t *testing.T, e *mockserver.Engine, tr *mockserver.Memory) {
				e.Fault(mockserver.Fault{When: c.when, Do: c.do, Times: 1})
				first := send(t, tr, "POST", pay, "k", `{"amount":1}`)
				require.NoError(t, first.err)
				again := send(t, tr, "POST", pay, "k", `{"amount":1}`)
				assert.Equal(t, []int{c.first, c.again, c.effects}, []int{first.status, again.status, e.Effects()})
				if c.first == 500 {
					assert.Equal(t, first.body, again.body)
					assert.Contains(t, first.body, `"InjectedFault"`)
				}
			})
		})
	}
}

// TestGatewaysKnowNoKeys: an answer in place of the API's bears neither echo nor mark, not even over a replay.
func TestGatewaysKnowNoKeys(t *testing.T) {
	inMemory(t, mockserver.Config{}, func(t *testing.T, e *mockserver.Engine, c *mockserver.Memory) {
		require.Equal(t, 201, send(t, c, "POST", pay, "k", `{"amount":1}`).status)
		e.Fault(mockserver.Fault{When: mockserver.AfterCommit, Do: mockserver.Status(503, false), Times: 1},
			mockserver.Fault{When: mockserver.AfterCommit, Do: mockserver.Status(500, true), Times: 1})
		for _, status := range []int{503, 500} {
			a := send(t, c, "POST", pay, "k", `{"amount":1}`)
			assert.Equal(t, status, a.status)
			assert.Empty(t, a.header.Get("Idempotent-Replayed")+a.header.Get("Idempotency-Key"))
		}
		stored := send(t, c, "POST", pay, "k", `{"amount":1}`)
		assert.Equal(t, []any{500, "true", "k"}, []any{stored.status, stored.header.Get("Idempotent-Replayed"), stored.header.Get("Idempotency-Key")})
	})
}

func TestHeadersOfAnswers(t *testing.T) {
	inMemory(t, mockserver.Config{}, func(t *testing.T, e *mockserver.Engine, c *mockserver.Memory) {
		e.Fault(
			mockserver.Fault{Do: mockserver.Status(429, false).With("Retry-After", "Wed, 21 Oct 2015 07:28:00 GMT").Body("later"), Times: 1},
			mockserver.Fault{Do: mockserver.AnswerHeader("Idempotency-Key", "not-yours"), Times: 1},
			mockserver.Fault{Do: mockserver.StripAnswerHeader("Idempotent-Replayed"), Times: 1})
		busy := send(t, c, "POST", pay, "k", `{"amount":1}`)
		assert.Equal(t, []string{"Wed, 21 Oct 2015 07:28:00 GMT", "later"}, []string{busy.header.Get("Retry-After"), busy.body})
		assert.Equal(t, "not-yours", send(t, c, "POST", pay, "k", `{"amount":1}`).header.Get("Idempotency-Key"))
		assert.Empty(t, send(t, c, "POST", pay, "k", `{"amount":1}`).header.Get("Idempotent-Replayed"))
		assert.Equal(t, "true", send(t, c, "POST", pay, "k", `{"amount":1}`).header.Get("Idempotent-Replayed"))
	})
}

func TestInformationalFirst(t *testing.T) {
	for _, w := range wires {
		t.Run(w.name, func(t *testing.T) {
			e, c, url := w.open(t, mockserver.Config{})
			e.Fault(mockserver.Fault{Do: mockserver.Informational(103).With("Link", "</x>")})
			var links []string
			ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{Got1xxResponse: func(code int, h textproto.MIMEHeader) error {
				links = append(links, h.Get("Link"))
				return nil
			}})
			req, _ := http.NewRequestWithContext(ctx, "POST", url+"/v1/orders", strings.NewReader(`{}`))
			resp, err := c.RoundTrip(req)
			require.NoError(t, err)
			_ = resp.Body.Close()
			assert.Equal(t, []string{"</x>"}, links)
			assert.Empty(t, resp.Header.Get("Link"))
		})
	}
}

// TestHalfCloseReadsOn looks below HTTP: the server's half is closed, the client's is still taken.
func TestHalfCloseReadsOn(t *testing.T) {
	srv := mockserver.NewServer(mockserver.Config{})
	defer srv.Close()
	srv.Fault(mockserver.Fault{Do: mockserver.HalfClose})
	c, err := net.Dial("tcp", strings.TrimPrefix(srv.URL, "http://"))
	require.NoError(t, err)
	defer c.Close()
	_, err = c.Write([]byte("POST /v1/orders HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}"))
	require.NoError(t, err)
	_, err = bufio.NewReader(c).ReadByte()
	require.ErrorIs(t, err, io.EOF)
	_, err = c.Write(make([]byte, 1<<20)) // more than the buffers hold: somebody reads
	require.NoError(t, err)
}

// TestStallsLastAsLongAsTheySay measures by the bubble's clock.
func TestStallsLastAsLongAsTheySay(t *testing.T) {
	inMemory(t, mockserver.Config{}, func(t *testing.T, e *mockserver.Engine, c *mockserver.Memory) {
		for _, s := range []struct {
			do   mockserver.Action
			took time.Duration
		}{
			{mockserver.Stall(time.Hour), time.Hour},
			{mockserver.StallBody(time.Minute), time.Minute},
			{mockserver.Delay(time.Second), time.Second},
			{mockserver.Delay(0), 0},
			{mockserver.Delay(time.Second).Then(mockserver.Drop), time.Second},
			{mockserver.SlowBytes(time.Second), 91 * time.Second},
		} {
			e.ClearFaults()
			e.Fault(mockserver.Fault{When: mockserver.AfterCommit, Do: s.do})
			start := time.Now()
			a := send(t, c, "POST", pay, "k", `{"amount":1}`)
			if a.err == nil {
				assert.Len(t, a.body, 91)
			}
			assert.Equal(t, s.took, time.Since(start))
		}
	})
}

// TestLateExecution: the client gives up a request that takes effect after all.
func TestLateExecution(t *testing.T) {
	inMemory(t, mockserver.Config{}, func(t *testing.T, e *mockserver.Engine, c *mockserver.Memory) {
		e.Fault(mockserver.Fault{Do: mockserver.Delay(time.Minute), Times: 1})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		req, _ := http.NewRequestWithContext(ctx, "POST", pay, strings.NewReader(`{"amount":1}`))
		req.Header.Set("Idempotency-Key", "k")
		_, err := c.RoundTrip(req)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		assert.Equal(t, 0, e.Effects())
		time.Sleep(time.Hour)
		assert.Equal(t, 1, e.Effects())
		assert.True(t, e.Requests()[0].HungUp)
		assert.Equal(t, "true", send(t, c, "POST", pay, "k", `{"amount":1}`).header.Get("Idempotent-Replayed"))
		e.AssertOnce(t)
		e.AssertNoOverlap(t)
	})
}

func TestEndlessStallEndsWithTheClientOrTheServer(t *testing.T) {
	inMemory(t, mockserver.Config{}, func(t *testing.T, e *mockserver.Engine, c *mockserver.Memory) {
		e.Fault(mockserver.Fault{Do: mockserver.Stall(0)})
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		req, _ := http.NewRequestWithContext(ctx, "POST", pay, strings.NewReader(`{"amount":1}`))
		_, err := c.RoundTrip(req)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		time.AfterFunc(time.Hour, e.Close)
		require.ErrorIs(t, send(t, c, "POST", pay, "k", `{}`).err, io.EOF)
	})
}

func TestRefusedDialsNeverReach(t *testing.T) {
	inMemory(t, mockserver.Config{}, func(t *testing.T, e *mockserver.Engine, c *mockserver.Memory) {
		c.Refuse(2)
		for range 2 {
			require.ErrorIs(t, send(t, c, "POST", pay, "k", `{"amount":1}`).err, syscall.ECONNREFUSED)
		}
		require.Equal(t, 201, send(t, c, "POST", pay, "k", `{"amount":1}`).status)
		assert.Len(t, e.Requests(), 1)
	})
}

func TestCrashes(t *testing.T) {
	for _, cure := range []bool{false, true} {
		inMemory(t, mockserver.Config{}, func(t *testing.T, e *mockserver.Engine, c *mockserver.Memory) {
			end := func() {
				if cure {
					assert.Equal(t, 1, e.Cure())
				} else {
					e.Advance(10 * time.Minute)
				}
			}
			e.Fault(mockserver.Fault{Do: mockserver.CrashReserved(10 * time.Minute), Times: 1},
				mockserver.Fault{Do: mockserver.CrashUnstored(10 * time.Minute), Times: 1, Skip: 3})
			body := `{"amount":1}`
			require.ErrorIs(t, send(t, c, "POST", pay, "a", body).err, io.EOF)
			stuck := send(t, c, "POST", pay, "a", body)
			assert.Equal(t, 202, stuck.status)
			poll := send(t, c, "GET", "http://api.test"+stuck.header.Get("Location"), "", "")
			assert.Equal(t, 200, poll.status)
			assert.JSONEq(t, `{"status":"processing","resultId":"pend_000001"}`, poll.body)
			end()
			first := send(t, c, "POST", pay, "a", body)
			assert.Equal(t, []any{201, ""}, []any{first.status, first.header.Get("Idempotent-Replayed")}, "released, and run")
			assert.Equal(t, 1, e.EffectsOfKey("a"))

			require.ErrorIs(t, send(t, c, "POST", pay, "b", body).err, io.EOF)
			assert.Equal(t, 1, e.EffectsOfKey("b"), "the effect is there, the answer is not")
			stuck = send(t, c, "POST", pay, "b", body)
			assert.Equal(t, 202, stuck.status)
			end()
			poll = send(t, c, "GET", "http://api.test"+stuck.header.Get("Location"), "", "")
			assert.Contains(t, poll.body, `"succeeded"`)
			again := send(t, c, "POST", pay, "b", body)
			assert.Equal(t, []any{201, "true"}, []any{again.status, again.header.Get("Idempotent-Replayed")}, "completed from its effect")
			e.AssertOnce(t)
		})
	}
}

// TestResetsAmongManyStreams mixes refused streams with long answers on one HTTP/2 connection.
func TestResetsAmongManyStreams(t *testing.T) {
	long := strings.Repeat("long answer ", 4000)
	srv := mockserver.NewTLSServer(mockserver.Config{API: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, long)
	})})
	defer srv.Close()
	srv.Fault(mockserver.Fault{Do: mockserver.StreamReset(7), Share: 0.3})
	var wg sync.WaitGroup
	var refused atomic.Int64
	for i := range 100 {
		wg.Go(func() {
			a := send(t, srv.Client().Transport, "POST", srv.URL+"/x", strconv.Itoa(i), strconv.Itoa(i))
			if a.err != nil {
				refused.Add(1)
				assert.ErrorContains(t, a.err, "REFUSED_STREAM")
				return
			}
			assert.Equal(t, long, a.body)
		})
	}
	wg.Wait()
	assert.InDelta(t, 30, refused.Load(), 20)
	assert.Equal(t, 100-int(refused.Load()), srv.Effects())
}

// TestForeignServers: an Engine is a handler like any other.
func TestForeignServers(t *testing.T) {
	for _, h2 := range []bool{false, true} {
		e := mockserver.New(mockserver.Config{})
		srv := httptest.NewUnstartedServer(e)
		srv.EnableHTTP2 = h2
		if h2 {
			srv.StartTLS()
		} else {
			srv.Start()
		}
		for _, do := range []mockserver.Action{mockserver.Drop, mockserver.Reset, mockserver.GoAway, mockserver.StreamReset(7)} {
			e.Fault(mockserver.Fault{When: mockserver.AfterCommit, Do: do, Times: 1})
			require.Error(t, send(t, srv.Client().Transport, "POST", srv.URL+"/v1/orders", "k", `{}`).err)
			again := send(t, srv.Client().Transport, "POST", srv.URL+"/v1/orders", "k", `{}`)
			assert.Equal(t, 201, again.status)
		}
		assert.Equal(t, 1, e.Effects())
		srv.Close()
		e.Close()
	}
}

// TestRequestCutOff: a request that does not arrive whole is not executed, nor answered.
func TestRequestCutOff(t *testing.T) {
	srv := mockserver.NewServer(mockserver.Config{})
	defer srv.Close()
	c, err := net.Dial("tcp", strings.TrimPrefix(srv.URL, "http://"))
	require.NoError(t, err)
	_, err = c.Write([]byte("POST /v1/orders HTTP/1.1\r\nHost: x\r\nIdempotency-Key: k\r\nContent-Length: 20\r\n\r\n{\"a\":"))
	require.NoError(t, err)
	require.NoError(t, c.(*net.TCPConn).CloseWrite())
	b, _ := io.ReadAll(c)
	_ = c.Close()
	assert.Empty(t, string(b))
	require.Len(t, srv.Requests(), 1)
	assert.True(t, srv.Requests()[0].Partial)
	assert.Equal(t, 0, srv.Effects())
}

func TestOddsAndEndsOfFaults(t *testing.T) {
	inMemory(t, mockserver.Config{}, func(t *testing.T, e *mockserver.Engine, c *mockserver.Memory) {
		const order = "http://api.test/v1/orders/o-1"
		require.Equal(t, 201, send(t, c, "PUT", order, "", `{}`).status)
		e.Fault(mockserver.Fault{Match: "DELETE /", When: mockserver.AfterCommit, Do: mockserver.CutBody})
		require.ErrorIs(t, send(t, c, "DELETE", order, "", "").err, io.EOF, "an answer without a body is lost whole")
		assert.Equal(t, 404, send(t, c, "GET", order, "", "").status)

		e.Reset()
		require.Equal(t, 201, send(t, c, "POST", pay, "k", `{"amount":1}`).status)
		e.Fault(mockserver.Fault{Do: mockserver.Status(500, true), Times: 1}, mockserver.Fault{Do: mockserver.Duplicate, Key: "twice"})
		assert.Equal(t, 500, send(t, c, "POST", pay, "k", `{"amount":1}`).status)
		assert.Equal(t, 201, send(t, c, "POST", pay, "k", `{"amount":1}`).status, "what the key knew stands")
		assert.Equal(t, "true", send(t, c, "POST", pay, "twice", `{"amount":1}`).header.Get("Idempotent-Replayed"),
			"the client gets the second answer")

		e.Reset()
		e.Fault(mockserver.Fault{Do: mockserver.CrashReserved(0), Times: 1})
		require.Error(t, send(t, c, "POST", pay, "k", `{"amount":1}`).err)
		e.Advance(23 * time.Hour)
		assert.Equal(t, 202, send(t, c, "POST", pay, "k", `{"amount":1}`).status, "stuck for its life")
		e.ForgetKeys()
		assert.Equal(t, 201, send(t, c, "POST", pay, "k", `{"amount":1}`).status)

		// Two faults of the same share strike independently of each other.
		e.Reset()
		half := mockserver.Fault{Do: mockserver.Status(503, false), Share: 0.5}
		e.Fault(half, half)
		n := 0
		for i := range 100 {
			if send(t, c, "POST", pay, "", fmt.Sprintf(`{"amount":%d}`, i+1000)).status == 503 {
				n++
			}
		}
		assert.InDelta(t, 75, n, 12)
	})
}

func TestSampleAPI(t *testing.T) {
	inMemory(t, mockserver.Config{}, func(t *testing.T, e *mockserver.Engine, c *mockserver.Memory) {
		for _, s := range []struct {
			method, path, body string
			status             int
			says               string
			effects            int
		}{
			{"POST", "/v1/orders", `{"customerId":"c","items":[{"sku":"A","qty":2}]}`, 201, `"orderId":"ord_000001"`, 1},
			{"POST", "/v1/orders", `{"items":[]}`, 400, "InvalidItems", 1},
			{"POST", "/v1/orders", `[]`, 400, "InvalidBody", 1},
			{"POST", "/v1/payments", `{"amount":"1"}`, 400, "InvalidAmount", 1},
			{"POST", "/v1/payments", `{"amount":1.5}`, 400, "InvalidAmount", 1},
			{"POST", "/v1/payments", `{"amount":1,"currency":"XXX"}`, 400, "InvalidCurrency", 1},
			{"GET", "/v1/orders/ord_000001", "", 200, `"customerId":"c"`, 1},
			{"PATCH", "/v1/orders/ord_000001", `{"note":"x"}`, 200, `"note":"x"`, 2},
			{"PATCH", "/v1/orders/ord_000009", `{}`, 404, "NotFound", 2},
			{"POST", "/v1/orders/ord_000001/cancel", "", 200, `"succeeded"`, 3},
			{"POST", "/v1/orders/ord_000001/cancel", "", 409, "AlreadyCancelled", 3},
			{"GET", "/v1/orders/ord_000001", "", 200, `"cancelled"`, 3},
			{"POST", "/v1/orders/ord_000009/cancel", "", 404, "NotFound", 3},
			{"PUT", "/v1/orders/mine", `{"a":1}`, 201, `"orderId":"mine"`, 4},
			{"PUT", "/v1/orders/mine", `{"a":1}`, 200, `"orderId":"mine"`, 4},
			{"PUT", "/v1/orders/mine", `{"a":2}`, 200, `"a":2`, 5},
			{"DELETE", "/v1/orders/mine", "", 204, "", 6},
			{"DELETE", "/v1/orders/mine", "", 404, `"traceId":"00`, 6},
			{"GET", "/v1/operations/op_9", "", 404, "NotFound", 6},
			{"GET", "/elsewhere", "", 404, "NotFound", 6},
		} {
			a := send(t, c, s.method, "http://api.test"+s.path, "", s.body)
			assert.Equal(t, s.status, a.status, s)
			assert.Contains(t, a.body, s.says)
			assert.Equal(t, s.effects, e.Effects(), s)
		}
	})
}
