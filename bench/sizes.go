package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync/atomic"
	"time"

	"github.com/samekey/samekey/persist/journal"
)

// segmentSize is the journal's default.
const segmentSize = 16 << 20

// withJournal hands out a journal of its own.
func (b *bench) withJournal(o journal.Options, do func(dir string, s *journalStore) error) error {
	dir, err := b.scratch()
	if err != nil {
		return err
	}
	s, err := newJournal(dir, o)
	if err == nil {
		err = do(dir, s)
		err = errors.Join(err, s.close())
	}
	return errors.Join(err, os.RemoveAll(dir))
}

// allocations counts them with nothing but a journal at work.
func (b *bench) allocations(runs []string) error {
	for _, g := range []int{1, 64} {
		run := at("journal alone", g)
		if !slices.Contains(runs, run) {
			continue
		}
		err := b.withJournal(journal.Options{}, func(_ string, s *journalStore) error {
			n := size(b, 500, 5000) * min(g, 10)
			return b.interleave(1, []contestant{{run: run, measure: func() (sample, error) {
				return counted(func() (sample, error) { return operate(s, g, times(n)) })
			}}})
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// counted adds the allocations of the whole process.
func counted(do func() (sample, error)) (sample, error) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	s, err := do()
	runtime.ReadMemStats(&after)
	s.Allocs, s.Bytes = int64(after.Mallocs-before.Mallocs), int64(after.TotalAlloc-before.TotalAlloc)
	return s, err
}

// opening compares the open of a compacted journal with reading once what it held before.
func (b *bench) opening([]string) (err error) {
	settled, pending := size(b, 300_000, 1_000_000), size(b, 300, 1000)
	before, err := b.scratch()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(before)) }()
	// Segments that large are not compacted on the way.
	o := journal.Options{SegmentSize: int64(settled) * 1000}
	return b.withJournal(o, func(dir string, s *journalStore) error {
		written, err := fill(s, settled, pending)
		if err == nil {
			err = s.close()
		}
		if err == nil {
			err = keepFiles(filepath.Join(dir, "journal"), before) // compaction removes them
		}
		if err != nil {
			return err
		}
		if s, err = newJournal(dir, journal.Options{}); err != nil {
			return err
		}
		// The first moves into a large segment that was prepared before, the second into one of the usual size.
		for range 2 {
			err = errors.Join(err, s.Compact(context.Background()))
		}
		if err := errors.Join(err, s.close()); err != nil {
			return err
		}
		return b.interleave(1, []contestant{
			{run: "files@read", measure: func() (sample, error) { return readOnce(before, written) }},
			{run: "journal@open", measure: func() (sample, error) {
				start := time.Now()
				s, err := newJournal(dir, journal.Options{})
				took := time.Since(start)
				if err != nil {
					return sample{}, err
				}
				if n := s.Stats().Pending; n != pending {
					err = fmt.Errorf("%d operations are pending, want %d", n, pending)
				}
				return sample{Ops: 1, Took: took}, errors.Join(err, s.close())
			}},
		})
	})
}

// fill leaves pending operations strewn among settled ones, and returns the bytes that were written.
func fill(s *journalStore, settled, pending int) (int64, error) {
	var n atomic.Int64
	_, err := drive(512, times(settled+pending), func() error {
		i := n.Add(1)
		id := fmt.Sprintf("order-%08d", i)
		token, err := s.begin(id)
		if err == nil && (i%int64(settled/pending+1) != 0) {
			err = s.settle(id, token)
		}
		return err
	})
	if err == nil {
		err = s.Flush(context.Background())
	}
	return s.Stats().Written, err
}

// keepFiles gives what is in from a second name in to.
func keepFiles(from, to string) error {
	entries, err := os.ReadDir(from)
	for _, e := range entries {
		err = errors.Join(err, os.Link(filepath.Join(from, e.Name()), filepath.Join(to, e.Name())))
	}
	return err
}

// readOnce reads the files of dir in order, n bytes in all: prewritten space behind them does not count.
func readOnce(dir string, n int64) (sample, error) {
	start := time.Now()
	entries, err := os.ReadDir(dir)
	if err != nil {
		return sample{}, err
	}
	buf := make([]byte, 1<<20)
	for _, e := range entries {
		f, err := os.Open(filepath.Join(dir, e.Name()))
		if err != nil {
			return sample{}, err
		}
		read := int64(0)
		for err == nil && read < n {
			var k int
			k, err = f.Read(buf[:min(int64(len(buf)), n-read)])
			read += int64(k)
		}
		n -= read
		_ = f.Close()
		if err != nil && !errors.Is(err, io.EOF) {
			return sample{}, err
		}
	}
	if n > 0 {
		return sample{}, fmt.Errorf("%d bytes are not there", n)
	}
	return sample{Ops: 1, Took: time.Since(start)}, nil
}

// memory weighs what a journal keeps of each pending operation.
func (b *bench) memory([]string) error {
	return b.withJournal(journal.Options{}, func(_ string, s *journalStore) error {
		// The buffers of commits grow before, not while.
		if _, err := operate(s, 64, times(10_000)); err != nil {
			return err
		}
		before := heap()
		m, err := drive(64, times(size(b, 50_000, 200_000)), func() error {
			_, err := s.begin(nextID())
			return err
		})
		m.Bytes = heap() - before
		b.results["journal@pending"] = []sample{m}
		return err
	})
}

// heap is what is alive.
func heap() int64 {
	runtime.GC()
	runtime.GC() // pools lose what they hold with the second
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// disk runs operations through a journal, 100 at a time, and looks at what is left of them.
func (b *bench) disk([]string) error {
	return b.withJournal(journal.Options{SegmentSize: segmentSize}, func(dir string, s *journalStore) error {
		m, err := operate(s, 100, times(size(b, 200_000, 1_000_000)))
		if err == nil {
			m.Bytes, err = onDisk(dir)
		}
		b.results["journal@disk"] = []sample{m}
		return err
	})
}

func onDisk(dir string) (n int64, err error) {
	err = filepath.WalkDir(dir, func(_ string, e os.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		info, err := e.Info()
		if err == nil {
			n += info.Size()
		} else if errors.Is(err, os.ErrNotExist) {
			err = nil // compaction was quicker
		}
		return err
	})
	return n, err
}
