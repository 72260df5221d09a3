package main

import (
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/samekey/samekey/persist"
	"github.com/samekey/samekey/persist/persisttest/servertest"
)

// unfit wants check to say in one line, with exit code 2, what is wrong and what mends it, and no password.
func unfit(t *testing.T, where string, want ...string) {
	t.Helper()
	refused(t, where, run(t, "check", where), want...)
}

func refused(t *testing.T, where string, r ran, want ...string) {
	t.Helper()
	require.Equal(t, 2, r.code, where+r.out+r.err)
	require.Empty(t, r.out)
	require.Equal(t, 1, strings.Count(r.err, "\n"), r.err)
	require.True(t, strings.HasPrefix(r.err, "samekey-shared: "), r.err)
	require.NotContains(t, r.err, `\n`)
	require.NotContains(t, r.err, "sqlstore", "the words of the command line")
	require.NotContains(t, r.err, "Options.")
	for _, w := range want {
		require.Contains(t, r.err, w)
	}
	if u, err := url.Parse(where); err == nil {
		if pw, has := u.User.Password(); has {
			require.NotContains(t, r.err, pw)
		}
	}
}

// refusedLogin wants the mend to name the URL, and the variable that it is from only where it is.
func refusedLogin(t *testing.T, where string) {
	t.Helper()
	const want = "refuses the login: mend user or password in the URL ("
	r := run(t, "check", where)
	refused(t, where, r, want)
	require.NotRegexp(t, "SAMEKEY_STORE|PGPASSWORD|pgpass", r.err)
	r = runEnv(t, []string{"SAMEKEY_STORE=" + where}, "check", "-")
	refused(t, where, r, want, "the URL is that of the environment's SAMEKEY_STORE")
}

// deaf accepts connections and never says a word.
func deaf(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			t.Cleanup(func() { _ = c.Close() })
		}
	}()
	return l.Addr().String()
}

func closedPort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, l.Close())
	return l.Addr().String()
}

// TestUnfitSchema: missing, older and newer tables, of each kind.
func TestUnfitSchema(t *testing.T) {
	eachSQL(t, func(t *testing.T, p place) {
		if p.Kind == "SQLite" {
			unfit(t, p.URL, "pay store.db", "no such file", "samekey-shared migrate makes it")
			require.NoFileExists(t, p.Where)
			require.NoError(t, os.WriteFile(p.Where, nil, 0o600))
		}
		unfit(t, p.URL, "has no table", p.O.Prefix+"operations", "samekey-shared migrate makes it")
		p.apply(t, p.steps(t)[0])
		for _, args := range [][]string{{"check", p.URL}, {"list", p.URL}, {"show", p.URL, "x"}, {"stats", p.URL}, {"forget", p.URL, "x", "-yes"}, {"resume", p.URL, "x"}} {
			refused(t, p.URL, run(t, args...), "has schema version 1, older than", "samekey-shared migrate brings it up to date")
		}
		p.migrated(t)
		p.exec(t, "INSERT INTO "+p.table("schema")+" (version) VALUES (99)")
		unfit(t, p.URL, "has schema version 99, newer than", "a newer samekey-shared")
		refused(t, p.URL, run(t, "migrate", p.URL), "has schema version 99, newer than")
	})
}

func (p *place) table(name string) string {
	if p.O.Schema != "" {
		return p.O.Schema + "." + p.O.Prefix + name
	}
	return p.O.Prefix + name
}

