package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	_ "modernc.org/sqlite" // the driver

	"github.com/samekey/samekey/cmd/samekey/tool"
	"github.com/samekey/samekey/persist/sqlstore"
)

const (
	connectTimeout = 10 * time.Second // unless the URL says otherwise
	openTimeout    = 15 * time.Second // with all that is looked at
	idleConns      = 8                // as many as the tool uses at once
)

// database is one kind of SQL database.
type database struct {
	schemes []string
	usage   string
	dialect sqlstore.Dialect
	open    func(l *location, make bool) (*sql.DB, error)
}

var postgreSQL = database{
	schemes: []string{"postgres", "postgresql"}, dialect: sqlstore.PostgreSQL, open: openPostgreSQL,
	usage: "postgres://USER@HOST/DATABASE?schema=S&prefix=P\tPostgreSQL; PGPASSWORD and ~/.pgpass count\n" +
		"  schema, prefix\twhere the tables are, as in the program",
}

func openPostgreSQL(l *location, _ bool) (*sql.DB, error) {
	c, err := pgx.ParseConfig(l.driverURL())
	if err != nil {
		return nil, fmt.Errorf("the URL cannot be read: %w", err)
	}
	if c.ConnectTimeout == 0 {
		c.ConnectTimeout = connectTimeout
	}
	if c.RuntimeParams["application_name"] == "" {
		c.RuntimeParams["application_name"] = "samekey-shared"
	}
	return stdlib.OpenDB(*c), nil
}

var mariaDB = database{
	schemes: []string{"mysql", "mariadb"}, dialect: sqlstore.MariaDB, open: openMariaDB,
	usage: "mysql://USER@HOST/DATABASE?schema=S&prefix=P\tMariaDB; with socket=PATH instead of HOST too",
}

// openMariaDB translates the URL for the driver, which has a form of its own.
func openMariaDB(l *location, _ bool) (*sql.DB, error) {
	u, err := url.Parse("mysql://" + l.authority)
	if err != nil {
		return nil, errURL
	}
	params, err := l.parameters()
	if err != nil {
		return nil, err
	}
	socket := params.Get("socket")
	params.Del("socket")
	c, err := mysql.ParseDSN("/?" + params.Encode())
	if err != nil {
		return nil, fmt.Errorf("the parameters of the URL cannot be read: %w", err)
	}
	c.User, c.DBName, c.Logger = u.User.Username(), strings.TrimPrefix(l.path, "/"), &mysql.NopLogger{}
	c.Passwd, _ = u.User.Password()
	c.InterpolateParams = true // saves a round trip of each statement
	if c.Timeout == 0 {
		c.Timeout = connectTimeout
	}
	if c.Net, c.Addr = "tcp", u.Host; socket != "" {
		c.Net, c.Addr = "unix", socket
	} else if u.Port() == "" {
		c.Addr = net.JoinHostPort(u.Hostname(), "3306")
	}
	connector, err := mysql.NewConnector(c)
	if err != nil {
		return nil, fmt.Errorf("the parameters of the URL cannot be read: %w", err)
	}
	return sql.OpenDB(connector), nil
}

var sqLite = database{
	schemes: []string{"sqlite"}, dialect: sqlstore.SQLite, open: openSQLite,
	usage: "sqlite:PATH?prefix=P\tSQLite, a file of this host",
}

// openSQLite makes a file only where it is to.
func openSQLite(l *location, make bool) (*sql.DB, error) {
	params, err := l.parameters()
	if err != nil {
		return nil, err
	}
	path := l.path
	switch {
	case l.authority != "":
		return nil, errors.New("a file has no host: write sqlite:PATH, or sqlite:///PATH")
	case path == "":
		return nil, errors.New("the path of the file is missing: write sqlite:PATH")
	case path == ":memory:" || params.Get("mode") == "memory":
		return nil, errors.New("a database in memory belongs to one process")
	}
	if st, err := os.Stat(path); err == nil && st.IsDir() {
		return nil, fmt.Errorf("%s is a directory, not a file of SQLite", path)
	} else if err != nil && (!make || !errors.Is(err, os.ErrNotExist)) {
		return nil, err
	}
	if make { // for nobody else to read, as a journal; what SQLite puts beside it is like it
		f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
		switch {
		case errors.Is(err, os.ErrNotExist):
			return nil, fmt.Errorf("there is no directory %s", filepath.Dir(path))
		case err != nil:
			return nil, err
		}
		if err := f.Close(); err != nil {
			return nil, err
		}
	}
	params.Set("mode", "rw")
	return sql.Open("sqlite", "file:"+(&url.URL{Path: path}).EscapedPath()+"?"+params.Encode())
}

