// Package brief shortens what logs and error texts may not hold as a whole.
package brief

import "strings"

// ID is an operation's ID as texts may hold it: one that looks like a key of samekey's own (UUID, ULID) is taken for the
// key, perhaps a former one, of an operation without a name, and shortened.
func ID(id string) string {
	dashes := strings.Count(id, "-")
	uuid := len(id) == 36 && dashes == 4 && id[8] == '-' && id[13] == '-' && id[18] == '-' && id[23] == '-'
	ulid := len(id) == 26 && dashes == 0
	if !uuid && !ulid || strings.Trim(id, "-0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ") != "" {
		return id
	}
	return Key(id)
}

// Key shows enough of a key to find it in a log, and too little to send it.
func Key(k string) string {
	if len(k) <= 12 {
		return k[:min(len(k), 4)] + "…"
	}
	return k[:8] + "…" + k[len(k)-4:]
}
