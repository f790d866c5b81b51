// Package durable answers one question: what does it cost that a call survives the process?
//
// The real binary is put under keyed calls to an instant upstream: with records in
// memory, and in a file in both durabilities. It has one core; the load and the
// upstream share another one.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"time"

	"retryproxy/bench/process"
)

// options are the flags.
type options struct {
	binary  string
	dir     string // where data goes: its disk is what is measured
	window  time.Duration
	rounds  int
	parked  int
	records int
	only    string
}

func main() {
	var o options
	flag.StringVar(&o.binary, "retryproxy", "", "the `binary` to measure (default: built from the current directory)")
	flag.StringVar(&o.dir, "dir", os.TempDir(), "a `directory` on the disk to measure")
	flag.DurationVar(&o.window, "window", 5*time.Second, "of one measurement")
	flag.IntVar(&o.rounds, "rounds", 3, "how often each is measured")
	flag.IntVar(&o.parked, "parked", 100_000, "how many calls are parked")
	flag.IntVar(&o.records, "records", 50_000, "how many calls leave a record, of which size is told")
	flag.StringVar(&o.only, "only", "", "one of rate, steady, parked, size (default: all)")
	flag.Parse()
	if err := run(&o); err != nil {
		fmt.Fprintln(os.Stderr, "durable:", err)
		os.Exit(1)
	}
}

func run(o *options) error {
	dir, err := os.MkdirTemp(o.dir, "bench-durable-*")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if o.binary, err = process.Binary(context.Background(), o.binary, dir); err != nil {
		return err
	}
	up, err := startUpstream()
	if err != nil {
		return err
	}
	defer up.Close()
	l := &lab{options: o, dir: dir, up: up.Addr().String(), out: os.Stdout}
	for _, part := range []struct {
		name string
		run  func() error
	}{{"rate", l.rate}, {"steady", l.steady}, {"parked", l.parkedCalls}, {"size", l.sizes}} {
		if o.only == "" || o.only == part.name {
			if err := part.run(); err != nil {
				return fmt.Errorf("%s: %w", part.name, err)
			}
		}
	}
	return nil
}
