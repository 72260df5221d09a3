package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
)

// fleet is the workers, and the orders that nobody has had yet. It hands out as many as they have hands.
type fleet struct {
	workers []*process // nil: none there
	queue   []string
	done    int
	events  chan event
	launch  func(i int) (*exec.Cmd, error)
}

// process is a running worker.
type process struct {
	i      int
	cmd    *exec.Cmd
	tasks  io.WriteCloser
	inHand map[string]bool
	stderr bytes.Buffer
	exited chan struct{}
}

// event is a line that a worker has said: done, later or recovered, of an order. The last one is exited.
type event struct {
	from              *process
	verb, order, text string
}

func newFleet(n int, launch func(i int) (*exec.Cmd, error)) *fleet {
	return &fleet{workers: make([]*process, n), events: make(chan event, 10_000), launch: launch}
}

func name(i int) string { return fmt.Sprint("worker-", i+1) }

// command is a copy of this program, as a worker.
func command(w worker, errOut io.Writer) (*exec.Cmd, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	told, err := json.Marshal(w)
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), childEnv+"="+string(told))
	if w.Verbose {
		cmd.Stderr = errOut
	}
	return cmd, nil
}

func (f *fleet) start(i int) error {
	cmd, err := f.launch(i)
	if err != nil {
		return err
	}
	p := &process{i: i, cmd: cmd, inHand: map[string]bool{}, exited: make(chan struct{})}
	if cmd.Stderr == nil {
		cmd.Stderr = &p.stderr
	}
	if p.tasks, err = cmd.StdinPipe(); err != nil { // it ends with this process too: no orphan goes on charging
		return err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	f.workers[i] = p
	go func() {
		for lines := bufio.NewScanner(out); lines.Scan(); {
			verb, rest, _ := strings.Cut(lines.Text(), " ")
			order, text, _ := strings.Cut(rest, " ")
			f.events <- event{p, verb, order, text}
		}
		_ = cmd.Wait() // ProcessState says it
		close(p.exited)
		f.events <- event{from: p, verb: "exited"}
	}()
	f.feed()
	return nil
}

// feed hands out orders to who has a hand free.
func (f *fleet) feed() {
	for _, p := range f.workers {
		for p != nil && len(p.inHand) < hands && len(f.queue) > 0 {
			order := f.queue[0]
			f.queue = f.queue[1:]
			p.inHand[order] = true
			_, _ = fmt.Fprintln(p.tasks, order) // to a worker that has died meanwhile: that comes as an event
		}
	}
}

func (f *fleet) handle(e event) error {
	switch e.verb {
	case "exited":
		if f.workers[e.from.i] == e.from {
			f.workers[e.from.i] = nil
			return fmt.Errorf("%s: %w", name(e.from.i), e.from.failure())
		}
	case "done":
		f.done++
		delete(e.from.inHand, e.order)
	case "later": // those who recover finish it
		delete(e.from.inHand, e.order)
	}
	f.feed()
	return nil
}

// failure is how a process ended that should not have.
func (p *process) failure() error {
	lines := strings.Split(strings.TrimSpace(p.stderr.String()), "\n")
	return fmt.Errorf("%v: %s", p.cmd.ProcessState, lines[len(lines)-1])
}

// idle reports whether nobody has anything in hand.
func (f *fleet) idle() bool {
	for _, p := range f.workers {
		if p != nil && len(p.inHand) > 0 {
			return false
		}
	}
	return len(f.queue) == 0
}

// kill kills p (SIGKILL, where there are signals) and returns when it is gone.
func (f *fleet) kill(p *process) {
	_ = p.cmd.Process.Kill()
	<-p.exited
	f.workers[p.i] = nil
}

func (f *fleet) killAll() {
	for _, p := range f.workers {
		if p != nil {
			f.kill(p)
		}
	}
}

// end has the workers come to their end.
func (f *fleet) end() error {
	var errs []error
	for i, p := range f.workers {
		if p == nil {
			continue
		}
		_ = p.tasks.Close()
		<-p.exited
		f.workers[i] = nil
		if !p.cmd.ProcessState.Success() {
			errs = append(errs, fmt.Errorf("%s: %w", name(i), p.failure()))
		}
	}
	return errors.Join(errs...)
}
