package tool

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/samekey/samekey"
	"github.com/samekey/samekey/persist"
	"github.com/samekey/samekey/persist/journal"
)

// Config says which program it is, and what it knows beside journals. The zero value is command samekey.
type Config struct {
	// Name of the program, as its texts call it. Empty: "samekey".
	Name string
	// Stores are the kinds of store that a URL may name. Journals need none: they are directories.
	Stores []Kind
}

// Kind is a kind of store. Its functions get the URL whole, as it was typed but for a scheme in lower case, or, for
// Script only, the scheme and a colon. They need not hide passwords in their errors: the tool masks what stands in the
// argument, or in the environment, as a password.
type Kind struct {
	// Schemes of its URLs, in lower case without the colon; the first is the usual one.
	Schemes []string
	// Usage is for -h: a form of the URL, a tab, and what it is, in each line.
	Usage string
	// Format is what version tells of what this build reads, such as "schema version 2". Empty: nothing is told.
	Format string
	// Open opens the store for one command, and checks what Want says. An error is one line that names the mend; the
	// program ends with exit code 2 then.
	Open func(ctx context.Context, url string, w Want) (Opened, error)
	// Migrate brings the store's schema up to date, and says in one line what it has done. Nil: there is none to migrate.
	Migrate func(ctx context.Context, url string) (done string, err error)
	// Script returns what Migrate would run, from nothing, for tools of the user's own. It needs no connection. Nil: as
	// Migrate.
	Script func(url string) (string, error)
}

// Want is what a command wants of a store.
type Want struct {
	Use Use
	// Lease is how long claims have to hold without a Mark at least, where the store's claims lapse; 0: as it likes.
	Lease time.Duration
}

// Use is what a store is opened for.
type Use uint8

const (
	// Reading is list, show and stats: Get and List are called, and nothing is claimed or changed. A store that may lose
	// what it has committed is opened all the same.
	Reading Use = iota
	// Changing is abandon, forget, rekey and resume. A store that may lose what it has committed is opened with a Caveat.
	Changing
	// Checking is check: Open has to fail if anything is amiss that a program would need, be it durability or a right.
	// Get and List are called.
	Checking
)

// Opened is a store that is open.
type Opened struct {
	// Store is closed when the command has ended. It need not survive the command's context.
	Store persist.Store
	// Name is what outputs call it, such as the URL without password and parameters. Empty: just that.
	Name string
	// Caveat says why what is changed here may not last, such as "fsync is off". Empty: it lasts.
	Caveat string
}

// Main runs one command line, without the program's name, on the standard streams, and returns the exit code. An
// interrupt (or SIGTERM) ends the command, a second one the program; ctx ends it too.
//
//	0  done
//	1  the answer is no: damaged, no such operation, not confirmed, outcome still unknown
//	2  a bad command line, or a store that cannot be read or opened
//	3  a living process holds the journal, or the operation
func Main(ctx context.Context, args []string, c Config) int {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop)
	t := &tool{Config: c, in: os.Stdin, out: os.Stdout, err: os.Stderr, env: os.LookupEnv, now: time.Now}
	if st, err := os.Stdin.Stat(); err == nil {
		t.asks = st.Mode()&os.ModeCharDevice != 0
	}
	return t.main(ctx, args)
}

// tool is one run of the program, and all that it needs of the world.
type tool struct {
	Config
	in   io.Reader
	out  io.Writer
	err  io.Writer
	env  func(string) (string, bool)
	now  func() time.Time
	asks bool // there is somebody at a terminal who can answer

	masks []string // what no output may show
}

// The exit codes.
const (
	exitDone  = 0
	exitNo    = 1
	exitUsage = 2
	exitInUse = 3
)

// exit is an error with its exit code.
type exit struct {
	code int
	err  error
}

func (e *exit) Error() string { return e.err.Error() }
func (e *exit) Unwrap() error { return e.err }

// no is an error of exit code 1.
func no(format string, args ...any) error { return &exit{exitNo, fmt.Errorf(format, args...)} }

// bad is an error of exit code 2.
func bad(format string, args ...any) error { return &exit{exitUsage, fmt.Errorf(format, args...)} }

// quiet ends the program with a code, when all has been said.
func quiet(code int) error { return &exit{code, errSaid} }

var errSaid = errors.New("said already")

func codeOf(err error) int {
	var e *exit
	var inUse *journal.InUseError
	switch {
	case err == nil:
		return exitDone
	case errors.As(err, &e):
		return e.code
	case errors.As(err, &inUse), errors.Is(err, samekey.ErrBusy):
		return exitInUse
	case errors.Is(err, persist.ErrNotFound), errors.Is(err, samekey.ErrKey):
		return exitNo
	}
	return exitUsage
}

// main runs one command line and returns the exit code.
func (t *tool) main(ctx context.Context, args []string) int {
	if t.Name == "" {
		t.Name = "samekey"
	}
	t.mask(args)
	out := bufio.NewWriter(t.out)
	t.out = out
	err := t.dispatch(ctx, args)
	if ferr := out.Flush(); err == nil && ferr != nil {
		err = bad("writing the output: %w", ferr)
	}
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		err = no("interrupted")
	}
	if err != nil && !errors.Is(err, errSaid) {
		t.complain(err)
	}
	return codeOf(err)
}

// complain says err on stderr, once as a line of this program's.
func (t *tool) complain(err error) { t.warn("%s", oneLine(trimName(err))) }

func (t *tool) warn(format string, args ...any) {
	_, _ = fmt.Fprintln(t.err, t.Name+": "+clean(t.masked(fmt.Sprintf(format, args...))))
}

func (t *tool) printf(format string, args ...any) { _, _ = fmt.Fprintf(t.out, format, args...) }
