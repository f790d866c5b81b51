package main

import (
	"net/url"
	"strings"
	"testing"
	"time"
)

const (
	exitA = "proxy-a (10.0.0.1:3128)"
	exitB = "proxy-b (10.0.0.2:1080)"
)

// cutOff makes the breaker of proxy-a open: its first five ways fail.
func (r *rig) cutOff() {
	r.t.Helper()
	for range 5 {
		r.get("http://u1.test/", shop("s1"), "X-Retry-Count: 3") // one attempt each
	}
	r.wantExit(exitA, "open")
}

// The breaker of an egress holds back the calls that leave by it, and only them,
// until a probe went through.
func TestBreakerOfAnEgress(t *testing.T) {
	egressed(t, twoShops, func(r *rig) {
		u := r.upstream("u1.test:80", whence)
		r.exit("10.0.0.2:1080")
		a := r.exit("10.0.0.1:3128", func(e *exit) {
			e.config.Answer = func(string, string) (int, bool) { return 407, len(e.record.Calls()) <= 5 }
		})
		for range 4 {
			r.get("http://u1.test/", shop("s1"), "X-Retry-Count: 3")
			r.wantExit(exitA, "closed")
		}
		r.get("http://u1.test/", shop("s1"), "X-Retry-Count: 3")
		r.wantExit(exitA, "open")
		opened := time.Now()
		if e := r.exits()[exitA]; !e.Until.Equal(opened.Add(2*time.Second)) || e.Reason == "" {
			t.Errorf("breaker = %+v, want the next probe in 2 s and why", e)
		}
		r.wantMetric(2, "breaker_state", "scope=egress", "host=proxy-a")
		waiting := r.async(func() reply { return r.post("http://u1.test/", "{}", shop("s1")) })
		rest(500 * time.Millisecond)
		all := r.shown()
		var held *shownCall
		for i := range all {
			if all[i].State == "waiting" {
				held = &all[i]
			}
		}
		if held == nil || held.Cause != "egress" || held.NextAt == nil || !held.NextAt.Equal(opened.Add(2*time.Second)) || len(held.Attempts) > 0 {
			t.Errorf("calls = %+v, want one that waits for the egress until the probe", all)
		}
		r.wantMetric(1, "waiting", "cause=egress")

		// Others go on at once, to the same host.
		began := time.Now()
		r.wantBody(r.get("http://u1.test/", shop("s2")), "10.0.0.2")
		r.wantBody(r.get("http://u1.test/"), ourselves)
		r.between("time of calls by other ways", time.Since(began), 0, 0)

		got := <-waiting
		r.want(got, 200, u, 3)
		r.between("time until the probe", got.Took, 2*time.Second, 2*time.Second)
		r.wantAsked(a, 6)
		r.wantExit(exitA, "closed")
		r.wantMetric(0, "breaker_state", "scope=egress", "host=proxy-a")
		r.wantEnd("success", "ok", 1)
		if g := r.gate("u1.test:80"); g.Breaker.State.String() != "closed" || g.Breaker.Failures > 0 {
			t.Errorf("breaker of the host = %+v, want it untouched", g.Breaker)
		}
		var states []string
		for _, line := range r.logged("breaker") {
			if line["scope"] != "egress" || line["host"] != exitA {
				t.Errorf("logged %v, want only events of %s", line, exitA)
			}
			states = append(states, line["to"].(string))
		}
		if got := strings.Join(states, " "); got != "open half_open closed" {
			t.Errorf("logged changes = %s, want open half_open closed", got)
		}
	})
}

// Without the room to wait the answer names the egress at once.
func TestBreakerOfAnEgressWithoutRoom(t *testing.T) {
	for name, tt := range map[string]struct {
		patch  []string
		header string
	}{
		"on_open: fail":      {[]string{"max_retries: 3,", "max_retries: 3, on_open: fail,"}, "X-A: b"},
		"too short a call":   {nil, "X-Request-Timeout: 1"},
		"too short max_wait": {[]string{"max_in_flight: 100", "max_in_flight: 100, max_wait: 1s"}, "X-A: b"},
	} {
		t.Run(name, func(t *testing.T) {
			egressed(t, twoShops, func(r *rig) {
				u := r.upstream("u1.test:80", whence)
				a := r.exit("10.0.0.1:3128", answers(1, 407))
				r.cutOff()
				for _, method := range []string{"GET", "POST"} {
					got := r.do(method, "http://u1.test/", "", shop("s1"), tt.header)
					r.want(got, 503, u, 0)
					r.between("time of the answer", got.Took, 0, 0)
					r.wantHeader(got, "X-Retry-Reason", "breaker_open")
					r.wantHeader(got, "X-Retry-Executed", "no")
					r.wantHeader(got, "X-Retry-Advice", "repeat")
					r.wantHeader(got, "Retry-After", "2")
					if !strings.Contains(got.Body, "the egress proxy "+exitA+" is cut off") {
						t.Errorf("the answer is %s, want the egress named", got.Body)
					}
				}
				c, _, got := r.connect("u1.test:443", shop("s1"), tt.header)
				c.Close()
				r.want(got, 503, nil, 0)
				r.wantAsked(a, 5)
				r.want(r.get("http://u1.test/", tt.header), 200, u, 1)
			}, tt.patch)
		})
	}
}

