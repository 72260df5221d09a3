package tool

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/samekey/samekey"
)

// value is one of a policy, as a file would write it, and where it comes from.
type value struct {
	Field string `json:"field"`
	Value string `json:"value"`
	From  string `json:"from"` // one of those below
}

// Where a value comes from.
const (
	fromEndpoint = "endpoint"
	fromDefault  = "default"  // of the file
	fromBuiltIn  = "built in" // or follows from the contract
	fromContract = "contract"
)

// valuesOf lists what p says, which is in force for a method ("": any) by the endpoint's own word, the file's default, and
// what is built in. What only code can set is left out.
func valuesOf(p, endpoint, def samekey.Policy, method string) []value {
	var out []value
	add := func(field, text string, own, inherited reflect.Value) {
		from := fromBuiltIn
		switch {
		case !own.IsZero():
			from = fromEndpoint
		case !inherited.IsZero():
			from = fromDefault
		}
		out = append(out, value{field, text, from})
	}
	own, inherited := reflect.ValueOf(endpoint), reflect.ValueOf(def)
	keyless := p.Contract.Carrier == samekey.NoKey
	for f, v := range reflect.ValueOf(p).Fields() {
		o, i := own.FieldByIndex(f.Index), inherited.FieldByIndex(f.Index)
		switch x := v.Interface().(type) {
		case *samekey.Contract:
			for _, line := range contractLines(*x) {
				add(line[0], line[1], o, i)
			}
		case samekey.Backoff:
			add("Backoff.Min", duration(x.Min), o.FieldByName("Min"), i.FieldByName("Min"))
			add("Backoff.Max", duration(x.Max), o.FieldByName("Max"), i.FieldByName("Max"))
		default:
			if f.Type.Kind() == reflect.Func {
				continue
			}
			text := written(v)
			if f.Name == "Command" && method == "" && o.IsZero() && i.IsZero() {
				text = "true for POST and PATCH"
			}
			add(f.Name, text, o, i)
			if keyless && (f.Name == "RetryStatus" || f.Name == "RetryTransport") {
				out[len(out)-1].From = fromContract
			}
		}
	}
	return out
}

// contractLines tells what of a contract matters to who runs a program.
func contractLines(c samekey.Contract) [][2]string {
	var out [][2]string
	add := func(field, text string) { out = append(out, [2]string{"Contract." + field, text}) }
	if c.Name != "" {
		add("Name", c.Name)
	}
	add("Carrier", c.Carrier.String())
	if c.Carrier == samekey.NoKey || c.Carrier == samekey.Natural {
		return out
	}
	switch c.Life {
	case 0:
		add("Life", "unpublished: nothing is sent again after 1h")
	case samekey.Forever:
		add("Life", "forever")
	default:
		add("Life", duration(c.Life))
	}
	add("MaxLength", strconv.Itoa(c.MaxLength))
	if c.Format != "" {
		add("Format", c.Format)
	}
	add("StoresRejections", strconv.FormatBool(c.StoresRejections))
	meanings := make([]string, 0, len(c.Rules))
	for _, r := range c.Rules {
		meanings = append(meanings, r.Means.String())
	}
	add("Rules", list(meanings))
	if c.Echo != "" {
		add("Echo", c.Echo)
	}
	return out
}

// written is how a policy file writes v, and "none" for an empty list.
func written(v reflect.Value) string {
	switch x := v.Interface().(type) {
	case samekey.Switch:
		return strconv.FormatBool(x == samekey.On)
	case time.Duration:
		return duration(x)
	case float64:
		if x <= 0 {
			return "off"
		}
	case []int:
		var words []string
		for _, n := range x {
			if n == samekey.Any5xx {
				words = append(words, "5xx")
			} else {
				words = append(words, strconv.Itoa(n))
			}
		}
		return list(words)
	case []string:
		return list(x)
	case int64:
		if x >= 1<<10 && x%(1<<10) == 0 {
			return fmt.Sprintf("%d (%s)", x, size(x))
		}
	}
	return fmt.Sprint(v.Interface())
}

func list(words []string) string {
	if len(words) == 0 {
		return "none"
	}
	return strings.Join(words, ", ")
}

// duration writes whole minutes and hours without their zeros.
func duration(d time.Duration) string {
	if d < 0 {
		return "off"
	}
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

func sortedKeys(m map[string]samekey.Policy) []string { return slices.Sorted(maps.Keys(m)) }
