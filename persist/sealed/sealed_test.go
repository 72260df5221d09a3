package sealed_test

import (
	"crypto/aes"
	"crypto/cipher"
	"encoding/base64"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/samekey/samekey/persist"
	"github.com/samekey/samekey/persist/sealed"
)

// secret is in all that has to be sealed.
const secret = "S3CR3T"

// full is a record with every field set. But for the ID it is the same each time.
func full(id string) persist.Record {
	at := time.Unix(1_800_000_000, 123456789).UTC()
	return persist.Record{
		Ref: persist.Ref{Scope: "tenant", ID: id}, Named: true, Created: at, Key: "key-" + secret, Method: http.MethodPost,
		Target: "https://bank.test/v1/payments?who=" + secret, Header: http.Header{"X-" + secret: {secret, ""}, "x-raw": {"\xff" + secret}},
		Omitted: []string{"X-Omitted-" + secret}, Body: []byte(`{"iban":"` + secret + `"}`), Fingerprint: [32]byte{1, 2, 30: 7}, KeyLife: 24 * time.Hour,
		Progress: persist.Progress{
			Attempts: 2, FirstSent: at.Add(1), Seen: at.Add(2), NotBefore: at.Add(3), PollURL: "https://bank.test/ops/" + secret,
			LastStatus: 503, LastError: "said " + secret,
		},
		Answer: &persist.Answer{
			State: persist.Rejected, Status: 422, Header: http.Header{"X-Name": {secret}}, Body: []byte(secret), Reason: "because " + secret,
			KeepBody: at.Add(4), KeepName: at.Add(5),
		},
	}
}

// with returns r after change; its answer is its own.
func with(r persist.Record, change func(*persist.Record)) persist.Record {
	if r.Answer != nil {
		a := *r.Answer
		r.Answer = &a
	}
	change(&r)
	return r
}

// refused checks that r does not open, which of its parts does not, and that the error names it and none of its contents.
func refused(t *testing.T, s *sealed.Sealer, r persist.Record, why error, part, keyID string) {
	t.Helper()
	got, err := s.Open(r)
	require.Zero(t, got)
	var own *persist.Error
	require.ErrorAs(t, err, &own)
	require.Equal(t, r.Ref, own.Ref)
	require.Equal(t, "sealed", own.Store)
	var open *sealed.OpenError
	require.ErrorAs(t, err, &open)
	require.ErrorIs(t, err, why)
	require.Equal(t, part, open.Part)
	require.Equal(t, keyID, open.KeyID)
	require.Contains(t, err.Error(), r.ID)
	require.Contains(t, err.Error(), keyID)
	require.NotContains(t, err.Error(), secret)
}

func TestSealAndOpen(t *testing.T) {
	s := sealer(t, true, "k1")
	pending := full("op")
	pending.Answer = nil
	keyOnly := with(full("op"), func(r *persist.Record) {
		r.Body, r.Header, r.Omitted, r.Answer.Body, r.Answer.Header = nil, nil, nil, nil, nil
	})
	empty := with(full("op"), func(r *persist.Record) { r.Body, r.Answer.Body, r.Answer.Reason = []byte{}, []byte{}, "" })
	for _, r := range []persist.Record{full("op"), pending, keyOnly, empty, full("\xff\x00"), {Ref: persist.Ref{ID: "op"}, Method: "PUT"}} {
		out := s.Seal(r)
		require.NotContains(t, fmt.Sprintf("%+v %s", out, out.Body), secret)
		if a := out.Answer; a != nil {
			require.NotContains(t, fmt.Sprintf("%+v %s", *a, a.Body), secret)
		}
		require.Zero(t, out.Fingerprint)
		require.Equal(t, out, s.Seal(out), "what is sealed stays as it is")
		require.NotEqual(t, out.Body, s.Seal(r).Body, "no nonce comes twice")
		got, err := s.Open(out)
		require.NoError(t, err)
		require.Equal(t, r, got)
	}
}

// An AEAD that makes its own nonces has none to be given.
func TestOwnNonces(t *testing.T) {
	block, err := aes.NewCipher(make([]byte, 32))
	require.NoError(t, err)
	aead, err := cipher.NewGCMWithRandomNonce(block)
	require.NoError(t, err)
	s, err := sealed.New(sealed.Options{Keys: []sealed.Key{{ID: "k", AEAD: aead}}})
	require.NoError(t, err)
	got, err := s.Open(s.Seal(full("op")))
	require.NoError(t, err)
	require.Equal(t, full("op"), got)
	out := s.Seal(full("op"))
	out.Body = out.Body[:3]
	refused(t, s, out, sealed.ErrChanged, "request", "k")
}

