package samekey

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/samekey/samekey/internal/wire"
)

// Result is the envelope of a command's answer.
type Result struct {
	Status  string            `json:"status"` // "succeeded", "accepted", "processing", "failed"
	ID      string            `json:"-"`      // resultId, else the first member whose name ends in Id, else id
	Message string            `json:"message"`
	Links   map[string]string `json:"links"`
}

// ResultOf reads the envelope of resp, whose body can be read again afterwards, whatever it returns. Members that are not
// there, or not what they are here, are empty; an error says that the body could not be read, is no JSON object, or is
// above 1 MiB, and above Policy.MaxResponse if it answers a command.
func ResultOf(resp *http.Response) (Result, error) {
	body, err := peek(resp)
	if err != nil {
		return Result{}, err
	}
	var r Result
	if err := readMembers(body, &r); err != nil {
		return Result{}, fmt.Errorf("samekey: the answer is no result: %w", err)
	}
	r.ID = idIn(body)
	return r, nil
}

// readMembers reads an object, and leaves out members of another type than v has for them.
func readMembers(body []byte, v any) error {
	err := json.Unmarshal(body, v)
	if other, ok := errors.AsType[*json.UnmarshalTypeError](err); ok && other.Field != "" {
		return nil
	}
	return err
}

// idIn finds the result's identifier, in the order of the document.
func idIn(body []byte) (id string) {
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.UseNumber()
	if _, err := dec.Token(); err != nil {
		return ""
	}
	var plain, suffixed string
	for dec.More() {
		name, err := dec.Token()
		if err != nil {
			break
		}
		var value any
		if dec.Decode(&value) != nil {
			break
		}
		text := ""
		switch v := value.(type) {
		case string:
			text = v
		case json.Number:
			text = v.String()
		}
		switch {
		case text == "":
		case name == "resultId":
			return text
		case name == "id":
			plain = text
		case suffixed == "" && strings.HasSuffix(name.(string), "Id") && name != "traceId":
			suffixed = text
		}
	}
	if suffixed != "" {
		return suffixed
	}
	return plain
}

// APIError is an API's own account of why a command was rejected: the envelope error, message, details, traceId, or
// problem details (RFC 9457), whose title and detail then stand for code and message.
type APIError struct {
	Status  int
	Code    string          // error; type or title of a problem
	Message string          // message; detail of a problem
	TraceID string          // traceId
	Details json.RawMessage // details, as it is; nil: none
	Problem *Problem        // nil: no problem details
}

// Problem is RFC 9457's.
type Problem struct {
	Type     string `json:"type"`
	Title    string `json:"title"`
	Status   int    `json:"status"`
	Detail   string `json:"detail"`
	Instance string `json:"instance"`
}

func (e *APIError) Error() string {
	s := fmt.Sprintf("status %d", e.Status)
	for _, part := range []string{e.Code, e.Message} {
		if part != "" {
			s += ": " + oneLine.Replace(part)
		}
	}
	if e.TraceID != "" {
		s += " (trace " + oneLine.Replace(e.TraceID) + ")"
	}
	return s
}

// APIErrorOf turns a response from 400 on into an error, nil for any other; err is about reading it, as with [ResultOf].
// Compare the *APIError itself with nil: in a variable of type error a nil one is not nil.
func APIErrorOf(resp *http.Response) (*APIError, error) {
	if resp.StatusCode < 400 {
		return nil, nil
	}
	body, err := peek(resp)
	if err != nil {
		return nil, err
	}
	return (&Reply{Status: resp.StatusCode, Header: resp.Header, Body: body}).APIError(), nil
}

// APIError is the API's own account in r, as far as it can be read.
func (r *Reply) APIError() *APIError {
	e := &APIError{Status: r.Status}
	var envelope struct {
		Error   json.RawMessage `json:"error"`
		Message string          `json:"message"`
		Details json.RawMessage `json:"details"`
		TraceID string          `json:"traceId"`
	}
	if readMembers(r.Body, &envelope) != nil {
		return e
	}
	e.Message, e.Details, e.TraceID = envelope.Message, envelope.Details, envelope.TraceID
	_ = json.Unmarshal(envelope.Error, &e.Code) // some APIs have an object there
	kind, _, _ := strings.Cut(r.Header.Get("Content-Type"), ";")
	if p := new(Problem); strings.EqualFold(strings.TrimSpace(kind), "application/problem+json") && readMembers(r.Body, p) == nil {
		e.Problem = p
		if e.Code == "" {
			if e.Code = p.Type; e.Code == "" || e.Code == "about:blank" {
				e.Code = p.Title
			}
		}
		if e.Message == "" {
			e.Message = p.Detail
		}
	}
	return e
}

// maxEnvelope bounds what is read of an answer that is not in memory already.
const maxEnvelope = 1 << 20

// peek reads the body and puts back what it has read.
func peek(resp *http.Response) ([]byte, error) {
	limit := int64(maxEnvelope)
	if r := resultOf(resp); r != nil {
		limit = max(limit, int64(len(r.body)))
	}
	body, err := wire.ReadUpTo(resp.Body, -1, limit)
	if err == nil && int64(len(body)) <= limit {
		err := resp.Body.Close()
		resp.Body = newBytesBody(body)
		return body, err
	}
	after := io.Reader(resp.Body)
	if err != nil {
		after = failed{err}
	} else {
		err = fmt.Errorf("it is too large for an envelope, above %d bytes", limit)
	}
	resp.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(body), after), resp.Body}
	return nil, fmt.Errorf("samekey: reading the answer: %w", err)
}

// failed is what follows a body that could not be read to its end.
type failed struct{ err error }

func (f failed) Read([]byte) (int, error) { return 0, f.err }
