package samekey

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/samekey/samekey/internal/canonjson"
	"github.com/samekey/samekey/internal/wire"
)

// Poll says how the outcome of a command that was accepted, and not done, is learnt ([Policy.Await]).
type Poll struct {
	// Links name where to look, in order: RFC 6901 pointers into the answer, or header fields. Only addresses of the
	// command's own origin are asked. Empty: /links/self, Location, Operation-Location.
	Links []string
	// Resend: there is no such address; the command itself is sent again under its key, as one more attempt each time.
	Resend bool
	// Processing and Failed tell the answers of the polled resource apart; any other 2xx is the command's success. A 202
	// is always still processing.
	Processing, Failed Match
	// Interval between polls where the answer advises none (Retry-After, or a member retry_after in milliseconds); 1 s.
	Interval time.Duration
}

var defaultLinks = []string{"/links/self", "Location", "Operation-Location"}

// poll asks, after a 202, until there is an outcome or a limit is met; the operation stays pending meanwhile, its
// address durable, so that a later process goes on asking and never posts again.
func (k *call) poll() {
	con := k.plan.contract
	link := k.rec.Progress.PollURL
	if link == "" {
		if link = k.pollLink(k.url()); link == "" && !con.Poll.Resend {
			k.limit = errNoPollAddress
			return
		}
	}
	for first := true; ; first = false {
		if k.wait = k.pollWait(); first && k.last.Resp == nil { // recovered: it is due
			k.wait = 0
		}
		end, ok := k.endTime()
		late := ok && time.Now().Add(k.wait).After(end)
		if late && (con.Poll.Resend || k.rec.Progress.PollURL == link) {
			k.limit = k.tooLate()
			return
		}
		if con.Poll.Resend {
			if !k.resend() {
				return
			}
			continue
		}
		p, now := k.rec.Progress, time.Now()
		p.PollURL, p.NotBefore, p.Parked = link, now.Add(k.wait), false // from now on it is only asked about
		k.seen(&p, now)
		if err := k.mark(p); err != nil {
			k.stopPolling(err)
			return
		}
		if late { // the next process asks there
			k.limit = k.tooLate()
			return
		}
		if k.limit = k.lapses(); k.limit != nil {
			return
		}
		k.observe(Event{Step: StepWait, Wait: k.wait, Status: k.last.status()})
		if !sleep(k.ctx, k.wait) {
			k.stopPolling(k.ended())
			return
		}
		if !k.lasts(k.plan.AttemptTimeout) { // the wait has taken what the poll needs
			if err := k.mark(k.rec.Progress); err != nil {
				k.stopPolling(err)
				return
			}
		}
		next, again := k.ask(link)
		if !again {
			return
		}
		link = next
	}
}

var errNoPollAddress = errors.New("samekey: the answer names no address of its own origin that could be polled")

// stopPolling ends the call: what was sent is with the server.
func (k *call) stopPolling(err error) { k.end, k.prior = err, true }

// ask polls once; again: it is not done yet, and next is where to ask.
func (k *call) ask(link string) (next string, again bool) {
	target, err := url.Parse(link)
	if err != nil {
		k.stopPolling(err)
		return "", false
	}
	k.last.drop()
	x := &k.exchange
	x.Base, x.MaxResponse, x.OnPoint = k.base, k.plan.MaxResponse, nil
	x.Timeout, x.TimeoutErr = k.attemptTimeout()
	began := time.Now()
	k.renew()
	res := x.Do(k.ctx, k.cancel, poller{k, target})
	if res.Late {
		k.renew()
	}
	e := Event{Step: StepPolled, Elapsed: time.Since(began), Err: res.Err}
	if res.Err != nil {
		if ended := k.ended(); ended != nil {
			k.stopPolling(ended)
			return "", false
		}
		e.Err = k.redact(res.Err)
		k.observe(e)
		return link, true // as long as there is time
	}
	k.polled = true
	status := res.Resp.StatusCode
	e.Status = status
	k.observe(e)
	con := k.plan.contract
	switch {
	case status >= 500 || status == http.StatusRequestTimeout || status == http.StatusTooManyRequests:
		(&attempt{Result: res}).drop()
		k.retryAfter(res.Resp)
		return link, true
	case status == http.StatusAccepted, con.processing.match(status, res.Resp.Header, res.Body):
		k.last.Result, k.last.dropped = wire.Result{Resp: res.Resp, Body: res.Body}, res.Rest != nil
		(&attempt{Result: res}).drop()
		k.retryAfter(res.Resp)
		return cmp.Or(k.pollLink(target), link), true
	case con.failed.match(status, res.Resp.Header, res.Body):
		k.last = attempt{Result: res, meaning: meaning{class: classRejected}}
	case status >= 200 && status < 300:
		k.last = attempt{Result: res, meaning: meaning{class: classSucceeded}}
	default: // turned away, or nothing there: that says nothing of the command
		k.last = attempt{Result: res, meaning: meaning{class: classUncertain}}
		k.limit = fmt.Errorf("samekey: the address to poll answered %d", status)
	}
	k.prior = true
	return "", false
}

