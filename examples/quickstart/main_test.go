package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/samekey/samekey/mockserver"
)

// mainEnv has the test binary be the program, and its children too.
const mainEnv = "QUICKSTART_TEST_MAIN"

func TestMain(m *testing.M) {
	if os.Getenv(mainEnv) != "" {
		main()
	}
	os.Exit(m.Run())
}

type program struct {
	*exec.Cmd
	out, err bytes.Buffer
	tmp      string // its TMPDIR
}

func start(t *testing.T, args ...string) *program {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	p := &program{Cmd: exec.Command(self, args...), tmp: t.TempDir()}
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

// table reads the figures back.
func (p *program) table(t *testing.T) map[string][]int {
	t.Helper()
	out := map[string][]int{}
	for _, m := range tableLine.FindAllStringSubmatch(p.out.String(), -1) {
		for _, s := range strings.Fields(m[2]) {
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
	f := p.table(t)
	for name, want := range map[string]int{"operations": orders, "keys": orders, "effects at the server": orders, "duplicates": 0, "left pending": 0} {
		require.Equal(t, []int{want}, f[name], name)
	}
	require.Greater(t, f["attempts on the wire"][0], orders)
	for _, name := range []string{"answers lost", "SIGKILLs", "in flight at these"} {
		require.Positive(t, f[name][0], name)
	}
	require.Contains(t, p.out.String(), "SIGKILL at ")
	require.NotContains(t, p.out.String(), "\r")
	require.NotContains(t, p.out.String(), "\x1b")
	require.Empty(t, p.err.String())
	require.Empty(t, entries(t, p.tmp))
}

func entries(t *testing.T, dir string) []string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(dir, "*"))
	require.NoError(t, err)
	return found
}

func TestEachOrderIsChargedOnce(t *testing.T) {
	seeds, orders := 3, 40
	if os.Getenv("CI") != "" {
		seeds, orders = 10, 100
	}
	for seed := 1; seed <= seeds; seed++ {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			t.Parallel()
			p := start(t, "-seed", strconv.Itoa(seed), "-n", strconv.Itoa(orders))
			p.requireOnce(t, orders)
		})
	}
}

func TestNaiveClientsChargeTwice(t *testing.T) {
	for seed := 1; seed <= 3; seed++ {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			t.Parallel()
			p := start(t, "-naive", "-n", "10", "-seed", strconv.Itoa(seed))
			require.Equal(t, 0, p.code(), "%s%s", &p.out, &p.err)
			f := p.table(t)
			require.Equal(t, []int{10, 10}, f["operations"])
			for i := range 2 {
				require.Positive(t, f["duplicates"][i])
				require.Equal(t, 10+f["duplicates"][i], f["effects at the server"][i])
			}
			require.Greater(t, f["keys"][0], 10)
			require.Zero(t, f["keys"][1])
			require.Contains(t, p.out.String(), "Orders were charged twice.")
		})
	}
}

func TestServerStartedElsewhere(t *testing.T) {
	t.Parallel()
	exe := filepath.Join(t.TempDir(), "mockserver.exe")
	built, err := exec.Command("go", "build", "-o", exe, "../../cmd/mockserver").CombinedOutput()
	require.NoError(t, err, "%s", built)
	srv := exec.Command(exe, "-addr", "127.0.0.1:0", "-seed", "5")
	out, err := srv.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, srv.Start())
	t.Cleanup(func() { _, _ = srv.Process.Kill(), srv.Wait() })
	buf := make([]byte, 200)
	n, err := out.Read(buf)
	require.NoError(t, err)
	url := strings.TrimSpace(strings.TrimPrefix(string(buf[:n]), "listening on "))

	p := start(t, "-server", url+"/", "-n", "20", "-seed", "3")
	p.requireOnce(t, 20)
	require.Contains(t, p.out.String(), url)
	var totals struct{ Effects, Operations, Duplicates int }
	require.NoError(t, admin(t.Context(), "GET", url+"/_mock/ledger", nil, &totals))
	require.Equal(t, 20, totals.Effects)
	require.Equal(t, 20, totals.Operations)
	require.Zero(t, totals.Duplicates)
	var faults []any
	require.NoError(t, admin(t.Context(), "GET", url+"/_mock/faults", nil, &faults))
	require.Empty(t, faults, "they are taken away again")

	p = start(t, "-server", url, "-n", "20", "-seed", "3")
	require.Equal(t, 1, p.code())
	require.Contains(t, p.err.String(), "the server knows the orders of seed-3 already")
	p = start(t, "-server", url, "-n", "10", "-seed", "3", "-naive")
	require.Equal(t, 0, p.code(), "%s", &p.err)
	require.Positive(t, p.table(t)["duplicates"][0])
	require.Positive(t, p.table(t)["duplicates"][1])
	p = start(t, "-server", "http://127.0.0.1:1")
	require.Equal(t, 1, p.code())
	require.Contains(t, p.err.String(), "no mock server at http://127.0.0.1:1")
}

