package mockserver

import (
	"io"
	"net/http"
	"strings"
	"time"
)

const adminPath = "/_mock/"

// serveAdmin serves the engine's own paths and says whether the request was for one.
func (e *Engine) serveAdmin(w http.ResponseWriter, r *http.Request) bool {
	if !strings.HasPrefix(r.URL.Path, adminPath) && (r.URL.Path != "/" || e.sample == nil) {
		return false
	}
	e.admin.ServeHTTP(w, r)
	return true
}

func (e *Engine) adminMux() http.Handler {
	mux := http.NewServeMux()
	e.addPage(mux)
	mux.HandleFunc("GET /_mock/ledger", func(w http.ResponseWriter, _ *http.Request) { reply(w, 200, e.Totals()) })
	mux.HandleFunc("GET /_mock/requests", func(w http.ResponseWriter, r *http.Request) { reply(w, 200, e.rows(r.FormValue("key"))) })
	mux.HandleFunc("GET /_mock/faults", func(w http.ResponseWriter, _ *http.Request) { reply(w, 200, e.faultStates()) })
	mux.HandleFunc("POST /_mock/faults", e.postFaults)
	mux.HandleFunc("DELETE /_mock/faults", func(w http.ResponseWriter, _ *http.Request) {
		e.ClearFaults()
		w.WriteHeader(http.StatusNoContent)
	})
	mux.HandleFunc("GET /_mock/clock", func(w http.ResponseWriter, _ *http.Request) { e.replyClock(w) })
	mux.HandleFunc("POST /_mock/clock", e.postClock)
	mux.HandleFunc("POST /_mock/reset", func(w http.ResponseWriter, _ *http.Request) {
		e.Reset()
		w.WriteHeader(http.StatusNoContent)
	})
	mux.HandleFunc("POST /_mock/cure", func(w http.ResponseWriter, _ *http.Request) {
		reply(w, 200, map[string]int{"cured": e.Cure()})
	})
	mux.HandleFunc("POST /_mock/forget", func(w http.ResponseWriter, _ *http.Request) {
		e.ForgetKeys()
		w.WriteHeader(http.StatusNoContent)
	})
	mux.HandleFunc("POST /_mock/operations/{id}", e.postOperation)
	return http.NewCrossOriginProtection().Handler(mux) // another site's page has no business here
}

func (e *Engine) postFaults(w http.ResponseWriter, r *http.Request) {
	faults, err := ReadFaults(http.MaxBytesReader(w, r.Body, maxBody))
	if err == nil {
		err = e.SetFaults(faults...)
	}
	if err != nil {
		refuse(w, r, 400, "InvalidFault", err.Error(), nil)
		return
	}
	reply(w, 200, e.faultStates())
}

func (e *Engine) replyClock(w http.ResponseWriter) {
	reply(w, 200, map[string]any{"now": e.Now().Format(time.RFC3339Nano)})
}

// postClock takes {"advance": "25h"} or {"now": "2030-01-02T03:04:05Z"}.
func (e *Engine) postClock(w http.ResponseWriter, r *http.Request) {
	var in struct {
		Advance duration
		Now     time.Time
	}
	if err := strictly(w, r, &in); err != nil {
		refuse(w, r, 400, "InvalidClock", err.Error(), nil)
		return
	}
	if !in.Now.IsZero() {
		e.SetNow(in.Now)
	}
	e.Advance(time.Duration(in.Advance))
	e.replyClock(w)
}

// strictly reads a body that has no members but v's.
func strictly(w http.ResponseWriter, r *http.Request, v any) error {
	b, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		return err
	}
	return strict(b, v)
}

// postOperation takes {"status": "succeeded"} or {"status": "failed"}.
func (e *Engine) postOperation(w http.ResponseWriter, r *http.Request) {
	var in struct{ Status string }
	err := strictly(w, r, &in)
	switch {
	case err != nil || in.Status != "succeeded" && in.Status != "failed":
		refuse(w, r, 400, "InvalidStatus", "The status is succeeded or failed.", nil)
	case !e.Finish(r.PathValue("id"), in.Status == "succeeded"):
		refuse(w, r, 404, "NotFound", "No such operation is processing.", nil)
	default:
		w.WriteHeader(http.StatusNoContent)
	}
}

// faultState is a fault and what it has done so far.
type faultState struct {
	Fault   Fault  `json:"fault"`
	Text    string `json:"text"`
	Matched int    `json:"matched"`
	Fired   int    `json:"fired"`
}

func (e *Engine) faultStates() []faultState {
	e.mu.Lock()
	defer e.mu.Unlock()
	out := make([]faultState, len(e.faults))
	for i, a := range e.faults {
		out[i] = faultState{a.Fault, a.String(), a.matched, a.fired}
	}
	return out
}

// row is a Request as the admin paths show it: without credentials.
type row struct {
	N         int         `json:"n"`
	At        time.Time   `json:"at"`
	End       *time.Time  `json:"end"` // null: still running
	Principal string      `json:"principal"`
	Method    string      `json:"method"`
	Path      string      `json:"path"`
	Query     string      `json:"query,omitempty"`
	Proto     string      `json:"proto"`
	Key       string      `json:"key"`
	SeenKey   string      `json:"seenKey"`
	Operation string      `json:"operation,omitempty"`
	Header    http.Header `json:"header"`
	Body      string      `json:"body"`
	Remote    string      `json:"remote"`
	Status    int         `json:"status"`
	Fault     string      `json:"fault,omitempty"`
	Effect    bool        `json:"effect"`
	Replayed  bool        `json:"replayed"`
	Lost      bool        `json:"lost"`
	HungUp    bool        `json:"hungUp"`
	Duplicate bool        `json:"duplicate"`
}

func (e *Engine) rows(key string) []row {
	out := []row{}
	for _, r := range e.Requests() {
		if key == "" || r.Key == key {
			out = append(out, r.row())
		}
	}
	return out
}

func (r Request) row() row {
	for _, secret := range []string{"Authorization", "Cookie", "Proxy-Authorization"} {
		if r.Header.Get(secret) != "" {
			r.Header.Set(secret, "(hidden)")
		}
	}
	v := row{r.N, r.At, nil, r.Principal, r.Method, r.Path, r.Query, r.Proto, r.Key, r.SeenKey, r.Operation, r.Header,
		string(r.Body), r.RemoteAddr, r.Status, r.Fault, r.Effect, r.Replayed, r.Lost, r.HungUp, r.Duplicate}
	if r.end != 0 {
		v.End = &r.End
	}
	return v
}
