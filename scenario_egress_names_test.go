package main

import (
	"strings"
	"testing"
)

// beyond is the patch of a proxy that others may use: private destinations are
// denied.
func beyond(lists string) []string {
	return []string{"destinations: {", "destinations: {private: deny, " + lists}
}

// everyWay makes a call to a host by each way that there is, and returns the
// answers by the name of the way.
func (r *rig) everyWay(host string) map[string]reply {
	r.t.Helper()
	out := map[string]reply{
		"http":  r.get("http://"+host+"/", shop("s1")),
		"https": r.get("https://"+host+"/", shop("s1")),
		"keyed": r.post("http://"+host+"/", "{}", shop("s1"), keyed),
	}
	for _, port := range []string{":80", ":443"} {
		c, _, got := r.connect(host+port, shop("s1"))
		c.Close()
		out["CONNECT "+port] = got
	}
	return out
}

// A name that the egress looks up has no address that could be judged: what is
// private by its name is denied by its name.
func TestPrivateNamesBehindAnEgress(t *testing.T) {
	ca := newCA(t)
	for _, scheme := range []string{"http", "socks5h"} {
		for _, intercepts := range []string{"[]", "['*']"} {
			t.Run(scheme+" intercept "+intercepts, func(t *testing.T) {
				rules := "intercept: {hosts: " + intercepts + "}\n" + `egress: [{name: a, match: {shop: s1}, proxy: "` + scheme + `://10.0.0.1:3128"}]`
				egressed(t, rules, func(r *rig) {
					u := r.upstream("u1.test:80", answer(200, "ok"))
					a := r.exit("10.0.0.1:3128")
					for host, why := range map[string]string{
						"localhost": "loopback", "LocalHost": "loopback", "localhost.": "loopback", "x.localhost": "loopback",
						"metadata.google.internal": "metadata service", "metadata": "metadata service", "METADATA.google.internal.": "metadata service",
						"nas": "private network", "db.internal": "private network", "printer.local": "private network", "printer.LOCAL.": "private network",
					} {
						for way, got := range r.everyWay(host) {
							r.want(got, 403, nil, 0)
							r.wantHeader(got, "X-Retry-Reason", "destination_denied")
							r.wantHeader(got, "X-Retry-Executed", "no")
							if !strings.Contains(got.Body, why) {
								t.Errorf("%s of %s: the answer is %s, want %q named", way, host, got.Body, why)
							}
						}
						if t.Failed() {
							t.Errorf("the host was %s", host)
							return
						}
					}
					r.wantDials(0)
					if intercepts != "[]" {
						r.wantLeaves(0)
					}
					r.wantAsked(a, 0)
					r.want(r.get("http://u1.test/", shop("s1")), 200, u, 1)
					r.wantAsked(a, 1)
				}, beyond(""), trusting(ca))
			})
		}
	}
}

// What listens here is ours under the name localhost as well, whatever is allowed.
func TestOurselvesByNameBehindAnEgress(t *testing.T) {
	for name, lists := range map[string]string{"private: allow": "private: allow, ", "allow": "private: deny, allow: [localhost], ", "intercepted": ""} {
		t.Run(name, func(t *testing.T) {
			rules := twoShops
			if name == "intercepted" {
				rules = "intercept: {hosts: [localhost]}\n" + twoShops
			}
			egressed(t, rules, func(r *rig) {
				a := r.exit("10.0.0.1:3128")
				for _, host := range []string{"localhost", "LOCALHOST.", "x.localhost"} {
					for _, port := range []string{":18080", ":18090"} {
						if host == "x.localhost" && name == "allow" {
							continue // is not in the list, and denied as private
						}
						c, _, got := r.connect(host+port, shop("s1"))
						c.Close()
						for _, got := range []reply{got, r.get("http://"+host+port+"/", shop("s1")), r.get("https://"+host+port+"/", shop("s1"))} {
							r.want(got, 508, nil, 0)
							r.wantHeader(got, "X-Retry-Reason", "loop")
							r.wantHeader(got, "X-Retry-Executed", "no")
						}
					}
				}
				r.wantDials(0)
				r.wantAsked(a, 0)
			}, []string{"destinations: {connect_ports: [443,", "destinations: {" + lists + "connect_ports: [18080, 18090, 443,"})
		})
	}
}

