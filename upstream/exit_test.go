package upstream

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"retryproxy/classify"
)

func TestExit(t *testing.T) {
	for _, proxy := range []string{"http", "https", "socks5"} {
		for _, early := range []bool{false, true} {
			for _, kind := range []string{"http", "https", "h2", "h2c"} {
				t.Run(fmt.Sprintf("%s through %s, early=%v", kind, proxy, early), func(t *testing.T) {
					s, scheme := newHost(t, kind)
					e := newExit(t, "shop-1", proxy, s.l.Addr(), nil)
					e.early = early
					c := client(t, trusting())
					for i := range 3 {
						a := attempt(through(e, scheme, s), "POST", "/", text("b"))
						a.Unsafe = i == 1
						r, body := mustFetch(t, c, a)
						if body != "ok" || r.Reused != (i > 0) || r.Remote.Port() != e.port || r.Remote.Addr().String() != e.host {
							t.Errorf("answer %d = %q, reused %v, from %v; want the proxy's address %d", i, body, r.Reused, r.Remote, e.port)
						}
					}
					if diff := cmp.Diff([]string{fmt.Sprintf("u1.test %d", s.target().Port)}, e.asks()); diff != "" {
						t.Errorf("asked for (-want +got):\n%s", diff)
					}
				})
			}
		}
	}
}

// newHost answers ok to all; scheme is how to reach it.
func newHost(t *testing.T, kind string) (s *script, scheme string) {
	var log h2log
	frames := talk(&log, func(h *h2peer, r h2request) { h.answer(r.id, "ok") })
	switch kind {
	case "http":
		return newScript(t, always(ok)), kind
	case "https":
		return newTLSScript(t, []string{"http/1.1"}, always(ok)), kind
	case "h2":
		return newH2Script(t, frames), "https"
	}
	return newScript(t, frames), kind
}

// What ends or speaks while idle is noticed through every layer.
func TestExitIdleConnectionEnds(t *testing.T) {
	for _, proxy := range []string{"http", "https"} {
		for _, scheme := range []string{"http", "https"} {
			for _, early := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s through %s, early=%v", scheme, proxy, early), func(t *testing.T) {
					plays := []func(*peer){once(ok), func(p *peer) {
						p.request()
						p.say(ok)
						p.say("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nstray")
						p.hold()
					}, always(ok)}
					s := newScript(t, plays...)
					if scheme == "https" {
						s = newTLSScript(t, nil, plays...)
					}
					e := newExit(t, "shop-1", proxy, s.l.Addr(), nil)
					e.early = early
					c := client(t, trusting())
					for i := range 3 {
						if i > 0 {
							settle(t, c)
						}
						if r, body := mustFetch(t, c, attempt(through(e, scheme, s), "GET", "/", nil)); r.Reused || body != "ok" {
							t.Errorf("reused %v, answer %q, want a fresh connection", r.Reused, body)
						}
					}
				})
			}
		}
	}
}

