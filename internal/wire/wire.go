// Package wire makes one exchange with a server: traced, bounded in time up to the last byte of the answer's body, and
// told apart by what it proves about the server.
package wire

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"sync/atomic"
	"time"
)

// Point of an exchange that was passed.
type Point uint8

// The points, in their order.
const (
	Connected Point = iota
	HeaderWritten
	BodyWritten
	FirstByte
)

// Exchange is how to send.
type Exchange struct {
	Base        http.RoundTripper
	Timeout     time.Duration              // from the start to the last byte of the body; 0: none
	TimeoutErr  error                      // the cause it leaves
	MaxResponse int64                      // bytes of the body that are read here
	OnPoint     func(p Point, reused bool) // nil: nobody listens
}

// Builder makes the request of an exchange. An error ends it unsent.
type Builder interface {
	Build(ctx context.Context) (*http.Request, error)
}

// Result of one exchange. Resp is nil if no whole answer (or, beyond MaxResponse, no head and first part of it) came.
type Result struct {
	Resp *http.Response // its Body is closed, or in Rest
	Body []byte
	Rest io.ReadCloser // what of the body is beyond MaxResponse; the exchange ends when it is closed. nil: Body is whole
	Cut  bool          // of a conflict: Body is all that came of a longer one, and Rest ends in an error
	Err  error

	Unsent   bool // no byte left: the request could not be made ready, or the transport proves that it got no connection
	Late     bool // Timeout passed: the context has ended
	TimedOut bool // and that was what ended the exchange
	Sends    int  // how often a request's head was written, as the transport tells; 0 where it tells nothing
}

// Do makes the exchange, and cancels ctx when its time has passed. Otherwise that is the caller's, once the exchange and
// Result.Rest have been done with. The request must be made for it alone, under ctx; its GetBody is cleared, so that the
// transport cannot repeat it unseen.
func (x *Exchange) Do(ctx context.Context, cancel context.CancelCauseFunc, b Builder) Result {
	var timer *time.Timer
	if x.Timeout > 0 {
		err := x.TimeoutErr // the timer may run when x serves the next exchange
		timer = time.AfterFunc(x.Timeout, func() { cancel(err) })
	}
	tr := newTrace(x.OnPoint)
	res := x.exchange(ctx, tr, b)
	late := timer != nil && !timer.Stop()
	if late {
		cancel(x.TimeoutErr) // the timer may be about to
	}
	if late && res.Rest != nil && !res.Cut { // the time passed as the first part came in
		_ = res.Rest.Close()
		if res.Resp.StatusCode == http.StatusConflict {
			res.Rest, res.Cut = io.NopCloser(cut{}), true
		} else {
			res = Result{Err: context.Cause(ctx)}
		}
	}
	res.Late, res.TimedOut = late, late && res.Err != nil && errors.Is(context.Cause(ctx), x.TimeoutErr)
	res.Sends = int(tr.sends.Load())
	// Only net/http's own transport tells of every connection that it gets. It proves that nothing left if it asked for
	// one and never got it. If it asked for none, another may have sent (RegisterProtocol).
	if _, ours := x.Base.(*http.Transport); ours && res.Err != nil && !tr.got.Load() && tr.asked.Load() {
		res.Unsent = true
	}
	return res
}

func (x *Exchange) exchange(ctx context.Context, tr *trace, b Builder) (res Result) {
	req, err := b.Build(httptrace.WithClientTrace(ctx, &tr.ClientTrace))
	if err != nil {
		return Result{Err: err, Unsent: true}
	}
	req.GetBody = nil
	// A request that the timeout, the caller or Close has ended by now need not reach the transport at all.
	if ctx.Err() != nil {
		return Result{Err: ctx.Err(), Unsent: true}
	}
	resp, err := x.Base.RoundTrip(req)
	switch {
	case err != nil:
		return Result{Err: err}
	case resp == nil:
		return Result{Err: errNoAnswer}
	case resp.Header == nil:
		resp.Header = http.Header{}
	}
	switch {
	case resp.Body != nil:
	case resp.ContentLength > 0 && req.Method != http.MethodHead:
		resp.Body = io.NopCloser(cut{})
	default:
		resp.Body = http.NoBody
	}
	if resp.StatusCode == http.StatusSwitchingProtocols {
		_ = resp.Body.Close() // a connection of its own, not a body: nothing here can use it
		return Result{Resp: resp}
	}
	body, err := ReadUpTo(resp.Body, resp.ContentLength, x.MaxResponse)
	if err != nil {
		_ = resp.Body.Close()
		if resp.StatusCode == http.StatusConflict { // its head is enough to know that it must not be asked for again
			return Result{Resp: resp, Body: body, Rest: io.NopCloser(cut{}), Cut: true}
		}
		return Result{Err: fmt.Errorf("reading the answer's body after status %d: %w", resp.StatusCode, err)}
	}
	if int64(len(body)) > x.MaxResponse {
		return Result{Resp: resp, Body: body[:x.MaxResponse], Rest: &rest{io.MultiReader(bytes.NewReader(body[x.MaxResponse:]), resp.Body), resp.Body}}
	}
	_ = resp.Body.Close()
	return Result{Resp: resp, Body: body}
}

var errNoAnswer = errors.New("the transport returned neither an answer nor an error")

// cut is what follows an answer that was cut off.
type cut struct{}

func (cut) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

// rest is what follows the part of a body that was read.
type rest struct {
	io.Reader
	io.Closer
}

// ReadUpTo reads a body of the announced length (negative: none is), at most one byte beyond limit. With an error it
// returns what came before.
func ReadUpTo(r io.Reader, announced, limit int64) ([]byte, error) {
	size := min(announced, limit, 1<<20) + 1 // what a server announces is not memory's measure
	if announced < 0 {
		size = 512
	}
	buf := make([]byte, 0, size)
	for {
		n, err := r.Read(buf[len(buf):min(int64(cap(buf)), limit+1)])
		buf = buf[:len(buf)+n]
		if err == io.EOF {
			return buf, nil
		}
		if err != nil {
			return buf, err
		}
		if int64(len(buf)) > limit {
			return buf, nil
		}
		if len(buf) == cap(buf) {
			buf = append(buf, 0)[:len(buf)]
		}
	}
}

// trace counts. The transport may still call it after the exchange has ended.
type trace struct {
	httptrace.ClientTrace
	onPoint    func(Point, bool)
	asked, got atomic.Bool
	sends      atomic.Int32
}

func newTrace(onPoint func(Point, bool)) *trace {
	t := &trace{onPoint: onPoint}
	t.GetConn = func(string) { t.asked.Store(true) }
	t.GotConn = func(i httptrace.GotConnInfo) {
		t.got.Store(true)
		t.point(Connected, i.Reused)
	}
	t.WroteHeaders = func() {
		t.sends.Add(1)
		t.point(HeaderWritten, false)
	}
	if t.onPoint != nil {
		t.WroteRequest = func(i httptrace.WroteRequestInfo) {
			if i.Err == nil {
				t.point(BodyWritten, false)
			}
		}
		t.GotFirstResponseByte = func() { t.point(FirstByte, false) }
	}
	return t
}

func (t *trace) point(p Point, reused bool) {
	if t.onPoint != nil {
		t.onPoint(p, reused)
	}
}
