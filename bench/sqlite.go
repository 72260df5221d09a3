package main

import (
	"context"
	"database/sql"
	"path/filepath"
	"runtime"
	"sync"

	_ "modernc.org/sqlite" // the driver
)

// sqliteStore writes through one connection: SQLite has one writer at a time anyway.
type sqliteStore struct {
	owed
	db *sql.DB

	mu                       sync.Mutex // of the statements
	start, put, remove, done *sql.Stmt
}

func openSQLite(dir string, _ int) (store, error) { return newSQLite(dir) }

func newSQLite(dir string) (*sqliteStore, error) {
	dsn := "file:" + filepath.Join(dir, "db") + "?_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)"
	db, err := sql.Open("sqlite", dsn)
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(1)
	s := &sqliteStore{db: db}
	_, err = db.Exec(`CREATE TABLE IF NOT EXISTS operation (id TEXT PRIMARY KEY, record BLOB NOT NULL) WITHOUT ROWID`)
	for _, p := range []struct {
		to    **sql.Stmt
		query string
	}{
		{&s.start, `BEGIN IMMEDIATE`}, {&s.done, `COMMIT`},
		{&s.put, `INSERT INTO operation VALUES (?, ?)`}, {&s.remove, `DELETE FROM operation WHERE id = ?`},
	} {
		if err == nil {
			*p.to, err = db.PrepareContext(context.Background(), p.query)
		}
	}
	if err != nil {
		return nil, closeAll(err, db)
	}
	return s, nil
}

// commit writes begins, ends, and what ends are owed, in one transaction.
func (s *sqliteStore) commit(begins, ends []string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, err := s.start.Exec(); err != nil {
		return err
	}
	for _, id := range append(ends, s.take()...) {
		if _, err := s.remove.Exec(id); err != nil {
			return err
		}
	}
	for _, id := range begins {
		if _, err := s.put.Exec(id, record); err != nil {
			return err
		}
	}
	_, err := s.done.Exec()
	return err
}

func (s *sqliteStore) begin(id string) (uint64, error) { return 0, s.commit([]string{id}, nil) }

// settle has a transaction of its own: a connection that flushes flushes every commit.
func (s *sqliteStore) settle(id string, _ uint64) error {
	return s.commit(nil, []string{id})
}

func (s *sqliteStore) has(id string) (bool, error) {
	var one int
	return found(s.db.QueryRow(`SELECT 1 FROM operation WHERE id = ?`, id).Scan(&one), sql.ErrNoRows)
}

func (s *sqliteStore) close() error {
	return closeAll(s.commit(nil, nil), s.start, s.put, s.remove, s.done, s.db)
}

// groupedStore has all that wait share a transaction.
type groupedStore struct {
	*sqliteStore
	mu      sync.Mutex
	next    *group
	kick    chan struct{}
	stopped chan struct{}
}

// group is what waits for one flush.
type group struct {
	begins, ends []string
	done         chan struct{} // closed when it is durable
	err          error         // set before
}

func openSQLiteGrouped(dir string, _ int) (store, error) {
	db, err := newSQLite(dir)
	if err != nil {
		return nil, err
	}
	s := &groupedStore{sqliteStore: db, next: newGroup(), kick: make(chan struct{}, 1), stopped: make(chan struct{})}
	go s.run()
	return s, nil
}

func newGroup() *group { return &group{done: make(chan struct{})} }

func (s *groupedStore) run() {
	defer close(s.stopped)
	for range s.kick {
		runtime.Gosched()
		s.mu.Lock()
		g := s.next
		s.next = newGroup()
		s.mu.Unlock()
		if len(g.begins)+len(g.ends) > 0 {
			g.err = s.commit(g.begins, g.ends)
		}
		close(g.done)
	}
}

func (s *groupedStore) begin(id string) (uint64, error) {
	return 0, s.wait(func(g *group) { g.begins = append(g.begins, id) })
}

func (s *groupedStore) settle(id string, _ uint64) error {
	return s.wait(func(g *group) { g.ends = append(g.ends, id) })
}

// wait adds to the next group, and returns once that is durable.
func (s *groupedStore) wait(add func(*group)) error {
	s.mu.Lock()
	g := s.next
	add(g)
	s.mu.Unlock()
	select {
	case s.kick <- struct{}{}:
	default:
	}
	<-g.done
	return g.err
}

func (s *groupedStore) close() error {
	close(s.kick)
	<-s.stopped
	return s.sqliteStore.close()
}
