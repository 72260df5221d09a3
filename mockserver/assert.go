package mockserver

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// TB is what the assertions need of a *testing.T.
type TB interface {
	Helper()
	Errorf(format string, args ...any)
}

// AssertOnce fails unless each command that was sent took effect exactly once, counted per operation (Config.OperationOf)
// and per key, or ended in a refusal that reached the client. A ledger without commands fails too.
func (e *Engine) AssertOnce(t TB) {
	t.Helper()
	all := e.Commands()
	if len(all) == 0 {
		t.Errorf("mockserver: no command has arrived")
		return
	}
	e.atMostOnce(t, all)
	for _, g := range groups(all) {
		if g.effects() == 0 && !g.refused() {
			t.Errorf("mockserver: no effect: %s was given up before a final answer%s", g.name, timeline(g.lines))
		}
	}
}

// AssertAtMostOnce fails if a command took effect more than once, per operation or per key.
func (e *Engine) AssertAtMostOnce(t TB) {
	t.Helper()
	e.atMostOnce(t, e.Commands())
}

func (e *Engine) atMostOnce(t TB, all []Request) {
	t.Helper()
	for _, g := range groups(all) {
		if n := g.effects(); n > 1 {
			why := "under one key: the server forgot it, or a gateway lost it"
			switch keys := g.keys(); {
			case slices.ContainsFunc(g.lines, func(r Request) bool { return r.Duplicate && r.Effect }):
				why = "as a gateway delivered it twice and its key did not reach the server"
			case len(keys) > 1:
				why = fmt.Sprintf("under %d keys: a fresh key was taken for another attempt", len(keys))
			case slices.ContainsFunc(g.lines, func(r Request) bool { return r.Key == "" }):
				why = "without a key on each attempt"
			}
			t.Errorf("mockserver: %d effects of %s, %s%s", n, g.name, why, timeline(g.lines))
		}
	}
}

// AssertSettled fails if the client gave a command up early: its last attempt got no whole answer, or one that says
// "try again" (408, 425, 429, 5xx).
func (e *Engine) AssertSettled(t TB) {
	t.Helper()
	for _, g := range groups(e.Commands()) {
		if last := g.last(); !last.final() {
			t.Errorf("mockserver: given up early: the last attempt of %s, #%d, got no final answer%s", g.name, last.N, timeline(g.lines))
		}
	}
}

// AssertSameKey fails if the attempts of one command differ in their key, or one key in its method, path, query or body
// bytes. Attempts belong together by Config.OperationOf; where that names nothing, a request is taken for a retry of an
// earlier one with the same method, path and payload that never got a final answer, or that was redirected to it.
func (e *Engine) AssertSameKey(t TB) {
	t.Helper()
	all := e.Commands()
	if len(all) == 0 {
		t.Errorf("mockserver: no command has arrived")
		return
	}
	for _, g := range groups(all) {
		sent := g.sent()
		for i, r := range sent {
			if why := sent[0].differs(r); i > 0 && why != "" {
				t.Errorf("mockserver: %s: #%d %s%s", g.name, r.N, why, timeline(g.lines))
				break
			}
		}
	}
}

func (r Request) differs(other Request) string {
	switch {
	case r.Key != "" && other.Key == "":
		return fmt.Sprintf("carries no key, and #%d did: the key was dropped", r.N)
	case r.Key == "" && other.Key == "":
		return fmt.Sprintf("repeats #%d, and neither carries a key", r.N)
	case r.Key != other.Key:
		return fmt.Sprintf("carries another key than #%d: a key is for the life of its command", r.N)
	case !sameBody(r, other):
		return fmt.Sprintf("has another body than #%d under the same key", r.N)
	case r.Method != other.Method || r.Path != other.Path || r.Query != other.Query:
		return fmt.Sprintf("goes elsewhere than #%d under the same key", r.N)
	}
	return ""
}

// sameBody: of a request whose client died while it sent, only what has come can be compared.
func sameBody(a, b Request) bool {
	switch {
	case a.Partial && len(a.Body) < len(b.Body):
		return bytes.HasPrefix(b.Body, a.Body)
	case b.Partial && len(b.Body) < len(a.Body):
		return bytes.HasPrefix(a.Body, b.Body)
	}
	return bytes.Equal(a.Body, b.Body)
}

// AssertConflictFinal fails if anything was sent again under a key, or for an operation, that a 409 had answered. One
// whose answer was lost, or had no client any more to go to, is not held against it.
func (e *Engine) AssertConflictFinal(t TB) {
	t.Helper()
	for _, g := range groups(e.Commands()) {
		sent := g.sent()
		for i, r := range sent[:max(0, len(sent)-1)] {
			if next := sent[i+1]; r.Status == 409 && !r.Lost && !r.HungUp && next.start > r.end {
				t.Errorf("mockserver: %s: #%d was sent after #%d had been answered with a 409: a conflict is never retried%s",
					g.name, next.N, r.N, timeline(g.lines))
				break
			}
		}
	}
}

