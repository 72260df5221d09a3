package samekey_test

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/samekey/samekey"
)

// metered is a body that tells how much was read of it.
type metered struct {
	io.Reader
	n      int
	closed bool
}

func (c *metered) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	c.n += n
	return n, err
}

func (c *metered) Close() error {
	c.closed = true
	return nil
}

// TestEnvelopesAreBounded: what is too large to be an envelope is not read into memory, and is all still there.
func TestEnvelopesAreBounded(t *testing.T) {
	const large = 8 << 20
	for name, look := range map[string]func(*http.Response) error{
		"result": func(resp *http.Response) error { _, err := samekey.ResultOf(resp); return err },
		"error":  func(resp *http.Response) error { _, err := samekey.APIErrorOf(resp); return err },
	} {
		t.Run(name, func(t *testing.T) {
			body := &metered{Reader: bytes.NewReader(make([]byte, large))}
			resp := &http.Response{StatusCode: http.StatusBadRequest, Header: http.Header{}, Body: body}
			require.ErrorContains(t, look(resp), "too large")
			require.LessOrEqual(t, body.n, 2<<20)
			require.False(t, body.closed)
			n, err := io.Copy(io.Discard, resp.Body)
			require.NoError(t, err)
			require.EqualValues(t, large, n)
			require.NoError(t, resp.Body.Close())
			require.True(t, body.closed)
		})
	}
}

// TestEnvelopeOfAStream: an answer beyond MaxResponse is not read to its end, and one below it is whatever its size.
func TestEnvelopeOfAStream(t *testing.T) {
	const large = 3 << 20
	envelope := `{"status":"succeeded","resultId":"r1","message":"` + strings.Repeat("x", large) + `"}`
	for name, limit := range map[string]int64{"kept": large * 2, "streamed": 1000} {
		t.Run(name, func(t *testing.T) {
			body := &metered{Reader: strings.NewReader(envelope)}
			rt := roundTripper(func(r *http.Request) (*http.Response, error) {
				return &http.Response{StatusCode: http.StatusCreated, Header: http.Header{}, ContentLength: -1, Body: body, Request: r}, nil
			})
			store := newStore(t)
			c := newClient(t, samekey.Config{Store: store, HTTPClient: &http.Client{Transport: rt}, Default: samekey.Policy{MaxResponse: limit}})
			resp, err := c.Do(pay(t, t.Context(), ""))
			require.NoError(t, err)
			r, err := samekey.ResultOf(resp)
			if limit > large {
				require.NoError(t, err)
				require.Equal(t, "r1", r.ID)
			} else {
				require.ErrorContains(t, err, "too large")
				require.Less(t, body.n, large)
				require.Equal(t, 1, pending(t, store), "its caller has not read it")
			}
			require.Equal(t, envelope, read(t, resp))
			require.Zero(t, pending(t, store))
		})
	}
}

// TestEnvelopeCutOff: what came before a failure can be read again, and so can the failure.
func TestEnvelopeCutOff(t *testing.T) {
	broken := errors.New("the connection is gone")
	body := &metered{Reader: io.MultiReader(strings.NewReader(`{"status":`), &brokenOnce{broken})}
	resp := &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: body}
	for range 2 {
		_, err := samekey.ResultOf(resp)
		require.ErrorIs(t, err, broken)
	}
	got, err := io.ReadAll(resp.Body)
	require.ErrorIs(t, err, broken)
	require.Equal(t, `{"status":`, string(got))
	require.NoError(t, resp.Body.Close())
	require.True(t, body.closed)
}

// brokenOnce fails once, and seems to have ended then.
type brokenOnce struct{ err error }

func (f *brokenOnce) Read([]byte) (int, error) {
	if f.err == nil {
		return 0, io.EOF
	}
	err := f.err
	f.err = nil
	return 0, err
}
