package mockserver

import (
	"encoding/json"
	"fmt"
	"net/http"
	"path"
	"regexp"
	"strings"
	"time"
)

// record is what the server remembers under a key: in progress until answer is there.
type record struct {
	id      string // the key in its scope
	payload payload
	born    time.Time
	done    chan struct{} // made by the first who waits, closed when the first request is over
	answer  *stored
	n       int // the n-th reservation

	stuck      bool      // a crash left the key in progress
	stuckUntil time.Time // zero: as long as the key lives
	hidden     *stored   // the answer of an effect that the crash did not let it store
}

var uuidForm = regexp.MustCompile(`^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$`)

// process answers the request as the profile has it: refuses, replays, waits, or runs the API.
func (x *exchange) process() *stored {
	e, p := x.e, &x.e.profile
	if !p.covers(x.r.Method) {
		if a := x.pendingOperation(); a != nil {
			return a
		}
		return x.runFree()
	}
	key, ok := p.Carrier.key(x.r, x.body, p.Lenient)
	switch {
	case key == "" && p.Require:
		return p.Missing.fill("", "", "", x.trace())
	case key == "" && x.crash != nil && x.crash.Do == doCrashReserved:
		return nil
	case key == "":
		return x.runFree()
	case !ok, len(key) > p.MaxLength, p.UUID && !uuidForm.MatchString(key), e.format != nil && !e.format.MatchString(key):
		return p.Malformed.fill(key, "", "", x.trace())
	}
	x.extra = append(x.extra, headerLine{p.Echo, key})
	return x.keyed(key)
}

// scoped is the key in its scope: the principal, and unless keys belong to the whole account, method and path.
func (x *exchange) scoped(key string) string {
	switch {
	case x.e.profile.Account:
		return x.line.Principal + "\x00" + key
	case key == x.line.Key:
		return x.line.mark
	}
	return mark(x.line.Principal, x.r.Method, x.line.Path, key)
}

func (x *exchange) keyed(key string) *stored {
	e, p := x.e, &x.e.profile
	id, payload := x.scoped(key), p.payload(x.r, x.body)
	for {
		e.mu.Lock()
		rec := e.lookup(id)
		if rec == nil {
			rec = e.reserve(id, payload)
			x.record = rec
			e.mu.Unlock()
			return x.first(rec)
		}
		x.record = rec
		answer, stuck := rec.answer, rec.stuck
		if rec.done == nil && answer == nil {
			rec.done = make(chan struct{})
		}
		done := rec.done
		e.mu.Unlock()
		switch {
		case !p.same(rec.payload, payload):
			return p.Mismatch.fill(key, answer.id(), rec.operation(), x.trace())
		case answer != nil:
			return x.replay(rec, key, answer)
		case !p.Wait || stuck:
			return p.InProgress.fill(key, "", rec.operation(), x.trace())
		}
		select {
		case <-done:
		case <-x.r.Context().Done():
			return p.InProgress.fill(key, "", rec.operation(), x.trace())
		case <-e.ctx.Done():
			return p.InProgress.fill(key, "", rec.operation(), x.trace())
		}
	}
}

// lookup finds a live record, and puts an end to what a crash left once its time is over.
func (e *Engine) lookup(id string) *record {
	e.sweep()
	rec := e.keys[id]
	if rec != nil && rec.stuck && !rec.stuckUntil.IsZero() && !e.now().Before(rec.stuckUntil) {
		e.cure(rec)
		rec = e.keys[id]
	}
	return rec
}

func (e *Engine) reserve(id string, p payload) *record {
	e.ledger.keys++
	rec := &record{id: id, payload: p, born: e.now(), n: e.ledger.keys}
	e.keys[id] = rec
	e.byAge = append(e.byAge, rec)
	return rec
}

// end lets go of those who wait for a record.
func (rec *record) end() {
	if rec.done != nil {
		close(rec.done)
		rec.done = nil
	}
}

// operation is where a record that is in progress can be polled.
func (rec *record) operation() string { return fmt.Sprintf("pend_%06d", rec.n) }

// first runs the command that a key was reserved for, and keeps its answer.
func (x *exchange) first(rec *record) *stored {
	e := x.e
	finished := false
	defer func() {
		if !finished { // the API panicked: as if nothing had come
			e.mu.Lock()
			e.drop(rec)
			e.mu.Unlock()
		}
	}()
	if c := x.crash; c != nil && c.Do == doCrashReserved {
		finished = true
		e.mu.Lock()
		e.strand(rec, nil, time.Duration(c.For))
		e.mu.Unlock()
		return nil
	}
	a, effect := x.run()
	finished = true
	e.mu.Lock()
	defer e.mu.Unlock()
	if effect {
		x.ledger.effect(x.line)
	}
	switch {
	case x.crash != nil:
		e.strand(rec, a, time.Duration(x.crash.For))
	case !e.profile.keeps(a.status):
		e.drop(rec)
	default:
		rec.answer = a
		rec.end()
	}
	return a
}

