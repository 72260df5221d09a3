package mockserver_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// browser is a headless Chromium, driven over its debugging pipe.
type browser struct {
	t       *testing.T
	in      io.Writer
	mu      sync.Mutex
	n       int
	waiting map[int]chan json.RawMessage
	session string
	console []string // what the page logged or threw
}

// findBrowser is an installed Chromium, or a skip that says how to get one; SAMEKEY_REQUIRE_SERVICES makes it a failure.
func findBrowser(t *testing.T) string {
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	const hint = "no Chromium: apt-get install --no-install-recommends chromium"
	if os.Getenv("SAMEKEY_REQUIRE_SERVICES") == "1" {
		t.Fatal(hint)
	}
	t.Skip(hint)
	return ""
}

func openBrowser(t *testing.T, url string) *browser {
	path := findBrowser(t)
	inRead, inWrite, err := os.Pipe()
	require.NoError(t, err)
	outRead, outWrite, err := os.Pipe()
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, path, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run",
		"--disable-background-networking", "--remote-debugging-pipe", "--window-size=1200,900", "--user-data-dir="+t.TempDir())
	cmd.ExtraFiles = []*os.File{inRead, outWrite}
	require.NoError(t, cmd.Start())
	_ = inRead.Close()
	_ = outWrite.Close()
	b := &browser{t: t, in: inWrite, waiting: map[int]chan json.RawMessage{}}
	t.Cleanup(func() {
		_ = json.NewEncoder(io.Discard).Encode(b.call("Browser.close", nil))
		_ = inWrite.Close()
		done := time.AfterFunc(5*time.Second, cancel)
		_ = cmd.Wait()
		done.Stop()
		cancel()
		_ = outRead.Close()
	})
	go b.listen(outRead)
	var target struct{ TargetID string }
	b.into(&target, "Target.createTarget", map[string]any{"url": "about:blank"})
	var attached struct{ SessionID string }
	b.into(&attached, "Target.attachToTarget", map[string]any{"targetId": target.TargetID, "flatten": true})
	b.session = attached.SessionID
	for _, domain := range []string{"Runtime.enable", "Log.enable", "Page.enable"} {
		b.call(domain, nil)
	}
	b.call("Page.navigate", map[string]any{"url": url})
	b.until(`document.readyState === "complete" && document.getElementById("live").textContent === "live"`)
	return b
}

func (b *browser) listen(r io.Reader) {
	in := bufio.NewReader(r)
	for {
		raw, err := in.ReadBytes(0)
		if err != nil {
			return
		}
		var m struct {
			ID     int
			Method string
			Params json.RawMessage
			Result json.RawMessage
			Error  json.RawMessage
		}
		_ = json.Unmarshal(raw[:len(raw)-1], &m)
		b.mu.Lock()
		switch m.Method {
		case "Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded":
			b.console = append(b.console, string(m.Params))
		}
		if c := b.waiting[m.ID]; c != nil && m.ID > 0 {
			if m.Error != nil {
				m.Result = m.Error
			}
			c <- m.Result
			delete(b.waiting, m.ID)
		}
		b.mu.Unlock()
	}
}

// call does one command of the DevTools protocol.
func (b *browser) call(method string, params any) json.RawMessage {
	b.mu.Lock()
	b.n++
	m := map[string]any{"id": b.n, "method": method}
	if params != nil {
		m["params"] = params
	}
	if b.session != "" && method != "Browser.close" {
		m["sessionId"] = b.session
	}
	c := make(chan json.RawMessage, 1)
	b.waiting[b.n] = c
	text, _ := json.Marshal(m)
	_, err := b.in.Write(append(text, 0))
	b.mu.Unlock()
	if err != nil {
		return nil
	}
	select {
	case r := <-c:
		return r
	case <-time.After(30 * time.Second):
		b.t.Errorf("chromium does not answer %s", method)
		return nil
	}
}

func (b *browser) into(v any, method string, params any) {
	require.NoError(b.t, json.Unmarshal(b.call(method, params), v))
}

// eval is the value of an expression in the page.
func (b *browser) eval(expression string) any {
	var r struct {
		Result           struct{ Value any }
		ExceptionDetails json.RawMessage
	}
	b.into(&r, "Runtime.evaluate", map[string]any{"expression": expression, "awaitPromise": true, "returnByValue": true})
	if r.ExceptionDetails != nil {
		return fmt.Sprintf("threw %s", r.ExceptionDetails)
	}
	return r.Result.Value
}

// until waits for the page to come to a state.
func (b *browser) until(expression string) {
	b.t.Helper()
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if b.eval(expression) == true {
			return
		}
	}
	b.t.Fatalf("the page never came to %s; it has %v", expression, b.eval(`document.body.innerText`))
}

// press types one key.
func (b *browser) press(key string) {
	p := map[string]any{"type": "keyDown", "key": key}
	switch {
	case len(key) == 1:
		p["text"] = key
	case key == "Enter":
		p["text"], p["windowsVirtualKeyCode"] = "\r", 13
	case key == "Tab":
		p["windowsVirtualKeyCode"] = 9
	}
	b.call("Input.dispatchKeyEvent", p)
	p["type"] = "keyUp"
	delete(p, "text")
	b.call("Input.dispatchKeyEvent", p)
}
