package tool

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// clean escapes what a terminal would act on: names, answers and error texts come from elsewhere.
func clean(s string) string {
	if !strings.ContainsFunc(s, func(r rune) bool { return r == utf8.RuneError || !strconv.IsPrint(r) }) {
		return s
	}
	var b strings.Builder
	for len(s) > 0 {
		r, n := utf8.DecodeRuneInString(s)
		if r == utf8.RuneError || !strconv.IsPrint(r) {
			q := strconv.Quote(s[:n])
			b.WriteString(q[1 : len(q)-1])
		} else {
			b.WriteRune(r)
		}
		s = s[n:]
	}
	return b.String()
}

// trimName drops the name of the program that an error of the library begins with.
func trimName(err error) string { return strings.TrimPrefix(err.Error(), "samekey: ") }

// oneLine joins the lines of errors that were joined, or that a driver has written over several.
func oneLine(s string) string {
	if !strings.Contains(s, "\n") {
		return s
	}
	var parts []string
	for l := range strings.Lines(s) {
		if l = strings.TrimSpace(l); l != "" {
			parts = append(parts, l)
		}
	}
	return strings.ReplaceAll(strings.Join(parts, "; "), ":; ", ": ")
}

// short shows enough of a key to find it in a log, and too little to send it.
func short(key string) string {
	if len(key) <= 12 {
		return key[:min(len(key), 4)] + "…"
	}
	return key[:8] + "…" + key[len(key)-4:]
}

// hide shortens the key wherever it stands in text.
func hide(text, key string) string {
	if len(key) <= 12 {
		return text // too short to be told from other words
	}
	return strings.ReplaceAll(text, key, short(key))
}

// cut shortens s to n characters, in the middle, where names and URLs differ least.
func cut(s string, n int) string {
	r := []rune(s)
	if len(r) <= n {
		return s
	}
	head := (n - 1) / 2
	return string(r[:head]) + "…" + string(r[len(r)-(n-1-head):])
}

// age writes d in its two largest units.
func age(d time.Duration) string {
	if d < 0 {
		return "-" + age(-d)
	}
	const day = 24 * time.Hour
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%ds", d/time.Second)
	case d < time.Hour:
		return fmt.Sprintf("%dm%02ds", d/time.Minute, d%time.Minute/time.Second)
	case d < day:
		return fmt.Sprintf("%dh%02dm", d/time.Hour, d%time.Hour/time.Minute)
	case d < 100*day:
		return fmt.Sprintf("%dd%02dh", d/day, d%day/time.Hour)
	}
	return fmt.Sprintf("%dd", d/day)
}

// stamp writes a time with its distance from now, nothing for none.
func stamp(at, now time.Time) string {
	if at.IsZero() {
		return ""
	}
	s := at.UTC().Format(time.RFC3339)
	if at.After(now) {
		return s + " (in " + age(at.Sub(now)) + ")"
	}
	return s + " (" + age(now.Sub(at)) + " ago)"
}

// size writes bytes in the unit that people read.
func size(n int64) string {
	if n < 1024 {
		return fmt.Sprintf("%d B", n)
	}
	f, unit := float64(n)/1024, 0
	for f >= 1024 && unit < 4 {
		f, unit = f/1024, unit+1
	}
	return fmt.Sprintf("%.1f %ciB", f, "KMGTP"[unit])
}

func count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return strconv.Itoa(n) + " " + many
}

// span is a flag: a duration that may have days.
type span time.Duration

func (s *span) String() string { return time.Duration(*s).String() }

func (s *span) Set(v string) error {
	var days int
	if head, rest, ok := strings.Cut(v, "d"); ok {
		n, err := strconv.ParseUint(head, 10, 16)
		if err != nil {
			return errors.New("is no duration such as 90s, 36h or 7d")
		}
		if days, v = int(n), rest; v == "" {
			v = "0s"
		}
	}
	d, err := time.ParseDuration(v)
	if err != nil || d < 0 {
		return errors.New("is no duration such as 90s, 36h or 7d")
	}
	*s = span(time.Duration(days)*24*time.Hour + d)
	return nil
}
