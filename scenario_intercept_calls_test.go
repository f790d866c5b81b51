package main

import (
	"crypto/tls"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"retryproxy/internal/memnet"
)

// An https call through an opened tunnel lives by the rules of any other.
func TestInterceptedCallIsRetried(t *testing.T) {
	ca := newCA(t)
	bubble(t, func(r *rig) {
		u := r.upstreamTLS("u1.test:443", ca.certificate("u1.test"), answer(503, ""), answer(503, ""), answer(200, "ok"))
		o := r.open("u1.test:443", visitor{})
		defer o.Close()
		r.wantDials(0) // until there is a request, nobody is called
		const path = "/a;b/%zz+c//../x?q=%2F&r=+x;y&&"
		got := o.ask(r, "GET "+path+" HTTP/1.1\r\nHost: u1.test\r\nX-Strange: a,b ,c\r\n\r\n")
		r.want(got, 200, u, 3)
		r.wantBody(got, "ok")
		r.wantHeader(got, "X-Retry-Count", "2")
		r.wantMode("intercept")
		r.wantEnd("recovered", "ok", 3)
		for _, q := range u.seen() {
			if q.Line != "GET "+path+" HTTP/1.1" || q.Host != "u1.test" {
				t.Errorf("upstream got %q for %q, want the path as it was sent", q.Line, q.Host)
			}
		}
		r.wantSent(u, 3, "X-Strange", "a,b ,c")
		r.wantSent(u, 3, "X-Retry-Count", "2")
		r.want(o.ask(r, "GET /again HTTP/1.1\r\nHost: u1.test:443\r\n\r\n"), 200, u, 4) // the tunnel stays
		if n := u.connections(); n != 1 {
			t.Errorf("connections to the upstream = %d, want one that is kept", n)
		}
		r.wantMetric(0, "tunnels_total")
		r.wantMetric(2, "calls_total", "mode=intercept")
	}, opening(ca, "[u1.test]")...)
}

// A platform sees nothing of us.
func TestInterceptedPlatform(t *testing.T) {
	const host = "gw-api.pinduoduo.com"
	ca := newCA(t)
	bubble(t, func(r *rig) {
		u := r.upstreamTLS(host+":443", ca.certificate(host), answer(503, ""), echo)
		got := r.secretly("POST", "https://"+host+"/api/router?type=x", "{}", keyed, "X-Shop-Id: s1", "X-Task-Type: report", "X-Request-Timeout: 5")
		r.want(got, 200, u, 2)
		text := strings.ToLower(got.Body)
		for _, name := range []string{"via", "idempotency", "retry", "shop", "task", "timeout", "forwarded", "proxy"} {
			if strings.Contains(text, name) {
				t.Errorf("the platform got %q, want nothing about %s", got.Body, name)
			}
		}
	}, opening(ca, "["+host+"]")...)
}

// Requests inherit who the CONNECT was; their own labels come first.
func TestInterceptedCallInheritsLabels(t *testing.T) {
	ca := newCA(t)
	bubble(t, func(r *rig) {
		u := r.upstreamTLS("u1.test:443", ca.certificate("u1.test"), answer(200, "ok"))
		o := r.open("u1.test:443", visitor{headers: []string{"Proxy-Authorization: " + basic("shop=17;task=order_ship", "x"), "X-Shop-Tier: vip"}})
		defer o.Close()
		r.want(o.ask(r, "GET /x HTTP/1.1\r\nHost: u1.test\r\n\r\n"), 200, u, 1)
		r.wantLabels("17", "vip", "order_ship")
		r.want(o.ask(r, "GET /x HTTP/1.1\r\nHost: u1.test\r\nX-Shop-Tier: basic\r\n\r\n"), 200, u, 2)
		r.wantLabels("17", "basic", "order_ship")
	}, opening(ca, "[u1.test]")...)
	bubble(t, func(r *rig) {
		u := r.upstreamTLS("u1.test:443", ca.certificate("u1.test"), answer(200, "ok"))
		o := r.open("u1.test:443", visitor{headers: []string{"Proxy-Authorization: " + basic("bot1", "secret")}})
		defer o.Close()
		r.want(o.ask(r, "GET /x HTTP/1.1\r\nHost: u1.test\r\nAuthorization: Bearer theirs\r\nX-Task-Type: report\r\n\r\n"), 200, u, 1)
		r.wantLabels("s1", "vip", "report")
		r.wantSent(u, 1, "Authorization", "Bearer theirs")
		if user := r.last().User; user != "bot1" {
			t.Errorf("user = %q, want bot1", user)
		}
		r.want(o.ask(r, "GET /x HTTP/1.1\r\nHost: u1.test\r\nX-Shop-Id: s2\r\n\r\n"), 403, u, 1)
	}, patches(opening(ca, "[u1.test]"), users(t))...)
}

