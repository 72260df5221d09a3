package redis

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	goredis "github.com/redis/go-redis/v9"
)

// check refuses what a store cannot be on.
func (s *Store) check(ctx context.Context) error {
	if s.client == nil {
		return &ClientError{Why: "Open was given no client"}
	}
	if _, is := s.client.(*goredis.Ring); is {
		return &ClientError{Why: "Open was given a Ring, which goes on with another, empty server when one is down: use NewClient, NewFailoverClient or NewClusterClient"}
	}
	node, err := s.node(ctx)
	if err != nil {
		return &ConnectError{Err: err}
	}
	_, err = patient(ctx, s.o.RetryFor, func() (string, error) { return node.Ping(ctx).Result() })
	if err != nil && !says(err, "NOPERM") { // who may not ask is connected all the same
		return &ConnectError{Err: err}
	}
	info, err := patient(ctx, s.o.RetryFor, func() (map[string]string, error) {
		text, err := node.Info(ctx).Result()
		return sections(text), err
	})
	if err != nil && !serverSays(err) {
		return &ConnectError{Err: err}
	}
	if role := info["role"]; role == "slave" || role == "replica" {
		return &ReadOnlyError{}
	}
	if !s.o.AllowVolatile {
		if err := durable(ctx, node, info); err != nil {
			return err
		}
	}
	return s.checkKeys(ctx)
}

// node is the server that has the store's keys.
func (s *Store) node(ctx context.Context) (goredis.Cmdable, error) {
	cluster, is := s.client.(*goredis.ClusterClient)
	if !is {
		return s.client, nil
	}
	return patient(ctx, s.o.RetryFor, func() (goredis.Cmdable, error) { return cluster.MasterForKey(ctx, s.fixed[0]) })
}

// patient runs f until the server can answer.
func patient[T any](ctx context.Context, most time.Duration, f func() (T, error)) (T, error) {
	for start := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		v, err := within(ctx, f)
		if err == nil || fateOf(err) != again || ctx.Err() != nil || time.Since(start) > most {
			return v, err
		}
	}
}

// sections reads what INFO says.
func sections(text string) map[string]string {
	m := map[string]string{}
	for lines := bufio.NewScanner(strings.NewReader(text)); lines.Scan(); {
		if name, value, is := strings.Cut(strings.TrimSpace(lines.Text()), ":"); is {
			m[name] = value
		}
	}
	return m
}

// settings are what has to hold for an acknowledged write to outlive the server's process and machine, and for a record
// to outlive others' need of memory. INFO knows some of them where CONFIG is forbidden.
var settings = []struct {
	name, want string
	informed   func(info map[string]string) string // empty: INFO does not say
}{
	{"appendonly", "yes", func(info map[string]string) string {
		return map[string]string{"0": "no", "1": "yes"}[info["aof_enabled"]]
	}},
	{"appendfsync", "always", nil},
	// With yes nothing is synced while a child process rewrites the file.
	{"no-appendfsync-on-rewrite", "no", nil},
	{"maxmemory-policy", "noeviction", func(info map[string]string) string { return info["maxmemory_policy"] }},
}

// durable refuses a server that may lose what it has acknowledged, or does not say whether it may.
func durable(ctx context.Context, node goredis.Cmdable, info map[string]string) error {
	for _, want := range settings {
		config, err := within(ctx, func() (map[string]string, error) { return node.ConfigGet(ctx, want.name).Result() })
		if err != nil && !serverSays(err) {
			return &ConnectError{Err: err}
		}
		is := config[want.name]
		if is == "" && want.informed != nil {
			is = want.informed(info)
		}
		switch is {
		case want.want:
		case "":
			return &VolatileError{
				Setting: want.name + " is not told",
				Mend:    fmt.Sprintf("see that it is %s and allow this user CONFIG GET", want.want),
			}
		default:
			return &VolatileError{
				Setting: want.name + " is " + is,
				Mend:    fmt.Sprintf("CONFIG SET %s %s, and the same in redis.conf", want.name, want.want),
			}
		}
	}
	return nil
}

// checkKeys sees that the prefix is ours or free, and that the server takes writes.
func (s *Store) checkKeys(ctx context.Context) error {
	reply, err := patient(ctx, s.o.RetryFor, func() ([]any, error) {
		return openScript.run(ctx, s.client, append(s.index(), s.o.key("format")), []any{format})
	})
	switch {
	case err != nil && serverSays(err) && says(err, "READONLY"):
		return &ReadOnlyError{Err: err}
	case err != nil:
		return &ConnectError{Err: err}
	case len(reply) == 3: // foreign
		key, _ := reply[1].(string)
		return &FormatError{Key: key, Want: format, Err: fmt.Errorf("it is a %v", reply[2])}
	case len(reply) != 2:
		return &ConnectError{Err: errReply}
	}
	text, _ := reply[1].(string)
	have, err := strconv.Atoi(text)
	if err != nil {
		err = errors.New("it is no number")
	}
	if have != format {
		return &FormatError{Key: s.o.key("format"), Have: have, Want: format, Err: err}
	}
	return nil
}
