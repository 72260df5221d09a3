package mockserver

import (
	"fmt"
	"hash/fnv"
	"net/http"
	"strings"
)

// Phase is where in an exchange a fault strikes.
type Phase uint8

// The phases. What replaces or destroys an answer, struck BeforeCommit, means that the command did not happen and its
// key is not known. Struck AfterCommit it means that the command has happened, and its answer is stored.
const (
	BeforeCommit Phase = iota
	AfterCommit
)

// Fault breaks the exchanges that it matches. Faults are tried in the order in which they were set and the first that
// fires has the exchange; one that has fired Times times is out.
type Fault struct {
	Match string // an http.ServeMux pattern: method, host, path with {wildcards}; empty is every request
	When  Phase
	Do    Action

	Times   int     // how often it fires; 0: for ever
	Skip    int     // how many matching requests pass first
	Attempt int     // only the n-th matching request of one operation (or else key, or else payload); 0: any
	Key     string  // only requests with this key
	Share   float64 // the share of requests it fires on, drawn by Config.Seed; 0: all
}

// Fault sets faults, behind those that are set already. It panics at a pattern that http.ServeMux does not take.
func (e *Engine) Fault(faults ...Fault) {
	if err := e.SetFaults(faults...); err != nil {
		panic("mockserver: " + err.Error())
	}
}

// SetFaults is Fault with an error for a bad pattern or an empty action; then none of the faults is set.
func (e *Engine) SetFaults(faults ...Fault) error {
	var all []*armed
	for _, f := range faults {
		a, err := arm(f)
		if err != nil {
			return err
		}
		all = append(all, a)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, a := range all {
		a.n = len(e.faults)
		e.faults = append(e.faults, a)
	}
	return nil
}

// ClearFaults takes all faults away.
func (e *Engine) ClearFaults() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.faults = nil
}

// armed is a fault with its counters.
type armed struct {
	Fault
	n       int
	mux     *http.ServeMux // nil: matches all
	matched int
	fired   int
	counts  map[uint64]int
}

func arm(f Fault) (a *armed, err error) {
	a = &armed{Fault: f, counts: map[uint64]int{}}
	if len(f.Do.steps) == 0 {
		return nil, fmt.Errorf("a fault of %q without an action", f.Match)
	}
	if f.Match == "" {
		return a, nil
	}
	defer func() {
		if p := recover(); p != nil {
			a, err = nil, fmt.Errorf("fault pattern %q: %v", f.Match, p)
		}
	}()
	a.mux = http.NewServeMux()
	a.mux.Handle(f.Match, http.NotFoundHandler())
	return a, nil
}

// draw picks the fault of a request.
func (e *Engine) draw(x *exchange) *Fault {
	for _, a := range e.faults {
		if a.fires(e, x) {
			x.line.Fault = a.String()
			return &a.Fault
		}
	}
	return nil
}

func (a *armed) fires(e *Engine, x *exchange) bool {
	if a.Times > 0 && a.fired >= a.Times || a.Key != "" && a.Key != x.line.Key {
		return false
	}
	if a.mux != nil {
		if _, pattern := a.mux.Handler(x.r); pattern == "" {
			return false
		}
	}
	a.matched++
	if a.Attempt > 0 && a.count("attempt", x.attemptOf()) != a.Attempt {
		return false
	}
	if a.matched <= a.Skip {
		return false
	}
	if a.Share > 0 {
		who := x.payload()
		if chance(e.cfg.Seed, a.n, who, a.count("share", who)) >= a.Share {
			return false
		}
	}
	a.fired++
	return true
}

func (a *armed) count(kind, who string) int {
	h := fnv.New64a()
	h.Write([]byte(kind + who))
	a.counts[h.Sum64()]++
	return a.counts[h.Sum64()]
}

func (x *exchange) attemptOf() string {
	switch {
	case x.line.Operation != "":
		return "o" + x.line.Operation
	case x.line.Key != "":
		return "k" + x.line.mark
	}
	return x.payload()
}

// payload tells requests apart by what they ask for, not by their key, which a client draws anew in each run.
func (x *exchange) payload() string {
	if x.line.Operation != "" {
		return "o" + x.line.Operation
	}
	what := "p" + x.r.Method + " " + x.r.URL.EscapedPath()
	if x.e.profile.Carrier.In == "header" {
		what += "?" + x.r.URL.RawQuery + "\n" + string(x.body)
	}
	return what
}

// chance is a draw from 0 to 1 that depends on nothing but its arguments: neither on the order in which requests arrive
// nor on what else was drawn.
func chance(seed uint64, fault int, who string, n int) float64 {
	h := fnv.New64a()
	_, _ = fmt.Fprintf(h, "%d|%d|%s|%d", seed, fault, who, n)
	v := h.Sum64() // its high bits are weak: mix them
	v ^= v >> 33
	v *= 0xff51afd7ed558ccd
	v ^= v >> 33
	v *= 0xc4ceb9fe1a85ec53
	v ^= v >> 33
	return float64(v>>11) / (1 << 53)
}

// String says what the fault does, as the ledger shows it.
func (f Fault) String() string {
	when := "before commit"
	if f.When == AfterCommit {
		when = "after commit"
	}
	parts := make([]string, len(f.Do.steps))
	for i, s := range f.Do.steps {
		parts[i] = s.String()
	}
	return when + ": " + strings.Join(parts, ", ")
}
