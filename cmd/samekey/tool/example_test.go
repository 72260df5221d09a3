package tool_test

import (
	"context"
	"fmt"
	"log"

	"github.com/samekey/samekey/cmd/samekey/tool"
	"github.com/samekey/samekey/persist"
	"github.com/samekey/samekey/persist/memory"
)

// A tool for a store of one's own: mem:NAME names one in this process.
func Example() {
	ctx := context.Background()
	orders := memory.New()
	e, err := orders.Begin(ctx, persist.Record{
		Ref: persist.Ref{ID: "order-4711/charge"}, Named: true, Key: "3f2a9c1d-0000-4000-8000-000000000001", Method: "POST", Target: "https://api.bank.test/v1/payments",
	})
	if err != nil {
		log.Fatal(err)
	}
	if err := orders.Release(ctx, e.Claim); err != nil {
		log.Fatal(err)
	}

	paytool := tool.Config{Name: "paytool", Stores: []tool.Kind{{
		Schemes: []string{"mem"},
		Usage:   "mem:NAME\tin the memory of this process",
		Open: func(_ context.Context, url string, w tool.Want) (tool.Opened, error) {
			if url != "mem:orders" {
				return tool.Opened{}, fmt.Errorf("there is no store %s: there is mem:orders", url)
			}
			return tool.Opened{Store: open{orders}, Name: url, Caveat: "it ends with the process"}, nil
		},
	}}}
	// A main has os.Exit(tool.Main(ctx, os.Args[1:], paytool)).
	fmt.Println(tool.Main(ctx, []string{"abandon", "mem:orders", "order-4711/charge", "-reason", "cancelled by phone"}, paytool))
	fmt.Println(tool.Main(ctx, []string{"check", "mem:orders"}, paytool))
	// Output:
	// abandoned order-4711/charge: pending after 0 attempts
	// 0
	// store         mem:orders
	// verdict       sound: it answers, takes what is written, and keeps it
	// operations    1
	//   pending     0
	//   succeeded   0
	//   rejected    0
	//   conflicted  0
	//   abandoned   1
	// 0
}

// open is a store that outlives its users.
type open struct{ persist.Store }

func (open) Close() error { return nil }
