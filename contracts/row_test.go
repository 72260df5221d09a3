package contracts_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/samekey/samekey"
	"github.com/samekey/samekey/persist"
	"github.com/samekey/samekey/persist/memory"
)

// key is the one that every operation of these tests has, and that the answers in testdata echo.
const key = "8e03978e-40d5-4e8d-8c93-6894a57f9324"

// api is what an API documents, apart from its contract.
type api struct {
	contract samekey.Contract
	answers  string // file in testdata; by default the contract's name
	place    place
	longest  int           // key that is taken; 0: there is no key
	badForm  string        // a key that is not, whatever its length
	life     time.Duration // as the store has it
	form     bool          // the API takes forms
	rows     []row
}

// row is one exchange: what the server plays, and what that means by the documentation.
type row struct {
	name, play string
	requests   int
	means      meaning
	await      bool
	then       string // answer to an explicit Resume, which fetches it
}

// meaning of a call's end.
type meaning struct {
	err       error // sentinel, nil for a response
	status    int
	reason    samekey.Reason
	link      string
	ambiguous bool
	replayed  bool
	parked    bool
	warns     bool          // the observer is warned
	state     samekey.State // that the store keeps
	gone      bool          // nothing is kept
}

func succeeded(status int) meaning { return meaning{status: status, state: samekey.Succeeded} }
func replayed(status int) meaning {
	return meaning{status: status, state: samekey.Succeeded, replayed: true}
}
func rejected(status int) meaning { return meaning{status: status, state: samekey.Rejected} }
func turnedAway(status int) meaning {
	return meaning{status: status, gone: true}
}
func processing(status int) meaning { return meaning{status: status, state: samekey.Pending} }
func unknown(status int) meaning {
	return meaning{err: samekey.ErrUnknown, status: status, state: samekey.Pending}
}
func stored(status int) meaning {
	return meaning{err: samekey.ErrUnknown, status: status, state: samekey.Pending, parked: true}
}
func conflict(status int, reason samekey.Reason) meaning {
	return meaning{err: samekey.ErrConflict, status: status, reason: reason, state: samekey.Conflicted}
}
func (m meaning) naming(link string) meaning { m.link = link; return m }
func (m meaning) afterDoubt() meaning        { m.ambiguous = true; return m }
func (m meaning) warned() meaning            { m.warns = true; return m }

// keys gives operations their keys by name, and others random ones.
func keys(of map[string]string) samekey.KeyFormat {
	return samekey.KeyFunc(func(op samekey.Ref) (string, error) {
		if k, ok := of[op.ID]; ok {
			return k, nil
		}
		return samekey.UUIDv4.NewKey(op)
	})
}

// client of one run.
type client struct {
	*samekey.Client
	store    persist.Store
	warnings int
}

func newClient(con samekey.Contract, format samekey.KeyFormat, await bool) (*client, error) {
	c := &client{store: memory.New()}
	policy := samekey.Policy{
		Contract: &con, KeyFormat: format, MaxAttempts: 3, Backoff: samekey.Backoff{Min: -1}, AttemptTimeout: 5 * time.Second,
	}
	if await {
		policy.Await = samekey.On
	}
	var err error
	c.Client, err = samekey.New(samekey.Config{Store: c.store, Default: policy, Observer: func(_ context.Context, e samekey.Event) {
		if e.Step == samekey.StepWarning {
			c.warnings++
		}
	}})
	return c, err
}

func (c *client) close() error { return errors.Join(c.Client.Close(), c.store.Close()) }

