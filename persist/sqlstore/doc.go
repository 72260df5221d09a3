// Package sqlstore keeps operations in PostgreSQL, MariaDB or SQLite, for fleets that share their work and for programs
// whose disk does not outlive them. It imports no driver: the caller opens the *sql.DB.
//
//	db, err := sql.Open("pgx", dsn)
//	err = sqlstore.Migrate(ctx, db, sqlstore.Options{Dialect: sqlstore.PostgreSQL}) // once, by whoever may create tables
//	store, err := sqlstore.Open(ctx, db, sqlstore.Options{Dialect: sqlstore.PostgreSQL})
//
// Every change, a lazy settle too, is committed when its method returns, and seen by every store on the same tables.
// Settles that take an operation out of the store share statements with others that arrive meanwhile.
//
// A claim is a lease, by the clock of the database: it ends Options.Lease after Begin, Claim, ClaimDue or the latest
// Mark, and nothing renews it in the background, since whoever sends marks each attempt first. Past its lease an owner
// changes nothing, whether or not another has taken the operation.
//
// Lost connections, deadlocks and serialisation failures are retried for a moment, within the context: each statement
// finds out by itself whether it has happened before. Where that stays unknown, persist.Error.Maybe says so.
//
// An INSERT that arrives late, after its connection was lost, brings nothing back: neither what a failed Begin took back,
// nor what was begun under its name since and has left again, settled or forgotten, by whatever process. For 15 minutes a
// row that nobody is told of lies in its place. Every Forget leaves one too; the sweep removes it.
//
// A change that arrives late undoes none that its store has made since under the same claim, and a try of Begin or Claim
// that arrives late takes the operation from nobody who holds it. Of changes made at once under one claim the earlier may
// be refused as late.
//
// A record that cannot be read (columns were changed by others) holds nobody up: Begin, Claim and Get return the error
// and hold no claim, Forget works, ClaimDue passes over it, and List goes on behind it and ends with the first error.
//
// Enqueue records an operation in a transaction of the caller's: with the rows it belongs to, or not at all. Whoever
// recovers sends it after the commit, and hands its handler the answer:
//
//	rec, err := client.Capture(samekey.Named(req, "order-4711/charge"))
//	tx, err := db.BeginTx(ctx, nil)
//	_, err = tx.ExecContext(ctx, "INSERT INTO orders ...")
//	err = store.Enqueue(ctx, tx, rec)
//	err = tx.Commit()
//
//	err = client.KeepRecovering(ctx, samekey.Recovery{Handle: markPaid}) // in this process or another; it waits on Wake
//
// With Options.Listen (PostgreSQL) Wake tells of a commit at once, else within Options.PollEvery.
//
// Command samekey-shared looks after the tables by URL: list, show, stats, check, resume, abandon, migrate.
package sqlstore
