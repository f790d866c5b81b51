package main

import (
	"testing"
	"time"
)

// A host pattern may name a port, everywhere: two services of one host are two
// hosts then. One without a port is for all of them.
func TestPolicyForAPort(t *testing.T) {
	const rules = "retry_policies:\n" +
		"  - {name: orders, match: {host: ['*1.test:7000']}, max_retries: 1}\n" +
		"  - {name: plain, match: {host: ['U1.test:80']}, max_retries: 2}\n" +
		"  - {name: rest, match: {host: [u1.test]}, max_retries: 0}\n"
	bubble(t, func(r *rig) {
		for _, tt := range []struct {
			host, url, policy string
			attempts          int
		}{
			{"u1.test:7000", "http://u1.test:7000/x", "orders", 2},
			{"u1.test:80", "http://u1.test/x", "plain", 3},
			{"u1.test:7001", "http://u1.test:7001/x", "rest", 1},
			{"u2.test:7000", "http://u2.test:7000/x", "default", 4},
		} {
			u := r.upstream(tt.host, answer(503, "busy"))
			r.want(r.get(tt.url), 503, u, tt.attempts)
			if got := r.last().Policy; got != tt.policy {
				t.Errorf("policy of %s = %s, want %s", tt.url, got, tt.policy)
			}
		}
	}, "retry_policies:\n", rules)
}

func TestSwitchForAPort(t *testing.T) {
	bubble(t, func(r *rig) {
		u80 := r.upstream("u1.test:80", answer(503, "busy"))
		u7000 := r.upstream("u1.test:7000", answer(503, "busy"))
		r.want(r.get("http://u1.test:7000/x"), 503, u7000, 1)
		r.wantEnd("failed", "retries_off", 1)
		r.want(r.get("http://u1.test/x"), 503, u80, 4)

		r.admin("PUT", "/api/v1/retries", `{"value":"on"}`, nil)
		if got := r.admin("PUT", "/api/v1/retries?for=10s", `{"value":"off","match":{"host":"u1.test:80"}}`, nil); got.Status != 200 {
			t.Errorf("PUT = %d %s", got.Status, got.Body)
		}
		r.want(r.get("http://u1.test/x", "X-Request-Timeout: 300ms"), 503, u80, 5)
		r.wantEnd("failed", "retries_off", 1)
		r.want(r.get("http://u1.test:7000/x"), 503, u7000, 5)
		time.Sleep(10 * time.Second)
		r.want(r.get("http://u1.test/x"), 503, u80, 9)
	}, patches(breakerOff, lays("retries: {scopes: [{match: {host: ['u1.test:7000']}, value: off}]}"))...)
}

// upgrade_to_https speaks TLS to the port that was asked for, and 443 for 80.
func TestUpgradeForAPort(t *testing.T) {
	ca := newCA(t)
	bubble(t, func(r *rig) {
		cert := ca.certificate("gw.test")
		r.upstream("gw.test:7001", answer(200, "plain"))
		r.upstreamTLS("gw.test:7000", cert, answer(200, "secure 7000"))
		r.upstreamTLS("gw.test:443", cert, answer(200, "secure 443"))
		for url, want := range map[string]string{
			"http://gw.test:7000/x": "secure 7000", "http://GW.test:7000/x": "secure 7000",
			"http://gw.test/x": "secure 443", "http://gw.test:80/x": "secure 443",
			"http://gw.test:7001/x": "plain",
		} {
			got := r.get(url)
			r.want(got, 200, nil, 0)
			r.wantBody(got, want)
		}
	}, patches(trusting(ca), lays("upgrade_to_https: ['gw.test:7000', 'gw.test:80']"))...)
}
