// Package servertest starts private PostgreSQL, MariaDB and Redis servers for tests, from installed binaries: each in a
// directory of its own, on a free loopback port, so that a test may kill it and start it again. A server dies with the
// process that started it, however that ends. It needs a Unix system.
package servertest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// Kind is a kind of server; PostgreSQL, MariaDB and Redis are those there are.
type Kind struct {
	// Name of the program, and what brings it: apt-get install PACKAGE.
	Name, Package string

	look     []string // where to look for binaries beside PATH, patterns
	need     []string // the binaries, the server first
	beside   bool     // looks for its own files beside the binary, wherever a link to it is
	unrooted bool     // refuses to run as root
	init     func(s *Server, bin map[string]string) *exec.Cmd
	follow   func(s, primary *Server, bin map[string]string) *exec.Cmd // in place of init, for a replica; with followBy
	followBy string                                                    // the binary, beside the server's
	start    func(s *Server, bin map[string]string) *exec.Cmd
	ready    func(c net.Conn) error
	url      func(s *Server, database string) string
}

// NotInstalledError says which binary is missing, and how to get it.
type NotInstalledError struct {
	Kind   *Kind
	Binary string
}

func (e *NotInstalledError) Error() string {
	return fmt.Sprintf("%s: %s is not installed: apt-get install %s", e.Kind.Name, e.Binary, e.Kind.Package)
}

// Server is one running server. Its methods are for one goroutine at a time.
type Server struct {
	kind *Kind
	bin  map[string]string
	args []string
	dir  string
	port int
	cmd  *exec.Cmd
	done chan struct{} // closed when the process has ended
}

const (
	startTimeout = time.Minute
	launches     = 50 // of a server that ends at once
	saidBytes    = 4 << 10
)

// Start makes a directory, fills it, and starts a server there, with further arguments for the server if there are any;
// it returns once the server answers. A binary that is missing is a *NotInstalledError.
func Start(ctx context.Context, k *Kind, args ...string) (*Server, error) {
	bin, err := k.find()
	if err != nil {
		return nil, err
	}
	return start(ctx, &Server{kind: k, bin: bin, args: args}, k.init)
}

// Replica starts a hot standby of a PostgreSQL server, from a base backup: it follows s, which has to run, and takes no
// writes. It has s's further arguments, and a life of its own.
func (s *Server) Replica(ctx context.Context) (*Server, error) {
	if s.kind.follow == nil {
		return nil, fmt.Errorf("servertest: no replicas of %s", s.kind.Name)
	}
	bin := maps.Clone(s.bin)
	bin[s.kind.followBy] = filepath.Join(filepath.Dir(s.bin[s.kind.need[0]]), s.kind.followBy)
	if _, err := os.Stat(bin[s.kind.followBy]); err != nil {
		return nil, &NotInstalledError{Kind: s.kind, Binary: s.kind.followBy}
	}
	return start(ctx, &Server{kind: s.kind, bin: bin, args: s.args}, func(r *Server, bin map[string]string) *exec.Cmd {
		return s.kind.follow(r, s, bin)
	})
}

func start(ctx context.Context, s *Server, init func(*Server, map[string]string) *exec.Cmd) (_ *Server, err error) {
	if s.dir, err = os.MkdirTemp(scratch(), "samekey-"+s.kind.Name+"-"); err != nil {
		return nil, err
	}
	if err = s.fill(ctx, init); err == nil {
		err = s.Restart(ctx)
	}
	if err != nil {
		s.End()
		return nil, err
	}
	return s, nil
}

func (k *Kind) find() (map[string]string, error) {
	if !canServe {
		return nil, &NotInstalledError{Kind: k, Binary: "a Unix system"}
	}
	bin := map[string]string{}
	for _, name := range k.need {
		path, err := exec.LookPath(name)
		if err == nil && k.beside {
			path, err = filepath.EvalSymlinks(path)
		}
		for _, pattern := range k.look {
			if found, _ := filepath.Glob(filepath.Join(pattern, name)); err != nil && len(found) > 0 {
				path, err = found[len(found)-1], nil
			}
		}
		if err != nil {
			return nil, &NotInstalledError{Kind: k, Binary: name}
		}
		bin[name] = path
	}
	return bin, nil
}

// scratch is where data goes: to memory if there is such a place, since killing a server takes no power away, and a busy
// disk would upset the rules about time. Whoever sets TMPDIR wants it there.
func scratch() string {
	if info, err := os.Stat("/dev/shm"); err != nil || !info.IsDir() || os.Getenv("TMPDIR") != "" {
		return ""
	}
	return "/dev/shm"
}

