package persisttest

import (
	"net/http"
	"time"

	"github.com/samekey/samekey/persist"
)

var changeRules = []rule{
	{name: "Mark/overwrites the whole Progress", run: markOverwrites},
	{name: "Replace/gives a new request under the same Ref and claim", run: replaceRequest},
	{name: "Replace/makes what is settled pending", run: replaceSettled},
	{name: "Forget/ErrNotFound, ErrBusy, then gone", run: forget},
}

func markOverwrites(p *place) {
	r := p.rec("op")
	c := p.begin(r)
	now := time.Now()
	for _, progress := range []persist.Progress{
		{
			Attempts: 2, FirstSent: now, Seen: now.Add(1), NotBefore: now.Add(time.Hour), Parked: true,
			PollURL: "https://bank.test/op?x=1", LastStatus: 503, LastError: "a\nb\x00é",
		},
		{Attempts: 1 << 30, Seen: now.Add(2)},
		{},
		{Attempts: 4, PollURL: "/again"},
	} {
		r.Progress = progress
		p.NoError(p.s.Mark(p.ctx, c, progress), "Mark keeps the claim")
		p.stored(r)
	}
}

func replaceRequest(p *place) {
	old := p.rec("op")
	old.Progress.PollURL = "https://bank.test/op"
	c := p.begin(old)
	next := persist.Record{
		Ref: ref("elsewhere"), Named: !old.Named, Created: old.Created, Key: "another key",
		Method: http.MethodPut, Target: "https://bank.test/v2", Header: http.Header{"X-New": {"1"}}, Body: []byte("new"),
		Fingerprint: [32]byte{1, 2, 3}, KeyLife: -1, Progress: persist.Progress{Attempts: 7},
	}
	p.NoError(p.s.Replace(p.ctx, c, next))
	p.missing(next.Ref)
	next.Ref = old.Ref // it stays
	p.stored(next)
	_, err := p.s.Claim(p.ctx, old.Ref)
	p.fails(err, persist.ErrBusy, "Claim", old.Ref)
	next.Progress.Attempts = 8
	p.NoError(p.s.Mark(p.ctx, c, next.Progress), "the claim stays")
	p.stored(next)
	a := answer(persist.Succeeded)
	p.settle(c, a)
	next.Answer = &a
	p.stored(next)
	p.Equal([]string{"op"}, ids(p.list(persist.Filter{})), "there is one operation")
}

func replaceSettled(p *place) {
	a := answer(persist.Conflicted)
	a.Owed = true
	p.settled(p.rec("op"), a)
	next := p.rec("op")
	c := p.claim(next.Ref).Claim
	p.NoError(p.s.Replace(p.ctx, c, next))
	p.stored(next)
	p.NoError(p.s.Release(p.ctx, c))
	p.stored(next)
	es := p.due(9)
	p.Len(es, 1, "it is pending")
	p.same(next, es[0].Record)
}

func forget(p *place) {
	p.fails(p.s.Forget(p.ctx, ref("none")), persist.ErrNotFound, "Forget", ref("none"))

	r := p.rec("op")
	c := p.begin(r)
	p.fails(p.s.Forget(p.ctx, r.Ref), persist.ErrBusy, "Forget", r.Ref)
	p.stored(r)
	p.NoError(p.s.Mark(p.ctx, c, r.Progress), "the claim still holds")
	p.NoError(p.s.Release(p.ctx, c))
	p.gone(r.Ref)

	a := answer(persist.Succeeded)
	a.Owed = true
	r = p.settled(p.rec("op"), a) // what is forgotten may begin anew
	held := p.claim(r.Ref).Claim
	p.fails(p.s.Forget(p.ctx, r.Ref), persist.ErrBusy, "Forget", r.Ref)
	p.stored(r)
	p.NoError(p.s.Release(p.ctx, held))
	p.gone(r.Ref)
}

// gone forgets ref, and checks that nothing is left of it.
func (p *place) gone(ref persist.Ref) {
	p.t.Helper()
	p.NoError(p.s.Forget(p.ctx, ref), "Forget")
	p.fails(p.s.Forget(p.ctx, ref), persist.ErrNotFound, "Forget", ref)
	p.missing(ref)
	_, err := p.s.Claim(p.ctx, ref)
	p.fails(err, persist.ErrNotFound, "Claim", ref)
	p.Empty(p.due(9))
	p.Empty(p.list(persist.Filter{}))
}