// An exit that wants addresses gets those that the guard allows, the next one only
// after it could not reach the first.
func TestExitAddresses(t *testing.T) {
	fails := func(hosts ...string) func(string) string {
		return func(asked string) string {
			if host, _, _ := strings.Cut(asked, " "); slices.Contains(hosts, host) {
				return "failed"
			}
			return "ok"
		}
	}
	for _, tt := range []struct {
		name     string
		host     string
		resolves bool
		say      func(string) string
		asked    []string
		fault    classify.Fault
	}{
		{"name to one that resolves", "u1.test", true, nil, []string{"u1.test"}, classify.FaultNone},
		{"first allowed", "u1.test", false, nil, []string{"2001:db8::2"}, classify.FaultNone},
		{"first fails", "u1.test", false, fails("2001:db8::2"), []string{"2001:db8::2", "192.0.2.2"}, classify.FaultNone},
		{"both fail", "u1.test", false, fails("192.0.2.2", "2001:db8::2"), []string{"2001:db8::2", "192.0.2.2"}, classify.FaultEgressFailed},
		{"first is denied by the proxy", "u1.test", false, func(string) string { return "denied" }, []string{"2001:db8::2"}, classify.FaultEgressDenied},
		{"IPv6 literal", "2001:db8::2", true, nil, []string{"2001:db8::2"}, classify.FaultNone},
		{"forbidden literal", "192.0.2.1", true, nil, nil, classify.FaultDenied},
		{"forbidden literal, unwrapped", "::ffff:192.0.2.1", true, nil, nil, classify.FaultDenied},
		{"forbidden name", "u3.test", false, nil, nil, classify.FaultDenied},
		{"unknown name", "u4.test", false, nil, nil, classify.FaultNoSuchHost},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newScript(t, always(ok))
			e := newExit(t, "shop-1", "http", s.l.Addr(), tt.say)
			e.resolves = tt.resolves
			c := client(t, Config{Guard: denyFirst, Resolve: resolveTest})
			to := through(e, "http", s)
			to.Host = tt.host
			r, _, _ := fetch(c, attempt(to, "GET", "/", nil))
			var want []string
			for _, host := range tt.asked {
				want = append(want, fmt.Sprintf("%s %d", host, to.Port))
			}
			if diff := cmp.Diff(want, e.asks()); diff != "" || r.Outcome.Fault != tt.fault {
				t.Errorf("fault %v, want %v; asked (-want +got):\n%s", r.Outcome.Fault, tt.fault, diff)
			}
		})
	}
}

var errDenied = errors.New("forbidden")

// denyFirst forbids 192.0.2.1.
func denyFirst(at netip.AddrPort, exempt bool) error {
	if at.Addr() == netip.MustParseAddr("192.0.2.1") {
		return fmt.Errorf("192.0.2.1 is %w", errDenied)
	}
	if at.Addr().IsLoopback() && !exempt {
		return fmt.Errorf("loopback is %w", errDenied)
	}
	return nil
}

func resolveTest(_ context.Context, host string) (out []netip.Addr, err error) {
	texts := map[string]string{"u1.test": "192.0.2.1 192.0.2.2 192.0.2.3 2001:db8::2", "u3.test": "192.0.2.1", "proxy.test": "127.0.0.2 127.0.0.1"}[host]
	for text := range strings.FieldsSeq(texts) {
		out = append(out, netip.MustParseAddr(text))
	}
	return out, nil
}

// The proxy's own name has several addresses: the one that refuses does not matter.
func TestExitProxyByName(t *testing.T) {
	s := newScript(t, always(ok))
	e := newExit(t, "shop-1", "http", s.l.Addr(), nil)
	e.host = "proxy.test"
	c := client(t, Config{Guard: denyFirst, Resolve: resolveTest})
	if r, body := mustFetch(t, c, attempt(through(e, "http", s), "GET", "/", nil)); body != "ok" || r.Remote.Addr().String() != "127.0.0.1" {
		t.Errorf("answer %q from %v", body, r.Remote)
	}
}

