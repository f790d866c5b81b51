package main

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/textproto"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"retryproxy/internal/memnet"
)

func TestCase_RI_01_NoHeadersOfAFailedAttempt(t *testing.T) {
	bubble(t, func(r *rig) {
		u := r.upstream("u1.test:80",
			answer(503, "no gzip", "Set-Cookie: a=1", "X-Err: yes", "Content-Encoding: gzip", "Retry-After: 0"),
			answer(200, "ok", "Set-Cookie: b=2", `ETag: "v2"`))
		got := r.get("http://u1.test/x")
		r.want(got, 200, u, 2)
		r.wantBody(got, "ok")
		for _, ours := range []string{"Date", "Content-Length", "Via", "X-Call-Id"} {
			got.Header.Del(ours)
		}
		want := http.Header{"Set-Cookie": {"b=2"}, "Etag": {`"v2"`}, "X-Retry-Count": {"1"}}
		if diff := cmp.Diff(want, got.Header); diff != "" {
			t.Errorf("header (-want +got):\n%s", diff)
		}
	})
}

// short is an answer that ends before its Content-Length.
func short(status, length int, part string) step {
	return raw(fmt.Sprintf("HTTP/1.1 %d X\r\nContent-Length: %d\r\n\r\n%s", status, length, part))
}

func TestCase_RI_02_ShortBody(t *testing.T) {
	whole := random(1000)
	for _, tt := range []struct {
		name  string
		first step
	}{
		{"closed", short(200, 1000, whole[:300])},
		{"reset", func(s *scripted, c net.Conn, req *request) bool {
			io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n"+whole[:300])
			time.Sleep(10 * time.Millisecond)
			return reset(s, c, req)
		}},
		{"chunked", raw("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n12c\r\n" + whole[:300])},
	} {
		t.Run(tt.name, func(t *testing.T) {
			bubble(t, func(r *rig) {
				u := r.upstream("u1.test:80", tt.first, answer(200, whole))
				got := r.get("http://u1.test/x")
				r.want(got, 200, u, 2)
				if sha256.Sum256([]byte(got.Body)) != sha256.Sum256([]byte(whole)) {
					t.Errorf("body = %d bytes, want the 1000 of the second answer", len(got.Body))
				}
				r.wantVerdict(1, "transient", "truncated")
			})
		})
	}
}

// After the first byte to the client there is no retry; the break is visible.
func TestCase_RI_02_ShortBodyThatWasBegun(t *testing.T) {
	part := random(200 << 10)
	for _, tt := range []struct{ name, head string }{
		{"with a length", "HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n" + part},
		{"chunked", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + fmt.Sprintf("%x\r\n%s\r\n", len(part), part)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			bubble(t, func(r *rig) {
				u := r.upstream("u1.test:80", raw(tt.head), answer(200, "second"))
				got := r.get("http://u1.test/x")
				r.want(got, 200, u, 1)
				if got.Err == nil {
					t.Errorf("the body ended cleanly after %d bytes, want an error", len(got.Body))
				}
				r.wantEnd("failed", "attempts_exhausted", 1)
			})
		})
	}
}

