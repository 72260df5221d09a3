package redis

import (
	"flag"
	"fmt"
	"slices"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/samekey/samekey/persist"
)

// count is how many members an index has; "op" counts records.
func (p place) count(t testing.TB, c goredis.UniversalClient, index string) (n int) {
	t.Helper()
	o := Options{Prefix: p.prefix}
	if index != "op" {
		return int(c.ZCard(t.Context(), o.key(index)).Val())
	}
	for records := c.Scan(t.Context(), 0, o.key("op:*"), 1000).Iterator(); records.Next(t.Context()); {
		n++
	}
	return n
}

// TestSweep: what is past its retention leaves in steps; what is owed, held or still to be told stays.
func TestSweep(t *testing.T) {
	t.Parallel()
	p := fresh(t)
	s, ctx, admin := p.opened(t, func(o *Options) { o.SweepEvery, o.Lease = -1, time.Minute }), t.Context(), p.admin(t)
	later := time.Now().Add(time.Hour)
	settle := func(id string, a persist.Answer) {
		e, err := s.Begin(ctx, op(id))
		require.NoError(t, err)
		a.State, a.Status, a.Body = persist.Succeeded, 200, []byte("x")
		require.NoError(t, s.Settle(ctx, e.Claim, a))
	}
	settle("whole", persist.Answer{KeepBody: later, KeepName: later})
	settle("owed", persist.Answer{Owed: true})
	filled := time.Now().Add(4 * time.Second)
	s.fill(t, 3*sweepStep, filled)
	soon := time.Now().Add(500 * time.Millisecond)
	settle("name", persist.Answer{KeepBody: soon, KeepName: later})
	settle("held", persist.Answer{KeepBody: soon, KeepName: soon})
	held, err := s.Claim(ctx, op("held").Ref)
	require.NoError(t, err)
	p.consistent(t)
	require.Equal(t, 4+3*sweepStep, p.count(t, admin, "op"))
	time.Sleep(time.Until(filled) + 10*time.Millisecond)
	require.NoError(t, s.sweep(ctx))
	p.consistent(t)
	require.Equal(t, 4, p.count(t, admin, "op"))
	require.Equal(t, 3, p.count(t, admin, "over"))
	require.Equal(t, 3, p.count(t, admin, "keep"))
	fields := func(id string) int64 { return admin.HLen(ctx, s.record(hashOf(op(id).Ref))).Val() }
	require.Equal(t, []int64{6, 3, 6}, []int64{fields("whole"), fields("name"), fields("held")}, "of a name the rest has left")

	require.NoError(t, s.Release(ctx, held.Claim))
	require.Equal(t, 3, p.count(t, admin, "op"), "let go, it leaves")
	p.consistent(t)
	es, err := s.ClaimDue(ctx, 9)
	require.NoError(t, err)
	require.Len(t, es, 1)
	require.NoError(t, s.Settle(ctx, es[0].Claim, persist.Answer{State: persist.Succeeded}))
	for _, id := range []string{"whole", "name"} {
		require.NoError(t, s.Forget(ctx, op(id).Ref))
	}
	for _, index := range []string{"op", "open", "over", "wait", "ready", "keep"} {
		require.Zero(t, p.count(t, admin, index), index)
	}
}

// TestExpiry: Redis itself removes what nobody may know of any more, held or not once the claim has lapsed; what is
// resumed stays.
func TestExpiry(t *testing.T) {
	t.Parallel()
	p := fresh(t)
	s, ctx, admin := p.opened(t, func(o *Options) { o.SweepEvery, o.Lease = -1, 2*time.Second }), t.Context(), p.admin(t)
	soon := time.Now().Add(2 * time.Second)
	for _, id := range []string{"left", "lapsed", "resumed"} {
		e, err := s.Begin(ctx, op(id))
		require.NoError(t, err)
		require.NoError(t, s.Settle(ctx, e.Claim, persist.Answer{State: persist.Conflicted, Status: 409, KeepBody: soon, KeepName: soon}))
	}
	time.Sleep(time.Until(soon) - time.Second)
	_, err := s.Claim(ctx, op("lapsed").Ref)
	require.NoError(t, err)
	e, err := s.Claim(ctx, op("resumed").Ref)
	require.NoError(t, err)
	require.NoError(t, s.Replace(ctx, e.Claim, op("resumed")))
	exists := func(id string) bool { return admin.Exists(ctx, s.record(hashOf(op(id).Ref))).Val() == 1 }
	require.True(t, exists("lapsed"))
	time.Sleep(time.Until(soon) + 50*time.Millisecond)
	require.False(t, exists("left"))
	require.True(t, exists("lapsed"), "it is held")
	time.Sleep(s.Lease())
	require.False(t, exists("lapsed"))
	require.True(t, exists("resumed"))
	require.NoError(t, s.sweep(ctx))
	require.Zero(t, p.count(t, admin, "keep"))
	p.consistent(t)
}

