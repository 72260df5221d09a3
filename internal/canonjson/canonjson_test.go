package canonjson

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func pointers(t testing.TB, ss ...string) (ps []Pointer) {
	t.Helper()
	for _, s := range ss {
		p, err := ParsePointer(s)
		require.NoError(t, err)
		ps = append(ps, p)
	}
	return ps
}

func nested(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }

func TestCanonical(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{`null`, `null`},
		{" \t\r\ntrue \t\r\n", `true`},
		{`false`, `false`},
		{`0`, `0`}, {`-0`, `-0`}, {`1`, `1`}, {`1.0`, `1.0`}, {`1e0`, `1e0`}, {`1E0`, `1E0`}, {`1E+0`, `1E+0`}, {`-1.25e-10`, `-1.25e-10`},
		{`123456789012345678901234567890`, `123456789012345678901234567890`},
		{`9007199254740993`, `9007199254740993`},
		{`1e400`, `1e400`},
		{`""`, `""`},
		{`"\u0041\/\"\\\b\f\n\r\t\u0000\u001F\u007f\u2028\ud83d\uDE00"`, "\"A/\\\"\\\\\\b\\f\\n\\r\\t\\u0000\\u001f\u007f\u2028😀\""},
		{`"\u0008\u000c\u000a\u000D\u0009\u0022\u005c\u002f"`, `"\b\f\n\r\t\"\\/"`},
		{`"\ufffd"`, "\"\ufffd\""},
		{"\"\ufffd\"", "\"\ufffd\""},
		{`[]`, `[]`}, {` [ ] `, `[]`}, {`[ 1 , 2,[ 3 ],"a" ]`, `[1,2,[3],"a"]`},
		{`{}`, `{}`}, {` { } `, `{}`},
		{`{ "b" : 1 , "a" : { "d":2,"c":3 } , "":[{"z":0,"y":{}},{}] }`, `{"":[{"y":{},"z":0},{}],"a":{"c":3,"d":2},"b":1}`},
		{`{"\u0062":1,"a":2}`, `{"a":2,"b":1}`},
		{`{"\"":1,"\n":2,"!":3}`, `{"\n":2,"!":3,"\"":1}`},
		{`{"a":1,"A":2}`, `{"A":2,"a":1}`},
		{"{\"\uffff\":1,\"\\ud83d\\ude00\":2}", "{\"\uffff\":1,\"😀\":2}"}, // by UTF-8, not by UTF-16
		{`[{"b":[{"y":1,"x":2}],"a":{"n":1,"m":2}},{"d":1,"c":2}]`, `[{"a":{"m":2,"n":1},"b":[{"x":2,"y":1}]},{"c":2,"d":1}]`},
		{nested(MaxDepth), nested(MaxDepth)},
	} {
		got, ok := Canonical([]byte("dst:"), []byte(c.in), nil)
		assert.True(t, ok, "%.100q", c.in)
		assert.Equal(t, "dst:"+c.want, string(got))
		again, ok := Canonical(nil, got[4:], nil)
		assert.True(t, ok)
		assert.Equal(t, c.want, string(again))
	}
}

