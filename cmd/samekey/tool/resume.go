package tool

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/samekey/samekey"
	"github.com/samekey/samekey/persist"
)

var resumeCommand = &command{
	name: "resume", args: "STORE [ID]", short: "send operations again, under their own keys", least: 1, most: 2,
	long: `
Sends one operation again, or with -all every pending one that the filters select: the same key, the
same bytes, a fresh budget of attempts. Nothing goes out under a key that the server may have
forgotten. With -all those that are parked are left alone, unless -parked asks for them (and only
them); conflicts are resumed one by one.

The program's Recovery.Handle is not told of an answer that is fetched here. With -owed the answer,
be it a conflict, is recorded as owed to it, and the program's next Recover hands it over: say -owed
where a program waits to be told, as it does for what it has enqueued. On an operation that has its
answer already, -owed sends nothing and leaves that answer owed; names without an answer, and what
nobody has named, whose success leaves the {store} at once, are refused.

Credentials that the program sets in Prepare, headers that are not kept, and query parameters that
Policy.SecretQuery names are not in the {store}. They come from the environment, never from the
command line, where others can read them; with them, -all sends to one origin and one scope at a time.

How the program itself would treat an answer is not in the {store} either. -policy gives the
program's policy file; what the program sets in its code on top of that stays unknown. Without it
the tool goes by the record (key header, key life) and is cautious about the rest: a 4xx that is not
marked as a replay settles nothing that may have been sent before. The answer of a named operation
is kept for the program, which gets it too when it runs the same code again.

What is sealed (package persist/sealed) is not sent: only the program has the key.

{shared}

  export AUTH="Bearer $(cat token)"
  {name} resume {eg} order-4711/charge -owed -header Authorization=env:AUTH
  {name} resume {eg} -all -url //api.bank.test/ -header Authorization=env:AUTH`,
	shared: `
On a shared store this works beside living processes: what one of them holds is left alone, as being
sent. Claims are taken for twice the timeout of an attempt; one that is left behind by a kill ends
then by itself.`,
	exits: `
  0  every operation has its answer: succeeded or rejected
  1  no such operation, a conflict, or an outcome that is still unknown
  2  a bad command line, or the {store} cannot be opened or written
  3  {held}`,
	setup: func(t *tool, fs *flag.FlagSet) func(context.Context, []string) error {
		s := &sender{tool: t, word: word{timeout: 30 * time.Second}, transport: http.DefaultTransport.(*http.Transport).Clone()}
		s.transport.MaxIdleConnsPerHost = atOnce
		s.filter.flags(fs)
		fs.BoolVar(&s.all, "all", false, "every pending operation that the filters select, eight at a time")
		fs.BoolVar(&s.owed, "owed", false, "leave the answers owed to the program's Recovery.Handle")
		fs.Func("header", "`NAME=env:VAR`: a header, set to what VAR holds in the environment; repeatable", s.headers.add)
		fs.Func("query", "`NAME=env:VAR`: the same for a query parameter that is not stored", s.query.add)
		fs.DurationVar(&s.timeout, "timeout", s.timeout, "`DURATION`: of one attempt; by default, with -policy, what the file says")
		file := fs.String("policy", "", policyUsage)
		fs.BoolVar(&s.json, "json", false, "print one JSON object a line")
		fs.BoolVar(&s.bodies, "body", false, "print the answers' payloads too")
		return func(ctx context.Context, args []string) (err error) {
			if *file != "" {
				if s.policies, err = t.policyFlag(*file); err != nil {
					return err
				}
				fs.Visit(func(f *flag.Flag) { s.hurried = s.hurried || f.Name == "timeout" })
			}
			return s.run(ctx, args)
		}
	},
}

// sender resumes.
type sender struct {
	*tool
	word                           // what is gone by where there is no policy file
	policies       *policies       // nil: there is none
	hurried        bool            // -timeout overrides the file
	transport      *http.Transport // shared: the clients of all operations use the same connections
	filter         filter
	all, owed      bool
	headers, query secrets
	json, bodies   bool

	mu      sync.Mutex // of the output
	unknown bool       // some operation has no answer yet
	held    bool       // some operation is held by another process
	hinted  bool       // that the program is not told of an answer
}

