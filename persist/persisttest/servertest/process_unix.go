//go:build unix

package servertest

import (
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"strconv"
	"strings"
	"syscall"
)

const canServe = true

// unrootedUser is who runs servers that refuse to be root, where we are; nil: nobody else.
func unrootedUser() *syscall.Credential {
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
	if c := unrootedUser(); c != nil {
		return os.Chown(dir, int(c.Uid), int(c.Gid))
	}
	return nil
}

func asServer(cmd *exec.Cmd, dir string, unrooted bool) {
	cmd.Dir = dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if c := unrootedUser(); c != nil && unrooted {
		cmd.SysProcAttr.Credential = c
	}
}

// killAll kills p and its children; PostgreSQL's are in groups of their own, and may outlive their parent for a moment
// in which a restart finds the data in use.
func killAll(p *os.Process) {
	if p == nil {
		return
	}
	signalAll(p, syscall.SIGKILL)
}

// signalAll signals p and its children.
func signalAll(p *os.Process, s syscall.Signal) {
	children, _ := exec.Command("ps", "-o", "pid=", "--ppid", fmt.Sprint(p.Pid)).Output()
	_ = p.Signal(s)
	for f := range strings.FieldsSeq(string(children)) {
		if child, err := strconv.Atoi(f); err == nil {
			_ = syscall.Kill(child, s)
		}
	}
}

// watch kills pid and removes dir once this process is gone, however it went: then the pipe ends. Once pid has ended,
// unwatch is to be called: its number may come to be another's.
func watch(pid int, dir string) (unwatch func()) {
	cmd := exec.Command("sh", "-c", `cat >/dev/null; kill -9 "$0" 2>/dev/null; sleep 1; rm -rf "$1"`, fmt.Sprint(pid), dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if _, err := cmd.StdinPipe(); err != nil || cmd.Start() != nil {
		return func() {}
	}
	return func() { // cmd keeps the pipe open until then
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		_ = cmd.Wait()
	}
}

func quit(p *os.Process)   { _ = p.Signal(syscall.SIGQUIT) }
func pause(p *os.Process)  { signalAll(p, syscall.SIGSTOP) }
func resume(p *os.Process) { signalAll(p, syscall.SIGCONT) }
