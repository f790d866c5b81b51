package main

import (
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"retryproxy/idempotency"
)

// keyed is the key of these scenarios.
const keyed = "X-Idempotency-Key: k"

// closing stops to listen, answers with a status and closes the connection.
func closing(status int, body string, headers ...string) step {
	return func(s *scripted, c net.Conn, req *request) bool {
		s.l.Close()
		answer(status, body, append(headers, "Connection: close")...)(s, c, req)
		return false
	}
}

func TestNewestCompleteAnswerIsGiven(t *testing.T) {
	for _, tt := range []struct {
		name, body string
	}{
		{"small", `{"busy":1}`},
		{"from a file", random(300 << 10)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			bubble(t, func(r *rig) {
				u := r.upstream("u1.test:80", answer(503, "older"), closing(503, tt.body, "X-Mine: 2", "Set-Cookie: a=1"))
				got := r.post("http://u1.test/x", "{}")
				r.want(got, 503, u, 2)
				r.wantBody(got, tt.body)
				r.wantHeader(got, "X-Mine", "2")
				r.wantHeader(got, "Set-Cookie", "a=1")
				r.wantHeader(got, "X-Retry-Count", "3")
				r.wantHeader(got, "X-Retry-Reason", "attempts_exhausted")
				r.wantHeader(got, "X-Retry-Executed", "no")
				r.wantHeader(got, "X-Retry-Advice", "repeat")
				r.wantVerdict(4, "transient", "connect_refused")
			}, "idempotency:", "body: {memory: 64KiB, dir: "+`"`+t.TempDir()+`"`+"}\nidempotency:")
		})
	}
}

// A later attempt that may have been executed makes the older answer a lie.
func TestNewestAnswerIsNotGivenWhenExecuted(t *testing.T) {
	bubble(t, func(r *rig) {
		u := r.upstream("u1.test:80", answer(503, "older", "Retry-After: 1"), hangUp)
		got := r.get("http://u1.test/x")
		r.want(got, 502, u, 4)
		r.wantHeader(got, "Content-Type", "application/problem+json")
		r.wantHeader(got, "X-Retry-Reason", "attempts_exhausted")
		r.wantHeader(got, "X-Retry-Executed", "maybe")
		r.wantHeader(got, "X-Retry-Advice", "check")
		r.wantHeader(got, "Retry-After", "")
	})
}

// executed is the worst over all attempts, whichever answer is given.
func TestExecutedIsTheWorst(t *testing.T) {
	bubble(t, func(r *rig) {
		u := r.upstream("u1.test:80", reset, answer(503, "busy"))
		got := r.get("http://u1.test/x")
		r.want(got, 503, u, 4)
		r.wantBody(got, "busy")
		r.wantHeader(got, "X-Retry-Executed", "maybe")
		r.wantHeader(got, "X-Retry-Advice", "check")
		r.wantHeader(got, "Retry-After", "")
	})
}

// An answer over 1 MiB that is retried is not kept.
func TestLargeFailedAnswerIsDropped(t *testing.T) {
	bubble(t, func(r *rig) {
		u := r.upstream("u1.test:80", closing(503, random(1<<20+1)))
		got := r.post("http://u1.test/x", "{}")
		r.want(got, 502, u, 1)
		r.wantHeader(got, "X-Retry-Executed", "no")
		r.wantHeader(got, "Content-Type", "application/problem+json")
	})
}

// Nor one that does not come to its end within 5 s.
func TestSlowFailedAnswerIsDropped(t *testing.T) {
	bubble(t, func(r *rig) {
		slow := func(s *scripted, c net.Conn, _ *request) bool {
			io.WriteString(c, "HTTP/1.1 503 Busy\r\nContent-Length: 100\r\n\r\n")
			for range 20 {
				if _, err := io.WriteString(c, "."); err != nil {
					return false
				}
				time.Sleep(time.Second)
			}
			return false
		}
		u := r.upstream("u1.test:80", slow, answer(200, "ok"))
		got := r.get("http://u1.test/x")
		r.want(got, 200, u, 2)
		r.between("time to the answer", got.Took, 5*time.Second, 6*time.Second+time.Millisecond)
		if u.connections() != 2 {
			t.Errorf("connections = %d, want 2: the slow one is given up", u.connections())
		}
	}, "deadline: 6s", "deadline: 30s")
}