func TestCase_RI_05_TrailersBothWays(t *testing.T) {
	bubble(t, func(r *rig) {
		u := r.upstream("u1.test:80", answer(503, "busy"), func(_ *scripted, c net.Conn, _ *request) bool {
			_, err := io.WriteString(c, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-Check\r\n\r\n2\r\nok\r\n0\r\nX-Check: ok\r\nX-Late: 1\r\n\r\n")
			return err == nil
		})
		c := r.dial()
		defer c.Close()
		got := r.exchange(c, inChunks("POST", "http://u1.test/x", "body", 2, "X-Sum: abc\r\n", "X-Idempotency-Key: k", "TE: trailers", "Trailer: X-Sum"), "POST")
		r.want(got, 200, u, 2)
		r.wantBody(got, "ok")
		if diff := cmp.Diff(http.Header{"X-Check": {"ok"}, "X-Late": {"1"}}, got.Trailer); diff != "" {
			t.Errorf("trailers of the answer (-want +got):\n%s", diff)
		}
		for n := 1; n <= 2; n++ {
			r.wantSent(u, n, "Trailer:X-Sum", "abc")
			r.wantSent(u, n, "X-Sum", "")
		}
		r.wantHeader(got, "X-Check", "")
		r.wantHeader(got, "X-Late", "")
		r.wantBodies(u, "body")
	})
}

func TestCase_RI_06_ServerSentEvents(t *testing.T) {
	const events = 30 // 9 s: beyond per_try_timeout and the deadline
	bubble(t, func(r *rig) {
		u := r.upstream("u1.test:80", answer(503, "busy"), func(_ *scripted, c net.Conn, _ *request) bool {
			io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
			for n := range events {
				event := fmt.Sprintf("data: %d %d\n\n", n, time.Now().UnixNano())
				end := ""
				if n == events-1 {
					end = "0\r\n\r\n"
				}
				if _, err := fmt.Fprintf(c, "%x\r\n%s\r\n%s", len(event), event, end); err != nil {
					return false
				}
				time.Sleep(300 * time.Millisecond)
			}
			return false
		})
		c := r.dial()
		defer c.Close()
		io.WriteString(c, rawRequest("GET", "http://u1.test/x", "", "Accept: text/event-stream"))
		res, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil || res.StatusCode != 200 || res.Header.Get("Content-Type") != "text/event-stream" {
			t.Fatalf("answer = %v, %v, want a 200 with an event stream", res, err)
		}
		in, got := bufio.NewScanner(res.Body), 0
		for in.Scan() {
			var n int
			var sent int64
			if _, err := fmt.Sscanf(in.Text(), "data: %d %d", &n, &sent); err != nil {
				continue
			}
			if late := time.Since(time.Unix(0, sent)); n != got || late != 0 {
				t.Errorf("event %d came as number %d, %v late", n, got, late)
			}
			got++
		}
		if got != events || in.Err() != nil {
			t.Errorf("events = %d, %v, want %d", got, in.Err(), events)
		}
		r.want(reply{Status: 200}, 200, u, 2)
	})
}

func TestCase_RI_07_WebSocket(t *testing.T) {
	bubble(t, func(r *rig) {
		u := r.closed("u1.test:80", func(_ *scripted, c net.Conn, _ *request) bool {
			io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: y\r\n\r\n")
			frame := make([]byte, 8)
			for range 3 {
				if _, err := io.ReadFull(c, frame); err != nil {
					return false
				}
				c.Write(frame)
			}
			time.Sleep(time.Millisecond)
			c.(*memnet.Conn).Reset()
			return false
		})
		u.openAfter(50 * time.Millisecond)
		c := r.dial()
		defer c.Close()
		io.WriteString(c, rawRequest("GET", "http://u1.test/x", "", "Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Key: x", "Sec-WebSocket-Version: 13"))
		in := bufio.NewReader(c)
		line, header := head(t, in)
		if line != "HTTP/1.1 101 Switching Protocols" || header.Get("Upgrade") != "websocket" || header.Get("Connection") != "Upgrade" || header.Get("Sec-Websocket-Accept") != "y" {
			t.Errorf("answer = %q %v, want the upstream's 101", line, header)
		}
		for n := range 3 {
			frame := fmt.Sprintf("frame %02d", n)
			io.WriteString(c, frame)
			back := make([]byte, len(frame))
			if _, err := io.ReadFull(in, back); err != nil || string(back) != frame {
				t.Errorf("echo = %q, %v, want %q", back, err, frame)
			}
		}
		began := time.Now()
		if n, err := in.Read(make([]byte, 1)); n != 0 || err == nil {
			t.Errorf("Read after the reset = %d, %v, want an end", n, err)
		}
		r.between("time to the end", time.Since(began), 0, time.Millisecond)
		r.wantSent(u, 1, "Upgrade", "websocket")
		r.wantSent(u, 1, "Connection", "Upgrade")
		r.wantSent(u, 1, "Sec-WebSocket-Key", "x")
		time.Sleep(time.Minute)
		r.want(reply{Status: 101}, 101, u, 1)
		r.wantEnd("recovered", "ok", 2)
		if strings.Contains(r.log.String(), "panic") {
			t.Errorf("the log tells of a panic:\n%s", r.log)
		}
	})
}

// head reads a status line and a header.
func head(t *testing.T, in *bufio.Reader) (string, textproto.MIMEHeader) {
	t.Helper()
	text := textproto.NewReader(in)
	line, err := text.ReadLine()
	if err != nil {
		t.Fatal(err)
	}
	header, err := text.ReadMIMEHeader()
	if err != nil {
		t.Fatal(err)
	}
	return line, header
}

func TestCase_RI_10_AnswersWithoutContent(t *testing.T) {
	bubble(t, func(r *rig) {
		write := func(text string, goOn bool) step {
			return func(_ *scripted, c net.Conn, _ *request) bool {
				io.WriteString(c, text)
				return goOn
			}
		}
		u := r.upstream("u1.test:80",
			write("HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\nhello", true),
			write("HTTP/1.1 304 Not Modified\r\nContent-Length: 900\r\n\r\n", true),
			write("HTTP/1.1 204 No Content\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", true),
			answer(200, "ok"),
			write("HTTP/1.1 204 No Content\r\nConnection: keep-alive\r\n\r\n", false))
		c := r.dial()
		defer c.Close()
		in := bufio.NewReader(c)
		for n, want := range []int{204, 304, 204, 200, 204} {
			began := time.Now()
			io.WriteString(c, rawRequest("GET", "http://u1.test/x", ""))
			got := readReply(in, "GET")
			r.want(got, want, u, n+1)
			r.between("time to the answer", time.Since(began), 0, 0)
			if body := map[bool]string{true: "ok"}[want == 200]; got.Body != body || got.Err != nil {
				t.Errorf("answer %d has the body %q, %v, want %q", n+1, got.Body, got.Err, body)
			}
			if want == 204 && got.Header.Get("Content-Length")+got.Header.Get("Transfer-Encoding") != "" {
				t.Errorf("answer %d to the client is framed: %v", n+1, got.Header)
			}
		}
		if n := in.Buffered(); n != 0 {
			t.Errorf("%d bytes follow the last answer, want none", n)
		}
	})
}

// By the contract both are framing conflicts; the case would read (b) as chunked.
func TestCase_RI_11_ConflictingLengths(t *testing.T) {
	for _, tt := range []struct{ name, answer string }{
		{"a: two lengths", "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 5\r\n\r\nhello"},
		{"b: length and chunked", "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			bubble(t, func(r *rig) {
				u := r.upstream("u1.test:80", func(_ *scripted, c net.Conn, _ *request) bool {
					io.WriteString(c, tt.answer)
					return true
				})
				got := r.get("http://u1.test/x", "X-Idempotency-Key: k")
				r.want(got, 502, u, 1)
				r.wantVerdict(1, "unknown", "malformed")
				r.wantHeader(got, "X-Retry-Reason", "manual_review")
				r.wantHeader(got, "X-Retry-Executed", "maybe")
				if n := len(got.Header.Values("Content-Length")) + len(got.Header.Values("Transfer-Encoding")); n != 1 {
					t.Errorf("framing headers to the client = %d, want 1: %v", n, got.Header)
				}
				r.want(r.get("http://u1.test/x", "X-Idempotency-Key: k"), 502, u, 2) // nothing was stored
				if n := u.connections(); n != 2 {
					t.Errorf("connections = %d, want 2: the first is not used again", n)
				}
			})
		})
	}
}

func TestCase_RI_12_CompressedBodies(t *testing.T) {
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	io.WriteString(w, random(3000))
	w.Close()
	bubble(t, func(r *rig) {
		u := r.upstream("u1.test:80", answer(200, packed.String(), "Content-Encoding: gzip", `ETag: "g"`), answer(200, "plain"))
		got := r.get("http://u1.test/x", "Accept-Encoding: gzip, br")
		r.want(got, 200, u, 1)
		if got.Body != packed.String() {
			t.Errorf("body = %d bytes, want the %d of the upstream", len(got.Body), packed.Len())
		}
		r.wantHeader(got, "Content-Encoding", "gzip")
		r.wantHeader(got, "Content-Length", fmt.Sprint(packed.Len()))
		r.wantHeader(got, "ETag", `"g"`)
		r.wantSent(u, 1, "Accept-Encoding", "gzip, br")
		r.wantBody(r.get("http://u1.test/x"), "plain")
		r.wantSent(u, 2, "Accept-Encoding", "")
	})
}
