package main

import (
	"bytes"
	"context"
	"database/sql"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/samekey/samekey"
	"github.com/samekey/samekey/mockserver"
	"github.com/samekey/samekey/persist"
	"github.com/samekey/samekey/persist/persisttest/servertest"
	"github.com/samekey/samekey/persist/sqlstore"
)

// mainEnv has the test binary be the program.
const mainEnv = "OUTBOX_TEST_MAIN"

func TestMain(m *testing.M) {
	if os.Getenv(childEnv) != "" || os.Getenv(mainEnv) != "" {
		main()
	}
	flag.Parse()
	_ = flag.Set("test.parallel", "8") // most of the time they wait for leases
	code := m.Run()
	servertest.EndShared()
	os.Exit(code)
}

// told is a story that is told in this process; its shop is another, this binary again.
func told(t *testing.T, args string, change func(*options)) (*evidence, string, error) {
	t.Helper()
	o, err := parse(strings.Fields(args), &bytes.Buffer{})
	require.NoError(t, err)
	if o.dialect != "" && o.dsn == "" && dialects[o.dialect].server != nil {
		o.dsn = dsnOf(t, o.dialect)
	}
	if change != nil {
		change(&o)
	}
	var out bytes.Buffer
	e, err := story(t.Context(), o, newScreen(&out), &out)
	t.Log(out.String())
	return e, out.String(), err
}

// dsnOf is a database on the server that all tests of this process share.
func dsnOf(t *testing.T, dialect string) string {
	t.Helper()
	srv := servertest.Shared(t, dialects[dialect].server)
	if dialect == "mariadb" {
		require.NoError(t, createDatabase(t.Context(), srv.URL(""), "test"))
		return srv.URL("test")
	}
	return srv.URL("")
}

// TestEffectsAreTheCommittedOrders: 500 transactions, a third rolled back, the shop killed ten times. What the database
// has and what the bank's ledger has is compared here once more, by hand.
func TestEffectsAreTheCommittedOrders(t *testing.T) {
	for dialect := range dialects {
		t.Run(dialect, func(t *testing.T) {
			t.Parallel()
			e, _, err := told(t, "-n 500 -kills 10 -dialect "+dialect, nil)
			require.NoError(t, err)

			effects, keys := map[string]int{}, map[string]string{}
			for _, r := range e.requests {
				require.Contains(t, e.rows, r.Operation, "the bank has heard of an order that was rolled back")
				if r.Effect {
					effects[r.Operation]++
				}
				if keys[r.Operation] == "" {
					keys[r.Operation] = r.Key
				}
				require.Equal(t, keys[r.Operation], r.Key, "one key for life")
			}
			for id, state := range e.rows {
				require.Equal(t, "paid", state, id)
				require.Equal(t, 1, effects[id], id)
				require.Equal(t, keys[id], e.charges[id].Key, id)
				require.Equal(t, samekey.Succeeded, e.charges[id].Answer.State, id)
				require.False(t, e.charges[id].Answer.Owed, id)
				n, err := strconv.Atoi(strings.TrimPrefix(id, "order-"))
				require.NoError(t, err)
				require.NotZero(t, n%3, "sold out")
			}
			require.Len(t, effects, len(e.rows))
			require.Len(t, e.charges, len(e.rows))
			require.Len(t, e.told, 500)
			committed, soldOut := 0, 0
			for id, heard := range e.told {
				_, is := e.rows[id]
				switch heard {
				case "committed":
					require.True(t, is, id)
					committed++
				case "sold-out":
					require.False(t, is, id)
					soldOut++
				default: // the shop was killed, and whether it had committed only the database knows
					require.Empty(t, heard, id)
				}
			}
			require.Greater(t, committed, 250)
			require.Greater(t, soldOut, 125)
			require.Len(t, e.met, 10)
			open, inFlight := 0, 0
			for _, k := range e.met {
				open += k.open
				inFlight += k.inFlight
			}
			require.Positive(t, open, "no SIGKILL met an open transaction")
			require.Positive(t, inFlight, "no SIGKILL met a charge in flight")
		})
	}
}

// TestDuplicatesAreTold: a bank that forgets its keys breaks what nobody can mend. It has to show.
func TestDuplicatesAreTold(t *testing.T) {
	t.Parallel()
	_, out, err := told(t, "-n 60 -kills 0 -dialect sqlite", func(o *options) {
		o.faults = func() []mockserver.Fault {
			return []mockserver.Fault{{When: mockserver.AfterCommit, Do: mockserver.ForgetKey.Then(mockserver.Drop), Times: 2}}
		}
	})
	require.EqualError(t, err, "42 effects at the bank are not 40 committed orders\n2 effects too many")
	require.Contains(t, out, "duplicates                           2\n")
}

