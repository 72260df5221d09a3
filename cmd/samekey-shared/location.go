package main

import (
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"strings"
)

// location is a store's URL, taken apart.
type location struct {
	scheme         string
	authority      string // user, password, host and port, as they are written
	path           string // decoded; of sqlite: all of it
	query          string // but for what is the store's
	schema, prefix string
}

// errURL does not quote: what cannot be read may be a password.
var errURL = errors.New("the URL cannot be read: in user and password, all but letters and digits is to be written as %40 for @, %2F for / and so on")

// hosts are several, or one by its IPv6 address.
var hosts = regexp.MustCompile(`^[^:]*(:\d+)?(,[^:]*(:\d+)?)+$|^\[[0-9a-fA-F:.%]+\](:\d+)?$`)

// locate goes by the text where package url would be too strict: PostgreSQL takes several hosts.
func locate(raw string) (location, error) {
	scheme, rest, _ := strings.Cut(raw, ":")
	l := location{scheme: scheme}
	rest, query, _ := strings.Cut(rest, "?")
	after, slashes := strings.CutPrefix(rest, "//")
	if !slashes && rest != "" && scheme != "sqlite" {
		return l, fmt.Errorf("%w; and it begins with %s://", errURL, scheme)
	}
	if slashes {
		rest = ""
		if i := strings.IndexByte(after, '/'); i >= 0 {
			after, rest = after[:i], after[i:]
		}
		l.authority = after
	}
	_, address, named := strings.Cut(l.authority, "@")
	if !named {
		address = l.authority
	}
	if strings.Contains(address, "(") {
		return l, fmt.Errorf("the URL cannot be read: host and port stand alone in it, as in %s://USER@HOST:PORT/DATABASE, without tcp( )", scheme)
	}
	if !named { // a password with a / or ? in it ends there, and looks like a port
		_, port, has := strings.Cut(l.authority, ":")
		if has && (strings.Contains(rest, "@") || strings.Trim(port, "0123456789") != "" && !hosts.MatchString(l.authority)) {
			return l, errURL
		}
	}
	if strings.ContainsAny(l.authority, "# ") || scheme != "sqlite" && ambiguous(address, rest, query, named) {
		return l, errURL
	}
	var err error
	if l.path, err = url.PathUnescape(rest); err != nil {
		return l, errURL
	}
	var others []string
	for pair := range strings.SplitSeq(query, "&") {
		name, value, _ := strings.Cut(pair, "=")
		own := map[string]*string{"schema": &l.schema, "prefix": &l.prefix}[name]
		if own == nil {
			if pair != "" {
				others = append(others, pair)
			}
			continue
		}
		if *own, err = url.QueryUnescape(value); err != nil {
			return l, errURL
		}
	}
	l.query = strings.Join(others, "&")
	return l, nil
}

// ambiguous reports whether user and password may end at another @ than the first one, or than none.
func ambiguous(address, path, query string, named bool) bool {
	if strings.Contains(address, "@") || named && strings.Contains(path+query, "@") {
		return true
	}
	for pair := range strings.SplitSeq(query, "&") {
		if name, _, _ := strings.Cut(pair, "="); strings.Contains(name, "@") {
			return true
		}
	}
	return false
}

// name is what outputs call the store: all that tells it from others, and no password.
func (l *location) name() string {
	user, host := "", l.authority
	if i := strings.LastIndexByte(host, '@'); i >= 0 {
		user, host = host[:i+1], host[i+1:]
		if name, _, has := strings.Cut(user, ":"); has {
			user = name + "@"
		}
	}
	s := l.scheme + ":"
	if l.scheme != "sqlite" {
		s += "//" + user + host
	}
	s += l.path
	sep := "?"
	for _, own := range [][2]string{{"schema", l.schema}, {"prefix", l.prefix}} {
		if own[1] != "" {
			s += sep + own[0] + "=" + own[1]
			sep = "&"
		}
	}
	return s
}

// driverURL is the URL without what is the store's.
func (l *location) driverURL() string {
	u := l.scheme + "://" + l.authority + (&url.URL{Path: l.path}).EscapedPath()
	if l.query != "" {
		u += "?" + l.query
	}
	return u
}

// password reports whether there is one in the URL.
func (l *location) password() bool {
	user, _, named := strings.Cut(l.authority, "@")
	params, _ := l.parameters()
	return named && strings.Contains(user, ":") || params.Has("password")
}

// parameters returns the driver's.
func (l *location) parameters() (url.Values, error) {
	v, err := url.ParseQuery(l.query)
	if err != nil {
		return nil, errURL
	}
	return v, nil
}
