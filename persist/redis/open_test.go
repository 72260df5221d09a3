package redis

import (
	"context"
	"fmt"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/samekey/samekey/persist"
	"github.com/samekey/samekey/persist/persisttest/servertest"
)

// rights are the ACL rules that the package's text names.
func rights(t *testing.T) (rules []any) {
	t.Helper()
	text, err := os.ReadFile("doc.go")
	require.NoError(t, err)
	_, rest, _ := strings.Cut(string(text), "An ACL user needs no more than\n//\n")
	named, _, found := strings.Cut(rest, "\n//\n")
	require.True(t, found)
	for rule := range strings.FieldsSeq(strings.ReplaceAll(named, "//", "")) {
		rules = append(rules, rule)
	}
	return rules
}

// refused opens client and wants one clear error of type T, on one line, that names the mend.
func refused[T error](t *testing.T, client goredis.UniversalClient, o Options, mend string) T {
	t.Helper()
	s, err := Open(t.Context(), client, o)
	require.Error(t, err)
	require.True(t, s == nil)
	var is T
	require.ErrorAs(t, err, &is)
	require.Contains(t, err.Error(), mend)
	require.NotContains(t, strings.TrimSpace(err.Error()), "\n")
	return is
}

func accepted(t *testing.T, client goredis.UniversalClient, o Options) {
	t.Helper()
	s, err := Open(t.Context(), client, o)
	require.NoError(t, err)
	_, err = s.Begin(t.Context(), op("a"))
	require.NoError(t, err)
	require.NoError(t, s.Close())
	s, err = Open(t.Context(), client, o)
	require.NoError(t, err)
	_, err = s.Claim(t.Context(), op("a").Ref)
	require.NoError(t, err)
	for _, err := range s.List(t.Context(), persist.Filter{}) {
		require.NoError(t, err)
	}
	require.NoError(t, s.sweep(t.Context()))
	require.NoError(t, s.Close())
}

func TestOpenRefusesOptions(t *testing.T) {
	for _, o := range []Options{{Prefix: "a b"}, {Prefix: "{a}"}, {Prefix: strings.Repeat("x", 65)}, {Lease: 1}, {Lease: -1}} {
		_, err := Open(t.Context(), nil, o)
		require.ErrorContains(t, err, "Options.")
	}
}

func TestOpenRefusesClients(t *testing.T) {
	refused[*ClientError](t, nil, Options{}, "no client")
	ring := goredis.NewRing(&goredis.RingOptions{Addrs: map[string]string{"a": "127.0.0.1:1"}})
	defer ring.Close()
	refused[*ClientError](t, ring, Options{}, "NewFailoverClient")
}

