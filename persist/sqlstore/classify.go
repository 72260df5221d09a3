package sqlstore

import (
	"context"
	"database/sql/driver"
	"errors"
	"reflect"
	"strings"

	"github.com/samekey/samekey/persist"
)

// fate is what an error of the driver says about the statement.
type fate uint8

const (
	unknown fate = iota // it may have been committed: the connection was lost, the context ended
	failed              // it was not, and the next try would fail as well
	again               // it was not, and the next try may succeed
	unsent              // it was not: no byte has left
)

// fateOf knows the errors of drivers by their shape, so that the store needs none of them: PostgreSQL's by a method
// SQLState, MariaDB's by a field Number, SQLite's by a method or field Code.
func fateOf(err error) fate {
	switch {
	case errors.Is(err, driver.ErrBadConn): // by the words of package driver: only if nothing was done
		return unsent
	case errors.Is(err, persist.ErrNotFound), errors.Is(err, persist.ErrBusy), errors.Is(err, persist.ErrClaimLost), errors.Is(err, errLate),
		errors.Is(err, errRaces), errors.Is(err, errForgotten), errors.Is(err, errEncoding):
		return failed // our own answers
	case strings.HasSuffix(err.Error(), "sql: database is closed"): // by the caller; the error has no name
		return failed
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return unknown
	}
	var pg interface{ SQLState() string }
	if errors.As(err, &pg) {
		return fateOfState(pg.SQLState())
	}
	for e := err; e != nil; e = errors.Unwrap(e) {
		if n, ok := number(e, "Number"); ok {
			return fateOfMariaDB(n)
		}
		if c, ok := e.(interface{ Code() int }); ok {
			return fateOfSQLite(c.Code())
		}
		if n, ok := number(e, "Code"); ok {
			return fateOfSQLite(n)
		}
	}
	return unknown
}

func number(err error, field string) (int, bool) {
	v := reflect.Indirect(reflect.ValueOf(err))
	if v.Kind() != reflect.Struct {
		return 0, false
	}
	switch f := v.FieldByName(field); {
	case !f.IsValid():
	case f.CanInt():
		return int(f.Int()), true
	case f.CanUint():
		return int(f.Uint()), true
	}
	return 0, false
}

func fateOfState(s string) fate {
	switch {
	case s == "40003", strings.HasPrefix(s, "08"), // unknown by its own name; connections
		strings.HasPrefix(s, "57P"), strings.HasPrefix(s, "XX"): // shut down or crashed, before or after the commit
		if s == "57P03" { // the server is starting
			return again
		}
		return unknown
	case strings.HasPrefix(s, "40"), s == "55P03", s == "53300", // serialisation, deadlock; lock timeout; too many clients
		s == "26000", s == "0A000": // a prepared statement that is gone or stale
		return again
	}
	return failed
}

func fateOfMariaDB(n int) fate {
	switch n {
	case 1213, 1205, 1020, 1040, 1203: // deadlock, lock wait, changed since read, too many connections
		return again
	case 1053, 1927, 1152, 1158, 1159, 1160, 1161, 1180, 1928: // shut down, killed, broken off, error during commit
		return unknown
	}
	return failed
}

func fateOfSQLite(n int) fate {
	switch n & 0xff {
	case 5, 6: // busy, locked
		return again
	case 10: // a flush that failed: what was written may still reach the disk
		return unknown
	}
	return failed
}

// denied tells errors of a user who lacks a right; in SQLite the file says it.
func denied(err error) bool {
	var pg interface{ SQLState() string }
	if errors.As(err, &pg) {
		return pg.SQLState() == "42501"
	}
	for e := err; e != nil; e = errors.Unwrap(e) {
		if n, ok := number(e, "Number"); ok {
			return n == 1142 || n == 1044 || n == 1143
		}
	}
	return false
}

// full tells errors of a database that has no room.
func full(err error) bool {
	var pg interface{ SQLState() string }
	if errors.As(err, &pg) {
		return pg.SQLState() == "53100"
	}
	for e := err; e != nil; e = errors.Unwrap(e) {
		if n, ok := number(e, "Number"); ok {
			return n == 1114 || n == 1021
		}
		if c, ok := e.(interface{ Code() int }); ok {
			return c.Code()&0xff == 13
		}
	}
	return false
}
