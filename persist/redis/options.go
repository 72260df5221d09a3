package redis

import (
	"fmt"
	"log/slog"
	"regexp"
	"time"
)

// Options of a store. Every zero value is good.
type Options struct {
	// Prefix tells stores on one server apart: every key is "{Prefix}:" and a name. Empty: "samekey". At most 64 ASCII
	// letters, digits, and any of "_.:/-". The braces are the hash tag of a Redis Cluster, see the package's text.
	Prefix string
	// Lease is how long a claim holds without a Mark. 0: 30 seconds. At least 100 ms. An attempt timeout above half
	// of it is refused by the client; a dead owner's operations are free for others after it.
	Lease time.Duration
	// RetryFor is how long a call goes on trying, within its context, while connections are lost or refused, or the
	// server is loading, failing over or busy. 0: 3 seconds. Negative: one try only. A Begin that does not get through
	// within a Lease cannot know what others have done with what it may have recorded, and fails with Error.Maybe: let
	// Lease be longer than RetryFor by two seconds or more.
	RetryFor time.Duration
	// AllowVolatile opens a server that may lose what it has acknowledged (appendonly or no-appendfsync-on-rewrite set
	// the wrong way, appendfsync other than always, a maxmemory-policy that evicts), or that does not say. A command
	// can then be sent twice or be forgotten after a crash of the server.
	AllowVolatile bool
	// SweepEvery is how often what is past its retention is removed, a bounded number in one script. It is never told
	// of in any case, and Redis itself removes what nobody may know of any more, but for its entries in the indexes.
	// 0: a minute. Negative: never, by this store.
	SweepEvery time.Duration
	// Logger is told which background work failed. Nil: slog.Default.
	Logger *slog.Logger
}

const (
	defaultPrefix = "samekey"
	minLease      = 100 * time.Millisecond
	resolveFor    = time.Second // how long a Begin outlives its context to withdraw what it may have written
	closeFor      = 10 * time.Second
	sweepStep     = 200       // records in one script
	pageKeys      = 256       // keys that List reads at once
	pageBytes     = 256 << 10 // and bodies
	dueMost       = 256       // operations that ClaimDue takes at once
	dueBytes      = 8 << 20   // and bodies
)

var prefixes = regexp.MustCompile(`^[A-Za-z0-9_.:/-]{1,64}$`)

func (o Options) filled() (Options, error) {
	if o.Prefix == "" {
		o.Prefix = defaultPrefix
	}
	if o.Lease == 0 {
		o.Lease = 30 * time.Second
	}
	if o.RetryFor == 0 {
		o.RetryFor = 3 * time.Second
	}
	if o.SweepEvery == 0 {
		o.SweepEvery = time.Minute
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	switch {
	case !prefixes.MatchString(o.Prefix):
		return o, fmt.Errorf("redis: Options.Prefix %q is not a plain name of at most 64 letters, digits and _.:/-", o.Prefix)
	case o.Lease < minLease:
		return o, fmt.Errorf("redis: Options.Lease is %v, want at least %v", o.Lease, minLease)
	}
	return o, nil
}

// key is the name of a key; all of a store have one hash tag.
func (o Options) key(name string) string { return "{" + o.Prefix + "}:" + name }