// destinations.allow lets private names through, those of metadata services never.
func TestAllowedNamesBehindAnEgress(t *testing.T) {
	egressed(t, twoShops, func(r *rig) {
		r.exit("10.0.0.1:3128")
		for _, host := range []string{"localhost", "nas", "db.internal"} {
			u := r.upstream(host+":80", whence)
			r.wantBody(r.get("http://"+host+"/", shop("s1")), "10.0.0.1")
			c, in, got := r.connect(host+":80", shop("s1"))
			r.want(got, 200, nil, 0)
			r.want(r.inside(c, in, "GET / HTTP/1.1\r\nHost: "+host+"\r\n\r\n"), 200, u, 2)
			c.Close()
			if t.Failed() {
				t.Errorf("the host was %s", host)
				return
			}
		}
	}, beyond("allow: [localhost, nas, '*.internal', metadata], "))
	egressed(t, twoShops, func(r *rig) {
		a := r.exit("10.0.0.1:3128")
		for _, host := range []string{"metadata", "metadata.google.internal"} {
			for _, got := range r.everyWay(host) {
				r.want(got, 403, nil, 0)
			}
		}
		r.wantAsked(a, 0)
	}, beyond("allow: [metadata, '*.internal'], "))
}

// An IPv4 address in IPv6 is that address, for every rule that names it.
func TestOneNameForOneAddress(t *testing.T) {
	ca := newCA(t)
	rules := `egress: [{name: proxy-a, match: {host: "127.0.1.1"}, proxy: "http://10.0.0.1:3128"}]`
	spellings := []string{"127.0.1.1", "[::ffff:127.0.1.1]", "[::ffff:7f00:101]", "[0:0:0:0:0:FFFF:7F00:0101]"}
	t.Run("egress", func(t *testing.T) {
		egressed(t, rules, func(r *rig) {
			out := r.outward()
			u := r.upstream("u1.test:80", whence)
			a := r.exit("10.0.0.1:3128")
			for i, host := range spellings {
				got := r.get("http://" + host + "/")
				r.want(got, 200, u, i+1)
				r.wantBody(got, "10.0.0.1")
				c, _, got := r.connect(host + ":80")
				r.want(got, 200, nil, 0)
				c.Close()
			}
			for _, target := range a.targets() {
				if target != "127.0.1.1:80" {
					t.Errorf("the egress was asked for %s, want 127.0.1.1:80", target)
				}
			}
			r.wantOnly(out, "10.0.0.1:3128")
		})
	})
	t.Run("breaker", func(t *testing.T) {
		bubble(t, func(r *rig) {
			u := r.upstream("u1.test:80", answer(500, ""))
			for _, host := range append(spellings, spellings[1]) {
				r.want(r.get("http://"+host+"/", "X-Retry-Count: 3"), 500, nil, 0)
			}
			for _, host := range spellings {
				r.want(r.get("http://"+host+"/", "X-Request-Timeout: 1"), 503, u, 5)
			}
		})
	})
	t.Run("intercept", func(t *testing.T) {
		bubble(t, func(r *rig) {
			u := r.upstreamTLS("u1.test:443", ca.certificate("u1.test"), answer(200, "ok"))
			for _, host := range spellings {
				o := r.open(host+":443", visitor{})
				if ips := o.leaf().IPAddresses; len(ips) != 1 || ips[0].String() != "127.0.1.1" {
					t.Errorf("the certificate for %s is for %v, want 127.0.1.1", host, ips)
				}
				if got := o.ask(r, rawOrigin("GET", host, "/x", "")); got.Status != 502 {
					t.Errorf("GET inside = %d %s, want 502 for a certificate of another name", got.Status, got.Body)
				}
				o.Close()
			}
			r.want(reply{}, 0, u, 0)
			r.wantLeaves(1)
		}, opening(ca, `["127.0.1.1"]`)...)
	})
}
