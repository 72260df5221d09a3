package sqlstore

import "strings"

// Dialect says which database it is.
type Dialect uint8

// The databases that are known.
const (
	// PostgreSQL, 12 and later, with github.com/jackc/pgx/v5/stdlib. Not with lib/pq: it says of a statement whose
	// connection was lost that it never left (driver.ErrBadConn), and a command that was recorded would be told not to be.
	PostgreSQL Dialect = iota + 1
	// MariaDB, 10.6 and later, one primary: tokens grow within one server, so not over the nodes of a Galera cluster.
	// With github.com/go-sql-driver/mysql, interpolateParams=true saves a round trip of each statement;
	// clientFoundRows=true must not be set, Enqueue could not tell that a Ref is known: Open refuses it, where this user
	// may UPDATE the schema table.
	MariaDB
	// SQLite, 3.42 and later, for several processes on one host, never on a network file system. Migrate sets WAL mode,
	// the store sets synchronous=FULL and a short busy_timeout on each connection. It has one writer at a time: for
	// transactions of your own beside the store use db.SetMaxOpenConns(1), or a pool of your own that begins them
	// immediately and waits (with modernc.org/sqlite: _txlock=immediate&_pragma=busy_timeout(5000)), else they fail with
	// SQLITE_BUSY.
	SQLite
)

func (d Dialect) String() string {
	if p := dialects[d]; p != nil {
		return p.name
	}
	return "unknown dialect"
}

// dialect is what one database does its own way. SQL texts are templates: see Options.expand.
type dialect struct {
	name     string
	dir      string // of its migrations
	numbered bool   // parameters are $1, $2, not ?

	now   string // the clock: nanoseconds since 1970
	token string // a token above all before it
	// tokenRight fails if this user may take no token, and takes none.
	tokenRight string
	conflict   string // end of an INSERT that leaves a known ref alone
	meet       string // end of one that changes a known ref: what follows
	slow       string // 1 if a statement has run so long that others may have had a claim meanwhile

	allColumns string // lets an INSERT name a column that counts by itself

	returning bool // UPDATE can return rows
	skip      bool // FOR UPDATE SKIP LOCKED
	gaps      bool // its default isolation locks what is not there
	unnest    bool // a removal of many takes two arrays
	timeout   bool // SET STATEMENT max_statement_time
	oneWriter bool // writers queue within the process

	doublings int // of the wait between tries, from 1 ms

	perConn  string // makes a new connection fit for use
	notify   string // wakes listeners at commit
	readOnly string // not 0, nor OFF, if the server takes no writes
	probe    string // fails if the database takes no writes
	undo     string // what probe did
	volatile string // what keeps a commit from being durable, empty if nothing does
	exists   string // 1 if there is a table of versions, else 0
	version  string
	isIt     func(version string) bool
	lock     string // one migration at a time
	unlock   string
	unmoved  string // an UPDATE that changes nothing, of one row
	txDDL    bool   // a migration is one transaction
	begin    string
}