func TestUnfitPostgreSQL(t *testing.T) {
	t.Parallel()
	// One that wants a password of whoever is not its owner.
	dir := t.TempDir()
	hba := filepath.Join(dir, "hba")
	require.NoError(t, os.WriteFile(hba, []byte("host all samekey all trust\nhost replication samekey all trust\nhost all all all scram-sha-256\n"), 0o644))
	for d := dir; d != os.TempDir() && d != "/"; d = filepath.Dir(d) {
		require.NoError(t, os.Chmod(d, 0o755)) // the server is another user
	}
	s := servertest.New(t, servertest.PostgreSQL, "-c", "hba_file="+hba)
	p := place{Kind: "PostgreSQL", Where: s.URL(""), URL: s.URL("")}
	p.O.Dialect, p.O.Prefix = postgreSQL.dialect, "samekey_"
	p.migrated(t)
	const secret = "s3cr3t/?w@rd"
	p.exec(t, "CREATE ROLE ops LOGIN PASSWORD '"+secret+"'")
	as := func(password, database string) string {
		u := url.URL{Scheme: "postgres", User: url.UserPassword("ops", password), Host: s.Addr(), Path: "/" + database, RawQuery: "sslmode=disable"}
		return u.String()
	}
	refusedLogin(t, as("wr0ng-passw0rd", "postgres"))
	bare := strings.Replace(as(secret, "postgres"), ":"+url.UserPassword("", secret).String()[1:]+"@", "@", 1)
	require.Contains(t, bare, "//ops@")
	home := []string{"HOME=" + t.TempDir(), "PGPASSFILE=", "PGPASSWORD="}
	refused(t, bare, runEnv(t, home, "check", bare), "refuses the login: there is no password, neither in the URL nor in the environment's PGPASSWORD, and ~/.pgpass")
	refused(t, bare, runEnv(t, append(home, "PGPASSWORD=wr0ng-passw0rd"), "check", bare), "refuses the login: mend the user in the URL, or the environment's PGPASSWORD (")
	passfile := filepath.Join(t.TempDir(), "pgpass")
	require.NoError(t, os.WriteFile(passfile, []byte("*:*:*:*:wr0ng-passw0rd\n"), 0o600))
	refused(t, bare, runEnv(t, append(home, "PGPASSFILE="+passfile), "check", bare), "refuses the login: mend the user in the URL, or the password in ~/.pgpass")
	unfit(t, as(secret, "nowhere"), "there is no such database")
	trusting := servertest.Shared(t, servertest.PostgreSQL)
	nobody := strings.Replace(trusting.URL(""), "//samekey@", "//nobody@", 1)
	refused(t, nobody, runEnv(t, home, "check", nobody), "refuses the login: the server knows no such user, or does not let it in: mend the user in the URL", `role "nobody" does not exist`)
	require.NotContains(t, runEnv(t, home, "check", nobody).err, "password")
	unfit(t, strings.Replace(as(secret, "postgres"), s.Addr(), closedPort(t), 1), "cannot be reached", "does the server run")
	unfit(t, strings.Replace(as(secret, "postgres"), s.Addr(), "nowhere.invalid", 1), "host is not known")
	unfit(t, strings.Replace(as(secret, "postgres"), s.Addr(), deaf(t), 1)+"&connect_timeout=1", "no answer in time")
	unfit(t, strings.Replace(as(secret, "postgres"), "disable", "require", 1), "no TLS")

	for _, grant := range []string{
		"SELECT ON samekey_schema", "SELECT ON samekey_operations", "INSERT ON samekey_operations", "UPDATE ON samekey_operations",
		"DELETE ON samekey_operations", "USAGE ON SEQUENCE samekey_token",
	} {
		unfit(t, as(secret, "postgres"), "this user lacks a right: grant SELECT, INSERT, UPDATE, DELETE on samekey_operations, "+
			"SELECT on samekey_schema, USAGE on the sequence samekey_token")
		p.exec(t, "GRANT "+grant+" TO ops")
	}
	r := run(t, "check", as(secret, "postgres"))
	require.Zero(t, r.code, r.err)
	require.Contains(t, r.out, "postgres://ops@"+s.Addr()+"/postgres\n")
	refused(t, as(secret, "postgres"), run(t, "migrate", as(secret, "postgres")+"&prefix=other_"), "migrate as one who may create")

	unfit(t, p.URL+"&schema=elsewhere", "has no table elsewhere.samekey_operations")
	refused(t, "", run(t, "migrate", p.URL+"&schema=elsewhere"), "CREATE SCHEMA elsewhere makes it")
	unfit(t, p.URL+"&prefix=a-b", "plain names")
	unfit(t, p.URL+"&default_transaction_read_only=on", "takes no writes", "the primary server")
	unfit(t, p.URL+"&synchronous_commit=off", "may lose what it has committed", "synchronous_commit is off", "mend that setting")

	replica := s.Replicated(t)
	unfit(t, replica.URL(""), "takes no writes", "the primary server, not a replica")
	t.Run("a server of another kind", func(t *testing.T) {
		maria := servertest.Shared(t, servertest.MariaDB)
		unfit(t, "postgres://root@"+maria.Addr()+"/mysql?sslmode=disable&connect_timeout=2", "cannot be used")
	})
}

