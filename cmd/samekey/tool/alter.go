package tool

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"strings"

	"github.com/samekey/samekey"
	"github.com/samekey/samekey/persist"
)

const alterExits = `
  0  {kept}
  1  no such operation, not confirmed, or its state does not allow it
  2  a bad command line, or the {store} cannot be opened or written
  3  {held}`

const alterShared = `
On a shared store this works beside living processes. An operation that one of them holds is left
alone: it is being sent just now, or its owner has died, and its claim ends by itself when the lease
is over. An operation that has changed since it was looked at is left alone too.`

var abandonCommand = &command{
	name: "abandon", args: "STORE ID", short: "end an operation without an answer", least: 2, most: 2,
	long: `
Ends a pending or conflicted operation without an answer: nothing more is sent. Its name stays
known, so that the same command again is refused with the reason instead of becoming a second
effect. Whether the server acted on it before is not changed by this, and should be known first.

The program is not told: its Recovery.Handle is called for answers only. What waits for this
operation, such as an order that is still unpaid, is to be ended by hand or by the program.

{shared}

  {name} abandon {eg} order-4711/charge -reason "refunded by hand, INC-81"`,
	shared: alterShared, exits: alterExits,
	setup: func(t *tool, fs *flag.FlagSet) func(context.Context, []string) error {
		scope := alterFlags(fs)
		reason := fs.String("reason", "", "`TEXT`: kept with the name, and told to whoever uses it again; required")
		return func(ctx context.Context, args []string) error {
			if strings.TrimSpace(*reason) == "" {
				return bad("abandon: -reason is missing: whoever meets the name again wants to know why")
			}
			return t.alter(ctx, args[0], persist.Ref{Scope: *scope, ID: args[1]}, nil, nil, func(ctx context.Context, s persist.Store, r *persist.Record) error {
				if err := open(r, "abandoned"); err != nil {
					return err
				}
				err := withClient(s, samekey.Config{}, func(c *samekey.Client) error { return c.Abandon(ctx, r.Ref, *reason) })
				if err == nil {
					t.printf("abandoned %s: %s\n", named(r), lastWord(r, t.now()))
				}
				return err
			})
		}
	},
}

var forgetCommand = &command{
	name: "forget", args: "STORE ID", short: "take an operation out of the {store}: its name is new again", least: 2, most: 2,
	long: `
Takes an operation out of the {store}, whatever its state. Its name is new again: the same command
goes out once more, under a new key. If it may have been sent, that gives its protection away, and
-yes or a "yes" at the terminal is asked for. To end an operation and keep its name, use abandon.
What is damaged, so that it cannot be read, is taken out with -yes only.

{shared}

  {name} forget {eg} order-4711/charge -yes`,
	shared: alterShared, exits: alterExits,
	setup: func(t *tool, fs *flag.FlagSet) func(context.Context, []string) error {
		scope := alterFlags(fs)
		yes := fs.Bool("yes", false, "do not ask")
		return func(ctx context.Context, args []string) error {
			ref := persist.Ref{Scope: *scope, ID: args[1]}
			ask := func(r *persist.Record) (string, error) { return forgetting(t, r), nil }
			if *yes {
				ask = nil
			}
			return t.alter(ctx, args[0], ref, ask, t.blindly(ctx, ref, *yes), func(ctx context.Context, s persist.Store, r *persist.Record) error {
				err := withClient(s, samekey.Config{}, func(c *samekey.Client) error { return c.Forget(ctx, r.Ref) })
				if err == nil {
					t.printf("forgot %s: %s\n", named(r), lastWord(r, t.now()))
				}
				return err
			})
		}
	},
}

var rekeyCommand = &command{
	name: "rekey", args: "STORE ID", short: "give an operation that did not happen a new key", least: 2, most: 2,
	long: `
Gives a pending or conflicted operation a new key, by your word that it did not happen under the old
one. Sends nothing: resume, or the program itself, does. If it may have been sent, -yes or a "yes"
at the terminal is asked for.

The new key has the form of the old one, UUID or ULID (-format chooses), and travels in the same
header. With -policy it is what the program's policy file says. Keys that were derived, or, without
-policy, that are not in a header of their own, only the program itself can replace.

{shared}

  {name} rekey {eg} order-4711/charge -yes
  {name} rekey {eg} order-4711/charge -policy /etc/pay/policies.json`,
	shared: alterShared, exits: alterExits,
	setup: func(t *tool, fs *flag.FlagSet) func(context.Context, []string) error {
		scope := alterFlags(fs)
		yes := fs.Bool("yes", false, "do not ask")
		full := fs.Bool("full", false, "print the new key whole")
		var w word
		fs.StringVar(&w.format, "format", "", "`FORM`: uuid or ulid; by default that of the old key")
		file := fs.String("policy", "", policyUsage)
		return func(ctx context.Context, args []string) error {
			switch {
			case w.format != "" && w.format != "uuid" && w.format != "ulid":
				return bad("rekey: -format is uuid or ulid")
			case w.format != "" && *file != "":
				return bad("rekey: -format or -policy, not both")
			}
			config := func(r *persist.Record) (samekey.Config, error) {
				p, err := w.rekey(r)
				return samekey.Config{Default: p}, err
			}
			if *file != "" {
				f, err := t.policyFlag(*file)
				if err != nil {
					return err
				}
				config = func(r *persist.Record) (samekey.Config, error) { return f.Config, errors.Join(rekeyable(r), f.fits(r)) }
			}
			checked := func(r *persist.Record) (samekey.Config, error) {
				if err := opened(r); err != nil {
					return samekey.Config{}, err
				}
				return config(r)
			}
			ask := func(r *persist.Record) (string, error) {
				if _, err := checked(r); err != nil {
					return "", err
				}
				return rekeying(t, r), nil
			}
			if *yes {
				ask = nil
			}
			return t.alter(ctx, args[0], persist.Ref{Scope: *scope, ID: args[1]}, ask, nil, func(ctx context.Context, s persist.Store, r *persist.Record) error {
				cfg, err := checked(r)
				if err != nil {
					return err
				}
				var key string
				err = withClient(s, cfg, func(c *samekey.Client) (err error) {
					key, err = c.Rekey(ctx, r.Ref)
					return err
				})
				if err != nil {
					return err
				}
				if !*full {
					key = short(key)
				}
				t.printf("rekeyed %s: %s is now %s, and nothing was sent\n", named(r), clean(short(r.Key)), clean(key))
				return nil
			})
		}
	},
}

