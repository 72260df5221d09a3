package sqlstore

import (
	"bytes"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/samekey/samekey/persist"
)

// logged is what a logger was told.
type logged struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logged) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(b)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// TestDamaged: a record that cannot be read is told of, and holds nobody up.
func TestDamaged(t *testing.T) {
	const contents = "hunter2"
	each(t, func(t *testing.T, d Dialect) {
		for _, column := range []string{"header", "omitted", "fingerprint", "id", "answer_header"} {
			if d == MariaDB && column == "fingerprint" {
				continue // a column of 32 bytes
			}
			t.Run(column, func(t *testing.T) {
				t.Parallel()
				p := fresh(t, d).migrated(t)
				var log logged
				s := p.opened(t, func(o *Options) { o.Logger = slog.New(slog.NewTextHandler(&log, nil)); o.SweepEvery = -1 })
				other, ctx := p.opened(t, nil), t.Context()
				base, all := time.Now().Add(-time.Hour), []string{"bad", "good-1", "good-2"} // the oldest comes first
				for i, id := range all {
					rec := op(id)
					rec.Created, rec.Named = base.Add(time.Duration(i)*time.Second), true
					e, err := s.Begin(ctx, rec)
					require.NoError(t, err)
					if column == "answer_header" {
						require.NoError(t, s.Settle(ctx, e.Claim, persist.Answer{State: persist.Succeeded, Status: 200, Owed: true}))
					} else {
						require.NoError(t, s.Release(ctx, e.Claim))
					}
				}
				ref := op("bad").Ref
				_, err := s.pool.Exec(s.o.expand(`UPDATE {operations} SET `+column+` = ? WHERE ref_hash = ?`), []byte("\xff\xff"+contents), hashOf(ref))
				require.NoError(t, err)

				fails := func(err error) {
					t.Helper()
					var e *persist.Error
					require.ErrorAs(t, err, &e)
					require.ErrorIs(t, err, errEncoding)
					require.Equal(t, "sqlstore", e.Store)
					require.False(t, e.Maybe)
					if column == "id" { // where it is known by nothing else
						require.Contains(t, err.Error(), "column scope or id")
						return
					}
					require.Equal(t, ref, e.Ref)
					require.Contains(t, err.Error(), "column "+column)
					require.NotContains(t, err.Error(), contents)
				}
				direct := func(from *own) {
					t.Helper()
					rec, err := from.Get(ctx, ref)
					fails(err)
					require.Zero(t, rec)
					e, err := from.Claim(ctx, ref)
					fails(err)
					require.Zero(t, e)
					e, err = from.Begin(ctx, op("bad"))
					fails(err)
					require.Zero(t, e)
				}
				direct(s)
				direct(other) // s holds no claim
				require.Empty(t, log.String())

				for _, id := range all[1:] {
					es, err := s.ClaimDue(ctx, 1)
					require.NoError(t, err)
					require.Len(t, es, 1)
					require.Equal(t, id, es[0].ID)
					require.NotZero(t, es[0].Claim.Token)
				}
				es, err := s.ClaimDue(ctx, 10)
				require.NoError(t, err)
				require.Empty(t, es)
				require.Equal(t, 1, strings.Count(log.String(), "passed over"), log.String())
				require.Contains(t, log.String(), "scope=tenant")
				if column != "id" {
					require.Contains(t, log.String(), "id=bad")
					require.NotContains(t, log.String(), contents)
				}
				require.Zero(t, p.count(t, s.pool, strings.ReplaceAll(isDue, "\n", " ")), "it is put off")
				direct(other) // and yet nobody holds it
				es, err = s.ClaimDue(ctx, 10)
				require.NoError(t, err)
				require.Empty(t, es)
				require.Equal(t, 1, strings.Count(log.String(), "passed over"), "once")

				var listed []string
				err = nil
				for rec, e := range other.List(ctx, persist.Filter{}) {
					require.NoError(t, err, "an error ends it")
					if err = e; err == nil {
						listed = append(listed, rec.ID)
					}
				}
				fails(err)
				require.Equal(t, all[1:], listed)

				require.NoError(t, other.Forget(ctx, ref), "put off as it is")
				require.Equal(t, 2, p.count(t, s.pool, "NOT ("+isGone+")"))
			})
		}
	})
}

// TestDamagedIsMended: what was put off is looked at again after a lease.
func TestDamagedIsMended(t *testing.T) {
	each(t, func(t *testing.T, d Dialect) {
		p := fresh(t, d).migrated(t)
		s, ctx := p.opened(t, func(o *Options) { o.Lease = 2 * time.Second; o.Logger = slog.New(slog.DiscardHandler) }), t.Context()
		for _, id := range []string{"a", "b", "c"} {
			e, err := s.Begin(ctx, op(id))
			require.NoError(t, err)
			require.NoError(t, s.Release(ctx, e.Claim))
		}
		set := func(header []byte) {
			_, err := s.pool.Exec(s.o.expand(`UPDATE {operations} SET header = ?`), header)
			require.NoError(t, err)
		}
		set([]byte{0xff})
		es, err := s.ClaimDue(ctx, 1) // all of them, though one at a time
		require.NoError(t, err)
		require.Empty(t, es)
		set(nil)
		var got []persist.Entry
		require.Eventually(t, func() bool {
			es, err := s.ClaimDue(ctx, 10)
			require.NoError(t, err)
			got = append(got, es...)
			return len(got) == 3
		}, 20*time.Second, 100*time.Millisecond)
		require.NoError(t, s.Mark(ctx, got[0].Claim, persist.Progress{Attempts: 2}), "a claim like any other")
	})
}
