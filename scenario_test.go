package main

import (
	"bufio"
	"io"
	"net"
	"testing"
	"time"

	"retryproxy/attempt"
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

// A body that is not here within a second goes out as far as it came: holding
// is for small answers, not a delay for slow ones.
func TestHoldEndsAfterASecond(t *testing.T) {
	slow := func(head, first, rest string) step {
		return func(_ *scripted, c net.Conn, _ *request) bool {
			io.WriteString(c, head+first)
			time.Sleep(3 * time.Second)
			io.WriteString(c, rest)
			return true
		}
	}
	for name, s := range map[string]step{
		"sized":          slow("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n", "hello", "world"),
		"chunked":        slow("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", "5\r\nhello\r\n", "5\r\nworld\r\n0\r\n\r\n"),
		"mid chunk line": slow("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", "5\r\nhello\r\n5", "\r\nworld\r\n0\r\n\r\n"),
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(r *rig) {
				u := r.upstream("u1.test:80", s)
				c := r.dial()
				defer c.Close()
				began := time.Now()
				io.WriteString(c, rawRequest("GET", "http://u1.test/x", ""))
				in := bufio.NewReader(c)
				if _, err := in.Peek(1); err != nil {
					t.Fatal(err)
				}
				r.between("first byte", time.Since(began), time.Second, time.Second)
				got := readReply(in, "GET")
				r.want(got, 200, u, 1)
				r.between("end", time.Since(began), 3*time.Second, 3*time.Second)
				if got.Body != "helloworld" || got.Err != nil {
					t.Errorf("body = %q, %v, want helloworld", got.Body, got.Err)
				}
			})
		})
	}
}

// An event stream may say nothing for longer than body_idle_timeout.
func TestEventStreamMayBeQuiet(t *testing.T) {
	bubble(t, func(r *rig) {
		u := r.upstream("u1.test:80", func(_ *scripted, c net.Conn, _ *request) bool {
			io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: 1\n\n")
			time.Sleep(10 * time.Minute)
			io.WriteString(c, "data: 2\n\n")
			return false
		})
		got := r.get("http://u1.test/x", "Accept: text/event-stream")
		r.want(got, 200, u, 1)
		if got.Body != "data: 1\n\ndata: 2\n\n" || got.Err != nil {
			t.Errorf("body = %q, %v, want both events", got.Body, got.Err)
		}
	})
}

// A handler that panics must not leave its key taken for ever: the call may have
// been executed, so the key stays bound to it, but the same request may come again.
func TestPanicEndsTheRecord(t *testing.T) {
	bubble(t, func(r *rig) {
		u := r.upstream("u1.test:80", answer(201, `{"id":1}`))
		counted := r.app.proxy.Hooks.Attempt
		r.app.proxy.Hooks.Attempt = func(string, *attempt.Attempt) { panic("a fault of ours") }
		got := r.post("http://u1.test/x", "{}", "X-Idempotency-Key: k")
		if got.Status != 0 {
			t.Errorf("status = %d, want a broken connection", got.Status)
		}
		r.app.proxy.Hooks.Attempt = counted
		r.want(r.post("http://u1.test/x", `{"other":1}`, "X-Idempotency-Key: k"), 422, u, 1)
		r.want(r.post("http://u1.test/x", "{}", "X-Idempotency-Key: k"), 201, u, 2)
		if h := u.seen()[1].Header.Get("X-Retry-Count"); h != "1" {
			t.Errorf("X-Retry-Count = %q, want 1: the first attempt counts", h)
		}
	})
}

// An answer that is too large to be kept ends with its client: the record is a
// marker as soon as that is clear, and nobody reads the rest for its sake.
func TestLargeAnswersEndWithTheirClient(t *testing.T) {
	for name, head := range map[string]string{
		"sized":   "HTTP/1.1 200 OK\r\nContent-Length: 50000000\r\n\r\n",
		"chunked": "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2FAF080\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(r *rig) {
				sent := make(chan int, 1)
				u := r.upstream("u1.test:80", func(_ *scripted, c net.Conn, _ *request) bool {
					n, _ := io.WriteString(c, head)
					for piece := make([]byte, 1<<16); n < 50_000_000; {
						k, err := c.Write(piece)
						n += k
						if err != nil {
							break
						}
					}
					sent <- n
					return false
				})
				c := r.dial()
				io.WriteString(c, rawRequest("POST", "http://u1.test/x", "{}", "X-Idempotency-Key: k"))
				io.CopyN(io.Discard, c, 3<<20)
				c.Close()
				if n := <-sent; n > 10<<20 {
					t.Errorf("%d bytes were read though the client had left", n)
				}
				got := r.post("http://u1.test/x", "{}", "X-Idempotency-Key: k")
				r.want(got, 409, u, 1)
				r.wantHeader(got, "X-Retry-Reason", "result_not_kept")
			})
		})
	}
}

// OPTIONS * is about the server that it is sent to (RFC 9110 section 9.3.7).
func TestOptionsStarIsAboutUs(t *testing.T) {
	bubble(t, func(r *rig) {
		for host, status := range map[string]int{"127.0.0.1:18080": 200, "attacker.test": 403} {
			c := r.dial()
			got := r.exchange(c, "OPTIONS * HTTP/1.1\r\nHost: "+host+"\r\n\r\n", "OPTIONS")
			c.Close()
			if got.Status != status || got.Header.Get("X-Call-Id") == "" {
				t.Errorf("OPTIONS * with Host %s = %d %v, want %d", host, got.Status, got.Header, status)
			}
		}
	})
}