// strand leaves a key in progress, as a crash does.
func (e *Engine) strand(rec *record, hidden *stored, d time.Duration) {
	rec.stuck, rec.hidden = true, hidden
	if d > 0 {
		rec.stuckUntil = e.now().Add(d)
	}
	rec.end()
}

// drop forgets a record.
func (e *Engine) drop(rec *record) {
	if e.keys[rec.id] == rec {
		delete(e.keys, rec.id)
	}
	rec.end()
}

// cure does what a server's recovery does about a key that a crash left in progress: what took effect is completed
// from what it made, what did not is released.
func (e *Engine) cure(rec *record) {
	if rec.hidden == nil {
		e.drop(rec)
	}
	rec.answer, rec.stuck = rec.hidden, false
}

// Cure ends every crash: keys whose command took effect answer with its result, the others are free again. It returns
// how many keys were stuck.
func (e *Engine) Cure() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	n := 0
	for _, rec := range e.keys {
		if rec.stuck {
			n++
			e.cure(rec)
		}
	}
	return n
}

// ForgetKeys makes the server forget every key that is not being worked on, as a store that was lost does.
func (e *Engine) ForgetKeys() {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, rec := range e.keys {
		if rec.answer != nil || rec.stuck {
			delete(e.keys, rec.id)
		}
	}
}

// sweep forgets the keys whose time is over. Reservations lie in order, so that it looks at no more than it removes; a
// key still being worked on is put off.
func (e *Engine) sweep() {
	if e.ttl <= 0 {
		return
	}
	limit := e.now().Add(-e.ttl)
	for len(e.byAge) > 0 {
		rec := e.byAge[0]
		running := rec.answer == nil && !rec.stuck && e.keys[rec.id] == rec
		if rec.born.After(limit) || running {
			return
		}
		e.byAge[0] = nil
		e.byAge = e.byAge[1:]
		if e.keys[rec.id] == rec {
			delete(e.keys, rec.id)
		}
	}
}

// replay answers for a key that is completed.
func (x *exchange) replay(rec *record, key string, a *stored) *stored {
	x.e.mu.Lock()
	x.ledger.replay(x.line)
	x.e.mu.Unlock()
	p := &x.e.profile
	switch p.Replay {
	case ReplayError:
		return p.Repeated.fill(key, a.id(), rec.operation(), x.trace())
	case ReplayCurrent:
		if now := x.current(a); now != nil {
			a = now
		}
	}
	x.extra = append(x.extra, headerLine{p.Mark, key})
	return a
}

// current asks the API for what the first answer points at.
func (x *exchange) current(a *stored) *stored {
	at := a.header.Get("Location")
	if at == "" {
		return nil
	}
	r, err := http.NewRequestWithContext(x.r.Context(), http.MethodGet, at, http.NoBody)
	if err != nil {
		return nil
	}
	r.Header = x.r.Header.Clone()
	rec := &recorder{header: http.Header{}}
	x.e.api.ServeHTTP(rec, r)
	if now := rec.result(); now.status < 300 {
		return now
	}
	return nil
}

// pendingOperation answers polls of the address that the default profile gives while a key is in progress.
func (x *exchange) pendingOperation() *stored {
	op := path.Base(x.r.URL.Path)
	if !strings.HasPrefix(op, "pend_") {
		return nil
	}
	x.e.mu.Lock()
	defer x.e.mu.Unlock()
	for _, rec := range x.e.keys {
		if rec.operation() != op {
			continue
		}
		rec = x.e.lookup(rec.id)
		if rec == nil {
			return nil
		}
		state := map[string]any{}
		if rec.answer == nil {
			state["status"] = "processing"
		} else {
			_ = json.Unmarshal(rec.answer.body, &state)
			if rec.answer.status >= 400 {
				state["status"] = "failed"
			}
		}
		state["resultId"] = op
		return jsonAnswer(http.StatusOK, state)
	}
	return nil
}

// id is the last element of the Location: what the command made.
func (a *stored) id() string {
	if a == nil {
		return ""
	}
	return path.Base(a.header.Get("Location"))
}

func jsonAnswer(status int, v any) *stored {
	b, _ := json.Marshal(v)
	return &stored{status: status, header: http.Header{"Content-Type": {"application/json"}}, body: b}
}
