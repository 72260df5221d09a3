package journal

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/samekey/samekey/internal/crashfs"
	"github.com/samekey/samekey/persist"
)

// book knows of each name what a recovery at this instant may find, while several goroutines fight for the same names.
type book struct {
	mu   sync.Mutex
	id   int
	refs map[persist.Ref]*page
}

type page struct {
	may     []event
	running []*event
}

// event is a change that was asked for.
type event struct {
	id    int
	ref   persist.Ref
	state string
	alone bool // no other change of the same name overlapped
}

func newBook(refs []persist.Ref) *book {
	b := &book{refs: map[persist.Ref]*page{}}
	for _, r := range refs {
		b.refs[r] = &page{may: []event{{state: absent}}}
	}
	return b
}

func (b *book) start(ref persist.Ref, state string) *event {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.id++
	p := b.refs[ref]
	e := &event{id: b.id, ref: ref, state: state, alone: len(p.running) == 0}
	for _, o := range p.running {
		o.alone = false
	}
	p.running = append(p.running, e)
	p.may = append(p.may, *e)
	return e
}

// end says that the call is over: done, if it is certain that it happened (not that it is durable); refused, if it is
// certain that it did not.
func (b *book) end(e *event, durable, refused bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	p := b.refs[e.ref]
	p.running = slices.DeleteFunc(p.running, func(o *event) bool { return o == e })
	switch {
	case refused:
		p.may = slices.DeleteFunc(p.may, func(o event) bool { return o.id == e.id })
	case durable:
		p.solid(e)
	}
}

// solid drops what e has overtaken.
func (p *page) solid(e *event) {
	if e.alone {
		p.may = slices.DeleteFunc(p.may, func(o event) bool { return o.id < e.id })
	}
}

func (b *book) solid(es []*event) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, e := range es {
		b.refs[e.ref].solid(e)
	}
}

func (b *book) copy() map[persist.Ref][]string {
	m := map[persist.Ref][]string{}
	for r, p := range b.refs {
		for _, e := range p.may {
			m[r] = append(m[r], e.state)
		}
	}
	return m
}

// settle is what a recovery found: nothing else may be there from now on.
func (b *book) settle(found map[persist.Ref]string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for r, s := range found {
		b.refs[r] = &page{may: []event{{state: s}}}
	}
}

// mixer is one goroutine of TestMix.
type mixer struct {
	j    *Journal
	b    *book
	rng  *rand.Rand
	refs []persist.Ref
	held []persist.Entry
	lazy []*event
	bad  func(format string, args ...any)
	rots bool // records are damaged meanwhile
	name string
	n    int
}

// over ends the event of a call that returned err.
func (m *mixer) over(e *event, err error) bool {
	var pe *persist.Error
	switch {
	case err == nil:
		m.b.end(e, true, false)
		m.b.solid(m.lazy) // accepted before this one was asked for
		m.lazy = nil
		return true
	case errors.As(err, &pe) && pe.Maybe:
		m.b.end(e, false, false)
	default:
		m.b.end(e, false, true)
	}
	return false
}

func (m *mixer) check(call string, err error, ok ...error) {
	var p *PoisonedError
	if err == nil || errors.As(err, &p) || errors.Is(err, persist.ErrFull) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, persist.ErrClosed) ||
		errors.Is(err, syscall.EIO) {
		return
	}
	if m.rots && (errors.As(err, new(*DamagedError)) || errors.Is(err, persist.ErrClaimLost) || errors.Is(err, errLost)) {
		return
	}
	for _, o := range ok {
		if errors.Is(err, o) {
			return
		}
	}
	m.bad("%s: %s: %v", m.name, call, err)
}

func (m *mixer) context() (context.Context, context.CancelFunc) {
	if m.rng.IntN(10) == 0 {
		return context.WithTimeout(context.Background(), time.Duration(m.rng.IntN(200))*time.Microsecond)
	}
	return context.Background(), func() {}
}

