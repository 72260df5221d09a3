package sqlstore

import (
	"context"
	"database/sql"
	"encoding/hex"
	"strconv"
	"strings"
	"sync"

	"github.com/samekey/samekey/persist"
)

const (
	removeMost    = 64 // in one statement
	removeWorkers = 2  // statements under way
)

// removals are settles that take their operation out of the store. Those that arrive while statements are under way
// share the next one, which makes one commit of many.
type removals struct {
	mu      sync.Mutex
	queue   []*removal
	workers int
}

type removal struct {
	hash  []byte
	token int64
	done  chan struct{}
	held  bool // the claim held, and the operation is gone
	maybe bool
	err   error
}

func (s *Store) remove(ctx context.Context, c persist.Claim) error {
	if err := s.enter(ctx, "Settle", c.Ref); err != nil {
		return err
	}
	r := &removal{hash: hashOf(c.Ref), token: int64(c.Token), done: make(chan struct{})}
	q := &s.removals
	q.mu.Lock()
	q.queue = append(q.queue, r)
	if q.workers < removeWorkers {
		q.workers++
		go s.removeQueued(context.Background())
	}
	q.mu.Unlock()
	select {
	case <-r.done:
	case <-ctx.Done():
		if q.cancel(r) {
			s.leave()
			return s.fail("Settle", c.Ref, false, ended(ctx, ctx.Err()))
		}
		s.doubt(r.hash, r.token)
		return s.fail("Settle", c.Ref, true, ended(ctx, ctx.Err())) // it leaves when it is done
	}
	switch {
	case r.err != nil:
		if r.maybe {
			s.doubt(r.hash, r.token)
		}
		return s.fail("Settle", c.Ref, r.maybe, r.err)
	case !r.held:
		return s.fail("Settle", c.Ref, r.maybe, persist.ErrClaimLost)
	}
	return nil
}

// cancel takes r out of the queue if it waits there still.
func (q *removals) cancel(r *removal) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	for i := range q.queue {
		if q.queue[i] == r {
			q.queue = append(q.queue[:i], q.queue[i+1:]...)
			return true
		}
	}
	return false
}

func (s *Store) removeQueued(ctx context.Context) {
	q := &s.removals
	for {
		q.mu.Lock()
		n := min(len(q.queue), removeMost)
		if n == 0 {
			q.workers--
			q.mu.Unlock()
			return
		}
		batch := q.queue[:n:n]
		q.queue = q.queue[n:]
		by := s.turn() // before any of them can be given up, and another call made under its claim
		q.mu.Unlock()
		s.removeBatch(ctx, by, batch)
		for _, r := range batch {
			if r.held {
				s.drop(r.hash, r.token)
			}
			close(r.done)
			s.leave()
		}
	}
}

func (s *Store) removeBatch(ctx context.Context, by []byte, batch []*removal) {
	ctx, cancel := context.WithTimeout(ctx, batchTimeout)
	defer cancel()
	byHash := make(map[string]*removal, len(batch))
	var twice []*removal // of one operation; only one of them can hold
	for _, r := range batch {
		if byHash[string(r.hash)] != nil {
			twice = append(twice, r)
			continue
		}
		byHash[string(r.hash)] = r
	}
	query, args := s.removeQuery(by, byHash)
	lost, err := s.do(ctx, true, func(ctx context.Context, c *sql.Conn, lost bool) error {
		err := s.rows(ctx, c, query, args, func(rows *sql.Rows) error {
			var hash []byte
			err := rows.Scan(&hash)
			if r := byHash[string(hash)]; r != nil {
				r.held = true
			}
			return err
		})
		if err != nil {
			for _, r := range byHash { // nothing that was returned is known to be committed
				r.held = false
			}
			return err
		}
		if lost {
			return s.removedBefore(ctx, c, byHash)
		}
		return nil
	})
	for _, r := range byHash {
		r.err, r.maybe = err, r.maybe || lost && err != nil
	}
	for _, r := range twice {
		s.removeBatch(ctx, by, []*removal{r})
	}
}

// removedBefore tells, of what a repeated statement did not find, whether the try whose answer was lost has removed it.
func (s *Store) removedBefore(ctx context.Context, c querier, byHash map[string]*removal) error {
	for _, r := range byHash {
		if r.held {
			continue
		}
		is, err := s.standing(ctx, c, r.hash)
		if err != nil {
			return err
		}
		if is.owner == nil || is.token != r.token { // it is gone, or was and has begun anew
			r.held = s.sure(r.hash, r.token) // nobody else can have let others have it
			r.maybe = !r.held
		}
	}
	return nil
}

func (s *Store) removeQuery(by []byte, byHash map[string]*removal) (string, []any) {
	first, last := s.after(by)
	if s.d.unnest {
		var hashes, tokens strings.Builder
		sep := "{"
		for _, r := range byHash {
			hashes.WriteString(sep + `"\\x` + hex.EncodeToString(r.hash) + `"`)
			tokens.WriteString(sep + strconv.FormatInt(r.token, 10))
			sep = ","
		}
		return s.q.remove, []any{hashes.String() + "}", tokens.String() + "}", first, last}
	}
	args := append(make([]any, 0, 2+2*len(byHash)), first, last)
	for _, r := range byHash {
		args = append(args, r.hash, r.token)
	}
	ones := strings.Repeat(" OR "+s.q.removeOne, len(byHash))
	return s.q.removeHead + strings.TrimPrefix(ones, " OR ") + ") RETURNING ref_hash", args
}