// TestEveryWay takes operations through their states and back, and looks after each step where they are noted.
func TestEveryWay(t *testing.T) {
	t.Parallel()
	p := fresh(t)
	s, ctx := p.opened(t, func(o *Options) { o.SweepEvery, o.Lease = -1, time.Minute }), t.Context()
	rec := op("a")
	later := time.Now().Add(time.Hour)
	kept := persist.Answer{State: persist.Conflicted, Status: 409, KeepBody: later, KeepName: later}
	owed := persist.Answer{State: persist.Succeeded, Status: 200, Owed: true, KeepBody: later}
	name := persist.Answer{State: persist.Succeeded, KeepName: later}
	gone := persist.Answer{State: persist.Succeeded}
	var c persist.Claim
	must := func(err error) {
		t.Helper()
		require.NoError(t, err)
		p.consistent(t)
	}
	claim := func() {
		t.Helper()
		e, err := s.Claim(ctx, rec.Ref)
		c = e.Claim
		must(err)
	}
	begin := func() {
		t.Helper()
		e, err := s.Begin(ctx, rec)
		c = e.Claim
		require.True(t, e.New)
		must(err)
	}
	replace := func(created time.Time, parked bool) {
		t.Helper()
		rec.Created, rec.Progress.Parked = created, parked
		must(s.Replace(ctx, c, rec))
	}
	for _, first := range []persist.Answer{kept, owed} {
		for _, second := range []persist.Answer{kept, owed, name, gone} {
			begin()
			must(s.Mark(ctx, c, persist.Progress{Parked: true}))
			must(s.Mark(ctx, c, persist.Progress{NotBefore: later}))
			must(s.Settle(ctx, c, first))
			claim()
			must(s.Mark(ctx, c, persist.Progress{Attempts: 2}))
			must(s.Settle(ctx, c, second))
			if _, err := s.Get(ctx, rec.Ref); err == nil {
				must(s.Forget(ctx, rec.Ref))
			}
		}
		for _, created := range []time.Time{rec.Created, rec.Created.Add(1)} {
			for _, parked := range []bool{false, true} {
				begin()
				must(s.Settle(ctx, c, first))
				claim()
				replace(created, parked)
				must(s.Release(ctx, c))
				claim()
				replace(created.Add(1), !parked)
				must(s.Settle(ctx, c, gone))
				rec.Progress.Parked = false
			}
		}
	}
	require.Zero(t, p.count(t, p.admin(t), "op"))
}

// TestNotYetExpired: until Redis, which counts milliseconds, has expired a record, nobody is told of it either.
func TestNotYetExpired(t *testing.T) {
	t.Parallel()
	p := fresh(t)
	s, ctx, admin := p.opened(t, func(o *Options) { o.SweepEvery, o.Lease = -1, time.Minute }), t.Context(), p.admin(t)
	soon := time.Now().Add(time.Second)
	var refs []persist.Ref
	for i := range 4 {
		e, err := s.Begin(ctx, op(fmt.Sprint(i)))
		require.NoError(t, err)
		require.NoError(t, s.Settle(ctx, e.Claim, persist.Answer{State: persist.Succeeded, Status: 200, KeepBody: soon, KeepName: soon}))
		require.True(t, admin.Persist(ctx, s.record(hashOf(e.Ref))).Val()) // a long millisecond
		refs = append(refs, e.Ref)
	}
	time.Sleep(time.Until(soon) + 10*time.Millisecond)
	for range s.List(ctx, persist.Filter{}) {
		t.Error("it is listed")
	}
	_, err := s.Get(ctx, refs[0])
	require.ErrorIs(t, err, persist.ErrNotFound)
	_, err = s.Claim(ctx, refs[0])
	require.ErrorIs(t, err, persist.ErrNotFound)
	require.ErrorIs(t, s.Forget(ctx, refs[1]), persist.ErrNotFound)
	rec := op("2")
	e, err := s.Begin(ctx, rec)
	require.NoError(t, err)
	require.True(t, e.New)
	require.Equal(t, 3, p.count(t, admin, "op"), "what was forgotten has left for good")
	require.NoError(t, s.sweep(ctx))
	require.Equal(t, 1, p.count(t, admin, "op"))
	p.consistent(t)
}