// A retry that meets the open breaker of its egress waits for it as well, without
// spending attempts.
func TestRetriesWaitForTheEgress(t *testing.T) {
	egressed(t, twoShops, func(r *rig) {
		u := r.upstream("u1.test:80", whence)
		a := r.exit("10.0.0.1:3128", func(e *exit) {
			e.config.Answer = func(string, string) (int, bool) { return 407, len(e.record.Calls()) <= 2 }
		})
		got := r.post("http://u1.test/", "{}", shop("s1"))
		r.want(got, 200, u, 1)
		r.wantAsked(a, 3)
		// The second failure opens the breaker, at 100 ms; the probe goes 2 s later.
		r.between("time of the call", got.Took, 2100*time.Millisecond, 2100*time.Millisecond)
	}, []string{"max_retries: 3,", "max_retries: 3, jitter: none,", "consecutive_failures: 5", "consecutive_failures: 2"})
}

// A retry that its egress turns away is not shed: it had its attempt.
func TestRetryRefusedByTheEgressIsNotShed(t *testing.T) {
	egressed(t, twoShops, func(r *rig) {
		u := r.upstream("u1.test:80", whence)
		a := r.exit("10.0.0.1:3128", answers(1, 407))
		got := r.post("http://u1.test/", "{}", shop("s1"))
		r.want(got, 503, u, 0)
		r.wantHeader(got, "X-Retry-Reason", "breaker_open")
		r.wantAsked(a, 1)
		r.wantMetric(0, "shed_total")
	}, []string{"max_retries: 3,", "max_retries: 3, on_open: fail,", "consecutive_failures: 5", "consecutive_failures: 1"})
}

// A hundred calls that wait for an egress do not storm it when it comes back.
func TestNoStormAtAnEgress(t *testing.T) {
	for name, down := range map[string]time.Duration{"back at the first probe": time.Second, "back after three probes": 7 * time.Second} {
		t.Run(name, func(t *testing.T) {
			egressed(t, twoShops, func(r *rig) {
				u := r.upstream("u1.test:80", after(50*time.Millisecond, whence))
				start := time.Now()
				a := r.exit("10.0.0.1:3128", func(e *exit) {
					e.config.Answer = func(string, string) (int, bool) { return 407, time.Since(start) < down }
				})
				r.cutOff()
				all := r.together(100, func(int) reply { return r.post("http://u1.test/", "{}", shop("s1")) })
				if n := statuses(all); n[200] != 100 {
					t.Errorf("answers = %v, want 100 times 200", n)
				}
				r.want(reply{}, 0, u, 100)
				// Five to open it, the probes that failed, and one way for each call at most.
				if n := a.asked(); n > 5+3+100 {
					t.Errorf("the egress was asked %d times, want no storm", n)
				}
				failed := 0
				for _, c := range r.ended() {
					for i := range c.Attempts {
						if c.Attempts[i].Verdict.EgressFault {
							failed++
						}
					}
				}
				if failed > 5+3 {
					t.Errorf("ways that failed = %d, want five and a probe each two seconds", failed)
				}
				r.wantExit(exitA, "closed")
			}, []string{"deadline: 6s", "deadline: 60s"})
		})
	}
}

// Waiting for an egress costs no work: the breaker is asked once for each date.
func TestWaitingForAnEgressIsNoBusyLoop(t *testing.T) {
	egressed(t, twoShops, func(r *rig) {
		r.upstream("u1.test:80", whence)
		a := r.exit("10.0.0.1:3128", answers(1, 407))
		r.cutOff()
		got := r.together(50, func(int) reply {
			return r.get("http://u1.test/", shop("s1"), "X-Retry-Count: 3", "X-Request-Timeout: 20")
		})
		for _, g := range got {
			if g.Status != 502 && g.Status != 503 {
				t.Errorf("answer = %d %s, want 502 or 503", g.Status, g.Body)
			}
		}
		if n := a.asked(); n > 5+10 {
			t.Errorf("the egress was asked %d times in 20 s, want one probe each two seconds", n)
		}
	}, []string{"deadline: 6s", "deadline: 60s"})
}