// TestFlips: no bit of what is sealed can be changed unseen, Strict or not, nor a byte cut off.
func TestFlips(t *testing.T) {
	good := sealer(t, true, "k1").Seal(full("op"))
	fields := map[string]func(r *persist.Record, f func([]byte) []byte){
		"target": func(r *persist.Record, f func([]byte) []byte) { r.Target = string(f([]byte(r.Target))) },
		"body":   func(r *persist.Record, f func([]byte) []byte) { r.Body = f(append([]byte{}, r.Body...)) },
		"progress": func(r *persist.Record, f func([]byte) []byte) {
			r.Progress.PollURL = string(f([]byte(r.Progress.PollURL)))
		},
		"answer": func(r *persist.Record, f func([]byte) []byte) { r.Answer.Body = f(append([]byte{}, r.Answer.Body...)) },
		"reason": func(r *persist.Record, f func([]byte) []byte) { r.Answer.Reason = string(f([]byte(r.Answer.Reason))) },
	}
	for name, field := range fields {
		for _, strict := range []bool{true, false} {
			s := sealer(t, strict, "k1", "k0") // a flip of the one ID may give the other
			bad := func(what string, f func([]byte) []byte) {
				t.Helper()
				_, err := s.Open(with(good, func(r *persist.Record) { field(r, f) }))
				var open *sealed.OpenError
				require.ErrorAs(t, err, &open, "%s, strict %t: %s", name, strict, what)
			}
			n := 0
			field(&persist.Record{Target: good.Target, Body: good.Body, Progress: good.Progress, Answer: with(good, func(*persist.Record) {}).Answer},
				func(b []byte) []byte { n = len(b); return b })
			require.NotZero(t, n)
			for i := range n {
				for bit := range 8 {
					bad(fmt.Sprint("bit ", bit, " of byte ", i), func(b []byte) []byte { b[i] ^= 1 << bit; return b })
				}
				bad(fmt.Sprint("cut to ", i), func(b []byte) []byte { return b[:i] })
			}
		}
	}
}

// TestBound: a sealed part opens in its own place only, beside what it was written with.
func TestBound(t *testing.T) {
	s := sealer(t, false, "k1")
	a, b := s.Seal(full("a")), s.Seal(full("b"))
	for name, change := range map[string]func(r *persist.Record){
		"scope":              func(r *persist.Record) { r.Scope = "tenant2" },
		"moved border":       func(r *persist.Record) { r.Scope, r.ID = "tenan", "ta" },
		"named":              func(r *persist.Record) { r.Named = false },
		"created":            func(r *persist.Record) { r.Created = r.Created.Add(1) },
		"method":             func(r *persist.Record) { r.Method = http.MethodPut },
		"key life":           func(r *persist.Record) { r.KeyLife++ },
		"request of another": func(r *persist.Record) { r.Target, r.Body = b.Target, b.Body },
	} {
		t.Run(name, func(t *testing.T) { refused(t, s, with(a, change), sealed.ErrChanged, "request", "k1") })
	}
	for name, change := range map[string]func(p *persist.Progress){
		"attempts":            func(p *persist.Progress) { p.Attempts = 0 },
		"first sent":          func(p *persist.Progress) { p.FirstSent = p.FirstSent.Add(time.Hour) },
		"seen":                func(p *persist.Progress) { p.Seen = time.Time{} },
		"not before":          func(p *persist.Progress) { p.NotBefore = time.Time{} },
		"parked":              func(p *persist.Progress) { p.Parked = true },
		"last status":         func(p *persist.Progress) { p.LastStatus = 0 },
		"progress of another": func(p *persist.Progress) { *p = b.Progress },
		"reason":              func(p *persist.Progress) { p.PollURL = a.Answer.Reason },
	} {
		t.Run(name, func(t *testing.T) {
			refused(t, s, with(a, func(r *persist.Record) { change(&r.Progress) }), sealed.ErrChanged, "progress", "k1")
		})
	}
	for name, change := range map[string]func(a *persist.Answer){
		"state":             func(a *persist.Answer) { a.State = persist.Succeeded },
		"status":            func(a *persist.Answer) { a.Status = 200 },
		"truncated":         func(a *persist.Answer) { a.Truncated = true },
		"keep body":         func(a *persist.Answer) { a.KeepBody = a.KeepBody.Add(time.Hour) },
		"keep name":         func(a *persist.Answer) { a.KeepName = time.Time{} },
		"owed":              func(a *persist.Answer) { a.Owed = true },
		"answer of another": func(a *persist.Answer) { *a = *b.Answer },
		"body of another":   func(a *persist.Answer) { a.Body = b.Answer.Body },
		"reason of another": func(a *persist.Answer) { a.Reason = b.Answer.Reason },
		"progress":          func(an *persist.Answer) { an.Reason = a.Progress.PollURL },
	} {
		t.Run(name, func(t *testing.T) {
			refused(t, s, with(a, func(r *persist.Record) { change(r.Answer) }), sealed.ErrChanged, "answer", "k1")
		})
	}
	refused(t, s, with(a, func(r *persist.Record) { r.Progress.PollURL = "" }), sealed.ErrChanged, "progress", "")
	refused(t, s, with(a, func(r *persist.Record) { r.Progress.PollURL = "https://thief.test/" }), sealed.ErrChanged, "progress", "")
	refused(t, s, with(a, func(r *persist.Record) { r.Answer.Reason = "" }), sealed.ErrChanged, "answer", "")
	refused(t, s, with(a, func(r *persist.Record) { r.Answer.Body = []byte("forged") }), sealed.ErrChanged, "answer", "")
	_, err := s.Open(a)
	require.NoError(t, err, "left alone it opens")
}

