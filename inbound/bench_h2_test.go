package inbound

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"retryproxy/message"
)

// BenchmarkH2 compares calls on one connection of HTTP/2 over TLS with the bare
// server of net/http below; the client is in the numbers.
func BenchmarkH2(b *testing.B) {
	config := testTLS(b)
	config.NextProtos = []string{"h2"}
	large := make([]byte, 1<<20)
	inside := &Server{Handler: func(c *Call) {
		if c.Request.Target == "/large" {
			_, _ = c.Answer(&message.Response{Status: 200, Length: 16 << 20, Body: io.NopCloser(&blanks{left: 16 << 20})}, time.Minute)
			return
		}
		servePlain(c)
	}}
	bare := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/large" {
			w.Header().Set("Content-Length", "16777216")
			for range 16 {
				_, _ = w.Write(large)
			}
			return
		}
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "text/plain")
		_, _ = io.WriteString(w, "hello, world")
	})}
	for _, path := range []string{"/", "/large"} {
		b.Run("inbound"+path, func(b *testing.B) {
			benchH2(b, config, path, func(l net.Listener) {
				c, err := l.Accept()
				if err != nil {
					return
				}
				tc := c.(*tls.Conn)
				_ = tc.Handshake()
				inside.ServeInside(tc, &Listener{}, clientAddr(c), &Tunnel{})
			})
		})
		b.Run("nethttp"+path, func(b *testing.B) {
			benchH2(b, config, path, func(l net.Listener) { _ = bare.Serve(l) })
		})
	}
}

func benchH2(b *testing.B, config *tls.Config, path string, serve func(net.Listener)) {
	l, err := tls.Listen("tcp", "127.0.0.1:0", config)
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	go serve(l)
	tr := &http.Transport{ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	defer tr.CloseIdleConnections()
	b.ReportAllocs()
	for b.Loop() {
		req, _ := http.NewRequestWithContext(context.Background(), "GET", "https://"+l.Addr().String()+path, nil)
		res, err := tr.RoundTrip(req)
		if err != nil {
			b.Fatal(err)
		}
		n, err := io.Copy(io.Discard, res.Body)
		if err != nil {
			b.Fatal(err)
		}
		_ = res.Body.Close()
		b.SetBytes(n)
	}
}