func TestUnfitMariaDB(t *testing.T) {
	t.Parallel()
	s := servertest.New(t, servertest.MariaDB) // its settings are global
	p := place{Kind: "MariaDB", Where: s.URL("mysql"), URL: "mysql://root@" + s.Addr() + "/pay"}
	p.O.Dialect, p.O.Schema, p.O.Prefix = mariaDB.dialect, "pay", "samekey_"
	unfit(t, p.URL, "there is no such database: create it")
	p.exec(t, "CREATE DATABASE pay")
	p.migrated(t)
	const secret = "s3cr3t/?w@rd"
	p.exec(t, "CREATE USER ops IDENTIFIED BY '"+secret+"'")
	as := func(password, database string) string {
		u := url.URL{Scheme: "mariadb", User: url.UserPassword("ops", password), Host: s.Addr(), Path: "/" + database}
		return u.String()
	}
	refusedLogin(t, as("wr0ng-passw0rd", "pay"))
	r := run(t, "check", "mysql://ops@"+s.Addr()+"/pay")
	refused(t, "", r, "refuses the login: there is no password in the URL")
	require.NotContains(t, r.err, "PGPASSWORD")
	unfit(t, as(secret, "pay"), "lacks a right")
	unfit(t, strings.Replace(as(secret, "pay"), s.Addr(), closedPort(t), 1), "cannot be reached", "does the server run")
	unfit(t, strings.Replace(as(secret, "pay"), s.Addr(), "nowhere.invalid", 1), "host is not known")
	unfit(t, strings.Replace(as(secret, "pay"), s.Addr(), deaf(t), 1)+"?timeout=1s&readTimeout=1s", "no answer of a server of MariaDB")
	unfit(t, as(secret, "pay")+"?tls=nonsense", "the parameters of the URL cannot be read")

	for _, grant := range []string{"SELECT ON pay.samekey_schema", "SELECT ON pay.samekey_operations", "INSERT ON pay.samekey_operations", "UPDATE ON pay.samekey_operations",
		"DELETE ON pay.samekey_operations", "SELECT, INSERT ON pay.samekey_token"} {
		unfit(t, as(secret, "pay"), "this user lacks a right: grant SELECT, INSERT, UPDATE, DELETE on samekey_operations, "+
			"SELECT on samekey_schema, SELECT, INSERT on the sequence samekey_token")
		p.exec(t, "GRANT "+grant+" TO ops")
	}
	r = run(t, "check", as(secret, "pay"))
	require.Zero(t, r.code, r.err)
	require.Contains(t, r.out, "mariadb://ops@"+s.Addr()+"/pay\n")
	r = run(t, "check", "mysql://root@/pay?socket="+filepath.Join(s.Dir(), "s"))
	require.Zero(t, r.code, r.err)

	p.exec(t, "SET GLOBAL innodb_flush_log_at_trx_commit = 2")
	unfit(t, p.URL, "may lose what it has committed", "innodb_flush_log_at_trx_commit is not 1")
	p.exec(t, "SET GLOBAL innodb_flush_log_at_trx_commit = 1", "SET GLOBAL read_only = 1")
	unfit(t, p.URL, "takes no writes", "the primary server, not a replica")
}

