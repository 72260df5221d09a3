package tool

import (
	"cmp"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// mask notes what stands as a password in any of args, or in the environment's store, so that no text shows it: drivers
// and packages of the standard library quote what they cannot read.
func (t *tool) mask(args []string) {
	v, _ := t.env(storeVar)
	for _, arg := range append(args[:len(args):len(args)], v) {
		t.masks = append(t.masks, secretsOf(arg)...)
	}
	slices.SortFunc(t.masks, func(a, b string) int { return cmp.Compare(len(b), len(a)) }) // one may be a part of another
}

func (t *tool) masked(text string) string {
	for _, m := range t.masks {
		with := "xxxxx"
		if m[0] == ':' && m[len(m)-1] == '@' {
			with = ":xxxxx@"
		}
		text = strings.ReplaceAll(text, m, with)
	}
	return text
}

// secretsOf returns what may not be shown of an argument that is a URL, in every spelling that an error may have. It goes
// by the text: a URL that nobody can read has a password too.
func secretsOf(arg string) (out []string) {
	if flag, value, has := strings.Cut(arg, "="); has && strings.HasPrefix(flag, "-") {
		out = secretsOf(value)
	}
	scheme, rest, is := strings.Cut(strings.TrimLeft(arg, "-"), "://")
	if !is || strings.ContainsAny(scheme, "@/=") {
		return append(out, secretsOfDSN(strings.TrimLeft(arg, "-"))...)
	}
	bare, query, _ := strings.Cut(rest, "?")
	authority, _, _ := strings.Cut(bare, "/")
	// Where a password is not escaped as it should be, its own @ and / and ? are in the way.
	for i, part := range []string{authority, bare, rest} {
		end := strings.LastIndexByte(part, '@')
		if end < 0 {
			continue
		}
		user, password, _ := strings.Cut(part[:end], ":")
		if password == "" && i == 0 && (aloneIsPassword(scheme) || strings.Contains(user, "@")) {
			password = user
		}
		out = append(out, spelled(password)...)
		if len(password) < tellable {
			for _, s := range spellings(password) {
				out = append(out, ":"+s+"@")
			}
		}
		if part != authority && misplaced(authority) || strings.Count(part, "@") > 1 && (i < 2 || query == "") {
			out = append(out, pieces(password)...)
		}
	}
	for pair := range strings.SplitSeq(query, "&") {
		name, value, _ := strings.Cut(pair, "=")
		if n, err := url.QueryUnescape(name); err == nil {
			name = n
		}
		if name = strings.ToLower(name); strings.Contains(name, "pass") || strings.Contains(name, "secret") || strings.Contains(name, "token") {
			out = append(out, spelled(value)...)
		}
	}
	return out
}

var inDSN = regexp.MustCompile(`(?i)\b(?:ssl)?pass(?:word|wd)?\s*=\s*('(?:[^'\\]|\\.)*'|[^\s;&]+)`)

// secretsOfDSN is for what is no URL: a DSN of a driver, or a URL without its slashes.
func secretsOfDSN(arg string) (out []string) {
	for _, m := range inDSN.FindAllStringSubmatch(arg, -1) {
		out = append(out, spelled(strings.Trim(m[1], "'"))...)
	}
	end := strings.LastIndexByte(arg, '@')
	if end < 0 {
		return out
	}
	user := arg[:end]
	scheme := strings.ToLower(strings.TrimSuffix(schemes.FindString(user), ":"))
	if slices.Contains(elsewhere, scheme) {
		user = user[len(scheme)+1:]
	}
	user, password, _ := strings.Cut(strings.TrimLeft(user, "/"), ":")
	if password == "" && aloneIsPassword(scheme) {
		password = user
	}
	return append(append(out, spelled(password)...), pieces(password)...)
}

// aloneIsPassword: what stands without a password before the @ is a user, but of Redis.
func aloneIsPassword(scheme string) bool {
	return slices.Contains([]string{"redis", "rediss"}, strings.ToLower(scheme))
}

// pieces are what an error may have of a password that is not escaped.
func pieces(password string) (out []string) {
	for _, piece := range strings.FieldsFunc(password, func(r rune) bool { return strings.ContainsRune("/?@:#&=", r) }) {
		out = append(out, spelled(piece)...)
	}
	return out
}

// misplaced reports whether what should be host and port looks like user and the beginning of a password.
func misplaced(authority string) bool {
	_, port, has := strings.Cut(authority, ":")
	return has && !strings.Contains(authority, "@") && strings.Trim(port, "0123456789") != ""
}

// tellable is the length from which a word can be told from parts of others.
const tellable = 3

func spelled(s string) []string {
	if len(s) < tellable {
		return nil
	}
	return spellings(s)
}

func spellings(s string) []string {
	if s == "" {
		return nil
	}
	all := []string{s}
	for _, unescape := range []func(string) (string, error){url.PathUnescape, url.QueryUnescape} {
		if plain, err := unescape(s); err == nil && plain != "" {
			all = append(all, plain, url.QueryEscape(plain), url.PathEscape(plain), strings.TrimPrefix(url.UserPassword("", plain).String(), ":"))
		}
	}
	for _, a := range all {
		q := strconv.Quote(a)
		all = append(all, q[1:len(q)-1], clean(a))
	}
	slices.Sort(all)
	return slices.Compact(all)
}
