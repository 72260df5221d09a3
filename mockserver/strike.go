package mockserver

import (
	"context"
	"maps"
	"net/http"
	"time"
)

// pace is how an answer is written: cut off or stalled in the middle, or slowly.
type pace struct {
	cut     bool
	chunked bool
	stall   bool
	silence time.Duration
	slow    time.Duration
}

func (p pace) zero() bool { return p == pace{} }

// early does what comes before the commit in either phase: a gateway's doings with the request and the answer, 1xx
// answers, and what is about the commit itself.
func (x *exchange) early() {
	if x.fault == nil {
		return
	}
	for i := range x.fault.Do.steps {
		switch s := &x.fault.Do.steps[i]; s.Do {
		case doStrip, doRename:
			v := x.r.Header.Values(s.Name)
			x.r.Header.Del(s.Name)
			if s.Do == doRename {
				x.r.Header[http.CanonicalHeaderKey(s.Value)] = v
			}
			x.reread()
		case doInformational:
			h := x.w.Header()
			maps.Copy(h, s.Header)
			x.w.WriteHeader(s.Code)
			for name := range s.Header {
				h.Del(name)
			}
		case doCrashReserved, doCrashUnstored:
			x.crash = s
		case doDuplicate:
			x.twice = true
		case doAnswerHeader, doStripAnswer:
			x.edits = append(x.edits, *s)
		}
	}
}

// reread notes the key that is left after a gateway.
func (x *exchange) reread() {
	key, _ := x.e.profile.Carrier.key(x.r, x.body, x.e.profile.Lenient)
	x.e.mu.Lock()
	defer x.e.mu.Unlock()
	x.line.SeenKey = key
}

// redeliver gives the API the request once more, as a gateway does that has lost the first answer.
func (x *exchange) redeliver() {
	line := *x.line
	d := &exchange{e: x.e, ledger: x.ledger, w: x.w, r: x.r, body: x.body, line: &line, extra: x.extra}
	line.Duplicate, line.Effect, line.Replayed = true, false, false
	x.e.mu.Lock()
	line.At = x.e.now()
	x.ledger.add(&line)
	x.e.mu.Unlock()
	x.answer = d.process()
	x.extra = d.extra
	if x.answer != nil {
		d.over(x.answer.status, false)
	}
}

// acts strikes if the fault is one of this phase, and says whether the exchange is over.
func (x *exchange) acts(now Phase) bool {
	if x.fault == nil || x.fault.When != now {
		return now == AfterCommit && x.crashed()
	}
	for _, s := range x.fault.Do.steps {
		if x.strike(s, now) {
			return true
		}
	}
	return now == AfterCommit && x.crashed()
}

// crashed ends an exchange whose commit was broken.
func (x *exchange) crashed() bool {
	if x.crash != nil {
		x.drop()
	}
	return x.crash != nil
}

// strike does one step and says whether the exchange is over.
func (x *exchange) strike(s step, now Phase) bool {
	switch s.Do {
	case doDrop:
		x.drop()
	case doReset:
		x.reset()
	case doHalfClose:
		x.halfClose()
	case doGoAway:
		x.goAway()
	case doStreamReset:
		x.streamReset(uint32(s.Code))
	case doRaw:
		x.raw([]byte(*s.Body))
	case doStall:
		x.over(0, true)
		x.e.wait(x.r.Context(), time.Duration(s.For))
		x.drop()
	case doStatus:
		x.status(s, now)
	case doCut, doCutChunked, doStallBody:
		x.pace.cut, x.pace.chunked, x.pace.stall = true, s.Do == doCutChunked, s.Do == doStallBody
		x.pace.silence = time.Duration(s.For)
		x.write()
	case doSlow:
		x.pace.slow = time.Duration(s.For)
		return false
	case doDelay:
		if s.For > 0 {
			x.e.wait(context.WithoutCancel(x.r.Context()), time.Duration(s.For))
		}
		return false
	case doForget:
		x.forget()
		return false
	default:
		return false
	}
	return true
}

func (x *exchange) forget() {
	x.e.mu.Lock()
	defer x.e.mu.Unlock()
	if x.record != nil {
		x.e.drop(x.record)
	}
}

// status answers in place of the API, and leaves that answer under the key if it is to be stored.
func (x *exchange) status(s step, now Phase) {
	a := &stored{status: s.Code, header: s.Header.Clone()}
	if a.header == nil {
		a.header = http.Header{}
	}
	switch {
	case s.Body != nil:
		a.body = []byte(*s.Body)
	case s.Code >= 400:
		a.body = jsonAnswer(s.Code, map[string]any{"error": "InjectedFault", "message": http.StatusText(s.Code),
			"details": nil, "traceId": x.trace()}).body
	}
	if len(a.body) > 0 && a.header.Get("Content-Type") == "" {
		a.header.Set("Content-Type", "application/json")
	}
	if s.Stored {
		x.store(a, now)
	}
	x.answer, x.extra = a, nil // what the engine says of keys is not this answer's
	x.write()
}

// store puts an answer under the key of the request.
func (x *exchange) store(a *stored, now Phase) {
	e, p := x.e, &x.e.profile
	key, ok := p.Carrier.key(x.r, x.body, p.Lenient)
	if key == "" || !ok || !p.covers(x.r.Method) {
		return
	}
	id, payload := x.scoped(key), p.payload(x.r, x.body)
	e.mu.Lock()
	defer e.mu.Unlock()
	rec := e.lookup(id)
	if rec == nil {
		rec = e.reserve(id, payload)
	} else if now == BeforeCommit || rec.answer == nil || !p.same(rec.payload, payload) {
		return // what the key knows already stands
	}
	rec.answer = a
}

// edit changes the headers of an answer on their way out.
func (s step) edit(h http.Header) {
	if s.Do == doStripAnswer {
		h.Del(s.Name)
		return
	}
	h.Set(s.Name, s.Value)
}

// writePaced sends the answer in part or slowly.
func (x *exchange) writePaced(a *stored) {
	c := http.NewResponseController(x.w)
	body := a.body
	if x.pace.cut {
		if len(body) == 0 && !x.pace.chunked {
			x.drop() // there is nothing to cut
			return
		}
		body = body[:len(body)/2]
		x.over(a.status, true)
	}
	x.w.WriteHeader(a.status)
	if x.pace.slow > 0 {
		if !x.slowly(c, body) {
			x.over(a.status, true)
			panic(http.ErrAbortHandler)
		}
	} else {
		_, _ = x.w.Write(body)
	}
	if !x.pace.cut {
		x.over(a.status, false)
		return
	}
	_ = c.Flush()
	if x.pace.stall {
		x.e.wait(x.r.Context(), x.pace.silence)
	}
	panic(http.ErrAbortHandler) // net/http closes the connection, or resets the stream
}

func (x *exchange) slowly(c *http.ResponseController, body []byte) bool {
	_ = c.Flush()
	for i := range body {
		if !x.e.wait(x.r.Context(), x.pace.slow) {
			return false
		}
		if _, err := x.w.Write(body[i : i+1]); err != nil || c.Flush() != nil {
			return false
		}
	}
	return true
}
