package servertest

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// PostgreSQL trusts everybody on its port; the user is samekey.
var PostgreSQL = postgreSQL()

func postgreSQL() *Kind {
	return &Kind{
		Name: "postgresql", Package: "postgresql", need: []string{"postgres", "initdb"}, beside: true, unrooted: true,
		look: []string{"/usr/lib/postgresql/*/bin", "/usr/pgsql-*/bin", "/opt/homebrew/opt/postgresql*/bin"},
		init: func(s *Server, bin map[string]string) *exec.Cmd {
			return exec.Command(bin["initdb"], "-D", s.data(), "-A", "trust", "-U", "samekey", "-E", "UTF8", "--locale=C", "--no-sync")
		},
		followBy: "pg_basebackup",
		follow: func(s, primary *Server, bin map[string]string) *exec.Cmd {
			return exec.Command(bin["pg_basebackup"], "-h", "127.0.0.1", "-p", fmt.Sprint(primary.port), "-U", "samekey", "-D", s.data(),
				"--write-recovery-conf", "--wal-method=stream", "--checkpoint=fast", "--no-sync")
		},
		start: func(s *Server, bin map[string]string) *exec.Cmd {
			return exec.Command(bin["postgres"], "-D", s.data(), "-p", fmt.Sprint(s.port),
				"-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories=", "-c", "max_connections=400",
				"-c", "logging_collector=off", "-c", "dynamic_shared_memory_type=mmap")
		},
		ready: func(c net.Conn) error {
			const hello = "\x00\x03\x00\x00user\x00samekey\x00database\x00postgres\x00\x00" // protocol 3.0
			if _, err := c.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(hello)+4)), hello...)); err != nil {
				return err
			}
			return expect(c, "R") // authentication; E is an error: it is starting up
		},
		url: func(s *Server, database string) string {
			if database == "" {
				database = "postgres"
			}
			return fmt.Sprintf("postgres://samekey@%s/%s?sslmode=disable&connect_timeout=5", s.Addr(), database)
		},
	}
}

// MariaDB has the user root, without a password.
var MariaDB = mariaDB()

func mariaDB() *Kind {
	return &Kind{
		Name: "mariadb", Package: "mariadb-server", need: []string{"mariadbd", "mariadb-install-db"}, look: []string{"/usr/sbin", "/usr/libexec"},
		init: func(s *Server, bin map[string]string) *exec.Cmd {
			return exec.Command(bin["mariadb-install-db"], append(mariaUser(), "--no-defaults", "--datadir="+s.data(),
				"--auth-root-authentication-method=normal", "--skip-test-db", "--skip-name-resolve")...)
		},
		start: func(s *Server, bin map[string]string) *exec.Cmd {
			return exec.Command(bin["mariadbd"], append([]string{"--no-defaults"}, append(mariaUser(), "--datadir="+s.data(),
				"--bind-address=127.0.0.1", fmt.Sprint("--port=", s.port), "--socket="+filepath.Join(s.dir, "s"), "--skip-name-resolve",
				"--max-connections=400", "--innodb-buffer-pool-size=64M", "--max-allowed-packet=64M")...)...)
		},
		ready: func(c net.Conn) error {
			if _, err := io.CopyN(io.Discard, c, 4); err != nil { // length and number of its greeting
				return err
			}
			return expect(c, "\x0a") // the protocol's version; 255 is an error
		},
		url: func(s *Server, database string) string {
			return fmt.Sprintf("root@tcp(%s)/%s?timeout=5s", s.Addr(), database)
		},
	}
}

func mariaUser() []string {
	if os.Getuid() == 0 {
		return []string{"--user=root"}
	}
	return nil
}

// Redis keeps an append-only file that is synced before each answer.
var Redis = redis()

func redis() *Kind {
	return &Kind{
		Name: "redis", Package: "redis-server", need: []string{"redis-server"},
		start: func(s *Server, bin map[string]string) *exec.Cmd {
			_ = os.MkdirAll(s.data(), 0o700)
			return exec.Command(bin["redis-server"], "--port", fmt.Sprint(s.port), "--bind", "127.0.0.1", "--dir", s.data(),
				"--save", "", "--appendonly", "yes", "--appendfsync", "always")
		},
		ready: func(c net.Conn) error {
			if _, err := io.WriteString(c, "PING\r\n"); err != nil {
				return err
			}
			return expect(c, "+PONG") // or -LOADING
		},
		url: func(s *Server, database string) string {
			return strings.TrimSuffix("redis://"+s.Addr()+"/"+database, "/")
		},
	}
}

func expect(r io.Reader, want string) error {
	got := make([]byte, len(want))
	if _, err := io.ReadFull(r, got); err != nil {
		return err
	}
	if string(got) != want {
		return fmt.Errorf("it answers %q", got)
	}
	return nil
}
