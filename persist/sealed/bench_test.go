package sealed_test

import (
	"fmt"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/samekey/samekey/persist"
	"github.com/samekey/samekey/persist/journal"
	"github.com/samekey/samekey/persist/memory"
)

// BenchmarkCommand is a command from Begin to a settle that is kept, and once more without an answer to keep: what
// sealing adds to a store.
func BenchmarkCommand(b *testing.B) {
	seal := sealer(b, true, "k1")
	for _, store := range []string{"memory", "journal"} {
		for _, size := range []int{200, 16 << 10} {
			for _, kept := range []bool{true, false} {
				for _, how := range []string{"plain", "sealed"} {
					b.Run(fmt.Sprintf("%s/%dB/kept=%t/%s", store, size, kept, how), func(b *testing.B) {
						s := memory.New()
						if store == "journal" {
							j, err := journal.Open(b.Context(), filepath.Join(b.TempDir(), "journal"), journal.Options{Logger: quiet})
							require.NoError(b, err)
							s = j
						}
						defer s.Close()
						if how == "sealed" {
							s = seal.Store(s)
						}
						body := make([]byte, size)
						b.ReportAllocs()
						for i := 0; b.Loop(); i++ {
							command(b, s, strconv.Itoa(i), body, kept)
						}
					})
				}
			}
		}
	}
}

func command(b *testing.B, s persist.Store, id string, body []byte, kept bool) {
	r := full(id)
	r.Answer, r.Body, r.Created = nil, body, time.Now()
	e, err := s.Begin(b.Context(), r)
	if err != nil {
		b.Fatal(err)
	}
	a := persist.Answer{State: persist.Succeeded, Status: 201, Lazy: true}
	if kept {
		a.Header, a.Body = r.Header, body
		a.KeepBody = time.Now().Add(time.Millisecond)
	}
	if err := s.Settle(b.Context(), e.Claim, a); err != nil {
		b.Fatal(err)
	}
}

// BenchmarkOpen is what a List adds for each record.
func BenchmarkOpen(b *testing.B) {
	s := sealer(b, true, "k1")
	for _, size := range []int{200, 16 << 10} {
		b.Run(fmt.Sprintf("%dB", size), func(b *testing.B) {
			r := full("op")
			r.Body = make([]byte, size)
			out := s.Seal(r)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := s.Open(out); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
