package mockserver_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/samekey/samekey/mockserver"
)

// witness collects what assertions say.
type witness struct{ said []string }

func (*witness) Helper() {}

func (w *witness) Errorf(format string, args ...any) {
	w.said = append(w.said, fmt.Sprintf(format, args...))
}

var assertions = map[string]func(*mockserver.Engine, mockserver.TB){
	"Once":          (*mockserver.Engine).AssertOnce,
	"AtMostOnce":    (*mockserver.Engine).AssertAtMostOnce,
	"SameKey":       (*mockserver.Engine).AssertSameKey,
	"NoOverlap":     (*mockserver.Engine).AssertNoOverlap,
	"ConflictFinal": (*mockserver.Engine).AssertConflictFinal,
	"Settled":       (*mockserver.Engine).AssertSettled,
}

// TestWrongClients lets clients make one mistake each: the assertions that are meant for it name it, the others are
// silent. The first client makes none.
func TestWrongClients(t *testing.T) {
	const body = `{"amount":1,"orderRef":"order-1"}`
	const nameless = `{"amount":1}`
	dropAfter := mockserver.Fault{When: mockserver.AfterCommit, Do: mockserver.Drop, Times: 1}
	dropBefore := mockserver.Fault{Do: mockserver.Drop, Times: 1}
	for _, c := range []struct {
		name   string
		faults []mockserver.Fault
		client func(post func(path, key, body string) int)
		caught map[string]string // assertion: what it says
	}{
		{"right", []mockserver.Fault{dropAfter, {Do: mockserver.Status(503, false), Times: 1}},
			func(post func(path, key, body string) int) {
				for range 3 {
					post("/v1/payments", "k1", body)
				}
				post("/v1/payments", "k2", `{"amount":402,"orderRef":"order-2"}`) // refused for good
			}, nil},
		{"right, without names: equal payments are two intents", nil,
			func(post func(path, key, body string) int) {
				post("/v1/payments", "k1", nameless)
				post("/v1/payments", "k2", nameless)
			}, nil},
		{"new key per attempt", []mockserver.Fault{dropAfter},
			func(post func(path, key, body string) int) {
				post("/v1/payments", "k1", body)
				post("/v1/payments", "k2", body)
			},
			map[string]string{
				"Once":       "2 effects of operation order-1 (POST /v1/payments), under 2 keys: a fresh key was taken for another attempt",
				"AtMostOnce": "under 2 keys",
				"SameKey":    "#2 carries another key than #1: a key is for the life of its command",
			}},
		{"new key per attempt, without names", []mockserver.Fault{dropAfter},
			func(post func(path, key, body string) int) {
				post("/v1/payments", "k1", nameless)
				post("/v1/payments", "k2", nameless)
			},
			map[string]string{"Once": "under 2 keys", "AtMostOnce": "under 2 keys", "SameKey": "another key"}},
		{"no key at all", []mockserver.Fault{dropAfter},
			func(post func(path, key, body string) int) {
				post("/v1/payments", "", body)
				post("/v1/payments", "", body)
			},
			map[string]string{"Once": "without a key on each attempt", "AtMostOnce": "without a key", "SameKey": "neither carries a key"}},
		{"changed body", []mockserver.Fault{dropBefore},
			func(post func(path, key, body string) int) {
				post("/v1/payments", "k1", `{"amount":1}`)
				post("/v1/payments", "k1", `{"amount":2}`)
			},
			map[string]string{"SameKey": "#2 has another body than #1 under the same key"}},
		{"same JSON, other bytes", []mockserver.Fault{dropBefore},
			func(post func(path, key, body string) int) {
				post("/v1/payments", "k1", `{"amount":1}`)
				post("/v1/payments", "k1", `{"amount": 1}`)
			},
			map[string]string{"SameKey": "#2 has another body"}},
		{"retry of a 409", nil,
			func(post func(path, key, body string) int) {
				post("/v1/payments", "k1", body)
				post("/v1/payments", "k1", strings.Replace(body, "1", "2", 1))
				post("/v1/payments", "k1", strings.Replace(body, "1", "2", 1))
			},
			map[string]string{"SameKey": "another body",
				"ConflictFinal": "#3 was sent after #2 had been answered with a 409: a conflict is never retried"}},
		{"key dropped on redirect", []mockserver.Fault{{Match: "/v1/payments", Do: mockserver.Redirect(307, "/v1/orders"), Times: 1}},
			func(post func(path, key, body string) int) {
				post("/v1/payments", "k1", nameless)
				post("/v1/orders", "", nameless)
			},
			map[string]string{"SameKey": "#2 carries no key, and #1 did: the key was dropped"}},
		{"early give-up", []mockserver.Fault{dropBefore},
			func(post func(path, key, body string) int) { post("/v1/payments", "k1", body) },
			map[string]string{"Once": "no effect: operation order-1 (POST /v1/payments) was given up before a final answer",
				"Settled": "given up early: the last attempt of operation order-1 (POST /v1/payments), #1, got no final answer"}},
		{"early give-up after the effect", []mockserver.Fault{dropAfter},
			func(post func(path, key, body string) int) { post("/v1/payments", "k1", body) },
			map[string]string{"Settled": "got no final answer"}},
		{"two attempts at once", []mockserver.Fault{{Do: mockserver.Delay(time.Second), Times: 1}},
			func(post func(path, key, body string) int) {
				var wg sync.WaitGroup
				wg.Go(func() { post("/v1/payments", "k1", body) })
				time.Sleep(time.Millisecond)
				wg.Go(func() { post("/v1/payments", "k1", body) })
				wg.Wait()
			},
			map[string]string{"NoOverlap": "#2 was sent while #1 was being answered"}},
		{"a fresh key while the first attempt goes on without its client", []mockserver.Fault{{Do: mockserver.Delay(time.Minute), Times: 1}},
			func(post func(path, key, body string) int) {
				post("/v1/payments", "k1", nameless+strings.Repeat(" ", 9)) // gives up after a second
				post("/v1/payments", "k2", nameless)
				time.Sleep(time.Hour)
			},
			map[string]string{"Once": "under 2 keys", "AtMostOnce": "under 2 keys", "SameKey": "another key"}},
		{"delivered twice by a gateway, and no key", []mockserver.Fault{{Do: mockserver.Duplicate.Then(mockserver.StripHeader("Idempotency-Key"))}},
			func(post func(path, key, body string) int) { post("/v1/payments", "k1", body) },
			map[string]string{
				"Once":       "as a gateway delivered it twice and its key did not reach the server",
				"AtMostOnce": "2 effects of operation order-1"}},
		{"delivered twice by a gateway", []mockserver.Fault{{Do: mockserver.Duplicate}},
			func(post func(path, key, body string) int) { post("/v1/payments", "k1", body) }, nil},
		{"a conflict while another attempt is under way", []mockserver.Fault{{Do: mockserver.Delay(time.Minute).Then(mockserver.Status(409, false))}},
			func(post func(path, key, body string) int) {
				var wg sync.WaitGroup
				for range 2 {
					wg.Go(func() { post("/v1/payments", "k1", body) })
				}
				wg.Wait()
			},
			map[string]string{"NoOverlap": "#2 was sent while #1 was being answered"}},
		{"two attempts at once, and the first is lost", []mockserver.Fault{{Do: mockserver.Delay(time.Second).Then(mockserver.Drop), Times: 1}},
			func(post func(path, key, body string) int) {
				var wg sync.WaitGroup
				wg.Go(func() { post("/v1/payments", "k1", body) })
				time.Sleep(time.Millisecond)
				wg.Go(func() { post("/v1/payments", "k1", body) })
				wg.Wait()
			},
			map[string]string{"NoOverlap": "#2 was sent while #1 was being answered"}},
		{"equal payments at once, one of them unlucky", []mockserver.Fault{{Do: mockserver.Delay(time.Second).Then(mockserver.Status(503, false)), Times: 1}},
			func(post func(path, key, body string) int) {
				var wg sync.WaitGroup
				wg.Go(func() { post("/v1/payments", "k1", nameless) })
				time.Sleep(time.Millisecond)
				wg.Go(func() { post("/v1/payments", "k2", nameless) })
				wg.Wait()
			},
			map[string]string{"Once": "no effect: key k1", "Settled": "the last attempt of key k1"}},
		{"nothing sent", nil, func(func(path, key, body string) int) {},
			map[string]string{"Once": "no command has arrived", "SameKey": "no command has arrived"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			inMemory(t, mockserver.Config{}, func(t *testing.T, e *mockserver.Engine, tr *mockserver.Memory) {
				e.Fault(c.faults...)
				c.client(func(path, key, body string) int {
					if strings.HasSuffix(body, " ") {
						return sendFor(t, tr, time.Second, "POST", "http://api.test"+path, key, strings.TrimSpace(body)).status
					}
					return send(t, tr, "POST", "http://api.test"+path, key, body).status
				})
				for name, check := range assertions {
					var w witness
					check(e, &w)
					said := strings.Join(w.said, "\n")
					if want := c.caught[name]; want == "" {
						assert.Empty(t, said, "Assert%s", name)
					} else {
						assert.Contains(t, said, want, "Assert%s", name)
					}
				}
			})
		})
	}
}

