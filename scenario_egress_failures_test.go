package main

import (
	"io"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"retryproxy/internal/egresstest"
)

// How an egress proxy fails, and what that is called.
var egressFailures = map[string]struct {
	scheme string
	shape  func(*exit) // nil: nobody listens
	silent bool        // packets to it are dropped
	reason string
	status int // of our answer in the end
}{
	"refused":                {"http", nil, false, "egress_unreachable", 502},
	"socks refused":          {"socks5h", nil, false, "egress_unreachable", 502},
	"packets dropped":        {"http", nil, true, "egress_timeout", 504},
	"407":                    {"http", answers(1, 407), false, "egress_auth", 502},
	"401":                    {"http", answers(1, 401), false, "egress_auth", 502},
	"wrong password":         {"http", demands("bot", "another"), false, "egress_auth", 502},
	"socks wrong password":   {"socks5h", demands("bot", "another"), false, "egress_auth", 502},
	"403":                    {"http", answers(1, 403), false, "egress_denied", 502},
	"socks not allowed":      {"socks5h", answers(1, 2), false, "egress_denied", 502},
	"502":                    {"http", answers(1, 502), false, "egress_failed", 502},
	"503":                    {"http", answers(1, 503), false, "egress_failed", 502},
	"504":                    {"http", answers(1, 504), false, "egress_timeout", 504},
	"302":                    {"http", answers(1, 302), false, "egress_failed", 502},
	"socks general failure":  {"socks5h", answers(1, 1), false, "egress_failed", 502},
	"socks no network":       {"socks5h", answers(1, 3), false, "egress_failed", 502},
	"socks host unreachable": {"socks5h", answers(1, 4), false, "egress_failed", 502},
	"socks refused there":    {"socks5h", answers(1, 5), false, "egress_failed", 502},
	"socks TTL expired":      {"socks5h", answers(1, 6), false, "egress_timeout", 504},
	"socks unknown code":     {"socks5h", answers(1, 99), false, "egress_failed", 502},
	"silent":                 {"http", answers(1, egresstest.Hang), false, "egress_timeout", 504},
	"socks silent":           {"socks5h", answers(1, egresstest.Hang), false, "egress_timeout", 504},
	"closes half-way":        {"http", answers(1, egresstest.HangUp), false, "egress_failed", 502},
	"socks closes half-way":  {"socks5h", answers(1, egresstest.HangUp), false, "egress_failed", 502},
	"no TLS of an https one": {"https", talksFirst, false, "egress_unreachable", 502},
}

// talksFirst is a proxy that says what is no TLS before it listens.
func talksFirst(e *exit) {
	e.wrap = func(l net.Listener) net.Listener { return &talking{l} }
}

type talking struct{ net.Listener }

func (l *talking) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err == nil {
		_, err = io.WriteString(c, "220 hello, I speak something else\r\n")
	}
	return c, err
}

