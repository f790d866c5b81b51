package main

import (
	"bufio"
	"crypto/tls"
	"encoding/json"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"retryproxy/admin"
	"retryproxy/cli"
	"retryproxy/message"
	"retryproxy/proxy"
)

const sessions = `egress: [{name: residential, match: {host: "*.test"}, proxy: "SCHEME://user-session-{shop}:hush-hush@10.0.0.1:1080"}]`

// Each shop has a session of its own at a residential proxy. What a shop is
// called cannot break out of the user name.
func TestSessionsByShop(t *testing.T) {
	for _, scheme := range []string{"http", "socks5h"} {
		t.Run(scheme, func(t *testing.T) {
			egressed(t, strings.Replace(sessions, "SCHEME", scheme, 1), func(r *rig) {
				r.upstream("u1.test:80", whence)
				a := r.exit("10.0.0.1:1080")
				users := map[string]string{}
				for _, name := range []string{"s17", "a:b", "a-b", "a@b", "a%b", "a~b", "店", "a/b;c=d", `a"b`, strings.Repeat("x", 128), strings.Repeat("店", 40), strings.Repeat("店", 39) + "铺"} {
					r.wantBody(r.get("http://u1.test/", shop(name)), "10.0.0.1")
					calls := a.record.Calls()
					user := calls[len(calls)-1].User
					if !strings.HasPrefix(user, "user-session-") || strings.ContainsAny(user, ":@ %/;=\"") || len(user) > 255 {
						t.Errorf("user of shop %q = %q, want a name that no proxy can misread", name, user)
					}
					if other, taken := users[user]; taken {
						t.Errorf("shops %q and %q share the session %q", name, other, user)
					}
					users[user] = name
				}
				if users["user-session-s17"] != "s17" || users["user-session-a-b"] != "a-b" {
					t.Errorf("sessions = %v, want plain names as they are", users)
				}
				r.none("hush-hush")
			})
		})
	}
}

func TestSessionWithoutAShop(t *testing.T) {
	egressed(t, strings.Replace(sessions, "SCHEME", "http", 1), func(r *rig) {
		u := r.upstream("u1.test:80", whence)
		a := r.exit("10.0.0.1:1080")
		r.deniedByEgress("residential")
		r.want(reply{}, 0, u, 0)
		r.wantAsked(a, 0)
	})
}

// deniedByEgress checks that calls without a shop go nowhere, whichever way they
// come, and that the answers name what forbids them.
func (r *rig) deniedByEgress(why string, opened ...string) {
	r.t.Helper()
	dials := r.dials.Load()
	before := r.metric("denied_total", "reason=destination_denied")
	n := 0.0
	check := func(got reply) {
		r.t.Helper()
		n++
		r.want(got, 403, nil, 0)
		r.wantHeader(got, "X-Retry-Reason", "destination_denied")
		r.wantHeader(got, "X-Retry-Advice", "stop")
		r.wantHeader(got, "X-Retry-Executed", "no")
		if !strings.Contains(got.Body, why) {
			r.t.Errorf("the answer is %s, want it to name %s", got.Body, why)
		}
	}
	check(r.get("http://u1.test/"))
	check(r.post("https://u1.test/", "{}", "X-Idempotency-Key: k"))
	for _, target := range []string{"u1.test:443", "u1.test:80"} {
		c, in, got := r.connect(target)
		switch {
		case !slices.Contains(opened, target):
			check(got)
		case target == "u1.test:80": // what is inside says whose it is, or does not
			check(r.inside(c, in, "GET / HTTP/1.1\r\nHost: u1.test\r\n\r\n"))
		default: // and what says nothing goes nowhere
			r.want(got, 200, nil, 0)
			n++
			io.WriteString(c, "\x00\x01")
			if rest, err := io.ReadAll(in); len(rest) > 0 || err != nil {
				r.t.Errorf("read %q, %v, want the end", rest, err)
			}
		}
		c.Close()
	}
	r.wantDials(dials)
	r.wantMetric(before+n, "denied_total", "reason=destination_denied")
}

