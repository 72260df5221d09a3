package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/samekey/samekey/persist/journal"
)

func init() { rawSize = 1 << 20 } // quicker to look through

// Every store has on disk what it acknowledged, whether it was closed or not; and a settle has reached it by the close.
func TestStoresKeepWhatTheyAcknowledge(t *testing.T) {
	for _, m := range stores {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			s, err := m.open(dir, 4)
			require.NoError(t, err)
			var kept, gone []string
			for i := range 8 {
				id, ended := fmt.Sprintf("kept-%04d", i), fmt.Sprintf("gone-%04d", i)
				token, err := s.begin(ended)
				require.NoError(t, err)
				require.NoError(t, s.settle(ended, token))
				kept, gone = append(kept, id), append(gone, ended)
			}
			done := make(chan error, len(kept))
			for _, id := range kept {
				go func() {
					_, err := s.begin(id)
					done <- err
				}()
			}
			for range kept {
				require.NoError(t, <-done)
			}
			crashed := t.TempDir()
			copyTo(t, dir, crashed)
			require.NoError(t, s.close())

			for _, d := range []string{crashed, dir} {
				s, err := m.open(d, 4)
				require.NoError(t, err)
				for _, id := range kept {
					has, err := s.has(id)
					require.NoError(t, err)
					require.True(t, has, id)
				}
				for _, id := range gone {
					has, err := s.has(id)
					require.NoError(t, err)
					require.False(t, has && d == dir && m.name != "raw", id)
				}
				has, err := s.has("unknown")
				require.NoError(t, err)
				require.False(t, has)
				require.NoError(t, s.close())
			}
		})
	}
}

// copyTo copies the files of a store that is in use, as a crash of its process would leave them.
func copyTo(t *testing.T, from, to string) {
	require.NoError(t, filepath.WalkDir(from, func(path string, e os.DirEntry, err error) error {
		if err != nil || path == from {
			return err
		}
		rel, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		if e.IsDir() {
			return os.Mkdir(filepath.Join(to, rel), 0o700)
		}
		in, err := os.Open(path)
		if err != nil {
			return err
		}
		defer in.Close()
		out, err := os.OpenFile(filepath.Join(to, rel), os.O_WRONLY|os.O_CREATE, 0o600)
		if err != nil {
			return err
		}
		defer out.Close()
		buf, zeros := make([]byte, 1<<20), make([]byte, 1<<20) // what is zero stays a hole: some of these files are large
		for off := int64(0); ; {
			n, err := in.Read(buf)
			if !bytes.Equal(buf[:n], zeros[:n]) {
				if _, err := out.WriteAt(buf[:n], off); err != nil {
					return err
				}
			}
			off += int64(n)
			if err == io.EOF {
				return out.Truncate(off)
			}
			if err != nil {
				return err
			}
		}
	}))
}

func TestSQLiteSynchronous(t *testing.T) {
	s, err := newSQLite(t.TempDir())
	require.NoError(t, err)
	defer s.close()
	var mode string
	require.NoError(t, s.db.QueryRow(`PRAGMA journal_mode`).Scan(&mode))
	require.Equal(t, "wal", mode)
	var sync int
	require.NoError(t, s.db.QueryRow(`PRAGMA synchronous`).Scan(&sync))
	require.Equal(t, 2, sync, "FULL")
}

// The journal's own record is as large as what the others are given.
func TestJournalRecordSize(t *testing.T) {
	s, err := newJournal(t.TempDir(), journal.Options{})
	require.NoError(t, err)
	defer s.close()
	_, err = s.begin(nextID())
	require.NoError(t, err)
	before := s.Stats().Written
	_, err = s.begin(nextID())
	require.NoError(t, err)
	require.InDelta(t, recordSize, s.Stats().Written-before, 10)
}

// A client's call arrives, with a key if it is samekey's.
func TestClients(t *testing.T) {
	for _, name := range clientNames {
		var got *http.Request
		c, err := newClient(name, spy{&got}, t.TempDir())
		require.NoError(t, err)
		require.NoError(t, c.pay("http://bank.test/"))
		body, err := io.ReadAll(got.Body)
		require.NoError(t, err)
		require.Equal(t, payment, body)
		require.Equal(t, strings.HasPrefix(name, "samekey"), got.Header.Get("Idempotency-Key") != "", name)
		require.NoError(t, c.close())
	}
}

type spy struct{ got **http.Request }

func (s spy) RoundTrip(req *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return nil, err
	}
	req = req.Clone(req.Context())
	req.Body = io.NopCloser(bytes.NewReader(body))
	resp, err := nowhere{}.RoundTrip(req)
	req.Body = io.NopCloser(bytes.NewReader(body))
	*s.got = req
	return resp, err
}

