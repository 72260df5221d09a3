// Package journal is the embedded default store: one directory, one process, an append-only log.
//
// A begin returns once its record is on stable storage; all changes that arrive together share one write and one
// flush. What the bytes look like and what each crash leaves is in FORMAT.md.
//
//	store, err := journal.Open(ctx, "/var/lib/pay", journal.Options{})
//	defer store.Close()
//
// The directory belongs on a local disk: a kernel lock keeps a second process out, and network file systems, whose
// locks and flushes promise less, are refused unless Options.AllowNetworkFS says otherwise. A bit flip, a torn tail or
// an unreadable sector costs the records it hits and nothing else; they are set aside in quarantine files, and Report
// tells of them.
//
// A Journal is safe for concurrent use. Check and ReadOnly look at a journal without its lock, beside a living owner.
package journal
