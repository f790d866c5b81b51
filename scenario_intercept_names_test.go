package main

import (
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"io"
	"net"
	"net/netip"
	"strings"
	"testing"
)

// Hosts that are not listed keep their tunnel: what is in it is between the client
// and the upstream.
func TestTunnelsThatAreNotListed(t *testing.T) {
	ca := newCA(t)
	bubble(t, func(r *rig) {
		for _, host := range []string{"u1.test", "u2.test", "sub.u1.test", "deep.wild.test", "wild.test"} {
			r.upstreamTLS(host+":443", ca.certificate(host), answer(503, "as it is"))
		}
		r.upstreamTLS("u1.test:7000", ca.certificate("u1.test"), answer(503, "as it is"))
		for target, open := range map[string]bool{
			"u1.test:443": true, "U1.Test:443": true, "u1.test.:443": true, // one host, however it is spelled
			"u1.test:7000": false, "u2.test:443": false, "sub.u1.test:443": false, // a pattern with a port is for that alone
			"deep.wild.test:443": true, "wild.test:443": false,
		} {
			var v visitor
			if !open {
				v.roots = ca.theirs()
			}
			o, err := r.visit(target, v)
			if err != nil {
				t.Errorf("TLS in the tunnel to %s: %v, opened ought to be %v", target, err, open)
				continue
			}
			if !open {
				got := o.ask(r, "GET /x HTTP/1.1\r\nHost: whatever\r\n\r\n")
				r.want(got, 503, nil, 0)
				r.wantBody(got, "as it is")
				if len(got.Header) != 1 {
					t.Errorf("header through the tunnel to %s = %v, want the upstream's alone", target, got.Header)
				}
			}
			o.Close()
		}
		r.wantMetric(4, "tunnels_total")
	}, opening(ca, `["u1.test:443", "*.wild.test"]`)...)
}

// Bytes of a tunnel that is not listed are not touched.
func TestBytesOfOtherTunnels(t *testing.T) {
	ca := newCA(t)
	bubble(t, func(r *rig) {
		r.tunnelEnd("u2.test:443", func(c net.Conn) { io.Copy(c, c) })
		c, in, _ := r.connect("u2.test:443")
		defer c.Close()
		text := "\x16\x03\x01\x00\x05" + random(32<<10) + "GET / HTTP/1.1\r\n\r\n"
		io.WriteString(c, text)
		back := make([]byte, len(text))
		if _, err := io.ReadFull(in, back); err != nil || string(back) != text {
			t.Errorf("the tunnel changed the bytes, or ended: %v", err)
		}
	}, opening(ca, "[u1.test]")...)
}

// wantRefusedInside checks an answer to a request that names another target.
func (r *rig) wantRefusedInside(got reply, detail string) {
	r.t.Helper()
	r.want(got, 400, nil, 0)
	r.wantHeader(got, "X-Retry-Reason", "bad_request")
	r.wantHeader(got, "X-Retry-Executed", "no")
	if !strings.Contains(got.Body, detail) {
		r.t.Errorf("the answer is %s, want %q in it", got.Body, detail)
	}
	r.wantDials(0)
}

// What the client asks for in TLS must be what it asked for by CONNECT.
func TestServerNameOfAnotherHost(t *testing.T) {
	ca := newCA(t)
	bubble(t, func(r *rig) {
		u := r.upstreamTLS("u1.test:443", ca.certificate("u1.test"), answer(200, "ok"))
		r.upstreamTLS("u2.test:443", ca.certificate("u2.test"), answer(200, "other"))
		for _, name := range []string{"u2.test", "sub.u1.test", "u1.testx"} {
			for _, host := range []string{"u1.test", "u2.test", name} {
				o := r.open("u1.test:443", visitor{name: name})
				r.wantRefusedInside(o.ask(r, "GET /x HTTP/1.1\r\nHost: "+host+"\r\n\r\n"), "TLS")
				if _, err := o.in.ReadByte(); err != io.EOF {
					t.Errorf("after the answer: %v, want the end", err)
				}
				o.Close()
			}
		}
		c := r.openH2As("u1.test:443", visitor{name: "u2.test", protos: []string{"h2"}})
		r.wantRefusedInside(c.ask("GET", "/x", ""), "TLS")
		c.Close()
		n := 0
		for _, name := range []string{"", "-", "U1.TEST", "u1.test."} { // the name itself, or none
			o := r.open("u1.test:443", visitor{name: name})
			n++
			r.want(o.ask(r, "GET /x HTTP/1.1\r\nHost: u1.test\r\n\r\n"), 200, u, n)
			o.Close()
		}
	}, opening(ca, "['*.test']")...)
}