// TestKeys: each part opens under the key that it was sealed under, and under no other.
func TestKeys(t *testing.T) {
	old, both, renewed := sealer(t, true, "k1"), sealer(t, true, "k2", "k1"), sealer(t, true, "k2")
	r := old.Seal(full("op"))
	got, err := both.Open(r)
	require.NoError(t, err)
	require.Equal(t, full("op"), got)
	refused(t, renewed, r, sealed.ErrNoKey, "request", "k1")
	refused(t, old, both.Seal(full("op")), sealed.ErrNoKey, "request", "k2")

	mixed := with(r, func(r *persist.Record) { r.Answer = both.Seal(full("op")).Answer })
	_, err = both.Open(mixed)
	require.NoError(t, err)
	refused(t, old, mixed, sealed.ErrNoKey, "answer", "k2")

	other, err := sealed.New(sealed.Options{Keys: []sealed.Key{{ID: "k1", AEAD: key("another").AEAD}}})
	require.NoError(t, err)
	refused(t, other, r, sealed.ErrChanged, "request", "k1")
	refused(t, sealer(t, true, "k1", "k2"), with(r, func(r *persist.Record) { r.Target = ":sealed1:k2" }), sealed.ErrChanged, "request", "k2")
}

// TestPlain: what was written before sealing was introduced is read, part by part, unless Strict refuses it.
func TestPlain(t *testing.T) {
	loose, strict := sealer(t, false, "k1"), sealer(t, true, "k1")
	plain, s := full("op"), loose.Seal(full("op"))
	marked := with(plain, func(r *persist.Record) { r.Progress = s.Progress })
	settled := with(marked, func(r *persist.Record) { r.Answer = s.Answer })
	for _, r := range []persist.Record{plain, marked, settled} {
		got, err := loose.Open(r)
		require.NoError(t, err)
		require.Equal(t, plain, got)
		refused(t, strict, r, sealed.ErrNotSealed, "request", "")
	}
	// An operator's tool, which has no key, has abandoned a sealed operation.
	abandoned := with(s, func(r *persist.Record) {
		r.Answer = &persist.Answer{State: persist.Abandoned, Reason: "it was done by hand"}
	})
	got, err := loose.Open(abandoned)
	require.NoError(t, err)
	require.Equal(t, abandoned.Answer, got.Answer)
	refused(t, strict, abandoned, sealed.ErrNotSealed, "answer", "")

	tomb := persist.Record{Ref: plain.Ref, Answer: &persist.Answer{State: persist.Succeeded}}
	got, err = strict.Open(tomb)
	require.NoError(t, err, "a name alone is written by stores")
	require.Equal(t, tomb, got)
	require.Equal(t, tomb, strict.Seal(tomb))
	tomb.Answer = &persist.Answer{State: persist.Rejected, Reason: s.Answer.Reason}
	got, err = strict.Open(tomb)
	require.NoError(t, err)
	require.Equal(t, plain.Answer.Reason, got.Answer.Reason)
	refused(t, strict, with(tomb, func(r *persist.Record) { r.Answer.State = persist.Succeeded }), sealed.ErrChanged, "answer", "k1")
	refused(t, strict, with(tomb, func(r *persist.Record) { r.Answer.Reason = "by hand" }), sealed.ErrNotSealed, "answer", "")
}

