// Package endpoint finds the endpoint pattern that a client request belongs to, with the syntax and precedence of
// [http.ServeMux]: an optional method, an optional host, a path with {wildcards}. The order of the patterns plays no part.
//
// What follows from ServeMux's rules, and is kept:
//
//   - a pattern with a host goes before any pattern without one, before the path counts: "api.test/" shadows
//     "/v1/orders/{id}/cancel" for that host;
//   - GET matches HEAD too; a pattern without a method matches every method;
//   - a request for /tree matches "/tree/" (and "/tree/{$}") if nothing else matches /tree exactly;
//   - an escaped slash does not end a segment: a%2Fb is one;
//   - two patterns of one host of which neither is narrower are refused.
//
// A request's path is cleaned before it is matched: /v1//payments and /v1/x/../payments match "/v1/payments". Nothing is
// changed in what goes out, and a server may see another resource there; but most treat both alike, and a command that slips
// past its policy because of a stray slash is worse than a policy put on a request that the server answers with 404. Escaped
// dots (%2e%2e) are not cleaned.
//
// Where a client differs from a server: the host is that of the URL, without its port, in lower case, without a trailing
// dot, an IPv6 address in its shortest form; names are compared as written, without IDNA. The method is upper-cased, and
// none is GET. A URL with Opaque, the target * and the method CONNECT match nothing: they name no path.
package endpoint

import (
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"path"
	"slices"
	"strings"
)

const syntax = `a pattern is "[METHOD ][HOST]/[PATH]", where {name} stands for one whole segment, ` +
	`and {name...} or {$} may end the path`

// everything is registered besides the caller's patterns: a miss without it makes ServeMux collect the methods that would
// have been allowed, at twice the time and three times the allocations.
const everything = "/"

// Set is a set of patterns. It does not change and is safe for concurrent use; nil and the zero Set match nothing.
type Set struct {
	mux   *http.ServeMux
	added bool // everything is ours, not the caller's
}

// Problem says why a pattern was refused and what to write instead. Pattern is empty where the reason lies in the process
// and not in a pattern.
type Problem struct{ Pattern, Why string }

// New makes a Set of patterns. If there is any problem the Set is nil, and all problems are returned, in the order of the
// sorted patterns. Two patterns that exclude each other are one problem: that of the second, and Why names the first.
//
// Refused is, besides what ServeMux refuses, whatever it would take and then never match.
func New(patterns []string) (*Set, []Problem) {
	if len(patterns) > 0 && !wildcardsWork() {
		return nil, []Problem{{Why: "GODEBUG=httpmuxgo121=1 is in force, under which no pattern with a method or a wildcard matches: " +
			"remove it from the environment and from //go:debug and godebug lines, and let the main module's go.mod name Go 1.22 or later"}}
	}
	sorted := slices.Clone(patterns)
	slices.Sort(sorted) // so that problems do not depend on the order, which is random where patterns were keys of a map

	var problems []Problem
	var kept []string
	s := &Set{mux: http.NewServeMux()}
	for i, p := range sorted {
		if i > 0 && p == sorted[i-1] {
			problems = append(problems, Problem{p, "is given twice: keep one of the two"})
			continue
		}
		if why := check(p); why != "" {
			problems = append(problems, Problem{p, why})
			continue
		}
		if text := register(s.mux, p); text != "" {
			problems = append(problems, conflicts(p, kept, text)...)
			continue
		}
		kept = append(kept, p)
	}
	if problems != nil {
		return nil, problems
	}
	// It is wider than any pattern without a host, so it can only be refused where the caller has its equal.
	s.added = register(s.mux, everything) == ""
	return s, nil
}

// Match returns the pattern that a request with this method and URL belongs to, as it was given to [New], "" for none. It
// neither keeps nor changes u. A hit does not allocate, unless the pattern has wildcards (ServeMux notes their values) or
// the URL has escapes, needs cleaning, or names an IPv6 address.
func (s *Set) Match(method string, u *url.URL) string {
	if s == nil || s.mux == nil || u == nil || u.Opaque != "" || u.Path == "*" {
		return ""
	}
	method = strings.ToUpper(method)
	switch method {
	case "":
		method = http.MethodGet
	case http.MethodConnect:
		// ServeMux neither cleans its path nor, after a redirect, returns a pattern.
		return ""
	}
	r := http.Request{Method: method, URL: u, Host: normalHost(u.Hostname())}
	// The handler says nothing: it may be a redirect.
	_, p := s.mux.Handler(&r)
	if s.added && p == everything {
		return ""
	}
	return p
}

