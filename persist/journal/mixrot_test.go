package journal

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/samekey/samekey/internal/crashfs"
	"github.com/samekey/samekey/persist"
)

// TestMixRot is TestMix on a disk whose bits turn under live records: those suffer, the others do not, and no name stays
// blocked.
func TestMixRot(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	if s := os.Getenv("JOURNAL_SEED"); s != "" {
		_, err := fmt.Sscan(s, &seed)
		require.NoError(t, err)
	}
	t.Logf("JOURNAL_SEED=%d", seed)
	for run := 0; run*20 < *soak; run++ {
		rotRun(t, seed+uint64(run))
		require.False(t, t.Failed())
	}
}

func rotRun(t *testing.T, seed uint64) {
	note := fmt.Sprintf("JOURNAL_SEED=%d", seed)
	rng := rand.New(rand.NewPCG(seed, 22))
	var refs []persist.Ref
	for i := range 16 {
		refs = append(refs, persist.Ref{Scope: "mix", ID: fmt.Sprint(i)})
	}
	b := newBook(refs)
	disk := crashfs.New(seed)
	j, err := openSim(disk, tiny)
	require.NoError(t, err)
	bad := func(format string, args ...any) { t.Errorf(note+": "+format, args...) }
	var wg, rotting sync.WaitGroup
	for w := range 4 {
		m := &mixer{j: j, b: b, rng: rand.New(rand.NewPCG(rng.Uint64(), 1)), refs: refs, bad: bad, name: fmt.Sprint("w", w), rots: true}
		wg.Go(func() {
			for range 150 {
				m.step()
			}
			for i := range m.held {
				m.letGo(&m.held[i])
			}
		})
	}
	var stop atomic.Bool
	hit := map[persist.Ref]bool{}
	rotting.Go(func() {
		r := rand.New(rand.NewPCG(seed, 3))
		for !stop.Load() && len(hit) < 5 {
			time.Sleep(time.Duration(r.IntN(2000)) * time.Microsecond)
			if ref, ok := rotOne(t, j, disk, r); ok {
				hit[ref] = true
			}
			switch r.IntN(6) {
			case 0:
				disk.SetSpace(r.Int64N(2 * tiny))
			case 1:
				disk.Fail(crashfs.Write, 1, 2, syscall.ENOSPC)
			default:
				disk.SetSpace(-1)
				disk.Heal()
			}
		}
	})
	inTime(t, note, wg.Wait)
	stop.Store(true)
	rotting.Wait()
	disk.SetSpace(-1)
	disk.Heal()
	ctx := context.Background()
	require.NoError(t, j.Flush(ctx), note)
	require.NoError(t, j.Compact(ctx), note)
	states := func(j *Journal) map[persist.Ref]string {
		found := map[persist.Ref]string{}
		for _, ref := range refs {
			rec, err := j.Get(ctx, ref)
			if err != nil {
				require.ErrorIs(t, err, persist.ErrNotFound, note)
			}
			if found[ref] = describe0(rec, err); !hit[ref] {
				require.Contains(t, b.copy()[ref], found[ref], "%s: %v", note, ref)
			}
		}
		return found
	}
	found := states(j)
	crashed := disk.Crash(seed)
	require.NoError(t, j.Close(), note)
	require.Zero(t, disk.Handles(), note)
	for _, f := range []*crashfs.FS{disk, crashed} {
		require.Empty(t, checkSim(t, f).report.Damage, note)
		j, err := openSim(f, tiny)
		require.NoError(t, err, note)
		require.Equal(t, found, states(j), note)
		for _, ref := range refs {
			_, err := j.Begin(ctx, persist.Record{Ref: ref, Method: "POST"})
			require.NoError(t, err, note)
		}
		require.NoError(t, j.Close(), note)
	}
}

// rotOne turns a bit of a live record that is on disk.
func rotOne(t *testing.T, j *Journal, disk *crashfs.FS, rng *rand.Rand) (ref persist.Ref, ok bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.idx.used < 2 {
		return ref, false
	}
	s := j.idx.at(1 + rng.Uint32N(j.idx.used-1))
	at := []loc{s.put, s.mark, s.ans}[rng.IntN(3)]
	for _, l := range []loc{s.put, at} {
		seg := j.segment(l.seg)
		if s.hash == 0 || l.seg == 0 || seg == nil {
			return ref, false
		}
		p, err := seg.readFrame(int64(l.off))
		if err != nil {
			return ref, false // still in memory, or damaged before
		}
		if l == s.put {
			_, rec, err := decodeRecord(p)
			if err != nil {
				return ref, false // still in memory, and a refused write has left something there
			}
			ref = rec.Ref
		}
	}
	disk.Heal() // this write is not the journal's
	rot(t, disk, at)
	return ref, true
}
