// Retryproxy is an HTTP proxy that turns passing failures into successes and
// never makes things worse.
package main

import (
	"context"
	"io"
	"os"
	"os/signal"
	"runtime"
	"syscall"
	_ "time/tzdata" // hour ranges work on machines without zone files

	"retryproxy/cli"
	"retryproxy/config"
	"retryproxy/intercept"
)

// version is set by -ldflags for releases.
var version string

// ballast is memory that is never touched, so it takes no room. A proxy has so little
// in use that the collector would run every few megabytes; this lets it wait for 16
// more, which saves some 6 % of a call. A large GOGC would do so too, and multiply
// what thousands of waiting calls need.
var ballast = make([]byte, 16<<20)

func main() {
	runtime.KeepAlive(ballast)
	ctx, cancel := context.WithCancel(context.Background())
	stop := make(chan os.Signal, 2)
	signal.Notify(stop, os.Interrupt, syscall.SIGTERM)
	go func() {
		<-stop
		cancel() // drain
		<-stop
		os.Exit(1) // a second signal stops at once
	}()
	os.Exit(run(ctx, os.Args[1:], environment{
		stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr, getenv: os.Getenv, reload: reloadSignal(),
	}))
}

// environment is what run may know of the world.
type environment struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	getenv         func(string) string
	reload         <-chan os.Signal
}

// run executes one command and returns its exit code: 0, 1 failure, 2 usage or
// configuration.
func run(ctx context.Context, args []string, env environment) int {
	if len(args) > 0 && len(args[0]) > 1 && args[0][0] == '-' && !cli.IsCommand(args[0]) {
		args = append([]string{"serve"}, args...) // flags alone are those of serve
	}
	return cli.Run(args, cli.Env{
		Life: ctx, Stdin: env.stdin, Stdout: env.stdout, Stderr: env.stderr, Getenv: env.getenv,
		Version: version, Defaults: defaultConfig, Scenarios: scenarios,
		Check:  mayRun,
		Doctor: examine,
		Reseal: reseal,
		CA:     func(file, data string) (intercept.Files, error) { return filesOf(file, data, env) },
		Serve: func(e cli.Env, args []string) int {
			in := env
			in.stdout, in.stderr = e.Stdout, e.Stderr
			return serve(e.Life, args, in)
		},
		Demo:    func(args []string) int { return runDemo(ctx, args, env) },
		Explain: func(c *config.Config, q cli.Question) (any, error) { return explainOffline(c, q) },
	})
}
