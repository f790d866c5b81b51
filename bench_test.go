package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"

	"retryproxy/config"
	"retryproxy/internal/race"
	"retryproxy/internal/redistest"
	"retryproxy/telemetry"
)

// BenchmarkProxy compares one call over loopback, client and upstream being
// canned bytes that allocate nothing: what is counted is the proxy's own.
func BenchmarkProxy(b *testing.B) {
	up := cannedUpstream(b)
	for _, way := range []struct {
		name, addr string
	}{
		{"direct", up}, {"reverseproxy", reverseProxy(b, up)}, {"retryproxy", benchProxy(b)},
	} {
		for _, req := range []struct{ name, text string }{
			{"get100", benchRequest("GET", up, "", "")},
			{"post1k", benchRequest("POST", up, "", strings.Repeat("x", 1024))},
		} {
			b.Run(way.name+"/"+req.name, func(b *testing.B) { benchCalls(b, way.addr, func() string { return req.text }) })
		}
	}
	traced := benchProxy(b, "tracing: {endpoint: '"+discarding(b)+"'}")
	b.Run("traced/get100", func(b *testing.B) {
		benchCalls(b, traced, func() string { return benchRequest("GET", up, inTrace+"\r\n", "") })
	})
	addr := benchProxy(b)
	n := 0
	b.Run("retryproxy/keyed1k", func(b *testing.B) {
		benchCalls(b, addr, func() string {
			n++
			return benchRequest("POST", up, fmt.Sprintf("X-Idempotency-Key: k%d\r\n", n), strings.Repeat("x", 1024))
		})
	})
}

// discarding is the address of an OTLP collector that keeps nothing.
func discarding(tb testing.TB) string {
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) }))
	tb.Cleanup(s.Close)
	return s.URL
}

// BenchmarkKeyed is a keyed POST of 1 KiB through the whole proxy by 64 clients at a
// time, each call with a key of its own, by where its record is kept.
func BenchmarkKeyed(b *testing.B) {
	up := cannedUpstream(b)
	everysec := redistest.Start(b, "appendonly", "yes", "appendfsync", "everysec")
	for _, way := range []struct{ name, store string }{
		{"memory", "{kind: memory}"},
		{"sqlite", "{kind: sqlite, path: '" + b.TempDir() + "', durability: process}"},
		{"redis", "{kind: redis, url: '" + redistest.Start(b).URL() + "'}"},
		{"redis-everysec", "{kind: redis, url: '" + everysec.URL() + "'}"},
	} {
		b.Run(way.name, func(b *testing.B) {
			addr := benchProxy(b, "store: "+way.store)
			var n atomic.Int64
			b.SetParallelism(max(1, 64/runtime.GOMAXPROCS(0)))
			b.ResetTimer()
			b.RunParallel(func(pb *testing.PB) {
				c := benchClient(b, addr)
				defer c.Close()
				buf := make([]byte, 4096)
				for pb.Next() {
					benchCall(b, c, benchRequest("POST", up, fmt.Sprintf("X-Idempotency-Key: k%d\r\n", n.Add(1)), strings.Repeat("x", 1024)), buf)
				}
			})
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "calls/s")
		})
	}
}

// TestHotPathAllocatesLess holds the goal: a plain call allocates less than
// httputil.ReverseProxy does for it.
func TestHotPathAllocatesLess(t *testing.T) {
	if race.Enabled {
		t.Skip("the race detector allocates")
	}
	up := cannedUpstream(t)
	for _, method := range []string{"GET", "POST"} {
		body := map[string]string{"POST": strings.Repeat("x", 1024)}[method]
		text := benchRequest(method, up, "", body)
		ours := allocsPerCall(t, benchProxy(t), text)
		theirs := allocsPerCall(t, reverseProxy(t, up), text)
		t.Logf("%s: %.1f allocations a call, httputil.ReverseProxy %.1f", method, ours, theirs)
		if ours >= theirs {
			t.Errorf("%s: %.1f allocations a call, want less than httputil.ReverseProxy's %.1f", method, ours, theirs)
		}
	}
}

