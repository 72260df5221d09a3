package main

import (
	"errors"
	"fmt"
	"os"
	"syscall"
)

// fdatasync leaves out the times of the file, like the journal does.
func fdatasync(f *os.File) error {
	for {
		if err := syscall.Fdatasync(int(f.Fd())); !errors.Is(err, syscall.EINTR) {
			return err
		}
	}
}

// fsOf names the file system of dir.
func fsOf(dir string) string {
	var st syscall.Statfs_t
	if err := syscall.Statfs(dir, &st); err != nil {
		return "unknown"
	}
	kind := uint32(st.Type)
	if name, ok := map[uint32]string{
		0xef53: "ext4", 0x58465342: "xfs", 0x9123683e: "btrfs", 0x2fc12fc1: "zfs", 0xf2f52010: "f2fs",
		0x01021994: "tmpfs", 0x794c7630: "overlayfs", 0x6969: "nfs", 0xca451a4e: "bcachefs",
	}[kind]; ok {
		return name
	}
	return fmt.Sprintf("%#x", kind)
}
