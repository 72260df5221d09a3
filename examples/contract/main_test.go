package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"
)

// The whole exchange, with the figures of the server's ledger at its end.
func Example() {
	if err := run(context.Background(), os.Stdout); err != nil {
		fmt.Println(err)
	}
	// Output:
	// A payment, and the same call once more: the name is known, and the journal has the answer.
	//   POST /v1/payments -> 201 Created (succeeded, network, replayed: false): succeeded pay_000001
	//   POST /v1/payments -> 201 Created (succeeded, local, replayed: false): succeeded pay_000001
	// An order whose answer is lost: the retry bears the same key, and the server replays what it has stored.
	//   POST /v1/orders -> 201 Created (succeeded, replay, replayed: true): succeeded ord_000001
	// The payment with another amount: refused here, as the journal knows what the name stands for.
	//   *samekey.MismatchError, nothing was sent
	// The same by a program without that journal: the server answers 409, which is sent once and never retried.
	//   *samekey.ConflictError, reason: payload mismatch, code IdempotencyKeyConflict
	// An order that takes its time: 202, and then polls, until it has succeeded.
	//   POST /v1/orders -> 200 OK (succeeded, network, replayed: false): succeeded op_000001
	// A bad amount, and the answer is lost: the refusal is stored under the key as well, and is no error of Do.
	//   POST /v1/payments -> 400 Bad Request (rejected, replay, replayed: true): InvalidAmount: The amount is a positive number of minor units.
	// The server has seen 7 commands, and 3 effects: a payment and two orders.
}

// TestHelp: -h explains, and runs nothing.
func TestHelp(t *testing.T) {
	cmd := exec.Command("go", "run", "-buildvcs=false", ".", "-h")
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	require.NoError(t, cmd.Run(), errOut.String())
	require.Empty(t, out.String())
	require.Contains(t, errOut.String(), "go run ./examples/contract\n")
	require.ErrorContains(t, exec.Command("go", "run", "-buildvcs=false", ".", "more").Run(), "exit status")
}
