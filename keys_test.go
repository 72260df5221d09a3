package samekey_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"testing"
	"testing/cryptotest"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/samekey/samekey"
	"github.com/samekey/samekey/mockserver"
)

// Keys are distinct while the clock stands still, whoever asks and however often.
func TestCase_B12_KeysDoNotDependOnTheClock(t *testing.T) {
	for name, row := range map[string]struct {
		format samekey.KeyFormat
		form   string
		n      int
	}{
		"UUIDv4": {samekey.UUIDv4, `^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`, 1_000_000},
		"ULID":   {samekey.ULID, `^[0-7][0-9A-HJKMNP-TV-Z]{25}$`, 200_000},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { // no time passes
				const workers = 4
				var wg sync.WaitGroup
				keys := make([][]string, workers)
				for w := range workers {
					wg.Go(func() {
						keys[w] = make([]string, row.n/workers)
						for i := range keys[w] {
							keys[w][i], _ = row.format.NewKey(samekey.Ref{ID: "always the same"})
						}
					})
				}
				wg.Wait()
				seen := make(map[string]struct{}, row.n)
				form := regexp.MustCompile(row.form)
				for _, ks := range keys {
					for i, k := range ks {
						if i < 1000 {
							require.Regexp(t, form, k)
						}
						seen[k] = struct{}{}
					}
				}
				require.Len(t, seen, row.n)
			})
		})
	}
}

// The random part is crypto/rand's, all of it.
func TestKeysComeFromCryptoRand(t *testing.T) {
	draw := func(seed uint64) (out [3]string) {
		cryptotest.SetGlobalRandom(t, seed)
		for i := range out {
			k, err := samekey.UUIDv4.NewKey(samekey.Ref{})
			require.NoError(t, err)
			u, err := samekey.ULID.NewKey(samekey.Ref{})
			require.NoError(t, err)
			out[i] = k + u[10:]
		}
		return out
	}
	a, b, c := draw(1), draw(1), draw(2)
	require.Equal(t, a, b)
	require.NotEqual(t, a, c)
	varies := make([]map[byte]bool, len(a[0]))
	for seed := range uint64(200) {
		for _, s := range draw(seed) {
			for i := range len(s) {
				if varies[i] == nil {
					varies[i] = map[byte]bool{}
				}
				varies[i][s[i]] = true
			}
		}
	}
	fixed := 0
	for _, v := range varies {
		if len(v) == 1 {
			fixed++
		}
	}
	require.Equal(t, 5, fixed, "but for four hyphens and the version")
}

func TestULIDsSortByTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		last := ""
		for range 100 {
			k, err := samekey.ULID.NewKey(samekey.Ref{})
			require.NoError(t, err)
			require.Greater(t, k, last)
			last = k
			time.Sleep(time.Millisecond)
		}
	})
}

// A derived key is the same on any machine that has the secret, for the same scope and name, and for no other.
func TestDerivedKeys(t *testing.T) {
	secret := []byte("0123456789abcdef")
	key := func(secret []byte, scope, id string) string {
		k, err := samekey.Derived(secret).NewKey(samekey.Ref{Scope: scope, ID: id})
		require.NoError(t, err)
		return k
	}
	a := key(secret, "s", "op")
	require.Equal(t, a, key(secret, "s", "op"))
	require.Regexp(t, `^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`, a)
	for _, other := range []string{key(secret, "s", "op2"), key(secret, "so", "p"), key(secret, "", "sop"), key([]byte("0123456789abcdeg"), "s", "op")} {
		require.NotEqual(t, a, other)
	}
	kept := samekey.Derived(secret)
	secret[0] = 'x'
	again, err := kept.NewKey(samekey.Ref{Scope: "s", ID: "op"})
	require.NoError(t, err)
	require.Equal(t, a, again, "the secret is copied")
}

