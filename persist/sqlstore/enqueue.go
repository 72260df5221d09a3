package sqlstore

import (
	"context"
	"database/sql"
	"errors"

	"github.com/samekey/samekey/persist"
)

// Execer is what Enqueue needs of a transaction: *sql.Tx has it, and for those of other drivers an adapter is short.
// Its Result must know the rows affected.
type Execer interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

// Enqueue records rec, pending and claimed by nobody, in a transaction of the caller's on the store's database: after
// the commit recovery sends it, after a rollback nothing is left. rec comes from the client's Capture; its Progress
// must have no attempts. In PostgreSQL the commit wakes who waits on Wake.
//
// The handler of whoever recovers (samekey's Recovery.Handle) gets the answer. A Do or Resume of the same Ref takes it from
// there: then it is for their caller to write down what came of it. Over a store that persist/sealed wraps, rec has to be
// sealed first.
//
// A Ref that is known already, from this transaction too, is a *KnownError, whether or not it is the same command: Get
// tells, by its Fingerprint. Other errors are *persist.Error around
// that of tx, which is the caller's to roll back. An Enqueue waits for other transactions that enqueue the same Ref.
func (s *Store) Enqueue(ctx context.Context, tx Execer, rec persist.Record) error {
	switch {
	case rec.Answer != nil:
		return s.fail("Enqueue", rec.Ref, false, errors.New("record has an answer already"))
	case rec.Progress.Attempts != 0:
		return s.fail("Enqueue", rec.Ref, false, errors.New("record has attempts already"))
	}
	if err := s.enter(ctx, "Enqueue", rec.Ref); err != nil {
		return err
	}
	defer s.leave()
	hash := hashOf(rec.Ref)
	args := inserted(hash, &rec, s.turn())
	n, err := affected(tx.ExecContext(ctx, s.q.enqueue, args...))
	if err == nil && n == 0 { // the Ref is known, unless the sweep has only not come by
		n, err = affected(tx.ExecContext(ctx, s.q.reviveFree, append(args[1:], hash)...))
	}
	if err == nil && n == 0 {
		return &KnownError{Ref: rec.Ref}
	}
	if err == nil && s.q.notify != "" {
		_, err = tx.ExecContext(ctx, s.q.notify)
	}
	if err != nil {
		return s.fail("Enqueue", rec.Ref, false, err)
	}
	return nil
}

func affected(res sql.Result, err error) (int64, error) {
	if err != nil {
		return 0, err
	}
	return res.RowsAffected()
}