func (a api) request(s *server) (*http.Request, error) {
	body, kind := `{"amount":100, "currency":"EUR"}`, "application/json"
	if a.form {
		body, kind = "Action=Run&Count=1", "application/x-www-form-urlencoded"
	}
	req, err := http.NewRequest(http.MethodPost, s.url+"/v1/things?a=1", strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", kind)
	return samekey.Named(req, "op"), nil
}

// check plays a row against a contract and says in which way it does not mean what it should.
func (a api) check(t testing.TB, all answers, r row, con samekey.Contract) (problem error) {
	t.Helper()
	script := r.play
	if r.then != "" {
		script += ", " + r.then
	}
	s := serve(t, all.play(t, script))
	c, err := newClient(con, keys(map[string]string{"op": key}), r.await)
	if err != nil {
		s.close()
		return fmt.Errorf("the contract is refused: %w", err)
	}
	defer s.close()
	defer func() {
		problem = errors.Join(problem, c.close())
	}()
	req, err := a.request(s)
	if err != nil {
		return err
	}
	resp, err := c.Do(req)
	if err := a.end(c, r.means, resp, err); err != nil {
		return err
	}
	if err := a.sent(s, r.requests); err != nil || r.then == "" {
		return err
	}
	return a.resumes(s, c, r)
}

// end compares how a call ended, and what the store has of it, with what was meant.
func (a api) end(c *client, m meaning, resp *http.Response, err error) error {
	got := meaning{warns: c.warnings > 0}
	if resp != nil {
		info, _ := samekey.InfoOf(resp)
		got.status, got.replayed = resp.StatusCode, info.Replayed
		if _, err := io.Copy(io.Discard, resp.Body); err != nil {
			return err
		}
		_ = resp.Body.Close()
	}
	if !errors.Is(err, m.err) {
		return fmt.Errorf("the error is %v", err)
	}
	got.err = m.err
	if e, ok := errors.AsType[*samekey.OutcomeUnknownError](err); ok && e.Last != nil {
		got.status = e.Last.Status
	}
	if e, ok := errors.AsType[*samekey.ConflictError](err); ok {
		got.status, got.reason, got.link, got.ambiguous = e.Status, e.Reason, e.Link, e.Ambiguous
	}
	op, err := c.Operation(context.Background(), samekey.Ref{ID: "op"})
	switch {
	case errors.Is(err, persist.ErrNotFound):
		got.gone = true
	case err != nil:
		return err
	default:
		got.state, got.parked = op.State, op.Parked
		if op.State == samekey.Pending || op.State == samekey.Conflicted {
			if life, err := kept(c.store); err != nil || life != a.life {
				return fmt.Errorf("the key lives for %v (%w)", life, err)
			}
		}
	}
	if got != m {
		return fmt.Errorf("got %+v, want %+v", got, m)
	}
	return nil
}

func kept(store persist.Store) (time.Duration, error) {
	rec, err := store.Get(context.Background(), persist.Ref{ID: "op"})
	return rec.KeyLife, err
}

// sent checks that so many requests came, each with the key where the API documents it, and otherwise alike.
func (a api) sent(s *server, n int) error {
	got := s.requests()
	if len(got) != n {
		return fmt.Errorf("%d requests, want %d", len(got), n)
	}
	want := key
	if a.longest == 0 {
		want = ""
	}
	for i, r := range got {
		if k := a.place(r); k != want {
			return fmt.Errorf("request %d has %q where the key belongs", i+1, k)
		}
		if r.body != got[0].body || r.URL.String() != got[0].URL.String() {
			return fmt.Errorf("request %d differs from the first", i+1)
		}
	}
	return nil
}

// resumes checks that an operation in progress is kept: a call is answered without the network, and an explicit Resume
// fetches the answer.
func (a api) resumes(s *server, c *client, r row) error {
	req, err := a.request(s)
	if err != nil {
		return err
	}
	if _, err = c.Do(req); !errors.Is(err, samekey.ErrConflict) {
		return fmt.Errorf("the second call: %v", err)
	}
	if err := a.sent(s, r.requests); err != nil {
		return fmt.Errorf("the second call: %w", err)
	}
	resp, err := c.Resume(context.Background(), samekey.Ref{ID: "op"})
	if err != nil {
		return fmt.Errorf("Resume: %w", err)
	}
	_ = resp.Body.Close()
	if resp.StatusCode >= 300 {
		return fmt.Errorf("Resume: status %d", resp.StatusCode)
	}
	return a.sent(s, r.requests+1)
}

// fits checks the documented length and form of a key: the longest goes out as it is, one more character is refused, and
// so is another form, before anything is stored or sent.
func (a api) fits(t testing.TB, con samekey.Contract) (problem error) {
	t.Helper()
	if a.longest == 0 {
		return nil
	}
	longest := key
	if a.longest != len(key) { // else it is a UUID
		longest = strings.Repeat("k", a.longest)
	}
	given := map[string]string{"longest": longest, "too long": longest + "0", "malformed": a.badForm}
	c, err := newClient(con, keys(given), false)
	if err != nil {
		return fmt.Errorf("the contract is refused: %w", err)
	}
	s := serve(t, [][]byte{[]byte("HTTP/1.1 201 Created\r\nConnection: close\r\n\r\n")})
	defer s.close()
	defer func() { problem = errors.Join(problem, c.close()) }()
	for _, name := range []string{"longest", "too long", "malformed"} {
		if given[name] == "" {
			continue
		}
		req, err := a.request(s)
		if err != nil {
			return err
		}
		resp, err := c.Do(samekey.Named(req, name))
		if resp != nil {
			_ = resp.Body.Close()
		}
		if good := name == "longest"; good != (err == nil) || !good && !errors.Is(err, samekey.ErrKey) {
			return fmt.Errorf("the %s key: %v", name, err)
		}
		if _, err := c.Operation(context.Background(), samekey.Ref{ID: name}); errors.Is(err, persist.ErrNotFound) == (name == "longest") {
			return fmt.Errorf("the store after the %s key: %w", name, err)
		}
		if got := s.requests(); len(got) != 1 || a.place(got[0]) != longest {
			return fmt.Errorf("after the %s key: %d requests", name, len(got))
		}
	}
	return nil
}
