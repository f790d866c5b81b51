package main

import (
	"fmt"
	"net"
	"strings"
	"testing"
	"time"
)

func TestCase_DE_01_DyingIdleConnection(t *testing.T) {
	bubble(t, func(r *rig) {
		u := r.upstream("u1.test:80", answer(200, "warm"), hangUp, answer(200, "second"))
		r.want(r.get("http://u1.test/warm"), 200, u, 1)
		got := r.post("http://u1.test/order", "{}")
		r.want(got, 502, u, 2) // the warm-up and one order
		r.wantHeader(got, "X-Retry-Reason", "manual_review")
		r.wantHeader(got, "X-Retry-Executed", "maybe")
		r.wantHeader(got, "X-Retry-Advice", "check")
		r.wantHeader(got, "Retry-After", "")
		r.wantVerdict(1, "unknown", "eof_after_send")
		r.wantMetric(1, "stops_total", "reason=manual_review")
		r.wantDeadLetter("manual_review", "maybe")
	})
}

// An idle connection that the upstream closed meanwhile looks the same to a
// client that writes first and learns later: the order must go out on another.
func TestCase_DE_01_ClosedIdleConnection(t *testing.T) {
	bubble(t, func(r *rig) {
		closing := func(s *scripted, c net.Conn, req *request) bool { answer(200, "warm")(s, c, req); return false }
		u := r.upstream("u1.test:80", closing, answer(200, "ordered"))
		r.want(r.get("http://u1.test/warm"), 200, u, 1)
		time.Sleep(100 * time.Millisecond)
		got := r.post("http://u1.test/order", "{}")
		r.want(got, 200, u, 2)
		r.wantEnd("success", "ok", 1)
		if c := u.seen()[1].Conn; c != 2 {
			t.Errorf("the order went out on connection %d, want a fresh one", c)
		}
	})
}

func TestCase_DE_03_TimeoutOfAKeylessPost(t *testing.T) {
	bubble(t, func(r *rig) {
		u := r.upstream("u1.test:80", after(3*time.Second, answer(200, "late")), answer(200, "second"))
		got := r.post("http://u1.test/x", "{}")
		r.want(got, 504, u, 1)
		r.between("time to the answer", got.Took, time.Second, time.Second)
		r.wantHeader(got, "X-Retry-Reason", "manual_review")
		r.wantHeader(got, "X-Retry-Executed", "maybe")
		r.wantHeader(got, "X-Retry-Advice", "check")
		r.wantHeader(got, "Retry-After", "")
		r.wantVerdict(1, "unknown", "header_timeout")
		r.wantDeadLetter("manual_review", "maybe")
		time.Sleep(time.Minute)
		r.want(got, 504, u, 1)
	})
}

func TestCase_DE_04_TimeoutOfAKeyedPost(t *testing.T) {
	bubble(t, func(r *rig) {
		u := r.upstream("u1.test:80",
			after(1500*time.Millisecond, answer(200, `{"id":"late"}`)), after(200*time.Millisecond, answer(200, `{"id":7}`)))
		got := r.post("http://u1.test/x", `{"sku":1}`, "X-Idempotency-Key: k", "Content-Type: application/json")
		r.want(got, 200, u, 2)
		r.wantBody(got, `{"id":7}`)
		r.wantHeader(got, "X-Retry-Count", "1")
		r.wantBodies(u, `{"sku":1}`)
		for n, count := range []string{"", "1"} {
			r.wantSent(u, n+1, "X-Idempotency-Key", "k")
			r.wantSent(u, n+1, "Content-Type", "application/json")
			r.wantSent(u, n+1, "X-Retry-Count", count)
		}
		r.between("time to the answer", got.Took, 1300*time.Millisecond, 1300*time.Millisecond)
		r.wantVerdict(1, "transient", "header_timeout")
		r.wantMetric(1, "key_only_repeats_total", "host=u1.test:80")
	}, plain...)
}

func TestCase_DE_05_ErrorOfAnEdge(t *testing.T) {
	for _, method := range []string{"POST", "PATCH"} {
		for _, status := range []int{500, 502, 504} {
			t.Run(fmt.Sprint(method, " ", status), func(t *testing.T) {
				bubble(t, func(r *rig) {
					u := r.upstream("u1.test:80", answer(status, `{"edge":1}`, "X-Edge: e"), answer(200, "second"))
					got := r.do(method, "http://u1.test/x", "{}")
					r.want(got, status, u, 1)
					r.wantBody(got, `{"edge":1}`)
					r.wantHeader(got, "X-Edge", "e")
					r.wantHeader(got, "X-Retry-Reason", "manual_review")
					r.wantHeader(got, "X-Retry-Executed", "maybe")
					r.wantHeader(got, "X-Retry-Advice", "check")
					r.wantVerdict(1, "unknown", fmt.Sprintf("status_%d", status))
					r.wantDeadLetter("manual_review", "maybe")
				})
			})
		}
	}
}

// By the contract a 408 says "not now": nothing was done, so it is repeated
// even for a keyless write, unless it says itself that the request was sent on.
func TestCase_DE_05_408(t *testing.T) {
	bubble(t, func(r *rig) {
		u := r.upstream("u1.test:80", answer(408, "slow"), answer(200, "ok"))
		r.want(r.post("http://u1.test/x", "{}"), 200, u, 2)
	})
}

func TestCase_DE_05_408ThatWasSentOn(t *testing.T) {
	bubble(t, func(r *rig) {
		u := r.upstream("u1.test:80", answer(408, "gone", "Proxy-Status: edge; error=connection_read_timeout"), answer(200, "second"))
		got := r.post("http://u1.test/x", "{}")
		r.want(got, 504, u, 1)
		r.wantBody(got, "gone")
		r.wantHeader(got, "X-Retry-Reason", "manual_review")
		r.wantHeader(got, "X-Retry-Executed", "maybe")
		status := strings.Join(got.Header.Values("Proxy-Status"), ", ")
		if !strings.HasPrefix(status, "edge; error=connection_read_timeout, retryproxy;") || !strings.Contains(status, "received-status=408") {
			t.Errorf("Proxy-Status = %q, want the edge's, then ours with received-status=408", status)
		}
	})
}

func TestCase_DE_07_LastRealAnswer(t *testing.T) {
	bubble(t, func(r *rig) {
		u := r.upstream("u1.test:80", answer(503, `{"n":1}`), answer(503, `{"n":2}`), answer(503, `{"n":3}`), answer(500, `{"n":4}`, "X-Req: r4"))
		got := r.get("http://u1.test/x")
		r.want(got, 500, u, 4)
		r.wantBody(got, `{"n":4}`)
		r.wantHeader(got, "X-Req", "r4")
		r.wantHeader(got, "X-Retry-Count", "3")
		r.wantHeader(got, "X-Retry-Reason", "attempts_exhausted")
		r.wantEnd("failed", "attempts_exhausted", 4)
		calls := r.logged("call")
		if n := len(calls[0]["attempts"].([]any)); n != 4 {
			t.Errorf("the log tells of %d attempts, want 4", n)
		}
	})
}
