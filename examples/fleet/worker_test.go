package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/samekey/samekey"
	"github.com/samekey/samekey/persist"
	"github.com/samekey/samekey/persist/sqlstore"
)

// watched is a worker of the tests: child's, but that it writes down each attempt as it starts, and can stand still at a
// gate.
type watched struct {
	worker
	Log     string // file of starts
	Ask     bool   // answer in detail, and recover only when told to
	Patient bool   // attempts have the longest timeout that the lease allows
	NoKey   bool   // the endpoint knows no keys
	Gate    string // where it stands still, the first time that it comes by
	Open    string // until there is this file
}

const (
	watchedEnv    = "FLEET_TEST_WORKER"
	attemptHeader = "X-Attempt"
)

func (w watched) command(t *testing.T) *exec.Cmd {
	self, err := os.Executable()
	require.NoError(t, err)
	told, err := json.Marshal(w)
	require.NoError(t, err)
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), watchedEnv+"="+string(told))
	return cmd
}

// start is one attempt as its owner saw it when it was about to be sent: RoundTrip has been entered, and no byte written.
// Times are nanoseconds by the clock that the database has too, as all are on one machine.
type start struct {
	PID      int
	ID       string
	Attempt  int
	Token    uint64 // of the claim that it was marked under
	Prepared int64  // when Prepare returned, the last that a worker can see before
	At       int64
	Until    int64 // the end of the lease, as the owner can know it
}

