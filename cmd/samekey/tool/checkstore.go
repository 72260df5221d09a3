package tool

import (
	"context"
	"errors"
	"fmt"
	"text/tabwriter"
	"time"

	"github.com/samekey/samekey/persist"
)

// counted is what a pass over the operations counts, names alone excepted.
type counted struct {
	Operations int
	Parked     int // of the pending
	Owed       int
	Oldest     time.Time // of the pending

	by [persist.Abandoned + 1]int
}

func (c *counted) add(r *persist.Record) {
	c.Operations++
	c.by[r.State()]++
	switch {
	case r.Answer != nil:
		if r.Answer.Owed {
			c.Owed++
		}
		return
	case r.Progress.Parked:
		c.Parked++
	}
	if c.Oldest.IsZero() || r.Created.Before(c.Oldest) {
		c.Oldest = r.Created
	}
}

func (c *counted) states() map[string]int {
	out := map[string]int{}
	for _, s := range states {
		out[s.String()] = c.by[s]
	}
	return out
}

// checkedStore is what check tells of a shared store, and what -json prints. One that is not fit for use is told of in an
// error.
type checkedStore struct {
	Store      string         `json:"store"`
	Sound      bool           `json:"sound"`
	Operations int            `json:"operations"`
	States     map[string]int `json:"states"`
	Parked     int            `json:"parked"` // of the pending
	Owed       int            `json:"owed"`
	Oldest     time.Time      `json:"oldestPending,omitzero"`
}

func (t *tool) checkStore(ctx context.Context, p place, asJSON bool) (err error) {
	o, err := t.openStore(ctx, p, Want{Use: Checking})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, o.Store.Close()) }()
	var c counted
	for r, err := range o.Store.List(ctx, persist.Filter{}) {
		if err != nil {
			return bad("%w", err)
		}
		c.add(&r)
	}
	r := &checkedStore{
		Store: o.Name, Sound: true, Operations: c.Operations, States: c.states(), Parked: c.Parked, Owed: c.Owed, Oldest: utc(c.Oldest),
	}
	if asJSON {
		return t.printJSON(r, true)
	}
	r.print(t)
	return nil
}

func (r *checkedStore) print(t *tool) {
	tw := tabwriter.NewWriter(t.out, 0, 0, 2, ' ', 0)
	row := func(label, format string, args ...any) { _, _ = fmt.Fprintf(tw, label+"\t"+format+"\n", args...) }
	row("store", "%s", clean(r.Store))
	row("verdict", "sound: it answers, takes what is written, and keeps it")
	row("operations", "%d", r.Operations)
	pending(row, r.States, r.Parked, r.Oldest, t.now())
	owed(row, r.Owed)
	_ = tw.Flush()
}

// pending prints the states, and of the pending what their owners want to know.
func pending(row func(label, format string, args ...any), by map[string]int, parked int, oldest, now time.Time) {
	for _, s := range states {
		n, more := by[s.String()], ""
		if s == persist.Pending && n > 0 {
			more = fmt.Sprintf(", of them %d parked; the oldest is from %s", parked, stamp(oldest, now))
		}
		row("  "+s.String(), "%d%s", n, more)
	}
}

func owed(row func(label, format string, args ...any), n int) {
	if n > 0 {
		row("owed", "%s to be accepted by a handler", count(n, "answer has yet", "answers have yet"))
	}
}