// Nor may a request inside name another scheme, host or port.
func TestRequestsInsideForAnotherTarget(t *testing.T) {
	ca := newCA(t)
	bubble(t, func(r *rig) {
		u := r.upstreamTLS("u1.test:443", ca.certificate("u1.test"), answer(200, "ok"))
		r.upstream("u1.test:80", answer(200, "plain"))
		r.upstreamTLS("u2.test:443", ca.certificate("u2.test"), answer(200, "other"))
		for _, text := range []string{
			"GET /x HTTP/1.1\r\nHost: u2.test\r\n\r\n",
			"GET /x HTTP/1.1\r\nHost: u1.test:80\r\n\r\n",
			"GET /x HTTP/1.1\r\nHost: u1.test:8443\r\n\r\n",
			"GET http://u1.test/x HTTP/1.1\r\nHost: u1.test\r\n\r\n",
			"GET http://u1.test:443/x HTTP/1.1\r\nHost: u1.test:443\r\n\r\n",
			"GET https://u2.test/x HTTP/1.1\r\nHost: u1.test\r\n\r\n",
			"GET https://u1.test:8443/x HTTP/1.1\r\nHost: u1.test\r\n\r\n",
			"CONNECT u2.test:443 HTTP/1.1\r\nHost: u2.test:443\r\n\r\n",
			"CONNECT u1.test:443 HTTP/1.1\r\nHost: u1.test:443\r\n\r\n",
			"GET http://retryproxy.internal/ca.pem HTTP/1.1\r\nHost: retryproxy.internal\r\n\r\n",
		} {
			o := r.open("u1.test:443", visitor{})
			got := o.ask(r, text)
			r.wantRefusedInside(got, "tunnel")
			o.Close()
			if t.Failed() {
				t.Errorf("the request was %q", text)
				return
			}
		}
		for i, text := range []string{
			"GET https://u1.test/x HTTP/1.1\r\nHost: u1.test\r\n\r\n",
			"GET https://U1.test:443/x HTTP/1.1\r\nHost: U1.test:443\r\n\r\n",
		} {
			o := r.open("u1.test:443", visitor{})
			r.want(o.ask(r, text), 200, u, i+1)
			o.Close()
		}
	}, opening(ca, "['*.test']")...)
}

// A stream for another authority is refused, its neighbours are not.
func TestStreamsForAnotherAuthority(t *testing.T) {
	ca := newCA(t)
	bubble(t, func(r *rig) {
		u := r.upstreamTLS("u1.test:443", ca.certificate("u1.test"), answer(200, "ok"))
		c := r.openH2("u1.test:443")
		defer c.Close()
		for _, authority := range []string{"u2.test", "u1.test:8443"} {
			q := c.request("GET", "/x", "")
			q.Host = authority
			r.wantRefusedInside(c.do(q), "tunnel")
		}
		r.want(c.ask("GET", "/x", ""), 200, u, 1)
		q := c.request("GET", "/x", "")
		q.Host = "U1.test:443"
		r.want(c.do(q), 200, u, 2)
	}, opening(ca, "['*.test']")...)
}

// Addresses have no server name; their certificate is for the address.
func TestInterceptedAddresses(t *testing.T) {
	ca := newCA(t)
	bubble(t, func(r *rig) {
		for n, addr := range []string{"127.0.9.1", "::1"} {
			host := netip.AddrPortFrom(netip.MustParseAddr(addr), 443).String()
			der, _, key := ca.issue(&x509.Certificate{
				Subject: pkix.Name{CommonName: addr}, IPAddresses: []net.IP{net.ParseIP(addr)},
			}, ca.cert, ca.key)
			u := &scripted{r: r, name: host, script: []step{answer(503, ""), answer(200, "ok")}}
			u.wrap = tlsEnd(tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key})
			u.listen(host)
			o := r.open(host, visitor{})
			if ips := o.leaf().IPAddresses; len(ips) != 1 || !ips[0].Equal(net.ParseIP(addr)) || len(o.leaf().DNSNames) > 0 {
				t.Errorf("the certificate for %s is for %v %v", host, ips, o.leaf().DNSNames)
			}
			got := o.ask(r, "GET /x HTTP/1.1\r\nHost: "+strings.TrimSuffix(host, ":443")+"\r\n\r\n")
			r.want(got, 200, u, 2)
			o.Close()
			r.wantMetric(float64(n+1), "calls_total", "mode=intercept")
		}
	}, opening(ca, `["127.0.9.1", "[::1]"]`)...)
}

