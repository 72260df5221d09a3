// Command samekey is the operators' tool for a journal directory: it verifies one, lists and shows what is in it, and
// abandons, forgets, rekeys and resumes operations. It also checks policy files. Run it with -h.
package main

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

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second one kills
	t := &tool{in: os.Stdin, out: os.Stdout, err: os.Stderr, env: os.LookupEnv, now: time.Now}
	if st, err := os.Stdin.Stat(); err == nil {
		t.asks = st.Mode()&os.ModeCharDevice != 0
	}
	os.Exit(t.main(ctx, os.Args[1:]))
}

// tool is one run of the program, and all that it needs of the world.
type tool struct {
	in   io.Reader
	out  io.Writer
	err  io.Writer
	env  func(string) (string, bool)
	now  func() time.Time
	asks bool // there is somebody at a terminal who can answer
}

// The exit codes.
const (
	exitDone  = 0
	exitNo    = 1 // the answer is no: damaged, not found, refused, still unknown
	exitUsage = 2 // a bad command line, or a journal that cannot be read or opened
	exitInUse = 3 // a living process holds the journal
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
	case errors.As(err, &inUse):
		return exitInUse
	case errors.Is(err, persist.ErrNotFound), errors.Is(err, samekey.ErrBusy), errors.Is(err, samekey.ErrKey):
		return exitNo
	}
	return exitUsage
}

// main runs one command line and returns the exit code.
func (t *tool) main(ctx context.Context, args []string) int {
	out := bufio.NewWriter(t.out)
	t.out = out
	err := t.dispatch(ctx, args)
	if ferr := out.Flush(); err == nil && ferr != nil {
		err = bad("writing the output: %w", ferr)
	}
	if err != nil && !errors.Is(err, errSaid) {
		t.complain(err)
	}
	return codeOf(err)
}

// complain says err on stderr, once as a line of this program's.
func (t *tool) complain(err error) { t.warn("%s", trimName(err)) }

func (t *tool) warn(format string, args ...any) {
	_, _ = fmt.Fprintln(t.err, "samekey: "+clean(fmt.Sprintf(format, args...)))
}

func (t *tool) printf(format string, args ...any) { _, _ = fmt.Fprintf(t.out, format, args...) }
