package samekey_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/samekey/samekey"
	"github.com/samekey/samekey/mockserver"
	"github.com/samekey/samekey/persist"
)

// attempt2 sends first, whose answer is lost, and then second under the same name by another client. It returns what
// the second call got and the bodies that the server was sent.
func attempt2(t *testing.T, policy samekey.Policy, first, second func(*http.Request), prepare func(context.Context, *http.Request) error) (*mockserver.Server, persist.Store, error) {
	t.Helper()
	srv := newServer(t, mockserver.Config{})
	srv.Fault(mockserver.Fault{When: mockserver.AfterCommit, Do: mockserver.Drop, Times: 1})
	policy.MaxAttempts, policy.Backoff = 1, quick.Backoff
	store := newStore(t)
	var err error
	for i, change := range []func(*http.Request){first, second} {
		c := newClient(t, samekey.Config{Store: store, Default: policy, Prepare: prepare})
		req := post(t, t.Context(), srv.URL+"/v1/payments", payment)
		change(req)
		var resp *http.Response
		resp, err = c.Do(samekey.Named(req, "op"))
		if i == 0 {
			require.ErrorIs(t, err, samekey.ErrUnknown)
		}
		if err == nil {
			read(t, resp)
		}
		require.NoError(t, c.Close())
	}
	return srv, store, err
}

func body(s string) func(*http.Request) {
	return func(r *http.Request) {
		r.Body, r.ContentLength = io.NopCloser(stringsReader(s)), int64(len(s))
	}
}

func stringsReader(s string) io.Reader { return &oneShot{s: s} }

type oneShot struct{ s string }

func (o *oneShot) Read(p []byte) (int, error) {
	if o.s == "" {
		return 0, io.EOF
	}
	n := copy(p, o.s)
	o.s = o.s[n:]
	return n, nil
}

// What makes two JSON bodies one command, and what does not. The stored bytes go out, never the newer ones.
func TestSameCommand(t *testing.T) {
	for name, row := range map[string]struct {
		a, b   string
		same   bool
		ignore []string
	}{
		"order of members":       {a: `{"x":1,"y":[1,2]}`, b: `{"y":[1,2],"x":1}`, same: true},
		"white space":            {a: `{"x":1,"y":[1,2]}`, b: "\n{ \"x\" :\t1,\r\n \"y\":[ 1 , 2 ] } ", same: true},
		"escapes":                {a: `{"n":"aé/<b>"}`, b: `{"\u006e":"a\u00e9\/\u003cb\u003e"}`, same: true},
		"order in arrays":        {a: `{"y":[1,2]}`, b: `{"y":[2,1]}`},
		"null and absent":        {a: `{"x":null}`, b: `{}`},
		"numbers as written":     {a: `{"x":1}`, b: `{"x":1.0}`},
		"exponents":              {a: `{"x":100}`, b: `{"x":1e2}`},
		"big integers":           {a: `{"x":9007199254740992}`, b: `{"x":9007199254740993}`},
		"number and string":      {a: `{"x":1}`, b: `{"x":"1"}`},
		"duplicate members":      {a: `{"x":1,"x":2}`, b: `{"x":1, "x":2}`},
		"the same duplicates":    {a: `{"x":1,"x":2}`, b: `{"x":1,"x":2}`, same: true},
		"what does not parse":    {a: `{"x":1`, b: `{"x": 1`},
		"not JSON":               {a: `a=1&b=2`, b: `b=2&a=1`},
		"ignored member":         {a: `{"at":1,"x":1}`, b: `{"x":1,"at":2}`, ignore: []string{"/at"}, same: true},
		"ignored, absent":        {a: `{"x":1}`, b: `{"x":1,"at":2}`, ignore: []string{"/at"}, same: true},
		"ignored, below":         {a: `{"m":{"at":1,"id":1}}`, b: `{"m":{"id":1,"at":2}}`, ignore: []string{"/m/at"}, same: true},
		"ignored, another":       {a: `{"at":1,"x":1}`, b: `{"at":2,"x":2}`, ignore: []string{"/at"}},
		"ignored, empty for nil": {a: `{"at":1}`, b: `{"at":2}`, ignore: []string{}},
	} {
		t.Run(name, func(t *testing.T) {
			srv, store, err := attempt2(t, samekey.Policy{FingerprintIgnore: row.ignore}, body(row.a), body(row.b), nil)
			reqs := srv.Requests()
			require.Equal(t, row.a, string(stored(t, store, "op").Body))
			if !row.same {
				require.ErrorIs(t, err, samekey.ErrMismatch)
				require.Len(t, reqs, 1)
				return
			}
			require.NotErrorIs(t, err, samekey.ErrMismatch)
			require.Len(t, reqs, 2)
			require.Equal(t, row.a, string(reqs[1].Body))
			require.Equal(t, reqs[0].Key, reqs[1].Key)
			srv.AssertSameKey(t)
		})
	}
}

