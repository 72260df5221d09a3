package samekey

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/samekey/samekey/internal/canonjson"
	"github.com/samekey/samekey/internal/wire"
	"github.com/samekey/samekey/persist"
)

var errNoRequest = errors.New("samekey: the request of this operation is not kept")

// command is a request as captured: what is stored of it, and what only its own caller can supply.
type command struct {
	plan  *plan
	rec   persist.Record
	body  []byte // as sent; plain is what the caller gave
	plain []byte
	live  http.Header // the fields that are not stored
	url   *url.URL    // as given, without userinfo and fragment: target, or what carry put in its place
	named bool

	target url.URL
	// adopted: the key came with the request. resumed: the record is an earlier one, whose omitted fields have to be
	// supplied again.
	adopted, resumed bool
	// foreign: the key was not made here for this operation alone, so that it may have been sent before.
	foreign bool
}

// capture reads req, whose body it closes, into a command. Its errors are typed, and nothing has been stored or sent.
func (c *core) capture(req *http.Request, pl *plan) (*command, error) {
	cmd := &command{plan: pl}
	body, err := readBody(req, pl.MaxBody)
	if err == nil {
		err = validRequest(req)
	}
	if err != nil {
		call := c.describe(req, pl)
		if errors.Is(err, errTooLarge) {
			return nil, &BodyTooLargeError{Call: call, Limit: pl.MaxBody}
		}
		return nil, &NotSentError{Call: call, Err: err}
	}
	rec := &cmd.rec
	rec.Created = time.Now()
	rec.Ref, cmd.named = c.refOf(req)
	rec.Named = cmd.named
	rec.Method, rec.KeyLife = cmp.Or(req.Method, http.MethodGet), pl.contract.life()
	cmd.plain = body
	why, err := cmd.identify(req)
	if why == "" {
		cmd.split(req)
		why = cmd.carry(rec, rec.Key)
	}
	if why != "" {
		return nil, &KeyError{Call: c.describe(req, pl), Why: why, Err: err}
	}
	if pl.Persist != PersistKeyOnly {
		rec.Body = cmd.body
	}
	rec.Fingerprint = cmd.fingerprint(rec)
	return cmd, nil
}

// describe is what errors before the key say of a call.
func (c *core) describe(req *http.Request, pl *plan) Call {
	call := Call{Method: req.Method, Endpoint: pl.pattern}
	if req.URL != nil {
		u := *req.URL
		u.User = nil
		call.URL = bareURL(u.String())
	}
	var named bool
	call.Ref, named = c.refOf(req)
	call.fresh = !named && !pl.contract.mayBear(req) // a key that came with the request is a name
	return call
}

// refOf is the name that the request goes by, and whether it has one.
func (c *core) refOf(req *http.Request) (ref Ref, named bool) {
	ref.Scope = c.cfg.Scope
	if s, ok := req.Context().Value(scopeKey{}).(string); ok {
		ref.Scope = s
	}
	ref.ID, named = req.Context().Value(nameKey{}).(string)
	return ref, named
}

var errTooLarge = errors.New("the body is above Policy.MaxBody")

// readBody reads the whole body and closes it.
func readBody(req *http.Request, limit int64) ([]byte, error) {
	if req.Body == nil || req.Body == http.NoBody {
		return []byte{}, nil // not nil: nil says that no body is kept
	}
	defer func() { _ = req.Body.Close() }()
	if req.ContentLength > limit {
		return nil, errTooLarge
	}
	announced := req.ContentLength
	if announced == 0 { // beside a body it says nothing
		announced = -1
	}
	body, err := wire.ReadUpTo(req.Body, announced, limit)
	switch {
	case err != nil:
		return nil, fmt.Errorf("reading the request's body: %w", err)
	case int64(len(body)) > limit:
		return nil, errTooLarge
	case announced > 0 && announced != int64(len(body)):
		return nil, fmt.Errorf("ContentLength is %d, the body has %d bytes: a request that was sent before has none left, make a new one", announced, len(body))
	}
	return body, nil
}

