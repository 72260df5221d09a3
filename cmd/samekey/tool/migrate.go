package tool

import (
	"context"
	"flag"
	"strings"
)

var migrateCommand = &command{
	name: "migrate", args: "STORE", short: "bring the tables of a shared store up to date, or print the SQL", least: 1, most: 1,
	long: `
Makes the tables of a shared store, or brings those of an older version to the version of this tool.
Several may do it at once. It needs a user who may create tables. Programs of an older version
refuse the newer tables when they next open them.

With -print it connects to nothing, and prints the statements of all versions, for a migration tool
of your own. The scheme of a URL will do then; of a whole one, schema and prefix count.

  {name} migrate {eg}
  {name} migrate -print {scheme} >samekey.sql

Journals are brought up to date by whoever opens them.`,
	exits: `
  0  up to date
  2  a bad command line, or the store cannot be reached or changed`,
	setup: func(t *tool, fs *flag.FlagSet) func(context.Context, []string) error {
		show := fs.Bool("print", false, "print the statements instead, from nothing to this version")
		return func(ctx context.Context, args []string) error {
			if *show && t.kind(args[0]) != nil {
				args[0] += ":"
			}
			p, err := t.place(args[0])
			if err != nil {
				return err
			}
			if *show && p.kind == nil && !isJournal(p.dir) {
				return bad("migrate: -print takes a URL, or the scheme of one: %s", strings.Join(t.scripted(), ", "))
			}
			switch {
			case p.kind == nil:
				if _, err := t.lookJournal(p.dir); err != nil {
					return err
				}
				t.warn("a journal needs no migration: whoever opens it brings it up to date")
			case p.kind.Migrate == nil:
				t.warn("%s: stores need no migration: there is nothing to make before the first use", p.kind.Schemes[0])
			case *show && p.kind.Script != nil:
				text, err := p.kind.Script(p.url)
				if err != nil {
					return p.failed(err)
				}
				t.printf("%s\n", strings.TrimSpace(text))
			case *show:
				return bad("migrate: -print is not for %s: stores", p.kind.Schemes[0])
			default:
				done, err := p.kind.Migrate(ctx, p.url)
				if err != nil {
					return p.failed(err)
				}
				t.printf("%s\n", clean(t.masked(done)))
			}
			return nil
		}
	},
}

// scripted are the schemes that -print has statements for.
func (t *tool) scripted() (all []string) {
	for _, k := range t.Stores {
		if k.Script != nil {
			all = append(all, k.Schemes...)
		}
	}
	return all
}
