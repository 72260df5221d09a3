package samekey

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// attemptContext is what Prepare and the transport see: the caller's values, but for those that name one command.
type attemptContext struct {
	context.Context
	k *call
}

func (c *attemptContext) Value(key any) any {
	switch key.(type) {
	case servedKey:
		return c.k
	case nameKey, issuedKey, infoKey, policyKey, resultKey:
		return nil
	}
	return c.Context.Value(key)
}

// url is where the next attempt goes: the command's target, or where its policy let a redirect lead.
func (k *call) url() *url.URL {
	if k.hop != "" {
		if u, err := url.Parse(k.hop); err == nil {
			return u
		}
	}
	return k.cmd.url
}

// Build makes an attempt's request: what is stored, the caller's own credentials, cookies, and what Prepare sets.
func (k *call) Build(ctx context.Context) (*http.Request, error) {
	u := k.url()
	req := newRequest(attemptContext{ctx, k}, &k.rec, u, k.cmd.live, k.cmd.body)
	k.prepared = req
	if jar := k.reads.Jar; jar != nil {
		addCookies(req, jar.Cookies(u))
	}
	if k.cfg.Prepare != nil {
		target, host, body := *req.URL, req.Host, req.Body
		for name, lines := range req.Header { // they are shared with the record, and a hook may write into them
			req.Header[name] = slices.Clone(lines)
		}
		req.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(k.cmd.body)), nil }
		if err := k.cfg.Prepare(req.Context(), req); err != nil {
			return nil, fmt.Errorf("Config.Prepare: %w", err)
		}
		why := k.changed(req, &target, host, body)
		if req.URL == nil {
			req.URL = &target
		}
		if why != "" {
			return nil, permanentError{errors.New("Config.Prepare changed " + why + ", which must stay the same in every attempt")}
		}
		if err := validHeader(req.Header); err != nil {
			return nil, permanentError{fmt.Errorf("Config.Prepare: %w", err)}
		}
		if len(k.cmd.body) > 0 { // Prepare may have read it
			req.Body = io.NopCloser(bytes.NewReader(k.cmd.body))
		}
	}
	if k.cmd.resumed {
		if missing := k.missing(req); missing != "" {
			return nil, permanentError{&missingError{missing}}
		}
	}
	if err := k.fence(); err != nil {
		return nil, err
	}
	return req, nil
}

// addCookies leaves alone those that a client above has set from the same jar.
func addCookies(req *http.Request, cookies []*http.Cookie) {
	for _, c := range cookies {
		if _, err := req.Cookie(c.Name); err != nil {
			req.AddCookie(c)
		}
	}
}

// changed names what Prepare may not touch and did.
func (k *call) changed(req *http.Request, target *url.URL, host string, body io.ReadCloser) string {
	con := k.plan.contract
	switch {
	case req.Method != k.rec.Method:
		return "the method"
	case req.URL == nil, k.plan.bare(req.URL) != k.plan.bare(target), req.Host != host:
		return "the target"
	case req.Body != body, req.ContentLength != int64(len(k.cmd.body)):
		return "the body"
	case con.Carrier.inHeader() && !slices.Equal(con.Carrier.lines(req.Header), k.rec.Header[con.Carrier.name]):
		return "the key"
	}
	return ""
}

// bare is u without the parameters that are never stored.
func (pl *plan) bare(u *url.URL) string {
	v := *u
	v.RawQuery, _ = splitQuery(v.RawQuery, pl.SecretQuery)
	return v.String()
}

// missing names a field or parameter of the first request that nobody has supplied again.
func (k *call) missing(req *http.Request) string {
	for _, name := range k.rec.Omitted {
		param, is := strings.CutPrefix(name, "?")
		if is && !req.URL.Query().Has(param) || !is && len(linesOf(req.Header, name)) == 0 {
			return omitted(name)
		}
	}
	return ""
}

// omitted is how texts call a field or parameter that is not stored.
func omitted(name string) string {
	if param, is := strings.CutPrefix(name, "?"); is {
		return "query parameter " + param
	}
	return "header " + name
}

// missingError names what the first request bore, is not stored, and nobody has supplied again.
type missingError struct{ what string }

func (e *missingError) Error() string {
	return e.what + " was on the first request and is not stored; Config.Prepare has to set it, or Policy.KeepHeaders to keep it"
}

// keepCookies does for commands what http.Client does for reads.
func (k *call) keepCookies() {
	if jar, resp := k.reads.Jar, k.last.Resp; jar != nil && resp != nil {
		if rc := resp.Cookies(); len(rc) > 0 {
			jar.SetCookies(k.url(), rc)
		}
	}
}

// maxText bounds an error's text: a server may have written most of it, and it is stored with each attempt.
const maxText = 1024

// redact hides in err's text what the attempt's request bore and may not be told: credentials, query, body. A foreign
// transport may quote any of them; the chain stays as it is.
func (k *call) redact(err error) error {
	text := err.Error()
	hide := func(s string) {
		if len(s) < 4 {
			return
		}
		text = strings.ReplaceAll(text, s, "[redacted]")
		if q := strconv.Quote(s); len(q) > len(s)+2 { // as net/http writes what it does not understand
			text = strings.ReplaceAll(text, q[1:len(q)-1], "[redacted]")
		}
	}
	if req := k.prepared; req != nil && req.URL != nil {
		hide(req.URL.RawQuery)
		for _, values := range req.URL.Query() {
			for _, v := range values {
				hide(v)
				hide(url.QueryEscape(v))
			}
		}
		for name, lines := range req.Header {
			if _, kept := k.rec.Header[name]; kept {
				continue
			}
			for _, l := range lines {
				hide(l)
				for part := range strings.FieldsFuncSeq(l, func(r rune) bool { return strings.ContainsRune(` ;,="`, r) }) {
					if len(part) >= 8 { // a token, or one cookie's value; shorter words would be found everywhere
						hide(part)
					}
				}
			}
		}
		hide(string(k.cmd.body))
	}
	if len(text) > maxText {
		text = strings.ToValidUTF8(text[:maxText], "") + "…"
	}
	if text == err.Error() {
		return err
	}
	return &redactedError{text: text, err: err}
}
