package upstream

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
)

// benchServer answers with 100 bytes as cheaply as possible.
func benchServer(b testing.TB) Target {
	answer := []byte("HTTP/1.1 200 OK\r\nDate: Mon, 01 Jan 2024 00:00:00 GMT\r\nContent-Type: application/json\r\n" +
		"X-Request-Id: 0123456789abcdef\r\nContent-Length: 100\r\n\r\n" + strings.Repeat("x", 100))
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			nc, err := l.Accept()
			if err != nil {
				return
			}
			go serveBench(nc, answer)
		}
	}()
	s := script{l: l}
	return s.target()
}

// serveBench takes a request as over when its last byte came: the body is known.
func serveBench(nc net.Conn, answer []byte) {
	defer nc.Close()
	buf := make([]byte, 64<<10)
	have := 0
	for {
		n, err := nc.Read(buf[have:])
		if err != nil {
			return
		}
		have += n
		head := bytes.Index(buf[:have], []byte("\r\n\r\n"))
		if head < 0 || bytes.HasPrefix(buf, []byte("POST")) && have < head+4+1024 {
			continue
		}
		have = 0
		if _, err := nc.Write(answer); err != nil {
			return
		}
	}
}

var benchBody = strings.Repeat("b", 1024)

func BenchmarkSend(b *testing.B) {
	for _, bench := range []struct {
		name, method string
		cancel       bool
	}{{"GET", "GET", false}, {"GETWithCancel", "GET", true}, {"POST1KiB", "POST", false}} {
		b.Run(bench.name, func(b *testing.B) {
			a := attempt(benchServer(b), bench.method, "/path?q=1", nil, "Accept", "*/*", "User-Agent", "bench", "X-Shop", "17")
			if bench.method == "POST" {
				a.Request.Body = text(benchBody)
			}
			c := New(Config{})
			defer c.Close()
			ctx := context.Background()
			if bench.cancel {
				var cancel context.CancelFunc
				ctx, cancel = context.WithCancel(ctx)
				defer cancel()
			}
			buf := make([]byte, 4096)
			b.ReportAllocs()
			for b.Loop() {
				r := c.Send(ctx, a)
				if r.Response == nil {
					b.Fatal(r.Outcome)
				}
				for {
					if _, err := r.Response.Body.Read(buf); err != nil {
						break
					}
				}
				_ = r.Response.Body.Close()
			}
		})
	}
}

func BenchmarkTransport(b *testing.B) {
	for _, method := range []string{"GET", "POST"} {
		b.Run(method, func(b *testing.B) {
			t := benchServer(b)
			tr := &http.Transport{DisableCompression: true}
			defer tr.CloseIdleConnections()
			buf := make([]byte, 4096)
			b.ReportAllocs()
			for b.Loop() {
				var body io.Reader
				if method == "POST" {
					body = strings.NewReader(benchBody)
				}
				req, _ := http.NewRequest(method, "http://"+t.authority()+"/path?q=1", body)
				req.Header.Set("Accept", "*/*")
				req.Header.Set("User-Agent", "bench")
				req.Header.Set("X-Shop", "17")
				res, err := tr.RoundTrip(req)
				if err != nil {
					b.Fatal(err)
				}
				for {
					if _, err := res.Body.Read(buf); err != nil {
						break
					}
				}
				_ = res.Body.Close()
			}
		})
	}
}
