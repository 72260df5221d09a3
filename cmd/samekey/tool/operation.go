package tool

import (
	"encoding/base64"
	"net/http"
	"net/url"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/samekey/samekey/persist"
)

// operation is what -json tells of one. Fields are added, never renamed; a time that is not there is left out.
type operation struct {
	Scope      string    `json:"scope"`
	ID         string    `json:"id"`
	Named      bool      `json:"named"` // the ID is the program's word, not the key
	State      string    `json:"state"`
	Parked     bool      `json:"parked"`
	Expired    bool      `json:"expired"`
	Owed       bool      `json:"owed"`     // settled, and a handler has yet to accept the answer
	NameOnly   bool      `json:"nameOnly"` // request and answer are gone
	Key        string    `json:"key"`
	Method     string    `json:"method"`
	URL        string    `json:"url"`                 // without its query; of a sealed one it is not known
	SealedKey  string    `json:"sealedKey,omitempty"` // ID of the key that the request is sealed under
	Created    time.Time `json:"created,omitzero"`
	FirstSent  time.Time `json:"firstSent,omitzero"`
	Expires    time.Time `json:"expires,omitzero"` // when the server may have forgotten the key
	NotBefore  time.Time `json:"notBefore,omitzero"`
	Attempts   int       `json:"attempts"`
	LastStatus int       `json:"lastStatus"` // 0: no answer
	LastError  string    `json:"lastError"`
	PollURL    string    `json:"pollUrl,omitempty"`
	Request    *request  `json:"request,omitempty"` // show only
	Answer     *answer   `json:"answer,omitempty"`
}

type request struct {
	Header  http.Header `json:"header"`
	Query   []string    `json:"query"`   // names of its parameters
	Omitted []string    `json:"omitted"` // headers and ?parameters that are not stored
	*body
}

type answer struct {
	Status    int         `json:"status"`
	Reason    string      `json:"reason,omitempty"`
	SealedKey string      `json:"sealedKey,omitempty"` // reason, header and payload are sealed under it
	KeepBody  time.Time   `json:"keptUntil,omitzero"`
	KeepName  time.Time   `json:"nameKeptUntil,omitzero"`
	Truncated bool        `json:"truncated,omitempty"`
	Header    http.Header `json:"header,omitempty"` // show only
	*body
}

// body of a request or an answer. Its text is there with -body only.
type body struct {
	Bytes    int     `json:"bytes"`
	Stored   bool    `json:"stored"`
	Sealed   bool    `json:"sealed,omitempty"` // they are those of the ciphertext, which -body does not show
	Text     *string `json:"body,omitempty"`
	Encoding string  `json:"bodyEncoding,omitempty"` // utf-8 or base64
}

func bodyOf(b []byte, show bool) *body {
	out := &body{Bytes: len(b), Stored: b != nil}
	if show && b != nil {
		text := string(b)
		if out.Encoding = "utf-8"; !utf8.Valid(b) {
			out.Encoding, text = "base64", base64.StdEncoding.EncodeToString(b)
		}
		out.Text = &text
	}
	return out
}

func utc(t time.Time) time.Time {
	if t.IsZero() {
		return t
	}
	return t.UTC().Truncate(time.Millisecond)
}

// summary is what list tells.
func summary(r *persist.Record, now time.Time) operation {
	o := operation{
		Scope: r.Scope, ID: r.ID, Named: r.Named, State: r.State().String(), Parked: isParked(r), Expired: isExpired(r, now),
		NameOnly: r.Tombstone(), Key: r.Key, Method: r.Method, Created: utc(r.Created),
		FirstSent: utc(r.Progress.FirstSent), Expires: utc(expiry(r)), NotBefore: utc(r.Progress.NotBefore),
		Attempts: r.Progress.Attempts, LastStatus: r.Progress.LastStatus, LastError: r.Progress.LastError,
	}
	o.URL, o.SealedKey = readable(r.Target)
	o.URL = bareURL(o.URL)
	poll, _ := readable(r.Progress.PollURL) // where it is sealed, it may be none
	o.PollURL = bareURL(poll)
	if a := r.Answer; a != nil {
		o.Owed = a.Owed
		o.Answer = &answer{Status: a.Status, KeepBody: utc(a.KeepBody), KeepName: utc(a.KeepName), Truncated: a.Truncated}
		o.Answer.Reason, o.Answer.SealedKey = readable(a.Reason)
	}
	return o
}

// details is what show tells.
func details(r *persist.Record, now time.Time, bodies bool) operation {
	o := summary(r, now)
	if r.Method != "" {
		o.Request = &request{Header: r.Header, Query: []string{}, Omitted: append([]string{}, r.Omitted...), body: bodyOf(r.Body, bodies && o.SealedKey == "")}
		o.Request.Sealed = o.SealedKey != ""
		if u, err := url.Parse(r.Target); err == nil {
			for name := range u.Query() {
				o.Request.Query = append(o.Request.Query, name)
			}
			slices.Sort(o.Request.Query)
			if bodies {
				o.URL = r.Target
			}
		}
	}
	if a := r.Answer; a != nil && a.Status != 0 {
		o.Answer.Header, o.Answer.body = a.Header, bodyOf(a.Body, bodies && o.Answer.SealedKey == "")
		o.Answer.Sealed = o.Answer.SealedKey != ""
	}
	return o
}
