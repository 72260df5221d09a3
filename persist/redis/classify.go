package redis

import (
	"errors"
	"net"
	"regexp"
	"strconv"
	"strings"

	goredis "github.com/redis/go-redis/v9"
)

// fate is what an error says about the script.
type fate uint8

const (
	unknown fate = iota // it may have run: the connection was lost, or the context ended, or nobody knows what it says
	failed              // it has changed nothing, and the next try would fail as well
	again               // it has changed nothing, and the next try may succeed
	unsent              // it has changed nothing: no byte has left
)

// refusals are the errors by which a server says, before a script's first write, that it cannot run it now.
var refusals = []string{
	"LOADING", "READONLY", "MASTERDOWN", "NOREPLICAS", "MISCONF", "BUSY", "CLUSTERDOWN", "TRYAGAIN", "MOVED", "ASK",
}

// verdicts and complaints are the errors by which a server says that a script has not run, or has failed before its first
// write. Any other may be that of a proxy in front of it, which has lost the answer.
var (
	verdicts   = []string{"NOPERM", "NOAUTH", "WRONGPASS", "WRONGTYPE", "NOSCRIPT", "CROSSSLOT"}
	complaints = []string{"unknown command", "user_script", "Error running script", "Error compiling script"}
)

func fateOf(err error) fate {
	var dial *net.OpError
	switch {
	case errors.Is(err, goredis.ErrClosed): // by the caller
		return failed
	case errors.Is(err, goredis.ErrPoolTimeout), errors.Is(err, goredis.ErrPoolExhausted):
		return unsent
	case errors.As(err, &dial) && dial.Op == "dial":
		return unsent
	case errors.Is(err, errEncoding), errors.Is(err, errVoid): // our own
		return failed
	}
	if !serverSays(err) {
		return unknown
	}
	if full(err) {
		return failed
	}
	for _, code := range refusals {
		if says(err, code) {
			return again
		}
	}
	if strings.Contains(err.Error(), "max number of clients") {
		return again
	}
	for _, code := range verdicts {
		if says(err, code) {
			return failed
		}
	}
	for _, part := range complaints {
		if strings.Contains(err.Error(), part) {
			return failed
		}
	}
	return unknown
}

func serverSays(err error) bool {
	var e goredis.Error
	return errors.As(err, &e)
}

// says reports whether the server's error is of the class code, also where it wraps that of a command within a script,
// as Redis 6 does.
func says(err error, code string) bool {
	s := err.Error()
	return goredis.HasErrorPrefix(err, code+" ") || strings.Contains(s, "-"+code+" ")
}

// full tells errors of a server that has no room, in memory or on its disk.
func full(err error) bool {
	return says(err, "OOM") || says(err, "MISCONF") && strings.Contains(err.Error(), "No space left")
}

var misfit = regexp.MustCompile(`samekey-format (\d*) (\S+)`)

// named makes a FormatError of what a script says of a key that is not what it should be.
func named(err error) error {
	m := misfit.FindStringSubmatch(err.Error())
	if m == nil {
		return err
	}
	have, _ := strconv.Atoi(m[1])
	return &FormatError{Key: m[2], Have: have, Want: format}
}
