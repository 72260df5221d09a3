package redis

import (
	"context"
	"embed"

	goredis "github.com/redis/go-redis/v9"
)

//go:embed scripts
var texts embed.FS

// script is a Lua script, which Redis runs whole, with nothing in between.
type script struct{ text, sha string }

// scriptOf joins files of the folder scripts.
func scriptOf(names ...string) *script {
	s := &script{}
	for _, name := range names {
		b, err := texts.ReadFile("scripts/" + name + ".lua")
		if err != nil {
			panic(err) // they are embedded
		}
		s.text += string(b)
	}
	s.sha = goredis.NewScript(s.text).Hash()
	return s
}

var (
	beginScript    = scriptOf("lib", "turn", "begin")
	withdrawScript = scriptOf("lib", "withdraw")
	claimScript    = scriptOf("lib", "turn", "claim")
	dueScript      = scriptOf("lib", "turn", "due")
	markScript     = scriptOf("lib", "turn", "mark")
	replaceScript  = scriptOf("lib", "turn", "replace")
	settleScript   = scriptOf("lib", "turn", "settle")
	releaseScript  = scriptOf("lib", "turn", "release")
	seenScript     = scriptOf("lib", "seen")
	forgetScript   = scriptOf("lib", "turn", "forget")
	getScript      = scriptOf("lib", "get")
	keysScript     = scriptOf("lib", "keys")
	fetchScript    = scriptOf("lib", "fetch")
	sweepScript    = scriptOf("lib", "sweep")
	openScript     = scriptOf("lib", "open")
)

// once is a command that go-redis does not repeat by itself. A repetition that nobody knows of may arrive long after
// its call has ended, and the error of the last one says nothing of the fate of those before.
type once struct{ *goredis.Cmd }

func (once) NoRetry() bool { return true }

// run sends one try of a script. It returns when that is answered or ctx ends, whatever the client's
// ContextTimeoutEnabled: what is under way then goes on by itself, as long as the client's timeouts allow. Reads are
// scripts too: a client of a cluster may send other reads to replicas.
func (s *script) run(ctx context.Context, c goredis.UniversalClient, keys []string, args []any) ([]any, error) {
	return within(ctx, func() ([]any, error) {
		reply, err := send(ctx, c, "evalsha", s.sha, keys, args)
		if err != nil && serverSays(err) && says(err, "NOSCRIPT") {
			reply, err = send(ctx, c, "eval", s.text, keys, args)
		}
		return reply, err
	})
}

func send(ctx context.Context, c goredis.UniversalClient, command, what string, keys []string, args []any) ([]any, error) {
	all := make([]any, 0, 3+len(keys)+len(args))
	all = append(all, command, what, len(keys))
	for _, k := range keys {
		all = append(all, k)
	}
	cmd := once{goredis.NewCmd(ctx, append(all, args...)...)}
	if err := c.Process(ctx, cmd); err != nil {
		return nil, err
	}
	return cmd.Slice()
}

// within runs f, and returns the error of ctx if that ends first.
func within[T any](ctx context.Context, f func() (T, error)) (T, error) {
	if ctx.Done() == nil {
		v, err := f()
		return v, scrub(err)
	}
	type result struct {
		v   T
		err error
	}
	done := make(chan result, 1)
	go func() {
		v, err := f()
		done <- result{v, err}
	}()
	select {
	case r := <-done:
		return r.v, scrub(r.err)
	case <-ctx.Done():
		var none T
		return none, ctx.Err()
	}
}
