package main

import (
	"bufio"
	"io"
	"net"
	"strings"
	"testing"
)

const twoRoutes = `routes:
  - {name: pdd, prefix: /pdd, upstreams: ['http://u1.test/base']}
  - {name: whole, prefix: /whole, upstreams: ['http://u1.test'], strip_prefix: false}
  - {name: open, prefix: /open, upstreams: ['http://u1.test'], cross_site: true}
  - {name: named, host: api.example.com, upstreams: ['http://u2.test']}
  - {name: both, prefix: /v2, host: two.example.com, upstreams: ['http://u2.test/two']}`

// line is the request line that the last request had upstream.
func (s *scripted) line() string {
	all := s.seen()
	if len(all) == 0 {
		return ""
	}
	return all[len(all)-1].Line
}

func TestRoutes(t *testing.T) {
	bubble(t, func(r *rig) {
		u1 := r.upstream("u1.test:80", answer(200, "one"))
		u2 := r.upstream("u2.test:80", answer(200, "two"))
		for _, tt := range []struct{ host, path, body, line string }{
			{"localhost:18080", "/pdd/api?x=%zz;y", "one", "GET /base/api?x=%zz;y HTTP/1.1"},
			{"127.0.0.1:18080", "/pdd", "one", "GET /base/ HTTP/1.1"},
			{"127.0.0.1:18080", "/pdd?a=b", "one", "GET /base/?a=b HTTP/1.1"},
			{"127.0.0.1:18080", "/pdd//a/../b", "one", "GET /base//a/../b HTTP/1.1"},
			{"[::1]:18080", "/whole/api", "one", "GET /whole/api HTTP/1.1"},
			{"api.example.com", "/any/path", "two", "GET /any/path HTTP/1.1"},
			{"API.Example.Com:8080", "/pdd/x", "one", "GET /base/x HTTP/1.1"}, // the first route that matches
			{"two.example.com", "/v2/x", "two", "GET /two/x HTTP/1.1"},
		} {
			got := r.origin("GET", tt.host, tt.path, "")
			u := map[string]*scripted{"one": u1, "two": u2}[tt.body]
			if got.Status != 200 || got.Body != tt.body || u.line() != tt.line {
				t.Errorf("%s%s = %d %q, upstream got %q; want %q with %q", tt.host, tt.path, got.Status, got.Body, u.line(), tt.body, tt.line)
			}
			if mode := r.last().Mode; mode != "reverse" {
				t.Errorf("%s%s: mode = %s, want reverse", tt.host, tt.path, mode)
			}
		}
		if h := u1.seen()[0]; h.Host != "u1.test" {
			t.Errorf("Host upstream = %q, want the route's", h.Host)
		}
		for path, status := range map[string]int{"/": 400, "/pddx": 400, "/other": 400} {
			got := r.origin("GET", "localhost:18080", path, "")
			r.want(got, status, nil, 0)
			r.wantHeader(got, "X-Retry-Reason", "bad_request")
		}
	}, lays(twoRoutes)...)
}

// A page that a browser shows can reach us by a name that its owner points at
// us (DNS rebinding): such a Host is neither loopback nor configured.
func TestOriginFormNeedsAHostThatIsOurs(t *testing.T) {
	bubble(t, func(r *rig) {
		u := r.upstream("u1.test:80", answer(200, "ok"))
		for _, host := range []string{"evil.example", "u1.test", "10.0.0.1", "two.example.com.evil.example", "0.0.0.0:18080"} {
			got := r.origin("GET", host, "/pdd/x", "")
			r.want(got, 403, u, 0)
			r.wantHeader(got, "X-Retry-Reason", "client_denied")
			if !strings.Contains(got.Body, "listen.hosts") {
				t.Errorf("Host %s: %s, want the setting named", host, got.Body)
			}
		}
		r.want(r.origin("GET", "proxy.corp", "/pdd/x", ""), 200, u, 1)
		r.want(r.askAt(adminAddr, "GET /api/v1/calls HTTP/1.1\r\nHost: evil.example\r\n\r\n"), 403, nil, 0)
		r.want(r.askAt(adminAddr, "GET /api/v1/calls HTTP/1.1\r\nHost: proxy.corp\r\n\r\n"), 200, nil, 0)
	}, patches(lays(twoRoutes), []string{`admin: "127.0.0.1:18090"`, `admin: "127.0.0.1:18090", hosts: [proxy.corp]`})...)
}

