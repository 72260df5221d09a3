package sqlstore

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	"modernc.org/sqlite"
)

// fileWire is a wire for a database that has none: its statements are late, or their answers lost, between database/sql
// and the driver.
type fileWire struct {
	name string
	w    *wire
}

func (f fileWire) Driver() driver.Driver { return &sqlite.Driver{} }

func (f fileWire) Connect(context.Context) (driver.Conn, error) {
	c, err := f.Driver().Open(f.name)
	if err != nil {
		return nil, err
	}
	return &fileConn{c.(sqliteConn), f}, nil
}

type sqliteConn interface {
	driver.Conn
	driver.ConnBeginTx
	driver.ExecerContext
	driver.QueryerContext
}

type fileConn struct {
	sqliteConn
	f fileWire
}

var errLost = errors.New("the connection is lost")

func (c *fileConn) fate(query string) sending {
	c.f.w.mu.Lock()
	defer c.f.w.mu.Unlock()
	if c.f.w.fate == nil {
		return sending{}
	}
	return c.f.w.fate([]byte(query))
}

func (c *fileConn) later(query string, args []driver.NamedValue) {
	c.f.w.mu.Lock()
	defer c.f.w.mu.Unlock()
	values := make([]any, len(args))
	for i, arg := range args {
		values[i] = arg.Value
	}
	c.f.w.late = append(c.f.w.late, func(t *testing.T) {
		db, err := sql.Open("sqlite", c.f.name+"?_pragma=busy_timeout(20000)")
		require.NoError(t, err)
		_, err = db.Exec(query, values...)
		require.NoError(t, errors.Join(err, db.Close()))
	})
}

func (c *fileConn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	fate := c.fate(query)
	if fate.late {
		c.later(query, args)
		return nil, errLost
	}
	res, err := c.sqliteConn.ExecContext(ctx, query, args)
	if fate.lost != nil && err == nil {
		fate.lost()
		return nil, errLost
	}
	return res, err
}

func (c *fileConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	fate := c.fate(query)
	if fate.late {
		c.later(query, args)
		return nil, errLost
	}
	rows, err := c.sqliteConn.QueryContext(ctx, query, args)
	if fate.lost != nil && err == nil {
		into := make([]driver.Value, len(rows.Columns()))
		for err = rows.Next(into); err == nil; err = rows.Next(into) { //nolint:revive // it is executed, whatever it says
		}
		_ = rows.Close()
		fate.lost()
		return nil, errLost
	}
	return rows, err
}
