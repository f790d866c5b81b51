package main

import (
	"bufio"
	"io"
	"net"
	"strings"
	"testing"
	"time"
)

// inside sends plain HTTP in origin-form through a tunnel that stands.
func (r *rig) inside(c net.Conn, in *bufio.Reader, text string) reply {
	r.t.Helper()
	if _, err := io.WriteString(c, text); err != nil {
		return reply{Err: err}
	}
	method, _, _ := strings.Cut(text, " ")
	return readReply(in, method)
}

func TestPlainHTTPInATunnel(t *testing.T) {
	bubble(t, func(r *rig) {
		u := r.upstream("u1.test:80", answer(503, ""), answer(200, "ok"))
		c, in, got := r.connect("u1.test:80", "X-Shop-Id: s1", "X-Task-Type: report", "Proxy-Authorization: "+basic("tier=vip", "x"))
		defer c.Close()
		r.want(got, 200, nil, 0)
		got = r.inside(c, in, "POST /x HTTP/1.1\r\nHost: u1.test\r\nX-Idempotency-Key: k\r\nContent-Length: 2\r\n\r\n{}")
		r.want(got, 200, u, 2) // retried as if it had come in absolute form
		r.wantHeader(got, "X-Retry-Count", "1")
		r.wantLabels("s1", "vip", "report")
		if c := r.last(); c.Mode != "forward" || c.Host != "u1.test:80" {
			t.Errorf("mode %s, host %s; want forward, u1.test:80", c.Mode, c.Host)
		}
		r.want(r.inside(c, in, "GET /y HTTP/1.1\r\nHost: u1.test:80\r\nX-Task-Type: other\r\n\r\n"), 200, u, 3)
		r.wantLabels("s1", "vip", "other") // the request's own label comes first
		r.wantMetric(0, "tunnels_total")
		got = r.inside(c, in, "GET /z HTTP/1.1\r\nHost: other.test\r\n\r\n")
		r.want(got, 400, u, 3)
		r.wantHeader(got, "X-Retry-Reason", "bad_request")
		if !strings.Contains(got.Body, "tunnel") {
			t.Errorf("the answer is %s, want it to name the tunnel", got.Body)
		}
	})
}

func TestTunnelInheritsItsUser(t *testing.T) {
	bubble(t, func(r *rig) {
		u := r.upstream("u1.test:80", answer(200, "ok"))
		c, in, got := r.connect("u1.test:80", "Proxy-Authorization: "+basic("bot1", "secret"))
		defer c.Close()
		r.want(got, 200, nil, 0)
		r.want(r.inside(c, in, "GET /x HTTP/1.1\r\nHost: u1.test\r\nAuthorization: Bearer theirs\r\n\r\n"), 200, u, 1)
		if r.last().User != "bot1" || u.seen()[0].Header.Get("Authorization") != "Bearer theirs" {
			t.Errorf("user %q, Authorization %q; want bot1 and the upstream's own", r.last().User, u.seen()[0].Header.Get("Authorization"))
		}
		r.want(r.inside(c, in, "GET /x HTTP/1.1\r\nHost: u1.test\r\nX-Shop-Id: s2\r\n\r\n"), 403, u, 1)
	}, users(t)...)
}

func TestUpgradeInATunnel(t *testing.T) {
	ca := newCA(t)
	bubble(t, func(r *rig) {
		r.upstream("gw.test:80", answer(200, "plain"))
		u := r.upstreamTLS("gw.test:443", ca.certificate("gw.test"), answer(200, "secure"))
		c, in, _ := r.connect("gw.test:80")
		defer c.Close()
		got := r.inside(c, in, "GET /x HTTP/1.1\r\nHost: gw.test\r\n\r\n")
		r.want(got, 200, u, 1)
		r.wantBody(got, "secure")
	}, patches(trusting(ca), lays("upgrade_to_https: [gw.test]"))...)
}

// Port 443 never turns into plain HTTP: what looks like it goes through as it is.
func TestPort443StaysOpaque(t *testing.T) {
	bubble(t, func(r *rig) {
		r.tunnelEnd("u1.test:443", func(c net.Conn) {
			buf := make([]byte, 16)
			n, _ := io.ReadFull(c, buf)
			io.WriteString(c, "got "+string(buf[:n]))
		})
		c, in, _ := r.connect("u1.test:443")
		defer c.Close()
		io.WriteString(c, "GET / HTTP/1.1\r\n")
		if back, _ := io.ReadAll(in); string(back) != "got GET / HTTP/1.1\r\n" {
			t.Errorf("read %q, want the bytes as they were sent", back)
		}
		r.wantMetric(1, "tunnels_total", "host=u1.test:443")
	})
}