func TestCrossSiteRequests(t *testing.T) {
	bubble(t, func(r *rig) {
		u := r.upstream("u1.test:80", answer(200, "ok"))
		for _, header := range []string{"Sec-Fetch-Site: cross-site", "Sec-Fetch-Site: same-site", "Origin: http://evil.example", "Origin: null"} {
			got := r.origin("POST", "localhost:18080", "/pdd/x", "{}", header)
			r.want(got, 403, u, 0)
			r.wantHeader(got, "X-Retry-Reason", "client_denied")
			if !strings.Contains(got.Body, "cross_site") {
				t.Errorf("%s: %s, want the setting named", header, got.Body)
			}
		}
		r.want(r.origin("POST", "localhost:18080", "/pdd/x", "{}", "Origin: http://localhost:18080"), 200, u, 1)
		r.want(r.origin("POST", "localhost:18080", "/pdd/x", "{}", "Sec-Fetch-Site: same-origin"), 200, u, 2)
		r.want(r.origin("POST", "localhost:18080", "/open/x", "{}", "Origin: http://evil.example"), 200, u, 3)
	}, lays(twoRoutes)...)
}

// A route may name private upstreams whatever destinations.private says.
func TestRoutesAreExempt(t *testing.T) {
	bubble(t, func(r *rig) {
		u := r.upstream("u1.test:80", answer(200, "ok"))
		r.want(r.origin("GET", "localhost", "/pdd/x", ""), 200, u, 1)
		r.want(r.get("http://u1.test/x"), 403, u, 1)
	}, patches(lays(twoRoutes), noPrivate)...)
}

// The next upstream of a route is asked only when nothing was sent to the first.
func TestRouteWithTwoUpstreams(t *testing.T) {
	bubble(t, func(r *rig) {
		u1 := r.closed("u1.test:80", answer(200, "one"))
		u2 := r.upstream("u2.test:80", answer(200, "two"))
		got := r.origin("POST", "localhost", "/x", "{}")
		r.want(got, 200, u2, 1)
		r.wantBody(got, "two")
		if u1.count() != 0 || len(r.last().Attempts) != 2 || r.last().Attempts[0].Host != "u1.test:80" || r.last().Attempts[1].Host != "u2.test:80" {
			t.Errorf("attempts = %+v, want one at each upstream", r.last().Attempts)
		}
		r.wantMetric(1, "attempts_total", "host=u1.test:80", "reason=connect_refused")
		r.wantMetric(1, "retries_total", "host=u2.test:80")
	}, lays("routes: [{prefix: /, upstreams: ['http://u1.test', 'http://u2.test']}]")...)
}

func TestUpgradeToHTTPS(t *testing.T) {
	ca := newCA(t)
	bubble(t, func(r *rig) {
		u := r.upstreamTLS("gw.test:443", ca.certificate("gw.test"), answer(503, ""), answer(200, "ok"))
		got := r.post("http://gw.test/x?a=b", "{}", keyed)
		r.want(got, 200, u, 2)
		if u.line() != "POST /x?a=b HTTP/1.1" || u.seen()[0].Host != "gw.test" {
			t.Errorf("upstream got %q for %q", u.line(), u.seen()[0].Host)
		}
		if c := r.last(); c.Scheme != "https" || c.Host != "gw.test:443" {
			t.Errorf("logged %s %s, want https and gw.test:443", c.Scheme, c.Host)
		}
		r.want(r.get("http://GW.test.:80/x"), 200, u, 3)
		r.want(r.get("http://gw.test:8080/x"), 502, u, 3) // another port is another service

		// Plain text with secrets must not cross a network: others get what they asked for.
		c := r.dialFrom("10.1.1.1", proxyAddr)
		defer c.Close()
		plain := r.upstream("gw.test:80", answer(200, "plain"))
		r.wantBody(r.exchange(c, rawRequest("GET", "http://gw.test/x", ""), "GET"), "plain")
		r.want(reply{Status: 200}, 200, plain, 1)
	}, patches(trusting(ca), lays("upgrade_to_https: [gw.test]\nclients: {allow: [127.0.0.0/8, 10.0.0.0/8]}"))...)
}

