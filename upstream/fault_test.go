package upstream

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"retryproxy/classify"
)

// check compares phase and fault, and that there is a text for people.
func check(t *testing.T, r Result, phase classify.Phase, fault classify.Fault) {
	t.Helper()
	o := r.Outcome
	if r.Response != nil || o.Phase != phase || o.Fault != fault {
		t.Errorf("Send = phase %v, fault %v (%s), answered=%v; want phase %v, fault %v", o.Phase, o.Fault, o.Detail, r.Response != nil, phase, fault)
	}
	if o.Detail == "" {
		t.Errorf("Detail is empty")
	}
	if internals.MatchString(o.Detail) {
		t.Errorf("Detail = %q, want plain words", o.Detail)
	}
}

func dialError(err error) func(context.Context, netip.AddrPort) (net.Conn, error) {
	return func(_ context.Context, at netip.AddrPort) (net.Conn, error) {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Addr: net.TCPAddrFromAddrPort(at), Err: os.NewSyscallError("connect", err)}
	}
}

func resolveError(err error) func(context.Context, string) ([]netip.Addr, error) {
	return func(context.Context, string) ([]netip.Addr, error) { return nil, err }
}

func TestFaultsBeforeSending(t *testing.T) {
	hang := func(ctx context.Context, _ netip.AddrPort) (net.Conn, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	hangResolve := func(ctx context.Context, _ string) ([]netip.Addr, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	deny := func(netip.AddrPort, bool) error { return errors.New("private address") }
	dns := &net.DNSError{Err: "server misbehaving", IsTemporary: true}
	for _, tt := range []struct {
		name  string
		host  string
		cfg   Config
		phase classify.Phase
		fault classify.Fault
	}{
		{"no such host", "a.test", Config{Resolve: resolveError(&net.DNSError{IsNotFound: true})}, classify.PhaseResolve, classify.FaultNoSuchHost},
		{"no address", "a.test", Config{Resolve: resolveError(nil)}, classify.PhaseResolve, classify.FaultNoSuchHost},
		{"resolver fails", "a.test", Config{Resolve: resolveError(dns)}, classify.PhaseResolve, classify.FaultDNS},
		{"resolver hangs", "a.test", Config{Resolve: hangResolve}, classify.PhaseResolve, classify.FaultDNS},
		{"resolver without descriptors", "a.test", Config{Resolve: resolveError(syscall.EMFILE)}, classify.PhaseNone, classify.FaultLocal},
		{"refused", "192.0.2.1", Config{Dial: dialError(syscall.ECONNREFUSED)}, classify.PhaseConnect, classify.FaultRefused},
		{"host unreachable", "192.0.2.1", Config{Dial: dialError(syscall.EHOSTUNREACH)}, classify.PhaseConnect, classify.FaultRefused},
		{"network unreachable", "192.0.2.1", Config{Dial: dialError(syscall.ENETUNREACH)}, classify.PhaseConnect, classify.FaultRefused},
		{"kernel timeout", "192.0.2.1", Config{Dial: dialError(syscall.ETIMEDOUT)}, classify.PhaseConnect, classify.FaultTimeout},
		{"connect hangs", "192.0.2.1", Config{Dial: hang}, classify.PhaseConnect, classify.FaultTimeout},
		{"EMFILE", "192.0.2.1", Config{Dial: dialError(syscall.EMFILE)}, classify.PhaseNone, classify.FaultLocal},
		{"ENFILE", "192.0.2.1", Config{Dial: dialError(syscall.ENFILE)}, classify.PhaseNone, classify.FaultLocal},
		{"EADDRNOTAVAIL", "192.0.2.1", Config{Dial: dialError(syscall.EADDRNOTAVAIL)}, classify.PhaseNone, classify.FaultLocal},
		{"ENOBUFS", "192.0.2.1", Config{Dial: dialError(syscall.ENOBUFS)}, classify.PhaseNone, classify.FaultLocal},
		{"ENOMEM", "192.0.2.1", Config{Dial: dialError(syscall.ENOMEM)}, classify.PhaseNone, classify.FaultLocal},
		{"denied", "192.0.2.1", Config{Guard: deny}, classify.PhaseNone, classify.FaultDenied},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a := attempt(Target{Scheme: "http", Host: tt.host, Port: 80}, "POST", "/", text("b"))
			a.ConnectTimeout = 20 * time.Millisecond
			check(t, client(t, tt.cfg).Send(t.Context(), a), tt.phase, tt.fault)
			if tt.cfg.Dial == nil && tt.fault != classify.FaultDenied {
				return
			}
			nc, r := client(t, tt.cfg).Tunnel(t.Context(), a.Target, 20*time.Millisecond)
			if nc != nil {
				t.Errorf("Tunnel gave a connection")
			}
			check(t, r, tt.phase, tt.fault)
		})
	}
}

