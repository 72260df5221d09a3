package tool

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/samekey/samekey"
	"github.com/samekey/samekey/mockserver"
	"github.com/samekey/samekey/persist"
)

func TestResumeOne(t *testing.T) {
	srv := newServer(t)
	dir := lost(t, srv, "order-1")
	rec := record(t, dir, "", "order-1")
	r := run(t, "resume", dir, "order-1", "-body")
	require.Zero(t, r.code, r.err)
	require.Regexp(t, `^succeeded   201  order-1  3 attempts\n\nanswer payload:\n  \{.*paymentId`, r.out)
	require.Len(t, srv.Requests(), 3)
	require.Equal(t, rec.Key, srv.Requests()[2].Key)
	r = run(t, "resume", dir, "order-1", "-json")
	require.Zero(t, r.code, r.err)
	require.Equal(t, `{"scope":"","id":"order-1","state":"succeeded","status":201,"source":"local","attempts":3}`+"\n", r.out)
	require.Len(t, srv.Requests(), 3, "answered from the journal")
	require.Equal(t, 1, srv.Effects())
}

// TestResumeAnonymous: nobody will ask for it again, so it leaves the journal with its answer.
func TestResumeAnonymous(t *testing.T) {
	srv := newServer(t)
	dir := lost(t, srv, "")
	id := listed(t, dir)[0].ID
	r := run(t, "resume", dir, id)
	require.Zero(t, r.code, r.err)
	require.NotContains(t, r.out, id)
	require.Empty(t, listed(t, dir))
	require.Equal(t, 1, srv.Effects())
}

func TestResumeUnknownAndConflict(t *testing.T) {
	srv := newServer(t)
	dir := lost(t, srv, "order-1")
	srv.Fault(mockserver.Fault{Do: mockserver.Status(400, false), Times: 1})
	r := run(t, "resume", dir, "order-1", "-json")
	require.Equal(t, 1, r.code)
	require.Contains(t, r.out, `"state":"pending","status":400`, "it is not marked as a replay, and an earlier attempt may have happened")
	require.Len(t, listed(t, dir, "-state", "pending"), 1)

	srv.Fault(mockserver.Fault{Do: mockserver.Status(409, false), Times: 1})
	r = run(t, "resume", dir, "order-1")
	require.Equal(t, 1, r.code)
	require.Regexp(t, `^conflicted  409  order-1  4 attempts\n`, r.out)
	require.Contains(t, r.err, "samekey: conflict (unknown reason, status 409)")
	require.Contains(t, r.err, "an earlier attempt may have succeeded")
	require.NotContains(t, r.err, record(t, dir, "", "order-1").Key)
	r = run(t, "resume", dir, "-all")
	require.Zero(t, r.code, r.err)
	require.Equal(t, "nothing to resume\n", r.out, "conflicts are resumed one by one")
	require.Equal(t, ran{}, run(t, "resume", dir, "-all", "-json"), "no object, no line")
	require.Zero(t, run(t, "resume", dir, "order-1").code)
	require.Equal(t, 1, srv.Effects())
}

func TestResumeCredentials(t *testing.T) {
	const secret = "Bearer s3cr3t-t0ken"
	srv := newServer(t)
	dir := newDir(t)
	always(srv, mockserver.BeforeCommit, mockserver.Status(503, false))
	fill(t, dir, samekey.Config{Default: samekey.Policy{MaxAttempts: 1, SecretQuery: []string{"sig"}}}, func(c *samekey.Client) {
		req, err := payment(t.Context(), srv.URL, "order-1", 100)
		require.NoError(t, err)
		req.Header.Set("Authorization", secret)
		req.URL.RawQuery = "account=7&sig=abc"
		require.ErrorIs(t, do(t, c, req), samekey.ErrUnknown)
	})
	srv.ClearFaults()
	env := []string{"BANK_AUTH=" + secret, "BANK_SIG=a b&c", "EMPTY=", "BROKEN=a\nb"}
	sent := len(srv.Requests())
	for _, c := range []struct {
		code int
		args string
		want string
	}{
		{2, "-header Authorization=" + strings.ReplaceAll(secret, " ", "_"), "a value on the command line can be read by everybody"},
		{2, "-header Authorization", "say NAME=env:VAR"},
		{2, "-header =env:BANK_AUTH", "say NAME=env:VAR"},
		{2, "-header Authorization=env:NO_SUCH_VARIABLE", "NO_SUCH_VARIABLE is not set"},
		{2, "-header Authorization=env:EMPTY", "EMPTY is not set"},
		{2, "-header Authorization=env:BROKEN", "BROKEN holds a line break"},
		{2, "-header host=env:BANK_AUTH", "header Host cannot be set"},
		{1, "", "its header Authorization is not stored, -header Authorization=env:VAR"},
		{1, "-header authorization=env:BANK_AUTH", "its query parameter sig is not stored, -query sig=env:VAR"},
	} {
		r := runEnv(t, env, append([]string{"resume", dir, "order-1"}, strings.Fields(c.args)...)...)
		assert.Equal(t, c.code, r.code, c.args)
		assert.Contains(t, r.err, c.want)
		assert.NotContains(t, r.err, "s3cr3t")
		assert.Empty(t, r.out)
	}
	require.Len(t, srv.Requests(), sent)
	r := runEnv(t, env, "resume", dir, "order-1", "-header", "authorization=env:BANK_AUTH", "-query", "sig=env:BANK_SIG")
	require.Zero(t, r.code, r.err)
	last := srv.Requests()[sent]
	require.Equal(t, secret, last.Header.Get("Authorization"))
	require.Equal(t, "account=7&sig=a+b%26c", last.Query)
	require.NotContains(t, r.out+r.err, "s3cr3t")
}