func newServer(t *testing.T, faults ...mockserver.Fault) *mockserver.Server {
	srv := mockserver.NewServer(mockserver.Config{})
	t.Cleanup(srv.Close)
	srv.Fault(faults...)
	return srv
}

// A server that forgets its keys breaks what no client can mend. It has to show.
func TestDuplicatesAreTold(t *testing.T) {
	t.Parallel()
	srv := newServer(t, mockserver.Fault{When: mockserver.AfterCommit, Do: mockserver.ForgetKey.Then(mockserver.Drop), Times: 2},
		mockserver.Fault{Match: "/v1/", Do: mockserver.Delay(20 * time.Millisecond)})
	p := start(t, "-server", srv.URL, "-n", "10")
	require.Equal(t, 1, p.code(), "%s", &p.err)
	require.Equal(t, []int{2}, p.table(t)["duplicates"])
	require.Contains(t, p.err.String(), "12 effects are not 10 operations")
	require.Contains(t, p.err.String(), "2 orders were charged again")
	var faults []any
	require.NoError(t, admin(t.Context(), "GET", srv.URL+"/_mock/faults", nil, &faults))
	require.Len(t, faults, 2, "a server's own are left alone")
}

// What cannot be finished is started again, and then told.
func TestGivenUp(t *testing.T) {
	t.Parallel()
	srv := newServer(t, mockserver.Fault{Match: "/v1/", Do: mockserver.Status(402, false)})
	p := start(t, "-server", srv.URL, "-n", "10", "-kills", "0")
	require.Equal(t, 1, p.code())
	require.Contains(t, p.err.String(), "given up after 3 failures")
	require.Contains(t, p.err.String(), "10 orders are not charged for certain")
	require.Contains(t, p.err.String(), "0 effects are not 10 operations")
	require.Equal(t, []int{0}, p.table(t)["effects at the server"])
}

func TestEndsWithoutATrace(t *testing.T) {
	for _, c := range []struct {
		name   string
		signal os.Signal
	}{{"interrupted", os.Interrupt}, {"killed", os.Kill}} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			srv := newServer(t, mockserver.Fault{Match: "/v1/", Do: mockserver.Delay(50 * time.Millisecond)})
			p := start(t, "-server", srv.URL, "-n", "10000")
			require.Eventually(t, func() bool { return srv.Effects() > 10 }, 20*time.Second, 5*time.Millisecond)
			require.NoError(t, p.Process.Signal(c.signal))
			code := p.code()
			if c.signal == os.Interrupt {
				require.Equal(t, 1, code)
				require.Contains(t, p.err.String(), "interrupted")
				require.Empty(t, entries(t, p.tmp))
			}
			idle := func() bool {
				n := len(srv.Requests())
				time.Sleep(400 * time.Millisecond)
				return n == len(srv.Requests())
			}
			require.Eventually(t, idle, 20*time.Second, time.Millisecond, "the child goes on")
		})
	}
}