// A client that lost its disk goes on under the same key, as long as the key lives.
func TestDerivedKeyOverALostDisk(t *testing.T) {
	inLab(t, mockserver.Config{}, func(t *testing.T, l *lab) {
		policy := samekey.Policy{KeyFormat: samekey.Derived([]byte("a secret of sixteen bytes")), MaxAttempts: 1}
		issued := time.Now()
		do := func(name string, at time.Time) (*http.Response, error) {
			c := l.client(t, samekey.Config{Default: policy, Store: newStore(t)}) // each time another disk
			ctx := t.Context()
			if !at.IsZero() {
				ctx = samekey.WithIssuedAt(ctx, at)
			}
			return c.Do(pay(t, ctx, name))
		}
		l.Fault(mockserver.Fault{When: mockserver.AfterCommit, Do: mockserver.Drop, Times: 1})
		_, err := do("op", issued)
		require.ErrorIs(t, err, samekey.ErrUnknown)
		time.Sleep(time.Hour)
		resp, err := do("op", issued)
		require.NoError(t, err)
		read(t, resp)
		require.Len(t, l.Requests(), 2)
		require.Equal(t, l.Requests()[0].Key, l.Requests()[1].Key)
		l.AssertOnce(t)

		// Another machine may have sent it: whatever turns it away now says nothing of before.
		l.Fault(mockserver.Fault{Do: mockserver.Status(401, false), Times: 1}, mockserver.Fault{Do: mockserver.Status(404, false), Times: 1})
		for range 2 {
			_, err = do("op", issued)
			require.ErrorIs(t, err, samekey.ErrUnknown)
			require.Equal(t, samekey.EffectUnknown, samekey.EffectOf(err))
		}
		l.rt.Refuse(1)
		l.rt.CloseIdleConnections()
		_, err = do("op", issued)
		require.ErrorIs(t, err, samekey.ErrUnknown, "nor that it could not be reached")

		before := len(l.Requests())
		_, err = do("", issued)
		require.ErrorIs(t, err, samekey.ErrKey, "needs a name")
		_, err = do("op", time.Time{})
		require.ErrorIs(t, err, samekey.ErrKey, "needs the time")
		time.Sleep(23 * time.Hour)
		_, err = do("op", issued)
		require.ErrorIs(t, err, samekey.ErrExpired)
		require.ErrorIs(t, err, samekey.ErrUnknown)
		require.Len(t, l.Requests(), before)

		c := l.client(t, samekey.Config{Default: policy})
		l.Fault(mockserver.Fault{Do: mockserver.Status(503, false), Times: 1})
		_, err = c.Do(pay(t, samekey.WithIssuedAt(t.Context(), time.Now()), "op-2"))
		require.ErrorIs(t, err, samekey.ErrUnknown)
		_, err = c.Rekey(t.Context(), samekey.Ref{ID: "op-2"})
		require.ErrorIs(t, err, samekey.ErrKey)
		require.Equal(t, 1, pending(t, l.store))
	})
}

// A key that came with the request is the one that goes out, also where an SDK above took a fresh one for each try.
func TestAdoptedKeys(t *testing.T) {
	for _, quoted := range []bool{false, true} {
		t.Run(fmt.Sprint(quoted), func(t *testing.T) {
			carrier, wire := samekey.Header("Idempotency-Key"), func(k string) string { return k }
			if quoted {
				carrier = samekey.QuotedHeader("Idempotency-Key")
				wire = func(k string) string { return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(k) + `"` }
			}
			srv := newServer(t, mockserver.Config{})
			store := newStore(t)
			policy := quick
			policy.Contract = &samekey.Contract{Carrier: carrier, Life: time.Hour}
			c := newClient(t, samekey.Config{Store: store, Default: policy})
			send := func(name, header, key string) (samekey.Info, error) {
				var info samekey.Info
				req := post(t, samekey.WithInfo(t.Context(), &info), srv.URL+"/v1/payments", payment)
				req.Header[header] = []string{wire(key)}
				if name != "" {
					req = samekey.Named(req, name)
				}
				resp, err := c.Do(req)
				if err == nil {
					read(t, resp)
				}
				require.Equal(t, []string{wire(key)}, req.Header[header], "the caller's request is left alone")
				return info, err
			}
			last := func() string {
				reqs := srv.Requests()
				require.Len(t, reqs[len(reqs)-1].Header["Idempotency-Key"], 1)
				return reqs[len(reqs)-1].Header["Idempotency-Key"][0]
			}
			odd := `we"ird\key`
			for _, header := range []string{"Idempotency-Key", "idempotency-key", "IDEMPOTENCY-KEY"} {
				info, err := send("", header, odd)
				require.NoError(t, err)
				require.Equal(t, wire(odd), last(), "as it was")
				require.Equal(t, odd, info.Key)
				require.Equal(t, odd, info.ID, "it is the operation's name")
			}
			srv.Fault(mockserver.Fault{When: mockserver.AfterCommit, Do: mockserver.Drop, Times: 4})
			_, err := send("op", "Idempotency-Key", "first-try")
			require.ErrorIs(t, err, samekey.ErrUnknown)
			require.Equal(t, wire("first-try"), last())
			info, err := send("op", "Idempotency-Key", "second-try")
			require.NoError(t, err)
			require.Equal(t, "first-try", info.Key, "what is stored wins")
			require.Equal(t, "op", info.ID)
			require.Equal(t, wire("first-try"), last())
			require.NotContains(t, srv.Keys(), wire("second-try"))
		})
	}
}