// Method, target, host and identity headers belong to the command; other headers do not.
func TestIdentityOfACommand(t *testing.T) {
	set := func(name, value string) func(*http.Request) {
		return func(r *http.Request) { r.Header.Set(name, value) }
	}
	query := func(q string) func(*http.Request) { return func(r *http.Request) { r.URL.RawQuery = q } }
	none := func(*http.Request) {}
	policy := samekey.Policy{IdentityHeaders: []string{"stripe-account"}, SecretQuery: []string{"token"}}
	for name, row := range map[string]struct {
		a, b func(*http.Request)
		same bool
	}{
		"nothing":               {none, none, true},
		"a new bearer token":    {set("Authorization", "Bearer a"), set("Authorization", "Bearer b"), true},
		"a new trace":           {set("Traceparent", "a"), none, true},
		"another account":       {set("Stripe-Account", "a"), set("Stripe-Account", "b"), false},
		"an account more":       {none, set("Stripe-Account", "b"), false},
		"the same account":      {set("Stripe-Account", "a"), set("Stripe-Account", "a"), true},
		"another query":         {query("a=1"), query("a=2"), false},
		"the order of a query":  {query("a=1&b=2"), query("b=2&a=1"), false},
		"a new secret":          {query("a=1&token=x"), query("a=1&token=y"), true},
		"a fragment":            {none, func(r *http.Request) { r.URL.Fragment = "x" }, true},
		"another host header":   {none, func(r *http.Request) { r.Host = "other.test" }, false},
		"another path":          {none, func(r *http.Request) { r.URL.Path += "/" }, false},
		"another user":          {func(r *http.Request) { r.URL.User = url.UserPassword("a", "b") }, func(r *http.Request) { r.URL.User = url.UserPassword("a", "c") }, true},
		"the path's escapes":    {func(r *http.Request) { r.URL.Path, r.URL.RawPath = "/a/b", "/a%2Fb" }, func(r *http.Request) { r.URL.Path = "/a/b" }, false},
		"another content type":  {set("Content-Type", "application/json"), set("Content-Type", "application/json; charset=utf-8"), true},
		"the empty query's ?":   {none, func(r *http.Request) { r.URL.ForceQuery = true }, false},
		"another scheme's port": {none, func(r *http.Request) { r.URL.Host = "127.0.0.1:9" }, false},
	} {
		t.Run(name, func(t *testing.T) {
			srv, _, err := attempt2(t, policy, row.a, row.b, nil)
			if !row.same {
				require.ErrorIs(t, err, samekey.ErrMismatch)
				require.Len(t, srv.Requests(), 1)
				return
			}
			require.NotErrorIs(t, err, samekey.ErrMismatch)
			require.Len(t, srv.Requests(), 2)
			require.Equal(t, srv.Requests()[0].Path, srv.Requests()[1].Path)
		})
	}
}

