// Package crashtest runs parts of a test in child processes that die by SIGKILL at a step of samekey's protocol, and
// reads what they had acknowledged by then.
package crashtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/samekey/samekey"
)

const childEnv = "SAMEKEY_CRASHTEST_CHILD"

// Main is for TestMain: it runs the child that this process was started as, or else the tests.
func Main(m *testing.M, children map[string]func() error) {
	name, is := os.LookupEnv(childEnv)
	if !is {
		os.Exit(m.Run())
	}
	f := children[name]
	if f == nil {
		fmt.Fprintf(os.Stderr, "crashtest: no child %q\n", name)
		os.Exit(2)
	}
	if err := f(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// Result of a child.
type Result struct {
	Acks   []string // the lines that it printed
	Stderr string
	Killed bool // by SIGKILL, its own or the test's
	Code   int
}

// Run runs the child name to its end, with env ("NAME=value") added; a child that has not ended within a minute fails
// the test.
func Run(t testing.TB, name string, env ...string) Result {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, os.Args[0], "-test.run=^$")
	cmd.Env = append(append(os.Environ(), childEnv+"="+name, "GORACE=atexit_sleep_ms=0"), env...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	if ctx.Err() != nil {
		t.Fatalf("child %s did not end within a minute\n%s%s", name, out.String(), errs.String())
	}
	r := Result{Acks: strings.Fields(out.String()), Stderr: errs.String()}
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		r.Code = exit.ExitCode()
		if ws, ok := exit.Sys().(syscall.WaitStatus); ok {
			r.Killed = ws.Signaled() && ws.Signal() == syscall.SIGKILL
		}
	} else if err != nil {
		t.Fatal(err)
	}
	return r
}

// Ack prints a line that the parent reads, and that is out of the process once Ack has returned.
func Ack(format string, args ...any) {
	fmt.Fprintf(os.Stdout, format+"\n", args...) // os.Stdout is not buffered
}

// Kill ends this process as SIGKILL does: nothing deferred runs, nothing buffered is flushed.
func Kill() {
	if p, err := os.FindProcess(os.Getpid()); err == nil {
		_ = p.Kill()
	}
	select {}
}

// KillAt returns an Observer that kills the process when the n-th event of the step comes, n from 1. The point reads
// "step" or "step/n".
func KillAt(point string) samekey.Observer {
	name, nth, _ := strings.Cut(point, "/")
	n, err := strconv.Atoi(nth)
	if err != nil {
		n = 1
	}
	var seen atomic.Int64
	return func(_ context.Context, e samekey.Event) {
		if e.Step.String() == name && seen.Add(1) == int64(n) {
			Kill()
		}
	}
}
