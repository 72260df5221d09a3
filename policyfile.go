package samekey

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
)

// LoadPolicies reads Config.Default and Config.Endpoints from a JSON file:
//
//	{
//	  "Default":   {"AttemptTimeout": "5s"},
//	  "Endpoints": {
//	    "POST api.bank.test/v1/payments": {"MaxAttempts": 6, "RetryStatus": [408, 429, "5xx"]},
//	    "POST api.old.test/":             {"Contract": {"Carrier": "none"}},
//	    "POST api.pay.test/v1/charges":   {"Contract": "stripe-v1"}
//	  }
//	}
//
// Names are those of the Go fields; durations are written as 5s or "off", a Switch as true or false, key formats as
// UUIDv4 or ULID, a carrier as "header Idempotency-Key", "quoted header Idempotency-Key", "body /requestId",
// "query requestId", "form requestId", "repeatability", "natural" or "none". A contract is written out, or named:
// "default", or the Name of one of contracts. A member $schema, by which editors find the JSON Schema of these files
// (samekey policy -schema prints it), is passed over. What a file cannot say (Decide, a KeyFunc) is set on the result.
// Errors are *PolicyFileError, all of them joined; what the values mean together is [New]'s to check.
func LoadPolicies(fsys fs.FS, name string, contracts ...Contract) (def Policy, endpoints map[string]Policy, err error) {
	if !fs.ValidPath(name) {
		return Policy{}, nil, fmt.Errorf("samekey: policy file %q: name it by a slash-separated path below the fs.FS, without . and .., as in os.DirFS(dir)", name)
	}
	data, err := fs.ReadFile(fsys, name)
	if err != nil {
		return Policy{}, nil, fmt.Errorf("samekey: policy file: %w", err)
	}
	return ParsePolicies(name, data, contracts...)
}

// ParsePolicies is LoadPolicies for a file that has been read; name is for its errors.
func ParsePolicies(name string, data []byte, contracts ...Contract) (def Policy, endpoints map[string]Policy, err error) {
	r := &policyReader{file: name, data: data, dec: json.NewDecoder(bytes.NewReader(data)), contracts: map[string]*Contract{}}
	r.dec.UseNumber()
	for _, c := range append([]Contract{DefaultContract}, contracts...) {
		r.contracts[c.Name] = &c
	}
	var file struct {
		Default   Policy
		Endpoints map[string]Policy
	}
	if r.value(reflect.ValueOf(&file).Elem(), "") {
		if _, err := r.dec.Token(); !errors.Is(err, io.EOF) {
			r.bad("", "something follows the end of the document")
		}
	}
	if err := errors.Join(r.errs...); err != nil {
		return Policy{}, nil, err
	}
	return file.Default, file.Endpoints, nil
}

// PolicyFileError names what in a policy file cannot be read, and where. Matches ErrPolicy.
type PolicyFileError struct {
	File  string
	Line  int    // from 1
	Field string // "Endpoints.POST api.test/.MaxAttempts"
	Why   string
}

func (e *PolicyFileError) Error() string {
	where := e.Field
	if where != "" {
		where += ": "
	}
	return fmt.Sprintf("samekey: %s:%d: %s%s", e.File, e.Line, where, e.Why)
}

// Is matches ErrPolicy.
func (e *PolicyFileError) Is(target error) bool { return target == ErrPolicy }

// policyReader reads values as their types say, token by token, so that every error has its line.
type policyReader struct {
	file      string
	data      []byte
	dec       *json.Decoder
	contracts map[string]*Contract
	errs      []error
}

func (r *policyReader) bad(field, format string, args ...any) {
	line := 1 + bytes.Count(r.data[:r.dec.InputOffset()], []byte("\n"))
	r.errs = append(r.errs, &PolicyFileError{File: r.file, Line: line, Field: field, Why: fmt.Sprintf(format, args...)})
}

// value reads the next value into v; false if the document cannot be read on.
func (r *policyReader) value(v reflect.Value, field string) bool {
	tok, ok := r.next(field)
	return ok && r.token(tok, v, field)
}

// next is the next token; false if there is none.
func (r *policyReader) next(field string) (json.Token, bool) {
	tok, err := r.dec.Token()
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		r.bad(field, "%v", err)
	}
	return tok, err == nil
}

