package main

import (
	"context"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/samekey/samekey/persist"
	"github.com/samekey/samekey/persist/journal"
)

// store is a contender for the work of one operation: a begin that is durable when it returns, then a settle that may
// reach the disk later and takes the operation out.
type store interface {
	begin(id string) (token uint64, err error)
	settle(id string, token uint64) error
	has(id string) (bool, error) // after all begins have returned
	close() error                // after this settles are durable, too
}

// maker opens a contender in a directory that is there, for g goroutines.
type maker struct {
	name string
	open func(dir string, g int) (store, error)
}

// stores are the contenders; the first is the limit that the others are held against.
var stores = []maker{
	{"raw", openRaw},
	{"journal", openJournal},
	{"pebble", openPebble},
	{"sqlite grouped", openSQLiteGrouped},
	{"sqlite grouped riding", riding(openSQLiteGrouped)},
	{"bbolt Batch tuned", openBoltTuned},
	{"bbolt Batch tuned riding", riding(openBoltTuned)},
	{"bbolt Batch", openBoltBatch},
	{"bbolt Update", openBoltUpdate},
	{"sqlite", openSQLite},
	{"badger", openBadger},
	{"files", openFiles},
}

func names[T any](all []T, name func(T) string) (out []string) {
	for _, x := range all {
		out = append(out, name(x))
	}
	return out
}

// recordSize is what an operation takes on disk before anybody's own overhead.
const recordSize = 700

// record is what a store that knows nothing of operations is given.
var record = []byte(strings.Repeat(`{"method":"POST","target":"https://api.bank.test/v1/payments"},`, 20)[:recordSize])

// riding gives a store that has no other settle than a transaction of its own what the journal does: settles wait in
// memory until a begin takes them along. That is code of one's own around such a store, and the best that can be made
// of it.
func riding(open func(dir string, g int) (store, error)) func(dir string, g int) (store, error) {
	return func(dir string, g int) (store, error) {
		s, err := open(dir, g)
		if err != nil {
			return nil, err
		}
		return rider{s.(carrier)}, nil
	}
}

// carrier is a store whose begins can take settles along.
type carrier interface {
	store
	owe(id string)
}

type rider struct{ carrier }

func (r rider) settle(id string, _ uint64) error {
	r.owe(id)
	return nil
}

// owed collects settles until a begin takes them along.
type owed struct {
	mu  sync.Mutex
	ids []string
}

func (o *owed) owe(id string) {
	o.mu.Lock()
	o.ids = append(o.ids, id)
	o.mu.Unlock()
}

func (o *owed) take() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	ids := o.ids
	o.ids = nil
	return ids
}

var quiet = slog.New(slog.DiscardHandler)

type journalStore struct {
	*journal.Journal
	rec persist.Record
}

func openJournal(dir string, _ int) (store, error) {
	return newJournal(dir, journal.Options{})
}

func newJournal(dir string, o journal.Options) (*journalStore, error) {
	o.Logger = quiet
	j, err := journal.Open(context.Background(), filepath.Join(dir, "journal"), o)
	if err != nil {
		return nil, err
	}
	now, key := time.Now(), "4f3c2a8e-1d5b-4c6f-9a7e-0123456789ab"
	rec := persist.Record{
		Ref: persist.Ref{Scope: "tenant"}, Named: true, Created: now, Key: key,
		Method: http.MethodPost, Target: "https://api.bank.test/v1/payments",
		Header: http.Header{"Content-Type": {"application/json"}, "Idempotency-Key": {key}},
		Body:   record[:bodySize], KeyLife: 24 * time.Hour,
		Progress: persist.Progress{Attempts: 1, FirstSent: now, Seen: now},
	}
	return &journalStore{j, rec}, nil
}

// bodySize makes the journal's frame about recordSize; a test holds it there.
const bodySize = 400

func (s *journalStore) begin(id string) (uint64, error) {
	rec := s.rec
	rec.ID = id
	e, err := s.Begin(context.Background(), rec)
	return e.Claim.Token, err
}

func (s *journalStore) settle(id string, token uint64) error {
	c := persist.Claim{Ref: persist.Ref{Scope: s.rec.Scope, ID: id}, Token: token}
	return s.Settle(context.Background(), c, persist.Answer{State: persist.Succeeded, Status: 200, Lazy: true})
}

func (s *journalStore) has(id string) (bool, error) {
	_, err := s.Get(context.Background(), persist.Ref{Scope: s.rec.Scope, ID: id})
	return found(err, persist.ErrNotFound)
}

func (s *journalStore) close() error { return s.Close() }

// filesStore keeps one file for each operation: written beside, flushed, renamed into place, its name flushed.
type filesStore struct {
	path string
	dir  *os.File
}

func openFiles(dir string, _ int) (store, error) {
	d, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	return &filesStore{dir, d}, nil
}

func (s *filesStore) begin(id string) (uint64, error) {
	name := filepath.Join(s.path, id)
	f, err := os.OpenFile(name+".tmp", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return 0, err
	}
	if _, err = f.Write(record); err == nil {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = os.Rename(name+".tmp", name)
	}
	if err == nil {
		err = s.dir.Sync()
	}
	return 0, err
}

func (s *filesStore) settle(id string, _ uint64) error { return os.Remove(filepath.Join(s.path, id)) }

func (s *filesStore) has(id string) (bool, error) {
	_, err := os.Stat(filepath.Join(s.path, id))
	return found(err, os.ErrNotExist)
}

func (s *filesStore) close() error { return closeAll(s.dir.Sync(), s.dir) }
