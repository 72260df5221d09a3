//go:build !unix

package servertest

import (
	"os"
	"os/exec"
)

const canServe = false

func giveAway(string) error            { return nil }
func asServer(*exec.Cmd, string, bool) {}
func killAll(*os.Process)              {}
func watch(int, string) func()         { return func() {} }
func quit(*os.Process)                 {}
func pause(*os.Process)                {}
func resume(*os.Process)               {}