// identify finds or makes the operation's ID and key, or says why there is none. An anonymous operation's ID is its key.
func (cmd *command) identify(req *http.Request) (why string, err error) {
	pl, rec := cmd.plan, &cmd.rec
	if cmd.named && rec.ID == "" {
		return "the operation's name is empty", nil
	}
	if why := checkName("operation's name", rec.ID); why != "" {
		return why, nil
	}
	if why := checkName("scope", rec.Scope); why != "" {
		return why, nil
	}
	key, why := pl.contract.adopted(req, cmd.plain)
	switch {
	case why != "":
		return why, nil
	case key != "":
		cmd.adopted, cmd.foreign = true, pl.Persist == PersistNone
	case pl.RequireName == On && !cmd.named:
		return "the endpoint's policy demands a name (Named, WithOperation)", nil
	default:
		format := pl.KeyFormat
		if isDerived(format) {
			if !cmd.named {
				return "a derived key needs a name (Named, WithOperation)", nil
			}
			issued, ok := req.Context().Value(issuedKey{}).(time.Time)
			if !ok || issued.IsZero() {
				return "a derived key needs to know when it was issued (WithIssuedAt)", nil
			}
			if issued.After(rec.Created) { // by another clock: as late as can be is now
				issued = rec.Created
			}
			cmd.foreign, rec.Progress.FirstSent = true, issued
		} else if !pl.contract.keyed() {
			format = UUIDv4 // it only names the operation
		}
		if key, err = format.NewKey(rec.Ref); err != nil {
			return "the key format failed", err
		}
		if why := pl.contract.check(key); why != "" && pl.contract.keyed() {
			return "the key format's key: " + why, nil
		}
	}
	if rec.Key = key; !cmd.named {
		rec.ID = key
	}
	return "", nil
}

// shareable reports whether another call can be of the same operation.
func (cmd *command) shareable() bool { return cmd.named || cmd.adopted }

// split tells what is stored of a request from what only its caller can supply, and notes the names of the latter.
func (cmd *command) split(req *http.Request) {
	rec, pl := &cmd.rec, cmd.plan
	rec.Header = make(http.Header, len(req.Header)+1)
	for name, lines := range req.Header {
		canonical := http.CanonicalHeaderKey(name)
		switch {
		case pl.contract.Carrier.inHeader() && canonical == pl.contract.Carrier.name:
		case pl.keeps(canonical):
			rec.Header[name] = slices.Clone(lines)
		case canonical == "Content-Length" || canonical == "Host": // net/http goes by the request's fields
		default:
			cmd.alone(name, slices.Clone(lines))
			if !perConnection(canonical) {
				rec.Omitted = append(rec.Omitted, canonical)
			}
		}
	}
	if req.Host != "" && req.Host != req.URL.Host {
		rec.Header["Host"] = []string{req.Host}
	}
	cmd.target = *req.URL
	u := &cmd.target
	if u.User != nil {
		if _, has := cmd.live["Authorization"]; !has {
			pass, _ := u.User.Password()
			cmd.alone("Authorization", []string{"Basic " + base64.StdEncoding.EncodeToString([]byte(u.User.Username()+":"+pass))})
			rec.Omitted = append(rec.Omitted, "Authorization")
		}
		u.User = nil
	}
	u.Fragment, u.RawFragment = "", ""
	cmd.url = u
	target := *u
	var secret []string
	target.RawQuery, secret = splitQuery(u.RawQuery, pl.SecretQuery)
	for _, name := range secret {
		rec.Omitted = append(rec.Omitted, "?"+name)
	}
	slices.Sort(rec.Omitted)
	rec.Omitted = slices.Compact(rec.Omitted)
	rec.Target = target.String()
}

