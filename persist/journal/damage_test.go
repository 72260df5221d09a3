package journal

import (
	"context"
	"fmt"
	"io/fs"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/samekey/samekey/internal/crashfs"
	"github.com/samekey/samekey/persist"
)

const damageSize = 20 << 10

func numbered(i int) persist.Record {
	return persist.Record{Ref: persist.Ref{Scope: "s", ID: fmt.Sprintf("op-%02d", i)}, Key: fmt.Sprintf("key-%02d", i), Method: "POST",
		Target: "https://x.test/", Created: time.Unix(int64(i), 0), Body: []byte(fmt.Sprintf("body %02d", i)), Progress: persist.Progress{Attempts: 1}}
}

// fifty makes a journal of 50 records, some marked, some settled, some gone, and returns its directory, not closed.
func fifty(t testing.TB) *crashfs.FS {
	ctx := context.Background()
	disk := crashfs.New(1)
	j, err := openSim(disk, damageSize)
	require.NoError(t, err)
	for i := range 50 {
		e, err := j.Begin(ctx, numbered(i))
		require.NoError(t, err)
		switch i % 10 {
		case 3:
			require.NoError(t, j.Mark(ctx, e.Claim, persist.Progress{Attempts: 2}))
		case 5:
			require.NoError(t, j.Settle(ctx, e.Claim, persist.Answer{State: persist.Succeeded, Status: 200, KeepBody: time.Now().Add(time.Hour)}))
		case 7:
			require.NoError(t, j.Settle(ctx, e.Claim, persist.Answer{State: persist.Succeeded, Status: 200}))
		}
	}
	require.Len(t, j.segs, 1)
	image := disk.Kill()
	require.NoError(t, j.Close())
	return image
}

// owner finds the operation whose frames cover each byte of a segment.
func owners(t testing.TB, b []byte) (of []uint64, end int64) {
	im := &image{b: b, end: dataStart}
	im.readTop(1)
	of = make([]uint64, len(b))
	require.NoError(t, im.walk(func(f *frame) error {
		m, _, _, err := peek(f.payload)
		require.NoError(t, err)
		for p := f.off; p < f.end(); p++ {
			of[p] = m.opid
		}
		return nil
	}))
	require.Empty(t, im.holes)
	return of, im.end
}

// loadBytes reads one segment without the directory around it, which would take most of the time. It may change b.
func loadBytes(b []byte) (*loaded, error) {
	l := &loaded{idx: newIndex(), ops: map[uint64]uint32{}}
	l.segs = []*segment{{name: segmentName(1), header: header{seq: 1}}}
	im := &image{name: segmentName(1), b: b, end: dataStart}
	l.images = []*image{im}
	if err := l.segment(0, im); err != nil {
		return l, err
	}
	l.finish()
	return l, nil
}

func slots(l *loaded) map[uint64]slot {
	m := map[uint64]slot{}
	for i := uint32(1); i < l.idx.used; i++ {
		if s := *l.idx.at(i); s.hash != 0 {
			s.hash, s.next, s.size = 0, 0, 0
			m[s.opid] = s
		}
	}
	return m
}

// TestEveryBitFlipped: whatever bit turns, no other record is touched, and the report is never empty. Under the race
// detector one bit of each byte.
func TestEveryBitFlipped(t *testing.T) {
	disk := fifty(t)
	b := disk.Bytes(segmentName(1))
	of, end := owners(t, b)
	sound, err := loadBytes(b)
	require.NoError(t, err)
	require.True(t, sound.report.Empty())
	want := slots(sound)
	require.Len(t, want, 45)

	var wg sync.WaitGroup
	limit := int(end) + 256 // all that was written, and some of the zeros behind
	for part := range 2 {
		b := append([]byte(nil), b...)
		wg.Go(func() {
			for p := part; p < limit; p += 2 {
				if p > headerSize && p < headerCopy || p > headerCopy+headerSize && p < dataStart {
					p += 14 // zeros all along
				}
				for bit := range 8 {
					if raceBuild && bit != p%8 {
						continue // the detector makes it ten times slower and has nothing to detect here
					}
					b[p] ^= 1 << bit
					l, err := loadBytes(b)
					if err != nil {
						t.Errorf("byte %d bit %d: %v", p, bit, err)
					} else if msg := compare(want, slots(l), of[p]); msg != "" {
						t.Errorf("byte %d bit %d: %s", p, bit, msg)
					} else if l.report.Empty() {
						t.Errorf("byte %d bit %d: nothing reported", p, bit)
					}
					b[p] ^= 1 << bit
				}
			}
		})
	}
	wg.Wait()
}

