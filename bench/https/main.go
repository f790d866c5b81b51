// Package https answers one question: what do opened and closed tunnels cost beside the plainest Go proxy?
//
// Three processes take turns under the same load: retryproxy, and two proxies of
// the standard library that only terminate TLS, or only join two connections.
// They have one core; the load and the upstream share another one.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"runtime"
	"time"

	"retryproxy/bench/process"
)

// options are the flags.
type options struct {
	rounds         int
	window, warmUp time.Duration
	binary         string // of retryproxy; empty: built from the current directory
	only           *regexp.Regexp
	check          bool
	role           string // of a process that we started ourselves
	bare           bareConfig
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, parse()); err != nil {
		fmt.Fprintln(os.Stderr, "https:", err)
		os.Exit(1)
	}
}

func parse() options {
	var o options
	flag.IntVar(&o.rounds, "rounds", 3, "how often each workload meets each proxy")
	flag.DurationVar(&o.window, "window", 3*time.Second, "of one measurement; below 2s the clock of /proc is too coarse")
	flag.DurationVar(&o.warmUp, "warm-up", 500*time.Millisecond, "before it")
	flag.StringVar(&o.binary, "retryproxy", "", "the `binary` to measure (default: built from the current directory)")
	flag.BoolVar(&o.check, "check", false, "exit with 1 when a goal is missed")
	only := flag.String("only", "", "`regexp` of the workloads to run")
	flag.StringVar(&o.role, "role", "", "for processes started by this one")
	flag.StringVar(&o.bare.listen, "bare-listen", "", "for processes started by this one")
	flag.StringVar(&o.bare.open, "bare-open", "", "for processes started by this one")
	flag.StringVar(&o.bare.dir, "bare-dir", "", "for processes started by this one")
	flag.Parse()
	o.only = regexp.MustCompile(*only)
	return o
}

// run measures everything and prints the tables.
func run(ctx context.Context, o options) error {
	if o.role != "" {
		return serveBare(o.role, o.bare)
	}
	if err := process.Pin(os.Getpid(), runtime.NumCPU()-1); err != nil {
		return err
	}
	runtime.GOMAXPROCS(1)
	dir, err := os.MkdirTemp("", "bench-https-*")
	if err != nil {
		return err
	}
	l := &lab{options: o, dir: dir, samples: map[cell][]sample{}}
	defer l.close()
	if err := l.start(ctx); err != nil {
		return err
	}
	for round := range o.rounds {
		if err := l.round(ctx, round); err != nil {
			return err
		}
	}
	if missed := l.report(os.Stdout); missed && o.check {
		return errors.New("a goal was missed")
	}
	return nil
}
