package tool

import (
	"crypto/aes"
	"crypto/cipher"
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/samekey/samekey"
	"github.com/samekey/samekey/mockserver"
	"github.com/samekey/samekey/persist"
	"github.com/samekey/samekey/persist/sealed"
)

// filled lends a client whose store is sealed to f.
func filled(t *testing.T, dir string, f func(c *samekey.Client)) {
	t.Helper()
	block, err := aes.NewCipher(make([]byte, 32))
	require.NoError(t, err)
	aead, err := cipher.NewGCM(block)
	require.NoError(t, err)
	s, err := sealed.New(sealed.Options{Keys: []sealed.Key{{ID: "2026-12", AEAD: aead}}})
	require.NoError(t, err)
	store := s.Store(openJournal(t, dir))
	c, err := samekey.New(samekey.Config{Store: store, Default: samekey.Policy{MaxAttempts: 1}})
	require.NoError(t, err)
	f(c)
	require.NoError(t, c.Close())
	require.NoError(t, store.Close())
}

// TestSealed: what the tool has no key for is shown as that, and neither sent nor given another key.
func TestSealed(t *testing.T) {
	srv := newServer(t)
	dir := newDir(t)
	filled(t, dir, func(c *samekey.Client) {
		require.NoError(t, pay(t, c, srv.URL, "paid", 100))
		always(srv, mockserver.BeforeCommit, mockserver.Status(503, false))
		for _, n := range []string{"lost-1", "lost-2", "lost-3"} {
			require.ErrorIs(t, pay(t, c, srv.URL, n, 100), samekey.ErrUnknown)
		}
	})
	fill(t, dir, samekey.Config{Default: samekey.Policy{MaxAttempts: 1}}, func(c *samekey.Client) {
		require.ErrorIs(t, pay(t, c, srv.URL, "plain", 100), samekey.ErrUnknown)
	})
	srv.ClearFaults()
	sent := len(srv.Requests())

	r := run(t, "list", dir)
	require.Zero(t, r.code, r.err)
	require.Regexp(t, `(?m)^\S+ +pending +1 +503 +- +lost-1 +POST sealed under key 2026-12$`, r.out)
	require.Regexp(t, `(?m) plain +POST .*/v1/payments$`, r.out)
	require.NotContains(t, r.out, ":sealed1:")
	r = run(t, "list", dir, "-json")
	var first operation
	require.NoError(t, json.NewDecoder(strings.NewReader(r.out)).Decode(&first))
	require.Equal(t, "2026-12", first.SealedKey)
	require.Empty(t, first.URL+first.PollURL+first.Answer.Reason)
	require.NotContains(t, r.out, ":sealed1:")

	r = run(t, "show", dir, "lost-1", "-body")
	require.Zero(t, r.code, r.err)
	require.Regexp(t, `(?m)^request +POST sealed under key 2026-12\n`, r.out)
	require.Regexp(t, `(?m)^payload +\d+ bytes, sealed\n$`, r.out)
	require.NotRegexp(t, `:sealed1:|awaited at`, r.out)
	r = run(t, "show", dir, "paid", "-body")
	require.Regexp(t, `(?m)^answer +201 Created\nanswered +sealed under key 2026-12\nanswer payload +\d+ bytes, sealed\n`, r.out)
	require.NotContains(t, r.out, "sealed1")

	r = run(t, "stats", dir)
	require.Zero(t, r.code, r.err)
	require.Regexp(t, `(?m)^3 .* POST sealed under key 2026-12$`, r.out)
	require.Contains(t, run(t, "stats", dir, "-json").out, `"sealedKey": "2026-12"`)

	const only = "sealed under key 2026-12: only the program can send or rekey it; abandon and forget work\n"
	for _, args := range [][]string{{"resume", dir, "lost-1"}, {"resume", dir, "lost-1", "-owed"}, {"resume", dir, "paid"}, {"rekey", dir, "lost-1"},
		{"rekey", dir, "lost-1", "-yes"}, {"rekey", dir, "lost-1", "-yes", "-policy", policyFile(t, `{}`)}} {
		r = run(t, args...)
		require.Equal(t, 1, r.code, args)
		require.Equal(t, "samekey: "+args[2]+" is "+only, r.err, args)
		require.Empty(t, r.out)
	}
	const passed = " left out: URLs are sealed too, and -url and -endpoint cannot select by them\n"
	for _, args := range [][]string{{"list", dir, "-url", "/v1/"}, {"list", dir, "-endpoint", "POST /v1/payments"}, {"resume", dir, "-all", "-url", "/nothing/"}} {
		r = run(t, args...)
		require.Zero(t, r.code, r.err)
		n := "samekey: 3 sealed operations are"
		if args[0] == "list" {
			n = "samekey: 4 sealed operations are" // the one that is paid too
		}
		require.Equal(t, n+passed, r.err, "once")
		require.NotContains(t, r.out, "lost")
		require.Equal(t, args[0] == "resume", r.out == "nothing to resume\n")
	}
	require.Empty(t, run(t, "list", dir, "-older", "1h").err)
	require.Len(t, srv.Requests(), sent)

	r = run(t, "resume", dir, "-all")
	require.Equal(t, 1, r.code)
	require.Regexp(t, `^succeeded +201 +plain `, r.out)
	require.Contains(t, r.err, "samekey: 3 operations are "+only)
	require.Len(t, srv.Requests(), sent+1)

	require.Zero(t, run(t, "abandon", dir, "lost-1", "-reason", "by hand").code)
	r = run(t, "forget", dir, "lost-2")
	require.Equal(t, 1, r.code)
	require.Contains(t, r.err, "throws its sealed key away")
	require.Zero(t, run(t, "forget", dir, "lost-2", "-yes").code)
	filled(t, dir, func(c *samekey.Client) {
		op, err := c.Operation(t.Context(), persist.Ref{ID: "lost-1"})
		require.NoError(t, err)
		require.Equal(t, persist.Abandoned, op.State)
		_, err = c.Operation(t.Context(), persist.Ref{ID: "lost-2"})
		require.ErrorIs(t, err, persist.ErrNotFound)
		resp, err := c.Resume(t.Context(), persist.Ref{ID: "lost-3"})
		require.NoError(t, err, "the program can")
		require.NoError(t, resp.Body.Close())
	})
}
