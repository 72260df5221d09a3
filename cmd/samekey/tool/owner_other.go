//go:build !unix

package tool

import "os"

// foreign: access lists are inherited from the directory.
func (t *tool) foreign(string, os.FileInfo) error { return nil }
