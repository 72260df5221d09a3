package main

import (
	"fmt"
	"math"
	"slices"
)

// bar is something that has to hold: a figure from the runs of each round, and its median against a limit.
type bar struct {
	name, what string
	limit      float64
	atLeast    bool
	runs       []string
	of         func([]sample) float64 // the samples of one round, in the order of runs
}

// verdict is a bar and what came out.
type verdict struct {
	Name    string  `json:"name"`
	What    string  `json:"what"`
	Figure  float64 `json:"figure"`
	Low     float64 `json:"low"` // of the rounds
	High    float64 `json:"high"`
	Rounds  int     `json:"rounds"`
	Limit   float64 `json:"limit"`
	AtLeast bool    `json:"at_least"`
	OK      bool    `json:"ok"`
}

// judge says what b's figure is; ok is false if its runs are not there.
func (b bar) judge(r results) (v verdict, ok bool) {
	figures := r.rounds(b.runs, b.of)
	if len(figures) == 0 {
		return v, false
	}
	v = verdict{Name: b.name, What: b.what, Figure: median(figures), Low: slices.Min(figures), High: slices.Max(figures),
		Rounds: len(figures), Limit: b.limit, AtLeast: b.atLeast}
	v.OK = v.Figure <= b.limit
	if b.atLeast {
		v.OK = v.Figure >= b.limit
	}
	return v, true
}

var levels = []int{1, 8, 64, 512}

// at names a run.
func at(contender string, setting any) string { return fmt.Sprintf("%s@%v", contender, setting) }

// bars are all that has to hold, in the order of the report.
var bars = slices.Concat(journalBars(), sizeBars(), callBars(), loopbackBars())

func journalBars() (bs []bar) {
	for i, g := range levels {
		bs = append(bs, bar{
			name: at("J1", g), what: "journal / raw group commit", limit: []float64{0.85, 0.80, 0.80, 0.60}[i], atLeast: true,
			runs: []string{at("journal", g), at("raw", g)}, of: rates,
		})
	}
	for i, g := range levels {
		bs = append(bs, bar{
			name: at("J2", g), what: "flushes per operation", limit: []float64{1.05, 0.16, 0.03, 0.006}[i],
			runs: []string{at("journal", g)}, of: func(s []sample) float64 { return s[0].flushes() },
		})
	}
	for _, p := range []struct {
		name  string
		limit float64
	}{{"bbolt Batch", 20}, {"bbolt Batch tuned", 4}, {"pebble", 2.5}, {"sqlite grouped", 3.5}} {
		bs = append(bs, bar{
			name: "J3 " + p.name, what: "journal / it at 64 goroutines", limit: p.limit, atLeast: true,
			runs: []string{at("journal", 64), at(p.name, 64)}, of: rates,
		})
	}
	for i, g := range []int{1, 64} {
		bs = append(bs, bar{
			name: at("J4", g), what: "allocations per begin + settle", limit: []float64{2, 1}[i],
			runs: []string{at("journal alone", g)}, of: func(s []sample) float64 {
				return math.Round(10*s[0].allocs()) / 10 // measuring itself allocates a few in all
			},
		})
	}
	return bs
}

func sizeBars() []bar {
	return []bar{
		{
			name: "J5", what: "open after compaction / reading all that was", limit: 0.5,
			runs: []string{"journal@open", "files@read"}, of: func(s []sample) float64 { return s[0].Took.Seconds() / s[1].Took.Seconds() },
		},
		{
			name: "J6", what: "bytes of memory per pending operation", limit: 128,
			runs: []string{"journal@pending"}, of: func(s []sample) float64 { return s[0].bytes() },
		},
		{
			name: "J7", what: "segments on disk after many operations", limit: 4,
			runs: []string{"journal@disk"}, of: func(s []sample) float64 { return float64(s[0].Bytes) / segmentSize },
		},
	}
}

func callBars() []bar {
	plain, own, peer := "net/http@call", "samekey memory@call", "failsafe-go@call"
	return []bar{
		{
			name: "H1 time", what: "samekey / failsafe-go, a keyed POST to nowhere", limit: 1,
			runs: []string{own, peer}, of: func(s []sample) float64 { return s[0].perOp() / s[1].perOp() },
		},
		{
			name: "H1 allocs", what: "allocations over net/http", limit: 25,
			runs: []string{own, plain}, of: func(s []sample) float64 { return s[0].allocs() - s[1].allocs() },
		},
		{
			name: "H1 bytes", what: "bytes allocated over net/http", limit: 4096,
			runs: []string{own, plain}, of: func(s []sample) float64 { return s[0].bytes() - s[1].bytes() },
		},
	}
}

func loopbackBars() (bs []bar) {
	for _, x := range []struct {
		name, contender string
		limits          []float64
	}{{"H2", "samekey memory", []float64{0.85, 0.95}}, {"H3", "samekey journal", []float64{0.45, 0.75}}} {
		for i, h := range handlers {
			bs = append(bs, bar{
				name: at(x.name, h), what: x.contender + " / net/http, 64 concurrent", limit: x.limits[i], atLeast: true,
				runs: []string{at(x.contender, h), at("net/http", h)}, of: rates,
			})
		}
	}
	return append(bs, bar{
		name: "H4", what: "added p50 / p50 of a paced raw commit, 8 concurrent", limit: 1.5,
		runs: []string{"samekey journal@paced", "net/http@paced", "raw@paced"},
		of:   func(s []sample) float64 { return float64(s[0].P50-s[1].P50) / float64(s[2].P50) },
	})
}

// rates is how many times as fast the first is as the second.
func rates(s []sample) float64 { return s[0].rate() / s[1].rate() }
