package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"time"

	"github.com/samekey/samekey/persist"
	"github.com/samekey/samekey/persist/journal"
)

// parent starts the child, kills it at the moments that the seed has chosen, and starts it again.
type parent struct {
	load
	screen  *screen
	errOut  io.Writer
	dir     string // of the journal
	verbose bool

	starts   int
	kills    []int // effects at which to kill, those still to come
	killed   int   // kills that met operations in flight
	inFlight int   // that they met
}

// withKills is what quickstart does by default.
func withKills(ctx context.Context, o options, s *screen, errOut io.Writer) error {
	l, stop, err := o.open(ctx, o.seed)
	if err != nil {
		return err
	}
	defer stop()
	p := &parent{load: l, screen: s, errOut: errOut, verbose: o.verbose, kills: killPoints(o.seed, o.Orders, o.kills)}
	remove, err := p.makeDir(o.dir)
	if err != nil {
		return err
	}
	defer remove()

	s.say("%d orders to charge at %s, SIGKILLs to come: %d (seed %d)", o.Orders, p.Server, len(p.kills), o.seed)
	planned := len(p.kills)
	began := time.Now()
	unfinished := p.supervise(ctx)
	if unfinished != nil && !errors.Is(unfinished, errChild) {
		return unfinished
	}
	led, err := settledLedger(ctx, p.load)
	if err != nil {
		return err
	}
	pending, err := p.pending(ctx)
	if err != nil {
		return err
	}
	f := led.figures()
	s.table(nil, []line{
		{"operations", []int{f.operations}},
		{"attempts on the wire", []int{f.attempts}},
		{"keys", []int{f.keys}},
		{"answers lost", []int{f.lost}},
		{"effects at the server", []int{f.effects}},
		{"duplicates", []int{f.duplicates}},
		{"left pending", []int{pending}},
		{"SIGKILLs", []int{p.killed}},
		{"in flight at these", []int{p.inFlight}},
	})
	if o.dir != "" {
		s.say("the journal is in %s", p.dir)
	}
	if err := errors.Join(unfinished, verdict(f, o.Orders, pending, planned, p.killed)); err != nil {
		return err
	}
	s.say("Each of the %d orders was charged once, in %.1f s.", o.Orders, time.Since(began).Seconds())
	return nil
}

// verdict holds what happened against what samekey promises.
func verdict(f figures, orders, pending, planned, killed int) error {
	var errs []error
	wrong := func(is bool, format string, args ...any) {
		if is {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	wrong(f.operations != orders, "%d operations reached the server, not %d", f.operations, orders)
	wrong(f.effects != f.operations, "%d effects are not %d operations", f.effects, f.operations)
	wrong(f.duplicates > 0, "%d orders were charged again", f.duplicates)
	wrong(f.keys != f.operations, "%d keys for %d operations", f.keys, f.operations)
	wrong(pending > 0, "%d operations are left pending", pending)
	wrong(planned > 0 && killed == 0, "no SIGKILL met an operation in flight")
	return errors.Join(errs...)
}

// killPoints spreads n kills over the middle of the run: how many effects the server has by then.
func killPoints(seed uint64, orders, n int) []int {
	r := rand.New(rand.NewPCG(seed, 0))
	if n < 0 {
		n = 1 + r.IntN(3)
	}
	points := make([]int, n)
	for i := range points {
		points[i] = int(float64(orders) * (0.3 + 0.4*(float64(i)+r.Float64())/float64(n)))
	}
	return points
}

// makeDir gives the journal a place.
func (p *parent) makeDir(dir string) (remove func(), err error) {
	remove = func() {}
	if dir == "" {
		if dir, err = os.MkdirTemp("", "quickstart-"); err != nil {
			return nil, err
		}
		remove = func() { _ = os.RemoveAll(dir) }
	} else if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	p.dir = filepath.Join(dir, "journal")
	return remove, nil
}

// supervise starts the child until it has come to its end, as a service manager would.
func (p *parent) supervise(ctx context.Context) error {
	const failures = 3
	for failed := 0; ; {
		err := p.once(ctx)
		if err == nil {
			return nil
		}
		if !errors.Is(err, errChild) {
			return err
		}
		if errors.Is(err, errKilled) {
			continue
		}
		if failed++; failed == failures {
			return fmt.Errorf("given up after %d failures, the last: %w", failures, err)
		}
		p.screen.say("%v; it is started again", err)
	}
}

var (
	errChild  = errors.New("the child did not finish")
	errKilled = fmt.Errorf("%w: killed", errChild)
)

// once runs one child, to its end or to its kill.
func (p *parent) once(ctx context.Context) error {
	before, err := readLedger(ctx, p.load)
	if err != nil {
		return err
	}
	p.starts++
	child, err := p.start()
	if err != nil {
		return err
	}
	defer child.end()
	target := math.MaxInt
	if len(p.kills) > 0 {
		target = p.kills[0]
	}
	tick := time.NewTimer(0)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-child.exited:
			return p.finished(child)
		case <-tick.C:
		}
		asked := time.Now()
		led, err := readLedger(ctx, p.load)
		if err != nil {
			return err
		}
		f := led.figures()
		p.screen.progress("child %d: %d of %d orders charged, %d attempts, %d answers lost", p.starts, f.effects, p.Orders, f.attempts, f.lost)
		if f.effects >= target && led.inFlight(before.last()) > 0 {
			child.end()
			return p.afterKill(ctx, child, before.last())
		}
		tick.Reset(max(5*time.Millisecond, 3*time.Since(asked)))
	}
}

