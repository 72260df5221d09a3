package tool

import (
	"encoding/json"
	"errors"
	"flag"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/samekey/samekey/internal/endpoint"
	"github.com/samekey/samekey/persist"
)

// filter is what list shows and resume -all sends.
type filter struct {
	scope    string
	scoped   bool
	states   []string
	endpoint string
	url      string
	older    span
	parked   bool

	set    *endpoint.Set
	sealed atomic.Int64 // that were passed over, since their URLs are sealed
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
	for _, s := range states {
		if slices.Contains(f.states, s.String()) || s == persist.Pending && (f.parked || slices.Contains(f.states, "parked") || slices.Contains(f.states, "expired")) {
			p.States = append(p.States, s)
		}
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
	if _, key := readable(r.Target); key != "" && (f.url != "" || f.set != nil) {
		f.sealed.Add(1)
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

// passedOver says what a URL could not be asked for.
func (f *filter) passedOver(t *tool) {
	if n := int(f.sealed.Load()); n > 0 {
		t.warn("%s left out: URLs are sealed too, and -url and -endpoint cannot select by them", count(n, "sealed operation is", "sealed operations are"))
	}
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

// name is how messages call an operation.
func name(ref persist.Ref) string {
	if ref.Scope == "" {
		return clean(ref.ID)
	}
	return clean(ref.ID + " (scope " + ref.Scope + ")")
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
