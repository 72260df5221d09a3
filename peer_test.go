package samekey_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// peer is a server on a socket that meets each request as its script says, and keeps every one as it came, byte for
// byte.
type peer struct {
	url string

	lis    net.Listener
	wg     sync.WaitGroup
	mu     sync.Mutex
	script []reply
	got    []string
	conns  map[net.Conn]struct{}
}

// reply acts on a connection once a whole request has come in. The connection goes on if it returns true.
type reply func(c net.Conn) bool

// newPeer starts a server for whose n-th request the n-th reply is; the last one is for all that follow.
func newPeer(t testing.TB, script ...reply) *peer {
	t.Helper()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	p := &peer{url: "http://" + lis.Addr().String(), lis: lis, script: script, conns: map[net.Conn]struct{}{}}
	p.wg.Go(p.serve)
	t.Cleanup(func() {
		_ = lis.Close()
		p.mu.Lock()
		for c := range p.conns {
			_ = c.Close()
		}
		p.mu.Unlock()
		p.wg.Wait()
	})
	return p
}

func (p *peer) serve() {
	for {
		c, err := p.lis.Accept()
		if err != nil {
			return
		}
		p.mu.Lock()
		p.conns[c] = struct{}{}
		p.mu.Unlock()
		p.wg.Go(func() {
			p.talk(c)
			_ = c.Close()
			p.mu.Lock()
			delete(p.conns, c)
			p.mu.Unlock()
		})
	}
}

func (p *peer) talk(c net.Conn) {
	var raw bytes.Buffer
	in := bufio.NewReader(io.TeeReader(c, &raw))
	for {
		req, err := http.ReadRequest(in)
		if err != nil {
			return
		}
		if _, err := io.Copy(io.Discard, req.Body); err != nil {
			return
		}
		p.mu.Lock()
		p.got = append(p.got, raw.String())
		next := p.script[0]
		if len(p.script) > 1 {
			p.script = p.script[1:]
		}
		p.mu.Unlock()
		raw.Reset()
		if !next(c) {
			return
		}
	}
}

// meet replaces what is left of the script.
func (p *peer) meet(script ...reply) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.script = script
}

// requests are all requests so far, as they came.
func (p *peer) requests() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.got)
}

// keyLine is the line of a raw request that carries the key.
func keyLine(raw, name string) string {
	for line := range strings.SplitSeq(raw, "\r\n") {
		if strings.HasPrefix(line, name+": ") {
			return line
		}
	}
	return ""
}

// answers replies with a status, a body and header lines ("Name: value").
func answers(status int, body string, header ...string) reply {
	return func(c net.Conn) bool {
		var b strings.Builder
		fmt.Fprintf(&b, "HTTP/1.1 %03d %s\r\n", status, http.StatusText(status))
		for _, l := range header {
			b.WriteString(l + "\r\n")
		}
		switch status {
		case http.StatusSwitchingProtocols:
			b.WriteString("Connection: Upgrade\r\nUpgrade: x\r\n\r\n")
		case http.StatusNoContent, http.StatusNotModified:
			b.WriteString("\r\n")
		default:
			fmt.Fprintf(&b, "Content-Length: %d\r\n\r\n%s", len(body), body)
		}
		_, err := io.WriteString(c, b.String())
		return err == nil && status != http.StatusSwitchingProtocols
	}
}

// says writes bytes as they are, and closes.
func says(raw string) reply {
	return func(c net.Conn) bool {
		_, _ = io.WriteString(c, raw)
		return false
	}
}

// after does f first.
func after(f func(), next reply) reply {
	return func(c net.Conn) bool {
		f()
		return next(c)
	}
}

var (
	hangsUp reply = func(net.Conn) bool { return false }
	resets  reply = func(c net.Conn) bool {
		_ = c.(*net.TCPConn).SetLinger(0)
		return false
	}
	// staysSilent until the client leaves.
	staysSilent reply = func(c net.Conn) bool {
		_, _ = io.Copy(io.Discard, c)
		return false
	}
	created = answers(http.StatusCreated, `{"id":1}`)
)

// gated is a transport of net/http's own (whose word counts) that dials only while nothing stands in the way.
type gated struct {
	*http.Transport
	mu   sync.Mutex
	gate func(ctx context.Context) error
}

func newGated(t testing.TB) *gated {
	t.Helper()
	g := &gated{}
	g.Transport = &http.Transport{DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
		g.mu.Lock()
		gate := g.gate
		g.mu.Unlock()
		if gate != nil {
			if err := gate(ctx); err != nil {
				return nil, err
			}
		}
		return (&net.Dialer{Timeout: 5 * time.Second}).DialContext(ctx, network, addr)
	}}
	t.Cleanup(g.CloseIdleConnections)
	return g
}

// shut has every dial from now on return what gate does; nil opens again.
func (g *gated) shut(gate func(ctx context.Context) error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.gate = gate
}

func (g *gated) client() *http.Client { return &http.Client{Transport: g.Transport} }

// refuses is what a closed port does.
func refuses(context.Context) error {
	return &net.OpError{Op: "dial", Net: "tcp", Err: fmt.Errorf("connection refused")}
}
