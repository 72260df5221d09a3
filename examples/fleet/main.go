// Command fleet has three processes share one database and one server, and kills one of them. Run it with -h.
//
// child.go is the part to copy: it is all that a worker needs of samekey.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

const teach = `fleet charges 300 orders at a mock server that loses answers, answers 503, stalls and cuts answers off. Three worker
processes do it, each with a client of its own; what they share is one table in one database (persist/sqlstore). Worker 2
is killed with SIGKILL in the middle, with orders in flight, and is not started again: the other two find its orders in
the table, once their leases are over, and finish each under the key that it had. In the end every order was charged
exactly once.

Whoever sends an order holds a lease on it. It is renewed before each attempt, and past it nothing is sent any more: so
the dead worker's orders are free a lease after its last attempts, and nobody has to find out whether it is really dead.

The figures are the server's own, from its ledger, and the database's.

  go run ./examples/fleet                       a private PostgreSQL, from the installed one, that goes afterwards
  go run ./examples/fleet -dsn postgres://...   one that runs already: a schema of its own, which is dropped afterwards
  go run ./examples/fleet -dialect mariadb      the same with MariaDB; -dsn is as github.com/go-sql-driver/mysql takes it
  go run ./examples/fleet -lease 10s            the orders of the dead worker wait longer

Exit status: 0 effects = operations, no duplicates, nothing left pending, and what the kill had met was taken over; 1 it
does not hold; 2 the command line is wrong.

Flags
`

func main() {
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

type options struct {
	orders  int
	lease   time.Duration
	dialect string
	dsn     string
	seed    uint64
	verbose bool
}

func run(args []string, out, errOut io.Writer) int {
	if told := os.Getenv(childEnv); told != "" {
		return asChild(told, out, errOut)
	}
	o, err := parse(args, errOut)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		complain(errOut, err)
		return 2
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err = story(ctx, o, newScreen(out), errOut)
	switch {
	case ctx.Err() != nil:
		complain(errOut, errors.New("interrupted"))
	case err != nil:
		complain(errOut, err)
	default:
		return 0
	}
	return 1
}

func asChild(told string, out, errOut io.Writer) int {
	signal.Ignore(os.Interrupt) // a terminal sends it to all: the parent ends its workers
	w, err := readWorker(told)
	if err == nil {
		level := slog.LevelWarn
		if w.Verbose {
			level = slog.LevelInfo
		}
		log := slog.New(slog.NewTextHandler(errOut, &slog.HandlerOptions{Level: level}))
		err = child(context.Background(), w, os.Stdin, out, log)
	}
	if err != nil {
		complain(errOut, err)
		return 1
	}
	return 0
}

func complain(w io.Writer, err error) { _, _ = fmt.Fprintf(w, "fleet: %v\n", err) }

func parse(args []string, errOut io.Writer) (o options, err error) {
	fs := flag.NewFlagSet("fleet", flag.ContinueOnError)
	fs.SetOutput(io.Discard) // run reports the error, once
	fs.IntVar(&o.orders, "n", 300, "how many orders, 60 to 10000")
	fs.DurationVar(&o.lease, "lease", 3*time.Second, "how long a claim holds without a mark, 1s to 1m; an attempt has a third of it")
	fs.StringVar(&o.dialect, "dialect", "postgresql", "`NAME` of the database: postgresql or mariadb")
	fs.StringVar(&o.dsn, "dsn", "", "`DSN` of a database that runs already, whose user may create schemas; empty: a private one")
	fs.Uint64Var(&o.seed, "seed", 0, "decides which requests the server's faults strike; 0: a new one for each run")
	fs.BoolVar(&o.verbose, "v", false, "show what the workers log")
	if err := fs.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			usage(fs, errOut)
		}
		return o, err
	}
	switch {
	case fs.NArg() > 0:
		return o, fmt.Errorf("unexpected argument %q; see -h", fs.Arg(0))
	case o.orders < 60 || o.orders > 10_000:
		return o, fmt.Errorf("-n is %d: at least 60, so that there is a middle to be killed in, and at most 10000", o.orders)
	case o.lease < time.Second || o.lease > time.Minute:
		return o, fmt.Errorf("-lease is %v: 1s to 1m", o.lease)
	case dialects[o.dialect] == nil:
		return o, fmt.Errorf("-dialect is %q: postgresql or mariadb", o.dialect)
	}
	// What the driver says of it may show a password.
	if d := dialects[o.dialect]; o.dsn != "" && d.parse(o.dsn) != nil {
		return o, fmt.Errorf("-dsn cannot be read: one for %s looks like %s", o.dialect, d.dsn)
	}
	if o.seed == 0 {
		o.seed = uint64(rand.Uint32N(999_999)) + 1
	}
	return o, nil
}

func usage(fs *flag.FlagSet, w io.Writer) {
	_, _ = fmt.Fprint(w, teach)
	fs.VisitAll(func(f *flag.Flag) {
		name, text := flag.UnquoteUsage(f)
		switch name {
		case "int", "uint":
			name = "N"
		case "duration":
			name = "D"
		}
		_, _ = fmt.Fprintf(w, "  %-14s %s\n", strings.TrimSpace("-"+f.Name+" "+name), text)
	})
}
