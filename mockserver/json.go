package mockserver

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// duration is written "1.5s" in JSON.
type duration time.Duration

func (d duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

func (d *duration) UnmarshalText(b []byte) error {
	v, err := time.ParseDuration(string(b))
	*d = duration(v)
	return err
}

// faultJSON is the JSON form of a Fault.
type faultJSON struct {
	Match   string  `json:"match,omitempty"`
	When    string  `json:"when,omitempty"` // before (the default), after
	Do      Action  `json:"do"`
	Times   int     `json:"times,omitempty"`
	Skip    int     `json:"skip,omitempty"`
	Attempt int     `json:"attempt,omitempty"`
	Key     string  `json:"key,omitempty"`
	Share   float64 `json:"share,omitempty"`
}

// MarshalJSON gives the form that UnmarshalJSON takes.
func (f Fault) MarshalJSON() ([]byte, error) {
	j := faultJSON{f.Match, "before", f.Do, f.Times, f.Skip, f.Attempt, f.Key, f.Share}
	if f.When == AfterCommit {
		j.When = "after"
	}
	return json.Marshal(j)
}

// UnmarshalJSON takes {"match": "POST /v1/payments", "when": "after", "do": "drop", "times": 1}; do is the name of an
// action, an object such as {"do": "status", "code": 503, "header": {"Retry-After": ["1"]}}, or a list of either.
func (f *Fault) UnmarshalJSON(b []byte) error {
	var j faultJSON
	if err := strict(b, &j); err != nil {
		return err
	}
	*f = Fault{Match: j.Match, Do: j.Do, Times: j.Times, Skip: j.Skip, Attempt: j.Attempt, Key: j.Key, Share: j.Share}
	switch j.When {
	case "", "before":
	case "after":
		f.When = AfterCommit
	default:
		return fmt.Errorf("when is %q: it is before or after", j.When)
	}
	return nil
}

// MarshalJSON gives the list of the action's steps.
func (a Action) MarshalJSON() ([]byte, error) { return json.Marshal(a.steps) }

// UnmarshalJSON takes a name, an object, or a list of either.
func (a *Action) UnmarshalJSON(b []byte) error {
	a.steps = nil
	if b = bytes.TrimSpace(b); len(b) == 0 || b[0] != '[' {
		b = slices.Concat([]byte("["), b, []byte("]"))
	}
	var raw []json.RawMessage
	if err := json.Unmarshal(b, &raw); err != nil {
		return err
	}
	for _, r := range raw {
		var s step
		if json.Unmarshal(r, &s.Do) != nil {
			if err := strict(r, &s); err != nil {
				return err
			}
		}
		if err := s.check(); err != nil {
			return err
		}
		a.steps = append(a.steps, s)
	}
	return nil
}

var actionNames = []string{doDrop, doReset, doHalfClose, doCut, doCutChunked, doStatus, doRaw, doStall, doStallBody, doDelay,
	doSlow, doInformational, doStrip, doRename, doAnswerHeader, doStripAnswer, doDuplicate, doForget, doCrashReserved,
	doCrashUnstored, doGoAway, doStreamReset}

func (s step) check() error {
	switch {
	case !slices.Contains(actionNames, s.Do):
		return fmt.Errorf("no action is named %q: they are %s", s.Do, strings.Join(actionNames, ", "))
	case s.Do == doStatus && (s.Code < 200 || s.Code > 999):
		return fmt.Errorf("status needs a code from 200 to 999")
	case s.Do == doInformational && (s.Code < 102 || s.Code > 199):
		return fmt.Errorf("informational needs a code from 102 to 199")
	case s.Do == doRaw && s.Body == nil:
		return fmt.Errorf("raw needs a body")
	case s.Name == "" && slices.Contains([]string{doStrip, doRename, doAnswerHeader, doStripAnswer}, s.Do),
		s.Value == "" && s.Do == doRename:
		return fmt.Errorf("%s needs a name (and rename-header a value)", s.Do)
	}
	return nil
}

func strict(b []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	return d.Decode(v)
}

// ReadFaults reads a JSON list of faults, or one fault.
func ReadFaults(r io.Reader) ([]Fault, error) {
	b, err := io.ReadAll(r)
	if err != nil {
		return nil, err
	}
	if b = bytes.TrimSpace(b); len(b) == 0 || b[0] != '[' {
		b = slices.Concat([]byte("["), b, []byte("]"))
	}
	var out []Fault
	if err := strict(b, &out); err != nil {
		return nil, fmt.Errorf("faults: %w", err)
	}
	return out, nil
}
