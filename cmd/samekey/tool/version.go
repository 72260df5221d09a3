package tool

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"runtime"
	"runtime/debug"
	"slices"
	"text/tabwriter"
)

// journalFormat is the format version of journals; TestVersion holds it against what is in one.
const journalFormat = 1

const corePath = "github.com/samekey/samekey"

var versionCommand = &command{
	name: "version", short: "say which build this is, and which stores it reads",
	long: `
Says which version of {name} and of the module ` + corePath + ` this is, which Go built
it, and the format of the stores that it reads. (devel) is a build out of a checkout that says no more.

  {name} version
  {name} version -json | jq -r .samekey`,
	exits: `
  0  said
  2  a bad command line`,
	setup: func(t *tool, fs *flag.FlagSet) func(context.Context, []string) error {
		asJSON := fs.Bool("json", false, "print one JSON object")
		return func(context.Context, []string) error {
			v := t.version()
			if *asJSON {
				return t.printJSON(v, true)
			}
			tw := tabwriter.NewWriter(t.out, 0, 0, 2, ' ', 0)
			row := func(label, text string) { _, _ = fmt.Fprintf(tw, "%s\t%s\n", label, clean(text)) }
			row("program", v.Name+" "+v.Version)
			row("module", corePath+" "+v.Core)
			row("go", v.Go)
			for _, f := range v.Formats {
				row(f.Store, f.Format)
			}
			return tw.Flush()
		}
	},
}

// version is what version tells, and what -json prints.
type version struct {
	Name    string   `json:"name"`
	Version string   `json:"version"` // of the program's module
	Core    string   `json:"samekey"` // of the module github.com/samekey/samekey
	Go      string   `json:"go"`
	Formats []format `json:"formats"`
}

type format struct {
	Store  string `json:"store"` // journal, or the first scheme of the store's URLs
	Format string `json:"format"`
}

func (t *tool) version() version {
	v := version{Name: t.Name, Version: devel, Core: devel, Go: runtime.Version(), Formats: []format{{"journal", fmt.Sprint("format version ", journalFormat)}}}
	if b, ok := debug.ReadBuildInfo(); ok {
		v.Version = versionOf(&b.Main)
		all := append([]*debug.Module{&b.Main}, b.Deps...)
		if i := slices.IndexFunc(all, func(m *debug.Module) bool { return m.Path == corePath }); i >= 0 {
			v.Core = versionOf(all[i])
		}
	}
	for _, k := range t.Stores {
		if k.Format != "" {
			v.Formats = append(v.Formats, format{k.Schemes[0], k.Format})
		}
	}
	return v
}

const devel = "(devel)"

// versionOf goes by what is in the build: what has been replaced is not what its version says.
func versionOf(m *debug.Module) string {
	if m.Replace != nil {
		m = m.Replace
	}
	return cmp.Or(m.Version, devel)
}
