package main

import (
	"net"
	"net/url"
	"strings"
	"testing"
	"time"
)

// deadTo is an exit that cannot reach dead.test, and says so by a code.
func deadTo(code int) func(*exit) {
	return func(e *exit) {
		e.config.Answer = func(_, target string) (int, bool) { return code, strings.HasPrefix(target, "dead.test:") }
	}
}

// How a proxy tells that a host behind it is dead.
var deadHosts = map[string]struct {
	scheme, url string
	shape       func(*exit)
}{
	"502":                        {"http", "http://dead.test/", deadTo(502)},
	"504":                        {"http", "http://dead.test/", deadTo(504)},
	"nobody listens there":       {"http", "http://dead.test/", func(*exit) {}},
	"hangs up":                   {"http", "http://dead.test/", deadTo(-1)},
	"socks host unreachable":     {"socks5h", "http://dead.test/", deadTo(4)},
	"socks refused there":        {"socks5h", "http://dead.test/", deadTo(5)},
	"TLS that breaks":            {"http", "https://dead.test/", func(*exit) {}},
	"TLS that breaks over socks": {"socks5h", "https://dead.test/", func(*exit) {}},
}

// dies lets dead.test be there for TLS that breaks off.
func (r *rig) dies() { r.tunnelEnd("dead.test:443", func(net.Conn) {}) }

// A host that is dead behind an egress is cut off there alone: the egress serves
// the others.
func TestHostThatIsDeadBehindAnEgress(t *testing.T) {
	for name, tt := range deadHosts {
		t.Run(name, func(t *testing.T) {
			egressed(t, `egress: [{name: proxy-a, match: {shop: s1}, proxy: "`+tt.scheme+`://10.0.0.1:3128"}]`, func(r *rig) {
				u := r.upstream("u1.test:80", whence)
				r.dies()
				a := r.exit("10.0.0.1:3128", tt.shape)
				host := "dead.test:80"
				if strings.HasPrefix(tt.url, "https") {
					host = "dead.test:443"
				}
				way := exitA + " to " + host
				for n := 1; n <= 5; n++ {
					if got := r.get(tt.url, shop("s1"), "X-Retry-Count: 3"); got.Status != 502 && got.Status != 504 {
						t.Errorf("status = %d %s, want 502 or 504", got.Status, got.Body)
					}
					got := r.post("http://u1.test/", "{}", shop("s1"))
					r.want(got, 200, u, n)
					r.wantBody(got, "10.0.0.1")
					r.between("time of a call to the live host", got.Took, 0, 0)
				}
				r.wantExit(way, "open")
				r.wantExit(exitA, "closed")
				lines := r.logged("breaker")
				if len(lines) != 1 || lines[0]["scope"] != "egress" || lines[0]["host"] != way || lines[0]["to"] != "open" {
					t.Errorf("logged %v, want that %s is open and no more", lines, way)
				}

				asked := a.asked()
				got := r.get(tt.url, shop("s1"), "X-Request-Timeout: 1")
				r.want(got, 503, nil, 0)
				r.wantHeader(got, "X-Retry-Reason", "breaker_open")
				r.wantHeader(got, "X-Retry-Executed", "no")
				r.between("time of the answer", got.Took, 0, 0)
				if !strings.Contains(got.Body, exitA) || !strings.Contains(got.Body, "cut off") {
					t.Errorf("the answer is %s, want the egress named", got.Body)
				}
				r.wantAsked(a, asked)
				r.want(r.get("http://u1.test/", shop("s1")), 200, u, 6)
			})
		})
	}
}

// The host comes back: the next probe opens its way again, as does an operator.
func TestHostThatComesBackBehindAnEgress(t *testing.T) {
	for name, wait := range map[string]time.Duration{"by the probe": 2 * time.Second, "by an operator": 0} {
		t.Run(name, func(t *testing.T) {
			egressed(t, twoShops, func(r *rig) {
				r.exit("10.0.0.1:3128")
				for range 5 {
					r.get("http://dead.test/", shop("s1"), "X-Retry-Count: 3")
				}
				const way = exitA + " to dead.test:80"
				r.wantExit(way, "open")
				u := r.upstream("dead.test:80", whence)
				if wait == 0 {
					r.want(r.admin("POST", "/api/v1/breakers/"+url.PathEscape("egress:"+way)+"/reset", "", nil), 200, nil, 0)
				}
				got := r.get("http://dead.test/", shop("s1"))
				r.want(got, 200, u, 1)
				r.between("time until the way is tried", got.Took, wait, wait)
				r.wantExit(way, "closed")
			})
		})
	}
}

