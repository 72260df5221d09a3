package journal

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/samekey/samekey/internal/crashfs"
	"github.com/samekey/samekey/persist"
)

func payloads(f *testing.F) [][]byte {
	var out [][]byte
	for i, r := range goldenRecords() {
		out = append(out, appendPut(nil, uint64(i+1), &r), appendMark(nil, uint64(i+1), &r.Progress), appendRemove(nil, uint64(i+1)))
		if r.Answer != nil {
			out = append(out, appendSettle(nil, uint64(i+1), r.Answer), appendTomb(nil, uint64(i+1), &r))
		}
	}
	require.NotEmpty(f, out)
	return append(out, appendTrim(nil, 1), appendUint([]byte{kindCut}, 9000), []byte{kindVoid, 0}, append([]byte{kindLink}, zeros[:12]...))
}

// FuzzDecode: no payload makes the decoders panic, and what they accept is encoded to the same again.
func FuzzDecode(f *testing.F) {
	for _, p := range payloads(f) {
		f.Add(p)
	}
	f.Fuzz(func(t *testing.T, p []byte) {
		if len(p) == 0 {
			return
		}
		_, _, _, _ = peek(p)
		_, _, _ = decodeMark(p)
		_, _, _ = decodeSettle(p)
		opid, rec, err := decodeRecord(p)
		if err != nil {
			return
		}
		var again []byte
		if p[0] == kindTomb {
			again = appendTomb(nil, opid, &rec)
		} else {
			again = appendPut(nil, opid, &rec)
		}
		opid2, rec2, err := decodeRecord(again)
		require.NoError(t, err)
		require.Equal(t, opid, opid2)
		require.Equal(t, rec, rec2)
	})
}

// FuzzOpen puts bytes behind the header of a segment: as they are, or cut into frames with good checksums. Open copes,
// what it says stays the same the next time, and what is begun then is found.
func FuzzOpen(f *testing.F) {
	var all []byte
	for _, p := range payloads(f) {
		f.Add(append([]byte{1, byte(len(p))}, p...))
		all = append(append(all, byte(len(p))), p...)
	}
	f.Add(append([]byte{1}, all...))
	image := fifty(f).Bytes(segmentName(1))
	f.Add(append([]byte{0}, image[dataStart:]...))
	h, _, err := readHeader(image[:dataStart])
	require.NoError(f, err)
	f.Fuzz(func(t *testing.T, in []byte) {
		if len(in) == 0 || len(in) > damageSize-dataStart-frameHeader*64 {
			return
		}
		seg := make([]byte, damageSize)
		copy(seg, image[:dataStart])
		if in[0]%2 == 0 {
			copy(seg[dataStart:], in[1:])
		} else {
			copy(seg[dataStart:], framed(h, in[1:]))
		}
		disk := crashfs.New(1)
		disk.SetBytes(segmentName(1), seg)
		ctx := context.Background()
		j, err := openSim(disk, damageSize)
		require.NoError(t, err)
		before, damaged := contents(j)
		e, err := j.Begin(ctx, persist.Record{Ref: persist.Ref{Scope: "fuzz", ID: "new"}, Method: "POST"})
		if damaged && errors.As(err, new(*DamagedError)) {
			err = nil // the name of one that cannot be read back
		}
		require.NoError(t, err)
		if e.New {
			before[e.Ref] = describe(e.Record)
		}
		require.NoError(t, j.Close())
		j, err = openSim(disk, damageSize)
		require.NoError(t, err)
		after, _ := contents(j)
		for ref := range before {
			require.Equal(t, before[ref], after[ref])
		}
		if !damaged { // else compaction may have saved the request of one whose answer or mark cannot be read
			require.Len(t, after, len(before))
		}
		require.NoError(t, j.Compact(ctx))
		after, damaged = contents(j)
		require.False(t, damaged, "compaction leaves nothing that cannot be read")
		require.NoError(t, j.Close())
		j, err = openSim(disk, damageSize)
		require.NoError(t, err)
		again, _ := contents(j)
		require.Equal(t, after, again)
		require.NoError(t, j.Close())
	})
}

// framed makes frames of payloads that a byte of length goes ahead of.
func framed(h header, in []byte) []byte {
	var out []byte
	for len(in) > 1 {
		n := min(int(in[0]), len(in)-1)
		if n > 0 {
			at := len(out)
			out = append(openFrame(out), in[1:1+n]...)
			closeFrame(out, at)
		}
		in = in[1+n:]
	}
	s := &segment{header: h, crc: h.seed()}
	s.chain(out, dataStart)
	if len(out) > damageSize-dataStart {
		return nil
	}
	return out
}

// contents is what can be read back, and whether something cannot.
func contents(j *Journal) (m map[persist.Ref]string, damaged bool) {
	m = map[persist.Ref]string{}
	for r, err := range j.List(context.Background(), persist.Filter{}) {
		if err == nil {
			m[r.Ref] = describe(r)
		}
		damaged = damaged || err != nil
	}
	return m, damaged
}
