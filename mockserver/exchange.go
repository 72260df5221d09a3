package mockserver

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"strings"
)

// exchange is one request on its way through the engine.
type exchange struct {
	e      *Engine
	ledger *ledger // the one at its beginning: Reset makes a new one
	w      http.ResponseWriter
	r      *http.Request
	body   []byte
	line   *Request
	fault  *Fault
	pace   pace // how the answer is written
	record *record
	crash  *step        // a crash within the commit
	twice  bool         // a gateway delivers the request a second time
	extra  []headerLine // that the profile adds to the answer
	edits  []step
	answer *stored

	rec      recorder     // what the API writes to
	input    bytes.Reader // what it reads from
	noEffect bool         // what it says about itself
}

// stored is an answer of the API, whole.
type stored struct {
	status int
	header http.Header
	body   []byte
}

// headerLine is "Name: value" with a {key} in it.
type headerLine struct{ text, key string }

func (l headerLine) add(h http.Header) {
	name, value, ok := strings.Cut(l.text, ": ")
	if ok && h.Get(name) == "" {
		h.Set(name, strings.ReplaceAll(value, "{key}", l.key))
	}
}

const maxBody = 64 << 20

// receive reads the request whole and enters it into the ledger, before anything can go wrong with it.
func (e *Engine) receive(w http.ResponseWriter, r *http.Request) *exchange {
	body, err := readBody(w, r)
	x := &exchange{e: e, w: w, r: r, body: body}
	key, _ := e.profile.Carrier.key(r, body, e.profile.Lenient)
	x.line = &Request{
		Principal: e.cfg.PrincipalOf(r), Method: r.Method, Path: r.URL.EscapedPath(), Query: r.URL.RawQuery,
		Proto: r.Proto, Host: r.Host, Key: key, SeenKey: key, Operation: e.cfg.OperationOf(r, body), flat: flatten(r.Header), Body: body,
		RemoteAddr: r.RemoteAddr, Partial: err != nil,
	}
	if key != "" {
		x.line.mark = mark(x.line.Principal, r.Method, x.line.Path, key)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	x.line.At = e.now()
	x.ledger = e.ledger
	x.ledger.add(x.line)
	x.fault = e.draw(x)
	return x
}

// readBody reads a body of known length into just as many bytes, since the ledger keeps them.
func readBody(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	if n := r.ContentLength; n >= 0 && n <= maxBody {
		b := make([]byte, n)
		read, err := io.ReadFull(r.Body, b)
		return b[:read], err
	}
	return io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
}

// over ends the request in the ledger: status 0 if no answer went out, lost if it did not go out whole.
func (x *exchange) over(status int, lost bool) {
	x.e.mu.Lock()
	defer x.e.mu.Unlock()
	if x.line.end != 0 {
		return
	}
	x.line.End = x.e.now()
	x.line.Status, x.line.Lost = status, lost
	x.line.HungUp = x.r.Context().Err() != nil
	x.ledger.finish(x.line)
}

func (x *exchange) finish() { x.over(0, true) }

// write sends the answer as x.pace asks.
func (x *exchange) write() {
	a := x.answer
	if a == nil {
		a = &stored{status: http.StatusOK, header: http.Header{"Content-Type": {"application/json"}},
			body: []byte(`{"status":"succeeded"}`)}
	}
	h := x.w.Header()
	maps.Copy(h, a.header) // the values are shared, and only ever replaced
	for _, l := range x.extra {
		l.add(h)
	}
	for _, s := range x.edits {
		s.edit(h)
	}
	bodiless := x.r.Method == http.MethodHead || a.status == http.StatusNoContent || a.status == http.StatusNotModified
	if !bodiless && !x.pace.chunked {
		h.Set("Content-Length", itoa(len(a.body)))
	}
	if loc := h.Get("Location"); loc != "" && a.status/100 == 3 {
		x.redirected(loc)
	}
	if x.pace.zero() {
		// The line ends before the last byte leaves, so that whoever has the answer finds it in the ledger.
		x.over(a.status, false)
		x.w.WriteHeader(a.status)
		if !bodiless {
			_, _ = x.w.Write(a.body)
		}
		return
	}
	x.writePaced(a)
}

func (x *exchange) redirected(to string) {
	x.e.mu.Lock()
	defer x.e.mu.Unlock()
	x.line.redirect = to
}

// run has the API do its work, and says whether that had an effect.
func (x *exchange) run() (a *stored, effect bool) {
	x.rec = recorder{header: http.Header{}}
	x.input.Reset(x.body)
	x.noEffect = false
	r := x.r.WithContext(context.WithValue(x.r.Context(), exchangeKey{}, x))
	r.Body = io.NopCloser(&x.input)
	x.e.api.ServeHTTP(&x.rec, r)
	a = x.rec.result()
	return a, a.status < 400 && changes(r.Method) && !x.noEffect
}

// runFree runs a request that no key is in charge of.
func (x *exchange) runFree() *stored {
	a, effect := x.run()
	if effect {
		x.e.mu.Lock()
		x.ledger.effect(x.line)
		x.e.mu.Unlock()
	}
	return a
}

type exchangeKey struct{}

// NoEffect tells the engine that this request changed nothing although it succeeded, such as a PUT of what is there
// already. An API calls it before it returns.
func NoEffect(r *http.Request) {
	if x, ok := r.Context().Value(exchangeKey{}).(*exchange); ok {
		x.noEffect = true
	}
}

func changes(method string) bool {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace:
		return false
	}
	return true
}

// recorder is the ResponseWriter that the API writes to.
type recorder struct {
	header http.Header
	status int
	body   []byte
	late   http.Header // what is set once the headers have gone out
}

func (w *recorder) Header() http.Header {
	if w.status == 0 {
		return w.header
	}
	if w.late == nil {
		w.late = w.header.Clone()
	}
	return w.late
}

func (w *recorder) WriteHeader(status int) {
	if w.status == 0 && status >= 200 {
		w.status = status
	}
}

func (w *recorder) Write(p []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	w.body = append(w.body, p...)
	return len(p), nil
}

// Flush is there for APIs that ask for it; the answer is sent once it is whole.
func (w *recorder) Flush() {}

func (w *recorder) result() *stored {
	w.WriteHeader(http.StatusOK)
	if w.header.Get("Content-Type") == "" && len(w.body) > 0 {
		w.header.Set("Content-Type", http.DetectContentType(w.body))
	}
	return &stored{status: w.status, header: w.header, body: w.body}
}

// trace is a trace id that is the same in each run.
func (x *exchange) trace() string {
	x.e.mu.Lock()
	defer x.e.mu.Unlock()
	return fmt.Sprintf("%016x", x.e.cfg.Seed<<32+uint64(x.line.N))
}