// A dead host moves no shop to another address: its calls to the others stay.
func TestDeadHostMovesNoShop(t *testing.T) {
	for name, tt := range deadHosts {
		for _, onFailure := range []string{"stay", "next"} {
			t.Run(name+", "+onFailure, func(t *testing.T) {
				egressed(t, strings.ReplaceAll(pool(onFailure), "http://", tt.scheme+"://"), func(r *rig) {
					u := r.upstream("u1.test:80", whence)
					r.dies()
					m := r.members("s1")
					for _, e := range m {
						e.down()
						tt.shape(e)
						e.up()
					}
					for n := 1; n <= 8; n++ {
						r.get(tt.url, shop("s1"), "X-Request-Timeout: 3")
						rest(0) // it is booked, or it might end after the next call
						got := r.get("http://u1.test/", shop("s1"))
						r.want(got, 200, u, n)
						r.wantBody(got, m[0].ip())
						r.between("time of a call to the live host", got.Took, 0, 0)
						r.wantEnd("success", "ok", 1)
					}
					r.wantExit(m[0].name(), "closed")
				})
			})
		}
	}
}

// A route goes on to its next upstream when the first is dead, whether its calls
// leave by an egress or not.
func TestRoutesGoOnBehindAnEgress(t *testing.T) {
	const route = `routes: [{name: pdd, prefix: /pdd, strip_prefix: true, upstreams: ['http://dead.test', 'http://u1.test']}]` + "\n"
	for name, tt := range map[string]struct{ rules, from string }{
		"directly":  {"egress: [{name: d, match: {host: '*'}, proxy: direct}]", ourselves},
		"by http":   {"egress: [{name: a, match: {host: '*'}, proxy: 'http://10.0.0.1:3128'}]", "10.0.0.1"},
		"by socks5": {"egress: [{name: a, match: {host: '*'}, proxy: 'socks5h://10.0.0.1:3128'}]", "10.0.0.1"},
		"by a pool": {"egress: [{name: a, match: {host: '*'}, pool: ['http://10.0.0.1:3128', 'http://10.0.0.1:3129'], on_failure: stay}]", "10.0.0.1"},
	} {
		t.Run(name, func(t *testing.T) {
			egressed(t, route+tt.rules, func(r *rig) {
				u := r.upstream("u1.test:80", whence)
				r.closed("dead.test:80")
				r.exit("10.0.0.1:3128")
				r.exit("10.0.0.1:3129")
				for n := 1; n <= 8; n++ {
					got := r.ask(rawOrigin("POST", "localhost", "/pdd/x", "{}"))
					r.want(got, 200, u, n)
					r.wantBody(got, tt.from)
				}
				call := r.ended()[0]
				if len(call.Attempts) != 2 || call.Attempts[0].Host != "dead.test:80" || call.Attempts[1].Host != "u1.test:80" {
					t.Errorf("attempts of the first call = %+v, want one at each upstream", call.Attempts)
				}
			})
		})
	}
}

// Another exit is another way: nobody asked for time before it is tried.
func TestPoolMovesWithoutWaiting(t *testing.T) {
	slow := []string{"max_retries: 3, base_delay: 100ms", "max_retries: 3, jitter: none, base_delay: 1s"}
	egressed(t, pool("next"), func(r *rig) {
		u := r.upstream("u1.test:80", whence)
		m := r.members("s1")
		m[0].down()
		m[1].down()
		for n := 1; n <= 4; n++ {
			r.want(r.post("http://u1.test/", "{}", shop("s1")), 200, u, n)
			all := r.last().Attempts
			if len(all) != 3 {
				t.Errorf("attempts = %d, want one by each member", len(all))
				return
			}
			for i := range all[1:] {
				r.between("time until the next member is tried", all[i+1].Started.Sub(all[i].Started), 5*time.Millisecond, 25*time.Millisecond)
			}
		}
	}, slow)
	for name, rules := range map[string]string{"one exit": twoShops, "a pool that stays": pool("stay")} {
		t.Run(name, func(t *testing.T) {
			egressed(t, rules, func(r *rig) {
				r.upstream("u1.test:80", whence)
				r.post("http://u1.test/", "{}", shop("s1"))
				all := r.last().Attempts
				if len(all) != 4 {
					t.Errorf("attempts = %d, want 4", len(all))
					return
				}
				r.between("time until the same is tried again", all[1].Started.Sub(all[0].Started), time.Second, time.Second)
			}, slow)
		})
	}
}
