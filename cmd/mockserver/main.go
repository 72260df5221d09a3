// Command mockserver is an HTTP API with idempotency keys that misbehaves on demand, for tests of clients in any
// language. Run it with -h.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/samekey/samekey/mockserver"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout, os.Stderr); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "mockserver:", err)
		os.Exit(code(err))
	}
}

// usageError says that the command line, or a file that it names, is wrong.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

func code(err error) int {
	if wrong := (usageError{}); errors.As(err, &wrong) {
		return 2
	}
	return 1
}

// run serves until ctx ends. The first line on out is where.
func run(ctx context.Context, args []string, out, errOut io.Writer) error {
	fs := flag.NewFlagSet("mockserver", flag.ContinueOnError)
	fs.SetOutput(io.Discard) // what is wrong with a flag is said once, by main
	fs.Usage = func() {}
	addr := fs.String("addr", "127.0.0.1:8099", "host:port to listen on; port 0 takes a free one")
	profile := fs.String("profile", "default", "how keys are answered: "+strings.Join(mockserver.ProfileNames(), ", ")+
		", or a .json file")
	faults := fs.String("faults", "", "JSON `file` of faults to begin with")
	seed := fs.Uint64("seed", 1, "decides which requests a fault with a share strikes")
	ttl := fs.Duration("ttl", 0, "how long a key is remembered, such as 24h; 0 is the profile's, -1s for ever")
	operation := fs.String("operation", "orderRef", "member of a JSON body, or a JSON pointer, that names the one operation a request serves")
	require := fs.Bool("require", false, "refuse commands without a key")
	async := fs.Duration("async", time.Second, "how long an operation accepted with 202 takes; -1s until POST /_mock/operations/{id}")
	certFile := fs.String("tls", "", "serve HTTPS with HTTP/2, and write the self-signed certificate to this `file` for clients to trust")
	switch err := fs.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		fs.SetOutput(errOut)
		usage(fs)
		return err
	case err != nil:
		return usageError{fmt.Errorf("%w; see -h", err)}
	case fs.NArg() > 0:
		return usageError{fmt.Errorf("unexpected argument %q; see -h", fs.Arg(0))}
	}
	p, err := loadProfile(*profile)
	if err != nil {
		return usageError{err}
	}
	p.Require = p.Require || *require
	cfg := mockserver.Config{Profile: p, TTL: *ttl, Seed: *seed, AsyncAfter: *async, OperationOf: mockserver.Member(*operation)}
	list, err := loadFaults(*faults)
	if err != nil {
		return usageError{err}
	}
	listen := mockserver.Listen
	if *certFile != "" {
		listen = mockserver.ListenTLS
	}
	srv, err := listen(*addr, cfg)
	if err != nil {
		return err
	}
	defer srv.Close()
	if err := srv.SetFaults(list...); err != nil {
		return usageError{fmt.Errorf("%s: %w", *faults, err)}
	}
	if *certFile != "" {
		if err := os.WriteFile(*certFile, srv.CertPEM(), 0o600); err != nil {
			return err
		}
	}
	_, _ = fmt.Fprintf(out, "listening on %s\n", srv.URL)
	<-ctx.Done()
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	_ = srv.Shutdown(grace) // Close ends what would not end in time
	t := srv.Totals()
	_, _ = fmt.Fprintf(out, "stopped: %d requests, %d effects, %d duplicates\n", t.Requests, t.Effects, t.Duplicates)
	return nil
}

func loadProfile(name string) (mockserver.Profile, error) {
	if !strings.HasSuffix(name, ".json") {
		return mockserver.ProfileByName(name)
	}
	f, err := os.Open(name)
	if err != nil {
		return mockserver.Profile{}, err
	}
	defer func() { _ = f.Close() }()
	return mockserver.ReadProfile(f)
}

func loadFaults(name string) ([]mockserver.Fault, error) {
	if name == "" {
		return nil, nil
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	list, err := mockserver.ReadFaults(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return list, nil
}
