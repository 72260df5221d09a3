package main

import (
	"fmt"
	"io"
	"time"
)

// screen is where the story goes.
type screen struct {
	w    io.Writer
	next time.Time // progress is told once a second
}

func newScreen(w io.Writer) *screen { return &screen{w: w, next: time.Now().Add(time.Second)} }

func (s *screen) say(format string, args ...any) { _, _ = fmt.Fprintf(s.w, format+"\n", args...) }

func (s *screen) progress(format string, args ...any) {
	if time.Now().After(s.next) {
		s.next = time.Now().Add(time.Second)
		s.say(format, args...)
	}
}

// line is one of the table.
type line struct {
	name   string
	figure int
}

func (s *screen) table(lines []line) {
	s.say("")
	for _, l := range lines {
		s.say("  %-30s  %6d", l.name, l.figure)
	}
	s.say("")
}
