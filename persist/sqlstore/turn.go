package sqlstore

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/binary"
	"errors"
	"math"

	"github.com/samekey/samekey/persist"
)

// A turn names a call, and a row's owner is the turn that has claimed or changed it last: 8 bytes for the store, 6 that
// count its calls, 2 that count the tries of one that claims. So a row tells a statement that comes late, from a call or
// a try before, that it is not its turn any more.

// turn is the next call's.
func (s *Store) turn() []byte {
	return binary.BigEndian.AppendUint64(append(make([]byte, 0, 16), s.me[:]...), s.turns.Add(1)<<16)
}

// nextTry is the turn of the next try.
func nextTry(turn []byte) []byte {
	n := binary.BigEndian.Uint16(turn[14:])
	return ending(turn, min(n, math.MaxUint16-1)+1)
}

func ending(turn []byte, try uint16) []byte {
	return binary.BigEndian.AppendUint16(append(make([]byte, 0, 16), turn[:14]...), try)
}

// tries is the range of all turns of a call.
func tries(turn []byte) (first, last []byte) { return ending(turn, 0), ending(turn, math.MaxUint16) }

func sameCall(a, b []byte) bool { return len(a) == 16 && bytes.Equal(a[:14], b[:14]) }

// after is the range of all turns of this store that come after that of a call.
func (s *Store) after(turn []byte) (first, last []byte) {
	_, end := tries(turn)
	return binary.BigEndian.AppendUint64(end[:8:8], binary.BigEndian.Uint64(end[8:])+1),
		binary.BigEndian.AppendUint64(end[:8:8], math.MaxUint64)
}

// mine are the last arguments of a change of what a claim holds.
func (s *Store) mine(by, hash []byte, token int64) []any {
	first, last := s.after(by)
	return []any{by, hash, token, first, last}
}

var errLate = errors.New("a later change under its claim has come before it")

// standing is what a change that has met nothing finds instead.
type standing struct {
	owner []byte // empty: there is no row
	token int64
	held  int64 // 1: that claim has not lapsed
}

func (s *Store) standing(ctx context.Context, c querier, hash []byte) (is standing, err error) {
	err = s.rows(ctx, c, s.q.standing, []any{hash}, func(rows *sql.Rows) error {
		return rows.Scan(&is.owner, &is.token, &is.held)
	})
	return is, err
}

// missed is why a change has met nothing; nil if a try before, whose answer was lost, has done it.
func (s *Store) missed(is standing, by, hash []byte, token int64, ends, lost bool) error {
	switch {
	case bytes.Equal(is.owner, by):
		if ends || is.held == 1 {
			return nil
		}
	case is.owner != nil && is.token == token:
		if is.held == 1 {
			return errLate
		}
	case ends && lost && s.sure(hash, token): // others have it, or it is gone: nobody else can have let them
		return nil
	}
	return persist.ErrClaimLost
}