// A probe that says nothing counts as failed, and the next one goes.
func TestSilentProbeOfAnEgress(t *testing.T) {
	egressed(t, twoShops, func(r *rig) {
		u := r.upstream("u1.test:80", whence)
		r.exit("10.0.0.1:3128", func(e *exit) {
			e.config.Answer = func(string, string) (int, bool) {
				switch n := len(e.record.Calls()); {
				case n <= 5:
					return 407, true
				case n == 6:
					return -2, true // silent
				}
				return 0, false
			}
		})
		r.cutOff()
		got := r.get("http://u1.test/", shop("s1"))
		r.want(got, 200, u, 1)
		r.wantVerdict(1, "transient", "egress_timeout")
		r.wantExit(exitA, "closed")
	}, []string{"deadline: 6s", "deadline: 60s"})
}

// A client that leaves while its call is the probe gives the permission back.
func TestProbeOfAnEgressWhoseClientLeaves(t *testing.T) {
	egressed(t, twoShops, func(r *rig) {
		u := r.upstream("u1.test:80", whence)
		r.exit("10.0.0.1:3128", func(e *exit) {
			e.config.Answer = func(string, string) (int, bool) {
				switch n := len(e.record.Calls()); {
				case n <= 5:
					return 407, true
				case n == 6:
					return -2, true
				}
				return 0, false
			}
		})
		r.cutOff()
		rest(2 * time.Second)
		c := r.dial()
		c.Write([]byte(rawRequest("GET", "http://u1.test/", "", shop("s1"))))
		rest(100 * time.Millisecond)
		c.Close()
		rest(0)
		got := r.get("http://u1.test/", shop("s1"))
		r.want(got, 200, u, 1)
		r.between("time of the next call", got.Took, 0, 0)
		r.wantExit(exitA, "closed")
	})
}

// An operator closes the breaker of an egress by its escaped name.
func TestAdminResetsTheBreakerOfAnEgress(t *testing.T) {
	egressed(t, twoShops, func(r *rig) {
		u := r.upstream("u1.test:80", whence)
		a := r.exit("10.0.0.1:3128", answers(1, 407))
		r.cutOff()
		a.down()
		a.config.Answer = nil
		a.up()
		path := "/api/v1/breakers/" + url.PathEscape("egress:"+exitA) + "/reset"
		if got := r.admin("POST", path, "", nil); got.Status != 200 {
			t.Errorf("POST %s = %d %s", path, got.Status, got.Body)
		}
		r.wantExit(exitA, "closed")
		if got := r.admin("POST", "/api/v1/breakers/"+url.PathEscape("egress:none (1.2.3.4:5)")+"/reset", "", nil); got.Status != 404 {
			t.Errorf("reset of an unknown one = %d %s, want 404", got.Status, got.Body)
		}
		got := r.get("http://u1.test/", shop("s1"))
		r.want(got, 200, u, 1)
		r.between("time of the call", got.Took, 0, 0)
	})
}

// The session users of one proxy have a breaker each: that one account is cut
// off says nothing about the next.
func TestBreakersBelongToAnIdentity(t *testing.T) {
	egressed(t, `egress: [{name: res, match: {shop: "*"}, proxy: "http://user-session-{shop}:pw@10.0.0.1:3128"}]`, func(r *rig) {
		u := r.upstream("u1.test:80", whence)
		r.exit("10.0.0.1:3128", func(e *exit) {
			e.config.Answer = func(string, string) (int, bool) {
				calls := e.record.Calls()
				return 407, calls[len(calls)-1].User == "user-session-s1"
			}
		})
		for range 5 {
			r.get("http://u1.test/", shop("s1"), "X-Retry-Count: 3")
		}
		r.wantExit("res (10.0.0.1:3128, shop s1)", "open")
		began := time.Now()
		r.want(r.get("http://u1.test/", shop("s2")), 200, u, 1)
		r.between("time of another session", time.Since(began), 0, 0)
		r.wantExit("res (10.0.0.1:3128, shop s2)", "closed")
		r.wantMetric(2, "breaker_state", "scope=egress", "host=res") // the worst
	})
}

// A tunnel may be the probe of an egress: that its way stands is all that an
// egress can be asked for.
func TestTunnelIsAProbeOfAnEgress(t *testing.T) {
	egressed(t, twoShops, func(r *rig) {
		r.tunnelEnd("u1.test:443", silentEnd)
		a := r.exit("10.0.0.1:3128", func(e *exit) {
			e.config.Answer = func(string, string) (int, bool) { return 407, len(e.record.Calls()) <= 5 }
		})
		for range 5 {
			c, _, _ := r.connect("u1.test:443", shop("s1"), "X-Request-Timeout: 0.01")
			c.Close()
		}
		r.wantExit(exitA, "open")
		r.wantAsked(a, 5)
		c, _, got := r.connect("u1.test:443", shop("s1"))
		defer c.Close()
		r.want(got, 200, nil, 0)
		r.wantExit(exitA, "closed")
	})
}