// What a call that failed before the store can say of an adopted key: it may have been sent before.
func TestAdoptedKeyMayHaveBeenSent(t *testing.T) {
	srv := newServer(t, mockserver.Config{})
	srv.Fault(mockserver.Fault{When: mockserver.AfterCommit, Do: mockserver.Drop})
	store := newStore(t)
	policy := quick
	policy.MaxAttempts = 1
	c := newClient(t, samekey.Config{Store: store, Default: policy})
	req := func() *http.Request {
		r := post(t, t.Context(), srv.URL+"/v1/payments", payment)
		r.Header.Set("Idempotency-Key", "of-the-caller")
		return r
	}
	_, err := c.Do(req())
	require.ErrorIs(t, err, samekey.ErrUnknown)
	require.NoError(t, c.Close())
	_, err = c.Do(req())
	require.ErrorIs(t, err, samekey.ErrClosed)
	require.Equal(t, samekey.EffectUnknown, samekey.EffectOf(err))
	broken := newClient(t, samekey.Config{Store: &failing{Store: store, begin: func() error { return errDisk }}, Default: policy})
	_, err = broken.Do(req())
	require.ErrorIs(t, err, samekey.ErrStore)
	require.Equal(t, samekey.EffectUnknown, samekey.EffectOf(err))
	_, err = broken.Do(post(t, t.Context(), srv.URL+"/v1/payments", payment))
	require.Equal(t, samekey.EffectNone, samekey.EffectOf(err), "a key made here for this call cannot have been")
}

// A second try under a key of the caller's own, while the first one's answer is still unread, gets a share of it.
func TestAdoptedKeyWhoseAnswerIsUnread(t *testing.T) {
	srv := newServer(t, mockserver.Config{})
	store := newStore(t)
	c := newClient(t, samekey.Config{Store: store, Default: quick})
	do := func(body string) (*http.Response, error) {
		req := post(t, t.Context(), srv.URL+"/v1/payments", body)
		req.Header.Set("Idempotency-Key", "of-the-caller")
		return c.Do(req)
	}
	first, err := do(payment)
	require.NoError(t, err)
	second, err := do(payment)
	require.NoError(t, err)
	info, _ := samekey.InfoOf(second)
	require.Equal(t, samekey.Shared, info.Source)
	second.Header.Set("Content-Type", "changed")
	require.NotEqual(t, "changed", first.Header.Get("Content-Type"))
	_, err = do(`{"another":1}`)
	require.ErrorIs(t, err, samekey.ErrBusy)
	require.Len(t, srv.Requests(), 1)
	require.Equal(t, 1, pending(t, store))
	got := read(t, second)
	require.Contains(t, got, "paymentId")
	require.Zero(t, count(t, store), "one of them has it")
	require.Equal(t, got, read(t, first))
	require.NoError(t, c.Close())
}