// compare says what is different, but for the operation that was hit.
func compare(want, got map[uint64]slot, hit uint64) string {
	for id, s := range want {
		if g, ok := got[id]; id != hit && (!ok || g != s) {
			return fmt.Sprintf("operation %d is %+v, was %+v", id, g, s)
		}
	}
	for id := range got {
		if _, ok := want[id]; id != hit && !ok {
			return fmt.Sprintf("operation %d is back", id)
		}
	}
	return ""
}

// TestCaseB49EveryTruncation cuts the file at every byte (every eighth under the race detector): what lies before the cut
// is loaded, and what was cut is reported.
func TestCaseB49EveryTruncation(t *testing.T) {
	disk := fifty(t)
	b := disk.Bytes(segmentName(1))
	of, _ := owners(t, b)
	sound, err := loadBytes(b)
	require.NoError(t, err)
	want := slots(sound)
	for cut := range len(b) {
		if raceBuild && cut%8 != 0 {
			continue
		}
		l, err := loadBytes(b[:cut])
		require.NoError(t, err)
		lost := map[uint64]bool{}
		for _, id := range of[cut:] {
			lost[id] = true
		}
		got := slots(l)
		for id, s := range want {
			if !lost[id] && cut > dataStart && got[id] != s {
				t.Fatalf("cut at %d: operation %d is lost", cut, id)
			}
		}
		if cut > 0 && l.report.Empty() {
			t.Fatalf("cut at %d: nothing reported", cut)
		}
	}
}

// TestCaseB31TornTail: A is there, B is torn at every offset, C and D are written behind it, and found.
func TestCaseB31TornTail(t *testing.T) {
	ctx := context.Background()
	disk := crashfs.New(1)
	j, err := openSim(disk, damageSize)
	require.NoError(t, err)
	_, err = j.Begin(ctx, numbered(0))
	require.NoError(t, err)
	from := j.fill.end()
	torn := numbered(1)
	torn.KeyLife = -1                                // so that the last byte is not zero
	torn.Body = []byte(strings.Repeat("torn ", 100)) // longer than what comes to lie there
	_, err = j.Begin(ctx, torn)
	require.NoError(t, err)
	to := j.fill.end()
	killed := disk.Kill()
	require.NoError(t, j.Close())
	for cut := from; cut < to; cut += 1 + (cut-from)/100 { // each of the first hundred, then fewer
		for _, truncate := range []bool{false, true} {
			f := killed.Kill()
			b := f.Bytes(segmentName(1))
			if truncate {
				b = b[:cut]
			} else {
				clear(b[cut:])
			}
			f.SetBytes(segmentName(1), b)
			for i := range 2 {
				j, err := openSim(f, damageSize)
				require.NoError(t, err)
				_, err = j.Begin(ctx, numbered(2+i))
				require.NoError(t, err)
				f = f.Kill()
				require.NoError(t, j.Close())
			}
			j, err := openSim(f, damageSize)
			require.NoError(t, err)
			require.True(t, func() bool { r := j.Report(); return r.Empty() }(), "the tail was trimmed once")
			for _, i := range []int{0, 2, 3} {
				rec, err := j.Get(ctx, numbered(i).Ref)
				require.NoError(t, err)
				require.Equal(t, describe(numbered(i)), describe(rec))
			}
			_, err = j.Get(ctx, numbered(1).Ref)
			require.ErrorIs(t, err, persist.ErrNotFound)
			require.NoError(t, j.Close())
		}
	}
}

