// Package redis keeps operations in Redis, for fleets that have one that is durable.
//
//	client := goredis.NewClient(&goredis.Options{Addr: "redis:6379"}) // github.com/redis/go-redis/v9
//	store, err := redis.Open(ctx, client, redis.Options{})
//
// Every change is one Lua script, done whole or not at all, and seen by every store with the same Prefix. A settle is
// durable when its method returns, a lazy one too. Beginning, claiming, settling and listing what is pending do not become
// slower with the number of settled operations; these are in memory, as all of Redis is.
//
// A claim is a lease, by the clock of the server: it ends Options.Lease after Begin, Claim, ClaimDue or the latest Mark,
// and nothing renews it in the background, since whoever sends marks each attempt first. Past its lease an owner
// changes nothing, whether or not another has taken the operation. Tokens count microseconds of that clock, and never
// fall behind one that was given out: they grow even over a server that comes back without its data.
//
// Lost connections and a server that cannot serve for a moment are retried, within the context: each try finds out by
// itself whether an earlier one has happened, and one that arrives late does nothing. Where the fate of a change stays
// unknown, persist.Error.Maybe says so; that of a Begin stays so when a lease may have lapsed since its first lost try,
// and another may have sent what it has recorded. After a lost answer that lease is counted by the process's own clock:
// the server's must not be set forward by as much. A Begin whose context ends takes up to a second to withdraw; every
// other call returns at once.
//
// There is no Enqueue: Redis shares no transaction with your rows. For an outbox use persist/sqlstore.
//
// # What the server must promise
//
// Redis acknowledges a write before it is on disk unless it is told otherwise. Open reads these settings, and refuses
// any others with a *VolatileError, as well as a server that does not tell:
//
//	appendonly yes                  a log of every write
//	appendfsync always              synced before the answer, once for all writes that arrive together
//	no-appendfsync-on-rewrite no    also while the log is rewritten
//	maxmemory-policy noeviction     memory that is full refuses what is new, and keeps what is there
//
// Managed services often forbid CONFIG, and some sync once a second: a crash may then lose that second, and AllowVolatile
// says that you accept it. When memory is full, Begin fails with persist.ErrFull, and what is recorded can still be sent,
// settled and forgotten.
//
// Replication is asynchronous: a failover, by Sentinel or a cluster, may lose acknowledged writes whatever these
// settings are. Commands recorded then are sent without a record, settled ones may be sent again under their key. WAIT
// would make that rarer, not impossible, and is not used. Every server that can become the primary needs the settings
// above: Open looks at the one that is, once. Where losing an operation is not acceptable, use persist/journal or
// persist/sqlstore.
//
// # Keys
//
// All keys begin with "{samekey}:", or Options.Prefix in the braces. The braces are a hash tag: in a Redis Cluster all
// operations of a store lie in one slot, so on one node, and a store's load does not spread; several stores may have
// several prefixes. While that slot moves to another node calls may fail. Scripts find records by indexes, so not all
// their keys are declared: Redis lets them have any within the slot, some servers that are like it do not.
//
// Needs Redis 6.2 or later, tested with 7.0. An ACL user needs no more than
//
//	~{samekey}:* +evalsha +eval +ping +info +config|get +time +type +get +set +del +unlink +persist +pexpireat
//	+@hash +@sortedset
//
// Records are kept as they are given, request and response bodies too, and as long as Answer.KeepBody and KeepName say:
// then Redis expires them, and every store clears up what is left of them, a bounded number at a time.
//
// Sources: https://redis.io/docs/latest/operate/oss_and_stack/management/persistence/ (appendfsync),
// https://redis.io/docs/latest/develop/reference/errors/common/oom/ (scripts when memory is full),
// https://redis.io/docs/latest/operate/oss_and_stack/reference/cluster-spec/ (hash tags, write safety),
// https://redis.io/docs/latest/commands/wait/.
package redis
