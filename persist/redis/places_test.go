package redis

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
	"github.com/stretchr/testify/require"

	"github.com/samekey/samekey/persist"
	"github.com/samekey/samekey/persist/persisttest/servertest"
)

func TestMain(m *testing.M) {
	logging.Disable() // of connections that tests break
	if len(os.Args) > 1 && os.Args[1] == "worker" {
		work()
		return
	}
	flag.Parse()
	_ = flag.Set("test.parallel", "16") // most of the time they wait for leases
	code := m.Run()
	servertest.EndShared()
	os.Exit(code)
}

// wire is the connections of one client, which can be cut, and forbidden.
type wire struct {
	mu    sync.Mutex
	dead  bool
	conns map[net.Conn]bool
	// answer, if set, is asked before bytes from the server are handed over; false loses them and the connection.
	answer func() bool
	// instead, if set, is what the next answer is replaced by, once.
	instead string
	// request, if set, sees bytes before they go to the server, and may keep them waiting.
	request func([]byte)
}

type wired struct {
	net.Conn
	w *wire
}

func (w *wire) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.dead {
		return nil, &net.OpError{Op: "dial", Net: network, Err: errors.New("the network is down")}
	}
	c, err := (&net.Dialer{}).DialContext(ctx, network, addr)
	if err == nil {
		if w.conns == nil {
			w.conns = map[net.Conn]bool{}
		}
		w.conns[c] = true
		c = wired{c, w}
	}
	return c, err
}

func (c wired) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.w.mu.Lock()
	answer, instead := c.w.answer, c.w.instead
	if n > 0 && instead != "" {
		n, c.w.instead = copy(b, instead), ""
	}
	c.w.mu.Unlock()
	if answer != nil && n > 0 && !answer() {
		_ = c.Conn.Close()
		return 0, net.ErrClosed
	}
	return n, err
}

func (c wired) Write(b []byte) (int, error) {
	c.w.mu.Lock()
	request := c.w.request
	c.w.mu.Unlock()
	if request != nil {
		request(b)
	}
	return c.Conn.Write(b)
}

func (c wired) Close() error {
	c.w.mu.Lock()
	delete(c.w.conns, c.Conn)
	c.w.mu.Unlock()
	return c.Conn.Close()
}

// cut ends all connections; for ever keeps new ones from being made.
func (w *wire) cut(forEver bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.dead = w.dead || forEver
	for c := range w.conns {
		_ = c.Close()
	}
	clear(w.conns)
}

func (w *wire) listen(answer func() bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.answer = answer
}

// lose loses the next answer; the client has none before meanwhile has returned.
func (w *wire) lose(meanwhile func()) {
	var once sync.Once
	w.listen(func() bool {
		lost := false
		once.Do(func() {
			lost = true
			meanwhile()
		})
		return !lost
	})
}

func (w *wire) delay(request func([]byte)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.request = request
}

// place is a server and a prefix on it.
type place struct {
	addr    string
	prefix  string
	cluster bool
}

var places atomic.Int64

// fresh returns a prefix that nobody has used, on the server of all tests.
func fresh(t testing.TB) place {
	t.Helper()
	return on(servertest.Shared(t, servertest.Redis))
}

func on(s *servertest.Server) place {
	return place{addr: s.Addr(), prefix: fmt.Sprint("t", places.Add(1))}
}

func (p place) client(w *wire) goredis.UniversalClient {
	if p.cluster {
		return goredis.NewClusterClient(&goredis.ClusterOptions{Addrs: []string{p.addr}, Dialer: w.dial, DialerRetries: 1, Protocol: 2})
	}
	return goredis.NewClient(&goredis.Options{Addr: p.addr, Dialer: w.dial, DialerRetries: 1})
}