// What is not stored has to be supplied again: by the live request, or by Prepare. Else nothing is sent, and the error
// names what is missing and the mend.
func TestWhatIsNotStoredIsSuppliedAgain(t *testing.T) {
	secretive := func(r *http.Request) {
		r.URL.User = url.UserPassword("alice", "hunter2")
		r.URL.RawQuery = "page=1&api_key=SECRET"
		r.Header.Set("X-Tenant-Token", "TOKEN")
	}
	supply := func(_ context.Context, r *http.Request) error {
		r.Header.Set("Authorization", "Basic fresh")
		r.Header.Set("X-Tenant-Token", "FRESH")
		q := r.URL.Query()
		q.Set("api_key", "FRESH")
		r.URL.RawQuery = "page=1&api_key=FRESH"
		return nil
	}
	policy := samekey.Policy{SecretQuery: []string{"api_key"}}
	without := func(drop func(*http.Request)) func(*http.Request) {
		return func(r *http.Request) { secretive(r); drop(r) }
	}
	for name, row := range map[string]struct {
		second  func(*http.Request)
		missing string
	}{
		"all by the live request": {secretive, ""},
		"no user":                 {without(func(r *http.Request) { r.URL.User = nil }), "Authorization"},
		"no token":                {without(func(r *http.Request) { r.Header.Del("X-Tenant-Token") }), "X-Tenant-Token"},
		"no parameter":            {without(func(r *http.Request) { r.URL.RawQuery = "page=1" }), "api_key"},
	} {
		t.Run(name, func(t *testing.T) {
			srv, store, err := attempt2(t, policy, secretive, row.second, nil)
			if row.missing == "" {
				require.NoError(t, err)
				require.Len(t, srv.Requests(), 2)
				require.Equal(t, srv.Requests()[0].Query, srv.Requests()[1].Query)
				require.Equal(t, srv.Requests()[0].Header["Authorization"], srv.Requests()[1].Header["Authorization"])
				srv.AssertOnce(t)
				return
			}
			require.ErrorIs(t, err, samekey.ErrUnknown, "the first attempt may have had its effect")
			require.ErrorContains(t, err, row.missing)
			require.ErrorContains(t, err, "Prepare")
			require.Len(t, srv.Requests(), 1)
			require.Equal(t, 1, pending(t, store))

			c := newClient(t, samekey.Config{Store: store, Default: policy})
			report, err := c.Recover(t.Context(), samekey.Recovery{Jitter: -1})
			require.NoError(t, err)
			require.Equal(t, 1, report.Pending)
			op, err := c.Operation(t.Context(), samekey.Ref{ID: "op"})
			require.NoError(t, err)
			require.Contains(t, op.LastError, "Prepare", "the operator sees why")
			_, err = c.Resume(t.Context(), samekey.Ref{ID: "op"})
			require.ErrorIs(t, err, samekey.ErrUnknown)
			require.Len(t, srv.Requests(), 1)
			rebuilt, err := op.Request(t.Context())
			require.NoError(t, err)
			require.NotContains(t, rebuilt.URL.String(), "SECRET")
			require.Empty(t, rebuilt.Header.Get("X-Tenant-Token"))

			mended := newClient(t, samekey.Config{Store: store, Default: policy, Prepare: supply})
			resp, err := mended.Resume(t.Context(), samekey.Ref{ID: "op"})
			require.NoError(t, err)
			read(t, resp)
			require.Equal(t, "page=1&api_key=FRESH", srv.Requests()[1].Query)
			require.Equal(t, "FRESH", srv.Requests()[1].Header.Get("X-Tenant-Token"))
			require.Equal(t, srv.Keys()[0], srv.Requests()[1].Key)
		})
	}
	t.Run("kept by the policy", func(t *testing.T) {
		keep := policy
		keep.KeepHeaders = []string{"x-tenant-token"}
		plain := func(r *http.Request) { r.Header.Set("X-Tenant-Token", "kept") }
		srv, store, err := attempt2(t, keep, plain, plain, nil)
		require.NoError(t, err)
		require.Equal(t, []string{"kept"}, stored(t, store, "op").Header["X-Tenant-Token"])
		require.Equal(t, "kept", srv.Requests()[1].Header.Get("X-Tenant-Token"))
	})
}

