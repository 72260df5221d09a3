package tool

import (
	"context"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/samekey/samekey/persist"
)

var showCommand = &command{
	name: "show", args: "STORE ID", short: "show all that is known of one operation", least: 2, most: 2,
	long: `
Shows one operation of {in}: its state, its attempts, its request and its answer.
{beside}. Payloads and the values of query parameters are left
out; -body shows them. Credentials that the program sets in Prepare, and headers that are not kept,
are not there; query parameters (but those in Policy.SecretQuery) and payloads are.

  {name} show {eg} order-4711/charge
  {name} show {eg} order-4711/charge -scope tenant-7 -body`,
	exits: `
  0  shown
  1  no such operation
  2  a bad command line, or the {store} cannot be read`,
	setup: func(t *tool, fs *flag.FlagSet) func(context.Context, []string) error {
		scope := fs.String("scope", "", "`S`: the scope that the operation belongs to")
		asJSON := fs.Bool("json", false, "print one JSON object, with the key whole")
		full := fs.Bool("full", false, "show the key whole")
		bodies := fs.Bool("body", false, "show the payloads, and the URL's query")
		return func(ctx context.Context, args []string) (err error) {
			v, err := t.look(ctx, args[0])
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, v.Close()) }()
			ref := persist.Ref{Scope: *scope, ID: args[1]}
			r, err := v.Get(ctx, ref)
			switch {
			case errors.Is(err, persist.ErrNotFound):
				return notFound(ctx, ref, v)
			case err != nil:
				return bad("%w", err)
			}
			o := details(&r, t.now(), *bodies)
			if *asJSON {
				return t.printJSON(o, true)
			}
			t.show(&o, *full)
			return nil
		}
	},
}

func (t *tool) show(o *operation, full bool) {
	now := t.now()
	text := func(s string) string {
		if !full && o.Key != "" {
			s = hide(s, o.Key)
		}
		return clean(s)
	}
	tw := tabwriter.NewWriter(t.out, 0, 0, 2, ' ', 0)
	row := func(label, value string) {
		if value != "" {
			_, _ = fmt.Fprintln(tw, label+"\t"+value)
		}
	}
	row("operation", text(o.ID))
	row("scope", text(o.Scope))
	row("state", o.condition())
	if o.Key != "" {
		key := clean(short(o.Key))
		if full {
			key = clean(o.Key)
		}
		if !o.Named {
			key += " (nobody named the operation: its key is its ID)"
		}
		row("key", key)
	}
	row("request", text(strings.TrimSpace(requestOf(o.Method, o.URL, o.SealedKey))))
	row("begun", stamp(o.Created, now))
	row("first sent", stamp(o.FirstSent, now))
	row("key expires", stamp(o.Expires, now))
	if !o.NameOnly {
		row("attempts", fmt.Sprint(o.Attempts))
	}
	if o.LastStatus > 0 {
		row("last status", fmt.Sprint(o.LastStatus))
	}
	row("last error", text(o.LastError))
	row("not before", stamp(o.NotBefore, now))
	row("awaited at", text(o.PollURL))
	if q := o.Request; q != nil {
		row("query", text(strings.Join(q.Query, ", ")))
		row("not stored", text(strings.Join(q.Omitted, ", ")))
		headers(row, "header", q.Header, text)
		row("payload", q.String())
	}
	if a := o.Answer; a != nil {
		if a.Status > 0 {
			row("answer", fmt.Sprint(a.Status, " ", http.StatusText(a.Status)))
		}
		row("reason", text(a.Reason))
		if a.SealedKey != "" {
			row("answered", text(underKey(a.SealedKey)))
		}
		headers(row, "answer header", a.Header, text)
		if a.body != nil {
			row("answer payload", a.String())
		}
		row("answer kept until", stamp(a.KeepBody, now))
		row("name kept until", stamp(a.KeepName, now))
	}
	_ = tw.Flush()
	if o.Request != nil {
		t.payload("payload", o.Request.body)
	}
	if o.Answer != nil {
		t.payload("answer payload", o.Answer.body)
	}
}

// condition is the state with all that is to be said of it.
func (o *operation) condition() string {
	s := o.State
	if o.Parked {
		s += ", parked: only resume, rekey or abandon moves it"
	}
	if o.Expired {
		s += ", expired: nothing goes out under this key any more"
	}
	if o.Owed {
		s += ", owed: a handler has yet to accept the answer"
	}
	if o.NameOnly {
		s += ", only the name is kept"
	}
	return s
}

func headers(row func(label, value string), label string, h http.Header, text func(string) string) {
	for _, name := range slices.Sorted(maps.Keys(h)) {
		for _, l := range h[name] {
			row(label, text(name+": "+l))
		}
	}
}

func (b *body) String() string {
	if !b.Stored {
		return "not stored"
	}
	s := count(b.Bytes, "byte", "bytes")
	if b.Sealed {
		s += ", sealed"
	}
	return s
}

// payload prints a body so that no terminal can be misled by it.
func (t *tool) payload(label string, b *body) {
	if b == nil || b.Text == nil || b.Bytes == 0 {
		return
	}
	t.printf("\n%s:\n", label)
	if b.Encoding == "base64" {
		raw, _ := base64.StdEncoding.DecodeString(*b.Text) // it was encoded here
		t.printf("%s", hex.Dump(raw))
		return
	}
	for l := range strings.Lines(*b.Text) {
		t.printf("  %s\n", strings.ReplaceAll(clean(strings.TrimSuffix(l, "\n")), `\t`, "\t"))
	}
}

// lastWord is how messages sum up where an operation stands.
func lastWord(r *persist.Record, now time.Time) string {
	if r.Tombstone() {
		return condition(r, now) + ", only the name is kept"
	}
	s := condition(r, now) + " after " + count(r.Progress.Attempts, "attempt", "attempts")
	switch {
	case r.Answer != nil && r.Answer.Status > 0:
		s += fmt.Sprintf(", answered with %d", r.Answer.Status)
	case r.Progress.LastStatus > 0:
		s += fmt.Sprintf(", the last answered with %d", r.Progress.LastStatus)
	case r.Progress.Attempts > 0:
		s += ", the last without an answer"
	}
	if !r.Progress.FirstSent.IsZero() {
		s += ", first sent " + age(now.Sub(r.Progress.FirstSent)) + " ago"
	}
	return s
}
