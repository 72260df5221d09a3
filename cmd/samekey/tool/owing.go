package tool

import (
	"context"
	"errors"
	"fmt"

	"github.com/samekey/samekey/persist"
)

// owing is a store that settles one operation with its answer owed to the program, in the same step: a crash leaves it
// pending, or owed.
type owing struct {
	persist.Store
	left bool // it is owed now
}

func (o *owing) Settle(ctx context.Context, c persist.Claim, a persist.Answer) error {
	a.Owed, a.Lazy = true, false
	err := o.Store.Settle(ctx, c, a)
	o.left = err == nil
	return err
}

// store tells of the lease where there is one: it bounds what is sent.
func (o *owing) store() persist.Store {
	if l, is := o.Store.(persist.Leaser); is {
		return struct {
			*owing
			persist.Leaser
		}{o, l}
	}
	return o
}

// leave has the answer owed that was there before.
func (o *owing) leave(ctx context.Context, r *persist.Record) error {
	e, err := o.Store.Claim(ctx, r.Ref)
	switch {
	case errors.Is(err, persist.ErrBusy):
		return fmt.Errorf("the answer is not left owed: another process holds %s just now; try again", named(r))
	case errors.Is(err, persist.ErrNotFound):
		return fmt.Errorf("the answer is not left owed: %s is no longer there", named(r))
	case err != nil:
		return fmt.Errorf("the answer is not left owed: %w", err)
	case e.Answer != nil && e.Answer.Owed:
		o.left = true
		return o.Release(ctx, e.Claim)
	case e.Answer == nil || e.Key != r.Key:
		return errors.Join(fmt.Errorf("the answer is not left owed: %s has changed meanwhile", named(r)), o.Release(ctx, e.Claim))
	}
	return o.Settle(ctx, e.Claim, *e.Answer)
}
