package main

import (
	"fmt"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"retryproxy/breaker"
	"retryproxy/idempotency"
)

// parks is a policy by which a long Retry-After parks a call.
var parks = with("jitter: none, jitter_ratio: 0, retry_after_over_cap: park")

// A call that the shutdown parked is given up when the proxy is back too late: it is
// not left for a process that never comes.
func TestParkedByAShutdownForTooLong(t *testing.T) {
	blackouts(t, func(r *rig, o *blackout) {
		u := r.upstream("u1.test:80", waits503, answer(201, "order 1"))
		call := r.async(func() reply { return r.post("http://u1.test/", "b", keyed) })
		rest(time.Second)
		o.stop()
		r.want(<-call, 202, u, 1)
		rest(2 * time.Hour)
		o.start()
		rest(10 * time.Second)
		r.wantState(idempotency.StateDead)
		if rec := r.record("k"); rec.Reason != "deadline_exceeded" {
			t.Errorf("it was given up for %s, want deadline_exceeded", rec.Reason)
		}
		r.want(r.post("http://u1.test/", "b", keyed), 201, u, 2)
	}, plain...)
}

// A body that the configuration would not take any more is sent all the same. One
// that could never be held is given up: it is not waited for in vain.
func TestParkedWithABodyOverANewLimit(t *testing.T) {
	for _, tt := range []struct {
		limits string
		state  idempotency.State
		sent   int
	}{
		{"limit: 4KiB", idempotency.StateDone, 2},
		{"memory_total: 4KiB, disk_total: 4KiB", idempotency.StateDead, 1},
	} {
		t.Run(tt.limits, func(t *testing.T) {
			blackouts(t, func(r *rig, o *blackout) {
				u := r.upstream("u1.test:80", answer(429, "", "Retry-After: 300"), answer(201, "order 1"))
				body := random(64 << 10)
				r.want(r.post("http://u1.test/", body, keyed), 202, u, 1)
				o.stop()
				o.start("body: {", "body: {"+tt.limits+", ")
				rest(310 * time.Second)
				r.want(reply{}, 0, u, tt.sent)
				if all := u.seen(); tt.sent == 2 && string(all[len(all)-1].Body) != body {
					t.Error("another body was sent")
				}
				r.wantState(tt.state)
			}, patches(parks, lays("body: {memory: 4KiB}"))...)
		})
	}
}

// A parked call whose host is cut off at its date keeps the time it had left.
func TestPutOffKeepsTheDeadline(t *testing.T) {
	lasting(t, func(r *rig, _ func()) {
		u := r.upstream("u1.test:80", byPath(map[string]step{"/down": answer(503, ""), "/": oneByOne(
			answer(429, "", "Retry-After: 300"), answer(503, "", "Retry-After: 4"), answer(201, "x"))}))
		r.want(r.post("http://u1.test/", "b", keyed), 202, u, 1)
		rest(298 * time.Second)
		r.get("http://u1.test/down") // trips the breaker
		r.get("http://u1.test/down")
		rest(30 * time.Second)
		if rec := r.record("k"); rec.State != idempotency.StateDone {
			t.Errorf("the record is %s (%s) after %d attempts, want it done", rec.State, rec.Reason, rec.Attempts)
		}
	}, patches(parks, []string{"open: 2s, open_max: 2s", "open: 10s, open_max: 10s"})...)
}

// oneByOne plays steps one after the other, whatever else is asked; the last one
// repeats.
func oneByOne(steps ...step) step {
	var n atomic.Int32
	return func(s *scripted, c net.Conn, q *request) bool {
		return steps[min(int(n.Add(1)), len(steps))-1](s, c, q)
	}
}

// later429 asks for minutes at first, and plays the step for what comes again.
func later429(again step) step {
	return func(s *scripted, c net.Conn, q *request) bool {
		if q.Header.Get("X-Retry-Count") == "" {
			return answer(429, "", "Retry-After: 300")(s, c, q)
		}
		return again(s, c, q)
	}
}

// parkMany has calls parked at each of the hosts until the same time.
func (r *rig) parkMany(calls int, hosts ...string) {
	r.t.Helper()
	r.together(calls*len(hosts), func(i int) reply {
		host := hosts[i%len(hosts)]
		return r.post("http://"+host+"/", "b", fmt.Sprintf("X-Idempotency-Key: %s-%d", host, i))
	})
	if n := r.app.store.Stats().ByState[idempotency.StateParked]; n != calls*len(hosts) {
		r.t.Errorf("%d calls are parked, want %d", n, calls*len(hosts))
	}
}

// What was put off because its host was cut off goes on when that is well again,
// whatever it was parked for.
func TestRecoveredHostWakesWhatWasPutOff(t *testing.T) {
	lasting(t, func(r *rig, _ func()) {
		var well atomic.Bool
		r.upstream("u1.test:80", byPath(map[string]step{"/down": answer(503, ""), "/": later429(func(s *scripted, c net.Conn, q *request) bool {
			return answer(map[bool]int{false: 503, true: 201}[well.Load()], "")(s, c, q)
		})}))
		r.parkMany(300, "u1.test")
		rest(296 * time.Second)
		for range 3 {
			r.get("http://u1.test/down")
		}
		rest(10 * time.Second)
		well.Store(true)
		for began := time.Now(); r.gate("u1.test:80").Breaker.State != breaker.Closed; rest(10 * time.Millisecond) {
			if time.Since(began) > 15*time.Second {
				t.Error("nobody finds out that the host is well again")
				break
			}
		}
		rest(5 * time.Second)
		if st := r.app.store.Stats().ByState; st[idempotency.StateDone] != 300 {
			t.Errorf("five seconds after the recovery: %v, want all done", st)
		}
	}, patches(parks, []string{"open: 2s, open_max: 2s", "open: 5s, open_max: 10s"})...)
}