// TestGivenUp: what cannot be finished is told.
func TestGivenUp(t *testing.T) {
	t.Parallel()
	_, out, err := told(t, "-n 60 -kills 0 -dialect sqlite", func(o *options) {
		o.patience = 3 * time.Second
		o.faults = func() []mockserver.Fault {
			return []mockserver.Fault{{Match: "/v1/", Do: mockserver.Status(503, false)}}
		}
	})
	require.ErrorIs(t, err, errGivenUp)
	require.ErrorContains(t, err, "nothing has changed for 3s")
	require.ErrorContains(t, err, "40 committed orders were not charged\n40 charges are left pending\n40 orders are not marked as paid")
	require.Contains(t, out, "effects at the bank                  0\n")
}

func TestWithoutPostgreSQL(t *testing.T) {
	t.Parallel()
	missing := func(o *options) {
		o.start = func(_ context.Context, k *servertest.Kind, _ ...string) (*servertest.Server, error) {
			return nil, &servertest.NotInstalledError{Kind: k, Binary: "initdb"}
		}
	}
	e, out, err := told(t, "-n 60 -kills 2", missing)
	require.NoError(t, err)
	require.NotEmpty(t, e.rows)
	require.True(t, strings.HasPrefix(out, "postgresql: initdb is not installed: apt-get install postgresql. Without it the story is told in SQLite.\n"), out)
	_, _, err = told(t, "-n 60 -dialect postgresql", func(o *options) { o.dsn = ""; missing(o) })
	require.EqualError(t, err, "postgresql: initdb is not installed: apt-get install postgresql")
}

// TestOwnServer: what go run . does, with a private server that is gone afterwards.
func TestOwnServer(t *testing.T) {
	t.Parallel()
	servertest.Shared(t, servertest.PostgreSQL) // which skips where there is none
	var addr string
	_, out, err := told(t, "-n 60 -kills 1", func(o *options) {
		start := o.start
		o.start = func(ctx context.Context, k *servertest.Kind, args ...string) (*servertest.Server, error) {
			s, err := start(ctx, k, args...)
			if err == nil {
				addr = s.Dir()
			}
			return s, err
		}
	})
	require.NoError(t, err)
	require.Contains(t, out, "60 orders to place in PostgreSQL")
	require.NotEmpty(t, addr)
	require.NoDirExists(t, addr)
}

// TestOwnDatabase: in a user's database nothing is left, and its password is shown nowhere.
func TestOwnDatabase(t *testing.T) {
	for _, dialect := range []string{"postgresql", "mariadb", "sqlite"} {
		t.Run(dialect, func(t *testing.T) {
			t.Parallel()
			d := database{Dialect: dialect, DSN: "file:" + filepath.Join(t.TempDir(), "own.db")}
			tables := "SELECT count(*) FROM sqlite_master"
			if dialect != "sqlite" {
				srv := servertest.Shared(t, dialects[dialect].server)
				admin := database{Dialect: dialect, DSN: srv.URL("")}
				require.NoError(t, admin.with(func(db *sql.DB, _ sqlstore.Options) error {
					_, err := db.Exec("CREATE DATABASE own")
					return err
				}))
				d.DSN = srv.URL("own")
				tables = "SELECT count(*) FROM information_schema.tables WHERE table_schema IN ('own', 'public')"
			}
			if dialect == "postgresql" {
				d.DSN = strings.Replace(d.DSN, "samekey@", "samekey:hunter2@", 1)
			}
			_, out, err := told(t, "-n 60 -kills 1 -dialect "+dialect, func(o *options) { o.dsn = d.DSN })
			require.NoError(t, err)
			require.NotContains(t, out, "hunter2")
			require.NoError(t, d.with(func(db *sql.DB, _ sqlstore.Options) error {
				var n int
				require.NoError(t, db.QueryRow(tables).Scan(&n))
				require.Zero(t, n)
				return nil
			}))
		})
	}
}

// TestEndsWithoutATrace: interrupted, it removes what it has made, and no shop goes on.
func TestEndsWithoutATrace(t *testing.T) {
	t.Parallel()
	tmp := t.TempDir()
	cmd := exec.Command(os.Args[0], "-dialect", "sqlite", "-n", "10000", "-kills", "0")
	cmd.Env = append(os.Environ(), mainEnv+"=1", "TMPDIR="+tmp)
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	left := func() []string {
		found, err := filepath.Glob(filepath.Join(tmp, "*", "*"))
		require.NoError(t, err)
		return found
	}
	require.Eventually(t, func() bool { return len(left()) > 0 }, 20*time.Second, 5*time.Millisecond)
	time.Sleep(500 * time.Millisecond) // the shop takes orders by now
	require.NoError(t, cmd.Process.Signal(os.Interrupt))
	require.Error(t, cmd.Wait())
	require.Equal(t, 1, cmd.ProcessState.ExitCode())
	require.Equal(t, "outbox: interrupted\n", errOut.String())
	require.Empty(t, left())
}

