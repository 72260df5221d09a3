package sqlstore

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/samekey/samekey/persist"
	"github.com/samekey/samekey/persist/persisttest/servertest"
)

const workerLease = 1500 * time.Millisecond

// work is the life of one worker process: it takes what is due, and says on its output what it has settled. It never
// ends by itself.
func work() {
	go func() { // the test holds the other end for as long as it lives
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(1)
	}()
	p := database{where: os.Args[3], prefix: os.Args[4]}
	_, _ = fmt.Sscan(os.Args[2], &p.dialect)
	ctx := context.Background()
	var s *own
	for s == nil { // the server may be down
		var err error
		if s, err = p.store(func(o *Options) { o.Lease = workerLease }); err != nil {
			time.Sleep(50 * time.Millisecond)
		}
	}
	for {
		es, err := s.ClaimDue(ctx, 4)
		if err != nil || len(es) == 0 {
			time.Sleep(50 * time.Millisecond)
		}
		for _, e := range es {
			pr := e.Progress
			pr.Attempts++
			if s.Mark(ctx, e.Claim, pr) != nil {
				continue
			}
			time.Sleep(rand.N(10 * time.Millisecond))
			keep := time.Now().Add(time.Hour)
			err := s.Settle(ctx, e.Claim, persist.Answer{
				State: persist.Succeeded, Reason: fmt.Sprint(os.Getpid(), "/", e.Claim.Token), KeepBody: keep, KeepName: keep,
			})
			if err == nil {
				fmt.Printf("%s %d/%d\n", e.ID, os.Getpid(), e.Claim.Token)
			}
		}
	}
}

// TestProcesses: workers in processes of their own are killed and paused past their lease, and the server is killed, all
// at random: in the end every operation is settled, by one settle that its worker was told of, or by none that was told.
func TestProcesses(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("needs Unix signals: run it on Linux, macOS or a BSD")
	}
	t.Parallel()
	for _, d := range []Dialect{PostgreSQL, MariaDB, SQLite} {
		t.Run(d.String(), func(t *testing.T) {
			t.Parallel()
			p := database{d, filepath.Join(t.TempDir(), "samekey.db"), "w_"}
			var srv *servertest.Server
			if d != SQLite {
				srv = servertest.New(t, kinds[d])
				p = on(t, d, srv, p.prefix)
			}
			s := p.migrated(t).opened(t, nil)
			const ops = 300
			for i := range ops {
				tx, err := s.pool.Begin()
				require.NoError(t, err)
				require.NoError(t, s.Enqueue(t.Context(), tx, queued(fmt.Sprint("op-", i))))
				require.NoError(t, tx.Commit())
			}
			told := &told{by: map[string]string{}}
			workers := make([]*exec.Cmd, 3)
			for i := range workers {
				workers[i] = told.worker(t, p)
			}
			defer func() {
				for _, w := range workers {
					_ = w.Process.Kill()
				}
				told.all.Wait()
			}()
			end := time.Now().Add(90 * time.Second)
			for round := 0; ; round++ {
				require.True(t, time.Now().Before(end), "operations are still pending")
				time.Sleep(300 * time.Millisecond)
				i := rand.IntN(len(workers))
				switch {
				case round == 2 && srv != nil:
					srv.Kill()
					srv.Restarted(t)
				case round < 8 && round%2 == 0:
					_ = workers[i].Process.Kill()
					workers[i] = told.worker(t, p)
				case round < 8:
					paused := workers[i].Process.Pid
					send("STOP", paused)
					time.AfterFunc(workerLease+200*time.Millisecond, func() { send("CONT", paused) })
				}
				var n int
				err := s.pool.QueryRow(s.o.expand("SELECT count(*) FROM {operations} WHERE state = 0")).Scan(&n)
				if err == nil && n == 0 && round >= 8 {
					break
				}
			}
			for i := range ops {
				id := fmt.Sprint("op-", i)
				got, err := s.Get(t.Context(), op(id).Ref)
				require.NoError(t, err)
				require.Equal(t, persist.Succeeded, got.State())
				if by := told.of(id); by != "" {
					require.Equal(t, got.Answer.Reason, by, "the settle that was told of is the one that is there")
				}
			}
			require.Empty(t, told.twice, "settled by two")
		})
	}
}

// send sends a signal that package syscall does not know on every system; its receiver may have been killed meanwhile.
func send(signal string, pid int) { _ = exec.Command("kill", "-"+signal, fmt.Sprint(pid)).Run() }

// told is what workers have said.
type told struct {
	mu    sync.Mutex
	all   sync.WaitGroup
	by    map[string]string
	twice []string
}

func (l *told) of(id string) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.by[id]
}

func (l *told) worker(t *testing.T, p database) *exec.Cmd {
	cmd := exec.Command(os.Args[0], "worker", fmt.Sprint(uint8(p.dialect)), p.where, p.prefix)
	_, err := cmd.StdinPipe() // open for as long as this process lives
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	l.all.Go(func() {
		for lines := bufio.NewScanner(out); lines.Scan(); {
			var id, by string
			if n, _ := fmt.Sscan(lines.Text(), &id, &by); n != 2 {
				continue
			}
			l.mu.Lock()
			if l.by[id] != "" {
				l.twice = append(l.twice, id)
			}
			l.by[id] = by
			l.mu.Unlock()
		}
		_ = cmd.Wait()
	})
	return cmd
}