// Hosts that answer nobody do not keep the parked calls of others from being woken.
func TestDeadHostsDoNotHoldUpOthers(t *testing.T) {
	lasting(t, func(r *rig, _ func()) {
		var dead []string
		for i := range 6 {
			dead = append(dead, fmt.Sprintf("dead%d.test", i))
			r.upstream(dead[i]+":80", later429(silent))
		}
		u := r.upstream("well.test:80", later429(after(500*time.Millisecond, answer(201, "x"))))
		r.parkMany(50, dead...)
		rest(3 * time.Second)
		r.together(40, func(i int) reply { return r.post("http://well.test/", "b", fmt.Sprint("X-Idempotency-Key: well-", i)) })
		rest(310 * time.Second)
		r.want(reply{}, 0, u, 80)
	}, patches(parks, []string{"per_try_timeout: 1s", "per_try_timeout: 15s"}, []string{"deadline: 6s", "deadline: 60s"})...)
}

// Nothing is woken once the shutdown has begun, though it was looked up before.
func TestNothingIsWokenWhileDraining(t *testing.T) {
	durably(t, func(a *app) { a.proxy.Store = &faulty{Store: a.proxy.Store, slow: 300 * time.Millisecond} }, func(r *rig) {
		u := r.upstream("u1.test:80", byPath(map[string]step{
			"/": oneByOne(answer(429, "", "Retry-After: 300"), answer(201, "x")), "/slow": after(900*time.Millisecond, answer(201, "slow")),
		}))
		r.want(r.post("http://u1.test/", "b", keyed), 202, u, 1)
		rest(time.Until(r.record("k").NextAt) - 100*time.Millisecond)
		slow := r.async(func() reply { return r.get("http://u1.test/slow") })
		rest(200 * time.Millisecond) // it is being looked up
		r.end()
		r.end = func() {}
		r.want(<-slow, 201, u, 2)
	}, parks...)
}

// A call whose client was let go, that waits, is parked and wakes, comes to its end
// whenever the proxy is stopped or killed: executed once, and in doubt only where a
// kill cut an attempt off that the key does not make safe.
func TestEndedAtEveryInstant(t *testing.T) {
	const every = 230 * time.Millisecond
	soon := func(s step) step { return after(50*time.Millisecond, s) }
	for _, host := range []string{"u1.test", platform} {
		for name, end := range map[string]func(*blackout){"stop": (*blackout).stop, "crash": (*blackout).crash} {
			t.Run(host+" "+name, func(t *testing.T) {
				t.Parallel() // some sixty processes one after the other
				cut, doubts, requests := name == "crash", 0, 0
				for at := time.Duration(0); at < 3500*time.Millisecond; at += every {
					blackouts(t, func(r *rig, o *blackout) {
						u := r.upstream(host+":80", soon(answer(503, "")), soon(answer(429, "", "Retry-After: 2")), soon(answer(503, "")), after(200*time.Millisecond, answer(201, "order 1")))
						got := r.post("http://"+host+"/", "b", keyed, "Prefer: respond-async")
						r.want(got, 202, nil, 0)
						rest(at)
						end(o)
						rest(time.Second)
						o.start()
						rest(10 * time.Second)
						rec, _ := r.follow(got)
						switch requests = u.count(); {
						case rec.State == "done" && (requests == 4 || requests == 5 && cut && host != platform):
						case rec.State == "in_doubt" && cut && host == platform:
							doubts++
						default:
							t.Errorf("ended after %v it is %s (%s) after %d requests", at, rec.State, rec.Reason, requests)
						}
					}, patches(with("jitter: none, jitter_ratio: 0, retry_after_cap: 1s, retry_after_over_cap: park"), []string{"max_retries: 3", "max_retries: 5"})...)
				}
				if want := cut && host == platform; doubts > 0 != want || requests != 4 {
					t.Errorf("%d ended in doubt, want some: %v; the last took %d requests, want 4", doubts, want, requests)
				}
			})
		}
	}
}

// However many writes without a key are given up, keyed calls have room: letters do
// not fill the store.
func TestLettersLeaveRoomForCalls(t *testing.T) {
	lasting(t, func(r *rig, _ func()) {
		r.upstream("u2.test:80", answer(500, "broken"))
		u := r.upstream("u3.test:80", answer(201, "order 1"))
		for range 300 {
			r.post("http://u2.test/", "b")
		}
		r.want(r.post("http://u3.test/", "b", keyed), 201, u, 1)
		rest(5 * time.Second)
		if n := r.app.store.Stats().ByState[idempotency.StateDead]; n != 50 {
			t.Errorf("%d letters are left, want as many as a quarter of the entries", n)
		}
		rest(5 * time.Second)
		for range 10 {
			r.post("http://u2.test/", "b")
		}
		rest(5 * time.Second)
		if n := r.app.store.Stats().ByState[idempotency.StateDead]; n != 50 {
			t.Errorf("%d letters after more of them, want 50", n)
		}
	}, patches(breakerOff, []string{"idempotency: {ttl: 1h}", "idempotency: {ttl: 1h, entries: 200}"})...)
}