// AssertNoOverlap fails if an attempt was sent while an earlier one of the same command was still being answered. An
// attempt that the client had given up by then is not held against it.
func (e *Engine) AssertNoOverlap(t TB) {
	t.Helper()
	for _, g := range groups(e.Commands()) {
		sent := g.sent()
		for i, r := range sent[:max(0, len(sent)-1)] {
			if next := sent[i+1]; r.end > next.start && !r.HungUp {
				t.Errorf("mockserver: %s: #%d was sent while #%d was being answered%s", g.name, next.N, r.N, timeline(g.lines))
				break
			}
		}
	}
}

// group is the attempts of one command.
type group struct {
	name  string
	shape string // method and payload of the latest, if a request may look like its retry
	lines []Request
}

// groups puts the attempts of each command together: by operation, by key, and by looking like a retry.
func groups(all []Request) []*group {
	var out []*group
	byName, byShape := map[string]*group{}, map[string][]*group{}
	for _, r := range all {
		mark, op, shape := r.mark, "", ""
		switch {
		case r.Operation != "":
			op = "operation\x00" + r.Operation
		case !r.Partial: // what has come of a request that was cut off looks like that of any other
			shape = r.Method + "\x00" + string(canonical(r.Body))
		}
		g := cmp.Or(byName[op], byName[mark])
		if g == nil && shape != "" {
			g = retried(byShape[shape], shape, r)
		}
		if g == nil {
			g = &group{name: r.title()}
			out = append(out, g)
		}
		g.lines = append(g.lines, r)
		for _, n := range []string{op, mark} {
			if n != "" {
				byName[n] = g
			}
		}
		switch {
		case r.Duplicate:
		case shape != "" && (!r.final() || r.redirect != ""):
			g.shape = shape
			byShape[shape] = append(byShape[shape], g)
		default:
			g.shape = ""
		}
	}
	return out
}

// retried finds the command that a request of this method and payload looks like a further attempt of.
func retried(gs []*group, shape string, r Request) *group {
	for _, g := range slices.Backward(gs) {
		if g.shape != shape {
			continue
		}
		last := g.last()
		switch {
		case last.end == 0 || last.end > r.start && !last.HungUp:
		case last.Path == r.Path && last.Query == r.Query && !last.final():
			return g
		case last.redirect != "" && (last.redirect == r.Path || strings.HasSuffix(last.redirect, r.Host+r.Path)):
			return g
		}
	}
	return nil
}

func (r Request) title() string {
	what := r.Method + " " + r.Path
	switch {
	case r.Operation != "":
		return "operation " + r.Operation + " (" + what + ")"
	case r.Key != "":
		return "key " + r.Key + " (" + what + ")"
	}
	return what + " without a key"
}

// sent are the attempts that the client made, without what a gateway delivered twice.
func (g *group) sent() []Request {
	if !slices.ContainsFunc(g.lines, func(r Request) bool { return r.Duplicate }) {
		return g.lines
	}
	return slices.DeleteFunc(slices.Clone(g.lines), func(r Request) bool { return r.Duplicate })
}

func (g *group) last() Request {
	for _, r := range slices.Backward(g.lines) {
		if !r.Duplicate {
			return r
		}
	}
	return g.lines[0] // the ledger has let the client's own go
}

func (g *group) effects() (n int) {
	for _, r := range g.lines {
		if r.Effect {
			n++
		}
	}
	return n
}

func (g *group) keys() []string {
	var keys []string
	for _, r := range g.lines {
		if r.Key != "" && !slices.Contains(keys, r.Key) {
			keys = append(keys, r.Key)
		}
	}
	return keys
}

// refused says whether the last answer was a refusal that arrived.
func (g *group) refused() bool {
	last := g.last()
	return last.final() && last.Status >= 300
}

// final says whether a request got a whole answer that a client may stop at.
func (r Request) final() bool {
	if r.end == 0 || r.Lost || r.HungUp || r.Status >= 500 {
		return false
	}
	return r.Status != 408 && r.Status != 425 && r.Status != 429
}

// timeline shows what happened to a command, one line an attempt.
func timeline(lines []Request) string {
	var b strings.Builder
	start := lines[0].At
	for _, r := range lines {
		answer := "no answer"
		switch {
		case r.Status != 0 && r.Lost:
			answer = itoa(r.Status) + " cut off"
		case r.Status != 0:
			answer = itoa(r.Status)
		case r.end == 0:
			answer = "running"
		}
		fmt.Fprintf(&b, "\n  #%-3d +%-8s %s %s  key %s", r.N, r.At.Sub(start).Round(time.Millisecond/10), r.Method, r.Path, cmp.Or(r.Key, "none"))
		for _, s := range []struct {
			on   bool
			text string
		}{
			{true, answer}, {r.Effect, "EFFECT"}, {r.Replayed, "replayed"}, {r.HungUp, "client left"},
			{r.Duplicate, "delivered twice by a gateway"}, {r.Fault != "", "fault " + r.Fault}, {true, "from " + r.RemoteAddr},
		} {
			if s.on {
				b.WriteString("  " + s.text)
			}
		}
	}
	return b.String()
}
