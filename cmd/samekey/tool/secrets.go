package tool

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
)

// secrets are headers or parameters whose values come from the environment.
type secrets []secret

type secret struct{ name, value string }

// add notes NAME=env:VAR. What is wrong with it is for resolve to say: package flag would quote the value, which may be
// the secret itself.
func (s *secrets) add(v string) error {
	name, value, _ := strings.Cut(v, "=")
	*s = append(*s, secret{name, value})
	return nil
}

func (s secrets) resolve(env func(string) (string, bool)) error {
	for i, x := range s {
		from, ok := strings.CutPrefix(x.value, "env:")
		if !ok || x.name == "" || from == "" {
			return errors.New("a value on the command line can be read by everybody on this machine: put it into an environment variable, " +
				"and say NAME=env:VAR")
		}
		value, set := env(from)
		if !set || value == "" {
			return fmt.Errorf("the environment variable %s is not set", from)
		}
		if strings.ContainsFunc(value, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }) {
			return fmt.Errorf("the environment variable %s holds a line break or another control character", from)
		}
		s[i].value = value
	}
	return nil
}

// settable refuses headers that are not the caller's to set.
func (s secrets) settable() error {
	for i, h := range s {
		s[i].name = http.CanonicalHeaderKey(h.name)
		switch s[i].name {
		case "Host", "Content-Length", "Transfer-Encoding", "Connection", "Trailer":
			return fmt.Errorf("header %s cannot be set: it belongs to the request as it was recorded", s[i].name)
		}
	}
	return nil
}

func (s secrets) has(name string) bool {
	return slices.ContainsFunc(s, func(x secret) bool { return x.name == name })
}
