package main

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// A known third-party platform ignores keys: it gets none of our headers, a call
// that may have been executed there is not repeated, and its key stays in doubt.
func TestPlatformsIgnoreKeys(t *testing.T) {
	ca := newCA(t)
	bubble(t, func(r *rig) {
		u := r.upstreamTLS("gw-api.pinduoduo.com:443", ca.certificate("gw-api.pinduoduo.com"), answer(500, "who knows"), answer(200, "ok"))
		got := r.post("http://gw-api.pinduoduo.com/api/router", "type=pdd.order.ship", keyed, "X-Shop-Id: s1", "X-Retry-Count: 1")
		r.want(got, 500, u, 1)
		r.wantBody(got, "who knows")
		r.wantHeader(got, "X-Retry-Reason", "manual_review")
		r.wantHeader(got, "X-Retry-Executed", "maybe")
		r.wantHeader(got, "X-Retry-Advice", "check")
		for name := range u.seen()[0].Header {
			if strings.HasPrefix(name, "X-") || name == "Via" || name == "Idempotency-Key" {
				t.Errorf("the platform got %s: %s", name, u.seen()[0].Header.Get(name))
			}
		}
		for range 2 {
			again := r.post("http://gw-api.pinduoduo.com/api/router", "type=pdd.order.ship", keyed, "X-Shop-Id: s1")
			r.want(again, 409, u, 1)
			r.wantHeader(again, "X-Retry-Reason", "in_doubt")
			r.wantHeader(again, "X-Retry-Advice", "check")
			r.wantHeader(again, "Retry-After", "")
		}
		if got := r.post("http://gw-api.pinduoduo.com/api/router", "type=other", keyed, "X-Shop-Id: s1"); got.Status != 422 {
			t.Errorf("another request under that key = %d, want 422", got.Status)
		}
		r.wantMetric(2, "idempotency_total", "result=in_doubt")
		r.want(r.get("http://gw-api.pinduoduo.com/api/time"), 200, u, 2)
	}, trusting(ca)...)
}

// A success whose JSON says failure is passed on untouched, never stored, counted,
// and explained once.
func TestSuspectAnswersAreNotStored(t *testing.T) {
	bubble(t, func(r *rig) {
		const says = `{"error_response":{"error_code":70031}}`
		u := r.upstream("u1.test:80", answer(200, says, "Content-Type: application/json"), answer(200, says, "Content-Type: application/json"), answer(200, `{"success":true}`, "Content-Type: application/json"))
		for n := 1; n <= 3; n++ {
			got := r.post("http://u1.test/x", "{}", keyed)
			r.want(got, 200, u, n)
			r.wantHeader(got, "Idempotency-Replayed", "")
			r.wantHeader(got, "X-Retry-Reason", "")
			if n < 3 {
				r.wantBody(got, says)
			}
		}
		r.wantMetric(2, "suspect_answers_total", "host=u1.test:80")
		r.wantMetric(2, "attempts_total", "reason=suspect")
		if n := strings.Count(r.log.String(), "preset"); n != 1 {
			t.Errorf("explanations in the log = %d, want one for the host", n)
		}
		got := r.post("http://u1.test/x", "{}", keyed)
		r.want(got, 200, u, 3)
		r.wantHeader(got, "Idempotency-Replayed", "true")
	})
	bubble(t, func(r *rig) { // and it was or may have been executed: the key stays bound to the request
		u := r.upstream("u1.test:80", answer(200, `{"errcode":1}`, "Content-Type: application/json"))
		r.want(r.post("http://u1.test/x", "{}", keyed), 200, u, 1)
		r.want(r.post("http://u1.test/x", "other", keyed), 422, u, 1)
	})
}

