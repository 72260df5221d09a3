package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/samekey/samekey"
	"github.com/samekey/samekey/mockserver"
	"github.com/samekey/samekey/persist"
	"github.com/samekey/samekey/persist/journal"
)

// TestReading: what a client has left on a store, as every reading command tells it; nothing is changed by looking.
func TestReading(t *testing.T) {
	each(t, func(t *testing.T, p place) {
		p = p.migrated(t)
		r := run(t, "check", p.URL)
		require.Zero(t, r.code, r.err)
		require.Regexp(t, `verdict +sound: .*\noperations +0\n`, r.out)
		require.Equal(t, ran{}, run(t, "list", p.URL), "nothing is no error")

		bank := newBank(t)
		p.fill(t, samekey.Config{}, func(c *samekey.Client) {
			require.NoError(t, pay(t, c, bank.URL, "paid", 100))
			require.NoError(t, pay(t, c, bank.URL, "declined", mockserver.DeclinedAmount))
			bank.Fault(mockserver.Fault{Do: mockserver.Status(409, false), Times: 1})
			require.ErrorIs(t, pay(t, c, bank.URL, "conflict", 100), samekey.ErrConflict)
		})
		p.lost(t, bank, "lost", "")
		all := p.ids(t, persist.Filter{})

		ops := listed(t, p)
		require.Equal(t, all, ids(ops))
		require.Equal(t, []string{"paid", "declined", "conflict", "lost", ops[4].Key}, ids(ops))
		require.Equal(t, operation{ID: "lost", State: "pending", Key: p.record(t, "", "lost").Key, Attempts: 2, LastStatus: 503}, ops[3])
		require.Equal(t, []string{"declined", "conflict"}, ids(listed(t, p, "-state", "rejected,conflicted")))
		require.Empty(t, listed(t, p, "-older", "1h"))
		r = run(t, "list", p.URL, "-state", "pending")
		require.Regexp(t, `^AGE .*\n\S+ +pending +2 +503 +\S+…\S+ +lost +POST `, r.out)
		require.NotContains(t, r.out, ops[3].Key)

		r = run(t, "show", p.URL, "paid", "-body")
		require.Zero(t, r.code, r.err)
		require.Contains(t, r.out, `"amount":100`)
		require.Contains(t, r.out, "paymentId")
		r = run(t, "show", p.URL, "conflict", "-scope", "t")
		require.Equal(t, 1, r.code)
		require.Contains(t, r.err, "there is one without a scope")

		r = run(t, "check", p.URL)
		require.Zero(t, r.code, r.err)
		require.Regexp(t, `operations +5\n  pending +2, of them 0 parked; the oldest is from .*\n  succeeded +1\n  rejected +1\n  conflicted +1\n  abandoned +0\n$`, r.out)
		r = run(t, "check", "-json", p.URL)
		var c struct {
			Store      string
			Sound      bool
			Operations int
			States     map[string]int
		}
		require.NoError(t, json.Unmarshal([]byte(r.out), &c))
		require.True(t, c.Sound)
		require.Equal(t, 2, c.States["pending"])
		require.Contains(t, c.Store, "prefix="+p.O.Prefix)

		r = run(t, "stats", p.URL)
		require.Zero(t, r.code, r.err)
		require.Regexp(t, `^store +\S.*\noperations +5\n  pending +2, of them 0 parked, 0 expired, 0 never sent, 0 to be left alone for now\n`, r.out)
		require.Contains(t, r.out, "503×2")
		r = run(t, "stats", p.URL, "-json")
		require.NotContains(t, r.out, `"dir"`)
		require.NotContains(t, r.out, `"segments"`)
		require.Contains(t, r.out, `"oldestPendingSeconds"`)
		require.Equal(t, all, p.ids(t, persist.Filter{}))
	})
}

