package redis

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/samekey/samekey/persist"
)

var (
	errVoid  = errors.New("this try came too late: a later one, or a later change under its claim, has come before it")
	errTaken = errors.New("the lease has lapsed since a try whose answer was lost: another may have sent it meanwhile")
	errReply = errors.New("the server's reply is not that of the script")
)

// query is one call: its tries are one turn, so that a script finds out what an earlier one has done.
type query struct {
	script *script
	keys   []string
	turn   string // empty: it reads
	args   []any
}

// done is what became of a query.
type done struct {
	reply  []any
	status string
	lost   int       // tries whose fate is unknown
	first  time.Time // when the first of them began
	start  time.Time // of the try that was answered
}

// index are the keys that every script is given, in its order.
func (s *Store) index() []string { return s.fixed[:len(s.fixed):len(s.fixed)] }

// ask is a query about one operation, whose last key is its record.
func (s *Store) ask(sc *script, turn, hash string, args ...any) query {
	return query{
		script: sc, keys: append(s.index(), s.o.key("turn:"+turn), s.record(hash)), turn: turn,
		args: append([]any{turn, 0, s.o.Lease.Microseconds(), hash}, args...),
	}
}

func (s *Store) record(hash string) string { return s.o.key("op:" + hash) }

// do runs q until it is answered, or fails for good, or the time for retries is over.
func (s *Store) do(ctx context.Context, q query) (done, error) {
	patience := time.Now().Add(s.o.RetryFor)
	var d done
	for try := 0; ; try++ {
		if q.turn != "" {
			q.args[1] = d.lost
		}
		d.start = time.Now()
		reply, err := q.script.run(ctx, s.client, q.keys, q.args)
		if err == nil {
			d.reply = reply
			if len(reply) > 0 {
				d.status, _ = reply[0].(string)
			}
			if d.status == "void" {
				err = errVoid
			}
			return d, err
		}
		fate := fateOf(err)
		if fate == unknown && q.turn != "" {
			if d.lost == 0 {
				d.first = d.start
			}
			d.lost++
		}
		switch {
		case ctx.Err() != nil:
			return d, ended(ctx, err)
		case fate == failed:
			if full(err) {
				err = fmt.Errorf("%w: %w", persist.ErrFull, err)
			}
			return d, named(err)
		case time.Now().After(patience):
			return d, fmt.Errorf("gave up after %d tries: %w", try+1, err)
		}
		wait := time.Duration(1<<min(try, 7)) * time.Millisecond
		select {
		case <-time.After(wait/2 + rand.N(wait)):
		case <-ctx.Done():
			return d, ended(ctx, err)
		}
	}
}

// ended is err behind what ended ctx, unless err says that itself: behind its cause too, which may be a deadline where the
// context was cancelled.
func ended(ctx context.Context, err error) error {
	for _, why := range []error{context.Cause(ctx), ctx.Err()} {
		if !errors.Is(err, why) {
			err = fmt.Errorf("%w: %w", why, err)
		}
	}
	return err
}

// enter lets a call begin unless the store is closed or the context has ended; every call that has entered leaves.
func (s *Store) enter(ctx context.Context, method string, ref persist.Ref) error {
	if err := ctx.Err(); err != nil {
		return s.fail(method, ref, false, ended(ctx, err))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return s.fail(method, ref, false, persist.ErrClosed)
	}
	s.calls.Add(1)
	return nil
}

func (s *Store) leave() { s.calls.Done() }

func (s *Store) fail(method string, ref persist.Ref, maybe bool, err error) error {
	return &persist.Error{Store: "redis", Method: method, Ref: ref, Maybe: maybe, Err: err}
}

// holding is a claim that this store gave out. Store.held says until when it lasts, by the own clock, from before the
// server set the lease: within that time nobody else can have had the operation.
type holding struct{ hash, token string }

func (s *Store) note(h holding, start time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.held) >= s.pruneAt { // claims that nobody ended
		for h, until := range s.held {
			if time.Since(until) > s.o.Lease {
				delete(s.held, h)
			}
		}
		s.pruneAt = 2*len(s.held) + 1024
	}
	s.held[h] = start.Add(s.o.Lease)
}

func (s *Store) drop(h holding) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.held, h)
}

// doubt says that an end of this claim may be under way still: what is found ended need not be what a later call has done.
// Close gives it back all the same.
func (s *Store) doubt(h holding) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now := time.Now(); s.held[h].After(now) {
		s.held[h] = now
	}
}

// sure reports whether nobody else can have claimed what this store holds.
func (s *Store) sure(h holding) bool {
	s.mu.Lock()
	until := s.held[h]
	s.mu.Unlock()
	return before(until)
}

// before reports whether it is not yet t, by monotonic and by wall time, as the former may stand still while a machine
// sleeps.
func before(t time.Time) bool {
	now := time.Now()
	return now.Before(t) && now.Round(0).Before(t.Round(0))
}
