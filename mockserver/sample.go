package mockserver

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// The sample API's own refusals: a payment of DeclinedAmount is declined with a 402, one above MaxAmount is a 422, and
// what is not a positive integer is a 400.
const (
	DeclinedAmount = 402
	MaxAmount      = 1_000_000_00
)

// sampleAPI is a shop with payments, orders and asynchronous operations. Its ids count up, so that runs are alike.
type sampleAPI struct {
	mux   *http.ServeMux
	now   func() time.Time
	after time.Duration

	mu         sync.Mutex
	n          map[string]int
	things     map[string]map[string]any // by path
	operations map[string]*operation
}

// operation is a command that was accepted with a 202.
type operation struct {
	id, kind, path string
	due            time.Time // zero: by command only
	thing          map[string]any
	state          string
}

func newSampleAPI(now func() time.Time, after time.Duration) *sampleAPI {
	if after == 0 {
		after = time.Second
	}
	s := &sampleAPI{mux: http.NewServeMux(), now: now, after: after}
	s.reset()
	s.mux.HandleFunc("POST /v1/payments", s.pay)
	s.mux.HandleFunc("POST /v1/orders", s.order)
	s.mux.HandleFunc("POST /v1/orders/{id}/cancel", s.cancel)
	s.mux.HandleFunc("GET /v1/payments/{id}", s.get)
	s.mux.HandleFunc("GET /v1/orders/{id}", s.get)
	s.mux.HandleFunc("PUT /v1/orders/{id}", s.put)
	s.mux.HandleFunc("PATCH /v1/orders/{id}", s.patch)
	s.mux.HandleFunc("DELETE /v1/orders/{id}", s.remove)
	s.mux.HandleFunc("GET /v1/operations/{id}", s.operation)
	s.mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		refuse(w, r, http.StatusNotFound, "NotFound", "There is nothing at "+r.URL.Path+".", nil)
	})
	return s
}

func (s *sampleAPI) reset() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.n, s.things, s.operations = map[string]int{}, map[string]map[string]any{}, map[string]*operation{}
}

func (s *sampleAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.mux.ServeHTTP(w, r) }

func (s *sampleAPI) pay(w http.ResponseWriter, r *http.Request) {
	in, ok := object(w, r)
	if !ok {
		return
	}
	amount, err := integer(in["amount"])
	switch currency, given := in["currency"]; {
	case err != nil || amount <= 0:
		refuse(w, r, 400, "InvalidAmount", "The amount is a positive number of minor units.", map[string]any{"field": "amount"})
	case given && !slices.Contains([]any{"RUB", "USD", "EUR"}, currency):
		refuse(w, r, 400, "InvalidCurrency", "The currency is RUB, USD or EUR.", map[string]any{"field": "currency"})
	case amount == DeclinedAmount:
		refuse(w, r, 402, "PaymentDeclined", "The bank has declined the payment.", map[string]any{"amount": amount})
	case amount > MaxAmount:
		refuse(w, r, 422, "AmountTooLarge", "No payment is above the limit.", map[string]any{"limit": MaxAmount})
	default:
		s.create(w, r, "payment", "pay", "/v1/payments/", in)
	}
}

func (s *sampleAPI) order(w http.ResponseWriter, r *http.Request) {
	in, ok := object(w, r)
	if !ok {
		return
	}
	if items, given := in["items"]; given {
		if list, isList := items.([]any); !isList || len(list) == 0 {
			refuse(w, r, 400, "InvalidItems", "The items are a list of at least one.", map[string]any{"field": "items"})
			return
		}
	}
	s.create(w, r, "order", "ord", "/v1/orders/", in)
}

// create makes a thing now, or later where the request asks for that by Prefer: respond-async or "async": true.
func (s *sampleAPI) create(w http.ResponseWriter, r *http.Request, kind, prefix, at string, in map[string]any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	id := s.next(prefix)
	in[kind+"Id"], in["status"] = id, "succeeded"
	in["links"] = map[string]any{"self": at + id}
	if in["async"] == true || strings.Contains(r.Header.Get("Prefer"), "respond-async") {
		op := &operation{id: s.next("op"), kind: kind, path: at + id, thing: in, state: "processing"}
		if s.after > 0 {
			op.due = s.now().Add(s.after)
		}
		s.operations[op.id] = op
		w.Header().Set("Retry-After", "1")
		w.Header().Set("Location", "/v1/operations/"+op.id)
		reply(w, http.StatusAccepted, op.view())
		return
	}
	s.things[at+id] = in
	w.Header().Set("Location", at+id)
	reply(w, http.StatusCreated, map[string]any{"status": "succeeded", kind + "Id": id, "links": in["links"]})
}

func (s *sampleAPI) next(prefix string) string {
	s.n[prefix]++
	return fmt.Sprintf("%s_%06d", prefix, s.n[prefix])
}

func (s *sampleAPI) get(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if thing := s.find(w, r, r.URL.Path); thing != nil {
		reply(w, http.StatusOK, thing)
	}
}