// However an https call comes, its key names one record.
func TestOneRecordHoweverTheCallComes(t *testing.T) {
	ca := newCA(t)
	bubble(t, func(r *rig) {
		u := r.upstreamTLS("u1.test:443", ca.certificate("u1.test"), answer(201, "done"))
		tunnel := func(body string) reply { return r.secretly("POST", "https://u1.test/x", body, keyed) }
		r.want(tunnel("{}"), 201, u, 1)
		again := tunnel("{}")
		r.want(again, 201, u, 1)
		r.wantHeader(again, "Idempotency-Replayed", "true")
		r.wantBody(again, "done")
		absolute := r.post("https://u1.test/x", "{}", keyed)
		r.want(absolute, 201, u, 1)
		r.wantHeader(absolute, "Idempotency-Replayed", "true")
		c := r.openH2("u1.test:443")
		defer c.Close()
		two := c.ask("POST", "/x", "{}", keyed)
		r.want(two, 201, u, 1)
		r.wantHeader(two, "Idempotency-Replayed", "true")
		r.want(tunnel("{1}"), 422, u, 1)
		r.want(r.post("https://u1.test/x", "{}", "X-Idempotency-Key: other"), 201, u, 2)
		r.want(r.secretly("POST", "https://u1.test/x", "{}", "X-Idempotency-Key: other"), 201, u, 2)
	}, opening(ca, "[u1.test]")...)
}

// The client has its 200 to CONNECT while the upstream still refuses: connecting
// is retried inside.
func TestConnectingIsRetriedInside(t *testing.T) {
	ca := newCA(t)
	bubble(t, func(r *rig) {
		u := r.closed("u1.test:443", answer(200, "ok"))
		u.wrap = tlsEnd(ca.certificate("u1.test"))
		o := r.open("u1.test:443", visitor{})
		defer o.Close()
		u.openAfter(250 * time.Millisecond)
		r.want(o.ask(r, "POST /x HTTP/1.1\r\nHost: u1.test\r\nContent-Length: 2\r\n\r\n{}"), 200, u, 1)
		r.wantDials(3)
		r.wantEnd("recovered", "ok", 3)
		r.wantVerdict(1, "transient", "connect_refused")
		r.wantVerdict(2, "transient", "connect_refused")
	}, patches(plain, opening(ca, "[u1.test]"))...)
	bubble(t, func(r *rig) {
		got := r.secretly("POST", "https://gone.test/x", "{}")
		r.want(got, 502, nil, 0)
		r.wantHeader(got, "Content-Type", "application/problem+json")
		r.wantHeader(got, "X-Retry-Executed", "no")
		if v := r.interceptedCall().Attempts[0].Verdict; v.Reason != "dns_no_such_host" {
			t.Errorf("verdict = %+v, want dns_no_such_host", v)
		}
	}, opening(ca, "[gone.test]")...)
}

// Our own certificate makes no upstream's good: that is verified as ever.
func TestInterceptedUpstreamIsVerified(t *testing.T) {
	ca, stranger := newCA(t), newCA(t)
	for name, cert := range map[string]string{"unknown authority": "u1.test", "another name": "u2.test"} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(r *rig) {
				signer := stranger
				if cert != "u1.test" {
					signer = ca
				}
				u := r.upstreamTLS("u1.test:443", signer.certificate(cert), answer(200, "ok"))
				o := r.open("u1.test:443", visitor{})
				defer o.Close()
				got := o.ask(r, "GET /x HTTP/1.1\r\nHost: u1.test\r\n\r\n")
				r.want(got, 502, u, 0)
				r.wantHeader(got, "X-Retry-Executed", "no")
				r.wantHeader(got, "X-Retry-Advice", "stop")
				r.wantDials(1)
				r.wantEnd("failed", "fail_permanent", 1)
				r.wantVerdict(1, "permanent", "tls_verify")
			}, opening(ca, "[u1.test]")...)
		})
	}
}