// normalHost takes a host without port and brackets.
func normalHost(host string) string {
	host = strings.TrimSuffix(strings.ToLower(host), ".")
	if !strings.Contains(host, ":") {
		return host
	}
	// What has a colon is an IPv6 address, or no host that can be dialled. The brackets keep ServeMux from taking what
	// follows the last colon for a port.
	if a, err := netip.ParseAddr(host); err == nil {
		host = a.String()
	}
	return "[" + host + "]"
}

// wildcardsWork probes one pattern. The setting is read once, when the program starts, and can come from the environment,
// a directive or go.mod: asking ServeMux is surer than looking for it.
func wildcardsWork() bool {
	const p = "POST probe.test/{id}/x"
	m := http.NewServeMux()
	if register(m, p) != "" {
		return false
	}
	s := Set{mux: m}
	return s.Match("POST", &url.URL{Host: "probe.test", Path: "/1/x"}) == p
}

// register returns the text of the panic, "" for none.
func register(m *http.ServeMux, pattern string) (text string) {
	defer func() {
		if v := recover(); v != nil {
			text = fmt.Sprint(v)
		}
	}()
	m.Handle(pattern, http.NotFoundHandler())
	return ""
}

// conflicts tells which of the kept patterns exclude p. ServeMux names only one of them.
func conflicts(p string, kept []string, text string) (ps []Problem) {
	for _, q := range kept {
		m := http.NewServeMux()
		if register(m, q) != "" {
			continue
		}
		if t := register(m, p); t != "" {
			ps = append(ps, Problem{p, conflict(q, t)})
		}
	}
	if ps == nil { // never seen
		ps = []Problem{{p, conflict("another pattern", text)}}
	}
	return ps
}

func conflict(with, text string) string {
	// The first line bears our own file and line, which mean nothing to the caller.
	_, detail, _ := strings.Cut(text, "\n")
	if strings.Contains(detail, "matches the same requests as") {
		return fmt.Sprintf("matches the same requests as %q: keep one of the two", with)
	}
	if detail != "" {
		detail = " (" + strings.TrimSuffix(strings.ReplaceAll(detail, "\n", " "), ".") + ")"
	}
	return fmt.Sprintf("conflicts with %q, neither is narrower%s: narrow one until the other matches all that it matches, "+
		"or until no request matches both", with, detail)
}

// check returns why p is refused by itself, "" if it is not.
func check(p string) string {
	if strings.TrimSpace(p) == "" {
		return `is empty: write for example "POST api.example.com/v1/payments", or "/" for every request`
	}
	if p[0] == ' ' || p[0] == '\t' {
		return fmt.Sprintf("begins with white space: write %q", strings.TrimSpace(p))
	}
	method, rest := "", p
	if i := strings.IndexAny(p, " \t"); i > 0 {
		method, rest = p[:i], strings.TrimLeft(p[i+1:], " \t")
	}
	with := func(method, rest string) string {
		if method == "" {
			return rest
		}
		return method + " " + rest
	}
	switch upper := strings.ToUpper(method); {
	case strings.Contains(method, "/"): // what was cut off is no method
		return "has white space in its path: remove it, or write %20"
	case strings.ContainsAny(method, "|,"):
		return "names several methods: write a pattern for each, or leave the method out to match all"
	case method != upper:
		return fmt.Sprintf("has a method that is not in upper case and would never match: write %q", with(upper, rest))
	case method == http.MethodConnect:
		return "would never match: CONNECT asks for a tunnel and has no path"
	}
	if scheme, after, ok := strings.Cut(rest, "://"); ok && !strings.Contains(scheme, "/") {
		return fmt.Sprintf("has a scheme: leave it out, write %q", with(method, after))
	}
	if before, _, ok := strings.Cut(rest, "?"); ok {
		return fmt.Sprintf(`has a query, and only method, host and path are matched: write %q, or %%3F for a "?" in the path`, with(method, before))
	}
	if before, _, ok := strings.Cut(rest, "#"); ok {
		return fmt.Sprintf(`has a fragment, which is never sent: write %q, or %%23 for a "#" in the path`, with(method, before))
	}

	if method == "" && strings.Trim(rest, "ABCDEFGHIJKLMNOPQRSTUVWXYZ") == "" {
		return fmt.Sprintf("has a method only: write %q for every path", rest+" /")
	}
	host, tail := rest, ""
	if i := strings.IndexByte(rest, '/'); i >= 0 {
		host, tail = rest[:i], rest[i:]
	}
	mended, why := checkHost(host)
	switch {
	case why != "" && mended != "":
		return fmt.Sprintf("%s: write %q", why, with(method, mended+or(tail, "/")))
	case why != "":
		return why
	case tail == "":
		return fmt.Sprintf("has no path: write %q for every path", with(method, host+"/"))
	}
	for _, c := range []byte(tail) {
		if c <= ' ' || c == 0x7f {
			return fmt.Sprintf("has white space or a control character in its path: remove it, or write %%%02X", c)
		}
	}
	if c := cleanPath(tail); c != tail {
		return fmt.Sprintf("has a path with empty or dot segments, which would never match: write %q", with(method, host+c))
	}
	if slices.ContainsFunc(strings.Split(tail, "/"), func(seg string) bool { return strings.EqualFold(seg, "%2f") }) {
		return "has a segment that is an escaped slash, which ServeMux takes for {$}: use a {wildcard} there"
	}

	alone := &Set{mux: http.NewServeMux()}
	if text := register(alone.mux, p); text != "" {
		text = strings.TrimPrefix(text, fmt.Sprintf("parsing %q: ", p))
		return text + ": " + syntax
	}
	u, err := sample(host, tail)
	if err != nil || alone.Match(or(method, http.MethodPost), u) != p {
		return "could never match, since no request has such a URL: " + syntax
	}
	return ""
}

