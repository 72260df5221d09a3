package main

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestDSN: what drivers take in place of a URL, and a URL with a slip in it, is refused with its mend, and not shown.
func TestDSN(t *testing.T) {
	t.Parallel()
	journals := filepath.Join(t.TempDir(), "samekey.exe") // the tool for journals alone
	out, err := exec.Command("go", "build", "-buildvcs=false", "-o", journals, "github.com/samekey/samekey/cmd/samekey").CombinedOutput()
	require.NoError(t, err, string(out))
	const (
		dsn     = "looks like a driver's DSN; write postgres://… or mysql://…"
		escape  = "the URL cannot be read: in user and password, all but letters and digits is to be written as %40 for @"
		slashes = "and so on; and it begins with "
	)
	for _, c := range []struct{ where, want string }{
		{"admin:falsch99@tcp(127.0.0.1:3306)/shop", dsn},
		{"admin:fal@sch99@tcp(127.0.0.1:3306)/shop", dsn},
		{"admin:fal/sch99@unix(/run/db.sock)/shop", dsn},
		{"host=127.0.0.1 user=x password=falsch99", dsn},
		{"host=127.0.0.1 user=x Password = 'fal sch99'", dsn},
		{"host=127.0.0.1 sslpassword=falsch99", dsn},
		{"admin:falsch99@h/db", dsn},
		{"//admin:falsch99@h/db", dsn},
		{"postgres:/admin:falsch99@h/db", slashes + "postgres://"},
		{"postgres:admin:falsch99@h/db", slashes + "postgres://"},
		{"Postgres:admin:falsch99@h/db", slashes + "postgres://"},
		{"mysql:/admin:falsch99@h/db", slashes + "mysql://"},
		{"mysql:admin:falsch99@tcp(h:1)/db", slashes + "mysql://"},
		{"redis:PASSWORD@host", slashes + "redis://"},
		{"postgres://admin:fal@sch99@127.0.0.1:1/shop", escape},
		{"postgres://admin:fal@sch99/x@127.0.0.1:1/shop", escape},
		{"postgres://admin:fal@sch99?x@127.0.0.1:1/shop", escape},
		{"postgres://admin:99999?sch99@127.0.0.1:1/shop", escape},
		{"postgres://fal@sch99@127.0.0.1:1/shop", escape},
		{"mysql://admin:fal@sch99@127.0.0.1:1/shop", escape},
		{"mysql://admin:fal@sch99/x@127.0.0.1:1/shop", escape},
		{"mysql://admin:falsch99@tcp(127.0.0.1:1)/shop", "host and port stand alone in it, as in mysql://USER@HOST:PORT/DATABASE"},
		{"mariadb://tcp(127.0.0.1:1)/shop", "host and port stand alone in it"},
		{"redis://fal@sch99@127.0.0.1:1/0", escape},
		{"redis://PASSWORD@127.0.0.1:1/0", "the URL has a user without a password, or a password without its colon"},
		{"rediss://PASSWORD@127.0.0.1:1", "the URL has a user without a password, or a password without its colon"},
		{"redis://PASSWORD:@127.0.0.1:1", "the URL has a user without a password, or a password without its colon"},
		{"oracle://admin:fal@sch99/x@h/db", `no store has URLs of the scheme "oracle"`},
		{"oracle:/admin:falsch99@h/db", dsn},
	} {
		hides := func(r ran, more ...any) {
			t.Helper()
			shown := strings.ReplaceAll(r.out+r.err, "write redis://:PASSWORD@HOST or redis://USER:PASSWORD@HOST", "") // the mend
			for _, part := range []string{"sch99", "falsch", "fal@", "PASSWORD", "99999"} {
				require.NotContains(t, shown, part, more...)
			}
			require.NotContains(t, r.err, "migrate makes it", more...)
		}
		for _, tool := range []string{binary, journals} {
			for _, args := range [][]string{
				{"check", c.where}, {"check", c.where, "-json"}, {"list", c.where}, {"list", c.where, "-json"}, {"show", c.where, "x"}, {"stats", c.where, "-json"},
				{"abandon", c.where, "x", "-reason", "y"}, {"forget", c.where, "x", "-yes"}, {"rekey", c.where, "x"}, {"resume", c.where, "x", "-json"},
				{"resume", c.where, "-all"}, {"migrate", c.where}, {c.where}, {"list", "a", c.where}, {"help", c.where}, {"list", "-" + c.where}, {"list", "x", "-older=" + c.where},
				{"policy", c.where}, {"list", c.where, "-older", c.where},
			} {
				r := runTool(t, tool, nil, args...)
				hides(r, tool, args)
				if args[0] == "migrate" && strings.HasPrefix(c.where, "redis") {
					continue // has nothing to do with its server
				}
				require.Equal(t, 2, r.code, "%v: %s", args, r.err)
				require.Empty(t, r.out)
			}
			for _, args := range [][]string{{"list", "-"}, {"check", "-", "-json"}, {"migrate", "-"}, {"show", "-", "x"}} {
				hides(runTool(t, tool, []string{"SAMEKEY_STORE=" + c.where}, args...), tool, args, c.where)
			}
		}
		for _, r := range []ran{run(t, "list", c.where), runEnv(t, []string{"SAMEKEY_STORE=" + c.where}, "list", "-")} {
			refused(t, "", r, c.want)
		}
		if c.want == dsn {
			r := runTool(t, journals, nil, "list", c.where)
			require.Equal(t, 2, r.code)
			require.Contains(t, r.err, dsn+", for samekey-shared; ")
		}
	}
}
