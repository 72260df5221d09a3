//go:build !linux

package samekey_test

import "errors"

var errNotHere = errors.New("written for Linux")

func limitFileSize() error               { return errNotHere }
func mountTmpfs(string, string) error    { return errNotHere }
func remount(string, bool, string) error { return errNotHere }
func unmount(string) error               { return errNotHere }
