package main

import (
	"io"
	"net"
	"strings"
	"testing"
	"time"
)

// dripping answers with a status and a body that comes one byte each 250 ms.
func dripping(head string, bytes int) step {
	return func(_ *scripted, c net.Conn, _ *request) bool {
		_, err := io.WriteString(c, head)
		for range bytes {
			if err != nil {
				return false
			}
			time.Sleep(250 * time.Millisecond)
			_, err = io.WriteString(c, ".")
		}
		return true
	}
}

// Reading an answer that is to be retried takes part of the caller's time, and
// must not take more than that.
func TestReadingAFailedAnswerEndsWithTheDeadline(t *testing.T) {
	for _, tt := range []struct {
		name, timeout string
		took          time.Duration
	}{
		{"the caller's", "X-Request-Timeout: 2", 2 * time.Second},
		{"ours", "X-Request-Timeout: 1h", 3 * time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			bubble(t, func(r *rig) {
				u := r.upstream("u1.test:80", dripping("HTTP/1.1 503 Busy\r\nContent-Length: 1000\r\n\r\n", 1000))
				got := r.get("http://u1.test/x", tt.timeout)
				r.want(got, 504, u, 1)
				r.wantHeader(got, "X-Retry-Reason", "deadline_exceeded")
				r.between("time to the answer", got.Took, tt.took, tt.took)
			}, patches(plain, []string{"deadline: 6s", "deadline: 3s"})...)
		})
	}
}

// A switch that is turned off while a failed answer is read holds for the retry
// that was planned before; the answer is given then.
func TestSwitchOffWhileAFailedAnswerIsRead(t *testing.T) {
	for name, key := range map[string][]string{"keyless": nil, "keyed": {keyed}} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(r *rig) {
				u := r.upstream("u1.test:80", dripping("HTTP/1.1 503 Busy\r\nContent-Length: 12\r\n\r\n", 12), answer(200, "ok"))
				call := r.async(func() reply { return r.get("http://u1.test/x", key...) })
				rest(2 * time.Second)
				r.admin("PUT", "/api/v1/retries", `{"value":"off"}`, nil)
				got := <-call
				r.want(got, 503, u, 1)
				r.wantBody(got, "............")
				r.between("time to the answer", got.Took, 3*time.Second, 3*time.Second)
				r.wantHeader(got, "X-Retry-Reason", "retries_off")
				r.wantEnd("failed", "retries_off", 1)
			}, plain...)
		})
	}
}

// A host that is healthy otherwise gets its first retry at once, unless it asked
// for time: Retry-After comes first on every status.
func TestFastFirstRetryGivesWayToRetryAfter(t *testing.T) {
	bubble(t, func(r *rig) {
		script := make([]step, 10)
		for i := range script {
			script[i] = answer(200, "ok")
		}
		u := r.upstream("u1.test:80", append(script, answer(502, "later", "Retry-After: 2"), answer(200, "ok"))...)
		for range 10 {
			r.want(r.get("http://u1.test/x"), 200, nil, 0)
		}
		got := r.get("http://u1.test/x")
		r.want(got, 200, u, 12)
		r.between("time to the answer", got.Took, 2*time.Second, 2*time.Second)
	}, with("jitter: none, jitter_ratio: 0, first_retry: fast")...)
}

// The first stop reason that holds is named: that there is no token tells a
// caller when to come back, that retries are off does not.
func TestRetryLimitedIsNamedBeforeRetriesOff(t *testing.T) {
	for _, value := range []string{"off", "observe"} {
		t.Run(value, func(t *testing.T) {
			bubble(t, func(r *rig) {
				u := r.upstream("u1.test:80", answer(503, "busy"))
				got := r.get("http://u1.test/x", "X-Shop-Id: s")
				r.want(got, 503, u, 1)
				r.wantHeader(got, "X-Retry-Reason", "retry_limited")
				r.wantHeader(got, "Proxy-Status", `retryproxy; received-status=503; details="retry_limited: shop"`)
				r.wantHeader(r.get("http://u1.test/x"), "X-Retry-Reason", "retries_off") // has no such bucket
			}, patches([]string{"shop: off", "shop: {rate: 0/m, burst: 0}"}, lays(`retries: {default: "`+value+`"}`))...)
		})
	}
}

// A call that waits for its retry when we shut down gets the answer it has, with
// a Retry-After even where the upstream's had none: another instance, or the
// next one here, takes it.
func TestDrainGivesKeptAnswersARetryAfter(t *testing.T) {
	for name, tt := range map[string]struct{ upstreams, want string }{
		"none":           {"", "1"},
		"the upstream's": {"Retry-After: 5", "5"},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(r *rig) {
				busy := answer(503, "busy")
				if tt.upstreams != "" {
					busy = answer(503, "busy", tt.upstreams)
				}
				u := r.upstream("u1.test:80", busy)
				call := r.async(func() reply { return r.post("http://u1.test/x", "{}", keyed) })
				rest(20 * time.Millisecond)
				stop := r.stop
				r.stop = nil
				stop()
				got := <-call
				r.want(got, 503, u, 1)
				r.wantBody(got, "busy")
				r.wantHeader(got, "Retry-After", tt.want)
				r.wantHeader(got, "X-Retry-Reason", "shutting_down")
				r.wantHeader(got, "X-Retry-Executed", "no")
				r.wantHeader(got, "X-Retry-Advice", "repeat")
				r.between("time to the answer", got.Took, 20*time.Millisecond, 20*time.Millisecond)
			}, plain...)
		})
	}
}

// Our own no names the host and when to come back, to the caller and in the log.
func TestGatesSayWhoAndUntilWhen(t *testing.T) {
	t.Run("breaker_open", func(t *testing.T) {
		bubble(t, func(r *rig) {
			u := r.upstream("u1.test:80", answer(503, ""))
			for range 5 {
				r.get("http://u1.test/x", "X-Retry-Count: 3")
			}
			r.ended() // all five, or one might end after the next call
			got := r.get("http://u1.test/x")
			r.want(got, 503, u, 5)
			r.wantDetail(got, "u1.test:80 is cut off after too many failures, next probe at 2000-01-01T00:00:02Z")
		}, with("on_open: fail")...)
	})
	t.Run("no_slot", func(t *testing.T) {
		bubble(t, func(r *rig) {
			r.upstream("u1.test:80", after(900*time.Millisecond, answer(200, "ok")))
			first := r.async(func() reply { return r.get("http://u1.test/x") })
			rest(time.Millisecond)
			got := r.get("http://u1.test/x")
			r.want(got, 503, nil, 0)
			r.wantDetail(got, "no slot of u1.test:80 became free in time (slots)")
			<-first
		}, "max_in_flight: 100", "max_in_flight: 1, max_wait: 500ms")
	})
}

// wantDetail checks the detail of a problem and that of the call in the log.
func (r *rig) wantDetail(got reply, detail string) {
	r.t.Helper()
	if !strings.Contains(got.Body, `"detail":"`+detail) {
		r.t.Errorf("problem = %s, want the detail %q", got.Body, detail)
	}
	if logged := r.last().Detail; !strings.HasPrefix(logged, detail) {
		r.t.Errorf("logged detail = %q, want %q", logged, detail)
	}
}
