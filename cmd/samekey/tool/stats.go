package tool

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/samekey/samekey/persist"
)

var statsCommand = &command{
	name: "stats", args: "STORE", short: "count what is pending, by endpoint", least: 1, most: 1,
	long: `
Counts the operations in {in}: by state, and those that are pending by scope, method
and origin, with the age of the oldest and what the last attempts were answered with. {beside}.

  {name} stats {eg}
  {name} stats {eg} -json | jq .oldestPendingSeconds`,
	exits: `
  0  counted
  1  {damaged}; what is left of it is counted
  2  a bad command line, or the {store}{one} cannot be read`,
	setup: func(t *tool, fs *flag.FlagSet) func(context.Context, []string) error {
		asJSON := fs.Bool("json", false, "print one JSON object")
		return func(ctx context.Context, args []string) error {
			s, err := t.stats(ctx, args[0])
			if err != nil {
				return err
			}
			if *asJSON {
				err = t.printJSON(s, true)
			} else {
				s.print(t)
			}
			if err == nil && !s.sound {
				err = quiet(exitNo)
			}
			return err
		}
	},
}

// stats is what -json prints.
type stats struct {
	Dir        string         `json:"dir,omitempty"` // of a journal
	Store      string         `json:"store,omitempty"`
	InUseBy    *process       `json:"inUseBy,omitempty"`
	Operations int            `json:"operations"`
	NameOnly   *int           `json:"nameOnly,omitempty"` // a shared store does not tell
	States     map[string]int `json:"states"`
	Parked     int            `json:"parked"`  // of the pending
	Expired    int            `json:"expired"` // of the pending
	NeverSent  int            `json:"neverSent"`
	Later      int            `json:"later"` // pending, and recovery leaves them alone for now
	Owed       int            `json:"owed"`
	Oldest     time.Time      `json:"oldestPending,omitzero"`
	OldestAge  int64          `json:"oldestPendingSeconds"`
	*disk
	Endpoints []*group `json:"pendingByEndpoint"`

	sound bool
}

// disk is what a journal takes.
type disk struct {
	Segments  int   `json:"segments"`
	DiskBytes int64 `json:"diskBytes"`
	LiveBytes int64 `json:"liveBytes"`
}

// group is the pending operations of one scope, method and origin.
type group struct {
	Scope     string         `json:"scope"`
	Method    string         `json:"method"`
	Origin    string         `json:"origin"`              // of sealed ones it is not known
	SealedKey string         `json:"sealedKey,omitempty"` // ID of the key that they are sealed under
	Pending   int            `json:"pending"`
	Parked    int            `json:"parked"`
	Expired   int            `json:"expired"`
	Oldest    time.Time      `json:"oldest"`
	OldestAge int64          `json:"oldestSeconds"`
	Last      map[string]int `json:"lastAnswers"` // of the last attempts: status, or "none"
}

func (t *tool) stats(ctx context.Context, arg string) (_ *stats, err error) {
	p, err := t.place(arg)
	if err != nil {
		return nil, err
	}
	s := &stats{States: map[string]int{}, Endpoints: []*group{}, sound: true}
	f := persist.Filter{}
	if p.kind == nil { // a journal has counted already
		c, err := t.check(p.dir)
		if err != nil {
			return nil, err
		}
		s.Dir, s.InUseBy, s.Operations, s.NameOnly, s.States, s.Parked, s.Owed = c.Dir, c.InUseBy, c.Operations, &c.NameOnly, c.States, c.Parked, c.Owed
		s.Oldest, s.disk, s.sound = c.Oldest, &disk{c.Segments, c.DiskBytes, c.LiveBytes}, c.Sound
		f.States = []persist.State{persist.Pending}
	}
	v, err := t.look(ctx, arg)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, v.Close()) }()
	var all counted
	now, groups := t.now(), map[groupKey]*group{}
	for r, err := range v.List(ctx, f) {
		if err != nil {
			return nil, v.failed(err)
		}
		all.add(&r)
		if r.Answer == nil {
			s.add(groups, &r, now)
		}
	}
	if p.kind != nil {
		s.Store, s.Operations, s.States, s.Parked, s.Owed, s.Oldest = v.name, all.Operations, all.states(), all.Parked, all.Owed, utc(all.Oldest)
	}
	if !s.Oldest.IsZero() {
		s.OldestAge = int64(now.Sub(s.Oldest).Seconds())
	}
	slices.SortFunc(s.Endpoints, func(a, b *group) int {
		return cmp.Or(-cmp.Compare(a.Pending, b.Pending), cmp.Compare(a.Scope, b.Scope), cmp.Compare(a.Origin+a.SealedKey, b.Origin+b.SealedKey), cmp.Compare(a.Method, b.Method))
	})
	return s, nil
}

