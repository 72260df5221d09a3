//go:build unix

package sqlstore

import (
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"strconv"
	"strings"
	"sync"
	"syscall"
)

const canServe = true

// serverUser is who runs servers where the test is root, which PostgreSQL refuses to be; nil: nobody else.
func serverUser() *syscall.Credential {
	if os.Getuid() != 0 {
		return nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, _ := strconv.ParseUint(u.Uid, 10, 32)
		gid, _ := strconv.ParseUint(u.Gid, 10, 32)
		return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
	}
	return nil
}

func giveAway(dir string) error {
	if c := serverUser(); c != nil {
		return os.Chown(dir, int(c.Uid), int(c.Gid))
	}
	return nil
}

func asServer(cmd *exec.Cmd, dir string) {
	cmd.Dir = dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if c := serverUser(); c != nil && !strings.Contains(cmd.Path, "mariadb") {
		cmd.SysProcAttr.Credential = c
	}
}

// killAll kills pid and its children; PostgreSQL's are in groups of their own, and may outlive their parent for a moment
// in which a restart finds the data in use.
func killAll(pid int) {
	children, _ := exec.Command("ps", "-o", "pid=", "--ppid", fmt.Sprint(pid)).Output()
	_ = syscall.Kill(pid, syscall.SIGKILL)
	for f := range strings.FieldsSeq(string(children)) {
		if child, err := strconv.Atoi(f); err == nil {
			_ = syscall.Kill(child, syscall.SIGKILL)
		}
	}
}

var pipes sync.Map

// watch kills pid once the test process is gone, however it went: then the pipe ends.
func watch(pid int) {
	cmd := exec.Command("sh", "-c", fmt.Sprintf("cat >/dev/null; kill -9 %d 2>/dev/null", pid))
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	pipe, err := cmd.StdinPipe()
	if err == nil && cmd.Start() == nil {
		pipes.Store(pid, pipe) // open until the process ends
	}
}

func quit(p *os.Process)   { _ = p.Signal(syscall.SIGQUIT) }
func pause(p *os.Process)  { _ = p.Signal(syscall.SIGSTOP) }
func resume(p *os.Process) { _ = p.Signal(syscall.SIGCONT) }