func (s *sender) run(ctx context.Context, args []string) (err error) {
	switch {
	case s.all && len(args) == 2:
		return bad("resume: an ID or -all, not both")
	case !s.all && len(args) == 1:
		return bad("resume: ID is missing; -all takes every pending operation")
	case !s.all && (s.filter.set != nil || s.filter.url != "" || s.filter.older > 0 || s.filter.parked):
		return bad("resume: -endpoint, -url, -older and -parked go with -all")
	case s.timeout <= 0:
		return bad("resume: -timeout is not above zero")
	}
	for _, list := range []*secrets{&s.headers, &s.query} {
		if err := list.resolve(s.env); err != nil {
			return bad("resume: %w", err)
		}
	}
	if err := s.headers.settable(); err != nil {
		return bad("resume: %w", err)
	}
	if s.all {
		return s.sendAll(ctx, args[0])
	}
	err = s.with(ctx, args[0], s.lease(), persist.Ref{Scope: s.filter.scope, ID: args[1]}, nil, func(st persist.Store, r *persist.Record) error {
		if r.Tombstone() || r.State() == persist.Abandoned {
			return no("%s is %s: there is nothing to send", name(r.Ref), r.State())
		}
		return s.send(ctx, st, r)
	})
	return s.end(err)
}

func (s *sender) end(err error) error {
	switch {
	case err != nil:
	case s.unknown:
		err = quiet(exitNo)
	case s.held:
		err = quiet(exitInUse)
	}
	return err
}

// atOnce is how many operations are under way together.
const atOnce = 8

func (s *sender) sendAll(ctx context.Context, arg string) (err error) {
	st, err := s.open(ctx, arg, s.lease())
	if err != nil {
		return err
	}
	defer func() {
		if cerr := st.Close(); err == nil && cerr != nil {
			err = bad("%w", cerr)
		}
	}()
	refs, err := s.chosen(ctx, st)
	if err != nil {
		return err
	}
	if len(refs) == 0 && !s.json {
		s.printf("nothing to resume\n")
	}
	var running sync.WaitGroup
	slots := make(chan struct{}, atOnce)
	var first error
	for _, ref := range refs {
		slots <- struct{}{}
		if ctx.Err() != nil {
			break
		}
		running.Go(func() {
			defer func() { <-slots }()
			r, err := st.Get(ctx, ref)
			if err == nil && s.selects(&r) {
				err = s.send(ctx, st, &r)
			}
			if err == nil || errors.Is(err, persist.ErrNotFound) {
				return // or it has ended meanwhile
			}
			s.mu.Lock()
			defer s.mu.Unlock()
			s.complain(err)
			switch code := codeOf(err); {
			case code == exitInUse:
				s.held = true
			case code != exitNo && first == nil:
				first = quiet(code)
			default:
				s.unknown = true
			}
		})
	}
	running.Wait()
	if ctx.Err() != nil {
		return no("interrupted: what was not sent is still pending")
	}
	return s.end(first)
}

// chosen selects what -all sends.
func (s *sender) chosen(ctx context.Context, st persist.Store) (refs []persist.Ref, err error) {
	f := s.filter.store(s.now())
	f.States = []persist.State{persist.Pending}
	seen, sealed, parked := map[string]bool{}, map[string]int{}, 0
	for r, err := range st.List(ctx, f) {
		if err != nil {
			return nil, bad("%w", err)
		}
		if !s.selects(&r) {
			if isParked(&r) && !s.filter.parked && s.filter.match(&r, s.now()) {
				parked++
			}
			continue
		}
		if key := sealedKey(&r); key != "" {
			sealed[key]++
			continue
		}
		refs = append(refs, r.Ref)
		where := origin(r.Target)
		if r.Scope != "" {
			where += " (scope " + r.Scope + ")"
		}
		seen[where] = true
	}
	s.filter.passedOver(s.tool)
	if parked > 0 {
		s.warn("%s left alone: -parked takes those, and only those", count(parked, "operation is parked and", "operations are parked and"))
	}
	for _, key := range slices.Sorted(maps.Keys(sealed)) {
		s.unknown = true
		s.warn("%s %s: %s", count(sealed[key], "operation is", "operations are"), underKey(key), onlyProgram)
	}
	if len(seen) > 1 && len(s.headers)+len(s.query) > 0 {
		places := make([]string, 0, len(seen))
		for where := range seen {
			places = append(places, where)
		}
		slices.Sort(places)
		return nil, no("nothing was sent: the credentials of one place would go to others too; choose one of %s with -url, -endpoint or -scope",
			strings.Join(places, ", "))
	}
	return refs, nil
}

