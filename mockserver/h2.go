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
	out := make([]byte, 0, len(p))
	for _, b := range p {
		out = append(out, c.pass(b))
		if c.last != nil && c.boundary() {
			out = append(out, c.last...)
			_, err := c.Conn.Write(out)
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

// pass takes one byte further and gives the one to write for it.
func (c *frameConn) pass(b byte) byte {
	if c.left == 0 {
		c.head = append(c.head, b)
		if len(c.head) < frameHead {
			return b
		}
		c.left = int(c.head[0])<<16 | int(c.head[1])<<8 | int(c.head[2])
	} else {
		c.left--
		if c.left == 0 && c.head[3] == typeReset && b == codeInternal && len(c.resets) > 0 {
			b = c.resets[0]
			c.resets = c.resets[1:]
		}
	}
	if c.left == 0 {
		c.head = c.head[:0]
	}
	return b
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