// Nothing that happens before the first byte of a request blames the host.
func TestExitFaults(t *testing.T) {
	host := func(play func(*peer)) func(*testing.T) *exit {
		return func(t *testing.T) *exit { return newExit(t, "shop-1", "http", newScript(t, play).l.Addr(), nil) }
	}
	proxy := func(change func(*exit)) func(*testing.T) *exit {
		return func(t *testing.T) *exit {
			e := host((*peer).hold)(t)
			change(e)
			return e
		}
	}
	says := func(word string) func(*testing.T) *exit {
		return func(t *testing.T) *exit {
			return newExit(t, "shop-1", "http", nil, func(string) string { return word })
		}
	}
	plays := func(scheme string, play func(*peer)) func(*testing.T) *exit {
		return func(t *testing.T) *exit {
			at := newScript(t, play).target()
			return &exit{name: "shop-1", scheme: scheme, host: at.Host, port: at.Port, resolves: true}
		}
	}
	refuses := func(cfg *tls.Config) func(*peer) {
		return func(p *peer) { _ = tls.Server(p.Conn, cfg).HandshakeContext(context.Background()) }
	}
	cert, _ := identity()
	const through = "u1.test through shop-1"
	for _, tt := range []struct {
		name   string
		exit   func(*testing.T) *exit
		phase  classify.Phase
		fault  classify.Fault
		detail string
	}{
		{"no such proxy", proxy(func(e *exit) { e.host = "none.test" }), classify.PhaseResolve, classify.FaultEgressUnreachable, "egress shop-1: no such host: none.test"},
		{"proxy refuses", proxy(func(e *exit) { e.port = 1 }), classify.PhaseConnect, classify.FaultEgressUnreachable, "egress shop-1: 127.0.0.1:1 refused the connection"},
		{"proxy is forbidden", proxy(func(e *exit) { e.host = "192.0.2.1" }), classify.PhaseNone, classify.FaultDenied, "egress shop-1: 192.0.2.1 is forbidden"},
		{"proxy without TLS", plays("https", func(p *peer) { _ = p.more(); p.say("HTTP/1.1 400 Bad\r\n\r\n") }), classify.PhaseConnect, classify.FaultEgressUnreachable, "egress shop-1: "},
		{"proxy silent in TLS", plays("https", (*peer).hold), classify.PhaseConnect, classify.FaultEgressTimeout, "egress shop-1: "},
		{"proxy's certificate", func(t *testing.T) *exit {
			e := newExit(t, "shop-1", "https", nil, nil)
			e.host = "localhost"
			return e
		}, classify.PhaseConnect, classify.FaultEgressUnreachable, "egress shop-1: "},
		{"auth", says("auth"), classify.PhaseConnect, classify.FaultEgressAuth, "egress shop-1: it said auth"},
		{"denied", says("denied"), classify.PhaseConnect, classify.FaultEgressDenied, "egress shop-1: it said denied"},
		{"failed", says("502"), classify.PhaseConnect, classify.FaultEgressFailed, "egress shop-1: it said 502"},
		{"silent", plays("http", (*peer).hold), classify.PhaseConnect, classify.FaultEgressTimeout, "egress shop-1: silence"},

		{"host closes in TLS", host(func(p *peer) { _ = p.more() }), classify.PhaseTLS, classify.FaultEgressFailed, through + " closed the connection"},
		{"host resets in TLS", func(t *testing.T) *exit {
			return plays("http", func(p *peer) { p.until("\n"); p.say("ok\n"); _ = p.more(); p.reset() })(t)
		}, classify.PhaseTLS, classify.FaultEgressFailed, "connection to " + through + " was reset"},
		{"host silent in TLS", host((*peer).hold), classify.PhaseTLS, classify.FaultEgressTimeout, "no answer from " + through + " in time"},
		{"page instead of TLS", host(func(p *peer) { _ = p.more(); p.say("HTTP/1.1 503 Busy\r\n\r\n"); p.hold() }), classify.PhaseTLS, classify.FaultEgressFailed, "TLS with " + through + ": "},
		{"alert of the host", host(refuses(&tls.Config{GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return nil, net.ErrClosed }})), classify.PhaseTLS, classify.FaultTLS, "TLS with " + through + ": "},
		{"old version", host(refuses(&tls.Config{Certificates: []tls.Certificate{cert}, MaxVersion: tls.VersionTLS11})), classify.PhaseTLS, classify.FaultTLS, "TLS with " + through + ": "},
		{"host's certificate", func(t *testing.T) *exit {
			e := newExit(t, "shop-1", "http", newTLSScript(t, nil, (*peer).hold).l.Addr(), nil)
			return e
		}, classify.PhaseTLS, classify.FaultVerify, "TLS with u2.test through shop-1: "},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cfg := trusting()
			cfg.Guard = denyFirst
			cfg.Resolve = func(ctx context.Context, host string) ([]netip.Addr, error) {
				if host == "localhost" {
					host = "proxy.test"
				}
				return resolveTest(ctx, host)
			}
			c := client(t, cfg)
			to := Target{Scheme: "https", Host: "u1.test", Port: 443, Exit: tt.exit(t)}
			if tt.fault == classify.FaultVerify {
				to.Host = "u2.test"
			}
			a := attempt(to, "POST", "/", text("b"))
			if tt.fault == classify.FaultEgressTimeout {
				a.ConnectTimeout = 100 * time.Millisecond
			}
			r := c.Send(t.Context(), a)
			check(t, r, tt.phase, tt.fault)
			if !strings.HasPrefix(r.Outcome.Detail, tt.detail) {
				t.Errorf("Detail = %q, want it to begin with %q", r.Outcome.Detail, tt.detail)
			}
			if open, _ := c.Stats(); open != 0 || r.Sent != 0 {
				t.Errorf("open = %d, Sent = %d, want none", open, r.Sent)
			}
			if tt.phase == classify.PhaseTLS {
				return
			}
			nc, r := c.Tunnel(t.Context(), to, max(100*time.Millisecond, a.ConnectTimeout/10))
			if nc != nil || r.Outcome.Fault != tt.fault || r.Outcome.Phase != tt.phase {
				t.Errorf("Tunnel = %v, %+v, want %v, %v", nc, r.Outcome, tt.phase, tt.fault)
			}
		})
	}
}

