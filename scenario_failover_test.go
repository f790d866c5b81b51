package main

import (
	"strings"
	"testing"
	"time"
)

// two is a route to two upstreams, the first of which is asked first.
func two(first, second string) []string {
	return lays("routes: [{name: p, prefix: /p, upstreams: ['http://" + first + "', 'http://" + second + "']}]")
}

// along sends a request down that route.
func (r *rig) along(method, body string, headers ...string) reply {
	r.t.Helper()
	return r.origin(method, "localhost", "/p/x", body, headers...)
}

// wantWay checks which upstreams the last call asked, in order.
func (r *rig) wantWay(hosts ...string) {
	r.t.Helper()
	var got []string
	for _, a := range r.last().Attempts {
		got = append(got, strings.TrimSuffix(a.Host, ":80"))
	}
	if strings.Join(got, " ") != strings.Join(hosts, " ") {
		r.t.Errorf("the call asked %v, want %v", got, hosts)
	}
}

// Which upstream a call ends at is known only when it is there: on a route that
// has a platform among its upstreams no header of ours goes anywhere, and a key
// makes nothing safe, whichever of them answers.
func TestRouteWithAPlatform(t *testing.T) {
	for _, tt := range []struct {
		name, first, second string
		down                bool // the first
		way                 []string
	}{
		{"own first", "own.test", platform, false, []string{"own.test"}},
		{"own first, down", "own.test", platform, true, []string{"own.test", platform}},
		{"platform first", platform, "own.test", false, []string{platform}},
		{"platform first, down", platform, "own.test", true, []string{platform, "own.test"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			bubble(t, func(r *rig) {
				u := r.upstream(tt.first+":80", answer(502, "who knows"), answer(200, "a second order"))
				if tt.down {
					u.l.Close()
					u = r.upstream(tt.second+":80", answer(502, "who knows"), answer(200, "a second order"))
				}
				got := r.along("POST", "{}", keyed, "X-Retry-Count: 1", "X-Shop-Tier: vip", "X-Task-Type: order", "X-Request-Timeout: 5")
				r.want(got, 502, u, 1)
				r.wantBody(got, "who knows")
				r.wantHeader(got, "X-Retry-Reason", "manual_review")
				r.wantWay(tt.way...)
				for name := range u.seen()[0].Header {
					if strings.HasPrefix(name, "X-") || name == "Via" {
						t.Errorf("the upstream got %s", name)
					}
				}
				again := r.along("POST", "{}", keyed)
				r.want(again, 409, u, 1)
				r.wantHeader(again, "X-Retry-Reason", "in_doubt")
			}, two(tt.first, tt.second)...)
		})
	}
}

// While the breaker of the first upstream is open, fresh calls go to the second
// at once, whatever on_open says. One call tries the first when its probe is
// due, and all come back once it answers.
func TestRouteWhoseFirstUpstreamIsDown(t *testing.T) {
	for _, rule := range []string{"wait", "fail"} {
		t.Run(rule, func(t *testing.T) {
			bubble(t, func(r *rig) {
				u1 := r.closed("u1.test:80", answer(200, "one"))
				r.upstream("u2.test:80", answer(200, "two"))
				call := func(took time.Duration, way ...string) {
					t.Helper()
					got := r.along("POST", "{}")
					r.want(got, 200, nil, 0)
					r.between("the call", got.Took, took, took)
					r.wantWay(way...)
				}
				for range 5 {
					call(100*time.Millisecond, "u1.test", "u2.test")
				}
				all := r.together(20, func(int) reply { return r.along("POST", "{}") })
				for _, got := range all {
					if got.Status != 200 || got.Took > 0 || got.Header.Get("X-Retry-Count") != "0" {
						t.Errorf("answer = %d after %v, retry %s; want the second's at once", got.Status, got.Took, got.Header.Get("X-Retry-Count"))
					}
				}
				r.wantWay("u2.test")
				rest(2 * time.Second)
				call(100*time.Millisecond, "u1.test", "u2.test") // the probe
				call(0, "u2.test")
				u1.openAfter(0)
				rest(2 * time.Second)
				call(0, "u1.test")
				call(0, "u1.test")
			}, patches(two("u1.test", "u2.test"), with("jitter: none, on_open: "+rule))...)
		})
	}
}

// A call that may have been executed stays with its upstream, in its retries as
// in its repeats: another one knows nothing of the key. It waits for the breaker
// there while others pass.
func TestCallThatMayHaveBeenExecutedStays(t *testing.T) {
	bubble(t, func(r *rig) {
		u1 := r.upstream("u1.test:80", hangUp, hangUp, hangUp, hangUp, hangUp, answer(201, "made"))
		u2 := r.upstream("u2.test:80", answer(200, "two"))
		for range 4 {
			r.want(r.along("GET", "", "X-Retry-Count: 3"), 502, nil, 0)
		}
		order := r.async(func() reply { return r.along("POST", "{}", keyed) }) // the fifth failure cuts u1 off
		rest(time.Second)
		other := r.along("POST", "{}")
		r.want(other, 200, u2, 1)
		r.between("the other", other.Took, 0, 0)
		got := <-order
		r.want(got, 201, u1, 6)
		r.between("the order", got.Took, 2*time.Second, 2*time.Second)
		r.wantWay("u1.test", "u1.test")
		r.want(reply{}, 0, u2, 1)
	}, patches(two("u1.test", "u2.test"), plain)...)
}

func TestRepeatOfACallThatMayHaveBeenExecutedStays(t *testing.T) {
	bubble(t, func(r *rig) {
		u1 := r.upstream("u1.test:80", hangUp)
		u2 := r.upstream("u2.test:80", answer(200, "two"))
		r.want(r.along("POST", "{}", keyed, "X-Retry-Count: 3"), 502, u1, 1)
		for range 4 {
			r.along("GET", "", "X-Retry-Count: 3")
		}
		got := r.along("POST", "{}", keyed)
		r.want(got, 503, u1, 5)
		r.want(reply{}, 0, u2, 0)
		r.wantHeader(got, "X-Retry-Reason", "breaker_open")
		r.wantHeader(got, "X-Retry-Executed", "maybe")
		r.wantHeader(got, "X-Retry-Advice", "check")
		r.wantHeader(got, "Retry-After", "")
	}, patches(two("u1.test", "u2.test"), with("on_open: fail"))...)
}

// One that was surely not executed goes on to the second when the first is cut
// off by then.
func TestCallThatWasRefusedGoesOn(t *testing.T) {
	bubble(t, func(r *rig) {
		u1 := r.upstream("u1.test:80", answer(503, "busy"))
		u2 := r.upstream("u2.test:80", answer(200, "two"))
		for range 4 {
			r.want(r.along("GET", "", "X-Retry-Count: 3"), 503, nil, 0)
		}
		got := r.along("POST", "{}")
		r.want(got, 200, u2, 1)
		r.between("the call", got.Took, 100*time.Millisecond, 100*time.Millisecond)
		r.wantWay("u1.test", "u2.test")
		r.want(reply{}, 0, u1, 5)
	}, patches(two("u1.test", "u2.test"), plain)...)
}
