package journal

import (
	"context"
	"flag"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/samekey/samekey/persist"
)

// raw is the least that group commit can cost: one write and one flush of prewritten space for all that wait; no
// checksum, no index, nothing to find again.
type raw struct {
	f             file
	off, size     int64
	mu            sync.Mutex
	buf, spare    []byte
	done          chan struct{}
	kick, stopped chan struct{}
	syncs         int
}

func newRaw(tb testing.TB, dir string) *raw {
	d, err := openDir(dir, true, true)
	require.NoError(tb, err)
	f, err := d.open("raw", os.O_RDWR|os.O_CREATE)
	require.NoError(tb, err)
	r := &raw{f: f, size: 64 << 20, done: make(chan struct{}), kick: make(chan struct{}, 1), stopped: make(chan struct{})}
	require.NoError(tb, writeZeros(f, 0, r.size))
	require.NoError(tb, f.sync())
	go r.run()
	return r
}

func (r *raw) run() {
	defer close(r.stopped)
	for range r.kick {
		runtime.Gosched()
		r.mu.Lock()
		buf, done := r.buf, r.done
		r.buf, r.done = r.spare[:0], make(chan struct{})
		r.mu.Unlock()
		if len(buf) == 0 {
			continue
		}
		if r.off+int64(len(buf)) > r.size {
			r.off = 0
		}
		if _, err := r.f.WriteAt(buf, r.off); err != nil {
			panic(err)
		}
		if err := r.f.sync(); err != nil {
			panic(err)
		}
		r.off += int64(len(buf))
		r.syncs++
		r.spare = buf
		close(done)
	}
}

func (r *raw) append(b []byte) {
	r.mu.Lock()
	r.buf = append(r.buf, b...)
	done := r.done
	r.mu.Unlock()
	select {
	case r.kick <- struct{}{}:
	default:
	}
	<-done
}

func (r *raw) close() {
	close(r.kick)
	<-r.stopped
	_ = r.f.Close()
}

func benchRecord(id string) persist.Record {
	now := time.Now()
	return persist.Record{
		Ref: persist.Ref{Scope: "tenant", ID: id}, Created: now, Key: "4f3c2a8e-1d5b-4c6f-9a7e-0123456789ab",
		Method: "POST", Target: "https://api.bank.test/v1/payments",
		Header: http.Header{"Content-Type": {"application/json"}, "Idempotency-Key": {"4f3c2a8e-1d5b-4c6f-9a7e-0123456789ab"}},
		Body:   benchBody, KeyLife: 24 * time.Hour, Progress: persist.Progress{Attempts: 1, FirstSent: now, Seen: now},
	}
}

var benchBody = make([]byte, 400)

// spread runs n operations on g goroutines.
func spread(g, n int, op func(worker, i int)) time.Duration {
	var wg sync.WaitGroup
	start := time.Now()
	for w := range g {
		wg.Go(func() {
			for i := w; i < n; i += g {
				op(w, i)
			}
		})
	}
	wg.Wait()
	return time.Since(start)
}

var segmentSize = flag.Int64("segment-size", 0, "of TestAgainstRaw")

var rounds = flag.Int("rounds", 0, "rounds of TestAgainstRaw; 0 leaves it out")