func TestFigures(t *testing.T) {
	one := func(s sample) []sample { return []sample{s} }
	ms := time.Millisecond
	r := results{
		// Rates: 200, 300, 100 a second beside 100 each time; the fourth round has no partner.
		"journal@1": {{Ops: 20, Took: 100 * ms, Syncs: 21}, {Ops: 30, Took: 100 * ms, Syncs: 30}, {Ops: 10, Took: 100 * ms, Syncs: 12}, {Ops: 90, Took: ms}},
		"raw@1":     {{Ops: 10, Took: 100 * ms}, {Ops: 20, Took: 200 * ms}, {Ops: 5, Took: 50 * ms}},

		"journal@64":            one(sample{Ops: 300, Took: 100 * ms, Syncs: 9}),
		"pebble@64":             one(sample{Ops: 100, Took: 100 * ms}),
		"journal alone@64":      one(sample{Ops: 100, Allocs: 90}),
		"journal@open":          one(sample{Took: 2 * ms}),
		"files@read":            one(sample{Took: 8 * ms}),
		"journal@pending":       one(sample{Ops: 10, Bytes: 1280}),
		"journal@disk":          one(sample{Ops: 10, Bytes: 4*segmentSize + 1}),
		"samekey memory@call":   one(sample{Ops: 10, Took: 20 * ms, Allocs: 300, Bytes: 50_000}),
		"failsafe-go@call":      one(sample{Ops: 20, Took: 20 * ms}),
		"net/http@call":         one(sample{Ops: 10, Took: ms, Allocs: 100, Bytes: 10_000}),
		"samekey memory@0ms":    one(sample{Ops: 84, Took: ms}),
		"net/http@0ms":          one(sample{Ops: 100, Took: ms}),
		"samekey journal@paced": one(sample{P50: 8 * ms}),
		"net/http@paced":        one(sample{P50: 5 * ms}),
		"raw@paced":             one(sample{P50: 2 * ms}),
	}
	want := map[string]struct {
		figure float64
		ok     bool
	}{
		"J1@1": {2, true}, "J2@1": {1.025, true}, "J2@64": {0.03, true}, "J3 pebble": {3, true}, "J4@64": {0.9, true}, "J5": {0.25, true},
		"J6": {128, true}, "J7": {4 + 1.0/segmentSize, false}, "H1 time": {2, false}, "H1 allocs": {20, true}, "H1 bytes": {4000, true},
		"H2@0ms": {0.84, false}, "H4": {1.5, true},
	}
	for _, b := range bars {
		v, has := b.judge(r)
		w, expected := want[b.name]
		require.Equal(t, expected, has, b.name)
		if has {
			require.InDelta(t, w.figure, v.Figure, 1e-9, b.name)
			require.Equal(t, w.ok, v.OK, b.name)
		}
	}
	v, _ := bars[0].judge(r)
	require.Equal(t, 3, v.Rounds)
	require.InDelta(t, 1, v.Low, 1e-9)
	require.InDelta(t, 3, v.High, 1e-9)
	require.InDelta(t, 2.5, median([]float64{4, 1, 3, 2}), 0)
}

// Each bar's runs are made by some experiment, and what is chosen is what was asked for.
func TestChoose(t *testing.T) {
	made := map[string]bool{}
	for _, e := range experiments() {
		for _, r := range e.runs {
			made[r] = true
		}
	}
	for _, b := range bars {
		for _, r := range b.runs {
			require.True(t, made[r], "%s needs %s", b.name, r)
		}
	}
	all, wanted, err := choose("", false)
	require.NoError(t, err)
	require.Len(t, all, len(bars))
	require.Equal(t, made, wanted)

	_, wanted, err = choose("", true)
	require.NoError(t, err)
	require.True(t, wanted["pebble@64"])
	require.False(t, wanted["pebble@8"])
	require.False(t, wanted["badger@64"])

	some, wanted, err := choose("^(J3 pebble|files@8)$", true)
	require.NoError(t, err)
	require.Len(t, some, 1)
	require.Equal(t, map[string]bool{"journal@64": true, "pebble@64": true, "files@8": true}, wanted)

	_, _, err = choose("nothing", false)
	require.ErrorContains(t, err, "selects nothing")
	_, _, err = choose("(", false)
	require.Error(t, err)
}

// The program from end to end, at what is quick to measure.
func TestRun(t *testing.T) {
	file := filepath.Join(t.TempDir(), "out.json")
	var out, log bytes.Buffer
	_, err := run([]string{"-quick", "-rounds", "1", "-only", "^(J1@8|H1 allocs)$", "-dir", t.TempDir(), "-json", file}, &out, &log)
	require.NoError(t, err, log.String())
	require.Regexp(t, regexp.MustCompile(`(?m)^J1@8 .* journal / raw group commit .* >= 0.80 +(ok|MISS)`), out.String())
	require.Contains(t, out.String(), "2 bars")
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	var r report
	require.NoError(t, json.Unmarshal(text, &r))
	require.Len(t, r.Bars, 2)
	require.Positive(t, r.Runs["journal@8"][0].Ops)
	require.NotEmpty(t, r.Machine.FS)

	log.Reset()
	_, err = run([]string{"-h"}, &out, &log)
	require.Error(t, err)
	for _, want := range []string{"J1@512", "-only", "-strict", "tmpfs"} {
		require.Contains(t, log.String(), want)
	}
	_, err = run([]string{"more"}, &out, &log)
	require.ErrorContains(t, err, `unexpected argument "more"`)
}