// The numeric spellings of EG-01, and what else is no host.
func TestCase_EG_01_BadTargets(t *testing.T) {
	c := client(t, Config{
		Resolve: func(_ context.Context, host string) ([]netip.Addr, error) {
			t.Errorf("the resolver was asked for %q", host)
			return nil, errors.New("no")
		},
		Dial: func(_ context.Context, at netip.AddrPort) (net.Conn, error) {
			t.Errorf("%v was dialled", at)
			return nil, errors.New("no")
		},
	})
	for _, host := range []string{
		"2130706433", "0x7f000001", "0X7F.1", "0177.0.0.1", "127.1", "127.0.1", "0", "1.2.3.4.5", "example.0x1f", "a.1", "0x",
		"fe80::1%lo", "::1%25lo", "[::1]", "", ".", "a..b", "a b", "a/b", "user@host", "a:80", "a\r\nb", "a.", strings.Repeat("a.", 130) + "a",
		strings.Repeat("a", 64) + ".test", "exämple.test",
	} {
		check(t, c.Send(t.Context(), attempt(Target{Scheme: "http", Host: host, Port: 80}, "GET", "/", nil)), classify.PhaseNone, classify.FaultBadTarget)
		_, r := c.Tunnel(t.Context(), Target{Scheme: "http", Host: host, Port: 80}, 0)
		check(t, r, classify.PhaseNone, classify.FaultBadTarget)
	}
	check(t, c.Send(t.Context(), attempt(Target{Scheme: "ftp", Host: "a.test", Port: 80}, "GET", "/", nil)), classify.PhaseNone, classify.FaultBadTarget)
	check(t, c.Send(t.Context(), attempt(Target{Scheme: "http", Host: "a.test"}, "GET", "/", nil)), classify.PhaseNone, classify.FaultBadTarget)
}

func TestGoodTargets(t *testing.T) {
	for _, host := range []string{"127.0.0.1", "::1", "::ffff:127.0.0.1", "localhost", "a_b.test", "1a.test", "0xg.test", "xn--e1afmkfd.test", "1.2.3.4.test"} {
		if why := (&Target{Scheme: "http", Host: host, Port: 80}).refusal(); why != "" {
			t.Errorf("refusal(%q) = %q, want none", host, why)
		}
	}
}

// A request that would break its own framing is never written.
func TestFlawedRequests(t *testing.T) {
	s := newScript(t, always(ok))
	c := client(t, Config{})
	for _, a := range []*Attempt{
		attempt(s.target(), "GET /x HTTP/1.1\r\nX:", "/", nil),
		attempt(s.target(), "", "/", nil),
		attempt(s.target(), "GET", "/a b", nil),
		attempt(s.target(), "GET", "/\r\nX: 1", nil),
		attempt(s.target(), "GET", "", nil),
		attempt(s.target(), "GET", "/", nil, "X", "1\r\nY: 2"),
		attempt(s.target(), "GET", "/", nil, "X", "1\x00"),
		attempt(s.target(), "GET", "/", nil, "X Y", "1"),
		attempt(s.target(), "GET", "/", nil, "", "1"),
	} {
		check(t, c.Send(t.Context(), a), classify.PhaseNone, classify.FaultBadTarget)
	}
	if got := s.wire(); got != "" {
		t.Errorf("wire = %q, want nothing", got)
	}
}

