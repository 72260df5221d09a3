package mockserver

import (
	"context"
	"io"
	"net"
	"net/http"
)

type connKey struct{}

// withConn lets faults reach the connection where hijacking does not: on HTTP/2.
func withConn(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, c)
}

// hijack takes an HTTP/1 connection over from net/http; on HTTP/2 it is nil.
func (x *exchange) hijack() net.Conn {
	c, _, err := http.NewResponseController(x.w).Hijack()
	if err != nil {
		return nil
	}
	return c
}

// kill ends the connection by end. What net/http still has in hand it must let go by itself, for which it has a panic.
func (x *exchange) kill(end func(net.Conn)) {
	x.over(0, true)
	if c := x.hijack(); c != nil {
		end(c)
		return
	}
	if c, ok := x.r.Context().Value(connKey{}).(net.Conn); ok {
		end(c)
	}
	panic(http.ErrAbortHandler)
}

// drop closes the connection without an answer.
func (x *exchange) drop() { x.kill(func(c net.Conn) { _ = c.Close() }) }

// reset closes the connection with an RST.
func (x *exchange) reset() { x.kill(abort) }

// abort closes the transport below any TLS, so that not even a farewell goes out.
func abort(c net.Conn) {
	for {
		inner, ok := c.(interface{ NetConn() net.Conn })
		if !ok {
			break
		}
		c = inner.NetConn()
	}
	if l, ok := c.(interface{ SetLinger(int) error }); ok {
		_ = l.SetLinger(0)
	}
	_ = c.Close()
}

// halfClose closes the server's half and reads on until the client closes its own.
func (x *exchange) halfClose() {
	x.kill(func(c net.Conn) {
		defer func() { _ = c.Close() }()
		w, ok := c.(interface{ CloseWrite() error })
		if !ok || w.CloseWrite() != nil {
			return
		}
		defer context.AfterFunc(x.e.ctx, func() { _ = c.Close() })()
		_, _ = io.Copy(io.Discard, c)
	})
}

// raw writes bytes to the connection and closes it.
func (x *exchange) raw(b []byte) {
	x.over(0, true)
	c := x.hijack()
	if c == nil {
		panic(http.ErrAbortHandler)
	}
	_, _ = c.Write(b)
	_ = c.Close()
}
