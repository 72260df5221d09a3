package samekey_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/samekey/samekey"
	"github.com/samekey/samekey/mockserver"
	"github.com/samekey/samekey/persist"
)

var (
	contentionFor  = flag.Duration("contention", 0, "how long each part of TestContention goes on with new seeds; 0: a few fixed ones")
	contentionSeed = flag.Uint64("seed", 0, "the only seed of TestContention")
)

// contention is a crowd of calls and recoveries that want the same few operations from a bad server.
type contention struct {
	t       *testing.T
	calm    bool // only Do and Recover: nobody but them has an operation, and each payload has one key for ever
	seed    uint64
	unit    time.Duration
	url     string
	srv     *mockserver.Engine
	store   *watched
	clients []*samekey.Client

	mu   sync.Mutex
	lone map[string]samekey.Effect // what was told of an operation that only one call asked for
	done map[string]string         // payloads by the keys under which they succeeded
}

// TestContention: any mixture of calls and recoveries over the same operations, each schedule drawn from a seed. In a
// bubble a seed repeats its schedule but for what happens at the same instant.
func TestContention(t *testing.T) {
	for _, tt := range []struct {
		name    string
		calm    bool
		clients int
		leased  bool
		socket  bool
		seeds   uint64
	}{
		{name: "calls and recoveries", calm: true, clients: 1, seeds: 8},
		{name: "everything", clients: 1, seeds: 12},
		{name: "two clients", clients: 2, leased: true, seeds: 6},
		{name: "calls and recoveries, in real time", calm: true, clients: 1, socket: true, seeds: 2},
		{name: "everything, in real time", clients: 1, socket: true, seeds: 3},
	} {
		t.Run(tt.name, func(t *testing.T) {
			first, last, began := uint64(1), tt.seeds, time.Now()
			switch {
			case *contentionSeed > 0:
				first, last = *contentionSeed, *contentionSeed
			case *contentionFor > 0:
				first = uint64(time.Now().UnixNano()) % 1e12
				last = ^uint64(0)
			}
			for seed := first; seed <= last && (*contentionFor == 0 || *contentionSeed > 0 || time.Since(began) < *contentionFor); seed++ {
				ok := t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
					cfg := mockserver.Config{Seed: seed}
					if !tt.calm { // a name may have several keys then
						cfg.OperationOf = func(r *http.Request, _ []byte) string { return r.Header.Get("Idempotency-Key") }
					}
					crowd := func(t *testing.T) *contention {
						return &contention{t: t, calm: tt.calm, seed: seed, unit: 4 * time.Second, url: labURL, lone: map[string]samekey.Effect{}, done: map[string]string{}}
					}
					if tt.socket {
						srv := newServer(t, cfg)
						s := crowd(t)
						s.unit, s.url, s.srv = 2*time.Millisecond, srv.URL, srv.Engine
						s.store = newWatched(t, newStore(t), seed, 10*time.Microsecond)
						s.run(tt.clients, nil)
						return
					}
					inLab(t, cfg, func(t *testing.T, l *lab) {
						s := crowd(t)
						s.srv = l.Engine
						inner := l.store
						if tt.leased {
							inner = newLapsing(t)
						}
						s.store = newWatched(t, inner, seed, 300*time.Millisecond)
						s.run(tt.clients, &http.Client{Transport: l.rt.Transport})
					})
				})
				if !ok && *contentionFor > 0 {
					return
				}
			}
		})
	}
}