func TestUnfitSQLite(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	unfit(t, "sqlite:"+dir, "is a directory")
	unfit(t, "sqlite:", "the path of the file is missing")
	unfit(t, "sqlite://host/x.db", "a file has no host")
	unfit(t, "sqlite::memory:", "belongs to one process")
	unfit(t, "sqlite:"+dir+"/x.db?schema=a", "SQLite has no schemas")
	for _, args := range [][]string{{"list"}, {"check"}, {"migrate"}, {"migrate", "-print"}} {
		refused(t, "", run(t, append(args, "sqlite:"+dir+"/x.db?prefxi=x")...), `SQLite has no parameter "prefxi": a URL takes prefix, and`)
		refused(t, "", run(t, append(args, "sqlite:file:"+dir+"/x.db?_pragma=busy_timeout(5000)")...), "write sqlite:PATH, and no file: before it")
	}
	require.NoFileExists(t, filepath.Join(dir, "x.db"))
	shop := filepath.Join(dir, "shop.db")
	require.NoError(t, os.WriteFile(shop, []byte("SQLite format 3\x00"), 0o600))
	for _, cmd := range []string{"list", "check", "stats", "migrate"} {
		refused(t, "", run(t, cmd, shop), shop+" is a file, and a journal is a directory: if it is a database of SQLite, write sqlite:"+shop)
	}
	refused(t, "", run(t, "migrate", "sqlite:"+dir+"/none/x.db"), "there is no directory "+dir+"/none")
	text := filepath.Join(dir, "text")
	require.NoError(t, os.WriteFile(text, []byte(strings.Repeat("not a database\n", 100)), 0o600))
	unfit(t, "sqlite:"+text, "cannot be used", "not a database")
	p := fresh(t, "SQLite").migrated(t)
	unfit(t, p.URL+"&immutable=1", "takes no writes")
	require.Zero(t, run(t, "check", p.URL+"&_pragma=busy_timeout(5000)&_txlock=immediate").code)
	r := run(t, "check", "sqlite://"+p.Where+"?prefix="+p.O.Prefix)
	require.Zero(t, r.code, r.err)
	refused(t, "", run(t, "check", "oracle://h/db"), `no store has URLs of the scheme "oracle"`, "postgres:, postgresql:, mysql:, mariadb:, sqlite:, redis:, rediss:")
}

func TestUnfitRedis(t *testing.T) {
	t.Parallel()
	s := servertest.New(t, servertest.Redis)
	p := place{Kind: "Redis", Where: s.URL(""), URL: s.URL("") + "?prefix=pay"}
	p.O.Prefix = "pay"
	db := goredis.NewClient(&goredis.Options{Addr: s.Addr()})
	defer db.Close()
	unfit(t, p.URL, "no program has opened a store with the prefix \"pay\"")
	for _, args := range [][]string{{"list", p.URL}, {"stats", p.URL}, {"forget", p.URL, "x", "-yes"}} {
		refused(t, p.URL, run(t, args...), "no program has opened a store")
	}
	require.Zero(t, db.DBSize(t.Context()).Val(), "nothing was made")
	p.migrated(t)
	const secret = "s3cr3t/?w@rd"
	do := func(args ...any) {
		t.Helper()
		require.NoError(t, db.Do(t.Context(), args...).Err())
	}
	do("ACL", "SETUSER", "ops", "on", ">"+secret, "~*", "+@all")
	as := func(password string) string {
		u := url.URL{Scheme: "redis", User: url.UserPassword("ops", password), Host: s.Addr(), Path: "/0", RawQuery: "prefix=pay"}
		return u.String()
	}
	r := run(t, "check", as(secret))
	require.Zero(t, r.code, r.err)
	require.Contains(t, r.out, "redis://ops@"+s.Addr()+"/0?prefix=pay\n")
	refusedLogin(t, as("wr0ng-passw0rd"))
	refused(t, "", run(t, "check", strings.Replace(p.URL, "redis://", "redis://ops:@", 1)), "write redis://:PASSWORD@HOST")
	unfit(t, strings.Replace(as(secret), s.Addr(), closedPort(t), 1), "cannot be reached", "does the server run")
	unfit(t, strings.Replace(as(secret), s.Addr(), "nowhere.invalid", 1), "host is not known")
	unfit(t, strings.Replace(as(secret), s.Addr(), deaf(t), 1)+"&read_timeout=1&max_retries=-1", "no answer in time")
	unfit(t, strings.Replace(as(secret), "redis:", "rediss:", 1)+"&dial_timeout=1&max_retries=-1", "no answer in time")
	unfit(t, as(secret)+"&nonsense=1", "the URL cannot be read: unexpected option: nonsense")
	unfit(t, p.URL+"&schema=x", "no schemas in Redis")
	do("ACL", "SETUSER", "ops", "-evalsha", "-eval", "-script")
	unfit(t, as(secret), "this user lacks a right")
	do("ACL", "SETUSER", "ops", "-exists")
	unfit(t, as(secret), "this user lacks a right")

	do("SET", "{pay}:format", "99")
	unfit(t, p.URL, "has format 99, newer than")
	do("DEL", "{pay}:format")
	do("LPUSH", "{pay}:format", "x")
	unfit(t, p.URL, "is another program's", "prefix in the URL")
	do("DEL", "{pay}:format")
	p.migrated(t)
	do("CONFIG", "SET", "appendfsync", "everysec")
	unfit(t, p.URL, "may lose what it has acknowledged", "appendfsync is everysec", "CONFIG SET appendfsync always")
	bank := newBank(t)
	do("CONFIG", "SET", "appendfsync", "always")
	p.lost(t, bank, "order-1")
	do("CONFIG", "SET", "appendfsync", "everysec")
	require.Zero(t, run(t, "list", p.URL).code)
	r = run(t, "abandon", p.URL, "order-1", "-reason", "x")
	require.Zero(t, r.code, r.err)
	require.Regexp(t, `may lose what is changed now: .*appendfsync is everysec\n$`, r.err)
	do("CONFIG", "SET", "appendfsync", "always")

	replica := servertest.New(t, servertest.Redis, "--replicaof", "127.0.0.1 "+s.Addr()[strings.LastIndexByte(s.Addr(), ':')+1:])
	require.Eventually(t, func() bool {
		c := goredis.NewClient(&goredis.Options{Addr: replica.Addr()})
		defer c.Close()
		return c.Exists(t.Context(), "{pay}:format").Val() == 1
	}, 20*time.Second, 50*time.Millisecond)
	unfit(t, replica.URL("")+"?prefix=pay", "takes no writes", "the primary server, not a replica")
}