// TestVerdict: everything that may go wrong is found.
func TestVerdict(t *testing.T) {
	good := func() *evidence {
		e := &evidence{rows: map[string]string{}, charges: map[string]persist.Record{}, told: map[string]string{"order-3": "sold-out"}}
		for _, id := range []string{"order-1", "order-2"} {
			e.rows[id], e.told[id] = "paid", "committed"
			e.charges[id] = persist.Record{Answer: &persist.Answer{State: samekey.Succeeded}}
			e.requests = append(e.requests, mockserver.Request{Operation: id, Key: "key-" + id}, mockserver.Request{Operation: id, Key: "key-" + id, Effect: true})
		}
		return e
	}
	require.NoError(t, good().figures().verdict(options{orders: 3}))
	for want, spoil := range map[string]func(e *evidence){
		"2 transactions were begun, not 3":                            func(e *evidence) { delete(e.told, "order-3") },
		"1 SIGKILLs met the shop, not 0":                              func(e *evidence) { e.met = []kill{{}} },
		"3 effects at the bank are not 2 committed orders\n1 effects": func(e *evidence) { e.requests[0].Effect = true },
		"1 committed orders were not charged":                         func(e *evidence) { e.requests = e.requests[:2] },
		"1 charges are left pending":                                  func(e *evidence) { e.charges["order-1"] = persist.Record{} },
		"1 charges are left":                                          func(e *evidence) { e.charges["order-1"].Answer.Owed = true },
		"1 orders are not marked as paid":                             func(e *evidence) { e.rows["order-2"] = "placed" },
		"1 orders are without a command":                              func(e *evidence) { delete(e.charges, "order-2") },
		"1 commands are without an order":                             func(e *evidence) { delete(e.rows, "order-2") },
		"for 1 orders that were rolled back":                          func(e *evidence) { e.requests = append(e.requests, mockserver.Request{Operation: "order-3"}) },
		"1 orders went out under more than one key":                   func(e *evidence) { e.requests[0].Key = "other" },
		"1 customers were told what is not so":                        func(e *evidence) { e.told["order-1"] = "sold-out" },
	} {
		e := good()
		spoil(e)
		require.ErrorContains(t, e.figures().verdict(options{orders: 3}), want)
	}
}

func TestMoments(t *testing.T) {
	for seed := range uint64(50) {
		all := moments(seed, 500, 10)
		require.Equal(t, all, moments(seed, 500, 10))
		seen := map[int]int{}
		for i, m := range all {
			require.Less(t, m.n, 441)
			require.Greater(t, m.n, 14)
			require.True(t, i == 0 || m.n > all[i-1].n)
			seen[m.what]++
		}
		require.Len(t, seen, whats)
	}
	require.Empty(t, moments(1, 500, 0))
}

func TestCommandLine(t *testing.T) {
	for _, c := range []struct {
		args string
		code int
		text string
	}{
		{"-h", 0, "go run ./examples/outbox -dialect mariadb"},
		{"-n 59", 2, "-n is 59: at least 60"},
		{"-n 10001", 2, "at most 10000"},
		{"-n ten", 2, `invalid value "ten" for flag -n`},
		{"-kills 21", 2, "-kills is 21: 0 to 20"},
		{"-lease 10ms", 2, "-lease is 10ms: 1s to 1m"},
		{"-dialect oracle", 2, `-dialect is "oracle": postgresql, mariadb or sqlite`},
		{"-dsn root:hunter2@/x", 2, "say with -dialect what it is"},
		{"-dsn postgres://shop:hunter2@127.0.0.1:1/x", 1, "check the DSN"},
		{"-dsn postgres://shop:hunter2/@127.0.0.1:1/x", 1, "check the DSN"},
		{"-fast", 2, "flag provided but not defined: -fast"},
		{"orders", 2, `unexpected argument "orders"; see -h`},
	} {
		var out, err bytes.Buffer
		require.Equal(t, c.code, run(strings.Fields(c.args), &out, &err), c.args)
		require.Contains(t, err.String(), c.text)
		require.NotContains(t, fmt.Sprint(&out, &err), "hunter2")
		require.Empty(t, out.String(), c.args)
	}
}