// run has everybody do what the seed says, closes the clients, by half in the middle of it, and looks at what is left.
func (s *contention) run(clients int, hc *http.Client) {
	draw := s.draws(0)
	share := func(phase mockserver.Phase, do mockserver.Action, share float64) {
		s.srv.Fault(mockserver.Fault{When: phase, Do: do, Share: share})
	}
	share(mockserver.AfterCommit, mockserver.Drop, 0.15)
	share(mockserver.BeforeCommit, mockserver.Drop, 0.08)
	share(mockserver.BeforeCommit, mockserver.Status(503, false), 0.1)
	share(mockserver.AfterCommit, mockserver.CutBody, 0.05)
	share(mockserver.AfterCommit, mockserver.Delay(8*s.unit), 0.08) // longer than an attempt may take
	share(mockserver.BeforeCommit, mockserver.Status(409, false), 0.06)
	if !s.calm {
		share(mockserver.BeforeCommit, mockserver.Status(422, false), 0.1)
		share(mockserver.AfterCommit, mockserver.Status(500, true), 0.04) // the key answers that from now on
	}
	share(mockserver.AfterCommit, mockserver.Delay(2*s.unit), 0.3)
	share(mockserver.BeforeCommit, mockserver.Delay(s.unit/3), 0.5)

	for range clients {
		store := persist.Store(s.store)
		if s.store.leased {
			store = leasedWatched{s.store}
		}
		s.clients = append(s.clients, newClient(s.t, samekey.Config{
			Store: store, HTTPClient: hc, Observer: s.store.observe, Prepare: s.prepare(s.draws(1)),
			Default: samekey.Policy{
				AttemptTimeout: 7 * s.unit / 2, Deadline: 40 * s.unit, MaxAttempts: 1 + draw(3),
				Backoff: samekey.Backoff{Min: s.unit / 10, Max: 2 * s.unit},
			},
		}))
	}
	var callers, keepers sync.WaitGroup
	actor := uint64(10)
	crowd := func(wg *sync.WaitGroup, n, times int, act func(draw func(int) int, c int)) {
		for i := range n {
			draw, c := s.draws(actor), i%clients
			actor++
			wg.Go(func() {
				for range times {
					time.Sleep(s.upTo(draw, 3))
					act(draw, c)
				}
			})
		}
	}
	crowd(&callers, 6+draw(8), 12, s.do)
	crowd(&callers, 2+draw(4), 10, s.recover)
	if !s.calm {
		crowd(&callers, 2+draw(3), 12, s.operate)
	}
	crowd(&keepers, draw(2)*clients, 1, s.keepRecovering)
	ended := make(chan struct{})
	go func() { callers.Wait(); close(ended) }()
	s.within(5*time.Hour, "the calls", func() {
		if draw(2) == 0 {
			time.Sleep(s.upTo(draw, 100))
			return
		}
		<-ended
	})
	for i, c := range s.clients {
		s.within(5*time.Minute, "Close", func() { require.NoError(s.t, c.Close(), i) })
	}
	s.within(time.Hour, "what Close has ended", func() { <-ended; keepers.Wait() })
	s.store.over()
	s.aftermath(hc)
}

// within fails with all stacks if f takes too long: somebody waits for what never comes.
func (s *contention) within(limit time.Duration, what string, f func()) {
	done := make(chan struct{})
	late := time.AfterFunc(limit, func() {
		select {
		case <-done:
		default:
			buf := make([]byte, 4<<20)
			fmt.Fprintf(os.Stderr, "%s: %s last longer than %v\n\n%s\n", s.t.Name(), what, limit, buf[:runtime.Stack(buf, true)])
			os.Exit(1) // the test cannot end
		}
	})
	f()
	close(done)
	late.Stop()
}

// aftermath: nothing is claimed, a new client finishes everything, and every command was sent as one.
func (s *contention) aftermath(hc *http.Client) {
	t, ctx := s.t, context.Background()
	s.srv.ClearFaults()
	if s.unit > time.Second {
		time.Sleep(10 * time.Minute) // what was told to come later is due
	}
	c := newClient(t, samekey.Config{Store: s.store.Store, HTTPClient: hc})
	handed := &taker{}
	report, err := c.Recover(ctx, samekey.Recovery{Jitter: -1, Handle: handed.handle})
	require.NoError(t, err)
	require.Zero(t, report.Owed)
	for op, err := range c.Operations(ctx, persist.Filter{}) {
		require.NoError(t, err)
		if op.State == samekey.Pending { // parked, or not due yet in real time
			resp, err := c.Resume(ctx, op.Ref)
			if err == nil {
				_ = read(t, resp)
			} else if op, gerr := c.Operation(ctx, op.Ref); gerr != nil || op.LastStatus != 500 { // which the server has stored
				t.Errorf("%q cannot be finished: %v", op.ID, err)
			}
		}
	}
	for rec, err := range s.store.List(ctx, persist.Filter{}) {
		require.NoError(t, err)
		if rec.Answer != nil && rec.Answer.Owed {
			t.Errorf("%q is owed to a handler that takes everything", rec.ID)
		}
		_, err := s.store.Store.Claim(ctx, rec.Ref)
		require.NoError(t, err, "nobody has it")
	}

	if len(s.srv.Commands()) == 0 {
		return // closed before anything was sent
	}
	if s.calm {
		s.srv.AssertOnce(t)
	}
	s.srv.AssertAtMostOnce(t)
	s.srv.AssertSameKey(t)
	if s.unit > time.Second { // over a socket the server may learn late that a client has left
		s.srv.AssertNoOverlap(t)
	}
	effects := map[string]int{}
	for _, r := range s.srv.Requests() {
		if r.Effect {
			for id := range s.lone {
				if strings.Contains(string(r.Body), `"`+id+`"`) {
					effects[id]++
				}
			}
		}
		if want, is := s.done[r.Key]; is && want != string(r.Body) {
			t.Errorf("%s was answered as %s, and sent as %s", r.Key, want, r.Body)
		}
	}
	for id, told := range s.lone {
		if n := effects[id]; n > 1 && s.calm || n > 0 && told == samekey.EffectNone {
			t.Errorf("%s had %d effects, and its caller was told %v", id, n, told)
		}
	}
}