func TestRefused(t *testing.T) {
	for _, in := range []string{
		"", " ", "nul", "nulll", "True", "NaN", "Infinity", "-", "+1", "01", "-01", "1.", ".5", "1e", "1e+", "1e1.5", "0x1", "1_0",
		`"`, `"a`, `"\"`, `"\x"`, `"\u12"`, `"\u12g4"`, `"\u`, `"\`, "\"\n\"", "\"\x00\"", "\"\x1f\"", `'a'`,
		"[", "[1", "[1,", "[1,]", "[,1]", "[1 2]", "]", "[1}", "{", `{"a"`, `{"a":`, `{"a":1`, `{"a":1,`, `{"a":1,}`, `{,"a":1}`, `{a:1}`, `{1:1}`, `{"a" 1}`, `{"a":1]`, `{"a"::1}`,
		"1 2", "{}{}", "[]x", "null null", "1,", "// c\n1", "\ufeff1", "1\x00", "\u00a01", "1\v", "1\f",
		// Valid for encoding/json, refused here.
		`{"a":1,"a":1}`, `{"a":1,"b":{},"a":2}`, `{"a":1,"\u0061":2}`, `[{"x":{"a":1,"\u0061":1}}]`, `{"":1,"":2}`, `{"\u0000":1,"\u0000":2}`,
		"\"\xff\"", "\"\xc3\"", "\"\xed\xa0\x80\"", "\"\xc0\x80\"", "\"\xf4\x90\x80\x80\"", "{\"\xff\":1}", "\"\xc3\\u0041\"",
		`"\ud800"`, `"\udc00"`, `"\ud800\ud800"`, `"\ud800x"`, `"\ud800\n"`, `"\udc00\ud800"`, `{"\udfff":1}`, `"\ud83d\u0041"`,
		nested(MaxDepth + 1), strings.Repeat(`{"a":`, MaxDepth+1) + "1" + strings.Repeat("}", MaxDepth+1), strings.Repeat("[", 1<<20), strings.Repeat(`{"a":`, 1<<20),
	} {
		got, ok := Canonical([]byte("dst"), []byte(in), nil)
		assert.False(t, ok, "%.60q", in)
		assert.Equal(t, "dst", string(got))
	}
}

func TestIgnore(t *testing.T) {
	for _, c := range []struct {
		in     string
		ignore []string
		want   string
	}{
		{`{"a":1,"b":2}`, []string{"/a"}, `{"b":2}`},
		{`{"a":1,"b":2}`, []string{"/b"}, `{"a":1}`},
		{`{"a":1,"b":2}`, []string{"/a", "/b", "/c"}, `{}`},
		{`{"a":1,"b":2}`, []string{""}, `{"a":1,"b":2}`},
		{`{"b":2}`, []string{"/a", "/b/c", "/b/0"}, `{"b":2}`},
		{`{"a":{"ts":1,"x":2},"ts":3}`, []string{"/a/ts"}, `{"a":{"x":2},"ts":3}`},
		{`{"a":{"ts":{"q":1},"x":{"ts":1}},"z":1}`, []string{"/a/ts", "/a/x/ts"}, `{"a":{"x":{}},"z":1}`},
		{`{"a":{"b":1}}`, []string{"/a/b", "/a"}, `{}`},
		{`{"\u0061":1,"b":2}`, []string{"/a"}, `{"b":2}`},
		{`{"a/b":1,"m~n":2,"":3,"~1":4}`, []string{"/a~1b", "/m~0n"}, `{"":3,"~1":4}`},
		{`{"a/b":1,"m~n":2,"":3,"~1":4}`, []string{"/", "/~01"}, `{"a/b":1,"m~n":2}`},
		{`{"":{"":1,"x":2}}`, []string{"//"}, `{"":{"x":2}}`},
		{`{"0":1,"-":2,"01":3}`, []string{"/0", "/-"}, `{"01":3}`},
		{`[{"ts":1,"x":1},{"ts":2,"x":2}]`, []string{"/1/ts"}, `[{"ts":1,"x":1},{"x":2}]`},
		{`[{"ts":1,"x":1},{"ts":2,"x":2}]`, []string{"/0/ts", "/1/ts", "/2/ts", "/-/ts", "/01/ts"}, `[{"x":1},{"x":2}]`},
		{`[10,11,12]`, []string{"/0"}, `[11,12]`},
		{`[10,11,12]`, []string{"/0", "/1"}, `[12]`},
		{`[10,11,12]`, []string{"/2", "/-", "/00", "/+1", "/ 1"}, `[10,11]`},
		{`[10,11,12]`, []string{"/0", "/1", "/2"}, `[]`},
		{`[{"b":{"d":1,"c":2},"a":[{"q":{}}]},{"z":1,"y":{"x":1,"w":2}}]`, []string{"/0"}, `[{"y":{"w":2,"x":1},"z":1}]`},
		{`{"a":{"b":{"d":1,"c":2},"a":[{"q":{}}]},"b":{"z":1,"y":{"x":1,"w":2}}}`, []string{"/a"}, `{"b":{"y":{"w":2,"x":1},"z":1}}`},
		{`[[1,{"b":1,"a":2}],[{"d":1,"c":2}]]`, []string{"/0/1/a", "/1/0/d"}, `[[1,{"b":1}],[{"c":2}]]`},
	} {
		got, ok := Canonical(nil, []byte(c.in), pointers(t, c.ignore...))
		assert.True(t, ok)
		assert.Equal(t, c.want, string(got), "%s without %q", c.in, c.ignore)
	}
	// What is left out must be valid all the same.
	for _, in := range []string{`{"a":1,"a":2}`, `{"a":{"x":1,"x":2}}`, `{"a":"\ud800"}`, `{"a":01}`} {
		_, ok := Canonical(nil, []byte(in), pointers(t, "/a"))
		assert.False(t, ok, in)
	}
}

func TestParsePointer(t *testing.T) {
	for in, want := range map[string]Pointer{
		"": {}, "/": {""}, "//": {"", ""}, "/a": {"a"}, "/a/0/b": {"a", "0", "b"}, "/a~1b/m~0n": {"a/b", "m~n"}, "/~01": {"~1"}, "/~10": {"/0"},
		"/~0~1~0": {"~/~"}, "/ä \"\\": {"ä \"\\"}, "/-": {"-"}, "/a/": {"a", ""},
	} {
		p, err := ParsePointer(in)
		require.NoError(t, err)
		assert.Equal(t, want, p)
		assert.Equal(t, in, p.String())
	}
	for in, want := range map[string]string{
		"a": "begin with a slash", "a/b": `"/a/b"`, "#/a": "leave out the #", "/~": "tilde", "/a~": "tilde", "/~2": "tilde", "/a~/b": "tilde", "/~~0": "tilde", "/\xff": "UTF-8", " /a": "slash",
	} {
		_, err := ParsePointer(in)
		assert.ErrorContains(t, err, want, in)
	}
}

func TestLookup(t *testing.T) {
	const doc = ` {"foo":["bar", {"x" : [1,2] } ],"":0,"a/b":1,"c%d":2,"e^f":3,"g|h":4,"i\\j":5,"k\"l":6," ":7,"m~n":8,"\u0065":{"f":null} } `
	for p, want := range map[string]string{
		"": strings.TrimSpace(doc), "/foo": `["bar", {"x" : [1,2] } ]`, "/foo/0": `"bar"`, "/foo/1/x/1": `2`, "/foo/1": `{"x" : [1,2] }`, "/": "0", "/a~1b": "1",
		"/c%d": "2", "/e^f": "3", "/g|h": "4", `/i\j`: "5", `/k"l`: "6", "/ ": "7", "/m~0n": "8", "/e": `{"f":null}`, "/e/f": "null",
	} {
		raw, ok := Lookup([]byte(doc), pointers(t, p)[0])
		assert.True(t, ok, p)
		assert.Equal(t, want, string(raw), p)
		assert.Equal(t, len(raw), cap(raw))
	}
	for _, p := range []string{"/bar", "/foo/2", "/foo/-", "/foo/00", "/foo/-1", "/foo/01", "/foo/x", "/foo/0/0", "/foo/", "//x", "/e/f/g", "/E"} {
		raw, ok := Lookup([]byte(doc), pointers(t, p)[0])
		assert.False(t, ok, p)
		assert.Nil(t, raw)
	}
	for _, c := range []struct {
		in, p, want string
		ok          bool
	}{
		{`[10]`, "/0", "10", true},
		{`7`, "", "7", true},
		{`7`, "/0", "", false},
		{`{}`, "/a", "", false},
		{`[]`, "/0", "", false},
		{``, "", "", false},
		{`{"a":1`, "/a", "", false},
		{`{"a":1}x`, "/a", "", false},
		{`{"a":1,"b":01}`, "/a", "", false},
		{`{"a":1}{"a":1}`, "/a", "", false},
		{`{"a":1,"a":1}`, "/a", "", false},
		{`{"a":1,"\u0061":1}`, "/a", "", false},
		{`{"a":{"b":1},"a":{}}`, "/a/b", "", false},
		{`{"a":1,"b":2,"b":3,"c":{"d":1,"d":2}}`, "/a", "1", true},
		{"{\"a\":1,\"msg\":\"caf\xe9\"}", "/a", "1", true},
		{`{"a":1,"msg":"\ud800","\ud800":1}`, "/a", "1", true},
		{`{"\ud800":1,"\ufffd":2}`, "/\ufffd", "2", true},
		{"{\"\xff\":1}", "/\ufffd", "", false},
		{"\ufeff{\"a\":1}", "/a", "", false},
		{nested(MaxDepth), strings.Repeat("/0", MaxDepth-1), "[]", true},
		{nested(MaxDepth), strings.Repeat("/0", MaxDepth), "", false},
		{nested(MaxDepth + 1), strings.Repeat("/0", MaxDepth), "", false},
		{nested(MaxDepth + 1), strings.Repeat("/0", MaxDepth+5), "", false},
	} {
		raw, ok := Lookup([]byte(c.in), pointers(t, c.p)[0])
		assert.Equal(t, c.ok, ok, "%.60s at %.20s", c.in, c.p)
		assert.Equal(t, c.want, string(raw))
	}
}

// node is a document that can be written in many ways.
type node struct {
	kind    byte // o a s n l
	text    string
	names   []string
	entries []*node
}

var (
	numbers = []string{"0", "-0", "1", "1.0", "1e0", "1E0", "1e+0", "10", "-1", "12345678901234567890123", "12345678901234567890124", "0.1", "0.10"}
	letters = []rune("aAbB01 \"\\/\b\f\n\r\t\x00\x1f\x7f~é\u2028\uffff\ufffd😀𝄞")
)

func randomText(r *rand.Rand) string {
	var b strings.Builder
	for range r.IntN(6) {
		b.WriteRune(letters[r.IntN(len(letters))])
	}
	return b.String()
}

func random(r *rand.Rand, depth int) *node {
	k := r.IntN(8)
	if depth == 0 {
		k = r.IntN(4)
	}
	switch {
	case k < 2:
		return &node{kind: 's', text: randomText(r)}
	case k == 2:
		return &node{kind: 'n', text: numbers[r.IntN(len(numbers))]}
	case k == 3:
		return &node{kind: 'l', text: []string{"true", "false", "null"}[r.IntN(3)]}
	}
	n := &node{kind: "ao"[k%2]}
	seen := map[string]bool{}
	for range r.IntN(6) {
		if n.kind == 'o' {
			name := randomText(r)
			if seen[name] {
				continue
			}
			seen[name] = true
			n.names = append(n.names, name)
		}
		n.entries = append(n.entries, random(r, depth-1))
	}
	return n
}

func (n *node) write(r *rand.Rand, b *strings.Builder) {
	space := func() {
		for r.IntN(3) == 0 {
			b.WriteByte(" \t\r\n"[r.IntN(4)])
		}
	}
	space()
	defer space()
	switch n.kind {
	case 's':
		writeText(r, b, n.text)
	case 'n', 'l':
		b.WriteString(n.text)
	default:
		order := make([]int, len(n.entries))
		for i := range order {
			order[i] = i
		}
		open, end := "[", "]"
		if n.kind == 'o' {
			open, end, order = "{", "}", r.Perm(len(order))
		}
		b.WriteString(open)
		space()
		for i, at := range order {
			if i > 0 {
				b.WriteByte(',')
			}
			if n.kind == 'o' {
				space()
				writeText(r, b, n.names[at])
				space()
				b.WriteByte(':')
			}
			n.entries[at].write(r, b)
		}
		b.WriteString(end)
	}
}

func writeText(r *rand.Rand, b *strings.Builder, s string) {
	hex := func(c rune) {
		h := fmt.Sprintf("%04x", c)
		if r.IntN(2) == 0 {
			h = strings.ToUpper(h)
		}
		b.WriteString(`\u` + h)
	}
	b.WriteByte('"')
	for _, c := range s {
		short := map[rune]string{'"': `\"`, '\\': `\\`, '/': `\/`, '\b': `\b`, '\f': `\f`, '\n': `\n`, '\r': `\r`, '\t': `\t`}[c]
		must := c < ' ' || c == '"' || c == '\\'
		switch k := r.IntN(3); {
		case k == 0 && short != "":
			b.WriteString(short)
		case !must && k < 2:
			b.WriteRune(c)
		case c >= 0x10000:
			hi, lo := utf16.EncodeRune(c)
			hex(hi)
			hex(lo)
		default:
			hex(c)
		}
	}
	b.WriteByte('"')
}

func (n *node) walk(visit func(*node)) {
	visit(n)
	for _, e := range n.entries {
		e.walk(visit)
	}
}

func written(r *rand.Rand, n *node) string {
	var b strings.Builder
	n.write(r, &b)
	return b.String()
}

func form(t testing.TB, doc string) string {
	t.Helper()
	before := doc
	out, ok := Canonical(nil, []byte(doc), nil)
	require.True(t, ok, "%q", doc)
	require.Equal(t, before, doc)
	require.LessOrEqual(t, len(out), len(doc))
	return string(out)
}

func TestProperties(t *testing.T) {
	for seed := range uint64(400) {
		r := rand.New(rand.NewPCG(seed, 1))
		n := random(r, 4)
		first := form(t, written(r, n))
		for range 4 {
			doc := written(r, n)
			require.Equal(t, first, form(t, doc), "seed %d: %q", seed, doc)
		}
		require.Equal(t, first, form(t, first))
		require.Equal(t, decoded(t, written(r, n)), decoded(t, first))

		// Any change of meaning makes another form, and undoing it the first one.
		var all []*node
		n.walk(func(n *node) { all = append(all, n) })
		for _, n2 := range all {
			was := *n2
			switch n2.kind {
			case 's':
				n2.text += string(letters[r.IntN(len(letters))])
			case 'n':
				for n2.text == was.text {
					n2.text = numbers[r.IntN(len(numbers))]
				}
			case 'l':
				n2.text = map[string]string{"true": "false", "false": "null", "null": "true"}[was.text]
			case 'a':
				n2.entries = append(n2.entries[:len(n2.entries):len(n2.entries)], &node{kind: 'l', text: "null"})
			case 'o':
				n2.names = append(n2.names[:len(n2.names):len(n2.names)], "a name that is new")
				n2.entries = append(n2.entries[:len(n2.entries):len(n2.entries)], &node{kind: 'l', text: "null"})
			}
			require.NotEqual(t, first, form(t, written(r, n)), "seed %d", seed)
			*n2 = was
			if n2.kind == 'o' && len(n2.names) > 0 {
				names := append([]string(nil), n2.names...)
				n2.names[r.IntN(len(names))] += "x, which is new"
				require.NotEqual(t, first, form(t, written(r, n)), "seed %d", seed)
				n2.names = names
			}
			if n2.kind == 's' { // a string is not the number or literal of the same text
				*n2 = node{kind: 'l', text: "null"}
				require.NotEqual(t, first, form(t, written(r, n)))
				*n2 = was
			}
		}
		require.Equal(t, first, form(t, written(r, n)))

		// Leaving out is the same as never having been there, and Lookup finds what was left out.
		if n.kind == 'o' && len(n.names) > 0 {
			i := r.IntN(len(n.names))
			p := Pointer{n.names[i]}
			doc := written(r, n)
			raw, ok := Lookup([]byte(doc), p)
			require.True(t, ok)
			require.Equal(t, form(t, written(r, n.entries[i])), form(t, string(raw)))
			out, ok := Canonical(nil, []byte(doc), []Pointer{p, {"none"}})
			require.True(t, ok)
			n.names = append(n.names[:i:i], n.names[i+1:]...)
			n.entries = append(n.entries[:i:i], n.entries[i+1:]...)
			require.Equal(t, form(t, written(r, n)), string(out))
		}
	}
}

func decoded(t testing.TB, doc string) (v any) {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(doc))
	d.UseNumber()
	require.NoError(t, d.Decode(&v))
	return v
}

// different says why encoding/json takes a document that Canonical refuses: the documented differences, judged by other
// means. doc is valid for encoding/json.
func different(doc []byte) string {
	if !utf8.Valid(doc) {
		return "not UTF-8"
	}
	texts := regexp.MustCompile(`"(?:[^"\\]|\\.)*"`)
	escapes := regexp.MustCompile(`\\u[0-9a-fA-F]{4}|\\.|[^\\]+`)
	for _, s := range texts.FindAll(doc, -1) {
		var high bool
		for _, e := range escapes.FindAllString(string(s), -1) {
			var r uint64
			if strings.HasPrefix(e, `\u`) {
				r, _ = strconv.ParseUint(e[2:], 16, 32)
			}
			low := r >= 0xdc00 && r < 0xe000
			if high != low {
				return "lone surrogate"
			}
			high = r >= 0xd800 && r < 0xdc00
		}
		if high {
			return "lone surrogate"
		}
	}
	depth := 0
	for _, c := range texts.ReplaceAll(doc, nil) {
		switch c {
		case '[', '{':
			if depth++; depth > MaxDepth {
				return "too deep"
			}
		case ']', '}':
			depth--
		}
	}
	d := json.NewDecoder(bytes.NewReader(doc))
	d.UseNumber()
	type level struct {
		names  map[string]bool
		isName bool
	}
	stack := []level{{}}
	for {
		tok, err := d.Token()
		if err == io.EOF {
			return ""
		}
		if err != nil {
			return err.Error()
		}
		top := &stack[len(stack)-1]
		if top.names != nil && top.isName && tok != json.Delim('}') {
			if top.names[tok.(string)] {
				return "duplicate name"
			}
			top.names[tok.(string)] = true
			top.isName = false
			continue
		}
		top.isName = true
		switch tok {
		case json.Delim('{'):
			stack = append(stack, level{map[string]bool{}, true})
		case json.Delim('['):
			stack = append(stack, level{})
		case json.Delim('}'), json.Delim(']'):
			stack = stack[:len(stack)-1]
		}
	}
}

func FuzzCanonical(f *testing.F) {
	for _, s := range []string{
		`{"b":[1,2.50,{"x":"\u00e9\ud83d\ude00"}],"a":null}`, `{"a":1,"\u0061":2}`, `"\ud800"`, "\"\xff\"", `[1,]`, ` 1 `, "1 2", nested(MaxDepth + 1), `{"a":{"a":1},"b":{"a":1}}`,
		`-0.0e-1`, `{"":""}`, `[[],{},[{}]]`, `{"a":[{"d":1,"c":{"z":0,"y":0}},{"b":0}],"0":[0]}`,
	} {
		f.Add([]byte(s), "/a/0/c")
	}
	f.Fuzz(func(t *testing.T, doc []byte, ptr string) {
		before := bytes.Clone(doc)
		out, ok := Canonical(nil, doc, nil)
		if !bytes.Equal(before, doc) {
			t.Fatal("src was changed")
		}
		switch valid := json.Valid(doc); {
		case ok && !valid:
			t.Fatalf("%q is not valid", doc)
		case valid && !ok && different(doc) == "":
			t.Fatalf("%q is valid", doc)
		case ok:
			if d := different(doc); d != "" {
				t.Fatalf("%q: %s", doc, d)
			}
			if len(out) > len(doc) {
				t.Fatalf("%q is longer than %q", out, doc)
			}
			require.Equal(t, decoded(t, string(doc)), decoded(t, string(out)))
			again, ok := Canonical(nil, out, nil)
			require.True(t, ok)
			require.Equal(t, string(out), string(again))
		}
		p, err := ParsePointer(ptr)
		if err != nil {
			return
		}
		require.Equal(t, ptr, p.String())
		less, ok2 := Canonical([]byte("x"), doc, []Pointer{p, {"b"}})
		require.Equal(t, ok, ok2)
		require.True(t, !ok || json.Valid(less[1:]))
		raw, found := Lookup(doc, p)
		if found && (!json.Valid(raw) || !json.Valid(doc)) {
			t.Fatalf("Lookup of %q in %q: %q", ptr, doc, raw)
		}
		if !ok {
			return
		}
		// The same walk, by encoding/json.
		v, has := decoded(t, string(doc)), true
		for _, tok := range p {
			switch x := v.(type) {
			case map[string]any:
				v, has = x[tok]
			case []any:
				n, err := strconv.Atoi(tok)
				if has = err == nil && strconv.Itoa(n) == tok && n >= 0 && n < len(x); has {
					v = x[n]
				}
			default:
				has = false
			}
			if !has {
				break
			}
		}
		require.Equal(t, has, found)
		if found {
			require.Equal(t, v, decoded(t, string(raw)))
			// What Lookup finds is what Canonical leaves out.
			if len(p) > 0 {
				all, _ := Canonical(nil, doc, nil)
				one, _ := Canonical(nil, doc, []Pointer{p})
				require.Less(t, len(one), len(all))
			}
		} else {
			one, _ := Canonical(nil, doc, []Pointer{p})
			require.Equal(t, string(out), string(one))
		}
	})
}

func TestAllocations(t *testing.T) {
	doc := []byte(`{"type":"x","error":{"code":"idempotency_error","items":[1,2,{"a":1}]}}`)
	p := Pointer{"error", "code"}
	assert.Zero(t, testing.AllocsPerRun(100, func() { Lookup(doc, p) }))
	dst := make([]byte, 0, 1024)
	assert.LessOrEqual(t, testing.AllocsPerRun(100, func() { Canonical(dst, doc, nil) }), 2.0)
}

// Shapes that make careless code quadratic: compare MB/s over the sizes.
func hostile(size int) map[string][]byte {
	var wide, deep strings.Builder
	wide.WriteByte('{')
	for i := 0; wide.Len() < size; i++ {
		fmt.Fprintf(&wide, `"%s%d":%d,`, strings.Repeat("p", 20), i*7919%1000003, i)
	}
	wide.WriteString(`"end":0}`)
	pad := strings.Repeat("x", size/900)
	for range 900 {
		fmt.Fprintf(&deep, `{"z":"%s","a":`, pad)
	}
	deep.WriteString("1" + strings.Repeat("}", 900))
	return map[string][]byte{
		"wide":    []byte(wide.String()),
		"deep":    []byte(deep.String()),
		"escapes": []byte(`["` + strings.Repeat(`\n\u0041`, size/8) + `"]`),
		"array":   []byte("[" + strings.Repeat("1,", size/2) + "1]"),
		"objects": []byte("[" + strings.Repeat(`{},`, size/3) + "1]"),
		"names":   []byte(`{"` + strings.Repeat(`\u0041`, size/12) + `":1,"` + strings.Repeat(`\u0041`, size/12) + `b":1}`),
	}
}

func BenchmarkCanonical(b *testing.B) {
	r := rand.New(rand.NewPCG(1, 1))
	docs := map[string][]byte{"payment": []byte(`{"amount": 1250, "currency": "EUR", "debtor": {"iban": "DE02120300000000202051", "name": "Jürgen"}, ` +
		`"creditor": {"name": "ACME", "iban": "DE02500105170137075030"}, "reference": "order 4711", "items": [{"sku": "a-1", "n": 1}, {"sku": "b-2", "n": 3}]}`)}
	var mixed []*node
	for range 3000 {
		mixed = append(mixed, random(r, 5))
	}
	docs["mixed"] = []byte(written(r, &node{kind: 'a', entries: mixed}))
	for _, size := range []int{1 << 16, 1 << 20, 1 << 23} {
		for name, doc := range hostile(size) {
			docs[fmt.Sprintf("%s-%dKiB", name, size>>10)] = doc
		}
	}
	for name, doc := range docs {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(len(doc)))
			var dst []byte
			for b.Loop() {
				var ok bool
				if dst, ok = Canonical(dst[:0], doc, nil); !ok {
					b.Fatal("refused")
				}
			}
		})
	}
	b.Run("payment-by-encoding-json", func(b *testing.B) {
		b.ReportAllocs()
		b.SetBytes(int64(len(docs["payment"])))
		for b.Loop() {
			var v any
			_ = json.Unmarshal(docs["payment"], &v)
			_, _ = json.Marshal(v)
		}
	})
}

func BenchmarkLookup(b *testing.B) {
	for name, doc := range hostile(1 << 20) {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(len(doc)))
			for b.Loop() {
				Lookup(doc, Pointer{"a", "a", "a"})
			}
		})
	}
}