// carry puts the key into rec, and into what is sent of cmd.
func (cmd *command) carry(rec *persist.Record, key string) (why string) {
	con := cmd.plan.contract
	if cmd.body, why = con.carry(rec, key, cmd.plain); why == "" && con.Carrier.in == carrierQuery {
		u := *cmd.url
		u.RawQuery, _ = splitQuery(u.RawQuery, []string{con.Carrier.name})
		u.RawQuery = strings.TrimPrefix(withParam("?"+u.RawQuery, con.Carrier.name, key), "?")
		u.RawQuery = strings.TrimPrefix(u.RawQuery, "&")
		cmd.url = &u
	}
	return why
}

// resume has cmd send what rec holds: its target, key and body, with the secret parameters of the live request. Only
// where no body is kept the live request's own bytes go out, under the stored key.
func (cmd *command) resume(rec *persist.Record) error {
	u, err := url.Parse(rec.Target)
	if err != nil {
		return err
	}
	if _, secret := splitQuery(cmd.url.RawQuery, cmd.plan.SecretQuery); len(secret) > 0 {
		u.RawQuery = strings.TrimPrefix(u.RawQuery+"&"+strings.Join(secretPairs(cmd.url.RawQuery, secret), "&"), "&")
	}
	cmd.url = u
	if cmd.body = rec.Body; cmd.body == nil && cmd.plain != nil {
		body, why := cmd.plan.contract.carry(&persist.Record{Target: rec.Target}, rec.Key, cmd.plain)
		if why != "" {
			return errors.New(why)
		}
		cmd.body = body
	}
	return nil
}

// secretPairs are the pairs of a raw query whose names are in names, as they are written.
func secretPairs(raw string, names []string) (out []string) {
	for pair := range strings.SplitSeq(raw, "&") {
		name, _, _ := strings.Cut(pair, "=")
		if plain, err := url.QueryUnescape(name); err == nil && slices.Contains(names, plain) {
			out = append(out, pair)
		}
	}
	return out
}

// alone notes a field that is not stored.
func (cmd *command) alone(name string, lines []string) {
	if cmd.live == nil {
		cmd.live = make(http.Header)
	}
	cmd.live[name] = lines
}

// keeps reports whether a header field is stored.
func (pl *plan) keeps(canonical string) bool {
	if slices.Contains(credentials, canonical) {
		return false
	}
	switch canonical {
	case "Content-Length":
		return false
	case "Prefer", "User-Agent", firstSentHeader:
		return true
	}
	return strings.HasPrefix(canonical, "Content-") || strings.HasPrefix(canonical, "Accept") || strings.HasPrefix(canonical, "If-") ||
		slices.Contains(pl.KeepHeaders, canonical) || slices.Contains(pl.IdentityHeaders, canonical)
}

// perConnection names fields that belong to one exchange and that a later attempt can do without.
func perConnection(canonical string) bool {
	switch canonical {
	case "Connection", "Keep-Alive", "Te", "Trailer", "Transfer-Encoding", "Upgrade", "Expect", "Proxy-Connection",
		"Traceparent", "Tracestate", "Baggage": // W3C Trace Context: each exchange has its own
		return true
	}
	return false
}

// splitQuery takes the parameters in names out of a raw query, and leaves the rest as it was written.
func splitQuery(raw string, names []string) (rest string, found []string) {
	if len(names) == 0 || raw == "" {
		return raw, nil
	}
	var keep []string
	for pair := range strings.SplitSeq(raw, "&") {
		name, _, _ := strings.Cut(pair, "=")
		if plain, err := url.QueryUnescape(name); err == nil && slices.Contains(names, plain) {
			found = append(found, plain)
			continue
		}
		keep = append(keep, pair)
	}
	return strings.Join(keep, "&"), found
}

// rebuild makes a request of what is stored.
func rebuild(ctx context.Context, rec *persist.Record) (*http.Request, error) {
	u, err := url.Parse(rec.Target)
	if err != nil {
		return nil, err
	}
	return newRequest(attemptContext{ctx, nil}, rec, u, nil, rec.Body), nil
}

