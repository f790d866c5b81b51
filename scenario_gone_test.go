package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"testing"
	"time"

	"retryproxy/idempotency"
	"retryproxy/internal/memnet"
)

// endless writes an answer without an end, 64 KiB each 100 ms, and tells how
// long somebody read it.
func endless(read chan<- time.Duration) step {
	return func(_ *scripted, c net.Conn, _ *request) bool {
		began := time.Now()
		_, err := io.WriteString(c, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
		for piece := fmt.Sprintf("10000\r\n%s\r\n", random(64<<10)); err == nil && time.Since(began) < time.Hour; time.Sleep(100 * time.Millisecond) {
			_, err = io.WriteString(c, piece)
		}
		read <- time.Since(began)
		return false
	}
}

// An attempt of a keyed call runs to its end though the client left, but an
// answer that has none is read only as far as the record could keep it: up to
// max_response, here 1 MiB in 1.6 s.
func TestEndlessAnswerEndsSoonAfterItsClient(t *testing.T) {
	bubble(t, func(r *rig) {
		read := make(chan time.Duration, 1)
		u := r.upstream("u1.test:80", endless(read))
		c := r.dial()
		io.WriteString(c, rawRequest("POST", "http://u1.test/x", "{}", keyed))
		io.CopyN(io.Discard, c, 100<<10)
		c.(*memnet.Conn).Reset()
		r.between("the reading", <-read, 1500*time.Millisecond, 3*time.Second)
		if g := r.gate("u1.test:80"); g.InFlight != 0 {
			t.Errorf("in flight = %d, want the slot back", g.InFlight)
		}
		if rec := r.record("k"); rec.State != idempotency.StateDone || rec.Answer.Kept {
			t.Errorf("record = %s %+v, want done with a marker", rec.State, rec.Answer)
		}
		got := r.post("http://u1.test/x", "{}", keyed)
		r.want(got, 409, u, 1)
		r.wantHeader(got, "X-Retry-Reason", "result_not_kept")
	}, "idempotency: {", "idempotency: {max_response: 1MiB, ")
}

// Waiters get the answer that the leader kept from an earlier attempt, though
// the leader's own client is gone: closed or reset, which breaks the writing.
func TestWaitersGetAKeptAnswerWithoutTheLeader(t *testing.T) {
	for name, leave := range map[string]func(net.Conn){
		"closed": func(c net.Conn) { c.Close() },
		"reset":  func(c net.Conn) { c.(*memnet.Conn).Reset() },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(r *rig) {
				u := r.upstream("u1.test:80", closing(503, "busy", "X-Mine: 1"))
				c := r.dial()
				io.WriteString(c, rawRequest("POST", "http://u1.test/x", "{}", keyed))
				rest(10 * time.Millisecond)
				waiter := r.async(func() reply { return r.post("http://u1.test/x", "{}", keyed) })
				rest(10 * time.Millisecond)
				leave(c)
				got := <-waiter
				r.want(got, 503, u, 1)
				r.wantBody(got, "busy")
				r.wantHeader(got, "X-Mine", "1")
				r.wantHeader(got, "Cache-Status", "retryproxy; collapsed")
				r.wantHeader(got, "X-Retry-Reason", "attempts_exhausted")
				r.wantHeader(got, "X-Retry-Executed", "no")
				r.wantHeader(got, "X-Retry-Advice", "repeat")
				r.wantHeader(got, "X-Retry-Count", "1")
			}, patches(plain, []string{"max_retries: 3", "max_retries: 1"})...)
		})
	}
}

// Nor do they depend on how fast the leader's client reads: an answer that
// others wait for is taken first.
func TestWaitersDoNotDependOnASlowLeader(t *testing.T) {
	bubble(t, func(r *rig) {
		body := random(900 << 10)
		u := r.upstream("u1.test:80", after(500*time.Millisecond, answer(200, body)))
		c := r.dial()
		defer c.Close()
		io.WriteString(c, rawRequest("POST", "http://u1.test/x", "{}", keyed)) // and reads nothing
		rest(100 * time.Millisecond)
		got := r.post("http://u1.test/x", "{}", keyed)
		r.want(got, 200, u, 1)
		r.wantBody(got, body)
		r.between("the waiter's answer", got.Took, 400*time.Millisecond, 400*time.Millisecond)
		slow := readReply(bufio.NewReader(c), "POST")
		r.wantBody(slow, body)
	})
}

// A client that leaves while its answer is on the way is gone, whatever the
// answer was; a success is nothing that was given up, so no dead letter.
func TestClientLeavesWhileItsAnswerIsOnTheWay(t *testing.T) {
	for name, headers := range map[string][]string{"keyless": nil, "keyed": {keyed}} {
		for _, method := range []string{"GET", "POST"} {
			t.Run(method+" "+name, func(t *testing.T) {
				bubble(t, func(r *rig) {
					body := random(900 << 10)
					u := r.upstream("u1.test:80", answer(200, body))
					c := r.dial()
					io.WriteString(c, rawRequest(method, "http://u1.test/x", "", headers...))
					io.CopyN(io.Discard, c, 1<<10)
					c.(*memnet.Conn).Reset()
					rest(time.Minute)
					r.wantEnd("cancelled", "client_gone", 1)
					if s := r.last(); s.Status != 499 {
						t.Errorf("logged status = %d, want 499", s.Status)
					}
					r.wantMetric(1, "calls_total", "result=cancelled")
					if all := r.logged("dead letter"); len(all) != 0 {
						t.Errorf("dead letters = %v, want none", all)
					}
					if headers == nil {
						return
					}
					got := r.do(method, "http://u1.test/x", "", keyed)
					r.want(got, 200, u, 1)
					r.wantBody(got, body)
					r.wantHeader(got, "Idempotency-Replayed", "true")
				})
			})
		}
	}
}

// A body that stands still or breaks off is no wrong request: who still listens
// is told that it may come again.
func TestRequestBodyThatDoesNotCome(t *testing.T) {
	const text = "POST http://u1.test/x HTTP/1.1\r\nHost: u1.test\r\nX-Idempotency-Key: k\r\nContent-Length: 10\r\n\r\nhello"
	for name, tt := range map[string]struct {
		leave func(net.Conn)
		took  time.Duration
	}{
		"stands still": {func(net.Conn) {}, 2 * time.Second},
		"breaks off":   {func(c net.Conn) { c.(*memnet.Conn).CloseWrite() }, 0},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(r *rig) {
				u := r.upstream("u1.test:80", answer(200, "ok"))
				c, start := r.dial(), time.Now()
				defer c.Close()
				io.WriteString(c, text)
				tt.leave(c)
				in := bufio.NewReader(c)
				got := readReply(in, "POST")
				r.want(got, 400, u, 0)
				r.between("time to the answer", time.Since(start), tt.took, tt.took)
				r.wantHeader(got, "X-Retry-Reason", "client_gone")
				r.wantHeader(got, "X-Retry-Executed", "no")
				r.wantHeader(got, "X-Retry-Advice", "repeat")
				if _, err := in.ReadByte(); err != io.EOF {
					t.Errorf("after the answer: %v, want the end: where the next request starts is not known", err)
				}
				r.wantEnd("cancelled", "client_gone", 0)
				r.want(r.post("http://u1.test/x", "helloworld", keyed), 200, u, 1) // the key was not taken
			}, with("body_idle_timeout: 2s")...)
		})
	}
}
