package samekey

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/samekey/samekey/internal/canonjson"
	"github.com/samekey/samekey/persist"
)

// doc writes random JSON, each time in another spelling: the values are drawn from one seed, white space, escapes and the
// order of members from another.
type doc struct {
	values, style *rand.Rand
}

func newDoc(values, style uint64) doc {
	return doc{rand.New(rand.NewPCG(values, 1)), rand.New(rand.NewPCG(style, 2))}
}

func (d doc) space() string {
	return strings.Repeat([]string{"", " ", "\n", "\t", "\r\n  "}[d.style.IntN(5)], d.style.IntN(2))
}

var texts = []string{"", "a", "id", "é", "😀", `"`, `\`, "/", "~", "<b>&", "\u2028", "\x00\x1f", "meta", "null", "日本"}

// text is a string, some of its characters escaped.
func (d doc) text(s string) string {
	var b strings.Builder
	for _, r := range s {
		switch {
		case r < ' ' || d.style.IntN(3) == 0 && r < 0x10000:
			fmt.Fprintf(&b, `\u%04x`, r)
		case r == '"' || r == '\\' || r == '/' && d.style.IntN(2) == 0:
			b.WriteByte('\\')
			b.WriteRune(r)
		default:
			b.WriteRune(r)
		}
	}
	return `"` + b.String() + `"`
}

var scalars = []string{"null", "true", "false", "0", "-0", "1.0", "1e2", "12345678901234567890123", "0.1000000000000000055511151231257827", "-1E-400", "9007199254740993"}

func (d doc) value(depth int) string {
	switch kind := d.values.IntN(5); {
	case kind == 0 && depth > 0:
		var items []string
		for range d.values.IntN(4) {
			items = append(items, d.space()+d.value(depth-1)+d.space())
		}
		return "[" + strings.Join(items, ",") + d.space() + "]"
	case kind <= 2 && depth > 0:
		return d.object(depth, nil, "")
	case kind == 3:
		return d.text(texts[d.values.IntN(len(texts))])
	}
	return scalars[d.values.IntN(len(scalars))]
}

// object has members of random names, and, where path says so, the objects on the way to a member with a value of its
// own ("" for no such member).
func (d doc) object(depth int, path []string, value string) string {
	var members []string
	add := func(name, value string) {
		members = append(members, d.space()+d.text(name)+d.space()+":"+d.space()+value+d.space())
	}
	for i := range d.values.IntN(4) {
		add(texts[d.values.IntN(len(texts))]+fmt.Sprint(i), d.value(depth-1))
	}
	switch {
	case len(path) > 1:
		add(path[0], d.object(depth-1, path[1:], value))
	case len(path) == 1 && value != "":
		add(path[0], d.text(value))
	}
	d.style.Shuffle(len(members), func(i, j int) { members[i], members[j] = members[j], members[i] })
	return "{" + strings.Join(members, ",") + d.space() + "}"
}

// tokens reads a document in its own order, numbers as written.
func tokens(t *testing.T, b []byte) (out []string) {
	t.Helper()
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.UseNumber()
	for {
		tok, err := dec.Token()
		if err == io.EOF {
			return out
		}
		require.NoError(t, err, "%s", b)
		out = append(out, fmt.Sprintf("%T %v", tok, tok))
	}
}

// at decodes the value at path.
func at(t *testing.T, b []byte, path []string) (v any) {
	t.Helper()
	require.NoError(t, json.Unmarshal(b, &v))
	for _, name := range path {
		v = v.(map[string]any)[name]
	}
	return v
}

// inserted says where and what was put into before to make after; false if anything else has changed.
func inserted(before, after []byte) (start int, what string, ok bool) {
	n := len(after) - len(before)
	if n < 0 {
		return 0, "", false
	}
	for start < len(before) && before[start] == after[start] {
		start++
	}
	// What is inserted may begin as what follows does: any place up to here serves, this one if any.
	return start, string(after[start : start+n]), bytes.Equal(after[start+n:], before[start:])
}

var paths = [][]string{{"requestId"}, {"meta", "id"}, {"a", "b", "c"}, {"/~"}, {"é😀", `q"\`}, {""}, {"meta", "<key>"}}

// The carrier adds one string member to a body and leaves every other byte alone; a member that is there gives way, and
// only it.
func TestCarrierChangesOnlyTheMember(t *testing.T) {
	for seed := range uint64(3000) {
		path := paths[seed%uint64(len(paths))]
		con := Contract{Carrier: BodyMember(canonjson.Pointer(path).String())}.compile(func(field, why string) { t.Fatal(field, why) })
		without := []byte(newDoc(seed, seed).object(4, path, ""))
		var rec persist.Record
		with, why := con.carry(&rec, "key-1", slices.Clone(without))
		require.Empty(t, why, "%s", without)
		start, what, ok := inserted(without, with)
		require.True(t, ok, "%s became %s", without, with)
		require.Contains(t, what, "key-1", "at %d", start)
		require.Equal(t, "key-1", at(t, with, path))
		require.Len(t, tokens(t, with), len(tokens(t, without))+2, "one name and one value more")
		require.Equal(t, others(t, with, "key-1"), tokens(t, without))
		require.Empty(t, rec.Header)
		require.Empty(t, rec.Target)

		other, why := con.carry(&rec, `other "key"`, slices.Clone(with))
		require.Empty(t, why)
		require.Equal(t, strings.Replace(string(with), `"key-1"`, `"other \"key\""`, 1), string(other))
		back, _ := con.carry(&rec, "key-1", other)
		require.Equal(t, string(with), string(back))
	}
}

// others are the tokens but for the string value and the name before it.
func others(t *testing.T, b []byte, value string) []string {
	all := tokens(t, b)
	i := slices.Index(all, "string "+value)
	require.Positive(t, i)
	return slices.Delete(all, i-1, i+1)
}

// Two spellings of one body, with whatever keys or none in them, are one command; a body that differs elsewhere is not.
func TestFingerprintIgnoresTheKey(t *testing.T) {
	for seed := range uint64(1500) {
		path := paths[seed%uint64(len(paths))]
		pl := planOf(t, BodyMember(canonjson.Pointer(path).String()))
		first := newDoc(seed, 1).object(4, path, "")
		stored := captured(t, pl, "http://api.test/x", "application/json", first)
		for style, key := range []string{"", "key-1", "another"} {
			again := newDoc(seed, uint64(style)+seed).object(4, path, key)
			same := captured(t, pl, "http://api.test/x", "application/json", again)
			require.True(t, same.sameAs(&stored.rec), "%s and %s", first, again)
			require.True(t, stored.sameAs(&same.rec), "%s and %s", again, first)
		}
		differs := newDoc(seed, 3).object(4, path, "")
		changed := strings.Replace(differs, "{", `{"`+"added"+`":1,`, 1)
		if strings.HasPrefix(strings.TrimSpace(differs[1:]), "}") {
			changed = `{"added":1}`
		}
		require.False(t, captured(t, pl, "http://api.test/x", "application/json", changed).sameAs(&stored.rec), "%s and %s", first, changed)
	}
}

// The same of forms and queries, whose other pairs keep their order and spelling.
func TestCarrierOfPairs(t *testing.T) {
	spell := func(r *rand.Rand, s string) string {
		var b strings.Builder
		for _, c := range []byte(s) {
			if c > 'z' || r.IntN(3) == 0 || strings.ContainsRune("&=+%?#/ ;\x00\x1f", rune(c)) {
				fmt.Fprintf(&b, "%%%02X", c)
			} else {
				b.WriteByte(c)
			}
		}
		return b.String()
	}
	for seed := range uint64(2000) {
		r := rand.New(rand.NewPCG(seed, 3))
		name := []string{"k", "request id", "é", "a[b]", "k=1&"}[seed%5]
		var pairs []string
		for range r.IntN(5) {
			pairs = append(pairs, spell(r, texts[r.IntN(len(texts))]+"x")+[]string{"=", ""}[r.IntN(2)]+spell(r, texts[r.IntN(len(texts))]))
		}
		raw := strings.Join(pairs, "&")
		form, query := planOf(t, FormField(name)), planOf(t, QueryParam(name))
		const kind = "application/x-www-form-urlencoded"
		target := "http://api.test/x"
		if raw != "" {
			target += "?" + raw
		}
		plainForm := captured(t, form, "http://api.test/x", kind, raw)
		plainQuery := captured(t, query, target, "text/plain", "body")

		for _, cmd := range []*command{plainForm, plainQuery} {
			text, rec := string(cmd.body), cmd.rec
			if cmd == plainQuery {
				text = cmd.url.RawQuery
				require.Equal(t, "body", string(cmd.body))
				require.Equal(t, rec.Target, cmd.url.String(), "what is stored is what is sent")
			}
			before, ok := strings.CutSuffix(text, url.QueryEscape(name)+"="+url.QueryEscape(rec.Key))
			require.True(t, ok, text)
			require.Equal(t, raw, strings.TrimSuffix(before, "&"))
			values, err := url.ParseQuery(text)
			require.NoError(t, err)
			require.Equal(t, []string{rec.Key}, values[name])
		}

		own := spell(r, name) + "=mine-1"
		place := r.IntN(len(pairs) + 1)
		keyed := strings.Join(slices.Insert(slices.Clone(pairs), place, own), "&")
		sameForm := captured(t, form, "http://api.test/x", kind, keyed)
		sameQuery := captured(t, query, "http://api.test/x?"+keyed, "text/plain", "body")
		for _, p := range [][2]*command{{plainForm, sameForm}, {plainQuery, sameQuery}} {
			require.Equal(t, "mine-1", p[1].rec.Key)
			require.True(t, p[1].sameAs(&p[0].rec), "%s and %s", raw, keyed)
			require.True(t, p[0].sameAs(&p[1].rec), "%s and %s", keyed, raw)
		}
		more := strings.TrimPrefix(raw+"&added=1", "&")
		require.False(t, captured(t, form, "http://api.test/x", kind, more).sameAs(&plainForm.rec), more)
		require.False(t, captured(t, query, "http://api.test/x?"+more, "text/plain", "body").sameAs(&plainQuery.rec), more)
	}
}

func planOf(t *testing.T, carrier Carrier) *plan {
	t.Helper()
	pl, err := compile("", Policy{Contract: &Contract{Carrier: carrier}}, builtin(), nil)
	require.NoError(t, err)
	return pl
}

// captured is a request as Do would take it in.
func captured(t *testing.T, pl *plan, target, kind, body string) *command {
	t.Helper()
	req, err := http.NewRequest(http.MethodPost, target, strings.NewReader(body))
	require.NoError(t, err)
	req.Header.Set("Content-Type", kind)
	cmd, err := (&core{}).capture(Named(req, "op"), pl)
	require.NoError(t, err)
	return cmd
}