// What is wrong with a name or a format's key is said before anything is stored or sent.
func TestNamesAndScopes(t *testing.T) {
	srv := newServer(t, mockserver.Config{})
	store := newStore(t)
	failed := errors.New("no entropy")
	var next string
	var nextErr error
	n := 0
	c := newClient(t, samekey.Config{Store: store, Default: quick, Endpoints: map[string]samekey.Policy{
		"POST /v1/named": {RequireName: samekey.On},
		"POST /v1/odd": {KeyFormat: samekey.KeyFunc(func(samekey.Ref) (string, error) {
			if n++; n <= 2 {
				return fmt.Sprint("probe-", n), nil
			}
			return next, nextErr
		})},
	}})
	type call struct {
		path, scope string
		name        any
	}
	for _, row := range []struct {
		call
		ok bool
	}{
		{call{"/v1/payments", "", ""}, false},
		{call{"/v1/payments", "", strings.Repeat("n", 1024)}, true},
		{call{"/v1/payments", "", strings.Repeat("n", 1025)}, false},
		{call{"/v1/payments", "", "a\nb"}, false},
		{call{"/v1/payments", "", "a\x00b"}, false},
		{call{"/v1/payments", "", "a\xffb"}, false},
		{call{"/v1/payments", "", "заказ-4711/оплата 💳"}, true},
		{call{"/v1/payments", strings.Repeat("s", 1025), "x"}, false},
		{call{"/v1/payments", "a\tb", "x"}, false},
		{call{"/v1/payments", "арендатор", "x"}, true},
		{call{"/v1/named", "", nil}, false},
		{call{"/v1/named", "", "named"}, true},
	} {
		sent, held := len(srv.Requests()), count(t, store)
		ctx := samekey.WithScope(t.Context(), row.scope)
		if row.name != nil {
			ctx = samekey.WithOperation(ctx, row.name.(string))
		}
		resp, err := c.Do(post(t, ctx, srv.URL+row.path, payment))
		if row.ok {
			require.NoError(t, err)
			info, _ := samekey.InfoOf(resp)
			require.Equal(t, samekey.Ref{Scope: row.scope, ID: row.name.(string)}, info.Ref)
			read(t, resp)
			continue
		}
		require.ErrorIs(t, err, samekey.ErrKey, "%.20q", row.name)
		require.Len(t, srv.Requests(), sent)
		require.Equal(t, held, count(t, store))
	}
	for _, bad := range []string{"", "with space", "й", strings.Repeat("k", 256)} {
		next = bad
		_, err := c.Do(post(t, t.Context(), srv.URL+"/v1/odd", payment))
		require.ErrorIs(t, err, samekey.ErrKey, bad)
	}
	nextErr = failed
	_, err := c.Do(post(t, t.Context(), srv.URL+"/v1/odd", payment))
	require.ErrorIs(t, err, samekey.ErrKey)
	require.ErrorIs(t, err, failed)
	require.Equal(t, 4, len(srv.Requests()))

	named := post(t, t.Context(), srv.URL+"/v1/named", payment)
	named.Header.Set("Idempotency-Key", "a-key-of-its-own")
	resp, err := c.Do(named)
	require.NoError(t, err, "is as good as a name")
	read(t, resp)
}

// Named gives one request a name, and nothing that shares its context.
func TestNamedDoesNotLeak(t *testing.T) {
	srv := newServer(t, mockserver.Config{})
	c := newClient(t, samekey.Config{Default: quick})
	req := post(t, t.Context(), srv.URL+"/v1/payments", payment)
	named := samekey.Named(req, "op")
	var info samekey.Info
	for i, r := range []*http.Request{named, req.Clone(req.Context())} {
		r = r.WithContext(samekey.WithInfo(r.Context(), &info))
		r.Body = http.NoBody
		r.ContentLength = 0
		resp, err := c.Do(r)
		require.NoError(t, err)
		read(t, resp)
		require.Equal(t, i == 0, info.ID == "op")
	}
	_, ok := samekey.OperationOf(context.Background())
	require.False(t, ok)
	_, ok = samekey.InfoOf(nil)
	require.False(t, ok)
	require.NoError(t, samekey.ErrorOf(&http.Response{}))
}

// What a caller learns who leaves a call that goes on for others: the operation's name, and no key but the true one.
func TestLeavingASharedCall(t *testing.T) {
	inLab(t, mockserver.Config{}, func(t *testing.T, l *lab) {
		l.Fault(mockserver.Fault{When: mockserver.AfterCommit, Do: mockserver.Delay(5 * time.Second)})
		c := l.client(t, samekey.Config{})
		for _, name := range []string{"made by who leaves", "joined by who leaves"} {
			stay := make(chan string, 1)
			wait := func(after time.Duration) {
				time.Sleep(after)
				resp, err := c.Do(pay(t, context.Background(), name))
				if err != nil {
					stay <- err.Error()
					return
				}
				info, _ := samekey.InfoOf(resp)
				_ = resp.Body.Close()
				stay <- info.Key
			}
			if name[0] == 'm' {
				go wait(200 * time.Millisecond)
			} else {
				go wait(0)
				time.Sleep(200 * time.Millisecond)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			_, err := c.Do(pay(t, ctx, name))
			cancel()
			unknown := asType[*samekey.OutcomeUnknownError](t, err)
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.Equal(t, name, unknown.ID)
			truth := <-stay
			require.Contains(t, []string{"", truth}, unknown.Key)
			require.Equal(t, truth, stored(t, l.store, name).Key)
		}
		require.Len(t, l.Requests(), 2)
	})
}
