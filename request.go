package samekey

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/samekey/samekey/internal/canonjson"
	"github.com/samekey/samekey/persist"
)

var errNoRequest = errors.New("samekey: the request of this operation is not kept")

// command is a request as captured: what is stored of it, and what only its own caller can supply.
type command struct {
	plan  *plan
	rec   persist.Record
	body  []byte
	live  http.Header // the fields that are not stored
	url   *url.URL    // as given, without userinfo and fragment
	named bool
	// adopted: the key came with the request. resumed: the record is an earlier one, whose omitted fields have to be
	// supplied again.
	adopted, resumed bool
	// foreign: the key was not made here for this operation alone, so that it may have been sent before.
	foreign bool
}

// capture reads req, whose body it closes, into a command. Its errors are typed, and nothing has been stored or sent.
func (c *core) capture(req *http.Request, pl *plan) (*command, error) {
	cmd := &command{plan: pl}
	call := c.describe(req, pl)
	body, err := readBody(req, pl.MaxBody, call)
	if err != nil {
		return nil, err
	}
	cmd.body = body
	if err := validRequest(req); err != nil {
		return nil, &NotSentError{Call: call, Err: err}
	}
	rec := &cmd.rec
	rec.Created = time.Now()
	rec.Method, rec.Scope, rec.KeyLife = req.Method, call.Scope, pl.contract.life()
	if err := cmd.identify(req, &call); err != nil {
		return nil, err
	}
	rec.Ref, rec.Key, rec.Named = call.Ref, call.Key, cmd.named
	cmd.split(req)
	rec.Body = body
	rec.Fingerprint = fingerprint(rec, body, pl.IdentityHeaders)
	return cmd, nil
}

// describe is what errors before the key say of a call.
func (c *core) describe(req *http.Request, pl *plan) Call {
	call := Call{Method: req.Method, Endpoint: pl.pattern}
	if req.URL != nil {
		call.URL = bareURL(req.URL.String())
	}
	call.Scope = c.cfg.Scope
	if s, ok := req.Context().Value(scopeKey{}).(string); ok {
		call.Scope = s
	}
	name, named := req.Context().Value(nameKey{}).(string)
	call.ID, call.fresh = name, !named
	return call
}

// readBody reads the whole body and closes it.
func readBody(req *http.Request, limit int64, call Call) ([]byte, error) {
	if req.Body == nil || req.Body == http.NoBody {
		return []byte{}, nil // not nil: nil says that no body is kept
	}
	defer func() { _ = req.Body.Close() }()
	if req.ContentLength > limit {
		return nil, &BodyTooLargeError{Call: call, Limit: limit}
	}
	var buf bytes.Buffer
	if req.ContentLength > 0 {
		buf.Grow(int(req.ContentLength) + bytes.MinRead)
	}
	if _, err := buf.ReadFrom(io.LimitReader(req.Body, limit+1)); err != nil {
		return nil, &NotSentError{Call: call, Err: fmt.Errorf("reading the request's body: %w", err)}
	}
	if int64(buf.Len()) > limit {
		return nil, &BodyTooLargeError{Call: call, Limit: limit}
	}
	if req.ContentLength > 0 && req.ContentLength != int64(buf.Len()) {
		return nil, &NotSentError{Call: call, Err: fmt.Errorf("ContentLength is %d, the body has %d bytes", req.ContentLength, buf.Len())}
	}
	if buf.Len() == 0 {
		return []byte{}, nil
	}
	return buf.Bytes(), nil
}

// identify finds or makes the operation's ID and key. An anonymous operation's ID is its key.
func (cmd *command) identify(req *http.Request, call *Call) error {
	pl := cmd.plan
	bad := func(why string, err error) error { return &KeyError{Call: *call, Why: why, Err: err} }
	_, cmd.named = req.Context().Value(nameKey{}).(string)
	if cmd.named && call.ID == "" {
		return bad("the operation's name is empty", nil)
	}
	if why := checkName("operation's name", call.ID); why != "" {
		return bad(why, nil)
	}
	if why := checkName("scope", call.Scope); why != "" {
		return bad(why, nil)
	}
	key, why := pl.contract.adopted(req.Header)
	if why != "" {
		return bad(why, nil)
	}
	switch {
	case key != "":
		cmd.adopted, cmd.foreign = true, pl.Persist == PersistNone
	case pl.RequireName == On && !cmd.named:
		return bad("the endpoint's policy demands a name (Named, WithOperation)", nil)
	default:
		format := pl.KeyFormat
		if isDerived(format) {
			if !cmd.named {
				return bad("a derived key needs a name (Named, WithOperation)", nil)
			}
			issued, ok := req.Context().Value(issuedKey{}).(time.Time)
			if !ok || issued.IsZero() {
				return bad("a derived key needs to know when it was issued (WithIssuedAt)", nil)
			}
			cmd.foreign, cmd.rec.Progress.FirstSent = true, issued
		} else if !pl.contract.keyed() {
			format = UUIDv4 // it only names the operation
		}
		var err error
		if key, err = format.NewKey(call.Ref); err != nil {
			return bad("the key format failed", err)
		}
		if why := pl.contract.check(key); why != "" && pl.contract.keyed() {
			return bad("the key format's key: "+why, nil)
		}
	}
	if call.Key = key; !cmd.named {
		call.ID = key
	}
	return nil
}

