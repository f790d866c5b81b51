package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"retryproxy/config"
)

func TestCase_BO_01_DelaySaturatesAtTheCap(t *testing.T) {
	bubble(t, func(r *rig) {
		script := make([]step, 80)
		for i := range script {
			script[i] = answer(503, "busy")
		}
		script[79] = answer(200, "ok")
		u := r.upstream("u1.test:80", script...)
		got := r.get("http://u1.test/x")
		r.want(got, 200, u, 80)
		r.wantHeader(got, "X-Retry-Count", "79")
		for i, gap := range u.gaps() {
			low, high := 8*time.Millisecond, 10*time.Millisecond
			if i < 3 { // 2, 4 and 8 ms, less 20 %
				low = 1600 * time.Microsecond << i
			}
			r.between(fmt.Sprintf("gap %d", i+1), gap, low, high)
		}
	}, patches(breakerOff, []string{"max_retries: 3, base_delay: 100ms, max_delay: 1s", "max_retries: 79, base_delay: 2ms, max_delay: 10ms", "deadline: 6s", "deadline: 30s"})...)
}

func TestCase_BO_02_CapBoundsTheJitteredWait(t *testing.T) {
	bubble(t, func(r *rig) {
		busy := answer(503, "busy")
		for i := range 200 {
			u := r.upstream(fmt.Sprintf("u%d.test:80", i), busy, busy, busy, answer(200, "ok"))
			r.want(r.get(fmt.Sprintf("http://u%d.test/x", i)), 200, u, 4)
			for _, a := range r.last().Attempts[1:] {
				r.between("planned delay", a.Delay, 720*time.Millisecond, time.Second)
			}
		}
	}, "base_delay: 100ms", "base_delay: 900ms")
}

func TestCase_BO_04_SenselessDelaysAreRefused(t *testing.T) {
	for _, tt := range []struct{ name, old, text, path string }{
		{"base 0", "base_delay: 100ms", "base_delay: 0", "base_delay"},
		{"cap below base", "max_delay: 1s", "max_delay: 50ms", "max_delay"},
		{"jitter over 1", "max_delay: 1s", "max_delay: 1s, jitter_ratio: 1.5", "jitter_ratio"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			text := strings.Replace(caseConfig, tt.old, tt.text, 1)
			_, err := config.Parse("test.yaml", []byte(text), config.Options{})
			if err == nil || !strings.Contains(err.Error(), "retry_policies[0]."+tt.path) {
				t.Errorf("Parse(%s) = %v, want an error that names %s", tt.text, err, tt.path)
			}
		})
	}
}

func TestCase_BO_04_ZeroJitterIsLegal(t *testing.T) {
	bubble(t, func(r *rig) {
		u := r.upstream("u1.test:80", answer(503, "busy"))
		got := r.get("http://u1.test/x")
		r.want(got, 503, u, 4)
		r.wantHeader(got, "X-Retry-Reason", "attempts_exhausted")
		r.wantGaps(u, 100*time.Millisecond, 200*time.Millisecond, 400*time.Millisecond)
	}, with("jitter_ratio: 0")...)
}

func TestCase_BO_05_NoAttemptAfterTheDeadline(t *testing.T) {
	bubble(t, func(r *rig) {
		u := r.upstream("u1.test:80", after(50*time.Millisecond, answer(503, "busy")))
		got := r.get("http://u1.test/x")
		r.want(got, 503, u, 4) // at 0, 150, 400 and 850 ms; the next wait of 800 ms is not begun
		r.wantHeader(got, "X-Retry-Reason", "deadline_exceeded")
		r.wantBody(got, "busy")
		r.between("time to the answer", got.Took, 900*time.Millisecond, 900*time.Millisecond)
	}, patches(plain, []string{"max_retries: 3", "max_retries: 999", "max_delay: 1s", "max_delay: 10s", "deadline: 6s", "deadline: 1s"})...)
}

