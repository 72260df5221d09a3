package endpoint

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func mustNew(t testing.TB, patterns ...string) *Set {
	t.Helper()
	s, ps := New(patterns)
	require.Empty(t, ps)
	require.NotNil(t, s)
	return s
}

func mustURL(t testing.TB, s string) *url.URL {
	t.Helper()
	u, err := url.Parse(s)
	require.NoError(t, err)
	return u
}

func TestMatch(t *testing.T) {
	bank := []string{
		"POST api.bank.test/v1/payments",
		"POST api.bank.test/v1/orders/{id}/cancel",
		"GET api.bank.test/v1/orders/{id}",
		"POST [::1]/v1/payments",
		"POST 127.0.0.1/v1/payments",
		"PUT /v1/files/{path...}",
		"DELETE /v1/things/{$}",
		"POST /v1/payments",
	}
	for _, c := range []struct{ method, url, want string }{
		{"POST", "https://api.bank.test/v1/payments", "POST api.bank.test/v1/payments"},
		{"post", "https://api.bank.test/v1/payments", "POST api.bank.test/v1/payments"},
		{"POST", "https://API.Bank.TEST/v1/payments", "POST api.bank.test/v1/payments"},
		{"POST", "https://api.bank.test./v1/payments", "POST api.bank.test/v1/payments"},
		{"POST", "https://api.bank.test:8443/v1/payments", "POST api.bank.test/v1/payments"},
		{"POST", "https://Api.bank.test.:8443/v1/payments?x=1#y", "POST api.bank.test/v1/payments"},
		{"POST", "https://u:p@api.bank.test/v1/payments", "POST api.bank.test/v1/payments"},
		{"POST", "https://api.bank.test/v1/payments/", ""},
		{"POST", "https://api.bank.test/v1/payments/1", ""},
		{"POST", "https://other.test/v1/payments", "POST /v1/payments"},
		{"PATCH", "https://other.test/v1/payments", ""},
		{"POST", "http://[::1]/v1/payments", "POST [::1]/v1/payments"},
		{"POST", "http://[::1]:8080/v1/payments", "POST [::1]/v1/payments"},
		{"POST", "http://[0:0:0:0:0:0:0:1]:8080/v1/payments", "POST [::1]/v1/payments"},
		{"POST", "http://[::2]/v1/payments", "POST /v1/payments"},
		{"POST", "http://127.0.0.1:80/v1/payments", "POST 127.0.0.1/v1/payments"},
		{"POST", "https://api.bank.test/v1/orders/17/cancel", "POST api.bank.test/v1/orders/{id}/cancel"},
		{"POST", "https://api.bank.test/v1/orders//cancel", ""},
		{"POST", "https://api.bank.test/v1/orders/a%2Fb/cancel", "POST api.bank.test/v1/orders/{id}/cancel"},
		{"POST", "https://api.bank.test/v1/orders/a/b/cancel", ""},
		{"POST", "https://api.bank.test/v1%2Fpayments", ""},
		{"POST", "https://api.bank.test/v1/pa%79ments", "POST api.bank.test/v1/payments"},
		{"GET", "https://api.bank.test/v1/orders/17", "GET api.bank.test/v1/orders/{id}"},
		{"", "https://api.bank.test/v1/orders/17", "GET api.bank.test/v1/orders/{id}"},
		{"HEAD", "https://api.bank.test/v1/orders/17", "GET api.bank.test/v1/orders/{id}"},
		{"OPTIONS", "https://api.bank.test/v1/orders/17", ""},
		{"PUT", "https://any.test/v1/files/a/b/c", "PUT /v1/files/{path...}"},
		{"PUT", "https://any.test/v1/files/", "PUT /v1/files/{path...}"},
		{"PUT", "https://any.test/v1/files", "PUT /v1/files/{path...}"},
		{"DELETE", "https://any.test/v1/things/", "DELETE /v1/things/{$}"},
		{"DELETE", "https://any.test/v1/things", "DELETE /v1/things/{$}"},
		{"DELETE", "https://any.test/v1/things/1", ""},
		// Cleaned, as documented.
		{"POST", "https://api.bank.test//v1//payments", "POST api.bank.test/v1/payments"},
		{"POST", "https://api.bank.test/v1/x/../payments", "POST api.bank.test/v1/payments"},
		{"POST", "https://api.bank.test/v1/./payments", "POST api.bank.test/v1/payments"},
		{"POST", "https://api.bank.test/v1/x/%2e%2e/payments", ""},
		// No path at all.
		{"POST", "mailto:x@bank.test", ""},
		{"POST", "https:v1/payments", ""},
		{"OPTIONS", "*", ""},
		{"CONNECT", "https://api.bank.test/v1/payments", ""},
		{"POST", "/v1/payments", "POST /v1/payments"}, // no host: patterns without one match
		{"POST", "v1/payments", "POST /v1/payments"},
		{"POST", "https://api.bank.test", ""},
	} {
		for range 3 {
			rand.Shuffle(len(bank), func(i, j int) { bank[i], bank[j] = bank[j], bank[i] })
			assert.Equal(t, c.want, mustNew(t, bank...).Match(c.method, mustURL(t, c.url)), "%s %s", c.method, c.url)
		}
	}
}