// Clients get the protocol that they ask for.
func TestInterceptedProtocols(t *testing.T) {
	ca := newCA(t)
	bubble(t, func(r *rig) {
		u := r.upstreamTLS("u1.test:443", ca.certificate("u1.test"), answer(200, "ok"))
		for i, tt := range []struct {
			asks []string
			gets string
		}{
			{[]string{"h2", "http/1.1"}, "h2"},
			{[]string{"http/1.1", "h2"}, "h2"}, // ours is the choice (RFC 7301 section 3.2)
			{[]string{"http/1.1"}, "http/1.1"},
			{nil, ""},
			{[]string{"http/1.0", "spdy/3"}, ""},
		} {
			o := r.open("u1.test:443", visitor{protos: tt.asks})
			if got := o.ConnectionState().NegotiatedProtocol; got != tt.gets {
				t.Errorf("protocol for %v = %q, want %q", tt.asks, got, tt.gets)
			}
			if tt.gets != "h2" {
				r.want(o.ask(r, "GET /x HTTP/1.1\r\nHost: u1.test\r\n\r\n"), 200, u, i-1)
			}
			o.Close()
		}
	}, opening(ca, "[u1.test]")...)
}

// On one connection of HTTP/2 calls do not wait for each other, whether they are
// slow or retried.
func TestInterceptedStreams(t *testing.T) {
	ca := newCA(t)
	bubble(t, func(r *rig) {
		var mu sync.Mutex
		tried := map[string]int{}
		u := r.upstreamTLS("u1.test:443", ca.certificate("u1.test"), byPath(map[string]step{
			"/slow": after(800*time.Millisecond, answer(200, "slow")),
			"/fast": answer(200, "fast"),
			"/flaky": func(s *scripted, c net.Conn, q *request) bool {
				mu.Lock()
				tried["/flaky"]++
				n := tried["/flaky"]
				mu.Unlock()
				if n == 1 {
					return answer(503, "")(s, c, q)
				}
				return answer(200, "flaky")(s, c, q)
			},
		}))
		c := r.openH2("u1.test:443")
		defer c.Close()
		paths := []string{"/slow", "/flaky", "/fast", "/fast", "/fast"}
		all := r.together(len(paths), func(i int) reply { return c.ask("GET", paths[i], "") })
		took := []time.Duration{800 * time.Millisecond, 100 * time.Millisecond, 0, 0, 0}
		for i, got := range all {
			r.want(got, 200, u, len(paths)+1)
			r.wantBody(got, paths[i][1:])
			r.between(paths[i], got.Took, took[i], took[i])
			if got.Proto != "HTTP/2.0" {
				t.Errorf("%s came by %s, want HTTP/2.0", paths[i], got.Proto)
			}
		}
		r.wantMetric(5, "calls_total", "mode=intercept")
	}, patches(plain, opening(ca, "[u1.test]"))...)
}

// A keyless POST whose reused upstream connection dies was sent once, and stays
// so: nobody knows what came of it.
func TestInterceptedPostOnAConnectionThatDies(t *testing.T) {
	ca := newCA(t)
	ends := map[string]func(*h2conn){
		"end":   func(c *h2conn) { _ = c.Conn.Close() },
		"reset": func(c *h2conn) { _ = c.Conn.(*tls.Conn).NetConn().(*memnet.Conn).Reset() },
	}
	for name, end := range ends {
		for _, two := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, h2 %v", name, two), func(t *testing.T) {
				bubble(t, func(r *rig) {
					u := r.upstreamH2("u1.test:443", ca.certificate("u1.test"), nil, func(c *h2conn, n int, s h2stream) {
						if n == 2 {
							end(c)
							return
						}
						c.answer(s.ID, 200, "ok")
					})
					ask := r.asker("u1.test:443", two)
					r.want(ask("GET", ""), 200, nil, 0)
					got := ask("POST", "{}")
					r.want(got, 502, nil, 0)
					u.want(2)
					r.wantHeader(got, "X-Retry-Reason", "manual_review")
					r.wantHeader(got, "X-Retry-Executed", "maybe")
					r.wantHeader(got, "X-Retry-Advice", "check")
					if all := u.seen(); all[0].Conn != all[1].Conn || string(all[1].Body) != "{}" {
						t.Errorf("requests = %+v, want both on one connection", all)
					}
				}, opening(ca, "[u1.test]")...)
			})
		}
	}
	for name, dies := range map[string]step{"reset": resetTLS, "end": hangUp} {
		t.Run(name+" of HTTP/1.1", func(t *testing.T) {
			bubble(t, func(r *rig) {
				u := r.upstreamTLS("u1.test:443", ca.certificate("u1.test"), answer(200, "ok"), dies, answer(200, "twice"))
				ask := r.asker("u1.test:443", true)
				r.want(ask("GET", ""), 200, u, 1)
				got := ask("POST", "{}")
				r.want(got, 502, u, 2)
				r.wantHeader(got, "X-Retry-Reason", "manual_review")
			}, opening(ca, "[u1.test]")...)
		})
	}
}
