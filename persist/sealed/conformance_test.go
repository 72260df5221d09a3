package sealed_test

import (
	"bytes"
	"context"
	"crypto/aes"
	"crypto/cipher"
	"encoding/binary"
	"hash/crc32"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/samekey/samekey/persist"
	"github.com/samekey/samekey/persist/journal"
	"github.com/samekey/samekey/persist/memory"
	"github.com/samekey/samekey/persist/persisttest"
	"github.com/samekey/samekey/persist/sealed"
)

var quiet = slog.New(slog.DiscardHandler)

// key is AES-256-GCM, under a key that its ID makes up.
func key(id string) sealed.Key {
	block, err := aes.NewCipher(bytes.Repeat([]byte(id+"!"), 32)[:32])
	if err != nil {
		panic(err)
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		panic(err)
	}
	return sealed.Key{ID: id, AEAD: aead}
}

// sealer seals under the first of ids.
func sealer(t testing.TB, strict bool, ids ...string) *sealed.Sealer {
	t.Helper()
	o := sealed.Options{Strict: strict, Logger: quiet}
	for _, id := range ids {
		o.Keys = append(o.Keys, key(id))
	}
	s, err := sealed.New(o)
	require.NoError(t, err)
	return s
}

func TestMemory(t *testing.T) {
	s := sealer(t, true, "k1")
	persisttest.Run(t, persisttest.Harness{
		New: func(testing.TB) func() (persist.Store, error) {
			return func() (persist.Store, error) { return s.Store(memory.New()), nil }
		},
		Bubble: true,
	})
}

// TestJournal gives each life of a journal another key to seal with.
func TestJournal(t *testing.T) {
	sealers := []*sealed.Sealer{sealer(t, true, "k1", "k2"), sealer(t, true, "k2", "k1")}
	var homes sync.Map // store to home
	of := func(s persist.Store) *home {
		h, _ := homes.Load(s)
		return h.(*home)
	}
	persisttest.Run(t, persisttest.Harness{
		New: func(t testing.TB) func() (persist.Store, error) {
			h := &home{t: t, dir: filepath.Join(t.TempDir(), "journal")}
			t.Cleanup(h.check)
			lives := 0
			return func() (persist.Store, error) {
				j, err := journal.Open(context.Background(), h.dir, journal.Options{SegmentSize: 64 << 10, Logger: quiet})
				if err != nil {
					return nil, err
				}
				lives++
				s := sealers[lives%2].Store(j)
				homes.Store(s, h)
				return s, nil
			}
		},
		Durable: true,
		Bubble:  true,
		Crash:   func(s persist.Store) { of(s).crash() },
		Break:   func(s persist.Store) { of(s).oust() },
	})
}

// home is where a journal lives.
type home struct {
	t   testing.TB
	dir string
}

// crash leaves the dying owner its directory, and has the next one find what lay in it at this instant.
func (h *home) crash() {
	files := snapshot(h.t, h.dir)
	for again := snapshot(h.t, h.dir); !sameFiles(files, again); again = snapshot(h.t, h.dir) {
		files = again // it was still writing
	}
	h.dir += "+"
	require.NoError(h.t, os.Mkdir(h.dir, 0o700))
	for name, b := range files {
		require.NoError(h.t, os.WriteFile(filepath.Join(h.dir, name), b, 0o600))
	}
}

func snapshot(t testing.TB, dir string) map[string][]byte {
	t.Helper()
	for {
		files := map[string][]byte{}
		list, err := os.ReadDir(dir)
		require.NoError(t, err)
		for _, f := range list {
			b, err := os.ReadFile(filepath.Join(dir, f.Name()))
			if os.IsNotExist(err) {
				break
			}
			require.NoError(t, err)
			files[f.Name()] = b
		}
		if len(files) == len(list) {
			return files
		}
	}
}

func sameFiles(a, b map[string][]byte) bool {
	for name := range a {
		if !bytes.Equal(a[name], b[name]) {
			return false
		}
	}
	return len(a) == len(b)
}

// oust leaves the stamp that another owner would, which a journal looks for at each write (FORMAT.md).
func (h *home) oust() {
	name := filepath.Join(h.dir, "lock")
	b, err := os.ReadFile(name)
	require.NoError(h.t, err)
	require.Len(h.t, b, 40)
	b[8]++
	binary.LittleEndian.PutUint32(b[36:], crc32.Checksum(b[:36], crc32.MakeTable(crc32.Castagnoli)))
	f, err := os.OpenFile(name, os.O_WRONLY, 0)
	require.NoError(h.t, err)
	_, err = f.WriteAt(b, 0)
	require.NoError(h.t, err)
	require.NoError(h.t, f.Close())
}

func (h *home) check() {
	if _, err := os.Stat(h.dir); err != nil {
		return
	}
	r, err := journal.Check(h.dir)
	require.NoError(h.t, err)
	require.Empty(h.t, r.Damage)
}
