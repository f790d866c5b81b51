package main

import (
	"testing"
	"time"
)

// plain takes chance out of all waits.
var plain = with("jitter: none, jitter_ratio: 0")

// with adds keys to the policy of the cases.
func with(keys string) []string {
	return []string{"connect_timeout: 1s}", "connect_timeout: 1s, " + keys + "}"}
}

// breakerOff keeps the host's breaker out of cases with many failures.
var breakerOff = []string{"consecutive_failures: 5,", "consecutive_failures: 1000000, min_calls: 1000000,"}

// patches joins what is laid over the configuration.
func patches(lists ...[]string) (all []string) {
	for _, l := range lists {
		all = append(all, l...)
	}
	return all
}

func TestCase_RA_01_SecondsNotMilliseconds(t *testing.T) {
	bubble(t, func(r *rig) {
		u := r.upstream("u1.test:80", answer(429, "", "Retry-After: 2"), answer(200, "ok"))
		got := r.get("http://u1.test/x")
		r.want(got, 200, u, 2)
		r.between("gap", u.gaps()[0], 2*time.Second, 2400*time.Millisecond) // 0..20 % are added, never taken away
		r.wantSent(u, 2, "X-Retry-Count", "1")
		r.wantSent(u, 1, "X-Retry-Count", "")
	})
}

func TestCase_RA_03_NegativeRetryAfter(t *testing.T) {
	bubble(t, func(r *rig) {
		u := r.upstream("u1.test:80", answer(429, "", "Retry-After: -5"), answer(429, "", "Retry-After: -5"), answer(200, "ok"))
		r.want(r.get("http://u1.test/x"), 200, u, 3)
		r.between("first gap", u.gaps()[0], 80*time.Millisecond, 120*time.Millisecond)
		r.between("second gap", u.gaps()[1], 160*time.Millisecond, 240*time.Millisecond)
		r.wantMetric(2, "ignored_values_total", "field=retry_after")
	})
}

// The contract parks such a call only with a durable store; here the upstream's
// own answer goes to the client at once.
func TestCase_RA_05_LongerThanTheDeadline(t *testing.T) {
	bubble(t, func(r *rig) {
		u := r.upstream("u1.test:80", answer(503, `{"busy":1}`, "Retry-After: 30"), answer(200, "ok"))
		got := r.post("http://u1.test/x", "{}", "X-Idempotency-Key: k")
		r.want(got, 503, u, 1)
		r.wantHeader(got, "Retry-After", "30")
		r.wantHeader(got, "X-Retry-Reason", "retry_after_too_long")
		r.wantHeader(got, "X-Retry-Executed", "no")
		r.wantHeader(got, "X-Retry-Advice", "repeat")
		r.wantBody(got, `{"busy":1}`)
		r.between("time to the answer", got.Took, 0, 0)
		time.Sleep(time.Minute)
		r.want(got, 503, u, 1)
	})
}

func TestCase_RA_06_DateInThePast(t *testing.T) {
	bubble(t, func(r *rig) {
		// The clock of a bubble starts in 2000, so the case's 2015 is far ahead.
		u := r.upstream("u1.test:80", answer(503, "", "Retry-After: Wed, 21 Oct 1998 07:28:00 GMT"), answer(200, "ok"))
		r.want(r.get("http://u1.test/x"), 200, u, 2)
		r.between("gap", u.gaps()[0], 80*time.Millisecond, 120*time.Millisecond)
		r.wantMetric(1, "ignored_values_total", "field=retry_after")
	})
}

func TestCase_RA_06_DateAgainstTheAnswersOwn(t *testing.T) {
	bubble(t, func(r *rig) {
		// A server whose clock is years ahead still means two seconds.
		u := r.upstream("u1.test:80",
			answer(503, "", "Date: Wed, 21 Oct 2015 07:28:00 GMT", "Retry-After: Wed, 21 Oct 2015 07:28:02 GMT"),
			answer(503, "", "Date: Wed, 21 Oct 2015 07:28:00 GMT", "Retry-After: Wed, 21 Oct 2015 07:27:59 GMT"),
			answer(200, "ok"))
		r.want(r.get("http://u1.test/x"), 200, u, 3)
		r.wantGaps(u, 2*time.Second, 200*time.Millisecond)
	}, plain...)
}

