package journal

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/samekey/samekey/persist"
)

// CheckReport is what Check found.
type CheckReport struct {
	Report            // what is damaged; Cut is a torn tail, or one that a living owner is writing just now
	Version    uint32 // of the format
	Operations int    // known names
	States     map[persist.State]int
	Pending    int // of Operations
	Parked     int // of Pending: only an explicit Resume moves them
	Owed       int // settled, and waiting for a handler to accept them
	Tombstones int // only the name is left
	Segments   int
	DiskBytes  int64
	LiveBytes  int64     // of DiskBytes
	Oldest     time.Time // when the oldest pending operation was created; zero: there is none
	Quarantine []string  // names of files with damaged bytes that were set aside
}

// OK reports whether nothing is damaged.
func (r *CheckReport) OK() bool { return len(r.Damage) == 0 }

// Check reads the whole journal in dir and changes nothing. It takes no lock that an owner waits for, and works beside one.
func Check(dir string) (CheckReport, error) {
	v, err := ReadOnly(dir)
	if err != nil {
		return CheckReport{}, err
	}
	r := v.check()
	return r, errors.Join(v.scan(&r), v.Close())
}

// View is a journal as it was when ReadOnly looked at it.
type View struct {
	j *Journal // never started: only what reads is used
	l *loaded
}

// ReadOnly reads the journal in dir, beside a living owner too; later changes are not seen. Close gives the files back.
func ReadOnly(dir string) (*View, error) {
	path, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("journal: %w", err)
	}
	d, err := openDir(path, false, true)
	if err != nil {
		return nil, prefixed(err)
	}
	l, err := loadStable(d, path)
	if err != nil {
		return nil, errors.Join(prefixed(err), d.close())
	}
	o, _ := Options{}.filled()
	return &View{j: &Journal{path: path, opt: o, dir: &directory{fsys: d}, idx: l.idx, segs: l.segs, fill: &batch{seg: &segment{}}}, l: l}, nil
}

// stampOf reads what an owner left, or leaves just now.
func stampOf(d fsys) stamp {
	f, err := d.open(lockName, os.O_RDONLY)
	if err != nil {
		return stamp{}
	}
	s := readStamp(f)
	_ = f.Close()
	return s
}

// loadStable reads again as long as what looks like damage keeps changing: that is a living owner at work.
func loadStable(d fsys, path string) (*loaded, error) {
	var before string
	for try := 0; ; try++ {
		l, err := load(context.Background(), d, path, os.O_RDONLY, stampOf(d))
		if err != nil {
			if errors.Is(err, fs.ErrNotExist) && try < 10 {
				continue
			}
			return nil, err
		}
		now := fmt.Sprint(l.report.Damage)
		if len(l.report.Damage) == 0 || now == before || try == 20 {
			return l, nil
		}
		before = now
		l.close()
		time.Sleep(time.Duration(try+1) * 5 * time.Millisecond)
	}
}

// Report tells what is damaged.
func (v *View) Report() Report { return v.l.report.clone() }

// List yields what f selects, oldest first, as Journal.List does.
func (v *View) List(ctx context.Context, f persist.Filter) iter.Seq2[persist.Record, error] {
	return v.j.List(ctx, f)
}

// Get returns one operation, or persist.ErrNotFound.
func (v *View) Get(ctx context.Context, ref persist.Ref) (persist.Record, error) {
	return v.j.Get(ctx, ref)
}

// Close gives the files back.
func (v *View) Close() error {
	v.j.mu.Lock()
	v.j.closed = true
	for _, s := range v.j.segs {
		s.release()
	}
	v.j.segs = nil
	v.j.mu.Unlock()
	return v.j.dir.close()
}

func (v *View) check() CheckReport {
	x := v.j.idx
	r := CheckReport{Report: v.Report(), Version: formatVersion, States: map[persist.State]int{}, LiveBytes: x.live}
	now, oldest := nanos(time.Now()), int64(0)
	for i := uint32(1); i < x.used; i++ {
		s := x.at(i)
		if s.hash == 0 || s.gone(now) {
			continue
		}
		r.Operations++
		r.States[s.state]++
		if s.bare(now) {
			r.Tombstones++
		}
		if s.flags&flagOwed != 0 {
			r.Owed++
		}
		if s.state != persist.Pending {
			continue
		}
		r.Pending++
		if s.flags&flagParked != 0 {
			r.Parked++
		}
		if r.Oldest.IsZero() || s.created < oldest {
			oldest, r.Oldest = s.created, fromNanos(s.created)
		}
	}
	return r
}

// scan adds what only the directory knows.
func (v *View) scan(r *CheckReport) error {
	for _, s := range v.j.segs {
		n, err := s.f.size()
		if err != nil {
			return err
		}
		r.Segments++
		r.DiskBytes += n
	}
	names, err := v.j.dir.list()
	for _, n := range names {
		if strings.HasPrefix(n, "quarantine-") {
			r.Quarantine = append(r.Quarantine, n)
		}
	}
	slices.Sort(r.Quarantine)
	return err
}
