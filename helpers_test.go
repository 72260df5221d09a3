package samekey_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/samekey/samekey"
	"github.com/samekey/samekey/mockserver"
	"github.com/samekey/samekey/persist"
	"github.com/samekey/samekey/persist/memory"
)

// quick retries at once.
var quick = samekey.Policy{Backoff: samekey.Backoff{Min: -1}}

func newStore(t testing.TB) persist.Store {
	t.Helper()
	store := memory.New()
	t.Cleanup(func() { require.NoError(t, store.Close()) })
	return store
}

// newClient closes the client before its store.
func newClient(t testing.TB, cfg samekey.Config) *samekey.Client {
	t.Helper()
	if cfg.Store == nil {
		cfg.Store = newStore(t)
	}
	c, err := samekey.New(cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	return c
}

func newServer(t testing.TB, cfg mockserver.Config) *mockserver.Server {
	t.Helper()
	srv := mockserver.NewServer(cfg)
	t.Cleanup(srv.Close)
	return srv
}

const payment = `{"amount":100,"currency":"RUB","orderRef":"order-1"}`

func post(t testing.TB, ctx context.Context, url, body string) *http.Request {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(body))
	require.NoError(t, err)
	req.Header.Set("Content-Type", "application/json")
	return req
}

// read returns a response's body and closes it.
func read(t testing.TB, resp *http.Response) string {
	t.Helper()
	require.NotNil(t, resp)
	b, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	return string(b)
}

// pending counts what the store holds as pending.
func pending(t testing.TB, store persist.Store) int {
	t.Helper()
	return count(t, store, samekey.Pending)
}

func count(t testing.TB, store persist.Store, states ...samekey.State) (n int) {
	t.Helper()
	for _, err := range store.List(context.Background(), persist.Filter{States: states}) {
		require.NoError(t, err)
		n++
	}
	return n
}

// recorder is an Observer that keeps what it is told.
type recorder struct {
	mu     sync.Mutex
	events []samekey.Event
}

func (r *recorder) observe(_ context.Context, e samekey.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, e)
}

func (r *recorder) all(step samekey.Step) (out []samekey.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range r.events {
		if e.Step == step {
			out = append(out, e)
		}
	}
	return out
}

func (r *recorder) steps() (out []samekey.Step) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range r.events {
		out = append(out, e.Step)
	}
	return out
}

// lab is a server, a way to it, and a store, all in memory: within a bubble of testing/synctest time costs nothing and
// is exact.
type lab struct {
	*mockserver.Engine
	rt    *mockserver.Memory
	store persist.Store
}

const labURL = "http://api.test"

// inLab runs f in a bubble.
func inLab(t *testing.T, cfg mockserver.Config, f func(t *testing.T, l *lab)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		l := &lab{Engine: mockserver.New(cfg)}
		l.rt = l.Transport()
		t.Cleanup(l.Engine.Close)
		l.store = newStore(t)
		f(t, l)
	})
}

// client sends to the lab's server. The transport is net/http's own, so that it can prove that nothing left.
func (l *lab) client(t testing.TB, cfg samekey.Config) *samekey.Client {
	t.Helper()
	if cfg.Store == nil {
		cfg.Store = l.store
	}
	if cfg.HTTPClient == nil {
		cfg.HTTPClient = &http.Client{Transport: l.rt.Transport}
	}
	return newClient(t, cfg)
}

// pay posts a payment; an empty name is none.
func pay(t testing.TB, ctx context.Context, name string) *http.Request {
	t.Helper()
	req := post(t, ctx, labURL+"/v1/payments", payment)
	if name != "" {
		req = samekey.Named(req, name)
	}
	return req
}

// wireKeys returns the keys that the server was sent, one for each request.
func wireKeys(reqs []mockserver.Request) (keys []string) {
	for _, r := range reqs {
		keys = append(keys, r.Key)
	}
	return keys
}

// gaps returns the times between requests.
func gaps(reqs []mockserver.Request) (out []time.Duration) {
	for i := 1; i < len(reqs); i++ {
		out = append(out, reqs[i].At.Sub(reqs[i-1].At))
	}
	return out
}

// stored returns what the store holds under an operation's name.
func stored(t testing.TB, store persist.Store, id string) persist.Record {
	t.Helper()
	rec, err := store.Get(context.Background(), samekey.Ref{ID: id})
	require.NoError(t, err)
	return rec
}

func asType[E error](t testing.TB, err error) E {
	t.Helper()
	var e E
	require.ErrorAs(t, err, &e)
	return e
}

// roundTripper is a foreign transport: it proves nothing of what it does.
type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func isAny(err error, targets ...error) bool {
	for _, target := range targets {
		if errors.Is(err, target) {
			return true
		}
	}
	return false
}