// TestChanging: every command that changes something, as a second store and the bank find it.
func TestChanging(t *testing.T) {
	each(t, func(t *testing.T, p place) {
		p = p.migrated(t)
		bank := newBank(t)
		p.lost(t, bank, "abandoned", "forgotten", "rekeyed", "resumed", "all-1", "all-2")
		sent := len(bank.Requests())

		r := run(t, "abandon", p.URL, "abandoned", "-reason", "refunded by hand")
		require.Zero(t, r.code, r.err)
		require.Empty(t, r.err)
		require.Contains(t, r.out, "abandoned abandoned: pending after 2 attempts, the last answered with 503")
		rec := p.record(t, "", "abandoned")
		require.Equal(t, persist.Abandoned, rec.State())
		require.Equal(t, "refunded by hand", rec.Answer.Reason)
		p.fill(t, samekey.Config{}, func(c *samekey.Client) {
			require.ErrorContains(t, pay(t, c, bank.URL, "abandoned", 100), "refunded by hand")
		})
		require.Equal(t, 1, run(t, "abandon", p.URL, "abandoned", "-reason", "again").code)

		r = run(t, "forget", p.URL, "forgotten")
		require.Equal(t, 1, r.code)
		require.Contains(t, r.err, "not confirmed: nothing was done; -yes confirms it")
		require.Contains(t, p.ids(t, persist.Filter{}), "forgotten")
		require.Zero(t, run(t, "forget", p.URL, "forgotten", "-yes").code)
		require.NotContains(t, p.ids(t, persist.Filter{}), "forgotten")
		require.Equal(t, 1, run(t, "forget", p.URL, "forgotten", "-yes").code)

		old := p.record(t, "", "rekeyed")
		require.Equal(t, 1, run(t, "rekey", p.URL, "rekeyed").code)
		require.Equal(t, old.Key, p.record(t, "", "rekeyed").Key)
		require.Zero(t, run(t, "rekey", p.URL, "rekeyed", "-yes").code)
		rec = p.record(t, "", "rekeyed")
		require.NotEqual(t, old.Key, rec.Key)
		require.Zero(t, rec.Progress.Attempts)
		require.Len(t, bank.Requests(), sent, "nothing was sent so far")

		key := p.record(t, "", "resumed").Key
		r = run(t, "resume", p.URL, "resumed", "-json", "-timeout", "45s")
		require.Zero(t, r.code, r.err)
		require.Contains(t, r.out, `"state":"succeeded","status":201,"source":"replay","attempts":3`)
		require.Equal(t, key, bank.Requests()[sent].Key)
		rec = p.record(t, "", "resumed")
		require.Equal(t, persist.Succeeded, rec.State())

		r = run(t, "resume", p.URL, "-all")
		require.Zero(t, r.code, r.err)
		require.Equal(t, 3, strings.Count(r.out, "succeeded   201"), r.out)
		require.Empty(t, p.ids(t, persist.Filter{States: []persist.State{persist.Pending}}))
		require.Equal(t, 7, bank.Effects(), "six, and one more by the word that the first of rekeyed did not happen")
	})
}

