package samekey

import (
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

// expired reports whether something sent in wait from now might arrive after the server has forgotten the key, and when
// that is.
func (k *call) expired(wait time.Duration) (at time.Time, is bool) {
	life := k.rec.KeyLife
	if life < 0 || !k.plan.contract.keyed() {
		return time.Time{}, false
	}
	return k.rec.Progress.FirstSent.Add(life), k.age.at(time.Now())+wait >= life-k.plan.margin()
}
