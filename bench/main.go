// Bench holds samekey against what the disk allows and against what others do with the same work: see -h.
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"time"
)

func main() {
	ok, err := run(os.Args[1:], os.Stdout, os.Stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
	case err != nil:
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(2)
	case !ok:
		os.Exit(1)
	}
}

const about = `Usage: go run ./bench [flags]

Measures, in one run on one machine, what a durable begin and a settle cost in samekey's journal, beside other
embedded stores and beside the limit: one write and one fdatasync for all that wait, into a prewritten file, with
no checksum and no index ("raw"). Then what the HTTP path of samekey costs beside net/http and other retry clients.

Contenders take turns, back and forth, for a number of rounds; a figure is the median over the rounds of the ratio
within each round. Ratios and counters hold from machine to machine, absolute times do not. All contenders get the
same record of 700 bytes. The begin is on disk when it returns; the settle may be later, where the store has a way
to do that. "riding" adds one around stores that have none: settles wait in memory for the next begin.

A bar is a figure that has to be reached; the table says how often and how far it was. Bars:

`

const more = `
A run is contender@setting: goroutines (1, 8, 64, 512) for the stores, "call", "0ms", "5ms", "paced" for the clients.
-only takes a regular expression over the names of bars and runs; a bar brings the runs it needs:

  go run ./bench -quick                      one line for each bar, in less than a minute
  go run ./bench -json out.json              the whole table, in less than ten minutes
  go run ./bench -only '^J1'                 journal against the limit
  go run ./bench -only '^(badger|files)@8$'  rows without a bar

The disk under -dir decides: on tmpfs a flush costs nothing, and the figures mean little.

Flags:
`

func run(args []string, out, log io.Writer) (ok bool, err error) {
	start := time.Now()
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.SetOutput(log)
	b := &bench{log: log}
	flags.BoolVar(&b.quick, "quick", false, "smaller sizes, shorter rounds, and only what bars need")
	only := flags.String("only", "", "`regexp` of the bars and runs to make")
	dir := flags.String("dir", "", "`directory` on the disk to measure; a scratch directory is made in it (default: the system's for temporary files)")
	flags.IntVar(&b.rounds, "rounds", 0, "rounds to take the median of (default 5 with -quick, else 7)")
	file := flags.String("json", "", "`file` to write everything to")
	strict := flags.Bool("strict", false, "exit 1 if a bar is missed")
	flags.Usage = func() {
		_, _ = fmt.Fprint(log, about)
		for _, b := range bars {
			_, _ = fmt.Fprintf(log, "  %-20s %-52s %s\n", b.name, b.what, limit(b.limit, b.atLeast))
		}
		_, _ = fmt.Fprint(log, more)
		flags.PrintDefaults()
	}
	if err := flags.Parse(args); err != nil {
		return false, err
	}
	if flags.NArg() > 0 {
		return false, fmt.Errorf("unexpected argument %q; -h helps", flags.Arg(0))
	}
	if b.rounds <= 0 {
		b.rounds = size(b, 5, 7)
	}
	var chosen []bar
	if chosen, b.wanted, err = choose(*only, b.quick); err != nil {
		return false, err
	}
	if b.dir, err = os.MkdirTemp(*dir, "samekey-bench-"); err != nil {
		return false, err
	}
	defer func() { _ = os.RemoveAll(b.dir) }()
	m := machineOf(b.dir)
	if m.FS == "tmpfs" {
		_, _ = fmt.Fprintln(log, "bench: the scratch directory is in memory, where a flush costs nothing: give -dir a real disk")
	}
	if err := b.run(); err != nil {
		return false, err
	}
	r := report{Machine: m, Quick: b.quick, Rounds: b.rounds, RecordBytes: recordSize, Runs: b.results}
	ok = true
	for _, bar := range chosen {
		if v, has := bar.judge(b.results); has {
			r.Bars = append(r.Bars, v)
			ok = ok && v.OK
		}
	}
	r.Seconds = time.Since(start).Seconds()
	r.print(out, !b.quick)
	if *file != "" {
		text, err := json.MarshalIndent(r, "", "\t")
		if err == nil {
			err = os.WriteFile(*file, append(text, '\n'), 0o644)
		}
		if err != nil {
			return false, err
		}
	}
	return ok || !*strict, nil
}

// machine is what the figures depend on.
type machine struct {
	Go       string `json:"go"`
	Platform string `json:"platform"`
	CPUs     int    `json:"cpus"`
	Procs    int    `json:"gomaxprocs"`
	FS       string `json:"fs"`
}

func machineOf(dir string) machine {
	return machine{runtime.Version(), runtime.GOOS + "/" + runtime.GOARCH, runtime.NumCPU(), runtime.GOMAXPROCS(0), fsOf(dir)}
}

func (m machine) String() string {
	return strings.Join([]string{m.Go, m.Platform, fmt.Sprintf("%d CPUs", m.CPUs), m.FS}, ", ")
}