// checkHost returns why a host would never match, and the host to write instead, if there is one.
func checkHost(host string) (mended, why string) {
	switch {
	case host == "":
		return "", ""
	case strings.ContainsAny(host, " \t\r\n"):
		return "", "has white space in its host: " + syntax + ", and has one method at most"
	case strings.ContainsAny(host, "*{}"):
		return "", "has a wildcard in its host, where none is known: write a pattern for each host, or leave the host out to match all"
	case strings.Contains(host, "@"):
		return "", "has user information before its host: leave it out"
	}
	bare, port := host, ""
	if host[0] == '[' {
		end := strings.IndexByte(host, ']')
		if end < 0 {
			return "", `has a "[" without "]" in its host: write an IPv6 address as in "[::1]/path"`
		}
		bare, port = host[1:end], host[end+1:]
		if a, err := netip.ParseAddr(strings.ToLower(bare)); err != nil || a.Is4() {
			return "", "has brackets around what is no IPv6 address"
		}
	} else if i := strings.IndexByte(host, ':'); i >= 0 {
		if _, err := netip.ParseAddr(host); err == nil {
			return normalHost(host), "has an IPv6 address without brackets"
		}
		bare, port = host[:i], host[i:]
	}
	mended = normalHost(bare)
	switch {
	case port != "":
		return or(mended, "api.example.com"), "has a port, and hosts are matched without: any port matches"
	case mended == host:
		return mended, ""
	case host != strings.ToLower(host):
		return mended, "has a host that is not in lower case"
	case host[0] == '[':
		return mended, "has an IPv6 address that is not in its shortest form"
	}
	return mended, "has a trailing dot in its host"
}

// sample makes a URL that a pattern with this host and path must match, by way of its text, which shows that a request can
// have such a URL at all.
func sample(host, tail string) (*url.URL, error) {
	segs := strings.Split(tail, "/")
	for i, seg := range segs {
		switch {
		case seg == "{$}":
			segs[i] = ""
		case strings.HasPrefix(seg, "{"):
			segs[i] = "x"
		default:
			if s, err := url.PathUnescape(seg); err == nil {
				seg = s
			}
			segs[i] = url.PathEscape(seg)
		}
	}
	u := url.URL{Scheme: "http", Host: or(host, "host.test")}
	return url.Parse(u.String() + strings.Join(segs, "/"))
}

// cleanPath does what net/http does before it matches.
func cleanPath(p string) string {
	c := path.Clean(p)
	if strings.HasSuffix(p, "/") && c != "/" {
		c += "/"
	}
	return c
}

func or(s, instead string) string {
	if s == "" {
		return instead
	}
	return s
}
