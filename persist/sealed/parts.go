package sealed

import (
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"strings"

	"github.com/samekey/samekey/persist"
)

// An operation is sealed in parts, as it is written in parts:
//
//	request   Target is mark and key ID; Body is nonce and ciphertext; Key is empty
//	progress  PollURL is mark, key ID, ":" and nonce and ciphertext in base64
//	answer    Reason is like PollURL, apart from the rest, as it may outlive it; Body is magic, nonce and ciphertext
//
// The mark makes an address that nothing can be sent to. It and magic tell the version of all this.
const (
	mark  = ":sealed1:"
	magic = "\x00sealed1"
)

const (
	partRequest  = "request"
	partProgress = "progress"
	partAnswer   = "answer"
	partReason   = "reason" // an answer to those outside
)

var text = base64.RawStdEncoding.Strict() // one text for one ciphertext

// bind begins what a part is bound to.
func bind(part string, ref persist.Ref) writer {
	w := writer(make([]byte, 0, 160))
	w.string("samekey sealed 1")
	w.string(part)
	w.string(ref.Scope)
	w.string(ref.ID)
	return w
}

// seal appends nonce and ciphertext to dst, and wipes plain.
func (s *Sealer) seal(dst string, bound, plain writer) []byte {
	n, aead := len(dst), s.first.AEAD
	out := make([]byte, n+aead.NonceSize(), n+aead.NonceSize()+len(plain)+aead.Overhead())
	copy(out, dst)
	_, _ = rand.Read(out[n:]) // it does not fail
	bound.string(s.first.ID)
	out = aead.Seal(out, out[n:], plain, bound)
	clear(plain)
	return out
}

func (s *Sealer) unseal(part, id string, bound writer, b []byte) (*reader, error) {
	aead, is := s.keys[id]
	if !is {
		return nil, &OpenError{Part: part, KeyID: id, Err: ErrNoKey}
	}
	bound.string(id)
	n := aead.NonceSize()
	if len(b) < n {
		return nil, changed(part, id)
	}
	plain, err := aead.Open(nil, b[:n], b[n:], bound)
	if err != nil {
		return nil, changed(part, id)
	}
	return &reader{b: plain}, nil
}

func changed(part, id string) error { return &OpenError{Part: part, KeyID: id, Err: ErrChanged} }

// sealText is seal for a field that is text.
func (s *Sealer) sealText(bound, plain writer) string {
	return mark + s.first.ID + ":" + text.EncodeToString(s.seal("", bound, plain))
}

func (s *Sealer) unsealText(part, id, rest string, bound writer) (*reader, error) {
	b, err := text.DecodeString(rest)
	if err != nil {
		return nil, changed(part, id)
	}
	return s.unseal(part, id, bound, b)
}

// cutMark takes apart what begins with a mark.
func cutMark(s string) (id, rest string, is bool) {
	if rest, is = strings.CutPrefix(s, mark); is {
		id, rest, _ = strings.Cut(rest, ":")
	}
	return id, rest, is
}

// KeyOf tells which key a text of a stored record was sealed under: its Target, its Progress.PollURL or its
// Answer.Reason. It needs no key, and does not say that the text opens.
func KeyOf(text string) (id string, sealed bool) {
	id, _, sealed = cutMark(text)
	return id, sealed
}

func bindRequest(r *persist.Record) writer {
	w := bind(partRequest, r.Ref)
	w.bool(r.Named)
	w.time(r.Created)
	w.string(r.Method)
	w.int(int64(r.KeyLife))
	return w
}

func (s *Sealer) request(r *persist.Record) (target string, body []byte) {
	w := writer(make([]byte, 0, len(r.Body)+1024))
	w.string(r.Key)
	w.string(r.Target)
	w.header(r.Header)
	w.strings(r.Omitted)
	w.string(string(r.Fingerprint[:]))
	w.body(r.Body)
	return mark + s.first.ID, s.seal("", bindRequest(r), w)
}