func TestCase_BO_06_LastAttemptIsCutToTheDeadline(t *testing.T) {
	bubble(t, func(r *rig) {
		u := r.upstream("u1.test:80", silent)
		got := r.get("http://u1.test/x")
		r.want(got, 504, u, 3)
		r.wantHeader(got, "X-Retry-Reason", "deadline_exceeded")
		r.wantHeader(got, "X-Retry-Executed", "maybe")
		r.wantHeader(got, "Retry-After", "")
		r.between("time to the answer", got.Took, 2500*time.Millisecond, 2500*time.Millisecond)
		for n, want := range []time.Duration{time.Second, time.Second, 350 * time.Millisecond} {
			r.between(fmt.Sprintf("attempt %d", n+1), r.last().Attempts[n].Duration, want, want)
		}
	}, patches(plain, []string{"deadline: 6s", "deadline: 2500ms", "base_delay: 100ms", "base_delay: 50ms"})...)
}

func TestCase_BO_07_ClientLeavesDuringTheWait(t *testing.T) {
	bubble(t, func(r *rig) {
		u := r.upstream("u1.test:80", answer(503, "busy"), answer(200, "ok"))
		c := r.dial()
		c.Write([]byte(rawRequest("POST", "http://u1.test/x", "{}", "X-Idempotency-Key: k")))
		time.Sleep(300 * time.Millisecond)
		c.Close()
		r.wantEnd("cancelled", "client_gone", 1) // as soon as the client is seen gone
		if g := r.gate("u1.test:80"); g.InFlight != 0 || g.Planned != 0 || g.Waiting != 0 || g.Breaker.Failures != 1 {
			t.Errorf("gate = %+v, want nothing in flight, nobody waiting and the one failure of the 503", g)
		}
		r.wantMetric(1, "calls_total", "result=cancelled")
		r.wantMetric(0, "calls_total", "result=failed")
		time.Sleep(time.Minute)
		if n := u.count(); n != 1 {
			t.Errorf("requests at the upstream = %d, want 1", n)
		}
	}, "base_delay: 100ms", "base_delay: 1s")
}

// The contract turns a final 408 into a 504: browsers silently re-send any
// method on a 408.
func TestCase_BO_10_Repeated408(t *testing.T) {
	bubble(t, func(r *rig) {
		u := r.upstream("u1.test:80", answer(408, "1", "Connection: close"), answer(408, "2", "Connection: close"),
			answer(408, "3", "Connection: close"), answer(408, "4", "Connection: close", "X-Mine: 4"))
		got := r.get("http://u1.test/x")
		r.want(got, 504, u, 4)
		r.wantBody(got, "4")
		r.wantHeader(got, "X-Mine", "4")
		r.wantHeader(got, "X-Retry-Reason", "attempts_exhausted")
		r.wantHeader(got, "X-Retry-Executed", "no")
		if s := got.Header.Get("Proxy-Status"); !strings.Contains(s, "received-status=408") {
			t.Errorf("Proxy-Status = %q, want received-status=408", s)
		}
		r.wantGaps(u, 100*time.Millisecond, 200*time.Millisecond, 400*time.Millisecond)
	}, plain...)
}

func TestCase_BO_11_StackedRetries(t *testing.T) {
	bubble(t, func(r *rig) {
		u := r.upstream("u1.test:80", answer(503, "busy"))
		got := r.post("http://u1.test/x", "{}", "X-Idempotency-Key: k", "X-Retry-Count: 2")
		r.want(got, 503, u, 2)
		r.wantSent(u, 1, "X-Retry-Count", "2")
		r.wantSent(u, 2, "X-Retry-Count", "3")
		r.wantHeader(got, "X-Retry-Count", "3")
		r.wantHeader(got, "X-Retry-Reason", "attempts_exhausted")
	})
}