func TestAnyHostPatternWinsOverAnyWithout(t *testing.T) {
	s := mustNew(t, "api.test/", "/v1/orders/{id}/cancel")
	assert.Equal(t, "api.test/", s.Match("POST", mustURL(t, "https://api.test/v1/orders/1/cancel")))
	assert.Equal(t, "/v1/orders/{id}/cancel", s.Match("POST", mustURL(t, "https://b.test/v1/orders/1/cancel")))
	// It falls through to those without only where no pattern of the host matches.
	s = mustNew(t, "POST api.test/", "/v1/orders/{id}/cancel")
	assert.Equal(t, "/v1/orders/{id}/cancel", s.Match("PUT", mustURL(t, "https://api.test/v1/orders/1/cancel")))
}

func TestTreeRedirect(t *testing.T) {
	for _, p := range []string{"/tree/", "POST /tree/", "api.test/tree/", "POST api.test/tree/"} {
		s := mustNew(t, p)
		assert.Equal(t, p, s.Match("POST", mustURL(t, "https://api.test/tree")), p)
		assert.Equal(t, p, s.Match("POST", mustURL(t, "https://api.test/tree/a")), p)
		assert.Empty(t, s.Match("POST", mustURL(t, "https://api.test/treehouse")), p)
		s = mustNew(t, p, "/")
		assert.Equal(t, p, s.Match("POST", mustURL(t, "https://api.test/tree")), p)
	}
	s := mustNew(t, "/tree/", "/tree", "/{x}")
	assert.Equal(t, "/tree", s.Match("POST", mustURL(t, "https://api.test/tree")))
}

func TestCatchAllOfTheCaller(t *testing.T) {
	u := mustURL(t, "https://api.test/a/b")
	for _, p := range []string{"/", "/{rest...}", "api.test/", "POST /"} {
		assert.Equal(t, p, mustNew(t, p).Match("POST", u))
	}
	assert.Empty(t, mustNew(t, "POST /").Match("PUT", u))
	assert.Empty(t, mustNew(t, "/{$}").Match("PUT", u))
	assert.Empty(t, mustNew(t).Match("GET", u))
	assert.Empty(t, mustNew(t).Match("GET", mustURL(t, "https://api.test/")))
}

func TestMatchOfNothing(t *testing.T) {
	var nilSet *Set
	u := mustURL(t, "https://api.test/a")
	assert.Empty(t, nilSet.Match("POST", u))
	assert.Empty(t, new(Set).Match("POST", u))
	s := mustNew(t, "/a", "/{$}", "/tree/", "/{x}")
	assert.Empty(t, s.Match("POST", nil))
	assert.Empty(t, s.Match("POST", &url.URL{Host: "api.test", Opaque: "//api.test/a"}))
	assert.Equal(t, "/{$}", s.Match("POST", &url.URL{Host: "api.test"}))
	assert.Equal(t, "/{$}", s.Match("POST", &url.URL{}))
	assert.Empty(t, s.Match("CONNECT", &url.URL{Host: "api.test:443"}))
	assert.Empty(t, s.Match("connect", &url.URL{Host: "api.test:443", Path: "/tree"}))
	assert.Empty(t, s.Match("OPTIONS", &url.URL{Host: "api.test", Path: "*"}))
	assert.Equal(t, "/{x}", s.Match("OPTIONS", &url.URL{Host: "api.test", Path: "/*"}))
	// A RawPath that does not belong to Path counts for nothing, as on the wire.
	assert.Equal(t, "/a", s.Match("POST", &url.URL{Host: "h", Path: "/a", RawPath: "/b"}))
	// No host that could be dialled: never taken for another.
	s = mustNew(t, "a.test/x")
	for _, h := range []string{"a.test:b:80", "a.test:b", "[a.test]x", "a.test..", "[", "]", "[]", ":", "::", "."} {
		assert.Empty(t, s.Match("POST", &url.URL{Host: h, Path: "/x"}), h)
	}
	s = mustNew(t, "POST [fe80::1%en0]/x", "bücher.test/x")
	assert.Equal(t, "POST [fe80::1%en0]/x", s.Match("POST", mustURL(t, "http://[FE80::1%25en0]:80/x")))
	assert.Equal(t, "bücher.test/x", s.Match("POST", mustURL(t, "http://BÜCHER.test/x")))
}

