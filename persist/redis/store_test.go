package redis

import (
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/samekey/samekey/persist"
	"github.com/samekey/samekey/persist/persisttest"
	"github.com/samekey/samekey/persist/persisttest/servertest"
)

// TestStore holds the store against the contract.
func TestStore(t *testing.T) {
	t.Parallel()
	conform(t, fresh)
}

// TestCluster does so on a node of a Redis Cluster: no script crosses a slot, and the client is a cluster's.
func TestCluster(t *testing.T) {
	t.Parallel()
	s := clustered(t)
	conform(t, func(testing.TB) place {
		p := on(s)
		p.cluster = true
		return p
	})
}

// clustered starts a cluster of one node, which has all slots.
func clustered(t *testing.T) *servertest.Server {
	s := servertest.New(t, servertest.Redis, "--cluster-enabled", "yes")
	c := goredis.NewClient(&goredis.Options{Addr: s.Addr()})
	defer c.Close()
	require.NoError(t, c.ClusterAddSlotsRange(t.Context(), 0, 16383).Err())
	require.Eventually(t, func() bool {
		info, err := c.ClusterInfo(t.Context()).Result()
		return err == nil && strings.Contains(info, "cluster_state:ok")
	}, 20*time.Second, 50*time.Millisecond)
	return s
}

func conform(t *testing.T, where func(testing.TB) place) {
	persisttest.Run(t, persisttest.Harness{
		New: func(t testing.TB) func() (persist.Store, error) {
			p := where(t)
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
		Break: func(s persist.Store) { s.(*own).wire.cut(true) },
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
