package main

import (
	"fmt"
	"net"
	"strings"
	"testing"
	"time"
)

// The first retry of an isolated failure goes out at once when the host is
// healthy otherwise, never when the server asked for time.
func TestFastFirstRetry(t *testing.T) {
	for _, tt := range []struct {
		name      string
		before    int // successes
		failure   step
		low, high time.Duration
	}{
		{"healthy host", 10, reset, 5 * time.Millisecond, 25 * time.Millisecond},
		{"healthy host, 500", 10, answer(500, ""), 5 * time.Millisecond, 25 * time.Millisecond},
		{"too little known", 8, reset, 100 * time.Millisecond, 100 * time.Millisecond},
		{"408", 10, answer(408, ""), 100 * time.Millisecond, 100 * time.Millisecond},
		{"425", 10, answer(425, ""), 100 * time.Millisecond, 100 * time.Millisecond},
		{"429", 10, answer(429, ""), 100 * time.Millisecond, 100 * time.Millisecond},
		{"503", 10, answer(503, ""), 5 * time.Millisecond, 25 * time.Millisecond},
		{"503, too little known", 8, answer(503, ""), 100 * time.Millisecond, 100 * time.Millisecond},
	} {
		t.Run(tt.name, func(t *testing.T) {
			bubble(t, func(r *rig) {
				script := make([]step, tt.before, tt.before+3)
				for i := range script {
					script[i] = answer(200, "ok")
				}
				u := r.upstream("u1.test:80", append(script, tt.failure, tt.failure, answer(200, "ok"))...)
				for range tt.before {
					r.want(r.get("http://u1.test/x"), 200, nil, 0)
				}
				r.want(r.get("http://u1.test/x"), 200, u, tt.before+3)
				gaps := u.gaps()[tt.before:]
				r.between("first retry", gaps[0], tt.low, tt.high)
				r.between("second retry", gaps[1], 200*time.Millisecond, 200*time.Millisecond)
			}, with("jitter: none, first_retry: fast")...)
		})
	}
}

func TestRetryAfterOverTheCap(t *testing.T) {
	for _, tt := range []struct {
		rule, reason string
		status       int
		gaps         []time.Duration
	}{
		{"cap", "", 200, []time.Duration{2 * time.Second}},
		{"stop", "retry_after_too_long", 429, nil},
		{"park", "retry_after_too_long", 429, nil}, // parking needs a durable store
	} {
		t.Run(tt.rule, func(t *testing.T) {
			bubble(t, func(r *rig) {
				u := r.upstream("u1.test:80", answer(429, "later", "Retry-After: 5"), answer(200, "ok"))
				got := r.get("http://u1.test/x")
				r.want(got, tt.status, u, len(tt.gaps)+1)
				r.wantGaps(u, tt.gaps...)
				r.wantHeader(got, "X-Retry-Reason", tt.reason)
				if tt.status == 429 {
					r.wantHeader(got, "Retry-After", "5")
					r.wantHeader(got, "X-Retry-Advice", "repeat")
				}
			}, with("jitter: none, jitter_ratio: 0, retry_after_cap: 2s, retry_after_over_cap: "+tt.rule)...)
		})
	}
}

// The server's wish counts on any retried status.
func TestRetryAfterOnAnyRetriedStatus(t *testing.T) {
	for _, status := range []int{408, 425, 429, 500, 502, 503, 504} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			bubble(t, func(r *rig) {
				u := r.upstream("u1.test:80", answer(status, "later", "Retry-After: 2"), answer(200, "ok"))
				r.want(r.get("http://u1.test/x"), 200, u, 2)
				r.wantGaps(u, 2*time.Second)
			}, plain...)
		})
	}
}

// Stable jitter waits the same for the same key wherever it runs.
func TestStableJitter(t *testing.T) {
	for key, want := range map[string][]int{"flight-1": {1, 2, 4, 11, 16, 35}, "flight-2": {1, 2, 4, 15, 19, 54}} {
		t.Run(key, func(t *testing.T) {
			bubble(t, func(r *rig) {
				busy := answer(503, "busy")
				u := r.upstream("u1.test:80", busy, busy, busy, busy, busy, busy, answer(200, "ok"))
				r.want(r.post("http://u1.test/x", "{}", "X-Idempotency-Key: "+key), 200, u, 7)
				for n, gap := range u.gaps() {
					if got := max(1, int(gap.Seconds())); got != want[n] {
						t.Errorf("wait %d = %v, want %d s and a part", n+1, gap, want[n])
					}
				}
			}, patches(breakerOff, with("jitter: stable"), []string{
				"max_retries: 3, base_delay: 100ms, max_delay: 1s", "max_retries: 6, base_delay: 2s, max_delay: 60s", "deadline: 6s", "deadline: 5m",
			})...)
		})
	}
}