var plain = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,23}$`)

func (d *database) locate(raw string) (location, error) {
	l, err := locate(raw)
	for _, own := range []string{l.schema, l.prefix} {
		if err == nil && own != "" && !plain.MatchString(own) {
			err = fmt.Errorf("schema and prefix of a URL are plain names of at most 24 letters, digits and underscores, not %q", own)
		}
	}
	if err == nil && d.dialect == sqlstore.SQLite {
		err = fileOnly(&l)
	}
	return l, err
}

// fileOnly refuses what SQLite and its driver would pass over in silence.
func fileOnly(l *location) error {
	if l.schema != "" {
		return errors.New("SQLite has no schemas: leave schema out of the URL, or name another file")
	}
	if strings.HasPrefix(l.path, "file:") {
		return errors.New("this is a DSN of the driver: write sqlite:PATH, and no file: before it")
	}
	params, err := l.parameters()
	if err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(params)) {
		if !slices.Contains(sqliteParams, name) {
			return fmt.Errorf("SQLite has no parameter %q: a URL takes prefix, and %s", name, strings.Join(sqliteParams, ", "))
		}
	}
	return nil
}

// sqliteParams are those of a file: URI (https://sqlite.org/uri.html) and of modernc.org/sqlite (its Driver.Open).
var sqliteParams = []string{
	"cache", "immutable", "mode", "modeof", "nolock", "psow", "vfs",
	"_auto_vacuum", "_busy_timeout", "_defensive", "_dqs", "_error_rc", "_fk", "_foreign_keys", "_inttotime", "_journal", "_journal_mode", "_pragma",
	"_query_only", "_sync", "_synchronous", "_texttotime", "_time_format", "_time_integer_format", "_timeout", "_timezone", "_txlock", "_vacuum",
}

func (d *database) options(l *location) sqlstore.Options {
	return sqlstore.Options{
		Dialect: d.dialect, Schema: l.schema, Prefix: l.prefix,
		SweepEvery: -1, // that is for the program
		Logger:     slog.New(slog.DiscardHandler),
	}
}

func (d *database) kind() tool.Kind {
	schema := fmt.Sprint("schema version ", len(sqlstore.Migrations(sqlstore.Options{Dialect: d.dialect})))
	return tool.Kind{Schemes: d.schemes, Usage: d.usage, Format: schema, Open: d.openStore, Migrate: d.migrate, Script: d.script}
}

// store closes its database too.
type store struct {
	*sqlstore.Store
	db *sql.DB
}

func (s store) Close() error { return errors.Join(s.Store.Close(), s.db.Close()) }

func (d *database) openStore(ctx context.Context, raw string, w tool.Want) (tool.Opened, error) {
	l, err := d.locate(raw)
	if err != nil {
		return tool.Opened{}, err
	}
	db, err := d.open(&l, false)
	if err != nil {
		return tool.Opened{}, d.explain(&l, err)
	}
	db.SetMaxIdleConns(idleConns)
	o := d.options(&l)
	o.Lease = w.Lease
	o.ReadOnly = w.Use == tool.Reading // on a hot standby too, and as a user who may only read
	opened := tool.Opened{Name: l.name()}
	ctx, cancel := context.WithTimeout(ctx, openTimeout) // the store outlives it
	defer cancel()
	s, err := sqlstore.Open(ctx, db, o)
	var volatile *sqlstore.VolatileError
	if errors.As(err, &volatile) && w.Use != tool.Checking {
		opened.Caveat = "after a crash of the database, since " + volatile.Setting
		o.AllowVolatile = true
		s, err = sqlstore.Open(ctx, db, o)
	}
	if err == nil {
		opened.Store = store{s, db}
		return opened, nil
	}
	_ = db.Close()
	return tool.Opened{}, d.explain(&l, err)
}

func (d *database) migrate(ctx context.Context, raw string) (string, error) {
	l, err := d.locate(raw)
	if err != nil {
		return "", err
	}
	db, err := d.open(&l, true)
	if err != nil {
		return "", d.explain(&l, err)
	}
	defer db.Close() // nothing is under way
	o := d.options(&l)
	o.AllowVolatile = true // check tells
	want := len(sqlstore.Migrations(o))
	s, err := sqlstore.Open(ctx, db, o)
	if err == nil {
		return fmt.Sprintf("%s has schema version %d already, nothing was done", l.name(), want), s.Close()
	}
	have := 0
	var older *sqlstore.SchemaError
	if errors.As(err, &older) {
		have = older.Have
	}
	if err := sqlstore.Migrate(ctx, db, o); err != nil {
		return "", d.explain(&l, err)
	}
	if have == 0 {
		return fmt.Sprintf("%s has tables of schema version %d now, there were none", l.name(), want), nil
	}
	return fmt.Sprintf("%s has schema version %d now, it had %d", l.name(), want, have), nil
}

func (d *database) script(raw string) (string, error) {
	l, err := d.locate(raw)
	if err != nil {
		return "", err
	}
	all := sqlstore.Migrations(d.options(&l))
	var b strings.Builder
	for _, m := range all {
		fmt.Fprintf(&b, "-- %s: schema version %d of %v for samekey\n", m.Name, m.Version, d.dialect)
		if d.dialect == sqlstore.SQLite && m.Version == 1 {
			b.WriteString("PRAGMA journal_mode = WAL;\n")
		}
		b.WriteString(strings.TrimSpace(m.SQL) + "\n\n")
	}
	return b.String(), nil
}
