package upstream

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"regexp"
	"syscall"
	"testing"
	"time"
)

// internals are words that people have no use for.
var internals = regexp.MustCompile(`upstream:|raw-read|i/o timeout|context |http2|x509:|tls:|dial tcp|read tcp|write tcp|lookup |EOF|->`)

func TestDetails(t *testing.T) {
	at := netip.MustParseAddrPort("192.0.2.1:80")
	op := func(name string, err error) error {
		return &net.OpError{Op: name, Net: "tcp", Source: net.TCPAddrFromAddrPort(at), Addr: net.TCPAddrFromAddrPort(at), Err: err}
	}
	for _, tt := range []struct {
		err  error
		want string
	}{
		{op("raw-read", os.ErrDeadlineExceeded), "no answer from 192.0.2.1:80 in time"},
		{context.DeadlineExceeded, "no answer from 192.0.2.1:80 in time"},
		{context.Canceled, "given up before 192.0.2.1:80 answered"},
		{io.EOF, "192.0.2.1:80 closed the connection"},
		{errNoNotify, "192.0.2.1:80 closed the connection"},
		{op("dial", os.NewSyscallError("connect", syscall.ECONNREFUSED)), "192.0.2.1:80 refused the connection"},
		{op("read", os.NewSyscallError("read", syscall.ECONNRESET)), "connection to 192.0.2.1:80 was reset"},
		{op("write", os.NewSyscallError("write", syscall.EPIPE)), "connection to 192.0.2.1:80 was reset"},
		{op("dial", os.NewSyscallError("connect", syscall.EHOSTUNREACH)), "192.0.2.1:80: " + syscall.EHOSTUNREACH.Error()},
		{malformed("no status"), "192.0.2.1:80: the answer is not valid HTTP: no status"},
	} {
		if got := detail(at.String(), tt.err); got != tt.want {
			t.Errorf("detail(%v) = %q, want %q", tt.err, got, tt.want)
		}
	}
}

func TestDetailsOfNames(t *testing.T) {
	for _, tt := range []struct {
		err  error
		want string
	}{
		{&net.DNSError{Err: "no such host", Name: "a.test", Server: "192.0.2.53:53", IsNotFound: true}, "no such host: a.test"},
		{&net.DNSError{Err: "server misbehaving", Name: "a.test", Server: "192.0.2.53:53"}, "no address of a.test: server misbehaving"},
		{&net.DNSError{Err: "i/o timeout", Name: "a.test", IsTimeout: true}, "no address of a.test in time"},
		{syscall.EMFILE, "no address of a.test: too many open files"},
	} {
		c := client(t, Config{Resolve: resolveError(tt.err)})
		if got := c.Send(t.Context(), attempt(Target{Scheme: "http", Host: "a.test", Port: 80}, "GET", "/", nil)).Outcome.Detail; got != tt.want {
			t.Errorf("Detail of %v = %q, want %q", tt.err, got, tt.want)
		}
	}
}

func TestDetailsOfTLS(t *testing.T) {
	s := newTLSScript(t, nil, always(ok))
	plain := newScript(t, func(p *peer) { p.say("no TLS here"); p.hold() })
	for _, tt := range []struct {
		name string
		cfg  Config
		to   Target
		host string
		want string
	}{
		{"authority", Config{TLS: &tls.Config{}}, s.tlsTarget(), "u1.test", "the certificate is signed by an unknown authority"},
		{"name", trusting(), s.tlsTarget(), "u2.test", "the certificate is for another name"},
		{"no TLS", trusting(), plain.tlsTarget(), "u1.test", "first record does not look like a TLS handshake"},
	} {
		tt.cfg.Resolve = func(context.Context, string) ([]netip.Addr, error) {
			return []netip.Addr{netip.MustParseAddr("127.0.0.1")}, nil
		}
		at := netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), tt.to.Port)
		tt.to.Host = tt.host
		want := "TLS with " + tt.host + " (" + at.String() + "): " + tt.want
		a := attempt(tt.to, "GET", "/", nil)
		a.ConnectTimeout = time.Minute
		if r := client(t, tt.cfg).Send(t.Context(), a); r.Outcome.Detail != want {
			t.Errorf("%s: Detail = %q, want %q", tt.name, r.Outcome.Detail, want)
		}
	}
}

// What a caller gets of a body that failed is as plain, and keeps its cause.
func TestDetailsOfBodies(t *testing.T) {
	cn := &conn{remote: netip.MustParseAddrPort("192.0.2.1:80"), ctx: context.Background()}
	gone, cancel := context.WithCancel(context.Background())
	cancel()
	reset := &net.OpError{Op: "read", Net: "tcp", Err: os.NewSyscallError("read", syscall.ECONNRESET)}
	for _, tt := range []struct {
		ctx  context.Context
		err  error
		want string
		is   error
	}{
		{context.Background(), reset, "connection to 192.0.2.1:80 was reset", syscall.ECONNRESET},
		{context.Background(), io.ErrUnexpectedEOF, "the answer ended before it was complete (192.0.2.1:80)", ErrTruncated},
		{context.Background(), os.ErrDeadlineExceeded, "the answer stood still for too long (192.0.2.1:80)", ErrIdle},
		{gone, os.ErrDeadlineExceeded, "given up before 192.0.2.1:80 answered", context.Canceled},
	} {
		cn.ctx = tt.ctx
		if got := bodyError(cn, tt.err); got.Error() != tt.want || !errors.Is(got, tt.is) {
			t.Errorf("bodyError(%v) = %v, want %q", tt.err, got, tt.want)
		}
	}
}
