package sqlstore

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/samekey/samekey/persist"
)

const callers = 64

// BenchmarkBeginSettle is begin and settle at 64 goroutines, of an anonymous command, whose row leaves, and of a named
// one, whose row stays with its answer. On servers it takes turns, half a second each, with what a team would write by
// hand over an equal pool, an INSERT of the request and a DELETE, so that what else the machine does counts for both.
// The bar is 0.8 x-by-hand for anonymous commands on PostgreSQL. An iteration is one turn of each.
func BenchmarkBeginSettle(b *testing.B) {
	for _, d := range []Dialect{PostgreSQL, MariaDB, SQLite} {
		for _, named := range []bool{false, true} {
			b.Run(fmt.Sprintf("%v/named=%t", d, named), func(b *testing.B) {
				p := fresh(b, d).migrated(b)
				ours := bySamekey(b, p, named)
				var hand func(context.Context) error
				if d != SQLite { // whose writers would lock each other out by hand
					hand = byHand(b, p)
					turn(b, hand)
				}
				turn(b, ours)
				var n, m int64
				var took time.Duration
				for b.Loop() {
					start := time.Now()
					n += turn(b, ours)
					took += time.Since(start)
					if hand != nil {
						m += turn(b, hand)
					}
				}
				b.ReportMetric(float64(n)/took.Seconds(), "commands/s")
				if m > 0 {
					b.ReportMetric(float64(n)/float64(m), "x-by-hand")
				}
			})
		}
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

func bySamekey(b *testing.B, p database, named bool) func(context.Context) error {
	s := p.opened(b, func(o *Options) { o.Lease = time.Minute })
	s.pool.SetMaxOpenConns(callers)
	s.pool.SetMaxIdleConns(callers)
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

func byHand(b *testing.B, p database) func(context.Context) error {
	db := p.db(b)
	db.SetMaxOpenConns(callers)
	db.SetMaxIdleConns(callers)
	blob, arg := "bytea", func(i int) string { return fmt.Sprint("$", i) }
	if p.dialect != PostgreSQL {
		blob, arg = "blob", func(int) string { return "?" }
	}
	table := p.prefix + "hand"
	_, err := db.Exec(fmt.Sprintf(`CREATE TABLE %s (id varchar(200) PRIMARY KEY, created bigint, op_key varchar(200), method varchar(10), target varchar(2000), header %s, body %s)`, table, blob, blob))
	require.NoError(b, err)
	insert := fmt.Sprintf(`INSERT INTO %s (id, created, op_key, method, target, header, body) VALUES (%s, %s, %s, %s, %s, %s, %s)`,
		table, arg(1), arg(2), arg(3), arg(4), arg(5), arg(6), arg(7))
	remove := fmt.Sprintf(`DELETE FROM %s WHERE id = %s`, table, arg(1))
	var n atomic.Int64
	return func(ctx context.Context) error {
		r := op(strconv.FormatInt(n.Add(1), 10))
		_, err := db.ExecContext(ctx, insert, r.ID, r.Created.UnixNano(), r.Key, r.Method, r.Target, encodeHeader(r.Header), r.Body)
		if err == nil {
			_, err = db.ExecContext(ctx, remove, r.ID)
		}
		return err
	}
}
