package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// A WebSocket through an opened tunnel: the 101 passes, both ways flow, and an end
// is passed on.
func TestInterceptedWebSocket(t *testing.T) {
	ca := newCA(t)
	bubble(t, func(r *rig) {
		u := r.upstreamTLS("u1.test:443", ca.certificate("u1.test"), answer(503, ""), func(_ *scripted, c net.Conn, q *request) bool {
			io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: y\r\n\r\nhello")
			buf := make([]byte, 1)
			for {
				if _, err := io.ReadFull(c, buf); err != nil {
					io.WriteString(c, "bye")
					return false
				}
				c.Write([]byte{buf[0] + 1})
			}
		})
		o := r.open("u1.test:443", visitor{protos: []string{"http/1.1"}})
		defer o.Close()
		io.WriteString(o, "GET /ws HTTP/1.1\r\nHost: u1.test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: x\r\n\r\n")
		line, _ := o.in.ReadString('\n')
		if rest := responseHead(t, o.in); line != "HTTP/1.1 101 Switching Protocols\r\n" || !strings.Contains(rest, "Sec-WebSocket-Accept: y\r\n") {
			t.Fatalf("answer = %q %q, want the 101", line, rest)
		}
		r.wantSent(u, 2, "Sec-WebSocket-Key", "x")
		read := func(want string) {
			t.Helper()
			buf := make([]byte, len(want))
			if _, err := io.ReadFull(o.in, buf); err != nil || string(buf) != want {
				t.Errorf("read %q, %v, want %q", buf, err, want)
			}
		}
		read("hello")
		for i := range 3 {
			rest(time.Minute) // longer than body_idle_timeout
			o.Write([]byte{byte('a' + 2*i)})
			read(string(rune('b' + 2*i)))
		}
		o.CloseWrite()
		read("bye")
		if _, err := o.in.ReadByte(); err != io.EOF {
			t.Errorf("after the end: %v, want io.EOF", err)
		}
		if c := r.interceptedCall(); c.Status != 101 || c.Result != "recovered" {
			t.Errorf("the call ended as %d %s, want 101 recovered", c.Status, c.Result)
		}
	}, opening(ca, "[u1.test]")...)
}

// Events arrive one by one, and silence does not end them.
func TestInterceptedEventStream(t *testing.T) {
	ca := newCA(t)
	const pause = 20 * time.Second
	events := inParts(pause, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n9\r\ndata: 1\n\n\r\n", "9\r\ndata: 2\n\n\r\n", "9\r\ndata: 3\n\n\r\n", "0\r\n\r\n")
	read := func(r *rig, began time.Time, body io.Reader) {
		buf := make([]byte, len("data: 1\n\n"))
		for i := range 3 {
			if _, err := io.ReadFull(body, buf); err != nil || string(buf) != fmt.Sprintf("data: %d\n\n", i+1) {
				r.t.Errorf("event %d = %q, %v", i+1, buf, err)
			}
			at := time.Duration(i) * pause
			r.between(fmt.Sprintf("event %d", i+1), time.Since(began), at, at)
		}
		if rest, err := io.ReadAll(body); len(rest) > 0 || err != nil {
			r.t.Errorf("after the events: %q, %v", rest, err)
		}
	}
	idle := []string{"connect_timeout: 1s", "connect_timeout: 1s, body_idle_timeout: 5s"}
	t.Run("http/1.1", func(t *testing.T) {
		bubble(t, func(r *rig) {
			r.upstreamTLS("u1.test:443", ca.certificate("u1.test"), events)
			o := r.open("u1.test:443", visitor{})
			defer o.Close()
			began := time.Now()
			io.WriteString(o, "GET /x HTTP/1.1\r\nHost: u1.test\r\nAccept: text/event-stream\r\n\r\n")
			res, err := http.ReadResponse(o.in, nil)
			if err != nil {
				t.Fatal(err)
			}
			read(r, began, res.Body)
		}, patches(opening(ca, "[u1.test]"), idle)...)
	})
	t.Run("h2", func(t *testing.T) {
		bubble(t, func(r *rig) {
			r.upstreamTLS("u1.test:443", ca.certificate("u1.test"), events)
			c := r.openH2("u1.test:443")
			defer c.Close()
			began := time.Now()
			res, err := c.RoundTrip(c.request("GET", "/x", "", "Accept: text/event-stream"))
			if err != nil {
				t.Fatal(err)
			}
			read(r, began, res.Body)
		}, patches(opening(ca, "[u1.test]"), idle)...)
	})
}

// Trailers behind chunks reach clients of both versions.
func TestInterceptedTrailers(t *testing.T) {
	ca := newCA(t)
	bubble(t, func(r *rig) {
		r.upstreamTLS("u1.test:443", ca.certificate("u1.test"), func(_ *scripted, c net.Conn, _ *request) bool {
			_, err := io.WriteString(c, "HTTP/1.1 200 OK\r\nTrailer: X-Sum\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nX-Sum: 42\r\n\r\n")
			return err == nil
		})
		c := r.openH2("u1.test:443")
		defer c.Close()
		for version, got := range map[string]reply{
			"HTTP/1.1": r.secretly("GET", "https://u1.test/x", ""), "HTTP/2.0": c.ask("GET", "/x", ""),
		} {
			r.want(got, 200, nil, 0)
			r.wantBody(got, "ok")
			if got.Proto != version || got.Trailer.Get("X-Sum") != "42" {
				t.Errorf("trailers over %s = %v, want X-Sum: 42", got.Proto, got.Trailer)
			}
		}
	}, opening(ca, "[u1.test]")...)
}

// fields sends a header section; end: the stream ends with it.
func (h *h2conn) fields(id uint32, end bool, fields ...string) {
	h.buf.Reset()
	for i := 0; i < len(fields); i += 2 {
		_ = h.enc.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]})
	}
	_ = h.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: h.buf.Bytes(), EndHeaders: true, EndStream: end})
}

