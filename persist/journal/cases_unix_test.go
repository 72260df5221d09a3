//go:build unix

package journal

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/samekey/samekey/persist"
)

// TestModes: whatever the umask, only the owner reaches the files.
func TestModes(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "j")
	for _, mask := range []int{0, 0o777} {
		old := syscall.Umask(mask)
		j, err := Open(context.Background(), dir, small)
		syscall.Umask(old)
		require.NoError(t, err)
		for i := range 600 {
			_, err := j.Begin(context.Background(), numbered(mask*1000+i))
			require.NoError(t, err)
		}
		st, err := os.Stat(dir)
		require.NoError(t, err)
		require.Equal(t, os.FileMode(0o700), st.Mode().Perm())
		files, err := os.ReadDir(dir)
		require.NoError(t, err)
		require.Greater(t, len(files), 2)
		for _, f := range files {
			info, err := f.Info()
			require.NoError(t, err)
			require.Equal(t, os.FileMode(0o600), info.Mode().Perm(), f.Name())
		}
		require.NoError(t, j.Close())
		checkDir(t, dir)
		require.NoError(t, os.RemoveAll(dir))
	}
}

var kills = flag.Int("kills", 5, "SIGKILLs of TestCaseB55KilledUnderLoad")

// TestCaseB55KilledUnderLoad kills a process that begins and settles; the kernel frees the lock at once, and all that the
// process had been told is there.
func TestCaseB55KilledUnderLoad(t *testing.T) {
	if dir := os.Getenv("JOURNAL_KILL_CHILD"); dir != "" {
		killChild(dir)
	}
	ctx := context.Background()
	var dir string
	var pending, gone map[string]bool
	for round := range *kills {
		if round%10 == 0 { // what is found again is the sum of all kills of a journal
			dir, pending, gone = filepath.Join(t.TempDir(), "j"), map[string]bool{}, map[string]bool{}
		}
		cmd := exec.Command(os.Args[0], "-test.run=^TestCaseB55KilledUnderLoad$") //nolint:gosec // ourselves
		cmd.Env = append(os.Environ(), "JOURNAL_KILL_CHILD="+dir, fmt.Sprintf("JOURNAL_KILL_ROUND=%d", round))
		cmd.Stderr = os.Stderr
		out, err := cmd.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, cmd.Start())
		lines := bufio.NewScanner(out)
		for n := 0; lines.Scan(); n++ {
			switch word, id, _ := strings.Cut(lines.Text(), " "); word {
			case "begun":
				pending[id] = true
			case "settled":
				delete(pending, id)
				gone[id] = true
			}
			if n == 200+100*(round%5) {
				require.NoError(t, cmd.Process.Kill()) // and read on: what it still said before it died counts
			}
		}
		require.Error(t, cmd.Wait())

		start := time.Now()
		j, err := Open(within(t, 20*time.Second), dir, small)
		require.NoError(t, err)
		require.Less(t, time.Since(start), 10*time.Second)
		for id := range pending {
			rec, err := j.Get(ctx, persist.Ref{ID: id})
			require.NoError(t, err, "%s was acknowledged", id)
			require.Equal(t, id, string(rec.Body))
		}
		for rec, err := range j.List(ctx, persist.Filter{}) {
			require.NoError(t, err)
			require.False(t, gone[rec.ID], "%s was settled", rec.ID)
		}
		es, err := j.ClaimDue(ctx, 1_000_000)
		require.NoError(t, err)
		require.GreaterOrEqual(t, len(es), len(pending), "its claims died with it")
		require.Empty(t, j.Report().Damage)
		require.NoError(t, j.Close())
		checkDir(t, dir)
	}
}

// killChild says what it was told, each line in one write, and never ends by itself.
func killChild(dir string) {
	ctx := context.Background()
	j, err := Open(ctx, dir, small)
	if err != nil {
		panic(err)
	}
	round := os.Getenv("JOURNAL_KILL_ROUND")
	var mu sync.Mutex
	say := func(format string, args ...any) {
		mu.Lock()
		defer mu.Unlock()
		_, _ = fmt.Fprintf(os.Stdout, format+"\n", args...)
	}
	var wg sync.WaitGroup
	for w := range 8 {
		wg.Go(func() {
			for i := 0; ; i++ {
				id := fmt.Sprintf("r%s-w%d-%d", round, w, i)
				e, err := j.Begin(ctx, persist.Record{Ref: persist.Ref{ID: id}, Body: []byte(id), Method: "POST", Progress: persist.Progress{Attempts: 1}})
				if err != nil {
					panic(err)
				}
				if i%3 == 0 {
					say("begun %s", id)
					continue
				}
				if err := j.Settle(ctx, e.Claim, persist.Answer{State: persist.Succeeded}); err != nil {
					panic(err)
				}
				say("settled %s", id)
			}
		})
	}
	wg.Wait()
}

func cpuTime() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// unlock frees the lock of a journal that is as good as dead, without closing the file under its nose.
func unlock(f file) {
	_ = unix.Flock(int(f.(brokenFile).file.(osFile).Fd()), unix.LOCK_UN)
}
