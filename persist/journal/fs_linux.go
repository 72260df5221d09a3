package journal

import (
	"errors"
	"os"
	"unsafe"

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

// linked asks for the number of names and for nothing else: whoever asks for a file's times makes the kernel give its next
// write a time of its own, and ext4 then writes the inode with every flush.
func (f osFile) linked() (bool, error) {
	st := f.scratch
	// Not unix.Statx, which allocates: this is asked twice for each flush.
	_, _, errno := unix.Syscall6(unix.SYS_STATX, f.Fd(), uintptr(unsafe.Pointer(&noName)), unix.AT_EMPTY_PATH|unix.AT_STATX_DONT_SYNC,
		unix.STATX_NLINK, uintptr(unsafe.Pointer(st)), 0)
	if errno == unix.ENOSYS || errno == unix.EPERM { // an old kernel, or an old sandbox
		var old unix.Stat_t
		if err := unix.Fstat(int(f.Fd()), &old); err != nil {
			return false, os.NewSyscallError("fstat", err)
		}
		return old.Nlink > 0, nil
	}
	if errno != 0 {
		return false, os.NewSyscallError("statx", errno)
	}
	return st.Nlink > 0, nil
}

// scratch is where the kernel answers; each file has one, and one goroutine at a time that asks.
type scratch = unix.Statx_t

var noName byte

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
