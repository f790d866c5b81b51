package main

import (
	"testing"
	"time"
)

func TestA503Heals(t *testing.T) {
	bubble(t, func(r *rig) {
		u := r.upstream("u1.test:80", answer(503, "busy"), answer(200, "ok"))
		got := r.get("http://u1.test/x")
		r.want(got, 200, u, 2)
		r.wantHeader(got, "X-Retry-Count", "1")
		r.between("gap", u.gaps()[0], 80*time.Millisecond, 120*time.Millisecond)
	})
}

func TestKeylessPostIsNotRepeated(t *testing.T) {
	bubble(t, func(r *rig) {
		u := r.upstream("u1.test:80", answer(502, `{"e":1}`), answer(200, "ok"))
		got := r.post("http://u1.test/x", "{}")
		r.want(got, 502, u, 1)
		r.wantHeader(got, "X-Retry-Reason", "manual_review")
		r.wantHeader(got, "X-Retry-Executed", "maybe")
		r.wantHeader(got, "X-Retry-Advice", "check")
		if got.Body != `{"e":1}` {
			t.Errorf("body = %q, want the upstream's", got.Body)
		}
	})
}

func TestKeyedPostIsRepeatedAndReplayed(t *testing.T) {
	bubble(t, func(r *rig) {
		u := r.upstream("u1.test:80", reset, answer(201, `{"id":1}`))
		got := r.post("http://u1.test/x", "{}", "X-Idempotency-Key: k")
		r.want(got, 201, u, 2)
		if c := u.seen()[1].Header.Get("X-Retry-Count"); c != "1" {
			t.Errorf("X-Retry-Count of attempt 2 = %q, want 1", c)
		}
		time.Sleep(time.Second)
		again := r.post("http://u1.test/x", "{}", "X-Idempotency-Key: k")
		r.want(again, 201, u, 2)
		r.wantHeader(again, "Idempotency-Replayed", "true")
		r.wantHeader(again, "Cache-Status", "retryproxy; hit")
		r.wantHeader(again, "Age", "1")
		if again.Body != got.Body {
			t.Errorf("replayed body = %q, want %q", again.Body, got.Body)
		}
	})
}

func TestTwoBotsWithOneKey(t *testing.T) {
	bubble(t, func(r *rig) {
		u := r.upstream("u1.test:80", after(300*time.Millisecond, answer(201, `{"id":1}`)), answer(201, `{"id":2}`))
		done := make(chan reply)
		for range 2 {
			go func() { done <- r.post("http://u1.test/x", "{}", "X-Idempotency-Key: k") }()
		}
		a, b := <-done, <-done
		r.want(a, 201, u, 1)
		r.want(b, 201, u, 1)
		if a.Body != b.Body {
			t.Errorf("bodies %q and %q differ", a.Body, b.Body)
		}
	})
}