func allocsPerCall(tb testing.TB, addr, text string) float64 {
	c := benchClient(tb, addr)
	defer c.Close()
	buf := make([]byte, 4096)
	return testing.AllocsPerRun(500, func() { benchCall(tb, c, text, buf) })
}

func benchCalls(b *testing.B, addr string, next func() string) {
	c := benchClient(b, addr)
	defer c.Close()
	buf := make([]byte, 4096)
	benchCall(b, c, next(), buf)
	b.ReportAllocs()
	for b.Loop() {
		benchCall(b, c, next(), buf)
	}
}

func benchClient(tb testing.TB, addr string) net.Conn {
	tb.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		tb.Fatal(err)
	}
	return c
}

// benchCall sends a request and reads to the end of the canned body.
func benchCall(tb testing.TB, c net.Conn, text string, buf []byte) {
	if _, err := io.WriteString(c, text); err != nil {
		tb.Fatal(err)
	}
	for have := 0; ; {
		n, err := c.Read(buf[have:])
		have += n
		if err != nil {
			tb.Fatal(err)
		}
		if have >= 4 && buf[have-1] == '~' {
			return
		}
	}
}

func benchRequest(method, host, extra, body string) string {
	length := ""
	if body != "" {
		length = fmt.Sprintf("Content-Length: %d\r\n", len(body))
	}
	return fmt.Sprintf("%s http://%s/api?x=1 HTTP/1.1\r\nHost: %s\r\nUser-Agent: bench\r\nAccept: */*\r\n%s%s\r\n%s", method, host, host, extra, length, body)
}

// cannedUpstream answers every request with 100 bytes that end in ~. It only
// looks for the end of what one write sends, so requests must fit in one read.
func cannedUpstream(tb testing.TB) string {
	tb.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { l.Close() })
	body := strings.Repeat("x", 99) + "~"
	text := "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nDate: Mon, 30 Nov 2026 12:00:00 GMT\r\nContent-Length: 100\r\n\r\n" + body
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go answerCanned(c, text)
		}
	}()
	return l.Addr().String()
}

func answerCanned(c net.Conn, text string) {
	defer c.Close()
	buf := make([]byte, 8192)
	for have := 0; ; {
		n, err := c.Read(buf[have:])
		if err != nil {
			return
		}
		have += n
		head := bytes.Index(buf[:have], []byte("\r\n\r\n"))
		if head < 0 || have < head+4+cannedLength(buf[:head]) {
			continue
		}
		have = 0
		if _, err := io.WriteString(c, text); err != nil {
			return
		}
	}
}

// cannedLength is 1024 for a request with a body, else 0.
func cannedLength(head []byte) int {
	if head[0] == 'P' {
		return 1024
	}
	return 0
}

func reverseProxy(tb testing.TB, up string) string {
	tb.Helper()
	target := &url.URL{Scheme: "http", Host: up}
	s := &http.Server{Handler: &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) }}}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	go s.Serve(l)
	tb.Cleanup(func() { s.Close() })
	return l.Addr().String()
}

// benchProxy is the product with its default configuration and its log on, and with
// further settings.
func benchProxy(tb testing.TB, settings ...string) string {
	tb.Helper()
	text := `listen: {proxy: "127.0.0.1:0", admin: "127.0.0.1:0"}` + "\n" + strings.Join(settings, "\n")
	cfg, err := config.Parse("bench", []byte(text), config.Options{})
	if err != nil {
		tb.Fatal(err)
	}
	hard, kill := context.WithCancel(context.Background())
	a, err := newApp(hard, cfg, options{log: telemetry.NewLogger(io.Discard, slog.LevelInfo, "json", false), getenv: os.Getenv})
	if err != nil {
		tb.Fatal(err)
	}
	if err := a.open(); err != nil {
		tb.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); a.run(ctx, kill, environment{}) }()
	tb.Cleanup(func() { cancel(); <-done; a.close() })
	return a.proxies[0].Addr().String()
}
