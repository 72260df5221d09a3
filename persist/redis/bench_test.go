package redis

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/samekey/samekey/persist"
)

const callers = 64

// BenchmarkBeginSettle is begin and settle at 64 goroutines, of an anonymous command, whose record leaves, and of a
// named one, whose record stays with its answer. It takes turns, half a second each, with what a team would write by
// hand over the same client, a SET of the request and a DEL, so that what else the machine does counts for both. An
// iteration is one turn of each. With TMPDIR on a disk the server's file is synced there.
func BenchmarkBeginSettle(b *testing.B) {
	for _, named := range []bool{false, true} {
		b.Run(fmt.Sprintf("named=%t", named), func(b *testing.B) {
			p := fresh(b)
			s := p.opened(b, func(o *Options) { o.Lease = time.Minute })
			client := goredis.NewClient(&goredis.Options{Addr: p.addr, PoolSize: callers})
			defer client.Close()
			s.Store.client = client
			ours, hand := bySamekey(s, named), byHand(client, p)
			turn(b, hand)
			turn(b, ours)
			var n, m int64
			var took time.Duration
			for b.Loop() {
				start := time.Now()
				n += turn(b, ours)
				took += time.Since(start)
				m += turn(b, hand)
			}
			b.ReportMetric(float64(n)/took.Seconds(), "commands/s")
			b.ReportMetric(float64(n)/float64(m), "x-by-hand")
		})
	}
}

// turn lets 64 goroutines run f for half a second, and counts.
func turn(b *testing.B, f func(context.Context) error) int64 {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var n atomic.Int64
	var all sync.WaitGroup
	end := time.Now().Add(500 * time.Millisecond)
	for range callers {
		all.Go(func() {
			for time.Now().Before(end) {
				if err := f(ctx); err != nil {
					b.Error(err)
					return
				}
				n.Add(1)
			}
		})
	}
	all.Wait()
	return n.Load()
}

func bySamekey(s *own, named bool) func(context.Context) error {
	var n atomic.Int64
	return func(ctx context.Context) error {
		e, err := s.Begin(ctx, op(strconv.FormatInt(n.Add(1), 10)))
		if err != nil {
			return err
		}
		a := persist.Answer{State: persist.Succeeded, Status: 200, Lazy: true}
		if named {
			a.KeepBody, a.KeepName = time.Now().Add(time.Hour), time.Now().Add(2*time.Hour)
		}
		return s.Settle(ctx, e.Claim, a)
	}
}

func byHand(c goredis.UniversalClient, p place) func(context.Context) error {
	var n atomic.Int64
	return func(ctx context.Context) error {
		r := op(strconv.FormatInt(n.Add(1), 10))
		key := p.prefix + ":" + r.ID
		err := c.Set(ctx, key, encodeName(&r)+encodeRequest(&r)+encodeProgress(&r.Progress), 0).Err()
		if err == nil {
			err = c.Del(ctx, key).Err()
		}
		return err
	}
}
