package main

import (
	"encoding/json"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"retryproxy/idempotency"
)

// receipt is what the proxy tells of a durable call.
type receipt struct {
	ID, State, Reason, Executed, Advice string

	NextAt   *time.Time `json:"next_at"`
	Attempts []struct{ Reason string }
	Answer   *struct {
		Status  int
		Headers [][2]string
		Kept    bool
		Body    string
	}
}

// follow asks for the receipt that an answer names.
func (r *rig) follow(got reply, headers ...string) (rec receipt, answer reply) {
	r.t.Helper()
	at := got.Header.Get("Location")
	if !strings.HasPrefix(at, "/.well-known/retryproxy/calls/") {
		r.t.Errorf("Location = %q, want a receipt", at)
	}
	answer = r.origin("GET", proxyAddr, at, "", headers...)
	if answer.Status == 200 {
		if err := json.Unmarshal([]byte(answer.Body), &rec); err != nil {
			r.t.Errorf("the receipt %q: %v", answer.Body, err)
		}
	}
	return rec, answer
}

// wantGoesOn checks an answer that says that the call goes on.
func (r *rig) wantGoesOn(got reply, low, high int) {
	r.t.Helper()
	r.want(got, 202, nil, 0)
	for name, value := range map[string]string{
		"X-Retry-Reason": "parked", "X-Retry-Executed": "maybe", "X-Retry-Advice": "check", "Cache-Control": "no-store",
	} {
		r.wantHeader(got, name, value)
	}
	r.wantAfter(got, low, high)
}

// wantAfter checks Retry-After, in seconds.
func (r *rig) wantAfter(got reply, low, high int) {
	r.t.Helper()
	if n, err := strconv.Atoi(got.Header.Get("Retry-After")); err != nil || n < low || n > high {
		r.t.Errorf("Retry-After = %q, want %d to %d", got.Header.Get("Retry-After"), low, high)
	}
}

// A Retry-After of minutes parks the call where the policy says so: its client gets
// a receipt, which tells how it stands and in the end gives the answer.
func TestParkOnALongRetryAfter(t *testing.T) {
	lasting(t, func(r *rig, _ func()) {
		u := r.upstream("u1.test:80", answer(429, "later", "Retry-After: 300"), answer(201, "order 1", "X-Order: 1"))
		got := r.post("http://u1.test/orders", "two books", keyed)
		r.wantGoesOn(got, 300, 302)
		rec, told := r.follow(got)
		r.wantAfter(told, 300, 302)
		if rec.State != "parked" || rec.Reason != "retry_after_too_long" || rec.Executed != "maybe" || rec.Advice != "check" || len(rec.Attempts) != 1 || rec.NextAt == nil || rec.Answer != nil {
			t.Errorf("the receipt of a parked call is %+v", rec)
		}
		r.wantMetric(1, "waiting", "cause=parked")

		again := r.post("http://u1.test/orders", "two books", keyed)
		r.wantGoesOn(again, 300, 302)
		if again.Header.Get("Location") != got.Header.Get("Location") {
			t.Errorf("a repeat gets another receipt, %q", again.Header.Get("Location"))
		}
		rest(299 * time.Second)
		r.want(reply{}, 0, u, 1)
		rest(4 * time.Second)
		r.want(reply{}, 0, u, 2)
		if q := u.seen()[1]; string(q.Body) != "two books" || q.Header.Get("X-Retry-Count") != "1" {
			t.Errorf("the attempt after the wait was %q, %v", q.Body, q.Header)
		}
		rec, told = r.follow(got)
		r.wantHeader(told, "Retry-After", "")
		if rec.State != "done" || rec.Answer == nil || rec.Answer.Status != 201 || rec.Answer.Body != "order 1" || !rec.Answer.Kept || len(rec.Attempts) != 2 {
			t.Errorf("the receipt of a call that is done is %+v", rec)
		}
		done := r.post("http://u1.test/orders", "two books", keyed)
		r.want(done, 201, u, 2)
		r.wantHeader(done, "X-Order", "1")
	}, with("jitter: none, jitter_ratio: 0, retry_after_over_cap: park")...)
}

// Who wants no 202 gets our own 503, never the upstream's failure.
func TestParkWithOnPark503(t *testing.T) {
	lasting(t, func(r *rig, _ func()) {
		u := r.upstream("u1.test:80", answer(429, "later", "Retry-After: 300"))
		for range 2 {
			got := r.post("http://u1.test/", "b", keyed)
			r.want(got, 503, u, 1)
			r.wantHeader(got, "X-Retry-Reason", "parked")
			r.wantHeader(got, "X-Retry-Executed", "maybe")
			r.wantHeader(got, "X-Retry-Advice", "check")
			r.wantAfter(got, 300, 302)
			r.wantHeader(got, "Content-Type", "application/problem+json")
			r.follow(got)
		}
	}, with("jitter: none, jitter_ratio: 0, retry_after_over_cap: park, on_park: 503")...)
}