func TestRefused(t *testing.T) {
	for _, c := range []struct{ pattern, why string }{
		{"", "is empty"},
		{"  ", "is empty"},
		{" POST /x", `begins with white space: write "POST /x"`},
		{"post /x", `write "POST /x"`},
		{"Post api.test/x", `write "POST api.test/x"`},
		{"GET|POST /x", "several methods"},
		{"GET,POST /x", "several methods"},
		{"GET POST /x", "white space in its host"},
		{"P(ST /x", "invalid method"},
		{"CONNECT /x", "CONNECT"},
		{"POST", `write "POST /"`},
		{"POST ", `write "POST /"`},
		{"POST api.test", `write "POST api.test/" for every path`},
		{"api.test", `write "api.test/"`},
		{"https://api.test/v1", `has a scheme: leave it out, write "api.test/v1"`},
		{"POST https://api.test/v1", `write "POST api.test/v1"`},
		{"POST api.test:8080/v1", `has a port, and hosts are matched without: any port matches: write "POST api.test/v1"`},
		{"api.test:/v1", `has a port`},
		{":80/v1", `has a port`},
		{"POST API.Test.:443/v1", `write "POST api.test/v1"`},
		{"API.test/v1", `not in lower case: write "api.test/v1"`},
		{"api.test./v1", `trailing dot in its host: write "api.test/v1"`},
		{"*.test/v1", "wildcard in its host"},
		{"{host}/v1", "wildcard in its host"},
		{"*/v1", "wildcard in its host"},
		{"u:p@api.test/v1", "user information"},
		{"api .test/v1", "not in upper case"},
		{"POST api.test /v1", "white space"},
		{"::1/v1", `without brackets: write "[::1]/v1"`},
		{"[::1]:80/v1", `has a port, and hosts are matched without: any port matches: write "[::1]/v1"`},
		{"[::01]/v1", `shortest form: write "[::1]/v1"`},
		{"[FE80::1]/v1", `write "[fe80::1]/v1"`},
		{"[::1/v1", `"[" without "]"`},
		{"[127.0.0.1]/v1", "no IPv6 address"},
		{"a\\b.test/v1", "no request has such a URL"},
		{"/v1?x=1", `has a query`},
		{"/v1/{id}?", `write "/v1/{id}"`},
		{"/v1#x", `has a fragment`},
		{"/a//b", `write "/a/b"`},
		{"POST api.test/a/../b", `write "POST api.test/b"`},
		{"//api.test/b", "empty or dot segments"},
		{"/a b", "write %20"},
		{"/a\n", "write %0A"},
		{"/a/%2F", "escaped slash"},
		{"/a/%2f/b", "escaped slash"},
		{"/a/x{id}", "bad wildcard segment"},
		{"/a/{id}x", "bad wildcard segment"},
		{"/a/{}", "empty wildcard"},
		{"/a/{1}", "bad wildcard name"},
		{"/a/{x}/{x}", "duplicate wildcard name"},
		{"/a/{x...}/b", "not at end"},
		{"/a/{$}/b", "not at end"},
		{"/a/{", "bad wildcard segment"},
	} {
		s, ps := New([]string{"/fine", c.pattern})
		assert.Nil(t, s, c.pattern)
		if assert.Len(t, ps, 1, c.pattern) {
			assert.Equal(t, c.pattern, ps[0].Pattern)
			assert.Contains(t, ps[0].Why, c.why, c.pattern)
			assert.NotContains(t, ps[0].Why, ".go")
			assert.NotContains(t, ps[0].Why, "\n")
		}
	}
}

