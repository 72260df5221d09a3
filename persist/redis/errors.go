package redis

import (
	"fmt"
	"strings"
)

// ConnectError says that Open did not reach the server, or may not use it.
type ConnectError struct{ Err error }

func (e *ConnectError) Error() string {
	return fmt.Sprintf("redis: cannot use the server, check its address, that it runs, user and password, and that this user may run scripts (EVALSHA, EVAL) and INFO: %v", e.Err)
}
func (e *ConnectError) Unwrap() error { return e.Err }

// ClientError says that Open was given a client that a store must not use.
type ClientError struct{ Why string }

func (e *ClientError) Error() string { return "redis: " + e.Why }

// FormatError says that a key holds something else than this version of samekey writes: of a newer version, or damaged or
// of another program (Have 0). Nothing was changed.
type FormatError struct {
	Key        string
	Have, Want int
	Err        error // what the server says, if it has said more
}

func (e *FormatError) Error() string {
	if e.Have > e.Want {
		return fmt.Sprintf("redis: key %s has format %d, this build knows up to %d: upgrade samekey's persist/redis", e.Key, e.Have, e.Want)
	}
	s := fmt.Sprintf("redis: key %s is damaged, or not samekey's: give the store an Options.Prefix of its own", e.Key)
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}
func (e *FormatError) Unwrap() error { return e.Err }

// ReadOnlyError says that the server takes no writes.
type ReadOnlyError struct {
	Err error // nil where the server says so itself
}

func (e *ReadOnlyError) Error() string {
	s := "redis: the server takes no writes: connect to the primary, not to a replica"
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}
func (e *ReadOnlyError) Unwrap() error { return e.Err }

// VolatileError says that the server may lose what it has acknowledged.
type VolatileError struct {
	Setting string // what is wrong: "appendfsync is everysec"
	Mend    string // what to do: "CONFIG SET appendfsync always, and the same in redis.conf"
}

func (e *VolatileError) Error() string {
	return fmt.Sprintf("redis: the server may lose what it has acknowledged (%s): %s, or set Options.AllowVolatile and accept commands sent twice or forgotten after a crash of the server", e.Setting, e.Mend)
}

// scrubbed is an error without what a server repeats of a command that it does not know, which may be a password.
type scrubbed struct{ error }

const repeats = ", with args beginning with"

func scrub(err error) error {
	if err != nil && strings.Contains(err.Error(), repeats) {
		return scrubbed{err}
	}
	return err
}

func (e scrubbed) Error() string {
	s, _, _ := strings.Cut(e.error.Error(), repeats)
	return s
}
func (e scrubbed) Unwrap() error { return e.error }
