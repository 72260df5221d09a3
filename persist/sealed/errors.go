package sealed

import (
	"errors"
	"fmt"

	"github.com/samekey/samekey/persist"
)

// OpenError says that a part of an operation could not be opened. It comes in a *persist.Error, which names the
// operation.
type OpenError struct {
	Part  string // "request", "progress" or "answer"
	KeyID string // that it was sealed under; empty where that cannot be told
	Err   error  // ErrNoKey, ErrChanged or ErrNotSealed
}

func (e *OpenError) Error() string {
	if e.KeyID == "" {
		return e.Part + " " + e.Err.Error()
	}
	return fmt.Sprintf("%s, sealed under key %.40q, %v", e.Part, e.KeyID, e.Err)
}

func (e *OpenError) Unwrap() error { return e.Err }

// What an OpenError is about.
var (
	ErrNoKey     = errors.New("needs that key: add it to Options.Keys")
	ErrChanged   = errors.New("does not open: it was changed or moved from another operation, or the key of this ID is another one than it was")
	ErrNotSealed = errors.New("was never sealed: Options.Strict refuses it")
)

func fail(method string, ref persist.Ref, err error) error {
	return &persist.Error{Store: "sealed", Method: method, Ref: ref, Err: err}
}
