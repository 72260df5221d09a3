package samekey

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// class is the row of the table of outcomes (see the package documentation) that an attempt falls into.
type class uint8

const (
	classUncertain  class = iota // may have happened: 408, 5xx, a timeout, a lost connection
	classUnsent                  // nothing left
	classSucceeded               // final: it happened
	classProcessing              // accepted, not done
	classConflict                // never retried
	classRejected                // final and without effect, whatever came before
	classGate                    // turned away: without effect, but says nothing of what came before
	classOther                   // final only if nothing came before
	classStored                  // the server keeps its failure under the key
	classFollow                  // a redirect that the policy follows
)

// meaning is what an attempt says.
type meaning struct {
	class
	reason    Reason
	link      string // of the existing resource, or the redirect's target
	byRule    bool
	permanent bool // a repeat cannot help
	replayed  bool
	echo      error // the answer does not repeat the key
}

// status of the answer, 0 for none.
func (a *attempt) status() int {
	if a.Resp == nil {
		return 0
	}
	return a.Resp.StatusCode
}

// mayHaveActed reports whether the command may have happened in this attempt, for what comes after it. An answer that
// turned it away says it did not, unless the transport had sent it more than once.
func (a *attempt) mayHaveActed() bool {
	return !a.Unsent && (a.Sends > 1 || a.class != classGate && a.class != classFollow)
}

// drop closes what was not read of a body that nobody gets.
func (a *attempt) drop() {
	if a.Rest != nil {
		_ = a.Rest.Close()
		a.Rest, a.dropped = nil, true
	}
}

func (a *attempt) reply() *Reply {
	if a.Resp == nil {
		return nil
	}
	return &Reply{Status: a.Resp.StatusCode, Header: a.Resp.Header, Body: a.Body}
}

// permanentError is a failure that a repeat cannot mend.
type permanentError struct{ error }

func (e permanentError) Unwrap() error { return e.error }

// judge finds the last attempt's row.
func (k *call) judge(timeout error) {
	a := &k.last
	if a.Err != nil {
		a.class, a.permanent = classUncertain, isPermanent(a.Err)
		if a.Unsent {
			a.class = classUnsent
		}
		switch ended := k.ended(); {
		case ended != nil:
			a.Err = ended
		case a.TimedOut:
			a.Err = timeout
		default:
			a.Err = k.redact(a.Err)
		}
		return
	}
	a.meaning = k.plan.judgeAnswer(a.Resp, a.Body)
	if a.echo = k.checkEcho(); a.echo != nil {
		k.observe(Event{Step: StepWarning, Status: a.status(), Err: a.echo})
	}
	if a.class == classOther && k.plan.Redirects == On && (a.status() == 307 || a.status() == 308) {
		if u, ok := sameOrigin(k.url(), a.Resp.Header.Get("Location")); ok && k.bears(u) {
			a.class, a.link = classFollow, u.String()
		}
	}
	if a.class == classOther && a.status() == http.StatusSeeOther {
		location := a.Resp.Header.Get("Location")
		_, ok := sameOrigin(k.url(), location)
		if host := k.rec.Header.Get("Host"); !ok && host != "" { // what the server believes to be
			named := *k.url()
			named.Host = host
			_, ok = sameOrigin(&named, location)
		}
		if ok {
			a.class = classSucceeded
		}
	}
}

// judgeAnswer finds the row of an answer: first what the contract says, then what HTTP says.
func (pl *plan) judgeAnswer(resp *http.Response, body []byte) (m meaning) {
	status := resp.StatusCode
	says, link := pl.contract.meaning(status, resp.Header, body)
	m.link, m.byRule, m.replayed = link, says != 0, pl.contract.isReplay(status, resp.Header, body)
	switch says {
	case MeansMismatch:
		m.class, m.reason = classConflict, ReasonMismatch
	case MeansInProgress:
		m.class, m.reason = classConflict, ReasonInProgress
	case MeansExists:
		m.class, m.reason = classConflict, ReasonExists
	case MeansBusiness:
		m.class, m.reason = classConflict, ReasonBusiness
	}
	if m.class == classConflict || status == http.StatusConflict {
		m.class = classConflict // whatever a rule calls it
		return m
	}
	switch says {
	case MeansSucceeded:
		m.class = classSucceeded
	case MeansProcessing:
		m.class = classProcessing
	case MeansRejected:
		m.class = classRejected
	case MeansTurnedAway:
		m.class = classGate
	case MeansStoredFailure:
		m.class = classStored
	case MeansUncertain:
		m.class = classUncertain
	}
	if says != 0 {
		return m
	}
	switch {
	case status >= 200 && status < 300:
		m.class = classSucceeded
	case m.replayed && status >= 400 && status < 500:
		m.class = classRejected
	case m.replayed && status >= 500:
		m.class = classStored
	case pl.contract.StoresRejections && slices.Contains([]int{400, 402, 422}, status):
		m.class = classRejected
	case slices.Contains([]int{401, 403, 407, 421, 425, 429, 431, 451, 511}, status):
		m.class = classGate
	case status == http.StatusRequestTimeout || status >= 500 || status < 200:
		m.class = classUncertain
	default:
		m.class = classOther
	}
	return m
}

var errNoEcho = errors.New("samekey: the answer does not repeat the key: something on the way strips it")

// checkEcho holds an answer of the API itself against the contract's echo. A gateway's own (a 5xx, a 401) has none.
func (k *call) checkEcho() error {
	con := k.plan.contract
	if con.Echo == "" || k.last.class == classUncertain || k.last.class == classGate {
		return nil
	}
	got := k.last.Resp.Header.Get(con.Echo)
	if plain, ok := unquote(got); ok {
		got = plain
	}
	switch got {
	case k.rec.Key:
		return nil
	case "":
		return errNoEcho
	}
	return errors.New("samekey: the answer repeats another key: it may be another operation's")
}

// misled reports whether the answer repeats another key: it may be that of another operation.
func (a *attempt) misled() bool {
	return a.echo != nil && !errors.Is(a.echo, errNoEcho) && a.class != classConflict
}

// isPermanent reports whether err would be the same at the next attempt.
func isPermanent(err error) bool {
	if _, ok := errors.AsType[permanentError](err); ok {
		return true
	}
	var (
		cert      *tls.CertificateVerificationError
		authority x509.UnknownAuthorityError
		host      x509.HostnameError
		invalid   x509.CertificateInvalidError
	)
	return errors.As(err, &cert) || errors.As(err, &authority) || errors.As(err, &host) || errors.As(err, &invalid)
}

// sameOrigin resolves an address that a server names; true if it is of the origin of from.
func sameOrigin(from *url.URL, address string) (u *url.URL, ok bool) {
	if address == "" {
		return nil, false
	}
	u, err := from.Parse(address)
	return u, err == nil && origin(u) == origin(from) && u.User == nil
}

// bears reports whether a redirect to u would take the key along: all but the query goes with every request.
func (k *call) bears(u *url.URL) bool {
	c := k.plan.contract.Carrier
	return c.in != carrierQuery || slices.Equal(u.Query()[c.name], []string{k.rec.Key})
}

// origin is scheme, host and port, whether the port is written or not.
func origin(u *url.URL) string {
	port := u.Port()
	if port == "" && u.Scheme == "http" {
		port = "80"
	} else if port == "" {
		port = "443"
	}
	return strings.ToLower(u.Scheme + "://" + u.Hostname() + ":" + port)
}