// With egress_default: deny nothing leaves by our own address, unless a rule says
// that it may.
func TestEgressDefaultDeny(t *testing.T) {
	ca := newCA(t)
	for name, keys := range map[string]string{"": "", "intercepting": "intercept: {hosts: ['u1.test']}\n"} {
		t.Run(name, func(t *testing.T) {
			rules := keys + `egress_default: deny
upgrade_to_https: [gw.test]
routes: [{name: u1, prefix: /u1, upstreams: ['http://u1.test']}, {name: free, prefix: /free, upstreams: ['http://free.test']}]
egress:
  - {name: free, match: {host: free.test}, proxy: direct}
  - {name: proxy-a, match: {shop: s1}, proxy: "http://10.0.0.1:3128"}`
			egressed(t, rules, func(r *rig) {
				u := r.upstream("u1.test:80", whence)
				free := r.upstream("free.test:80", whence)
				r.exit("10.0.0.1:3128")
				if name == "" {
					r.deniedByEgress("egress_default")
				} else {
					r.deniedByEgress("egress_default", "u1.test:443", "u1.test:80")
				}
				got := r.origin("GET", "localhost", "/u1/x", "")
				r.want(got, 403, u, 0)
				if !strings.Contains(got.Body, "egress_default") {
					t.Errorf("the answer is %s, want egress_default named", got.Body)
				}
				r.want(r.get("http://gw.test/"), 403, nil, 0)
				r.want(r.get("http://u1.test/", shop("s2")), 403, u, 0)
				r.wantDials(0)
				r.wantBody(r.get("http://u1.test/", shop("s1")), "10.0.0.1")
				r.wantBody(r.origin("GET", "localhost", "/u1/x", "", shop("s1")), "10.0.0.1")
				r.wantBody(r.origin("GET", "localhost", "/free/x", ""), ourselves)
				r.wantBody(r.get("http://free.test/"), ourselves)
				r.want(reply{}, 0, free, 2)
				r.want(r.get("http://retryproxy.internal/calls/none"), 404, nil, 0) // we ourselves are no destination
			}, trusting(ca))
		})
	}
}

// What is asked inside an opened tunnel leaves by the egress of the shop that the
// CONNECT named; looked at without an egress, the tunnel is not even opened.
func TestOpenedTunnelsLeaveByTheEgress(t *testing.T) {
	ca := newCA(t)
	const keys = "egress_default: deny\nintercept: {hosts: ['u1.test']}\n"
	for name, header := range map[string]string{"user name": "Proxy-Authorization: " + basic("shop=s1", "x"), "header": shop("s1")} {
		t.Run(name, func(t *testing.T) {
			egressed(t, keys+twoShops, func(r *rig) {
				out := r.outward()
				u := r.upstreamTLS("u1.test:443", ca.certificate("u1.test"), answer(503, ""), whence)
				a := r.exit("10.0.0.1:3128")
				c, _, got := r.connect("u1.test:443", header)
				defer c.Close()
				r.want(got, 200, nil, 0)
				r.wantAsked(a, 0) // nothing is dialled before there is a request
				tc := tls.Client(c, &tls.Config{RootCAs: r.ours(), ServerName: "u1.test"})
				defer tc.Close()
				in := bufio.NewReader(tc)
				got = r.inside(tc, in, "GET /x HTTP/1.1\r\nHost: u1.test\r\n\r\n")
				r.want(got, 200, u, 2)
				r.wantBody(got, "10.0.0.1")
				call := r.last()
				if call.Mode != "intercept" || call.Attempts[1].Egress != exitA {
					t.Errorf("mode %s, egress %q; want intercept by %s", call.Mode, call.Attempts[1].Egress, exitA)
				}
				// The user name comes before a header; two headers that say two things are
				// not to be guessed about.
				if got := r.inside(tc, in, "GET /x HTTP/1.1\r\nHost: u1.test\r\nX-Shop-Id: s9\r\n\r\n"); name == "header" {
					r.want(got, 400, u, 2)
				} else {
					r.wantBody(got, "10.0.0.1")
				}
				r.wantOnly(out, "10.0.0.1:3128")
			}, trusting(ca))
		})
	}
}