func (r *policyReader) token(tok json.Token, v reflect.Value, field string) bool {
	delim, nested := tok.(json.Delim)
	switch {
	case nested && v.Kind() == reflect.Pointer && delim == '{':
		v.Set(reflect.New(v.Type().Elem()))
		return r.object(v.Elem(), field)
	case nested && v.Kind() == reflect.Struct && delim == '{' && v.Type() != reflect.TypeFor[Carrier](),
		nested && v.Kind() == reflect.Map && delim == '{':
		return r.object(v, field)
	case nested && v.Kind() == reflect.Slice && delim == '[':
		return r.list(v, field)
	case nested:
		r.bad(field, "is %s, where %s is expected", map[json.Delim]string{'{': "an object", '[': "a list"}[delim], expected(v))
		return r.skip()
	}
	if why := r.scalar(tok, v, field); why != "" {
		r.bad(field, "%s", why)
	}
	return true
}

// skip reads to the end of what has been opened.
func (r *policyReader) skip() bool {
	for depth := 1; depth > 0; {
		tok, ok := r.next("")
		if !ok {
			return false
		}
		switch tok {
		case json.Delim('{'), json.Delim('['):
			depth++
		case json.Delim('}'), json.Delim(']'):
			depth--
		}
	}
	return true
}

func (r *policyReader) object(v reflect.Value, field string) bool {
	if v.Kind() == reflect.Map {
		v.Set(reflect.MakeMap(v.Type()))
	}
	seen := map[string]bool{}
	for r.dec.More() {
		tok, ok := r.next(field)
		if !ok {
			return false
		}
		name := tok.(string) // the decoder refuses anything else here
		path := strings.TrimPrefix(field+"."+name, ".")
		if seen[name] {
			r.bad(path, "is there twice")
		}
		seen[name] = true
		if path == "$schema" {
			if !r.value(reflect.ValueOf(new(string)).Elem(), path) {
				return false
			}
			continue
		}
		if v.Kind() == reflect.Map {
			elem := reflect.New(v.Type().Elem()).Elem()
			if !r.value(elem, path) {
				return false
			}
			v.SetMapIndex(reflect.ValueOf(name), elem)
			continue
		}
		f := v.FieldByName(name)
		if !f.IsValid() || !f.CanSet() || f.Kind() == reflect.Func {
			r.bad(path, "is no name that is known here%s", nearest(name, fieldNames(v.Type())))
			if !r.value(reflect.ValueOf(new(anything)).Elem(), path) {
				return false
			}
			continue
		}
		if !r.value(f, path) {
			return false
		}
	}
	_, ok := r.next(field) // the brace
	return ok
}

func (r *policyReader) list(v reflect.Value, field string) bool {
	v.Set(reflect.MakeSlice(v.Type(), 0, 4))
	for i := 0; r.dec.More(); i++ {
		elem := reflect.New(v.Type().Elem()).Elem()
		path := fmt.Sprintf("%s[%d]", field, i)
		if !r.value(elem, path) {
			return false
		}
		v.Set(reflect.Append(v, elem))
	}
	_, ok := r.next(field)
	return ok
}

// anything takes whatever stands where nothing is known.
type anything struct{}

// words are the values that are written as one.
var words = map[reflect.Type]map[string]any{
	reflect.TypeFor[KeyFormat](): {"UUIDv4": UUIDv4, "ULID": ULID},
	reflect.TypeFor[Persist]():   {"full": PersistFull, "key only": PersistKeyOnly, "none": PersistNone},
	reflect.TypeFor[Expiry]():    {"surface": Surface, "new key": NewKey},
	reflect.TypeFor[Meaning](): {
		"succeeded": MeansSucceeded, "rejected": MeansRejected, "turned away": MeansTurnedAway, "mismatch": MeansMismatch,
		"in progress": MeansInProgress, "exists": MeansExists, "business": MeansBusiness, "stored failure": MeansStoredFailure,
		"uncertain": MeansUncertain, "processing": MeansProcessing,
	},
}

// written is how a policy file writes v.
func written[T ~uint8](v T) string {
	for word, meant := range words[reflect.TypeFor[T]()] {
		if meant == any(v) {
			return word
		}
	}
	return fmt.Sprintf("%s(%d)", reflect.TypeFor[T]().Name(), v)
}

// String is how a policy file writes p.
func (p Persist) String() string { return written(p) }

// String is how a policy file writes e.
func (e Expiry) String() string { return written(e) }

