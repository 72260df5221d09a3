package wire_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/samekey/samekey/internal/wire"
)

// raw is a server on a socket: it reads a whole request from each connection and does with it what serve says, which
// returns true if the connection goes on.
func raw(t *testing.T, serve func(n int, c net.Conn, req *http.Request) bool) (url string, requests func() int) {
	t.Helper()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = lis.Close() })
	var mu sync.Mutex
	n := 0
	go func() {
		for {
			c, err := lis.Accept()
			if err != nil {
				return
			}
			go func() {
				defer func() { _ = c.Close() }()
				in := bufio.NewReader(c)
				for {
					req, err := http.ReadRequest(in)
					if err != nil {
						return
					}
					_, _ = io.Copy(io.Discard, req.Body)
					mu.Lock()
					n++
					now := n
					mu.Unlock()
					if !serve(now, c, req) {
						return
					}
				}
			}()
		}
	}()
	return "http://" + lis.Addr().String(), func() int {
		mu.Lock()
		defer mu.Unlock()
		return n
	}
}

func says(text string) func(int, net.Conn, *http.Request) bool {
	return func(_ int, c net.Conn, _ *http.Request) bool {
		_, _ = io.WriteString(c, text)
		return false
	}
}

// builder makes a POST.
type builder struct {
	url, body string
	header    http.Header
	err       error
	before    func()
}

func (b builder) Build(ctx context.Context) (*http.Request, error) {
	if b.before != nil {
		b.before()
	}
	if b.err != nil {
		return nil, b.err
	}
	var body io.Reader
	if b.body != "" {
		body = strings.NewReader(b.body)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, b.url, body)
	if err == nil {
		for name, lines := range b.header {
			req.Header[name] = lines
		}
	}
	return req, err
}

func transport(t *testing.T) *http.Transport {
	tr := &http.Transport{}
	t.Cleanup(tr.CloseIdleConnections)
	return tr
}

func TestWholeAnswer(t *testing.T) {
	url, _ := raw(t, says("HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 201 Created\r\nContent-Length: 5\r\nX-A: b\r\n\r\nhello"))
	points := make(chan wire.Point, 10)
	x := &wire.Exchange{Base: transport(t), MaxResponse: 5, Timeout: time.Minute, OnPoint: func(p wire.Point, _ bool) { points <- p }}
	res := do(x, t.Context(), builder{url: url, body: "in"})
	require.NoError(t, res.Err)
	require.Equal(t, 201, res.Resp.StatusCode)
	require.Equal(t, "b", res.Resp.Header.Get("X-A"))
	require.Equal(t, "hello", string(res.Body))
	require.Nil(t, res.Rest)
	require.Equal(t, 1, res.Sends)
	require.False(t, res.Unsent || res.TimedOut || res.Cut)
	require.Equal(t, wire.Connected, <-points)
	require.Equal(t, wire.HeaderWritten, <-points)
	// Reading and writing are two goroutines of the transport's.
	require.ElementsMatch(t, []wire.Point{wire.BodyWritten, wire.FirstByte}, []wire.Point{<-points, <-points})
	require.Empty(t, points)
}

// TestLimit: the body is there up to the limit, byte for byte, and the rest streams; what a server announces is not
// allocated in advance.
func TestLimit(t *testing.T) {
	body := bytes.Repeat([]byte("0123456789"), 5000)
	url, _ := raw(t, func(_ int, c net.Conn, _ *http.Request) bool {
		_, _ = fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
		return true
	})
	chunked, _ := raw(t, func(_ int, c net.Conn, _ *http.Request) bool {
		_, _ = fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n", len(body), body)
		return true
	})
	for _, u := range []string{url, chunked} {
		for _, limit := range []int64{0, 1, 511, 512, 513, 49_999, 50_000, 50_001, 1 << 20, 1<<63 - 2} {
			x := &wire.Exchange{Base: transport(t), MaxResponse: limit}
			res := do(x, t.Context(), builder{url: u})
			require.NoError(t, res.Err)
			if limit >= int64(len(body)) {
				require.Nil(t, res.Rest)
				require.Equal(t, body, res.Body)
				continue
			}
			require.NotNil(t, res.Rest)
			require.Len(t, res.Body, int(limit))
			rest, err := io.ReadAll(res.Rest)
			require.NoError(t, err)
			require.NoError(t, res.Rest.Close())
			require.Equal(t, body, append(res.Body, rest...))
		}
	}
	huge, _ := raw(t, says("HTTP/1.1 200 OK\r\nContent-Length: 9223372036854775807\r\n\r\nabc"))
	x := &wire.Exchange{Base: transport(t), MaxResponse: 1<<63 - 2}
	require.ErrorIs(t, do(x, t.Context(), builder{url: huge}).Err, io.ErrUnexpectedEOF)
}

