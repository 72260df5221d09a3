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
	each(t, conform)
}

func conform(t *testing.T, d Dialect) {
	persisttest.Run(t, persisttest.Harness{
		New: func(t testing.TB) func() (persist.Store, error) {
			p := fresh(t, d).migrated(t)
			lease, retryFor := leaseFor(t.Name()), 3*time.Second
			if strings.Contains(t.Name(), "broken_store") {
				retryFor = 300 * time.Millisecond
			}
			return func() (persist.Store, error) {
				s, err := p.store(func(o *Options) { o.Lease, o.RetryFor = lease, retryFor })
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
}

// leaseFor is short where the suite waits for leases to lapse, and otherwise longer than a busy machine stands still.
func leaseFor(rule string) time.Duration {
	for part, lease := range map[string]time.Duration{
		"/Crash/": 800 * time.Millisecond, "broken_store": time.Second,
		"/Leases/": 2 * time.Second, "a_crash": 2 * time.Second, "what_the_model_does": 1500 * time.Millisecond,
	} {
		if strings.Contains(rule, part) {
			return lease
		}
	}
	return time.Minute
}