func (s *sampleAPI) find(w http.ResponseWriter, r *http.Request, at string) map[string]any {
	thing := s.things[at]
	if thing == nil {
		refuse(w, r, 404, "NotFound", "There is nothing at "+at+".", nil)
	}
	return thing
}

func (s *sampleAPI) cancel(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := strings.TrimSuffix(r.URL.Path, "/cancel")
	thing := s.find(w, r, at)
	switch {
	case thing == nil:
	case thing["status"] == "cancelled":
		refuse(w, r, 409, "AlreadyCancelled", "The order was cancelled before.", map[string]any{"order": at})
	default:
		thing["status"] = "cancelled"
		reply(w, http.StatusOK, map[string]any{"status": "succeeded", "orderId": thing["orderId"], "links": thing["links"]})
	}
}

func (s *sampleAPI) put(w http.ResponseWriter, r *http.Request) {
	in, ok := object(w, r)
	if !ok {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	at := r.URL.Path
	in["orderId"], in["links"] = r.PathValue("id"), map[string]any{"self": at}
	if in["status"] == nil {
		in["status"] = "succeeded"
	}
	status, before := http.StatusOK, s.things[at]
	switch {
	case before == nil:
		status = http.StatusCreated
		w.Header().Set("Location", at)
	case reflect.DeepEqual(before, in):
		NoEffect(r)
	}
	s.things[at] = in
	reply(w, status, in)
}

func (s *sampleAPI) patch(w http.ResponseWriter, r *http.Request) {
	in, ok := object(w, r)
	if !ok {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if thing := s.find(w, r, r.URL.Path); thing != nil {
		maps.Copy(thing, in)
		reply(w, http.StatusOK, thing)
	}
}

func (s *sampleAPI) remove(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.find(w, r, r.URL.Path) != nil {
		delete(s.things, r.URL.Path)
		w.WriteHeader(http.StatusNoContent)
	}
}

func (s *sampleAPI) operation(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	op := s.operations[r.PathValue("id")]
	if op == nil {
		refuse(w, r, 404, "NotFound", "There is no such operation.", nil)
		return
	}
	if !op.due.IsZero() && !s.now().Before(op.due) {
		s.end(op, "succeeded")
	}
	if op.state == "processing" {
		w.Header().Set("Retry-After", "1")
	}
	reply(w, http.StatusOK, op.view())
}

func (s *sampleAPI) end(op *operation, state string) {
	if op.state != "processing" {
		return
	}
	op.state = state
	if state == "succeeded" {
		s.things[op.path] = op.thing
	}
}

func (op *operation) view() map[string]any {
	links := map[string]any{"self": "/v1/operations/" + op.id}
	v := map[string]any{"status": op.state, "resultId": op.id, "links": links}
	switch op.state {
	case "succeeded":
		v[op.kind+"Id"] = op.thing[op.kind+"Id"]
		links["result"] = op.path
	case "failed":
		v["error"], v["message"] = "OperationFailed", "The operation has failed."
	}
	return v
}

// Finish ends an operation that the sample API has accepted with a 202, as succeeded or as failed. It says whether there
// is one of that id that is still processing.
func (e *Engine) Finish(id string, succeeded bool) bool {
	s := e.sample
	if s == nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	op := s.operations[id]
	if op == nil || op.state != "processing" {
		return false
	}
	if succeeded {
		s.end(op, "succeeded")
	} else {
		s.end(op, "failed")
	}
	return true
}

func object(w http.ResponseWriter, r *http.Request) (map[string]any, bool) {
	body, _ := io.ReadAll(r.Body)
	// What looks like JSON is JSON: curl -d says it is a form, whatever it is.
	form := strings.HasPrefix(r.Header.Get("Content-Type"), "application/x-www-form-urlencoded") && !bytes.HasPrefix(body, []byte("{"))
	if fields, err := url.ParseQuery(string(body)); form && err == nil {
		in := map[string]any{}
		for name, v := range fields {
			in[name] = v[0]
			if _, err := strconv.ParseInt(v[0], 10, 64); err == nil {
				in[name] = json.Number(v[0])
			}
		}
		return in, true
	}
	d := json.NewDecoder(bytes.NewReader(body))
	d.UseNumber()
	var in map[string]any
	if err := d.Decode(&in); err != nil || in == nil {
		refuse(w, r, 400, "InvalidBody", "The body is no JSON object.", nil)
		return nil, false
	}
	return in, true
}

func integer(v any) (int64, error) {
	n, ok := v.(json.Number)
	if !ok {
		return 0, fmt.Errorf("%v is no number", v)
	}
	return n.Int64()
}

func reply(w http.ResponseWriter, status int, v any) {
	b, err := json.Marshal(v)
	if err != nil {
		status, b = http.StatusInternalServerError, []byte(`{"error":"InternalError"}`)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(append(b, '\n'))
}

// refuse answers with the error envelope.
func refuse(w http.ResponseWriter, r *http.Request, status int, code, message string, details any) {
	trace := ""
	if x, ok := r.Context().Value(exchangeKey{}).(*exchange); ok {
		trace = x.trace()
	}
	reply(w, status, map[string]any{"error": code, "message": message, "details": details, "traceId": trace})
}