// TestContextIsTheCallers: an exchange ends its context only when its time has passed, and no timer runs on in it.
func TestContextIsTheCallers(t *testing.T) {
	for _, tt := range []struct {
		max  int64
		slow time.Duration
	}{{max: 10}, {max: 1 << 20}, {max: 10, slow: 2 * time.Second}} {
		synctest.Test(t, func(t *testing.T) {
			base := foreign(func(*http.Request) (*http.Response, error) {
				time.Sleep(tt.slow)
				return &http.Response{StatusCode: 200, ContentLength: -1, Body: io.NopCloser(strings.NewReader("more than ten bytes"))}, nil
			})
			x := &wire.Exchange{Base: base, MaxResponse: tt.max, Timeout: time.Second, TimeoutErr: errors.New("late")}
			ctx, cancel := context.WithCancelCause(t.Context())
			res := x.Do(ctx, cancel, builder{url: "http://api.test"})
			time.Sleep(time.Hour)
			require.Equal(t, tt.slow > 0, res.Late)
			require.Equal(t, tt.slow > 0, ctx.Err() != nil)
			require.Equal(t, tt.slow > 0, res.Err != nil)
			if res.Rest != nil {
				require.NoError(t, res.Rest.Close())
				require.NoError(t, ctx.Err())
			}
			cancel(nil)
		})
	}
}

type foreign func(*http.Request) (*http.Response, error)

func (f foreign) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// TestWhatProvesThatNothingLeft: a dial, DNS or TLS failure of net/http's own transport, a request that could not be made,
// and nothing else.
func TestWhatProvesThatNothingLeft(t *testing.T) {
	errDial := errors.New("no")
	noDial := func(context.Context, string, string) (net.Conn, error) { return nil, errDial }
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, closed.Close())
	tls := httptest.NewUnstartedServer(http.NotFoundHandler())
	tls.Config.ErrorLog = nil
	tls.StartTLS()
	defer tls.Close()
	hangsUp, _ := raw(t, says(""))
	garbage, _ := raw(t, says("garbage\r\n\r\n"))
	cutOff, _ := raw(t, says("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc"))
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for _, tt := range []struct {
		name   string
		ctx    context.Context
		base   http.RoundTripper
		b      builder
		unsent bool
	}{
		{"closed port", t.Context(), transport(t), builder{url: "http://" + closed.Addr().String()}, true},
		{"dial", t.Context(), &http.Transport{DialContext: noDial}, builder{url: "http://api.test"}, true},
		{"certificate", t.Context(), transport(t), builder{url: tls.URL}, true},
		{"no TLS there", t.Context(), transport(t), builder{url: "https" + hangsUp[4:]}, true},
		{"no request", t.Context(), transport(t), builder{err: errDial}, true},
		{"ended before", ended, transport(t), builder{url: hangsUp}, true},
		{"foreign transport", t.Context(), foreign(func(*http.Request) (*http.Response, error) { return nil, errDial }), builder{url: hangsUp}, false},
		{"foreign transport over ours", t.Context(), foreign((&http.Transport{DialContext: noDial}).RoundTrip), builder{url: hangsUp}, false},
		{"hung up", t.Context(), transport(t), builder{url: hangsUp}, false},
		{"garbage", t.Context(), transport(t), builder{url: garbage}, false},
		{"cut off", t.Context(), transport(t), builder{url: cutOff}, false},
		{"scheme that the transport refuses", t.Context(), transport(t), builder{url: "htp://api.test"}, false}, // not asked for a connection: no proof
	} {
		t.Run(tt.name, func(t *testing.T) {
			res := do(&wire.Exchange{Base: tt.base, MaxResponse: 100, Timeout: time.Minute}, tt.ctx, tt.b)
			require.Error(t, res.Err)
			require.Nil(t, res.Resp)
			require.Equal(t, tt.unsent, res.Unsent)
			require.False(t, res.TimedOut)
		})
	}
}

// do makes an exchange under a context of its own.
func do(x *wire.Exchange, ctx context.Context, b wire.Builder) wire.Result {
	ctx, cancel := context.WithCancelCause(ctx)
	return x.Do(ctx, cancel, b)
}

// TestConflictIsKnownByItsHead: a 409 whose body is cut off is an answer; anything else is a lost one.
func TestConflictIsKnownByItsHead(t *testing.T) {
	for _, status := range []int{200, 408, 409, 410, 503} {
		for _, rest := range []string{"Content-Length: 10\r\n\r\nabc", "Content-Length: 10\r\n\r\n", "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n"} {
			url, _ := raw(t, says(fmt.Sprintf("HTTP/1.1 %d X\r\n%s", status, rest)))
			res := do(&wire.Exchange{Base: transport(t), MaxResponse: 100}, t.Context(), builder{url: url})
			if status != http.StatusConflict {
				require.ErrorIs(t, res.Err, io.ErrUnexpectedEOF)
				require.Nil(t, res.Resp)
				continue
			}
			require.NoError(t, res.Err)
			require.True(t, res.Cut)
			require.Equal(t, status, res.Resp.StatusCode)
			require.True(t, strings.HasPrefix("abc", string(res.Body)))
			_, err := io.ReadAll(res.Rest)
			require.ErrorIs(t, err, io.ErrUnexpectedEOF)
			require.NoError(t, res.Rest.Close())
		}
	}
}

