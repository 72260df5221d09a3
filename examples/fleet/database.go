package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/samekey/samekey/persist/persisttest/servertest"
	"github.com/samekey/samekey/persist/sqlstore"
)

// dialect is a database that a fleet can share.
type dialect struct {
	store        sqlstore.Dialect
	driver       string
	server       *servertest.Kind
	create, drop string // a place of one's own
	dsn          string // what one looks like
	parse        func(dsn string) error
}

var dialects = map[string]*dialect{
	"postgresql": {
		store: sqlstore.PostgreSQL, driver: "pgx", server: servertest.PostgreSQL,
		create: "CREATE SCHEMA %s", drop: "DROP SCHEMA %s CASCADE",
		dsn: "postgres://user:password@host/database", parse: func(dsn string) error { _, err := pgx.ParseConfig(dsn); return err },
	},
	"mariadb": {
		store: sqlstore.MariaDB, driver: "mysql", server: servertest.MariaDB,
		create: "CREATE DATABASE %s", drop: "DROP DATABASE %s",
		dsn: "user:password@tcp(host:3306)/", parse: func(dsn string) error { _, err := mysql.ParseDSN(dsn); return err },
	},
}

// database is where the fleet's table is.
type database struct {
	Dialect, DSN string
	Schema       string // in MariaDB a database
}

func (d database) open() (*sql.DB, sqlstore.Options, error) {
	k := dialects[d.Dialect]
	db, err := sql.Open(k.driver, d.DSN)
	return db, sqlstore.Options{Dialect: k.store, Schema: d.Schema}, err
}

// newDatabase makes a schema, on the server that o names or on one of its own, and the table in it.
func newDatabase(ctx context.Context, o options) (d database, remove func() error, err error) {
	d = database{Dialect: o.dialect, DSN: o.dsn, Schema: fmt.Sprintf("fleet_%d", time.Now().UnixNano()%1e15)}
	end := func() {}
	if d.DSN == "" {
		srv, err := servertest.Start(ctx, dialects[o.dialect].server)
		if err != nil {
			return d, nil, err
		}
		d.DSN, end = srv.URL(""), srv.End
	}
	if err := d.prepare(ctx); err != nil {
		end()
		return d, nil, err
	}
	return d, func() error {
		defer end()
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		return d.admin(ctx, dialects[d.Dialect].drop)
	}, nil
}

func (d database) prepare(ctx context.Context) error {
	if err := d.admin(ctx, dialects[d.Dialect].create); err != nil {
		return err
	}
	db, o, err := d.open()
	if err != nil {
		return err
	}
	return errors.Join(sqlstore.Migrate(ctx, db, o), db.Close())
}

// admin runs one statement about the schema.
func (d database) admin(ctx context.Context, statement string) error {
	db, _, err := d.open()
	if err != nil {
		return err
	}
	statement = fmt.Sprintf(statement, d.Schema)
	if _, err = db.ExecContext(ctx, statement); err != nil {
		err = fmt.Errorf("%s: %w", statement, err)
	}
	return errors.Join(err, db.Close())
}