// TestBesideLivingProcess: what another process holds is left alone, whatever else is there is not; once its owner was
// killed and its lease is over, it goes on under its own key.
func TestBesideLivingProcess(t *testing.T) {
	each(t, func(t *testing.T, p place) {
		p = p.migrated(t)
		bank, shop := newBank(t), newBank(t)
		p.lost(t, shop, "free", "free-2")
		bank.Fault(mockserver.Fault{When: mockserver.AfterCommit, Do: mockserver.Stall(0)})
		cmd := p.sender(t, bank.URL, "held")
		require.Eventually(t, func() bool { return bank.Effects() == 1 }, 20*time.Second, 10*time.Millisecond)

		for _, args := range [][]string{{"check", p.URL}, {"list", p.URL}, {"show", p.URL, "held"}, {"stats", p.URL}} {
			r := run(t, args...)
			require.Zero(t, r.code, r.err)
			require.Contains(t, r.out, "pending")
		}
		key := p.record(t, "", "held").Key
		for _, args := range [][]string{{"abandon", p.URL, "held", "-reason", "x"}, {"forget", p.URL, "held", "-yes"}, {"rekey", p.URL, "held", "-yes"}, {"resume", p.URL, "held"}} {
			r := run(t, args...)
			require.Equal(t, 3, r.code, r.err)
			require.Regexp(t, `^samekey-shared: held is held by another process, and nothing was done: [^\n]*\n$`, r.err)
			require.Empty(t, r.out)
		}
		rec := p.record(t, "", "held")
		require.Equal(t, key, rec.Key)
		require.Equal(t, persist.Pending, rec.State())

		require.Zero(t, run(t, "abandon", p.URL, "free-2", "-reason", "x").code)
		r := run(t, "resume", p.URL, "-all")
		require.Equal(t, 3, r.code, r.err)
		require.Regexp(t, `^succeeded +201 +free [^\n]*\n$`, r.out)
		require.Contains(t, r.err, "held is held by another process")

		require.NoError(t, cmd.Process.Kill())
		_ = cmd.Wait()
		bank.ClearFaults()
		require.Eventually(t, func() bool { return run(t, "resume", p.URL, "held").code == 0 }, 60*time.Second, 200*time.Millisecond)
		require.Equal(t, 1, bank.Effects())
		bank.AssertOnce(t)
		bank.AssertSameKey(t)
		rec = p.record(t, "", "held")
		require.Equal(t, persist.Succeeded, rec.State())
	})
}

// TestInterrupted: an interrupt ends what is under way, and leaves the operation pending and to be had at once.
func TestInterrupted(t *testing.T) {
	each(t, func(t *testing.T, p place) {
		p = p.migrated(t)
		bank := newBank(t)
		p.lost(t, bank, "order-1")
		bank.Fault(mockserver.Fault{Do: mockserver.Stall(0)})
		sent := len(bank.Requests())
		cmd, errOut := began(t, "resume", p.URL, "order-1")
		require.Eventually(t, func() bool { return len(bank.Requests()) > sent }, 20*time.Second, 10*time.Millisecond)
		interrupted(t, cmd)
		require.Equal(t, 1, cmd.ProcessState.ExitCode(), errOut)
		rec := p.record(t, "", "order-1")
		require.Equal(t, persist.Pending, rec.State())
		require.Equal(t, 3, rec.Progress.Attempts)
		r := run(t, "abandon", p.URL, "order-1", "-reason", "x")
		require.Zero(t, r.code, r.err)
	})
}

// TestEnvironment: the whole store comes from the environment, a directory too.
func TestEnvironment(t *testing.T) {
	t.Parallel()
	p := fresh(t, "SQLite").migrated(t)
	bank := newBank(t)
	p.lost(t, bank, "order-1")
	env := []string{"SAMEKEY_STORE=" + p.URL}
	r := runEnv(t, env, "list", "-", "-json")
	require.Zero(t, r.code, r.err)
	require.Contains(t, r.out, `"id":"order-1"`)
	r = runEnv(t, env, "show", "-", "order-1")
	require.Zero(t, r.code, r.err)
	r = runEnv(t, []string{"SAMEKEY_STORE="}, "list", "-")
	require.Equal(t, 2, r.code)
	require.Contains(t, r.err, "SAMEKEY_STORE, which is not set")
}

// TestJournal: a directory is a journal, as for command samekey.
func TestJournal(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "journal")
	j, err := journal.Open(t.Context(), dir, journal.Options{})
	require.NoError(t, err)
	bank := newBank(t)
	c, err := samekey.New(samekey.Config{Store: j, Default: samekey.Policy{MaxAttempts: 1}})
	require.NoError(t, err)
	bank.Fault(mockserver.Fault{When: mockserver.AfterCommit, Do: mockserver.Drop})
	require.ErrorIs(t, pay(t, c, bank.URL, "order-1", 100), samekey.ErrUnknown)
	bank.ClearFaults()
	r := run(t, "resume", dir, "order-1")
	require.Equal(t, 3, r.code)
	require.Contains(t, r.err, dir+" is in use by ")
	require.NoError(t, c.Close())
	require.NoError(t, j.Close())
	require.Regexp(t, `verdict +sound\n`, run(t, "check", dir).out)
	require.Zero(t, run(t, "resume", dir, "order-1").code)
	require.Zero(t, runEnv(t, []string{"SAMEKEY_STORE=" + dir}, "list", "-").code)
	r = run(t, "migrate", dir)
	require.Zero(t, r.code)
	require.Contains(t, r.err, "a journal needs no migration")
	require.Equal(t, 1, bank.Effects())
}

