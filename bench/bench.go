package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"time"
)

// bench is one run of the program.
type bench struct {
	dir    string // scratch
	quick  bool
	rounds int
	wanted map[string]bool
	log    io.Writer
	results
}

// experiment makes runs that belong together.
type experiment struct {
	name string
	runs []string
	do   func(b *bench, runs []string) error
}

// size picks by -quick.
func size[T any](b *bench, quick, full T) T {
	if b.quick {
		return quick
	}
	return full
}

// experiments are all runs, in order.
func experiments() (es []experiment) {
	for _, g := range levels {
		es = append(es, experiment{
			fmt.Sprintf("begin + settle, %d goroutines", g), settings(names(stores, func(m maker) string { return m.name }), g),
			func(b *bench, runs []string) error { return b.commits(g, runs) },
		})
	}
	return append(es,
		experiment{"allocations", settings([]string{"journal alone"}, 1, 64), (*bench).allocations},
		experiment{"open", []string{"journal@open", "files@read"}, (*bench).opening},
		experiment{"memory", []string{"journal@pending"}, (*bench).memory},
		experiment{"disk", []string{"journal@disk"}, (*bench).disk},
		experiment{"calls", settings(clientNames, "call"), (*bench).calls},
		experiment{"loopback, handler at once", settings(clientNames, handlers[0]), (*bench).loopback},
		experiment{"loopback, handler of 5 ms", settings(clientNames, handlers[1]), (*bench).loopback},
		experiment{"loopback, paced", settings([]string{"net/http", "raw", "samekey journal"}, "paced"), (*bench).paced},
	)
}

// settings names the runs of each contender at each setting.
func settings(contenders []string, settings ...any) (runs []string) {
	for _, c := range contenders {
		for _, s := range settings {
			runs = append(runs, at(c, s))
		}
	}
	return runs
}

// choose returns the bars that only selects, and the runs that are wanted: what these bars need, and what only selects
// by its own name. With no expression that is all bars and all runs, in quick those that bars need.
func choose(only string, quick bool) (chosen []bar, wanted map[string]bool, err error) {
	re, err := regexp.Compile(only)
	if err != nil {
		return nil, nil, err
	}
	wanted = map[string]bool{}
	for _, b := range bars {
		if re.MatchString(b.name) {
			chosen = append(chosen, b)
			for _, r := range b.runs {
				wanted[r] = true
			}
		}
	}
	for _, e := range experiments() {
		for _, r := range e.runs {
			if re.MatchString(r) && (only != "" || !quick) {
				wanted[r] = true
			}
		}
	}
	if len(wanted) == 0 {
		return nil, nil, fmt.Errorf("-only %s selects nothing; -h lists the names", only)
	}
	return chosen, wanted, nil
}

// run makes all wanted runs.
func (b *bench) run() error {
	b.results = results{}
	for _, e := range experiments() {
		runs := slices.DeleteFunc(slices.Clone(e.runs), func(r string) bool { return !b.wanted[r] })
		if len(runs) == 0 {
			continue
		}
		start := time.Now()
		if err := e.do(b, runs); err != nil {
			return fmt.Errorf("%s: %w", e.name, err)
		}
		_, _ = fmt.Fprintf(b.log, "%6.1fs  %s\n", time.Since(start).Seconds(), e.name)
	}
	return nil
}

// scratch makes an empty directory; remove it when done.
func (b *bench) scratch() (string, error) { return os.MkdirTemp(b.dir, "run-") }

// contestant is one of those that take turns.
type contestant struct {
	run     string
	measure func() (sample, error)
	slow    bool // has one turn in a round; found out
}

// interleave has the contestants take turns, back and forth, so that what slows the machine for a while slows all of
// them; a round is several turns of each. A first turn warms up and is not kept.
func (b *bench) interleave(turns int, cs []contestant) error {
	cs = slices.Clone(cs)
	for turn := -1; turn < turns*b.rounds; turn++ {
		for i := range cs {
			c := &cs[i]
			if c.slow && turn%turns != 0 {
				continue
			}
			runtime.GC()
			time.Sleep(20 * time.Millisecond) // what the one before left to do in the background
			s, err := c.measure()
			switch {
			case err != nil:
				return fmt.Errorf("%s: %w", c.run, err)
			case turn < 0:
				c.slow = s.Took > 300*time.Millisecond
			case turn%turns == 0:
				b.results[c.run] = append(b.results[c.run], s)
			default:
				b.results[c.run][turn/turns].add(s)
			}
		}
		slices.Reverse(cs)
	}
	return nil
}

// commits lets the stores begin and settle.
func (b *bench) commits(g int, runs []string) (err error) {
	dir, err := b.scratch()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	var cs []contestant
	for i, m := range stores {
		run := at(m.name, g)
		if !slices.Contains(runs, run) {
			continue
		}
		sub := filepath.Join(dir, fmt.Sprint(i))
		if err := os.Mkdir(sub, 0o700); err != nil {
			return err
		}
		s, err := m.open(sub, g)
		if err != nil {
			return fmt.Errorf("%s: %w", m.name, err)
		}
		defer func() { err = errors.Join(err, s.close()) }()
		cs = append(cs, contestant{run: run, measure: func() (sample, error) {
			return operate(s, g, lasting(size(b, 50*time.Millisecond, 80*time.Millisecond)))
		}})
	}
	return b.interleave(size(b, 3, 4), cs)
}

// operate drives a store, and counts the flushes of a journal.
func operate(s store, g int, more func() bool) (sample, error) {
	j, _ := s.(*journalStore)
	var before int64
	if j != nil {
		before = j.Stats().Syncs
	}
	m, err := drive(g, more, func() error {
		id := nextID()
		token, err := s.begin(id)
		if err == nil {
			err = s.settle(id, token)
		}
		return err
	})
	if j != nil {
		m.Syncs = j.Stats().Syncs - before
	}
	return m, err
}

// cut takes the name of a run apart.
func cut(run string) (contender, setting string) {
	i := strings.LastIndexByte(run, '@')
	return run[:i], run[i+1:]
}
