package main

import (
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"
)

// retriesSeen counts the requests on the wire that were no first attempts.
func (s *scripted) retriesSeen() (n int) {
	for _, q := range s.seen() {
		if q.Header.Get("X-Retry-Count") != "" {
			n++
		}
	}
	return n
}

// The contract: who waits for a token holds a place and a date, and one whose
// date does not fit the deadline ends at once with its answer.
func TestCase_SF_01_EmptyBucketDoesNotSpin(t *testing.T) {
	bubble(t, func(r *rig) {
		u := r.upstream("u1.test:80", answer(503, "busy"))
		start := time.Now()
		var mu sync.Mutex
		var all []reply
		var group sync.WaitGroup
		for i := range 1000 {
			group.Go(func() {
				got := r.post("http://u1.test/x", "{}", fmt.Sprintf("X-Idempotency-Key: k%d", i))
				mu.Lock()
				defer mu.Unlock()
				all = append(all, got)
			})
		}
		rest(10 * time.Second)
		mu.Lock()
		refused := len(all)
		for i := range all {
			h := all[i].Header
			if all[i].Status != 503 || h.Get("X-Retry-Reason") != "retry_limited" && h.Get("X-Retry-Reason") != "attempts_exhausted" {
				t.Errorf("answer = %d %v", all[i].Status, h)
			}
		}
		mu.Unlock()
		if first, again := u.count()-u.retriesSeen(), u.retriesSeen(); first != 1000 || again < 11 || again > 12 {
			t.Errorf("requests = %d first ones and %d retries, want 1000 and 12 at most in 10 s", first, again)
		}
		if refused < 920 {
			t.Errorf("answers by now = %d, want those at once for which there is no token within 60 s", refused)
		}
		r.lookAtLine(1000-refused, start.Add(60*time.Second))
		group.Wait()
		if got := u.retriesSeen(); got > 2+60 {
			t.Errorf("retries in 60 s = %d, want at most 62", got)
		}
		r.wantMetric(float64(u.count()), "attempts_total")
		r.wantMetric(float64(u.retriesSeen()), "retries_total")
	}, "global: off", "global: {rate: 1/s, burst: 2, share: 0}", "deadline: 6s", "deadline: 60s",
		breakerOff[0], breakerOff[1])
}

// lookAtLine checks that each waiting call shows what for, its place and its date.
func (r *rig) lookAtLine(waiting int, deadline time.Time) {
	r.t.Helper()
	var calls []struct {
		Cause, Reason string
		Place         int
		NextAt        *time.Time `json:"next_at"`
	}
	r.admin("GET", "/api/v1/calls?state=waiting&limit=1000", "", &calls)
	if len(calls) != waiting {
		r.t.Errorf("waiting calls = %d, want %d", len(calls), waiting)
	}
	places := map[int]bool{}
	for _, c := range calls {
		places[c.Place] = true
		if c.Cause != "tokens" || c.Reason != "global" || c.NextAt == nil || c.NextAt.After(deadline) || c.NextAt.Before(time.Now()) {
			r.t.Errorf("a waiting call shows %+v, want tokens of the global bucket and a date within its deadline", c)
		}
	}
	if len(places) != waiting {
		r.t.Errorf("places = %d different ones, want %d", len(places), waiting)
	}
}

func TestCase_SF_05_BucketHoldsUnderContention(t *testing.T) {
	bubble(t, func(r *rig) {
		u := r.upstream("u1.test:80", answer(503, ""))
		start := time.Now()
		var group sync.WaitGroup
		for range 64 {
			group.Go(func() {
				for time.Since(start) < 10*time.Second {
					if got := r.get("http://u1.test/x"); got.Status != 503 {
						t.Errorf("status = %d, want 503: %v %s", got.Status, got.Header, got.Body)
					}
					time.Sleep(40 * time.Millisecond)
				}
			})
		}
		rest(10 * time.Second)
		if got := u.retriesSeen(); got > 5+100 || got < 100 {
			t.Errorf("retries in 10 s = %d, want burst + 10 x rate = 105 at most, and nearly that", got)
		}
		group.Wait()
		r.wantMetric(float64(u.retriesSeen()), "retries_total")
		r.wantMetric(float64(u.count()), "attempts_total")
	}, "global: off", "global: {rate: 10/s, burst: 5, share: 0}", "base_delay: 100ms", "base_delay: 1ms",
		breakerOff[0], breakerOff[1])
}

