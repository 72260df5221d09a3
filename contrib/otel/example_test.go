package otelsamekey_test

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"strings"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/samekey/samekey"
	otelsamekey "github.com/samekey/samekey/contrib/otel"
	"github.com/samekey/samekey/mockserver"
	"github.com/samekey/samekey/persist/memory"
)

func Example() {
	srv := mockserver.NewServer(mockserver.Config{}) // loses the first answer
	defer srv.Close()
	srv.Fault(mockserver.Fault{When: mockserver.AfterCommit, Do: mockserver.Drop, Times: 1})
	exporter := tracetest.NewInMemoryExporter() // stands in for an OTLP exporter
	tracers := trace.NewTracerProvider(trace.WithSyncer(exporter))

	o, err := otelsamekey.New(otelsamekey.Options{TracerProvider: tracers, Propagator: propagation.TraceContext{}})
	if err != nil {
		log.Fatal(err)
	}
	client, err := samekey.New(samekey.Config{
		Store:     memory.New(),
		Observer:  o.Observe,
		Prepare:   o.Inject,
		Endpoints: map[string]samekey.Policy{"POST /v1/payments": {}},
	})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	body := strings.NewReader(`{"amount":100,"currency":"RUB"}`)
	req, err := http.NewRequestWithContext(context.Background(), "POST", srv.URL+"/v1/payments", body)
	if err != nil {
		log.Fatal(err)
	}
	resp, err := client.Do(samekey.Named(req, "order-4711/charge"))
	if err != nil {
		log.Fatal(err)
	}
	defer resp.Body.Close()

	for _, span := range exporter.GetSpans() {
		fmt.Printf("%s: %s\n", span.Name, span.Status.Code)
	}
	// Output:
	// POST attempt: Error
	// POST attempt: Unset
	// samekey POST /v1/payments: Unset
}
