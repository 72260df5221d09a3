package persisttest

import (
	"testing"
	"time"

	"github.com/samekey/samekey/persist"
	"github.com/samekey/samekey/persist/memory"
)

// inMemory is the harness of package memory, or of what wrap makes of it.
func inMemory(wrap func(persist.Store) persist.Store) Harness {
	return Harness{
		New: func(testing.TB) func() (persist.Store, error) {
			return func() (persist.Store, error) { return wrap(memory.New()), nil }
		},
		Bubble: true,
	}
}

// TestRealTime: the rules about time hold without bubbles too, as stores that talk to a socket need them. Package
// memory's own test runs the suite in bubbles.
func TestRealTime(t *testing.T) {
	h := inMemory(func(s persist.Store) persist.Store { return s })
	h.Bubble = false
	Run(t, h)
}

// TestDisk: the rules for durable and shared stores can be kept, with leases and without.
func TestDisk(t *testing.T) {
	t.Run("locks", func(t *testing.T) { Run(t, onDisk(0, "")) })
	t.Run("leases", func(t *testing.T) { Run(t, onDisk(10*time.Second, "")) })
}
