package redis

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"slices"
	"strconv"

	"github.com/samekey/samekey/persist"
)

// Get reads one record.
func (s *Store) Get(ctx context.Context, ref persist.Ref) (persist.Record, error) {
	if err := s.enter(ctx, "Get", ref); err != nil {
		return persist.Record{}, err
	}
	defer s.leave()
	q := s.ask(getScript, "", hashOf(ref))
	d, err := s.do(ctx, q)
	if err == nil && d.status == "none" {
		err = persist.ErrNotFound
	}
	var rec persist.Record
	if err == nil {
		rec, _, err = s.shown(d.reply)
	}
	if err != nil {
		return persist.Record{}, s.fail("Get", ref, false, err)
	}
	return rec, nil
}

// List holds no connection while its consumer is at work. It reads the index by the page, and as many records at once
// as have small bodies; a large one is read alone. It goes on behind a record that cannot be read, and ends with the first
// such error.
func (s *Store) List(ctx context.Context, f persist.Filter) iter.Seq2[persist.Record, error] {
	return func(yield func(persist.Record, error) bool) {
		after := "-"
		var bad error
		for {
			members, err := s.members(ctx, f, after)
			if err != nil {
				yield(persist.Record{}, err)
				return
			}
			if len(members) == 0 {
				if bad != nil {
					yield(persist.Record{}, bad)
				}
				return
			}
			after = "(" + members[len(members)-1]
			for len(members) > 0 {
				recs, n, err := s.page(ctx, f, members)
				if n == 0 {
					yield(persist.Record{}, err)
					return
				}
				bad = cmp.Or(bad, err)
				members = members[n:]
				for _, rec := range recs {
					if f.Match(&rec) && !yield(rec, nil) {
						return
					}
				}
			}
		}
	}
}

// members are those of the indexes after one place, oldest first.
func (s *Store) members(ctx context.Context, f persist.Filter, after string) ([]string, error) {
	if err := s.enter(ctx, "List", persist.Ref{}); err != nil {
		return nil, err
	}
	defer s.leave()
	before := "+"
	if !f.Before.IsZero() {
		before = "(" + ordered(f.Before)
	}
	which := "both"
	if len(f.States) > 0 {
		switch pending := slices.Contains(f.States, persist.Pending); {
		case !pending:
			which = "over"
		case !slices.ContainsFunc(f.States, func(st persist.State) bool { return st != persist.Pending }):
			which = "open"
		}
	}
	d, err := s.do(ctx, query{script: keysScript, keys: s.index(), args: []any{after, before, pageKeys, which}})
	if err != nil {
		return nil, s.fail("List", persist.Ref{}, false, err)
	}
	var members []string
	for _, index := range d.reply {
		of, _ := index.([]any)
		for _, m := range of {
			if m, ok := m.(string); ok && len(m) > 16 {
				members = append(members, m)
			}
		}
	}
	slices.Sort(members) // as bytes, as Redis does
	return members[:min(len(members), pageKeys)], nil
}

// page reads the records of the first n members, those that f selects. err is of those that cannot be read, or, where n is
// 0, of all.
func (s *Store) page(ctx context.Context, f persist.Filter, members []string) (recs []persist.Record, n int, err error) {
	if err := s.enter(ctx, "List", persist.Ref{}); err != nil {
		return nil, 0, err
	}
	defer s.leave()
	keys := s.index()
	for _, m := range members {
		keys = append(keys, s.record(m[16:]))
	}
	states, scope := "01234", ""
	if len(f.States) > 0 {
		states = ""
		for _, st := range f.States {
			states += strconv.Itoa(int(st))
		}
	}
	if f.Scope != nil {
		var w writer
		w.string(*f.Scope)
		scope = string(w)
	}
	args := []any{pageBytes, states, scope}
	for _, m := range members {
		args = append(args, m)
	}
	d, err := s.do(ctx, query{script: fetchScript, keys: keys, args: args})
	if err != nil {
		return nil, 0, s.fail("List", persist.Ref{}, false, err)
	}
	for _, r := range d.reply {
		one, _ := r.([]any)
		if len(one) == 1 { // not there any more, or not selected
			continue
		}
		var rec persist.Record
		var failed error
		if len(one) == 2 {
			why, _ := one[1].(string)
			failed = named(errors.New(why))
		} else {
			rec, _, failed = s.shown(one)
		}
		if failed == nil {
			recs = append(recs, rec)
		} else if err == nil {
			err = s.fail("List", persist.Ref{}, false, failed)
		}
	}
	if len(d.reply) == 0 {
		return nil, 0, s.fail("List", persist.Ref{}, false, errReply)
	}
	return recs, len(d.reply), err
}
