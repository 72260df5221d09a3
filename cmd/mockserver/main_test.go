package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// serve runs the program inside the test and gives its URL; stop ends it and gives what it said at the end.
func serve(t *testing.T, args ...string) (url string, stop func() string) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	r, w := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		err := run(ctx, append([]string{"-addr", "127.0.0.1:0"}, args...), w, io.Discard)
		_ = w.Close()
		ended <- err
	}()
	out := bufio.NewReader(r)
	line, err := out.ReadString('\n')
	if err != nil {
		require.NoError(t, <-ended)
	}
	return strings.TrimSpace(strings.TrimPrefix(line, "listening on ")), func() string {
		cancel()
		rest, _ := io.ReadAll(out)
		require.NoError(t, <-ended)
		return string(rest)
	}
}

// TestCurlSession runs the session that the documentation shows, and compares what curl prints.
func TestCurlSession(t *testing.T) {
	if _, err := exec.LookPath("curl"); err != nil {
		const hint = "no curl: apt-get install curl"
		if os.Getenv("SAMEKEY_REQUIRE_SERVICES") == "1" {
			t.Fatal(hint)
		}
		t.Skip(hint)
	}
	text, err := os.ReadFile(filepath.Join("..", "..", "mockserver", "doc", "session.md"))
	require.NoError(t, err)
	url, stop := serve(t, "-async", "1m")
	defer stop()
	inside, command, want, n := false, "", "", 0
	check := func() {
		if command != "" {
			n++
			got, _ := exec.Command("sh", "-c", strings.ReplaceAll(command, "http://127.0.0.1:8099", url)).Output()
			assert.Equal(t, want, string(got), command)
		}
		command, want = "", ""
	}
	for line := range strings.Lines(string(text)) {
		switch {
		case strings.HasPrefix(line, "```"):
			check()
			inside = strings.HasPrefix(line, "```console")
		case inside && strings.HasPrefix(line, "$ "):
			check()
			command = strings.TrimPrefix(line, "$ ")
		case inside:
			want += line
		}
	}
	assert.Equal(t, 16, n)
}

func TestFlags(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	post := func(url, key string) int {
		req, _ := http.NewRequest("POST", url+"/v1/payments", strings.NewReader(`{"amount":1}`))
		if key != "" {
			req.Header.Set("Idempotency-Key", key)
		}
		resp, err := http.DefaultClient.Do(req)
		require.NoError(t, err)
		_ = resp.Body.Close()
		return resp.StatusCode
	}
	faults := file("faults.json", `[{"do":{"do":"status","code":503},"times":1}]`)
	profile := file("profile.json", `{"name":"mine","require":true,"uuid":true,"ttl":"1h","missing":{"status":418,"body":"no key"}}`)
	url, stop := serve(t, "-faults", faults, "-profile", "ietf", "-seed", "7", "-ttl", "1h")
	assert.Equal(t, []int{503, 201, 400}, []int{post(url, `"k"`), post(url, `"k"`), post(url, "k")})
	assert.Equal(t, "stopped: 3 requests, 1 effects, 0 duplicates\n", stop())
	url, stop = serve(t, "-profile", profile)
	assert.Equal(t, []int{418, 400}, []int{post(url, ""), post(url, "k")})
	stop()
	url, stop = serve(t, "-require")
	assert.Equal(t, 400, post(url, ""))
	stop()

	cert := filepath.Join(dir, "cert.pem")
	url, stop = serve(t, "-tls", cert)
	pem, err := os.ReadFile(cert)
	require.NoError(t, err)
	pool := x509.NewCertPool()
	require.True(t, pool.AppendCertsFromPEM(pem))
	tr := &http.Transport{ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{RootCAs: pool}}
	defer tr.CloseIdleConnections()
	resp, err := (&http.Client{Transport: tr}).Get(url + "/_mock/ledger")
	require.NoError(t, err)
	_ = resp.Body.Close()
	assert.Equal(t, "HTTP/2.0", resp.Proto)
	assert.Contains(t, stop(), "stopped: 0 requests")

	for _, c := range []struct {
		args []string
		says string
	}{
		{[]string{"-profile", "nobody"}, "they are default, ietf, stripe-v1"},
		{[]string{"-profile", filepath.Join(dir, "none.json")}, "no such file"},
		{[]string{"-profile", file("bad.json", `{"label":1}`)}, "unknown field"},
		{[]string{"-faults", filepath.Join(dir, "none.json")}, "no such file"},
		{[]string{"-faults", file("worse.json", `{"do":"explode"}`)}, "no action is named"},
		{[]string{"-faults", file("pattern.json", `{"do":"drop","match":"x"}`)}, "pattern"},
		{[]string{"-seed", "x"}, "invalid value"},
		{[]string{"-sed", "1"}, "not defined: -sed; see -h"},
		{[]string{"stray"}, "unexpected argument"},
	} {
		var said bytes.Buffer
		err := run(t.Context(), append([]string{"-addr", "127.0.0.1:0"}, c.args...), io.Discard, &said)
		assert.ErrorContains(t, err, c.says, c.args)
		assert.Equal(t, 2, code(err), c.args)
		assert.Empty(t, said.String(), "main says it, once")
	}
	err = run(t.Context(), []string{"-addr", "nowhere:-1"}, io.Discard, io.Discard)
	assert.ErrorContains(t, err, "invalid port")
	assert.Equal(t, 1, code(err))
	var help bytes.Buffer
	require.Error(t, run(t.Context(), []string{"-h"}, io.Discard, &help))
	for _, word := range []string{"-addr", "-profile", "-faults", "-seed", "-ttl", "POST /v1/payments", "/_mock/ledger", "cut-body"} {
		assert.Contains(t, help.String(), word)
	}
}

// TestStopsOnSignal runs the built program: it ends by itself on SIGTERM, even while a request is stalled.
func TestStopsOnSignal(t *testing.T) {
	bin := filepath.Join(t.TempDir(), "mockserver")
	out, err := exec.Command("go", "build", "-o", bin, ".").CombinedOutput()
	require.NoError(t, err, string(out))
	cmd := exec.Command(bin, "-addr", "127.0.0.1:0")
	pipe, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	defer func() { _ = cmd.Process.Kill() }()
	lines := bufio.NewReader(pipe)
	line, err := lines.ReadString('\n')
	require.NoError(t, err)
	url := strings.TrimSpace(strings.TrimPrefix(line, "listening on "))
	resp, err := http.Post(url+"/_mock/faults", "application/json", strings.NewReader(`{"do":"stall"}`))
	require.NoError(t, err)
	_ = resp.Body.Close()
	stalled := make(chan error, 1)
	go func() {
		_, err := http.Post(url+"/v1/orders", "application/json", strings.NewReader(`{}`))
		stalled <- err
	}()
	arrived := func() bool {
		resp, err := http.Get(url + "/_mock/ledger")
		require.NoError(t, err)
		defer resp.Body.Close()
		b, _ := io.ReadAll(resp.Body)
		return strings.Contains(string(b), `"requests":1`)
	}
	require.Eventually(t, arrived, 10*time.Second, 5*time.Millisecond)
	require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	rest, _ := io.ReadAll(lines)
	require.NoError(t, cmd.Wait())
	require.Error(t, <-stalled)
	assert.Equal(t, "stopped: 1 requests, 0 effects, 0 duplicates\n", string(rest))
}