// Prepare may set what must not be stored, and nothing of what makes the command what it is.
func TestPrepareMayNotChangeTheCommand(t *testing.T) {
	for name, change := range map[string]func(*http.Request){
		"the method":         func(r *http.Request) { r.Method = "PUT" },
		"the path":           func(r *http.Request) { r.URL.Path = "/v1/orders" },
		"the query":          func(r *http.Request) { r.URL.RawQuery = "a=1" },
		"the URL's host":     func(r *http.Request) { r.URL.Host = "elsewhere.test" },
		"the URL":            func(r *http.Request) { r.URL = nil },
		"the host":           func(r *http.Request) { r.Host = "elsewhere.test" },
		"the body":           func(r *http.Request) { r.Body = http.NoBody },
		"the length":         func(r *http.Request) { r.ContentLength = 3 },
		"the key":            func(r *http.Request) { r.Header.Set("Idempotency-Key", "another") },
		"the key in place":   func(r *http.Request) { r.Header["Idempotency-Key"][0] = "another" },
		"a second key":       func(r *http.Request) { r.Header.Add("Idempotency-Key", "another") },
		"a key by its alias": func(r *http.Request) { r.Header["idempotency-key"] = []string{"another"} },
		"no key":             func(r *http.Request) { r.Header.Del("Idempotency-Key") },
		"a bad header":       func(r *http.Request) { r.Header["X-Bad"] = []string{"a\nb"} },
	} {
		t.Run(name, func(t *testing.T) {
			srv := newServer(t, mockserver.Config{})
			store := newStore(t)
			calls := 0
			c := newClient(t, samekey.Config{Store: store, Prepare: func(_ context.Context, r *http.Request) error {
				calls++
				change(r)
				return nil
			}})
			_, err := c.Do(samekey.Named(post(t, t.Context(), srv.URL+"/v1/payments", payment), "op"))
			require.ErrorIs(t, err, samekey.ErrNotSent)
			require.ErrorContains(t, err, "Prepare")
			require.Equal(t, 1, calls, "it would be the same the next time")
			require.Empty(t, srv.Requests())
			require.Zero(t, count(t, store))
		})
	}
}

// Prepare runs before each attempt, sees which operation it serves and the caller's values, and reads the body if it
// likes; a command of its own is not taken for the one it prepares.
func TestPrepareRunsForEachAttempt(t *testing.T) {
	type tenantKey struct{}
	srv := newServer(t, mockserver.Config{PrincipalOf: func(*http.Request) string { return "we" }})
	srv.Fault(mockserver.Fault{Match: "POST /v1/payments", When: mockserver.AfterCommit, Do: mockserver.Drop, Times: 2})
	store := newStore(t)
	n := 0
	var own *samekey.Client
	c := newClient(t, samekey.Config{Store: store, Scope: "shop", Default: quick, Prepare: func(ctx context.Context, r *http.Request) error {
		if r.URL.Path == "/v1/orders" {
			return nil
		}
		n++
		op, ok := samekey.OperationOf(ctx)
		require.True(t, ok)
		require.Equal(t, samekey.Ref{Scope: "shop", ID: "op"}, op.Ref)
		require.Equal(t, r.Header.Get("Idempotency-Key"), op.Key)
		require.Equal(t, n, op.Attempts)
		require.Equal(t, "tenant", ctx.Value(tenantKey{}))
		deadline, bounded := ctx.Deadline()
		_ = deadline
		_ = bounded
		b, err := io.ReadAll(r.Body)
		require.NoError(t, err)
		require.Equal(t, payment, string(b))
		again, err := r.GetBody()
		require.NoError(t, err)
		b, err = io.ReadAll(again)
		require.NoError(t, err)
		require.Equal(t, payment, string(b))
		r.Header.Set("Authorization", "Bearer "+string(rune('a'+n)))
		r.Header.Set("Content-Type", "application/json; v="+string(rune('a'+n)))

		// A token fetched by a command of this client: another operation than the one that is prepared.
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, srv.URL+"/v1/orders", stringsReader(`{}`))
		require.NoError(t, err)
		resp, err := own.Do(req)
		require.NoError(t, err)
		info, _ := samekey.InfoOf(resp)
		require.NotEqual(t, "op", info.ID)
		require.NotEqual(t, op.Key, info.Key)
		return resp.Body.Close()
	}})
	own = c
	var info samekey.Info
	ctx := samekey.WithInfo(context.WithValue(t.Context(), tenantKey{}, "tenant"), &info)
	resp, err := c.Do(samekey.Named(post(t, ctx, srv.URL+"/v1/payments", payment), "op"))
	require.NoError(t, err)
	read(t, resp)
	require.Equal(t, 3, n)
	require.Equal(t, "op", info.ID)
	var tokens []string
	for _, r := range srv.Requests() {
		if r.Path == "/v1/payments" {
			tokens = append(tokens, r.Header.Get("Authorization"))
			require.Equal(t, payment, string(r.Body))
		}
	}
	require.Equal(t, []string{"Bearer b", "Bearer c", "Bearer d"}, tokens)
	rec, err := store.Get(t.Context(), samekey.Ref{Scope: "shop", ID: "op"})
	require.NoError(t, err)
	require.NotContains(t, rec.Header, "Authorization")
	require.Equal(t, []string{"application/json"}, rec.Header["Content-Type"], "what Prepare sets is not stored")
}