func TestHTTPSTargets(t *testing.T) {
	ca := newCA(t)
	bubble(t, func(r *rig) {
		u := r.upstreamTLS("u1.test:443", ca.certificate("u1.test"), answer(503, ""), answer(200, "ok"))
		got := r.get("https://u1.test/x")
		r.want(got, 200, u, 2)
		r.wantHeader(got, "X-Retry-Count", "1")
		r.want(r.get("https://u1.test:443/x"), 200, u, 3)
		r.wantMetric(3, "attempts_total", "host=u1.test:443")
	}, trusting(ca)...)
}

// HTTP/2 is spoken where TLS offers it, and many calls share a connection.
func TestHTTP2Upstream(t *testing.T) {
	ca := newCA(t)
	bubble(t, func(r *rig) {
		u := r.upstreamH2("u1.test:443", ca.certificate("u1.test"), nil, func(c *h2conn, n int, s h2stream) {
			if n == 1 {
				c.answer(s.ID, 503, "busy")
				return
			}
			c.answer(s.ID, 200, "ok "+s.Path)
		})
		got := r.post("https://u1.test/x?y", "{}", keyed)
		r.want(got, 200, nil, 0)
		r.wantBody(got, "ok /x?y")
		u.want(2)
		r.together(10, func(int) reply { return r.get("https://u1.test/z") })
		u.want(12)
		if n := r.dials.Load(); n != 1 {
			t.Errorf("connections = %d, want 1", n)
		}
	}, trusting(ca)...)
}

// A WebSocket through a route: the 101 passes and both ways flow.
func TestWebSocketThroughARoute(t *testing.T) {
	bubble(t, func(r *rig) {
		u := r.upstream("u1.test:80", func(_ *scripted, c net.Conn, req *request) bool {
			if req.Header.Get("Upgrade") != "websocket" || req.Header.Get("Connection") != "Upgrade" {
				return answer(400, "no upgrade")(nil, c, req)
			}
			io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\nhello")
			io.Copy(c, c)
			return false
		})
		c := r.dial()
		defer c.Close()
		io.WriteString(c, rawOrigin("GET", "localhost", "/pdd/ws", "", "Upgrade: websocket", "Connection: keep-alive, Upgrade", "Sec-WebSocket-Key: x"))
		in := bufio.NewReader(c)
		if text := responseHead(t, in); !strings.HasPrefix(text, "HTTP/1.1 101 ") || !strings.Contains(text, "X-Call-Id:") {
			t.Errorf("answer = %q, want a 101 with our call id", text)
		}
		io.WriteString(c, "ping")
		buf := make([]byte, 9)
		if _, err := io.ReadFull(in, buf); err != nil || string(buf) != "helloping" {
			t.Errorf("read %q, %v, want hello and the echo", buf, err)
		}
		c.(interface{ CloseWrite() error }).CloseWrite()
		if rest, err := io.ReadAll(in); len(rest) > 0 || err != nil {
			t.Errorf("after the half-close: %q, %v, want the end", rest, err)
		}
		r.wantEnd("success", "ok", 1)
		r.want(reply{Status: 101}, 101, u, 1)
	}, lays(twoRoutes)...)
}