func TestExitOutOfTimeAndCancelled(t *testing.T) {
	e := newExit(t, "shop-1", "http", newScript(t, (*peer).hold).l.Addr(), func(string) string { <-t.Context().Done(); return "" })
	to := Target{Scheme: "https", Host: "u1.test", Port: 443, Exit: e}
	c := client(t, Config{})
	a := attempt(to, "GET", "/", nil)
	a.Deadline = time.Now()
	check(t, c.Send(t.Context(), a), classify.PhaseNone, classify.FaultEgressTimeout)
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(50*time.Millisecond, cancel)
	check(t, c.Send(ctx, attempt(to, "GET", "/", nil)), classify.PhaseConnect, classify.FaultCancelled)

	c = client(t, Config{Dial: func(context.Context, netip.AddrPort) (net.Conn, error) { return nil, syscall.EMFILE }})
	check(t, c.Send(t.Context(), attempt(to, "GET", "/", nil)), classify.PhaseNone, classify.FaultLocal)
}

// From the first byte of the request on it is the host that failed, before it
// cannot be told.
func TestExitFaultsOfRequests(t *testing.T) {
	for _, tt := range []struct {
		name  string
		n     int
		phase classify.Phase
		fault classify.Fault
	}{{"before the first byte", 0, classify.PhaseReady, classify.FaultEgressFailed}, {"after it", 1, classify.PhaseSent, classify.FaultReset}} {
		s := newScript(t, (*peer).hold)
		c := client(t, Config{})
		e := &breaking{exit: newExit(t, "shop-1", "http", s.l.Addr(), nil), n: tt.n}
		r := c.Send(t.Context(), attempt(through(e, "http", s), "POST", "/", text("b")))
		check(t, r, tt.phase, tt.fault)
		if want := "connection to u1.test through shop-1 was reset"; r.Outcome.Detail != want {
			t.Errorf("%s: Detail = %q, want %q", tt.name, r.Outcome.Detail, want)
		}
	}
}

// breaking is an exit whose connections fail after n bytes of the request.
type breaking struct {
	*exit
	n int
}

func (e *breaking) Open(ctx context.Context, nc net.Conn, host string, port uint16) (net.Conn, classify.Fault, error) {
	way, fault, err := e.exit.Open(ctx, nc, host, port)
	return failing{way, e.n, syscall.ECONNRESET}, fault, err
}

// Two exits share neither connections nor sessions nor tickets, with each other or
// with the direct way.
func TestExitsShareNothing(t *testing.T) {
	for _, kind := range []string{"http", "https", "h2", "h2c"} {
		t.Run(kind, func(t *testing.T) {
			s, scheme := newHost(t, kind)
			cfg := trusting()
			cfg.Resolve = func(context.Context, string) ([]netip.Addr, error) {
				return []netip.Addr{netip.MustParseAddr("127.0.0.1")}, nil
			}
			c := client(t, cfg)
			a := newExit(t, "a", "http", s.l.Addr(), nil)
			b := &exit{name: "b", scheme: a.scheme, host: a.host, port: a.port, resolves: true} // the same proxy
			for i := range 9 {
				to := through([]Exit{a, b, nil}[i%3], scheme, s)
				if r, _ := mustFetch(t, c, attempt(to, "GET", "/", nil)); r.Reused != (i > 2) {
					t.Errorf("attempt %d: reused %v", i, r.Reused)
				}
			}
			if n := s.conns(); n != 3 {
				t.Errorf("connections = %d, want 3", n)
			}
		})
	}
}

