package mockserver_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/samekey/samekey/mockserver"
)

// A client that pays, loses the answer and pays again under the same key: one effect. In a test, t stands in the place of
// stdout.
func Example() {
	srv := mockserver.NewServer(mockserver.Config{Seed: 1})
	defer srv.Close()
	srv.Fault(mockserver.Fault{Match: "POST /v1/payments", When: mockserver.AfterCommit, Do: mockserver.Drop, Times: 1})

	for attempt := 1; attempt <= 2; attempt++ {
		req, _ := http.NewRequest("POST", srv.URL+"/v1/payments", strings.NewReader(`{"amount": 100, "orderRef": "order-1"}`))
		req.Header.Set("Idempotency-Key", "7f2c3e2e-3b5b-4eaa-9c6f-1d8d9f8d3c12")
		req.GetBody = nil // or net/http would repeat it by itself
		resp, err := srv.Client().Do(req)
		if err != nil {
			fmt.Println(attempt, "no answer")
			continue
		}
		body, _ := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		fmt.Println(attempt, resp.Status, resp.Header.Get("Idempotent-Replayed"), strings.TrimSpace(string(body)))
	}
	srv.AssertOnce(stdout{})
	srv.AssertSameKey(stdout{})
	fmt.Println(srv.Effects(), "effect")
	// Output:
	// 1 no answer
	// 2 201 Created true {"links":{"self":"/v1/payments/pay_000001"},"paymentId":"pay_000001","status":"succeeded"}
	// 1 effect
}

// stdout prints what a *testing.T would report.
type stdout struct{}

func (stdout) Helper()                           {}
func (stdout) Errorf(format string, args ...any) { fmt.Printf(format+"\n", args...) }

// A team's own fake API gets keys, faults and a ledger.
func ExampleWrap() {
	api := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "done")
	})
	eng := mockserver.Wrap(api, mockserver.IETF)
	defer eng.Close()
	client := &http.Client{Transport: eng.Transport()}
	for range 2 {
		req, _ := http.NewRequest("POST", "http://fake.test/things", nil)
		req.Header.Set("Idempotency-Key", `"k-1"`)
		resp, err := client.Do(req)
		if err != nil {
			fmt.Println(err)
			return
		}
		_ = resp.Body.Close()
		fmt.Println(resp.Status)
	}
	fmt.Println(eng.Effects(), "effect")
	// Output:
	// 200 OK
	// 200 OK
	// 1 effect
}

// Faults compose: a gateway that loses the key, and then the answer.
func ExampleAction_Then() {
	eng := mockserver.New(mockserver.Config{})
	defer eng.Close()
	eng.Fault(mockserver.Fault{When: mockserver.AfterCommit, Do: mockserver.StripHeader("Idempotency-Key").Then(mockserver.CutBody), Share: 0.1})
	fmt.Println(len(eng.Keys()))
	// Output: 0
}
