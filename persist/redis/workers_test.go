package redis

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/samekey/samekey/persist"
	"github.com/samekey/samekey/persist/persisttest/servertest"
)

const workerLease = 1500 * time.Millisecond

// work is the life of one worker process: it takes what is due, and says on its output what it has settled. It ends
// with its input, which its parent holds open.
func work() {
	go func() {
		_, _ = bufio.NewReader(os.Stdin).ReadByte()
		os.Exit(1)
	}()
	p := place{addr: os.Args[2], prefix: os.Args[3]}
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
			time.Sleep(20 * time.Millisecond)
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

// TestProcesses: workers in processes of their own are killed, the server is killed and is paused past the leases, all at
// random: in the end every operation is settled, by one settle that its worker was told of, or by none that was told.
func TestProcesses(t *testing.T) {
	t.Parallel()
	srv := servertest.New(t, servertest.Redis)
	p := on(srv)
	s := p.opened(t, nil)
	const ops = 300
	for i := range ops {
		s.free(t, op(fmt.Sprint("op-", i)))
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
		switch {
		case round == 2:
			srv.Kill()
			srv.Restarted(t)
		case round == 5: // all claims lapse, and whoever is first takes them
			srv.Pause()
			time.Sleep(workerLease + 200*time.Millisecond)
			srv.Resume()
		case round < 8:
			i := rand.IntN(len(workers))
			_ = workers[i].Process.Kill()
			workers[i] = told.worker(t, p)
		}
		pending := 0
		for _, err := range s.List(t.Context(), persist.Filter{States: []persist.State{persist.Pending}}) {
			if pending++; err != nil {
				break
			}
		}
		if pending == 0 && round >= 8 {
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
	told.mu.Lock()
	defer told.mu.Unlock()
	require.Empty(t, told.twice, "settled by two")
	require.Greater(t, len(told.by), ops/2)
	p.consistent(t)
}

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

func (l *told) worker(t *testing.T, p place) *exec.Cmd {
	cmd := exec.Command(os.Args[0], "worker", p.addr, p.prefix)
	_, err := cmd.StdinPipe() // ends with this process
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