func TestRequestTimeout(t *testing.T) {
	for _, tt := range []struct {
		value   string
		took    time.Duration
		ignored float64
	}{
		{"500ms", 500 * time.Millisecond, 0},
		{"2", 2 * time.Second, 0},
		{"1.5", 1500 * time.Millisecond, 0},
		{"1h", 6 * time.Second, 0}, // shortens the deadline, never lengthens it
		{"-1", 6 * time.Second, 1},
		{"0", 6 * time.Second, 1},
		{"soon", 6 * time.Second, 1},
		{"NaN", 6 * time.Second, 1},
	} {
		t.Run(tt.value, func(t *testing.T) {
			bubble(t, func(r *rig) {
				u := r.upstream("u1.test:80", silent)
				got := r.get("http://u1.test/x", "X-Request-Timeout: "+tt.value)
				r.want(got, 504, nil, 0)
				r.between("time to the answer", got.Took, tt.took, tt.took)
				r.wantHeader(got, "X-Retry-Reason", "deadline_exceeded")
				r.wantSent(u, 1, "X-Request-Timeout", "")
				r.wantMetric(tt.ignored, "ignored_values_total", "field=request_timeout")
			}, patches(plain, breakerOff, []string{"max_retries: 3", "max_retries: 100"})...)
		})
	}
}

// Prefer goes upstream like any other header (RFC 7240).
func TestPreferIsPassedOn(t *testing.T) {
	bubble(t, func(r *rig) {
		u := r.upstream("u1.test:80", answer(200, "ok"))
		r.want(r.get("http://u1.test/x", "Prefer: wait=5"), 200, u, 1)
		r.wantSent(u, 1, "Prefer", "wait=5")
	})
}

// A wait that does not fit the deadline is not begun.
func TestBackoffThatDoesNotFit(t *testing.T) {
	bubble(t, func(r *rig) {
		u := r.upstream("u1.test:80", answer(500, "broken"))
		got := r.get("http://u1.test/x", "X-Request-Timeout: 250ms")
		r.want(got, 500, u, 2) // at 0 and 100 ms; 300 ms is too late
		r.wantBody(got, "broken")
		r.between("time to the answer", got.Took, 100*time.Millisecond, 100*time.Millisecond)
		r.wantHeader(got, "X-Retry-Reason", "deadline_exceeded")
		r.wantHeader(got, "X-Retry-Executed", "maybe")
		r.wantHeader(got, "Retry-After", "")
	}, plain...)
}

// The deadline starts when the request was read: a slow upload takes nothing
// from the attempts.
func TestDeadlineStartsBehindTheUpload(t *testing.T) {
	bubble(t, func(r *rig) {
		u := r.upstream("u1.test:80", silent)
		got := r.trickle(rawRequest("PUT", "http://u1.test/x", random(160<<10)), time.Second)
		r.want(got, 504, nil, 0)
		r.between("time to the answer", got.Took, 16*time.Second, 16*time.Second)
		if n := u.count(); n != 6 {
			t.Errorf("requests at the upstream = %d, want 6 within the 6 s", n)
		}
	}, patches(breakerOff, []string{"max_retries: 3, base_delay: 100ms, max_delay: 1s", "max_retries: 100, base_delay: 1ms, max_delay: 1ms"})...)
}

// per_try_timeout starts with the last byte sent, an upload that stands still
// for body_idle_timeout fails.
func TestUploadThatStandsStill(t *testing.T) {
	bubble(t, func(r *rig) {
		stuck := func(_ *scripted, c net.Conn, _ *request) bool {
			time.Sleep(10 * time.Second)
			return false
		}
		u := r.upstream("u1.test:80", stuck)
		u.headOnly = true
		got := r.post("http://u1.test/x", random(1<<20))
		r.want(got, 504, u, 1)
		// When within the time of the last write it stopped cannot be seen.
		r.between("time to the answer", got.Took, 2*time.Second, 4*time.Second)
		r.wantVerdict(1, "unknown", "header_timeout")
		r.wantHeader(got, "X-Retry-Executed", "maybe")
	}, with("body_idle_timeout: 2s")...)
}

// per_try_timeout is 1 s here; what the kernels hold counts as sent.
func TestSlowUploadIsNoTimeout(t *testing.T) {
	bubble(t, func(r *rig) {
		slow := func(s *scripted, c net.Conn, req *request) bool {
			buf := make([]byte, 32<<10)
			for left := 256 << 10; left > 0; {
				n, err := req.Rest.Read(buf[:min(left, len(buf))])
				if err != nil {
					return false
				}
				left -= n
				time.Sleep(200 * time.Millisecond)
			}
			return answer(200, "ok")(s, c, req)
		}
		u := r.upstream("u1.test:80", slow)
		u.headOnly = true
		got := r.post("http://u1.test/x", random(256<<10))
		r.want(got, 200, u, 1)
		r.between("time to the answer", got.Took, 1500*time.Millisecond, 2*time.Second)
	})
}

// The times of the attempts, as told to the client.
func TestProblemTellsOfTheAttempts(t *testing.T) {
	bubble(t, func(r *rig) {
		u := r.upstream("u1.test:80", after(50*time.Millisecond, hangUp))
		got := r.get("http://u1.test/x")
		r.want(got, 502, u, 4)
		for _, part := range []string{
			`"type":"urn:retryproxy:attempts_exhausted"`, `"status":502`, `"retryable":false`, `"executed":"maybe"`, `"advice":"check"`,
			`{"n":1,"started":"2000-01-01T00:00:00Z","duration_ms":50,"class":"transient","reason":"eof_after_send","status":0,`, `"delay_ms":100}`, `"delay_ms":400}`,
		} {
			if !strings.Contains(got.Body, part) {
				t.Errorf("problem %s lacks %s", got.Body, part)
			}
		}
	}, plain...)
}
