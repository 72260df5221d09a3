package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// command is one of the tool's. setup defines its flags and returns what runs it with the other arguments.
type command struct {
	name, args string
	short      string // one line
	long       string // what it does, with an example
	exits      string // one code a line
	least      int    // arguments
	most       int
	setup      func(t *tool, fs *flag.FlagSet) func(ctx context.Context, args []string) error
}

func commands() []*command {
	return []*command{checkCommand, listCommand, showCommand, statsCommand, abandonCommand, forgetCommand, rekeyCommand, resumeCommand, policyCommand}
}

func find(name string) *command {
	for _, c := range commands() {
		if c.name == name {
			return c
		}
	}
	return nil
}

func (t *tool) dispatch(ctx context.Context, args []string) error {
	if len(args) == 0 {
		t.help(t.err)
		return quiet(exitUsage)
	}
	name, args := args[0], args[1:]
	switch name {
	case "-h", "-help", "--help", "help":
		if name != "help" || len(args) == 0 {
			t.help(t.out)
			return nil
		}
		name, args = args[0], []string{"-h"}
	}
	c := find(name)
	if c == nil {
		return bad("no command %q%s; samekey -h lists them", name, didYouMean(name))
	}
	fs := flag.NewFlagSet(c.name, flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	run := c.setup(t, fs)
	args, err := parse(fs, args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		c.help(t.out, fs)
		return nil
	case err == nil && len(args) < c.least:
		err = fmt.Errorf("%s is missing", strings.Fields(c.args)[len(args)])
	case err == nil && len(args) > c.most:
		err = fmt.Errorf("unexpected argument %q", args[c.most])
	}
	if err != nil {
		return bad("%s: %w; usage: samekey %s %s [flags], more with samekey %[1]s -h", c.name, err, c.name, c.args)
	}
	return run(ctx, args)
}

// parse takes flags before, between and behind the arguments; what follows "--" is no flag.
func parse(fs *flag.FlagSet, args []string) (rest []string, err error) {
	for {
		if err := fs.Parse(args); err != nil {
			return nil, err
		}
		left := fs.Args()
		if n := len(args) - len(left); n > 0 && args[n-1] == "--" {
			return append(rest, left...), nil
		}
		if len(left) == 0 {
			return rest, nil
		}
		rest, args = append(rest, left[0]), left[1:]
	}
}

const about = `samekey looks after the journal directory of a program that sends its commands through samekey.

  samekey check DIR                          is it sound, and what does it hold?
  samekey list DIR -state pending            what has no outcome yet, oldest first
  samekey show DIR order-4711/charge         all that is known of one operation

Commands
`

const aboutEnd = `
check, list, show and stats change nothing and work beside the process that owns the journal; policy
needs none. The others open it themselves, and are refused while that process lives: stop it first.

An operation is named by its ID, within its scope (-scope): the name that the program gave it, else
its key. Flags may stand before or behind the arguments; what follows -- is no flag.

Exit codes
  0  done
  1  the answer is no: damaged, no such operation, not confirmed, outcome still unknown
  2  a bad command line, or a journal that cannot be read or opened
  3  a living process holds the journal

samekey COMMAND -h tells more of each.
`

func (t *tool) help(w io.Writer) {
	_, _ = io.WriteString(w, about)
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, c := range commands() {
		_, _ = fmt.Fprintf(tw, "  %s\t%s\t%s\n", c.name, c.args, c.short)
	}
	_ = tw.Flush()
	_, _ = io.WriteString(w, aboutEnd)
}

func (c *command) help(w io.Writer, fs *flag.FlagSet) {
	_, _ = fmt.Fprintf(w, "samekey %s %s [flags]\n\n%s\n", c.name, c.args, strings.TrimSpace(c.long))
	_, _ = io.WriteString(w, "\nFlags\n")
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fs.VisitAll(func(f *flag.Flag) {
		value, usage := flag.UnquoteUsage(f)
		_, _ = fmt.Fprintf(tw, "  %s\t%s\n", strings.TrimSpace("-"+f.Name+" "+value), strings.TrimPrefix(usage, value+": "))
	})
	_ = tw.Flush()
	_, _ = fmt.Fprintf(w, "\nExit codes\n%s\n", strings.Trim(c.exits, "\n"))
}

// didYouMean names the command that name is probably meant to be.
func didYouMean(name string) string {
	best, least := "", 3 // a slip or two
	for _, c := range commands() {
		if d := distance(strings.ToLower(name), c.name); d < least {
			best, least = c.name, d
		}
	}
	if best == "" {
		return ""
	}
	return fmt.Sprintf(", did you mean %q?", best)
}

// distance counts the insertions, deletions, replacements and swaps of neighbours from a to b.
func distance(a, b string) int {
	row := func() []int { return make([]int, len(b)+1) }
	before, last, now := row(), row(), row()
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		now[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			now[j] = min(last[j]+1, now[j-1]+1, last[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				now[j] = min(now[j], before[j-2]+1)
			}
		}
		before, last, now = last, now, before
	}
	return last[len(b)]
}
