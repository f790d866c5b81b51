package inbound

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"retryproxy/message"
)

// emptyBody is a body that costs nothing.
type stringBody struct{ strings.Reader }

func (*stringBody) Close() error { return nil }

// hello answers as a trivial net/http handler would.
func hello(c *Call) {
	var sink [2048]byte
	for {
		if _, err := c.Read(sink[:]); err != nil {
			break
		}
	}
	c.Watch()
	var body stringBody
	body.Reset("hello, world")
	_, _ = c.Answer(&message.Response{
		Status: 200, Length: 12, Body: &body,
		Fields: message.Fields{{Name: "Content-Type", Value: "text/plain"}},
	}, 30*time.Second)
}

func BenchmarkKeepAlive(b *testing.B) {
	get := "GET /orders/17?x=1 HTTP/1.1\r\nHost: u1.test\r\nUser-Agent: bench\r\nAccept: */*\r\nAccept-Encoding: gzip\r\n\r\n"
	post := "POST /orders HTTP/1.1\r\nHost: u1.test\r\nUser-Agent: bench\r\nContent-Type: application/json\r\nContent-Length: 1024\r\n\r\n" + strings.Repeat("x", 1024)
	for _, kind := range []struct{ name, request string }{{"get", get}, {"post1k", post}} {
		b.Run(kind.name+"/inbound", func(b *testing.B) {
			s := &Server{Handler: hello, HeaderTimeout: 10 * time.Second, IdleTimeout: time.Minute}
			benchServer(b, kind.request, func(l net.Listener) { _ = s.Serve(l, &Listener{}) }, func() { _ = s.Close() })
		})
		b.Run(kind.name+"/nethttp", func(b *testing.B) {
			s := &http.Server{ReadHeaderTimeout: 10 * time.Second, IdleTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				w.Header().Set("Content-Type", "text/plain")
				_, _ = io.WriteString(w, "hello, world")
			})}
			benchServer(b, kind.request, func(l net.Listener) { _ = s.Serve(l) }, func() { _ = s.Close() })
		})
	}
}

func benchServer(b *testing.B, request string, serve func(net.Listener), stop func()) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	go serve(l)
	defer stop()
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			b.Error(err)
			return
		}
		defer c.Close()
		out, in := []byte(request), bufio.NewReader(c)
		for pb.Next() {
			if _, err := c.Write(out); err != nil {
				b.Error(err)
				return
			}
			for {
				line, err := in.ReadSlice('\n')
				if err != nil {
					b.Error(err)
					return
				}
				if bytes.Equal(line, []byte("\r\n")) {
					break
				}
			}
			if _, err := in.Discard(12); err != nil {
				b.Error(err)
				return
			}
		}
	})
}
