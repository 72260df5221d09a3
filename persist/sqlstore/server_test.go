package sqlstore

import (
	"context"
	"flag"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// server is a database server of the test's own, in a directory of its own, that may be killed and started again. It
// speaks on a loopback port. What starts one kind of server is a recipe.
type server struct {
	recipe
	dir  string
	port int
	cmd  *exec.Cmd
	done chan error
}

// recipe says how to start one kind of server.
type recipe struct {
	name    string
	install string   // what brings the binaries
	look    []string // paths to look for them, patterns; PATH comes first
	need    []string // the binaries, the server first
	init    func(s *server, bin map[string]string) *exec.Cmd
	start   func(s *server, bin map[string]string) *exec.Cmd
	ready   func(ctx context.Context, s *server) error
}

// find returns the binaries by name. Without them the test is skipped, or fails where SAMEKEY_REQUIRE_SERVICES is 1.
func (r recipe) find(t testing.TB) map[string]string {
	t.Helper()
	if !canServe {
		t.Skipf("%s: no private servers on this system", r.name)
	}
	bin := map[string]string{}
	for _, name := range r.need {
		path, err := exec.LookPath(name)
		if err == nil {
			path, err = filepath.EvalSymlinks(path) // PostgreSQL looks for its own files beside the binary
		}
		for _, pattern := range r.look {
			if found, _ := filepath.Glob(filepath.Join(pattern, name)); err != nil && len(found) > 0 {
				path, err = found[len(found)-1], nil
			}
		}
		if err != nil {
			line := fmt.Sprintf("%s: %s is not installed: apt-get install %s", r.name, name, r.install)
			if os.Getenv("SAMEKEY_REQUIRE_SERVICES") == "1" {
				t.Fatal(line)
			}
			t.Skip(line)
		}
		bin[name] = path
	}
	return bin
}

// serve makes a directory, lets the recipe fill it, and starts the server; end stops it and removes the directory.
func (r recipe) serve(t testing.TB) (s *server, end func()) {
	t.Helper()
	bin := r.find(t)
	dir, err := os.MkdirTemp(scratch(), "samekey-"+r.name+"-")
	if err == nil {
		err = giveAway(dir)
	}
	if err != nil {
		t.Fatal(err)
	}
	s = &server{recipe: r, dir: dir}
	end = func() {
		if s.cmd != nil {
			quit(s.cmd.Process) // PostgreSQL then takes its shared memory along
			select {
			case err := <-s.done:
				s.done <- err
			case <-time.After(5 * time.Second):
			}
		}
		s.kill()
		_ = os.RemoveAll(dir)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s.port = l.Addr().(*net.TCPAddr).Port // free a moment ago; a restart keeps it
	_ = l.Close()
	cmd := r.init(s, bin)
	asServer(cmd, dir)
	if out, err := cmd.CombinedOutput(); err != nil {
		end()
		t.Fatalf("%s: %v\n%s", cmd, err, out)
	}
	s.run(t)
	return s, end
}

// scratch is where data goes: to memory if there is such a place, since no test here takes the power away, and a busy
// disk would upset the rules about time; benchmarks, and whoever sets TMPDIR, want a disk.
func scratch() string {
	if info, err := os.Stat("/dev/shm"); err != nil || !info.IsDir() || os.Getenv("TMPDIR") != "" || flag.Lookup("test.bench").Value.String() != "" {
		return ""
	}
	return "/dev/shm"
}

// run starts the server, for the first time or after kill, and waits until it answers.
func (s *server) run(t testing.TB) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	bin := s.find(t)
	for {
		cmd := s.start(s, bin)
		asServer(cmd, s.dir)
		log, err := os.OpenFile(filepath.Join(s.dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		cmd.Stdout, cmd.Stderr = log, log
		err = cmd.Start()
		_ = log.Close()
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 1)
		go func() { done <- cmd.Wait() }()
		watch(cmd.Process.Pid)
		s.cmd, s.done = cmd, done
		for ctx.Err() == nil {
			select {
			case err = <-done: // what the last life left is not gone yet
				done <- err
				time.Sleep(100 * time.Millisecond)
			case <-time.After(50 * time.Millisecond):
				if err = s.ready(ctx, s); err == nil {
					return
				}
				continue
			}
			break
		}
		if ctx.Err() != nil {
			out, _ := os.ReadFile(filepath.Join(s.dir, "log"))
			t.Fatalf("%s does not start: %v\n%s", s.name, err, out)
		}
	}
}

// kill is kill -9 of the server and what it has started.
func (s *server) kill() {
	if s.cmd == nil {
		return
	}
	killAll(s.cmd.Process.Pid)
	err := <-s.done
	s.done <- err
}

// sharedServer starts one for all tests that do it no harm. TestMain ends it.
type sharedServer struct {
	recipe
	s   *server
	end func()
}

func (h *sharedServer) get(t testing.TB) *server {
	t.Helper()
	h.find(t)
	starting <- struct{}{}
	defer func() { <-starting }()
	if h.s == nil {
		h.s, h.end = h.serve(t)
	}
	return h.s
}

var (
	starting = make(chan struct{}, 1)

	sharedPostgreSQL = &sharedServer{recipe: postgreSQL}
	sharedMariaDB    = &sharedServer{recipe: mariaDB}
)

var postgreSQL = recipe{
	name: "postgresql", install: "postgresql", need: []string{"postgres", "initdb"},
	look: []string{"/usr/lib/postgresql/*/bin", "/usr/pgsql-*/bin", "/opt/homebrew/opt/postgresql*/bin"},
	init: func(s *server, bin map[string]string) *exec.Cmd {
		return exec.Command(bin["initdb"], "-D", filepath.Join(s.dir, "data"), "-A", "trust", "-U", "samekey", "-E", "UTF8", "--locale=C", "--no-sync")
	},
	start: func(s *server, bin map[string]string) *exec.Cmd {
		return exec.Command(bin["postgres"], "-D", filepath.Join(s.dir, "data"), "-p", fmt.Sprint(s.port),
			"-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories=", "-c", "max_connections=400",
			"-c", "logging_collector=off", "-c", "dynamic_shared_memory_type=mmap")
	},
	ready: func(ctx context.Context, s *server) error { return ping(ctx, "pgx", s.postgresDSN("postgres")) },
}

var mariaDB = recipe{
	name: "mariadb", install: "mariadb-server", need: []string{"mariadbd", "mariadb-install-db"}, look: []string{"/usr/sbin", "/usr/libexec"},
	init: func(s *server, bin map[string]string) *exec.Cmd {
		return exec.Command(bin["mariadb-install-db"], append(mariaUser(), "--no-defaults", "--datadir="+filepath.Join(s.dir, "data"),
			"--auth-root-authentication-method=normal", "--skip-test-db", "--skip-name-resolve")...)
	},
	start: func(s *server, bin map[string]string) *exec.Cmd {
		return exec.Command(bin["mariadbd"], append([]string{"--no-defaults"}, append(mariaUser(), "--datadir="+filepath.Join(s.dir, "data"),
			"--bind-address=127.0.0.1", fmt.Sprint("--port=", s.port), "--socket="+filepath.Join(s.dir, "s"), "--skip-name-resolve",
			"--max-connections=400", "--innodb-buffer-pool-size=64M", "--max-allowed-packet=64M")...)...)
	},
	ready: func(ctx context.Context, s *server) error { return ping(ctx, "mysql", s.mariaDSN("")) },
}

func mariaUser() []string {
	if os.Getuid() == 0 {
		return []string{"--user=root"}
	}
	return nil
}

func (s *server) postgresDSN(db string) string {
	return fmt.Sprintf("postgres://samekey@127.0.0.1:%d/%s?sslmode=disable&connect_timeout=5", s.port, db)
}

func (s *server) mariaDSN(db string) string {
	return fmt.Sprintf("root@tcp(127.0.0.1:%d)/%s?timeout=5s", s.port, db)
}