// TestAgainstRaw prints the bars J1, J2 and J4 of begin plus lazy settle against raw group commit, interleaved:
//
//	go test -run TestAgainstRaw -rounds 7 -v ./persist/journal
func TestAgainstRaw(t *testing.T) {
	if *rounds == 0 {
		t.Log("give -rounds 7 to measure")
		return
	}
	dir := t.TempDir()
	ctx := context.Background()
	j, err := Open(ctx, filepath.Join(dir, "journal"), Options{Logger: quiet, SegmentSize: *segmentSize})
	require.NoError(t, err)
	defer func() { require.NoError(t, j.Close()) }()
	r := newRaw(t, filepath.Join(dir, "raw"))
	defer r.close()
	frame := appendPut(openFrame(nil), 1, new(benchRecord("00000000")))
	t.Logf("record: %d bytes", len(frame))
	seq := 0
	for _, g := range []int{1, 8, 64, 512} {
		n := map[int]int{1: 3000, 8: 15000, 64: 60000, 512: 120000}[g]
		var ratios, times []float64
		var syncs, allocs float64
		ids := make([]string, n)
		for round := range *rounds + 1 {
			for i := range ids {
				seq++
				ids[i] = strconv.Itoa(seq)
			}
			cpu0 := cpuTime()
			rt := spread(g, n, func(int, int) { r.append(frame) })
			cpuRaw := cpuTime() - cpu0
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			was := j.Stats().Syncs
			cpu0 = cpuTime()
			rec := benchRecord("")
			jt := spread(g, n, func(_, i int) {
				rec := rec
				rec.ID = ids[i]
				e, err := j.Begin(ctx, rec)
				if err == nil {
					err = j.Settle(ctx, e.Claim, persist.Answer{State: persist.Succeeded, Status: 200, Lazy: true})
				}
				if err != nil {
					panic(err)
				}
			})
			cpuJ := cpuTime() - cpu0
			runtime.ReadMemStats(&after)
			if testing.Verbose() {
				t.Logf("    round %d: processor time per operation: raw %.2f us, journal %.2f us", round, float64(cpuRaw)/float64(n)/1e3, float64(cpuJ)/float64(n)/1e3)
			}
			if round == 0 {
				continue // warm
			}
			ratios = append(ratios, float64(rt)/float64(jt))
			times = append(times, float64(jt)/float64(n)/1e3)
			syncs = float64(j.Stats().Syncs-was) / float64(n)
			allocs = float64(after.Mallocs-before.Mallocs) / float64(n)
		}
		slices.Sort(ratios)
		slices.Sort(times)
		mid := len(ratios) / 2
		t.Logf("%3d goroutines: J1 %.2f (%.2f to %.2f), J2 %.4f flushes, J4 %.2f allocations, %.1f us per operation",
			g, ratios[mid], ratios[0], ratios[len(ratios)-1], syncs, allocs, times[mid])
	}
}

func BenchmarkBeginSettle(b *testing.B) {
	ctx := context.Background()
	for _, g := range []int{1, 64, 512} {
		b.Run(fmt.Sprint(g), func(b *testing.B) {
			j, err := Open(ctx, filepath.Join(b.TempDir(), "journal"), Options{Logger: quiet})
			require.NoError(b, err)
			ids := make([]string, b.N)
			for i := range ids {
				ids[i] = strconv.Itoa(i)
			}
			rec := benchRecord("")
			b.ReportAllocs()
			b.ResetTimer()
			spread(g, b.N, func(_, i int) {
				rec := rec
				rec.ID = ids[i]
				e, err := j.Begin(ctx, rec)
				if err == nil {
					err = j.Settle(ctx, e.Claim, persist.Answer{State: persist.Succeeded, Lazy: true})
				}
				if err != nil {
					panic(err)
				}
			})
			b.StopTimer()
			b.ReportMetric(float64(j.Stats().Syncs)/float64(b.N), "flushes/op")
			require.NoError(b, j.Close())
		})
	}
}

func BenchmarkRaw(b *testing.B) {
	for _, g := range []int{1, 64, 512} {
		b.Run(fmt.Sprint(g), func(b *testing.B) {
			r := newRaw(b, filepath.Join(b.TempDir(), "raw"))
			frame := appendPut(openFrame(nil), 1, new(benchRecord("00000000")))
			b.ReportAllocs()
			b.ResetTimer()
			spread(g, b.N, func(int, int) { r.append(frame) })
			b.StopTimer()
			b.ReportMetric(float64(r.syncs)/float64(b.N), "flushes/op")
			r.close()
		})
	}
}
