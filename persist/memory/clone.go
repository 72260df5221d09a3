package memory

import (
	"bytes"
	"slices"

	"github.com/samekey/samekey/persist"
)

// clone returns r with slices and maps of its own; nil stays nil, and empty stays empty.
func clone(r persist.Record) persist.Record {
	r.Created = r.Created.Round(0) // no monotonic reading: the order by age must be the same whoever compares
	r.Header = r.Header.Clone()
	r.Omitted = slices.Clone(r.Omitted)
	r.Body = bytes.Clone(r.Body)
	if r.Answer != nil {
		r.Answer = cloneAnswer(r.Answer)
	}
	return r
}

func cloneAnswer(a *persist.Answer) *persist.Answer {
	c := *a
	c.Header = a.Header.Clone()
	c.Body = bytes.Clone(a.Body)
	return &c
}

func fail(method string, ref persist.Ref, err error) error {
	return &persist.Error{Store: "memory", Method: method, Ref: ref, Err: err}
}
