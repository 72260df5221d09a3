// Command quickstart places a hundred orders through a bad network, and is killed while it does. Run it with -h.
//
// child.go is the part to copy: it is all that a program needs of samekey.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/url"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
)

const teach = `quickstart charges 100 orders at a mock server that loses answers, answers 503, stalls and cuts answers off. The
program that charges them is killed with SIGKILL in the middle, one to three times; each time the same program is
started again, finds its keys in its journal, and goes on. In the end every order was charged exactly once.

The figures are the server's own, from its ledger: what the client believes does not count.

  go run ./examples/quickstart             exits 0 if effects = operations, no duplicates, nothing left pending
  go run ./examples/quickstart -naive      the same load by go-retryablehttp alone: orders are charged twice
  go run ./examples/quickstart -seed 7     the same faults, and kills at the same places, as the last time with 7

Exit status: 0 it holds (with -naive: it was shown), 1 it does not, 2 the command line is wrong.

Flags
`

// childEnv is set for the copies of itself that the program starts and kills.
const childEnv = "QUICKSTART_CHILD"

func main() {
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

type options struct {
	load
	seed    uint64
	kills   int
	naive   bool
	dir     string
	verbose bool
}

func run(args []string, out, errOut io.Writer) int {
	o, err := parse(args, errOut)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		complain(errOut, "%v; see -h", err)
		return 2
	}
	if os.Getenv(childEnv) != "" {
		return asChild(o, out, errOut)
	}

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	story := withKills
	if o.naive {
		story = withoutSamekey
	}
	s := newScreen(out)
	err = story(ctx, o, s, errOut)
	s.wipe()
	switch {
	case ctx.Err() != nil:
		complain(errOut, "interrupted")
	case err != nil:
		complain(errOut, "%v", err)
	default:
		return 0
	}
	return 1
}

func asChild(o options, out, errOut io.Writer) int {
	signal.Ignore(os.Interrupt) // a terminal sends it to both: the parent ends its child
	// The parent holds the other end of stdin for as long as it lives: no orphan goes on charging.
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(1)
	}()
	level := slog.LevelWarn
	if o.verbose {
		level = slog.LevelInfo
	}
	log := slog.New(slog.NewTextHandler(errOut, &slog.HandlerOptions{Level: level}))
	if err := child(context.Background(), o.load, o.dir, log, out); err != nil {
		complain(errOut, "%v", err)
		return 1
	}
	return 0
}

func complain(w io.Writer, format string, args ...any) {
	_, _ = fmt.Fprintf(w, "quickstart: "+format+"\n", args...)
}

func parse(args []string, errOut io.Writer) (o options, err error) {
	fs := flag.NewFlagSet("quickstart", flag.ContinueOnError)
	fs.SetOutput(io.Discard) // run reports the error, once
	fs.Uint64Var(&o.seed, "seed", 0, "decides faults and kills; 0: a new one for each run, which it prints")
	fs.IntVar(&o.Orders, "n", 100, "how many orders, 10 to 10000")
	fs.IntVar(&o.kills, "kills", -1, "how often to kill, 0 to 5; -1: one to three times, by the seed")
	fs.StringVar(&o.Server, "server", "", "`URL` of a mock server that runs already (cmd/mockserver), in place of one's own")
	fs.BoolVar(&o.naive, "naive", false, "without samekey: a new key for each attempt, and then no key at all")
	fs.StringVar(&o.dir, "dir", "", "keep the journal, as `DIR`/journal")
	fs.BoolVar(&o.verbose, "v", false, "show what the client logs")
	fs.StringVar(&o.Run, "run", "", "") // for the child
	if err := fs.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			usage(fs, errOut)
		}
		return o, err
	}
	switch u, uerr := url.Parse(o.Server); {
	case fs.NArg() > 0:
		return o, fmt.Errorf("unexpected argument %q", fs.Arg(0))
	case o.Orders < 10 || o.Orders > 10000:
		return o, fmt.Errorf("-n is %d: at least 10, so that there is a middle to be killed in, and at most 10000", o.Orders)
	case o.kills < -1 || o.kills > 5:
		return o, fmt.Errorf("-kills is %d: 0 to 5, or -1 to leave it to the seed", o.kills)
	case o.Server != "" && (uerr != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https"):
		return o, fmt.Errorf("-server is %q: it is a URL such as http://127.0.0.1:8099", o.Server)
	case o.naive && o.dir != "":
		return o, errors.New("-naive keeps nothing on disk, so that there is no -dir")
	case o.naive && o.kills > 0:
		return o, errors.New("-naive needs no kills to go wrong; leave -kills away")
	}
	o.Server = strings.TrimRight(o.Server, "/")
	if os.Getenv(childEnv) != "" {
		return o, nil
	}
	if o.dir != "" {
		if _, err := os.Stat(filepath.Join(o.dir, "journal")); err == nil {
			return o, fmt.Errorf("-dir: %s holds a journal from an earlier run; remove it or name another folder", o.dir)
		}
	}
	if o.seed == 0 {
		o.seed = uint64(rand.Uint32N(999_999)) + 1
	}
	o.Run = fmt.Sprintf("seed-%d", o.seed)
	return o, nil
}

func usage(fs *flag.FlagSet, w io.Writer) {
	_, _ = fmt.Fprint(w, teach)
	fs.VisitAll(func(f *flag.Flag) {
		if f.Usage != "" {
			name, text := flag.UnquoteUsage(f)
			switch name {
			case "int", "uint":
				name = "N"
			}
			_, _ = fmt.Fprintf(w, "  %-12s %s\n", strings.TrimSpace("-"+f.Name+" "+name), text)
		}
	})
}