// String is how a policy file writes m.
func (m Meaning) String() string { return written(m) }

func (uuidFormat) String() string { return "UUIDv4" }
func (ulidFormat) String() string { return "ULID" }

// scalar sets v, or says what is wrong.
func (r *policyReader) scalar(tok json.Token, v reflect.Value, field string) string {
	text, isText := tok.(string)
	number, isNumber := tok.(json.Number)
	switch v.Addr().Interface().(type) {
	case *anything:
		return ""
	case *Switch:
		if on, ok := tok.(bool); ok {
			v.Set(reflect.ValueOf(map[bool]Switch{true: On, false: Off}[on]))
			return ""
		}
		return "wants true or false"
	case *time.Duration:
		return duration(text, isText, v, strings.HasSuffix(field, ".Life"))
	case **Contract:
		c := r.contracts[text]
		if !isText || c == nil {
			return fmt.Sprintf("is no contract that is known here%s", nearest(text, slices.Collect(maps.Keys(r.contracts))))
		}
		v.Set(reflect.ValueOf(c))
		return ""
	case *Carrier:
		c, ok := parseCarrier(text)
		if !ok {
			return `wants "header NAME", "quoted header NAME", "body /POINTER", "query NAME", "form NAME", "repeatability", "natural" or "none"`
		}
		v.Set(reflect.ValueOf(c))
		return ""
	}
	if known := words[v.Type()]; known != nil {
		w, ok := known[text]
		if !isText || !ok {
			names := slices.Sorted(maps.Keys(known))
			return fmt.Sprintf("wants one of %q", names)
		}
		v.Set(reflect.ValueOf(w))
		return ""
	}
	switch {
	case v.Kind() == reflect.String && isText:
		v.SetString(text)
		return ""
	case v.Kind() == reflect.Bool:
		if b, ok := tok.(bool); ok {
			v.SetBool(b)
			return ""
		}
	case v.CanInt() && text == "5xx" && strings.Contains(field, "Status["): // of a list of statuses, no count of anything else
		v.SetInt(Any5xx)
		return ""
	case v.CanInt() && isNumber:
		n, err := strconv.ParseInt(number.String(), 10, v.Type().Bits())
		if err == nil {
			v.SetInt(n)
			return ""
		}
	case v.CanFloat() && text == "off":
		v.SetFloat(-1)
		return ""
	case v.CanFloat() && isNumber:
		if n, err := number.Float64(); err == nil && !math.IsInf(n, 0) {
			v.SetFloat(n)
			return ""
		}
	}
	return "wants " + expected(v)
}

func duration(text string, isText bool, v reflect.Value, life bool) string {
	d, err := time.ParseDuration(text)
	switch {
	case isText && (!life && text == "off" || life && text == "forever"):
		d = Forever // both are negative
	case life && (!isText || err != nil):
		return `wants a duration such as "24h", or "forever"`
	case !isText || err != nil:
		return `wants a duration such as "5s", or "off"`
	case d < 0:
		return `is negative; "off" says that there is none`
	case d == 0:
		return `is zero; leave it out to inherit, or write "off"`
	}
	v.SetInt(int64(d))
	return ""
}

func expected(v reflect.Value) string {
	switch v.Kind() {
	case reflect.Slice:
		return "a list"
	case reflect.Map, reflect.Struct, reflect.Pointer:
		return "an object"
	case reflect.Bool:
		return "true or false"
	case reflect.Int, reflect.Int64:
		return "a whole number"
	case reflect.Float64:
		return "a number"
	}
	return "a word"
}

func fieldNames(t reflect.Type) (out []string) {
	for f := range t.Fields() {
		if f.IsExported() && f.Type.Kind() != reflect.Func {
			out = append(out, f.Name)
		}
	}
	return out
}

// nearest suggests the known name that is closest to what was written.
func nearest(name string, known []string) string {
	best, at := "", 4
	slices.Sort(known)
	for _, k := range known {
		if d := distance(strings.ToLower(name), strings.ToLower(k)); d < at {
			best, at = k, d
		}
	}
	if best == "" {
		return fmt.Sprintf("; known are %s", strings.Join(known, ", "))
	}
	return fmt.Sprintf("; is %s meant?", best)
}

// distance is Levenshtein's.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost = 1 + min(diagonal, row[j], row[j+1])
			}
			diagonal, row[j+1] = row[j+1], cost
		}
	}
	return row[len(b)]
}
