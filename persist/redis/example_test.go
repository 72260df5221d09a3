package redis_test

import (
	"context"
	"errors"
	"log"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/samekey/samekey/persist/redis"
)

// One client serves the store and whatever else the program does in Redis; whoever made it closes it, after the store.
func Example() {
	run := func(ctx context.Context) error {
		client := goredis.NewClient(&goredis.Options{Addr: "127.0.0.1:6379", PoolSize: 64})
		defer client.Close()
		store, err := redis.Open(ctx, client, redis.Options{Prefix: "billing", Lease: time.Minute})
		if volatile := (*redis.VolatileError)(nil); errors.As(err, &volatile) {
			log.Printf("%s: %s", volatile.Setting, volatile.Mend)
		}
		if err != nil {
			return err
		}
		defer store.Close()
		// samekey.New(samekey.Config{Store: store})
		return nil
	}
	_ = run
}

// Behind Sentinel, or in a cluster, the client finds the primary.
func ExampleOpen_failover() {
	open := func(ctx context.Context) (*redis.Store, error) {
		client := goredis.NewFailoverClient(&goredis.FailoverOptions{
			MasterName: "payments", SentinelAddrs: []string{"sentinel-1:26379", "sentinel-2:26379", "sentinel-3:26379"},
		})
		return redis.Open(ctx, client, redis.Options{RetryFor: 15 * time.Second}) // as long as a failover takes
	}
	_ = open
}
