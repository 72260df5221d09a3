package contracts_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// answers are the raw answers of one file in testdata, by name.
type answers map[string][]byte

// readAnswers reads testdata/name.http.
func readAnswers(t testing.TB, name string) answers {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", name+".http"))
	require.NoError(t, err)
	out := answers{}
	for section := range strings.SplitSeq("\n"+string(text), "\n### ") {
		title, answer, ok := strings.Cut(section, "\n")
		if !ok {
			continue
		}
		head, body, ok := strings.Cut(answer+"\n", "\n\n")
		require.True(t, ok, title)
		raw := strings.ReplaceAll(head, "\n", "\r\n") + "\r\nConnection: close\r\n\r\n" + strings.TrimSpace(body)
		resp, err := http.ReadResponse(bufio.NewReader(strings.NewReader(raw)), nil)
		require.NoError(t, err, "%s: %s", name, title)
		require.NoError(t, resp.Body.Close())
		require.NotContains(t, out, title)
		out[title] = []byte(raw)
	}
	return out
}

var statusLine = regexp.MustCompile(`^HTTP/1.1 \d+`)

// play is a script, names of answers between commas, as bytes: "drop" closes the connection without an answer, and
// "name@409" is the answer with another status.
func (a answers) play(t testing.TB, script string) (out [][]byte) {
	t.Helper()
	for name := range strings.SplitSeq(script, ", ") {
		name, status, changed := strings.Cut(name, "@")
		raw, ok := a[name]
		require.True(t, ok || name == "drop", name)
		if changed {
			raw = statusLine.ReplaceAll(raw, []byte("HTTP/1.1 "+status))
		}
		out = append(out, raw)
	}
	return out
}

// received is a request as the server got it.
type received struct {
	*http.Request
	body string
}

// server plays raw answers on a socket, one for each request, the last one for all that follow.
type server struct {
	url string

	lis    net.Listener
	wg     sync.WaitGroup
	mu     sync.Mutex
	script [][]byte
	got    []received
}

func serve(t testing.TB, script [][]byte) *server {
	t.Helper()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s := &server{url: "http://" + lis.Addr().String(), lis: lis, script: script}
	s.wg.Go(func() {
		for {
			c, err := lis.Accept()
			if err != nil {
				return
			}
			s.wg.Go(func() { s.talk(c) })
		}
	})
	return s
}

// close waits for every connection to end: the client is closed before.
func (s *server) close() {
	_ = s.lis.Close()
	s.wg.Wait()
}

func (s *server) talk(c net.Conn) {
	defer c.Close()
	req, err := http.ReadRequest(bufio.NewReader(c))
	if err != nil {
		return
	}
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return
	}
	s.mu.Lock()
	s.got = append(s.got, received{req, string(body)})
	answer := s.script[0]
	if len(s.script) > 1 {
		s.script = s.script[1:]
	}
	s.mu.Unlock()
	_, _ = c.Write(answer)
}

func (s *server) requests() []received {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.got[:len(s.got):len(s.got)]
}

// place is where an API documents its key to be: it finds it in a request, "" for none.
type place func(r received) string

func header(name string) place {
	return func(r received) string { return strings.Join(r.Header.Values(name), ", ") }
}

func quotedHeader(name string) place {
	return func(r received) string {
		v := header(name)(r)
		if len(v) < 2 || v[0] != '"' || v[len(v)-1] != '"' {
			return "bare: " + v
		}
		return v[1 : len(v)-1]
	}
}

func member(name string) place {
	return func(r received) string {
		var body map[string]any
		if json.NewDecoder(bytes.NewReader([]byte(r.body))).Decode(&body) != nil {
			return ""
		}
		key, _ := body[name].(string)
		return key
	}
}

func query(name string) place {
	return func(r received) string { return strings.Join(r.URL.Query()[name], ", ") }
}

func field(name string) place {
	return func(r received) string {
		form, _ := url.ParseQuery(r.body)
		return strings.Join(form[name], ", ")
	}
}

// pair is Repeatable Requests' two headers.
func pair(r received) string {
	if _, err := http.ParseTime(r.Header.Get("Repeatability-First-Sent")); err != nil {
		return "no time of the first send"
	}
	return header("Repeatability-Request-ID")(r)
}

// nowhere is for APIs without keys.
func nowhere(r received) string {
	for _, lines := range r.Header {
		if strings.Contains(strings.Join(lines, ""), key) {
			return "a header has it"
		}
	}
	if strings.Contains(r.URL.String()+r.body, key) {
		return "the target or body has it"
	}
	return ""
}
