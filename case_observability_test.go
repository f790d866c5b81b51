package main

import (
	"encoding/json"
	"fmt"
	"net"
	"regexp"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// metricLine is a line of the Prometheus text format.
var metricLine = regexp.MustCompile(`^(# .*|[a-z_]+(\{([a-z_]+="([^"\\\n]|\\["\\n])*",?)*\})? \S+)$`)

// wantClean checks that each line of the log is one JSON object, that neither log
// nor metrics hold control characters, and that metrics are well formed.
func (r *rig) wantClean() {
	r.t.Helper()
	synctest.Wait()
	for line := range strings.Lines(r.log.String()) {
		var object map[string]any
		if err := json.Unmarshal([]byte(line), &object); err != nil {
			r.t.Errorf("log line %q is no JSON object: %v", line, err)
		}
	}
	metrics := r.admin("GET", "/metrics", "", nil).Body
	for line := range strings.Lines(metrics) {
		if !metricLine.MatchString(strings.TrimSuffix(line, "\n")) {
			r.t.Errorf("line of the metrics: %q", line)
		}
	}
	control := func(c rune) bool { return c < ' ' && c != '\n' || c == 0x7f }
	for name, text := range map[string]string{"log": r.log.String(), "metrics": metrics} {
		if i := strings.IndexFunc(text, control); i >= 0 {
			r.t.Errorf("the %s holds a control character: %q", name, text[max(0, i-40):i+1])
		}
	}
}

func TestCase_OB_01_NoForgedLogLines(t *testing.T) {
	const target = `http://u1.test/x%0d%0a{"level":"info","msg":"paid"}`
	head := func(lines ...string) string {
		return "POST " + target + " HTTP/1.1\r\nHost: u1.test\r\nContent-Length: 2\r\n" + strings.Join(lines, "\r\n") + "\r\n\r\n{}"
	}
	bubble(t, func(r *rig) {
		u := r.upstream("u1.test:80", raw("HTTP/1.1 503 No\x1b[2J way\r\nX-Request-Id: \x1b]0;x\x07\r\nConnection: close\r\nContent-Length: 9\r\n\r\n{\n\"a\":\r\n}"), answer(200, "ok", "X-Request-Id: a\tb"))
		for _, bad := range []string{"X-Idempotency-Key: k%0a\x1b[2J", "User-Agent: a\x1b]0;x\x07", "X-Task-Type: a\x0bb"} {
			r.want(r.ask(head(bad)), 400, u, 0)
		}
		got := r.ask(head("X-Idempotency-Key: k%0a[2J", `User-Agent: a\x1b]0;x\x07`, `X-Task-Type: order\"}`, "X-Request-Id: \"},{\u2028\u202e\xff", "traceparent: \\u000a"))
		r.want(got, 200, u, 2)
		r.wantClean()
		if labels := r.last().Labels; labels.TaskType != `order\"}` {
			t.Errorf("task type = %q", labels.TaskType)
		}
	})
	bubble(t, func(r *rig) {
		u := r.upstream("u1.test:80", answer(503, "{\n\"msg\":\r\n\x1b[2J}"), answer(200, "ok", "X-Request-Id: a\tb\xff"))
		got := r.ask(head("X-Idempotency-Key: k%0a[2J", `User-Agent: a\x1b]0;x\x07`, `X-Task-Type: order\"}`))
		r.want(got, 200, u, 2)
		r.wantClean()
		line := r.logged("call")[0]
		if want := `/x%0d%0a{"level":"info","msg":"paid"}`; line["path"] != want {
			t.Errorf("logged path = %q, want %q", line["path"], want)
		}
	})
}

func TestCase_OB_04_SecretsStayOut(t *testing.T) {
	bubble(t, func(r *rig) {
		u := r.upstream("u1.test:80", answer(500, "no"))
		got := r.post("http://u1.test/x?access_token=TOPSECRET1&sign=TOPSECRET2", `{"password":"TOPSECRET5"}`,
			"X-Idempotency-Key: TOPSECRET6", "Authorization: Bearer TOPSECRET3", "Cookie: s=TOPSECRET4")
		r.want(got, 500, u, 4)
		if strings.Contains(fmt.Sprint(got.Header, got.Body), "TOPSECRET") {
			t.Errorf("the answer shows a secret: %v %s", got.Header, got.Body)
		}
		r.post("http://u1.test/x?sign=TOPSECRET2", `other`, "X-Idempotency-Key: TOPSECRET6") // key_mismatch names the first use
		r.get("http://u1.test:1/x?sign=TOPSECRET2")                                          // an error of our own
		r.none("TOPSECRET")
		r.wantEnd("failed", "attempts_exhausted", 4)
	})
}

func TestCase_OB_06_NumbersAgreeWithTheWire(t *testing.T) {
	bubble(t, func(r *rig) {
		heal := func(first step) step { // the first attempt of each call fails
			return func(s *scripted, c net.Conn, req *request) bool {
				if req.Header.Get("X-Retry-Count") == "" {
					return first(s, c, req)
				}
				return answer(200, "ok")(s, c, req)
			}
		}
		u := r.upstream("u1.test:80", byPath(map[string]step{
			"/ok": answer(200, "ok"), "/heal": heal(answer(503, "")), "/reset": heal(reset), "/gone": answer(503, ""),
			"/bad": answer(404, ""), "/never": answer(500, ""),
			"/stale": func(s *scripted, c net.Conn, req *request) bool { // a reused connection dies with the request
				return req.Header.Get("X-Retry-Count") != "" && answer(200, "ok")(s, c, req)
			},
		}))
		down := r.upstream("u2.test:80", answer(500, ""))
		calls := []func(i int){
			func(int) { r.get("http://u1.test/ok") },
			func(int) { r.get("http://u1.test/heal") },
			func(int) { r.get("http://u1.test/reset") },
			func(int) { r.get("http://u1.test/stale") },
			func(int) { r.get("http://u1.test/bad") },
			func(i int) { r.post("http://u1.test/never", "{}", fmt.Sprintf("X-Idempotency-Key: n%d", i)) },
			func(int) { r.post("http://u1.test/never", "{}") }, // keyless: one attempt
			func(int) { // leaves in the backoff
				c := r.dial()
				c.Write([]byte(rawRequest("GET", "http://u1.test/gone", "")))
				time.Sleep(20 * time.Millisecond)
				c.Close()
			},
			func(int) { r.get("http://u2.test/x") },                                                        // opens its breaker, then is rejected
			func(i int) { r.post("http://u1.test/ok", "{}", fmt.Sprintf("X-Idempotency-Key: o%d", i/20)) }, // replays
		}
		var group sync.WaitGroup
		for i := range 1000 {
			group.Go(func() {
				time.Sleep(time.Duration(i) * 3 * time.Millisecond)
				calls[i%len(calls)](i)
			})
		}
		group.Wait()
		rest(10 * time.Second)

		wire := u.count() + down.count()
		r.wantMetric(float64(wire), "attempts_total")
		r.wantMetric(1000, "calls_total")
		first, logged := 0, 0
		for _, line := range r.logged("call") {
			n := len(line["attempts"].([]any))
			logged += n
			if n > 0 {
				first++
			}
		}
		if logged != wire {
			t.Errorf("attempts in the log = %d, on the wire %d", logged, wire)
		}
		r.wantMetric(float64(wire-first), "retries_total")
		r.wantMetric(1000, "call_duration_seconds")
		r.wantMetric(float64(wire), "attempt_duration_seconds")
		for _, result := range []string{"success", "recovered", "replay", "failed", "cancelled"} {
			if r.metric("calls_total", "result="+result) == 0 {
				t.Errorf("no call was counted as %s", result)
			}
		}
		if r.metric("stops_total", "reason=breaker_open") == 0 {
			t.Error("no call was rejected by the breaker")
		}
	}, "consecutive_failures: 5, open: 2s, open_max: 2s", "consecutive_failures: 100, failure_ratio: 0.9, min_calls: 20, open: 2s, open_max: 2s", "connect_timeout: 1s", "connect_timeout: 1s, on_open: fail")
}
