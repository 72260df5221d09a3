package mockserver

import (
	"maps"
	"net/http"
	"slices"
	"time"
)

// Request is one request as the server received it, and what became of it.
type Request struct {
	N         int       // 1 is the first
	At, End   time.Time // by the engine's clock
	Principal string
	Method    string
	Host      string
	Path      string
	Query     string
	Proto     string
	Key       string // as it arrived
	SeenKey   string // as the engine saw it, behind a gateway that may have lost it
	Operation string // by Config.OperationOf
	Header    http.Header
	Body      []byte

	RemoteAddr string
	Status     int    // that was sent; 0: none
	Fault      string // that it met
	Effect     bool   // it changed the state of the API
	Replayed   bool   // it was answered from what the key had stored
	Lost       bool   // its answer did not go out whole
	HungUp     bool   // the client left before the end
	Partial    bool   // the request itself was cut off
	Duplicate  bool   // a gateway's second delivery, not the client's doing

	flat       []string // Header as names and values in turn: a map for each of a hundred thousand would cost too much
	mark       string   // its key in full, or empty
	redirect   string   // where its answer sent the client
	start, end int      // places in the order of all beginnings and ends
}

// Totals are the ledger's figures since the start or Reset.
type Totals struct {
	Requests   int `json:"requests"`
	Commands   int `json:"commands"` // requests that ask for a change
	Effects    int `json:"effects"`
	Duplicates int `json:"duplicates"` // effects beyond the first of their operation or key
	Keys       int `json:"keys"`       // distinct, within principal, method and path
	Operations int `json:"operations"` // distinct names by Config.OperationOf
	Lost       int `json:"lost"`       // answers that did not go out whole
	Replays    int `json:"replays"`
	Live       int `json:"live"` // keys remembered at present
}

// ledger is guarded by the engine's mutex.
type ledger struct {
	max    int
	lines  []*Request
	tick   int
	n      int
	keys   int // reservations, to number them
	totals Totals
	perKey map[string]*tally
	perOp  map[string]*tally
}

// tally counts what the ledger has of one key or operation; it goes when its last line goes.
type tally struct{ lines, effects int }

func newLedger(limit int) *ledger {
	return &ledger{max: limit, perKey: map[string]*tally{}, perOp: map[string]*tally{}}
}

// mark names a key within its principal, method and path.
func mark(principal, method, path, key string) string {
	return principal + "\x00" + method + " " + path + "\x00" + key
}

func (r *Request) command() bool { return changes(r.Method) }

func (l *ledger) add(r *Request) {
	l.n++
	l.tick++
	r.N, r.start = l.n, l.tick
	l.totals.Requests++
	if r.command() {
		l.totals.Commands++
		if open(l.perKey, r.mark) {
			l.totals.Keys++
		}
		if open(l.perOp, r.Operation) {
			l.totals.Operations++
		}
	}
	l.lines = append(l.lines, r)
	if len(l.lines) > l.max {
		l.trim()
	}
}

// open counts a line of name and says whether it is the first.
func open(m map[string]*tally, name string) bool {
	if name == "" {
		return false
	}
	t := m[name]
	if t == nil {
		m[name] = &tally{lines: 1}
		return true
	}
	t.lines++
	return false
}

// trim lets the oldest line go.
func (l *ledger) trim() {
	r := l.lines[0]
	l.lines[0] = nil
	l.lines = l.lines[1:]
	if !r.command() {
		return
	}
	for _, m := range []struct {
		of   map[string]*tally
		name string
	}{{l.perKey, r.mark}, {l.perOp, r.Operation}} {
		if t := m.of[m.name]; t != nil {
			if t.lines--; t.lines == 0 {
				delete(m.of, m.name)
			}
		}
	}
}

func (l *ledger) effect(r *Request) {
	r.Effect = true
	l.totals.Effects++
	again := false
	for _, t := range []*tally{l.perKey[r.mark], l.perOp[r.Operation]} {
		if t != nil {
			again = again || t.effects > 0
			t.effects++
		}
	}
	if again {
		l.totals.Duplicates++
	}
}

func (l *ledger) replay(r *Request) {
	r.Replayed = true
	l.totals.Replays++
}

func (l *ledger) finish(r *Request) {
	l.tick++
	r.end = l.tick
	if r.Lost {
		l.totals.Lost++
	}
}

func flatten(h http.Header) []string {
	flat := make([]string, 0, 2*len(h))
	for name, values := range h {
		for _, v := range values {
			flat = append(flat, name, v)
		}
	}
	return flat
}

func unflatten(flat []string) http.Header {
	h := make(http.Header, len(flat)/2)
	for i := 0; i < len(flat); i += 2 {
		h[flat[i]] = append(h[flat[i]], flat[i+1])
	}
	return h
}

// Requests is the ledger: every request in the order of arrival, those still running included. Bodies are shared and to
// be left alone.
func (e *Engine) Requests() []Request {
	e.mu.Lock()
	defer e.mu.Unlock()
	out := make([]Request, len(e.ledger.lines))
	for i, r := range e.ledger.lines {
		out[i] = *r
		out[i].Header = unflatten(r.flat)
	}
	return out
}

// Commands is the part of Requests that asks for a change: everything but GET, HEAD, OPTIONS and TRACE.
func (e *Engine) Commands() []Request {
	return slices.DeleteFunc(e.Requests(), func(r Request) bool { return !r.command() })
}

// Effects is how often the API changed its state.
func (e *Engine) Effects() int { return e.Totals().Effects }

// Duplicates is how many effects are beyond the first of their operation or key.
func (e *Engine) Duplicates() int { return e.Totals().Duplicates }

// Totals are the ledger's figures.
func (e *Engine) Totals() Totals {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.sweep()
	t := e.ledger.totals
	t.Live = len(e.keys)
	return t
}

// EffectsOfKey is how many effects were had under a key, whoever's and wherever.
func (e *Engine) EffectsOfKey(key string) int {
	return e.count(func(r *Request) bool { return r.Key == key })
}

// EffectsOf is how many effects an operation had, under whatever keys.
func (e *Engine) EffectsOf(operation string) int {
	return e.count(func(r *Request) bool { return r.Operation == operation })
}

func (e *Engine) count(of func(*Request) bool) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	n := 0
	for _, r := range e.ledger.lines {
		if r.Effect && of(r) {
			n++
		}
	}
	return n
}

// Keys are the keys that the ledger has, in the order in which they first arrived.
func (e *Engine) Keys() []string {
	have := map[string]int{}
	for i, r := range e.Commands() {
		if _, ok := have[r.Key]; !ok && r.Key != "" {
			have[r.Key] = i
		}
	}
	return slices.SortedFunc(maps.Keys(have), func(a, b string) int { return have[a] - have[b] })
}
