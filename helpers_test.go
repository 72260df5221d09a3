package samekey_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
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

var _ = time.Second
