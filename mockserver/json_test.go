package mockserver_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/samekey/samekey/mockserver"
)

// TestFaultsAsJSON: every action has a JSON form that gives the same fault again.
func TestFaultsAsJSON(t *testing.T) {
	for _, do := range []mockserver.Action{
		mockserver.Drop, mockserver.Reset, mockserver.HalfClose, mockserver.CutBody, mockserver.CutChunked, mockserver.GoAway,
		mockserver.Duplicate, mockserver.ForgetKey, mockserver.Stall(0), mockserver.StallBody(time.Second), mockserver.Delay(time.Minute),
		mockserver.SlowBytes(time.Millisecond), mockserver.Informational(103).With("Link", "</x>"),
		mockserver.Status(503, true).With("Retry-After", "soon").Body(""), mockserver.Redirect(307, "/x"),
		mockserver.RawResponse([]byte("x")), mockserver.StripHeader("A"), mockserver.RenameHeader("A", "B"),
		mockserver.AnswerHeader("A", "b"), mockserver.StripAnswerHeader("A"), mockserver.StreamReset(7),
		mockserver.CrashReserved(time.Hour), mockserver.CrashUnstored(0), mockserver.Delay(time.Second).Then(mockserver.Drop),
	} {
		f := mockserver.Fault{Match: "POST /v1/{any...}", When: mockserver.AfterCommit, Do: do, Times: 1, Skip: 2, Attempt: 3, Key: "k", Share: 0.5}
		b, err := json.Marshal(f)
		require.NoError(t, err)
		back, err := mockserver.ReadFaults(strings.NewReader(string(b)))
		require.NoError(t, err, string(b))
		assert.Equal(t, []mockserver.Fault{f}, back)
	}
}

func TestFaultsInShort(t *testing.T) {
	got, err := mockserver.ReadFaults(strings.NewReader(`[{"do":"drop"},{"match":"/x","do":["cut-body",{"do":"delay","for":"1s"}]}]`))
	require.NoError(t, err)
	assert.Equal(t, []mockserver.Fault{{Do: mockserver.Drop},
		{Match: "/x", Do: mockserver.CutBody.Then(mockserver.Delay(time.Second))}}, got)
	for text, says := range map[string]string{
		`{"do":"explode"}`:                        `no action is named "explode"`,
		`{"do":"drop","often":1}`:                 "unknown field",
		`{"do":"drop","when":"later"}`:            "before or after",
		`{"do":{"do":"status"}}`:                  "needs a code",
		`{"do":{"do":"informational"}}`:           "needs a code",
		`{"do":"raw"}`:                            "needs a body",
		`{"do":"strip-header"}`:                   "needs a name",
		`{"do":{"do":"stall","for":"a while"}}`:   "invalid duration",
		`{"do":[]}`:                               "",
		`{"match":"x","do":"drop"}`:               "",
		`{"match":"POST /{a}/{a}","do":"drop"}`:   "",
		`{"do":"drop"} {"do":"drop"}`:             "",
		`{`:                                       "faults",
		`{"do":{"do":"rename-header","name":""}}`: "needs a name",
	} {
		faults, err := mockserver.ReadFaults(strings.NewReader(text))
		if err == nil {
			err = mockserver.New(mockserver.Config{}).SetFaults(faults...)
		}
		assert.ErrorContains(t, err, says, text)
	}
	assert.Panics(t, func() { mockserver.New(mockserver.Config{}).Fault(mockserver.Fault{}) })
}

func TestSelectorsOfFaults(t *testing.T) {
	inMemory(t, mockserver.Config{}, func(t *testing.T, e *mockserver.Engine, c *mockserver.Memory) {
		statuses := func(f mockserver.Fault, keys ...string) (got []int) {
			e.Reset()
			f.Do = mockserver.Status(503, false)
			e.Fault(f)
			for _, k := range keys {
				got = append(got, send(t, c, "POST", pay, k, `{"amount":1}`).status)
			}
			return got
		}
		assert.Equal(t, []int{503, 503, 201}, statuses(mockserver.Fault{Times: 2}, "a", "a", "a"))
		assert.Equal(t, []int{201, 503, 503}, statuses(mockserver.Fault{Skip: 1}, "a", "a", "a"))
		assert.Equal(t, []int{201, 201, 503, 503, 201}, statuses(mockserver.Fault{Attempt: 2}, "a", "b", "a", "b", "a"))
		assert.Equal(t, []int{201, 503}, statuses(mockserver.Fault{Key: "b"}, "a", "b"))
		assert.Equal(t, []int{201}, statuses(mockserver.Fault{Match: "GET /v1/payments"}, "a"))
		assert.Equal(t, []int{503}, statuses(mockserver.Fault{Match: "api.test/"}, "a"))
	})
}