// Calls that wait for an egress are let go when we shut down.
func TestShutdownWhileWaitingForAnEgress(t *testing.T) {
	egressed(t, twoShops, func(r *rig) {
		r.upstream("u1.test:80", whence)
		r.exit("10.0.0.1:3128", answers(1, 407))
		r.cutOff()
		waiting := r.async(func() reply { return r.get("http://u1.test/", shop("s1")) })
		rest(100 * time.Millisecond)
		began := time.Now()
		r.stop()
		r.stop = nil
		got := <-waiting
		r.want(got, 503, nil, 0)
		r.wantHeader(got, "X-Retry-Reason", "shutting_down")
		r.wantHeader(got, "X-Retry-Executed", "no")
		r.between("time of the shutdown", time.Since(began), 0, time.Second)
	})
}

// The switch releases calls that wait for an egress to retry.
func TestSwitchReleasesRetriesThatWaitForAnEgress(t *testing.T) {
	egressed(t, twoShops, func(r *rig) {
		r.upstream("u1.test:80", whence)
		r.exit("10.0.0.1:3128", answers(1, 407))
		waiting := r.async(func() reply { return r.get("http://u1.test/", shop("s1")) })
		rest(time.Second) // two attempts, then the breaker opens
		if got := r.admin("PUT", "/api/v1/retries", `{"default":"off"}`, nil); got.Status != 200 {
			t.Fatalf("PUT /api/v1/retries = %d %s", got.Status, got.Body)
		}
		got := <-waiting
		r.want(got, 502, nil, 0)
		r.wantHeader(got, "X-Retry-Reason", "retries_off")
		r.between("time of the call", got.Took, time.Second, time.Second)
	}, []string{"consecutive_failures: 5", "consecutive_failures: 2"})
}

// A client that leaves while it waits takes its call along.
func TestClientLeavesWhileWaitingForAnEgress(t *testing.T) {
	egressed(t, twoShops, func(r *rig) {
		r.upstream("u1.test:80", whence)
		a := r.exit("10.0.0.1:3128", answers(1, 407))
		r.cutOff()
		c := r.dial()
		c.Write([]byte(rawRequest("GET", "http://u1.test/", "", shop("s1"))))
		rest(100 * time.Millisecond)
		r.wantMetric(1, "waiting", "cause=egress")
		c.Close()
		rest(3 * time.Second)
		r.wantMetric(0, "waiting")
		r.wantAsked(a, 5)
		if last := r.last(); last.Reason != "client_gone" {
			t.Errorf("the call ended as %s, want client_gone", last.Reason)
		}
	})
}

// slots.max_wait bounds all waits for an egress together.
func TestMaxWaitCountsAllWaitsForAnEgress(t *testing.T) {
	egressed(t, twoShops, func(r *rig) {
		r.upstream("u1.test:80", whence)
		a := r.exit("10.0.0.1:3128", answers(1, 407))
		r.cutOff()
		all := r.together(5, func(int) reply { return r.get("http://u1.test/", shop("s1"), "X-Retry-Count: 3") })
		if n := statuses(all); n[502] != 1 || n[503] != 4 {
			t.Errorf("answers = %v, want 502 for the probe and 503 for the others", n)
		}
		for _, got := range all {
			r.between("time of a call", got.Took, 2*time.Second, 2*time.Second) // another 2 s would be 4
		}
		r.wantAsked(a, 6)
	}, []string{"max_in_flight: 100", "max_in_flight: 100, max_wait: 3s"}, []string{"deadline: 6s", "deadline: 60s"})
}

// An operator's reset lets go who waits for the egress.
func TestResetOfAnEgressWakesWaitingCalls(t *testing.T) {
	egressed(t, twoShops, func(r *rig) {
		u := r.upstream("u1.test:80", whence)
		a := r.exit("10.0.0.1:3128", answers(1, 407))
		r.cutOff()
		a.down()
		a.config.Answer = nil
		a.up()
		waiting := r.async(func() reply { return r.get("http://u1.test/", shop("s1")) })
		rest(100 * time.Millisecond)
		r.admin("POST", "/api/v1/breakers/"+url.PathEscape("egress:"+exitA)+"/reset", "", nil)
		got := <-waiting
		r.want(got, 200, u, 1)
		r.between("time of the call", got.Took, 100*time.Millisecond, 100*time.Millisecond)
	})
}
