package main

import (
	"io"
	"strings"
	"testing"
)

// nowhere intercepts all hosts, and lets only shops with an egress of their own
// leave by it.
const nowhere = "egress_default: deny\nintercept: {hosts: ['*.test']}\n" + twoShops

// Where only a request inside says whose it is, it decides by which address it
// leaves; one that says nothing goes nowhere.
func TestShopIsNamedInsideTheTunnel(t *testing.T) {
	ca := newCA(t)
	for _, proto := range []string{"http/1.1", "h2"} {
		t.Run(proto, func(t *testing.T) {
			egressed(t, nowhere, func(r *rig) {
				out := r.outward()
				u := r.upstreamTLS("u1.test:443", ca.certificate("u1.test"), whence)
				r.exit("10.0.0.1:3128")
				r.exit("10.0.0.2:1080")
				var ask func(headers ...string) reply
				if proto == "h2" {
					c := r.openH2("u1.test:443")
					defer c.Close()
					ask = func(headers ...string) reply { return c.ask("GET", "/x", "", headers...) }
				} else {
					o := r.open("u1.test:443", visitor{})
					defer o.Close()
					ask = func(headers ...string) reply { return o.ask(r, rawOrigin("GET", "u1.test", "/x", "", headers...)) }
				}
				r.wantDials(0)
				for n, name := range []string{"s1", "s2", "s1"} {
					got := ask(shop(name))
					r.want(got, 200, u, n+1)
					r.wantBody(got, map[string]string{"s1": "10.0.0.1", "s2": "10.0.0.2"}[name])
					for _, headers := range [][]string{nil, {shop("s9")}} {
						got := ask(headers...)
						r.want(got, 403, u, n+1)
						r.wantHeader(got, "X-Retry-Reason", "destination_denied")
						r.wantHeader(got, "X-Retry-Executed", "no")
						if !strings.Contains(got.Body, "egress_default") {
							t.Errorf("the answer is %s, want egress_default named", got.Body)
						}
					}
				}
				r.wantOnly(out, "10.0.0.1:3128", "10.0.0.2:1080")
			}, trusting(ca))
		})
	}
}

// What passes through without being looked at names no shop, and goes nowhere.
func TestTunnelsWithoutAnEgressGoNowhere(t *testing.T) {
	ca := newCA(t)
	egressed(t, nowhere, func(r *rig) {
		r.upstreamTLS("u1.test:443", ca.certificate("u1.test"), whence)
		r.tunnelEnd("u1.test:7000", silentEnd)
		a := r.exit("10.0.0.1:3128")
		for n, target := range []string{"u1.test:443", "u1.test:7000"} {
			c, in, got := r.connect(target)
			r.want(got, 200, nil, 0)
			io.WriteString(c, "\x00\x01\x02 neither TLS nor HTTP")
			if rest, err := io.ReadAll(in); len(rest) > 0 || err != nil {
				t.Errorf("read %q, %v from the tunnel to %s, want its end", rest, err, target)
			}
			c.Close()
			r.wantMetric(float64(n+1), "denied_total", "reason=destination_denied")
			if call := r.last(); call.Reason != "destination_denied" || call.Result != "rejected" || !strings.Contains(call.Detail, "egress_default") {
				t.Errorf("the call ended as %s, %s (%s); want it denied by egress_default", call.Result, call.Reason, call.Detail)
			}
		}
		r.refuses("u1.test:443", visitor{}, 3)
		c, _, got := r.connect("u1.test:443") // to be passed through
		c.Close()
		r.want(got, 403, nil, 0)
		c, _, got = r.connect("other.example:443") // not under intercept
		c.Close()
		r.want(got, 403, nil, 0)
		r.wantDials(0)
		r.wantAsked(a, 0)

		v := visitor{headers: []string{shop("s1")}} // and with one by it
		r.refuses("u1.test:443", v, 3)
		v.roots = ca.theirs()
		r.wantInside("u1.test:443", v, false)
		r.wantAsked(a, 1)
	}, trusting(ca))
}
