package main

import (
	"strings"
	"testing"
)

// wantAmbiguous checks the answer to a call that says two things of whose it is.
func (r *rig) wantAmbiguous(got reply, header string) {
	r.t.Helper()
	r.want(got, 400, nil, 0)
	r.wantHeader(got, "X-Retry-Reason", "bad_request")
	r.wantHeader(got, "X-Retry-Executed", "no")
	if !strings.Contains(got.Body, header) {
		r.t.Errorf("the answer is %s, want %s named", got.Body, header)
	}
}

// Two values of one label are one too many: nobody guesses whose call it is.
func TestTwoValuesOfALabel(t *testing.T) {
	egressed(t, twoShops, func(r *rig) {
		u := r.upstream("u1.test:80", whence)
		a, b := r.exit("10.0.0.1:3128"), r.exit("10.0.0.2:1080")
		for _, name := range []string{"X-Shop-Id", "X-Shop-Tier", "X-Task-Type"} {
			two := []string{name + ": s1", strings.ToLower(name) + ": s2"}
			r.wantAmbiguous(r.get("http://u1.test/", two...), name)
			r.wantAmbiguous(r.post("https://u1.test/", "{}", append(two, keyed)...), name)
			r.wantAmbiguous(r.get("http://u1.test/", name+": s1", name+": s1", name+": s2"), name)
			c, _, got := r.connect("u1.test:443", two...)
			c.Close()
			r.wantAmbiguous(got, name)
		}
		r.wantDials(0)
		r.wantAsked(a, 0)
		r.wantAsked(b, 0)
		got := r.get("http://u1.test/", shop("s1"), shop("s1")) // one value, said twice
		r.want(got, 200, u, 1)
		r.wantBody(got, "10.0.0.1")
	})
}

// Nor may a request inside a tunnel be of another shop than its CONNECT: one
// connection of a client would be seen at two addresses.
func TestAnotherShopInsideTheTunnel(t *testing.T) {
	ca := newCA(t)
	for _, proto := range []string{"http/1.1", "h2", "plain"} {
		t.Run(proto, func(t *testing.T) {
			egressed(t, "intercept: {hosts: ['*.test']}\n"+twoShops, func(r *rig) {
				out := r.outward()
				tls := r.upstreamTLS("u1.test:443", ca.certificate("u1.test"), whence)
				plain := r.upstream("u1.test:80", whence)
				r.exit("10.0.0.1:3128")
				r.exit("10.0.0.2:1080")
				v, u := visitor{headers: []string{shop("s1")}}, tls
				var ask func(headers ...string) reply
				switch proto {
				case "h2":
					v.protos = []string{"h2"}
					c := r.openH2As("u1.test:443", v)
					defer c.Close()
					ask = func(headers ...string) reply { return c.ask("GET", "/x", "", headers...) }
				case "http/1.1":
					o := r.open("u1.test:443", v)
					defer o.Close()
					ask = func(headers ...string) reply { return o.ask(r, rawOrigin("GET", "u1.test", "/x", "", headers...)) }
				case "plain":
					c, in, _ := r.connect("u1.test:80", shop("s1"))
					defer c.Close()
					u = plain
					ask = func(headers ...string) reply {
						return r.inside(c, in, rawOrigin("GET", "u1.test", "/x", "", headers...))
					}
				}
				for n, headers := range [][]string{nil, {shop("s1")}, {"X-Task-Type: report"}} {
					got := ask(headers...)
					r.want(got, 200, u, n+1)
					r.wantBody(got, "10.0.0.1")
				}
				r.wantAmbiguous(ask(shop("s2")), "X-Shop-Id")
				r.want(reply{}, 0, u, 3)
				r.wantOnly(out, "10.0.0.1:3128")
			}, trusting(ca))
		})
	}
}
