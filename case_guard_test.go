package main

import (
	"net/netip"
	"strings"
	"testing"
)

// noPrivate forbids what is not public, for the cases of the guard.
var noPrivate = []string{"destinations: {connect_ports", "destinations: {private: deny, connect_ports"}

// denied checks that a destination is refused as GET and as CONNECT, nothing dialled.
func (r *rig) denied(host string, status int) {
	r.t.Helper()
	for _, got := range []reply{
		r.ask("GET http://" + host + "/ HTTP/1.1\r\nHost: " + host + "\r\n\r\n"),
		r.ask("CONNECT " + host + ":7000 HTTP/1.1\r\nHost: " + host + ":7000\r\n\r\n"),
	} {
		if got.Status != status {
			r.t.Errorf("%s = %d %s, want %d", host, got.Status, got.Body, status)
		}
		if status == 403 && (got.Header.Get("X-Retry-Reason") != "destination_denied" || got.Header.Get("X-Retry-Advice") != "stop") {
			r.t.Errorf("%s = %v, want destination_denied and stop", host, got.Header)
		}
	}
	r.wantDials(0)
}

// spellings are the numeric forms of an IPv4 address that are not the plain one.
func spellings(a, b, c, d uint32) []string {
	n := a<<24 | b<<16 | c<<8 | d
	hex := func(v uint32) string { return "0x" + strings.TrimLeft(hexOf(v), "0") }
	return []string{
		dec(n), "0x" + hexOf(n), "0" + oct(n), // one number
		"0" + oct(a) + ".0" + oct(b) + ".0" + oct(c) + ".0" + oct(d),
		hex(a) + "." + dec(b) + "." + dec(c) + "." + dec(d),
		dec(a) + "." + dec(b) + "." + dec(c<<8|d),
		dec(a) + "." + dec(b<<16|c<<8|d),
		dec(a) + "." + dec(b) + "." + dec(c) + ".0" + oct(d),
	}
}

func digits(n, base uint32) string {
	const set = "0123456789abcdef"
	s := ""
	for ; n > 0 || s == ""; n /= base {
		s = string(set[n%base]) + s
	}
	return s
}

func dec(n uint32) string { return digits(n, 10) }
func oct(n uint32) string { return digits(n, 8) }

func hexOf(n uint32) string {
	s := digits(n, 16)
	return strings.Repeat("0", 8-len(s)) + s
}

func TestCase_EG_01_NumericSpellings(t *testing.T) {
	bubble(t, func(r *rig) {
		for _, plain := range []string{"169.254.169.254", "127.0.0.1", "100.100.100.200", "10.0.0.1"} {
			b := netip.MustParseAddr(plain).As4()
			r.denied(plain, 403)
			for _, form := range spellings(uint32(b[0]), uint32(b[1]), uint32(b[2]), uint32(b[3])) {
				r.denied(form, 403)
			}
			r.denied("[::ffff:"+plain+"]", 403)
			r.denied("[64:ff9b::"+plain+"]", 403)
		}
		if n := r.metric("denied_total", "reason=destination_denied"); n == 0 {
			t.Error("denied_total{reason=destination_denied} = 0")
		}
		r.wantMetric(0, "retries_total")
	}, noPrivate...)
}

// The same without the rule about private addresses: no other spelling reaches
// a resolver, and what is never allowed stays so. A route's upstream is exempt
// from the rule only.
func TestCase_EG_01_NeverAllowed(t *testing.T) {
	bubble(t, func(r *rig) {
		for _, host := range []string{"2130706433", "0x7f000001", "0177.0.0.1", "127.1", "0", "169.254.169.254", "100.100.100.200", "[fd00:ec2::254]"} {
			r.denied(host, 403)
		}
		r.hosts["meta.test"] = netip.MustParseAddr("169.254.169.254")
		r.denied("meta.test", 403)
		got := r.origin("GET", "127.0.0.1:18080", "/meta/latest", "")
		r.want(got, 403, nil, 0)
		r.wantHeader(got, "X-Retry-Reason", "destination_denied")
		if !strings.Contains(got.Body, "169.254.169.254") {
			t.Errorf("the answer is %s, want the address in it", got.Body)
		}
		r.wantDials(0)
	}, "\nlisten:", "\nroutes: [{name: meta, prefix: /meta, upstreams: ['http://169.254.169.254']}]\nlisten:")
}

