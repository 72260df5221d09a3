package mockserver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"syscall"
)

// Memory is an http.RoundTripper whose connections lead to the engine without a socket: an *http.Transport dials pipes
// that a real http.Server serves. Any host will do, https ones too, which it speaks to without TLS. It works inside a
// synctest bubble if it is made and closed inside.
type Memory struct {
	*http.Transport
	server *http.Server
	lis    *pipeListener
	refuse atomic.Int64
}

// Transport connects to the engine in memory. Close it, or the engine, at the end.
func (e *Engine) Transport() *Memory {
	m := &Memory{server: e.HTTPServer(), lis: &pipeListener{conns: make(chan net.Conn), done: make(chan struct{})}}
	m.Transport = &http.Transport{DialContext: m.dial, DialTLSContext: m.dial, DisableCompression: true}
	go func() { _ = m.server.Serve(m.lis) }()
	e.mu.Lock()
	e.closers = append(e.closers, m.Close)
	e.mu.Unlock()
	return m
}

// Refuse makes the next n dials fail as a closed port does: the server is not reached.
func (m *Memory) Refuse(n int) { m.refuse.Store(int64(n)) }

// Close ends every connection, and with them the goroutines of the transport.
func (m *Memory) Close() {
	_ = m.server.Close()
	m.CloseIdleConnections()
}

var errMemoryClosed = errors.New("mockserver: the in-memory transport is closed")

func (m *Memory) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	if m.refuse.Add(-1) >= 0 {
		return nil, &net.OpError{Op: "dial", Net: "memory", Err: syscall.ECONNREFUSED}
	}
	client, server := pipe(m.lis.n.Add(1))
	select {
	case m.lis.conns <- server:
		return client, nil
	case <-m.lis.done:
		return nil, &net.OpError{Op: "dial", Net: "memory", Err: errMemoryClosed}
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// pipeListener accepts the server's ends of pipes.
type pipeListener struct {
	n     atomic.Int64
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

func (l *pipeListener) Close() error {
	l.once.Do(func() { close(l.done) })
	return nil
}

func (l *pipeListener) Addr() net.Addr { return memoryAddr("memory") }

type memoryAddr string

func (memoryAddr) Network() string  { return "memory" }
func (a memoryAddr) String() string { return string(a) }

// pipeConn is an end of a net.Pipe that has what a TCP connection has besides: an address and a reset.
type pipeConn struct {
	net.Conn
	local, remote memoryAddr
	linger        atomic.Bool  // this end resets when it closes
	reset         *atomic.Bool // one of the ends has
}

func pipe(n int64) (client, server net.Conn) {
	a, b := net.Pipe()
	var reset atomic.Bool
	name := memoryAddr(fmt.Sprintf("memory:%d", n))
	return &pipeConn{Conn: a, local: name, remote: "memory", reset: &reset},
		&pipeConn{Conn: b, local: "memory", remote: name, reset: &reset}
}

func (c *pipeConn) LocalAddr() net.Addr  { return c.local }
func (c *pipeConn) RemoteAddr() net.Addr { return c.remote }

// SetLinger has the meaning of TCP's for zero seconds, the only ones that faults ask for.
func (c *pipeConn) SetLinger(int) error {
	c.linger.Store(true)
	return nil
}

func (c *pipeConn) Close() error {
	if c.linger.Load() {
		c.reset.Store(true)
	}
	return c.Conn.Close()
}

func (c *pipeConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if errors.Is(err, io.EOF) && c.reset.Load() {
		err = &net.OpError{Op: "read", Net: "memory", Err: syscall.ECONNRESET}
	}
	return n, err
}
