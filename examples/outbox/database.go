package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	_ "github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	_ "github.com/jackc/pgx/v5/stdlib"
	_ "modernc.org/sqlite"

	"github.com/samekey/samekey/persist/persisttest/servertest"
	"github.com/samekey/samekey/persist/sqlstore"
)

// dialect is a database that the shop can have.
type dialect struct {
	store  sqlstore.Dialect
	driver string
	server *servertest.Kind // nil: none is needed
	drop   []string
}

var dialects = map[string]*dialect{
	"postgresql": {sqlstore.PostgreSQL, "pgx", servertest.PostgreSQL, []string{"TABLE {orders}", "TABLE {operations}", "TABLE {schema}", "SEQUENCE {token}"}},
	"mariadb":    {sqlstore.MariaDB, "mysql", servertest.MariaDB, []string{"TABLE {orders}", "TABLE {operations}", "TABLE {schema}", "SEQUENCE {token}"}},
	"sqlite":     {sqlstore.SQLite, "sqlite", nil, []string{"TABLE {orders}", "TABLE {operations}", "TABLE {schema}", "TABLE {token}"}},
}

// database is where the shop keeps its orders, and beside them what it has to ask of the bank.
type database struct {
	Dialect, DSN string
	Prefix       string // of the names of all tables: each run has its own
}

func (d database) open() (*sql.DB, sqlstore.Options, error) {
	k := dialects[d.Dialect]
	o := sqlstore.Options{Dialect: k.store, Prefix: d.Prefix}
	db, err := sql.Open(k.driver, d.DSN)
	if err != nil {
		return nil, o, err
	}
	if k.store == sqlstore.SQLite {
		db.SetMaxOpenConns(1) // it takes one writer at a time: whoever else writes waits here, and is not told "busy"
	} else {
		db.SetMaxIdleConns(16) // what is used at once
	}
	return db, o, nil
}

// sql is a statement in the database's own words.
func (d database) sql(text string) string {
	for _, table := range []string{"orders", "operations", "schema", "token"} {
		text = strings.ReplaceAll(text, "{"+table+"}", d.Prefix+table)
	}
	if d.Dialect != "postgresql" {
		return text
	}
	for n := 1; strings.Contains(text, "?"); n++ {
		text = strings.Replace(text, "?", "$"+strconv.Itoa(n), 1)
	}
	return text
}

// listen is PostgreSQL's LISTEN by pgx, for sqlstore.Options.Listen.
func (d database) listen(ctx context.Context, channel string, wake func()) error {
	conn, err := pgx.Connect(ctx, d.DSN)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	if _, err = conn.Exec(ctx, "LISTEN "+pgx.Identifier{channel}.Sanitize()); err != nil {
		return err
	}
	for {
		wake()
		if _, err = conn.WaitForNotification(ctx); err != nil {
			return err
		}
	}
}

// newDatabase makes the tables: in a database that o names, or on a private server, or in a file.
func newDatabase(ctx context.Context, o options, s *screen) (d database, remove func() error, err error) {
	d = database{Dialect: o.dialect, DSN: o.dsn, Prefix: fmt.Sprintf("outbox_%09d_", rand.IntN(1_000_000_000))}
	end := func() error { return nil }
	if o.dsn == "" {
		if d, end, err = d.serve(ctx, o, s); err != nil {
			return d, nil, err
		}
	}
	if err := d.create(ctx); err != nil {
		_ = d.drop(ctx) // what there is of it
		return d, nil, errors.Join(err, end())
	}
	return d, func() error {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		return errors.Join(d.drop(ctx), end())
	}, nil
}

// serve starts a private server. Where PostgreSQL is not installed, and nobody has asked for it, a file will do.
func (d database) serve(ctx context.Context, o options, s *screen) (_ database, end func() error, err error) {
	if d.Dialect == "" {
		d.Dialect = "postgresql"
	}
	if kind := dialects[d.Dialect].server; kind != nil {
		srv, err := o.start(ctx, kind)
		var missing *servertest.NotInstalledError
		switch {
		case err == nil:
			d.DSN = srv.URL("")
			if d.Dialect == "mariadb" {
				d.DSN = srv.URL("test")
				err = createDatabase(ctx, srv.URL(""), "test")
			}
			return d, func() error { srv.End(); return nil }, err
		case o.dialect != "" || !errors.As(err, &missing):
			return d, nil, err
		}
		s.say("%v. Without it the story is told in SQLite.", err)
		d.Dialect = "sqlite"
	}
	dir, err := os.MkdirTemp("", "outbox-")
	d.DSN = "file:" + filepath.Join(dir, "shop.db")
	return d, func() error { return os.RemoveAll(dir) }, err
}

func createDatabase(ctx context.Context, dsn, name string) error {
	db, err := sql.Open("mysql", dsn)
	if err != nil {
		return err
	}
	_, err = db.ExecContext(ctx, "CREATE DATABASE IF NOT EXISTS "+name)
	return errors.Join(err, db.Close())
}

// create makes the shop's table, and sqlstore's. In production both are migrations.
func (d database) create(ctx context.Context) error {
	return d.with(func(db *sql.DB, o sqlstore.Options) error {
		if err := sqlstore.Migrate(ctx, db, o); err != nil {
			return err
		}
		_, err := db.ExecContext(ctx, d.sql(`CREATE TABLE {orders} (id varchar(64) NOT NULL PRIMARY KEY, amount integer NOT NULL, `+
			`state varchar(16) NOT NULL, payment varchar(64))`))
		return err
	})
}

func (d database) drop(ctx context.Context) error {
	return d.with(func(db *sql.DB, _ sqlstore.Options) (err error) {
		for _, what := range dialects[d.Dialect].drop {
			_, e := db.ExecContext(ctx, "DROP "+d.sql(what))
			err = errors.Join(err, e)
		}
		return err
	})
}

func (d database) with(f func(db *sql.DB, o sqlstore.Options) error) error {
	db, o, err := d.open()
	if err != nil {
		return err
	}
	return errors.Join(f(db, o), db.Close())
}
