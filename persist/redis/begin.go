package redis

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/samekey/samekey/persist"
)

// Begin is one script. After an error it withdraws what may have been written, or may still arrive; Maybe is false if
// it could while a lease lasts, as nobody else can have had it then, or if nothing can have been written.
func (s *Store) Begin(ctx context.Context, rec persist.Record) (persist.Entry, error) {
	if rec.Answer != nil {
		return persist.Entry{}, s.fail("Begin", rec.Ref, false, errors.New("record has an answer already"))
	}
	if err := s.enter(ctx, "Begin", rec.Ref); err != nil {
		return persist.Entry{}, err
	}
	defer s.leave()
	hash, turn := hashOf(rec.Ref), s.turn()
	d, err := s.do(ctx, s.ask(beginScript, turn, hash, ordered(rec.Created), bit(rec.Progress.Parked),
		micros(rec.Progress.NotBefore), encodeName(&rec), encodeRequest(&rec), encodeProgress(&rec.Progress)))
	var e persist.Entry
	if err == nil {
		e, err = s.begun(rec, hash, d)
	}
	if err != nil {
		maybe := d.lost > 0 && (!s.withdraw(ctx, turn, hash) || !s.alone(d)) // in this order
		return persist.Entry{}, s.fail("Begin", rec.Ref, maybe, err)
	}
	return e, nil
}

// alone reports whether nobody else can have had, by now, what a lost try of Begin has recorded.
func (s *Store) alone(d done) bool { return d.lost == 0 || before(d.first.Add(s.o.Lease)) }

// begun is what the server's answer tells. Past the lease of a lost try nothing is told to be new, neither what is there
// nor what the last try has made: another may have taken the operation, sent it and removed it.
func (s *Store) begun(rec persist.Record, hash string, d done) (persist.Entry, error) {
	if (d.status == "new" || d.status == "again") && !s.alone(d) {
		return persist.Entry{}, errTaken
	}
	if d.status == "new" {
		token, err := tokenOf(d.reply)
		if err != nil {
			return persist.Entry{}, err
		}
		h := holding{hash, token}
		s.note(h, d.start)
		return persist.Entry{Record: rec, Claim: h.claim(rec.Ref), New: true}, nil
	}
	if d.status == "known" {
		known, _, err := s.shown(d.reply)
		return persist.Entry{Record: known}, err
	}
	e, err := s.taken(d.reply, d.start)
	e.New = d.status == "again"
	return e, err
}

// withdraw takes back a turn of Begin whose fate is unknown, even if ctx has ended. True: what it may have recorded is
// there no more, unless another has taken it, and none of its tries will have an effect.
func (s *Store) withdraw(ctx context.Context, turn, hash string) bool {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), resolveFor)
	defer cancel()
	_, err := s.do(ctx, s.ask(withdrawScript, turn, hash))
	return err == nil
}

// Claim takes one operation, as persist.Store says.
func (s *Store) Claim(ctx context.Context, ref persist.Ref) (persist.Entry, error) {
	if err := s.enter(ctx, "Claim", ref); err != nil {
		return persist.Entry{}, err
	}
	defer s.leave()
	hash := hashOf(ref)
	d, err := s.do(ctx, s.ask(claimScript, s.turn(), hash))
	switch {
	case err != nil: // a claim that nobody knows of lapses
	case d.status == "none":
		err = persist.ErrNotFound
	case d.status == "busy":
		err = persist.ErrBusy
	}
	var e persist.Entry
	if err == nil {
		e, err = s.taken(d.reply, d.start)
	}
	if err != nil {
		return persist.Entry{}, s.fail("Claim", ref, false, err)
	}
	return e, nil
}

// ClaimDue takes what is due, as persist.Store says: n, but no more than 256 operations or 8 MiB at once.
func (s *Store) ClaimDue(ctx context.Context, n int) ([]persist.Entry, error) {
	if err := s.enter(ctx, "ClaimDue", persist.Ref{}); err != nil {
		return nil, err
	}
	defer s.leave()
	if n <= 0 {
		return nil, nil
	}
	for {
		turn := s.turn()
		d, err := s.do(ctx, query{
			script: dueScript, keys: append(s.index(), s.o.key("turn:"+turn)), turn: turn,
			args: []any{turn, 0, s.o.Lease.Microseconds(), s.record(""), min(n, dueMost), dueBytes},
		})
		if err == nil && d.status == "more" { // much has come due since the last time
			continue
		}
		if err != nil {
			return nil, s.fail("ClaimDue", persist.Ref{}, false, err)
		}
		var es []persist.Entry
		for _, r := range d.reply[1:] {
			one, _ := r.([]any)
			e, err := s.taken(one, d.start)
			if err != nil { // it is held now, and keeps nobody from the others
				s.o.Logger.Error("samekey: redis: a record that cannot be recovered", "error", err)
				continue
			}
			es = append(es, e)
		}
		if len(es) > 0 || len(d.reply) == 1 {
			return es, nil
		}
	}
}

// taken is the entry that a script shows under a new claim.
func (s *Store) taken(reply []any, start time.Time) (persist.Entry, error) {
	rec, h, err := s.shown(reply)
	if err != nil {
		return persist.Entry{}, err
	}
	s.note(h, start)
	return persist.Entry{Record: rec, Claim: h.claim(rec.Ref)}, nil
}

// shown decodes a record that a script shows: status, token, hash, and the fields n, e, r, p, a.
func (s *Store) shown(reply []any) (persist.Record, holding, error) {
	if len(reply) < 5 {
		return persist.Record{}, holding{}, errReply
	}
	var h holding
	var err error
	if h.token, err = tokenOf(reply); err != nil {
		return persist.Record{}, holding{}, err
	}
	h.hash, _ = reply[2].(string)
	f := fields{name: reply[3], end: reply[4]}
	if len(reply) >= 8 {
		f.request, f.progress, f.answer = reply[5], reply[6], reply[7]
	}
	rec, err := f.record()
	if err == nil && hashOf(rec.Ref) != h.hash {
		err = errEncoding
	}
	if err != nil {
		return persist.Record{}, holding{}, &FormatError{Key: s.record(h.hash), Want: format, Err: err}
	}
	return rec, h, nil
}

func tokenOf(reply []any) (string, error) {
	if len(reply) < 2 {
		return "", errReply
	}
	token, _ := reply[1].(string)
	if _, err := strconv.ParseUint(token, 10, 64); err != nil {
		return "", errReply
	}
	return token, nil
}

func (h holding) claim(ref persist.Ref) persist.Claim {
	n, _ := strconv.ParseUint(h.token, 10, 64) // tokenOf has seen to it
	return persist.Claim{Ref: ref, Token: n}
}