// TestMigrate: from nothing, from an older version, and again; the printed statements do the same in another's hands.
func TestMigrate(t *testing.T) {
	eachSQL(t, func(t *testing.T, p place) {
		r := run(t, "migrate", p.URL)
		require.Zero(t, r.code, r.err)
		require.Regexp(t, `has tables of schema version \d+ now, there were none\n$`, r.out)
		if p.Kind == "SQLite" {
			info, err := os.Stat(p.Where)
			require.NoError(t, err)
			require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
		}
		r = run(t, "migrate", p.URL)
		require.Zero(t, r.code, r.err)
		require.Regexp(t, `has schema version \d+ already, nothing was done\n$`, r.out)
		require.Zero(t, run(t, "check", p.URL).code)

		older := fresh(t, p.Kind)
		older.apply(t, older.steps(t)[0])
		r = run(t, "migrate", older.URL)
		require.Zero(t, r.code, r.err)
		require.Regexp(t, `has schema version \d+ now, it had 1\n$`, r.out)
		require.Zero(t, run(t, "check", older.URL).code)

		other := fresh(t, p.Kind)
		for _, step := range other.steps(t) {
			other.apply(t, step)
		}
		r = run(t, "check", other.URL)
		require.Zero(t, r.code, r.err)
	})
}

// TestPrintByDialect: a scheme stands for a URL.
func TestPrintByDialect(t *testing.T) {
	t.Parallel()
	for scheme, want := range map[string]string{"postgres": "bytea", "mariadb": "ENGINE", "mysql:": "ENGINE", "sqlite": "PRAGMA journal_mode = WAL;"} {
		r := run(t, "migrate", "-print", scheme)
		require.Zero(t, r.code, r.err)
		require.Contains(t, r.out, want)
		require.Contains(t, r.out, "samekey_operations")
	}
	r := run(t, "migrate", "-print", "postgres://nowhere.invalid/db?schema=pay&prefix=p_")
	require.Zero(t, r.code, r.err, "it connects to nothing")
	require.Contains(t, r.out, "CREATE TABLE pay.p_operations")
	r = run(t, "migrate", "-print", "postgres:?prefix=a;b")
	require.Equal(t, 2, r.code)
	require.Contains(t, r.err, "plain names")
	refused(t, "", run(t, "migrate", "-print", "oracle"), "-print takes a URL, or the scheme of one: postgres, postgresql, mysql, mariadb, sqlite\n")
	r = run(t, "migrate", "-print", "redis")
	require.Zero(t, r.code)
	require.Empty(t, r.out, "nothing that a migration tool would trip over")
	require.Contains(t, r.err, "need no migration")
}

// steps are the printed statements, by version.
func (p *place) steps(t *testing.T) []string {
	t.Helper()
	r := run(t, "migrate", "-print", p.URL)
	require.Zero(t, r.code, r.err)
	steps := regexp.MustCompile(`(?m)^-- \d+_\w+\.sql: schema version \d+ .*$`).Split(r.out, -1)
	require.Greater(t, len(steps), 2)
	require.Empty(t, steps[0])
	return steps[1:]
}

func (p *place) apply(t *testing.T, step string) {
	t.Helper()
	for statement := range strings.SplitSeq(step+"\n", ";\n") {
		if strings.TrimSpace(statement) != "" {
			p.exec(t, statement)
		}
	}
}

