package sqlstore

import (
	"strings"
	"testing"
	"time"

	"github.com/samekey/samekey/persist"
	"github.com/samekey/samekey/persist/persisttest"
)

// TestStore holds each dialect against the contract.
func TestStore(t *testing.T) {
	each(t, func(t *testing.T, d Dialect) {
		persisttest.Run(t, persisttest.Harness{
			New: func(t testing.TB) func() (persist.Store, error) {
				p := fresh(t, d).migrated(t)
				lease := leaseFor(t.Name())
				return func() (persist.Store, error) {
					s, err := p.store(func(o *Options) { o.Lease, o.RetryFor = lease, 2*time.Second })
					if err != nil {
						return nil, err
					}
					return s, nil
				}
			},
			Durable: true, Shared: true, Leases: true,
			Crash: func(s persist.Store) { crash(s.(*own)) },
			Break: func(s persist.Store) {
				s.(*own).wire.cut(true)
				if d == SQLite { // it has no wire
					_ = s.(*own).pool.Close()
				}
			},
		})
	})
}

// leaseFor is short where the suite waits for leases to lapse, and otherwise longer than a busy machine stands still.
func leaseFor(rule string) time.Duration {
	for _, part := range []string{"/Leases/", "/Crash/", "a_crash", "broken_store"} {
		if strings.Contains(rule, part) {
			return time.Second
		}
	}
	if strings.Contains(rule, "what_the_model_does") {
		return 2 * time.Second
	}
	return time.Minute
}
