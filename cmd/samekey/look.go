package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"iter"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/samekey/samekey/internal/endpoint"
	"github.com/samekey/samekey/persist"
	"github.com/samekey/samekey/persist/journal"
)

// lockFile is there in every journal that was ever opened.
const lockFile = "lock"

// look reads the journal in dir, beside a living owner too. What is damaged is said on stderr.
func (t *tool) look(dir string) (*journal.View, error) {
	v, err := journal.ReadOnly(dir)
	if err != nil {
		return nil, bad("%w", err)
	}
	if !isJournal(dir) {
		return nil, errors.Join(notJournal(dir), v.Close())
	}
	if n := len(v.Report().Damage); n > 0 {
		t.warn("%s is damaged in %s, this is what is left: samekey check tells more", dir, count(n, "place", "places"))
	}
	return v, nil
}

// damaged ends a command that read a damaged journal: what it did not find may have been there.
func damaged(v *journal.View) error {
	if r := v.Report(); len(r.Damage) > 0 {
		return quiet(exitNo)
	}
	return nil
}

func notJournal(dir string) error { return bad("there is no journal in %s", dir) }

// isJournal keeps the tool from taking, or making, an empty directory for a journal without operations.
func isJournal(dir string) bool {
	entries, err := os.ReadDir(dir)
	return err == nil && slices.ContainsFunc(entries, func(e fs.DirEntry) bool {
		return e.Name() == lockFile || strings.HasSuffix(e.Name(), ".seg")
	})
}

// filter is what list shows and resume -all sends.
type filter struct {
	scope    string
	scoped   bool
	states   []string
	endpoint string
	url      string
	older    span
	parked   bool

	set *endpoint.Set
}

var states = []persist.State{persist.Pending, persist.Succeeded, persist.Rejected, persist.Conflicted, persist.Abandoned}

// flags defines those of the filter that hold for pending operations.
func (f *filter) flags(fs *flag.FlagSet) {
	fs.Func("scope", "only operations of scope `S`; \"\": those without one", func(s string) error {
		f.scope, f.scoped = s, true
		return nil
	})
	fs.Func("endpoint", "only requests that `PATTERN` matches, \"POST api.bank.test/v1/orders/{id}\"", func(s string) error {
		set, problems := endpoint.New([]string{s})
		if len(problems) > 0 {
			return errors.New(problems[0].Why)
		}
		f.endpoint, f.set = s, set
		return nil
	})
	fs.StringVar(&f.url, "url", "", "only requests whose URL, without its query, contains `TEXT`")
	fs.Var(&f.older, "older", "only operations begun more than `DURATION` ago: 90s, 36h, 7d")
	fs.BoolVar(&f.parked, "parked", false, "only those that nothing but resume, rekey or abandon moves")
}

func (f *filter) stateFlag(fs *flag.FlagSet) {
	fs.Func("state", "`S,...`: pending, succeeded, rejected, conflicted, abandoned; parked, expired", func(s string) error {
		for _, name := range strings.Split(s, ",") {
			known := name == "parked" || name == "expired"
			for _, st := range states {
				known = known || st.String() == name
			}
			if !known {
				return errors.New("is none of pending, succeeded, rejected, conflicted, abandoned, parked, expired")
			}
			f.states = append(f.states, name)
		}
		return nil
	})
}

// store is the part that a store knows to select by.
func (f *filter) store(now time.Time) persist.Filter {
	var p persist.Filter
	if f.scoped {
		p.Scope = &f.scope
	}
	if f.older > 0 {
		p.Before = now.Add(-time.Duration(f.older))
	}
	return p
}

// match is the rest.
func (f *filter) match(r *persist.Record, now time.Time) bool {
	if f.parked && !isParked(r) {
		return false
	}
	if len(f.states) > 0 && !slices.ContainsFunc(f.states, func(s string) bool {
		return s == r.State().String() || s == "parked" && isParked(r) || s == "expired" && isExpired(r, now)
	}) {
		return false
	}
	if f.url != "" && !strings.Contains(bareURL(r.Target), f.url) {
		return false
	}
	if f.set != nil {
		u, err := url.Parse(r.Target)
		return err == nil && f.set.Match(r.Method, u) != ""
	}
	return true
}

func isParked(r *persist.Record) bool { return r.Answer == nil && r.Progress.Parked }

// isExpired: the server may have forgotten the key, so that nothing goes out under it any more.
func isExpired(r *persist.Record, now time.Time) bool {
	at := expiry(r)
	return r.Answer == nil && !at.IsZero() && !now.Before(at)
}

func expiry(r *persist.Record) time.Time {
	if r.KeyLife < 0 || r.Progress.FirstSent.IsZero() {
		return time.Time{}
	}
	return r.Progress.FirstSent.Add(r.KeyLife)
}

// condition is the state, or what keeps a pending operation from being sent again.
func condition(r *persist.Record, now time.Time) string {
	switch {
	case isExpired(r, now):
		return "expired"
	case isParked(r):
		return "parked"
	}
	return r.State().String()
}

// bareURL drops userinfo, query and fragment.
func bareURL(s string) string {
	if u, err := url.Parse(s); err == nil {
		u.User, u.RawQuery, u.ForceQuery, u.Fragment, u.RawFragment = nil, "", false, "", ""
		return u.String()
	}
	s, _, _ = strings.Cut(s, "?")
	return s
}

// notFound says that there is no such operation, and which one may be meant.
func notFound(ref persist.Ref, list iter.Seq2[persist.Record, error]) error {
	where := ""
	if ref.Scope != "" {
		where = fmt.Sprintf(" in scope %q", ref.Scope)
	}
	for r, err := range list {
		switch {
		case err != nil:
		case r.ID == ref.ID && r.Scope == "":
			return no("no operation %q%s, but there is one without a scope", ref.ID, where)
		case r.ID == ref.ID:
			return no("no operation %q%s, but there is one with -scope %q", ref.ID, where, r.Scope)
		case r.Key == ref.ID:
			return no("no operation %q%s, but that is the key of %q%s", short(ref.ID), where, r.ID, scopeFlag(r.Scope))
		}
	}
	return no("no operation %q%s", ref.ID, where)
}

func scopeFlag(scope string) string {
	if scope == "" {
		return ""
	}
	return fmt.Sprintf(" (-scope %q)", scope)
}

// name is how messages call an operation.
func name(ref persist.Ref) string {
	if ref.Scope == "" {
		return ref.ID
	}
	return ref.ID + " (scope " + ref.Scope + ")"
}

// printJSON writes v over several lines, or as one.
func (t *tool) printJSON(v any, indent bool) error {
	e := json.NewEncoder(t.out)
	e.SetEscapeHTML(false)
	if indent {
		e.SetIndent("", "  ")
	}
	return e.Encode(v)
}

func absolute(dir string) string {
	if abs, err := filepath.Abs(dir); err == nil {
		return abs
	}
	return dir
}