func TestFaultsAfterSending(t *testing.T) {
	play := func(f func(*peer)) func(*peer) {
		return func(p *peer) {
			p.request()
			f(p)
		}
	}
	say := func(s string) func(*peer) {
		return play(func(p *peer) {
			p.say(s)
			p.hold()
		})
	}
	cut := func(s string) func(*peer) { return play(func(p *peer) { p.say(s) }) }
	for _, tt := range []struct {
		name  string
		play  func(*peer)
		phase classify.Phase
		fault classify.Fault
	}{
		{"FIN", play(func(*peer) {}), classify.PhaseSent, classify.FaultEOF},
		{"RST", play((*peer).reset), classify.PhaseSent, classify.FaultReset},
		{"silence", play((*peer).hold), classify.PhaseSent, classify.FaultTimeout},
		{"half a header, FIN", cut("HTTP/1.1 200 OK\r\nX: "), classify.PhaseHeader, classify.FaultEOF},
		{"half a header, silence", say("HTTP/1.1 200 OK\r\nX: "), classify.PhaseHeader, classify.FaultTimeout},
		{"only 100", say("HTTP/1.1 100 Continue\r\n\r\n"), classify.PhaseHeader, classify.FaultTimeout},
		{"banner", say("SSH-2.0-OpenSSH\r\n"), classify.PhaseHeader, classify.FaultMalformed},
		{"junk without an end", say("\x15\x03\x01\x00\x02"), classify.PhaseHeader, classify.FaultMalformed},
		{"HTTP/2 frames", say("\x00\x00\x12\x04\x00\x00\x00\x00\x00"), classify.PhaseHeader, classify.FaultMalformed},
		{"HTTP/2.0", say("HTTP/2.0 200 OK\r\n\r\n"), classify.PhaseHeader, classify.FaultMalformed},
		{"HTTP/1.2", say("HTTP/1.2 200 OK\r\n\r\n"), classify.PhaseHeader, classify.FaultMalformed},
		{"status of two digits", say("HTTP/1.1 20 OK\r\n\r\n"), classify.PhaseHeader, classify.FaultMalformed},
		{"status of four digits", say("HTTP/1.1 2000 OK\r\n\r\n"), classify.PhaseHeader, classify.FaultMalformed},
		{"status 099", say("HTTP/1.1 099 OK\r\n\r\n"), classify.PhaseHeader, classify.FaultMalformed},
		{"RI-11 length with chunked", say("HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"), classify.PhaseHeader, classify.FaultMalformed},
		{"RI-11 two Content-Length", say("HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 5\r\n\r\nabcde"), classify.PhaseHeader, classify.FaultMalformed},
		{"Content-Length list", say("HTTP/1.1 200 OK\r\nContent-Length: 3, 5\r\n\r\nabc"), classify.PhaseHeader, classify.FaultMalformed},
		{"Content-Length sign", say("HTTP/1.1 200 OK\r\nContent-Length: +3\r\n\r\nabc"), classify.PhaseHeader, classify.FaultMalformed},
		{"Content-Length overflow", say("HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\nabc"), classify.PhaseHeader, classify.FaultMalformed},
		{"Content-Length empty", say("HTTP/1.1 200 OK\r\nContent-Length:\r\n\r\nabc"), classify.PhaseHeader, classify.FaultMalformed},
		{"unknown coding", say("HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n"), classify.PhaseHeader, classify.FaultMalformed},
		{"chunked twice", say("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n"), classify.PhaseHeader, classify.FaultMalformed},
		{"chunked in HTTP/1.0", say("HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"), classify.PhaseHeader, classify.FaultMalformed},
		{"obs-fold", say("HTTP/1.1 200 OK\r\nX: 1\r\n  2\r\n\r\n"), classify.PhaseHeader, classify.FaultMalformed},
		{"no colon", say("HTTP/1.1 200 OK\r\nX 1\r\n\r\n"), classify.PhaseHeader, classify.FaultMalformed},
		{"bare CR", say("HTTP/1.1 200 OK\r\nX: 1\r2\r\n\r\n"), classify.PhaseHeader, classify.FaultMalformed},
		{"NUL", say("HTTP/1.1 200 OK\r\nX: 1\x002\r\n\r\n"), classify.PhaseHeader, classify.FaultMalformed},
		{"space in a name", say("HTTP/1.1 200 OK\r\nX Y: 1\r\n\r\n"), classify.PhaseHeader, classify.FaultMalformed},
		{"empty line first", say("\r\nHTTP/1.1 200 OK\r\n\r\n"), classify.PhaseHeader, classify.FaultMalformed},
		{"SM-05 header over the limit", say("HTTP/1.1 200 OK\r\nX: " + strings.Repeat("x", 2<<20) + "\r\n\r\n"), classify.PhaseHeader, classify.FaultMalformed},
		{"interim answers over the limit", say(strings.Repeat("HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n", 5000)), classify.PhaseHeader, classify.FaultMalformed},
		{"101 unasked", say("HTTP/1.1 101 Switching\r\nUpgrade: x\r\n\r\n"), classify.PhaseHeader, classify.FaultMalformed},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newScript(t, tt.play)
			a := attempt(s.target(), "POST", "/", text("body"))
			if tt.fault == classify.FaultTimeout {
				a.HeaderTimeout = 100 * time.Millisecond
			}
			c := client(t, Config{})
			r := c.Send(t.Context(), a)
			check(t, r, tt.phase, tt.fault)
			if !strings.Contains(r.Outcome.Detail, s.l.Addr().String()) {
				t.Errorf("Detail = %q, want the address %v in it", r.Outcome.Detail, s.l.Addr())
			}
			if r.Sent == 0 || r.Remote.String() != s.l.Addr().String() {
				t.Errorf("Sent = %d, Remote = %v, want > 0 and %v", r.Sent, r.Remote, s.l.Addr())
			}
			if n := s.requests(); n > 1 {
				t.Errorf("requests on the wire = %d, want 1", n)
			}
			if open, idle := c.Stats(); open != 0 || idle != 0 {
				t.Errorf("Stats = %d, %d, want none left", open, idle)
			}
		})
	}
}