func (s *Sealer) openRequest(r *persist.Record) error {
	id, rest, is := cutMark(r.Target)
	if !is || rest != "" {
		return changed(partRequest, "")
	}
	in, err := s.unseal(partRequest, id, bindRequest(r), r.Body)
	if err != nil {
		return err
	}
	r.Key, r.Target, r.Header, r.Omitted = in.string(), in.string(), in.header(), in.strings()
	n := copy(r.Fingerprint[:], in.string())
	r.Body = in.body()
	if in.bad || n != len(r.Fingerprint) {
		return changed(partRequest, id)
	}
	return nil
}

func bindProgress(ref persist.Ref, p *persist.Progress) writer {
	w := bind(partProgress, ref)
	w.int(int64(p.Attempts))
	w.time(p.FirstSent)
	w.time(p.Seen)
	w.time(p.NotBefore)
	w.bool(p.Parked)
	w.int(int64(p.LastStatus))
	return w
}

func (s *Sealer) progress(ref persist.Ref, p persist.Progress) persist.Progress {
	w := writer(make([]byte, 0, 256))
	w.string(p.PollURL)
	w.string(p.LastError)
	p.PollURL, p.LastError = s.sealText(bindProgress(ref, &p), w), ""
	return p
}

// openProgress opens that of a sealed request, or else of a plain one, which may be plain too.
func (s *Sealer) openProgress(ref persist.Ref, p persist.Progress, withSealed bool) (persist.Progress, error) {
	id, rest, is := cutMark(p.PollURL)
	switch {
	case is:
	case withSealed || p.PollURL != "" && !strings.HasPrefix(p.PollURL, "http"): // a plain one is an address
		return p, changed(partProgress, "")
	default:
		return p, nil
	}
	in, err := s.unsealText(partProgress, id, rest, bindProgress(ref, &p))
	if err != nil {
		return p, err
	}
	p.PollURL, p.LastError = in.string(), in.string()
	if in.bad {
		return p, changed(partProgress, id)
	}
	return p, nil
}

func bindReason(ref persist.Ref, a *persist.Answer) writer {
	w := bind(partReason, ref)
	w.uint(uint64(a.State))
	return w
}

func bindAnswer(ref persist.Ref, a *persist.Answer) writer {
	w := bind(partAnswer, ref)
	w.uint(uint64(a.State))
	w.int(int64(a.Status))
	w.bool(a.Truncated)
	w.time(a.KeepBody)
	w.time(a.KeepName)
	w.bool(a.Owed)
	return w
}

func (s *Sealer) answer(ref persist.Ref, a persist.Answer) persist.Answer {
	reason := writer(nil)
	reason.string(a.Reason)
	a.Reason = s.sealText(bindReason(ref, &a), reason)
	w := writer(make([]byte, 0, len(a.Body)+1024))
	w.header(a.Header)
	w.body(a.Body)
	a.Header, a.Body = nil, s.seal(magic, bindAnswer(ref, &a), w)
	return a
}

// openAnswer opens that of a sealed request, or else of a plain one, which may be plain too. Whoever has no key can give a
// sealed request up, and answer it no otherwise.
func (s *Sealer) openAnswer(r *persist.Record, withSealed bool) (*persist.Answer, error) {
	a, bare := *r.Answer, r.Tombstone()
	id, rest, is := cutMark(a.Reason)
	body, begins := bytes.CutPrefix(a.Body, []byte(magic))
	switch {
	case bare && a.Reason == "": // stores need not keep it with the name
		return &a, nil
	case !is && !begins && s.strict:
		return nil, &OpenError{Part: partAnswer, Err: ErrNotSealed}
	case !is && !begins && withSealed && !bare && (a.State != persist.Abandoned || a.Status != 0 || len(a.Header)+len(a.Body) > 0):
		return nil, changed(partAnswer, "")
	case !is && !begins:
		return &a, nil
	case is != begins && !bare: // either tells that it was sealed
		return nil, changed(partAnswer, "")
	}
	in, err := s.unsealText(partAnswer, id, rest, bindReason(r.Ref, &a))
	if err != nil {
		return nil, err
	}
	if a.Reason = in.string(); in.bad {
		return nil, changed(partAnswer, id)
	}
	if bare {
		return &a, nil
	}
	if in, err = s.unseal(partAnswer, id, bindAnswer(r.Ref, &a), body); err != nil {
		return nil, err
	}
	a.Header, a.Body = in.header(), in.body()
	if in.bad {
		return nil, changed(partAnswer, id)
	}
	return &a, nil
}