func TestJournalIsKept(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "new")
	p := start(t, "-n", "10", "-dir", dir)
	p.requireOnce(t, 10)
	require.NotEmpty(t, entries(t, filepath.Join(dir, "journal")))
	require.Contains(t, p.out.String(), "the journal is in "+filepath.Join(dir, "journal"))
	p = start(t, "-n", "10", "-dir", dir)
	require.Equal(t, 2, p.code())
	require.Contains(t, p.err.String(), "holds a journal from an earlier run")
}

func TestCommandLine(t *testing.T) {
	for _, c := range []struct {
		args string
		code int
		text string
	}{
		{"-h", 0, "go run ./examples/quickstart -naive"},
		{"-n 9", 2, "-n is 9: at least 10"},
		{"-n ten", 2, `invalid value "ten" for flag -n`},
		{"-n 10001", 2, "at most 10000"},
		{"-kills 6", 2, "-kills is 6: 0 to 5"},
		{"-seed -1", 2, `invalid value "-1" for flag -seed`},
		{"-server 127.0.0.1:8099", 2, "it is a URL such as http://127.0.0.1:8099"},
		{"-server ftp://a.test", 2, "it is a URL"},
		{"-naive -dir x", 2, "there is no -dir"},
		{"-naive -kills 1", 2, "leave -kills away"},
		{"-fast", 2, "flag provided but not defined: -fast"},
		{"orders", 2, `unexpected argument "orders"; see -h`},
	} {
		var out, err bytes.Buffer
		require.Equal(t, c.code, run(strings.Fields(c.args), &out, &err), c.args)
		require.Contains(t, err.String(), c.text)
		require.Empty(t, out.String(), c.args)
	}
}

func TestKillPoints(t *testing.T) {
	seen := map[int]bool{}
	for seed := range uint64(200) {
		points := killPoints(seed, 100, -1)
		require.True(t, slices.IsSorted(points))
		require.GreaterOrEqual(t, points[0], 30)
		require.LessOrEqual(t, points[len(points)-1], 70)
		require.Equal(t, points, killPoints(seed, 100, -1))
		seen[points[0]] = true
		require.Contains(t, []int{1, 2, 3}, len(points))
	}
	require.Greater(t, len(seen), 20)
	require.Empty(t, killPoints(1, 100, 0))
	require.Len(t, killPoints(1, 10, 5), 5)
}

func TestLedger(t *testing.T) {
	end := new(time.Now())
	led := ledger{
		{N: 1, End: end, Operation: "a", Key: "k1", Status: 201, Effect: true},
		{N: 2, End: end, Operation: "b", Key: "k2", Lost: true, Effect: true},
		{N: 3, Operation: "c", Key: "k3"},
		{N: 4, End: end, Operation: "d", Key: "k4", Status: 201, Effect: true, HungUp: true},
		{N: 5, End: end, Operation: "e", Key: "k5", Status: 503},
		{N: 6, End: end, Operation: "e", Key: "k5", Status: 201, Effect: true},
	}
	require.Equal(t, figures{operations: 5, attempts: 6, keys: 5, lost: 2, effects: 4}, led.figures())
	require.Equal(t, 3, led.inFlight(0))
	require.Equal(t, 2, led.inFlight(2))
	require.Equal(t, 1, led.running())
	again := append(led, row{N: 7, End: end, Operation: "a", Key: "k6", Effect: true}, row{N: 8, End: end, Operation: "f", Key: "k2", Effect: true})
	require.Equal(t, 2, again.figures().duplicates)
}

func TestScreen(t *testing.T) {
	var b bytes.Buffer
	s := &screen{w: &b, tty: true}
	s.progress("child 1: %d", 10)
	s.progress("child: 1")
	s.say("done")
	require.Equal(t, "\rchild 1: 10\rchild: 1   \r        \rdone\n", b.String())
	b.Reset()
	s = newScreen(&b)
	s.progress("too early")
	s.next = time.Time{}
	s.progress("now")
	s.progress("too early")
	require.Equal(t, "now\n", b.String())
}
