package main

import (
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// once makes one attempt per call, as the breaker cases want it.
var once = []string{"max_retries: 3", "max_retries: 0"}

// failFast is once with calls that do not wait for an open breaker.
var failFast = []string{"max_retries: 3", "max_retries: 0, on_open: fail"}

// byPath answers by the path of the request.
func byPath(steps map[string]step) step {
	return func(s *scripted, c net.Conn, req *request) bool {
		_, rest, _ := strings.Cut(req.Line, " ")
		target, _, _ := strings.Cut(rest, " ")
		target, _, _ = strings.Cut(target, "?")
		do := steps[target]
		if do == nil {
			do = answer(404, "no such path "+target)
		}
		return do(s, c, req)
	}
}

// states are the changes of host breakers as logged.
func (r *rig) states() (out []string) {
	r.t.Helper()
	for _, line := range r.logged("breaker") {
		if line["scope"] == "host" {
			out = append(out, line["from"].(string)+" "+line["to"].(string))
		}
	}
	return out
}

func TestCase_CB_01_HalfOpenLetsOneThrough(t *testing.T) {
	bubble(t, func(r *rig) {
		fail := answer(503, "")
		u := r.upstream("u1.test:80", fail, fail, fail, fail, fail, after(500*time.Millisecond, answer(200, "ok")))
		for range 5 {
			r.get("http://u1.test/x")
		}
		if got := r.gate("u1.test:80").Breaker.State.String(); got != "open" {
			t.Errorf("breaker after 5 failures = %s, want open", got)
		}
		r.wantMetric(2, "breaker_state", "scope=host", "host=u1.test:80")
		time.Sleep(2 * time.Second)
		start := time.Now()
		all := r.together(100, func(int) reply { return r.get("http://u1.test/x") })
		if got := statuses(all); got[200] != 1 || got[503] != 99 {
			t.Errorf("answers = %v, want 1 x 200 and 99 x 503", got)
		}
		for i := range all {
			if all[i].Status == 503 && (all[i].Took > 0 || all[i].Header.Get("Retry-After") == "" || all[i].Header.Get("X-Retry-Reason") != "breaker_open") {
				t.Errorf("503 after %v with %v, want at once, breaker_open with Retry-After", all[i].Took, all[i].Header)
			}
		}
		if got := u.within(start, 0, 500*time.Millisecond); got != 1 {
			t.Errorf("probes = %d, want 1", got)
		}
		if got, want := strings.Join(r.states(), ", "), "closed open, open half_open, half_open closed"; got != want {
			t.Errorf("states = %s, want %s", got, want)
		}
	}, failFast...)
}

// By default the 99 wait in line behind the probe and succeed.
func TestCase_CB_01_WaitersSucceed(t *testing.T) {
	bubble(t, func(r *rig) {
		fail := answer(503, "")
		u := r.upstream("u1.test:80", fail, fail, fail, fail, fail, after(500*time.Millisecond, answer(200, "ok")))
		for range 5 {
			r.get("http://u1.test/x")
		}
		time.Sleep(2 * time.Second)
		start := time.Now()
		all := r.together(100, func(int) reply { return r.get("http://u1.test/x") })
		if got := statuses(all); got[200] != 100 {
			t.Errorf("answers = %v, want 100 x 200", got)
		}
		if got := u.within(start, 0, 500*time.Millisecond); got != 1 {
			t.Errorf("probes = %d, want 1", got)
		}
		r.want(all[0], 200, u, 105)
	}, once...)
}

func TestCase_CB_03_ClientsThatHangUp(t *testing.T) {
	bubble(t, func(r *rig) {
		u := r.upstream("u1.test:80", after(600*time.Millisecond, answer(200, "ok")))
		r.together(30, func(int) reply {
			c := r.dial()
			defer c.Close()
			c.Write([]byte(rawRequest("GET", "http://u1.test/x", "")))
			time.Sleep(100 * time.Millisecond)
			return reply{}
		})
		r.want(r.get("http://u1.test/x"), 200, u, 31)
		r.wantMetric(30, "calls_total", "result=cancelled")
		r.wantMetric(0, "calls_total", "result=failed")
		r.wantMetric(30, "attempts_total", "reason=cancelled")
		b := r.gate("u1.test:80").Breaker
		if b.State.String() != "closed" || b.Failures != 0 {
			t.Errorf("breaker = %s with %d failures, want closed with none", b.State, b.Failures)
		}
		for _, line := range r.logged("call")[:30] {
			if line["result"] != "cancelled" || line["reason"] != "client_gone" || line["status"] != 499.0 {
				t.Errorf("logged %v, want a cancelled call", line)
			}
		}
	}, once...)
}

func TestCase_CB_04_ClientErrorsDoNotOpen(t *testing.T) {
	bubble(t, func(r *rig) {
		codes := []int{400, 401, 403, 404, 409, 410, 422}
		u := r.upstream("u1.test:80", func(s *scripted, c net.Conn, req *request) bool {
			if req.N > 50 {
				return answer(200, "ok")(s, c, req)
			}
			return answer(codes[req.N%len(codes)], "")(s, c, req)
		})
		for n := 1; n <= 50; n++ {
			r.want(r.get("http://u1.test/x"), codes[n%len(codes)], u, n)
		}
		r.want(r.get("http://u1.test/x"), 200, u, 51)
		b := r.gate("u1.test:80").Breaker
		if b.State.String() != "closed" || b.Failures != 0 || b.Row != 0 {
			t.Errorf("breaker = %+v, want closed without failures", b)
		}
	}, once...)
}

// The contract: the pause that a 429 asks for holds the shop's retries back; its
// fresh calls go on, and other shops are not touched.
func TestCase_CB_06_ThrottleIsForTheShop(t *testing.T) {
	for _, retries := range []string{"max_retries: 0", "max_retries: 3"} {
		t.Run(retries, func(t *testing.T) {
			bubble(t, func(r *rig) {
				u := r.upstream("u1.test:80", byPath(map[string]step{"/a": answer(429, "", "Retry-After: 1"), "/b": answer(200, "ok")}))
				a := r.async(func() reply {
					var got reply
					for range 10 {
						got = r.get("http://u1.test/a", "X-Shop-Id: A")
					}
					return got
				})
				synctest.Wait()
				b := r.get("http://u1.test/b", "X-Shop-Id: B")
				if b.Status != 200 || b.Took != 0 {
					t.Errorf("B got %d after %v, want 200 at once", b.Status, b.Took)
				}
				if got := <-a; got.Status != 429 {
					t.Errorf("A got %d, want 429", got.Status)
				}
				if got := r.gate("u1.test:80").Breaker.State.String(); got != "closed" {
					t.Errorf("breaker = %s, want closed", got)
				}
				perCall := map[string]int{"max_retries: 0": 1, "max_retries: 3": 4}[retries]
				if got := u.count(); got != 10*perCall+1 {
					t.Errorf("requests at the upstream = %d, want %d", got, 10*perCall+1)
				}
				for i, gap := range u.gaps() {
					if q := u.seen()[i+1]; q.Header.Get("X-Retry-Count") != "" && gap < time.Second {
						t.Errorf("retry after %v, want at least the second that A was told to wait", gap)
					}
				}
			}, "max_retries: 3", retries)
		})
	}
}

func TestCase_CB_08_LateResultsAreIgnored(t *testing.T) {
	bubble(t, func(r *rig) {
		u := r.upstream("u1.test:80", byPath(map[string]step{
			"/slow": after(2500*time.Millisecond, answer(503, "")), "/fast": answer(503, ""),
			"/probe": after(time.Second, answer(200, "ok")),
		}))
		start := time.Now()
		var slow sync.WaitGroup
		for range 20 {
			slow.Go(func() { r.get("http://u1.test/slow") })
		}
		synctest.Wait()
		for range 5 {
			r.get("http://u1.test/fast")
		}
		time.Sleep(2100 * time.Millisecond)
		probe := r.async(func() reply { return r.get("http://u1.test/probe") })
		rest(500 * time.Millisecond) // +2.6 s: the slow ones are in
		if got := r.gate("u1.test:80").Breaker.State.String(); got != "half_open" {
			t.Errorf("breaker after the late results = %s, want half_open", got)
		}
		got := <-probe
		r.want(got, 200, u, 26)
		r.between("the probe's answer", time.Since(start), 3100*time.Millisecond, 3100*time.Millisecond)
		slow.Wait()
		events := r.logged("breaker")
		if got := strings.Join(r.states(), ", "); got != "closed open, open half_open, half_open closed" {
			t.Errorf("states = %s", got)
		} else if at := events[2]["time"].(string); !strings.HasPrefix(at, "2000-01-01T00:00:03.1") {
			t.Errorf("closed at %s, want +3.1 s", at)
		}
	}, "max_retries: 3", "max_retries: 0, on_open: fail", "per_try_timeout: 1s", "per_try_timeout: 5s")
}

func TestCase_CB_09_WaitingIsNoAttempt(t *testing.T) {
	bubble(t, func(r *rig) {
		fail := answer(503, "")
		u := r.upstream("u1.test:80", fail, fail, fail, fail, fail, answer(200, "ok"))
		all := r.together(5, func(int) reply { return r.get("http://u1.test/x", "X-Retry-Count: 3") }) // no retries left
		if got := statuses(all); got[503] != 5 || u.count() != 5 {
			t.Fatalf("answers = %v after %d requests, want 5 failures", got, u.count())
		}
		waiting := r.async(func() reply { return r.post("http://u1.test/x", "{}", keyed) })
		rest(time.Second)
		var calls []struct {
			State, Cause string
			Place        int
			NextAt       time.Time `json:"next_at"`
		}
		r.admin("GET", "/api/v1/calls?state=waiting", "", &calls)
		if len(calls) != 1 || calls[0].Cause != "breaker" || calls[0].Place != 1 || !calls[0].NextAt.Equal(time.Now().Add(time.Second)) {
			t.Errorf("waiting calls = %+v, want one behind the breaker, for another second", calls)
		}
		r.wantMetric(1, "waiting", "cause=breaker")
		r.wantMetric(1, "outage", "host=u1.test:80")
		r.wantMetric(1, "line", "host=u1.test:80", "lane=backlog") // it has waited for a second
		r.wantMetric(1, "line_longest_seconds", "host=u1.test:80")
		r.wantMetric(0, "capacity", "host=u1.test:80")
		r.wantMetric(64, "limit", "host=u1.test:80")
		r.wantMetric(0, "shed_total")
		got := <-waiting
		r.want(got, 200, u, 6)
		r.between("answered after", got.Took, 2*time.Second, 2*time.Second)
		if count := u.seen()[5].Header.Get("X-Retry-Count"); count != "" {
			t.Errorf("X-Retry-Count upstream = %s, want none", count)
		}
		r.wantEnd("success", "ok", 1)
		r.wantMetric(1, "retry_wait_seconds", "cause=breaker")
		r.wantMetric(0, "retries_total")
	})
}

// A breaker whose time does not fit into the call's is answered at once.
func TestCase_CB_09_NoTimeToWait(t *testing.T) {
	bubble(t, func(r *rig) {
		u := r.upstream("u1.test:80", answer(503, ""))
		for range 5 {
			r.get("http://u1.test/x", "X-Retry-Count: 3")
		}
		got := r.post("http://u1.test/x", "{}", keyed, "X-Request-Timeout: 1.5")
		r.want(got, 503, u, 5)
		r.wantHeader(got, "X-Retry-Reason", "breaker_open")
		r.wantHeader(got, "X-Retry-Executed", "no")
		r.wantHeader(got, "X-Retry-Advice", "repeat")
		r.wantHeader(got, "Retry-After", strconv.Itoa(2))
		r.between("answered after", got.Took, 0, 0)
		r.wantMetric(1, "shed_total", "reason=breaker_open")
		r.wantEnd("failed", "breaker_open", 0)
	})
}