// newRequest makes one attempt's request: the stored fields, and over them those that only the caller has.
func newRequest(ctx attemptContext, rec *persist.Record, u *url.URL, live http.Header, body []byte) *http.Request {
	own := &struct { // one allocation
		ctx  attemptContext
		url  url.URL
		body bytes.Reader
	}{ctx: ctx, url: *u}
	req := &http.Request{
		Method: rec.Method, URL: &own.url, Host: u.Host, Header: make(http.Header, len(rec.Header)+len(live)),
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, ContentLength: int64(len(body)), Body: http.NoBody,
	}
	maps.Copy(req.Header, live) // the lines are shared: Set and Add leave them alone
	maps.Copy(req.Header, rec.Header)
	if host := rec.Header.Get("Host"); host != "" {
		req.Host = host
		delete(req.Header, "Host")
	}
	if len(body) > 0 {
		own.body.Reset(body)
		req.Body = io.NopCloser(&own.body) // net/http knows this to be in memory, and writes it with the head
	}
	return req.WithContext(&own.ctx)
}

// validRequest says what the transport would refuse, before anything is stored.
func validRequest(req *http.Request) error {
	u := req.URL
	switch {
	case u == nil:
		return errors.New("the request has no URL")
	case u.Scheme != "http" && u.Scheme != "https":
		return fmt.Errorf("unsupported scheme %q", u.Scheme)
	case u.Host == "":
		return errors.New("the URL has no host")
	case u.Opaque != "":
		return errors.New("the URL has an opaque part: what is stored could not be sent again; set Path and RawPath")
	case u.Path != "" && u.Path[0] != '/':
		return errors.New("the URL's path does not begin with a slash: what is stored could not be sent again")
	case strings.ContainsFunc(u.RawQuery, func(r rune) bool { return r < ' ' || r == 0x7f || r == '#' }):
		return errors.New("the URL's query holds a control character or a #: escape it")
	case strings.ContainsFunc(u.Host+req.Host, func(r rune) bool { return r <= ' ' || r == 0x7f }):
		return errors.New("the host holds a space or a control character")
	case req.Method != "" && !validToken(req.Method):
		return fmt.Errorf("%q is no method", req.Method)
	case len(req.Trailer) > 0:
		return errors.New("a request with trailers cannot be kept and repeated")
	}
	return validHeader(req.Header)
}

func validHeader(h http.Header) error {
	for name, lines := range h {
		if !validToken(name) {
			return fmt.Errorf("%q is no header name", name)
		}
		for _, l := range lines {
			if strings.ContainsFunc(l, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }) {
				return fmt.Errorf("the value of header %s holds a control character", name) // the value itself may be a secret
			}
		}
	}
	return nil
}

// validToken reports whether s is a token of RFC 9110, section 5.6.2.
func validToken(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(r rune) bool {
		return r <= ' ' || r >= 0x7f || strings.ContainsRune(`"(),/:;<=>?@[\]{}`, r)
	})
}

// bareURL drops userinfo, query and fragment, for texts.
func bareURL(s string) string {
	if u, err := url.Parse(s); err == nil {
		u.User, u.RawQuery, u.ForceQuery, u.Fragment, u.RawFragment = nil, "", false, "", ""
		return u.String()
	}
	s, _, _ = strings.Cut(s, "?")
	return s
}

// lookup returns the value at p in a JSON body, a string without its quotes and escapes.
func lookup(body []byte, p canonjson.Pointer) (string, bool) {
	raw, ok := canonjson.Lookup(body, p)
	if !ok {
		return "", false
	}
	return text(raw), true
}

// text is a JSON string without its quotes and escapes, or any other value as it is written.
func text(raw []byte) (s string) {
	if raw[0] == '"' && json.Unmarshal(raw, &s) == nil {
		return s
	}
	return string(raw)
}

// quoteJSON writes a string; unlike Marshal it leaves <, > and & alone.
func quoteJSON(s string) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(s) // a string cannot fail
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}

func closeBody(req *http.Request) {
	if req.Body != nil {
		_ = req.Body.Close()
	}
}
