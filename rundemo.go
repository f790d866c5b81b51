package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"

	"retryproxy/cli"
	"retryproxy/config"
	"retryproxy/demo"
)

// runDemo is `retryproxy demo`: this very proxy in front of an upstream that
// misbehaves.
func runDemo(ctx context.Context, args []string, env environment) int {
	var text []byte // of the configuration that the demo chose
	explain := func(args []string, out io.Writer) error {
		var problems bytes.Buffer
		code := cli.Explain(args, cli.Env{
			Stdout: out, Stderr: &problems, Getenv: env.getenv, Defaults: text,
			Explain: func(c *config.Config, q cli.Question) (any, error) { return explainOffline(c, q) },
		})
		if code != 0 {
			return errors.New(problems.String())
		}
		return nil
	}
	begin := func(ctx context.Context, yaml string) (string, string, func(), error) {
		text = []byte(yaml)
		return startDemo(ctx, text, env)
	}
	err := demo.Run(ctx, args, env.stdout, begin, explain)
	switch {
	case err == nil, errors.Is(err, flag.ErrHelp):
		return 0
	case errors.Is(err, demo.ErrUsage):
		fmt.Fprintln(env.stderr, err)
		return 2
	}
	fmt.Fprintln(env.stderr, "demo:", err)
	return 1
}

// startDemo runs a proxy on a configuration until stop is called.
func startDemo(ctx context.Context, yaml []byte, env environment) (proxyAddr, adminAddr string, stop func(), err error) {
	cfg, err := config.Parse("demo.yaml", yaml, config.Options{Getenv: env.getenv})
	if err != nil {
		return "", "", nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	hard, kill := context.WithCancel(context.WithoutCancel(ctx))
	a, err := newApp(hard, cfg, options{log: slog.New(slog.DiscardHandler)})
	if err == nil {
		err = a.open()
	}
	if err != nil {
		cancel()
		kill()
		return "", "", nil, err
	}
	done := make(chan struct{})
	go func() { // ends with stop
		defer close(done)
		_ = a.run(ctx, kill, environment{})
		a.close()
	}()
	stop = func() { cancel(); <-done }
	return a.proxies[0].Addr().String(), a.admins[0].Addr().String(), stop, nil
}
