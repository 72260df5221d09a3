package openapi

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/samekey/samekey"
)

// match, rule and contract are those of samekey, as far as they are made here, in the form of a file.
type match struct {
	Status []int    `json:",omitempty"`
	Header string   `json:",omitempty"`
	Values []string `json:",omitempty"`
}

type rule struct {
	If    match
	Means string
}

type contract struct {
	Name      string `json:",omitempty"`
	Carrier   string
	MaxLength int    `json:",omitempty"`
	Format    string `json:",omitempty"`
	Life      string `json:",omitempty"`
	Rules     []rule `json:",omitempty"`
	Replayed  *match `json:",omitempty"`
	Echo      string `json:",omitempty"`
}

// PolicyFile writes the endpoints as samekey.LoadPolicies reads them.
func (d *Description) PolicyFile() ([]byte, error) {
	type policy struct {
		Command   *bool     `json:",omitempty"`
		KeyFormat string    `json:",omitempty"`
		Contract  *contract `json:",omitempty"` // what else may be in one is not made here
	}
	file := struct{ Endpoints map[string]policy }{map[string]policy{}}
	for _, e := range d.Endpoints {
		var out policy
		if on := e.Policy.Command == samekey.On; on || e.Policy.Command == samekey.Off {
			out.Command = &on
		}
		if e.Policy.KeyFormat != nil {
			out.KeyFormat = fmt.Sprint(e.Policy.KeyFormat)
		}
		if c := e.Policy.Contract; c != nil {
			out.Contract = write(c)
		}
		file.Endpoints[e.Pattern] = out
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(file); err != nil {
		return nil, fmt.Errorf("openapi: %w", err)
	}
	return b.Bytes(), nil
}

func write(c *samekey.Contract) *contract {
	out := &contract{Name: c.Name, Carrier: c.Carrier.String(), MaxLength: c.MaxLength, Format: c.Format, Echo: c.Echo}
	switch {
	case c.Life == samekey.Forever:
		out.Life = "forever"
	case c.Life > 0:
		out.Life = c.Life.String()
	}
	for _, r := range c.Rules {
		out.Rules = append(out.Rules, rule{match{Status: r.If.Status}, r.Means.String()})
	}
	if c.Replayed.Header != "" {
		out.Replayed = &match{Header: c.Replayed.Header, Values: c.Replayed.Values}
	}
	return out
}