func (w watched) run() error {
	ctx := context.Background()
	db, store, err := w.open(ctx)
	for ; err != nil; db, store, err = w.open(ctx) { // the database may be down
		time.Sleep(50 * time.Millisecond)
	}
	log, err := os.OpenFile(w.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	g := &gate{watched: w}
	s := &watchedStore{Store: store, gate: g, marks: map[mark]uint64{}, renewed: map[persist.Claim]time.Time{}}
	cfg := w.config(s, slog.New(slog.DiscardHandler))
	if w.Patient {
		cfg.Default.AttemptTimeout = w.Lease / 2 // the longest there is
	}
	if w.NoKey {
		cfg.Default.Contract = &samekey.Contract{Carrier: samekey.NoKey}
	}
	cfg.Observer = func(_ context.Context, e samekey.Event) {
		if e.Step == samekey.StepWait {
			g.pass("waiting")
		}
	}
	rt := &watchedTransport{store: s, log: log, base: http.DefaultTransport.(*http.Transport).Clone(), lease: w.Lease}
	cfg.HTTPClient = &http.Client{Transport: rt}
	prepare := cfg.Prepare
	cfg.Prepare = func(ctx context.Context, r *http.Request) error {
		op, _ := samekey.OperationOf(ctx)
		r.Header.Set(attemptHeader, fmt.Sprint(op.Attempts))
		time.Sleep(rand.N(4 * time.Millisecond)) // a token is fetched
		g.pass("preparing")
		err := prepare(ctx, r)
		rt.prepared.Store(mark{op.ID, op.Attempts}, time.Now())
		return err
	}
	client, err := samekey.New(cfg)
	if err != nil {
		return err
	}
	if w.Ask {
		w.answer(ctx, client, os.Stdin, os.Stdout)
	} else {
		w.serve(ctx, client, os.Stdin, os.Stdout)
	}
	return errors.Join(client.Close(), store.Close(), db.Close())
}

// outcome is what a caller gets.
type outcome struct {
	Status   int
	Source   string
	Attempts int
	Err      string
	StoreErr string
	Unknown  bool // *samekey.OutcomeUnknownError
	Lost     bool // the claim
	NoKey    bool // it would not be sent again without one
	Report   samekey.Report
}

// answer does one thing at a time: an order, or "recover".
func (w watched) answer(ctx context.Context, client *samekey.Client, tasks io.Reader, out io.Writer) {
	for lines := bufio.NewScanner(tasks); lines.Scan(); {
		var o outcome
		var err error
		if lines.Text() == "recover" {
			o.Report, err = client.Recover(ctx, samekey.Recovery{Jitter: -1})
		} else {
			var info samekey.Info
			ctx := samekey.WithInfo(ctx, &info)
			var resp *http.Response
			if resp, err = w.do(ctx, client, lines.Text()); err == nil {
				o.Status = resp.StatusCode
			}
			o.Source, o.Attempts = info.Source.String(), info.Attempts
			if info.StoreErr != nil {
				o.StoreErr, o.Lost = info.StoreErr.Error(), errors.Is(info.StoreErr, persist.ErrClaimLost)
			}
		}
		if err != nil {
			unknown, is := errors.AsType[*samekey.OutcomeUnknownError](err)
			o.Err, o.Unknown, o.Lost, o.NoKey = oneLine(err), is && unknown != nil, errors.Is(err, persist.ErrClaimLost), errors.Is(err, samekey.ErrNoKeyAtServer)
		}
		text, _ := json.Marshal(o)
		_, _ = fmt.Fprintln(out, "done", lines.Text(), string(text))
	}
}

// gate stands still once, at its point.
type gate struct {
	watched
	once sync.Once
}

func (g *gate) pass(point string) {
	if g.Gate != point {
		return
	}
	g.once.Do(func() {
		fmt.Println("at", point)
		for {
			if _, err := os.Stat(g.Open); err == nil {
				return
			}
			time.Sleep(5 * time.Millisecond)
		}
	})
}

type mark struct {
	id      string
	attempt int
}

// watchedStore knows, of each claim, when it was last renewed, by the clock of whoever asked and from before it did.
type watchedStore struct {
	*sqlstore.Store
	gate    *gate
	mu      sync.Mutex
	marks   map[mark]uint64
	renewed map[persist.Claim]time.Time
}

func (s *watchedStore) Begin(ctx context.Context, rec persist.Record) (persist.Entry, error) {
	asked := time.Now()
	e, err := s.Store.Begin(ctx, rec)
	if e.New {
		s.note(e.Claim, rec.Progress.Attempts, asked)
	}
	s.gate.pass("begun")
	return e, err
}

func (s *watchedStore) Mark(ctx context.Context, c persist.Claim, p persist.Progress) error {
	asked := time.Now()
	err := s.Store.Mark(ctx, c, p)
	if err == nil {
		s.note(c, p.Attempts, asked)
		s.gate.pass("marked")
	}
	return err
}

func (s *watchedStore) note(c persist.Claim, attempts int, asked time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.marks[mark{c.ID, attempts}], s.renewed[c] = c.Token, asked
}

// watchedTransport writes each attempt down before a byte of it is written.
type watchedTransport struct {
	store    *watchedStore
	log      io.Writer
	base     http.RoundTripper
	lease    time.Duration
	prepared sync.Map // mark to time.Time
}

func (rt *watchedTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	at := time.Now()
	op, _ := samekey.OperationOf(r.Context())
	m := mark{op.ID, op.Attempts}
	rt.store.mu.Lock()
	token := rt.store.marks[m]
	until := rt.store.renewed[persist.Claim{Ref: op.Ref, Token: token}].Add(rt.lease)
	rt.store.mu.Unlock()
	prepared, _ := rt.prepared.LoadAndDelete(m)
	text, err := json.Marshal(start{
		PID: os.Getpid(), ID: op.ID, Attempt: op.Attempts, Token: token,
		Prepared: prepared.(time.Time).UnixNano(), At: at.UnixNano(), Until: until.UnixNano(),
	})
	if err == nil {
		_, err = rt.log.Write(append(text, '\n')) // the system has it, whatever becomes of this process
	}
	if err != nil {
		panic(err)
	}
	return rt.base.RoundTrip(r)
}

func readStarts(t *testing.T, log string) (starts []start) {
	text, err := os.ReadFile(log)
	require.NoError(t, err)
	for line := range strings.Lines(string(text)) {
		var s start
		require.NoError(t, json.Unmarshal([]byte(line), &s), line)
		starts = append(starts, s)
	}
	return starts
}
