package main

import (
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// sample is what one round measured of one run.
type sample struct {
	Ops    int           `json:"ops,omitempty"`
	Took   time.Duration `json:"ns,omitempty"`
	P50    time.Duration `json:"p50_ns,omitempty"`
	Syncs  int64         `json:"flushes,omitempty"`
	Allocs int64         `json:"allocs,omitempty"`
	Bytes  int64         `json:"bytes,omitempty"` // allocated, held in memory or on disk: as the run has it
}

func (s sample) rate() float64    { return float64(s.Ops) / s.Took.Seconds() }
func (s sample) perOp() float64   { return float64(s.Took.Nanoseconds()) / float64(s.Ops) }
func (s sample) flushes() float64 { return float64(s.Syncs) / float64(s.Ops) }
func (s sample) allocs() float64  { return float64(s.Allocs) / float64(s.Ops) }
func (s sample) bytes() float64   { return float64(s.Bytes) / float64(s.Ops) }

// add makes one sample of two; their medians cannot be joined.
func (s *sample) add(t sample) {
	s.Ops += t.Ops
	s.Took += t.Took
	s.Syncs += t.Syncs
	s.Allocs += t.Allocs
	s.Bytes += t.Bytes
}

// results holds the rounds of each run by its name, contender@setting.
type results map[string][]sample

// rounds applies of to the samples that the runs have of each round.
func (r results) rounds(runs []string, of func([]sample) float64) (figures []float64) {
	for i := 0; ; i++ {
		var round []sample
		for _, run := range runs {
			if i >= len(r[run]) {
				return figures
			}
			round = append(round, r[run][i])
		}
		figures = append(figures, of(round))
	}
}

// median is the middle one, or the mean of the middle two; not a number of none.
func median(v []float64) float64 {
	v = slices.Sorted(slices.Values(v))
	if len(v) == 0 {
		return math.NaN()
	}
	return (v[(len(v)-1)/2] + v[len(v)/2]) / 2
}

// ids are made before anything is measured, and used again long after their operation has ended.
var (
	ids = func() (ids [1 << 18]string) {
		for i := range ids {
			ids[i] = fmt.Sprintf("order-%08d", i)
		}
		return ids
	}()
	lastID atomic.Uint64
)

func nextID() string { return ids[lastID.Add(1)%uint64(len(ids))] }

// drive has g goroutines call op as long as more says so, and returns what that took, the last call's end included.
func drive(g int, more func() bool, op func() error) (sample, error) {
	var (
		wg     sync.WaitGroup
		ops    atomic.Int64
		failed atomic.Pointer[error]
	)
	start := time.Now()
	for range g {
		wg.Go(func() {
			n := int64(0)
			for failed.Load() == nil && more() {
				if err := op(); err != nil {
					first := err // so that err itself stays off the heap
					failed.CompareAndSwap(nil, &first)
					break
				}
				n++
			}
			ops.Add(n)
		})
	}
	wg.Wait()
	s := sample{Ops: int(ops.Load()), Took: time.Since(start)}
	if err := failed.Load(); err != nil {
		return s, *err
	}
	return s, nil
}

// lasting is a more for drive that ends after d.
func lasting(d time.Duration) func() bool {
	var over atomic.Bool
	time.AfterFunc(d, func() { over.Store(true) })
	return func() bool { return !over.Load() }
}

// times is a more for drive that ends after n calls.
func times(n int) func() bool {
	var left atomic.Int64
	left.Store(int64(n))
	return func() bool { return left.Add(-1) >= 0 }
}

// stopwatch collects how long calls took.
type stopwatch struct {
	mu   sync.Mutex
	each []float64
}

func (w *stopwatch) since(t time.Time) {
	d := float64(time.Since(t))
	w.mu.Lock()
	w.each = append(w.each, d)
	w.mu.Unlock()
}

func (w *stopwatch) p50() time.Duration { return time.Duration(median(w.each)) }
