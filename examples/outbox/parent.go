package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/samekey/samekey/mockserver"
)

// parent starts the shop, kills it at the moments that the seed has chosen, and starts it again, as a service manager
// would.
type parent struct {
	options
	screen *screen
	errOut io.Writer
	db     database
	bank   *mockserver.Server
	evidence

	begun int // transactions
	kill  []moment
}

// moment is when to kill, from the n-th transaction on.
type moment struct {
	n    int
	what int
}

const (
	inside   = iota // a transaction that has just begun
	behind          // one that has just committed, and whose charge is not sent
	charging        // the bank is at work on a charge
	whats
)

// story is what outbox does.
func story(ctx context.Context, o options, s *screen, errOut io.Writer) (e *evidence, err error) {
	db, remove, err := newDatabase(ctx, o, s)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, remove()) }()
	bank := mockserver.NewServer(mockserver.Config{Seed: o.seed})
	defer bank.Close()
	bank.Fault(o.faults()...)

	p := &parent{options: o, screen: s, errOut: errOut, db: db, bank: bank, kill: moments(o.seed, o.orders, o.kills)}
	p.told = map[string]string{}
	s.say("%d orders to place in %s, a third of them to be rolled back, and %d SIGKILLs to come (seed %d)", o.orders, name(db.Dialect), o.kills, o.seed)
	began := time.Now()
	failed := p.supervise(ctx)
	if failed != nil && !errors.Is(failed, errGivenUp) {
		return nil, failed
	}
	if err := p.look(ctx, db); err != nil {
		return nil, err
	}
	p.requests = bank.Requests()
	f := p.figures()
	s.table(f.table())
	if err := errors.Join(failed, f.verdict(o)); err != nil {
		return &p.evidence, err
	}
	s.say("Each of the %d committed orders was charged once and is marked as paid; of the others the bank never heard.\n"+
		"It took %.1f s.", f.committed, time.Since(began).Seconds())
	return &p.evidence, nil
}

func name(dialect string) string {
	return map[string]string{"postgresql": "PostgreSQL", "mariadb": "MariaDB", "sqlite": "SQLite"}[dialect]
}

// faults are what the bank does to the charges. Which it strikes is drawn by the seed; each strikes a charge at most once.
func faults() []mockserver.Fault {
	const charge = "POST /v1/payments"
	some := func(share float64, when mockserver.Phase, do mockserver.Action) mockserver.Fault {
		return mockserver.Fault{Match: charge, When: when, Do: do, Share: share, Attempt: 1}
	}
	return []mockserver.Fault{
		// The order is charged, and the shop does not hear of it.
		some(0.10, mockserver.AfterCommit, mockserver.Drop),
		some(0.05, mockserver.AfterCommit, mockserver.CutBody),
		some(0.01, mockserver.AfterCommit, mockserver.Stall(0)),
		some(0.05, mockserver.AfterCommit, mockserver.Status(http.StatusBadGateway, false)),
		// The order is not charged.
		some(0.10, mockserver.BeforeCommit, mockserver.Status(http.StatusServiceUnavailable, false)),
		// All others are charged slowly, also when the shop has died meanwhile.
		{Match: charge, Do: mockserver.Delay(40 * time.Millisecond)},
	}
}

// moments spreads n kills over the run, and over what there is to meet.
func moments(seed uint64, orders, n int) []moment {
	r := rand.New(rand.NewPCG(seed, 0))
	all := make([]moment, n)
	for i := range all {
		all[i] = moment{n: int(float64(orders) * (0.03 + 0.85*(float64(i)+r.Float64())/float64(n))), what: i % whats}
	}
	return all
}

var errGivenUp = errors.New("given up")