// The failed answer of a retried attempt is read, so that its connection serves
// the next one.
func TestConnectionOfARetriedAnswerIsUsedAgain(t *testing.T) {
	bubble(t, func(r *rig) {
		u := r.upstream("u1.test:80", answer(503, random(100<<10)), answer(503, "busy"), answer(200, "ok"))
		r.want(r.get("http://u1.test/x"), 200, u, 3)
		if u.connections() != 1 {
			t.Errorf("connections = %d, want 1", u.connections())
		}
	})
}

// The count goes on over the runs of a record; a repeat of the client has what
// the last deadline left of the budget.
func TestCountsOverRuns(t *testing.T) {
	bubble(t, func(r *rig) {
		u := r.upstream("u1.test:80", answer(503, "busy"))
		counts := func(from int, want ...string) {
			t.Helper()
			for n, count := range want {
				r.wantSent(u, from+n, "X-Retry-Count", count)
			}
			r.want(reply{}, 0, u, from+len(want)-1)
		}
		got := r.post("http://u1.test/x", "{}", keyed)
		counts(1, "", "1", "2", "3")
		r.wantHeader(got, "X-Retry-Count", "3")
		r.wantEnd("failed", "attempts_exhausted", 4)

		got = r.post("http://u1.test/x", "{}", keyed) // all retries are spent: one attempt
		counts(5, "4")
		r.wantHeader(got, "X-Retry-Count", "4")
		if got := r.last().Attempts[0].N; got != 5 {
			t.Errorf("number of the attempt on the record = %d, want 5", got)
		}

		r.post("http://u1.test/x", "{}", keyed, "X-Retry-Count: 1") // the client's own count comes on top
		counts(6, "6")

		time.Sleep(6 * time.Second) // the window is over: a full budget, the count goes on
		r.post("http://u1.test/x", "{}", keyed)
		counts(7, "7", "8", "9", "10")

		rec := r.record("k")
		if rec.Attempts != 10 || len(rec.Runs) != 4 || rec.ClientCount != 1 {
			t.Errorf("record = %d attempts, %d runs, client count %d; want 10, 4, 1", rec.Attempts, len(rec.Runs), rec.ClientCount)
		}
	}, breakerOff...)
}

func TestCountIsNotSentWhenNotForwarded(t *testing.T) {
	bubble(t, func(r *rig) {
		u := r.upstream("u1.test:80", answer(503, "busy"), answer(200, "ok"))
		r.want(r.get("http://u1.test/x", "X-Retry-Count: 1", "X-Shop-Id: s", "X-Shop-Tier: vip", "X-Task-Type: t"), 200, u, 2)
		for n := 1; n <= 2; n++ {
			r.wantSent(u, n, "X-Retry-Count", "")
			r.wantSent(u, n, "X-Shop-Id", "s")
			r.wantSent(u, n, "X-Shop-Tier", "")
			r.wantSent(u, n, "X-Task-Type", "")
		}
	}, with("forward_headers: [shop]")...)
}

// leaveAfter sends a request and closes after a time.
func (r *rig) leaveAfter(d time.Duration, text string) {
	c := r.dial()
	io.WriteString(c, text)
	time.Sleep(d)
	c.Close()
}

func TestKeyedAttemptOutlivesItsClient(t *testing.T) {
	bubble(t, func(r *rig) {
		u := r.upstream("u1.test:80", after(500*time.Millisecond, answer(201, `{"id":1}`)))
		r.leaveAfter(100*time.Millisecond, rawRequest("POST", "http://u1.test/x", "{}", keyed))
		time.Sleep(time.Second)
		if rec := r.record("k"); rec.State != idempotency.StateDone {
			t.Errorf("record = %s, want done", rec.State)
		}
		if v := r.last().Attempts[0].Verdict; v.Reason != "status_201" {
			t.Errorf("verdict = %+v, want status_201", v)
		}
		got := r.post("http://u1.test/x", "{}", keyed)
		r.want(got, 201, u, 1)
		r.wantBody(got, `{"id":1}`)
		r.wantHeader(got, "Idempotency-Replayed", "true")
	})
}

func TestKeyedCallWithoutItsClientIsNotRetried(t *testing.T) {
	bubble(t, func(r *rig) {
		u := r.upstream("u1.test:80", after(500*time.Millisecond, answer(500, "broken")), answer(200, "ok"))
		r.leaveAfter(100*time.Millisecond, rawRequest("POST", "http://u1.test/x", "{}", keyed))
		time.Sleep(time.Minute)
		r.wantEnd("cancelled", "client_gone", 1)
		r.wantVerdict(1, "transient", "status_500")
		rec := r.record("k")
		if rec.State != idempotency.StateFailed || rec.Attempts != 1 || rec.Executed.String() != "maybe" {
			t.Errorf("record = %s, %d attempts, executed %s; want free, 1, maybe", rec.State, rec.Attempts, rec.Executed)
		}
		r.want(r.post("http://u1.test/x", `{"other":1}`, keyed), 422, u, 1) // it stays bound
		got := r.post("http://u1.test/x", "{}", keyed)
		r.want(got, 200, u, 2)
		r.wantSent(u, 2, "X-Retry-Count", "1")
	})
}

