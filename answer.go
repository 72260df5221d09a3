package samekey

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/samekey/samekey/persist"
)

// answer is what a call ends with, for one caller or for several.
type answer struct {
	head      *http.Response // status, protocol, header; nil: there is only an error
	body      []byte
	truncated bool  // body is all there is of a longer one
	rest      *rest // what follows body; for the caller that made the call
	err       error
	info      Info
	handover  *handover // an anonymous success
}

// newAnswer is the last attempt's answer; it takes over what of its body is still to come.
func (k *call) newAnswer(s State) *answer {
	a := &answer{head: k.last.Resp, body: k.last.Body, truncated: k.last.dropped, info: k.info(s)}
	if k.last.Rest != nil {
		k.streams = true
		a.rest = &rest{ReadCloser: k.last.Rest, end: k.finish, cancel: k.cancel}
		k.last.Rest = nil
	}
	return a
}

// rest is a body that streams after its call has ended.
type rest struct {
	io.ReadCloser
	end    func()
	cancel context.CancelCauseFunc
	left   func() bool // forgets its reader's context
}

// until has ctx end it: the call's own context may have been nobody's.
func (r *rest) until(ctx context.Context) {
	r.left = context.AfterFunc(ctx, func() { r.cancel(endOf(ctx)) })
}

func (r *rest) Close() error {
	if r.left != nil {
		r.left()
	}
	err := r.ReadCloser.Close()
	r.end()
	return err
}

func (k *call) info(s State) Info {
	return Info{
		Ref: k.rec.Ref, Key: k.rec.Key, Endpoint: k.plan.pattern, State: s, Attempts: k.rec.Progress.Attempts, Sends: k.sends,
		Source: k.source(), Replayed: k.last.replayed,
	}
}

// source is where the last answer came from.
func (k *call) source() Source {
	switch {
	case k.n == 0 && !k.polled:
		return Local
	case k.last.replayed:
		return Replay
	}
	return Network
}

// refused is the answer to a call that ended before it was one.
func refused(call Call, err error) *answer {
	return &answer{err: err, info: Info{Ref: call.Ref, Key: call.Key, Endpoint: call.Endpoint, Attempts: call.Attempts, Source: Local}}
}

func (a *answer) infoFor(first bool) Info {
	i := a.info
	if !first {
		i.Source = Shared
	}
	return i
}

// response makes one caller's response. Header and body are its own.
func (a *answer) response(req *http.Request, first bool) *http.Response {
	d := &delivery{Response: *a.head, ctx: resultContext{req.Context(), result{a, first}}}
	resp := &d.Response
	resp.TransferEncoding = nil
	if a.handover == nil || a.handover.k.cmd.adopted { // else nobody else has it: not another caller, and not the store
		resp.Header, resp.Trailer = a.head.Header.Clone(), a.head.Trailer.Clone()
	}
	resp.Request = req.WithContext(&d.ctx)
	switch {
	case a.rest != nil && first:
		a.rest.until(req.Context())
		resp.Body = struct {
			io.Reader
			io.Closer
		}{io.MultiReader(bytes.NewReader(a.body), a.rest), a.rest}
	case a.rest != nil || a.truncated:
		resp.Body = io.NopCloser(io.MultiReader(bytes.NewReader(a.body), cut{}))
	case len(a.body) == 0:
		resp.Body, resp.ContentLength = http.NoBody, 0
	default:
		d.body.Reset(a.body)
		resp.Body, resp.ContentLength = &d.body, int64(len(a.body))
	}
	if a.handover != nil {
		d.handed = handedOver{ReadCloser: resp.Body, h: a.handover}
		resp.Body = &d.handed
	}
	return resp
}

// delivery is one caller's response with what hangs on it.
type delivery struct {
	http.Response
	ctx    resultContext
	body   bytesBody
	handed handedOver
}

// resultContext is that of a response's request.
type resultContext struct {
	context.Context
	result result
}