// Whether a tunnel is opened is settled once: a pass-through that begins or ends
// while the CONNECT is at the door must not let it leave unjudged by its egress.
func TestTunnelIsOpenedOrNotOnce(t *testing.T) {
	ca := newCA(t)
	for name, tt := range map[string]struct {
		passed bool // before
		turn   func(r *rig, client string)
		shop   []string
		opened bool
	}{
		"begins": {false, func(r *rig, client string) {
			for range 3 {
				r.app.pins.Refused(client, "u1.test:443", time.Now())
			}
		}, nil, true},
		"ends": {true, func(r *rig, client string) { r.app.pins.Forget(client, "", time.Now()) }, []string{shop("s1")}, false},
	} {
		t.Run(name, func(t *testing.T) {
			egressed(t, nowhere, func(r *rig) {
				r.upstreamTLS("u1.test:443", ca.certificate("u1.test"), whence)
				a := r.exit("10.0.0.1:3128")
				client, through := "127.0.0.1", 0
				if tt.shop != nil {
					client, through = client+";shop=s1", 1
				}
				if tt.passed {
					r.refuses("u1.test:443", visitor{headers: tt.shop}, 3)
				}
				turned := 0
				r.app.proxy.Hooks.Ignored = func(string) { // the count is read after the egress was chosen
					turned++
					tt.turn(r, client)
				}
				v := visitor{headers: append([]string{"X-Retry-Count: none"}, tt.shop...)}
				if !tt.opened {
					v.roots = ca.theirs()
				}
				r.wantInside("u1.test:443", v, tt.opened)
				r.wantDials(int32(through))
				r.wantAsked(a, through)
				if now := r.app.pins.PassThrough(client, "u1.test:443", time.Now()); now == tt.passed || turned != 1 {
					t.Errorf("passed through = %v after %d turns, want it turned once", now, turned)
				}
			}, trusting(ca))
		})
	}
}

// wayOut names the ways out for a question, and what refused it.
func (r *rig) wayOut(method, url string, headers ...string) (ways []string, refused *proxy.Refused) {
	r.t.Helper()
	q := admin.Question{Method: method, URL: url}
	for _, line := range headers {
		name, value, _ := strings.Cut(line, ": ")
		q.Fields = append(q.Fields, message.Field{Name: name, Value: value})
	}
	e, err := r.app.explain(q)
	if err != nil {
		r.t.Fatal(err)
	}
	offline, err := explainOffline(r.app.config(), cli.Question(q))
	if err != nil {
		r.t.Fatal(err)
	}
	for _, x := range []any{e, offline} {
		text, _ := json.Marshal(x)
		if strings.Contains(string(text), "hush-hush") {
			r.t.Errorf("explain shows the password: %s", text)
		}
	}
	on, off := e.(proxy.Explanation), offline.(proxy.Explanation)
	for _, h := range on.Hops {
		ways = append(ways, h.Egress...)
	}
	var same []string
	for _, h := range off.Hops {
		same = append(same, h.Egress...)
	}
	if strings.Join(ways, "|") != strings.Join(same, "|") {
		r.t.Errorf("explain says %q, without a running proxy %q", ways, same)
	}
	return ways, on.Refused
}