// A failure of the egress itself is repeated, whatever the call, since nothing
// was sent, and never counts against the platform.
func TestFailuresOfTheEgress(t *testing.T) {
	for name, tt := range egressFailures {
		t.Run(name, func(t *testing.T) {
			rules := `egress: [{name: proxy-a, match: {shop: s1}, proxy: "` + tt.scheme + `://bot:secretword@10.0.0.1:1080"}]`
			egressed(t, rules, func(r *rig) {
				u := r.upstream("u1.test:80", answer(200, "ok"))
				if tt.shape != nil {
					r.exit("10.0.0.1:1080", tt.shape)
				}
				r.net.Silence("10.0.0.1:1080", tt.silent)
				for i, method := range []string{"GET", "POST"} { // no key
					got := r.do(method, "http://u1.test/x", "", shop("s1"))
					r.want(got, tt.status, u, 0)
					r.wantEnd("failed", "attempts_exhausted", 4)
					for n := 1; n <= 4; n++ {
						r.wantVerdict(n, "transient", tt.reason)
					}
					r.wantHeader(got, "X-Retry-Reason", "attempts_exhausted")
					r.wantHeader(got, "X-Retry-Executed", "no")
					r.wantHeader(got, "X-Retry-Advice", "repeat")
					r.wantHeader(got, "X-Retry-Count", "3")
					r.wantHeader(got, "Content-Type", "application/problem+json")
					if ps := got.Header.Get("Proxy-Status"); !strings.HasPrefix(ps, "retryproxy; error=") || strings.Contains(ps, "received-status") {
						t.Errorf("Proxy-Status = %q, want an error of ours", ps)
					}
					if !strings.Contains(got.Body, "proxy-a (10.0.0.1:1080)") || !strings.Contains(got.Body, `"executed":"no"`) {
						t.Errorf("the answer is %s, want the egress named and executed no", got.Body)
					}
					if strings.Contains(got.Body, "secretword") || strings.Contains(got.Body, "bot") {
						t.Errorf("the answer is %s, want it without user and password", got.Body)
					}
					call := r.shown()[0]
					for _, a := range call.Attempts {
						if a.Basis != "not_sent" || a.Executed != "no" || a.Egress != "proxy-a (10.0.0.1:1080)" {
							t.Errorf("attempt = %+v, want basis not_sent, executed no, by proxy-a", a)
						}
					}
					if g := r.gate("u1.test:80"); g.Breaker.State.String() != "closed" || g.Breaker.Row > 0 || g.Breaker.Failures > 0 || g.InFlight > 0 {
						t.Errorf("gate of the host = %+v, want it untouched after %d calls", g, i+1)
					}
				}
				// What is the proxy's own cuts it off; what it says of a host cuts it off from
				// that one; a rule about the host does neither.
				rows := [2]int{0, 8}
				switch {
				case tt.reason == "egress_denied":
					rows = [2]int{}
				case tt.reason == "egress_unreachable", tt.reason == "egress_auth", tt.silent:
					rows = [2]int{8, 0}
				}
				own, way := r.exits()["proxy-a (10.0.0.1:1080)"].Row, r.exits()["proxy-a (10.0.0.1:1080) to u1.test:80"].Row
				if own != rows[0] || way != rows[1] {
					t.Errorf("failures in a row of the egress = %d, of its way to the host = %d; want %v", own, way, rows)
				}
				r.wantMetric(8, "attempts_total", "class=transient", "reason="+tt.reason)
				r.none("secretword")
			}, breakerOff)
		})
	}
}

// The wait between the attempts is the policy's, and a retry costs tokens.
func TestEgressFailuresAreRetriedInGoodOrder(t *testing.T) {
	egressed(t, twoShops, func(r *rig) {
		u := r.upstream("u1.test:80", whence)
		r.exit("10.0.0.1:3128", func(e *exit) {
			e.config.Answer = func(string, string) (int, bool) { return 502, len(e.record.Calls()) <= 3 }
		})
		got := r.post("http://u1.test/", "{}", shop("s1"))
		r.want(got, 200, u, 1)
		r.wantBody(got, "10.0.0.1")
		r.between("time of three retries", got.Took, 700*time.Millisecond, 700*time.Millisecond) // 100 + 200 + 400
		r.wantHeader(got, "X-Retry-Count", "3")
		got = r.post("http://u1.test/", "{}", shop("s1"))
		r.want(got, 200, u, 2)
	}, []string{"max_retries: 3,", "max_retries: 3, jitter: none,"})
	egressed(t, twoShops, func(r *rig) {
		u := r.upstream("u1.test:80", whence)
		a := r.exit("10.0.0.1:3128", answers(1, 502))
		got := r.get("http://u1.test/", shop("s1"))
		r.want(got, 502, u, 0)
		r.wantHeader(got, "X-Retry-Reason", "retry_limited")
		r.wantAsked(a, 3) // the first and two retries, then there is no token left
	}, []string{"shop: off", "shop: {rate: 1/h, burst: 2, share: 0}"})
}

// The egress dies under a connection that is idle: the next call makes a new one.
func TestEgressDiesUnderIdleConnections(t *testing.T) {
	egressed(t, twoShops, func(r *rig) {
		u := r.upstream("u1.test:80", whence)
		a := r.exit("10.0.0.1:3128")
		r.want(r.get("http://u1.test/", shop("s1")), 200, u, 1)
		a.down()
		a.up()
		rest(time.Second)
		got := r.post("http://u1.test/", "{}", shop("s1"))
		r.want(got, 200, u, 2)
		r.wantAsked(a, 2)
	})
}

// Names that nobody knows are a failure of the egress, too.
func TestEgressNameUnknown(t *testing.T) {
	egressed(t, `egress: [{name: a, match: {shop: s1}, proxy: "http://nowhere.test:3128"}]`, func(r *rig) {
		u := r.upstream("u1.test:80", whence)
		got := r.post("http://u1.test/", "{}", shop("s1"))
		r.want(got, 502, u, 0)
		r.wantEnd("failed", "attempts_exhausted", 4)
		r.wantVerdict(4, "transient", "egress_unreachable")
		r.want(r.post("http://u1.test/", "{}"), 200, u, 1) // directly all is well
	})
}