func TestFailuresShowTheTimeLine(t *testing.T) {
	inMemory(t, mockserver.Config{}, func(t *testing.T, e *mockserver.Engine, c *mockserver.Memory) {
		e.Fault(mockserver.Fault{When: mockserver.AfterCommit, Do: mockserver.CutBody, Times: 1})
		send(t, c, "POST", pay, "k1", `{"amount":1,"orderRef":"o"}`)
		time.Sleep(1500 * time.Millisecond)
		send(t, c, "POST", pay, "k2", `{"amount":1,"orderRef":"o"}`)
		var w witness
		e.AssertOnce(&w)
		require.Len(t, w.said, 1)
		lines := strings.Split(w.said[0], "\n")
		require.Len(t, lines, 3)
		assert.Equal(t, "mockserver: 2 effects of operation o (POST /v1/payments), under 2 keys: a fresh key was taken for another attempt", lines[0])
		assert.Equal(t, "  #1   +0s       POST /v1/payments  key k1  201 cut off  EFFECT  fault after commit: cut-body  from memory:1", lines[1])
		assert.Equal(t, "  #2   +1.5s     POST /v1/payments  key k2  201  EFFECT  from memory:2", lines[2])
	})
}

func TestLedgerFigures(t *testing.T) {
	inMemory(t, mockserver.Config{}, func(t *testing.T, e *mockserver.Engine, c *mockserver.Memory) {
		e.Fault(mockserver.Fault{Match: "POST /v1/payments", When: mockserver.AfterCommit, Do: mockserver.Drop, Times: 1})
		for i := range 3 {
			send(t, c, "POST", pay, "a", `{"amount":1,"orderRef":"o1"}`)
			send(t, c, "POST", pay, fmt.Sprint("b", i), `{"amount":1,"orderRef":"o2"}`, "Authorization", "Bearer secret")
		}
		send(t, c, "GET", "http://api.test/v1/payments/pay_000001", "", "")
		assert.Equal(t, mockserver.Totals{Requests: 7, Commands: 6, Effects: 4, Duplicates: 2, Keys: 4, Operations: 2, Lost: 1,
			Replays: 2, Live: 4}, e.Totals())
		assert.Equal(t, []string{"a", "b0", "b1", "b2"}, e.Keys())
		assert.Equal(t, []int{1, 1, 3, 2}, []int{e.EffectsOfKey("a"), e.EffectsOfKey("b1"), e.EffectsOf("o2"), e.Duplicates()})
		r := e.Requests()[1]
		assert.Equal(t, "Bearer secret", r.Header.Get("Authorization"))
		assert.NotContains(t, r.Principal, "secret")
		assert.Equal(t, `{"amount":1,"orderRef":"o2"}`, string(r.Body))
		e.Reset()
		assert.Equal(t, mockserver.Totals{}, e.Totals())
	})
}

// TestLedgerLetsGo: what the ledger has no line of any more, it knows nothing of.
func TestLedgerLetsGo(t *testing.T) {
	inMemory(t, mockserver.Config{MaxLedger: 2}, func(t *testing.T, e *mockserver.Engine, c *mockserver.Memory) {
		for _, key := range []string{"a", "b", "b", "c", "a"} {
			send(t, c, "POST", pay, key, `{"amount":1,"orderRef":"`+key+`"}`)
		}
		assert.Equal(t, mockserver.Totals{Requests: 5, Commands: 5, Effects: 3, Keys: 4, Operations: 4, Replays: 2, Live: 3}, e.Totals())
		assert.Equal(t, []int{4, 5}, []int{e.Requests()[0].N, e.Requests()[1].N})
	})
}
