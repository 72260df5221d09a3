package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/samekey/samekey"
)

func TestRun(t *testing.T) {
	bad := filepath.Join(t.TempDir(), "bad.yaml")
	require.NoError(t, os.WriteFile(bad, []byte("swagger: '2.0'\n"), 0o600))
	const payment = "../../testdata/payment.yaml"
	for _, c := range []struct {
		args     []string
		code     int
		out, err string
	}{
		{[]string{"-h"}, 0, "Exit codes", ""},
		{[]string{payment}, 0, `"POST /v1/payments"`, "- POST /v1/payments: how long the server knows a key is not said"},
		{[]string{"-server", "https://api.bank.test", payment, "-life", "24h"}, 0, `"Life": "24h0m0s"`, "how a replay differs"},
		{[]string{payment, "-life", "forever", "-keyless", "-name", "X"}, 0, `"Life": "forever"`, ""},
		{[]string{payment, "-life", "-1h"}, 2, "", "is not above zero"},
		{[]string{}, 2, "", "one FILE is wanted"},
		{[]string{payment, payment}, 2, "", "one FILE is wanted"},
		{[]string{"-x"}, 2, "", "not defined: -x"},
		{[]string{"none.yaml"}, 2, "", "none.yaml"},
		{[]string{bad}, 1, "", "bad.yaml: is no OpenAPI 3 description"},
	} {
		var out, errOut bytes.Buffer
		require.Equal(t, c.code, run(c.args, &out, &errOut), "%q %s", c.args, &errOut)
		require.Contains(t, out.String(), c.out)
		require.Contains(t, errOut.String(), c.err)
		if c.code == 0 && c.args[0] != "-h" {
			_, endpoints, err := samekey.ParsePolicies("p", out.Bytes())
			require.NoError(t, err)
			require.Len(t, endpoints, 1)
		}
	}
}