// What gRPC needs: trailers that nobody announced, and answers that are trailers
// only, with HTTP/2 on both sides.
func TestInterceptedGRPC(t *testing.T) {
	ca := newCA(t)
	bubble(t, func(r *rig) {
		u := r.upstreamH2("u1.test:443", ca.certificate("u1.test"), nil, func(c *h2conn, _ int, s h2stream) {
			if s.Path == "/only" {
				c.fields(s.ID, true, ":status", "200", "content-type", "application/grpc", "grpc-status", "5", "grpc-message", "not there")
				return
			}
			c.fields(s.ID, false, ":status", "200", "content-type", "application/grpc")
			_ = c.WriteData(s.ID, false, []byte("\x00\x00\x00\x00\x02hi"))
			c.fields(s.ID, true, "grpc-status", "0")
		})
		c := r.openH2("u1.test:443")
		defer c.Close()
		got := c.ask("POST", "/call", "\x00\x00\x00\x00\x02yo", "Content-Type: application/grpc", "Te: trailers")
		r.want(got, 200, nil, 0)
		r.wantBody(got, "\x00\x00\x00\x00\x02hi")
		if got.Trailer.Get("Grpc-Status") != "0" {
			t.Errorf("trailers = %v, want grpc-status 0", got.Trailer)
		}
		only := c.ask("POST", "/only", "\x00\x00\x00\x00\x02yo", "Content-Type: application/grpc", "Te: trailers")
		r.want(only, 200, nil, 0)
		r.wantBody(only, "")
		r.wantHeader(only, "Grpc-Status", "5")
		r.wantHeader(only, "Grpc-Message", "not there")
		u.want(2)
	}, opening(ca, "[u1.test]")...)
}

// A client that waits for 100 gets it, whoever the upstream is; the upstream gets
// the body without being asked.
func TestInterceptedExpectContinue(t *testing.T) {
	ca := newCA(t)
	bubble(t, func(r *rig) {
		u := r.upstreamTLS("u1.test:443", ca.certificate("u1.test"), answer(503, ""), answer(200, "ok"))
		o := r.open("u1.test:443", visitor{})
		defer o.Close()
		io.WriteString(o, "POST /x HTTP/1.1\r\nHost: u1.test\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n")
		began := time.Now()
		if line := responseHead(t, o.in); line != "HTTP/1.1 100 Continue\r\n\r\n" {
			t.Fatalf("read %q, want 100", line)
		}
		r.between("100", time.Since(began), 0, 0)
		r.want(o.ask(r, "{}"), 200, u, 2)
		r.wantSent(u, 1, "Expect", "")
		if got := string(u.seen()[1].Body); got != "{}" {
			t.Errorf("body upstream = %q, want {}", got)
		}
	}, opening(ca, "[u1.test]")...)
}

