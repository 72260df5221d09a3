package tool

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// holder names the process that holds the journal's lock, where the kernel tells.
func holder(dir string) (process, bool) {
	st, err := os.Stat(filepath.Join(dir, lockFile))
	if err != nil {
		return process{}, false
	}
	sys, ok := st.Sys().(*syscall.Stat_t)
	if !ok {
		return process{}, false
	}
	locks, err := os.ReadFile("/proc/locks")
	if err != nil {
		return process{}, false
	}
	inode := fmt.Sprintf(":%d", sys.Ino)
	device := fmt.Sprintf("%02x:%02x", unix.Major(sys.Dev), unix.Minor(sys.Dev))
	for line := range strings.Lines(string(locks)) {
		f := strings.Fields(line) // 1: FLOCK ADVISORY WRITE 5337 fe:00:9995177 0 EOF
		if len(f) < 6 || f[1] != "FLOCK" || !strings.HasSuffix(f[5], inode) {
			continue
		}
		pid, err := strconv.Atoi(f[4])
		// Some file systems have other device numbers there: then the process itself has to have the file open.
		if err != nil || pid <= 0 || f[5] != device+inode && !hasOpen(pid, st) {
			continue
		}
		p := process{PID: pid}
		if b, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid)); err == nil {
			p.Command = strings.TrimSpace(string(b))
		}
		return p, true
	}
	return process{}, false
}

func hasOpen(pid int, want os.FileInfo) bool {
	fds, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	if err != nil {
		return false
	}
	for _, fd := range fds {
		if st, err := os.Stat(fd); err == nil && os.SameFile(st, want) {
			return true
		}
	}
	return false
}