func TestCase_RA_08_ShorterThanTheOwnBackoff(t *testing.T) {
	bubble(t, func(r *rig) {
		u := r.upstream("u1.test:80", answer(503, "", "Retry-After: 0"), answer(503, "", "Retry-After: 0"), answer(200, "ok"))
		r.want(r.get("http://u1.test/x"), 200, u, 3)
		r.between("first gap", u.gaps()[0], 640*time.Millisecond, 960*time.Millisecond)
		r.between("second gap", u.gaps()[1], 800*time.Millisecond, time.Second)
	}, "base_delay: 100ms", "base_delay: 800ms")
}

func TestCase_RA_08_OneSecondUnderTwo(t *testing.T) {
	bubble(t, func(r *rig) {
		u := r.upstream("u1.test:80", answer(503, "", "Retry-After: 1"), answer(200, "ok"))
		r.want(r.get("http://u1.test/x"), 200, u, 2)
		r.wantGaps(u, 2*time.Second)
	}, patches(plain, []string{"base_delay: 100ms, max_delay: 1s", "base_delay: 2s, max_delay: 2s"})...)
}

func TestCase_RA_10_NotHonoured(t *testing.T) {
	bubble(t, func(r *rig) {
		busy := answer(503, "", "Retry-After: 5")
		u := r.upstream("u1.test:80", reset, busy, busy, answer(200, "ok"))
		r.want(r.get("http://u1.test/x"), 200, u, 4)
		r.wantGaps(u, 100*time.Millisecond, 200*time.Millisecond, 400*time.Millisecond)
	}, with("jitter: none, honour_retry_after: false")...)
}

func TestCase_RA_11_PauseOfOneShop(t *testing.T) {
	bubble(t, func(r *rig) {
		u := r.upstream("u1.test:80", answer(429, "", "Retry-After: 3"), answer(200, "for B"), answer(200, "for A"))
		done := make(chan reply)
		go func() { done <- r.get("http://u1.test/x", "X-Shop-Id: A") }()
		time.Sleep(200 * time.Millisecond)
		b := r.get("http://u1.test/x", "X-Shop-Id: B")
		r.wantBody(b, "for B")
		r.between("time of B", b.Took, 0, 0)
		a := <-done
		r.want(a, 200, u, 3)
		r.wantBody(a, "for A")
		r.between("second attempt of A", u.seen()[2].At.Sub(u.seen()[0].At), 3*time.Second, 3600*time.Millisecond)
		if g := r.gate("u1.test:80"); g.Breaker.Failures != 0 || g.Breaker.State != 0 {
			t.Errorf("breaker = %+v, want closed without a failure: a 429 is none of the host", g.Breaker)
		}
	}, "consecutive_failures: 5", "consecutive_failures: 1")
}

func TestCase_RA_11_OtherRetriesOfThatShopWaitToo(t *testing.T) {
	bubble(t, func(r *rig) {
		u := r.upstream("u1.test:80", answer(429, "", "Retry-After: 3"), reset, answer(200, "ok"))
		done := make(chan reply)
		for range 2 {
			go func() { done <- r.get("http://u1.test/x", "X-Shop-Id: A") }()
			time.Sleep(200 * time.Millisecond)
		}
		r.want(<-done, 200, nil, 0)
		r.want(<-done, 200, u, 4)
		for n, req := range u.seen()[2:] {
			if at := req.At.Sub(u.seen()[0].At); at < 3*time.Second {
				t.Errorf("retry %d was sent %v after the 429, want not before 3s", n+1, at)
			}
		}
	}, plain...)
}
