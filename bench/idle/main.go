// Package idle answers one question: what do thousands of calls cost that only wait?
//
// The real binary holds them, on one core, while nothing else happens: before retry
// tokens and a Retry-After, then before a host that is down.
package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"retryproxy/bench/process"
)

// options are the flags.
type options struct {
	binary string
	calls  int
	window time.Duration
	out    io.Writer
}

func main() {
	o := options{out: os.Stdout}
	flag.StringVar(&o.binary, "retryproxy", "", "the `binary` to measure (default: built from the current directory)")
	flag.IntVar(&o.calls, "calls", 5000, "how many wait")
	flag.DurationVar(&o.window, "window", 10*time.Second, "of the measurement")
	flag.Parse()
	if err := run(&o); err != nil {
		fmt.Fprintln(os.Stderr, "idle:", err)
		os.Exit(1)
	}
}

func run(o *options) error {
	dir, err := os.MkdirTemp("", "bench-idle-*")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if o.binary, err = process.Binary(context.Background(), o.binary, dir); err != nil {
		return err
	}
	busy, err := startUpstream()
	if err != nil {
		return err
	}
	defer busy.Close()
	down, err := process.FreeAddress()
	if err != nil {
		return err
	}
	// One token a second, none of it for those that wait for their Retry-After; the
	// breaker stays closed, for that is the other case.
	tokens := "retry_limits: {global: {rate: 60/m, burst: 1, share: 0}, task_type: off, shop: off}\n" +
		"breakers: {host: {consecutive_failures: 1000000, min_calls: 1000000}}\n"
	for _, part := range []struct {
		name, config string
		urls         []string // taken in turn
	}{
		{"tokens and Retry-After", tokens, []string{"http://" + busy.Addr().String() + "/token", "http://" + busy.Addr().String() + "/later"}},
		{"a host that is down", "", []string{"http://" + down + "/"}},
	} {
		if err := measure(o, dir, part.name, part.config, part.urls); err != nil {
			return fmt.Errorf("%s: %w", part.name, err)
		}
	}
	return nil
}

// startUpstream says not now: with a Retry-After under /later.
func startUpstream() (net.Listener, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	server := http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/later" {
			w.Header().Set("Retry-After", "120")
			w.WriteHeader(http.StatusTooManyRequests)
			return
		}
		w.WriteHeader(http.StatusServiceUnavailable)
	})}
	go func() { _ = server.Serve(l) }() // ends with the listener
	return l, nil
}

const configText = `
listen: {proxy: %q, admin: %q}
log: {level: error}
slots: {max_in_flight: 10000, max_wait: 1h}
retry_policies: [{name: default, max_retries: 10, deadline: 10h}]
`

// measure has calls wait and prints what that takes.
func measure(o *options, dir, name, config string, urls []string) error {
	proxy, err := process.FreeAddress()
	if err != nil {
		return err
	}
	admin, err := process.FreeAddress()
	if err != nil {
		return err
	}
	file := filepath.Join(dir, "config.yaml")
	if err := os.WriteFile(file, fmt.Appendf(nil, configText+config, proxy, admin), 0o600); err != nil {
		return err
	}
	p, err := process.Start(context.Background(), filepath.Join(dir, "log"), proxy, o.binary, "serve", "-config", file)
	if err != nil {
		return err
	}
	defer p.Stop()
	conns, err := ask(proxy, o.calls, urls)
	defer func() {
		for _, c := range conns {
			_ = c.Close()
		}
	}()
	if err != nil {
		return err
	}
	time.Sleep(15 * time.Second) // until all stand where they wait, and their stacks are given back
	causes, took, err := waiting(admin)
	if err != nil {
		return err
	}
	list, err := listed(admin)
	if err != nil {
		return err
	}
	before, err := p.CPU()
	if err != nil {
		return err
	}
	time.Sleep(o.window)
	after, err := p.CPU()
	if err != nil {
		return err
	}
	memory, err := p.Memory()
	fmt.Fprintf(o.out, "%s: %s; CPU %.2f %% of a core over %v, resident %d MiB, a scrape of the metrics %v, a list of them %v\n",
		name, causes, 100*float64(after-before)/float64(o.window), o.window, memory>>20, took.Round(100*time.Microsecond), list.Round(time.Millisecond))
	return err
}

// ask sends calls, each on a connection of its own, and does not wait for answers.
func ask(proxy string, n int, urls []string) (conns []net.Conn, err error) {
	for i := range n {
		c, err := net.Dial("tcp", proxy)
		if err != nil {
			return conns, err
		}
		conns = append(conns, c)
		url := urls[i%len(urls)]
		host, _, _ := strings.Cut(strings.TrimPrefix(url, "http://"), "/")
		if _, err := fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: %s\r\nX-Shop-Id: s%d\r\n\r\n", url, host, i%50); err != nil {
			return conns, err
		}
	}
	return conns, nil
}

// waiting reads what the calls wait for from the metrics, and how long those took.
func waiting(admin string) (causes string, took time.Duration, err error) {
	began := time.Now()
	res, err := http.Get("http://" + admin + "/metrics")
	if err != nil {
		return "", 0, err
	}
	defer res.Body.Close()
	found := map[string]int{}
	in := bufio.NewScanner(res.Body)
	for in.Scan() {
		if rest, ok := strings.CutPrefix(in.Text(), `retryproxy_waiting{cause="`); ok {
			cause, value, _ := strings.Cut(rest, `"} `)
			if found[cause], err = strconv.Atoi(value); err != nil {
				return "", 0, err
			}
		}
	}
	took = time.Since(began)
	for _, cause := range slices.Sorted(maps.Keys(found)) {
		causes += fmt.Sprintf(", %d for %s", found[cause], cause)
	}
	if causes == "" {
		return "", 0, errors.Join(errors.New("nobody waits"), in.Err())
	}
	return causes[2:], took, in.Err()
}

// listed is how long the first page of the list of waiting calls takes: all of them are
// looked at.
func listed(admin string) (time.Duration, error) {
	began := time.Now()
	res, err := http.Get("http://" + admin + "/api/v1/calls?state=waiting")
	if err != nil {
		return 0, err
	}
	defer res.Body.Close()
	_, err = io.Copy(io.Discard, res.Body)
	return time.Since(began), err
}
