package main

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// outages are the lines of the log about hosts that are cut off, without probes.
func (r *rig) outages() (out []map[string]any) {
	r.t.Helper()
	for _, line := range r.logged("breaker") {
		if line["level"] != "DEBUG" {
			out = append(out, line)
		}
	}
	return out
}

// An outage is one line when it begins and one when it is over, which says how long it
// lasted, how many waited and how many gave up; the API says meanwhile what will be.
func TestOutageIsTold(t *testing.T) {
	bubble(t, func(r *rig) {
		hook := r.upstream("hook.test:80", answer(204, ""))
		fail := answer(503, "")
		u := r.upstream("u1.test:80", fail, fail, fail, fail, fail, after(100*time.Millisecond, answer(200, "ok")))
		for i := range 5 { // the last of them ends when the outage has begun
			r.get("http://u1.test/x", shop(fmt.Sprint("s", i)), "X-Retry-Count: 3") // no retries left
		}
		waiting := r.async(func() reply { return r.get("http://u1.test/x", shop("s7")) })
		r.leaves("http://u1.test/x", time.Second)
		var seen struct {
			Hosts []struct {
				Host, State string
				Waiting     int
				Outage      struct {
					Reach  string
					Most   int `json:"waiting_most"`
					GaveUp int `json:"gave_up"`
				}
			}
		}
		r.admin("GET", "/api/v1/breakers", "", &seen)
		if h := seen.Hosts[0]; h.Host != "u1.test:80" || h.State != "open" || h.Waiting != 1 || h.Outage.Reach != "several_shops" || h.Outage.Most != 2 || h.Outage.GaveUp != 2 {
			t.Errorf("hosts = %+v, want u1 cut off for several shops: one waits, two did, two gave up", seen.Hosts)
		}
		r.want(<-waiting, 200, u, 6)
		rest(10 * time.Second)
		r.get("http://u1.test/x")
		lines := r.outages()
		if len(lines) != 2 {
			t.Fatalf("logged %v, want one line when it began, one when it was over", lines)
		}
		if l := lines[0]; l["level"] != "WARN" || l["reach"] != "several_shops" || l["to"] != "open" || l["next_probe"] != "2000-01-01T00:00:02Z" {
			t.Errorf("began: %v", l)
		}
		if l := lines[1]; l["level"] != "INFO" || l["to"] != "closed" || l["lasted"] != "2.1s" || l["waited_most"] != 2.0 || l["gave_up"] != 2.0 {
			t.Errorf("over: %v", l)
		}
		if all := r.logged("what the outage left is worked off"); len(all) != 1 || all[0]["waited_most"] != 2.0 || all[0]["gave_up"] != 2.0 {
			t.Errorf("worked off: %v, want one line", all)
		}
		if told := alertsTold(t, hook); told[0].What != "the host is cut off: an outage, calls of several shops fail" {
			t.Errorf("alarm: %q", told[0].What)
		}
	}, alerting("{on: breaker}")...)
}

// Where a rule waits before it tells, it tells how things stand then.
func TestAlarmOfAnOutageSaysWhoWaits(t *testing.T) {
	bubble(t, func(r *rig) {
		hook := r.upstream("hook.test:80", answer(204, ""))
		u := r.upstream("u1.test:80", after(100*time.Millisecond, answer(200, "ok")))
		r.get("http://u1.test/x", shop("s1"))
		u.script = []step{answer(503, "")}
		for range 5 {
			r.get("http://u1.test/x", "X-Retry-Count: 3")
		}
		for range 3 {
			r.async(func() reply { return r.get("http://u1.test/x", shop("s1"), "X-Request-Timeout: 6") })
		}
		rest(5500 * time.Millisecond)
		told := alertsTold(t, hook)
		if len(told) == 0 || !strings.HasPrefix(told[0].What, "the host is cut off: calls without a shop fail; 2 calls wait, to be let go within ") {
			t.Errorf("told %+v, want who fails, who waits (one probes) and for how long", told)
		}
		rest(time.Minute)
	}, alerting("{on: breaker, for: 2s}")...)
}

// What one shop suffers is one line about that shop, while the host goes on for others.
func TestTroubleOfOneShopIsTold(t *testing.T) {
	bubble(t, func(r *rig) {
		hook := r.upstream("hook.test:80", answer(204, ""))
		r.upstream("u1.test:80", byPath(map[string]step{"/bad": answer(500, ""), "/ok": answer(200, "ok")}))
		for range 6 {
			r.get("http://u1.test/ok", shop("well"))
			r.get("http://u1.test/bad", shop("sick"), "X-Retry-Count: 3")
		}
		lines := r.outages()
		if len(lines) != 1 || lines[0]["scope"] != "shop" || lines[0]["shop"] != "sick" || !strings.HasPrefix(lines[0]["what"].(string), "only this shop fails") {
			t.Errorf("logged %v, want one line about the one shop", lines)
		}
		if told := alertsTold(t, hook); len(told) != 1 || told[0].What != "the shop at this host is cut off: it alone fails, the host answers others" {
			t.Errorf("told %+v, want the shop", told)
		}
		if g := r.gate("u1.test:80"); g.Outage != nil || g.Breaker.State.String() != "closed" {
			t.Errorf("gate = %+v, want no outage", g)
		}
	}, alerting("{on: breaker}")...)
}

// A call that waits for another one with its key says so, and is counted until it has
// its answer.
func TestWaitForAKeyIsShown(t *testing.T) {
	bubble(t, func(r *rig) {
		u := r.upstream("u1.test:80", after(800*time.Millisecond, answer(200, "ok")))
		first := r.async(func() reply { return r.post("http://u1.test/x", "{}", keyed) })
		rest(100 * time.Millisecond)
		second := r.async(func() reply { return r.post("http://u1.test/x", "{}", keyed) })
		rest(100 * time.Millisecond)
		var calls []struct{ Cause string }
		r.admin("GET", "/api/v1/calls?state=waiting", "", &calls)
		if len(calls) != 1 || calls[0].Cause != "key" {
			t.Errorf("waiting = %+v, want one for its key", calls)
		}
		r.wantMetric(1, "waiting", "cause=key")
		r.want(<-first, 200, u, 1)
		r.want(<-second, 200, u, 1)
		r.wantMetric(0, "waiting")
	})
}
