package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"strings"
	"time"
)

// process is the running shop.
type process struct {
	cmd    *exec.Cmd
	stdin  io.Closer
	lines  chan string // that it says; closed once it can say no more
	stderr bytes.Buffer
	exited chan struct{}
}

func (p *parent) start() (*process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	told, err := json.Marshal(job{DB: p.db, Bank: p.bank.URL, Lease: p.lease, Interval: time.Second, First: p.begun + 1, Last: p.orders, Verbose: p.verbose})
	if err != nil {
		return nil, err
	}
	c := &process{cmd: exec.Command(self), lines: make(chan string, math.MaxInt16), exited: make(chan struct{})}
	c.cmd.Env = append(os.Environ(), childEnv+"="+string(told))
	c.cmd.Stderr = &c.stderr
	if p.verbose {
		c.cmd.Stderr = io.MultiWriter(&c.stderr, p.errOut)
	}
	if c.stdin, err = c.cmd.StdinPipe(); err != nil { // it ends with this process too: no orphan goes on charging
		return nil, err
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := c.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		for lines := bufio.NewScanner(out); lines.Scan(); {
			c.lines <- lines.Text()
		}
		close(c.lines)
		_ = c.cmd.Wait() // ProcessState says it
		close(c.exited)
	}()
	return c, nil
}

// stop has the shop come to its end.
func (c *process) stop() error {
	_ = c.stdin.Close()
	for range c.lines { // there are none
	}
	<-c.exited
	if c.cmd.ProcessState.Success() {
		return nil
	}
	return fmt.Errorf("%w: %w", errGivenUp, c.failure())
}

func (c *process) failure() error {
	lines := strings.Split(strings.TrimSpace(c.stderr.String()), "\n")
	return fmt.Errorf("has ended: %v: %s", c.cmd.ProcessState, lines[len(lines)-1])
}

// end kills what is still there.
func (c *process) end() {
	_ = c.cmd.Process.Kill()
	for range c.lines {
	}
	<-c.exited
}
