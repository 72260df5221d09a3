package samekey

import (
	"sync"
	"time"

	"github.com/samekey/samekey/persist"
)

// keyAge is how long the server has known a key. It counts from the first send, is the larger of wall and monotonic
// time, so that neither a stepped clock nor a suspended machine makes a key younger, and starts, after a restart, from
// the latest time that the store has seen.
type keyAge struct {
	first time.Time     // the first send, by the wall
	base  time.Duration // the age at since
	since time.Time     // with a monotonic reading
}

func newKeyAge(p persist.Progress, now time.Time) keyAge {
	if p.FirstSent.IsZero() {
		return keyAge{first: now.Round(0), since: now}
	}
	return keyAge{first: p.FirstSent.Round(0), base: max(0, p.Seen.Sub(p.FirstSent)), since: now}
}

func (a keyAge) at(now time.Time) time.Duration {
	return max(now.Round(0).Sub(a.first), a.base+now.Sub(a.since))
}

// anchor is what the record should bear of first send and now. After a clock was set back, the first send is moved back
// with it: the next process goes by the clock, and would take the key for younger than this one knows it to be.
func (a keyAge) anchor(now time.Time) (first, seen time.Time) {
	age := a.at(now)
	first = a.first
	if by := age - now.Round(0).Sub(first); by > clockSlack {
		first = first.Add(-by)
	}
	return first, first.Add(age)
}

// clockSlack is by how much two readings of a clock may differ without it having been set.
const clockSlack = time.Second

// clock notices that the wall is set back while the process lives.
type clock struct {
	mu    sync.Mutex
	last  time.Time     // looked at, with a monotonic reading
	until time.Time     // what bears a time up to this may be from before
	back  time.Duration // how far it was set back, in all
}

// behind is how much older than the wall tells something is that the store says happened at t. What happened since the
// clock was set back cannot be told from what had happened before, and counts as older, until the clock is past again.
func (c *clock) behind(t, now time.Time) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.last.IsZero() {
		due := c.last.Round(0).Add(now.Sub(c.last))
		if by := due.Sub(now.Round(0)); by > clockSlack {
			c.back += by
			c.until = latest(c.until, due)
		}
	}
	c.last = now
	if t.After(c.until) {
		return 0
	}
	return c.back
}

// ageOf is how old the key of a record is.
func (c *core) ageOf(p persist.Progress, now time.Time) keyAge {
	a := newKeyAge(p, now)
	if by := c.clock.behind(p.FirstSent, now); by > 0 && !p.FirstSent.IsZero() {
		a.base = max(a.base, now.Round(0).Sub(a.first)+by)
	}
	return a
}

// seen notes in p how old the key is by now.
func (k *call) seen(p *persist.Progress, now time.Time) {
	if !p.FirstSent.IsZero() && !k.age.since.IsZero() {
		p.FirstSent, p.Seen = k.age.anchor(now)
	}
}

// toldExpired reports whether the record itself says that its key has expired: then it stays so, whatever becomes of the
// clock.
func (k *call) toldExpired() bool {
	p := k.rec.Progress
	return p.Seen.Sub(p.FirstSent) >= k.rec.KeyLife-k.plan.margin()
}

// expired reports whether something sent in wait from now might arrive after the server has forgotten the key, and when
// that is.
func (k *call) expired(wait time.Duration) (at time.Time, is bool) {
	life := k.rec.KeyLife
	if life < 0 || !k.plan.contract.keyed() {
		return time.Time{}, false
	}
	return k.rec.Progress.FirstSent.Add(life), k.age.at(time.Now())+wait >= life-k.plan.margin()
}
