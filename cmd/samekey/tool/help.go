package tool

import (
	"flag"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// words fills in a text what differs between a tool for journals and one for shared stores too.
func (t *tool) words(text string) string {
	pairs := []string{
		"STORE", "DIR", "{in}", "the journal in DIR", "{store}", "journal", "{eg}", "/var/lib/pay/journal",
		"{beside}", "Works beside the process that owns the journal", "{held}", "a living process holds the journal",
		"{kept}", "done, and durable", "{unfit}", "", "{damaged}", "the journal is damaged", "{one}", "",
	}
	if len(t.Stores) > 0 {
		eg := t.Stores[0].Schemes[0] + "://db/pay"
		if form, _, _ := strings.Cut(t.Stores[0].Usage, "\t"); !strings.Contains(form, "//") {
			eg = "-"
		}
		pairs = []string{
			"{in}", "STORE", "{store}", "store", "{eg}", eg, "{scheme}", t.Stores[0].Schemes[0],
			"{beside}", "Works beside living processes, and claims nothing", "{held}", "a living process holds the journal, or the operation",
			"{kept}", "done, and durable, unless a line says that the store may lose it", "{unfit}", ", or lacks what a program needs",
			"{damaged}", "STORE is a journal, and damaged", "{one}", ", or a record of a shared one,",
		}
	}
	return strings.NewReplacer(append(pairs, "{name}", t.Name, "{var}", storeVar)...).Replace(text)
}

const about = `
{name} looks after the journal directory of a program that sends its commands through samekey.
`

const aboutShared = `
{name} looks after the stores of programs that send their commands through samekey: journal directories, and shared stores
that a URL names.
`

const aboutExamples = `
  {name} check STORE                          is it sound, and what does it hold?
  {name} list STORE -state pending            what has no outcome yet, oldest first
  {name} show STORE order-4711/charge         all that is known of one operation
`

const aboutStores = `
A URL goes into quotes, since ? and & mean something to shells. Its parameters are those of the driver, beside the ones above.
No password is ever shown, but the list of processes shows what is typed: - as STORE is what the environment holds in
` + storeVar + `, a URL or a directory.
`

const aboutEnd = `
- as STORE is the directory that the environment names in {var}.

check, list, show and stats change nothing and work beside the process that owns the journal; policy and version need none. The others
open it themselves, and are refused while that process lives: stop it first. Shared stores (PostgreSQL, MariaDB, SQLite, Redis)
are for samekey-shared.
`

const aboutEndShared = `
check, list, show and stats change nothing, claim nothing, and work beside living processes; policy and version need no store. abandon,
forget, rekey and resume work beside living processes on a shared store, but not on an operation that one of them holds; a
journal they open themselves, and are refused while its owner lives: stop it first.
`

const aboutNames = `
An operation is named by its ID, within its scope (-scope): the name that the program gave it, else its key. Flags may stand
before or behind the arguments; what follows -- is no flag.

Exit codes
  0  done
  1  the answer is no: damaged, no such operation, not confirmed, outcome still unknown
  2  a bad command line, or a {store} that cannot be read or opened
  3  {held}

{name} COMMAND -h tells more of each.
`

func (t *tool) help(w io.Writer) {
	say := func(texts ...string) {
		for _, text := range texts {
			_, _ = io.WriteString(w, wrap(t.words(text)))
		}
	}
	first, end := about, aboutEnd
	if len(t.Stores) > 0 {
		first, end = aboutShared, aboutEndShared
	}
	say(strings.TrimPrefix(first, "\n"), aboutExamples, "\nCommands\n")
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, c := range t.commands() {
		_, _ = fmt.Fprintf(tw, "  %s\t%s\t%s\n", c.name, t.words(c.args), t.words(c.short))
	}
	_ = tw.Flush()
	if len(t.Stores) > 0 {
		say("\nSTORE is the directory of a journal, or a URL\n")
		tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
		for _, k := range t.Stores {
			for l := range strings.Lines(strings.TrimSpace(k.Usage)) {
				_, _ = fmt.Fprintf(tw, "  %s\n", strings.TrimSuffix(l, "\n"))
			}
		}
		_ = tw.Flush()
		say(aboutStores)
	}
	say(end, aboutNames)
}

func (t *tool) commandHelp(c *command, fs *flag.FlagSet) {
	shared := ""
	if len(t.Stores) > 0 {
		shared = strings.TrimSpace(c.shared) + "\n\n"
	}
	long := strings.ReplaceAll(strings.TrimSpace(c.long), "{shared}\n\n", shared)
	_, _ = fmt.Fprintf(t.out, "%s\n\n%s", t.usage(c), wrap(t.words(long+"\n")))
	_, _ = io.WriteString(t.out, "\nFlags\n")
	tw := tabwriter.NewWriter(t.out, 0, 0, 2, ' ', 0)
	fs.VisitAll(func(f *flag.Flag) {
		value, usage := flag.UnquoteUsage(f)
		_, _ = fmt.Fprintf(tw, "  %s\t%s\n", strings.TrimSpace("-"+f.Name+" "+value), t.words(strings.TrimPrefix(usage, value+": ")))
	})
	_ = tw.Flush()
	_, _ = fmt.Fprintf(t.out, "\nExit codes\n%s\n", t.words(strings.Trim(c.exits, "\n")))
}

const helpWidth = 100

// wrap fills the lines of paragraphs; lines that begin with a space stay as they are.
func wrap(text string) string {
	var b strings.Builder
	width := 0 // of the line that is open
	end := func() {
		if width > 0 {
			b.WriteByte('\n')
		}
		width = 0
	}
	for l := range strings.Lines(text) {
		l = strings.TrimSuffix(l, "\n")
		if l == "" || l[0] == ' ' {
			end()
			b.WriteString(l + "\n")
			continue
		}
		for _, word := range strings.Fields(l) {
			n := len([]rune(word))
			if width > 0 && width+1+n > helpWidth {
				end()
			}
			if width > 0 {
				b.WriteByte(' ')
				width++
			}
			b.WriteString(word)
			width += n
		}
	}
	end()
	return b.String()
}