// No certificate is made for a host that the client may not reach.
func TestCase_EG_01_ThroughInterception(t *testing.T) {
	ca := newCA(t)
	bubble(t, func(r *rig) {
		u := r.upstreamTLS("u1.test:443", ca.certificate("u1.test"), answer(200, "ok"))
		for name, addr := range map[string]string{"meta.test": "169.254.169.254", "self.test": "127.0.0.1", "zero.test": "0.0.0.0"} {
			r.hosts[name] = netip.MustParseAddr(addr)
		}
		for target, status := range map[string]int{
			"meta.test:443": 403, "169.254.169.254:443": 403, "zero.test:443": 403, "denied.test:443": 403,
			"2130706433:443": 403, "0x7f000001:443": 403, "127.1:443": 403,
			"self.test:18080": 508, "127.0.0.1:18080": 508, "localhost:18080": 508,
			"[fe80::1]:443": 403, "[::]:443": 403, "[::ffff:169.254.169.254]:443": 403, "[fe80::1%25lo]:443": 400,
			"a..test:443": 400, "a_!.test:443": 400,
			"u1.test:22": 403, "u1.test:8443": 403,
		} {
			r.hosts["localhost"] = netip.MustParseAddr("127.0.0.1")
			c, _, got := r.connect(target)
			c.Close()
			r.want(got, status, nil, 0)
			if t.Failed() {
				t.Errorf("the target was %s", target)
				return
			}
		}
		r.wantDials(0)
		r.wantLeaves(0)
		r.want(r.secretly("GET", "https://u1.test/x", ""), 200, u, 1)
		r.wantLeaves(1)
	}, patches(opening(ca, "['*']"), []string{"connect_ports: [443,", "deny: [denied.test], connect_ports: [18080, 443,"})...)
}

// A name may point elsewhere once its tunnel is open: what is dialled is judged
// again.
func TestGuardHoldsInsideOpenTunnels(t *testing.T) {
	ca := newCA(t)
	bubble(t, func(r *rig) {
		u := r.upstreamTLS("u1.test:443", ca.certificate("u1.test"), answer(200, "ok"))
		o := r.open("u1.test:443", visitor{})
		defer o.Close()
		r.hosts["u1.test"] = netip.MustParseAddr("169.254.169.254")
		got := o.ask(r, "GET /x HTTP/1.1\r\nHost: u1.test\r\n\r\n")
		r.want(got, 403, u, 0)
		r.wantHeader(got, "X-Retry-Reason", "destination_denied")
		r.wantDials(0)
	}, opening(ca, "['*']")...)
}

// Who the client is comes before everything else.
func TestInterceptionNeedsCredentials(t *testing.T) {
	ca := newCA(t)
	bubble(t, func(r *rig) {
		u := r.upstreamTLS("u1.test:443", ca.certificate("u1.test"), answer(200, "ok"))
		for _, wrong := range [][]string{nil, {"Proxy-Authorization: " + basic("bot1", "wrong")}} {
			c, _, got := r.connect("u1.test:443", wrong...)
			c.Close()
			r.want(got, 407, u, 0)
			r.wantHeader(got, "Proxy-Authenticate", `Basic realm="retryproxy"`)
		}
		r.wantDials(0)
		r.wantLeaves(0)
		v := visitor{headers: []string{"Proxy-Authorization: " + basic("bot1", "secret")}}
		r.want(r.secretlyAs(v, "GET", "https://u1.test/x", ""), 200, u, 1)
	}, patches(opening(ca, "['*']"), users(t))...)
}

// OPTIONS * inside is the host's own.
func TestOptionsOfAnInterceptedHost(t *testing.T) {
	ca := newCA(t)
	bubble(t, func(r *rig) {
		u := r.upstreamTLS("u1.test:443", ca.certificate("u1.test"), answer(204, ""))
		o := r.open("u1.test:443", visitor{})
		defer o.Close()
		r.want(o.ask(r, "OPTIONS * HTTP/1.1\r\nHost: u1.test\r\n\r\n"), 204, u, 1)
		if line := u.line(); line != "OPTIONS * HTTP/1.1" {
			t.Errorf("the upstream got %q, want OPTIONS *", line)
		}
	}, opening(ca, "[u1.test]")...)
}
