package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/samekey/samekey/mockserver"
	"github.com/samekey/samekey/persist/persisttest/servertest"
)

// mainEnv has the test binary be the program.
const mainEnv = "FLEET_TEST_MAIN"

func TestMain(m *testing.M) {
	if told := os.Getenv(watchedEnv); told != "" {
		var w watched
		err := json.Unmarshal([]byte(told), &w)
		if err == nil {
			err = w.run()
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	if os.Getenv(mainEnv) != "" || os.Getenv(childEnv) != "" {
		main()
	}
	code := m.Run()
	servertest.EndShared()
	os.Exit(code)
}

var databases atomic.Int64

// newPlace makes a database of the test's own.
func newPlace(t *testing.T, srv *servertest.Server) (dsn string) {
	t.Helper()
	name := fmt.Sprintf("t%d", databases.Add(1))
	require.NoError(t, database{Dialect: "postgresql", DSN: srv.URL(""), Schema: name}.admin(t.Context(), "CREATE DATABASE %s"))
	return srv.URL(name)
}

// testDatabase makes the table in a database of its own.
func testDatabase(t *testing.T, srv *servertest.Server) database {
	t.Helper()
	d := database{Dialect: "postgresql", DSN: newPlace(t, srv), Schema: "fleet"}
	require.NoError(t, d.prepare(t.Context()))
	return d
}

type program struct {
	*exec.Cmd
	out, err bytes.Buffer
	tmp      string // its TMPDIR
}

func startProgram(t *testing.T, args ...string) *program {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	p := &program{Cmd: exec.Command(self, args...), tmp: t.TempDir()}
	require.NoError(t, os.Chmod(filepath.Dir(p.tmp), 0o755)) // a database server may be somebody else
	require.NoError(t, os.Chmod(p.tmp, 0o755))
	p.Env = append(os.Environ(), mainEnv+"=1", "TMPDIR="+p.tmp)
	p.Stdout, p.Stderr = &p.out, &p.err
	require.NoError(t, p.Start())
	t.Cleanup(func() { _ = p.Process.Kill() })
	return p
}

func (p *program) code() int {
	_ = p.Wait()
	return p.ProcessState.ExitCode()
}

var tableLine = regexp.MustCompile(`(?m)^  (\w[\w ]*?)((?:  +\d+)+)$`)

// figures reads the table back.
func (p *program) figures(t *testing.T) map[string][]int {
	t.Helper()
	out := map[string][]int{}
	for _, m := range tableLine.FindAllStringSubmatch(p.out.String(), -1) {
		for s := range strings.FieldsSeq(m[2]) {
			n, err := strconv.Atoi(s)
			require.NoError(t, err)
			out[m[1]] = append(out[m[1]], n)
		}
	}
	return out
}

func (p *program) requireOnce(t *testing.T, orders int) {
	t.Helper()
	code := p.code()
	t.Logf("%s%s", &p.out, &p.err)
	require.Equal(t, 0, code)
	f := p.figures(t)
	for name, want := range map[string]int{"operations": orders, "effects at the server": orders, "duplicates": 0, "left pending": 0} {
		require.Equal(t, []int{want}, f[name], name)
	}
	require.Positive(t, f["answers lost"][0])
	require.Positive(t, f["in flight at the SIGKILL"][0])
	require.Positive(t, f["taken over by others"][0])
	require.Len(t, f["requests of workers 1 2 3"], 3)
	for _, n := range f["requests of workers 1 2 3"] {
		require.Positive(t, n, "each has had a share")
	}
	require.Empty(t, p.err.String())
	left, err := filepath.Glob(filepath.Join(p.tmp, "*"))
	require.NoError(t, err)
	require.Empty(t, left)
}

// TestTakenOver is what the program is there to show, on a private server of each kind.
func TestTakenOver(t *testing.T) {
	for name, d := range dialects {
		t.Run(name, func(t *testing.T) {
			servertest.Shared(t, d.server) // else it says how to get one
			t.Parallel()
			p := startProgram(t, "-n", "150", "-lease", "2s", "-dialect", name)
			p.requireOnce(t, 150)
		})
	}
}

// schemas counts what the program has left in a database.
func schemas(t *testing.T, dsn string) (n int) {
	t.Helper()
	db, _, err := database{Dialect: "postgresql", DSN: dsn}.open()
	require.NoError(t, err)
	require.NoError(t, db.QueryRow(`SELECT count(*) FROM information_schema.schemata WHERE schema_name LIKE 'fleet%'`).Scan(&n))
	require.NoError(t, db.Close())
	return n
}

// TestDatabaseOfOnesOwn is left as it was, and its password is told nobody.
func TestDatabaseOfOnesOwn(t *testing.T) {
	dsn := newPlace(t, servertest.Shared(t, servertest.PostgreSQL))
	t.Parallel()
	p := startProgram(t, "-n", "60", "-lease", "1s", "-v", "-dsn", strings.Replace(dsn, "samekey@", "samekey:s3cr3t@", 1))
	require.Equal(t, 0, p.code(), "%s%s", &p.out, &p.err)
	require.NotContains(t, p.out.String()+p.err.String(), "s3cr3t")
	require.Contains(t, p.err.String(), "level=INFO", "-v shows what the workers log")
	require.Zero(t, schemas(t, dsn))

	for _, c := range []struct {
		dialect, dsn string
		code         int
	}{
		{"postgresql", "postgres://u:s3cr3t@127.0.0.1:1/x?connect_timeout=1", 1},
		{"mariadb", "u:s3cr3t@tcp(127.0.0.1:1)/?timeout=1s", 1},
		{"postgresql", "postgres//u:s3cr3t@h/x", 2},
		{"mariadb", "postgres://u:s3cr3t@h/x", 2},
	} {
		p = startProgram(t, "-dsn", c.dsn, "-dialect", c.dialect)
		require.Equal(t, c.code, p.code(), c.dsn)
		require.NotContains(t, p.out.String()+p.err.String(), "s3cr3t", c.dsn)
		require.Regexp(t, "^fleet: .*(connect|-dsn cannot be read)", p.err.String())
	}
}

// TestEndsWithoutATrace: interrupted, the program takes its workers and its schema along; killed, at least its workers.
func TestEndsWithoutATrace(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("needs Unix signals: run it on Linux, macOS or a BSD")
	}
	srv := servertest.Shared(t, servertest.PostgreSQL)
	for _, s := range []os.Signal{os.Interrupt, os.Kill} {
		t.Run(s.String(), func(t *testing.T) {
			dsn := newPlace(t, srv)
			t.Parallel()
			p := startProgram(t, "-n", "10000", "-lease", "1s", "-dsn", dsn)
			var workers []string
			require.Eventually(t, func() bool {
				out, _ := exec.Command("ps", "-o", "pid=", "--ppid", fmt.Sprint(p.Process.Pid)).Output()
				workers = strings.Fields(string(out))
				return len(workers) == 3
			}, 20*time.Second, 20*time.Millisecond)
			time.Sleep(300 * time.Millisecond)
			require.NoError(t, p.Process.Signal(s))
			code := p.code()
			require.Eventually(t, func() bool { return exec.Command("ps", "-p", strings.Join(workers, ",")).Run() != nil },
				time.Minute, 50*time.Millisecond, "workers go on")
			if s == os.Interrupt {
				require.Equal(t, 1, code)
				require.Contains(t, p.err.String(), "interrupted")
				require.Zero(t, schemas(t, dsn))
			}
		})
	}
}

// TestWorkerThatFails ends the story, with its word.
func TestWorkerThatFails(t *testing.T) {
	self, err := os.Executable()
	require.NoError(t, err)
	f := newFleet(1, func(int) (*exec.Cmd, error) {
		cmd := exec.Command(self)
		cmd.Env = append(os.Environ(), childEnv+"=nonsense")
		return cmd, nil
	})
	require.NoError(t, f.start(0))
	err = f.handle(<-f.events)
	require.ErrorContains(t, err, "worker-1: exit status 1")
	require.ErrorContains(t, err, "FLEET_WORKER is set, but not by this program")
}

func TestCommandLine(t *testing.T) {
	for _, c := range []struct {
		args string
		code int
		text string
	}{
		{"-h", 0, "go run ./examples/fleet -dialect mariadb"},
		{"-n 59", 2, "-n is 59: at least 60"},
		{"-n 10001", 2, "at most 10000"},
		{"-n ten", 2, `invalid value "ten" for flag -n`},
		{"-lease 999ms", 2, "-lease is 999ms: 1s to 1m"},
		{"-lease 61s", 2, "-lease is 1m1s: 1s to 1m"},
		{"-dialect oracle", 2, `-dialect is "oracle": postgresql or mariadb`},
		{"-fast", 2, "flag provided but not defined: -fast"},
		{"orders", 2, `unexpected argument "orders"; see -h`},
	} {
		var out, err bytes.Buffer
		require.Equal(t, c.code, run(strings.Fields(c.args), &out, &err), c.args)
		require.Contains(t, err.String(), c.text)
		require.Empty(t, out.String(), c.args)
	}
}

// TestVerdict: what would be wrong is said.
func TestVerdict(t *testing.T) {
	good := mockserver.Totals{Operations: 60, Effects: 60, Keys: 60}
	met := &kill{inFlight: []string{"order-1"}, takenOver: 1}
	require.NoError(t, verdict(good, 60, 0, met))
	for want, change := range map[string]func(t *mockserver.Totals, pending *int, k *kill){
		"59 operations reached the server":  func(t *mockserver.Totals, _ *int, _ *kill) { t.Operations = 59 },
		"61 effects are not 60 operations":  func(t *mockserver.Totals, _ *int, _ *kill) { t.Effects = 61 },
		"1 orders were charged again":       func(t *mockserver.Totals, _ *int, _ *kill) { t.Duplicates = 1 },
		"62 keys for 60 operations":         func(t *mockserver.Totals, _ *int, _ *kill) { t.Keys = 62 },
		"3 operations are left pending":     func(_ *mockserver.Totals, n *int, _ *kill) { *n = 3 },
		"the SIGKILL met no operation":      func(_ *mockserver.Totals, _ *int, k *kill) { k.inFlight = nil },
		"nobody took over the 1 operations": func(_ *mockserver.Totals, _ *int, k *kill) { k.takenOver = 0 },
	} {
		totals, pending, k := good, 0, *met
		change(&totals, &pending, &k)
		require.ErrorContains(t, verdict(totals, 60, pending, &k), want)
	}
}

// TestJudge finds, in a ledger, who went on after the kill and when.
func TestJudge(t *testing.T) {
	at := time.Now()
	request := func(after time.Duration, i int, order string) mockserver.Request {
		return mockserver.Request{At: at.Add(after), Operation: order, Header: map[string][]string{workerHeader: {name(i)}}}
	}
	k := &kill{at: at, inFlight: []string{"a", "b", "c"}}
	ledger := []mockserver.Request{
		request(-1, 0, "a"), request(1, victim, "a"), // on its way as the worker died
		request(5, 0, "x"), request(7, 2, "b"), request(8, 2, "b"), request(9, 0, "a"),
	}
	k.judge(ledger)
	require.Equal(t, kill{at: at, inFlight: k.inFlight, takenOver: 2, first: 7, last: 9}, *k)
	require.Equal(t, []int{3, 1, 2}, requestsOf(ledger))
}