// What the platform itself says or does counts as the platform's, although it
// came through an egress.
func TestPlatformFailuresThroughAnEgress(t *testing.T) {
	ca := newCA(t)
	egressed(t, twoShops, func(r *rig) {
		u := r.upstream("u1.test:80", answer(502, "bad"))
		r.exit("10.0.0.1:3128")
		got := r.post("http://u1.test/", "{}", shop("s1"))
		r.want(got, 502, u, 1)
		r.wantBody(got, "bad")
		r.wantHeader(got, "X-Retry-Reason", "manual_review")
		r.wantHeader(got, "X-Retry-Executed", "maybe")
		r.wantVerdict(1, "unknown", "status_502")
		r.want(r.get("http://u1.test/", shop("s1")), 502, u, 5)
		if g := r.gate("u1.test:80"); g.Breaker.State.String() != "open" {
			t.Errorf("breaker of the host = %+v, want it open after five failures", g.Breaker)
		}
		r.wantExit("proxy-a (10.0.0.1:3128)", "closed")
		if e := r.exits()["proxy-a (10.0.0.1:3128)"]; e.Row != 0 || e.Failures != 0 {
			t.Errorf("breaker of the egress = %+v, want no failure", e)
		}
	})
	// A reset after sending is nobody's but the platform's.
	egressed(t, twoShops, func(r *rig) {
		u := r.upstream("u1.test:80", hangUp)
		r.exit("10.0.0.1:3128")
		got := r.post("http://u1.test/", "{}", shop("s1"))
		r.want(got, 502, u, 1)
		r.wantVerdict(1, "unknown", "eof_after_send")
		r.wantHeader(got, "X-Retry-Advice", "check")
		if g := r.gate("u1.test:80"); g.Breaker.Row != 1 {
			t.Errorf("failures in a row of the host = %d, want 1", g.Breaker.Row)
		}
	})
	// A certificate that is wrong behind the egress is the platform's, and final.
	egressed(t, twoShops, func(r *rig) {
		u := r.upstreamTLS("u1.test:443", ca.certificate("other.test"), whence)
		r.exit("10.0.0.1:3128")
		got := r.get("https://u1.test/", shop("s1"))
		r.want(got, 502, u, 0)
		r.wantEnd("failed", "fail_permanent", 1)
		r.wantVerdict(1, "permanent", "tls_verify")
		if e := r.exits()["proxy-a (10.0.0.1:3128)"]; e.Row != 0 || e.Failures != 0 {
			t.Errorf("breaker of the egress = %+v, want no failure", e)
		}
	}, trusting(ca))
}

// Calls that fail by their egress are no sign that the platform shuts a shop out.
func TestEgressFailuresDoNotTripTheShopsBreaker(t *testing.T) {
	egressed(t, twoShops, func(r *rig) {
		u := r.upstream("u1.test:80", whence)
		a := r.exit("10.0.0.1:3128", answers(1, 403))
		for range 5 {
			r.get("http://u1.test/", shop("s1"))
		}
		if trips := r.app.shops.Tripped(); len(trips) > 0 {
			t.Errorf("tripped breakers of shops = %+v, want none", trips)
		}
		r.want(r.get("http://u1.test/", shop("s2")), 502, u, 0)
		r.exit("10.0.0.2:1080")
		a.config.Answer = nil
		a.down()
		a.up()
		r.want(r.get("http://u1.test/", shop("s1")), 200, u, 1)
		r.want(r.get("http://u1.test/", shop("s2")), 200, u, 2)
	}, breakerOff)
}

// A failing egress fails a tunnel the same way: before the client has its 200.
func TestTunnelsThroughAFailingEgress(t *testing.T) {
	egressed(t, twoShops, func(r *rig) {
		u := r.tunnelEnd("u1.test:443", silentEnd)
		r.exit("10.0.0.1:3128", func(e *exit) {
			e.config.Answer = func(string, string) (int, bool) { return 502, len(e.record.Calls()) <= 2 }
		})
		c, _, got := r.connect("u1.test:443", shop("s1"))
		c.Close()
		r.want(got, 200, nil, 0)
		r.wantEnd("recovered", "ok", 3)
		r.wantVerdict(2, "transient", "egress_failed")
		c, _, got = r.connect("u1.test:443", shop("s2")) // nobody listens
		defer c.Close()
		r.want(got, 502, nil, 0)
		r.wantHeader(got, "X-Retry-Executed", "no")
		if u.connections() != 1 {
			t.Errorf("connections at the end = %d, want 1", u.connections())
		}
	})
}