func TestCase_BO_12_BrokenRetryCount(t *testing.T) {
	for _, tt := range []struct {
		name, sent string // the header lines of the client
		requests   int
		ignored    float64
		first      string // what the upstream sees first
	}{
		{"negative", "X-Retry-Count: -1", 4, 1, ""},
		{"huge", "X-Retry-Count: 99999999999999999999", 4, 1, ""},
		{"over the most", "X-Retry-Count: 1001", 4, 1, ""},
		{"no number", "X-Retry-Count: abc", 4, 1, ""},
		{"list", "X-Retry-Count: 1, 1", 4, 1, ""},
		{"two lines", "X-Retry-Count: 1\r\nX-Retry-Count: 1", 4, 1, ""},
		{"empty", "X-Retry-Count:", 4, 1, ""},
		{"the budget is used up", "X-Retry-Count: 3", 1, 0, "3"},
		{"more than the budget", "X-Retry-Count: 1000", 1, 0, "1000"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			bubble(t, func(r *rig) {
				u := r.upstream("u1.test:80", answer(503, "busy"))
				r.want(r.get("http://u1.test/x", tt.sent), 503, u, tt.requests)
				r.wantSent(u, 1, "X-Retry-Count", tt.first)
				if tt.requests > 1 {
					r.wantSent(u, 2, "X-Retry-Count", "1")
				}
				r.wantMetric(tt.ignored, "ignored_values_total", "field=retry_count")
				r.wantMetric(tt.ignored, "ignored_values_total")
			})
		})
	}
}

func TestCase_BO_13_CertificateErrorsArePermanent(t *testing.T) {
	bubble(t, func(r *rig) {
		u := r.upstreamTLS("u1.test:443", newCA(t).certificate("u1.test"), answer(200, "ok"))
		c := r.dial()
		defer c.Close()
		got := r.exchange(c, "GET /u1/x HTTP/1.1\r\nHost: "+proxyAddr+"\r\n\r\n", "GET")
		r.want(got, 502, u, 0)
		r.wantHeader(got, "X-Retry-Reason", "fail_permanent")
		r.wantHeader(got, "X-Retry-Executed", "no")
		r.wantHeader(got, "X-Retry-Advice", "stop")
		r.wantVerdict(1, "permanent", "tls_verify")
		r.wantEnd("failed", "fail_permanent", 1)
		r.between("time to the answer", got.Took, 0, 0)
		r.wantMetric(1, "attempts_total", "class=permanent", "reason=tls_verify")
		if n := u.connections(); n != 1 {
			t.Errorf("handshakes = %d, want 1", n)
		}
		if g := r.gate("u1.test:443"); g.Breaker.Failures != 0 {
			t.Errorf("breaker = %+v, want no failure: waiting mends no certificate", g.Breaker)
		}
	}, "retry_limits:", "routes: [{name: u1, prefix: /u1, upstreams: [\"https://u1.test\"]}]\nretry_limits:")
}

// Without a rule for the platform a busy code in a 200 is passed on, as the
// contract's suspect answer; the rule itself comes with the presets.
func TestCase_BO_15_BusyCodeWithoutARule(t *testing.T) {
	bubble(t, func(r *rig) {
		const busy = `{"success":false,"error_code":50001,"error_msg":"system busy"}`
		u := r.upstream("u1.test:80", answer(200, busy, "Content-Type: application/json"), answer(200, `{"success":true,"id":7}`, "Content-Type: application/json"))
		got := r.post("http://u1.test/x", "{}", "X-Idempotency-Key: k", "X-Task-Type: order")
		r.want(got, 200, u, 1)
		r.wantBody(got, busy)
		r.wantHeader(got, "X-Retry-Reason", "")
		r.wantMetric(1, "suspect_answers_total", "host=u1.test:80")

		again := r.post("http://u1.test/x", "{}", "X-Idempotency-Key: k", "X-Task-Type: order")
		r.want(again, 200, u, 2) // not stored under the key
		r.wantBody(again, `{"success":true,"id":7}`)
		r.wantSent(u, 2, "X-Retry-Count", "1")

		stored := r.post("http://u1.test/x", "{}", "X-Idempotency-Key: k", "X-Task-Type: order")
		r.want(stored, 200, u, 2)
		r.wantHeader(stored, "Idempotency-Replayed", "true")
		r.wantMetric(1, "suspect_answers_total")
	})
}

func TestCase_BO_15_NoMatchInsideOfAString(t *testing.T) {
	bubble(t, func(r *rig) {
		const fine = `{"id":7,"note":"\"error_code\":50001"}`
		u := r.upstream("u1.test:80", answer(200, fine, "Content-Type: application/json"))
		for range 2 {
			r.wantBody(r.post("http://u1.test/x", "{}", "X-Idempotency-Key: k"), fine)
		}
		r.want(reply{Status: 200}, 200, u, 1)
		r.wantMetric(0, "suspect_answers_total")
	})
}