// Large bodies pass whole, both ways, and a failed attempt takes them along.
func TestInterceptedLargeBodies(t *testing.T) {
	ca := newCA(t)
	up, down := random(3<<20), random(3<<20)
	bubble(t, func(r *rig) {
		u := r.upstreamTLS("u1.test:443", ca.certificate("u1.test"), answer(503, ""), answer(200, down), answer(503, ""), answer(200, down))
		got := r.secretly("POST", "https://u1.test/x", up)
		r.want(got, 200, u, 2)
		c := r.openH2("u1.test:443")
		defer c.Close()
		two := c.ask("POST", "/x", up)
		r.want(two, 200, u, 4)
		if got.Body != down || two.Body != down {
			t.Error("a body down is not what was sent")
		}
		for _, q := range u.seen() {
			if string(q.Body) != up {
				t.Errorf("body of request %d is not what was sent", q.N)
			}
		}
	}, opening(ca, "[u1.test]")...)
}

// An upload that is too large to be kept flows while it comes: an upstream that
// does not read stops the client, and gets everything once it does.
func TestInterceptedUploadThatFlows(t *testing.T) {
	const size = 8 << 20
	ca := newCA(t)
	bubble(t, func(r *rig) {
		var got atomic.Int64
		u := r.upstreamTLS("u1.test:443", ca.certificate("u1.test"), func(_ *scripted, c net.Conn, q *request) bool {
			time.Sleep(4 * time.Second)
			n, _ := io.CopyN(io.Discard, q.Rest, size)
			got.Store(n)
			return answer(200, "ok")(nil, c, q)
		})
		u.headOnly = true
		o := r.open("u1.test:443", visitor{})
		defer o.Close()
		var sent atomic.Int64
		go func() {
			io.WriteString(o, "POST /x HTTP/1.1\r\nHost: u1.test\r\nContent-Length: "+strconv.Itoa(size)+"\r\n\r\n")
			for piece := []byte(random(64 << 10)); sent.Load() < size; {
				n, err := o.Write(piece)
				if sent.Add(int64(n)); err != nil {
					return
				}
			}
		}()
		rest(3 * time.Second)
		if n := sent.Load(); n < 64<<10 || n > 1<<20 {
			t.Errorf("bytes under way = %d, want some buffers full", n)
		}
		r.want(readReply(o.in, "POST"), 200, u, 1)
		if got.Load() != size {
			t.Errorf("the upstream got %d bytes, want %d", got.Load(), size)
		}
	}, patches(opening(ca, "[u1.test]"), lays("body: {memory: 64KiB, limit: 256KiB}"))...)
}

// A client that leaves while its call waits ends it: no retry goes out for nobody.
func TestInterceptedClientThatLeaves(t *testing.T) {
	ca := newCA(t)
	for _, two := range []bool{false, true} {
		t.Run(fmt.Sprintf("h2 %v", two), func(t *testing.T) {
			bubble(t, func(r *rig) {
				u := r.upstreamTLS("u1.test:443", ca.certificate("u1.test"), answer(503, "", "Retry-After: 3"), answer(200, "ok"))
				if two {
					c := r.openH2("u1.test:443")
					defer c.Close()
					ctx, leave := context.WithTimeout(r.t.Context(), time.Second)
					defer leave()
					c.do(c.request("GET", "/x", "").WithContext(ctx))
				} else {
					o := r.open("u1.test:443", visitor{})
					io.WriteString(o, "GET /x HTTP/1.1\r\nHost: u1.test\r\n\r\n")
					rest(time.Second)
					o.Close()
				}
				rest(0)
				if c := r.interceptedCall(); c.Reason != "client_gone" || c.Result != "cancelled" {
					t.Errorf("the call ended as %s %s, want cancelled, client_gone", c.Result, c.Reason)
				}
				rest(5 * time.Second)
				r.want(reply{}, 0, u, 1)
			}, opening(ca, "[u1.test]")...)
		})
	}
}

// flood answers with size bytes and counts those that somebody took.
func flood(size int, taken *atomic.Int64) step {
	return func(_ *scripted, c net.Conn, _ *request) bool {
		io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: "+strconv.Itoa(size)+"\r\n\r\n")
		for piece := []byte(random(64 << 10)); taken.Load() < int64(size); {
			n, err := c.Write(piece)
			if taken.Add(int64(n)); err != nil {
				return false
			}
		}
		return true
	}
}