// Metadata addresses are denied also where somebody else would dial them; an
// egress proxy itself may be on a private address while destinations are not.
func TestGuardAndEgress(t *testing.T) {
	for _, scheme := range []string{"http", "socks5", "socks5h"} {
		t.Run(scheme, func(t *testing.T) {
			egressed(t, "destinations: {private: deny, connect_ports: [443, 80]}\negress: [{name: a, match: {host: '*'}, proxy: '"+scheme+"://10.0.0.1:1080'}]", func(r *rig) {
				r.hosts["u1.test"] = netip.MustParseAddr("93.184.215.14")
				u := r.upstream("u1.test:80", whence)
				a := r.exit("10.0.0.1:1080")
				for _, host := range []string{"169.254.169.254", "[fd00:ec2::254]", "[::ffff:169.254.169.254]", "127.0.0.1:18090", "10.0.0.7"} {
					got := r.get("http://" + host + "/")
					if got.Status != 403 && got.Status != 508 {
						t.Errorf("%s = %d %s, want it denied", host, got.Status, got.Body)
					}
				}
				c, _, got := r.connect("169.254.169.254:80")
				c.Close()
				r.want(got, 403, nil, 0)
				r.wantAsked(a, 0)
				r.wantDials(0)
				r.want(r.get("http://u1.test/"), 200, u, 1)
				r.wantAsked(a, 1)
			}, []string{"destinations: {connect_ports: [443, 80, 7000, 7001]}\n", ""})
		})
	}
}

// An egress that is our own listener ends at once.
func TestEgressThatIsOurselves(t *testing.T) {
	for _, addr := range []string{proxyAddr, adminAddr, "localhost:18080"} {
		t.Run(addr, func(t *testing.T) {
			egressed(t, `egress: [{name: a, match: {host: "*"}, proxy: "http://`+addr+`"}]`, func(r *rig) {
				r.hosts["localhost"] = netip.MustParseAddr("127.0.0.1")
				u := r.upstream("u1.test:80", whence)
				got := r.get("http://u1.test/")
				r.want(got, 508, u, 0)
				r.wantHeader(got, "X-Retry-Reason", "loop")
				r.wantHeader(got, "X-Retry-Executed", "no")
				r.wantDials(0)
				c, in, got := r.connect("u1.test:443")
				defer c.Close()
				r.want(got, 508, nil, 0)
				io.Copy(io.Discard, in)
				r.wantDials(0)
			})
		})
	}
}

// A body too large to keep is sent once, but while an egress fails none of it is
// used.
func TestStreamedBodyWaitsForTheEgress(t *testing.T) {
	egressed(t, "body: {memory: 1KiB, limit: 2KiB, hold: 1KiB}\n"+twoShops, func(r *rig) {
		body := strings.Repeat("x", 8<<10)
		u := r.upstream("u1.test:80", whence)
		r.exit("10.0.0.1:3128", func(e *exit) {
			e.config.Answer = func(string, string) (int, bool) { return 502, len(e.record.Calls()) <= 2 }
		})
		got := r.post("http://u1.test/", body, shop("s1"))
		r.want(got, 200, u, 1)
		r.wantEnd("recovered", "ok", 3)
		if n := len(u.seen()[0].Body); n != len(body) {
			t.Errorf("body at the upstream = %d bytes, want %d", n, len(body))
		}
	})
}

// A keyed call that failed by its egress frees its key: nothing was done.
func TestKeyIsFreeAfterEgressFailures(t *testing.T) {
	egressed(t, twoShops, func(r *rig) {
		u := r.upstream("u1.test:80", whence)
		a := r.exit("10.0.0.1:3128", answers(1, 502))
		got := r.post("http://u1.test/", "{}", shop("s1"), "X-Idempotency-Key: k")
		r.want(got, 502, u, 0)
		r.wantHeader(got, "X-Retry-Executed", "no")
		r.wantHeader(got, "X-Retry-Advice", "repeat")
		a.down()
		a.config.Answer = nil
		a.up()
		got = r.post("http://u1.test/", "{}", shop("s1"), "X-Idempotency-Key: k")
		r.want(got, 200, u, 1)
		r.wantHeader(got, "X-Retry-Count", "4") // of earlier attempts on the record
		got = r.post("http://u1.test/", "{}", shop("s1"), "X-Idempotency-Key: k")
		r.want(got, 200, u, 1)
		r.wantHeader(got, "Idempotency-Replayed", "true")
	}, breakerOff)
}
