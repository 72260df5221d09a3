// Command outbox places orders in a database, each in one transaction with the command that charges it, and is killed
// while it does. Run it with -h.
//
// shop.go is the part to copy, child.go the program around it.
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

	"github.com/samekey/samekey/mockserver"
	"github.com/samekey/samekey/persist/persisttest/servertest"
)

const teach = `outbox is a shop. An order, and the command that charges it at a bank, are written in one transaction: both are there
after the commit, neither after a rollback, whoever dies when. Nothing is sent while the transaction is open. After the
commit the database itself wakes the sender (LISTEN and NOTIFY in PostgreSQL), which charges under the key that was
written down, as often as it takes, and writes the bank's answer into the order's row.

500 orders are placed here, a third of them for what turns out to be sold out and is rolled back. The bank loses answers,
answers 503, stalls and cuts answers off. The shop is killed with SIGKILL ten times, inside transactions, between commit
and charge, and while it charges; each time the same program is started again. In the end every committed order was
charged exactly once and is marked as paid, and of the others the bank has never heard.

The figures are the database's own, and the bank's, from its ledger: what the shop believes does not count.

  go run ./examples/outbox                      a private PostgreSQL, from the installed one, that goes afterwards;
                                                where none is installed, SQLite in a file
  go run ./examples/outbox -dialect mariadb     a private MariaDB; or -dialect sqlite
  go run ./examples/outbox -dsn postgres://...  a database that runs already: tables of its own, which are dropped
                                                afterwards. MariaDB's is as github.com/go-sql-driver/mysql takes it, with
                                                -dialect mariadb; a password stays out of sight in $OUTBOX_DSN
  go run ./examples/outbox -seed 7              the same faults and kills as the last time with 7

Exit status: 0 it holds, 1 it does not, 2 the command line is wrong.

Flags
`

func main() {
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

type options struct {
	orders  int
	kills   int
	lease   time.Duration
	dialect string
	dsn     string
	seed    uint64
	verbose bool

	patience time.Duration // with which nothing new is waited for
	faults   func() []mockserver.Fault
	start    func(context.Context, *servertest.Kind, ...string) (*servertest.Server, error)
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
		complain(errOut, "%v; see -h", err)
		return 2
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	_, err = story(ctx, o, newScreen(out), errOut)
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

func asChild(told string, out, errOut io.Writer) int {
	signal.Ignore(os.Interrupt) // a terminal sends it to both: the parent ends its child
	j, err := readJob(told)
	if err == nil {
		level := slog.LevelWarn
		if j.Verbose {
			level = slog.LevelInfo
		}
		log := slog.New(slog.NewTextHandler(errOut, &slog.HandlerOptions{Level: level}))
		err = child(context.Background(), j, os.Stdin, out, log)
	}
	if err != nil {
		complain(errOut, "%v", err)
		return 1
	}
	return 0
}

func complain(w io.Writer, format string, args ...any) {
	_, _ = fmt.Fprintf(w, "outbox: "+format+"\n", args...)
}

func parse(args []string, errOut io.Writer) (o options, err error) {
	o.patience, o.faults, o.start = 30*time.Second, faults, servertest.Start
	fs := flag.NewFlagSet("outbox", flag.ContinueOnError)
	fs.SetOutput(io.Discard) // run reports the error, once
	fs.IntVar(&o.orders, "n", 500, "how many orders, 60 to 10000")
	fs.IntVar(&o.kills, "kills", 10, "how often to kill, 0 to 20")
	fs.DurationVar(&o.lease, "lease", 3*time.Second, "how long what a dead shop had in hand waits for the next one, 1s to 1m")
	fs.StringVar(&o.dialect, "dialect", "", "`NAME` of the database: postgresql, mariadb or sqlite")
	fs.StringVar(&o.dsn, "dsn", "", "`DSN` of a database that runs already, whose user may create tables; empty: a private one")
	fs.Uint64Var(&o.seed, "seed", 0, "decides faults and kills; 0: a new one for each run, which it prints")
	fs.BoolVar(&o.verbose, "v", false, "show what the shop logs")
	if err := fs.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			usage(fs, errOut)
		}
		return o, err
	}
	if o.dsn == "" {
		o.dsn = os.Getenv("OUTBOX_DSN")
	}
	if o.dsn != "" && o.dialect == "" && (strings.HasPrefix(o.dsn, "postgres://") || strings.HasPrefix(o.dsn, "postgresql://")) {
		o.dialect = "postgresql"
	}
	switch {
	case fs.NArg() > 0:
		return o, fmt.Errorf("unexpected argument %q", fs.Arg(0))
	case o.orders < 60 || o.orders > 10_000:
		return o, fmt.Errorf("-n is %d: at least 60, so that there is a middle to be killed in, and at most 10000", o.orders)
	case o.kills < 0 || o.kills > 20:
		return o, fmt.Errorf("-kills is %d: 0 to 20", o.kills)
	case o.lease < time.Second || o.lease > time.Minute:
		return o, fmt.Errorf("-lease is %v: 1s to 1m", o.lease)
	case o.dialect != "" && dialects[o.dialect] == nil:
		return o, fmt.Errorf("-dialect is %q: postgresql, mariadb or sqlite", o.dialect)
	case o.dsn != "" && o.dialect == "":
		return o, errors.New("-dsn is no postgres:// URL: say with -dialect what it is")
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
