package samekey_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/samekey/samekey"
	"github.com/samekey/samekey/mockserver"
	"github.com/samekey/samekey/persist"
)

var sentinels = map[string]error{
	"ErrConflict": samekey.ErrConflict, "ErrUnknown": samekey.ErrUnknown, "ErrNotSent": samekey.ErrNotSent, "ErrMismatch": samekey.ErrMismatch,
	"ErrBusy": samekey.ErrBusy, "ErrExpired": samekey.ErrExpired, "ErrStore": samekey.ErrStore, "ErrClosed": samekey.ErrClosed, "ErrKey": samekey.ErrKey,
	"ErrPolicy": samekey.ErrPolicy, "ErrTooLarge": samekey.ErrTooLarge, "ErrRedirect": samekey.ErrRedirect, "ErrBudget": samekey.ErrBudget,
	"ErrParked": samekey.ErrParked, "ErrTimeout": samekey.ErrTimeout, "ErrNoKeyAtServer": samekey.ErrNoKeyAtServer,
	"Canceled": context.Canceled, "DeadlineExceeded": context.DeadlineExceeded, "ErrFull": persist.ErrFull, "errCause": errCause,
}

// errCause is what a caller, a hook or a transport of the tests has to say; it quotes what it should not, on two lines.
var errCause = errors.New("dial api.test?token=hush-hush with Bearer s3cr3t-bearer\nand " + payment)

// errTypes are all types of errors of a command, each with its Call.
var errTypes = map[string]func(error) (*samekey.Call, bool){
	"ConflictError": func(err error) (*samekey.Call, bool) {
		e, ok := errors.AsType[*samekey.ConflictError](err)
		if !ok {
			return nil, false
		}
		return &e.Call, true
	},
	"OutcomeUnknownError": func(err error) (*samekey.Call, bool) {
		e, ok := errors.AsType[*samekey.OutcomeUnknownError](err)
		if !ok {
			return nil, false
		}
		return &e.Call, true
	},
	"NotSentError": func(err error) (*samekey.Call, bool) {
		e, ok := errors.AsType[*samekey.NotSentError](err)
		if !ok {
			return nil, false
		}
		return &e.Call, true
	},
	"MismatchError": func(err error) (*samekey.Call, bool) {
		e, ok := errors.AsType[*samekey.MismatchError](err)
		if !ok {
			return nil, false
		}
		return &e.Call, true
	},
	"BusyError": func(err error) (*samekey.Call, bool) {
		e, ok := errors.AsType[*samekey.BusyError](err)
		if !ok {
			return nil, false
		}
		return &e.Call, true
	},
	"ExpiredError": func(err error) (*samekey.Call, bool) {
		e, ok := errors.AsType[*samekey.ExpiredError](err)
		if !ok {
			return nil, false
		}
		return &e.Call, true
	},
	"StoreError": func(err error) (*samekey.Call, bool) {
		e, ok := errors.AsType[*samekey.StoreError](err)
		if !ok {
			return nil, false
		}
		return &e.Call, true
	},
	"BodyTooLargeError": func(err error) (*samekey.Call, bool) {
		e, ok := errors.AsType[*samekey.BodyTooLargeError](err)
		if !ok {
			return nil, false
		}
		return &e.Call, true
	},
	"KeyError": func(err error) (*samekey.Call, bool) {
		e, ok := errors.AsType[*samekey.KeyError](err)
		if !ok {
			return nil, false
		}
		return &e.Call, true
	},
	"PolicyError": func(err error) (*samekey.Call, bool) {
		_, ok := errors.AsType[*samekey.PolicyError](err)
		return nil, ok
	},
}

// sent is the request of the table: secrets wherever a request can have them.
func sent(t *testing.T, ctx context.Context, name string) *http.Request {
	t.Helper()
	req := post(t, ctx, "http://operator:hunter2pass@api.test/v1/payments?token=hush-hush", payment)
	req.Header.Set("X-Token", "Bearer s3cr3t-bearer")
	if name != "" {
		req = samekey.Named(req, name)
	}
	return req
}

