// Package egresstest answers one question: what does an egress proxy hear from
// us, when it does as it is told?
//
// It is a small egress proxy for tests: HTTP CONNECT and SOCKS5 on one listener,
// told apart by the first byte.
package egresstest

import (
	"bufio"
	"context"
	"io"
	"net"
	"sync"
)

// Kinds of a request, as Answer and Call have them.
const (
	HTTP   = "http"
	SOCKS5 = "socks5"
)

// Answers that are no status: what a broken proxy does.
const (
	HangUp = -1 // closes the connection without an answer
	Hang   = -2 // says nothing until the client or stop closes the connection
)

// Config says how the proxy behaves. The zero value opens every way with
// net.Dialer and asks nobody for a password.
type Config struct {
	// User and Password are demanded when User is not empty. Else any are
	// accepted, and still recorded.
	User, Password string
	// Dial opens the way to "host:port"; nil is net.Dialer.
	Dial func(ctx context.Context, addr string) (net.Conn, error)
	// Answer, when ok, is said instead of dialling: a status code for HTTP, a
	// reply code for SOCKS5, or HangUp or Hang. It is asked after the password.
	Answer func(kind, target string) (status int, ok bool)
	// Record keeps what was asked; nil keeps nothing.
	Record *Record
}

// Call is one request for a way.
type Call struct {
	Kind   string // HTTP or SOCKS5
	Target string // host:port, IPv6 in brackets; empty when the password was refused in SOCKS5
	User   string // the user name that came with it, right or wrong
	Head   string // HTTP: the header as it came, without the empty line
}

// Record is what a proxy was asked, in order. It may be read while it serves.
type Record struct {
	mu    sync.Mutex
	calls []Call
}

// Calls returns what was asked so far.
func (r *Record) Calls() []Call {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]Call(nil), r.calls...)
}

// add works on a nil Record, too.
func (r *Record) add(c Call) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls = append(r.calls, c)
}

// server is one running proxy.
type server struct {
	Config
	ctx   context.Context
	group sync.WaitGroup
}

// Serve answers on l until stop is called. stop closes l and every connection
// and returns when no goroutine is left. For a proxy that is spoken to by https,
// l is a TLS listener.
func Serve(l net.Listener, c Config) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	s := &server{Config: c, ctx: ctx}
	if s.Dial == nil {
		s.Dial = func(ctx context.Context, addr string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "tcp", addr)
		}
	}
	s.group.Go(func() { s.accept(l) })
	return func() {
		cancel()
		l.Close()
		s.group.Wait()
	}
}

func (s *server) accept(l net.Listener) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		s.group.Go(func() { s.serve(conn) })
	}
}

// serve answers one client and then carries its bytes.
func (s *server) serve(conn net.Conn) {
	defer s.closing(conn)()
	in := bufio.NewReader(conn)
	first, err := in.Peek(1)
	if err != nil {
		return
	}
	var way net.Conn
	if first[0] == socksVersion {
		way = s.socks(conn, in)
	} else {
		way = s.http(conn, in)
	}
	if way != nil {
		s.carry(conn, in, way)
	}
}

// closing closes conn when the proxy stops or when the returned func is called.
func (s *server) closing(conn net.Conn) func() {
	stop := context.AfterFunc(s.ctx, func() { conn.Close() })
	return func() {
		stop()
		conn.Close()
	}
}

// broken does what HangUp and Hang say; false: status is something to be said.
func broken(status int, in io.Reader) bool {
	if status == Hang {
		_, _ = io.Copy(io.Discard, in)
	}
	return status == Hang || status == HangUp
}

// carry copies both ways, half-closes included, until both have ended.
func (s *server) carry(conn net.Conn, in io.Reader, way net.Conn) {
	defer s.closing(way)()
	var both sync.WaitGroup
	both.Go(func() { pass(way, in) })
	both.Go(func() { pass(conn, way) })
	both.Wait()
}

// pass copies to dst and then half-closes it, or closes it after a failure.
func pass(dst net.Conn, src io.Reader) {
	_, err := io.Copy(dst, src)
	half, ok := dst.(interface{ CloseWrite() error })
	if err != nil || !ok || half.CloseWrite() != nil {
		dst.Close()
	}
}