func (c *resultContext) Value(key any) any {
	if key == (resultKey{}) {
		return &c.result
	}
	return c.Context.Value(key)
}

// bytesBody is a body in memory.
type bytesBody struct{ bytes.Reader }

func newBytesBody(b []byte) *bytesBody {
	r := new(bytesBody)
	r.Reset(b)
	return r
}

func (*bytesBody) Close() error { return nil }

// takeBack is drop where the call goes on, under its own context.
func (k *call) takeBack(a *answer) {
	if a.rest != nil {
		_ = a.rest.ReadCloser.Close()
		a.rest, k.streams = nil, false
	}
}

// drop ends what nobody gets.
func (a *answer) drop() {
	if a.rest != nil {
		_ = a.rest.Close()
	}
}

// cut ends a body of which only a part was kept.
type cut struct{}

func (cut) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

// handover is an anonymous success on its way to the caller. Nobody can ask for it again by name, so that it stays
// pending until the caller has read it to its end, or closed it.
type handover struct {
	k      *call
	shared *answer    // for who brings the same key of its own meanwhile; nil where nobody can
	ending sync.Mutex // held while the store is asked: to renew the claim, or to end
	mu     sync.Mutex // over claim and ended, and never for long: a recovery waits for it
	claim  persist.Claim
	ended  bool
	beat   *time.Timer // renews a claim that would lapse
}

// handOver takes the claim over from the call.
func (k *call) handOver(a *answer) {
	h := &k.handover
	h.k, h.claim = k, k.claim
	a.handover = h
	if k.cmd.adopted {
		shared := *a
		shared.truncated, shared.rest, shared.info.Source, shared.info.Sends = a.truncated || a.rest != nil, nil, Shared, 0
		h.shared = &shared
	}
	k.claim = persist.Claim{}
	k.mu.Lock()
	k.open[k.rec.Ref] = h
	k.mu.Unlock()
	if lease := k.plan.lease; lease > 0 { // read slowly, it would be sent again by a recovery
		h.ending.Lock()
		h.beat = time.AfterFunc(lease/3, func() { h.renew(lease / 3) })
		h.ending.Unlock()
	}
}

// renew keeps the claim while the caller reads.
func (h *handover) renew(every time.Duration) {
	h.ending.Lock()
	defer h.ending.Unlock()
	claim, ended := h.has()
	if ended {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), every)
	defer cancel()
	if err := h.k.store.Mark(ctx, claim, h.k.rec.Progress); err != nil {
		h.k.storeFailed(err)
	}
	h.beat.Reset(every)
}

// has returns the claim by now, and whether the caller has done.
func (h *handover) has() (claim persist.Claim, ended bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.claim, h.ended
}

// adopt takes the claim of a recovery that found the operation, as its own had lapsed; false if nobody reads any more.
func (h *handover) adopt(claim persist.Claim) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.ended {
		h.claim = claim
	}
	return !h.ended
}

// handingOver finds the success of ref that its caller has not read yet.
func (c *core) handingOver(ref Ref) *handover {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.open[ref]
}

// done settles, the first time.
func (h *handover) done() {
	if _, ended := h.has(); ended { // the usual Close behind the last Read
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), settleTimeout) // lazy or not, a store may wait
	defer cancel()
	h.end(ctx, func() {
		start := time.Now()
		// It leaves the store.
		kept := persist.Answer{State: Succeeded, Status: h.k.last.status(), Lazy: h.k.lazy(Succeeded)}
		var claim persist.Claim
		settle := func() error {
			claim, _ = h.has()
			h.k.claim = claim
			return h.k.unhurried(Pending, func() error { return h.k.store.Settle(ctx, h.k.claim, kept) })
		}
		err := settle()
		if errors.Is(err, persist.ErrClaimLost) { // to a recovery of this client, perhaps, which is about to have it adopted
			err = h.k.afresh(ctx, h.k.rec.Ref, settle)
		}
		h.mu.Lock()
		switch {
		case err == nil:
			h.claim = persist.Claim{}
		case h.claim == claim: // else one more was adopted
			h.claim = h.k.claim
		}
		h.mu.Unlock()
		h.k.claim = persist.Claim{}
		if err != nil {
			h.k.storeFailed(err)
			return
		}
		h.k.observe(Event{Step: StepSettled, State: Succeeded, Status: kept.Status, Elapsed: time.Since(start)})
	})
}

