//go:build unix

package tool

import (
	"os"
	"os/user"
	"strconv"
	"syscall"
)

// foreign refuses to write into another user's journal: the files that it makes would lock that user out of it.
func (t *tool) foreign(dir string, st os.FileInfo) error {
	sys, ok := st.Sys().(*syscall.Stat_t)
	if !ok || int(sys.Uid) == os.Geteuid() {
		return nil
	}
	uid := strconv.Itoa(int(sys.Uid))
	who, as := "uid "+uid, "'#"+uid+"'"
	if u, err := user.LookupId(uid); err == nil {
		who, as = "user "+u.Username, u.Username
	}
	return bad("%s belongs to %s, who could not open what another user writes there: sudo -u %s %s ...", dir, who, as, t.Name)
}
