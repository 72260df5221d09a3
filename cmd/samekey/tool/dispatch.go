package tool

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"strings"
)

// command is one of the tool's. setup defines its flags and returns what runs it with the other arguments. Its texts are
// templates: see tool.words.
type command struct {
	name, args string
	short      string // one line
	long       string // what it does, with an example
	shared     string // a paragraph for tools that know shared stores, which long has as {shared}
	exits      string // one code a line
	least      int    // arguments
	most       int
	setup      func(t *tool, fs *flag.FlagSet) func(ctx context.Context, args []string) error
}

func (t *tool) commands() []*command {
	all := []*command{checkCommand, listCommand, showCommand, statsCommand, abandonCommand, forgetCommand, rekeyCommand, resumeCommand, policyCommand, versionCommand}
	if len(t.Stores) > 0 {
		all = append(all, migrateCommand)
	}
	return all
}

func (t *tool) find(name string) *command {
	for _, c := range t.commands() {
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
	case "-version", "--version":
		name = versionCommand.name
	}
	c := t.find(name)
	switch {
	case c == nil && name == migrateCommand.name:
		return bad("journals need no migration; %s", getShared)
	case c == nil:
		return bad("no command %q%s; %s -h lists them", name, t.didYouMean(name), t.Name)
	}
	fs := flag.NewFlagSet(c.name, flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	run := c.setup(t, fs)
	args, err := parse(fs, args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		t.commandHelp(c, fs)
		return nil
	case err == nil && len(args) < c.least:
		err = fmt.Errorf("%s is missing", t.words(strings.Fields(c.args)[len(args)]))
	case err == nil && len(args) > c.most:
		err = fmt.Errorf("unexpected argument %q", args[c.most])
	}
	if err != nil {
		return bad("%s: %w; usage: %s, more with %s %[1]s -h", c.name, err, t.usage(c), t.Name)
	}
	return run(ctx, args)
}

func (t *tool) usage(c *command) string {
	return strings.Join(strings.Fields(t.Name+" "+c.name+" "+t.words(c.args)+" [flags]"), " ")
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

// didYouMean names the command that name is probably meant to be.
func (t *tool) didYouMean(name string) string {
	best, least := "", 3 // a slip or two
	for _, c := range t.commands() {
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
