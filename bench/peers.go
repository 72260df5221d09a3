package main

import (
	"errors"
	"io"
	"path/filepath"

	"github.com/cockroachdb/pebble/v2"
	"github.com/dgraph-io/badger/v4"
	"go.etcd.io/bbolt"
)

// found tells a missing entry from one that could not be read.
func found(err, missing error) (bool, error) {
	if errors.Is(err, missing) {
		return false, nil
	}
	return err == nil, err
}

// closeAll closes what it is given, whatever failed before.
func closeAll(err error, cs ...io.Closer) error {
	for _, c := range cs {
		err = errors.Join(err, c.Close())
	}
	return err
}

// boltStore settles in a transaction like any other: bbolt has no commit that may be flushed later.
type boltStore struct {
	owed
	db *bbolt.DB
	do func(func(*bbolt.Tx) error) error // Update or Batch
}

var bucket = []byte("operations")

func newBolt(dir string) (*boltStore, error) {
	db, err := bbolt.Open(filepath.Join(dir, "bolt"), 0o600, &bbolt.Options{FreelistType: bbolt.FreelistMapType, NoFreelistSync: true})
	if err != nil {
		return nil, err
	}
	err = db.Update(func(tx *bbolt.Tx) error {
		_, err := tx.CreateBucketIfNotExists(bucket)
		return err
	})
	if err != nil {
		return nil, closeAll(err, db)
	}
	return &boltStore{db: db, do: db.Update}, nil
}

func openBoltUpdate(dir string, _ int) (store, error) { return newBolt(dir) }

func openBoltBatch(dir string, _ int) (store, error) {
	s, err := newBolt(dir)
	if err != nil {
		return nil, err
	}
	s.do = s.db.Batch
	return s, nil
}

// openBoltTuned closes a batch once all goroutines are in it, instead of waiting for more.
func openBoltTuned(dir string, g int) (store, error) {
	s, err := newBolt(dir)
	if err != nil {
		return nil, err
	}
	s.do, s.db.MaxBatchSize = s.db.Batch, g
	return s, nil
}

func (s *boltStore) begin(id string) (uint64, error) {
	return 0, s.do(func(tx *bbolt.Tx) error {
		b := tx.Bucket(bucket)
		if err := s.remove(b); err != nil {
			return err
		}
		return b.Put([]byte(id), record)
	})
}

func (s *boltStore) remove(b *bbolt.Bucket) error {
	for _, id := range s.take() {
		if err := b.Delete([]byte(id)); err != nil {
			return err
		}
	}
	return nil
}

func (s *boltStore) settle(id string, _ uint64) error {
	return s.do(func(tx *bbolt.Tx) error { return tx.Bucket(bucket).Delete([]byte(id)) })
}

func (s *boltStore) has(id string) (has bool, err error) {
	err = s.db.View(func(tx *bbolt.Tx) error {
		has = tx.Bucket(bucket).Get([]byte(id)) != nil
		return nil
	})
	return has, err
}

func (s *boltStore) close() error {
	return closeAll(s.db.Update(func(tx *bbolt.Tx) error { return s.remove(tx.Bucket(bucket)) }), s.db)
}

// pebbleStore commits in groups by itself.
type pebbleStore struct{ db *pebble.DB }

func openPebble(dir string, _ int) (store, error) {
	db, err := pebble.Open(dir, &pebble.Options{
		FormatMajorVersion: pebble.FormatNewest, MemTableSize: 64 << 20, Logger: pebbleLogger{},
	})
	if err != nil {
		return nil, err
	}
	return &pebbleStore{db}, nil
}

func (s *pebbleStore) begin(id string) (uint64, error) {
	return 0, s.db.Set([]byte(id), record, pebble.Sync)
}

func (s *pebbleStore) settle(id string, _ uint64) error {
	return s.db.Delete([]byte(id), pebble.NoSync)
}

func (s *pebbleStore) has(id string) (bool, error) {
	_, c, err := s.db.Get([]byte(id))
	if err == nil {
		err = c.Close()
	}
	return found(err, pebble.ErrNotFound)
}

func (s *pebbleStore) close() error { return closeAll(s.db.LogData(nil, pebble.Sync), s.db) }

type pebbleLogger struct{}

func (pebbleLogger) Infof(string, ...any)  {}
func (pebbleLogger) Errorf(string, ...any) {}
func (pebbleLogger) Fatalf(f string, a ...any) {
	pebble.DefaultLogger.Fatalf(f, a...)
}

// badgerStore flushes whatever it commits.
type badgerStore struct{ db *badger.DB }

func openBadger(dir string, _ int) (store, error) {
	db, err := badger.Open(badger.DefaultOptions(dir).WithSyncWrites(true).WithDetectConflicts(false).WithLogger(nil).
		WithMemTableSize(16 << 20).WithValueLogFileSize(64 << 20))
	if err != nil {
		return nil, err
	}
	return &badgerStore{db}, nil
}

func (s *badgerStore) begin(id string) (uint64, error) {
	return 0, s.db.Update(func(tx *badger.Txn) error { return tx.Set([]byte(id), record) })
}

func (s *badgerStore) settle(id string, _ uint64) error {
	return s.db.Update(func(tx *badger.Txn) error { return tx.Delete([]byte(id)) })
}

func (s *badgerStore) has(id string) (bool, error) {
	err := s.db.View(func(tx *badger.Txn) error {
		_, err := tx.Get([]byte(id))
		return err
	})
	return found(err, badger.ErrKeyNotFound)
}

func (s *badgerStore) close() error { return s.db.Close() }