// What else is passed on and not stored, and what is.
func TestWhatIsStored(t *testing.T) {
	for status, stored := range map[int]bool{200: true, 201: true, 204: true, 206: false, 302: false, 303: true, 304: false, 307: false, 404: false} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			bubble(t, func(r *rig) {
				extra := []string{"Location: /elsewhere"}
				u := r.upstream("u1.test:80", answer(status, "", extra...))
				r.want(r.post("http://u1.test/x", "{}", keyed), status, u, 1)
				again := r.post("http://u1.test/x", "{}", keyed)
				want := map[bool]int{true: 1, false: 2}[stored]
				r.want(again, status, u, want)
				r.wantHeader(again, "Location", "/elsewhere")
				r.wantHeader(again, "Idempotency-Replayed", map[bool]string{true: "true", false: ""}[stored])
			})
		})
	}
}

// Waiters get the failure of the one they waited for, marked as collapsed; none
// of them becomes a second leader.
func TestWaitersShareAFailure(t *testing.T) {
	bubble(t, func(r *rig) {
		u := r.upstream("u1.test:80", answer(500, "no"))
		start := time.Now()
		var group sync.WaitGroup
		for i := range 5 {
			group.Go(func() {
				time.Sleep(time.Duration(i) * 10 * time.Millisecond)
				got := r.post("http://u1.test/x", "{}", keyed)
				if got.Status != 500 || got.Body != "no" || got.Header.Get("X-Retry-Reason") != "attempts_exhausted" ||
					got.Header.Get("X-Retry-Executed") != "maybe" || got.Header.Get("X-Retry-Count") != "3" {
					t.Errorf("client %d got %d %q %v, want the leader's answer", i, got.Status, got.Body, got.Header)
				}
				if marked := got.Header.Get("Cache-Status") == "retryproxy; collapsed"; marked != (i > 0) || got.Header.Get("Idempotency-Replayed") != "" {
					t.Errorf("client %d: %v", i, got.Header)
				}
			})
		}
		group.Wait()
		if u.count() != 4 {
			t.Errorf("requests at the upstream = %d, want the leader's 4", u.count())
		}
		r.between("all answers", time.Since(start), 560*time.Millisecond, 840*time.Millisecond)
		r.wantMetric(1, "calls_total", "result=failed")
	})
}

// A waiter waits no longer than its own deadline, and is then told to come back.
func TestWaiterHasItsOwnDeadline(t *testing.T) {
	bubble(t, func(r *rig) {
		u := r.upstream("u1.test:80", after(800*time.Millisecond, answer(201, "made")))
		leader := r.async(func() reply { return r.post("http://u1.test/x", "{}", keyed) })
		rest(100 * time.Millisecond)
		got := r.post("http://u1.test/x", "{}", keyed, "X-Request-Timeout: 0.2")
		r.want(got, 409, u, 1)
		r.wantHeader(got, "X-Retry-Reason", "key_busy")
		r.between("the waiter's answer", got.Took, 200*time.Millisecond, 200*time.Millisecond)
		r.wantHeader(got, "Retry-After", "1")
		r.want(<-leader, 201, u, 1)
	})
}

// A full store refuses new keys before anything is sent; old answers make room,
// calls in progress do not.
func TestStoreFull(t *testing.T) {
	bubble(t, func(r *rig) {
		u := r.upstream("u1.test:80", after(500*time.Millisecond, answer(201, "made")))
		post := func(i int) reply {
			return r.post("http://u1.test/x", "{}", fmt.Sprintf("X-Idempotency-Key: k%d", i), fmt.Sprintf("X-Shop-Id: s%d", i%3))
		}
		var group sync.WaitGroup
		for i := range 6 {
			group.Go(func() { r.want(post(i), 201, nil, 0) })
		}
		rest(100 * time.Millisecond)
		for _, shop := range []int{6, 7, 8} {
			got := post(shop)
			r.want(got, 503, u, 6)
			r.wantHeader(got, "X-Retry-Reason", "store_full")
			r.wantHeader(got, "X-Retry-Executed", "no")
			r.wantHeader(got, "Retry-After", "1")
		}
		group.Go(func() { r.want(r.get("http://u1.test/x"), 201, nil, 0) }) // without a key nothing is kept
		group.Wait()
		r.want(post(9), 201, u, 8)
		r.wantMetric(6, "records")
		r.wantMetric(1, "records_evicted_total")
		r.wantMetric(3, "stops_total", "reason=store_full")
		again := post(9)
		r.want(again, 201, u, 8)
		r.wantHeader(again, "Idempotency-Replayed", "true")
	}, "idempotency: {ttl: 1h}", "idempotency: {ttl: 1h, entries: 6}")
}

