package sealed

import (
	"crypto/aes"
	"crypto/cipher"
	"errors"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/samekey/samekey/persist"
)

// FuzzContents: whatever a holder of the key has sealed, it opens, or is an error.
func FuzzContents(f *testing.F) {
	block, err := aes.NewCipher(make([]byte, 16))
	require.NoError(f, err)
	aead, err := cipher.NewGCM(block)
	require.NoError(f, err)
	s, err := New(Options{Keys: []Key{{ID: "k", AEAD: aead}}})
	require.NoError(f, err)

	h := http.Header{"A": {"b", ""}, "C": nil}
	request := writer(nil)
	request.string("key")
	request.string("target")
	request.header(h)
	request.strings([]string{"x", "y"})
	request.string(string(make([]byte, 32)))
	request.body([]byte("body"))
	progress := writer(nil)
	progress.string("poll")
	progress.string("error")
	answer := writer(nil)
	answer.header(h)
	answer.body(nil)
	for _, w := range []writer{request, progress, answer} {
		for i := range w {
			f.Add([]byte(w[:i]))
		}
		f.Add([]byte(w))
		f.Add(append([]byte(w), 0xff))
	}
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01})

	f.Fuzz(func(t *testing.T, b []byte) {
		sealed := func(dst string, bound writer) []byte { return s.seal(dst, bound, writer(append([]byte{}, b...))) }
		in := func(bound writer) string { return mark + "k:" + text.EncodeToString(sealed("", bound)) }
		good := s.Seal(persist.Record{Ref: persist.Ref{ID: "op"}, Key: "key", Answer: &persist.Answer{State: 1, Status: 200}})
		for _, change := range []func(r *persist.Record, a *persist.Answer){
			func(r *persist.Record, _ *persist.Answer) { r.Body = sealed("", bindRequest(r)) },
			func(r *persist.Record, _ *persist.Answer) { r.Progress.PollURL = in(bindProgress(r.Ref, &r.Progress)) },
			func(r *persist.Record, a *persist.Answer) { a.Body = sealed(magic, bindAnswer(r.Ref, a)) },
			func(r *persist.Record, a *persist.Answer) { a.Reason = in(bindReason(r.Ref, a)) },
		} {
			r, a := good, *good.Answer
			r.Answer = &a
			change(&r, &a)
			got, err := s.Open(r)
			if err != nil && !errors.Is(err, ErrChanged) {
				t.Fatal(err)
			}
			if err != nil && got.ID != "" {
				t.Fatal("an error, and a record")
			}
		}
	})
}
