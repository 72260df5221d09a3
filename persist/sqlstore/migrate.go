package sqlstore

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"strings"
)

//go:embed migrations
var migrations embed.FS

// Migration is one step from an older schema to a newer one.
type Migration struct {
	Version int    // 1 is the first
	Name    string // of its file
	// SQL is statements, each ended by a semicolon and a line break, for the tables that the options name. The last one
	// writes the version down, so that a tool of one's own leaves what Open looks for.
	SQL string
}

var names = regexp.MustCompile(`\bsamekey_(schema|operations|token|idx_[a-z]+)\b`)

// Migrations returns all steps for o.Dialect, o.Schema and o.Prefix, oldest first; none for an unknown dialect.
func Migrations(o Options) []Migration {
	d := dialects[o.Dialect]
	if d == nil {
		return nil
	}
	if o.Prefix == "" {
		o.Prefix = defaultPrefix
	}
	dir := "migrations/" + d.dir
	files, err := fs.ReadDir(migrations, dir)
	if err != nil {
		panic(err) // they are embedded
	}
	var out []Migration
	for i, f := range files { // in the order of their names
		b, err := fs.ReadFile(migrations, dir+"/"+f.Name())
		if err != nil {
			panic(err) // likewise
		}
		sql := names.ReplaceAllStringFunc(string(b), func(name string) string {
			name = strings.TrimPrefix(name, defaultPrefix)
			if strings.HasPrefix(name, "idx_") { // lies where its table does
				return o.Prefix + name
			}
			return o.table(name)
		})
		out = append(out, Migration{Version: i + 1, Name: f.Name(), SQL: sql})
	}
	return out
}

// Migrate brings the tables that o names to the version of this build, from nothing or from an older one. Several may
// call it at once. It needs the right to create tables; in PostgreSQL each step is one transaction, in MariaDB a step
// that broke off can be repeated.
//
// Errors: *ConnectError, *DialectError, *ReadOnlyError, a *SchemaError if the tables are newer, or that of the database.
func Migrate(ctx context.Context, db *sql.DB, o Options) (err error) {
	if o, err = o.filled(); err != nil {
		return err
	}
	c, err := dial(ctx, db, o)
	if err != nil {
		return err
	}
	defer c.Close() // back to the pool
	if err := writable(ctx, c, o); err != nil {
		return err
	}
	if o.Dialect == SQLite {
		// Kept in the file. A database in memory, or on a file system without shared memory, stays as it is: Open tells.
		if err := o.patient(ctx, func() error { return execute(ctx, c, `PRAGMA journal_mode = WAL`) }); err != nil {
			return fmt.Errorf("sqlstore: journal_mode = WAL: %w", err)
		}
	}
	d := dialects[o.Dialect]
	all := Migrations(o)
	for done := false; !done; {
		err := o.patient(ctx, func() (err error) {
			done, err = step(ctx, c, o, d, all)
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// step applies the next migration, under the lock.
func step(ctx context.Context, c *sql.Conn, o Options, d *dialect, all []Migration) (done bool, err error) {
	if d.txDDL {
		if _, err := c.ExecContext(ctx, d.begin); err != nil {
			return false, err
		}
		defer func() { err = end(ctx, c, err) }()
	}
	if d.lock != "" {
		if _, err := c.ExecContext(ctx, d.lock); err != nil {
			return false, err
		}
	}
	if d.unlock != "" {
		defer func() {
			_, e := c.ExecContext(context.WithoutCancel(ctx), d.unlock)
			err = errors.Join(err, e)
		}()
	}
	have, err := schemaVersion(ctx, c, o)
	switch {
	case err != nil:
		return false, fmt.Errorf("sqlstore: the version of %s cannot be read: %w", o.table("operations"), err)
	case have > len(all):
		return false, &SchemaError{Table: o.table("operations"), Have: have, Want: len(all)}
	case have == len(all):
		return true, nil
	}
	m := all[have]
	for statement := range strings.SplitSeq(m.SQL, ";\n") {
		if strings.TrimSpace(statement) == "" {
			continue
		}
		if _, err := c.ExecContext(ctx, statement); err != nil {
			return false, fmt.Errorf("sqlstore: migration %s: %w", m.Name, err)
		}
	}
	return false, nil
}

// end commits, or rolls back if there was an error. A connection that can do neither does not go back to the pool.
func end(ctx context.Context, c *sql.Conn, err error) error {
	how := "COMMIT"
	if err != nil {
		how = "ROLLBACK"
	}
	if _, e := c.ExecContext(context.WithoutCancel(ctx), how); e != nil {
		_ = c.Raw(func(any) error { return driver.ErrBadConn })
		return errors.Join(err, e)
	}
	return err
}

// schemaVersion is 0 if there is no such table, or an error.
func schemaVersion(ctx context.Context, c *sql.Conn, o Options) (version int, err error) {
	var is int
	err = c.QueryRowContext(ctx, o.expand(dialects[o.Dialect].exists)).Scan(&is)
	if err == nil && is > 0 {
		err = c.QueryRowContext(ctx, o.expand(`SELECT COALESCE(MAX(version), 0) FROM {schema}`)).Scan(&version)
	}
	return version, err
}
