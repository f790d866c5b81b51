package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"retryproxy/idempotency"
)

// inParts writes an answer in parts with a pause between them.
func inParts(pause time.Duration, parts ...string) step {
	return func(_ *scripted, c net.Conn, _ *request) bool {
		for i, part := range parts {
			if i > 0 {
				time.Sleep(pause)
			}
			if _, err := io.WriteString(c, part); err != nil {
				return false
			}
		}
		return true
	}
}

// first is when the first byte came, measured from the sending.
func (r *rig) firstByte(text string) (first time.Duration, got reply) {
	r.t.Helper()
	began, c := time.Now(), r.dial()
	defer c.Close()
	io.WriteString(c, text)
	in := bufio.NewReader(c)
	if _, err := in.Peek(1); err != nil {
		return time.Since(began), reply{Err: err}
	}
	first = time.Since(began)
	method, _, _ := strings.Cut(text, " ")
	got = readReply(in, method)
	got.Took = time.Since(began)
	return first, got
}

// What is larger than body.hold flows while it comes.
func TestLargeAnswersFlow(t *testing.T) {
	body := random(200 << 10)
	bubble(t, func(r *rig) {
		u := r.upstream("u1.test:80", inParts(10*time.Second, "HTTP/1.1 200 OK\r\nContent-Length: 204800\r\n\r\n"+body[:100<<10], body[100<<10:]))
		first, got := r.firstByte(rawRequest("GET", "http://u1.test/x", ""))
		r.want(got, 200, u, 1)
		r.between("first byte", first, 0, 0)
		r.between("end", got.Took, 10*time.Second, 10*time.Second) // beyond the deadline, which ends with the header
		r.wantBody(got, body)
	})
}

// Nothing is held back when there is no retry to be made.
func TestNothingIsHeldWithoutARetry(t *testing.T) {
	for _, tt := range []struct{ name, request string }{
		{"keyless POST", rawRequest("POST", "http://u1.test/x", "{}")},
		{"no retries left", rawRequest("GET", "http://u1.test/x", "", "X-Retry-Count: 3")},
	} {
		t.Run(tt.name, func(t *testing.T) {
			bubble(t, func(r *rig) {
				u := r.upstream("u1.test:80", inParts(500*time.Millisecond, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n", "0\r\n\r\n"))
				first, got := r.firstByte(tt.request)
				r.want(got, 200, u, 1)
				r.between("first byte", first, 0, 0)
				r.between("end", got.Took, 500*time.Millisecond, 500*time.Millisecond)
			})
		})
	}
}

func TestHoldSwitchedOff(t *testing.T) {
	bubble(t, func(r *rig) {
		u := r.upstream("u1.test:80", func(_ *scripted, c net.Conn, _ *request) bool {
			io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\npart")
			time.Sleep(100 * time.Millisecond)
			return false
		}, answer(200, "ok"))
		first, got := r.firstByte(rawRequest("GET", "http://u1.test/x", ""))
		r.want(got, 200, u, 1)
		r.between("first byte", first, 0, 0)
		if got.Err == nil {
			t.Error("the body ended cleanly, want a visible break")
		}
		r.wantEnd("failed", "attempts_exhausted", 1)
	}, "idempotency:", "body: {hold: 0}\nidempotency:")
}

// A cut off failure is an outcome like a cut off success.
func TestCutOffFailures(t *testing.T) {
	for _, status := range []int{301, 404, 500, 503} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			bubble(t, func(r *rig) {
				u := r.upstream("u1.test:80", short(status, 1000, "part"), answer(200, "ok"))
				r.want(r.get("http://u1.test/x"), 200, u, 2)
				r.wantVerdict(1, "transient", "truncated")
			})
		})
	}
}

// A 2xx cut off after its first byte to the client counts as maybe: the key is
// free, but bound to its request.
func TestKeyedAnswerCutOffOnTheWay(t *testing.T) {
	bubble(t, func(r *rig) {
		u := r.upstream("u1.test:80", short(200, 1<<20, random(200<<10)), answer(200, "ok"))
		got := r.post("http://u1.test/x", "{}", keyed)
		r.want(got, 200, u, 1)
		if got.Err == nil {
			t.Error("the body ended cleanly, want a visible break")
		}
		if rec := r.record("k"); rec.State != idempotency.StateFailed || rec.Executed.String() == "no" {
			t.Errorf("record = %s, executed %s; want free, executed", rec.State, rec.Executed)
		}
		r.want(r.post("http://u1.test/x", "{1}", keyed), 422, u, 1)
		r.want(r.post("http://u1.test/x", "{}", keyed), 200, u, 2)
	})
}