// aead has a nonce of some size.
type aead struct {
	cipher.AEAD
	nonce int
}

func (a aead) NonceSize() int { return a.nonce }

func TestOptions(t *testing.T) {
	good := key("k").AEAD
	for want, keys := range map[string][]sealed.Key{
		"Options.Keys is empty":              nil,
		`the ID "" is not 1 to 32`:           {{AEAD: good}},
		`the ID "a:b" is not`:                {{ID: "a:b", AEAD: good}},
		`the ID "` + strings.Repeat("x", 33): {{ID: strings.Repeat("x", 33), AEAD: good}},
		`"k", has no AEAD`:                   {{ID: "k"}},
		`Keys[1]: "k" is there already`:      {{ID: "k", AEAD: good}, {ID: "k", AEAD: good}},
		"random nonces of 8 bytes":           {{ID: "k", AEAD: aead{good, 8}}},
	} {
		_, err := sealed.New(sealed.Options{Keys: keys})
		require.ErrorContains(t, err, want)
	}
}

// TestGolden opens what the first version wrote.
func TestGolden(t *testing.T) {
	decode := func(s string) []byte {
		b, err := base64.StdEncoding.DecodeString(s)
		require.NoError(t, err)
		return b
	}
	want := full("op")
	r := persist.Record{
		Ref: want.Ref, Named: true, Created: want.Created, Method: want.Method, KeyLife: want.KeyLife, Progress: want.Progress,
		Target: ":sealed1:k1", Body: decode(goldenRequest),
	}
	r.Progress.PollURL, r.Progress.LastError = goldenProgress, ""
	a := *want.Answer
	a.Header, a.Body, a.Reason = nil, decode(goldenAnswer), goldenReason
	r.Answer = &a
	got, err := sealer(t, true, "k1").Open(r)
	require.NoError(t, err)
	require.Equal(t, want, got)
}

const (
	goldenRequest = "wXE87fxcUlamF/sf4xlDF8igOQCj0s6flnYYWts8ShDf2/MxK+gAKOn2TuiiYs1VgEHsAVlyfelyILL+HJEd4l6+EaunJvbtsWdP" +
		"cp76IQTHrhFUjyRos0IB9qoeEAeqWaUrhZm/VdLwG+F9mrdt8REihv1ENdrJsh4AJMX1YPIq6v7VCCemUJB7Qi3gyqIsSYlQ5nu3" +
		"VVvSmwD93Mh2GDW/dQbCLlwpn5g224kj3xt/V1JDweaV"
	goldenProgress = ":sealed1:k1:SW9cBGXOwJ0gmcgCw8M3zMAZPuTb54Q9PBF+5iz11rdzetS9v8ocEGOqjMBVuAgaufgzYxbCdpsMbKD8rynNm8YJ" +
		"i6j9"
	goldenAnswer = "AHNlYWxlZDE9l9y+AOmUmKV+fEh+5263OrkSVtcMT1m4ZGdt6lgBNz0AG/cYiUVAZOJOAoBf26cGJ84="
	goldenReason = ":sealed1:k1:xZ+XeaaPuFafiXY3+nR/6prFH7XfNpMQ2hQK6PIqu+nq7jCMsjm12IrHrQ"
)

// TestKeyOf: which key a record needs can be told without it.
func TestKeyOf(t *testing.T) {
	s, err := sealed.New(sealed.Options{Keys: []sealed.Key{key("2026-12")}})
	require.NoError(t, err)
	plain := persist.Record{Ref: persist.Ref{ID: "a"}, Key: "k", Method: "POST", Target: "https://a.test/", Answer: &persist.Answer{State: persist.Succeeded, Status: 201}}
	rec := s.Seal(plain)
	for _, text := range []string{rec.Target, rec.Progress.PollURL, rec.Answer.Reason} {
		id, is := sealed.KeyOf(text)
		require.True(t, is)
		require.Equal(t, "2026-12", id)
	}
	for _, text := range []string{plain.Target, "", "sealed1:x"} {
		id, is := sealed.KeyOf(text)
		require.False(t, is)
		require.Empty(t, id)
	}
}