func (s *Server) fill(ctx context.Context, init func(*Server, map[string]string) *exec.Cmd) error {
	if s.kind.unrooted {
		if err := giveAway(s.dir); err != nil {
			return err
		}
	}
	if init != nil {
		if err := s.do(ctx, init(s, s.bin)); err != nil {
			return err
		}
	}
	var err error
	s.port, err = freePort() // last: what is free now may not be for long
	return err
}

// do runs a program in the server's place.
func (s *Server) do(ctx context.Context, cmd *exec.Cmd) error {
	s.own(cmd)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Start()
	if err == nil {
		stop := context.AfterFunc(ctx, func() { killAll(cmd.Process) })
		err = cmd.Wait()
		stop()
	}
	if err != nil {
		return fmt.Errorf("%s: %w\n%s", cmd, errors.Join(context.Cause(ctx), err), &out)
	}
	return ctx.Err()
}

// own makes cmd the server's: where it works and whom it runs as. Its temporary files are there too, since a MariaDB that
// starts removes those that it takes for its own leavings, which may be another's.
func (s *Server) own(cmd *exec.Cmd) {
	cmd.Env = append(os.Environ(), "TMPDIR="+s.dir)
	asServer(cmd, s.dir, s.kind.unrooted)
}

// freePort returns one that was free a moment ago; a restart keeps it.
func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	return l.Addr().(*net.TCPAddr).Port, l.Close()
}

// Restart starts the server, which must not be running, on its data and its port, and returns once it answers.
func (s *Server) Restart(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	var err error
	for n := 0; ctx.Err() == nil && n < launches; n++ {
		if err := s.launch(); err != nil {
			return err
		}
		for running := true; running && ctx.Err() == nil; {
			select {
			case <-s.done: // what the last life left is not gone yet
				err = errors.New("it ends at once")
				time.Sleep(100 * time.Millisecond)
				running = false
			case <-time.After(20 * time.Millisecond):
				if err = s.ask(ctx); err == nil {
					return nil
				}
			}
		}
	}
	s.Kill()
	return fmt.Errorf("%s does not start: %w\n%s", s.kind.Name, errors.Join(context.Cause(ctx), err), s.said())
}

// said is the end of the server's log.
func (s *Server) said() []byte {
	log, _ := os.ReadFile(filepath.Join(s.dir, "log"))
	return log[max(0, len(log)-saidBytes):]
}

func (s *Server) launch() error {
	cmd := s.kind.start(s, s.bin)
	cmd.Args = append(cmd.Args, s.args...)
	s.own(cmd)
	log, err := os.OpenFile(filepath.Join(s.dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd.Stdout, cmd.Stderr = log, log
	if err = cmd.Start(); err != nil {
		return err
	}
	done, unwatch := make(chan struct{}), watch(cmd.Process.Pid, s.dir)
	go func() {
		defer close(done)
		_ = cmd.Wait()
		unwatch()
	}()
	s.cmd, s.done = cmd, done
	return nil
}

func (s *Server) ask(ctx context.Context) error {
	c, err := (&net.Dialer{}).DialContext(ctx, "tcp", s.Addr())
	if err != nil {
		return err
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(2 * time.Second))
	return s.kind.ready(c)
}

// Addr is where the server listens, host and port.
func (s *Server) Addr() string { return fmt.Sprint("127.0.0.1:", s.port) }

// Dir is the server's directory; its data is in "data", what it has said in "log".
func (s *Server) Dir() string { return s.dir }

// URL names a database of the server: for PostgreSQL as its drivers take it ("" is the database postgres), for MariaDB as
// github.com/go-sql-driver/mysql takes it, for Redis its number.
func (s *Server) URL(database string) string { return s.kind.url(s, database) }

// Kill is kill -9 of the server and of what it has started.
func (s *Server) Kill() {
	if s.cmd == nil {
		return
	}
	select {
	case <-s.done: // its number may be another's by now
	default:
		killAll(s.cmd.Process)
		<-s.done
	}
}

// Pause stops the server from running, as a machine that stands still would; Resume lets it go on.
func (s *Server) Pause() { pause(s.cmd.Process) }

// Resume ends a Pause.
func (s *Server) Resume() { resume(s.cmd.Process) }

// End stops the server and removes its directory.
func (s *Server) End() {
	if s.cmd != nil {
		quit(s.cmd.Process) // PostgreSQL then takes its shared memory along
		select {
		case <-s.done:
		case <-time.After(5 * time.Second):
		}
		s.Kill()
	}
	_ = os.RemoveAll(s.dir)
}

func (s *Server) data() string { return filepath.Join(s.dir, "data") }