// TestSwitchingProtocols: nothing here can use the connection that comes with it.
func TestSwitchingProtocols(t *testing.T) {
	gone := make(chan struct{})
	url, _ := raw(t, func(_ int, c net.Conn, _ *http.Request) bool {
		_, _ = io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n")
		_, _ = io.Copy(io.Discard, c)
		close(gone)
		return false
	})
	res := do(&wire.Exchange{Base: transport(t), MaxResponse: 100}, t.Context(), builder{url: url})
	require.NoError(t, res.Err)
	require.Equal(t, 101, res.Resp.StatusCode)
	require.Empty(t, res.Body)
	<-gone
}

// TestSends counts what net/http repeats by itself, and the cleared GetBody keeps it from repeating a body.
func TestSends(t *testing.T) {
	for _, body := range []string{"", "payload"} {
		for _, header := range []string{"Idempotency-Key", "X-Idempotency-Key", "Request-Id"} {
			url, requests := raw(t, func(n int, c net.Conn, _ *http.Request) bool {
				if n == 2 {
					return false
				}
				_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
				return true
			})
			x := &wire.Exchange{Base: transport(t), MaxResponse: 100}
			b := builder{url: url, body: body, header: http.Header{header: {"k"}}}
			require.NoError(t, do(x, t.Context(), b).Err)
			res := do(x, t.Context(), b)
			require.Equal(t, requests()-1, res.Sends, "%s, body %q", header, body)
			if body == "" && header != "Request-Id" {
				require.NoError(t, res.Err)
				require.Equal(t, 2, res.Sends)
			} else {
				require.Error(t, res.Err)
				require.Equal(t, 1, res.Sends)
				require.False(t, res.Unsent)
			}
		}
	}
}

// TestTimeout covers everything up to the last byte, leaves its own cause, and is told from the caller's end.
func TestTimeout(t *testing.T) {
	errTime, errCaller := errors.New("time is up"), errors.New("the caller has left")
	waits := func(r *http.Request) (*http.Response, error) {
		<-r.Context().Done()
		return nil, context.Cause(r.Context())
	}
	answersAfter := func(d time.Duration, status int, size int) foreign {
		return func(r *http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: status, Header: http.Header{}, ContentLength: int64(size), Body: &slowBody{ctx: r.Context(), d: d, left: size}}, nil
		}
	}
	for _, tt := range []struct {
		name     string
		base     foreign
		before   time.Duration
		caller   time.Duration
		timedOut bool
		unsent   bool
		ok       bool
		cut      bool
		took     time.Duration
	}{
		{name: "no answer", base: waits, timedOut: true, took: 5 * time.Second},
		{name: "body too slow", base: answersAfter(1100*time.Millisecond, 200, 10), timedOut: true, took: 5 * time.Second},
		{name: "body in time", base: answersAfter(1100*time.Millisecond, 200, 4), ok: true, took: 4400 * time.Millisecond},
		{name: "conflict too slow", base: answersAfter(1100*time.Millisecond, 409, 10), ok: true, cut: true, took: 5 * time.Second},
		{name: "making it took too long", base: waits, before: 6 * time.Second, timedOut: true, unsent: true, took: 6 * time.Second},
		{name: "caller first", base: waits, caller: 3 * time.Second, took: 3 * time.Second},
		{name: "caller first, in the body", base: answersAfter(1100*time.Millisecond, 200, 10), caller: 3 * time.Second, took: 3 * time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancelCause(t.Context())
				defer cancel(nil)
				if tt.caller > 0 {
					time.AfterFunc(tt.caller, func() { cancel(errCaller) })
				}
				x := &wire.Exchange{Base: tt.base, MaxResponse: 100, Timeout: 5 * time.Second, TimeoutErr: errTime}
				began := time.Now()
				res := do(x, ctx, builder{url: "http://api.test", before: func() { time.Sleep(tt.before) }})
				require.Equal(t, tt.took, time.Since(began))
				require.Equal(t, tt.ok, res.Err == nil)
				require.Equal(t, tt.timedOut, res.TimedOut)
				require.Equal(t, tt.unsent, res.Unsent)
				require.Equal(t, tt.cut, res.Cut)
				if tt.cut {
					require.Len(t, res.Body, 4)
					require.NoError(t, res.Rest.Close())
				}
			})
		})
	}
}

// slowBody gives a byte each d, as long as its context lets it.
type slowBody struct {
	ctx  context.Context
	d    time.Duration
	left int
}

func (b *slowBody) Read(p []byte) (int, error) {
	if b.left == 0 {
		return 0, io.EOF
	}
	select {
	case <-time.After(b.d):
	case <-b.ctx.Done():
		return 0, context.Cause(b.ctx)
	}
	b.left--
	p[0] = 'x'
	return 1, nil
}

func (b *slowBody) Close() error { return nil }
