package samekey_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"strings"

	"github.com/samekey/samekey"
	"github.com/samekey/samekey/mockserver"
	"github.com/samekey/samekey/persist/memory"
)

// PaymentsClient stands for an API client that a generator has written. It asks for something with a Do method.
type PaymentsClient struct {
	Server string
	Client interface {
		Do(*http.Request) (*http.Response, error)
	}
}

func (p PaymentsClient) Pay(ctx context.Context, body string) (status int, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, p.Server+"/v1/payments", strings.NewReader(body))
	if err != nil {
		return 0, err
	}
	resp, err := p.Client.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode, err
}

// A generated client takes the Client as it is. The operation is named through the context, as the request is hidden.
func ExampleClient_Do_generatedClient() {
	srv := mockserver.NewServer(mockserver.Config{})
	defer srv.Close()
	srv.Fault(mockserver.Fault{When: mockserver.AfterCommit, Do: mockserver.Drop, Times: 1}) // the first answer is lost

	client, err := samekey.New(samekey.Config{Store: memory.New()}) // journal.Open keeps operations over restarts
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	api := PaymentsClient{Server: srv.URL, Client: client}
	var info samekey.Info
	ctx := samekey.WithInfo(samekey.WithOperation(context.Background(), "order-4711/charge"), &info)
	status, err := api.Pay(ctx, `{"amount":100,"currency":"RUB"}`)
	fmt.Println(status, err)
	fmt.Println("attempts:", info.Attempts, "source:", info.Source)
	fmt.Println("payments made:", srv.Effects())
	// Output:
	// 201 <nil>
	// attempts: 2 source: replay
	// payments made: 1
}

// VendorSDK stands for an SDK that takes an http.Client and has a retry loop of its own, which repeats conflicts.
type VendorSDK struct {
	Server     string
	HTTPClient *http.Client
}

func (s VendorSDK) Pay(ctx context.Context, body string) (resp *http.Response, err error) {
	for range 3 {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.Server+"/v1/payments", strings.NewReader(body))
		if err != nil {
			return nil, err
		}
		if resp, err = s.HTTPClient.Do(req); err == nil && resp.StatusCode != http.StatusConflict && resp.StatusCode < 500 {
			return resp, nil
		}
	}
	return resp, err
}

// An SDK that takes an http.Client gets responses. Its own loop, which repeats a 409, meets the answer that the store
// keeps: the server is asked once.
func ExampleClient_HTTPClient_sdkWithRetries() {
	srv := mockserver.NewServer(mockserver.Config{})
	defer srv.Close()
	srv.Fault(mockserver.Fault{Do: mockserver.Status(409, false).Body(`{"error":"IdempotencyKeyConflict"}`)})

	client, err := samekey.New(samekey.Config{Store: memory.New()})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	sdk := VendorSDK{Server: srv.URL, HTTPClient: client.HTTPClient()}
	ctx := samekey.WithOperation(context.Background(), "order-4711/charge")
	resp, err := sdk.Pay(ctx, `{"amount":100,"currency":"RUB"}`)
	if err != nil {
		log.Fatal(err)
	}
	defer resp.Body.Close()
	fmt.Println(resp.Status)
	if conflict, ok := errors.AsType[*samekey.ConflictError](samekey.ErrorOf(resp)); ok {
		fmt.Println("conflict:", conflict.Reason)
	}
	fmt.Println("requests at the server:", len(srv.Requests()))
	// Output:
	// 409 Conflict
	// conflict: payload mismatch
	// requests at the server: 1
}

// EffectOf answers what most callers ask of an error: may the same thing be started anew?
func ExampleEffectOf() {
	srv := mockserver.NewServer(mockserver.Config{})
	srv.Fault(mockserver.Fault{When: mockserver.AfterCommit, Do: mockserver.Drop}) // no answer ever comes back
	client, err := samekey.New(samekey.Config{Store: memory.New(), Default: samekey.Policy{Backoff: samekey.Backoff{Min: -1}}})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	api := PaymentsClient{Server: srv.URL, Client: client}

	_, err = api.Pay(samekey.WithOperation(context.Background(), "order-1/charge"), `{"amount":100}`)
	fmt.Println(samekey.EffectOf(err), errors.Is(err, samekey.ErrUnknown))

	srv.Close() // nobody listens any more
	_, err = api.Pay(samekey.WithOperation(context.Background(), "order-2/charge"), `{"amount":100}`)
	fmt.Println(samekey.EffectOf(err), errors.Is(err, samekey.ErrNotSent))
	// Output:
	// unknown true
	// none true
}
