package mockserver

import (
	"crypto/tls"
	"encoding/binary"
	"net"
	"net/http"
	"sync"
)

// serveH2 has HTTP/2 connections served by a second http.Server, behind a connection of ours that knows where frames
// begin: net/http offers no way to send a GOAWAY or a stream reset of one's choice.
func serveH2(outer *http.Server, e *Engine) (inner *http.Server) {
	inner = e.HTTPServer()
	inner.Protocols = new(http.Protocols)
	inner.Protocols.SetUnencryptedHTTP2(true) // the TLS is off by then
	lis := &pipeListener{conns: make(chan net.Conn), done: make(chan struct{})}
	outer.TLSConfig.NextProtos = []string{"h2", "http/1.1"}
	outer.TLSNextProto = map[string]func(*http.Server, *tls.Conn, http.Handler){
		"h2": func(_ *http.Server, c *tls.Conn, _ http.Handler) {
			f := &frameConn{Conn: c, done: make(chan struct{})}
			select {
			case lis.conns <- f:
				<-f.done
			case <-lis.done:
			}
		},
	}
	go func() { _ = inner.Serve(lis) }()
	return inner
}

const (
	frameHead    = 9
	typeReset    = 0x3
	typeGoAway   = 0x7
	codeInternal = 0x2 // what net/http resets a stream with when its handler aborts
)

// frameConn follows the frames that the server writes.
type frameConn struct {
	net.Conn
	done chan struct{}
	once sync.Once

	mu     sync.Mutex
	head   []byte // of the current frame, as far as it is written
	left   int    // bytes of its payload still to be written
	resets []byte // codes for the streams that handlers are about to abort
	last   []byte // a frame to end the connection with, at the next boundary
}

func (c *frameConn) NetConn() net.Conn { return c.Conn }

func (c *frameConn) Close() error {
	defer c.once.Do(func() { close(c.done) })
	return c.Conn.Close()
}

func (c *frameConn) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := make([]byte, 0, len(p)+frameHead+8)
	for rest := p; len(rest) > 0; {
		var n int
		out, n = c.pass(out, rest)
		rest = rest[n:]
		if c.last != nil && c.boundary() {
			_, err := c.Conn.Write(append(out, c.last...))
			_ = c.Close()
			return len(p), err
		}
	}
	if _, err := c.Conn.Write(out); err != nil {
		return 0, err
	}
	return len(p), nil
}

func (c *frameConn) boundary() bool { return len(c.head) == 0 && c.left == 0 }

// pass appends to out what is to be written for the first n bytes of p, which are of one head or of one payload.
func (c *frameConn) pass(out, p []byte) (_ []byte, n int) {
	if c.left == 0 {
		n = min(frameHead-len(c.head), len(p))
		c.head = append(c.head, p[:n]...)
		if len(c.head) == frameHead {
			c.left = int(c.head[0])<<16 | int(c.head[1])<<8 | int(c.head[2])
		}
	} else {
		n = min(c.left, len(p))
		c.left -= n
	}
	out = append(out, p[:n]...)
	if len(c.head) < frameHead || c.left > 0 {
		return out, n
	}
	if end := len(out) - 1; c.head[3] == typeReset && out[end] == codeInternal && len(c.resets) > 0 {
		out[end] = c.resets[0]
		c.resets = c.resets[1:]
	}
	c.head = c.head[:0]
	return out, n
}

// resetNext gives the next stream that a handler aborts this code.
func (c *frameConn) resetNext(code byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.resets = append(c.resets, code)
}

// goAway ends the connection with a GOAWAY whose last stream is 0: none was processed.
func (c *frameConn) goAway() {
	c.mu.Lock()
	defer c.mu.Unlock()
	frame := make([]byte, frameHead, frameHead+8)
	frame[2], frame[3] = 8, typeGoAway
	frame = binary.BigEndian.AppendUint32(frame, 0) // last stream
	frame = binary.BigEndian.AppendUint32(frame, 0) // NO_ERROR
	if !c.boundary() {
		c.last = frame
		return
	}
	_, _ = c.Conn.Write(frame)
	_ = c.Close()
}

func (x *exchange) goAway() {
	x.kill(func(c net.Conn) {
		if f, ok := c.(*frameConn); ok {
			f.goAway()
			return
		}
		_ = c.Close()
	})
}

func (x *exchange) streamReset(code uint32) {
	if x.r.ProtoMajor < 2 {
		x.drop()
		return
	}
	x.over(0, true)
	if f, ok := x.r.Context().Value(connKey{}).(*frameConn); ok {
		f.resetNext(byte(code))
	}
	panic(http.ErrAbortHandler)
}
