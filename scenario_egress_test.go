package main

import (
	"bufio"
	"crypto/tls"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// twoShops pins two shops to a proxy each.
const twoShops = `egress:
  - {name: proxy-a, match: {shop: s1}, proxy: "http://10.0.0.1:3128"}
  - {name: proxy-b, match: {shop: s2}, proxy: "socks5h://10.0.0.2:1080"}`

// Every way to make a call leaves by the proxy of its shop; none is dialled
// directly.
func TestEveryWayLeavesByTheEgress(t *testing.T) {
	ca := newCA(t)
	for name, does := range map[string]struct {
		call   func(r *rig) string
		target string
	}{
		"plain http":  {func(r *rig) string { return r.get("http://u1.test/x", shop("s1")).Body }, "u1.test:80"},
		"post":        {func(r *rig) string { return r.post("http://u1.test/x", "{}", shop("s1")).Body }, "u1.test:80"},
		"https":       {func(r *rig) string { return r.get("https://u1.test/x", shop("s1")).Body }, "u1.test:443"},
		"upgraded":    {func(r *rig) string { return r.get("http://gw.test/x", shop("s1")).Body }, "gw.test:443"},
		"route":       {func(r *rig) string { return r.origin("GET", "localhost", "/u1/x", "", shop("s1")).Body }, "u1.test:80"},
		"https route": {func(r *rig) string { return r.origin("GET", "localhost", "/gw/x", "", shop("s1")).Body }, "gw.test:443"},
		"plain http in a tunnel": {func(r *rig) string {
			c, in, _ := r.connect("u1.test:80", shop("s1"))
			defer c.Close()
			return r.inside(c, in, "GET /x HTTP/1.1\r\nHost: u1.test\r\n\r\n").Body
		}, "u1.test:80"},
		"opaque tunnel": {func(r *rig) string {
			c, _, got := r.connect("u1.test:443", shop("s1"))
			defer c.Close()
			r.want(got, 200, nil, 0)
			tc := tls.Client(c, &tls.Config{RootCAs: ca.theirs(), ServerName: "u1.test"})
			defer tc.Close()
			return r.exchange(tc, "GET /x HTTP/1.1\r\nHost: u1.test\r\n\r\n", "GET").Body
		}, "u1.test:443"},
		"user name": {func(r *rig) string {
			return r.get("http://u1.test/x", "Proxy-Authorization: "+basic("shop=s1", "x")).Body
		}, "u1.test:80"},
	} {
		t.Run(name, func(t *testing.T) {
			egressed(t, twoShops+"\nupgrade_to_https: [gw.test]\nroutes: [{name: u1, prefix: /u1, upstreams: ['http://u1.test']}, {name: gw, prefix: /gw, upstreams: ['https://gw.test']}]",
				func(r *rig) {
					out := r.outward()
					r.upstream("u1.test:80", whence)
					r.upstreamTLS("u1.test:443", ca.certificate("u1.test"), whence)
					r.upstreamTLS("gw.test:443", ca.certificate("gw.test"), whence)
					a := r.exit("10.0.0.1:3128")
					if got := does.call(r); got != "10.0.0.1" {
						t.Errorf("the call came from %q, want 10.0.0.1", got)
					}
					for _, target := range a.targets() {
						if target != does.target {
							t.Errorf("the egress was asked for %q, want %q", target, does.target)
						}
					}
					r.wantOnly(out, "10.0.0.1:3128")
				}, trusting(ca))
		})
	}
}

// Which rule a call leaves by: the shops table, else the first that matches.
func TestChoosingAnEgress(t *testing.T) {
	const rules = `shops: {s3: {egress: proxy-b}, s4: {egress: named}, s5: {egress: straight}}
egress:
  - {name: straight, match: {host: direct.test}, proxy: direct}
  - {name: proxy-a, match: {shop: [s1, s3]}, proxy: "http://10.0.0.1:3128"}
  - {name: proxy-b, match: {host: "*.pdd.test"}, proxy: "http://10.0.0.2:3128"}
  - {name: late, match: {shop: s1, host: "*.pdd.test"}, proxy: "http://10.0.0.9:3128"}
  - {name: reports, match: {task_type: report}, proxy: "http://10.0.0.3:3128"}
  - {name: named, proxy: "http://10.0.0.4:3128"}`
	egressed(t, rules, func(r *rig) {
		for _, host := range []string{"u1.test:80", "gw.pdd.test:80", "direct.test:80"} {
			r.upstream(host, whence)
		}
		for _, addr := range []string{"10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4", "10.0.0.9"} {
			r.exit(addr + ":3128")
		}
		for _, tt := range []struct {
			name, url string
			headers   []string
			from      string
		}{
			{"by shop", "http://u1.test/", []string{shop("s1")}, "10.0.0.1"},
			{"by host", "http://gw.pdd.test/", nil, "10.0.0.2"},
			{"by task type", "http://u1.test/", []string{"X-Task-Type: report"}, "10.0.0.3"},
			{"the first rule wins", "http://gw.pdd.test/", []string{shop("s1"), "X-Task-Type: report"}, "10.0.0.1"},
			{"the shops table beats a match", "http://u1.test/", []string{shop("s3")}, "10.0.0.2"},
			{"a rule without match", "http://u1.test/", []string{shop("s4")}, "10.0.0.4"},
			{"the shops table says direct", "http://gw.pdd.test/", []string{shop("s5")}, ourselves},
			{"a direct rule before others", "http://direct.test/", []string{shop("s1")}, ourselves},
			{"no rule", "http://u1.test/", []string{shop("s9")}, ourselves},
			{"no label", "http://u1.test/", nil, ourselves},
		} {
			if got := r.get(tt.url, tt.headers...); got.Body != tt.from {
				t.Errorf("%s: the call came from %d %q, want %s", tt.name, got.Status, got.Body, tt.from)
			}
		}
	})
}

// User and password arrive, and the password may come from URL, environment or
// file.
func TestEgressPassword(t *testing.T) {
	file := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(file, []byte("p@ss/w:rd#1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	whole := filepath.Join(t.TempDir(), "url")
	if err := os.WriteFile(whole, []byte("%s://acc:p@ss/w:rd#1@10.0.0.1:1080\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, scheme := range []string{"http", "socks5", "socks5h"} {
		text, _ := os.ReadFile(whole)
		urlFile := filepath.Join(t.TempDir(), scheme)
		if err := os.WriteFile(urlFile, []byte(strings.Replace(string(text), "%s", scheme, 1)), 0o600); err != nil {
			t.Fatal(err)
		}
		for name, rule := range map[string]string{
			"in the URL":      `proxy: "` + scheme + `://acc:p%40ss%2Fw%3Ard%231@10.0.0.1:1080"`,
			"in the key":      `proxy: "` + scheme + `://10.0.0.1:1080", user: acc, password: "p@ss/w:rd#1"`,
			"from a variable": `proxy: "` + scheme + `://acc:${PW}@10.0.0.1:1080"`,
			"key, variable":   `proxy: "` + scheme + `://10.0.0.1:1080", user: "${WHO}", password: "${PW}"`,
			"from a file":     `proxy: "` + scheme + `://acc@10.0.0.1:1080", password: "file:` + file + `"`,
			"all from a file": `proxy: "file:` + urlFile + `"`,
		} {
			t.Run(scheme+"/"+name, func(t *testing.T) {
				bubbleEnv(t, map[string]string{"PW": "p@ss/w:rd#1", "WHO": "acc"}, "egress: [{name: a, match: {shop: s1}, "+rule+"}]", func(r *rig) {
					u := r.upstream("u1.test:80", whence)
					a := r.exit("10.0.0.1:1080", demands("acc", "p@ss/w:rd#1"))
					got := r.post("http://u1.test/", "{}", shop("s1"))
					r.want(got, 200, u, 1)
					r.wantBody(got, "10.0.0.1")
					r.wantUser(a, "acc")
					r.none("p@ss/w", "p%40ss", "cEBzcy93") // as it is, escaped, in Base64
				})
			})
		}
	}
}

// With socks5 the name is looked up here, with the others at the proxy.
func TestWhoResolves(t *testing.T) {
	for scheme, tt := range map[string]struct {
		target  string
		lookups int
	}{
		"socks5":  {"127.0.1.1:80", 1},
		"socks5h": {"u1.test:80", 0},
		"http":    {"u1.test:80", 0},
	} {
		t.Run(scheme, func(t *testing.T) {
			egressed(t, `egress: [{name: a, match: {shop: s1}, proxy: "`+scheme+`://10.0.0.1:1080"}]`, func(r *rig) {
				lookups := 0
				r.lookup = func() error { lookups++; return nil }
				r.upstream("u1.test:80", whence)
				a := r.exit("10.0.0.1:1080")
				r.wantBody(r.get("http://u1.test/", shop("s1")), "10.0.0.1")
				r.wantAsked(a, 1)
				if got := a.targets()[0]; got != tt.target || lookups != tt.lookups {
					t.Errorf("asked for %q after %d lookups, want %q after %d", got, lookups, tt.target, tt.lookups)
				}
				c, _, got := r.connect("u1.test:443", shop("s1")) // nobody listens there
				c.Close()
				r.want(got, 502, nil, 0)
			})
		})
	}
}

// What socks5 looks up here is judged here.
func TestResolvedHereIsGuarded(t *testing.T) {
	egressed(t, `egress: [{name: a, match: {shop: s1}, proxy: "socks5://10.0.0.1:1080"}]`, func(r *rig) {
		r.hosts["meta.test"] = netip.MustParseAddr("169.254.169.254")
		a := r.exit("10.0.0.1:1080")
		got := r.get("http://meta.test/", shop("s1"))
		r.want(got, 403, nil, 0)
		r.wantHeader(got, "X-Retry-Reason", "destination_denied")
		r.wantAsked(a, 0)
		r.wantDials(0)
	})
}

func TestCase_PX_07_IPv6TargetsAreBracketed(t *testing.T) {
	egressed(t, `egress: [{name: a, match: {host: "*"}, proxy: "http://10.0.0.1:3128"}]`, func(r *rig) {
		a := r.exit("10.0.0.1:3128", func(e *exit) {
			e.config.Answer = func(string, string) (int, bool) { return 200, true } // no way behind it
		})
		c, _, got := r.connect("[2001:db8::1]:443")
		c.Close()
		r.want(got, 200, nil, 0)
		r.wantAsked(a, 1)
		if head := a.record.Calls()[0].Head; head != "CONNECT [2001:db8::1]:443 HTTP/1.1\r\nHost: [2001:db8::1]:443" {
			t.Errorf("the parent got %q, want brackets in request line and Host", head)
		}
	})
}

// Connections are never shared between egress identities.
func TestConnectionsAreNotSharedBetweenExits(t *testing.T) {
	ca := newCA(t)
	const rules = `egress:
  - {name: proxy-a, match: {shop: s1}, proxy: "http://10.0.0.1:3128"}
  - {name: proxy-b, match: {shop: s2}, proxy: "http://10.0.0.2:3128"}
  - {name: pool-c, match: {shop: "c*"}, proxy: "http://user-{shop}:pw@10.0.0.3:3128"}`
	for _, scheme := range []string{"http", "https"} {
		t.Run(scheme, func(t *testing.T) {
			egressed(t, rules, func(r *rig) {
				u := r.upstream("u1.test:80", whence)
				if scheme == "https" {
					u = r.upstreamTLS("u1.test:443", ca.certificate("u1.test"), whence)
				}
				r.exit("10.0.0.1:3128")
				r.exit("10.0.0.2:3128")
				c := r.exit("10.0.0.3:3128")
				froms := map[string]string{"": ourselves, "s1": "10.0.0.1", "s2": "10.0.0.2", "c1": "10.0.0.3", "c2": "10.0.0.3"}
				conns := map[string]int{}
				for range 3 {
					for name, from := range froms {
						r.wantBody(r.get(scheme+"://u1.test/", shop(name)), from)
						all := u.seen()
						if n := all[len(all)-1].Conn; conns[name] == 0 {
							conns[name] = n
						} else if conns[name] != n {
							t.Errorf("a call of shop %q came on connection %d, want %d again", name, n, conns[name])
						}
					}
				}
				if n := u.connections(); n != len(froms) {
					t.Errorf("connections = %d, want one for each of %d identities (%v)", n, len(froms), conns)
				}
				var users []string
				for _, call := range c.record.Calls() {
					users = append(users, call.User)
				}
				if len(users) != 2 || !containsAll(users, []string{"user-c1", "user-c2"}) {
					t.Errorf("one proxy was asked by %q, want each session once", users)
				}
			}, trusting(ca))
		})
	}
}

// A session is taken up again by the identity that began it, and by no other.
func TestTLSSessionsBelongToAnIdentity(t *testing.T) {
	ca := newCA(t)
	egressed(t, twoShops, func(r *rig) {
		var resumed []bool
		u := r.upstream("u1.test:443", func(s *scripted, c net.Conn, req *request) bool {
			resumed = append(resumed, c.(*tls.Conn).ConnectionState().DidResume)
			whence(s, c, req)
			return false // a new connection each time
		})
		server := &tls.Config{Certificates: []tls.Certificate{ca.certificate("u1.test")}} // one: it knows its tickets
		u.wrap = func(c net.Conn) net.Conn { return tls.Server(c, server) }
		r.exit("10.0.0.1:3128")
		r.exit("10.0.0.2:1080")
		for _, name := range []string{"", "s1", "s2", "s1", "s2", ""} {
			r.want(r.get("https://u1.test/", shop(name)), 200, nil, 0)
		}
		for i, yes := range resumed {
			if want := i >= 3; yes != want {
				t.Errorf("request %d resumed a session: %v, want %v", i+1, yes, want)
			}
		}
	}, trusting(ca))
}

// A listener that is a shop's sends its calls and tunnels out by the shop's
// egress, without any header; another shop is refused.
func TestListenerOfAShopLeavesByItsEgress(t *testing.T) {
	const keys = `listeners: [{addr: "127.0.0.1:8117", shop: s1}]
shops: {s1: {egress: proxy-a}}
egress: [{name: proxy-a, proxy: "socks5h://bot:pw@10.0.0.1:1080"}]`
	egressed(t, keys, func(r *rig) {
		out := r.outward()
		u := r.upstream("u1.test:80", whence)
		r.tunnelEnd("u2.test:443", func(c net.Conn) { io.WriteString(c, "from "+c.RemoteAddr().String()) })
		a := r.exit("10.0.0.1:1080", demands("bot", "pw"))
		got := r.askAt("127.0.0.1:8117", rawRequest("GET", "http://u1.test/x", ""))
		r.want(got, 200, u, 1)
		r.wantBody(got, "10.0.0.1")
		c, in, _ := r.connectOn(r.dialAt("127.0.0.1:8117"), "u2.test:443")
		defer c.Close()
		if said, _ := bufio.NewReader(in).Peek(13); string(said) != "from 10.0.0.1" {
			t.Errorf("the tunnel's end said %q, want it from 10.0.0.1", said)
		}
		denied := r.askAt("127.0.0.1:8117", rawRequest("GET", "http://u1.test/x", "", shop("s2")))
		r.want(denied, 403, u, 1)
		r.wantHeader(denied, "X-Retry-Reason", "client_denied")
		r.wantUser(a, "bot")
		r.wantOnly(out, "10.0.0.1:1080")
		r.wantBody(r.get("http://u1.test/x"), ourselves) // the other listener is nobody's
	})
}

// The name of an egress proxy may be resolved, and its own TLS is verified.
func TestEgressOverTLS(t *testing.T) {
	ca, stranger := newCA(t), newCA(t)
	for name, tt := range map[string]struct {
		cert    tls.Certificate
		status  int
		verdict string
	}{
		"valid":              {ca.certificate("proxy.test"), 200, "status_200"},
		"for another name":   {ca.certificate("other.test"), 502, "egress_unreachable"},
		"of a stranger's CA": {stranger.certificate("proxy.test"), 502, "egress_unreachable"},
	} {
		t.Run(name, func(t *testing.T) {
			egressed(t, `egress: [{name: a, match: {shop: s1}, proxy: "https://bot:secretword@proxy.test:8443"}]`, func(r *rig) {
				r.hosts["proxy.test"] = netip.MustParseAddr("10.0.0.1")
				u := r.upstream("u1.test:80", whence)
				a := r.exit("10.0.0.1:8443", secured(tt.cert), demands("bot", "secretword"))
				got := r.get("http://u1.test/", shop("s1"))
				r.want(got, tt.status, nil, 0)
				r.wantVerdict(1, map[bool]string{true: "success", false: "transient"}[tt.status == 200], tt.verdict)
				if tt.status == 200 {
					r.wantBody(got, "10.0.0.1")
					r.wantUser(a, "bot")
				} else if u.connections() > 0 || a.asked() > 0 {
					t.Errorf("connections at the upstream = %d, asked %d, want none through a proxy that is not proven", u.connections(), a.asked())
				}
			}, trusting(ca))
		})
	}
}

// Connections of HTTP/2 carry many calls at once, but those of one identity only.
func TestHTTP2ConnectionsAreNotSharedBetweenExits(t *testing.T) {
	ca := newCA(t)
	egressed(t, twoShops, func(r *rig) {
		u := r.upstreamH2("u1.test:443", ca.certificate("u1.test"), nil, func(c *h2conn, _ int, s h2stream) {
			host, _, _ := net.SplitHostPort(c.RemoteAddr().String())
			c.answer(s.ID, 200, host)
		})
		r.exit("10.0.0.1:3128")
		r.exit("10.0.0.2:1080")
		froms := map[string]string{"": ourselves, "s1": "10.0.0.1", "s2": "10.0.0.2"}
		for range 2 {
			for name, from := range froms {
				for _, got := range r.together(5, func(int) reply { return r.get("https://u1.test/", shop(name)) }) {
					r.wantBody(got, from)
				}
			}
		}
		conns := map[int]bool{}
		for _, s := range u.streams {
			conns[s.Conn] = true
		}
		if len(conns) < len(froms) || len(u.streams) != 30 {
			t.Errorf("%d streams on %d connections, want 30 on one or more for each of %d identities", len(u.streams), len(conns), len(froms))
		}
	}, trusting(ca))
}

// A request and its answer go through the egress as they are, whatever their size,
// and an upgrade becomes a tunnel through it.
func TestBodiesThroughAnEgress(t *testing.T) {
	egressed(t, twoShops, func(r *rig) {
		big := strings.Repeat("0123456789abcdef", 64<<10) // 1 MiB
		r.upstream("u1.test:80", func(s *scripted, c net.Conn, req *request) bool {
			return answer(200, string(req.Body))(s, c, req)
		})
		r.upstream("ws.test:80", func(_ *scripted, c net.Conn, _ *request) bool {
			io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nhello")
			io.Copy(c, c)
			return false
		})
		r.exit("10.0.0.1:3128")
		r.exit("10.0.0.2:1080")
		for _, name := range []string{"s1", "s2"} {
			got := r.post("http://u1.test/", big, shop(name))
			r.want(got, 200, nil, 0)
			if got.Body != big || got.Err != nil {
				t.Errorf("the body came back with %d bytes, %v; want the %d that were sent", len(got.Body), got.Err, len(big))
			}
			c := r.dial()
			io.WriteString(c, rawRequest("GET", "http://ws.test/", "", shop(name), "Connection: Upgrade", "Upgrade: websocket"))
			in := bufio.NewReader(c)
			if head := responseHead(t, in); !strings.HasPrefix(head, "HTTP/1.1 101 ") {
				t.Errorf("the upgrade got %q", head)
			}
			io.WriteString(c, " world")
			said := make([]byte, 11)
			if _, err := io.ReadFull(in, said); string(said) != "hello world" {
				t.Errorf("read %q, %v, want hello world", said, err)
			}
			c.Close()
		}
	})
}