// The first answer over max_response leaves a marker: the repeat is told that it
// was done, and nothing is sent.
func TestMarker(t *testing.T) {
	bubble(t, func(r *rig) {
		body := strings.Repeat("x", 5000)
		u := r.upstream("u1.test:80", answer(200, body))
		r.wantBody(r.post("http://u1.test/x", "{}", keyed), body)
		synctest.Wait()
		if rec := r.record("k"); rec.State.String() != "done" || rec.Answer == nil || rec.Answer.Kept {
			t.Errorf("record = %v %+v, want done, its answer not kept", rec.State, rec.Answer)
		}
		waiter := r.post("http://u1.test/x", "{}", keyed)
		r.want(waiter, 409, u, 1)
		r.wantHeader(waiter, "X-Retry-Reason", "result_not_kept")
		r.wantHeader(waiter, "Retry-After", "")
	}, "idempotency: {ttl: 1h}", "idempotency: {ttl: 1h, max_response: 4KiB}")
}

// Repeats count what was recorded: retries left = max_retries − those of the last
// deadline.
func TestRepeatsShareABudget(t *testing.T) {
	bubble(t, func(r *rig) {
		u := r.upstream("u1.test:80", answer(503, ""))
		for _, total := range []int{4, 5, 6} { // 1 + 3, then one each
			r.want(r.post("http://u1.test/x", "{}", keyed), 503, u, total)
		}
		time.Sleep(6 * time.Second)
		r.want(r.post("http://u1.test/x", "{}", keyed), 503, u, 10)
		if got := u.seen()[9].Header.Get("X-Retry-Count"); got != "9" {
			t.Errorf("X-Retry-Count of the tenth attempt = %q, want 9", got)
		}
	}, breakerOff...)
}

// What differs between repeats of one signed call is left out of its fingerprint,
// but for strangers nothing is.
func TestFingerprintIgnore(t *testing.T) {
	signed := func(n int) (target, form, object string) {
		return fmt.Sprintf("http://u1.test/x?a=1&sign=%d", n), fmt.Sprintf("timestamp=%d&b=2", n), fmt.Sprintf(`{"sign":"%d","c":3}`, n)
	}
	bubble(t, func(r *rig) {
		u := r.upstream("u1.test:80", answer(201, "made"))
		const form, object = "Content-Type: application/x-www-form-urlencoded", "Content-Type: application/json"
		for n := range 3 {
			target, f, o := signed(n)
			r.want(r.post(target, f, "X-Idempotency-Key: form", "X-Shop-Id: A", form), 201, nil, 0)
			r.want(r.post(target, o, "X-Idempotency-Key: json", "X-Shop-Id: A", object), 201, nil, 0)
		}
		if u.count() != 2 {
			t.Errorf("requests at the upstream = %d, want one for each key", u.count())
		}
		r.want(r.post("http://u1.test/x?a=2&sign=1", "b=2", "X-Idempotency-Key: form", "X-Shop-Id: A", form), 422, u, 2)
		target, f, _ := signed(1)
		other, _, _ := signed(2)
		r.want(r.post(target, f, keyed, form), 201, u, 3)
		r.want(r.post(other, f, keyed, form), 422, u, 3)
	}, with("fingerprint_ignore: [sign, timestamp]")...)
}
