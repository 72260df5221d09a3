package tool

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"text/tabwriter"
	"time"

	"github.com/samekey/samekey/persist/journal"
)

var checkCommand = &command{
	name: "check", args: "STORE", short: "verify a {store}, and say what it holds and what is amiss", least: 1, most: 1,
	long: `
Reads every byte of a journal, changes nothing, and says whether it is sound, what it
holds, what is damaged, and where damaged bytes were set aside. {beside}.

Nothing is repaired here: the next process that opens the journal loads what is whole, sets the
damaged bytes aside, and in time replaces the damaged file. A torn tail is what a crash leaves of a
record that nobody was told is durable; it is reported, and is no damage.

{shared}

  {name} check {eg} || page-somebody
  {name} check {eg} -json | jq .states.pending`,
	shared: `
Of a shared store it says what it holds, once everything is there that a program needs: the server
answers, its tables have the version of this tool, this user may write them, and what is committed
stays. What is not is one line that names the mend, and exit code 2.`,
	exits: `
  0  sound
  1  damaged
  2  a bad command line, or the {store} cannot be read{unfit}`,
	setup: func(t *tool, fs *flag.FlagSet) func(context.Context, []string) error {
		asJSON := fs.Bool("json", false, "print one JSON object")
		return func(ctx context.Context, args []string) error {
			p, err := t.place(args[0])
			if err != nil {
				return err
			}
			if p.kind != nil {
				return t.checkStore(ctx, p, *asJSON)
			}
			r, err := t.check(p.dir)
			if err != nil {
				return err
			}
			if *asJSON {
				err = t.printJSON(r, true)
			} else {
				r.print(t)
			}
			if err == nil && !r.Sound {
				err = quiet(exitNo)
			}
			return err
		}
	},
}

// checked is what check tells, and what -json prints.
type checked struct {
	Dir        string         `json:"dir"`
	Sound      bool           `json:"sound"`
	InUseBy    *process       `json:"inUseBy,omitempty"` // where the system tells
	Version    uint32         `json:"version"`           // of the format
	Operations int            `json:"operations"`
	States     map[string]int `json:"states"` // pending, succeeded, rejected, conflicted, abandoned
	Parked     int            `json:"parked"` // of the pending
	Owed       int            `json:"owed"`   // answers that a handler has yet to accept
	NameOnly   int            `json:"nameOnly"`
	Oldest     time.Time      `json:"oldestPending,omitzero"`
	Segments   int            `json:"segments"`
	DiskBytes  int64          `json:"diskBytes"`
	LiveBytes  int64          `json:"liveBytes"` // of them, what belongs to an operation
	Damage     []damage       `json:"damage"`
	Torn       []damage       `json:"torn"` // tails
	Notes      []string       `json:"notes"`
	SetAside   []file         `json:"setAside"` // damaged bytes and torn tails of earlier days, still kept
}

type damage struct {
	File    string `json:"file"`
	Offset  int64  `json:"offset"`
	Bytes   int64  `json:"bytes"`
	Entries int    `json:"entries"` // records and changes that are missing; 0: unknown
	What    string `json:"what"`
	Keeper  string `json:"setAsideIn,omitempty"` // file that keeps, or is to keep, the bytes
	Kept    bool   `json:"setAside"`             // it does already
}

type file struct {
	Name  string `json:"name"`
	Bytes int64  `json:"bytes"`
}

func (t *tool) check(dir string) (*checked, error) {
	if isOther(dir) {
		return nil, notJournal(dir)
	}
	c, err := journal.Check(dir)
	switch {
	case err != nil:
		return nil, bad("%w", err)
	case c.Segments == 0:
		return nil, bad("%s holds no log file: either nothing was ever recorded there, or they were taken away", dir)
	}
	r := &checked{
		Dir: absolute(dir), Sound: c.OK(), Version: c.Version, Operations: c.Operations, States: map[string]int{}, Parked: c.Parked,
		Owed: c.Owed, NameOnly: c.Tombstones, Oldest: utc(c.Oldest), Segments: c.Segments, DiskBytes: c.DiskBytes, LiveBytes: c.LiveBytes,
		Damage: damages(dir, c.Damage), Torn: damages(dir, c.Cut), Notes: append([]string{}, c.Notes...), SetAside: []file{},
	}
	if p, ok := holder(dir); ok {
		r.InUseBy = &p
	}
	for _, s := range states {
		r.States[s.String()] = c.States[s]
	}
	for _, name := range c.Quarantine {
		f := file{Name: name}
		if st, err := os.Stat(filepath.Join(dir, name)); err == nil {
			f.Bytes = st.Size()
		}
		r.SetAside = append(r.SetAside, f)
	}
	return r, nil
}

func damages(dir string, list []journal.Damage) []damage {
	out := []damage{}
	for _, d := range list {
		x := damage{File: d.File, Offset: d.Offset, Bytes: d.Length, Entries: d.Frames, Keeper: d.Quarantine}
		if d.Err != nil {
			x.What = d.Err.Error()
		}
		if d.Quarantine != "" {
			_, err := os.Stat(filepath.Join(dir, d.Quarantine))
			x.Kept = err == nil
		}
		out = append(out, x)
	}
	return out
}

func (d damage) String() string {
	s := d.File
	if d.Bytes > 0 {
		s += fmt.Sprintf(": %s at %d", count(int(d.Bytes), "byte", "bytes"), d.Offset)
	}
	s += ": " + d.What
	if d.Entries > 0 {
		s += ", " + count(d.Entries, "record or change is lost", "records or changes are lost")
	}
	switch {
	case d.Kept:
		s += ", kept in " + d.Keeper
	case d.Keeper != "":
		s += ", to be kept in " + d.Keeper + " once the journal is opened"
	}
	return clean(s)
}

func (r *checked) print(t *tool) {
	tw := tabwriter.NewWriter(t.out, 0, 0, 2, ' ', 0)
	row := func(label, format string, args ...any) { _, _ = fmt.Fprintf(tw, label+"\t"+format+"\n", args...) }
	row("journal", "%s, format %d", clean(r.Dir), r.Version)
	if r.Sound {
		row("verdict", "sound")
	} else {
		row("verdict", "DAMAGED in %s", count(len(r.Damage), "place", "places"))
	}
	if r.InUseBy != nil {
		row("in use by", "%s", r.InUseBy)
	}
	row("operations", "%d, of them %d with nothing but their name", r.Operations, r.NameOnly)
	pending(row, r.States, r.Parked, r.Oldest, t.now())
	owed(row, r.Owed)
	row("disk", "%s, %s, of them %s alive", count(r.Segments, "segment", "segments"), size(r.DiskBytes), size(r.LiveBytes))
	for _, d := range r.Damage {
		row("damaged", "%s", d)
	}
	for _, d := range r.Torn {
		row("torn tail", "%s", d)
	}
	for _, n := range r.Notes {
		row("note", "%s", clean(n))
	}
	for _, f := range r.SetAside {
		row("set aside", "%s, %s", clean(f.Name), size(f.Bytes))
	}
	_ = tw.Flush()
}