// explain says by which egress a call would leave.
func TestExplainShowsTheEgress(t *testing.T) {
	const rules = `egress_default: deny
egress:
  - {name: proxy-a, match: {shop: s1}, proxy: "http://bot:hush-hush@10.0.0.1:3128"}
  - {name: res, match: {shop: "r*"}, proxy: "socks5h://u-{shop}:hush-hush@10.0.0.2:1080"}
  - {name: two, match: {shop: p}, pool: ["http://10.0.0.4:1", "http://10.0.0.5:1"], user: bot, password: hush-hush, on_failure: next}
  - {name: free, match: {host: free.test}, proxy: direct}`
	egressed(t, rules, func(r *rig) {
		for _, tt := range []struct{ method, url, shop, want string }{
			{"GET", "http://u1.test/x", "s1", exitA},
			{"POST", "https://u1.test/x", "s1", exitA},
			{"CONNECT", "u1.test:443", "s1", exitA},
			{"GET", "http://u1.test/x", "r1", "res (10.0.0.2:1080, shop r1)"},
			{"GET", "http://free.test/x", "s9", ""},
		} {
			if got, no := r.wayOut(tt.method, tt.url, shop(tt.shop)); strings.Join(got, "|") != tt.want || no != nil {
				t.Errorf("%s %s of %s leaves by %q (%v), want %q", tt.method, tt.url, tt.shop, got, no, tt.want)
			}
		}
		if got, _ := r.wayOut("GET", "http://u1.test/x", shop("p")); len(got) != 2 {
			t.Errorf("a pool that moves leaves by %q, want both members", got)
		}
		if _, no := r.wayOut("GET", "http://u1.test/x"); no == nil || no.Status != 403 || !strings.Contains(no.Detail, "egress_default") {
			t.Errorf("a call without an egress is refused as %+v, want 403 by egress_default", no)
		}
		if got := r.admin("POST", "/api/v1/explain", `{"method":"GET","url":"http://u1.test/x","headers":["X-Shop-Id: s1"]}`, nil); !strings.Contains(got.Body, exitA) || strings.Contains(got.Body, "hush") {
			t.Errorf("POST /api/v1/explain = %d %s, want the egress named", got.Status, got.Body)
		}
	})
}

// Passwords are nowhere, whatever becomes of a call: not in log, API, metrics,
// answers or what explain says.
func TestEgressPasswordsAreNowhere(t *testing.T) {
	secrets := []string{"hush-hush", "hush%2Dhush", "Ym90Omh1c2gtaHVzaA"} // the last is bot:hush-hush in Base64
	const rules = `egress:
  - {name: proxy-a, match: {shop: s1}, proxy: "http://bot:hush-hush@10.0.0.1:3128"}
  - {name: proxy-b, match: {shop: s2}, proxy: "socks5://bot:hush%2Dhush@10.0.0.2:1080"}
  - {name: two, match: {shop: p}, pool: ["http://10.0.0.4:1", "http://10.0.0.5:1"], user: bot, password: hush-hush, on_failure: next}
  - {name: bad, match: {shop: s5}, proxy: "http://bot:hush-hush@nowhere.test"}`
	egressed(t, rules, func(r *rig) {
		r.upstream("u1.test:80", echo)
		r.exit("10.0.0.1:3128", demands("bot", "hush-hush"))
		var answers strings.Builder
		for _, name := range []string{"s1", "s2", "p", "s5"} {
			got := r.post("http://u1.test/", "{}", shop(name))
			head, _ := json.Marshal(got.Header)
			answers.WriteString(got.Body + string(head))
			c, _, got := r.connect("u1.test:443", shop(name))
			c.Close()
			answers.WriteString(got.Body)
			ways, _ := r.wayOut("GET", "http://u1.test/x", shop(name))
			answers.WriteString(strings.Join(ways, " "))
		}
		r.none(append(secrets, "%!")...)
		for _, s := range secrets {
			if strings.Contains(answers.String(), s) {
				t.Errorf("the answers show %q:\n%s", s, answers.String())
			}
		}
	}, breakerOff)
}

// A proxy that says our credentials back does not get them into our answer.
func TestEgressThatRepeatsOurPassword(t *testing.T) {
	egressed(t, `egress: [{name: proxy-a, match: {shop: s1}, proxy: "http://bot:hush-hush@10.0.0.1:3128"}]`, func(r *rig) {
		l, err := r.net.Listen("10.0.0.1:3128")
		if err != nil {
			t.Fatal(err)
		}
		r.peers.Go(func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				rawHead(bufio.NewReader(c))
				c.Write([]byte("HTTP/1.1 407 no bot:hush-hush Ym90Omh1c2gtaHVzaA==\r\nX: hush-hush\r\nContent-Length: 9\r\n\r\nhush-hush"))
				c.Close()
			}
		})
		got := r.get("http://u1.test/", shop("s1"))
		r.want(got, 502, nil, 0)
		r.wantVerdict(1, "transient", "egress_auth")
		if strings.Contains(got.Body, "hush") || strings.Contains(got.Body, "Ym90") {
			t.Errorf("the answer is %s, want it without the password", got.Body)
		}
		r.none("hush-hush", "Ym90Omh1c2gtaHVzaA")
		l.Close()
	})
}

