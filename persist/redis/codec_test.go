package redis

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/samekey/samekey/persist"
)

// sample has every field set.
func sample() persist.Record {
	at := time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)
	return persist.Record{
		Ref: persist.Ref{Scope: "s\x00\xff", ID: "i"}, Named: true, Created: at, Key: "k", Method: "POST", Target: "https://bank.test/",
		Header: http.Header{"A": {"b", "", "\xff\n"}, "": {"x"}, "b": {}}, Omitted: []string{"", "Authorization"}, Body: []byte{0, 1},
		Fingerprint: [32]byte{1, 31: 2}, KeyLife: -1,
		Progress: persist.Progress{Attempts: 3, FirstSent: at, Seen: at.Add(1), NotBefore: at.Add(2), Parked: true, PollURL: "/p", LastStatus: -1, LastError: "e"},
		Answer: &persist.Answer{State: persist.Abandoned, Status: 409, Header: http.Header{"X": {"y"}}, Body: []byte{}, Truncated: true, Reason: "r",
			KeepBody: at.Add(3), KeepName: at.Add(4), Owed: true},
	}
}

func encoded(rec persist.Record) fields {
	f := fields{name: encodeName(&rec), request: encodeRequest(&rec), progress: encodeProgress(&rec.Progress)}
	if rec.Answer != nil {
		f.end, f.answer = encodeEnd(rec.Answer), encodeAnswer(rec.Answer)
	}
	return f
}

func TestCodec(t *testing.T) {
	whole := sample()
	pending := sample()
	pending.Answer = nil
	for _, rec := range []persist.Record{whole, pending, {Created: time.Unix(0, 0).UTC()}} {
		got, err := encoded(rec).record()
		require.NoError(t, err)
		require.Equal(t, rec, got)
	}
	f := encoded(whole)
	f.request, f.progress, f.answer = nil, nil, nil
	name, err := f.record()
	require.NoError(t, err)
	require.True(t, name.Tombstone())
	require.Equal(t, persist.Record{Ref: whole.Ref, Named: true, Created: whole.Created,
		Answer: &persist.Answer{State: persist.Abandoned, Reason: "r", KeepName: whole.Answer.KeepName, Owed: true}}, name)
}

// TestCodecCut: a field that was cut off is an error, never a record that lacks something.
func TestCodecCut(t *testing.T) {
	f := encoded(sample())
	for _, part := range []*any{&f.name, &f.end, &f.request, &f.progress, &f.answer} {
		whole := (*part).(string)
		for n := range len(whole) {
			*part = whole[:n]
			_, err := f.record()
			require.ErrorIs(t, err, errEncoding, "%d of %d", n, len(whole))
		}
		*part = whole
	}
	_, err := fields{}.record()
	require.ErrorIs(t, err, errEncoding)
	_, err = fields{name: f.name}.record()
	require.ErrorIs(t, err, errEncoding)
}

func FuzzCodec(f *testing.F) {
	s := encoded(sample())
	f.Add(s.name.(string), s.end.(string), s.request.(string), s.progress.(string), s.answer.(string))
	f.Add("", "", "\xff\xff\xff\xff\xff\xff\xff\xff\x7f", "", "")
	f.Fuzz(func(t *testing.T, name, end, request, progress, answer string) {
		rec, err := fields{name, end, request, progress, answer}.record()
		if err != nil {
			return
		}
		once, err := encoded(rec).record() // times at the ends of what there is move to the end
		require.NoError(t, err)
		twice, err := encoded(once).record()
		require.NoError(t, err)
		require.Equal(t, once, twice)
	})
}

func TestTimes(t *testing.T) {
	now := time.Now()
	require.True(t, instant(nanos(now)).Equal(now))
	require.True(t, instant(nanos(time.Time{})).IsZero())
	ages := []time.Time{{}, time.Date(1000, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(1969, 12, 31, 23, 59, 59, 999999999, time.UTC), time.Unix(0, 0),
		now, now.Add(1), time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)}
	for i := range ages[1:] {
		require.Less(t, nanos(ages[i]), nanos(ages[i+1]))
		require.Less(t, ordered(ages[i]), ordered(ages[i+1]))
		require.Len(t, ordered(ages[i]), 16)
	}
	for want, at := range map[string]time.Time{
		"0": {}, "1": time.Unix(0, 1), "1000000": time.Unix(1, 0), "1000001": time.Unix(1, 1), "9007199254740991": time.Date(2261, 1, 1, 0, 0, 0, 0, time.UTC),
	} {
		require.Equal(t, want, micros(at), "rounded up: not before its time")
	}
}

func TestHash(t *testing.T) {
	seen := map[string]persist.Ref{}
	for _, ref := range []persist.Ref{{}, {ID: "a"}, {Scope: "a"}, {Scope: "a", ID: "bc"}, {Scope: "ab", ID: "c"}, {Scope: "a\x00", ID: "b"}, {Scope: "a", ID: "\x00b"}} {
		h := hashOf(ref)
		require.Regexp(t, `^[A-Za-z0-9_-]{43}$`, h)
		require.NotContains(t, seen, h)
		seen[h] = ref
	}
}
