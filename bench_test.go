package samekey_test

import (
	"bytes"
	"io"
	"net/http"
	"testing"

	"github.com/samekey/samekey"
	"github.com/samekey/samekey/persist/memory"
)

type nothing struct{}

var done = []byte(`{"status":"succeeded","paymentId":"pay_1"}`)

func (nothing) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Body != nil {
		_, _ = io.Copy(io.Discard, req.Body)
		_ = req.Body.Close()
	}
	return &http.Response{StatusCode: 201, Status: "201 Created", Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{"Content-Type": {"application/json"}}, ContentLength: int64(len(done)), Body: io.NopCloser(bytes.NewReader(done)), Request: req}, nil
}

func BenchmarkDo(b *testing.B) {
	body := []byte(payment)
	run := func(b *testing.B, do func(*http.Request) (*http.Response, error)) {
		b.ReportAllocs()
		for b.Loop() {
			req, err := http.NewRequestWithContext(b.Context(), http.MethodPost, "http://bank.test/v1/payments", bytes.NewReader(body))
			if err != nil {
				b.Fatal(err)
			}
			req.Header.Set("Content-Type", "application/json")
			resp, err := do(req)
			if err != nil {
				b.Fatal(err)
			}
			_, _ = io.Copy(io.Discard, resp.Body)
			_ = resp.Body.Close()
		}
	}
	plain := &http.Client{Transport: nothing{}}
	b.Run("net/http", func(b *testing.B) { run(b, plain.Do) })
	b.Run("samekey", func(b *testing.B) {
		store := memory.New()
		defer store.Close()
		c, err := samekey.New(samekey.Config{Store: store, HTTPClient: plain})
		if err != nil {
			b.Fatal(err)
		}
		defer c.Close()
		run(b, c.Do)
	})
}