// A reused connection that the upstream drops after reading the request: one
// request on the wire per Send, whatever the method or key.
func TestCase_DE_01_NoHiddenResend(t *testing.T) {
	drop := func(p *peer) {
		p.request()
		p.say(ok)
		p.request()
	}
	for _, tt := range []struct {
		method string
		fields []string
	}{
		{"GET", nil},
		{"HEAD", nil},
		{"POST", nil},
		{"PUT", nil},
		{"POST", []string{"X-Idempotency-Key", "k"}},
		{"POST", []string{"Idempotency-Key", "k"}},
	} {
		s := newScript(t, drop)
		c := client(t, Config{})
		mustFetch(t, c, attempt(s.target(), "GET", "/warm", nil))
		r := c.Send(t.Context(), attempt(s.target(), tt.method, "/order", nil, tt.fields...))
		check(t, r, classify.PhaseSent, classify.FaultEOF)
		if !r.Reused {
			t.Errorf("%s: Reused = false, want true", tt.method)
		}
		if n := s.requests(); n != 2 {
			t.Errorf("%s %v: requests on the wire = %d, want 2", tt.method, tt.fields, n)
		}
	}
}

// failing is a connection whose write fails after n bytes.
type failing struct {
	net.Conn
	n   int
	err error
}

func (f failing) Write(p []byte) (int, error) {
	if f.n > 0 {
		n, _ := f.Conn.Write(p[:f.n])
		return n, f.err
	}
	return 0, f.err
}

func TestFailedWrites(t *testing.T) {
	for _, tt := range []struct {
		name  string
		n     int
		err   error
		body  text
		phase classify.Phase
		fault classify.Fault
	}{
		{"before the first byte", 0, syscall.EPIPE, "b", classify.PhaseReady, classify.FaultReset},
		{"after the first byte", 1, syscall.ECONNRESET, "b", classify.PhaseSent, classify.FaultReset},
		{"before the first byte of an upload", 0, syscall.EPIPE, text(strings.Repeat("b", writeSize)), classify.PhaseReady, classify.FaultReset},
		{"in an upload", 1, syscall.ECONNRESET, text(strings.Repeat("b", writeSize)), classify.PhaseSent, classify.FaultReset},
		{"out of buffers", 0, syscall.ENOBUFS, "b", classify.PhaseNone, classify.FaultLocal},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newScript(t, (*peer).hold)
			c := client(t, Config{Dial: func(ctx context.Context, at netip.AddrPort) (net.Conn, error) {
				nc, err := dialTCP(ctx, at)
				return failing{nc, tt.n, &net.OpError{Op: "write", Err: tt.err}}, err
			}})
			r := c.Send(t.Context(), attempt(s.target(), "POST", "/", tt.body))
			check(t, r, tt.phase, tt.fault)
			if r.Sent != int64(tt.n) {
				t.Errorf("Sent = %d, want %d", r.Sent, tt.n)
			}
		})
	}
}

func TestBodyFault(t *testing.T) {
	for _, tt := range []struct {
		err  error
		want classify.Fault
	}{
		{nil, classify.FaultNone},
		{io.EOF, classify.FaultNone},
		{bodyError(&conn{ctx: context.Background()}, io.ErrUnexpectedEOF), classify.FaultEOF},
		{bodyError(&conn{ctx: context.Background()}, os.ErrDeadlineExceeded), classify.FaultTimeout},
		{malformed("x"), classify.FaultMalformed},
		{context.Canceled, classify.FaultCancelled},
		{ErrClosed, classify.FaultCancelled},
		{&net.OpError{Op: "read", Err: syscall.ECONNRESET}, classify.FaultReset},
	} {
		if got := BodyFault(tt.err); got != tt.want {
			t.Errorf("BodyFault(%v) = %v, want %v", tt.err, got, tt.want)
		}
	}
}
