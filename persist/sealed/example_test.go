package sealed_test

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"database/sql"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	"github.com/samekey/samekey"
	"github.com/samekey/samekey/mockserver"
	"github.com/samekey/samekey/persist"
	"github.com/samekey/samekey/persist/journal"
	"github.com/samekey/samekey/persist/memory"
	"github.com/samekey/samekey/persist/sealed"
)

// aes256 makes a key of 32 bytes, as a key management service keeps them.
func aes256(id string, key []byte) (sealed.Key, error) {
	block, err := aes.NewCipher(key)
	if err != nil {
		return sealed.Key{}, err
	}
	aead, err := cipher.NewGCM(block)
	return sealed.Key{ID: id, AEAD: aead}, err
}

// A journal of which a copy tells nothing but names and times.
func Example() {
	key, err := aes256("2026-12", []byte("an example: take yours from a KMS"[:32]))
	if err != nil {
		panic(err)
	}
	sealer, err := sealed.New(sealed.Options{Keys: []sealed.Key{key}, Strict: true})
	if err != nil {
		panic(err)
	}
	dir, err := os.MkdirTemp("", "sealed-example-")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	inner, err := journal.Open(context.Background(), filepath.Join(dir, "journal"), journal.Options{})
	if err != nil {
		panic(err)
	}
	store := sealer.Store(inner)
	defer store.Close()
	client, err := samekey.New(samekey.Config{Store: store})
	if err != nil {
		panic(err)
	}
	defer client.Close()

	bank := mockserver.NewServer(mockserver.Config{})
	defer bank.Close()
	req, err := http.NewRequest(http.MethodPost, bank.URL+"/v1/payments", strings.NewReader(`{"amount":100,"currency":"RUB"}`))
	if err != nil {
		panic(err)
	}
	resp, err := client.Do(samekey.Named(req, "order-4711/charge"))
	if err != nil {
		panic(err)
	}
	resp.Body.Close()

	name := samekey.Ref{ID: "order-4711/charge"}
	kept, _ := inner.Get(context.Background(), name)
	fmt.Printf("on disk: %s, %s, key %q, target %s\n", kept.ID, kept.State(), kept.Key, kept.Target)
	op, _ := client.Operation(context.Background(), name)
	request, _ := op.Request(context.Background())
	fmt.Println("opened:", request.Method, request.URL.Path, request.ContentLength, "bytes")
	// Output:
	// on disk: order-4711/charge, succeeded, key "", target :sealed1:2026-12
	// opened: POST /v1/payments 31 bytes
}

// A new key seals from now on; what the old one has sealed stays readable as long as it is there.
func Example_newKey() {
	old, err := aes256("2025", make([]byte, 32))
	if err != nil {
		panic(err)
	}
	renewed, err := aes256("2026", []byte("another one of the same 32 bytes"))
	if err != nil {
		panic(err)
	}
	ctx, inner := context.Background(), memory.New()
	write := func(keys ...sealed.Key) persist.Store {
		s, err := sealed.New(sealed.Options{Keys: keys})
		if err != nil {
			panic(err)
		}
		return s.Store(inner)
	}
	rec := persist.Record{Ref: persist.Ref{ID: "order-1"}, Key: "k", Method: "POST", Target: "https://bank.test/", Body: []byte("{}")}
	if _, err := write(old).Begin(ctx, rec); err != nil {
		panic(err)
	}
	got, err := write(renewed, old).Get(ctx, rec.Ref)
	fmt.Println(string(got.Body), err)

	_, err = write(renewed).Get(ctx, rec.Ref)
	fmt.Println(errors.Is(err, sealed.ErrNoKey), err)
	// Output:
	// {} <nil>
	// true sealed: Get order-1: request, sealed under key "2025", needs that key: add it to Options.Keys
}

// enqueuer is sqlstore's Store, which is a module of its own.
type enqueuer interface {
	Enqueue(ctx context.Context, tx *sql.Tx, rec persist.Record) error
}

// A command that is recorded in the caller's own transaction is sealed by the caller. The client that sends it has
// sealer.Store(db) for its store.
func ExampleSealer_Seal() {
	placeOrder := func(ctx context.Context, client *samekey.Client, sealer *sealed.Sealer, db enqueuer, tx *sql.Tx, req *http.Request) error {
		rec, err := client.Capture(req)
		if err != nil {
			return err
		}
		return db.Enqueue(ctx, tx, sealer.Seal(rec))
	}
	_ = placeOrder
}
