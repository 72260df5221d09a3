package persisttest

import (
	"strings"

	"github.com/samekey/samekey/persist"
)

var nameRules = []rule{
	{name: "Names/any scope and ID, told apart byte by byte", run: oddNames},
}

var long = strings.Repeat("long/", 2000)

// oddRefs are easily confused, or dangerous, wherever a Ref becomes a path, a key of joined parts, a pattern, a text
// column, or a line.
var oddRefs = []persist.Ref{
	{Scope: "", ID: "a"}, {Scope: "a", ID: "A"}, {Scope: "a", ID: "a"}, {Scope: "A", ID: "a"},
	{Scope: "a", ID: "a "}, {Scope: "a", ID: " a"}, {Scope: "a ", ID: "a"}, {Scope: "a", ID: "a\n"},
	{Scope: "a", ID: "b/c"}, {Scope: "a/b", ID: "c"}, {Scope: "a/", ID: "b/c"}, {Scope: "", ID: "a/b/c"},
	{Scope: "a", ID: "b\x00c"}, {Scope: "a\x00b", ID: "c"}, {Scope: "a", ID: "\x00"}, {Scope: "\x00", ID: "a"},
	{Scope: "a", ID: "b:c"}, {Scope: "a:b", ID: "c"}, {Scope: "{a}", ID: "c"}, {Scope: "a", ID: "{c}"},
	{Scope: "../", ID: "../../etc/passwd"}, {Scope: "..", ID: "."}, {Scope: ".", ID: ".."}, {Scope: "/", ID: "/"},
	{Scope: `\`, ID: `C:\con`}, {Scope: "*", ID: "?"}, {Scope: "%", ID: "_"}, {Scope: "'", ID: `"; DROP TABLE ops; --`},
	{Scope: "платежи", ID: "заказ-1"}, {Scope: "платежи", ID: "ЗАКАЗ-1"}, {Scope: "e\u0301", ID: "x"}, {Scope: "\u00e9", ID: "x"},
	{Scope: "x", ID: "straße"}, {Scope: "x", ID: "strasse"}, {Scope: "\xff\xfe", ID: "\xc3"}, {Scope: "\ufffd\ufffd", ID: "\ufffd"},
	{Scope: "x", ID: "\U0001f4b6\u200d\u202e"}, {Scope: "x", ID: "\r\n\t\x1b[31m"}, {Scope: "null", ID: "NULL"}, {Scope: "0", ID: "00"},
	{Scope: "x", ID: long + "1"}, {Scope: "x", ID: long + "2"}, {Scope: long + "1", ID: "x"}, {Scope: long + "2", ID: "x"},
}

func oddNames(p *place) {
	recs := make([]persist.Record, len(oddRefs))
	claims := make([]persist.Claim, len(oddRefs))
	for i, ref := range oddRefs {
		recs[i] = p.rec("")
		recs[i].Ref = ref
		claims[i] = p.begin(recs[i])
	}
	if p.h.Durable {
		p.reopen()
		for i, e := range p.due(len(recs) + 1) {
			p.same(recs[i], e.Record)
			claims[i] = e.Claim
		}
	}
	for i, r := range recs {
		p.stored(r)
		_, err := p.s.Claim(p.ctx, r.Ref)
		p.fails(err, persist.ErrBusy, "Claim", r.Ref)
		p.NoError(p.s.Mark(p.ctx, claims[i], r.Progress))
	}
	for _, r := range recs {
		var want []string
		for _, other := range recs {
			if other.Scope == r.Scope {
				want = append(want, other.ID)
			}
		}
		p.Equal(want, ids(p.list(persist.Filter{Scope: &r.Scope})))
	}
	for i := range recs {
		a := answer(persist.Succeeded)
		p.settle(claims[i], a)
		recs[i].Answer = &a
	}
	for i, r := range recs {
		p.stored(r)
		p.NoError(p.s.Forget(p.ctx, r.Ref))
		p.missing(r.Ref)
		p.Len(p.list(persist.Filter{}), len(recs)-i-1)
	}
}