// shareable reports whether another call can be of the same operation.
func (cmd *command) shareable() bool { return cmd.named || cmd.adopted }

// split tells what is stored of a request from what only its caller can supply, and notes the names of the latter.
func (cmd *command) split(req *http.Request) {
	rec, pl := &cmd.rec, cmd.plan
	rec.Header, cmd.live = make(http.Header, len(req.Header)+1), make(http.Header)
	for name, lines := range req.Header {
		canonical := http.CanonicalHeaderKey(name)
		switch {
		case pl.contract.keyed() && canonical == pl.contract.Carrier.name:
		case pl.keeps(canonical):
			rec.Header[name] = slices.Clone(lines)
		case canonical == "Content-Length" || canonical == "Host": // net/http goes by the request's fields
		default:
			cmd.live[name] = slices.Clone(lines)
			if !perConnection(canonical) {
				rec.Omitted = append(rec.Omitted, canonical)
			}
		}
	}
	if req.Host != "" && req.Host != req.URL.Host {
		rec.Header["Host"] = []string{req.Host}
	}
	pl.contract.place(rec.Header, rec.Key)

	u := *req.URL
	if u.User != nil {
		if _, has := cmd.live["Authorization"]; !has {
			pass, _ := u.User.Password()
			cmd.live["Authorization"] = []string{"Basic " + base64.StdEncoding.EncodeToString([]byte(u.User.Username()+":"+pass))}
			rec.Omitted = append(rec.Omitted, "Authorization")
		}
		u.User = nil
	}
	u.Fragment, u.RawFragment = "", ""
	cmd.url = &u
	target := u
	var secret []string
	target.RawQuery, secret = splitQuery(u.RawQuery, pl.SecretQuery)
	for _, name := range secret {
		rec.Omitted = append(rec.Omitted, "?"+name)
	}
	slices.Sort(rec.Omitted)
	rec.Omitted = slices.Compact(rec.Omitted)
	rec.Target = target.String()
}

// keeps reports whether a header field is stored.
func (pl *plan) keeps(canonical string) bool {
	if slices.Contains(credentials, canonical) {
		return false
	}
	switch canonical {
	case "Content-Length":
		return false
	case "Prefer", "User-Agent":
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

// fingerprint is over what makes a request the same command: method, target and host, identity headers, and the body as
// it is sent.
func fingerprint(r *persist.Record, body []byte, identity []string) (sum [32]byte) {
	h := sha256.New()
	put(h, r.Method)
	put(h, r.Target)
	put(h, r.Header.Get("Host"))
	for _, name := range identity {
		for _, line := range r.Header[name] {
			put(h, name)
			put(h, line)
		}
	}
	put(h, "")
	h.Write(body)
	h.Sum(sum[:0])
	return sum
}

func put(h hash.Hash, s string) {
	var n [8]byte
	binary.BigEndian.PutUint64(n[:], uint64(len(s)))
	h.Write(n[:])
	_, _ = io.WriteString(h, s)
}

// sameAs reports whether cmd is the command that rec records. A JSON body may differ in what does not matter: order of
// members, white space, escapes, and the members that the policy ignores.
func (cmd *command) sameAs(rec *persist.Record) bool {
	if cmd.rec.Fingerprint == rec.Fingerprint {
		return true
	}
	if rec.Body == nil || cmd.rec.Method != rec.Method || cmd.rec.Target != rec.Target || cmd.rec.Header.Get("Host") != rec.Header.Get("Host") {
		return false
	}
	for _, name := range cmd.plan.IdentityHeaders {
		if !slices.Equal(cmd.rec.Header[name], rec.Header[name]) {
			return false
		}
	}
	mine, ok1 := canonjson.Canonical(nil, cmd.body, cmd.plan.ignore)
	theirs, ok2 := canonjson.Canonical(nil, rec.Body, cmd.plan.ignore)
	return ok1 && ok2 && bytes.Equal(mine, theirs)
}

// rebuild makes a request of what is stored.
func rebuild(ctx context.Context, rec *persist.Record) (*http.Request, error) {
	u, err := url.Parse(rec.Target)
	if err != nil {
		return nil, err
	}
	return newRequest(ctx, rec, u, nil, rec.Body), nil
}

// newRequest makes one attempt's request: the stored fields, and over them those that only the caller has.
func newRequest(ctx context.Context, rec *persist.Record, u *url.URL, live http.Header, body []byte) *http.Request {
	target := *u
	req := &http.Request{
		Method: rec.Method, URL: &target, Host: u.Host, Header: make(http.Header, len(rec.Header)+len(live)),
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, ContentLength: int64(len(body)), Body: http.NoBody,
	}
	maps.Copy(req.Header, live)
	maps.Copy(req.Header, rec.Header)
	for name, lines := range req.Header { // an attempt's hooks may write into them
		req.Header[name] = slices.Clone(lines)
	}
	if host := rec.Header.Get("Host"); host != "" {
		req.Host = host
		delete(req.Header, "Host")
	}
	if len(body) > 0 {
		req.Body = io.NopCloser(bytes.NewReader(body))
		req.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
	}
	return req.WithContext(ctx)
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
	var text string
	if raw[0] == '"' && json.Unmarshal(raw, &text) == nil {
		return text, true
	}
	return string(raw), true
}

func closeBody(req *http.Request) {
	if req.Body != nil {
		_ = req.Body.Close()
	}
}
