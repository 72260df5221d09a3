package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/samekey/samekey/persist"
)

// races bounds how often a call starts over because others changed the operation between its statements.
const races = 100

var errRaces = errors.New("others change this operation all the time")

var errTaken = errors.New("the lease has lapsed since a try whose answer was lost: another may have sent it meanwhile")

// Begin is one INSERT where the Ref is new. After an error it withdraws what may have been written; Maybe is false if
// it could while a lease lasts, as nobody else can have had it then, or if nothing can have been written.
func (s *Store) Begin(ctx context.Context, rec persist.Record) (persist.Entry, error) {
	if rec.Answer != nil {
		return persist.Entry{}, s.fail("Begin", rec.Ref, false, errors.New("record has an answer already"))
	}
	if err := s.enter(ctx, "Begin", rec.Ref); err != nil {
		return persist.Entry{}, err
	}
	defer s.leave()
	b := begin{s: s, rec: rec, hash: hashOf(rec.Ref), ins: s.turn(), take: s.turn()}
	b.args = append(inserted(b.hash, &rec, b.ins), s.o.Lease.Nanoseconds())
	lost, err := s.do(ctx, true, func(ctx context.Context, c *sql.Conn, lost bool) (err error) {
		if b.start = time.Now(); !lost {
			b.first = b.start
		}
		return b.try(ctx, c, lost)
	})
	if err == nil && b.entry.New && lost && !b.alone() {
		err = errTaken
	}
	if err != nil {
		maybe := lost && (!b.withdraw(ctx) || !b.alone()) // in this order
		return persist.Entry{}, s.fail("Begin", rec.Ref, maybe, err)
	}
	if b.entry.Claim.Token != 0 {
		s.note(b.hash, int64(b.entry.Claim.Token), b.start)
	}
	return b.entry, nil
}

// begin is one call of Begin. ins and take are the turns of its own record and of its take-over, so that a later try knows
// them.
type begin struct {
	s         *Store
	rec       persist.Record
	hash      []byte
	ins, take []byte
	args      []any     // of the INSERT
	start     time.Time // of the latest try
	first     time.Time // of the first one whose answer was lost, if one was
	entry     persist.Entry
}

// alone reports whether nobody else can have had, by now, what a lost try has recorded.
func (b *begin) alone() bool { return before(b.first.Add(b.s.o.Lease)) }

func (b *begin) try(ctx context.Context, c *sql.Conn, lost bool) error {
	for range races {
		if done, err := b.round(ctx, c, lost); done || err != nil {
			return err
		}
	}
	return errRaces
}

func (b *begin) round(ctx context.Context, c *sql.Conn, lost bool) (done bool, err error) {
	s := b.s
	var owner []byte
	var token, slow int64
	query := s.q.begin
	if lost { // one INSERT may be under way still
		query = s.q.beginAgain
	}
	err = s.rows(ctx, c, query, b.args, func(rows *sql.Rows) error { return rows.Scan(&owner, &token, &slow) })
	if err != nil {
		return false, err
	}
	isNew, by := sameCall(owner, b.ins), &b.take
	if isNew { // some statements tell of the row that was there before, others of none
		if !lost && slow == 0 {
			b.entry = persist.Entry{Record: b.rec, Claim: persist.Claim{Ref: b.rec.Ref, Token: uint64(token)}, New: true}
			return true, nil
		}
		// It may be that of a try whose answer was lost. And while the INSERT waited for a removal, the one who removed
		// may have had a higher token: take the claim anew.
		by = &b.ins
	}
	*by = nextTry(*by)
	r, err := s.take(ctx, c, s.q.takePending, b.hash, *by)
	if r != nil || err != nil {
		return b.took(ctx, c, r, isNew, err)
	}
	r, err = s.one(ctx, c, s.q.get, b.hash)
	switch {
	case err != nil:
		return false, err
	case r == nil: // it left meanwhile
		return false, nil
	case r.gone(): // in its place, so that an INSERT that is late finds no gap
		b.ins = nextTry(b.ins)
		args := append(inserted(b.hash, &b.rec, b.ins)[1:], s.o.Lease.Nanoseconds(), b.hash, r.token)
		r, err = s.claim(ctx, c, s.q.revive, args, b.hash, b.ins)
		return b.took(ctx, c, r, true, err)
	case r.state == 0 && !r.busy(): // it was freed meanwhile
		return false, nil
	}
	b.entry = persist.Entry{Record: r.view()}
	return true, r.unreadable()
}

// took ends a round with what came of a claim; it was not given if r is nil.
func (b *begin) took(ctx context.Context, c *sql.Conn, r *row, isNew bool, err error) (done bool, _ error) {
	if r == nil || err != nil {
		return false, err
	}
	if r.bad != nil {
		b.s.giveBack(ctx, c, b.s.q.free, b.s.mine(b.s.turn(), r.hash, r.token)...)
		return false, r.bad
	}
	b.entry = r.entry()
	b.entry.New = isNew
	return true, nil
}

// take claims in the turn by, whether for the first time or once more after an earlier try; nil if another or a later try
// holds the operation, or the statement's condition is not met.
func (s *Store) take(ctx context.Context, c querier, query string, hash, by []byte) (*row, error) {
	first, _ := tries(by)
	return s.claim(ctx, c, query, []any{s.o.Lease.Nanoseconds(), by, hash, first, by}, hash, by)
}

// claim runs an UPDATE that claims in the turn by.
func (s *Store) claim(ctx context.Context, c querier, query string, args []any, hash, by []byte) (*row, error) {
	if s.d.returning {
		return s.one(ctx, c, query, args...)
	}
	if n, err := s.exec(ctx, c, query, args...); err != nil || n == 0 {
		return nil, err
	}
	return s.one(ctx, c, s.q.owned, hash, by)
}

// Claim takes one operation, as persist.Store says.
func (s *Store) Claim(ctx context.Context, ref persist.Ref) (persist.Entry, error) {
	if err := s.enter(ctx, "Claim", ref); err != nil {
		return persist.Entry{}, err
	}
	defer s.leave()
	hash, by := hashOf(ref), s.turn()
	var got *row
	var start time.Time
	_, err := s.do(ctx, true, func(ctx context.Context, c *sql.Conn, _ bool) (err error) {
		for range races {
			start, by = time.Now(), nextTry(by)
			if got, err = s.take(ctx, c, s.q.takeWhole, hash, by); got != nil || err != nil {
				if err == nil && got.bad != nil {
					s.giveBack(ctx, c, s.q.free, s.mine(s.turn(), got.hash, got.token)...)
					err = got.bad
				}
				return err
			}
			r, err := s.one(ctx, c, s.q.get, hash)
			switch {
			case err != nil:
				return err
			case r != nil && r.busy():
				return persist.ErrBusy
			case r == nil || r.bare():
				return persist.ErrNotFound
			}
		}
		return errRaces
	})
	if err != nil {
		return persist.Entry{}, s.fail("Claim", ref, false, err) // a claim that nobody knows of lapses
	}
	s.note(hash, got.token, start)
	return got.entry(), nil
}

// readCommitted is for a database that locks gaps by default, which would hold up every Begin and Enqueue.
func readCommitted(ctx context.Context, c *sql.Conn, f func(tx *sql.Tx) error) error {
	tx, err := c.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	if err != nil {
		return err
	}
	if err := f(tx); err != nil {
		_ = tx.Rollback()
		return err
	}
	return tx.Commit()
}