func (s *sender) selects(r *persist.Record) bool {
	return r.Answer == nil && (!isParked(r) || s.filter.parked) && s.filter.match(r, s.now())
}

// lease is how long a claim has to hold: an attempt may take half of it.
func (s *sender) lease() time.Duration {
	longest := max(s.timeout, 10*time.Second) // or the default
	if s.policies != nil {
		longest = max(longest, s.policies.Default.AttemptTimeout)
		for _, p := range s.policies.Endpoints {
			longest = max(longest, p.AttemptTimeout)
		}
	}
	return 2 * longest
}

// config is what the program's policy file says; without one, the record's own word has to do.
func (s *sender) config(r *persist.Record) (samekey.Config, error) {
	if s.policies != nil {
		return s.policies.Config, s.policies.fits(r)
	}
	p, err := s.policy(r)
	if c, found, _ := carrierOf(r); err == nil && !found && r.Progress.Attempts > 0 && r.Answer == nil {
		err = no("%s bears no key in a header of its own (%s) and may have been sent: without -policy only the program itself can tell whether "+
			"it may be sent again", name(r.Ref), c)
	}
	return samekey.Config{Default: p}, err
}

// send resumes one operation and says what became of it.
func (s *sender) send(ctx context.Context, st persist.Store, r *persist.Record) error {
	if err := opened(r); err != nil {
		return err
	}
	if s.owed && !r.Named {
		return no("%s was not sent: nobody named it, so that its success leaves the store at once and cannot be left owed: resume it without -owed, "+
			"or have the program's Recover send it", named(r))
	}
	cfg, err := s.config(r)
	if err != nil {
		return err
	}
	if s.hurried {
		ctx = samekey.WithPolicy(ctx, samekey.Policy{AttemptTimeout: s.timeout, Deadline: max(time.Minute, 2*s.timeout)})
	}
	if missing := s.missing(r); missing != "" {
		return no("%s was not sent: %s", name(r.Ref), missing)
	}
	cfg.HTTPClient, cfg.Prepare = &http.Client{Transport: s.transport}, s.prepare(r)
	o := &owing{Store: st}
	if s.owed {
		st = o.store()
	}
	return withClient(st, cfg, func(c *samekey.Client) error {
		resp, err := c.Resume(ctx, r.Ref)
		switch {
		case errors.Is(err, samekey.ErrBusy):
			return held(r.Ref)
		case errors.Is(err, persist.ErrNotFound):
			return fmt.Errorf("%s is no longer there: %w", name(r.Ref), err)
		}
		return s.report(ctx, r, o, resp, err)
	})
}

// missing says what the first request bore and nobody has supplied again.
func (s *sender) missing(r *persist.Record) string {
	if r.Answer != nil && r.Answer.State != persist.Conflicted {
		return ""
	}
	var all []string
	for _, name := range r.Omitted {
		if param, is := strings.CutPrefix(name, "?"); is {
			if !s.query.has(param) {
				all = append(all, fmt.Sprintf("its query parameter %s is not stored, -query %[1]s=env:VAR supplies it", param))
			}
		} else if !s.headers.has(name) {
			all = append(all, fmt.Sprintf("its header %s is not stored, -header %[1]s=env:VAR supplies it", name))
		}
	}
	return strings.Join(all, "; ")
}

// prepare supplies what is not stored of r.
func (s *sender) prepare(r *persist.Record) func(context.Context, *http.Request) error {
	return func(_ context.Context, req *http.Request) error {
		for _, h := range s.headers {
			req.Header.Set(h.name, h.value)
		}
		for _, q := range s.query {
			if slices.Contains(r.Omitted, "?"+q.name) {
				pair := url.QueryEscape(q.name) + "=" + url.QueryEscape(q.value)
				req.URL.RawQuery = strings.TrimPrefix(req.URL.RawQuery+"&"+pair, "&")
			}
		}
		return nil
	}
}