// TestRedisCluster: a cluster by one of its nodes.
func TestRedisCluster(t *testing.T) {
	t.Parallel()
	s := servertest.New(t, servertest.Redis, "--cluster-enabled", "yes", "--cluster-announce-ip", "127.0.0.1")
	db := goredis.NewClient(&goredis.Options{Addr: s.Addr()})
	defer db.Close()
	require.NoError(t, db.Do(t.Context(), "CLUSTER", "ADDSLOTSRANGE", "0", "16383").Err())
	require.Eventually(t, func() bool { return strings.Contains(db.ClusterInfo(t.Context()).Val(), "cluster_state:ok") }, 20*time.Second, 50*time.Millisecond)
	p := place{Kind: "Redis", Where: s.URL(""), URL: s.URL("") + "?cluster=true"}
	p.migrated(t)
	p.lost(t, newBank(t), "order-1")
	require.Equal(t, []string{"order-1"}, ids(listed(t, p)))
	require.Zero(t, run(t, "forget", p.URL, "order-1", "-yes").code)
	require.Empty(t, p.ids(t, persist.Filter{}))
}

// TestVolatile: what may lose its commits is read all the same; whoever changes it is told so.
func TestVolatile(t *testing.T) {
	t.Parallel()
	p := fresh(t, "PostgreSQL").migrated(t)
	bank := newBank(t)
	p.lost(t, bank, "order-1", "order-2")
	off := p.URL + "&synchronous_commit=off"
	for _, args := range [][]string{{"list", off}, {"stats", off}, {"show", off, "order-1"}} {
		r := run(t, args...)
		require.Zero(t, r.code, r.err)
		require.Empty(t, r.err)
	}
	for _, args := range [][]string{{"abandon", off, "order-1", "-reason", "x"}, {"resume", off, "order-2"}} {
		r := run(t, args...)
		require.Zero(t, r.code, r.err)
		require.Regexp(t, `may lose what is changed now: .*synchronous_commit is off\n`, r.err)
	}
}