func TestRetriesGoOnForWaiters(t *testing.T) {
	bubble(t, func(r *rig) {
		u := r.upstream("u1.test:80", after(500*time.Millisecond, answer(500, "broken")), answer(201, `{"id":1}`))
		leader := make(chan struct{})
		go func() {
			defer close(leader)
			r.leaveAfter(200*time.Millisecond, rawRequest("POST", "http://u1.test/x", "{}", keyed))
		}()
		time.Sleep(100 * time.Millisecond)
		got := r.post("http://u1.test/x", "{}", keyed)
		<-leader
		r.want(got, 201, u, 2)
		r.wantBody(got, `{"id":1}`)
		r.wantHeader(got, "Cache-Status", "retryproxy; collapsed")
	})
}

// The waiters of a call that is between its attempts keep it going as well, and
// the last one that leaves ends it.
func TestLastWaiterEndsTheCall(t *testing.T) {
	bubble(t, func(r *rig) {
		u := r.upstream("u1.test:80", answer(503, "busy", "Retry-After: 3"), answer(200, "ok"))
		done := make(chan struct{}, 2)
		for n := range 2 {
			go func() {
				r.leaveAfter(time.Duration(n+1)*time.Second, rawRequest("POST", "http://u1.test/x", "{}", keyed))
				done <- struct{}{}
			}()
			time.Sleep(time.Millisecond)
		}
		<-done
		<-done
		time.Sleep(time.Minute)
		r.want(reply{}, 0, u, 1)
		if rec := r.record("k"); rec.State != idempotency.StateFailed {
			t.Errorf("record = %s, want free", rec.State)
		}
	}, plain...)
}

func TestKeylessAttemptEndsWithItsClient(t *testing.T) {
	bubble(t, func(r *rig) {
		var ended time.Duration
		u := r.upstream("u1.test:80", func(_ *scripted, c net.Conn, _ *request) bool {
			began := time.Now()
			io.Copy(io.Discard, c)
			ended = time.Since(began)
			return false
		})
		r.leaveAfter(100*time.Millisecond, rawRequest("GET", "http://u1.test/x", ""))
		r.wantEnd("cancelled", "client_gone", 1)
		r.between("end of the attempt", ended, 100*time.Millisecond, 100*time.Millisecond)
		if v := r.last().Attempts[0].Verdict; v.Reason != "cancelled" {
			t.Errorf("verdict = %+v, want cancelled", v)
		}
		if g := r.gate("u1.test:80"); g.Breaker.Calls != 0 || g.InFlight != 0 {
			t.Errorf("gate = %+v, want no trace of the attempt", g)
		}
		time.Sleep(time.Minute)
		r.want(reply{}, 0, u, 1)
	})
}

// A call that stops unknown on a host that ignores keys leaves a doubt: nothing
// is sent until it is resolved.
func TestInDoubt(t *testing.T) {
	bubble(t, func(r *rig) {
		u := r.upstream("u1.test:80", reset, answer(200, "ok"))
		got := r.post("http://u1.test/x", "{}", keyed)
		r.want(got, 502, u, 1)
		r.wantHeader(got, "X-Retry-Reason", "manual_review")
		again := r.post("http://u1.test/x", "{}", keyed)
		r.want(again, 409, u, 1)
		r.wantHeader(again, "X-Retry-Reason", "in_doubt")
		r.wantHeader(again, "X-Retry-Executed", "maybe")
		r.wantHeader(again, "X-Retry-Advice", "check")
		r.wantHeader(again, "Retry-After", "")
		time.Sleep(time.Hour)
		r.want(r.post("http://u1.test/x", "{}", keyed), 200, u, 2) // idempotency.ttl is over
	}, with("forward_headers: []")...)
}

