// Command samekey-openapi prints the policy file that an OpenAPI description (3.0, 3.1; YAML or JSON) gives, and on
// stderr what the description leaves open. Run it with -h.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/samekey/samekey"
	"github.com/samekey/samekey/contrib/openapi"
)

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

// The exit codes.
const (
	exitDone  = 0
	exitNo    = 1
	exitUsage = 2
)

const usage = `samekey-openapi FILE [flags]

Prints the policy file (JSON) for the operations of an OpenAPI description (3.0, 3.1; YAML or JSON)
that take an idempotency key, and on stderr what the description leaves open: settle it in the file
before it is used.

  samekey-openapi payments.yaml >policies.json
  samekey-openapi payments.yaml -server https://api.bank.test/v2 -life 24h >policies.json

Flags
  -name NAME   a header, parameter or member that is a key too; repeatable
  -server URL  a base URL that stands for the description's servers; repeatable
  -life TIME   how long the server knows a key: 24h, forever
  -keyless     write the POST and PATCH operations without a key, too: they are sent once

Exit codes
  0  done
  1  the description is refused
  2  a bad command line, or the file cannot be read
`

func run(args []string, out, errOut io.Writer) int {
	fail := func(code int, err error) int {
		_, _ = fmt.Fprintln(errOut, "samekey-openapi:", strings.TrimPrefix(err.Error(), "openapi: "))
		return code
	}
	var o openapi.Options
	fs := flag.NewFlagSet("samekey-openapi", flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	to := func(list *[]string) func(string) error {
		return func(v string) error { *list = append(*list, v); return nil }
	}
	fs.Func("name", "", to(&o.Names))
	fs.Func("server", "", to(&o.Servers))
	fs.Func("life", "", func(v string) (err error) {
		if o.Life, err = time.ParseDuration(v); v == "forever" {
			o.Life, err = samekey.Forever, nil
		} else if err == nil && o.Life <= 0 {
			err = errors.New("is not above zero")
		}
		return err
	})
	fs.BoolVar(&o.Keyless, "keyless", false, "")
	var files []string
	for { // flags may stand behind the file, too
		if err := fs.Parse(args); errors.Is(err, flag.ErrHelp) {
			_, _ = io.WriteString(out, usage)
			return exitDone
		} else if err != nil {
			return fail(exitUsage, err)
		}
		if args = fs.Args(); len(args) == 0 {
			break
		}
		files, args = append(files, args[0]), args[1:]
	}
	if len(files) != 1 {
		return fail(exitUsage, errors.New("one FILE is wanted; more with -h"))
	}
	data, err := os.ReadFile(files[0])
	if err != nil {
		return fail(exitUsage, err)
	}
	d, err := openapi.Parse(files[0], data, o)
	if err != nil {
		return fail(exitNo, err)
	}
	for _, n := range d.Notes {
		_, _ = fmt.Fprintln(errOut, "-", n)
	}
	file, err := d.PolicyFile()
	if err == nil {
		_, err = out.Write(file)
	}
	if err != nil {
		return fail(exitUsage, err)
	}
	return exitDone
}