// What a refusal tells to write is taken.
func TestMendsAreTaken(t *testing.T) {
	for _, p := range []string{
		" POST /x", "post api.test/x", "POST", "POST api.test", "api.test", "https://api.test/v1", "POST api.test:8080/v1",
		"POST API.Test.:443", "api.test./v1", "::1/v1", "[::1]:80/v1", "[::01]/v1", "[FE80::1]/v1", "/v1?x=1", "/v1#x", "/a//b/../c/",
	} {
		_, ps := New([]string{p})
		require.Len(t, ps, 1, p)
		_, after, ok := strings.Cut(ps[0].Why, `write "`)
		require.True(t, ok, ps[0].Why)
		mend, _, _ := strings.Cut(after, `"`)
		mustNew(t, mend)
	}
}

func TestConflicts(t *testing.T) {
	for _, c := range []struct{ a, b, why string }{
		{"POST /a/{x}", "POST /a/{y}", "same requests"},
		{"POST /a", "POST  /a", "same requests"},
		{"POST /a", "POST\t/a", "same requests"},
		{"/a/", "/a/{rest...}", "same requests"},
		{"/a", "/%61", "same requests"},
		{"POST /a/{x}", "POST /{y}/b", "neither is narrower"},
		{"POST h.test/a/{x}", "POST h.test/{y}/b", "neither is narrower"},
		{"POST /", "/a", "neither is narrower"},
		{"GET /a", "HEAD /{x}", "neither is narrower"},
	} {
		for _, in := range [][]string{{c.a, c.b}, {c.b, c.a}} {
			s, ps := New(in)
			assert.Nil(t, s)
			if assert.Len(t, ps, 1, "%q", in) {
				sorted := slices.Sorted(slices.Values(in))
				assert.Equal(t, sorted[1], ps[0].Pattern)
				assert.Contains(t, ps[0].Why, fmt.Sprintf("%q", sorted[0]))
				assert.Contains(t, ps[0].Why, c.why)
				assert.NotContains(t, ps[0].Why, ".go")
				assert.NotContains(t, ps[0].Why, "registered at")
				assert.NotContains(t, ps[0].Why, "\n")
			}
		}
	}
	_, ps := New([]string{"/a", "/a", "/a"})
	assert.Equal(t, []Problem{{"/a", "is given twice: keep one of the two"}, {"/a", "is given twice: keep one of the two"}}, ps)

	// All problems at once, every pair named, the same whatever the order.
	in := []string{"/a/{x}/c", "/a/b/{y}", "/{z}/b/c", "post /q", "/ok"}
	_, first := New(in)
	assert.Len(t, first, 3, "%q", first)
	for range 10 {
		rand.Shuffle(len(in), func(i, j int) { in[i], in[j] = in[j], in[i] })
		_, ps := New(in)
		assert.Equal(t, first, ps)
	}
	// Overlaps of different hosts are none.
	mustNew(t, "POST a.test/a/{x}", "POST b.test/{y}/b", "POST /{y}/b")
}

func TestInputIsLeftAlone(t *testing.T) {
	in := []string{"/b", "/a"}
	mustNew(t, in...)
	assert.Equal(t, []string{"/b", "/a"}, in)
	u := mustURL(t, "HTTPS://API.test.:443//a%2Fb/../c?x=1#f")
	before := *u
	mustNew(t, "/{x}").Match("post", u)
	assert.Equal(t, before, *u)
}