// An answer over idempotency.max_response leaves a marker.
func TestResultNotKept(t *testing.T) {
	body := random(3000)
	bubble(t, func(r *rig) {
		u := r.upstream("u1.test:80", answer(200, body))
		r.wantBody(r.post("http://u1.test/x", "{}", keyed), body)
		got := r.post("http://u1.test/x", "{}", keyed)
		r.want(got, 409, u, 1)
		r.wantHeader(got, "X-Retry-Reason", "result_not_kept")
		r.wantHeader(got, "X-Retry-Executed", "yes")
		r.wantHeader(got, "X-Retry-Advice", "check")
	}, "idempotency: {", "idempotency: {max_response: 2KiB, ")
}

// The record of an event stream becomes a marker at its header.
func TestKeyedEventStream(t *testing.T) {
	bubble(t, func(r *rig) {
		u := r.upstream("u1.test:80", inParts(time.Minute, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n", "3\r\na\n\n\r\n0\r\n\r\n"))
		done := r.async(func() reply { return r.post("http://u1.test/x", "{}", keyed) })
		time.Sleep(time.Second)
		if rec := r.record("k"); rec.State != idempotency.StateDone || rec.Answer.Kept {
			t.Errorf("record = %s %+v, want done with a marker", rec.State, rec.Answer)
		}
		got := r.post("http://u1.test/x", "{}", keyed)
		r.want(got, 409, u, 1)
		r.wantHeader(got, "X-Retry-Reason", "result_not_kept")
		stream := <-done
		r.wantBody(stream, "a\n\n")
		r.between("time of the stream", stream.Took, time.Minute, time.Minute)
	})
}

// The slot of an event stream is free at its header, that of other answers when
// the client has blocked for a second.
func TestSlotsOfSlowAnswers(t *testing.T) {
	t.Run("event stream", func(t *testing.T) {
		bubble(t, func(r *rig) {
			r.upstream("u1.test:80", inParts(time.Minute, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n", "0\r\n\r\n"))
			done := r.async(func() reply { return r.get("http://u1.test/x") })
			time.Sleep(time.Millisecond)
			if n := r.gate("u1.test:80").InFlight; n != 0 {
				t.Errorf("in flight = %d, want 0", n)
			}
			<-done
		})
	})
	t.Run("client that takes nothing", func(t *testing.T) {
		bubble(t, func(r *rig) {
			r.upstream("u1.test:80", answer(200, random(1<<20)))
			c := r.dial()
			io.WriteString(c, rawRequest("GET", "http://u1.test/x", ""))
			for _, tt := range []struct {
				after time.Duration
				want  int
			}{{900 * time.Millisecond, 1}, {200 * time.Millisecond, 0}} {
				time.Sleep(tt.after)
				if n := r.gate("u1.test:80").InFlight; n != tt.want {
					t.Errorf("in flight = %d, want %d", n, tt.want)
				}
			}
			c.Close()
		})
	})
}

// A client that takes nothing for body_idle_timeout is cut.
func TestClientThatTakesNothingIsCut(t *testing.T) {
	bubble(t, func(r *rig) {
		u := r.upstream("u1.test:80", answer(200, random(1<<20)))
		c := r.dial()
		defer c.Close()
		io.WriteString(c, rawRequest("GET", "http://u1.test/x", ""))
		time.Sleep(5 * time.Second)
		n, err := io.Copy(io.Discard, c)
		if err == nil || n >= 1<<20 {
			t.Errorf("Copy = %d, %v, want a broken answer", n, err)
		}
		r.want(reply{}, 0, u, 1)
	}, with("body_idle_timeout: 2s")...)
}

// An answer that stands still for body_idle_timeout breaks visibly; a small one
// is held for a second before that.
func TestAnswerThatStandsStillIsCut(t *testing.T) {
	bubble(t, func(r *rig) {
		u := r.upstream("u1.test:80", inParts(time.Minute, "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello", "world"))
		first, got := r.firstByte(rawRequest("POST", "http://u1.test/x", "{}"))
		r.want(got, 200, u, 1)
		r.between("first byte", first, time.Second, time.Second)
		r.between("end", got.Took, 3*time.Second, 3*time.Second)
		if got.Err == nil || got.Body != "hello" {
			t.Errorf("body = %q, %v, want a break behind hello", got.Body, got.Err)
		}
	}, with("body_idle_timeout: 2s")...)
}

// 1xx of an attempt that may be retried are dropped, others pass.
func TestInterimAnswers(t *testing.T) {
	hint := "HTTP/1.1 103 Early Hints\r\nLink: </a.css>\r\nConnection: X-Hop\r\nX-Hop: 1\r\n\r\n"
	hinted := func(status int) step {
		return func(s *scripted, c net.Conn, req *request) bool {
			io.WriteString(c, hint)
			return answer(status, "ok")(s, c, req)
		}
	}
	for _, tt := range []struct {
		name, request string
		script        []step
		hints         int
	}{
		{"before a retry", rawRequest("GET", "http://u1.test/x", ""), []step{hinted(503), hinted(200)}, 0},
		{"on the last attempt", rawRequest("GET", "http://u1.test/x", "", "X-Retry-Count: 2"), []step{hinted(503), hinted(200)}, 1},
		{"before the retry of an unsafe call", rawRequest("POST", "http://u1.test/x", "{}"), []step{hinted(503), hinted(200)}, 0},
		{"of a streamed upload", rawRequest("POST", "http://u1.test/x", random(65<<10)), []step{hinted(200)}, 1},
		{"not for HTTP/1.0", strings.Replace(rawRequest("POST", "http://u1.test/x", random(65<<10)), "HTTP/1.1", "HTTP/1.0", 1), []step{hinted(200)}, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			bubble(t, func(r *rig) {
				u := r.upstream("u1.test:80", tt.script...)
				c := r.dial()
				defer c.Close()
				io.WriteString(c, tt.request)
				in, hints := bufio.NewReader(c), 0
				for {
					line, header := head(t, in)
					if strings.HasPrefix(line, "HTTP/1.1 103") {
						hints++
						if header.Get("Link") != "</a.css>" || header.Get("X-Hop") != "" {
							t.Errorf("early hints = %v, want the Link alone", header)
						}
						continue
					}
					if !strings.Contains(line, " 200 ") {
						t.Errorf("final line = %q, want a 200", line)
					}
					break
				}
				if hints != tt.hints {
					t.Errorf("early hints = %d, want %d", hints, tt.hints)
				}
				r.want(reply{}, 0, u, len(tt.script))
			}, smallLimit...)
		})
	}
}

// A streamed body can be sent again until its first byte is used.
func TestStreamedBodyThatWasUsed(t *testing.T) {
	body := random(256 << 10)
	bubble(t, func(r *rig) {
		u := r.upstream("u1.test:80", func(_ *scripted, c net.Conn, req *request) bool {
			io.CopyN(io.Discard, req.Rest, 100<<10)
			return reset(nil, c, nil)
		}, answer(200, "ok"))
		u.headOnly = true
		got := r.trickle(rawRequest("PUT", "http://u1.test/x", body), time.Millisecond)
		r.want(got, 502, u, 1)
		r.wantVerdict(1, "transient", "reset_after_send") // a PUT is safe; its body is gone
		r.wantHeader(got, "X-Retry-Reason", "body_not_replayable")
		r.wantHeader(got, "X-Retry-Executed", "maybe")
		r.wantHeader(got, "X-Retry-Advice", "check")
	}, smallLimit...)
}

// A chunked body that turns out to be over the limit: what was read of it is
// sent first.
func TestStreamedChunksAfterARefusedConnection(t *testing.T) {
	body := random(256 << 10)
	bubble(t, func(r *rig) {
		u := r.closed("u1.test:80", answer(200, "ok"))
		u.openAfter(50 * time.Millisecond)
		got := r.trickle(inChunks("POST", "http://u1.test/x", body, 10000, "X-Sum: abc\r\n"), time.Millisecond)
		r.want(got, 200, u, 1)
		r.wantBodies(u, body)
		r.wantSent(u, 1, "Trailer:X-Sum", "abc")
		r.wantEnd("recovered", "ok", 2)
	}, smallLimit...)
}

func TestLargeBodiesRejected(t *testing.T) {
	bubble(t, func(r *rig) {
		u := r.upstream("u1.test:80", answer(200, "ok"))
		got := r.trickle(rawRequest("POST", "http://u1.test/x", random(256<<10)), time.Millisecond)
		r.want(got, 413, u, 0)
		r.wantHeader(got, "X-Retry-Reason", "body_too_large")
	}, "idempotency:", "body: {memory: 16KiB, limit: 64KiB, over: reject}\nidempotency:")
}

// A body that breaks the framing is the client's fault and reaches nobody.
func TestMalformedUpload(t *testing.T) {
	bubble(t, func(r *rig) {
		u := r.upstream("u1.test:80", answer(200, "ok"))
		got := r.ask("POST http://u1.test/x HTTP/1.1\r\nHost: u1.test\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n")
		r.want(got, 400, u, 0)
		r.wantHeader(got, "X-Retry-Reason", "bad_request")
		r.wantEnd("rejected", "bad_request", 0)
	})
}

// No room for a body is our own trouble.
func TestNoRoomForABody(t *testing.T) {
	bubble(t, func(r *rig) {
		u := r.upstream("u1.test:80", answer(200, "ok"))
		got := r.trickle(rawRequest("POST", "http://u1.test/x", random(1<<20)), time.Millisecond)
		r.want(got, 503, u, 0)
		r.wantHeader(got, "X-Retry-Reason", "local_resource")
		r.wantHeader(got, "X-Retry-Executed", "no")
		r.wantHeader(got, "X-Retry-Advice", "repeat")
		if got.Header.Get("Retry-After") == "" {
			t.Error("no Retry-After, want one")
		}
	}, "idempotency:", "body: {memory: 16KiB, memory_total: 64KiB, disk_total: 64KiB}\nidempotency:")
}

// Method, target, field order and odd bytes reach the upstream as they came.
func TestRequestFidelity(t *testing.T) {
	bubble(t, func(r *rig) {
		u := r.upstream("u1.test:80", answer(503, "busy"), answer(200, "ok"))
		const target = "/a;b/%zz/+//../x?q=1;2&r=%2B+&"
		got := r.ask("POST http://u1.test" + target + " HTTP/1.1\r\nHost: u1.test\r\nx-b: 2\r\nX-A: 1\r\nx-b: 1\r\nContent-Length: 0\r\n\r\n")
		r.want(got, 200, u, 2)
		for n, req := range u.seen() {
			if want := "POST " + target + " HTTP/1.1"; req.Line != want {
				t.Errorf("request %d = %q, want %q", n+1, req.Line, want)
			}
			text := string(req.Raw)
			if !strings.Contains(text, "x-b: 2\r\nX-A: 1\r\nx-b: 1\r\n") {
				t.Errorf("request %d has its fields in another order or spelling:\n%s", n+1, text)
			}
			for _, name := range []string{"Content-Type", "User-Agent", "Accept-Encoding", "X-Forwarded-For", "Forwarded"} {
				r.wantSent(u, n+1, name, "")
			}
			r.wantSent(u, n+1, "Content-Length", "0")
		}
	})
}

// Fields that an upstream's Connection names are its own.
func TestHopByHopFieldsOfTheAnswer(t *testing.T) {
	bubble(t, func(r *rig) {
		u := r.upstream("u1.test:80", answer(200, "ok", "Connection: X-Hop, close", "X-Hop: 1", "Keep-Alive: timeout=5", "Proxy-Authenticate: Basic", "X-End: 1"))
		got := r.get("http://u1.test/x")
		r.want(got, 200, u, 1)
		for name, want := range map[string]string{"X-Hop": "", "Keep-Alive": "", "Proxy-Authenticate": "", "X-End": "1", "Connection": ""} {
			r.wantHeader(got, name, want)
		}
	})
}

func TestHeadAnswers(t *testing.T) {
	bubble(t, func(r *rig) {
		bare := func(status int) step {
			return raw(fmt.Sprintf("HTTP/1.1 %d X\r\nContent-Length: 900\r\n\r\n", status))
		}
		u := r.upstream("u1.test:80", bare(503), bare(200))
		got := r.do("HEAD", "http://u1.test/x", "", keyed)
		r.want(got, 200, u, 2)
		r.wantHeader(got, "Content-Length", "900")
		again := r.do("HEAD", "http://u1.test/x", "", keyed)
		r.want(again, 200, u, 2)
		r.wantHeader(again, "Idempotency-Replayed", "true")
		if again.Err != nil && !errors.Is(again.Err, io.EOF) {
			t.Errorf("replay of a HEAD = %v", again.Err)
		}
	})
}

// An HTTP/1.0 client gets an answer without chunks whose end is the end of the
// connection.
func TestAnswersForHTTP10(t *testing.T) {
	bubble(t, func(r *rig) {
		u := r.upstream("u1.test:80", raw("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"))
		c := r.dial()
		defer c.Close()
		io.WriteString(c, "GET http://u1.test/x HTTP/1.0\r\n\r\n")
		text, err := io.ReadAll(c)
		if err != nil {
			t.Fatal(err)
		}
		got, err := http.ReadResponse(bufio.NewReader(strings.NewReader(string(text))), nil)
		if err != nil || len(got.TransferEncoding) != 0 || !strings.HasSuffix(string(text), "\r\n\r\nhello") {
			t.Errorf("answer = %q, %v, want hello without chunks", text, err)
		}
		r.want(reply{}, 0, u, 1)
	})
}
