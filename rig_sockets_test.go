package main

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"testing"

	"retryproxy/config"
	"retryproxy/telemetry"
)

// onSockets runs the whole product on loopback sockets, with a configuration
// laid over that of the cases. stop drains it; it is called at the end as well.
func onSockets(t *testing.T, text string) (a *app, stop func()) {
	t.Helper()
	const network = `listen: {proxy: "127.0.0.1:0", admin: ""}` + "\n"
	cfg, err := config.Parse("test.yaml", []byte(network+text), config.Options{Getenv: func(string) string { return "" }})
	if err != nil {
		t.Fatal(err)
	}
	hard, kill := context.WithCancel(context.Background())
	a, err = newApp(hard, cfg, options{log: telemetry.NewLogger(&lockedBuffer{}, slog.LevelError, "json", false)})
	if err == nil {
		err = a.open()
	}
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- a.run(ctx, kill, environment{}) }()
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-done; err != nil {
			t.Errorf("run: %v", err)
		}
		a.close()
	}
	t.Cleanup(stop)
	return a, stop
}

// serving serves handler on a loopback socket until the test ends.
func serving(t *testing.T, handler http.HandlerFunc) (addr string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{Handler: handler}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = s.Serve(l) // ends with Close
	}()
	t.Cleanup(func() {
		_ = s.Close()
		<-done
	})
	return l.Addr().String()
}