// A name is judged by the address that is dialled, each time anew.
func TestCase_EG_01_Rebinding(t *testing.T) {
	bubble(t, func(r *rig) {
		u := r.upstream("public.test:80", answer(503, ""))
		loopback := r.hosts["public.test"]
		r.hosts["rebind.test"] = loopback
		got := r.get("http://rebind.test/")
		r.want(got, 403, u, 0)
		if !strings.Contains(got.Body, loopback.String()) || !strings.Contains(got.Body, "destinations.private") {
			t.Errorf("the answer is %s, want the address and the setting in it", got.Body)
		}
		r.wantDials(0)
	}, noPrivate...)
}

func TestCase_EG_04_UnspecifiedMeansThisHost(t *testing.T) {
	bubble(t, func(r *rig) { // private addresses are allowed here: all listeners are on loopback
		sink, err := r.net.Listen("0.0.0.0:7000")
		if err != nil {
			t.Fatal(err)
		}
		defer sink.Close()
		r.hosts["zero.test"] = netip.MustParseAddr("0.0.0.0")
		r.hosts["zero6.test"] = netip.MustParseAddr("::")
		r.hosts["mapped.test"] = netip.MustParseAddr("::ffff:0.0.0.0")
		for _, host := range []string{"0.0.0.0", "[::]", "0", "0.0.0.1", "[::ffff:0.0.0.0]", "zero.test", "zero6.test", "mapped.test"} {
			r.denied(host, 403)
		}
	})
}

func TestCase_EG_05_ZoneIdentifiers(t *testing.T) {
	bubble(t, func(r *rig) {
		for _, host := range []string{"[fe80::1%25lo]", "[::1%25lo]", "[fe80::1%lo]", "[fe80::1%25]", "[::1%25eth0%25x]"} {
			r.denied(host, 400)
		}
		r.denied("[fe80::1]", 403)
		r.hosts["linklocal.test"] = netip.MustParseAddr("fe80::1%eth7zone")
		r.denied("linklocal.test", 403)
		if m := r.admin("GET", "/metrics", "", nil).Body; strings.Contains(m, "%25lo") || strings.Contains(m, "eth7zone") {
			t.Error("a zone is in the metrics")
		}
	})
}

func TestCase_EG_07_SpellingsOfOneHost(t *testing.T) {
	bubble(t, func(r *rig) {
		u := r.upstream("u1.test:80", answer(503, ""))
		for n, target := range []string{"http://U1.Test/", "http://u1.test./", "http://u1.test:80/", "http://u1.test/", "http://U1.TEST.:80/"} {
			r.want(r.get(target, "X-Retry-Count: 3"), 503, u, n+1)
		}
		hosts := r.app.limiter.Hosts(r.last().Started)
		if len(hosts) != 1 || hosts[0].Host != "u1.test:80" || hosts[0].Breaker.State.String() != "open" {
			t.Errorf("gates = %+v, want the one of u1.test:80, open", hosts)
		}
		r.wantMetric(5, "attempts_total", "host=u1.test:80")
		r.wantMetric(5, "attempts_total")
	})
	bubble(t, func(r *rig) {
		r.upstream("u1.test:80", answer(200, ""))
		for _, host := range []string{"u1.test", "u1.test.", "U1.test", "U1.TEST."} {
			r.denied(host, 403)
		}
	}, "destinations: {connect_ports", "destinations: {deny: [u1.test], connect_ports")
}