func TestOpenRefusesServer(t *testing.T) {
	t.Parallel()
	const secret = "correct-horse"
	srv := servertest.New(t, servertest.Redis)
	client := func(o goredis.Options) goredis.UniversalClient {
		if o.Addr == "" {
			o.Addr = srv.Addr()
		}
		o.DialerRetries = 1
		c := goredis.NewClient(&o)
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	ctx, admin := t.Context(), client(goredis.Options{})
	set := func(name, value string) {
		t.Helper()
		require.NoError(t, admin.ConfigSet(ctx, name, value).Err())
	}

	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	nobody := l.Addr().String()
	refused[*ConnectError](t, goredis.NewClient(&goredis.Options{Addr: nobody, DialTimeout: time.Second, ReadTimeout: 300 * time.Millisecond}), Options{}, "check its address") // it says nothing
	require.NoError(t, l.Close())
	refused[*ConnectError](t, client(goredis.Options{Addr: nobody}), Options{}, "check its address")
	ended, cancel := context.WithCancel(ctx)
	cancel()
	_, err = Open(ended, admin, Options{})
	require.ErrorIs(t, err, context.Canceled)

	for _, bad := range []struct{ name, value, good string }{
		{"appendonly", "no", "yes"}, {"appendfsync", "everysec", "always"}, {"appendfsync", "no", "always"},
		{"no-appendfsync-on-rewrite", "yes", "no"}, {"maxmemory-policy", "volatile-lru", "noeviction"}, {"maxmemory-policy", "allkeys-lru", "noeviction"},
	} {
		set(bad.name, bad.value)
		e := refused[*VolatileError](t, admin, Options{}, fmt.Sprintf("CONFIG SET %s %s", bad.name, bad.good))
		require.Equal(t, bad.name+" is "+bad.value, e.Setting)
		accepted(t, admin, Options{AllowVolatile: true, Prefix: strings.ToLower(bad.name + bad.value)})
		set(bad.name, bad.good)
	}
	accepted(t, admin, Options{})

	require.NoError(t, admin.Do(ctx, "ACL", "SETUSER", "managed", "on", ">"+secret, "~*", "+@all", "-config", "-@admin", "+info").Err())
	managed := client(goredis.Options{Username: "managed", Password: secret})
	refused[*VolatileError](t, managed, Options{}, "allow this user CONFIG GET") // nobody else says what appendfsync is
	accepted(t, managed, Options{AllowVolatile: true, Prefix: "managed"})
	set("appendonly", "no")
	e := refused[*VolatileError](t, managed, Options{}, "appendonly yes")
	require.Equal(t, "appendonly is no", e.Setting, "INFO says so")
	set("appendonly", "yes")

	// No more rights than the package's text names.
	require.NoError(t, admin.Do(ctx, append([]any{"ACL", "SETUSER", "samekey", "on", ">" + secret}, rights(t)...)...).Err())
	accepted(t, client(goredis.Options{Username: "samekey", Password: secret}), Options{})
	refused[*ConnectError](t, client(goredis.Options{Username: "samekey", Password: secret}), Options{Prefix: "else", AllowVolatile: true}, "may run scripts")

	set("requirepass", secret)
	for _, o := range []goredis.Options{{}, {Password: "wrong-" + secret}, {Username: "nobody", Password: "wrong-" + secret}} {
		e := refused[*ConnectError](t, client(o), Options{}, "user and password")
		require.NotContains(t, e.Error(), secret)
	}
	admin = client(goredis.Options{Password: secret})
	accepted(t, admin, Options{})

	// What a server without AUTH makes of a password.
	l, err = net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				b := make([]byte, 4096)
				for {
					n, err := c.Read(b)
					if err != nil {
						return
					}
					for range strings.Count(string(b[:n]), "*") {
						_, _ = c.Write([]byte("-ERR unknown command 'AUTH', with args beginning with: '" + secret + "' \r\n"))
					}
				}
			}()
		}
	}()
	old := refused[*ConnectError](t, client(goredis.Options{Addr: l.Addr().String(), Password: secret}), Options{}, "unknown command")
	require.NotContains(t, old.Error(), secret)
	_, err = Open(context.Background(), client(goredis.Options{Addr: l.Addr().String(), Password: secret}), Options{}) // which never ends
	require.ErrorContains(t, err, "unknown command")
	require.NotContains(t, err.Error(), secret)

	primary := servertest.New(t, servertest.Redis)
	host, port, err := net.SplitHostPort(primary.Addr())
	require.NoError(t, err)
	require.NoError(t, admin.SlaveOf(ctx, host, port).Err())
	refused[*ReadOnlyError](t, admin, Options{}, "primary")
	// A user who may not ask for the role finds out by the first write.
	require.NoError(t, admin.Do(ctx, "ACL", "SETUSER", "blind", "on", ">"+secret, "~*", "+@all", "-info").Err())
	refused[*ReadOnlyError](t, client(goredis.Options{Username: "blind", Password: secret}), Options{AllowVolatile: true}, "primary")
}