// A client that does not read stops the upstream: what is under way is bounded.
// When it reads on, it gets everything.
func TestInterceptedBackPressure(t *testing.T) {
	const size = 16 << 20
	ca := newCA(t)
	t.Run("http/1.1", func(t *testing.T) {
		bubble(t, func(r *rig) {
			var taken atomic.Int64
			r.upstreamTLS("u1.test:443", ca.certificate("u1.test"), flood(size, &taken))
			o := r.open("u1.test:443", visitor{})
			defer o.Close()
			io.WriteString(o, "GET /x HTTP/1.1\r\nHost: u1.test\r\n\r\n")
			rest(20 * time.Second)
			if n := taken.Load(); n < 64<<10 || n > 1<<20 {
				t.Errorf("bytes under way = %d, want at most 1 MiB", n)
			}
			got := readReply(o.in, "GET")
			if len(got.Body) != size || got.Err != nil {
				t.Errorf("read %d bytes, %v, want all", len(got.Body), got.Err)
			}
		}, opening(ca, "[u1.test]")...)
	})
	t.Run("h2", func(t *testing.T) {
		bubble(t, func(r *rig) {
			var taken atomic.Int64
			r.upstreamTLS("u1.test:443", ca.certificate("u1.test"), flood(size, &taken), answer(200, "other"))
			c := r.openH2("u1.test:443")
			defer c.Close()
			res, err := c.RoundTrip(c.request("GET", "/x", ""))
			if err != nil {
				t.Fatal(err)
			}
			rest(20 * time.Second)
			if n := taken.Load(); n < 64<<10 || n > 6<<20 { // 4 MiB are the client's window
				t.Errorf("bytes under way = %d, want at most 6 MiB", n)
			}
			r.wantBody(c.ask("GET", "/y", ""), "other") // neighbours do not wait
			n, err := io.Copy(io.Discard, res.Body)
			if n != size || err != nil {
				t.Errorf("read %d bytes, %v, want all", n, err)
			}
		}, opening(ca, "[u1.test]")...)
	})
}

// A client that takes nothing for body_idle_timeout is cut, and its upstream let go.
func TestInterceptedClientThatTakesNothing(t *testing.T) {
	ca := newCA(t)
	bubble(t, func(r *rig) {
		var taken atomic.Int64
		r.upstreamTLS("u1.test:443", ca.certificate("u1.test"), flood(16<<20, &taken))
		o := r.open("u1.test:443", visitor{})
		io.WriteString(o, "GET /x HTTP/1.1\r\nHost: u1.test\r\n\r\n")
		rest(time.Minute)
		if g := r.gate("u1.test:443"); g.InFlight != 0 {
			t.Errorf("in flight = %d, want the slot back", g.InFlight)
		}
		if got := readReply(o.in, "GET"); got.Err == nil {
			t.Error("the answer ended well, want a visible break")
		}
		o.NetConn().Close()
	}, opening(ca, "[u1.test]")...)
}

// A large answer that breaks off breaks visibly, whatever frames it.
func TestInterceptedTruncation(t *testing.T) {
	ca := newCA(t)
	part := random(200 << 10)
	chunk := fmt.Sprintf("%x\r\n%s\r\n", len(part), part)
	for name, first := range map[string]string{
		"length": "HTTP/1.1 200 OK\r\nContent-Length: 1048576\r\n\r\n" + part,
		"chunks": "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunk,
	} {
		for _, version := range []string{"1.0", "1.1", "2"} {
			t.Run(name+" "+version, func(t *testing.T) {
				bubble(t, func(r *rig) {
					u := r.upstreamTLS("u1.test:443", ca.certificate("u1.test"), breaking(first), answer(200, "ok"))
					if version == "2" {
						c := r.openH2("u1.test:443")
						defer c.Close()
						got := c.ask("GET", "/x", "")
						if _, ok := errors.AsType[http2.StreamError](got.Err); !ok || got.Body != part {
							t.Errorf("read %d bytes, %v, want the part and a reset stream", len(got.Body), got.Err)
						}
						r.want(c.ask("GET", "/y", ""), 200, u, 2) // the connection lives
						return
					}
					o := r.open("u1.test:443", visitor{})
					defer o.Close()
					io.WriteString(o, "GET /x HTTP/"+version+"\r\nHost: u1.test\r\n\r\n")
					res, err := http.ReadResponse(bufio.NewReader(o.in), nil)
					if err != nil {
						t.Fatal(err)
					}
					body, err := io.ReadAll(res.Body)
					if string(body) != part || err == nil {
						t.Errorf("read %d bytes, %v, want the part and a visible break", len(body), err)
					}
					r.want(reply{Status: 200}, 200, u, 1)
					if v := r.interceptedCall().Attempts[0].Verdict; v.Reason != "truncated" {
						t.Errorf("verdict = %+v, want truncated", v)
					}
				}, opening(ca, "[u1.test]")...)
			})
		}
	}
}