// What is no HTTP goes through; a server may speak first; a half-close passes.
func TestOpaqueTunnels(t *testing.T) {
	for name, tt := range map[string]struct{ greeting, says string }{
		"the client speaks first":   {"", "\x16\x03\x01 hello"},
		"the server speaks first":   {"220 mail\r\n", "QUIT\r\n"},
		"a method and no request":   {"", "GET it yourself\r\n"},
		"an unfinished line":        {"", "GET /x HTT"},
		"nothing but a half-close":  {"", ""},
		"nearly HTTP":               {"", "GET / HTTP/2.0\r\n\r\n"},
		"lower case is no method":   {"", "get / HTTP/1.1\r\n\r\n"},
		"greeting and a half-close": {"hello", ""},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(r *rig) {
				r.tunnelEnd("u1.test:7000", func(c net.Conn) {
					io.WriteString(c, tt.greeting)
					all, _ := io.ReadAll(c)
					io.WriteString(c, "bye "+string(all))
				})
				c, in, got := r.connect("u1.test:7000")
				defer c.Close()
				r.want(got, 200, nil, 0)
				start := time.Now()
				greeting := make([]byte, len(tt.greeting))
				if _, err := io.ReadFull(in, greeting); err != nil || string(greeting) != tt.greeting || time.Since(start) > 0 {
					t.Errorf("greeting = %q, %v after %v, want it at once", greeting, err, time.Since(start))
				}
				io.WriteString(c, tt.says)
				c.(interface{ CloseWrite() error }).CloseWrite()
				if back, err := io.ReadAll(in); string(back) != "bye "+tt.says || err != nil {
					t.Errorf("read %q, %v, want %q", back, err, "bye "+tt.says)
				}
				r.wantEnd("success", "ok", 1)
			})
		})
	}
}

// The server's end of a tunnel reaches a client that has not said anything yet.
func TestServerLeavesFirst(t *testing.T) {
	bubble(t, func(r *rig) {
		r.tunnelEnd("u1.test:7000", func(net.Conn) {})
		c, in, _ := r.connect("u1.test:7000")
		defer c.Close()
		start := time.Now()
		if back, err := io.ReadAll(in); len(back) > 0 || err != nil || time.Since(start) > 0 {
			t.Errorf("read %q, %v after %v, want the end at once", back, err, time.Since(start))
		}
	})
}

func TestConnectPortsAndDestinations(t *testing.T) {
	bubble(t, func(r *rig) {
		r.tunnelEnd("u1.test:7000", func(net.Conn) {})
		for target, reason := range map[string]string{"u1.test:22": "destination_denied", "169.254.169.254:80": "destination_denied"} {
			c, _, got := r.connect(target)
			c.Close()
			r.want(got, 403, nil, 0)
			r.wantHeader(got, "X-Retry-Reason", reason)
			if target == "u1.test:22" && !strings.Contains(got.Body, "connect_ports") {
				t.Errorf("the answer is %s, want the setting named", got.Body)
			}
		}
		r.wantDials(0)
		c, _, got := r.connect("u2.test:443") // no such host
		c.Close()
		r.want(got, 502, nil, 0)
		r.wantHeader(got, "X-Retry-Executed", "no")
	})
}

// The first opaque tunnel to a host is explained once in the log.
func TestOpaqueTunnelIsLoggedOnce(t *testing.T) {
	bubble(t, func(r *rig) {
		r.tunnelEnd("u1.test:443", func(net.Conn) {})
		r.tunnelEnd("u2.test:443", func(net.Conn) {})
		for _, target := range []string{"u1.test:443", "u1.test:443", "u2.test:443", "U1.test:443"} {
			c, in, _ := r.connect(target)
			io.ReadAll(in)
			c.Close()
		}
		n := 0
		for line := range strings.Lines(r.log.String()) {
			if strings.Contains(line, "upgrade_to_https") {
				n++
			}
		}
		if n != 2 {
			t.Errorf("explanations in the log = %d, want one for each host", n)
		}
		r.wantMetric(4, "tunnels_total")
	})
}

// A tunnel's dial may fail a host, never heal it, and takes no probe's place.
func TestTunnelsDoNotHealAHost(t *testing.T) {
	bubble(t, func(r *rig) {
		u := r.upstream("u1.test:7000", answer(503, ""))
		for range 5 {
			r.get("http://u1.test:7000/x", "X-Retry-Count: 3")
		}
		time.Sleep(2 * time.Second)
		c, _, got := r.connect("u1.test:7000")
		r.want(got, 200, nil, 0)
		if state := r.gate("u1.test:7000").Breaker.State.String(); state != "half_open" {
			t.Errorf("breaker after a tunnel's dial = %s, want half_open", state)
		}
		c.Close()
		u.l.Close()
		for range 5 {
			c, _, _ := r.connect("u1.test:7000", "X-Request-Timeout: 0.01")
			c.Close()
		}
		if state := r.gate("u1.test:7000").Breaker.State.String(); state != "open" {
			t.Errorf("breaker after failed dials = %s, want open", state)
		}
	})
}