var dialects = map[Dialect]*dialect{
	PostgreSQL: {
		name: "PostgreSQL", dir: "postgresql", numbered: true,
		now:        `(SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint * 1000)`,
		token:      `nextval('{token}')`,
		tokenRight: `SELECT CASE WHEN has_sequence_privilege('{token}', 'USAGE, UPDATE') THEN 0 ELSE nextval('{token}') END`,
		conflict:   `ON CONFLICT (ref_hash) DO NOTHING`,
		meet:       `ON CONFLICT (ref_hash) DO UPDATE SET `,
		slow:       `CASE WHEN clock_timestamp() > statement_timestamp() + interval '5 ms' THEN 1 ELSE 0 END`,

		allColumns: `OVERRIDING SYSTEM VALUE`,

		returning: true, skip: true, unnest: true, doublings: 7,
		notify:   `SELECT pg_notify('{channel}', '')`,
		readOnly: `SELECT CASE WHEN pg_is_in_recovery() OR current_setting('transaction_read_only') = 'on' THEN 1 ELSE 0 END`,
		volatile: `SELECT CASE WHEN current_setting('synchronous_commit') = 'off' THEN 'synchronous_commit is off' ` +
			`WHEN current_setting('fsync') = 'off' THEN 'fsync is off' ELSE '' END`,
		exists:  `SELECT count(*) FROM pg_class WHERE oid = to_regclass('{schema}')`,
		version: `SELECT version()`,
		isIt:    func(v string) bool { return strings.HasPrefix(v, "PostgreSQL") },
		lock:    `SELECT pg_advisory_xact_lock(7311992034)`, txDDL: true, begin: `BEGIN`,
	},
	MariaDB: {
		name: "MariaDB", dir: "mariadb",
		now:        `(TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) * 1000)`,
		token:      `NEXTVAL({token})`,
		tokenRight: `SELECT NEXTVAL({token}) FROM {operations} WHERE 1 = 0`,
		conflict:   `ON DUPLICATE KEY UPDATE token = token`,
		meet:       `ON DUPLICATE KEY UPDATE `,
		slow:       `CASE WHEN SYSDATE(6) > NOW(6) + INTERVAL 5000 MICROSECOND THEN 1 ELSE 0 END`,

		skip: true, gaps: true, timeout: true, doublings: 7,
		readOnly: `SELECT @@global.read_only`,
		volatile: `SELECT CASE WHEN @@autocommit = 0 THEN 'autocommit is off' ` +
			`WHEN @@global.innodb_flush_log_at_trx_commit <> 1 THEN 'innodb_flush_log_at_trx_commit is not 1' ` +
			`WHEN @@global.log_bin = 1 AND @@global.sync_binlog <> 1 THEN 'sync_binlog is not 1' ELSE '' END`,
		exists: `SELECT count(*) FROM information_schema.tables ` +
			`WHERE table_schema = COALESCE(NULLIF('{database}', ''), DATABASE()) AND table_name = '{prefix}schema'`,
		version: `SELECT VERSION()`,
		isIt:    func(v string) bool { return strings.Contains(v, "MariaDB") },
		lock:    `SELECT GET_LOCK('samekey migration', 60)`, unlock: `SELECT RELEASE_LOCK('samekey migration')`,
		unmoved: `SET STATEMENT innodb_lock_wait_timeout = 1 FOR UPDATE {schema} SET version = version LIMIT 1`,
	},
	SQLite: {
		name: "SQLite", dir: "sqlite",
		// In milliseconds. Processes on one host have one clock.
		now:      `(CAST(round(unixepoch('subsec') * 1000) AS INTEGER) * 1000000)`,
		token:    `(SELECT next FROM {token})`,
		conflict: `ON CONFLICT (ref_hash) DO NOTHING`,
		meet:     `ON CONFLICT (ref_hash) DO UPDATE SET `,
		slow:     `0`,

		returning: true, oneWriter: true, doublings: 2, // whoever asks most often gets in
		// In WAL mode a commit waits for the disk only if synchronous is FULL. A busy database is tried again by the
		// store, which listens to the context.
		perConn:  `PRAGMA busy_timeout = 50; PRAGMA synchronous = FULL`,
		probe:    `BEGIN IMMEDIATE; CREATE TABLE samekey_probe (a integer)`,
		undo:     `ROLLBACK`,
		volatile: `SELECT CASE WHEN journal_mode IN ('wal', 'delete', 'truncate', 'persist') THEN '' ELSE 'journal_mode is ' || journal_mode END FROM pragma_journal_mode`,
		exists:   `SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name = '{schema}'`,
		version:  `SELECT 'SQLite ' || sqlite_version()`,
		isIt:     func(v string) bool { return strings.HasPrefix(v, "SQLite") },
		txDDL:    true, begin: `BEGIN IMMEDIATE`,
	},
}