// TestSecrets: no output shows a password, however the URL is written, wherever it stands, and whatever goes wrong.
func TestSecrets(t *testing.T) {
	t.Parallel()
	const secret = "hunter2secret"
	for _, where := range []string{
		"postgres://ops:" + secret + "@" + closedPort(t) + "/db",
		"postgres://ops:" + secret + "@127.0.0.1:99999/db",
		"postgres://ops:" + secret + "@127.0.0.1:1:2/db",
		"postgres://ops:" + secret + "%zz@127.0.0.1/db",
		"postgres://ops:" + secret + "/x@127.0.0.1/db",
		"postgres://ops:" + secret + "?x@127.0.0.1/db",
		"postgres://ops:" + secret + "#x@127.0.0.1/db",
		"postgres://ops:" + secret + " x@127.0.0.1/db",
		"postgres://ops@127.0.0.1:1/db?password=" + secret,
		"postgres://ops@127.0.0.1:1/db?pass%77ord=" + secret + "&sslmode=x",
		"postgres://ops@127.0.0.1:1/db?sslpassword=" + secret + "&sslmode=nonsense",
		"POSTGRES://ops:" + secret + "@127.0.0.1:1/db",
		"mysql://ops:" + secret + "@" + closedPort(t) + "/db",
		"mysql://ops:" + secret + "%zz@127.0.0.1/db",
		"mysql://ops:" + secret + "/x@127.0.0.1/db",
		"mysql://ops:" + secret + "@127.0.0.1:x/db",
		"mysql://ops:" + secret + "@127.0.0.1:1/db?tls=" + "nonsense",
		"sqlite://ops:" + secret + "@h/x.db",
		"redis://ops:" + secret + "@" + closedPort(t) + "/0?max_retries=-1",
		"redis://:" + secret + "@127.0.0.1:1/x",
		"redis://ops:" + secret + "%zz@127.0.0.1/0",
		"redis://ops:" + secret + "@127.0.0.1:x/0",
		"rediss://ops:" + secret + "@127.0.0.1:1/0?nonsense=1&max_retries=-1",
		"oracle://ops:" + secret + "@h/x",
	} {
		for _, args := range [][]string{
			{"check", where}, {"list", where}, {"show", where, "x"}, {"stats", where}, {"abandon", where, "x", "-reason", "y"}, {"forget", where, "x", "-yes"},
			{"rekey", where, "x", "-yes"}, {"resume", where, "x"}, {"resume", where, "-all"}, {"migrate", where}, {"migrate", "-print", where},
			{where}, {"list", "a", where}, {"list", where, where}, {"list", where, "-" + where}, {"policy", where}, {"help", where}, {"list", where, "-older", where},
		} {
			r := run(t, args...)
			require.NotContains(t, r.out+r.err, secret, args)
			require.NotContains(t, r.out+r.err, secret[:7], args)
			if args[0] != "migrate" { // which has nothing to do with a server of Redis, nor has -print with any
				require.Equal(t, 2, r.code, "%v: %s", args, r.err)
			}
		}
		r := runEnv(t, []string{"SAMEKEY_STORE=" + where}, "check", "-")
		require.Equal(t, 2, r.code)
		require.NotContains(t, r.out+r.err, secret)
	}
}

// TestInterruptedWhileConnecting: a server that does not answer holds nobody up.
func TestInterruptedWhileConnecting(t *testing.T) {
	t.Parallel()
	for _, scheme := range []string{"postgres", "mysql"} {
		cmd, errOut := began(t, "list", fmt.Sprintf("%s://ops@%s/db?sslmode=disable&connect_timeout=60", scheme, deaf(t)))
		if scheme == "mysql" {
			cmd, errOut = began(t, "list", fmt.Sprintf("mysql://ops@%s/db?timeout=60s", deaf(t)))
		}
		time.Sleep(300 * time.Millisecond) // it connects
		start := time.Now()
		interrupted(t, cmd)
		require.Less(t, time.Since(start), 10*time.Second)
		require.Equal(t, 1, cmd.ProcessState.ExitCode(), errOut)
		require.Equal(t, "samekey-shared: interrupted\n", errOut.String())
	}
}
