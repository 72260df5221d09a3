package main

import (
	"context"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/samekey/samekey/crashtest"
	"github.com/samekey/samekey/mockserver"
)

func TestMain(m *testing.M) {
	crashtest.Main(m, map[string]func() error{"worker": func() error {
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
		defer stop()
		wait, err := time.ParseDuration(os.Getenv("ACKWAIT"))
		if err != nil {
			return err
		}
		return work(ctx, config{nats: os.Getenv("NATS"), bank: os.Getenv("BANK"), dir: os.Getenv("DIR"), ackWait: wait})
	}})
}

// TestRedeliveriesAreAbsorbed: workers that are killed one after another, at steps of the protocol and around the
// acknowledgement, by a bank that loses answers. Each message is one charge.
func TestRedeliveriesAreAbsorbed(t *testing.T) {
	const n = 60
	broker, err := startNATS(t.TempDir())
	require.NoError(t, err)
	t.Cleanup(broker.Shutdown)
	bank := mockserver.NewServer(mockserver.Config{Seed: 1})
	t.Cleanup(bank.Close)
	bank.Fault(
		mockserver.Fault{When: mockserver.AfterCommit, Do: mockserver.Drop, Share: 0.15},
		mockserver.Fault{When: mockserver.AfterCommit, Do: mockserver.Status(502, false), Share: 0.1},
		mockserver.Fault{When: mockserver.BeforeCommit, Do: mockserver.Status(503, false), Share: 0.1},
	)
	require.NoError(t, publish(t.Context(), broker.ClientURL(), n))
	env := []string{"NATS=" + broker.ClientURL(), "BANK=" + bank.URL, "DIR=" + t.TempDir() + "/journal", "ACKWAIT=300ms"}
	for _, point := range []string{"begun/5", "header written/9", "first byte/9", "outcome/9", "before ack/9", "acked/9", "settled/9"} {
		require.True(t, crashtest.Run(t, point, crashtest.Child("worker", env...)).Killed, point)
	}
	last := crashtest.Start(t, "", crashtest.Child("worker", env...))
	delivered := settled(t, broker.ClientURL(), last)
	last.Kill()
	require.Greater(t, delivered, uint64(n), "messages came again")
	t.Logf("%d messages were delivered %d times, %d requests at the bank", n, delivered, len(bank.Requests()))
	require.Equal(t, n, bank.Effects())
	bank.AssertOnce(t)
	bank.AssertSameKey(t)
	bank.AssertNoOverlap(t)
}

// settled waits until every message is acknowledged, and returns how often one was delivered.
func settled(t *testing.T, url string, worker *crashtest.Process) uint64 {
	t.Helper()
	nc, err := nats.Connect(url)
	require.NoError(t, err)
	defer nc.Close()
	js, err := jetstream.New(nc)
	require.NoError(t, err)
	consumer, err := js.Consumer(t.Context(), stream, "charge")
	require.NoError(t, err)
	var info *jetstream.ConsumerInfo
	require.Eventually(t, func() bool {
		select {
		case <-worker.Ended():
			return true // and fails below
		default:
		}
		info, err = consumer.Info(t.Context())
		return err == nil && info.NumPending == 0 && info.NumAckPending == 0
	}, 30*time.Second, 20*time.Millisecond)
	require.Zero(t, info.NumPending+uint64(info.NumAckPending), "the worker has ended")
	return info.Delivered.Consumer
}

// TestDemonstration is what `go run .` shows.
func TestDemonstration(t *testing.T) { require.NoError(t, demonstrate(t.Context())) }

func TestCommandLine(t *testing.T) {
	for _, c := range []struct {
		args []string
		says string // "": it is right
	}{
		{nil, ""},
		{[]string{"-nats", "nats://broker", "-bank", "http://bank"}, ""},
		{[]string{"-h"}, "go run ./examples/worker -nats nats://... -bank URL"},
		{[]string{"-nats", "nats://broker"}, "-nats needs -bank"},
		{[]string{"-bank", "http://bank"}, "-bank needs -nats"},
		{[]string{"orders"}, `"orders" is no flag; -h shows`},
		{[]string{"-port", "1"}, "-port"},
	} {
		var out strings.Builder
		_, err := parse(c.args, &out)
		require.Equal(t, c.says == "", err == nil, "%q: %v", c.args, err)
		require.Contains(t, out.String(), c.says)
	}
}