// supervise keeps the shop running until every order was placed, and paid.
func (p *parent) supervise(ctx context.Context) error {
	const failures = 3
	for failed := 0; ; {
		killed, err := p.life(ctx)
		switch {
		case killed:
			continue
		case err == nil, ctx.Err() != nil, errors.Is(err, errGivenUp):
			return err
		}
		if failed++; failed == failures {
			return fmt.Errorf("%w after %d failures, the last: %w", errGivenUp, failures, err)
		}
		p.screen.say("the shop %v; it is started again", err)
	}
}

// life is one of the shop, to its kill or to the end of the story.
func (p *parent) life(ctx context.Context) (killed bool, err error) {
	c, err := p.start()
	if err != nil {
		return false, fmt.Errorf("%w: %w", errGivenUp, err)
	}
	defer c.end()
	open := map[string]bool{}
	tick := time.NewTimer(0)
	defer tick.Stop()
	left, unchanged := -1, time.Now()
	for {
		select {
		case <-ctx.Done():
			return false, ctx.Err()
		case line, is := <-c.lines:
			if !is {
				<-c.exited
				return false, c.failure()
			}
			unchanged = time.Now()
			p.hear(line, open)
			if p.isTime(line) {
				return p.strike(c, open)
			}
			continue
		case <-tick.C:
		}
		p.screen.progress("%d transactions, %d SIGKILLs, %d effects at the bank", p.begun, len(p.met), p.bank.Effects())
		if p.begun == p.orders && len(open) == 0 { // else the next line is what counts
			last := left
			if left, err = p.left(ctx); err != nil {
				return false, fmt.Errorf("%w: %w", errGivenUp, err)
			}
			if left == 0 {
				return false, c.stop()
			}
			if left != last {
				unchanged = time.Now()
			}
		}
		if time.Since(unchanged) > p.patience {
			return false, fmt.Errorf("%w: nothing has changed for %v", errGivenUp, p.patience)
		}
		tick.Reset(100 * time.Millisecond)
	}
}

// left is how many committed orders have no answer of the bank yet.
func (p *parent) left(ctx context.Context) (int, error) {
	if err := p.look(ctx, p.db); err != nil {
		return 0, err
	}
	n := p.unfinished()
	for _, state := range p.rows {
		count(&n, state == "placed")
	}
	return n, nil
}

// hear notes what the shop says.
func (p *parent) hear(line string, open map[string]bool) {
	verb, rest, _ := strings.Cut(line, " ")
	number, text, _ := strings.Cut(rest, " ")
	n, err := strconv.Atoi(number)
	if err != nil {
		return
	}
	id := orderOfCustomer(n).ID
	if verb == "begun" {
		p.begun, p.told[id], open[id] = n, "", true
		return
	}
	p.told[id] = verb
	delete(open, id)
	if text != "" {
		p.screen.say("%s: %s", id, text)
	}
}

func (p *parent) isTime(line string) bool {
	if len(p.kill) == 0 || p.begun < p.kill[0].n {
		return false
	}
	switch p.kill[0].what {
	case inside:
		return strings.HasPrefix(line, "begun ")
	case behind:
		return strings.HasPrefix(line, "committed ")
	}
	return p.inFlight() > 0 || p.begun > p.kill[0].n+20 // while the bank stalls there may be none
}

// inFlight is how many charges the bank is at work on.
func (p *parent) inFlight() (n int) {
	for _, r := range p.bank.Requests() {
		count(&n, r.End.IsZero())
	}
	return n
}

// strike kills the shop, and hears what it had said by then.
func (p *parent) strike(c *process, open map[string]bool) (killed bool, err error) {
	k := kill{inFlight: p.inFlight()}
	_ = c.cmd.Process.Kill() // SIGKILL, where there are signals
	for line := range c.lines {
		p.hear(line, open)
	}
	<-c.exited
	if c.cmd.ProcessState.Exited() && runtime.GOOS != "windows" { // by itself, a moment before
		return false, c.failure()
	}
	k.open = len(open)
	p.met, p.kill = append(p.met, k), p.kill[1:]
	return true, nil
}
