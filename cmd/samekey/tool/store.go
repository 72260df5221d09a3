package tool

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/samekey/samekey/persist"
)

// storeVar names a store in the environment, for an argument that is "-".
const storeVar = "SAMEKEY_STORE"

// place is what a STORE argument names: a journal's directory, or a URL.
type place struct {
	dir  string
	kind *Kind
	url  string
	env  bool // the environment named it
}

var schemes = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9+.-]+:`) // not the letter of a drive

// place finds out what arg names.
func (t *tool) place(arg string) (place, error) {
	env := arg == "-"
	if env {
		v, _ := t.env(storeVar)
		if v == "" {
			return place{}, bad("- is the store that the environment names in %s, which is not set", storeVar)
		}
		arg = v
	}
	scheme := strings.TrimSuffix(schemes.FindString(arg), ":")
	if k := t.kind(scheme); k != nil {
		return place{kind: k, url: strings.ToLower(scheme) + arg[len(scheme):], env: env}, nil
	}
	st, err := os.Stat(arg)
	isURL := scheme != "" && (strings.Contains(arg, "://") || slices.Contains(elsewhere, strings.ToLower(scheme)))
	switch {
	case err == nil && !st.IsDir():
		return place{}, t.file(arg)
	case err == nil:
		return place{dir: arg, env: env}, nil
	case isURL:
	case isDSN(arg):
		return place{}, t.dsn()
	default:
		return place{dir: arg, env: env}, nil
	}
	if len(t.Stores) == 0 {
		return place{}, bad("%s knows journal directories only, and this is a URL of %s:; %s", t.Name, scheme, getShared)
	}
	return place{}, bad("no store has URLs of the scheme %q: %s knows journal directories, and %s", scheme, t.Name, strings.Join(t.schemes(), ", "))
}

// elsewhere are the schemes of samekey-shared.
var elsewhere = []string{"postgres", "postgresql", "mysql", "mariadb", "sqlite", "redis", "rediss"}

const getShared = "samekey-shared is this tool for shared stores too (PostgreSQL, MariaDB, SQLite, Redis): " +
	"in a checkout of https://github.com/samekey/samekey, go install ./cmd/samekey-shared"

// isDSN reports whether arg looks like what drivers are given in place of a URL, with a password in it.
func isDSN(arg string) bool {
	return strings.Contains(arg, "@") || strings.Contains(arg, "tcp(") || inDSN.MatchString(arg)
}

// dsn does not quote: there may be a password in it.
func (t *tool) dsn() error {
	const what = "there is no such directory, and this looks like a driver's DSN; write "
	switch {
	case len(t.Stores) == 0:
		return bad(what+"postgres://… or mysql://…, for samekey-shared; %s", getShared)
	case t.kind("postgres") != nil:
		return bad(what + "postgres://… or mysql://…")
	}
	return bad(what+"a URL of %s", strings.Join(t.schemes(), ", "))
}

// file says what may be meant by a file where the directory of a journal is wanted.
func (t *tool) file(arg string) error {
	switch {
	case t.kind("sqlite") != nil:
		return bad("%s is a file, and a journal is a directory: if it is a database of SQLite, write sqlite:%[1]s", arg)
	case len(t.Stores) == 0:
		return bad("%s is a file, not a directory, and a journal is one; if it is a database of SQLite, %s", arg, getShared)
	}
	return bad("%s is a file, and a journal is a directory", arg)
}

func (t *tool) kind(scheme string) *Kind {
	if scheme == "" {
		return nil
	}
	for i := range t.Stores {
		if slices.Contains(t.Stores[i].Schemes, strings.ToLower(scheme)) {
			return &t.Stores[i]
		}
	}
	return nil
}

func (t *tool) schemes() (all []string) {
	for _, k := range t.Stores {
		for _, s := range k.Schemes {
			all = append(all, s+":")
		}
	}
	return all
}

// source is what reading commands read: a journal as it was when it was looked at, or an open store.
type source interface {
	Get(ctx context.Context, ref persist.Ref) (persist.Record, error)
	List(ctx context.Context, f persist.Filter) iter.Seq2[persist.Record, error]
	Close() error
}

// looked is a place that is open for reading.
type looked struct {
	source
	name    string
	damaged bool // what is not found in it may have been there
	code    int  // of an error that ends a List
}

// look opens what arg names for reading, beside living owners. What is damaged is said on stderr.
func (t *tool) look(ctx context.Context, arg string) (*looked, error) {
	p, err := t.place(arg)
	if err != nil {
		return nil, err
	}
	if p.kind == nil {
		v, err := t.lookJournal(p.dir)
		if err != nil {
			return nil, err
		}
		return &looked{v, absolute(p.dir), len(v.Report().Damage) > 0, exitNo}, nil
	}
	o, err := t.openStore(ctx, p, Want{Use: Reading})
	if err != nil {
		return nil, err
	}
	return &looked{source: o.Store, name: o.Name, code: exitUsage}, nil
}

// failed is an error that ended a List.
func (l *looked) failed(err error) error { return &exit{l.code, err} }

// open opens what arg names for changes. A journal is refused while another process has it. Claims hold for lease.
func (t *tool) open(ctx context.Context, arg string, lease time.Duration) (persist.Store, error) {
	p, err := t.place(arg)
	if err != nil {
		return nil, err
	}
	if p.kind == nil {
		return t.openJournal(ctx, p.dir)
	}
	o, err := t.openStore(ctx, p, Want{Use: Changing, Lease: lease})
	if err != nil {
		return nil, err
	}
	if o.Caveat != "" {
		t.warn("%s may lose what is changed now: %s", o.Name, o.Caveat)
	}
	return o.Store, nil
}

// failed is an error that a URL has led to. Whoever mends the URL wants to know where it stands.
func (p place) failed(err error) error {
	if p.env {
		err = fmt.Errorf("%w; the URL is that of the environment's %s", err, storeVar)
	}
	return &exit{exitUsage, err}
}

func (t *tool) openStore(ctx context.Context, p place, w Want) (Opened, error) {
	o, err := p.kind.Open(ctx, p.url, w)
	if err != nil {
		return o, p.failed(err)
	}
	if o.Name == "" {
		o.Name = "the store"
	}
	o.Name = t.masked(o.Name)
	return o, nil
}

// with opens what arg names and finds the operation. blind, if it is not nil, is what to do where the record is there and
// cannot be read.
func (t *tool) with(ctx context.Context, arg string, lease time.Duration, ref persist.Ref, blind func(persist.Store, error) error,
	f func(persist.Store, *persist.Record) error) (err error) {
	s, err := t.open(ctx, arg, lease)
	if err != nil {
		return err
	}
	defer func() {
		if cerr := s.Close(); err == nil && cerr != nil {
			err = bad("%w", cerr)
		}
	}()
	r, err := s.Get(ctx, ref)
	switch {
	case errors.Is(err, persist.ErrNotFound):
		return notFound(ctx, ref, s)
	case err != nil && blind != nil && ctx.Err() == nil && !errors.Is(err, persist.ErrClosed):
		return blind(s, err)
	case err != nil:
		return bad("%w", err)
	}
	return f(s, &r)
}

// hintFor bounds the search for what may be meant, in a store that may be large.
const hintFor = 2 * time.Second

// notFound says that there is no such operation, and which one may be meant.
func notFound(ctx context.Context, ref persist.Ref, s interface {
	List(ctx context.Context, f persist.Filter) iter.Seq2[persist.Record, error]
}) error {
	where := ""
	if ref.Scope != "" {
		where = fmt.Sprintf(" in scope %q", ref.Scope)
	}
	ctx, cancel := context.WithTimeout(ctx, hintFor)
	defer cancel()
	const most = 3
	var known []string // names that begin so
	for r, err := range s.List(ctx, persist.Filter{}) {
		switch {
		case err != nil:
		case r.ID == ref.ID && r.Scope == "":
			return no("no operation %q%s, but there is one without a scope", ref.ID, where)
		case r.ID == ref.ID:
			return no("no operation %q%s, but there is one with -scope %q", ref.ID, where, r.Scope)
		case r.Key == ref.ID && r.Key != "":
			return no("no operation %q%s, but that is the key of %q%s", short(ref.ID), where, r.ID, scopeFlag(r.Scope))
		case len(known) <= most && r.ID != r.Key && ref.ID != "" && strings.HasPrefix(r.ID, ref.ID):
			known = append(known, strconv.Quote(r.ID)+scopeFlag(r.Scope))
		}
	}
	if len(known) > most {
		known[most] = "…"
	}
	if len(known) > 0 {
		return no("no operation %q%s; known are %s", ref.ID, where, strings.Join(known, ", "))
	}
	return no("no operation %q%s", ref.ID, where)
}

func scopeFlag(scope string) string {
	if scope == "" {
		return ""
	}
	return fmt.Sprintf(" (-scope %q)", scope)
}

// unchanged is a store that claims, and forgets, one operation only as it was when it was looked at: on a shared store
// others may have sent it meanwhile. It does not tell of leases, which matter to who sends.
type unchanged struct {
	persist.Store
	seen *persist.Record
}

func (u unchanged) Claim(ctx context.Context, ref persist.Ref) (persist.Entry, error) {
	e, err := u.Store.Claim(ctx, ref)
	if err == nil && changed(u.seen, &e.Record) {
		return persist.Entry{}, errors.Join(errChanged(ref), u.Release(context.WithoutCancel(ctx), e.Claim))
	}
	return e, err
}

func (u unchanged) Forget(ctx context.Context, ref persist.Ref) error {
	e, err := u.Claim(ctx, ref)
	switch {
	case errors.Is(err, persist.ErrNotFound): // or only the name is there, which nobody sends
		return u.Store.Forget(ctx, ref)
	case err != nil:
		return err
	}
	err = u.Settle(ctx, e.Claim, persist.Answer{State: persist.Abandoned}) // nothing of which is kept
	if err != nil {
		err = errors.Join(err, u.Release(context.WithoutCancel(ctx), e.Claim))
	}
	return err
}

func changed(seen, now *persist.Record) bool {
	return now.Key != seen.Key || now.State() != seen.State() || now.Progress.Attempts != seen.Progress.Attempts
}

func errChanged(ref persist.Ref) error {
	return no("%s has changed meanwhile, nothing was done", name(ref))
}

// held says that another process has the operation.
func held(ref persist.Ref) error {
	return &exit{exitInUse, fmt.Errorf("%s is held by another process, and nothing was done: it is being sent, or its owner has died "+
		"and the claim ends by itself when the lease is over that the owner took (30s by default); try again then", name(ref))}
}
