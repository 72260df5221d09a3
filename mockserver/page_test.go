package mockserver_test

import (
	"bytes"
	"encoding/base64"
	"image/png"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/samekey/samekey/mockserver"
)

// TestPage looks at the page for people in a real browser: a key of three attempts, the ledger's figures, by keyboard,
// in light and in dark. SAMEKEY_SCREENSHOTS names a directory to leave the pictures in.
func TestPage(t *testing.T) {
	findBrowser(t)
	srv := mockserver.NewServer(mockserver.Config{})
	t.Cleanup(srv.Close)
	b := openBrowser(t, srv.URL+"/")
	assert.Equal(t, true, b.eval(`!document.getElementById("empty").hidden && document.getElementById("example").textContent.includes(location.origin)`))

	c := srv.Client().Transport
	srv.Fault(mockserver.Fault{Match: "POST /v1/payments", When: mockserver.AfterCommit, Do: mockserver.Drop, Times: 1},
		mockserver.Fault{Match: "POST /v1/payments", Do: mockserver.Status(503, false), Times: 1})
	for range 3 {
		send(t, c, "POST", srv.URL+"/v1/payments", uuid1, `{"amount":100,"orderRef":"order-1"}`)
	}
	for _, key := range []string{"k1", "k2"} {
		send(t, c, "POST", srv.URL+"/v1/payments", key, `{"amount":100,"orderRef":"<b>order-2</b>"}`)
	}
	b.until(`document.querySelectorAll(".command").length === 2`)

	figures := `["commands", "effects", "duplicates", "keys", "operations", "replays", "lost", "remembered"]
		.map((id) => document.getElementById(id).textContent).join(" ")`
	assert.Equal(t, "5 3 1 3 2 1 1 3", b.eval(figures))
	assert.Equal(t, true, b.eval(`document.getElementById("duplicates-box").classList.contains("bad")`))
	assert.Equal(t, "<b>order-2</b>", b.eval(`document.querySelector(".command b").textContent`), "the newest first, and not as markup")
	assert.Equal(t, "attempt 1: no answer, effect; attempt 2: 503; attempt 3: 201",
		b.eval(`document.querySelectorAll(".track")[1].getAttribute("aria-label")`))

	assert.Equal(t, true, b.eval(`[...document.querySelectorAll(".track")].every((t) => {
		const labels = [...t.querySelectorAll("i")].map((i) => i.getBoundingClientRect());
		return labels.every((l, i) => i === 0 || labels[i - 1].right <= l.left);
	})`), "no label covers another")

	b.press("j")
	b.press("j")
	b.press("Enter")
	b.until(`document.querySelectorAll(".command")[1].open`)
	assert.Equal(t, "no answer|503|201", b.eval(`[...document.querySelectorAll(".command[open] tbody tr")].map((r) => r.children[3].textContent).join("|")`))
	bright := luminance(t, b, "light")
	dark := luminance(t, b, "dark")
	assert.Greater(t, bright, 0.8)
	assert.Less(t, dark, 0.3)

	b.press("/")
	for _, key := range "order-1" {
		b.press(string(key))
	}
	b.until(`document.querySelectorAll(".command").length === 1`)
	assert.Equal(t, "order-1", b.eval(`document.querySelector(".command b").textContent`))

	b.eval(`document.querySelector("[data-advance='24h']").click()`)
	b.until(`document.getElementById("remembered").textContent === "0"`)
	b.eval(`document.querySelector("#new-fault [name=do]").value = "explode"; document.querySelector("#new-fault button").click()`)
	b.until(`document.getElementById("fault-error").textContent.includes("no action is named")`)
	b.eval(`document.querySelector("#new-fault [name=do]").value = '{"do":"status","code":500}'; document.querySelector("#new-fault button").click()`)
	b.until(`document.getElementById("faults-count").textContent === "(3)"`)
	b.eval(`document.getElementById("reset").click()`)
	b.until(`!document.getElementById("empty").hidden && document.getElementById("faults-count").textContent === "(none)"`)

	b.mu.Lock()
	defer b.mu.Unlock()
	for _, said := range b.console {
		assert.Contains(t, said, "400", "the console has more than the refused fault")
	}
	assert.LessOrEqual(t, len(b.console), 1)
}

// luminance takes a picture in a colour scheme and gives its mean brightness from 0 to 1.
func luminance(t *testing.T, b *browser, scheme string) float64 {
	b.call("Emulation.setEmulatedMedia", map[string]any{"features": []any{map[string]any{"name": "prefers-color-scheme", "value": scheme}}})
	var shot struct{ Data string }
	b.into(&shot, "Page.captureScreenshot", map[string]any{"format": "png"})
	raw, err := base64.StdEncoding.DecodeString(shot.Data)
	require.NoError(t, err)
	if dir := os.Getenv("SAMEKEY_SCREENSHOTS"); dir != "" {
		require.NoError(t, os.WriteFile(filepath.Join(dir, "mockserver-"+scheme+".png"), raw, 0o644))
	}
	img, err := png.Decode(bytes.NewReader(raw))
	require.NoError(t, err)
	sum, n := 0.0, 0
	for y := img.Bounds().Min.Y; y < img.Bounds().Max.Y; y += 4 {
		for x := img.Bounds().Min.X; x < img.Bounds().Max.X; x += 4 {
			r, g, b, _ := img.At(x, y).RGBA()
			sum += float64(r+g+b) / 3 / 0xffff
			n++
		}
	}
	require.Greater(t, n, 10_000)
	return sum / float64(n)
}

// TestPageNeedsNoNetwork: nothing in it points elsewhere.
func TestPageNeedsNoNetwork(t *testing.T) {
	e := mockserver.New(mockserver.Config{})
	defer e.Close()
	c := e.Transport()
	for _, path := range []string{"/", "/_mock/", "/_mock/page/page.css", "/_mock/page/page.js"} {
		a := send(t, c, "GET", "http://x"+path, "", "")
		require.Equal(t, 200, a.status, path)
		assert.NotContains(t, a.body, "//fonts", path)
		assert.NotContains(t, a.body, "https://", path)
		assert.Contains(t, a.header.Get("Content-Security-Policy"), "default-src 'self'")
	}
	assert.Equal(t, 404, send(t, c, "GET", "http://x/_mock/nothing", "", "").status)
	assert.Empty(t, e.Requests(), "the engine's own paths are not in the ledger")
	resp, err := c.RoundTrip(crossSite())
	require.NoError(t, err)
	_, _ = io.Copy(io.Discard, resp.Body)
	_ = resp.Body.Close()
	assert.Equal(t, 403, resp.StatusCode)
}
