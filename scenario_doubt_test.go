package main

import (
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"retryproxy/idempotency"
)

// platform is a host that is known to ignore keys; orders are made there.
const (
	platform = "gw-api.temu.com"
	orders   = "http://" + platform + "/order"
)

// wantDoubt checks that the key of a call that may have been executed is kept,
// and that a repeat is told so without being sent.
func (r *rig) wantDoubt(u *scripted) {
	r.t.Helper()
	if rec := r.record("k"); rec.State != idempotency.StateInDoubt || rec.Executed.String() != "maybe" {
		r.t.Errorf("record = %s, executed %s; want in_doubt, maybe", rec.State, rec.Executed)
	}
	again := r.post(orders, "{}", keyed)
	r.want(again, 409, u, 1)
	r.wantHeader(again, "X-Retry-Reason", "in_doubt")
	r.wantHeader(again, "X-Retry-Executed", "maybe")
	r.wantHeader(again, "X-Retry-Advice", "check")
	r.wantHeader(again, "Retry-After", "")
}

// breaking writes the beginning of an answer and ends two seconds later: what is
// held goes out after one, so that the client sees it break; the reset at once
// would take from it what it has not read.
func breaking(text string) step {
	return func(_ *scripted, c net.Conn, _ *request) bool {
		io.WriteString(c, text)
		time.Sleep(2 * time.Second)
		return false
	}
}

// The body of a failure says nothing about the doubt: neither one that is too
// large for the record nor a stream, whose records end at the header, may free
// a key that the platform ignores.
func TestDoubtWhateverTheBody(t *testing.T) {
	large := random(5 << 10)
	for name, failure := range map[string]step{
		"small":            raw("HTTP/1.1 502 X\r\nContent-Length: 2\r\n\r\nno"),
		"over the limit":   raw("HTTP/1.1 502 X\r\nContent-Length: 5120\r\n\r\n" + large),
		"chunked, over it": raw("HTTP/1.1 502 X\r\nTransfer-Encoding: chunked\r\n\r\n1400\r\n" + large + "\r\n0\r\n\r\n"),
		"event stream":     raw("HTTP/1.1 502 X\r\nContent-Type: text/event-stream\r\nContent-Length: 2\r\n\r\nno"),
		"none":             raw("HTTP/1.1 502 X\r\nContent-Length: 0\r\n\r\n"),
		"cut off":          breaking("HTTP/1.1 502 X\r\nContent-Length: 9\r\n\r\nno"),
		"cut off, over it": breaking("HTTP/1.1 502 X\r\nContent-Length: 9999\r\n\r\n" + large),
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(r *rig) {
				u := r.upstream(platform+":80", failure, answer(200, "a second order"))
				got := r.post(orders, "{}", keyed)
				r.want(got, 502, u, 1)
				r.wantHeader(got, "X-Retry-Reason", "manual_review")
				r.wantHeader(got, "X-Retry-Executed", "maybe")
				r.wantHeader(got, "X-Retry-Advice", "check")
				r.wantDoubt(u)
			}, "idempotency: {", "idempotency: {max_response: 4KiB, ")
		})
	}
}

// The header of a 2xx is no success where the rest never comes: the log calls it
// truncated, and a repeat must not order again.
func TestSuccessThatBreaksOffIsADoubt(t *testing.T) {
	for name, text := range map[string]string{
		"sized":             "HTTP/1.1 200 OK\r\nContent-Length: 3000\r\n\r\nhello",
		"over body.hold":    "HTTP/1.1 200 OK\r\nContent-Length: 900000\r\n\r\n" + random(200<<10),
		"chunked":           "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n",
		"within its chunks": "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhel",
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(r *rig) {
				u := r.upstream(platform+":80", breaking(text), answer(200, "a second order"))
				got := r.post(orders, "{}", keyed)
				r.want(got, 200, u, 1)
				if got.Err == nil {
					t.Error("the body ended cleanly, want a visible break")
				}
				r.wantEnd("failed", "manual_review", 1)
				r.wantVerdict(1, "unknown", "truncated")
				r.wantDeadLetter("manual_review", "maybe")
				line := r.logged("call")[0]
				if a := line["attempts"].([]any)[0].(map[string]any); line["reason"] != "manual_review" || a["reason"] != "truncated" {
					t.Errorf("the line says %v, its attempt %v; want manual_review, truncated", line["reason"], a["reason"])
				}
				r.wantDoubt(u)
			})
		})
	}
}

