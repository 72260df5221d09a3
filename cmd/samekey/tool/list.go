package tool

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode/utf8"

	"github.com/samekey/samekey/persist"
)

var listCommand = &command{
	name: "list", args: "STORE", short: "list operations, oldest first", least: 1, most: 1,
	long: `
Lists the operations in {in}, oldest first. {beside}. Names whose answers are gone (kept so that they
cannot be used twice) are not listed.

  AGE      since the operation was begun
  STATE    pending: no outcome yet. Of the pending, parked: only resume, rekey or abandon moves it;
           expired: the server may have forgotten the key, nothing goes out under it any more
  TRIES    attempts so far, over all processes
  LAST     status that settled it or of the last attempt; - is no answer
  KEY      shortened; - where it is sealed
  ID       the name that the program gave it; - where its key is its ID (-full shows it)

{shared}

  {name} list {eg} -state pending -older 1h
  {name} list {eg} -endpoint "POST api.bank.test/v1/payments" -parked
  {name} list {eg} -json | jq -r 'select(.attempts > 3) | .id'

-json prints one object a line; times are RFC 3339 in UTC, keys are whole.`,
	shared: `
A journal is shown as it was when it was looked at. A shared store is read bit by bit: what changes
meanwhile may be seen in either state.`,
	exits: `
  0  listed, be it nothing
  1  {damaged}; what is left of it is listed
  2  a bad command line, or the {store}{one} cannot be read`,
	setup: func(t *tool, fs *flag.FlagSet) func(context.Context, []string) error {
		var f filter
		f.flags(fs)
		f.stateFlag(fs)
		asJSON := fs.Bool("json", false, "print one JSON object a line")
		full := fs.Bool("full", false, "shorten nothing; lines may be longer than 100 columns")
		return func(ctx context.Context, args []string) error { return t.list(ctx, args[0], &f, *asJSON, *full) }
	},
}

func (t *tool) list(ctx context.Context, arg string, f *filter, asJSON, full bool) (err error) {
	v, err := t.look(ctx, arg)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, v.Close()) }()
	now := t.now()
	w := table{out: t.out, full: full}
	for r, err := range v.List(ctx, f.store(now)) {
		switch {
		case err != nil:
			w.flush()
			return v.failed(err)
		case !f.match(&r, now):
			continue
		case asJSON:
			if err := t.printJSON(summary(&r, now), false); err != nil {
				return err
			}
		default:
			w.add(&r, now)
		}
	}
	w.flush()
	f.passedOver(t)
	if v.damaged {
		return quiet(exitNo)
	}
	return nil
}

// table prints operations in blocks, so that a long list neither waits for its end nor is held in memory.
type table struct {
	out  io.Writer
	full bool
	rows []line
	head bool // printed
}

// line is one operation's cells.
type line struct{ age, state, tries, last, key, scope, id, request string }

const (
	tableWidth = 100
	tableBlock = 500
	scopeWidth = 12
)

func (t *table) add(r *persist.Record, now time.Time) {
	l := line{
		age: age(now.Sub(r.Created)), state: condition(r, now), tries: strconv.Itoa(r.Progress.Attempts), last: "-",
		key: clean(r.Key), scope: clean(r.Scope), id: clean(r.ID),
	}
	url, sealed := readable(r.Target)
	l.request = clean(requestOf(r.Method, bareURL(url), sealed))
	switch {
	case r.Answer != nil && r.Answer.Status > 0:
		l.last = strconv.Itoa(r.Answer.Status)
	case r.Progress.LastStatus > 0:
		l.last = strconv.Itoa(r.Progress.LastStatus)
	}
	if !t.full {
		l.key = clean(short(r.Key))
		if sealed != "" {
			l.key = "-"
		}
		l.request = strings.Replace(l.request, " https://", " ", 1)
		if r.ID == r.Key {
			l.id = "-"
		}
	}
	if t.rows = append(t.rows, l); len(t.rows) == tableBlock {
		t.flush()
	}
}

// cutRequest keeps the method and the end of the path. Where all that goes would be the scheme, the host goes in its place:
// without a scheme a URL is taken for https.
func cutRequest(s string, n int) string {
	method, rest, _ := strings.Cut(s, " ")
	r, room := []rune(rest), n-utf8.RuneCountInString(method)-2
	if utf8.RuneCountInString(s) <= n || room < 1 || room > len(r) {
		return cut(s, n)
	}
	scheme := ""
	if i := strings.Index(rest, "://") + len("://"); i >= len("://") && len(r)-room <= i && room > 2*i {
		scheme, room = rest[:i], room-i
	}
	return method + " " + scheme + "…" + string(r[len(r)-room:])
}

func (t *table) flush() {
	if len(t.rows) == 0 {
		return
	}
	// What the fixed columns leave is for scope, ID and request.
	left, scopes, ids, requests := tableWidth, 0, 2, 7
	fixed := [5]int{3, 5, 5, 4, 3}
	for _, l := range t.rows {
		for i, cell := range []string{l.age, l.state, l.tries, l.last, l.key} {
			fixed[i] = max(fixed[i], utf8.RuneCountInString(cell))
		}
		scopes, ids = max(scopes, utf8.RuneCountInString(l.scope)), max(ids, utf8.RuneCountInString(l.id))
		requests = max(requests, utf8.RuneCountInString(l.request))
	}
	for _, n := range fixed {
		left -= n + 2
	}
	if scopes > 0 {
		if scopes = max(len("SCOPE"), scopes); !t.full {
			scopes = min(scopes, scopeWidth)
		}
		left -= scopes + 2
	}
	if !t.full {
		ids = min(ids, max(left/2, left-2-requests))
		requests = min(requests, left-2-ids)
	}
	tw := tabwriter.NewWriter(t.out, 0, 0, 2, ' ', 0)
	row := func(l line) {
		cells := []string{l.age, l.state, l.tries, l.last, l.key}
		if scopes > 0 {
			cells = append(cells, cut(l.scope, scopes))
		}
		_, _ = fmt.Fprintln(tw, strings.Join(append(cells, cut(l.id, ids), cutRequest(l.request, requests)), "\t"))
	}
	if !t.head {
		row(line{"AGE", "STATE", "TRIES", "LAST", "KEY", "SCOPE", "ID", "REQUEST"})
		t.head = true
	}
	for _, l := range t.rows {
		row(l)
	}
	_ = tw.Flush()
	t.rows = t.rows[:0]
}
