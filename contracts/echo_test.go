package contracts_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/samekey/samekey"
	"github.com/samekey/samekey/contracts"
	"github.com/samekey/samekey/mockserver"
)

// A gateway that strips or renames the key's header is noticed at the first answer where the contract names an echo: the
// observer is warned, and nothing more is sent.
func TestGatewayThatStripsTheKey(t *testing.T) {
	profiles := map[string]mockserver.Profile{"default": mockserver.Default}
	for _, p := range mockserver.Profiles() {
		profiles[p.Name] = p
	}
	echoing := samekey.DefaultContract
	echoing.Echo = "Idempotency-Key"
	list := append(contracts.All(), echoing)
	tested := 0
	for _, con := range list {
		if con.Echo == "" {
			continue
		}
		tested++
		profile, ok := profiles[con.Name]
		require.True(t, ok, con.Name)
		for name, tc := range map[string]struct {
			fault    mockserver.Action
			answer   int // 0: the API's own
			warnings int
			requests int
			blind    bool // the contract names no echo
		}{
			"through":                   {warnings: 0, requests: 1},
			"stripped":                  {fault: mockserver.StripHeader("Idempotency-Key"), warnings: 1, requests: 1},
			"renamed":                   {fault: mockserver.RenameHeader("Idempotency-Key", "X-Gateway-Key"), warnings: 1, requests: 1},
			"stripped on the way back":  {fault: mockserver.StripAnswerHeader("Idempotency-Key"), warnings: 1, requests: 1},
			"stripped, and asked again": {fault: mockserver.StripHeader("Idempotency-Key"), answer: 404, warnings: 1, requests: 1},
			"the same without the echo": {fault: mockserver.StripHeader("Idempotency-Key"), answer: 404, requests: 3, blind: true},
		} {
			t.Run(con.Name+"/"+name, func(t *testing.T) {
				srv := mockserver.NewServer(mockserver.Config{Profile: profile})
				defer srv.Close()
				if name != "through" {
					do := tc.fault
					if tc.answer != 0 {
						do = do.Then(mockserver.Status(tc.answer, false))
					}
					srv.Fault(mockserver.Fault{Do: do})
				}
				con := con
				if tc.blind {
					con.Echo = ""
				}
				c, err := newClient(con, samekey.UUIDv4, false)
				require.NoError(t, err)
				defer func() { require.NoError(t, c.close()) }()
				stubborn := samekey.Policy{Decide: func(samekey.Attempt) samekey.Decision { return samekey.Retry }}
				req, err := http.NewRequestWithContext(samekey.WithPolicy(t.Context(), stubborn), http.MethodPost, srv.URL+"/v1/payments",
					strings.NewReader(`{"amount":100,"currency":"EUR"}`))
				require.NoError(t, err)
				resp, err := c.AsResponses().Do(samekey.Named(req, "op"))
				require.NoError(t, err)
				_, err = io.Copy(io.Discard, resp.Body)
				require.NoError(t, err)
				require.NoError(t, resp.Body.Close())
				if tc.answer == 0 {
					require.Equal(t, 201, resp.StatusCode)
				}
				require.Len(t, srv.Requests(), tc.requests)
				require.Equal(t, tc.warnings, c.warnings)
			})
		}
	}
	require.Equal(t, 3, tested)
}
