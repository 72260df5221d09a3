package tool

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/samekey/samekey"
	"github.com/samekey/samekey/persist"
)

// resumed is what -json tells of one.
type resumed struct {
	Scope    string  `json:"scope"`
	ID       string  `json:"id"`
	State    string  `json:"state"`
	Status   int     `json:"status"` // 0: no answer
	Source   string  `json:"source,omitempty"`
	Attempts int     `json:"attempts"` // over all processes
	Owed     bool    `json:"owed,omitempty"`
	Error    string  `json:"error,omitempty"`
	Body     *string `json:"body,omitempty"`
	Encoding string  `json:"bodyEncoding,omitempty"`
}

func (s *sender) report(ctx context.Context, r *persist.Record, o *owing, resp *http.Response, err error) error {
	out := resumed{Scope: r.Scope, ID: r.ID, State: r.State().String(), Attempts: r.Progress.Attempts}
	var reply *samekey.Reply
	var conflict *samekey.ConflictError
	var unknown *samekey.OutcomeUnknownError
	var payload []byte
	switch {
	case errors.As(err, &conflict):
		out.State, out.Attempts, reply = samekey.Conflicted.String(), conflict.Attempts, &conflict.Reply
	case errors.As(err, &unknown):
		out.State, out.Attempts, reply = samekey.Pending.String(), unknown.Attempts, unknown.Last
	case err == nil:
		payload, err = io.ReadAll(resp.Body) // an anonymous success is settled once it is read
		err = errors.Join(err, resp.Body.Close())
		info, _ := samekey.InfoOf(resp)
		out.Status, out.State, out.Source, out.Attempts = resp.StatusCode, info.State.String(), info.Source.String(), info.Attempts
		if info.StoreErr != nil {
			err = errors.Join(err, fmt.Errorf("the answer could not be recorded: %w", info.StoreErr))
		}
	}
	if reply != nil {
		out.Status, payload = reply.Status, reply.Body
	}
	done := err == nil && (out.State == samekey.Succeeded.String() || out.State == samekey.Rejected.String())
	if done && s.owed && !o.left { // it was there before
		err = o.leave(ctx, r)
	}
	out.Owed = o.left
	if err != nil {
		out.Error = s.masked(hide(oneLine(trimName(err)), r.Key))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unknown = s.unknown || !done || err != nil
	if hint := done && !s.owed && (r.Answer == nil || !r.Answer.Owed); hint && !s.hinted {
		s.hinted = true
		defer s.warn("the program's Recovery.Handle is not told of this; with -owed its next Recover hands the answer over")
	}
	b := bodyOf(payload, s.bodies && payload != nil)
	if s.json {
		out.Body, out.Encoding = b.Text, b.Encoding
		return s.printJSON(out, false)
	}
	status := "-"
	if out.Status > 0 {
		status = fmt.Sprint(out.Status)
	}
	tries := count(out.Attempts, "attempt", "attempts")
	if out.Owed {
		tries += ", owed to the program"
	}
	s.printf("%-10s  %3s  %s  %s\n", out.State, status, named(r), tries)
	s.payload("answer payload", b)
	if out.Error != "" {
		s.warn("%s", out.Error)
	}
	return nil
}
