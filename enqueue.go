package samekey

import (
	"fmt"
	"net/http"

	"github.com/samekey/samekey/persist"
)

// Capture makes of req what a store keeps of it, and sends nothing: for a command that is to be recorded in the caller's
// own transaction, together with the business rows it belongs to (sqlstore.Enqueue), and sent after the commit by
// [Client.KeepRecovering], whose handler gets the answer; a Do of the same name would take it from there. Key, policy and
// checks are Do's. It closes req.Body. What is not stored of a request (credentials) is for Config.Prepare to set: without
// one a request that bears such is refused.
func (c *Client) Capture(req *http.Request) (persist.Record, error) {
	pl := c.planFor(req)
	if !pl.isCommand(req.Method) {
		closeBody(req)
		return persist.Record{}, fmt.Errorf("samekey: capture: %s %s is no command under its policy", req.Method, c.describe(req, pl).URL)
	}
	if pl.Persist != PersistFull {
		closeBody(req)
		return persist.Record{}, &PolicyError{Endpoint: pl.pattern, Field: "Persist", Why: "a command that is sent later has to be kept in full"}
	}
	cmd, err := c.capture(req, pl)
	if err != nil {
		return persist.Record{}, err
	}
	if c.cfg.Prepare == nil && len(cmd.rec.Omitted) > 0 {
		return persist.Record{}, &NotSentError{Call: cmd.call(), Err: &missingError{omitted(cmd.rec.Omitted[0])}}
	}
	return cmd.rec, nil
}
