package tool

import "fmt"

// process holds a journal.
type process struct {
	PID     int    `json:"pid"`
	Command string `json:"command,omitempty"`
}

func (p process) String() string {
	if p.Command == "" {
		return fmt.Sprintf("process %d", p.PID)
	}
	return fmt.Sprintf("process %d (%s)", p.PID, clean(p.Command))
}
