package main

import (
	"testing"
	"time"
)

// A reload of the destinations reaches connections in use: the call on one ends
// well, the next call is judged by the new rules, on a connection of its own.
func TestReloadOfDestinationsReachesConnectionsInUse(t *testing.T) {
	ca := newCA(t)
	for _, proto := range []string{"http/1.1", "h2"} {
		t.Run(proto, func(t *testing.T) {
			bubble(t, func(r *rig) {
				url, conns := r.slowly(proto, ca)
				during := func(lists string) {
					t.Helper()
					inFlight := r.async(func() reply { return r.get(url) })
					rest(300 * time.Millisecond)
					r.applies(append(trusting(ca), "destinations: {", "destinations: {"+lists)...)
					r.want(<-inFlight, 200, nil, 0)
					rest(0)
				}
				r.want(r.get(url), 200, nil, 0)
				r.want(r.get(url), 200, nil, 0)
				if got := conns(); got != 1 {
					t.Errorf("connections = %d, want one for all calls before the reload", got)
				}
				during("deny: [203.0.113.0/24], ")
				r.want(r.get(url), 200, nil, 0)
				r.want(r.get(url), 200, nil, 0)
				if got := conns(); got != 2 {
					t.Errorf("connections = %d, want another one after the reload", got)
				}
				during("deny: [127.0.0.0/8], ")
				got := r.get(url)
				r.want(got, 403, nil, 0)
				r.wantHeader(got, "X-Retry-Reason", "destination_denied")
				if got := conns(); got != 2 {
					t.Errorf("connections = %d, want none for a destination that is denied", got)
				}
			}, trusting(ca)...)
		})
	}
}

// slowly is an upstream that takes half a second for each answer; conns is how
// many connections were made to it.
func (r *rig) slowly(proto string, ca *authority) (url string, conns func() int) {
	r.t.Helper()
	const takes = 500 * time.Millisecond
	if proto == "h2" {
		u := r.upstreamH2("u1.test:443", ca.certificate("u1.test"), nil, func(c *h2conn, _ int, s h2stream) {
			time.Sleep(takes)
			c.answer(s.ID, 200, "ok")
		})
		return "https://u1.test/x", u.connections
	}
	u := r.upstream("u1.test:80", after(takes, answer(200, "ok")))
	return "http://u1.test/x", u.connections
}
