package main

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"text/tabwriter"
)

// report is all that a run of the program found.
type report struct {
	Machine     machine   `json:"machine"`
	Quick       bool      `json:"quick"`
	Rounds      int       `json:"rounds"`
	RecordBytes int       `json:"record_bytes"`
	Seconds     float64   `json:"seconds"`
	Bars        []verdict `json:"bars"`
	Runs        results   `json:"runs"`
}

func (r report) print(w io.Writer, tables bool) {
	if tables {
		_, _ = fmt.Fprintln(w, r.Machine)
		r.table(w, "begin + settle: ratio to raw, microseconds per operation and goroutine", settingsOf(levels),
			names(stores, func(m maker) string { return m.name }), "raw")
		r.table(w, "HTTP: calls per second to net/http, microseconds per call and goroutine", append([]string{"call"}, handlers...), clientNames, "net/http")
		r.costs(w)
		_, _ = fmt.Fprintln(w)
	}
	missed := 0
	for _, v := range r.Bars {
		word := "ok"
		if !v.OK {
			word = "MISS"
			missed++
		}
		spread := ""
		if tables && v.Rounds > 1 {
			spread = fmt.Sprintf("  %s to %s", number(v.Low), number(v.High))
		}
		_, _ = fmt.Fprintf(w, "%-20s %-52s %8s  %-9s %-4s%s\n", v.Name, v.What, number(v.Figure), limit(v.Limit, v.AtLeast), word, spread)
	}
	_, _ = fmt.Fprintf(w, "%d bars, %d missed, %.0f s\n", len(r.Bars), missed, r.Seconds)
}

func settingsOf[T any](all []T) []string {
	return names(all, func(x T) string { return fmt.Sprint(x) })
}

// table has a row for each contender and two columns for each setting: the ratio to base, and the time of one operation
// as the goroutine that makes it sees it.
func (r report) table(w io.Writer, title string, settings, contenders []string, base string) {
	has := func(c, s string) bool { return len(r.Runs[at(c, s)]) > 0 }
	settings = slices.DeleteFunc(slices.Clone(settings), func(s string) bool {
		return !slices.ContainsFunc(contenders, func(c string) bool { return has(c, s) })
	})
	if len(settings) == 0 {
		return
	}
	_, _ = fmt.Fprintf(w, "\n%s\n\n", title)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	_, _ = fmt.Fprintf(t, "%-24s\t%s\t\t\n", "", strings.Join(settings, "\t\t"))
	for _, c := range contenders {
		if !slices.ContainsFunc(settings, func(s string) bool { return has(c, s) }) {
			continue
		}
		_, _ = fmt.Fprintf(t, "%-24s\t", c)
		for _, s := range settings {
			_, _ = fmt.Fprintf(t, "%s\t%s\t", number(median(r.Runs.rounds([]string{at(c, s), at(base, s)}, rates))), number(r.latency(c, s)))
		}
		_, _ = fmt.Fprintln(t)
	}
	_ = t.Flush()
}

// latency of one operation in microseconds.
func (r report) latency(contender, setting string) float64 {
	g := 1.0
	switch setting {
	case "8", "64", "512":
		_, _ = fmt.Sscan(setting, &g)
	case "0ms", "5ms":
		g = 64
	}
	return g / 1e3 * median(r.Runs.rounds([]string{at(contender, setting)}, func(s []sample) float64 { return s[0].perOp() }))
}

// costs is what a call costs over net/http.
func (r report) costs(w io.Writer) {
	plain := "net/http@call"
	if len(r.Runs[plain]) == 0 {
		return
	}
	_, _ = fmt.Fprint(w, "\na call to nowhere, over net/http\n\n")
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	_, _ = fmt.Fprintf(t, "%-24s\tus\tallocations\tbytes\t\n", "")
	for _, c := range clientNames[1:] {
		over := func(of func(sample) float64) string {
			return number(median(r.Runs.rounds([]string{at(c, "call"), plain}, func(s []sample) float64 { return of(s[0]) - of(s[1]) })))
		}
		_, _ = fmt.Fprintf(t, "%-24s\t%s\t%s\t%s\t\n", c, over(func(s sample) float64 { return s.perOp() / 1e3 }), over(sample.allocs), over(sample.bytes))
	}
	_ = t.Flush()
}

// limit writes a bar's.
func limit(v float64, atLeast bool) string {
	if atLeast {
		return ">= " + number(v)
	}
	return "<= " + number(v)
}

// number writes three digits that count; nothing for what was not measured.
func number(v float64) string {
	switch a := math.Abs(v); {
	case math.IsNaN(v):
		return "-"
	case a >= 100:
		return fmt.Sprintf("%.0f", v)
	case a >= 10:
		return fmt.Sprintf("%.1f", v)
	case a >= 0.1, a == 0:
		return fmt.Sprintf("%.2f", v)
	}
	return fmt.Sprintf("%.4f", v)
}