// afterKill asks the ledger what the kill has met. The child is dead by now: whatever was open is open for good.
func (p *parent) afterKill(ctx context.Context, c *process, since int) error {
	if c.cmd.ProcessState.Exited() && runtime.GOOS != "windows" { // by itself, a moment before
		return p.finished(c)
	}
	led, err := readLedger(ctx, p.load)
	if err != nil {
		return err
	}
	open := led.inFlight(since)
	p.screen.say("child %d: SIGKILL at %d effects, with %d operations in flight", p.starts, led.figures().effects, open)
	if open > 0 { // else the next child is killed in its place
		p.killed, p.inFlight, p.kills = p.killed+1, p.inFlight+open, p.kills[1:]
	}
	return errKilled
}

// finished tells how a child ended that was not killed.
func (p *parent) finished(c *process) error {
	if !c.cmd.ProcessState.Success() {
		lines := bytes.Split(bytes.TrimSpace(c.stderr.Bytes()), []byte("\n"))
		return fmt.Errorf("%w: child %d: %v: %s", errChild, p.starts, c.cmd.ProcessState, lines[len(lines)-1])
	}
	p.screen.say("child %d: %s", p.starts, bytes.TrimSpace(c.stdout.Bytes()))
	return nil
}

// process is a running child.
type process struct {
	cmd            *exec.Cmd
	stdout, stderr bytes.Buffer
	exited         chan struct{}
}

func (p *parent) start() (*process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	c := &process{exited: make(chan struct{})}
	c.cmd = exec.Command(self, "-server", p.Server, "-run", p.Run, "-n", strconv.Itoa(p.Orders), "-dir", p.dir, "-v="+strconv.FormatBool(p.verbose))
	c.cmd.Env = append(os.Environ(), childEnv+"=1")
	c.cmd.Stdout, c.cmd.Stderr = &c.stdout, &c.stderr
	if p.verbose {
		c.cmd.Stderr = io.MultiWriter(&c.stderr, p.errOut)
	}
	if _, err := c.cmd.StdinPipe(); err != nil { // held open for as long as this process lives
		return nil, err
	}
	if err := c.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		_ = c.cmd.Wait() // ProcessState says it
		close(c.exited)
	}()
	return c, nil
}

// end kills the child (SIGKILL, where there are signals) and returns when it is gone.
func (c *process) end() {
	_ = c.cmd.Process.Kill()
	<-c.exited
}

// pending counts what the journal holds unfinished, now that no child has it open.
func (p *parent) pending(ctx context.Context) (n int, err error) {
	store, err := journal.Open(ctx, p.dir, journal.Options{})
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	for _, err := range store.List(ctx, persist.Filter{States: []persist.State{persist.Pending}}) {
		if err != nil {
			return 0, err
		}
		n++
	}
	return n, nil
}
