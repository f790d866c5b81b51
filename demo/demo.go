// Package demo answers one question: what does the proxy do for a bot, step by step, on real connections?
//
// It brings an upstream that misbehaves on demand and a walk-through that
// shows, and checks, how the proxy deals with it.
package demo

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"strings"
)

// Config is what the walk's proxy runs with, after its listen line: the
// defaults, but quick, so that nobody waits for a demonstration.
const Config = quick + "    max_retries: 3\n" + rules

// patient is the same for a reader's own calls, which outlast the outage that
// the invitation proposes: 0.2 + 0.4 + 0.8 + 1.6 + 2 + 2 seconds.
const patient = quick + "    max_retries: 6\n" + rules

const quick = `retry_policies:
  - name: default
    base_delay: 200ms
    max_delay: 2s
    jitter: none
    per_try_timeout: 2s
    deadline: 20s
`

const rules = `breakers:
  host: {consecutive_failures: 5, open: 500ms, open_max: 1s}
log: {level: error}
`

// proxy is how main lends the demo a proxy and its explain command.
type proxy struct {
	// start runs a proxy on a configuration until stop is called.
	start func(ctx context.Context, configYAML string) (proxyAddr, adminAddr string, stop func(), err error)
	// explain answers `retryproxy explain args`.
	explain func(args []string, out io.Writer) error
}

// ErrUsage is wrapped by the error of a wrong flag or argument.
var ErrUsage = errors.New("demo: wrong usage")

// options are the flags of the command.
type options struct {
	serve                   bool
	listen, admin, upstream string
}

// Run is the command: the walk-through; with -serve a proxy and an upstream
// for the reader's own calls; with -upstream alone just the upstream. The last
// two run until ctx ends. A wrong flag is flag.ErrHelp or an error that wraps ErrUsage.
//
// start runs a proxy on a configuration until stop is called; explain answers
// `retryproxy explain args`.
func Run(ctx context.Context, args []string, stdout io.Writer,
	start func(ctx context.Context, configYAML string) (proxyAddr, adminAddr string, stop func(), err error),
	explain func(args []string, out io.Writer) error,
) error {
	p := proxy{start, explain}
	o, err := parseOptions(args, stdout)
	if err != nil {
		return err
	}
	if o.upstream != "" && !o.serve {
		return runUpstream(ctx, stdout, o.upstream)
	}
	if o.serve {
		return serve(ctx, stdout, o, p)
	}
	return walkThrough(ctx, stdout, p)
}

func parseOptions(args []string, out io.Writer) (options, error) {
	var o options
	f := flag.NewFlagSet("demo", flag.ContinueOnError)
	f.SetOutput(out)
	f.Usage = func() {
		fmt.Fprint(out, "usage: retryproxy demo [flags]\na proxy, a misbehaving upstream and a walk-through\n")
		f.PrintDefaults()
	}
	f.BoolVar(&o.serve, "serve", false, "leave the proxy and the misbehaving upstream running for your own calls")
	f.StringVar(&o.listen, "listen", "127.0.0.1:8080", "with -serve: the proxy's `address`")
	f.StringVar(&o.admin, "admin", "127.0.0.1:9090", "with -serve: the `address` of the admin listener")
	f.StringVar(&o.upstream, "upstream", "", "the upstream's `address` (default 127.0.0.1:9000 with -serve); without -serve run nothing else")
	err := f.Parse(args)
	if err == nil && f.NArg() > 0 {
		err = fmt.Errorf("unknown argument %q", f.Arg(0))
	}
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		err = fmt.Errorf("%w: %w", ErrUsage, err)
	}
	return o, err
}

func runUpstream(ctx context.Context, out io.Writer, addr string) error {
	u, err := Listen(addr)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "a misbehaving upstream listens on %s; its index page lists what it does\n", u.Addr())
	<-ctx.Done()
	return u.Close()
}

func walkThrough(ctx context.Context, out io.Writer, p proxy) error {
	u, err := Listen("127.0.0.1:0")
	if err != nil {
		return err
	}
	defer func() { _ = u.Close() }()
	addr, admin, stop, err := p.start(ctx, listenOn("127.0.0.1:0", "127.0.0.1:0", Config))
	if err != nil {
		return err
	}
	defer stop()
	fmt.Fprintf(out, "A proxy on %s, a misbehaving upstream on %s, and bots that call through the proxy.\n"+
		"Lines with > went to the proxy, lines with < came back; fields that do not matter here are left out.\n", addr, u.Addr())
	if err := Walk(ctx, out, Stage{Proxy: addr, Admin: admin, Upstream: u, Explain: p.explain}); err != nil {
		return err
	}
	fmt.Fprint(out, "\nEverything went as promised. `retryproxy demo -serve` leaves both running for your own curl.\n")
	return nil
}

func serve(ctx context.Context, out io.Writer, o options, p proxy) error {
	if o.upstream == "" {
		o.upstream = "127.0.0.1:9000"
	}
	u, err := Listen(o.upstream)
	if err != nil {
		return err
	}
	defer func() { _ = u.Close() }()
	addr, admin, stop, err := p.start(ctx, listenOn(o.listen, o.admin, patient))
	if err != nil {
		return err
	}
	defer stop()
	fmt.Fprint(out, invitation(addr, admin, u.Addr()))
	<-ctx.Done()
	return nil
}

func listenOn(proxy, admin, config string) string {
	return fmt.Sprintf("listen: {proxy: %q, admin: %q}\n%s", proxy, admin, config)
}

// invitation is what -serve prints: lines to paste.
func invitation(proxy, admin, upstream string) string {
	tries := []struct{ why, args string }{
		{"fails twice, then works", `"http://UP/fail/503?times=2"`},
		{"an order without a key: not repeated", `-d item=1 "http://UP/order?lose=1"`},
		{"the same with a key; run it twice", `-d item=1 -H "X-Idempotency-Key: k1" "http://UP/order?lose=1"`},
		{"down for 5 seconds; paste this line and the next one together", `"http://UP/outage?for=5s"`},
		{"one call that waits the outage out", `"http://UP/ok"`},
	}
	var b strings.Builder
	fmt.Fprintf(&b, "proxy http://%s   admin http://%s   misbehaving upstream http://%s (its index lists what it does)\n", proxy, admin, upstream)
	for _, shell := range []struct{ name, curl string }{{"bash", "curl"}, {"PowerShell", "curl.exe"}} {
		fmt.Fprintf(&b, "\n%s:\n", shell.name)
		for _, try := range tries {
			args := strings.ReplaceAll(try.args, "UP", upstream)
			fmt.Fprintf(&b, "  %s -i -x http://%s %s   # %s\n", shell.curl, proxy, args, try.why)
		}
	}
	fmt.Fprintf(&b, "\nWhat really happened: http://%s/effects. If NO_PROXY names 127.0.0.1, add --noproxy none. Ctrl-C ends both.\n", upstream)
	return b.String()
}
