package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"
)

// screen is where the story goes. On a terminal the progress is one line that is written over, elsewhere a line each
// second.
type screen struct {
	w     io.Writer
	tty   bool
	width int // of the progress that stands there
	next  time.Time
}

func newScreen(w io.Writer) *screen {
	s := &screen{w: w, next: time.Now().Add(time.Second)}
	if f, ok := w.(*os.File); ok {
		info, err := f.Stat()
		s.tty = err == nil && info.Mode()&os.ModeCharDevice != 0
	}
	return s
}

func (s *screen) printf(format string, args ...any) { _, _ = fmt.Fprintf(s.w, format, args...) }

func (s *screen) say(format string, args ...any) {
	s.wipe()
	s.printf(format+"\n", args...)
}

func (s *screen) progress(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	switch {
	case s.tty:
		s.printf("\r%-*s", s.width, text)
		s.width = len(text)
	case time.Now().After(s.next):
		s.next = time.Now().Add(time.Second)
		s.printf("%s\n", text)
	}
}

func (s *screen) wipe() {
	if s.width > 0 {
		s.printf("\r%s\r", strings.Repeat(" ", s.width))
		s.width = 0
	}
}

// line is one of a table, with a figure for each column.
type line struct {
	name    string
	figures []int
}

func (s *screen) table(heads []string, lines []line) {
	s.say("")
	if len(heads) > 0 {
		s.printf("  %-22s", "")
		for _, h := range heads {
			s.printf("  %15s", h)
		}
		s.printf("\n")
	}
	for _, l := range lines {
		s.printf("  %-22s", l.name)
		for _, f := range l.figures {
			if len(heads) > 0 {
				s.printf("  %15d", f)
			} else {
				s.printf("  %6d", f)
			}
		}
		s.printf("\n")
	}
	s.say("")
}
