package contracts_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/samekey/samekey"
)

// mutant is a contract with one thing changed.
type mutant struct {
	what     string
	contract samekey.Contract
}

// mutants are what a contract could be by mistake: each rule left out, or changed in each of its fields, and each other
// field changed that answers are judged by.
func mutants(con samekey.Contract) (all []mutant) {
	add := func(what string, change func(c *samekey.Contract)) {
		c := con
		c.Rules = slices.Clone(con.Rules)
		change(&c)
		all = append(all, mutant{what, c})
	}
	for i, r := range con.Rules {
		rule := func(what string, change func(r *samekey.Rule)) {
			add(fmt.Sprintf("Rules[%d] %s", i, what), func(c *samekey.Contract) { change(&c.Rules[i]) })
		}
		add(fmt.Sprintf("Rules[%d] left out", i), func(c *samekey.Contract) { c.Rules = slices.Delete(c.Rules, i, i+1) })
		for m := samekey.MeansSucceeded; m <= samekey.MeansProcessing; m++ {
			if m != r.Means && (m != samekey.MeansUncertain || !slices.Contains(r.If.Status, 409)) { // which New refuses
				rule(fmt.Sprintf("Means: %d", m), func(r *samekey.Rule) { r.Means = m })
			}
		}
		for _, m := range conditions(r.If) {
			rule("If: "+m.what, func(r *samekey.Rule) { r.If = m.match })
		}
		if r.Link != "" {
			rule("Link: none", func(r *samekey.Rule) { r.Link = "" })
			rule("Link: elsewhere", func(r *samekey.Rule) { r.Link += "/0" })
		}
	}
	if con.Carrier != samekey.NoKey && con.Carrier != samekey.Natural {
		add("Carrier", func(c *samekey.Contract) { c.Carrier = samekey.Header("X-Key") })
		add("MaxLength above", func(c *samekey.Contract) { c.MaxLength, c.Format = max(c.MaxLength, 255)+1, "" })
		if con.MaxLength > len(key) { // else New refuses it, as UUIDs do not fit
			add("MaxLength below", func(c *samekey.Contract) { c.MaxLength-- })
		}
		add("Life", func(c *samekey.Contract) { c.Life = 25 * time.Hour })
	}
	if con.Carrier != samekey.NoKey { // whose operations are never sent twice
		add("StoresRejections", func(c *samekey.Contract) { c.StoresRejections = !c.StoresRejections })
	}
	if con.Format != "" {
		add("Format", func(c *samekey.Contract) { c.Format = "" })
	}
	if con.Replayed.Header != "" {
		add("Replayed: nothing", func(c *samekey.Contract) { c.Replayed = samekey.Match{} })
	}
	if con.Echo != "" {
		add("Echo", func(c *samekey.Contract) { c.Echo = "" })
	}
	if con.RetryHint != "" {
		add("RetryHint", func(c *samekey.Contract) { c.RetryHint = "" })
	}
	if con.Poll.Resend {
		add("Poll.Resend", func(c *samekey.Contract) { c.Poll.Resend = false })
	}
	return all
}

type condition struct {
	what  string
	match samekey.Match
}

// conditions are m with one field that asks for something else, or for nothing where another still asks.
func conditions(m samekey.Match) (all []condition) {
	add := func(what string, change func(m *samekey.Match)) {
		c := m
		c.Status, c.Values = slices.Clone(m.Status), slices.Clone(m.Values)
		change(&c)
		if len(c.Status) > 0 || c.Header != "" || c.Pointer != "" || c.Contains != "" { // New refuses the empty one
			all = append(all, condition{what, c})
		}
	}
	for i := range m.Status {
		add("another Status", func(m *samekey.Match) { m.Status[i] = 418 })
	}
	if m.Header != "" {
		add("another Header", func(m *samekey.Match) { m.Header = "X-Other" })
		add("no Header", func(m *samekey.Match) { m.Header, m.Values = "", nil })
	}
	if m.Pointer != "" {
		add("another Pointer", func(m *samekey.Match) { m.Pointer += "/0" })
		add("no Pointer", func(m *samekey.Match) { m.Pointer, m.Values = "", nil })
	}
	if m.Contains != "" {
		add("another text", func(m *samekey.Match) { m.Contains += "?" })
		add("any text", func(m *samekey.Match) { m.Contains = "" })
	}
	if len(m.Status) > 0 {
		add("any Status", func(m *samekey.Match) { m.Status = nil })
	}
	if len(m.Values) > 0 {
		add("another value", func(m *samekey.Match) { m.Values[0] += "?" })
		add("any value", func(m *samekey.Match) { m.Values = nil })
	}
	return all
}

// A contract with any one rule missing or changed does not mean what is documented: some row of the table fails.
func TestEveryRuleCounts(t *testing.T) {
	total, seen := 0, map[string]bool{}
	for _, a := range apis() {
		changed := mutants(a.contract)
		// Rules that are another contract's too, and held against the same answers, are changed once.
		if rules := fmt.Sprint(a.file(), a.contract.Rules); seen[rules] {
			con := a.contract
			con.Rules = nil
			changed = mutants(con)
			for i := range changed {
				changed[i].contract.Rules = a.contract.Rules
			}
		} else {
			seen[rules] = true
			require.GreaterOrEqual(t, len(changed), 10*len(a.contract.Rules), a.contract.Name)
		}
		total += len(changed)
		t.Run(a.contract.Name, func(t *testing.T) {
			t.Parallel()
			all := readAnswers(t, a.file())
			require.False(t, a.fails(t, all, a.contract), "unchanged")
			for _, m := range changed {
				if !a.fails(t, all, m.contract) {
					t.Errorf("nothing fails with %s", m.what)
				}
			}
		})
	}
	t.Logf("%d changed contracts", total)
}

// fails says whether anything of the table fails with a contract that New takes.
func (a api) fails(t *testing.T, all answers, con samekey.Contract) bool {
	c, err := newClient(con, samekey.UUIDv4, false)
	require.NoError(t, err, "a contract that New refuses shows nothing of the table")
	require.NoError(t, c.close())
	if a.fits(t, con) != nil {
		return true
	}
	for _, r := range slices.Backward(a.rows) { // what is special to the API comes last in the table
		if a.check(t, all, r, con) != nil {
			return true
		}
	}
	return false
}