// An error of Prepare is a failed attempt of which nothing left.
func TestPrepareThatFails(t *testing.T) {
	inLab(t, mockserver.Config{}, func(t *testing.T, l *lab) {
		down := errors.New("no token to be had")
		fails := 2
		rec := &recorder{}
		c := l.client(t, samekey.Config{Observer: rec.observe, Prepare: func(context.Context, *http.Request) error {
			if fails--; fails >= 0 {
				return down
			}
			return nil
		}})
		resp, err := c.Do(pay(t, t.Context(), "op"))
		require.NoError(t, err)
		info, _ := samekey.InfoOf(resp)
		require.Equal(t, 3, info.Attempts)
		require.Equal(t, 1, info.Sends)
		read(t, resp)
		require.Len(t, l.Requests(), 1)

		fails = 100
		_, err = c.Do(pay(t, t.Context(), "op-2"))
		require.ErrorIs(t, err, samekey.ErrNotSent)
		require.ErrorIs(t, err, down)
		require.Equal(t, samekey.EffectNone, samekey.EffectOf(err))
		_, err = l.store.Get(t.Context(), persist.Ref{ID: "op-2"})
		require.ErrorIs(t, err, persist.ErrNotFound)
	})
	t.Run("it runs within the attempt's timeout", func(t *testing.T) {
		inLab(t, mockserver.Config{}, func(t *testing.T, l *lab) {
			c := l.client(t, samekey.Config{Default: samekey.Policy{MaxAttempts: 1}, Prepare: func(ctx context.Context, _ *http.Request) error {
				<-ctx.Done()
				return ctx.Err()
			}})
			start := time.Now()
			_, err := c.Do(pay(t, t.Context(), "op"))
			require.Equal(t, 10*time.Second, time.Since(start))
			require.ErrorIs(t, err, samekey.ErrNotSent)
			require.ErrorIs(t, err, samekey.ErrTimeout)
		})
	})
	t.Run("it panics", func(t *testing.T) {
		inLab(t, mockserver.Config{}, func(t *testing.T, l *lab) {
			c := l.client(t, samekey.Config{Prepare: func(context.Context, *http.Request) error { panic("a bug of the caller's") }})
			for _, name := range []string{"op", ""} {
				require.PanicsWithValue(t, "a bug of the caller's", func() { _, _ = c.Do(pay(t, t.Context(), name)) })
			}
			require.Equal(t, 2, pending(t, l.store), "and is free for the next")
			resp, err := l.client(t, samekey.Config{}).Do(pay(t, t.Context(), "op"))
			require.NoError(t, err)
			read(t, resp)
		})
	})
}
