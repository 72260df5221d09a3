package sqlstore

import (
	"context"
	"fmt"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/samekey/samekey/persist"
)

const callers = 64

// BenchmarkBeginSettle is begin and settle of an anonymous command at 64 goroutines; BenchmarkByHand, over an equal
// pool, is what a team would write without a store: an INSERT of the request and a DELETE. The bar: at least 0.8 of it.
func BenchmarkBeginSettle(b *testing.B) {
	for _, d := range []Dialect{PostgreSQL, MariaDB, SQLite} {
		p := fresh(b, d).migrated(b)
		s := p.opened(b, func(o *Options) { o.Lease = time.Minute })
		s.pool.SetMaxOpenConns(callers)
		s.pool.SetMaxIdleConns(callers)
		var n atomic.Int64
		begin := func(ctx context.Context) (persist.Claim, error) {
			e, err := s.Begin(ctx, op(strconv.FormatInt(n.Add(1), 10)))
			return e.Claim, err
		}
		b.Run(d.String()+"/anonymous", func(b *testing.B) {
			crowd(b, func(ctx context.Context) error {
				c, err := begin(ctx)
				if err != nil {
					return err
				}
				return s.Settle(ctx, c, persist.Answer{State: persist.Succeeded, Status: 200, Lazy: true})
			})
		})
		b.Run(d.String()+"/named", func(b *testing.B) {
			crowd(b, func(ctx context.Context) error {
				c, err := begin(ctx)
				if err != nil {
					return err
				}
				return s.Settle(ctx, c, persist.Answer{State: persist.Succeeded, Status: 200, Lazy: true,
					KeepBody: time.Now().Add(time.Hour), KeepName: time.Now().Add(2 * time.Hour)})
			})
		})
		if d != SQLite { // whose writers would lock each other out by hand
			b.Run(d.String()+"/by hand", func(b *testing.B) { byHand(b, p) })
		}
	}
}

func crowd(b *testing.B, f func(ctx context.Context) error) {
	b.SetParallelism(callers / 2) // times GOMAXPROCS
	b.RunParallel(func(pb *testing.PB) {
		ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
		defer cancel()
		for pb.Next() {
			if err := f(ctx); err != nil {
				b.Error(err)
				return
			}
		}
	})
}

func byHand(b *testing.B, p database) {
	db := p.db(b)
	db.SetMaxOpenConns(callers)
	db.SetMaxIdleConns(callers)
	ctx := context.Background()
	blob, arg := "bytea", func(i int) string { return fmt.Sprint("$", i) }
	if p.dialect != PostgreSQL {
		blob, arg = "blob", func(int) string { return "?" }
	}
	table := p.prefix + "hand"
	_, err := db.Exec(fmt.Sprintf(`CREATE TABLE IF NOT EXISTS %s (id varchar(200) PRIMARY KEY, created bigint, op_key varchar(200), method varchar(10), target varchar(2000), header %s, body %s)`, table, blob, blob))
	require.NoError(b, err)
	insert := fmt.Sprintf(`INSERT INTO %s (id, created, op_key, method, target, header, body) VALUES (%s, %s, %s, %s, %s, %s, %s)`,
		table, arg(1), arg(2), arg(3), arg(4), arg(5), arg(6), arg(7))
	remove := fmt.Sprintf(`DELETE FROM %s WHERE id = %s`, table, arg(1))
	var n atomic.Int64
	crowd(b, func(ctx context.Context) error {
		r := op(strconv.FormatInt(n.Add(1), 10))
		_, err := db.ExecContext(ctx, insert, r.ID, r.Created.UnixNano(), r.Key, r.Method, r.Target, encodeHeader(r.Header), r.Body)
		if err == nil {
			_, err = db.ExecContext(ctx, remove, r.ID)
		}
		return err
	})
	_, err = db.ExecContext(ctx, "DROP TABLE "+table)
	require.NoError(b, err)
}
