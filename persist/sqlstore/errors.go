package sqlstore

import (
	"errors"
	"fmt"
	"net/url"
	"reflect"
	"slices"
	"strings"

	"github.com/samekey/samekey/persist"
)

// ConnectError says that Open or Migrate did not reach the database.
type ConnectError struct {
	Dialect Dialect
	Err     error
}

func (e *ConnectError) Error() string {
	return fmt.Sprintf("sqlstore: cannot reach the %v database, check the DSN, that the server runs, and that this user may log in: %s", e.Dialect, plain(e.Err))
}
func (e *ConnectError) Unwrap() error { return e.Err }

// DialectError says that the database is not what Options.Dialect calls it, or is too old.
type DialectError struct {
	Dialect Dialect
	Version string // what the database says of itself, empty if it does not know the question
	Err     error
}

func (e *DialectError) Error() string {
	s := e.Version
	if e.Err != nil {
		s = plain(e.Err)
	}
	return fmt.Sprintf("sqlstore: Options.Dialect is %v, the database is another: %s", e.Dialect, s)
}
func (e *DialectError) Unwrap() error { return e.Err }

// SchemaError says that the tables are missing (Have 0), or those of an older or a newer version. Nothing was changed.
type SchemaError struct {
	Table      string
	Have, Want int
	Err        error // why the version could not be read; nil if it was
}

func (e *SchemaError) Error() string {
	switch {
	case e.Have == 0:
		s := fmt.Sprintf("sqlstore: there is no table %s: run sqlstore.Migrate, or apply sqlstore.Migrations, and check the database that the DSN names, Options.Schema and Prefix", e.Table)
		if e.Err != nil {
			s += ": " + plain(e.Err)
		}
		return s
	case e.Have < e.Want:
		return fmt.Sprintf("sqlstore: %s has schema version %d, this build wants %d: run sqlstore.Migrate, or apply sqlstore.Migrations after %d", e.Table, e.Have, e.Want, e.Have)
	}
	return fmt.Sprintf("sqlstore: %s has schema version %d, this build knows up to %d: upgrade samekey's sqlstore", e.Table, e.Have, e.Want)
}
func (e *SchemaError) Unwrap() error { return e.Err }

// ReadOnlyError says that the database takes no writes, or none from this user; or, with Options.ReadOnly, that this
// user may not even read the tables.
type ReadOnlyError struct {
	Dialect Dialect
	Err     error // nil where the server says so itself
	reading bool  // it was to be read only
}

func (e *ReadOnlyError) Error() string {
	if e.reading {
		return fmt.Sprintf("sqlstore: the %v database does not let this user read its tables: grant SELECT on those of operations and schema: %s", e.Dialect, plain(e.Err))
	}
	s := fmt.Sprintf("sqlstore: the %v database takes no writes: connect to the primary, not to a replica, as a user who may read and write its tables", e.Dialect)
	if e.Err != nil {
		s += ": " + plain(e.Err)
	}
	return s
}
func (e *ReadOnlyError) Unwrap() error { return e.Err }

// VolatileError says that the database may lose what it has committed.
type VolatileError struct {
	Dialect Dialect
	Setting string // what is wrong with it
}

func (e *VolatileError) Error() string {
	return fmt.Sprintf("sqlstore: %v may lose what it has committed (%s): change that, or set Options.AllowVolatile and accept commands sent twice or forgotten after a crash", e.Dialect, e.Setting)
}

// KnownError says that Enqueue was given a Ref that is known already; the transaction holds nothing of it, and can go on.
type KnownError struct{ Ref persist.Ref }

func (e *KnownError) Error() string {
	return fmt.Sprintf("sqlstore: operation %q is known already", e.Ref.ID)
}

// plain is an error of the driver on one line, without a DSN: where that cannot be parsed drivers show it, and hide its
// password as well as they find it. Unwrap gives the error as it is.
func plain(err error) string {
	if e := (*url.Error)(nil); errors.As(err, &e) { // what is wrong with it is a part of it
		return "the DSN is no valid URL: reserved characters of the password are to be percent-encoded"
	}
	text := err.Error()
	for e := err; e != nil; e = errors.Unwrap(e) {
		v := reflect.Indirect(reflect.ValueOf(e))
		if v.Kind() == reflect.Struct && v.FieldByName("ConnString").IsValid() { // pgx's ParseConfigError
			if from, to := strings.Index(text, "`"), strings.LastIndex(text, "`"); from >= 0 {
				text = text[:from] + "the DSN" + text[to+1:]
			}
		}
	}
	var lines []string
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" && !slices.Contains(lines, line) {
			lines = append(lines, line)
		}
	}
	return strings.ReplaceAll(strings.Join(lines, "; "), ":; ", ": ")
}