// What an upstream says under our names is not ours to pass on.
func TestNamesThatAreOurs(t *testing.T) {
	bubble(t, func(r *rig) {
		u := r.upstream("u1.test:80", answer(404, "no", "X-Call-Id: u", "X-Retry-Count: 9", "X-Retry-Reason: u", "X-Retry-Executed: u",
			"X-Retry-Advice: u", "Idempotency-Replayed: u", "Cache-Status: u; hit", "Proxy-Status: u; error=dns_error"))
		got := r.get("http://u1.test/x")
		r.want(got, 404, u, 1)
		r.wantHeader(got, "X-Retry-Count", "0")
		r.wantHeader(got, "X-Retry-Reason", "fail_permanent")
		r.wantHeader(got, "X-Retry-Executed", "no")
		r.wantHeader(got, "X-Retry-Advice", "stop")
		r.wantHeader(got, "Idempotency-Replayed", "")
		r.wantHeader(got, "Cache-Status", "")
		if id := got.Header.Values("X-Call-Id"); len(id) != 1 || id[0] == "u" {
			t.Errorf("X-Call-Id = %q, want ours alone", id)
		}
		if s := got.Header.Values("Proxy-Status"); len(s) == 0 || s[0] != "u; error=dns_error" {
			t.Errorf("Proxy-Status = %q, want the upstream's first", s)
		}
	})
}

// A redrive by the client after a definite rejection may carry another body.
func TestKeyIsFreeAfterARejection(t *testing.T) {
	bubble(t, func(r *rig) {
		u := r.upstream("u1.test:80", answer(400, "bad"), answer(200, "ok"))
		r.want(r.post("http://u1.test/x", "{}", keyed), 400, u, 1)
		got := r.post("http://u1.test/x", `{"fixed":1}`, keyed)
		r.want(got, 200, u, 2)
		r.wantSent(u, 2, "X-Retry-Count", "1")
		if !strings.Contains(string(u.seen()[1].Body), "fixed") {
			t.Errorf("body = %s, want the new one", u.seen()[1].Body)
		}
	})
}

// A third-party platform gets none of our headers, and a key that it ignores
// makes nothing safe: the doubt stays.
func TestThirdPartyPlatform(t *testing.T) {
	const host = "gw-api.pinduoduo.com"
	ca := newCA(t)
	bubble(t, func(r *rig) {
		u := r.upstreamTLS(host+":443", ca.certificate(host), answer(503, "busy"), answer(500, "broken"))
		got := r.post("http://"+host+"/api/router", "{}", keyed, "X-Shop-Id: s", "X-Task-Type: t", "X-Retry-Count: 1", "X-Request-Timeout: 5")
		r.want(got, 500, u, 2) // the 503 said that nothing was done
		r.wantHeader(got, "X-Retry-Reason", "manual_review")
		r.wantHeader(got, "X-Retry-Executed", "maybe")
		for n := 1; n <= 2; n++ {
			for _, name := range []string{"X-Idempotency-Key", "X-Retry-Count", "X-Shop-Id", "X-Task-Type", "X-Request-Timeout", "Via"} {
				r.wantSent(u, n, name, "")
			}
		}
		again := r.post("http://"+host+"/api/router", "{}", keyed, "X-Shop-Id: s", "X-Task-Type: t")
		r.want(again, 409, u, 2)
		r.wantHeader(again, "X-Retry-Reason", "in_doubt")
	}, trusting(ca)...)
}

// A route with several upstreams goes on to the next one only when nothing was
// sent.
func TestNextUpstreamOfARoute(t *testing.T) {
	routes := []string{"retry_limits:", `routes: [{name: r, prefix: /r, upstreams: ["http://u1.test", "http://u2.test/base"]}]` + "\nretry_limits:"}
	t.Run("refused", func(t *testing.T) {
		bubble(t, func(r *rig) {
			r.closed("u1.test:80", answer(200, "one"))
			u2 := r.upstream("u2.test:80", answer(200, "two"))
			got := r.origin("POST", proxyAddr, "/r/x?y", "{}")
			r.want(got, 200, u2, 1)
			r.wantBody(got, "two")
			if line := u2.seen()[0].Line; line != "POST /base/x?y HTTP/1.1" {
				t.Errorf("request = %q, want it under /base", line)
			}
			r.wantSent(u2, 1, "X-Retry-Count", "1")
			all := r.last().Attempts
			if len(all) != 2 || all[0].Host != "u1.test:80" || all[1].Host != "u2.test:80" {
				t.Errorf("attempts = %+v, want one at each upstream", all)
			}
		}, routes...)
	})
	t.Run("answered", func(t *testing.T) {
		bubble(t, func(r *rig) {
			u1 := r.upstream("u1.test:80", answer(500, "broken"), answer(200, "one"))
			u2 := r.upstream("u2.test:80", answer(200, "two"))
			got := r.origin("GET", proxyAddr, "/r/x", "")
			r.want(got, 200, u1, 2)
			r.want(got, 200, u2, 0)
			r.wantBody(got, "one")
		}, routes...)
	})
}
