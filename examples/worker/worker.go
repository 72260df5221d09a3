package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/samekey/samekey"
	"github.com/samekey/samekey/crashtest"
	"github.com/samekey/samekey/persist/journal"
)

const stream = "ORDERS"

type config struct {
	nats, bank, dir string
	ackWait         time.Duration // after which JetStream delivers a message again
}

// work charges orders until ctx ends.
func work(ctx context.Context, cfg config) (err error) {
	store, err := journal.Open(ctx, cfg.dir, journal.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	client, err := samekey.New(samekey.Config{
		Store:    store,
		Default:  samekey.Policy{RequireName: samekey.On, Backoff: samekey.Backoff{Min: 20 * time.Millisecond}},
		Observer: crashtest.Observer(), // for the test, which kills this program
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, client.Close()) }()

	nc, err := nats.Connect(cfg.nats)
	if err != nil {
		return err
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	consumer, err := js.CreateOrUpdateConsumer(ctx, stream, jetstream.ConsumerConfig{
		Durable: "charge", AckPolicy: jetstream.AckExplicitPolicy, AckWait: cfg.ackWait, MaxAckPending: 64,
	})
	if err != nil {
		return err
	}
	// The messages of one consumer are handled one after another; eight of them at a time.
	slots := make(chan struct{}, 8)
	consuming, err := consumer.Consume(func(msg jetstream.Msg) {
		select {
		case slots <- struct{}{}:
		case <-ctx.Done():
			return // it comes again
		}
		go func() {
			defer func() { <-slots }()
			handle(ctx, client, cfg.bank, msg)
		}()
	})
	if err != nil {
		return err
	}
	<-ctx.Done()
	consuming.Stop()
	for range cap(slots) { // those under way end with ctx
		slots <- struct{}{}
	}
	return nil
}

// handle charges one message's order, and tells JetStream what became of it.
func handle(ctx context.Context, client *samekey.Client, bank string, msg jetstream.Msg) {
	id := msg.Headers().Get(jetstream.MsgIDHeader)
	status, err := charge(ctx, client, bank, id, msg.Data())
	switch {
	case errors.Is(err, samekey.ErrConflict), errors.Is(err, samekey.ErrMismatch), errors.Is(err, samekey.ErrExpired):
		slog.Error("for a human: not charged for certain", "order", id, "error", err)
		err = msg.Term()
	case err != nil:
		// Not charged, or nobody knows. The same message again is the right thing in either case: it goes on under the
		// same key, or starts anew where nothing was sent.
		slog.Warn("comes again", "order", id, "effect", samekey.EffectOf(err), "error", err)
		err = msg.NakWithDelay(time.Second)
	default: // charged, or declined for good: the answer is kept under the name, whether this Ack arrives or not
		crashtest.Reached("before ack")
		slog.Debug("done", "order", id, "status", status)
		err = msg.Ack()
		crashtest.Reached("acked")
	}
	if err != nil {
		slog.Warn("not acknowledged, and will come again", "order", id, "error", err)
	}
}

// charge makes the message's ID the operation's name. Whatever delivers the message again means the same charge.
func charge(ctx context.Context, client *samekey.Client, bank, id string, order []byte) (status int, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, bank+"/v1/payments", bytes.NewReader(order))
	if err != nil {
		return 0, err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := client.Do(samekey.Named(req, stream+"/"+id+"/charge"))
	if err != nil {
		return 0, err
	}
	_, err = io.Copy(io.Discard, resp.Body)
	if info, _ := samekey.InfoOf(resp); err == nil && info.State == samekey.Pending {
		err = fmt.Errorf("the bank is still at it: %s", resp.Status)
	}
	return resp.StatusCode, errors.Join(err, resp.Body.Close())
}