// TestForgetDamaged: what cannot be read is taken out by -yes, and by nothing else.
func TestForgetDamaged(t *testing.T) {
	each(t, func(t *testing.T, p place) {
		p = p.migrated(t)
		p.lost(t, newBank(t), "bad", "good")
		what := "column header"
		if p.Kind == "Redis" {
			what = "damaged"
			p.damageRedis(t, "bad")
		} else {
			p.exec(t, "UPDATE "+p.table("operations")+" SET header = "+p.blob("\xff\xff")+" WHERE id = "+p.blob("bad"))
		}
		for _, args := range [][]string{{"show", p.URL, "bad"}, {"abandon", p.URL, "bad", "-reason", "x"}, {"rekey", p.URL, "bad", "-yes"}, {"resume", p.URL, "bad"}} {
			r := run(t, args...)
			require.Equal(t, 2, r.code, r.err)
			require.Contains(t, r.err, what, args)
		}
		r := run(t, "forget", p.URL, "bad")
		require.Equal(t, 2, r.code)
		require.Contains(t, r.err, what)
		require.Contains(t, r.err, "forget -yes takes it out all the same")
		r = run(t, "forget", p.URL, "bad", "-yes")
		require.Zero(t, r.code, r.err)
		require.Equal(t, "forgot bad: its record could not be read\n", r.out)
		require.Contains(t, r.err, what)
		require.Equal(t, []string{"good"}, p.ids(t, persist.Filter{}))
		require.Equal(t, 1, run(t, "forget", p.URL, "bad", "-yes").code, "it is gone")
	})
}

// damageRedis overwrites what bears the name of an operation: its ID and its request.
func (p *place) damageRedis(t *testing.T, id string) {
	t.Helper()
	o, err := goredis.ParseURL(p.Where)
	require.NoError(t, err)
	c := goredis.NewClient(o)
	defer c.Close()
	keys, err := c.Keys(t.Context(), "*"+p.O.Prefix+"*").Result()
	require.NoError(t, err)
	hit := 0
	for _, key := range keys {
		fields, _ := c.HGetAll(t.Context(), key).Result() // not all of them are hashes
		for name, value := range fields {
			if strings.Contains(value, id) {
				require.NoError(t, c.HSet(t.Context(), key, name, "\xff").Err())
				hit++
			}
		}
	}
	require.NotZero(t, hit)
}

// blob is how the database writes these bytes.
func (p *place) blob(text string) string {
	if p.Kind == "PostgreSQL" {
		return fmt.Sprintf(`'\x%x'`, text)
	}
	return fmt.Sprintf("x'%x'", text)
}

func TestVersion(t *testing.T) {
	t.Parallel()
	r := run(t, "version")
	require.Zero(t, r.code, r.err)
	n := len((&place{URL: "postgres:"}).steps(t))
	require.Regexp(t, fmt.Sprintf(`^program +samekey-shared \S+\nmodule .*\ngo .*\njournal +format version \d+\npostgres +schema version %d\nmysql +schema version %[1]d\nsqlite +schema version %[1]d\n$`, n), r.out)
}

// TestHelp holds the texts.
func TestHelp(t *testing.T) {
	t.Parallel()
	var all strings.Builder
	for _, args := range [][]string{{"-h"}, {"check", "-h"}, {"list", "-h"}, {"show", "-h"}, {"stats", "-h"}, {"abandon", "-h"}, {"forget", "-h"}, {"rekey", "-h"},
		{"resume", "-h"}, {"policy", "-h"}, {"version", "-h"}, {"migrate", "-h"}} {
		r := run(t, args...)
		require.Zero(t, r.code)
		require.Empty(t, r.err)
		all.WriteString("$ samekey-shared " + strings.Join(args, " ") + "\n" + r.out + "\n")
	}
	const path = "testdata/help.txt"
	if *update {
		require.NoError(t, os.MkdirAll("testdata", 0o755))
		require.NoError(t, os.WriteFile(path, []byte(all.String()), 0o644))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, string(want), all.String())
	for l := range strings.Lines(all.String()) {
		require.LessOrEqual(t, len([]rune(l)), 101, l)
	}
	require.NotRegexp(t, `DIR\b|[{]`, strings.ReplaceAll(all.String(), "/{id}", ""))
}