func TestExitsShareNoTickets(t *testing.T) {
	resumed := make(chan bool, 1)
	s := newTLSScript(t, nil, func(p *peer) {
		p.request()
		resumed <- p.Conn.(*tls.Conn).ConnectionState().DidResume
		p.say("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
	})
	cfg := trusting()
	cfg.Resolve = func(context.Context, string) ([]netip.Addr, error) {
		return []netip.Addr{netip.MustParseAddr("127.0.0.1")}, nil
	}
	c := client(t, cfg)
	a, b := newExit(t, "a", "http", s.l.Addr(), nil), newExit(t, "b", "http", s.l.Addr(), nil)
	for i, e := range []Exit{a, b, nil, a, b, nil} {
		mustFetch(t, c, attempt(through(e, "https", s), "GET", "/", nil))
		if got := <-resumed; got != (i > 2) {
			t.Errorf("connection %d: resumed = %v, want %v", i, got, i > 2)
		}
	}
	c.SetTLS(cfg.TLS) // other roots may not trust what was resumed
	mustFetch(t, c, attempt(through(a, "https", s), "GET", "/", nil))
	if <-resumed {
		t.Error("a session was resumed after SetTLS")
	}
	for i := range 2 * sessionTickets {
		tickets{c.trust.Load().tickets, a}.Put(fmt.Sprint(i, ".test"), &tls.ClientSessionState{})
	}
	if n := c.trust.Load().tickets.Len(); n != sessionTickets {
		t.Errorf("sessions kept = %d, want %d", n, sessionTickets)
	}
}

func TestExitTunnel(t *testing.T) {
	s := newScript(t, func(p *peer) { p.say(p.until("!")) })
	e := newExit(t, "shop-1", "https", s.l.Addr(), nil)
	nc, r := client(t, trusting()).Tunnel(t.Context(), through(e, "", s), 5*time.Second)
	if nc == nil {
		t.Fatalf("Tunnel = %+v", r.Outcome)
	}
	defer nc.Close()
	_, _ = io.WriteString(nc, "raw!")
	if b, err := io.ReadAll(nc); string(b) != "raw!" || err != nil || r.Remote.Port() != e.port {
		t.Errorf("read %q, %v from %v", b, err, r.Remote)
	}
}

// Those who wait for another's dial through an exit do not blame the host either.
func TestExitSharedDial(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := client(t, Config{Dial: func(ctx context.Context, _ netip.AddrPort) (net.Conn, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}})
		e := &exit{name: "shop-1", scheme: "http", host: "192.0.2.9", port: 3128, resolves: true}
		a := attempt(Target{Scheme: "https", Host: "u1.test", Port: 443, Exit: e}, "GET", "/", nil)
		c.speaksH2.Add(a.Target, struct{}{})
		var wg sync.WaitGroup
		for _, limit := range []time.Duration{5 * time.Second, time.Second} {
			a := *a
			a.ConnectTimeout = limit
			wg.Go(func() { check(t, c.Send(t.Context(), &a), classify.PhaseConnect, classify.FaultEgressTimeout) })
			synctest.Wait()
		}
		wg.Wait()
	})
}

