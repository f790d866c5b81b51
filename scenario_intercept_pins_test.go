package main

import (
	"encoding/json"
	"testing"
	"time"
)

const (
	refusedOnce = "a client refused our CA three times: its tunnels to this host stay closed to us for an hour, without retries, or until POST /api/v1/intercept/reset"
	hungUp      = "a client ended the TLS handshake in a tunnel that we open: does it trust our CA?"
)

// refuses lets a client that does not trust us try to get in.
func (r *rig) refuses(target string, v visitor, times int) {
	r.t.Helper()
	v.distrust = true
	for range times {
		if o, err := r.visit(target, v); err == nil {
			o.Close()
			r.t.Errorf("a client that trusts nobody was let in to %s", target)
		}
		rest(0)
	}
}

// passed are the clients that the admin API shows as passed through.
func (r *rig) passed() (out []string) {
	r.t.Helper()
	var shown struct {
		Passed []struct {
			Client, Host string
			Since, Until time.Time
		} `json:"passed_through"`
	}
	r.admin("GET", "/api/v1/intercept", "", &shown)
	for _, p := range shown.Passed {
		out = append(out, p.Client+" "+p.Host)
		if p.Until.Sub(p.Since) != time.Hour {
			r.t.Errorf("%s passes from %v to %v, want for an hour", p.Client, p.Since, p.Until)
		}
	}
	return out
}

// Three refusals in a row give a client its tunnel for an hour: that client, that
// host, nobody else.
func TestClientsThatRefuseOurCA(t *testing.T) {
	ca := newCA(t)
	bubble(t, func(r *rig) {
		for _, host := range []string{"u1.test", "u2.test"} {
			r.upstreamTLS(host+":443", ca.certificate(host), answer(200, "ok"))
		}
		shop := visitor{headers: []string{"X-Shop-Id: s1"}}
		theirs := shop
		theirs.roots = ca.theirs()

		r.refuses("u1.test:443", shop, 2)
		r.wantInside("u1.test:443", visitor{headers: shop.headers}, true) // opened: nothing was asked inside
		r.wantMetric(0, "intercept_refused_total")
		r.refuses("u1.test:443", shop, 1)
		r.wantDials(0)
		r.wantMetric(1, "intercept_refused_total", "host=u1.test:443")
		if lines := r.logged(refusedOnce); len(lines) != 1 || lines[0]["host"] != "u1.test:443" || lines[0]["client"] != "127.0.0.1;shop=s1" {
			t.Errorf("logged %v, want one line that names client and host", lines)
		}
		if got := r.passed(); len(got) != 1 || got[0] != "127.0.0.1;shop=s1 u1.test:443" {
			t.Errorf("passed through = %v, want the one", got)
		}

		r.wantInside("u1.test:443", theirs, false)
		r.wantMetric(1, "tunnels_total", "host=u1.test:443")
		for _, other := range []visitor{
			{}, {headers: []string{"X-Shop-Id: s2"}}, {from: "127.0.0.2", headers: shop.headers},
		} {
			r.wantInside("u1.test:443", other, true)
		}
		r.wantInside("u2.test:443", shop, true)
		if n := len(r.logged(refusedOnce)); n != 1 {
			t.Errorf("logged %d times, want once", n)
		}

		rest(time.Hour - time.Second)
		r.wantInside("u1.test:443", theirs, false)
		rest(time.Second)
		if got := r.passed(); len(got) != 0 {
			t.Errorf("passed through after an hour = %v, want none", got)
		}
		r.wantInside("u1.test:443", shop, true) // tried again
		r.refuses("u1.test:443", shop, 1)       // and one more refusal is enough
		r.wantInside("u1.test:443", theirs, false)
	}, opening(ca, "['*.test']")...)
}

// Users behind one address are told apart.
func TestUsersThatRefuseOurCA(t *testing.T) {
	ca := newCA(t)
	bubble(t, func(r *rig) {
		r.upstreamTLS("u1.test:443", ca.certificate("u1.test"), answer(200, "ok"))
		one := visitor{headers: []string{"Proxy-Authorization: " + basic("bot1", "secret")}}
		two := visitor{headers: []string{"Proxy-Authorization: " + basic("bot2", "other")}}
		r.refuses("u1.test:443", one, 3)
		if got := r.passed(); len(got) != 1 || got[0] != "127.0.0.1;user=bot1;shop=s1 u1.test:443" {
			t.Errorf("passed through = %v, want bot1", got)
		}
		r.wantInside("u1.test:443", two, true)
		one.roots = ca.theirs()
		r.wantInside("u1.test:443", one, false)
	}, patches(opening(ca, "['*.test']"), users(t))...)
}

// A call that went well in between shows that the client can trust us.
func TestRefusalsThatAreNoRow(t *testing.T) {
	ca := newCA(t)
	bubble(t, func(r *rig) {
		r.upstreamTLS("u1.test:443", ca.certificate("u1.test"), answer(200, "ok"))
		for range 3 {
			r.refuses("u1.test:443", visitor{}, 2)
			r.want(r.secretly("GET", "https://u1.test/x", ""), 200, nil, 0)
			rest(0)
		}
		r.wantMetric(0, "intercept_refused_total")
		r.wantInside("u1.test:443", visitor{}, true)
		r.refuses("u1.test:443", visitor{}, 3)
		r.wantMetric(1, "intercept_refused_total")
		r.wantInside("u1.test:443", visitor{roots: ca.theirs()}, false)
	}, opening(ca, "['*.test']")...)
}

// Who hangs up without a word proves nothing: no pass, but one line in the log.
func TestClientsThatHangUpInTheHandshake(t *testing.T) {
	ca := newCA(t)
	bubble(t, func(r *rig) {
		r.upstreamTLS("u1.test:443", ca.certificate("u1.test"), answer(200, "ok"))
		for range 5 {
			c, _, _ := r.connect("u1.test:443")
			c.Write([]byte{0x16, 3, 1, 0, 200, 1, 0})
			c.Close()
			rest(0)
		}
		if n := len(r.logged(hungUp)); n != 1 {
			t.Errorf("logged %d times, want once", n)
		}
		r.wantMetric(0, "intercept_refused_total")
		r.wantInside("u1.test:443", visitor{}, true)
		for _, c := range r.ended() {
			if c.Mode != "connect" || c.Host != "u1.test:443" {
				t.Errorf("call = %s %s, want the CONNECT", c.Mode, c.Host)
			}
		}
	}, opening(ca, "['*.test']")...)
}

// What is intercepted, by whom, is to be seen.
func TestInterceptionIsShown(t *testing.T) {
	ca := newCA(t)
	bubble(t, func(r *rig) {
		var shown map[string]any
		r.admin("GET", "/api/v1/intercept", "", &shown)
		if hosts, _ := json.Marshal(shown["hosts"]); string(hosts) != `["*.test"]` || shown["fingerprint"] != r.app.ways.ca.Fingerprint() {
			t.Errorf("GET /api/v1/intercept = %v", shown)
		}
	}, opening(ca, "['*.test']")...)
	bubble(t, func(r *rig) {
		var shown map[string]any
		r.admin("GET", "/api/v1/intercept", "", &shown)
		if hosts, _ := json.Marshal(shown["hosts"]); string(hosts) != `[]` || shown["fingerprint"] != nil {
			t.Errorf("GET /api/v1/intercept = %v, want that it is off", shown)
		}
	})
}