// What is not durable is not parked: it ends as ever.
func TestOnlyDurableCallsAreParked(t *testing.T) {
	for name, headers := range map[string][]string{"keyless": nil, "keyed in memory": {keyed}} {
		t.Run(name, func(t *testing.T) {
			f := func(r *rig) {
				u := r.upstream("u1.test:80", answer(429, "later", "Retry-After: 300"))
				got := r.post("http://u1.test/", "b", headers...)
				r.want(got, 429, u, 1)
				r.wantHeader(got, "X-Retry-Reason", "retry_after_too_long")
			}
			if p := with("jitter: none, jitter_ratio: 0, retry_after_over_cap: park"); name == "keyless" {
				lasting(t, func(r *rig, _ func()) { f(r) }, p...)
			} else {
				bubble(t, f, p...)
			}
		})
	}
}

// A retry without a token in time, and a call whose host is cut off for longer than
// it can wait, are parked until that time.
func TestParkCauses(t *testing.T) {
	for _, tt := range []struct {
		reason string
		script []step
		patch  []string
		calls  int
	}{
		{"retry_limited", []step{answer(503, ""), answer(503, ""), answer(201, "x")}, []string{"shop: off}", "shop: {rate: 1/m, burst: 1, share: 0}}"}, 1},
		{"breaker_open", []step{answer(503, ""), answer(503, ""), answer(503, ""), answer(503, ""), answer(503, ""), answer(201, "x")}, []string{"open: 2s, open_max: 2s", "open: 20s, open_max: 20s"}, 2},
	} {
		t.Run(tt.reason, func(t *testing.T) {
			lasting(t, func(r *rig, _ func()) {
				u := r.upstream("u1.test:80", tt.script...)
				var parked reply
				for i := range tt.calls {
					parked = r.post("http://u1.test/", "b", fmt.Sprint("X-Idempotency-Key: k", i), "X-Shop-Id: s1")
				}
				r.want(parked, 202, nil, 0)
				rec, _ := r.follow(parked, "X-Shop-Id: s1")
				if rec.State != "parked" || rec.Reason != tt.reason {
					t.Errorf("the receipt is %+v, want it parked for %s", rec, tt.reason)
					return
				}
				if _, other := r.follow(parked, "X-Shop-Id: s2"); other.Status != 404 {
					t.Errorf("another shop gets %d for the receipt, want 404", other.Status)
				}
				rest(time.Until(*rec.NextAt) - time.Millisecond)
				r.want(reply{}, 0, u, len(tt.script)-1)
				rest(5 * time.Second)
				r.want(reply{}, 0, u, len(tt.script))
				if rec, _ := r.follow(parked, "X-Shop-Id: s1"); rec.State != "done" {
					t.Errorf("after its wait the receipt is %+v", rec)
				}
			}, patches(plain, tt.patch)...)
		})
	}
}

// A parked call survives a shutdown and a kill.
func TestParkedOverARestart(t *testing.T) {
	for name, end := range map[string]func(*blackout){"shutdown": (*blackout).stop, "kill": (*blackout).crash} {
		t.Run(name, func(t *testing.T) {
			blackouts(t, func(r *rig, o *blackout) {
				u := r.upstream("u1.test:80", answer(429, "", "Retry-After: 300"), answer(201, "order 1"))
				got := r.post("http://u1.test/", "b", keyed)
				r.wantGoesOn(got, 300, 302)
				end(o)
				rest(time.Minute)
				o.start()
				if rec, _ := r.follow(got); rec.State != "parked" {
					t.Errorf("after a restart the receipt is %+v", rec)
				}
				rest(240 * time.Second)
				rest(4 * time.Second)
				r.want(reply{}, 0, u, 2)
				if rec, _ := r.follow(got); rec.State != "done" {
					t.Errorf("in the end the receipt is %+v", rec)
				}
			}, with("jitter: none, jitter_ratio: 0, retry_after_over_cap: park")...)
		})
	}
}

