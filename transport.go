package samekey

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/hashicorp/go-retryablehttp"
)

// AsResponses returns a view of c for clients that decode error bodies: wherever the last attempt got a response (a 409,
// a last 5xx), that comes back with a nil error, and [ErrorOf] gives the typed error. Do, Transport and HTTPClient of the
// view all do so; Close closes c.
func (c *Client) AsResponses() *Client { return &Client{core: c.core, responses: true} }

// Transport returns the client as a RoundTripper, for SDKs that take one. As net/http demands, it returns a response
// wherever the last attempt got one; [ErrorOf] gives the typed error that it stands for. A retry loop above it meets the
// stored answer of its operation, not the server, as long as it sends the same key or the same name; with neither each
// of its tries is an operation of its own.
//
// Redirects of commands are not followed, also not by a foreign http.Client above: it gets [ErrRedirect].
func (c *Client) Transport() http.RoundTripper { return transport{c.core} }

// HTTPClient returns a new http.Client over [Client.Transport]. A redirect of a command is the answer that it returns;
// those of reads are followed as usual. Its Jar is that of Config.HTTPClient. Setting a Timeout on it ends calls, not
// attempts, and hides their typed errors behind net/http's own: Policy.Deadline is the better place.
func (c *Client) HTTPClient() *http.Client {
	return &http.Client{Transport: c.Transport(), Jar: c.reads.Jar, CheckRedirect: func(req *http.Request, via []*http.Request) error {
		if resultOf(req.Response) != nil {
			return http.ErrUseLastResponse
		}
		if check := c.reads.CheckRedirect; check != nil {
			return check(req, via)
		}
		if len(via) >= 10 {
			return errors.New("stopped after 10 redirects")
		}
		return nil
	}}
}

type transport struct{ *core }

func (t transport) RoundTrip(req *http.Request) (*http.Response, error) {
	// A client that follows a 307 carries method, body and key to wherever it leads, one that follows a 302 sends a GET.
	for r := req.Response; r != nil && r.Request != nil; r = r.Request.Response {
		if res := resultOf(r); res != nil {
			closeBody(req)
			return nil, fmt.Errorf("%w: status %d", ErrRedirect, r.StatusCode)
		}
	}
	pl := t.planFor(req)
	if !pl.isCommand(req.Method) {
		if pl.pattern == "" {
			return t.base.RoundTrip(req)
		}
		return t.read(&http.Client{Transport: t.base, CheckRedirect: noRedirect, Timeout: t.reads.Timeout}, req, pl)
	}
	return t.command(req, pl, true)
}

// CloseIdleConnections serves http.Client.CloseIdleConnections.
func (t transport) CloseIdleConnections() {
	if c, ok := t.base.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

// isRead reports whether a pattern has a request of this method retried although it is no command.
func isRead(method string) bool {
	return slices.Contains([]string{"", http.MethodGet, http.MethodHead, http.MethodOptions}, method)
}

// read passes on what is no command, as hc does. Reads (GET, HEAD, OPTIONS) of an endpoint that is configured are retried
// by its policy.
func (c *core) read(hc *http.Client, req *http.Request, pl *plan) (*http.Response, error) {
	if pl.pattern == "" || !isRead(req.Method) || req.Body != nil && req.Body != http.NoBody {
		return hc.Do(req)
	}
	pl, err := pl.forCall(req.Context())
	if err != nil {
		return nil, err
	}
	attempts := *hc
	if t := pl.AttemptTimeout; t > 0 && (attempts.Timeout == 0 || t < attempts.Timeout) {
		attempts.Timeout = t
	}
	attempts.Transport = onlyRoundTrip{hc.Transport}
	k := &call{core: c, plan: pl, start: time.Now(), waits: req.Context()}
	loop := retryablehttp.Client{
		HTTPClient: &attempts, RetryMax: pl.MaxAttempts - 1, ErrorHandler: retryablehttp.PassthroughErrorHandler,
		CheckRetry: func(ctx context.Context, resp *http.Response, err error) (bool, error) {
			if ctx.Err() != nil || err != nil && isPermanent(err) {
				return false, nil
			}
			k.n++
			k.last.Resp = resp
			advice := k.backoff()
			if pl.MaxRetryAfter > 0 && advice > pl.MaxRetryAfter {
				return false, nil
			}
			if end, ok := k.endTime(); ok && !time.Now().Add(k.wait).Before(end) {
				return false, nil
			}
			return err != nil && pl.RetryTransport == On || err == nil && pl.retriesStatus(resp.StatusCode), nil
		},
		Backoff: func(_, _ time.Duration, _ int, _ *http.Response) time.Duration { return k.wait },
	}
	r, err := retryablehttp.FromRequest(req)
	if err != nil {
		return nil, err
	}
	return loop.Do(r)
}

// onlyRoundTrip hides CloseIdleConnections from the loop, which would close those of everybody after one failure.
type onlyRoundTrip struct{ rt http.RoundTripper }

func (o onlyRoundTrip) RoundTrip(req *http.Request) (*http.Response, error) {
	return o.rt.RoundTrip(req)
}
