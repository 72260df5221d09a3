package mockserver

import (
	"bytes"
	"net"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

type sink struct {
	net.Conn
	wrote  bytes.Buffer
	closed bool
}

func (s *sink) Write(p []byte) (int, error) { return s.wrote.Write(p) }
func (s *sink) Close() error                { s.closed = true; return nil }

func frame(kind byte, payload string) string {
	return string([]byte{0, 0, byte(len(payload)), kind, 0, 0, 0, 0, 1}) + payload
}

const disowned = "\x00\x00\x08\x07\x00\x00\x00\x00\x00" + "\x00\x00\x00\x00\x00\x00\x00\x00"

// TestFramesAreFollowed writes frames in pieces of every size: what a fault puts in stands between frames, and only the
// resets of aborted handlers get another code.
func TestFramesAreFollowed(t *testing.T) {
	data, ping := frame(0, "some data"), frame(6, "12345678")
	reset := func(code string) string { return frame(3, "\x00\x00\x00"+code) }
	stream := frame(4, "") + data + reset("\x02") + data + reset("\x00") + reset("\x02") + ping
	want := frame(4, "") + data + reset("\x07") + data + reset("\x00") + reset("\x08") + ping
	for size := 1; size <= len(stream); size++ {
		var s sink
		c := &frameConn{Conn: &s, done: make(chan struct{})}
		c.resetNext(7)
		c.resetNext(8)
		for p := []byte(stream); len(p) > 0; {
			n, err := c.Write(p[:min(size, len(p))])
			require.NoError(t, err)
			p = p[n:]
		}
		assert.Equal(t, want, s.wrote.String())
		assert.True(t, c.boundary())
	}
}

func TestGoAwayWaitsForTheEndOfAFrame(t *testing.T) {
	data := frame(0, "some data")
	for cut := 0; cut <= len(data); cut++ {
		var s sink
		c := &frameConn{Conn: &s, done: make(chan struct{})}
		_, err := c.Write([]byte(data[:cut]))
		require.NoError(t, err)
		c.goAway()
		between := cut == 0 || cut == len(data)
		assert.Equal(t, between, s.closed)
		if !between {
			_, err = c.Write([]byte(data[cut:] + data))
			require.NoError(t, err)
		}
		assert.True(t, s.closed)
		if cut == 0 {
			assert.Equal(t, disowned, s.wrote.String())
		} else {
			assert.Equal(t, data+disowned, s.wrote.String())
		}
	}
}

// FuzzMember compares the scanner with encoding/json where the body is JSON, and wants it to survive what is not.
func FuzzMember(f *testing.F) {
	for _, body := range []string{`{"a":1,"b":{"a":[1,"}"]},"name":"x"}`, `{"n\u0061me" : "\"x\\" }`, `{"name":"\`, `{`, `{"name"`, `{"name":`,
		`{"x":"\\","name":null}`, ` [1]`, `{"name":-1.5e3 ,"y":{}}`, `{"name":true}`, `{"name":[]}`, `{"a":,"name":"x"}`, `"`} {
		f.Add([]byte(body))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		got := member(body, "name")
		want, ok := reference(body, "name")
		if ok && got != want {
			t.Errorf("member of %s is %q, not %q", body, got, want)
		}
	})
}
