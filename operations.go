package samekey

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"time"

	"github.com/samekey/samekey/persist"
)

// Operations lists what the store keeps, oldest first. A store error ends it.
func (c *Client) Operations(ctx context.Context, f persist.Filter) iter.Seq2[Operation, error] {
	return func(yield func(Operation, error) bool) {
		for rec, err := range c.cfg.Store.List(ctx, f) {
			if err != nil {
				yield(Operation{}, err)
				return
			}
			if !yield(c.operation(&rec), nil) {
				return
			}
		}
	}
}

// Operation returns one; errors.Is(err, persist.ErrNotFound) where the store does not know it.
func (c *Client) Operation(ctx context.Context, ref Ref) (Operation, error) {
	rec, err := c.cfg.Store.Get(ctx, ref)
	if err != nil {
		return Operation{}, err
	}
	return c.operation(&rec), nil
}

func (c *core) operation(rec *persist.Record) Operation {
	pattern := ""
	if req, err := rebuild(c.ctx, rec); err == nil {
		pattern = c.planFor(req).pattern
	}
	return operationOf(rec, pattern)
}

// Resume sends one pending, parked or conflicted operation again: a fresh budget of attempts, the same key, and the
// original time of its first send, which bounds the key's life. Its answer is Do's. A settled one is answered from the
// store. Errors are Do's, and persist.ErrNotFound.
func (c *Client) Resume(ctx context.Context, ref Ref) (*http.Response, error) {
	e, err := c.take(ctx, ref)
	switch {
	case errors.Is(err, persist.ErrBusy):
		return nil, &BusyError{Call: Call{Ref: ref}}
	case errors.Is(err, persist.ErrNotFound):
		return nil, err
	case err != nil:
		return nil, &StoreError{Call: Call{Ref: ref}, Err: err}
	}
	cmd, err := c.recorded(&e.Record)
	if err != nil {
		c.letGo(ctx, e.Claim)
		return nil, err
	}
	if cmd.plan, err = cmd.plan.forCall(ctx); err != nil {
		c.letGo(ctx, e.Claim)
		return nil, err
	}
	c.forget(ref)
	k := c.newCall(ctx, cmd, ctx)
	defer k.leave()
	k.mode, k.rec, k.claim = modeResume, e.Record, e.Claim
	req, err := rebuild(ctx, &e.Record)
	if err != nil {
		return nil, err
	}
	var a *answer
	switch {
	case !k.entered:
		a = k.failed(&OutcomeUnknownError{Call: k.call(), Err: ErrClosed})
	case e.State() == Pending, e.State() == Conflicted:
		k.rec.Progress.Parked = false
		a = k.takeOver()
		if a == nil && e.State() == Conflicted {
			a = k.reopen()
		}
		if a == nil {
			k.attempts()
			a = k.conclude()
		}
	case e.State() == Abandoned:
		a = k.failed(&ExpiredError{Call: k.call(), Expired: e.Record.Answer.KeepBody, Past: Abandoned, Reason: e.Record.Answer.Reason})
	default:
		a = k.local()
	}
	if info, ok := ctx.Value(infoKey{}).(*Info); ok && info != nil {
		*info = a.info
	}
	if a.err != nil && (!c.responses || a.head == nil) {
		a.drop()
		return nil, a.err
	}
	return a.response(req, true), nil
}

// reopen makes a conflicted operation pending again, before it is sent: whatever becomes of it then, the conflict is no
// longer its answer.
func (k *call) reopen() *answer {
	rec := k.rec
	rec.Answer = nil
	k.held = time.Now()
	if err := k.store.Replace(k.ctx, k.claim, rec); err != nil {
		return k.beginFailed(err)
	}
	k.rec = rec
	return nil
}

// Rekey gives an expired, parked, conflicted or pending operation a new key, by the caller's word that it did not happen
// under the old one. It sends nothing: Resume, Recover or the same name again does. Refused while another call owns the
// operation, for one that is settled otherwise, and for derived keys. An error beside a key is about what came after: the
// operation has it.
func (c *Client) Rekey(ctx context.Context, ref Ref) (newKey string, err error) {
	err = c.change(ctx, ref, func(e persist.Entry) error {
		if s := e.State(); s != Pending && s != Conflicted {
			return fmt.Errorf("samekey: rekey %q: it %s", ref.ID, s)
		}
		cmd, err := c.recorded(&e.Record)
		if err != nil {
			return err
		}
		rec, err := rekeyed(&e.Record, cmd.plan)
		if err != nil {
			return err
		}
		if err := c.cfg.Store.Replace(ctx, e.Claim, rec); err != nil {
			return err
		}
		newKey = rec.Key
		return c.cfg.Store.Release(context.WithoutCancel(ctx), e.Claim) // it has its new key
	})
	return newKey, err
}

// Abandon ends a pending or conflicted operation without an answer: nothing more is sent, and a later Do under its name
// is an *ExpiredError that says so. The reason is kept with the name.
func (c *Client) Abandon(ctx context.Context, ref Ref, reason string) error {
	return c.change(ctx, ref, func(e persist.Entry) error {
		if s := e.State(); s != Pending && s != Conflicted {
			return fmt.Errorf("samekey: abandon %q: it %s", ref.ID, s)
		}
		now := time.Now()
		return c.cfg.Store.Settle(ctx, e.Claim, persist.Answer{State: Abandoned, Reason: reason, KeepBody: now.Add(maxRetention), KeepName: now.Add(tombstoneLife)})
	})
}

// Forget takes an operation out of the store, whatever its state: the name is new again. Forgetting one that may have
// been sent gives its protection away.
func (c *Client) Forget(ctx context.Context, ref Ref) error {
	err := c.cfg.Store.Forget(ctx, ref)
	if errors.Is(err, persist.ErrBusy) {
		err = c.afresh(ctx, ref, func() error { return c.cfg.Store.Forget(ctx, ref) })
	}
	if errors.Is(err, persist.ErrBusy) {
		return &BusyError{Call: Call{Ref: ref}}
	}
	if (err == nil || errors.Is(err, persist.ErrNotFound)) && c.forget(ref) { // nobody else knows of it
		return nil
	}
	return err
}

// change does something to an operation that nobody owns.
func (c *Client) change(ctx context.Context, ref Ref, f func(persist.Entry) error) error {
	e, err := c.take(ctx, ref)
	if errors.Is(err, persist.ErrBusy) {
		return &BusyError{Call: Call{Ref: ref}}
	}
	if err != nil {
		return err
	}
	if err := f(e); err != nil {
		if rerr := c.cfg.Store.Release(context.WithoutCancel(ctx), e.Claim); rerr != nil && !errors.Is(rerr, persist.ErrClaimLost) {
			err = errors.Join(err, rerr)
		}
		return err
	}
	c.forget(ref)
	return nil
}

// recorded makes a command of what is stored.
func (c *core) recorded(rec *persist.Record) (*command, error) {
	req, err := rebuild(c.ctx, rec)
	if err != nil {
		return nil, fmt.Errorf("samekey: the stored target of %q cannot be read: %w", rec.ID, err)
	}
	return &command{plan: c.planFor(req).stored(), rec: *rec, body: rec.Body, url: req.URL, named: rec.Named, resumed: true}, nil
}