// TestCredentialsStayHome: what is for one origin, or one tenant, goes to no other.
func TestCredentialsStayHome(t *testing.T) {
	bank, shop := newServer(t), newServer(t)
	dir := newDir(t)
	always(bank, mockserver.BeforeCommit, mockserver.Status(503, false))
	always(shop, mockserver.BeforeCommit, mockserver.Status(503, false))
	fill(t, dir, samekey.Config{Default: samekey.Policy{MaxAttempts: 1}}, func(c *samekey.Client) {
		require.ErrorIs(t, pay(t, c, bank.URL, "order-1", 100), samekey.ErrUnknown)
		require.ErrorIs(t, pay(t, c, shop.URL, "order-1/shop", 100), samekey.ErrUnknown)
		req, err := payment(samekey.WithScope(t.Context(), "tenant-7"), bank.URL, "order-1", 100)
		require.NoError(t, err)
		require.ErrorIs(t, do(t, c, req), samekey.ErrUnknown)
	})
	bank.ClearFaults()
	shop.ClearFaults()
	env := []string{"TOKEN=t"}
	r := runEnv(t, env, "resume", dir, "-all", "-header", "Authorization=env:TOKEN")
	require.Equal(t, 1, r.code)
	require.Contains(t, r.err, "nothing was sent: the credentials of one place would go to others too")
	require.Contains(t, r.err, bank.URL+" (scope tenant-7)")
	r = runEnv(t, env, "resume", dir, "-all", "-header", "Authorization=env:TOKEN", "-url", bank.URL)
	require.Equal(t, 1, r.code, "two tenants")
	require.Len(t, bank.Requests(), 2)
	r = runEnv(t, env, "resume", dir, "-all", "-header", "Authorization=env:TOKEN", "-url", bank.URL, "-scope", "")
	require.Zero(t, r.code, r.err)
	require.Len(t, bank.Requests(), 3)
	require.Len(t, shop.Requests(), 1)
	require.Zero(t, run(t, "resume", dir, "-all").code, "without credentials there is nothing to leak")
	require.Equal(t, 2, bank.Effects())
	require.Equal(t, 1, shop.Effects())
}

// TestResumeGoesByTheRecord: without the program's policies, what was on the wire decides, and doubt sends nothing.
func TestResumeGoesByTheRecord(t *testing.T) {
	srv := newServer(t)
	dir := newDir(t)
	target := srv.URL + "/v1/payments"
	sent := persist.Progress{Attempts: 1}
	begin(t, dir, persist.Record{Ref: persist.Ref{ID: "keyless"}, Key: aKey, Target: target, Header: headerOf("Accept", "*/*"), Progress: sent})
	begin(t, dir, persist.Record{Ref: persist.Ref{ID: "keyless-unsent"}, Key: aKey, Target: target, Header: headerOf("Accept", "*/*")})
	begin(t, dir, persist.Record{Ref: persist.Ref{ID: "twice"}, Key: aKey, Target: target, Header: http.Header{"A": {aKey}, "B": {aKey}}, Progress: sent})
	begin(t, dir, persist.Record{Ref: persist.Ref{ID: "quoted"}, Key: aKey, Target: target, Header: headerOf("X-Command-Id", `"`+aKey+`"`), Progress: sent})
	begin(t, dir, persist.Record{Ref: persist.Ref{ID: "short-life"}, Key: aKey, Target: target, KeyLife: 8 * time.Second, Header: headerOf("X-Command-Id", aKey), Progress: sent})
	begin(t, dir, persist.Record{Ref: persist.Ref{ID: "expired"}, Key: aKey, Target: target, Header: headerOf("X-Command-Id", aKey), Created: time.Now().Add(-3 * time.Hour),
		Progress: persist.Progress{Attempts: 1, FirstSent: time.Now().Add(-2 * time.Hour)}})
	parked := sent
	parked.Parked = true
	begin(t, dir, persist.Record{Ref: persist.Ref{ID: "parked"}, Key: aKey, Target: target, Header: headerOf("X-Command-Id", aKey), Progress: parked})

	r := run(t, "resume", dir, "-all")
	require.Equal(t, 1, r.code)
	require.Contains(t, r.err, "keyless bears no key in a header of its own")
	require.Contains(t, r.err, "twice bears its key in more than one header")
	require.Contains(t, r.err, "key expired, outcome unknown")
	require.Contains(t, r.err, "samekey: 1 operation is parked and left alone: -parked takes those, and only those\n")
	require.NotContains(t, run(t, "resume", dir, "-all", "-url", "/elsewhere").err, "parked", "those that the filters select")
	require.Regexp(t, `(?m)^pending +- +expired +1 attempt$`, r.out)
	for _, id := range []string{"keyless-unsent", "quoted", "short-life"} {
		require.Regexp(t, `(?m)^succeeded +201 +`+id+` `, r.out)
	}
	require.ElementsMatch(t, []string{"keyless", "twice", "expired", "parked"}, ids(listed(t, dir, "-state", "pending")))
	require.Len(t, srv.Requests(), 3)
	for _, q := range srv.Requests() {
		switch q.Header.Get("X-Command-Id") {
		case "", aKey, `"` + aKey + `"`:
		default:
			t.Errorf("%v", q.Header)
		}
		require.Empty(t, q.Header.Get("Idempotency-Key"))
	}
	r = run(t, "resume", dir, "-all", "-parked")
	require.Zero(t, r.code)
	require.NotContains(t, r.err, "left alone")
	require.Len(t, srv.Requests(), 4)
}
