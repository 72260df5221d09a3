package journal

import (
	"errors"
	"os"
	"path/filepath"
	"unsafe"

	"golang.org/x/sys/windows"
)

const permsMatter = false // access lists rule, not modes

var errDiskFull = windows.ERROR_DISK_FULL

// syncDir: NTFS logs directory entries itself and has no call for it.
func syncDir(*os.File) error { return nil }

func (f osFile) sync() error          { return f.Sync() }
func (f osFile) allocate(int64) error { return nil }

// standardInfo is FILE_STANDARD_INFO:
// https://learn.microsoft.com/windows/win32/api/winbase/ns-winbase-file_standard_info
type standardInfo struct {
	allocationSize, endOfFile int64
	numberOfLinks             uint32
	deletePending, directory  byte
}

// linked asks, because os.Root opens files so that they can be deleted while they are open.
func (f osFile) linked() (bool, error) {
	info := &f.scratch.info
	err := windows.GetFileInformationByHandleEx(windows.Handle(f.Fd()), windows.FileStandardInfo,
		(*byte)(unsafe.Pointer(info)), uint32(unsafe.Sizeof(*info)))
	if err != nil {
		return false, os.NewSyscallError("GetFileInformationByHandleEx", err)
	}
	return info.numberOfLinks > 0 && info.deletePending == 0, nil
}

func (f osFile) lock() error  { return f.lockEx(windows.LOCKFILE_EXCLUSIVE_LOCK) }
func (f osFile) share() error { return f.lockEx(0) }

// lockedByte lies far beyond the contents: locked bytes cannot be read through other handles.
func lockedByte() *windows.Overlapped { return &windows.Overlapped{OffsetHigh: 1} }

func (f osFile) unlock() error {
	return os.NewSyscallError("UnlockFileEx", windows.UnlockFileEx(windows.Handle(f.Fd()), 0, 1, 0, lockedByte()))
}

func (f osFile) lockEx(how uint32) error {
	err := windows.LockFileEx(windows.Handle(f.Fd()), how|windows.LOCKFILE_FAIL_IMMEDIATELY, 0, 1, 0, lockedByte())
	if errors.Is(err, windows.ERROR_LOCK_VIOLATION) || errors.Is(err, windows.ERROR_IO_PENDING) {
		return errLocked
	}
	return os.NewSyscallError("LockFileEx", err)
}

func networkFS(path string) string {
	root, err := windows.UTF16PtrFromString(filepath.VolumeName(path) + `\`)
	if err == nil && windows.GetDriveType(root) == windows.DRIVE_REMOTE {
		return "network drive"
	}
	return ""
}

// scratch keeps linked from allocating.
type scratch struct{ info standardInfo }