// A reload changes a rule: new calls follow it at once, a call that waits keeps
// the one it began with.
func TestReloadChangesAnEgress(t *testing.T) {
	const other = `egress:
  - {name: proxy-a, match: {shop: s1}, proxy: "socks5h://10.0.0.2:1080"}`
	egressed(t, twoShops, func(r *rig) {
		r.upstream("u1.test:80", whence)
		slow := r.upstream("u2.test:80", answer(503, "", "Retry-After: 2"), whence)
		r.exit("10.0.0.1:3128")
		r.exit("10.0.0.2:1080")
		r.wantBody(r.get("http://u1.test/", shop("s1")), "10.0.0.1")
		waiting := r.async(func() reply { return r.get("http://u2.test/", shop("s1")) })
		rest(time.Second)
		r.reload(other)
		r.wantBody(r.get("http://u1.test/", shop("s1")), "10.0.0.2")
		r.wantBody(r.get("http://u1.test/", shop("s2")), ourselves) // its rule is gone
		got := <-waiting
		r.want(got, 200, slow, 2)
		r.wantBody(got, "10.0.0.1")
		r.reload("egress_default: deny\n" + other)
		r.want(r.get("http://u1.test/", shop("s2")), 403, nil, 0)
		r.wantBody(r.get("http://u1.test/", shop("s1")), "10.0.0.2")
	})
}

// A password that changes is another identity: nothing goes on under the old one.
func TestReloadChangesAPassword(t *testing.T) {
	rule := func(password string) string {
		return `egress: [{name: a, match: {shop: s1}, proxy: "http://bot:` + password + `@10.0.0.1:3128"}]`
	}
	egressed(t, rule("old-one"), func(r *rig) {
		u := r.upstream("u1.test:80", whence)
		a := r.exit("10.0.0.1:3128")
		r.want(r.get("http://u1.test/", shop("s1")), 200, u, 1)
		r.reload(rule("new-one"))
		r.want(r.get("http://u1.test/", shop("s1")), 200, u, 2)
		r.wantAsked(a, 2)
		heads := a.record.Calls()
		if heads[0].Head == heads[1].Head || u.seen()[0].Conn == u.seen()[1].Conn {
			t.Errorf("asked %+v on connections %d and %d, want another password on another one", heads, u.seen()[0].Conn, u.seen()[1].Conn)
		}
	})
}

// A reload leaves breakers of exits as they are.
func TestReloadKeepsTheBreakerOfAnEgress(t *testing.T) {
	egressed(t, twoShops, func(r *rig) {
		r.upstream("u1.test:80", whence)
		r.exit("10.0.0.1:3128").down()
		r.cutOff()
		r.reload(twoShops, "max_retries: 3", "max_retries: 2")
		r.wantExit(exitA, "open")
	})
}

// An exit whose rule did not change keeps its connections over a reload.
func TestReloadKeepsConnectionsOfAnExit(t *testing.T) {
	egressed(t, twoShops, func(r *rig) {
		u := r.upstream("u1.test:80", whence)
		a := r.exit("10.0.0.1:3128")
		r.want(r.get("http://u1.test/", shop("s1")), 200, u, 1)
		r.reload(twoShops, "max_retries: 3", "max_retries: 2")
		r.want(r.get("http://u1.test/", shop("s1")), 200, u, 2)
		if u.connections() != 1 || a.asked() != 1 {
			t.Errorf("connections = %d, asked %d times; want the old one to serve on", u.connections(), a.asked())
		}
	})
}