// draws are numbers that depend on the seed and on who draws; from 0 to below n.
func (s *contention) draws(who uint64) func(n int) int {
	r := rand.New(rand.NewPCG(s.seed, who))
	var mu sync.Mutex
	return func(n int) int {
		mu.Lock()
		defer mu.Unlock()
		return r.IntN(n)
	}
}

// upTo is a random time, below so many units.
func (s *contention) upTo(draw func(int) int, units int) time.Duration {
	return s.unit * time.Duration(draw(units*1000)) / 1000
}

// context ends at random, or never.
func (s *contention) context(draw func(int) int, who *caller) (context.Context, context.CancelFunc) {
	ctx := who.ctx(context.Background())
	switch draw(6) {
	case 0:
		return context.WithTimeout(ctx, s.upTo(draw, 8))
	case 1:
		ctx, cancel := context.WithCancel(ctx)
		timer := time.AfterFunc(s.upTo(draw, 8), cancel)
		return ctx, func() { timer.Stop(); cancel() }
	}
	return context.WithCancel(ctx)
}

func (s *contention) payload(id string, amount int) string {
	return fmt.Sprintf(`{"amount":%d,"currency":"RUB","orderRef":"%s"}`, amount+1, id)
}

func (s *contention) name(draw func(int) int) string { return fmt.Sprint("op-", draw(4)) }

// do is a Do of whatever kind.
func (s *contention) do(draw func(int) int, c int) {
	who := &caller{client: c, kind: "Do"}
	ctx, cancel := s.context(draw, who)
	defer cancel()
	kind, id, variant := draw(10), s.name(draw), max(0, draw(5)-3)
	ref := id
	switch {
	case kind >= 7:
		ref = fmt.Sprintf("lone-%d-%d", draw(1e9), draw(1e9))
	case kind == 6: // the caller's own key
		ref, variant = "key-of-"+id, 0
	case s.calm:
		ref = fmt.Sprint(id, "-", variant) // the intent, of which there is one for each payload
	}
	body := s.payload(ref, variant)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url+"/v1/payments", strings.NewReader(body))
	if err != nil {
		s.t.Error(err)
		return
	}
	req.Header.Set("Content-Type", "application/json")
	switch {
	case kind < 6:
		req = samekey.Named(req, id)
	case kind == 6:
		req.Header.Set("Idempotency-Key", "key-of-"+id)
	}
	resp, err := s.clients[c].Do(req)
	if kind >= 7 {
		told := samekey.EffectUnknown
		if err != nil {
			told = samekey.EffectOf(err)
		}
		s.mu.Lock()
		s.lone[ref] = told
		s.mu.Unlock()
	}
	if err != nil {
		if !isAny(err, samekey.ErrUnknown, samekey.ErrNotSent, samekey.ErrConflict, samekey.ErrMismatch, samekey.ErrBusy) &&
			(!isAny(err, samekey.ErrExpired) || s.calm) {
			s.t.Errorf("Do: %v", err)
		}
		if isAny(err, samekey.ErrBusy) && s.calm {
			s.t.Errorf("nobody else has it: %v", err)
		}
		return
	}
	s.takes(draw, resp, body)
}

// takes reads an answer, or forgets to.
func (s *contention) takes(draw func(int) int, resp *http.Response, body string) {
	if info, _ := samekey.InfoOf(resp); resp.StatusCode/100 == 2 && body != "" {
		s.mu.Lock()
		s.done[info.Key] = body
		s.mu.Unlock()
	}
	if draw(5) == 0 && !s.calm {
		s.t.Cleanup(func() { _ = resp.Body.Close() })
		return
	}
	time.Sleep(s.upTo(draw, 1))
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		s.t.Error(err)
	}
	_ = resp.Body.Close()
}

// recover is a pass.
func (s *contention) recover(draw func(int) int, c int) {
	who := &caller{client: c, kind: "Recover"}
	ctx, cancel := s.context(draw, who)
	defer cancel()
	_, err := s.clients[c].Recover(ctx, s.recovery(draw, who))
	who.ended = err != nil
	if err != nil && ctx.Err() == nil && !isAny(err, samekey.ErrClosed) {
		s.t.Errorf("Recover: %v", err)
	}
}

