package journal

import (
	"fmt"
	"slices"
)

// Report is the account of what Open, or Check, found. Its zero value is a journal in order.
type Report struct {
	Dir string
	// Damage is what should have been there and is not. What is left of it is in the quarantine files. Where a crash tore
	// a commit in its middle, or a full disk kept a refused one from being voided, it may be what was never acknowledged.
	Damage []Damage
	// Cut is a tail that a crash may have torn: it was never acknowledged, unless the disk lost what it had flushed. It
	// was cut off and kept.
	Cut []Damage
	// Notes are harmless: something was mended, or a preparation had not been finished.
	Notes []string
}

// Damage is one place.
type Damage struct {
	File           string // name of the segment
	Offset, Length int64  // bytes
	Frames         int    // how many records or changes are missing there; 0: unknown
	Err            error  // what was wrong
	Quarantine     string // name of the file that keeps the bytes; empty if there were none, or they could not be kept
}

func (d Damage) String() string {
	s := fmt.Sprintf("%s: %d bytes at %d: %v", d.File, d.Length, d.Offset, d.Err)
	if d.Frames > 0 {
		s += fmt.Sprintf(" (%d entries)", d.Frames)
	}
	if d.Quarantine != "" {
		s += ", kept in " + d.Quarantine
	}
	return s
}

// in finds q in list, and says where it is kept.
func (q *saved) in(list []Damage, name string) bool {
	for i := range list {
		if d := &list[i]; d.File == segmentName(q.seq) && d.Offset == q.off && d.Length == int64(len(q.data)) {
			d.Quarantine = name
			return true
		}
	}
	return false
}

// Empty reports whether there is nothing to tell.
func (r *Report) Empty() bool { return len(r.Damage)+len(r.Cut)+len(r.Notes) == 0 }

func (r *Report) note(format string, args ...any) {
	r.Notes = append(r.Notes, fmt.Sprintf(format, args...))
}

func (r *Report) clone() Report {
	c := *r
	c.Damage, c.Cut, c.Notes = slices.Clone(r.Damage), slices.Clone(r.Cut), slices.Clone(r.Notes)
	return c
}

// Report tells what Open found, and which damage has been set aside since.
func (j *Journal) Report() Report {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.report.clone()
}

// tell hands the report to those who wanted it.
func (j *Journal) tell() {
	r := j.report.clone()
	if r.Empty() {
		return
	}
	for _, d := range r.Damage {
		j.opt.Logger.Error("journal is damaged", "dir", j.path, "damage", d.String())
	}
	for _, d := range r.Cut {
		j.opt.Logger.Warn("journal had a torn tail", "dir", j.path, "cut", d.String())
	}
	for _, n := range r.Notes {
		j.opt.Logger.Info("journal", "dir", j.path, "note", n)
	}
	if j.opt.OnReport != nil {
		j.opt.OnReport(r)
	}
}

// Stats counts what a journal holds and has done since Open.
type Stats struct {
	Operations int   // with tombstones
	Pending    int   //
	Segments   int   // files, with the one prepared to follow and one kept to be used again
	DiskBytes  int64 // of these files
	LiveBytes  int64 // of them, what belongs to something
	Syncs      int64 // flushes of log files by the committer
	Written    int64 // bytes
}

// Stats is cheap.
func (j *Journal) Stats() Stats {
	j.mu.Lock()
	defer j.mu.Unlock()
	s := Stats{Operations: j.idx.count, Pending: j.idx.pending, LiveBytes: j.idx.live,
		Syncs: j.stats.syncs.Load(), Written: j.stats.bytes.Load()}
	for _, g := range j.segs {
		s.Segments++
		s.DiskBytes += g.size
	}
	for _, g := range []*segment{j.next, j.old} {
		if g != nil {
			s.Segments++
			s.DiskBytes += g.size
		}
	}
	return s
}