func TestCheck(t *testing.T) {
	c := client(t, Config{Guard: func(at netip.AddrPort, exempt bool) error {
		if at.Addr() == netip.MustParseAddr("127.0.0.1") && at.Port() == 8080 {
			return fmt.Errorf("%w: %v is ours", ErrLoop, at)
		}
		return denyFirst(at, exempt)
	}, Resolve: func(ctx context.Context, host string) ([]netip.Addr, error) {
		if host == "broken.test" {
			return nil, errors.New("server misbehaving")
		}
		return resolveTest(ctx, host)
	}, Dial: func(context.Context, netip.AddrPort) (net.Conn, error) {
		t.Error("something was dialled")
		return nil, net.ErrClosed
	}})
	names, addresses := &exit{resolves: true}, &exit{}
	for _, tt := range []struct {
		to  Target
		err error
	}{
		{Target{Host: "192.0.2.2", Port: 443}, nil},
		{Target{Host: "192.0.2.1", Port: 443}, errDenied},
		{Target{Host: "192.0.2.1", Port: 443, Exit: names}, errDenied},
		{Target{Host: "u1.test", Port: 443}, nil},
		{Target{Host: "u3.test", Port: 443}, errDenied},
		{Target{Host: "u3.test", Port: 443, Exit: names}, nil},
		{Target{Host: "u3.test", Port: 443, Exit: addresses}, errDenied},
		{Target{Host: "none.test", Port: 443}, nil},
		{Target{Host: "broken.test", Port: 443}, nil},
		{Target{Host: "127.0.0.1", Port: 443}, errDenied},
		{Target{Host: "127.0.0.1", Port: 443, Exempt: true}, nil},
		{Target{Host: "127.0.0.1", Port: 8080, Exempt: true}, ErrLoop},
		{Target{Host: "0x7f.1", Port: 443}, ErrTarget},
	} {
		if err := c.Check(t.Context(), tt.to); !errors.Is(err, tt.err) {
			t.Errorf("Check(%s:%d, exit %v) = %v, want %v", tt.to.Host, tt.to.Port, tt.to.Exit != nil, err, tt.err)
		}
	}
}

// A kept session whose writes fail before the first byte, too.
func TestExitLosesASession(t *testing.T) {
	s, scheme := newHost(t, "h2c")
	e := &mute{exit: newExit(t, "shop-1", "http", s.l.Addr(), nil)}
	c := client(t, Config{})
	a := attempt(through(e, scheme, s), "POST", "/", text("b"))
	mustFetch(t, c, a)
	e.silent.Store(true)
	r := c.Send(t.Context(), a)
	check(t, r, classify.PhaseReady, classify.FaultEgressFailed)
}

// mute is an exit whose connections can no longer be written to from some time on.
type mute struct {
	*exit
	silent atomic.Bool
}

func (e *mute) Open(ctx context.Context, nc net.Conn, host string, port uint16) (net.Conn, classify.Fault, error) {
	way, fault, err := e.exit.Open(ctx, nc, host, port)
	return muted{way, e}, fault, err
}

type muted struct {
	net.Conn
	e *mute
}

func (m muted) Write(p []byte) (int, error) {
	if m.e.silent.Load() {
		return 0, syscall.EPIPE
	}
	return m.Conn.Write(p)
}

// An exit that speaks behind its answer is not believed: neither HTTP nor TLS
// begins with the server. Only a tunnel passes such bytes on.
func TestExitThatSpeaksFirst(t *testing.T) {
	for _, scheme := range []string{"http", "https", "h2c"} {
		t.Run(scheme, func(t *testing.T) {
			s := newScript(t, always(ok))
			c := client(t, trusting())
			e := talkative{newExit(t, "shop-1", "http", s.l.Addr(), nil)}
			res := c.Send(t.Context(), attempt(through(e, scheme, s), "POST", "/", text("order")))
			check(t, res, classify.PhaseConnect, classify.FaultEgressFailed)
			if n := s.requests(); n != 0 || !res.Asked {
				t.Errorf("requests at the upstream = %d, asked = %v, want none and true", n, res.Asked)
			}
		})
	}
}

// talkative is an exit whose answer has bytes behind it.
type talkative struct{ *exit }

func (e talkative) Open(ctx context.Context, conn net.Conn, host string, port uint16) (net.Conn, classify.Fault, error) {
	nc, fault, err := e.exit.Open(ctx, conn, host, port)
	return spoken{nc}, fault, err
}

type spoken struct{ net.Conn }

func (spoken) Buffered() bool { return true }
