package crashtest_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/samekey/samekey"
	"github.com/samekey/samekey/crashtest"
	"github.com/samekey/samekey/mockserver"
)

// shop is the program in testdata, built once.
var shop string

func TestMain(m *testing.M) {
	crashtest.Main(build{m}, map[string]func() error{"storm": stormChild, "twice": twiceChild, "hang": hangChild, "silent": func() error { return nil }})
}

// build builds the shop before the tests run; children do not need it.
type build struct{ *testing.M }

func (b build) Run() int {
	dir, err := os.MkdirTemp("", "samekey-shop-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	shop = filepath.Join(dir, "shop.exe")
	if out, err := exec.Command("go", "build", "-buildvcs=false", "-o", shop, "./testdata/shop").CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "%s%v\n", out, err)
		return 1
	}
	return b.M.Run()
}

// bank charges, and loses its first answer, so that the order has two attempts.
func bank(t *testing.T) *mockserver.Server {
	t.Helper()
	srv := mockserver.NewServer(mockserver.Config{})
	t.Cleanup(srv.Close)
	srv.Fault(mockserver.Fault{When: mockserver.AfterCommit, Do: mockserver.CutBody, Times: 1})
	return srv
}

func args(anonymous bool, dir, url string) []string {
	if anonymous {
		return []string{"-anonymous", dir, url}
	}
	return []string{dir, url}
}

// paidOnce is what has to be true in the end.
func paidOnce(t *testing.T, srv *mockserver.Server, dir string, last crashtest.Life) {
	t.Helper()
	require.Equal(t, 0, last.Code, last.Stderr)
	require.Equal(t, []string{"paid"}, last.Acks())
	srv.AssertOnce(t)
	srv.AssertSameKey(t)
	srv.AssertNoOverlap(t)
	require.Equal(t, 1, srv.Effects())
	require.Len(t, srv.Keys(), 1)
	b, err := os.ReadFile(dir + "/orders")
	require.NoError(t, err)
	rows := strings.Split(strings.TrimSpace(string(b)), "\n")
	require.Len(t, rows, 2, "%q", rows)
	require.Equal(t, "order-1 placed", rows[0])
	require.Regexp(t, `^order-1 paid by \S+$`, rows[1], "the bank's answer has reached the shop")
}

// TestKilledAtEachPoint kills the shop at every point that it passes, and at every pair of points of two lives, and
// starts it again: by the name of the charge, or by Recover.
func TestKilledAtEachPoint(t *testing.T) {
	for name, anonymous := range map[string]bool{"named": false, "anonymous": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			points := crashtest.Passed(t, exec.Command(shop, args(anonymous, t.TempDir(), bank(t).URL)...))
			t.Logf("the shop passes %q", points)
			for _, s := range []samekey.Step{
				samekey.StepBegin, samekey.StepBegun, samekey.StepAttempt, samekey.StepConnected, samekey.StepHeaderWritten, samekey.StepBodyWritten,
				samekey.StepFirstByte, samekey.StepAttemptDone, samekey.StepWait, samekey.StepOutcome, samekey.StepSettled,
			} {
				require.Contains(t, points, s.String())
			}
			require.Contains(t, points, "first byte/2", "the first answer is lost, so that there are two attempts")
			require.Contains(t, points, "answer read")
			for _, second := range secondLife(anonymous) {
				points = append(points, "first byte then "+second, "settled then "+second)
			}
			points = slices.DeleteFunc(points, func(p string) bool { // once the order is marked as paid there is nothing left to be killed in
				return !anonymous && strings.HasPrefix(p, "settled then ") && !slices.Contains([]string{"settled then begin", "settled then outcome"}, p) ||
					anonymous && strings.HasPrefix(p, "settled then ")
			})
			crashtest.Each(t, points, func(t *testing.T, point string) crashtest.Case {
				t.Parallel()
				dir, srv := t.TempDir(), bank(t)
				return crashtest.Case{
					Command: func() *exec.Cmd { return exec.Command(shop, args(anonymous, dir, srv.URL)...) },
					Check: func(lives []crashtest.Life) {
						last := lives[len(lives)-1]
						paidOnce(t, srv, dir, last)
						// Another life finds nothing to do.
						n := len(srv.Requests())
						require.Equal(t, []string{"paid"}, crashtest.Run(t, "", exec.Command(shop, args(anonymous, dir, srv.URL)...)).Acks())
						if point != "marked paid" && point != "settled" && anonymous { // what was settled lazily may be asked for once more
							require.Len(t, srv.Requests(), n)
						}
					},
				}
			})
		})
	}
}

// secondLife are the points of a life that goes on with what another began.
func secondLife(anonymous bool) []string {
	points := []string{"attempt", "header written", "first byte", "attempt done", "outcome", "settled", "answer read", "marked paid"}
	if anonymous {
		return append(points, "handler", "in the handler", "settled/2", "recovered")
	}
	return append(points, "begin", "begun")
}
