package tool

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/samekey/samekey"
	"github.com/samekey/samekey/mockserver"
	"github.com/samekey/samekey/persist"
	"github.com/samekey/samekey/persist/journal"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// binary is command samekey, built once.
var binary string

const roleVar = "SAMEKEY_TEST_ROLE"

func TestMain(m *testing.M) {
	if role := os.Getenv(roleVar); role != "" {
		if err := play(role, os.Args[1:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	flag.Parse()
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "samekey-tool-")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer os.RemoveAll(dir)
		binary = filepath.Join(dir, "samekey.exe")
		if out, err := exec.Command("go", "build", "-buildvcs=false", "-o", binary, "..").CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "%s%v\n", out, err)
			return 1
		}
		return m.Run()
	}())
}

// play is what a second process does: hold a journal until its stdin ends, or send commands until it is killed.
func play(role string, args []string) error {
	ctx := context.Background()
	store, err := journal.Open(ctx, args[0], journal.Options{})
	if err != nil {
		return err
	}
	if role == "hold" {
		fmt.Println("holding")
		_, err = io.Copy(io.Discard, os.Stdin)
		return errors.Join(err, store.Close())
	}
	c, err := samekey.New(samekey.Config{Store: store})
	if err != nil {
		return err
	}
	for i := range 6 {
		req, err := payment(ctx, args[1], fmt.Sprintf("order-%d", i), 100)
		if err != nil {
			return err
		}
		go func() {
			if resp, err := c.Do(req); err == nil {
				_ = resp.Body.Close()
			}
			fmt.Println("answered")
		}()
	}
	select {} // until it is killed
}

// start runs a second process in a role, until it has said a word.
func start(t *testing.T, role string, args ...string) (*exec.Cmd, io.WriteCloser, *bufio.Reader) {
	t.Helper()
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(os.Environ(), roleVar+"="+role)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return cmd, in, bufio.NewReader(out)
}

func payment(ctx context.Context, url, name string, amount int) (*http.Request, error) {
	body := fmt.Sprintf(`{"amount":%d,"currency":"EUR","orderRef":"%s"}`, amount, name)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/v1/payments", strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	if name != "" {
		req = samekey.Named(req, name)
	}
	return req, nil
}

// ran is what one run of the tool left.
type ran struct {
	code     int
	out, err string
}

// run runs the binary.
func run(t *testing.T, args ...string) ran {
	t.Helper()
	return runEnv(t, nil, args...)
}

func runEnv(t *testing.T, env []string, args ...string) ran {
	t.Helper()
	cmd := exec.Command(binary, args...)
	cmd.Env = append(os.Environ(), env...)
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	err := cmd.Run()
	var e *exec.ExitError
	if err != nil && !errors.As(err, &e) {
		require.NoError(t, err)
	}
	return ran{cmd.ProcessState.ExitCode(), out.String(), errOut.String()}
}

// inside runs the tool in this process, at a set time, with somebody at the terminal who says answer if it is not empty.
func inside(t *testing.T, answer string, args ...string) ran {
	t.Helper()
	var out, errOut bytes.Buffer
	tl := &tool{in: strings.NewReader(answer), out: &out, err: &errOut, env: os.LookupEnv, now: func() time.Time { return goldenNow }, asks: answer != ""}
	code := tl.main(t.Context(), args)
	return ran{code, out.String(), errOut.String()}
}

func newDir(t *testing.T) string {
	t.Helper()
	return filepath.Join(t.TempDir(), "journal")
}

func openJournal(t *testing.T, dir string) *journal.Journal {
	t.Helper()
	j, err := journal.Open(t.Context(), dir, journal.Options{})
	require.NoError(t, err)
	return j
}

// fill lends a client over the journal in dir to f, and closes both.
func fill(t *testing.T, dir string, cfg samekey.Config, f func(c *samekey.Client)) {
	t.Helper()
	j := openJournal(t, dir)
	cfg.Store = j
	if cfg.Default.Backoff == (samekey.Backoff{}) {
		cfg.Default.Backoff.Min = -1
	}
	c, err := samekey.New(cfg)
	require.NoError(t, err)
	f(c)
	require.NoError(t, c.Close())
	require.NoError(t, j.Close())
}

func newServer(t *testing.T) *mockserver.Server {
	t.Helper()
	srv := mockserver.NewServer(mockserver.Config{Seed: 1})
	t.Cleanup(srv.Close)
	return srv
}

// pay sends one payment and drops the answer.
func pay(t *testing.T, c *samekey.Client, url, name string, amount int) error {
	t.Helper()
	req, err := payment(t.Context(), url, name, amount)
	require.NoError(t, err)
	return do(t, c, req)
}

func do(t *testing.T, c *samekey.Client, req *http.Request) error {
	t.Helper()
	resp, err := c.Do(req)
	if err == nil {
		_, rerr := io.Copy(io.Discard, resp.Body)
		require.NoError(t, errors.Join(rerr, resp.Body.Close()))
	}
	return err
}

// always breaks every attempt of an operation.
func always(srv *mockserver.Server, when mockserver.Phase, do mockserver.Action) {
	srv.Fault(mockserver.Fault{When: when, Do: do})
}

func record(t *testing.T, dir, scope, id string) persist.Record {
	t.Helper()
	v, err := journal.ReadOnly(dir)
	require.NoError(t, err)
	r, err := v.Get(t.Context(), persist.Ref{Scope: scope, ID: id})
	require.NoError(t, err)
	require.NoError(t, v.Close())
	return r
}

// listed runs list -json.
func listed(t *testing.T, dir string, args ...string) (ops []operation) {
	t.Helper()
	r := run(t, append([]string{"list", dir, "-json"}, args...)...)
	require.Zero(t, r.code, r.err)
	dec := json.NewDecoder(strings.NewReader(r.out))
	for dec.More() {
		var o operation
		require.NoError(t, dec.Decode(&o))
		ops = append(ops, o)
	}
	return ops
}

func ids(ops []operation) (out []string) {
	for _, o := range ops {
		out = append(out, o.ID)
	}
	return out
}

// golden compares text with a file of testdata.
func golden(t *testing.T, name, text string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		require.NoError(t, os.MkdirAll("testdata", 0o755))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.Equal(t, string(want), text)
}
