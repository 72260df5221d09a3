package samekey_test

// The program of README.md, word for word but for the server: TestReadme holds them together.

import (
	"context"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"strings"

	"github.com/samekey/samekey"
	"github.com/samekey/samekey/mockserver"
	"github.com/samekey/samekey/persist/journal"
)

func Example() {
	srv := mockserver.NewServer(mockserver.Config{}) // loses the first answer: the payment is made, the client cannot know
	defer srv.Close()
	srv.Fault(mockserver.Fault{When: mockserver.AfterCommit, Do: mockserver.Drop, Times: 1})
	dir, err := os.MkdirTemp("", "samekey")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)

	if err := charge(context.Background(), dir, srv.URL); err != nil {
		log.Fatal(err)
	}
	fmt.Println("effects at the server:", srv.Effects())
	// Output:
	// 201 after 2 attempts
	// effects at the server: 1
}

func charge(ctx context.Context, dir, bank string) error {
	store, err := journal.Open(ctx, dir, journal.Options{})
	if err != nil {
		return err
	}
	defer store.Close()
	client, err := samekey.New(samekey.Config{Store: store})
	if err != nil {
		return err
	}
	defer client.Close()

	body := strings.NewReader(`{"amount":100,"currency":"RUB"}`)
	req, err := http.NewRequestWithContext(ctx, "POST", bank+"/v1/payments", body)
	if err != nil {
		return err
	}
	resp, err := client.Do(samekey.Named(req, "order-4711/charge"))
	if err != nil {
		return err // samekey.EffectOf(err) says whether it may have happened; the same call again goes on
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	info, _ := samekey.InfoOf(resp)
	fmt.Println(resp.StatusCode, "after", info.Attempts, "attempts")
	return err
}
