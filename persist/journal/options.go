package journal

import (
	"fmt"
	"log/slog"
	"time"
)

// Options of a journal. The zero value is good.
type Options struct {
	// MaxPending bounds how many operations may be pending at once; a Begin beyond gets a *StoreFullError.
	// 0: one million. Negative: no bound.
	MaxPending int
	// SegmentSize is the size of a log file in bytes; disk use is about three of them, and twice what is alive.
	// 0: 16 MiB. At least 64 KiB, at most 1 GiB. A larger record gets a segment of its own size.
	SegmentSize int64
	// AllowNetworkFS opens a journal on NFS, SMB and the like. Their locks and flushes may not keep what the journal
	// promises.
	AllowNetworkFS bool
	// Logger is told what Open found damaged, and which background work failed. Nil: slog.Default.
	Logger *slog.Logger
	// OnReport, if set, is called by Open with the account of what it found, before Open returns, if there is anything
	// to report.
	OnReport func(Report)
}

const (
	defaultWait  = time.Second            // for the lock, where the context has no deadline
	flushAfter   = 500 * time.Millisecond // a buffered change waits no longer for company
	hangGrace    = 500 * time.Millisecond // how long a begin outlives its context for a flush that has started
	giveUpAfter  = time.Minute            // how long compaction waits for a record that the disk does not give
	sweepEvery   = time.Minute            // how often retention is looked at
	starterSize  = 1 << 20                // the first segment of a new journal: opening one is quick
	maxRecord    = 1 << 30
	minSegment   = 64 << 10
	maxSegment   = 1 << 30
	keepBuffer   = 4 << 20 // a larger commit buffer is given back after use
	compactBatch = 256 << 10
)

func (o Options) filled() (Options, error) {
	if o.MaxPending == 0 {
		o.MaxPending = 1_000_000
	}
	if o.SegmentSize == 0 {
		o.SegmentSize = 16 << 20
	}
	if o.SegmentSize < minSegment || o.SegmentSize > maxSegment {
		return o, fmt.Errorf("journal: Options.SegmentSize is %d, want 64 KiB to 1 GiB", o.SegmentSize)
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	return o, nil
}
