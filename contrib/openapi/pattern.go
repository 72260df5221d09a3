package openapi

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"unicode"

	"github.com/getkin/kin-openapi/openapi3"
)

// patterns are those of one operation, one for each host and base path that its servers have.
func (r *reader) patterns(name, method, path string, item *openapi3.PathItem, op *openapi3.Operation) (out []string, err error) {
	tail, why := wildcards(path)
	if why != "" {
		r.note(name, "is left out: %s", why)
		return nil, nil
	}
	bases, err := r.bases(item, op)
	if err != nil {
		return nil, err
	}
	for _, base := range bases {
		if p := method + " " + base + tail; !slices.Contains(out, p) {
			out = append(out, p)
		}
	}
	return out, nil
}

// bases are host and path of the servers.
func (r *reader) bases(item *openapi3.PathItem, op *openapi3.Operation) (out []string, err error) {
	servers := r.doc.Servers
	switch {
	case len(r.o.Servers) > 0:
		servers = nil
		for _, s := range r.o.Servers {
			servers = append(servers, &openapi3.Server{URL: s})
		}
	case op.Servers != nil && len(*op.Servers) > 0:
		servers = *op.Servers
	case len(item.Servers) > 0:
		servers = item.Servers
	}
	if len(servers) == 0 {
		servers = openapi3.Servers{{URL: "/"}}
	}
	for _, s := range servers {
		address := s.URL
		for _, v := range sorted(s.Variables) {
			if s.Variables[v] != nil && strings.Contains(address, "{"+v+"}") {
				address = strings.ReplaceAll(address, "{"+v+"}", s.Variables[v].Default)
				r.note("", "the server %s has a variable %s: the patterns have its default %q only", s.URL, v, s.Variables[v].Default)
			}
		}
		u, err := url.Parse(address)
		switch {
		case err != nil:
			return nil, fmt.Errorf("the server %s is no URL: %w", s.URL, err)
		case strings.ContainsAny(address, "{}"):
			return nil, fmt.Errorf("the server %s has a variable that is not described", s.URL)
		case u.Opaque != "" || u.RawQuery != "" || u.Fragment != "" || u.User != nil:
			return nil, fmt.Errorf("the server %s is more than scheme, host and path", s.URL)
		}
		host := strings.ToLower(u.Hostname()) // a pattern has no port
		if strings.Contains(host, ":") {
			host = "[" + host + "]"
		}
		base := strings.TrimSuffix(u.EscapedPath(), "/")
		if base != "" && base[0] != '/' {
			base = "/" + base
		}
		out = append(out, host+base)
	}
	return out, nil
}

// wildcards writes a templated path for ServeMux, or says why that cannot be done.
func wildcards(path string) (out, why string) {
	if strings.ContainsAny(path, "?#") {
		return "", "its path has a query or a fragment, which a pattern cannot express"
	}
	var used []string
	segments := strings.Split(strings.TrimPrefix(path, "/"), "/")
	for i, s := range segments {
		name, whole := strings.CutPrefix(s, "{")
		if whole {
			name, whole = strings.CutSuffix(name, "}")
		}
		switch {
		case whole && !strings.ContainsAny(name, "{}"):
			name = identifier(name, used)
			used = append(used, name)
			segments[i] = "{" + name + "}"
		case strings.ContainsAny(s, "{}"):
			return "", fmt.Sprintf("%s is not a whole segment of its path, and a pattern has wildcards for whole segments only", s)
		case s == "" && i == len(segments)-1:
			segments[i] = "{$}" // else the slash would stand for all that is below
		}
	}
	return "/" + strings.Join(segments, "/"), ""
}

// identifier makes a name that ServeMux takes, and that no other wildcard of the path has.
func identifier(name string, used []string) string {
	id := strings.Map(func(r rune) rune {
		if r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r) {
			return r
		}
		return '_'
	}, name)
	if id == "" || unicode.IsDigit([]rune(id)[0]) {
		id = "_" + id
	}
	for slices.Contains(used, id) {
		id += "_"
	}
	return id
}