// release leaves the operation pending.
func (h *handover) release(ctx context.Context) { h.end(ctx, func() {}) }

// end ends the handover by f, and gives back the claim that f leaves, for a recovery of this process.
func (h *handover) end(ctx context.Context, f func()) {
	h.ending.Lock()
	defer h.ending.Unlock()
	if _, ended := h.has(); ended {
		return
	}
	if h.beat != nil {
		h.beat.Stop()
	}
	f()
	h.mu.Lock()
	h.ended = true
	claim := h.claim
	h.mu.Unlock()
	if claim.Token != 0 {
		if err := h.k.store.Release(ctx, claim); err != nil {
			h.k.storeFailed(err)
		}
	}
	h.k.mu.Lock()
	if h.k.open[h.k.rec.Ref] == h {
		delete(h.k.open, h.k.rec.Ref)
	}
	h.k.mu.Unlock()
}

// handedOver tells when the caller has the body.
type handedOver struct {
	io.ReadCloser
	h *handover
}

func (b *handedOver) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err == io.EOF {
		b.h.done()
	}
	return n, err
}

func (b *handedOver) Close() error {
	err := b.ReadCloser.Close()
	b.h.done()
	return err
}

// local answers from the store's record: nothing is sent.
func (k *call) local() *answer {
	kept := k.rec.Answer
	k.last.Resp = &http.Response{
		Status: strconv.Itoa(kept.Status) + " " + http.StatusText(kept.Status), StatusCode: kept.Status,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Header: kept.Header, ContentLength: int64(len(kept.Body)),
	}
	if k.last.Resp.Header == nil {
		k.last.Resp.Header = http.Header{}
	}
	k.last.Body = kept.Body
	k.last.meaning = k.plan.judgeAnswer(k.last.Resp, kept.Body)
	a := k.newAnswer(kept.State)
	a.truncated = kept.Truncated
	if kept.Truncated {
		a.head.ContentLength = -1
	}
	if kept.State == Conflicted {
		e := &ConflictError{Call: k.call(), Reply: *k.last.reply(), Link: k.last.link}
		e.Reason, e.Ambiguous = noted(kept.Reason)
		e.MaybeSent = true
		a.err = e
	}
	k.outcome(kept.State, a.err)
	return a
}

// unwritten is a conflict that no store holds: it failed, or the policy keeps no record.
type unwritten struct {
	answer answer
	rec    persist.Record // that it answers
	kept   persist.Answer // that was to be written
	none   bool           // nobody keeps it
}

// maxUnwritten bounds the conflicts of endpoints that keep no record; those that a store refused are kept all.
const maxUnwritten = 10_000

// remember keeps a conflict that no store holds, so that no loop of this process sends it again.
func (k *call) remember(a answer, kept persist.Answer) {
	a.info.Source, a.info.Sends = Local, 0
	a.truncated, a.rest = a.rest != nil, nil
	k.mu.Lock()
	defer k.mu.Unlock()
	none := k.plan.Persist == PersistNone
	if none && len(k.conflicts) >= maxUnwritten {
		for ref, u := range k.conflicts {
			if u.none {
				delete(k.conflicts, ref)
				break
			}
		}
	}
	k.conflicts[k.rec.Ref] = &unwritten{answer: a, rec: k.rec, kept: kept, none: none}
}

func (c *core) remembered(ref Ref) *unwritten {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.conflicts[ref]
}

// forget is for the calls that may move a conflict; it reports whether there was one.
func (c *core) forget(ref Ref) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, was := c.conflicts[ref]
	delete(c.conflicts, ref)
	return was
}
