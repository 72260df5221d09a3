package persisttest

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/samekey/samekey/persist"
)

// lateCall is a change under a claim.
type lateCall struct {
	name string
	ends bool // the claim
	call func(ctx context.Context, s persist.Store, c persist.Claim, word string) error
}

// lateCalls write a word where a reader finds it.
var lateCalls = []lateCall{
	{"Mark", false, func(ctx context.Context, s persist.Store, c persist.Claim, word string) error {
		return s.Mark(ctx, c, persist.Progress{Attempts: 2, LastError: word})
	}},
	{"Replace", false, func(ctx context.Context, s persist.Store, c persist.Claim, word string) error {
		rec := payment(c.ID)
		rec.Key = word
		return s.Replace(ctx, c, rec)
	}},
	{"Settle, kept", true, func(ctx context.Context, s persist.Store, c persist.Claim, word string) error {
		keep := time.Now().Add(time.Hour)
		return s.Settle(ctx, c, persist.Answer{State: persist.Succeeded, Status: 200, Reason: word, KeepBody: keep, KeepName: keep})
	}},
	{"Settle, owed", true, func(ctx context.Context, s persist.Store, c persist.Claim, word string) error {
		return s.Settle(ctx, c, persist.Answer{State: persist.Succeeded, Status: 200, Reason: word, Owed: true})
	}},
	{"Settle, name", true, func(ctx context.Context, s persist.Store, c persist.Claim, word string) error {
		return s.Settle(ctx, c, persist.Answer{State: persist.Rejected, Reason: word, KeepName: time.Now().Add(time.Hour)})
	}},
	{"Settle, removed", true, func(ctx context.Context, s persist.Store, c persist.Claim, _ string) error {
		return s.Settle(ctx, c, persist.Answer{State: persist.Succeeded})
	}},
	{"Release", true, func(ctx context.Context, s persist.Store, c persist.Claim, _ string) error { return s.Release(ctx, c) }},
}

// LateChanges holds a store behind a network against its word where a change arrives at the server long after its call has
// ended, be it that it failed or that a later try worked: it undoes nothing that a later change under the same claim has
// written, and harms no later claim. s and watcher are stores on the same place, and claims last. late is for the caller
// to arrange, on the connections of s alone: the next change is kept from the server, and its connection is lost; arrive
// lets it through, and returns when the server has done with it.
func LateChanges(t testing.TB, s, watcher persist.Store, late func() (arrive func())) {
	t.Helper()
	for _, first := range lateCalls {
		for _, then := range lateCalls {
			for _, others := range []bool{false, true} { // have it when the late one arrives
				if !others || then.ends {
					lateChange(t, s, watcher, first, then, others, late)
				}
			}
		}
	}
}

func lateChange(t testing.TB, s, watcher persist.Store, first, then lateCall, others bool, late func() func()) {
	t.Helper()
	ctx, what := t.Context(), first.name+" after "+then.name
	if others {
		what += " and others"
	}
	rec := payment(what)
	e, err := s.Begin(ctx, rec)
	require.NoError(t, err)
	require.NotZero(t, e.Claim.Token)
	arrive := late()
	switch err = first.call(ctx, s, e.Claim, "late"); {
	case err != nil:
		require.True(t, maybe(t, err), "%s: %v", what, err)
		require.NotErrorIs(t, err, persist.ErrClaimLost, what)
	case first.ends:
		if e, err = lateAgain(ctx, s, rec); err != nil { // it is over, and only its name is left
			arrive()
			return
		}
	}
	require.NoError(t, then.call(ctx, s, e.Claim, "later"), what)
	var taken persist.Entry
	if others {
		if taken, err = lateAgain(ctx, watcher, rec); err != nil {
			taken.Claim.Token = 0
		}
	}
	before, was := watcher.Get(ctx, rec.Ref)
	arrive()
	after, is := watcher.Get(ctx, rec.Ref)
	require.Equal(t, was == nil, is == nil, "%s: %v, then %v", what, was, is)
	require.Equal(t, before, after, what)
	switch {
	case taken.Claim.Token != 0:
		require.NoError(t, watcher.Mark(ctx, taken.Claim, persist.Progress{Attempts: 3}), "%s: the claim of others holds", what)
	case !then.ends:
		_, err = watcher.Claim(ctx, rec.Ref)
		require.ErrorIs(t, err, persist.ErrBusy, what)
		require.NoError(t, s.Mark(ctx, e.Claim, persist.Progress{Attempts: 3}), "%s: the claim holds", what)
	case was == nil && !before.Tombstone():
		_, err = watcher.Claim(ctx, rec.Ref)
		require.NoError(t, err, "%s: nobody holds it", what)
	}
}

// lateAgain claims what is there, or begins it where nothing is; it fails if only the name is left.
func lateAgain(ctx context.Context, s persist.Store, rec persist.Record) (persist.Entry, error) {
	if e, err := s.Begin(ctx, rec); err != nil || e.Claim.Token != 0 {
		return e, err
	}
	return s.Claim(ctx, rec.Ref)
}