// TestFormats: what others have written is refused by name and left as it is, and does not stand in the way of the rest.
func TestFormats(t *testing.T) {
	t.Parallel()
	p := fresh(t)
	admin, ctx, o := p.admin(t), t.Context(), Options{Prefix: p.prefix}
	require.NoError(t, admin.HSet(ctx, o.key("wait"), "mine", 1).Err())
	f := refused[*FormatError](t, admin, o, "Options.Prefix")
	require.Equal(t, o.key("wait"), f.Key)
	require.Equal(t, "1", admin.HGet(ctx, o.key("wait"), "mine").Val())
	require.NoError(t, admin.Del(ctx, o.key("wait")).Err())

	require.NoError(t, admin.Set(ctx, o.key("format"), "json", 0).Err())
	refused[*FormatError](t, admin, o, "Options.Prefix")
	require.NoError(t, admin.Set(ctx, o.key("format"), "2", 0).Err())
	f = refused[*FormatError](t, admin, o, "upgrade")
	require.Equal(t, []int{2, format}, []int{f.Have, f.Want})
	require.NoError(t, admin.Del(ctx, o.key("format")).Err())

	s := p.opened(t, func(o *Options) { o.Lease, o.SweepEvery = time.Minute, -1 })
	keep := time.Now().Add(3 * time.Second)
	for _, id := range []string{"newer", "foreign", "ours"} {
		s.free(t, op(id))
		e, err := s.Begin(ctx, op("settled "+id))
		require.NoError(t, err)
		require.NoError(t, s.Settle(ctx, e.Claim, persist.Answer{State: persist.Succeeded, Status: 200, KeepBody: keep, KeepName: keep.Add(time.Hour)}))
	}
	for _, id := range []string{"newer", "settled newer"} {
		require.NoError(t, admin.HSet(ctx, s.record(hashOf(op(id).Ref)), "m", "2 what we do not know").Err())
	}
	for _, id := range []string{"foreign", "settled foreign"} {
		key := s.record(hashOf(op(id).Ref))
		require.NoError(t, admin.Del(ctx, key).Err())
		require.NoError(t, admin.Set(ctx, key, "theirs", 0).Err())
	}
	for id, have := range map[string]int{"newer": 2, "foreign": 0} {
		ref := op(id).Ref
		_, begin := s.Begin(ctx, op(id))
		_, get := s.Get(ctx, ref)
		_, claim := s.Claim(ctx, ref)
		for method, err := range map[string]error{"Begin": begin, "Get": get, "Claim": claim, "Forget": s.Forget(ctx, ref)} {
			var f *FormatError
			require.ErrorAs(t, err, &f, method)
			require.Equal(t, have, f.Have)
			require.Equal(t, s.record(hashOf(ref)), f.Key)
			require.False(t, maybe(t, err))
		}
	}
	var listed []string
	var first error
	for rec, err := range s.List(ctx, persist.Filter{}) {
		if err != nil {
			require.NoError(t, first, "it ends with it")
			first = err
			continue
		}
		listed = append(listed, rec.ID)
	}
	require.ElementsMatch(t, []string{"ours", "settled ours"}, listed, "those that cannot be read hold nobody up")
	require.ErrorAs(t, first, &f)
	es, err := s.ClaimDue(ctx, 9)
	require.NoError(t, err)
	require.Len(t, es, 1)
	require.Equal(t, "ours", es[0].ID)
	time.Sleep(time.Until(keep) + 10*time.Millisecond)
	require.NoError(t, s.sweep(ctx))
	require.Equal(t, "theirs", admin.Get(ctx, s.record(hashOf(op("settled foreign").Ref))).Val())
	require.Equal(t, "2 what we do not know", admin.HGet(ctx, s.record(hashOf(op("settled newer").Ref)), "m").Val())
	got, err := s.Get(ctx, op("settled ours").Ref)
	require.NoError(t, err)
	require.True(t, got.Tombstone())
	require.NoError(t, admin.HSet(ctx, s.record(hashOf(op("settled ours").Ref)), "n", "\xff").Err())
	_, err = s.Get(ctx, op("settled ours").Ref)
	require.ErrorAs(t, err, &f)
	s.free(t, op("spoilt"))
	s.free(t, op("due"))
	require.NoError(t, admin.HSet(ctx, s.record(hashOf(op("spoilt").Ref)), "r", "\xff").Err())
	es, err = s.ClaimDue(ctx, 1)
	require.NoError(t, err)
	require.Len(t, es, 1)
	require.Equal(t, "due", es[0].ID, "a spoilt record keeps nobody from the others")
	list := error(nil)
	for _, err := range s.List(ctx, persist.Filter{}) {
		list = err
	}
	require.ErrorAs(t, list, &f, "List does not leave out in silence what it cannot read")
}