// fill adds n settled records that are kept until then, written as settle.lua writes them.
func (o *own) fill(t testing.TB, n int, until time.Time) {
	t.Helper()
	const text = `
		for i = ARGV[1], ARGV[2] do
			local hash = ARGV[3] .. i
			local member = string.format('%016x', i) .. hash
			redis.call('HSET', KEYS[1] .. hash, 'm', '1 1 0 0 0 ' .. ARGV[4] .. ' ' .. ARGV[4] .. ' ' ..
				string.format('%016x', i) .. ' 1 0 x', 'n', ARGV[5], 'e', ARGV[6], 'r', ARGV[7], 'p', ARGV[8], 'a', ARGV[9])
			redis.call('PEXPIREAT', KEYS[1] .. hash, math.ceil(ARGV[4] / 1000))
			redis.call('ZADD', KEYS[2], 0, member)
			redis.call('ZADD', KEYS[3], ARGV[4], member)
		end
		return 1`
	rec, a := op("filled"), persist.Answer{State: persist.Succeeded, Status: 200, Body: []byte("{}"), KeepBody: until, KeepName: until}
	for i := 0; i < n; i += 1000 {
		err := o.client.Eval(t.Context(), text, []string{o.record(""), o.o.key("over"), o.o.key("keep")}, i, min(i+1000, n)-1, "filled",
			micros(until), encodeName(&rec), encodeEnd(&a), encodeRequest(&rec), encodeProgress(&rec.Progress), encodeAnswer(&a)).Err()
		require.NoError(t, err)
	}
}

// TestMuchIsDue: of more than one step of the index the oldest come first, each once.
func TestMuchIsDue(t *testing.T) {
	t.Parallel()
	p := fresh(t)
	s := p.opened(t, func(o *Options) { o.Lease = time.Minute })
	const ops = 1200
	start := time.Now()
	var all []string
	for i := range ops {
		rec := op(fmt.Sprint("op-", i))
		rec.Created = start.Add(-time.Duration(i)) // the last one is the oldest
		s.free(t, rec)
		all = append(all, rec.ID)
	}
	slices.Reverse(all)
	var got []string
	for {
		es, err := s.ClaimDue(t.Context(), 1000)
		require.NoError(t, err)
		if len(es) == 0 {
			break
		}
		require.LessOrEqual(t, len(es), dueMost)
		for _, e := range es {
			got = append(got, e.ID)
		}
	}
	require.Equal(t, all, got)
	p.consistent(t)
}

var history = flag.Int("history", 0, "records of history for TestClaimSpeed; 0: a few, and only what is claimed is checked")

// TestClaimSpeed: with history a begin, a claim and a list of what is pending are at most 1.5 times as slow as with a
// thousand records. go test -run ClaimSpeed -history 100000 -v
func TestClaimSpeed(t *testing.T) {
	records, rounds := 2000, 10
	if *history > 0 {
		records, rounds = *history, 300
	} else {
		t.Parallel()
	}
	const batch = 4
	stores := map[int]*own{}
	for _, n := range []int{1000, records} {
		s := fresh(t).opened(t, func(o *Options) { o.Lease, o.SweepEvery = time.Hour, -1 })
		s.fill(t, n, time.Now().Add(24*time.Hour))
		for i := range rounds * batch {
			s.free(t, op(fmt.Sprint("due-", i)))
		}
		stores[n] = s
	}
	took := map[string][]time.Duration{}
	timed := func(what string, n int, f func(s *own)) {
		start := time.Now()
		f(stores[n])
		name := fmt.Sprint(what, n)
		took[name] = append(took[name], time.Since(start))
	}
	for i := range rounds { // in turns, so that what else the machine does counts for both
		for n := range stores {
			rec := op(fmt.Sprint("one-", i))
			rec.Progress.Parked = true
			timed("Begin", n, func(s *own) { s.free(t, rec) })
			timed("Claim", n, func(s *own) {
				e, err := s.Claim(t.Context(), rec.Ref)
				require.NoError(t, err)
				require.NoError(t, s.Settle(t.Context(), e.Claim, persist.Answer{State: persist.Succeeded}))
			})
			timed("ClaimDue", n, func(s *own) {
				es, err := s.ClaimDue(t.Context(), batch)
				require.NoError(t, err)
				require.Len(t, es, batch)
				for _, e := range es {
					require.NoError(t, s.Settle(t.Context(), e.Claim, persist.Answer{State: persist.Succeeded}))
				}
			})
			if i == rounds-1 {
				for range 20 {
					timed("List", n, func(s *own) {
						for range s.List(t.Context(), persist.Filter{States: []persist.State{persist.Pending}}) {
							t.Error("nothing is pending")
						}
					})
				}
			}
		}
	}
	for _, what := range []string{"Begin", "Claim", "ClaimDue", "List"} {
		few, many := median(took[fmt.Sprint(what, 1000)]), median(took[fmt.Sprint(what, records)])
		ratio := float64(many) / float64(few)
		t.Logf("%s: median %v with 1000 records, %v with %d: %.2f x", what, few, many, records, ratio)
		if *history > 0 {
			require.Less(t, ratio, 1.5)
		}
	}
}

func median(d []time.Duration) time.Duration {
	slices.Sort(d)
	return d[len(d)/2]
}
