package inbound

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"retryproxy/message"
)

// stringBody is a body that can be used again.
type stringBody struct{ strings.Reader }

func (*stringBody) Close() error { return nil }

// plain is a trivial handler that allocates nothing itself.
type plain struct {
	sink [2048]byte
	body stringBody
	res  message.Response
}

var plains = sync.Pool{New: func() any { return new(plain) }}

func servePlain(c *Call) {
	p := plains.Get().(*plain)
	defer plains.Put(p)
	for {
		if _, err := c.Read(p.sink[:]); err != nil {
			break
		}
	}
	c.Watch()
	p.body.Reset("hello, world")
	p.res = message.Response{Status: 200, Length: 12, Body: &p.body, Fields: plainFields}
	_, _ = c.Answer(&p.res, 30*time.Second)
}

var plainFields = message.Fields{{Name: "Content-Type", Value: "text/plain"}}

func BenchmarkKeepAlive(b *testing.B) {
	get := "GET /orders/17?x=1 HTTP/1.1\r\nHost: u1.test\r\nUser-Agent: bench\r\nAccept: */*\r\nAccept-Encoding: gzip\r\n\r\n"
	post := "POST /orders HTTP/1.1\r\nHost: u1.test\r\nUser-Agent: bench\r\nContent-Type: application/json\r\nContent-Length: 1024\r\n\r\n" + strings.Repeat("x", 1024)
	for _, kind := range []struct{ name, request string }{{"get", get}, {"post1k", post}} {
		b.Run(kind.name+"/inbound", func(b *testing.B) {
			s := &Server{Handler: servePlain, HeaderTimeout: 10 * time.Second, IdleTimeout: time.Minute}
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

// BenchmarkWaitingCall says what a call that waits costs on this side; the
// clients' ends, in the same process, are in the number.
func BenchmarkWaitingCall(b *testing.B) {
	const calls = 2000
	for b.Loop() {
		b.ReportMetric(float64(waitingBytes(b, calls))/calls, "B/waiting-call")
	}
}

// waitingBytes measures memory in use while n calls wait.
func waitingBytes(b *testing.B, n int) uint64 {
	arrived := make(chan struct{}, n)
	s := &Server{Handler: func(c *Call) {
		c.Watch()
		arrived <- struct{}{}
		<-c.Context().Done()
	}}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- s.Serve(l, &Listener{}) }()
	before := inUse()
	for range n {
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			b.Fatal(err)
		}
		defer c.Close()
		if _, err := io.WriteString(c, "GET /orders/17?x=1 HTTP/1.1\r\nHost: u1.test\r\nUser-Agent: bench\r\n\r\n"); err != nil {
			b.Fatal(err)
		}
		<-arrived
	}
	<-time.After(4 * watchAfter)
	used := inUse() - before
	_ = s.Close()
	<-done
	return used
}

func inUse() uint64 {
	runtime.GC()
	runtime.GC() // the second empties the pools
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapInuse + m.StackInuse
}
