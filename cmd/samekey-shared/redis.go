package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"

	goredis "github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"

	"github.com/samekey/samekey/cmd/samekey/tool"
	"github.com/samekey/samekey/persist/redis"
)

var redisKind = tool.Kind{
	Schemes: []string{"redis", "rediss"}, Open: openRedis,
	Usage: "redis://USER:PASSWORD@HOST/NUMBER?prefix=P\tRedis; rediss: is TLS, cluster=true a Cluster",
}

// errPassword does not quote: what stands alone before the @ is a password more often than a user. The driver would log in
// with neither.
var errPassword = errors.New("the URL has a user without a password, or a password without its colon: write redis://:PASSWORD@HOST or redis://USER:PASSWORD@HOST")

func redisClient(l *location) (goredis.UniversalClient, error) {
	params, err := l.parameters()
	if err != nil {
		return nil, err
	}
	cluster := params.Get("cluster") == "true"
	params.Del("cluster")
	l.query = params.Encode()
	if cluster {
		o, err := goredis.ParseClusterURL(l.driverURL())
		if err != nil {
			return nil, unreadable(err)
		}
		return goredis.NewClusterClient(o), nil
	}
	o, err := goredis.ParseURL(l.driverURL())
	if err != nil {
		return nil, unreadable(err)
	}
	return goredis.NewClient(o), nil
}

func unreadable(err error) error {
	if text, is := strings.CutPrefix(err.Error(), "redis: "); is {
		return errors.New("the URL cannot be read: " + text)
	}
	return errURL // that of package url quotes
}

// redisStore closes its client too.
type redisStore struct {
	*redis.Store
	client goredis.UniversalClient
}

func (s redisStore) Close() error { return errors.Join(s.Store.Close(), s.client.Close()) }

func openRedis(ctx context.Context, raw string, w tool.Want) (tool.Opened, error) {
	logging.Disable()
	l, err := locate(raw)
	if err != nil {
		return tool.Opened{}, err
	}
	if l.schema != "" {
		return tool.Opened{}, errors.New("no schemas in Redis: leave schema out of the URL")
	}
	if user, _, named := strings.Cut(l.authority, "@"); named && !l.password() || strings.HasSuffix(user, ":") {
		return tool.Opened{}, errPassword
	}
	opened := tool.Opened{Name: l.name()}
	client, err := redisClient(&l)
	if err != nil {
		return opened, err
	}
	ctx, cancel := context.WithTimeout(ctx, openTimeout) // the store outlives it
	defer cancel()
	o := redis.Options{Prefix: l.prefix, Lease: w.Lease, SweepEvery: -1, Logger: slog.New(slog.DiscardHandler)}
	s, err := openKeys(ctx, client, o)
	var volatile *redis.VolatileError
	if errors.As(err, &volatile) && w.Use != tool.Checking {
		opened.Caveat = "after a crash of the server, since " + volatile.Setting
		o.AllowVolatile = true
		s, err = openKeys(ctx, client, o)
	}
	if err != nil {
		_ = client.Close()
		return opened, explainRedis(&l, err)
	}
	opened.Store = redisStore{s, client}
	return opened, nil
}

// noKeysError says that no store of the prefix is there.
type noKeysError struct{ prefix string }

func (e *noKeysError) Error() string { return "no store of prefix " + e.prefix }

// openKeys opens the store if a program has made it. Open would make it, for a prefix with a slip in it too.
func openKeys(ctx context.Context, client goredis.UniversalClient, o redis.Options) (*redis.Store, error) {
	prefix := o.Prefix
	if prefix == "" {
		prefix = "samekey"
	}
	n, err := client.Exists(ctx, "{"+prefix+"}:format").Result()
	if err == nil && n == 0 {
		err = &noKeysError{prefix}
	}
	if err != nil {
		return nil, err
	}
	return redis.Open(ctx, client, o)
}

// explainRedis says what is wrong, and the mend, in the words of the command line.
func explainRedis(l *location, err error) error {
	name := l.name()
	var (
		connect  *redis.ConnectError
		format   *redis.FormatError
		readOnly *redis.ReadOnlyError
		volatile *redis.VolatileError
		noKeys   *noKeysError
	)
	if errors.As(err, &connect) {
		err = connect.Err // the rest of its text is for programmers
	}
	switch {
	case errors.Is(err, context.Canceled):
		return err
	case errors.As(err, &volatile):
		return fmt.Errorf("%s may lose what it has acknowledged, so that a command is sent twice or forgotten: %s; %s", name, volatile.Setting, volatile.Mend)
	case errors.As(err, &readOnly), goredis.IsReadOnlyError(err):
		return fmt.Errorf("%s takes no writes: name the primary server, not a replica", name)
	case errors.As(err, &noKeys):
		return fmt.Errorf("%s: no program has opened a store with the prefix %q there yet: prefix and number in the URL say where it is", name, noKeys.prefix)
	case errors.As(err, &format) && format.Have > format.Want:
		return fmt.Errorf("%s has format %d, newer than %d, which this tool knows: use a newer samekey-shared", name, format.Have, format.Want)
	case errors.As(err, &format):
		return because(format.Err, "%s: key %s is another program's: prefix in the URL says which keys are the store's", name, format.Key)
	case goredis.IsPermissionError(err):
		return because(err, "%s: this user lacks a right: it needs all commands of scripts and data on the keys of the prefix, INFO, and CONFIG GET", name)
	}
	return unreached(name, "Redis", loginOf(l), err)
}