// Who waits for a key whose answer breaks off, or is a failure too large to be
// kept, gets no part of it, and is not told that the call was done.
func TestWaiterOfAnAnswerThatCannotBeShared(t *testing.T) {
	const cut = "HTTP/1.1 200 OK\r\nContent-Length: 3000\r\n\r\nhello"
	for _, tt := range []struct {
		name, host string
		first      step
		reason     string
	}{
		{"broken off, key ignored", platform, breaking(cut), "manual_review"},
		{"broken off, key honoured", "u1.test", breaking(cut), "attempts_exhausted"},
		{"large failure, key ignored", platform, after(500*time.Millisecond, answer(502, random(5<<10))), "manual_review"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			bubble(t, func(r *rig) {
				u := r.upstream(tt.host+":80", tt.first, answer(200, "a second order"))
				post := func() reply { return r.post("http://"+tt.host+"/order", "{}", keyed) }
				leader := r.async(post)
				rest(10 * time.Millisecond)
				got := post()
				r.want(got, 502, u, 1)
				r.wantHeader(got, "Content-Type", "application/problem+json")
				r.wantHeader(got, "X-Retry-Reason", tt.reason)
				r.wantHeader(got, "X-Retry-Executed", "maybe")
				r.wantHeader(got, "X-Retry-Advice", "check")
				r.wantHeader(got, "Retry-After", "")
				<-leader
				if tt.host == platform {
					r.wantDoubt(u)
					return
				}
				r.want(post(), 200, u, 2) // the key makes that safe
			}, "idempotency: {", "idempotency: {max_response: 4KiB, ")
		})
	}
}

// A waiter whose time runs out while the attempt is in flight knows nothing of
// its outcome; the key makes a repeat safe. Between two attempts of a call that
// was told "not now" nothing has been executed.
func TestKeyBusySaysWhatMayHaveHappened(t *testing.T) {
	for _, tt := range []struct {
		name, executed, after string
		first                 step
	}{
		{"in flight", "maybe", "1", after(900*time.Millisecond, answer(201, "made"))},
		{"between two attempts", "no", "5", answer(503, "busy", "Retry-After: 5")},
	} {
		t.Run(tt.name, func(t *testing.T) {
			bubble(t, func(r *rig) {
				u := r.upstream("u1.test:80", tt.first, answer(201, "made"))
				leader := r.async(func() reply { return r.post("http://u1.test/x", "{}", keyed) })
				rest(10 * time.Millisecond)
				got := r.post("http://u1.test/x", "{}", keyed, "X-Request-Timeout: 109ms999us")
				r.want(got, 409, u, 1)
				r.wantHeader(got, "X-Retry-Reason", "key_busy")
				r.wantHeader(got, "X-Retry-Executed", tt.executed)
				r.wantHeader(got, "X-Retry-Advice", "repeat")
				r.wantHeader(got, "Retry-After", tt.after)
				r.between("the waiter's answer", got.Took, 109999*time.Microsecond, 109999*time.Microsecond)
				r.want(<-leader, 201, nil, 0)
			}, plain...)
		})
	}
}

// A key that is used for another request says no: nothing was sent for this one,
// whatever became of the other.
func TestKeyMismatchSaysNothingWasSent(t *testing.T) {
	bubble(t, func(r *rig) {
		u := r.upstream(platform+":80", reset, answer(200, "ok"))
		r.want(r.post(orders, "{}", keyed), 502, u, 1)
		for name, got := range map[string]reply{
			"another request":   r.post(orders, `{"other":1}`, keyed),
			"other credentials": r.post(orders, "{}", keyed, "Authorization: Bearer other"),
		} {
			r.want(got, 422, u, 1)
			r.wantHeader(got, "X-Retry-Reason", "key_mismatch")
			r.wantHeader(got, "X-Retry-Executed", "no")
			r.wantHeader(got, "X-Retry-Advice", "stop")
			if !strings.Contains(got.Body, `"executed":"no"`) || !strings.Contains(got.Body, `"attempts":[]`) {
				t.Errorf("%s: %s, want executed no and no attempts", name, got.Body)
			}
		}
	})
}