func (s *stats) add(groups map[groupKey]*group, r *persist.Record, now time.Time) {
	target, sealed := readable(r.Target)
	key := groupKey{r.Scope, r.Method, origin(target), sealed}
	g := groups[key]
	if g == nil {
		g = &group{Scope: key.scope, Method: key.method, Origin: key.origin, SealedKey: key.sealed, Oldest: utc(r.Created), Last: map[string]int{}}
		g.OldestAge = int64(now.Sub(r.Created).Seconds())
		groups[key] = g
		s.Endpoints = append(s.Endpoints, g)
	}
	g.Pending++
	if isParked(r) {
		g.Parked++
	}
	if isExpired(r, now) {
		s.Expired++
		g.Expired++
	}
	if r.Progress.NotBefore.After(now) {
		s.Later++
	}
	switch {
	case r.Progress.Attempts == 0:
		s.NeverSent++
	case r.Progress.LastStatus == 0:
		g.Last["none"]++
	default:
		g.Last[fmt.Sprint(r.Progress.LastStatus)]++
	}
}

type groupKey struct{ scope, method, origin, sealed string }

// origin is scheme and host of a URL.
func origin(target string) string {
	u, err := url.Parse(target)
	if err != nil || target == "" {
		return ""
	}
	return u.Scheme + "://" + strings.ToLower(u.Host)
}

func (s *stats) print(t *tool) {
	tw := tabwriter.NewWriter(t.out, 0, 0, 2, ' ', 0)
	row := func(label, format string, args ...any) { _, _ = fmt.Fprintf(tw, label+"\t"+format+"\n", args...) }
	if s.disk != nil {
		row("journal", "%s", clean(s.Dir))
		if s.InUseBy != nil {
			row("in use by", "%s", s.InUseBy)
		}
		row("operations", "%d, of them %d with nothing but their name", s.Operations, *s.NameOnly)
	} else {
		row("store", "%s", clean(s.Store))
		row("operations", "%d", s.Operations)
	}
	for _, st := range states {
		n, more := s.States[st.String()], ""
		if st == persist.Pending && n > 0 {
			more = fmt.Sprintf(", of them %d parked, %d expired, %d never sent, %d to be left alone for now", s.Parked, s.Expired, s.NeverSent, s.Later)
		}
		row("  "+st.String(), "%d%s", n, more)
	}
	owed(row, s.Owed)
	if s.disk != nil {
		row("disk", "%s, %s, of them %s alive", count(s.Segments, "segment", "segments"), size(s.DiskBytes), size(s.LiveBytes))
	}
	_ = tw.Flush()
	if len(s.Endpoints) == 0 {
		return
	}
	t.printf("\n")
	tw = tabwriter.NewWriter(t.out, 0, 0, 2, ' ', 0)
	scoped := slices.ContainsFunc(s.Endpoints, func(g *group) bool { return g.Scope != "" })
	line := func(scope string, cells ...any) {
		format := "%v\t%v\t%v\t%v\t%v\t%v\n"
		if scoped {
			format, cells = "%v\t"+format, slices.Insert(cells, 5, any(cut(scope, scopeWidth)))
		}
		_, _ = fmt.Fprintf(tw, format, cells...)
	}
	line("SCOPE", "PENDING", "OLDEST", "PARKED", "EXPIRED", "LAST ANSWERS", "ENDPOINT")
	for _, g := range s.Endpoints {
		var last []string
		for _, k := range slices.Sorted(maps.Keys(g.Last)) {
			last = append(last, fmt.Sprintf("%s×%d", k, g.Last[k]))
		}
		if last == nil {
			last = []string{"-"}
		}
		line(clean(g.Scope), g.Pending, age(time.Duration(g.OldestAge)*time.Second), g.Parked, g.Expired,
			cut(strings.Join(last, " "), 22), cut(clean(requestOf(g.Method, g.Origin, g.SealedKey)), 32))
	}
	_ = tw.Flush()
}