// admin is a client for what a test does by itself.
func (p place) admin(t testing.TB) goredis.UniversalClient {
	c := p.client(&wire{})
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// own is a store with its client.
type own struct {
	*Store
	client goredis.UniversalClient
	wire   *wire
}

func (o *own) Close() error {
	err := o.Store.Close()
	if end := o.client.Close(); !errors.Is(end, goredis.ErrClosed) {
		err = errors.Join(err, end)
	}
	return err
}

func (p place) store(change func(*Options)) (*own, error) {
	w := &wire{}
	c := p.client(w)
	o := Options{Prefix: p.prefix, Lease: time.Second, SweepEvery: time.Second, Logger: slog.New(slog.DiscardHandler)}
	if change != nil {
		change(&o)
	}
	s, err := Open(context.Background(), c, o)
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return &own{s, c, w}, nil
}

func (p place) opened(t testing.TB, change func(*Options)) *own {
	t.Helper()
	s, err := p.store(change)
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// crash ends a store as the death of its process would.
func crash(s *own) {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.stop()
	s.wire.cut(true)
	s.tending.Wait()
	_ = s.client.Close()
}

func op(id string) persist.Record {
	return persist.Record{
		Ref: persist.Ref{Scope: "tenant", ID: id}, Created: time.Now(), Key: "key-" + id, Method: "POST", Target: "https://bank.test/v1/payments",
		Header: map[string][]string{"Content-Type": {"application/json"}, "Idempotency-Key": {"key-" + id}},
		Body:   []byte(`{"amount":100,"currency":"EUR"}`), Progress: persist.Progress{Attempts: 1},
	}
}

// free records what is due at once.
func (o *own) free(t testing.TB, rec persist.Record) {
	t.Helper()
	e, err := o.Begin(t.Context(), rec)
	require.NoError(t, err)
	require.NoError(t, o.Release(t.Context(), e.Claim))
}

// consistent checks that each record is where the indexes must have it, and nothing else is.
func (p place) consistent(t testing.TB) {
	t.Helper()
	// What there is at one instant: now, records with how long they last, and the members of indexes.
	const all = `
		local records, indexes = {}, {}
		for i, key in ipairs(redis.call('KEYS', KEYS[1] .. 'op:*')) do
			records[i] = {string.sub(key, #KEYS[1] + 4), redis.call('HGET', key, 'm'), redis.call('HEXISTS', key, 'r'), redis.call('PTTL', key)}
		end
		for i, index in ipairs(ARGV) do indexes[i] = redis.call('ZRANGE', KEYS[1] .. index, 0, -1, 'WITHSCORES') end
		local time = redis.call('TIME')
		return {time[1] * 1000000 + time[2], records, indexes}`
	names := []any{"open", "over", "wait", "ready", "keep"}
	reply, err := p.admin(t).Eval(context.Background(), all, []string{Options{Prefix: p.prefix}.key("")}, names...).Slice()
	require.NoError(t, err)
	now := reply[0].(int64)

	want, created := map[string][]string{}, map[string]string{}
	for _, r := range reply[1].([]any) {
		r := r.([]any)
		m := strings.Fields(r[1].(string)) // 1 state owed parked notBefore keepBody keepName created token held owner
		require.Len(t, m, 11)
		hash, member := r[0].(string), m[7]+r[0].(string)
		created[hash] = m[7]
		settled, owed := m[1] != "0", m[2] == "1"
		switch {
		case !settled:
			want["open"] = append(want["open"], member)
		case r[2] == int64(1):
			want["over"] = append(want["over"], member)
		}
		if owed || !settled && m[3] == "0" {
			want["wait or ready"] = append(want["wait or ready"], member)
		}
		if settled && !owed {
			want["keep"] = append(want["keep"], member)
			require.NotEqual(t, int64(-1), r[3], r[1])
		} else {
			require.Equal(t, int64(-1), r[3], r[1])
		}
	}
	got, stale := map[string][]string{}, map[string]bool{}
	indexes := reply[2].([]any)
	for i := len(indexes) - 1; i >= 0; i-- { // keep first
		name := names[i].(string)
		if name == "wait" || name == "ready" {
			name = "wait or ready"
		}
		members := indexes[i].([]any)
		for n := 0; n < len(members); n += 2 {
			member := members[n].(string)
			// What Redis has expired stays until the sweep; the name may have begun anew since.
			if at, err := strconv.ParseFloat(members[n+1].(string), 64); name == "keep" && created[member[16:]] != member[:16] {
				require.NoError(t, err)
				require.LessOrEqual(t, at, float64(now), member)
				stale[member] = true
				continue
			}
			if name != "over" || !stale[member] {
				got[name] = append(got[name], member)
			}
		}
	}
	for _, m := range []map[string][]string{want, got} {
		for _, members := range m {
			slices.Sort(members)
		}
	}
	require.Equal(t, want, got)
}
