package mockserver

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"
)

// Profile is how a server answers in matters of keys, as plain data. Its JSON form takes durations like "24h".
type Profile struct {
	Name string `json:"name"`

	// Carrier is where the key travels; the zero value is the header Idempotency-Key, bare.
	Carrier Carrier `json:"carrier,omitzero"`

	// Methods are those that keys apply to; others pass through. Nil is POST, PUT, PATCH and DELETE.
	Methods []string `json:"methods,omitempty"`

	// Require refuses a command without a key with Missing. Otherwise it runs, each time.
	Require bool `json:"require,omitempty"`

	// A key longer than MaxLength (zero: 255), not of Format (a regular expression for the whole key) or, with
	// UUID, no UUID, is refused with Malformed.
	MaxLength int    `json:"maxLength,omitempty"`
	Format    string `json:"format,omitempty"`
	UUID      bool   `json:"uuid,omitempty"`

	// Lenient accepts a quoted key where bare ones are asked for, and the reverse.
	Lenient bool `json:"lenient,omitempty"`

	// TTL is how long a key is remembered; zero is for ever.
	TTL time.Duration `json:"-"`

	// Account makes a key one for the whole principal, not for each method and path; method and path are then
	// compared with the payload.
	Account bool `json:"account,omitempty"`

	// RawBody compares payloads as bytes, not as canonical JSON. AnyPayload compares nothing: whoever has the key gets
	// the answer.
	RawBody    bool `json:"rawBody,omitempty"`
	AnyPayload bool `json:"anyPayload,omitempty"`

	// Wait makes a request whose key is being worked on wait for that answer, instead of InProgress.
	Wait bool `json:"wait,omitempty"`

	// Unstored are the statuses whose answers are not kept, so that the next request with the key runs again. A single
	// digit is the whole class: 5 is every 5xx. Nil keeps all.
	Unstored []int `json:"unstored,omitempty"`

	// Replay is what a completed key answers: the stored answer (zero), the current state of what was made, or the
	// Repeated answer.
	Replay Replay `json:"replay,omitempty"`

	// Mark is the header of a replay, and Echo one of every answer to a key that does not have it already, each as
	// "Name: value", in which {key} is the key. Empty is none.
	Mark string `json:"mark,omitempty"`
	Echo string `json:"echo,omitempty"`

	Missing    Answer `json:"missing,omitzero"`
	Malformed  Answer `json:"malformed,omitzero"`
	Mismatch   Answer `json:"mismatch,omitzero"`
	InProgress Answer `json:"inProgress,omitzero"`
	Repeated   Answer `json:"repeated,omitzero"`
}

// Replay says what a completed key answers.
type Replay string

// The answers of a completed key.
const (
	ReplayStored  Replay = ""        // the first answer, byte for byte
	ReplayCurrent Replay = "current" // what the first answer's Location has by now
	ReplayError   Replay = "error"   // Profile.Repeated
)

// Answer is one answer of the server's, as data. {key}, {id}, {operation} and {trace} stand for the key, the
// last element of the stored answer's Location, the operation that a pending key can be polled at, and a trace id; in
// Body they are put in as the inside of a JSON string.
type Answer struct {
	Status int         `json:"status"`
	Header http.Header `json:"header,omitempty"`
	Body   string      `json:"body,omitempty"`
}

// filled puts in what is the same for most servers.
func (p Profile) filled() Profile {
	if p.Carrier == (Carrier{}) {
		p.Carrier = Header("Idempotency-Key")
	}
	if p.Methods == nil {
		p.Methods = []string{"POST", "PUT", "PATCH", "DELETE"}
	}
	if p.MaxLength == 0 {
		p.MaxLength = 255
	}
	for _, a := range []struct {
		to   *Answer
		from Answer
	}{
		{&p.Missing, Default.Missing}, {&p.Malformed, Default.Malformed}, {&p.Mismatch, Default.Mismatch},
		{&p.InProgress, Default.InProgress}, {&p.Repeated, Default.Repeated},
	} {
		if a.to.Status == 0 {
			*a.to = a.from
		}
	}
	return p
}

// keeps says whether answers of a status are stored.
func (p *Profile) keeps(status int) bool {
	return !slices.Contains(p.Unstored, status) && !slices.Contains(p.Unstored, status/100)
}

func (p *Profile) covers(method string) bool { return slices.Contains(p.Methods, method) }

// fill puts in what the placeholders stand for.
func (a Answer) fill(key, id, operation, trace string) *stored {
	s := &stored{status: a.Status, header: http.Header{}}
	plain := strings.NewReplacer("{key}", key, "{id}", id, "{operation}", operation, "{trace}", trace)
	for name, values := range a.Header {
		for _, v := range values {
			s.header.Add(name, plain.Replace(v))
		}
	}
	if a.Body == "" {
		return s
	}
	s.body = []byte(strings.NewReplacer("{key}", inner(key), "{id}", inner(id), "{operation}", inner(operation),
		"{trace}", inner(trace)).Replace(a.Body))
	if s.header.Get("Content-Type") == "" {
		s.header.Set("Content-Type", "application/json")
	}
	return s
}

// inner is what stands between the quotes of a JSON string.
func inner(s string) string {
	b, _ := json.Marshal(s)
	return string(b[1 : len(b)-1])
}

// MarshalJSON gives the form that UnmarshalJSON takes.
func (p Profile) MarshalJSON() ([]byte, error) {
	return json.Marshal(profileJSON{plainProfile(p), duration(p.TTL)})
}

// UnmarshalJSON takes the fields by the names in their tags, and "ttl": "24h".
func (p *Profile) UnmarshalJSON(b []byte) error {
	var j profileJSON
	if err := strict(b, &j); err != nil {
		return err
	}
	*p = Profile(j.plainProfile)
	p.TTL = time.Duration(j.TTL)
	return nil
}

type plainProfile Profile

type profileJSON struct {
	plainProfile
	TTL duration `json:"ttl,omitempty"`
}

// Profiles are all profiles that the package has: Default, IETF, and those of vendors by the ids of contracts/.
func Profiles() []Profile { return append([]Profile{Default, IETF}, vendors...) }

// ProfileNames are the names that ProfileByName takes.
func ProfileNames() []string {
	var names []string
	for _, p := range Profiles() {
		names = append(names, p.Name)
	}
	return names
}

// ProfileByName finds a profile by its Name.
func ProfileByName(name string) (Profile, error) {
	for _, p := range Profiles() {
		if p.Name == name {
			return p, nil
		}
	}
	return Profile{}, fmt.Errorf("no profile is named %q: they are %s", name, strings.Join(ProfileNames(), ", "))
}

// ReadProfile reads a profile from its JSON form, and checks it.
func ReadProfile(r io.Reader) (Profile, error) {
	b, err := io.ReadAll(r)
	if err != nil {
		return Profile{}, err
	}
	var p Profile
	if err := json.Unmarshal(b, &p); err != nil {
		return p, fmt.Errorf("profile: %w", err)
	}
	if _, err := regexp.Compile(p.Format); err != nil {
		return p, fmt.Errorf("profile %s: format: %w", p.Name, err)
	}
	return p, nil
}
