package journal

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// sync leaves out the times of the file: in prewritten space a flush then commits no metadata.
func (f osFile) sync() error {
	for {
		err := unix.Fdatasync(int(f.Fd()))
		if err == nil || !errors.Is(err, unix.EINTR) {
			return os.NewSyscallError("fdatasync", err)
		}
	}
}

func (f osFile) allocate(size int64) error {
	err := unix.Fallocate(int(f.Fd()), 0, 0, size)
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EINTR) {
		return nil // writing zeros finds out
	}
	return os.NewSyscallError("fallocate", err)
}

// networkFS names the network file system that path lies on, if it does.
func networkFS(path string) string {
	var st unix.Statfs_t
	if unix.Statfs(path, &st) != nil {
		return ""
	}
	switch uint32(st.Type) {
	case unix.NFS_SUPER_MAGIC:
		return "nfs"
	case unix.SMB_SUPER_MAGIC, unix.SMB2_SUPER_MAGIC, unix.CIFS_SUPER_MAGIC:
		return "smb"
	case unix.AFS_SUPER_MAGIC, unix.AFS_FS_MAGIC:
		return "afs"
	case unix.CEPH_SUPER_MAGIC:
		return "ceph"
	case unix.CODA_SUPER_MAGIC:
		return "coda"
	case unix.NCP_SUPER_MAGIC:
		return "ncp"
	case unix.V9FS_MAGIC:
		return "9p"
	case unix.OCFS2_SUPER_MAGIC:
		return "ocfs2"
	}
	return ""
}