func alterFlags(fs *flag.FlagSet) (scope *string) {
	return fs.String("scope", "", "`S`: the scope that the operation belongs to")
}

// blindly forgets what cannot be read, if that is confirmed: what it is nobody can say.
func (t *tool) blindly(ctx context.Context, ref persist.Ref, yes bool) func(persist.Store, error) error {
	return func(s persist.Store, unread error) error {
		if !yes {
			return bad("%w; forget -yes takes it out all the same", unread)
		}
		err := s.Forget(ctx, ref)
		switch {
		case errors.Is(err, persist.ErrBusy):
			return held(ref)
		case err != nil:
			return bad("%w", errors.Join(unread, err))
		}
		t.printf("forgot %s: its record could not be read\n", name(ref))
		t.complain(unread)
		return nil
	}
}

// alter does something to one operation. ask, if it is not nil, says what is to be confirmed before, "" for nothing; blind
// is as in with.
func (t *tool) alter(ctx context.Context, arg string, ref persist.Ref, ask func(*persist.Record) (string, error), blind func(persist.Store, error) error,
	do func(context.Context, persist.Store, *persist.Record) error) error {
	var asked *persist.Record
	try := func(s persist.Store, r *persist.Record) error {
		err := do(ctx, unchanged{s, r}, r)
		if errors.Is(err, samekey.ErrBusy) {
			return held(ref)
		}
		return err
	}
	err := t.with(ctx, arg, 0, ref, blind, func(s persist.Store, r *persist.Record) error {
		if ask != nil {
			text, err := ask(r)
			if err != nil {
				return err
			}
			if text != "" {
				asked = r
				t.warn("%s", text)
				return nil // nothing is held while somebody thinks
			}
		}
		return try(s, r)
	})
	if err != nil || asked == nil {
		return err
	}
	if err := t.confirm(ctx); err != nil {
		return err
	}
	return t.with(ctx, arg, 0, ref, blind, func(s persist.Store, r *persist.Record) error {
		if changed(asked, r) {
			return errChanged(ref)
		}
		return try(s, r)
	})
}

// confirm asks at the terminal.
func (t *tool) confirm(ctx context.Context) error {
	if !t.asks {
		return no("not confirmed: nothing was done; -yes confirms it")
	}
	_, _ = fmt.Fprint(t.err, `Type "yes" to go on: `)
	said := make(chan string, 1)
	go func() {
		l, _ := bufio.NewReader(t.in).ReadString('\n')
		said <- l
	}()
	select {
	case l := <-said:
		switch strings.TrimSpace(l) {
		case "yes":
			return nil
		case l: // not even a line: there was nobody
			_, _ = fmt.Fprintln(t.err)
			return no("not confirmed: nothing was done; -yes confirms it")
		}
		return no("not confirmed: nothing was done")
	case <-ctx.Done():
		_, _ = fmt.Fprintln(t.err)
		return no("interrupted: nothing was done")
	}
}

// withClient lends a client on the store.
func withClient(s persist.Store, cfg samekey.Config, f func(*samekey.Client) error) error {
	cfg.Store = s
	c, err := samekey.New(cfg)
	if err != nil {
		return bad("%w", err)
	}
	return errors.Join(f(c), c.Close())
}

// open refuses what has an outcome.
func open(r *persist.Record, done string) error {
	if s := r.State(); s != persist.Pending && s != persist.Conflicted {
		return no("%s cannot be %s: it has an outcome already: %s", name(r.Ref), done, s)
	}
	return nil
}

// named is how the results call an operation.
func named(r *persist.Record) string { return clean(hide(name(r.Ref), r.Key)) }

// maySent: the server may have acted on it, so that a new key for the same command may be a second effect.
func maySent(r *persist.Record) bool {
	return r.State() != persist.Rejected && (r.Progress.Attempts > 0 || r.Tombstone())
}

// forgetting says what is given away; "" if nothing is.
func forgetting(t *tool, r *persist.Record) string {
	switch s := r.State(); {
	case !maySent(r):
		return ""
	case s == persist.Succeeded:
		return fmt.Sprintf("%s has happened (%s). Forgetting it makes its name new: the same command again goes out under a new key, "+
			"and is a second effect.", named(r), lastWord(r, t.now()))
	default:
		key := "its key " + clean(short(r.Key))
		if r.Key == "" {
			key = "its sealed key"
		}
		return fmt.Sprintf("%s may have been sent, and the server may have acted on it (%s). Forgetting it throws %s away: the same "+
			"command again goes out under a new key, which the server takes for a new command. Ask the server first; abandon ends "+
			"the operation and keeps its name.", named(r), lastWord(r, t.now()), key)
	}
}

func rekeying(t *tool, r *persist.Record) string {
	if !maySent(r) {
		return ""
	}
	return fmt.Sprintf("%s may have been sent, and the server may have acted on it (%s). The server takes the new key for a new command: if "+
		"the old one happened, that is a second effect. Ask the server first.", named(r), lastWord(r, t.now()))
}