// TestCaseB48DamageIsSetAside opens journals with damage at many places: the rest is there, the bytes are kept, what
// follows is written and found, and after compaction the journal is sound.
func TestCaseB48DamageIsSetAside(t *testing.T) {
	ctx := context.Background()
	disk := fifty(t)
	name := segmentName(1)
	sound := disk.Bytes(name)
	of, end := owners(t, sound)
	for p := int64(dataStart); p < end; p += 37 {
		f := disk.Kill()
		b := append([]byte(nil), sound...)
		b[p] ^= 0x10
		f.SetBytes(name, b)
		var told Report
		j, err := open(ctx, simFS{f}, "/sim", Options{SegmentSize: damageSize, Logger: quiet, OnReport: func(r Report) { told = r }})
		require.NoError(t, err)
		require.False(t, told.Empty())
		r := j.Report()
		for _, d := range append(r.Damage, r.Cut...) {
			require.NotEmpty(t, d.Quarantine)
			require.Equal(t, b[d.Offset:d.Offset+d.Length], f.Bytes(d.Quarantine))
			require.Equal(t, name, d.File)
			require.NotEmpty(t, d.String())
		}
		state := map[string]string{}
		for i := range 50 {
			rec, err := j.Get(ctx, numbered(i).Ref)
			state[rec.ID] = describe0(rec, err)
			if i%10 != 7 && of[p] != uint64(i+1) {
				require.NoError(t, err)
				require.Equal(t, numbered(i).Body, rec.Body)
			}
		}
		rec := numbered(77)
		_, err = j.Begin(ctx, rec)
		require.NoError(t, err)
		require.NoError(t, j.Compact(ctx))
		require.NoError(t, j.Close())
		require.Empty(t, checkSim(t, f).report.Damage)

		j, err = openSim(f, damageSize)
		require.NoError(t, err)
		for i := range 50 {
			rec, err := j.Get(ctx, numbered(i).Ref)
			if want, ok := state[rec.ID]; ok || err == nil {
				require.Equal(t, want, describe0(rec, err))
			}
		}
		_, err = j.Get(ctx, rec.Ref)
		require.NoError(t, err)
		require.NoError(t, j.Close())
	}
}

// TestUnreadableSectors: what the disk does not give costs what lies there.
func TestUnreadableSectors(t *testing.T) {
	ctx := context.Background()
	for page := 0; page < damageSize/4096; page++ {
		f := fifty(t)
		// The whole file in one read fails, then one page of it; the headers are read first, twice.
		j, err := openBadPage(ctx, f, int64(page)*4096)
		require.NoError(t, err)
		r := j.Report()
		require.False(t, r.Empty())
		found := 0
		for rec, err := range j.List(ctx, persist.Filter{}) {
			require.NoError(t, err)
			require.True(t, strings.HasPrefix(rec.ID, "op-"))
			found++
		}
		if page < 2 {
			require.Equal(t, 45, found, "the second copy of the header serves")
		} else {
			require.Less(t, found, 46)
		}
		_, err = j.Begin(ctx, numbered(99))
		require.NoError(t, err)
		require.NoError(t, j.Close())
	}
}

// badPage fails reads that touch a page, as a disk with one bad sector does, until it is written.
type badPageFS struct {
	simFS
	off *int64
}

type badPageFile struct {
	simFile
	off *int64
}

func (d badPageFS) open(name string, flag int) (file, error) {
	f, err := d.simFS.open(name, flag)
	if err == nil && name == segmentName(1) {
		return badPageFile{f.(simFile), d.off}, nil
	}
	return f, err
}

func (f badPageFile) ReadAt(b []byte, off int64) (int, error) {
	if off < *f.off+4096 && off+int64(len(b)) > *f.off {
		return 0, &fs.PathError{Op: "read", Err: syscall.EIO}
	}
	return f.simFile.ReadAt(b, off)
}

func openBadPage(ctx context.Context, f *crashfs.FS, off int64) (*Journal, error) {
	return open(ctx, badPageFS{simFS{f}, &off}, "/sim", Options{SegmentSize: damageSize, Logger: quiet})
}
