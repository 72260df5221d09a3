package mockserver_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/samekey/samekey/mockserver"
)

func crossSite() *http.Request {
	r, _ := http.NewRequest("POST", "http://x/_mock/reset", strings.NewReader(""))
	r.Header.Set("Origin", "https://elsewhere.test")
	r.Header.Set("Sec-Fetch-Site", "cross-site")
	return r
}

// TestAdminPaths does by HTTP what a test in another language does.
func TestAdminPaths(t *testing.T) {
	inMemory(t, mockserver.Config{AsyncAfter: -1}, func(t *testing.T, e *mockserver.Engine, c *mockserver.Memory) {
		ask := func(method, path, body string) answer { return send(t, c, method, "http://x/_mock/"+path, "", body) }
		a := ask("POST", "faults", `{"match":"POST /v1/payments","when":"after","do":"drop","times":1}`)
		assert.Equal(t, 200, a.status)
		assert.JSONEq(t, `[{"fault":{"match":"POST /v1/payments","when":"after","do":[{"do":"drop"}],"times":1},
			"text":"after commit: drop","matched":0,"fired":0}]`, a.body)
		bad := ask("POST", "faults", `{"match":"POST /{","do":"drop"}`)
		assert.Equal(t, 400, bad.status)
		assert.Contains(t, bad.body, "InvalidFault")
		assert.Equal(t, 400, ask("POST", "faults", `nonsense`).status)

		require.Error(t, send(t, c, "POST", pay, "k", `{"amount":1,"orderRef":"o"}`, "Authorization", "Bearer secret").err)
		assert.Equal(t, 201, send(t, c, "POST", pay, "k", `{"amount":1,"orderRef":"o"}`, "Authorization", "Bearer secret").status)
		assert.JSONEq(t, `{"requests":2,"commands":2,"effects":1,"duplicates":0,"keys":1,"operations":1,"lost":1,"replays":1,"live":1}`,
			ask("GET", "ledger", "").body)
		var rows []map[string]any
		require.NoError(t, json.Unmarshal([]byte(ask("GET", "requests?key=k", "").body), &rows))
		assert.Len(t, rows, 2)
		assert.Equal(t, "after commit: drop", rows[0]["fault"])
		assert.Equal(t, true, rows[1]["replayed"])
		all := ask("GET", "requests", "").body + ask("GET", "state", "").body
		assert.NotContains(t, all, "secret")
		assert.Contains(t, ask("GET", "requests?key=other", "").body, "[]")

		before := e.Now()
		assert.Equal(t, 200, ask("POST", "clock", `{"advance":"25h"}`).status)
		assert.Equal(t, 25*time.Hour, e.Now().Sub(before))
		assert.Contains(t, ask("POST", "clock", `{"now":"2030-01-02T03:04:05Z"}`).body, "2030-01-02T03:04:05Z")
		assert.Contains(t, ask("GET", "clock", "").body, "2030-01-02T03:04:05Z")
		assert.Equal(t, 400, ask("POST", "clock", `{"advance":"a day"}`).status)
		assert.Equal(t, 400, ask("POST", "clock", `{"forward":"1h"}`).status, "an unknown member is not passed over")

		send(t, c, "POST", pay, "", `{"amount":1,"async":true}`)
		assert.Equal(t, 400, ask("POST", "operations/op_000001", `{"status":"maybe"}`).status)
		assert.Equal(t, 204, ask("POST", "operations/op_000001", `{"status":"failed"}`).status)
		assert.Equal(t, 404, ask("POST", "operations/op_000001", `{"status":"failed"}`).status)

		assert.Equal(t, 204, ask("DELETE", "faults", "").status)
		assert.Equal(t, "[]\n", ask("GET", "faults", "").body)
		ask("POST", "faults", `{"do":"crash-reserved","times":1}`)
		require.Error(t, send(t, c, "POST", pay, "stuck", `{"amount":1}`).err)
		assert.JSONEq(t, `{"cured":1}`, ask("POST", "cure", "").body)
		assert.Equal(t, 204, ask("POST", "forget", "").status)
		assert.Equal(t, 0, e.Totals().Live)
		assert.Equal(t, 204, ask("POST", "reset", "").status)
		assert.Equal(t, mockserver.Totals{}, e.Totals())
	})
}