// resend sends the command once more under its key; true: not done yet.
func (k *call) resend() bool {
	if at, is := k.expired(k.wait); is {
		k.limit = &ExpiredError{Call: k.call(), Expired: at}
		return false
	}
	if k.limit = k.lapses(); k.limit != nil {
		return false
	}
	k.observe(Event{Step: StepWait, Wait: k.wait, Status: k.last.status()})
	if !sleep(k.ctx, k.wait) {
		k.stopPolling(k.ended())
		return false
	}
	k.last.drop()
	before := k.last
	k.attempt()
	if k.last.Resp != nil {
		k.retryAfter(k.last.Resp)
	}
	switch {
	case k.refused != nil:
		k.end, k.prior = k.refused, true
		return false
	case k.ended() != nil && k.last.Err != nil:
		k.stopPolling(k.ended())
		return false
	case k.last.class == classUncertain || k.last.class == classUnsent:
		k.last.drop()
		k.last = before // asked again, as long as there is time
		return true
	}
	k.prior = true
	return k.last.class == classProcessing && !k.last.misled()
}

// pollLink is the first address of the command's own origin that the last answer names, which came from base.
func (k *call) pollLink(base *url.URL) string {
	if k.last.Resp == nil {
		return ""
	}
	for _, l := range k.plan.contract.links {
		value := ""
		if l.pointer != nil {
			value, _ = lookup(k.last.Body, *l.pointer)
		} else {
			value = k.last.Resp.Header.Get(l.header)
		}
		if u, ok := sameOrigin(base, value); ok {
			u.RawQuery, _ = splitQuery(u.RawQuery, k.plan.SecretQuery) // it is stored; Prepare adds them again
			return u.String()
		}
	}
	return ""
}

// leastPollWait is the shortest wait that a server can talk a client into, unless the contract's interval is shorter.
const leastPollWait = 100 * time.Millisecond

// pollWait is what the last answer advises, or the contract's interval.
func (k *call) pollWait() time.Duration {
	if k.advised.After(time.Now()) { // the first answer's may be any time ahead
		return min(time.Until(k.advised), max(k.plan.MaxRetryAfter, k.plan.contract.Poll.Interval))
	}
	if ms, ok := lookup(k.last.Body, canonjson.Pointer{"retry_after"}); ok {
		if n, err := strconv.ParseUint(ms, 10, 31); err == nil && n > 0 {
			interval := k.plan.contract.Poll.Interval
			return max(min(time.Duration(n)*time.Millisecond, max(k.plan.MaxRetryAfter, interval)), min(interval, leastPollWait))
		}
	}
	return k.plan.contract.Poll.Interval
}

// poller makes the requests that ask.
type poller struct {
	k      *call
	target *url.URL
}

// Build makes one: the caller's credentials and what Prepare sets, no key.
func (p poller) Build(ctx context.Context) (*http.Request, error) {
	k := p.k
	req, err := http.NewRequestWithContext(&attemptContext{ctx, k}, http.MethodGet, p.target.String(), nil)
	if err != nil {
		return nil, err
	}
	for name, lines := range k.cmd.live {
		req.Header[name] = slices.Clone(lines) // a hook may write into them
	}
	if host := k.rec.Header.Get("Host"); host != "" {
		req.Host = host
	}
	if accept := k.rec.Header.Values("Accept"); len(accept) > 0 {
		req.Header["Accept"] = accept
	}
	k.prepared = req
	if jar := k.reads.Jar; jar != nil {
		addCookies(req, jar.Cookies(p.target))
	}
	if k.cfg.Prepare != nil {
		req.Body, req.GetBody = http.NoBody, func() (io.ReadCloser, error) { return http.NoBody, nil } // for those who sign it
		if err := k.cfg.Prepare(req.Context(), req); err != nil {
			return nil, fmt.Errorf("Config.Prepare: %w", err)
		}
		if req.Method != http.MethodGet || req.URL == nil || k.plan.bare(req.URL) != p.target.String() {
			return nil, permanentError{errors.New("Config.Prepare changed the method or target of a poll")}
		}
	}
	return req, nil
}

// place is where a link is found: a pointer into the body, or a header.
type place struct {
	pointer *canonjson.Pointer
	header  string
}

func newPlace(s string) (place, error) {
	if !strings.HasPrefix(s, "/") {
		return place{header: s}, nil
	}
	p, err := canonjson.ParsePointer(s)
	return place{pointer: &p}, err
}