func (m *mixer) step() {
	ctx, cancel := m.context()
	defer cancel()
	m.n++
	ref := m.refs[m.rng.IntN(len(m.refs))]
	if len(m.held) > 0 && m.rng.IntN(3) > 0 {
		m.use(ctx, m.rng.IntN(len(m.held)))
		return
	}
	switch m.rng.IntN(20) {
	case 0:
		ev := m.b.start(ref, absent)
		err := m.j.Forget(ctx, ref)
		m.over(ev, err)
		m.check("Forget", err, persist.ErrNotFound, persist.ErrBusy)
	case 1:
		es, err := m.j.ClaimDue(ctx, 1+m.rng.IntN(3))
		m.check("ClaimDue", err)
		m.held = append(m.held, es...)
	case 2, 3:
		e, err := m.j.Claim(ctx, ref)
		m.check("Claim", err, persist.ErrNotFound, persist.ErrBusy)
		if err == nil {
			m.held = append(m.held, e)
		}
	case 4:
		_, err := m.j.Get(ctx, ref)
		m.check("Get", err, persist.ErrNotFound)
	case 5:
		for _, err := range m.j.List(ctx, persist.Filter{}) {
			m.check("List", err)
		}
	case 6:
		err := m.j.Flush(ctx)
		m.check("Flush", err)
		if err == nil {
			m.b.solid(m.lazy)
			m.lazy = nil
		}
	case 7:
		if m.rng.IntN(4) == 0 {
			err := m.j.Compact(ctx)
			m.check("Compact", err)
		}
	default:
		rec := persist.Record{Ref: ref, Key: fmt.Sprintf("%s-%d", m.name, m.n), Method: "POST", Target: "https://x.test/",
			Created: time.Unix(int64(m.n), 0), Body: randomBytes(m.rng, m.rng.IntN(900)), Progress: persist.Progress{Attempts: 1}}
		ev := m.b.start(ref, describe(rec))
		e, err := m.j.Begin(ctx, rec)
		m.check("Begin", err)
		if err == nil && !e.New {
			m.b.end(ev, false, true)
		} else {
			m.over(ev, err)
		}
		if e.Claim.Token != 0 {
			m.held = append(m.held, e)
		}
	}
}

// use does something under the k-th claim.
func (m *mixer) use(ctx context.Context, k int) {
	e := &m.held[k]
	leave := func() { m.held = slices.Delete(m.held, k, k+1) }
	rec := e.Record
	what := m.rng.IntN(8)
	if rec.Answer != nil && what < 2 {
		what = 5 // only what is pending is sent
	}
	switch what {
	case 0, 1:
		rec.Progress.Attempts++
		ev := m.b.start(rec.Ref, describe(rec))
		err := m.j.Mark(ctx, e.Claim, rec.Progress)
		m.check("Mark", err)
		if m.over(ev, err) {
			e.Record = rec
		} else {
			m.letGo(e)
			leave()
		}
	case 2:
		rec.Key, rec.Body, rec.Answer = fmt.Sprintf("%s-r%d", m.name, m.n), randomBytes(m.rng, m.rng.IntN(300)), nil
		ev := m.b.start(rec.Ref, describe(rec))
		err := m.j.Replace(ctx, e.Claim, rec)
		m.check("Replace", err)
		if m.over(ev, err) {
			e.Record = rec
		} else {
			m.letGo(e)
			leave()
		}
	case 3:
		m.letGo(e)
		leave()
	default:
		a := persist.Answer{State: persist.Succeeded, Status: 200, Body: randomBytes(m.rng, m.rng.IntN(500)), Lazy: m.rng.IntN(2) == 0}
		switch m.rng.IntN(5) {
		case 0:
			a.KeepName = time.Now().Add(time.Hour)
		case 1:
			a.KeepBody, a.KeepName = time.Now().Add(time.Hour), time.Now().Add(2*time.Hour)
		case 2:
			a.Owed, a.KeepBody = true, time.Now().Add(time.Hour)
		}
		rec.Answer = &a
		ev := m.b.start(rec.Ref, stateOf(rec))
		err := m.j.Settle(ctx, e.Claim, a)
		m.check("Settle", err)
		switch {
		case err == nil && a.Lazy:
			m.b.end(ev, false, false)
			m.lazy = append(m.lazy, ev)
		case !m.over(ev, err):
			m.letGo(e)
		}
		leave()
	}
}

func (m *mixer) letGo(e *persist.Entry) {
	m.check("Release", m.j.Release(context.Background(), e.Claim), persist.ErrClaimLost)
}

// TestMix lets several goroutines do everything that a store can do to the same few names, while the disk fills up, gets
// room again, refuses or breaks, and power fails at random instants. Each life of the journal begins with what the one
// before it, or a loss of power, left.
func TestMix(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	if s := os.Getenv("JOURNAL_SEED"); s != "" {
		_, err := fmt.Sscan(s, &seed)
		require.NoError(t, err)
	}
	t.Logf("JOURNAL_SEED=%d", seed)
	for run := 0; run*20 < *soak; run++ {
		mixRun(t, seed+uint64(run))
	}
}

func mixRun(t *testing.T, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 21))
	var refs []persist.Ref
	for i := range 10 {
		refs = append(refs, persist.Ref{Scope: "mix", ID: fmt.Sprint(i)})
	}
	b := newBook(refs)
	disk := crashfs.New(seed)
	for life := range 4 {
		note := fmt.Sprintf("JOURNAL_SEED=%d life %d", seed, life)
		disk = mixLife(t, disk, b, refs, rng, note)
		require.False(t, t.Failed(), note)
	}
}

