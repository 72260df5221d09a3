//go:build darwin || freebsd

package journal

import "golang.org/x/sys/unix"

func networkFS(path string) string {
	var st unix.Statfs_t
	if unix.Statfs(path, &st) == nil && st.Flags&unix.MNT_LOCAL == 0 {
		return "not local"
	}
	return ""
}