// TestErrors tries every way of matching every error.
func TestErrors(t *testing.T) {
	failing := func(l *lab, method string, err error) {
		l.store = &bent{Store: l.store, fail: func(m string, _ int) error {
			if m == method {
				return err
			}
			return nil
		}}
	}
	do := func(t *testing.T, l *lab, ctx context.Context, p samekey.Policy) error {
		p.Backoff.Min = -1
		_, err := l.client(t, samekey.Config{Default: p}).Do(sent(t, ctx, opName))
		return err
	}
	lose := func(l *lab) {
		l.Fault(mockserver.Fault{When: mockserver.AfterCommit, Do: mockserver.Drop, Match: "POST /"})
	}
	unknownFirst := func(t *testing.T, l *lab) {
		lose(l)
		require.ErrorIs(t, do(t, l, t.Context(), samekey.Policy{MaxAttempts: 2}), samekey.ErrUnknown)
		l.ClearFaults()
	}
	none, unknown := samekey.EffectNone, samekey.EffectUnknown
	for _, tt := range []struct {
		name   string
		make   func(t *testing.T, l *lab) error
		typ    string
		is     string // sentinels, separated by spaces
		effect samekey.Effect
		text   string // what the text has besides; "|" separates
		keyed  bool   // the key is told, in part
	}{
		{"conflict", func(t *testing.T, l *lab) error {
			l.Fault(mockserver.Fault{Do: mockserver.Status(409, false).Body(`{"error":"IdempotencyKeyConflict"}`)})
			return do(t, l, t.Context(), samekey.Policy{})
		}, "ConflictError", "ErrConflict", unknown, "conflict|payload mismatch|status 409|1 attempt", true},
		{"conflict after a lost answer", func(t *testing.T, l *lab) error {
			l.Fault(mockserver.Fault{Do: mockserver.Drop, Times: 1}, mockserver.Fault{Do: mockserver.Status(409, false)})
			return do(t, l, t.Context(), samekey.Policy{})
		}, "ConflictError", "ErrConflict", unknown, "status 409|2 attempts|an earlier attempt may have succeeded", true},
		{"stored conflict", func(t *testing.T, l *lab) error {
			l.Fault(mockserver.Fault{Do: mockserver.Status(409, false)})
			_ = do(t, l, t.Context(), samekey.Policy{})
			return do(t, l, t.Context(), samekey.Policy{})
		}, "ConflictError", "ErrConflict", unknown, "status 409|1 attempt", true},
		{"last 5xx", func(t *testing.T, l *lab) error {
			l.Fault(mockserver.Fault{Do: mockserver.Status(503, false)})
			return do(t, l, t.Context(), samekey.Policy{})
		}, "OutcomeUnknownError", "ErrUnknown", unknown, "outcome unknown|4 attempts|last status 503|pending", true},
		{"lost answers", func(t *testing.T, l *lab) error {
			lose(l)
			return do(t, l, t.Context(), samekey.Policy{})
		}, "OutcomeUnknownError", "ErrUnknown", unknown, "outcome unknown|4 attempts|EOF|pending", true},
		{"attempts timed out", func(t *testing.T, l *lab) error {
			l.Fault(mockserver.Fault{Do: mockserver.Stall(0)})
			return do(t, l, t.Context(), samekey.Policy{AttemptTimeout: time.Second})
		}, "OutcomeUnknownError", "ErrUnknown ErrTimeout", unknown, "4 attempts|timed out", true},
		{"timeout of the client beneath", func(t *testing.T, l *lab) error {
			l.Fault(mockserver.Fault{Do: mockserver.Stall(0)})
			c := l.client(t, samekey.Config{Default: quick, HTTPClient: &http.Client{Transport: l.rt.Transport, Timeout: time.Second}})
			_, err := c.Do(sent(t, t.Context(), opName))
			return err
		}, "OutcomeUnknownError", "ErrUnknown ErrTimeout", unknown, "4 attempts|timed out", true},
		{"policy's deadline", func(t *testing.T, l *lab) error {
			l.Fault(mockserver.Fault{Do: mockserver.Stall(0)})
			return do(t, l, t.Context(), samekey.Policy{AttemptTimeout: 3 * time.Second, Deadline: 5 * time.Second})
		}, "OutcomeUnknownError", "ErrUnknown DeadlineExceeded", unknown, "2 attempts|policy deadline", true},
		{"caller's deadline", func(t *testing.T, l *lab) error {
			l.Fault(mockserver.Fault{Do: mockserver.Stall(0)})
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			return do(t, l, ctx, samekey.Policy{})
		}, "OutcomeUnknownError", "ErrUnknown DeadlineExceeded", unknown, "1 attempt|deadline exceeded", true},
		{"caller's deadline with a cause", func(t *testing.T, l *lab) error {
			l.Fault(mockserver.Fault{Do: mockserver.Stall(0)})
			ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, persist.ErrFull)
			defer cancel()
			return do(t, l, ctx, samekey.Policy{})
		}, "OutcomeUnknownError", "ErrUnknown DeadlineExceeded ErrFull", unknown, "1 attempt", true},
		{"caller's cancel", func(t *testing.T, l *lab) error {
			l.Fault(mockserver.Fault{Do: mockserver.Stall(0)})
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(time.Second, cancel)
			return do(t, l, ctx, samekey.Policy{})
		}, "OutcomeUnknownError", "ErrUnknown Canceled", unknown, "1 attempt|canceled", true},
		{"caller's cancel with a cause", func(t *testing.T, l *lab) error {
			l.Fault(mockserver.Fault{Do: mockserver.Stall(0)})
			ctx, cancel := context.WithCancelCause(t.Context())
			time.AfterFunc(time.Second, func() { cancel(persist.ErrFull) })
			return do(t, l, ctx, samekey.Policy{})
		}, "OutcomeUnknownError", "ErrUnknown Canceled ErrFull", unknown, "1 attempt|canceled|full", true},
		{"Close", func(t *testing.T, l *lab) error {
			l.Fault(mockserver.Fault{Do: mockserver.Stall(0)})
			c := l.client(t, samekey.Config{Default: quick})
			time.AfterFunc(time.Second, func() { _ = c.Close() })
			_, err := c.Do(sent(t, t.Context(), opName))
			return err
		}, "OutcomeUnknownError", "ErrUnknown ErrClosed", unknown, "1 attempt|closed", true},
		{"budget", func(t *testing.T, l *lab) error {
			l.Fault(mockserver.Fault{Do: mockserver.Status(503, false)})
			return do(t, l, t.Context(), samekey.Policy{Budget: 0.01, MaxAttempts: 50})
		}, "OutcomeUnknownError", "ErrUnknown ErrBudget", unknown, "11 attempts|last status 503|budget", true},
		{"budget, nothing sent", func(t *testing.T, l *lab) error {
			l.rt.Refuse(100)
			return do(t, l, t.Context(), samekey.Policy{Budget: 0.01, MaxAttempts: 50})
		}, "NotSentError", "ErrNotSent ErrBudget", none, "11 attempts|refused|budget", true},
		{"server keeps its failure", func(t *testing.T, l *lab) error {
			l.Fault(mockserver.Fault{Do: mockserver.Status(500, false).With("Idempotent-Replayed", "true")})
			return do(t, l, t.Context(), samekey.Policy{})
		}, "OutcomeUnknownError", "ErrUnknown ErrParked", unknown, "1 attempt|last status 500|parked", true},
		{"endpoint without keys", func(t *testing.T, l *lab) error {
			lose(l)
			c := samekey.Contract{Carrier: samekey.NoKey}
			_ = do(t, l, t.Context(), samekey.Policy{Contract: &c})
			return do(t, l, t.Context(), samekey.Policy{Contract: &c})
		}, "OutcomeUnknownError", "ErrUnknown ErrNoKeyAtServer", unknown, "1 attempt|knows no keys", true},
		{"foreign transport that says too much", func(t *testing.T, l *lab) error {
			c := l.client(t, samekey.Config{Default: quick, HTTPClient: &http.Client{Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
				_ = r.Body.Close()
				return nil, &url.Error{Op: r.Method, URL: r.URL.String(), Err: errCause}
			})}})
			_, err := c.Do(sent(t, t.Context(), opName))
			return err
		}, "OutcomeUnknownError", "ErrUnknown errCause", unknown, "4 attempts|[redacted]", true},
		{"Prepare that says too much", func(t *testing.T, l *lab) error {
			c := l.client(t, samekey.Config{Default: quick, Prepare: func(context.Context, *http.Request) error { return errCause }})
			_, err := c.Do(sent(t, t.Context(), opName))
			return err
		}, "NotSentError", "ErrNotSent errCause", none, "4 attempts|Config.Prepare", true},
		{"not reached", func(t *testing.T, l *lab) error {
			l.rt.Refuse(100)
			return do(t, l, t.Context(), samekey.Policy{})
		}, "NotSentError", "ErrNotSent", none, "not sent|4 attempts|refused", true},
		{"not reached, no time", func(t *testing.T, l *lab) error {
			l.rt.Refuse(100)
			p := samekey.Policy{Deadline: 5 * time.Second, AttemptTimeout: time.Second, Backoff: samekey.Backoff{Min: time.Minute, Max: time.Minute}}
			_, err := l.client(t, samekey.Config{Default: p}).Do(sent(t, t.Context(), opName))
			return err
		}, "NotSentError", "ErrNotSent DeadlineExceeded", none, "1 attempt|refused|deadline", true},
		{"cancelled before", func(t *testing.T, l *lab) error {
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			return do(t, l, ctx, samekey.Policy{})
		}, "NotSentError", "ErrNotSent Canceled", unknown, "canceled", true}, // the store was not asked
		{"past its deadline before", func(t *testing.T, l *lab) error {
			ctx, cancel := context.WithDeadline(t.Context(), time.Now().Add(-time.Second))
			defer cancel()
			return do(t, l, ctx, samekey.Policy{})
		}, "NotSentError", "ErrNotSent DeadlineExceeded", unknown, "deadline exceeded", true},
		{"closed before", func(t *testing.T, l *lab) error {
			c := l.client(t, samekey.Config{})
			require.NoError(t, c.Close())
			_, err := c.Do(sent(t, t.Context(), opName))
			return err
		}, "NotSentError", "ErrNotSent ErrClosed", unknown, "closed", true},
		{"header with a newline", func(t *testing.T, l *lab) error {
			req := sent(t, t.Context(), opName)
			req.Header["X-Other"] = []string{"s3cr3t-bearer\n"}
			_, err := l.client(t, samekey.Config{}).Do(req)
			return err
		}, "NotSentError", "ErrNotSent", unknown, "X-Other|control character", false},
		{"request's body fails", func(t *testing.T, l *lab) error {
			req := sent(t, t.Context(), opName)
			req.Body = closeTeller{errorReader{}, new(bool)}
			_, err := l.client(t, samekey.Config{}).Do(req)
			return err
		}, "NotSentError", "ErrNotSent ErrFull", unknown, "reading the request's body", false},
		{"mismatch", func(t *testing.T, l *lab) error {
			unknownFirst(t, l)
			req := samekey.Named(post(t, t.Context(), "http://api.test/v1/payments?token=hush-hush", `{"amount":5}`), opName)
			_, err := l.client(t, samekey.Config{}).Do(req)
			return err
		}, "MismatchError", "ErrMismatch", unknown, "another command is known|2 attempts", true},
		{"busy", func(t *testing.T, l *lab) error {
			unknownFirst(t, l)
			e, err := l.store.Claim(t.Context(), opRef)
			require.NoError(t, err)
			defer func() { require.NoError(t, l.store.Release(t.Context(), e.Claim)) }()
			return do(t, l, t.Context(), samekey.Policy{})
		}, "BusyError", "ErrBusy", unknown, "in progress elsewhere", true},
		{"expired", func(t *testing.T, l *lab) error {
			unknownFirst(t, l)
			time.Sleep(25 * time.Hour)
			return do(t, l, t.Context(), samekey.Policy{})
		}, "ExpiredError", "ErrExpired ErrUnknown", unknown, "key expired, outcome unknown|2 attempts|reconcile", true},
		{"success forgotten but for its name", func(t *testing.T, l *lab) error {
			require.NoError(t, do(t, l, t.Context(), samekey.Policy{}))
			time.Sleep(25 * time.Hour)
			return do(t, l, t.Context(), samekey.Policy{})
		}, "ExpiredError", "ErrExpired", unknown, "its answer is not kept", false},
		{"abandoned", func(t *testing.T, l *lab) error {
			unknownFirst(t, l)
			c := l.client(t, samekey.Config{})
			require.NoError(t, c.Abandon(t.Context(), opRef, "the shop\nhas closed"))
			_, err := c.Do(sent(t, t.Context(), opName))
			return err
		}, "ExpiredError", "ErrExpired", unknown, "was abandoned|the shop; has closed", true},
		{"store refuses", func(t *testing.T, l *lab) error {
			failing(l, "Begin", &persist.Error{Store: "bent", Method: "Begin", Err: persist.ErrFull})
			return do(t, l, t.Context(), samekey.Policy{})
		}, "StoreError", "ErrStore ErrFull", unknown, "nothing was sent|store is full", true},
		{"store may have it", func(t *testing.T, l *lab) error {
			failing(l, "Begin", &persist.Error{Store: "bent", Method: "Begin", Maybe: true, Err: persist.ErrFull})
			return do(t, l, t.Context(), samekey.Policy{})
		}, "StoreError", "ErrStore ErrFull", unknown, "may be recorded|Forget or Resume", true},
		{"store fails before the second attempt", func(t *testing.T, l *lab) error {
			l.Fault(mockserver.Fault{Do: mockserver.Status(503, false)})
			failing(l, "Mark", persist.ErrFull)
			return do(t, l, t.Context(), samekey.Policy{})
		}, "OutcomeUnknownError", "ErrUnknown ErrFull", unknown, "1 attempt|last status 503|full", true},
		{"what was not sent cannot be taken back", func(t *testing.T, l *lab) error {
			l.rt.Refuse(100)
			failing(l, "Settle", persist.ErrFull)
			return do(t, l, t.Context(), samekey.Policy{})
		}, "OutcomeUnknownError", "ErrUnknown ErrFull", unknown, "4 attempts|taking it back failed", true},
		{"body too large", func(t *testing.T, l *lab) error {
			return do(t, l, t.Context(), samekey.Policy{MaxBody: 10})
		}, "BodyTooLargeError", "ErrTooLarge", unknown, "above 10 bytes", false},
		{"empty name", func(t *testing.T, l *lab) error {
			_, err := l.client(t, samekey.Config{}).Do(samekey.Named(sent(t, t.Context(), ""), ""))
			return err
		}, "KeyError", "ErrKey", unknown, "name is empty", false},
		{"key that the contract forbids", func(t *testing.T, l *lab) error {
			_, err := l.client(t, samekey.Config{}).Do(withKey(sent(t, t.Context(), opName), strings.Repeat("k", 256)))
			return err
		}, "KeyError", "ErrKey", unknown, "256 characters", false},
		{"key format that fails", func(t *testing.T, l *lab) error {
			n := 0
			c := l.client(t, samekey.Config{Default: samekey.Policy{KeyFormat: samekey.KeyFunc(func(samekey.Ref) (string, error) {
				if n++; n > 2 {
					return "", errCause
				}
				return fmt.Sprintf("probe-%d", n), nil
			})}})
			_, err := c.Do(samekey.Named(post(t, t.Context(), "http://api.test/v1/payments", payment), opName))
			return err
		}, "KeyError", "ErrKey errCause", unknown, "key format failed", false},
		{"policy of the call", func(t *testing.T, l *lab) error {
			ctx := samekey.WithPolicy(t.Context(), samekey.Policy{MaxAttempts: -1})
			return do(t, l, ctx, samekey.Policy{})
		}, "PolicyError", "ErrPolicy", unknown, "WithPolicy|MaxAttempts", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			inLab(t, mockserver.Config{}, func(t *testing.T, l *lab) {
				err := tt.make(t, l)
				require.Error(t, err)
				want := strings.Fields(tt.is)
				for name, s := range sentinels {
					require.Equal(t, contains(want, name), errors.Is(err, s), "errors.Is(err, %s): %v", name, err)
					require.Equal(t, contains(want, name), errors.Is(fmt.Errorf("charge: %w", err), s), "wrapped, %s", name)
				}
				var call *samekey.Call
				for name, as := range errTypes {
					c, ok := as(err)
					require.Equal(t, name == tt.typ, ok, "errors.As(err, *%s): %v", name, err)
					if ok {
						call = c
					}
				}
				require.Equal(t, tt.effect, samekey.EffectOf(err))
				require.Equal(t, tt.effect, samekey.EffectOf(fmt.Errorf("charge: %w", err)))
				require.Equal(t, tt.effect, samekey.EffectOf(&url.Error{Op: "Post", URL: "http://api.test", Err: err}))

				text := err.Error()
				require.True(t, strings.HasPrefix(text, "samekey: "), text)
				require.NotContains(t, text, "\n")
				for _, part := range strings.Split(tt.text, "|") {
					require.Contains(t, text, part)
				}
				secrets := []string{"hush-hush", "s3cr3t", "hunter2pass", "operator", `"amount"`}
				if strings.HasPrefix(tt.name, "key format") {
					secrets = secrets[2:4] // what it says is its own: it has not seen the request
				}
				for _, secret := range secrets {
					require.NotContains(t, text, secret)
				}
				if call == nil {
					return
				}
				require.Contains(t, text, "POST http://api.test/v1/payments")
				require.Equal(t, "http://api.test/v1/payments", call.URL)
				require.Equal(t, http.MethodPost, call.Method)
				if call.ID != "" {
					require.Equal(t, opName, call.ID)
					require.Contains(t, text, fmt.Sprintf("operation %q", opName))
				}
				require.Equal(t, tt.keyed, call.Key != "")
				if tt.keyed {
					require.NotContains(t, text, call.Key)
					require.Contains(t, text, "key "+call.Key[:8]+"…"+call.Key[len(call.Key)-4:])
				}
			})
		})
	}
	require.Equal(t, unknown, samekey.EffectOf(nil))
	require.Equal(t, unknown, samekey.EffectOf(errCause))
	require.Equal(t, "none unknown", none.String()+" "+unknown.String())
}

