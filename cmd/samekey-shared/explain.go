package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"slices"
	"strings"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	goredis "github.com/redis/go-redis/v9"

	"github.com/samekey/samekey/persist/sqlstore"
)

// explain says what is wrong, and the mend, in the words of the command line; those of the store are for programmers.
func (d *database) explain(l *location, err error) error {
	var (
		connect  *sqlstore.ConnectError
		dialect  *sqlstore.DialectError
		schema   *sqlstore.SchemaError
		readOnly *sqlstore.ReadOnlyError
		volatile *sqlstore.VolatileError
	)
	name := l.name()
	switch {
	case errors.Is(err, context.Canceled):
		return err
	case errors.As(err, &volatile):
		return fmt.Errorf("%s may lose what it has committed, so that a command is sent twice or forgotten: %s; mend that setting", name, volatile.Setting)
	case errors.As(err, &readOnly) && denied(readOnly.Err):
		return d.lacking(l, readOnly.Err)
	case errors.As(err, &readOnly):
		return because(readOnly.Err, "%s takes no writes: name the primary server, not a replica, and a user who may write", name)
	case errors.As(err, &dialect):
		return because(dialect.Err, "%s is not %v, or is too old%s", name, d.dialect, version(dialect.Version))
	case errors.As(err, &schema):
		return d.schema(name, schema)
	case errors.As(err, &connect) && denied(connect.Err):
		return d.lacking(l, connect.Err)
	case errors.As(err, &connect):
		return unreached(name, d.dialect, loginOf(l), connect.Err)
	case denied(err):
		return because(err, "%s: this user lacks the right to do that: migrate as one who may create and alter tables", name)
	case code(err) == "3F000":
		return because(err, "%s: there is no schema %s: CREATE SCHEMA %[2]s makes it", name, l.schema)
	}
	return unreached(name, d.dialect, loginOf(l), err)
}

// lacking names all rights: the database does not always say which one is missing.
func (d *database) lacking(l *location, err error) error {
	prefix := l.prefix
	if prefix == "" {
		prefix = "samekey_"
	}
	if l.schema != "" {
		prefix = l.schema + "." + prefix
	}
	next := "USAGE"
	if d.dialect == sqlstore.MariaDB {
		next = "SELECT, INSERT"
	}
	return because(err, "%s: this user lacks a right: grant SELECT, INSERT, UPDATE, DELETE on %soperations, SELECT on %[2]sschema, %s on the sequence %[2]stoken",
		l.name(), prefix, next)
}

// reason is an error whose text is a sentence, with its cause behind it.
type reason struct {
	text  string
	cause error
}

func (r *reason) Error() string {
	var lines []string // pgx has one for each attempt
	for l := range strings.Lines(strings.TrimPrefix(r.cause.Error(), "sqlstore: ")) {
		if l = strings.TrimSpace(l); !slices.Contains(lines, l) {
			lines = append(lines, l)
		}
	}
	return r.text + " (" + strings.Join(lines, " ") + ")"
}
func (r *reason) Unwrap() error { return r.cause }

func because(cause error, format string, args ...any) error {
	text := fmt.Sprintf(format, args...)
	if cause == nil {
		return errors.New(text)
	}
	return &reason{text, cause}
}

func version(s string) string {
	if s == "" {
		return ""
	}
	return ": it says " + s
}

func (d *database) schema(name string, e *sqlstore.SchemaError) error {
	switch {
	case e.Have == 0:
		return because(e.Err, "%s has no table %s, or none that this user may see: schema and prefix in the URL say where it is; samekey-shared migrate makes it", name, e.Table)
	case e.Have < e.Want:
		return fmt.Errorf("%s has schema version %d, older than %d, which this tool wants: samekey-shared migrate brings it up to date", name, e.Have, e.Want)
	}
	return fmt.Errorf("%s has schema version %d, newer than %d, which this tool knows: use a newer samekey-shared", name, e.Have, e.Want)
}

// loginOf says what mends a login that was refused: where the password came from.
func loginOf(l *location) string {
	if l.password() {
		return "mend user or password in the URL"
	}
	if !strings.HasPrefix(l.scheme, "postgres") {
		return "there is no password in the URL"
	}
	if os.Getenv("PGPASSWORD") != "" {
		return "mend the user in the URL, or the environment's PGPASSWORD"
	}
	if c, err := pgx.ParseConfig(l.driverURL()); err == nil && c.Password != "" {
		return "mend the user in the URL, or the password in ~/.pgpass (or where PGPASSFILE or the URL's passfile says)"
	}
	return "there is no password, neither in the URL nor in the environment's PGPASSWORD, and ~/.pgpass has none for it"
}

// unreached tells why there is no connection.
func unreached(name string, server any, login string, err error) error {
	var dns *net.DNSError
	var unknown x509.UnknownAuthorityError
	var host x509.HostnameError
	var record tls.RecordHeaderError
	var slow net.Error
	switch c := code(err); {
	case c == "3D000", c == "1049":
		return because(err, "%s: there is no such database: create it, or mend the URL", name)
	case c == "28000": // whatever the password is
		return because(err, "%s refuses the login: the server knows no such user, or does not let it in: mend the user in the URL, or pg_hba.conf at the server", name)
	case c == "28P01", c == "1045", c == "1698", goredis.IsAuthError(err):
		return because(err, "%s refuses the login: %s", name, login)
	case c == "53300", c == "1040", c == "1203", goredis.IsMaxClientsError(err):
		return because(err, "%s has no connection left: try again, or let the server take more", name)
	case errors.As(err, &dns):
		return because(err, "%s: the host is not known: mend the URL", name)
	case errors.As(err, &unknown), errors.As(err, &host), errors.As(err, &record), errors.Is(err, mysql.ErrNoTLS), strings.Contains(err.Error(), "tls error"):
		return because(err, "%s: no TLS connection: mend the parameters of the URL that say how", name)
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &slow) && slow.Timeout():
		return because(err, "%s: no answer in time: does the server run, and is it to be reached from here?", name)
	case errors.Is(err, mysql.ErrInvalidConn), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return because(err, "%s: no answer of a server of %v: are host and port right?", name, server)
	case server == sqlstore.SQLite && errors.Is(err, fs.ErrNotExist):
		return because(err, "%s: there is no such file: samekey-shared migrate makes it", name)
	case server == sqlstore.SQLite:
		return because(err, "%s: the file cannot be used", name)
	}
	var dial *net.OpError
	if errors.As(err, &dial) {
		return because(err, "%s cannot be reached: does the server run, and are host and port right?", name)
	}
	return because(err, "%s cannot be used", name)
}

// code is what PostgreSQL and MariaDB number their errors by.
func code(err error) string {
	var pg interface{ SQLState() string }
	if errors.As(err, &pg) {
		return pg.SQLState()
	}
	var my *mysql.MySQLError
	if errors.As(err, &my) {
		return fmt.Sprint(my.Number)
	}
	return ""
}

// denied: the login is good, a right is missing.
func denied(err error) bool {
	switch code(err) {
	case "42501", "1044", "1142", "1143", "1227", "1370":
		return true
	}
	return false
}
