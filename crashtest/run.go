package crashtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// TB is what this package needs of a *testing.T.
type TB interface {
	Helper()
	Fatalf(format string, args ...any)
	Cleanup(f func())
	TempDir() string
}

// T is a TB with subtests.
type T[S any] interface {
	TB
	Run(name string, f func(S)) bool
}

// Life is what is known of one process from its start to its end.
type Life struct {
	Point  string // that it was to die at, "" for none
	Killed bool   // by SIGKILL, its own or the test's
	Code   int    // its exit code, where it was not killed
	Stdout string
	Stderr string
}

// Acks are the words that it printed, of which the last one is whole even if it was killed.
func (l Life) Acks() []string { return strings.Fields(l.Stdout) }

// Limit is how long a process may live. One that is still there then is killed, and fails its test.
const Limit = time.Minute

// Case is a program in a world of its own: a fresh directory, a fresh server.
type Case struct {
	// Command makes the program's command. It is called for each life, always for the same world. Stdout and Stderr
	// are set by Each.
	Command func() *exec.Cmd
	// Check looks at the world after the last life, which had no point. lives are all, in their order.
	Check func(lives []Life)
}

// Each tests a program at each point, in subtests: it has world make a Case, runs the Case's command with the point,
// which has to kill it, and once more without; then Check looks. "a then b" is a point for the first life and another
// one for the second, and so on.
func Each[S T[S]](t S, points []string, world func(t S, point string) Case) {
	t.Helper()
	if len(points) == 0 {
		t.Fatalf("crashtest: no points")
	}
	for _, point := range points {
		t.Run(point, func(t S) {
			t.Helper()
			c := world(t, point)
			var lives []Life
			for at := range strings.SplitSeq(point, " then ") {
				life := Run(t, at, c.Command())
				if !life.Killed {
					t.Fatalf("crashtest: %q was not reached: life %d ended by itself with exit code %d\n%s%s",
						at, len(lives)+1, life.Code, life.Stdout, life.Stderr)
				}
				lives = append(lives, life)
			}
			c.Check(append(lives, Run(t, "", c.Command())))
		})
	}
}

// Run runs cmd to its end, which is the point if that is not empty.
func Run(t TB, point string, cmd *exec.Cmd) Life {
	t.Helper()
	return Start(t, point, cmd).Wait()
}

// Passed runs cmd, in a world that it may use up, and returns the points that it passes, in their order, as Each takes
// them. What runs at the same time may come in another order the next time.
func Passed(t TB, cmd *exec.Cmd) (points []string) {
	t.Helper()
	file := t.TempDir() + "/passed"
	cmd.Env = append(environ(cmd), passedEnv+"="+file)
	if life := Run(t, "", cmd); life.Killed || life.Code != 0 {
		t.Fatalf("crashtest: left alone the program ends with exit code %d (killed: %v)\n%s%s", life.Code, life.Killed, life.Stdout, life.Stderr)
	}
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatalf("crashtest: the program passes no point; does its client have crashtest.Observer? %v", err)
	}
	return strings.Split(strings.TrimSuffix(string(b), "\n"), "\n")
}

// Process is a life that has not ended.
type Process struct {
	t      TB
	point  string
	cmd    *exec.Cmd
	ended  chan struct{}
	err    error
	out    bytes.Buffer
	errOut bytes.Buffer
}

// Start starts cmd. The process is killed when the test ends, if it is still there.
func Start(t TB, point string, cmd *exec.Cmd) *Process {
	t.Helper()
	p := &Process{t: t, point: point, cmd: cmd, ended: make(chan struct{})}
	// A race-enabled program sleeps for a second before it exits, unless told otherwise.
	cmd.Env = append(environ(cmd), PointEnv+"="+point, "GORACE=atexit_sleep_ms=0")
	cmd.Stdout, cmd.Stderr = &p.out, &p.errOut
	if err := cmd.Start(); err != nil {
		t.Fatalf("crashtest: %v", err)
	}
	go func() {
		p.err = cmd.Wait()
		close(p.ended)
	}()
	t.Cleanup(p.Kill)
	return p
}

func environ(cmd *exec.Cmd) []string {
	if cmd.Env != nil {
		return cmd.Env
	}
	return os.Environ()
}

// Kill kills the process and returns when it is gone.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill() // it may have ended
	<-p.ended
}

// Ended is closed when the process is gone.
func (p *Process) Ended() <-chan struct{} { return p.ended }

// Wait waits for the end, for Limit at most.
func (p *Process) Wait() Life {
	p.t.Helper()
	limit := time.NewTimer(Limit)
	defer limit.Stop()
	select {
	case <-p.ended:
	case <-limit.C:
		p.Kill()
		p.t.Fatalf("crashtest: %s did not end within %v (point %q)\n%s%s", p.cmd, Limit, p.point, p.out.String(), p.errOut.String())
	}
	l := Life{Point: p.point, Stdout: p.out.String(), Stderr: p.errOut.String()}
	if exit, ok := errors.AsType[*exec.ExitError](p.err); ok {
		l.Code, l.Killed = exit.ExitCode(), killed(exit)
	} else if p.err != nil {
		p.t.Fatalf("crashtest: %v", p.err)
	}
	return l
}

func killed(exit *exec.ExitError) bool {
	if runtime.GOOS == "windows" { // which has no signals: who is killed exits with 1
		return exit.ExitCode() == 1
	}
	ws, ok := exit.Sys().(syscall.WaitStatus)
	return ok && ws.Signaled() && ws.Signal() == syscall.SIGKILL
}

// childEnv names the child that a test binary was started as.
const childEnv = "SAMEKEY_CRASHTEST_CHILD"

// Main is for TestMain, where the program is a function of the test binary itself: it runs the child that this process
// was started as by [Child], or else the tests. It does not return.
func Main(m interface{ Run() int }, children map[string]func() error) {
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

// Child is the command that has the test binary run the child of this name, with env ("NAME=value") added.
func Child(name string, env ...string) *exec.Cmd {
	cmd := exec.CommandContext(context.Background(), os.Args[0], "-test.run=^$")
	cmd.Env = append(append(os.Environ(), childEnv+"="+name), env...)
	return cmd
}

// Ack prints a line that the parent reads, and that is out of the process once Ack has returned.
func Ack(format string, args ...any) {
	fmt.Fprintf(os.Stdout, format+"\n", args...) // os.Stdout is not buffered
}
