package sqlstore

import (
	"context"
	"fmt"
	"log/slog"
	"regexp"
	"time"
)

// Options of a store. Dialect must be set; every other zero value is good.
type Options struct {
	// Dialect of the database.
	Dialect Dialect
	// Schema holds the tables, in PostgreSQL a schema, in MariaDB a database. Empty: the connection's own. SQLite has none.
	Schema string
	// Prefix of the names of tables, indexes and the sequence. Empty: "samekey_". At most 24 ASCII letters, digits and
	// underscores, no digit first; the same goes for Schema.
	Prefix string
	// Lease is how long a claim holds without a Mark. 0: 30 seconds. At least 100 ms. An attempt timeout above half
	// of it is refused by the client; a dead owner's operations are free for others after it.
	Lease time.Duration
	// RetryFor is how long a call goes on trying, within its context, while connections are lost or refused, or others
	// are in its way. 0: 3 seconds. Negative: one try only.
	RetryFor time.Duration
	// CallTimeout bounds each call, whatever its context: a connection that is dead is noticed by nobody else for a
	// long time. 0: 30 seconds. Negative: only contexts bound.
	CallTimeout time.Duration
	// AllowVolatile opens a database that may lose what it has committed (PostgreSQL with synchronous_commit or fsync
	// off, MariaDB with innodb_flush_log_at_trx_commit other than 1, SQLite in memory). A command can then be sent
	// twice or be forgotten after a crash of the database.
	AllowVolatile bool
	// SweepEvery is how often rows past their retention are removed, and those of forgotten operations after 15 minutes,
	// a bounded number in one statement. They are never told of in any case. 0: a minute. Negative: never, by this store.
	SweepEvery time.Duration
	// Listen, if set, tells Wake of what is enqueued at once: see Listener.
	Listen Listener
	// PollEvery is how often Wake looks for operations that are due. 0: a second; a minute with Listen.
	PollEvery time.Duration
	// ReadOnly opens for Get and List alone, on a hot standby too, or as a user who may only SELECT on the operations
	// and the schema table: Open does not ask for what only writers need. Every other method but Flush and Close
	// returns an error, Wake a nil channel, and nothing is swept.
	ReadOnly bool
	// Logger is told which background work failed, and once each of operations that ClaimDue and List passed over.
	// Nil: slog.Default.
	Logger *slog.Logger
}

// Listener listens on a channel of PostgreSQL (LISTEN channel), calls wake once it listens and for each notification,
// and returns when ctx ends, or with the error that ended it; it is called again after a pause. database/sql has no
// such call, each driver has its own. With pgx:
//
//	func(ctx context.Context, channel string, wake func()) error {
//		conn, err := pgx.Connect(ctx, dsn)
//		if err != nil {
//			return err
//		}
//		defer conn.Close(context.WithoutCancel(ctx))
//		if _, err = conn.Exec(ctx, "LISTEN "+pgx.Identifier{channel}.Sanitize()); err != nil {
//			return err
//		}
//		for {
//			wake()
//			if _, err = conn.WaitForNotification(ctx); err != nil {
//				return err
//			}
//		}
//	}
type Listener func(ctx context.Context, channel string, wake func()) error

const (
	defaultPrefix = "samekey_"
	minLease      = 100 * time.Millisecond
	resolveFor    = 2 * time.Second // how long a call outlives its context to withdraw what it may have written
	closeFor      = 10 * time.Second
	batchTimeout  = 30 * time.Second
	sweepStep     = 500       // rows in one statement
	pageRows      = 256       // keys that List reads at once
	pageBytes     = 256 << 10 // and bodies
)

var identifier = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,23}$`)

func (o Options) filled() (Options, error) {
	if o.Prefix == "" {
		o.Prefix = defaultPrefix
	}
	if o.Lease == 0 {
		o.Lease = 30 * time.Second
	}
	if o.RetryFor == 0 {
		o.RetryFor = 3 * time.Second
	}
	if o.CallTimeout == 0 {
		o.CallTimeout = 30 * time.Second
	}
	if o.SweepEvery == 0 {
		o.SweepEvery = time.Minute
	}
	if o.PollEvery <= 0 {
		o.PollEvery = time.Second
		if o.Listen != nil {
			o.PollEvery = time.Minute
		}
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	switch {
	case dialects[o.Dialect] == nil:
		return o, fmt.Errorf("sqlstore: Options.Dialect is not set: use PostgreSQL, MariaDB or SQLite")
	case !identifier.MatchString(o.Prefix):
		return o, fmt.Errorf("sqlstore: Options.Prefix %q is not a plain name of at most 24 letters, digits and underscores", o.Prefix)
	case o.Schema != "" && o.Dialect == SQLite:
		return o, fmt.Errorf("sqlstore: Options.Schema is set, SQLite has no schemas: open the file itself")
	case o.Schema != "" && !identifier.MatchString(o.Schema):
		return o, fmt.Errorf("sqlstore: Options.Schema %q is not a plain name of at most 24 letters, digits and underscores", o.Schema)
	case o.Lease < minLease:
		return o, fmt.Errorf("sqlstore: Options.Lease is %v, want at least %v", o.Lease, minLease)
	case o.Listen != nil && o.Dialect != PostgreSQL:
		return o, fmt.Errorf("sqlstore: Options.Listen is set, only PostgreSQL notifies")
	}
	return o, nil
}