type errorReader struct{}

func (errorReader) Read([]byte) (int, error) { return 0, persist.ErrFull }

func contains(list []string, s string) bool {
	for _, l := range list {
		if l == s {
			return true
		}
	}
	return false
}

// TestErrorOfARedirect comes from a foreign http.Client only.
func TestErrorOfARedirect(t *testing.T) {
	inLab(t, mockserver.Config{}, func(t *testing.T, l *lab) {
		l.Fault(mockserver.Fault{Do: mockserver.Redirect(307, "/v1/elsewhere?token=hush-hush")})
		c := l.client(t, samekey.Config{})
		_, err := (&http.Client{Transport: c.Transport()}).Do(pay(t, t.Context(), opName))
		for name, s := range sentinels {
			require.Equal(t, name == "ErrRedirect", errors.Is(err, s), name)
		}
		require.Equal(t, samekey.EffectUnknown, samekey.EffectOf(err))
		require.ErrorContains(t, err, "307")
		require.NotContains(t, samekey.ErrRedirect.Error(), "\n")
	})
}

// TestErrorTextsOfHandMadeURLs: userinfo stays out also where the URL cannot be parsed again.
func TestErrorTextsOfHandMadeURLs(t *testing.T) {
	c := newClient(t, samekey.Config{})
	for _, u := range []*url.URL{
		{Scheme: "http", User: url.UserPassword("operator", "hunter2pass"), Host: "no such host", Path: "/x"},
		{Scheme: "http", User: url.UserPassword("operator", "hunter2pass"), Host: "[::1", Path: "/x", RawQuery: "token=hush-hush"},
		{Scheme: "htp", User: url.UserPassword("operator", "hunter2pass"), Host: "api.test", RawQuery: "token=hush-hush", Fragment: "frag"},
		{Scheme: "htp", User: url.UserPassword("operator", "hunter2pass"), Opaque: "//api.test/?token=hush-hush"},
	} {
		_, err := c.Do((&http.Request{Method: http.MethodPost, URL: u, Header: http.Header{}}).WithContext(samekey.WithPolicy(t.Context(), samekey.Policy{MaxAttempts: 1})))
		require.ErrorIs(t, err, samekey.ErrNotSent)
		for _, secret := range []string{"hunter2pass", "operator", "hush-hush", "frag"} {
			require.NotContains(t, err.Error(), secret)
		}
	}
}

// TestPolicyErrorsAreJoined: New names every bad field of every endpoint at once, and each can be picked out.
func TestPolicyErrorsAreJoined(t *testing.T) {
	_, err := samekey.New(samekey.Config{Default: samekey.Policy{MaxAttempts: -1}, Endpoints: map[string]samekey.Policy{
		"POST /a": {RetryStatus: []int{200}}, "POST /b": {Budget: 3},
	}})
	for _, part := range []string{"Store", "MaxAttempts", `endpoint "POST /a": RetryStatus`, `endpoint "POST /b": Budget`} {
		require.ErrorContains(t, err, part)
	}
	require.ErrorIs(t, err, samekey.ErrPolicy)
	require.ErrorAs(t, err, new(*samekey.PolicyError))
}
