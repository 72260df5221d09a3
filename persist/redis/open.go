package redis

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/samekey/samekey/persist"
)

// Store is a persist.Store and a persist.Leaser on the keys of one prefix. It is safe for concurrent use, and any number
// of stores, in any number of processes, may share a prefix.
type Store struct {
	client goredis.UniversalClient
	o      Options
	fixed  []string // keys that every script is given

	me    string // this store among all
	turns atomic.Uint64

	mu      sync.Mutex
	closed  bool
	calls   sync.WaitGroup
	held    map[holding]time.Time
	pruneAt int

	background context.Context // ends with the store
	stop       context.CancelFunc
	tending    sync.WaitGroup
}

var (
	_ persist.Store  = (*Store)(nil)
	_ persist.Leaser = (*Store)(nil)
)

// Open checks that the server is a primary, durable, and that the keys of o.Prefix are of this version or none, and
// returns a store on it. The store does not close client, nor must client be closed before it. A *redis.Client (one of
// NewFailoverClient too) and a *redis.ClusterClient serve; a *redis.Ring is refused, since it goes on with another,
// empty server when one is down.
//
// Each call needs one connection of the pool at a time. Contexts are honoured whatever ContextTimeoutEnabled says; what
// is under way when one ends goes on in the background until the client's ReadTimeout, which should not be turned off.
//
// Errors: *ConnectError, *ClientError, *ReadOnlyError, *VolatileError, *FormatError, or that of an invalid option.
func Open(ctx context.Context, client goredis.UniversalClient, o Options) (*Store, error) {
	o, err := o.filled()
	if err != nil {
		return nil, err
	}
	var me [8]byte
	_, _ = rand.Read(me[:]) // never fails
	s := &Store{client: client, o: o, me: hex.EncodeToString(me[:]), held: map[holding]time.Time{}, pruneAt: 1024}
	for _, name := range []string{"token", "open", "over", "wait", "ready", "keep"} {
		s.fixed = append(s.fixed, o.key(name))
	}
	if err := s.check(ctx); err != nil {
		return nil, err
	}
	s.background, s.stop = context.WithCancel(context.WithoutCancel(ctx))
	if o.SweepEvery > 0 {
		s.tending.Go(func() { s.tend(s.background) })
	}
	return s, nil
}

// Lease is how long a claim lasts without a Mark.
func (s *Store) Lease() time.Duration { return s.o.Lease }

// turn is a name for one call, unique among all stores.
func (s *Store) turn() string { return fmt.Sprintf("%s%016x", s.me, s.turns.Add(1)) }

// Flush has nothing to write: every change is durable when its method returns.
func (s *Store) Flush(ctx context.Context) error {
	if err := s.enter(ctx, "Flush", persist.Ref{}); err != nil {
		return err
	}
	s.leave()
	return nil
}

// Close waits for calls under way, 10 seconds at most, and gives the claims back that are still held. It does not
// close the client. If the server cannot be reached, the claims lapse by themselves, and the first Close says so.
func (s *Store) Close() error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil
	}
	s.closed = true
	s.mu.Unlock()
	s.stop()
	ctx, cancel := context.WithTimeout(context.Background(), closeFor)
	defer cancel()
	idle := make(chan struct{})
	go func() {
		s.calls.Wait()
		s.tending.Wait()
		close(idle)
	}()
	select {
	case <-idle:
	case <-ctx.Done():
	}
	s.mu.Lock()
	held := s.held
	s.held = map[holding]time.Time{}
	s.mu.Unlock()
	for h, until := range held {
		if time.Since(until) > s.o.Lease { // long lapsed
			continue
		}
		if _, err := s.do(ctx, s.ask(releaseScript, s.turn(), h.hash, h.token)); err != nil {
			return s.fail("Close", persist.Ref{}, false, fmt.Errorf("claims lapse in at most %v: %w", s.o.Lease, err))
		}
	}
	return nil
}