// mixLife returns the disk for the next life.
func mixLife(t *testing.T, disk *crashfs.FS, b *book, refs []persist.Ref, rng *rand.Rand, note string) *crashfs.FS {
	t.Helper()
	var mu sync.Mutex
	var taken []crashImage
	pick := rand.New(rand.NewPCG(rng.Uint64(), 8))
	disk.Before = func(crashfs.Kind, string) {
		mu.Lock()
		defer mu.Unlock()
		if pick.IntN(40) != 0 || len(taken) >= 10 {
			return
		}
		b.mu.Lock()
		defer b.mu.Unlock()
		s := pick.Uint64()
		taken = append(taken, crashImage{disk.Crash(s), b.copy(), s})
	}
	j, err := openSim(disk, tiny)
	require.NoError(t, err, note)
	bad := func(format string, args ...any) { t.Errorf(note+": "+format, args...) }
	var stop atomic.Bool
	var wg, storm sync.WaitGroup
	for w := range 4 {
		m := &mixer{j: j, b: b, rng: rand.New(rand.NewPCG(rng.Uint64(), 1)), refs: refs, bad: bad, name: fmt.Sprintf("w%d.%d", w, rng.IntN(1000))}
		wg.Go(func() {
			for range 150 {
				if m.step(); j.poisoned() != nil {
					break
				}
			}
			for i := range m.held {
				m.letGo(&m.held[i])
			}
		})
	}
	weather := rand.New(rand.NewPCG(rng.Uint64(), 2))
	calm := weather.IntN(4) == 0
	deadly := weather.IntN(3) == 0
	storm.Go(func() {
		for !stop.Load() && !calm {
			time.Sleep(time.Duration(weather.IntN(1500)) * time.Microsecond)
			switch n := 1 + weather.IntN(4); weather.IntN(10) {
			case 0:
				disk.Fail(crashfs.Write, n, 1+weather.IntN(8), syscall.ENOSPC)
			case 1:
				disk.Fail(crashfs.Allocate, n, -1, syscall.ENOSPC)
			case 2:
				disk.Fail(crashfs.Rename, n, 1, syscall.EIO)
			case 3:
				disk.Fail(crashfs.Remove, n, 2, syscall.EIO)
			case 4:
				disk.Fail(crashfs.SyncDir, n, 2, syscall.EIO)
			case 5:
				disk.SetSpace(weather.Int64N(2 * tiny))
			case 6:
				if deadly && weather.IntN(4) == 0 {
					disk.Fail([]crashfs.Kind{crashfs.Sync, crashfs.Write, crashfs.Read}[weather.IntN(3)], n, 1, syscall.EIO)
				}
			default:
				disk.Heal()
				disk.SetSpace(-1)
			}
		}
	})
	inTime(t, note, wg.Wait)
	stop.Store(true)
	storm.Wait()
	disk.Heal()
	disk.SetSpace(-1)
	ctx := context.Background()
	if j.poisoned() == nil {
		require.NoError(t, j.Flush(ctx), note)
		found := verify(t, j, b.copy(), note)
		b.settle(found)
		certain := b.copy()
		verifyImage(t, disk.Crash(rng.Uint64()), certain, note+", flushed and crashed")
		require.NoError(t, j.Compact(ctx), note)
		verify(t, j, certain, note+", compacted")
		verifyImage(t, disk.Crash(rng.Uint64()), certain, note+", compacted and crashed")
		require.NoError(t, j.Close(), note)
	} else {
		_ = j.Close()
	}
	disk.Before = nil
	require.Zero(t, disk.Handles(), note)
	for i, im := range taken {
		verifyImage(t, im.fs, im.may, fmt.Sprintf("%s, image %d", note, i))
	}
	if rng.IntN(2) == 0 {
		disk = disk.Crash(rng.Uint64())
	}
	j, err = openSim(disk, tiny)
	require.NoError(t, err, note)
	b.settle(verify(t, j, b.copy(), note+", opened again"))
	require.NoError(t, j.Close(), note)
	return disk
}

// verifyImage opens a disk and leaves nothing that is open.
func verifyImage(t *testing.T, f *crashfs.FS, may map[persist.Ref][]string, note string) {
	t.Helper()
	before := checkSim(t, f)
	j, err := openSim(f, tiny)
	require.NoError(t, err, note)
	require.Equal(t, before.report.Damage, j.Report().Damage, "looking and opening agree: "+note)
	found := verify(t, j, may, note)
	crashed := f.Crash(1)
	require.NoError(t, j.Close(), note)
	require.Zero(t, f.Handles(), note)
	again, err := openSim(crashed, tiny)
	require.NoError(t, err, note)
	certain := map[persist.Ref][]string{}
	for r, s := range found {
		certain[r] = []string{s}
	}
	verify(t, again, certain, note+", and again")
	require.NoError(t, again.Close(), note)
}

// inTime fails with all stacks if something hangs.
func inTime(t *testing.T, note string, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() { defer close(done); f() }()
	select {
	case <-done:
	case <-time.After(2 * time.Minute):
		buf := make([]byte, 1<<20)
		t.Fatalf("%s: hangs\n%s", note, buf[:runtime.Stack(buf, true)])
	}
}