func (s *contention) keepRecovering(draw func(int) int, c int) {
	who := &caller{client: c, kind: "Recover", ended: true}
	r := s.recovery(draw, who)
	r.Interval = 3 * s.unit
	if err := s.clients[c].KeepRecovering(who.ctx(context.Background()), r); !isAny(err, samekey.ErrClosed) {
		s.t.Errorf("KeepRecovering: %v", err)
	}
}

func (s *contention) recovery(draw func(int) int, who *caller) samekey.Recovery {
	r := samekey.Recovery{Concurrency: 1 + draw(4), Jitter: -1, ParkAfter: 3 + 10*draw(2)}
	if draw(3) > 0 {
		who.handles = true
		r.Handle = func(ctx context.Context, op samekey.Operation, resp *http.Response, err error) error {
			s.hook(ctx, draw, who.client)
			_, rerr := io.Copy(io.Discard, resp.Body)
			if rerr != nil {
				s.t.Error(rerr)
			}
			switch n := draw(20); {
			case n < 5:
				return errors.New("refused")
			case n == 5:
				panic("refused")
			case n < 12 && err != nil && !s.calm:
				if n%2 == 0 {
					return samekey.AbandonWith("whatever")
				}
				return samekey.ResumeAfter(s.upTo(draw, 20))
			}
			s.store.accepts(op)
			return nil
		}
	}
	if draw(2) == 0 {
		r.Reconcile = func(ctx context.Context, _ samekey.Operation, _ samekey.Why) (samekey.Verdict, error) {
			s.hook(ctx, draw, who.client)
			switch n := draw(8); {
			case n == 0:
				return samekey.Happened, errors.New("refused")
			case n == 1:
				panic("refused")
			case n < 4 || s.calm:
				return samekey.Keep, nil
			default:
				return samekey.Verdict(n - 4), nil
			}
		}
	}
	return r
}

// hook is what the hooks of a recovery do: they take their time, whatever their context says, and use the client.
func (s *contention) hook(ctx context.Context, draw func(int) int, c int) {
	switch draw(4) {
	case 0:
		time.Sleep(s.upTo(draw, 4))
	case 1:
		select {
		case <-time.After(s.upTo(draw, 40)):
		case <-ctx.Done():
		}
	case 2:
		if !s.calm {
			s.operate(draw, c)
		}
	}
}

// operate is what operators do.
func (s *contention) operate(draw func(int) int, c int) {
	kinds := []string{"Resume", "Resume", "Rekey", "Abandon", "Forget", "Operations"}
	who := &caller{client: c, kind: kinds[draw(len(kinds))]}
	ctx, cancel := s.context(draw, who)
	defer cancel()
	client, ref := s.clients[c], samekey.Ref{ID: s.name(draw)}
	if draw(5) == 0 {
		ref.ID = "key-of-" + ref.ID
	}
	var err error
	switch who.kind {
	case "Resume":
		var resp *http.Response
		if resp, err = client.Resume(ctx, ref); err == nil {
			s.takes(draw, resp, "")
		}
	case "Rekey":
		_, err = client.Rekey(ctx, ref)
	case "Abandon":
		err = client.Abandon(ctx, ref, "whatever")
	case "Forget":
		err = client.Forget(ctx, ref)
	case "Operations":
		for _, err = range client.Operations(ctx, persist.Filter{}) {
			if err != nil {
				break
			}
		}
	}
	switch {
	case err == nil, isAny(err, persist.ErrNotFound):
	case isAny(err, samekey.ErrBusy):
		s.store.told(who)
	case ctx.Err() != nil && isAny(err, ctx.Err()):
	case who.kind == "Resume" && isAny(err, samekey.ErrUnknown, samekey.ErrConflict, samekey.ErrExpired, samekey.ErrNotSent):
	case who.kind != "Resume" && s.store.leased && isAny(err, persist.ErrClaimLost):
	case strings.Contains(err.Error(), "ed: it "), strings.Contains(err.Error(), `": it `): // has ended
	default:
		s.t.Errorf("%s: %v", who.kind, err)
	}
}

// prepare checks each attempt, and takes its time.
func (s *contention) prepare(draw func(int) int) func(context.Context, *http.Request) error {
	return func(ctx context.Context, req *http.Request) error {
		op, ok := samekey.OperationOf(ctx)
		if got := req.Header.Get("Idempotency-Key"); !ok || !strings.Contains(got, op.Key) {
			s.t.Errorf("the key %s of %q is sent as %s", op.Key, op.ID, got)
		}
		s.store.sends(ctx, op)
		if draw(4) == 0 {
			time.Sleep(s.upTo(draw, 1))
		}
		return nil
	}
}