func TestGODEBUG(t *testing.T) {
	if os.Getenv("ENDPOINT_CHILD") != "" {
		s, ps := New([]string{"POST /x/{id}", "/y"})
		fmt.Printf("CHILD %v %q\n", s == nil, ps)
		_, ps = New(nil)
		fmt.Printf("CHILD none: %d\n", len(ps))
		return
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestGODEBUG$", "-test.v")
	cmd.Env = append(os.Environ(), "ENDPOINT_CHILD=1", "GODEBUG=httpmuxgo121=1")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	assert.Contains(t, string(out), `CHILD true [{"" "GODEBUG=httpmuxgo121=1 is in force`)
	assert.Contains(t, string(out), `CHILD none: 0`)
}

func TestAllocations(t *testing.T) {
	s := mustNew(t, "POST api.test/v1/payments", "POST api.test/v1/orders/{id}/cancel", "GET /v1/x")
	u := mustURL(t, "https://api.test:443/v1/payments?x=1")
	assert.Zero(t, testing.AllocsPerRun(100, func() { s.Match("POST", u) }))
	u = mustURL(t, "https://other.test/v1/x")
	assert.Zero(t, testing.AllocsPerRun(100, func() { s.Match("GET", u) }))
	u = mustURL(t, "https://api.test/v1/orders/1/cancel")
	assert.LessOrEqual(t, testing.AllocsPerRun(100, func() { s.Match("POST", u) }), 1.0)
}

func TestConcurrentMatch(t *testing.T) {
	s := mustNew(t, "POST api.test/v1/{x}", "/tree/", "GET /{x}")
	u := mustURL(t, "https://api.test/v1/payments")
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 200 {
				if s.Match("POST", u) != "POST api.test/v1/{x}" {
					t.Error("other pattern")
				}
			}
		})
	}
	wg.Wait()
}

func FuzzMatch(f *testing.F) {
	for _, s := range [][4]string{
		{"POST", "api.test", "/v1/x", ""}, {"", "", "", ""}, {"CONNECT", "a:443", "/tree", ""}, {"OPTIONS", "", "*", ""},
		{"get", "[::1]:80", "//a/../b", "/%zz"}, {"\x00", ":::", "/\xff/%2f", "/%ff/%252f"}, {"HEAD", "[", "tree", "tree"},
	} {
		f.Add(s[0], s[1], s[2], s[3])
	}
	patterns := []string{"POST api.test/v1/{x}", "/tree/", "GET /{x}", "[::1]/", "/a/{rest...}", "DELETE /b/{$}", "a/b/{x}/{y}"}
	set, ps := New(patterns)
	if ps != nil {
		f.Fatal(ps)
	}
	f.Fuzz(func(t *testing.T, method, host, path, raw string) {
		for _, u := range []*url.URL{
			{Scheme: "https", Host: host, Path: path, RawPath: raw},
			{Host: host, Path: path, Opaque: raw},
		} {
			p := set.Match(method, u)
			if p != "" && !slices.Contains(patterns, p) {
				t.Fatalf("%q is no pattern", p)
			}
			if p != set.Match(method, u) {
				t.Fatal("another pattern the second time")
			}
		}
		if u, err := url.Parse(host + path); err == nil {
			set.Match(method, u)
		}
	})
}

func FuzzNew(f *testing.F) {
	for _, s := range []string{"POST api.test/v1/{x}", "/", "", " ", "https://x", "[::1]/x", "[]/", ":/", "./", "*", "{x}", "/{x...}", "/%2f", "/%zz", "GET /a/{$}", "a%25b/"} {
		f.Add(s, "/a/{x}")
	}
	f.Fuzz(func(t *testing.T, a, b string) {
		s, ps := New([]string{a, b})
		if (s == nil) != (len(ps) > 0) {
			t.Fatal(s, ps)
		}
		for _, p := range ps {
			if p.Pattern != a && p.Pattern != b || p.Why == "" || strings.Contains(p.Why, "endpoint.go") {
				t.Fatalf("%q", p)
			}
		}
		// What is taken is found again.
		if s, ps := New([]string{a}); ps == nil {
			method, rest := "POST", a
			if m, r, ok := strings.Cut(strings.ReplaceAll(a, "\t", " "), " "); ok {
				method, rest = m, strings.TrimLeft(r, " ")
			}
			i := strings.IndexByte(rest, '/')
			u, err := sample(rest[:i], rest[i:])
			if err != nil || s.Match(method, u) != a {
				t.Fatalf("%q does not match %v: %v", a, u, err)
			}
		}
	})
}

func BenchmarkMatch(b *testing.B) {
	var ps []string
	for i := range 50 {
		ps = append(ps, fmt.Sprintf("POST api.test/v1/r%d", i), fmt.Sprintf("POST api.test/v1/r%d/{id}/cancel", i))
	}
	s := mustNew(b, ps...)
	for name, raw := range map[string]string{
		"literal": "https://api.test/v1/r7", "wildcard": "https://api.test/v1/r7/12/cancel", "miss": "https://api.test/v2/r7",
	} {
		u := mustURL(b, raw)
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				s.Match(http.MethodPost, u)
			}
		})
	}
}