func TestCase_SF_06_RateZeroMeansNone(t *testing.T) {
	for _, tt := range []struct {
		name, limit string
		requests    int
	}{
		{"plain 0", "0", 10},
		{"rate 0, burst 0", "{rate: 0/s, burst: 0, share: 0}", 10},
		{"rate 0, burst 1", "{rate: 0/s, burst: 1, share: 0}", 11},
	} {
		t.Run(tt.name, func(t *testing.T) {
			bubble(t, func(r *rig) {
				u := r.upstream("u1.test:80", answer(503, "busy"))
				var got reply
				for range 10 {
					got = r.get("http://u1.test/x")
				}
				r.want(got, 503, u, tt.requests)
				r.wantHeader(got, "X-Retry-Reason", "retry_limited")
				r.wantHeader(got, "Retry-After", "") // there is no time at which it would go
				if !strings.Contains(got.Header.Get("Proxy-Status"), `"retry_limited`) {
					t.Errorf("Proxy-Status = %q, want retry_limited", got.Header.Get("Proxy-Status"))
				}
				r.wantMetric(10, "retries_denied_total", "dimension=global")
				r.wantMetric(float64(tt.requests-10), "retries_total")
			}, "global: off", "global: "+tt.limit, breakerOff[0], breakerOff[1])
		})
	}
}

// outage answers 503 after 20 ms between 5 s and 25 s of the run.
func outage(start time.Time) step {
	return func(s *scripted, c net.Conn, req *request) bool {
		if at := req.At.Sub(start); at < 5*time.Second || at >= 25*time.Second {
			return answer(200, "ok")(s, c, req)
		}
		return after(20*time.Millisecond, answer(503, "down"))(s, c, req)
	}
}

// The breaker and the tokens hold an outage; lanes and ramp come on top. With
// on_open: wait the calls held back follow the first success at once, so the
// bound of 60 a second is that of on_open: fail.
func TestCase_SF_08_AmplificationStaysNearOne(t *testing.T) {
	for _, onOpen := range []string{"wait", "fail"} {
		t.Run(onOpen, func(t *testing.T) {
			bubble(t, func(r *rig) {
				start := time.Now()
				u := r.upstream("u1.test:80", outage(start))
				var group sync.WaitGroup
				var mu sync.Mutex
				var failed []time.Duration // when calls outside the outage began that failed
				recovered := time.Hour
				for i := range 1500 {
					group.Go(func() {
						began := time.Duration(i) * 20 * time.Millisecond
						time.Sleep(began)
						got := r.get("http://u1.test/x")
						mu.Lock()
						defer mu.Unlock()
						if got.Status != 200 && (began < 4*time.Second || began > 28*time.Second) {
							failed = append(failed, began)
						}
						if at := time.Since(start); got.Status == 200 && at >= 25*time.Second {
							recovered = min(recovered, at-25*time.Second)
						}
					})
				}
				group.Wait()
				if len(failed) > 0 {
					t.Errorf("calls failed outside the outage, at %v", failed)
				}
				if n := u.count(); n > 1650 {
					t.Errorf("requests at the upstream = %d, want at most 1.1 x 1500", n)
				}
				if recovered > 3*time.Second {
					t.Errorf("first success %v after the recovery, want 3 s at most", recovered)
				}
				for at := time.Duration(0); onOpen == "fail" && at < 30*time.Second; at += time.Second {
					if n := u.within(start, at, at+time.Second); n > 60 {
						t.Errorf("requests in the second from %v = %d, want 60 at most", at, n)
					}
				}
				r.wantMetric(float64(u.count()), "attempts_total")
			}, "global: off", "global: {rate: 0/s, burst: 5, share: 0.1}", "connect_timeout: 1s", "connect_timeout: 1s, on_open: "+onOpen)
		})
	}
}