// The time that a call was parked does not count against its deadline; what it was
// active does.
func TestParkingStopsTheClock(t *testing.T) {
	lasting(t, func(r *rig, _ func()) {
		u := r.upstream("u1.test:80", answer(429, "", "Retry-After: 300"), answer(503, ""), answer(503, ""), answer(503, ""), answer(201, "no more"))
		r.wantGoesOn(r.post("http://u1.test/", "b", keyed), 300, 302)
		rest(330 * time.Second)
		r.want(reply{}, 0, u, 4) // 1 + 3 in all: a park is no new run
		if rec := r.record("k"); rec.State != idempotency.StateDead || rec.Reason != "attempts_exhausted" || rec.Attempts != 4 || len(rec.Runs) != 1 {
			t.Errorf("the record is %s (%s) after %d attempts in %d runs, want dead after 4 in one", rec.State, rec.Reason, rec.Attempts, len(rec.Runs))
		}
	}, with("jitter: none, jitter_ratio: 0, retry_after_over_cap: park")...)
}

// A call that cannot go on within the ttl of keys is given up for what it waited for.
func TestParkedForTooLong(t *testing.T) {
	lasting(t, func(r *rig, _ func()) {
		u := r.upstream("u1.test:80", answer(429, "", "Retry-After: 1850"))
		r.wantGoesOn(r.post("http://u1.test/", "b", keyed), 1850, 1852)
		rest(1900 * time.Second)
		rec := r.record("k")
		if rec.State != idempotency.StateDead || rec.Reason != "retry_after_too_long" || u.count() != 2 {
			t.Errorf("the record is %s (%s) after %d attempts, want dead (retry_after_too_long) after 2", rec.State, rec.Reason, u.count())
		}
	}, patches(with("jitter: none, jitter_ratio: 0, retry_after_over_cap: park"), []string{"max_retries: 3", "max_retries: 100"})...)
}

// A repeat whose own patience reaches to the date of the parked call waits for it.
func TestRepeatJoinsAWokenCall(t *testing.T) {
	lasting(t, func(r *rig, _ func()) {
		u := r.upstream("u1.test:80", answer(429, "", "Retry-After: 10"), after(500*time.Millisecond, answer(201, "order 1")))
		r.wantGoesOn(r.post("http://u1.test/", "b", keyed), 10, 12)
		rest(6 * time.Second)
		got := r.post("http://u1.test/", "b", keyed)
		r.want(got, 201, u, 2)
		r.wantBody(got, "order 1")
	}, with("jitter: none, jitter_ratio: 0, retry_after_over_cap: park")...)
}

// Many calls that were parked for the same outage do not come back in one instant,
// and all come back.
func TestParkedCallsDoNotStampede(t *testing.T) {
	const calls = 150
	lasting(t, func(r *rig, _ func()) {
		u := r.upstream("u1.test:80", func(s *scripted, c net.Conn, q *request) bool {
			if q.Header.Get("X-Retry-Count") == "" {
				return answer(429, "", "Retry-After: 600")(s, c, q)
			}
			return after(700*time.Millisecond, answer(201, "x"))(s, c, q)
		})
		all := r.together(calls, func(i int) reply {
			return r.post("http://u1.test/", "b", fmt.Sprint("X-Idempotency-Key: k", i))
		})
		for _, got := range all {
			r.want(got, 202, nil, 0)
		}
		rest(600 * time.Second)
		worst := 0
		for range 100 {
			rest(200 * time.Millisecond)
			worst = max(worst, r.gate("u1.test:80").InFlight)
		}
		r.want(reply{}, 0, u, 2*calls)
		if worst < 8 || worst > 64 {
			t.Errorf("at worst %d were in flight, want more than a few and no more than 64", worst)
		}
	}, with("jitter: none, jitter_ratio: 0, retry_after_over_cap: park")...)
}

// What was parked for an open breaker goes on as soon as the host is well again.
func TestRecoveredHostWakesItsParkedCalls(t *testing.T) {
	const calls = 40
	lasting(t, func(r *rig, _ func()) {
		var well atomic.Bool
		u := r.upstream("u1.test:80", func(s *scripted, c net.Conn, q *request) bool {
			if !well.Load() {
				return answer(503, "")(s, c, q)
			}
			return answer(201, "x")(s, c, q)
		})
		r.together(calls, func(i int) reply {
			return r.post("http://u1.test/", "b", fmt.Sprint("X-Idempotency-Key: k", i))
		})
		if n := r.app.store.Stats().ByState[idempotency.StateParked]; n < calls/2 {
			t.Errorf("%d calls are parked, want most of %d", n, calls)
		}
		rest(2 * time.Minute)
		well.Store(true)
		rest(time.Minute)
		if st := r.app.store.Stats().ByState; st[idempotency.StateParked] > 0 {
			t.Errorf("a minute after the recovery: %v (%d requests)", st, u.count())
		}
	}, patches(plain, []string{"open: 2s, open_max: 2s", "open: 20s, open_max: 30s"})...)
}
